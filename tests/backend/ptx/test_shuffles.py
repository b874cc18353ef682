"""Values that one thread reads for all: volatile scalars, and shared memory that they need."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.assemble import to_llvm
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.codemodel.errors import ResourceError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.text.parser import parse


@zg.kernel
def guarded(flag, out, N: zg.constexpr):
    if zg.load(flag, volatile=True) == 7:
        zg.store(zg.add(out, zg.arange(0, N)), zg.load(zg.add(flag, 1), True, 5, volatile=True))


@pytest.mark.parametrize("num_warps", [1, 4])
def test_a_volatile_scalar_is_read_by_one_thread(num_warps: int, ptxas) -> None:
    """Another program could write between two reads, and threads would diverge where control must be uniform."""
    pointer = zg.ptr(zg.i32)
    compiled = guarded.compile(pointer, pointer, 32, num_warps=num_warps)
    llvm = compiled.stages["llvm"]
    assert llvm.count("ld.volatile.global") == 2 == llvm.count("@$3 ld.volatile.global")
    assert ("@zg_slot" in llvm) == (num_warps > 1)
    ptxas(compiled.ptx, compiled.target)
    for first in (7, 8):
        out = np.zeros(32, np.int32)
        compiled.simulate[1](np.array([first, 3], np.int32), out)
        assert (out == (3 if first == 7 else 0)).all()


def test_shared_memory_for_results_counts() -> None:
    def texts(shared: int) -> str:
        module = parse(f"""gpu.module @target="sm_90a" @num_warps=4 @shared={shared} ()void -> {{
            tt.func @"k" (%p : ptr<i32>, %n : i32)void -> {{
            %0 : i32 = tt.atomic_rmw %p %n @add; tt.store %p %0; tt.return; }}; unreachable; }};""")
        assert isinstance(module, gpu.Module)
        return to_llvm(module)

    most = TARGETS["sm_90a"].max_shared
    simulate(texts(64), num_warps=4, shared=64, arguments=[np.ones(1, np.int32), 2])
    assert "@zg_slot" in texts(most - 16)
    with pytest.raises(ResourceError, match=f"take {most} bytes of shared memory and the results of its atomics 16"):
        texts(most)
