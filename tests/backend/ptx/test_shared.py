"""Buffers in shared memory by themselves: views, and the number of a warp, run thread by thread."""

from __future__ import annotations

import numpy as np

from ziggurat.backend.ptx.assemble import assemble, to_llvm
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.place.allocate import allocate
from ziggurat.transforms.place.barriers import insert_barriers
from ziggurat.transforms.place.hazards import hazards

NUM_WARPS = 4


def module_of(lines: str, parameters: str) -> gpu.Module:
    made = parse(f"""gpu.module @target="sm_90a" @num_warps={NUM_WARPS} ()void -> {{
        tt.func @"k" ({parameters})void -> {{ {lines} tt.return; }}; unreachable; }};""")
    verify(made)
    return gpu_module(insert_barriers(allocate(made)))


def gpu_module(module: object) -> gpu.Module:
    assert isinstance(module, gpu.Module)
    verify(module)
    assert hazards(module) == []
    return module


def test_warps_know_their_numbers() -> None:
    """Each warp writes its number in all of its lanes."""
    module = module_of(
        """
        %w : i32 = gpu.warp_id;
        %n : tensor<x128, i32, " | 1 2 4 8 16 | 32 64"> = tt.make_range @start=0 @end=128;
        %b : tensor<x128, ptr<i32>, " | 1 2 4 8 16 | 32 64"> = tt.splat %q;
        %a : tensor<x128, ptr<i32>, " | 1 2 4 8 16 | 32 64"> = tt.addptr %b %n;
        %x : tensor<x128, i32, " | 1 2 4 8 16 | 32 64"> = tt.splat %w;
        tt.store %a %x;""",
        "%q : ptr<i32>",
    )
    found = np.full(128, -1, np.int32)
    simulate(to_llvm(module), num_warps=NUM_WARPS, shared=module.shared, grid=(1,), arguments=[found])
    np.testing.assert_array_equal(found, np.repeat(np.arange(4), 32))
    assert "shfl.sync.idx" in assemble(module).ptx
