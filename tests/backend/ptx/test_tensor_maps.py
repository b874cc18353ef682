"""Tensor maps that kernels make: simulated against the interpreter, and as ptxas takes them.

Inputs are small integers, of which all sums are exact.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.assemble import to_llvm
from ziggurat.backend.ptx.sass import assembled, tool
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.backend.simulator.tma import in_parts
from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.errors import SimulationError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.compiler.compiled import Compiled
from ziggurat.transforms.analysis.queries import function_of

F8 = ml_dtypes.float8_e4m3fn


@zg.kernel
def grouped(
    a_ptr, b_ptr, c_ptr, starts, sizes, pitches, groups, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr,
):  # fmt: skip
    """Products of matrices of several sizes; where they begin, and their sizes and pitches, are in memory."""
    tile = zg.program_id(0) + zg.num_programs(0) * (zg.program_id(1) + zg.num_programs(1) * zg.program_id(2))
    last = 0
    for g in range(groups):
        rows, columns, depth = zg.load(sizes + 3 * g), zg.load(sizes + 3 * g + 1), zg.load(sizes + 3 * g + 2)
        across = zg.cdiv(columns, N)
        tiles = zg.cdiv(rows, M) * across
        if (tile >= last) & (tile < last + tiles):
            pitch_a, pitch_b, pitch_c = (
                zg.load(pitches + 3 * g),
                zg.load(pitches + 3 * g + 1),
                zg.load(pitches + 3 * g + 2),
            )
            a = zg.make_tensor_descriptor(a_ptr + zg.load(starts + 3 * g), (rows, depth), (pitch_a, 1), (M, K))
            b = zg.make_tensor_descriptor(b_ptr + zg.load(starts + 3 * g + 1), (columns, depth), (pitch_b, 1), (N, K))
            c = zg.make_tensor_descriptor(c_ptr + zg.load(starts + 3 * g + 2), (rows, columns), (pitch_c, 1), (M, N))
            while (tile >= last) & (tile < last + tiles):
                row, column = (tile - last) // across * M, (tile - last) % across * N
                acc = zg.zeros((M, N), zg.f32)
                for k in range(0, depth, K):
                    acc = zg.dot(a.load((row, k)), zg.trans(b.load((column, k))), acc)
                c.store((row, column), zg.cast(acc, c.dtype))
                tile += zg.num_programs(0) * zg.num_programs(1) * zg.num_programs(2)
        last += tiles


def given(sizes: list[tuple[int, int, int]], dtype: Any) -> list[Any]:
    """The arguments of `grouped`. Rows are apart by more than their length, and by a multiple of 16 bytes."""
    random, unit = np.random.default_rng(0), 16 // np.dtype(dtype).itemsize
    starts: list[list[int]] = []
    pitches: list[list[int]] = []
    ends = [0, 0, 0]
    for m, n, k in sizes:
        steps = [-(-columns // unit) * unit + unit for columns in (k, k, n)]
        starts.append(list(ends))
        pitches.append(steps)
        ends = [end + rows * step for end, rows, step in zip(ends, (m, n, m), steps, strict=True)]
    arrays = [random.integers(-3, 4, end).astype(dtype) for end in ends]
    return [*arrays, np.array(starts, np.int64), np.array(sizes, np.int32), np.array(pitches, np.int32), len(sizes)]


@functools.cache
def compiled(element: Any, *tile: int, stages: int = 3, warps: int = 4) -> Compiled:
    pointers = [zg.ptr(element)] * 3
    numbers = [zg.ptr(zg.i64), zg.ptr(zg.i32), zg.ptr(zg.i32), zg.i32]
    return grouped.compile(*pointers, *numbers, *tile, num_stages=stages, num_warps=warps, verify=True)


def count(make: Compiled, cls: Any) -> int:
    return sum(isinstance(op, cls) for op in make.stages["gpu"].walk())


GROUPS = [(70, 40, 136), (64, 36, 64), (10, 20, 200)]


@pytest.mark.parametrize(
    ("element", "dtype", "tile", "stages", "seed"),
    [
        (zg.f16, np.float16, (64, 32, 64), 3, 0),
        (zg.f16, np.float16, (64, 32, 64), 3, 1),
        (zg.f16, np.float16, (64, 16, 32), 2, 2),
        (zg.bf16, ml_dtypes.bfloat16, (64, 64, 16), 4, 3),
        (zg.f8e4m3, F8, (64, 32, 64), 3, 0),
        (zg.f8e4m3, F8, (64, 64, 128), 2, 2),
    ],
)
def test_bases_and_sizes_from_memory(
    element: Any, dtype: Any, tile: tuple[int, int, int], stages: int, seed: int
) -> None:
    """Loads and stores go by TMA, those of rows that are no multiples of 16 bytes excepted; nothing between rows is
    written."""
    binary = compiled(element, *tile, stages=stages)
    assert count(binary, gpu.MakeTensorMap) == 3 and binary.scratch == 3 * 128
    assert count(binary, gpu.TmaLoad) == 2 * stages and count(binary, gpu.TmaStore) == 1
    assert not any(isinstance(op, tt.Load) and "tensor" in str(op.result.type) for op in binary.stages["gpu"].walk())
    actual, expected = given(GROUPS, dtype), given(GROUPS, dtype)
    binary.simulate[(2,)](*actual, seed=seed)
    grouped[(2,)](*expected, *tile)
    np.testing.assert_array_equal(actual[2].view(np.uint8), expected[2].view(np.uint8))


@pytest.mark.parametrize("grid", [(2, 3, 2), (12, 1, 1)])
def test_each_program_has_maps_of_its_own(grid: tuple[int, int, int]) -> None:
    """As many tiles as programs: the memory of each has been written."""
    binary = compiled(zg.f16, 64, 32, 64)
    module = binary.stages["gpu"]
    actual, expected = given([(64 * 3, 32 * 4, 64)], np.float16), given([(64 * 3, 32 * 4, 64)], np.float16)
    arguments = in_parts(function_of(module), actual, 12 * binary.scratch)
    simulate(to_llvm(module), num_warps=4, shared=module.shared, grid=grid, arguments=arguments)
    grouped[grid](*expected, 64, 32, 64)
    np.testing.assert_array_equal(actual[2], expected[2])
    assert (arguments[-1].reshape(36, 128) != 0).any(1).all()


@zg.kernel
def by_choice(a_ptr, other_ptr, b_ptr, c_ptr, n, k, first, FORM: zg.constexpr):
    """Products of one of two matrices, which a branch chooses, or of both in turn."""
    a = zg.make_tensor_descriptor(a_ptr, (n, k), (k, 1), (64, 32))
    other = zg.make_tensor_descriptor(other_ptr, (n + 8, k), (k + 16, 1), (64, 32))
    b = zg.make_tensor_descriptor(b_ptr, (16, k), (k, 1), (16, 32))
    if FORM == "branch":
        if first == 0:
            a = other
    for at in range(0, n, 64):
        total = zg.zeros((64, 16), zg.f32)
        for start in range(0, k, 32):
            total = zg.dot(a.load((at, start)), zg.trans(b.load((0, start))), total)
        rows, columns = zg.expand(zg.arange(0, 64), 1), zg.expand(zg.arange(0, 16), 0)
        zg.store(zg.add(c_ptr, zg.add(zg.mul(zg.add(rows, at), 16), columns)), total)
        if FORM == "turns":
            a, other = other, a


@pytest.mark.parametrize(("form", "first"), [("branch", 0), ("branch", 1), ("turns", 0)])
@pytest.mark.parametrize("target", ["sm_90a", "sm_120a"])
def test_control_flow_chooses_a_descriptor(form: str, first: int, target: str) -> None:
    """The map is made after the choice: before the loops, or in each iteration of the outer one."""
    types = [*[zg.ptr(zg.f16)] * 3, zg.ptr(zg.f32), *[zg.i32] * 3]
    binary = by_choice.compile(*types, form, target=target, num_warps=4, num_stages=3, verify=True)
    assert count(binary, gpu.TmaLoad) == 6 and count(binary, gpu.MakeTensorMap) == 2

    def given() -> list[Any]:
        n, k, random = 140, 80, np.random.default_rng(3)
        sizes = [n * k, (n + 8) * (k + 16), 16 * k]
        arrays = [random.integers(-3, 4, size).astype(np.float16) for size in sizes]
        return [*arrays, np.zeros((192, 16), np.float32), n, k, first]

    actual, expected = given(), given()
    binary.simulate[(1,)](*actual, seed=1)
    by_choice[(1,)](*expected, form)
    np.testing.assert_array_equal(actual[3], expected[3])
    assert expected[3].any()


@zg.kernel
def made_in_a_loop(a_ptr, b_ptr, c_ptr, count, n, k, PAD: zg.constexpr):
    """Descriptors made anew for each product, and used in a loop over its tiles."""
    for g in range(zg.program_id(0), count, zg.num_programs(0)):
        a = zg.make_tensor_descriptor(a_ptr + g * 64 * k, (64, k), (k, 1), (64, 64), PAD)
        b = zg.make_tensor_descriptor(b_ptr + g * n * k, (n, k), (k, 1), (16, 64))
        c = zg.make_tensor_descriptor(c_ptr + g * 64 * n, (64, n), (n, 1), (64, 16))
        for column in range(0, n, 16):
            acc = zg.zeros((64, 16), zg.f32)
            for start in range(0, k, 64):
                acc = zg.dot(a.load((0, start)), zg.trans(b.load((column, start))), acc)
            c.store((0, column), zg.cast(acc, zg.f16))


F16, I32 = zg.ptr(zg.f16), zg.i32


@pytest.mark.parametrize(
    ("seed", "pad", "depth"), [(0, "zero", 64), (1, "zero", 136), (2, "zero", 200), (0, "nan", 72)]
)
def test_a_descriptor_for_each_iteration(seed: int, pad: str, depth: int) -> None:
    """Rows of c are as long as they are apart, so that they are known to be whole, and there is one kind of store."""
    binary = made_in_a_loop.compile(F16, F16, F16, I32, I32, I32, pad, verify=True)
    assert count(binary, gpu.MakeTensorMap) == 3 and not count(binary, gpu.LocalGather)
    random, n, products = np.random.default_rng(1), 40, 3
    a, b = (random.integers(-3, 4, (products, size, depth)).astype(np.float16) for size in (64, n))
    actual, expected = np.zeros((2, products, 64, n), np.float16)
    binary.simulate[(1,)](a, b, actual, products, n, depth, seed=seed)
    made_in_a_loop[(1,)](a, b, expected, products, n, depth, pad)
    np.testing.assert_array_equal(actual, expected)
    assert np.isnan(actual).any() == (pad == "nan" and depth % 64 != 0)


@zg.kernel
def with_roles(a_ptr, b_ptr, c_ptr, m, n, k):
    """Warp roles: the producer makes the maps of its loads, the consumer that of its stores."""
    a = zg.make_tensor_descriptor(a_ptr, (m, k), (k, 1), (64, 64))
    b = zg.make_tensor_descriptor(b_ptr, (n, k), (k, 1), (16, 64))
    c = zg.make_tensor_descriptor(c_ptr, (m, n), (n, 1), (64, 16))
    across = zg.cdiv(n, 16)
    for tile in range(zg.program_id(0), zg.cdiv(m, 64) * across, zg.num_programs(0)):
        row, column = tile // across * 64, tile % across * 16
        acc = zg.zeros((64, 16), zg.f32)
        for start in zg.range(0, k, 64, warp_specialize=True):
            acc = zg.dot(a.load((row, start)), zg.trans(b.load((column, start))), acc)
        c.store((row, column), zg.cast(acc, zg.f16))


@pytest.mark.parametrize("seed", [0, 1])
def test_warp_roles(seed: int) -> None:
    binary = with_roles.compile(F16, F16, F16, I32, I32, I32, verify=True)
    (split,) = (op for op in binary.stages["gpu"].walk() if isinstance(op, gpu.WarpSpecialize))
    makes = [sum(isinstance(op, gpu.MakeTensorMap) for op in role.walk()) for role in split.roles]
    assert makes == [1, 2]
    random, m, n, k = np.random.default_rng(1), 100, 40, 136
    a, b = (random.integers(-3, 4, (size, k)).astype(np.float16) for size in (m, n))
    actual, expected = np.zeros((2, m, n), np.float16)
    binary.simulate[(2,)](a, b, actual, m, n, k, seed=seed)
    with_roles[(2,)](a, b, expected, m, n, k)
    np.testing.assert_array_equal(actual, expected)


# Faults.


SET = "tensormap.replace.tile"
MAP = "shared::cta.b1024.b32 [$0"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("@go fence.proxy.tensormap", "", "after a fence.proxy.tensormap of its own"),
        ("@go st.shared.b32 [$0]", "", "must be zero before its fields are set"),
        (f"{SET}.rank", "", "rank 0 is missing"),
        (f"{SET}.global_dim.{MAP}], 1", "", "global_dim 1 is missing"),
        ("@go bar.warp.sync", "", "which another thread has written since the last barrier"),
        (f"{SET}.rank", f"{SET}.rank.{MAP}+64], 1;", "aligned to 128 bytes"),
        (f"{SET}.interleave_layout", f"{SET}.interleave_layout.{MAP}], 1;", "no interleave"),
    ],
)
def test_faults_of_a_map_are_reported(before: str, after: str, message: str) -> None:
    """Each takes an instruction from the text, or changes one."""
    binary = compiled(zg.f16, 64, 32, 64)
    newline = "\\0A"
    instruction = re.escape(before) + ".*?;" + re.escape(newline)
    text = re.sub(instruction, lambda _: after and after + newline, binary.stages["llvm"], count=1)
    arguments = in_parts(function_of(binary.stages["gpu"]), given(GROUPS[:1], np.float16), binary.scratch)
    with pytest.raises(SimulationError, match=message):
        simulate(text, num_warps=4, shared=binary.shared, arguments=arguments)


@pytest.mark.parametrize(
    ("number", "by", "message"), [(3, 4, "multiples of 16 bytes"), (5, 4, "multiples of 16 bytes")]
)
def test_bases_and_pitches_are_multiples_of_16_bytes(number: int, by: int, message: str) -> None:
    """Otherwise TMA moves something else, or fails."""
    arguments = given(GROUPS[:1], np.float16)
    arguments[number][0, 0] += by
    with pytest.raises(SimulationError, match=message):
        compiled(zg.f16, 64, 32, 64).simulate[(1,)](*arguments)


def test_tensors_outside_of_their_array() -> None:
    arguments = given(GROUPS[:1], np.float16)
    arguments[3][0, 1] += 1 << 20
    with pytest.raises(SimulationError, match="an access must be inside of its array"):
        compiled(zg.f16, 64, 32, 64).simulate[(1,)](*arguments)


@pytest.mark.skipif(tool("ptxas") is None, reason="ptxas is not installed (pip install nvidia-cuda-nvcc)")
@pytest.mark.parametrize(("element", "tile", "warps", "most"), [
    (zg.f16, (128, 128, 64), 4, 168), (zg.f16, (128, 128, 64), 8, 128), (zg.f8e4m3, (128, 128, 128), 4, 168),
])  # fmt: skip
def test_ptxas_finds_registers(element: Any, tile: tuple[int, int, int], warps: int, most: int) -> None:
    """Two CTAs an SM, with stores of rows that are no multiples of 16 bytes as well."""
    binary = compiled(element, *tile, warps=warps)
    _, resources = assembled(binary.ptx, "sm_90a")
    assert resources.registers <= most and not resources.spills and not resources.warnings
    assert any(isinstance(op, scf.If) for op in binary.stages["gpu"].walk())
