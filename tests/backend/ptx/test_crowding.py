"""Which kernels the assembler is told of that they need all registers, and what it makes of that."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.assemble import assemble
from ziggurat.backend.ptx.crowding import is_crowded
from ziggurat.backend.ptx.sass import assembled, tool
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.transforms.place.passes import PlaceOptions, place

I32 = zg.divisible(zg.i32)


@zg.kernel
def added(x, out, n, SIZE: zg.constexpr):
    """The sums of n tensors that follow each other."""
    at = zg.arange(0, SIZE)
    total = zg.zeros((SIZE,), zg.f32)
    for number in range(0, n):
        total = zg.add(total, zg.load(zg.add(x + number * SIZE, at)))
    zg.store(zg.add(out, at), total)


def added_up(size: int, num_warps: int) -> gpu.Module:
    pointer = zg.divisible(zg.ptr(zg.f32))
    return place(added.triton(pointer, pointer, I32, size), PlaceOptions("sm_80", num_warps, 3))


@pytest.mark.parametrize(("size", "num_warps", "crowded"), [
    (4096, 1, False), (8192, 1, True),  # of 255 registers
    (16384, 4, False), (32768, 4, True), (32768, 16, False), (65536, 16, True),  # of 128
    (32768, 32, False), (65536, 32, True),  # of 64
])  # fmt: skip
def test_a_kernel_that_carries_all_registers_is_crowded(size: int, num_warps: int, crowded: bool) -> None:
    assert is_crowded(added_up(size, num_warps)) == crowded


def test_one_crowded_program_on_a_multiprocessor_will_do() -> None:
    module = added_up(8192, 1)
    made = assemble(module)
    assert '"nvvm.reqntid"="32" "nvvm.minctasm"="1" }' in made.llvm and ".minnctapersm 1\n" in made.ptx
    assert "minnctapersm" not in assemble(added_up(4096, 1)).ptx
    x, out = np.arange(16384, dtype=np.float32).reshape(2, 8192), np.zeros(8192, np.float32)
    simulate(made.llvm, num_warps=1, shared=module.shared, grid=(1,), arguments=[x, out, 2])
    np.testing.assert_array_equal(out, x.sum(axis=0))


@zg.kernel
def multiplied(a, b, c, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    rows, columns, steps = zg.expand(zg.arange(0, M), 1), zg.expand(zg.arange(0, N), 0), zg.arange(0, K)
    total = zg.zeros((M, N), zg.f32)
    for start in range(0, k, K):
        depth = zg.add(start, steps)
        left = zg.load(zg.add(a, zg.add(zg.mul(rows, k), zg.expand(depth, 0))))
        right = zg.load(zg.add(b, zg.add(zg.mul(zg.expand(depth, 1), N), columns)))
        total = zg.dot(left, right, total)
    zg.store(zg.add(c, zg.add(zg.mul(rows, N), columns)), total)


def product_of_16_warps(target: str) -> gpu.Module:
    pointer = zg.divisible(zg.ptr(zg.f32))
    return place(multiplied.triton(pointer, pointer, pointer, I32, 256, 256, 32), PlaceOptions(target, 16, 3))


def test_wgmma_is_left_alone() -> None:
    assert is_crowded(product_of_16_warps("sm_80"))
    module = product_of_16_warps("sm_90a")
    assert any(isinstance(op, gpu.Wgmma) for op in module.walk()) and not is_crowded(module)


@pytest.mark.skipif(tool("ptxas") is None, reason="ptxas is not installed")
def test_ptxas_takes_the_registers_that_there_are() -> None:
    ptx = assemble(product_of_16_warps("sm_80")).ptx
    _, told = assembled(ptx, "sm_80")
    _, untold = assembled(ptx.replace(".minnctapersm 1\n", ""), "sm_80")
    assert told.registers == 128 and told.spills < untold.spills
