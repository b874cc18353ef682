"""Register-limited kernels ask ptxas for an occupancy of one CTA, large ones with few values for two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.assemble import assemble, ctas_to_ask_for
from ziggurat.backend.ptx.sass import assembled, tool
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.transforms.gpu.gpu_passes import place

I32 = zg.divisible(zg.i32)


@zg.kernel
def added(x, out, n, SIZE: zg.constexpr):
    """The sums of n tensors that follow each other."""
    at = zg.arange(0, SIZE)
    total = zg.zeros((SIZE,), zg.f32)
    for number in range(0, n):
        total = zg.add(total, zg.load(zg.add(x + number * SIZE, at)))
    zg.store(zg.add(out, at), total)


def added_up(size: int, num_warps: int, target: str = "sm_80") -> gpu.Module:
    pointer = zg.divisible(zg.ptr(zg.f32))
    return place(added.triton(pointer, pointer, I32, size), CompileOptions(target, num_warps, 3))


@pytest.mark.parametrize(("size", "num_warps", "limited"), [
    (2048, 1, False), (4096, 1, True), (8192, 4, False), (16384, 4, True),  # of 255 registers, one half loaded
    (16384, 16, False), (32768, 16, True),  # of 128
    (16384, 32, False), (32768, 32, True),  # of 64
])  # fmt: skip
def test_a_kernel_that_carries_all_registers_is_register_limited(size: int, num_warps: int, limited: bool) -> None:
    assert (ctas_to_ask_for(added_up(size, num_warps)) == 1) == limited


@zg.kernel
def added_in_pairs(x, out, n, SIZE: zg.constexpr, OTHER: zg.constexpr):
    """The sums of n tensors of two sizes, which a loop carries together."""
    at, rest = zg.arange(0, SIZE), zg.arange(0, OTHER)
    total, other = zg.zeros((SIZE,), zg.i32), zg.zeros((OTHER,), zg.i32)
    for number in range(0, n):
        total, other = zg.add(total, number), zg.sub(other, number)
    zg.store(zg.add(out, at), total)
    zg.store(zg.add(x, rest), other)


@pytest.mark.parametrize(("sizes", "limited"), [((32768, 32768), True), ((32768, 16384), False)])
def test_a_loop_that_carries_all_registers_together(sizes: tuple[int, int], limited: bool) -> None:
    """16 warps have 128 registers a thread, of which 32768 elements take 64."""
    pointer = zg.divisible(zg.ptr(zg.i32))
    module = place(added_in_pairs.triton(pointer, pointer, I32, *sizes), CompileOptions("sm_80", 16, 3))
    assert (ctas_to_ask_for(module) == 1) == limited


def test_a_register_limited_kernel_asks_for_one_cta_per_sm() -> None:
    module = added_up(8192, 1)
    assembly = assemble(module)
    assert '"nvvm.reqntid"="32" "nvvm.minctasm"="1" }' in assembly.llvm and ".minnctapersm 1\n" in assembly.ptx
    assert "minnctapersm" not in assemble(added_up(2048, 1)).ptx
    x, out = np.arange(16384, dtype=np.float32).reshape(2, 8192), np.zeros(8192, np.float32)
    simulate(assembly.llvm, num_warps=1, shared=module.shared, grid=(1,), arguments=[x, out, 2])
    np.testing.assert_array_equal(out, x.sum(axis=0))


@pytest.mark.parametrize(("size", "num_warps", "ctas"), [(8192, 8, 2), (4096, 4, 4), (4096, 8, 0), (16384, 8, 0)])
def test_kernels_whose_values_fit_twice_leave_registers_for_16_warps(size: int, num_warps: int, ctas: int) -> None:
    """A loop that carries 32 numbers and loads as many: ptxas may take a few registers too many for two CTAs."""
    module = added_up(size, num_warps)
    assert ctas_to_ask_for(module) == ctas
    if ctas and tool("ptxas") is not None:
        _, messages = assembled(assemble(module).ptx, "sm_80")
        assert messages.registers <= 128 and messages.spills == 0


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
    return place(multiplied.triton(pointer, pointer, pointer, I32, 256, 256, 32), CompileOptions(target, 16, 3))


def test_wgmma_is_left_alone() -> None:
    assert ctas_to_ask_for(product_of_16_warps("sm_80")) == 1
    module = product_of_16_warps("sm_90a")
    assert any(isinstance(op, gpu.Wgmma) for op in module.walk()) and not ctas_to_ask_for(module)


@pytest.mark.skipif(tool("ptxas") is None, reason="ptxas is not installed")
def test_ptxas_takes_the_registers_that_there_are() -> None:
    ptx = assemble(product_of_16_warps("sm_80")).ptx
    _, messages = assembled(ptx, "sm_80")
    _, untold = assembled(ptx.replace(".minnctapersm 1\n", ""), "sm_80")
    assert messages.registers == 128 and messages.spills < untold.spills


def test_large_ctas_with_few_values_share_an_sm() -> None:
    """Of 32 warps, an SM with 64 has two, if their threads have 32 registers; one of sm_86, with 48, has one anyway."""
    few, many = added_up(4096, 32), added_up(32768, 16)
    assert ctas_to_ask_for(few) == 2 and ctas_to_ask_for(many) == 1
    assert ctas_to_ask_for(added_up(4096, 32, "sm_86")) == 0 == ctas_to_ask_for(added_up(4096, 16))
    if tool("ptxas") is not None:
        _, messages = assembled(assemble(few).ptx, "sm_80")
        assert messages.registers <= 32 and messages.spills == 0


@zg.kernel
def scaled_by_sum(x, out, SIZE: zg.constexpr):
    at = zg.arange(0, SIZE)
    row = zg.load(zg.add(x, at))
    zg.store(zg.add(out, at), zg.mul(row, zg.sum(zg.mul(row, row), axis=0)))


def check_all_registers(model: Any) -> None:
    """Check that the assembler gives a kernel all registers, and spills no more than without being told."""
    if tool("ptxas") is not None:
        ptx = assemble(model).ptx
        _, messages = assembled(ptx, "sm_90a")
        _, untold = assembled(ptx.replace(".minnctapersm 1\n", ""), "sm_90a")
        assert messages.registers > 240 and messages.spills <= untold.spills


def test_values_outside_of_loops_limit_registers_as_well() -> None:
    pointer = zg.divisible(zg.ptr(zg.f32))
    wide, narrow = (
        place(scaled_by_sum.triton(pointer, pointer, 32768), CompileOptions("sm_90a", warps)) for warps in (4, 8)
    )
    assert ctas_to_ask_for(wide) == 1 and ctas_to_ask_for(narrow) == 0
    check_all_registers(wide)


@zg.kernel
def gated_gradients(gradients, gates, values, others, out, SIZE: zg.constexpr):
    """A product and a sum of four tensors, of which the last two are used after a reduction of the first two."""
    at = zg.arange(0, SIZE)
    parts = [zg.cast(zg.load(zg.add(p, at)), zg.f32) for p in (gradients, gates, values, others)]
    total = zg.sum(zg.mul(parts[0], parts[1]), axis=0)
    zg.store(zg.add(out, at), zg.mul(zg.add(zg.mul(parts[0], parts[2]), zg.mul(parts[1], parts[3])), total))


def test_what_is_loaded_outside_of_loops_limits_registers_as_well() -> None:
    pointer = zg.divisible(zg.ptr(zg.bf16))
    arguments = (pointer, pointer, pointer, pointer, zg.divisible(zg.ptr(zg.f32)), 16384)
    wide, narrow = (place(gated_gradients.triton(*arguments), CompileOptions("sm_90a", warps)) for warps in (4, 8))
    assert ctas_to_ask_for(wide) == 1 and ctas_to_ask_for(narrow) == 0
    check_all_registers(wide)


@zg.kernel
def decayed(x, out, n, SIZE: zg.constexpr):
    at = zg.arange(0, SIZE)
    total = zg.zeros((SIZE,), zg.f32)
    for start in range(0, n):
        place = zg.add(x, zg.add(zg.mul(start, SIZE), at))
        new = zg.load(place)
        zg.store(place, total)
        total = zg.add(zg.mul(total, 0.5), new)
    zg.store(zg.add(out, at), total)


def test_what_a_loop_loads_limits_registers_as_well() -> None:
    pointer = zg.divisible(zg.ptr(zg.f32))
    wide, narrow = (
        place(decayed.triton(pointer, pointer, I32, 16384), CompileOptions("sm_90a", warps)) for warps in (4, 8)
    )
    assert ctas_to_ask_for(wide) == 1 and ctas_to_ask_for(narrow) == 0


@zg.kernel
def rows_largest(x, out, n, M: zg.constexpr, N: zg.constexpr):
    """The columns of the largest of masked tiles, added up."""
    rows, columns = zg.expand(zg.arange(0, M), 1), zg.expand(zg.arange(0, N), 0)
    total = zg.zeros((M,), zg.i32)
    for start in range(0, n, N):
        column = zg.add(start, columns)
        inside = zg.compare(column, n, zg.CompareKind.LESS_THAN)
        tile = zg.load(zg.add(x, zg.add(zg.mul(rows, n), column)), inside, float("-inf"))
        total = zg.add(total, zg.argmax(tile, 1))
    zg.store(zg.add(out, zg.arange(0, M)), total)


@zg.kernel
def largest_of_all(x, out, n, M: zg.constexpr, N: zg.constexpr):
    """The number of the tile where each element is the largest; a float and an integer are carried for each."""
    at = zg.add(zg.mul(zg.expand(zg.arange(0, M), 1), N), zg.expand(zg.arange(0, N), 0))
    best, top = zg.zeros((M, N), zg.i32), zg.full((M, N), float("-inf"), zg.f32)
    for number in range(0, n):
        value = zg.load(zg.add(x, zg.add(at, number * M * N)), zg.compare(at, n, zg.CompareKind.LESS_THAN), 0.0)
        better = zg.compare(value, top, zg.CompareKind.GREATER_THAN)
        top, best = zg.where(better, value, top), zg.where(better, number, best)
    zg.store(zg.add(out, at), best)


@pytest.mark.skipif(tool("ptxas") is None, reason="ptxas is not installed")
@pytest.mark.parametrize("kernel", [rows_largest, largest_of_all])
@pytest.mark.parametrize(
    ("target", "num_warps", "limited"), [("sm_80", 8, False), ("sm_90a", 4, True), ("sm_90a", 8, False)]
)
def test_a_masked_argmax_in_a_loop_has_the_registers_that_it_needs(kernel, target, num_warps, limited) -> None:
    """ptxas gave some of them 32 registers, and spilled 7 to 22 KB."""
    binary = kernel.compile(
        zg.divisible(zg.ptr(zg.f32)), zg.divisible(zg.ptr(zg.i32)), zg.i32, 128, 128, num_warps=num_warps, target=target
    )
    _, resources = assembled(binary.ptx, target)
    assert (".minnctapersm 1" in binary.ptx) == limited
    assert resources.registers >= 128
    if not limited:
        assert resources.spills == 0
