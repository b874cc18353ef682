"""Warp specialisation: emitted text as ptxas takes it, and simulated against the interpreter of Triton models.

The simulation lets the role that computes go first with the seed 0, the one that fetches with 1, and either with
others, which attention is run with; what is not in order by a barrier or an mbarrier is an error at any of them. Inputs
are small integers, of which all sums are exact, but for attention.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from asynchronous_kernels import SQUARE, gradients

import ziggurat as zg
from ziggurat.backend.ptx.assemble import assemble, to_llvm
from ziggurat.backend.ptx.roles import registers_of
from ziggurat.backend.reference.run import run
from ziggurat.backend.simulator.shared import SimulationError
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.backend.simulator.tma import in_parts
from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.analysis.queries import function_of, role_split
from ziggurat.transforms.cost.budget import ctas_of_roles
from ziggurat.transforms.gpu.gpu_passes import place
from ziggurat.transforms.gpu.hazards import hazards

PTXAS = Path(sysconfig.get_paths()["purelib"]) / "nvidia/cu13/bin/ptxas"
I32 = zg.divisible(zg.i32)
GE = zg.CompareKind.GREATER_THAN_OR_EQUAL
Given = Callable[[], tuple[np.ndarray, list[Any]]]


def placed(
    model: Op, num_warps: int = 4, num_stages: int = 3, roles: bool = True, maxnreg: int | None = None
) -> gpu.Module:
    module = place(model, CompileOptions("sm_90a", num_warps, num_stages, maxnreg=maxnreg))
    verify(module)
    assert hazards(module) == []
    assert (role_split(module) is not None) == roles
    return module


@functools.cache
def placed_once(kernel: Any, *types: Any) -> tuple[Op, gpu.Module]:
    """The model of a kernel, and where its ops are placed, for tests of several arguments."""
    model = kernel.triton(*types)
    return model, placed(model)


def count(module: Op, *classes: type[Op]) -> int:
    return sum(isinstance(op, classes) for op in module.walk())


def simulated(
    module: gpu.Module, arguments: Sequence[Any], grid: tuple[int, ...] = (1,), seed: int = 0, llvm: str = ""
) -> None:
    inputs = in_parts(function_of(module), arguments)
    simulate(
        llvm or to_llvm(module),
        num_warps=module.num_warps,
        shared=module.shared,
        grid=grid,
        arguments=inputs,
        seed=seed,
    )


def judged(
    model: Op,
    module: gpu.Module,
    make_arguments: Given,
    grid: tuple[int, ...],
    seeds: Sequence[int] = (0, 1),
    **close: float,
) -> None:
    """The simulation writes to the first array that `given` makes what the interpreter does."""
    expected, arguments = make_arguments()
    before = expected.copy()
    run(model, None, grid, arguments)
    assert not np.array_equal(before, expected)
    llvm = to_llvm(module)
    for seed in seeds:
        actual, arguments = make_arguments()
        simulated(module, arguments, grid, seed, llvm)
        if close:
            np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64), **close)
        else:
            np.testing.assert_array_equal(actual.astype(np.float64), expected.astype(np.float64))


def random(shape: tuple[int, int], dtype: Any = np.float16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def descriptors(*blocks: tuple[int, int], element: Any = zg.f16) -> list[Any]:
    """The types of descriptors of arrays with rows of whole 16 bytes; the last one is of f16."""
    *first, last = blocks
    return [
        *(zg.divisible(zg.descriptor(block, element)) for block in first),
        zg.divisible(zg.descriptor(last, zg.f16)),
    ]


def described(arrays: Sequence[np.ndarray], blocks: Sequence[tuple[int, int]]) -> list[Any]:
    return [zg.TensorDescriptor(array, block) for array, block in zip(arrays, blocks, strict=True)]


# Products, tile by tile.


@zg.kernel
def tiles(
    a_desc, b_desc, c_desc, count, across, k,
    M: zg.constexpr, N: zg.constexpr, K: zg.constexpr, transposed: zg.constexpr,
):  # fmt: skip
    """Tiles of c = a · b, distributed over the programs; `turned`: b is n × k in memory."""
    for tile in range(zg.program_id(0), count, zg.num_programs(0)):
        row, column = tile // across * M, tile % across * N
        acc = zg.zeros((M, N), zg.f32)
        for start in zg.range(0, k, K, warp_specialize=True):
            b = zg.trans(b_desc.load((column, start))) if transposed else b_desc.load((start, column))
            acc = zg.dot(a_desc.load((row, start)), b, acc)
        c_desc.store((row, column), zg.cast(acc, zg.f16))


ELEMENTS: dict[str, tuple[Any, Any]] = {
    "f16": (zg.f16, np.float16),
    "bf16": (zg.bf16, ml_dtypes.bfloat16),
    "e4m3": (zg.f8e4m3, ml_dtypes.float8_e4m3fn),
}


def tiles_of(
    tile: tuple[int, int, int], sizes: tuple[int, int, int], name: str = "f16", transposed: bool = True
) -> tuple[Op, Given]:
    (m, n, k), (rows, columns, depth) = tile, sizes
    element, dtype = ELEMENTS[name]
    blocks = [(m, k), (n, k) if transposed else (k, n), (m, n)]
    model = tiles.triton(*descriptors(*blocks, element=element), zg.i32, zg.i32, I32, m, n, k, transposed)

    def given() -> tuple[np.ndarray, list[Any]]:
        long = max(depth, k)
        b = random((columns, long) if transposed else (long, columns), dtype, 2)
        arrays = [random((rows, long), dtype, 1), b, np.full((rows, columns), 7, np.float16)]
        across = -(-columns // n)
        return arrays[2], [*described(arrays, blocks), -(-rows // m) * across, across, depth]

    return model, given


@pytest.mark.parametrize(
    ("tile", "sizes", "name", "transposed", "warps", "stages", "grid"),
    [
        ((64, 16, 64), (192, 48, 320), "f16", True, 4, 3, 2),  # Several tiles a CTA, and more iterations than slots.
        ((64, 64, 32), (128, 64, 96), "f16", False, 4, 2, 2),  # One tile for each program.
        ((64, 16, 64), (192, 32, 128), "f16", True, 4, 5, 2),  # More slots than iterations.
        ((128, 16, 64), (256, 32, 192), "f16", True, 8, 2, 1),  # Two warp groups release slots.
        ((128, 64, 64), (128, 72, 128), "bf16", False, 8, 3, 1),
        ((64, 16, 128), (128, 32, 384), "e4m3", True, 4, 3, 1),
        ((64, 16, 64), (192, 16, 64), "f16", True, 4, 3, 1),  # One iteration a tile.
        ((64, 16, 64), (128, 16, 0), "f16", True, 4, 3, 1),  # None.
        ((64, 16, 64), (70, 24, 200), "f16", True, 4, 3, 2),  # Blocks that are half outside.
    ],
)
def test_products(
    tile: tuple[int, int, int],
    sizes: tuple[int, int, int],
    name: str,
    transposed: bool,
    warps: int,
    stages: int,
    grid: int,
) -> None:
    model, arguments = tiles_of(tile, sizes, name, transposed)
    module = placed(model, warps, stages)
    assert count(module, gpu.TmaLoad) == 2
    judged(model, module, arguments, (grid,))


# Blocks that a loop adds to memory.


@zg.kernel
def added_up(
    a_desc, b_desc, sums_desc, c_desc, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr, ROLES: zg.constexpr
):
    """c = a · b, and in each step aᵀ · b or so: the products of the tile's columns with b, added to the same rows."""
    row = zg.program_id(0) * M
    acc = zg.zeros((M, N), zg.f32)
    for start in zg.range(0, k, K, warp_specialize=ROLES):
        a, b = a_desc.load((row, start)), b_desc.load((start, 0))
        acc = zg.dot(a, b, acc)
        sums_desc.atomic_add((start, 0), zg.dot(zg.trans(a), zg.cast(acc, zg.f16)))
    c_desc.store((row, 0), zg.cast(acc, zg.f16))


@pytest.mark.parametrize("roles", [False, True])
@pytest.mark.parametrize(("warps", "steps"), [(4, 4), (8, 1), (8, 3)])
def test_sums_in_memory(roles: bool, warps: int, steps: int) -> None:
    """TMA adds the blocks, while it loads those of later iterations."""
    blocks = [(128, 64), (64, 32), (64, 32), (128, 32)]
    types = [zg.divisible(zg.descriptor(block, element)) for block, element in zip(
        blocks, (zg.f16, zg.f16, zg.f32, zg.f16), strict=True
    )]  # fmt: skip
    model = added_up.triton(*types, I32, 128, 32, 64, roles)
    module = placed(model, warps, 2, roles=roles)
    adding = [op for op in module.walk() if isinstance(op, gpu.TmaStore) and op.adds]
    assert len(adding) == 1 and count(module, gpu.TmaLoad) >= 2
    assert next(op for op in module.walk() if isinstance(op, tt.Func)).disjoint == (2, 0, 2, 1)

    def given() -> tuple[np.ndarray, list[Any]]:
        a, b = (np.random.default_rng(seed).integers(-1, 2, shape).astype(np.float16) for seed, shape in (
            (1, (256, 64 * steps)), (2, (64 * steps, 32))
        ))  # fmt: skip
        sums = random((64 * steps, 32), np.float32, 3)
        return sums, [*described([a, b, sums, np.zeros((256, 32), np.float16)], blocks), 64 * steps]

    judged(model, module, given, (2,))


# Stores and atomics of other memory than TMA's.


@zg.kernel
def counted(a_desc, b_desc, c_desc, steps_ptr, counts_ptr, count, k, ROLES: zg.constexpr):
    """Tiles of c = a · b, with a store and an atomic in each step, and an atomic whose value is stored in each tile."""
    for tile in range(zg.program_id(0), count, zg.num_programs(0)):
        acc = zg.zeros((64, 16), zg.f32)
        for start in zg.range(0, k, 64, warp_specialize=ROLES):
            acc = zg.dot(a_desc.load((tile * 64, start)), zg.trans(b_desc.load((0, start))), acc)
            zg.store(zg.add(steps_ptr, tile * k + start), zg.cast(start, zg.f32))
            zg.atomic_add(counts_ptr, 1.0, sem="relaxed")
        c_desc.store((tile * 64, 0), zg.cast(acc, zg.f16))
        before = zg.atomic_add(zg.add(counts_ptr, tile + 1), 2.0, sem="relaxed")
        zg.store(zg.add(steps_ptr, tile * k + 1), before)


@pytest.mark.parametrize("roles", [False, True])
@pytest.mark.parametrize("which", [2, 3, 4])
def test_stores_and_atomics_of_other_arguments(roles: bool, which: int) -> None:
    blocks = [(64, 64), (16, 64), (64, 16)]
    floats = zg.ptr(zg.f32)
    model = counted.triton(*descriptors(*blocks), floats, floats, zg.i32, I32, roles)
    module = placed(model, roles=roles)
    assert count(module, gpu.TmaLoad) == (2 if roles else 6) and count(module, gpu.TmaStore) == 1

    def given() -> tuple[np.ndarray, list[Any]]:
        shapes = [(192, 256), (16, 256), (192, 16)]
        arrays = [random(shape, seed=at) for at, shape in enumerate(shapes)]
        more = [np.full(3 * 256, 9, np.float32), np.full(4, 5, np.float32)]
        return [*arrays, *more][which], [*described(arrays, blocks), *more, 3, 256]

    judged(model, module, given, (2,), (0, 1) if roles else (0,))


@zg.kernel
def grouped(a_desc, b_desc, c_desc, group_ptr, count, k):
    """Each tile of rows by a matrix b of its own, whose number the producer loads."""
    for tile in range(zg.program_id(0), count, zg.num_programs(0)):
        group = zg.load(group_ptr + tile)
        acc = zg.zeros((64, 16), zg.f32)
        for start in zg.range(0, k, 64, warp_specialize=True):
            acc = zg.dot(a_desc.load((tile * 64, start)), zg.trans(b_desc.load((group * 16, start))), acc)
        c_desc.store((tile * 64, 0), zg.cast(acc, zg.f16))


@pytest.mark.parametrize("groups", [[0, 1, 2, 0, 1], [2, 2, 0]])
def test_groups_whose_numbers_are_loaded(groups: list[int]) -> None:
    blocks = [(64, 64), (16, 64), (64, 16)]
    model = grouped.triton(*descriptors(*blocks), zg.ptr(zg.i32), zg.i32, I32)
    module = placed(model, roles=True)
    split = role_split(module)
    assert split is not None
    assert any(isinstance(op, tt.Load) for top in split.roles[-1].entry.ops for op in top.walk())

    def given() -> tuple[np.ndarray, list[Any]]:
        shapes = [(64 * len(groups), 256), (48, 256), (64 * len(groups), 16)]
        arrays = [random(shape, seed=at) for at, shape in enumerate(shapes)]
        return arrays[2], [*described(arrays, blocks), np.array(groups, np.int32), len(groups), 256]

    judged(model, module, given, (2,))


# Attention: two loops, one after the other, which share their channel.


@zg.function
def step(acc, total, top, q, k_desc, v_desc, at, start, rows, scale, MASKED: zg.constexpr, N: zg.constexpr):
    scores = zg.mul(zg.dot(q, zg.trans(k_desc.load((at + start, 0)))), scale)
    if MASKED:
        columns = zg.add(start, zg.arange(0, N))
        scores = zg.where(zg.compare(zg.expand(rows, 1), zg.expand(columns, 0), GE), scores, -1.0e6)
    higher = zg.maximum(top, zg.max(scores, axis=1))
    p = zg.exp2(zg.sub(scores, zg.expand(higher, 1)))
    shrink = zg.exp2(zg.sub(top, higher))
    acc = zg.mul(acc, zg.expand(shrink, 1))
    acc = zg.dot(zg.cast(p, zg.f16), v_desc.load((at + start, 0)), acc)
    return acc, zg.add(zg.mul(total, shrink), zg.sum(p, axis=1)), higher


@zg.kernel
def attention(
    q_desc, k_desc, v_desc, out_desc, n, scale,
    CAUSAL: zg.constexpr, M: zg.constexpr, N: zg.constexpr, D: zg.constexpr,
):  # fmt: skip
    block = zg.program_id(0)
    at = zg.program_id(1) * n
    rows = zg.add(block * M, zg.arange(0, M))
    q = q_desc.load((at + block * M, 0))
    top = zg.full((M,), -1.0e30, zg.f32)
    total = zg.zeros((M,), zg.f32)
    acc = zg.zeros((M, D), zg.f32)
    for start in zg.range(0, block * M if CAUSAL else n, N, warp_specialize=True):
        acc, total, top = step(acc, total, top, q, k_desc, v_desc, at, start, rows, scale, False, N)
    if CAUSAL:
        for start in zg.range(block * M, (block + 1) * M, N, warp_specialize=True):
            acc, total, top = step(acc, total, top, q, k_desc, v_desc, at, start, rows, scale, True, N)
    out_desc.store((at + block * M, 0), zg.cast(zg.div(acc, zg.expand(total, 1)), zg.f16))


def attention_of(causal: bool, m: int, n: int, d: int) -> Op:
    return attention.triton(*descriptors((m, d), (n, d), (n, d), (m, d)), I32, zg.f32, causal, m, n, d)


@pytest.mark.parametrize(
    ("causal", "m", "warps", "stages"), [(False, 64, 4, 2), (True, 64, 4, 2), (True, 64, 4, 3), (True, 128, 8, 2)]
)
def test_attention(causal: bool, m: int, warps: int, stages: int) -> None:
    """The first of two loops has no iteration in the first program."""
    n, d, length = 32, 32, 2 * m
    model = attention_of(causal, m, n, d)
    module = placed(model, warps, stages)
    # Keys and values each have mbarriers for full and for empty slots, in one channel.
    assert sum(op.arrivals == warps // 4 for op in module.walk() if isinstance(op, gpu.MbarrierInit)) >= 2
    assert count(module, gpu.TmaLoad) == (5 if causal else 3)
    # The queries are in registers; the accumulator is scaled in each loop, and in the step before it.
    assert count(module, gpu.LocalLoad) == 1 and count(module, gpu.Rescale) == (2 if causal else 1)

    def given() -> tuple[np.ndarray, list[Any]]:
        rng = np.random.default_rng(4)
        q, k, v = (rng.standard_normal((2 * length, d)).astype(np.float16) for _ in range(3))
        out = np.zeros((2 * length, d), np.float16)
        blocks = [(m, d), (n, d), (n, d), (m, d)]
        return out, [*described((q, k, v, out), blocks), length, 0.25]

    judged(model, module, given, (length // m, 2), (0, 1) if warps == 8 else (0, 1, 2), rtol=4e-3, atol=4e-3)


@zg.kernel
def attention_of_tiles(q_desc, k_desc, v_desc, out_desc, n, tiles, M: zg.constexpr, N: zg.constexpr, D: zg.constexpr):
    for tile in zg.range(zg.program_id(0), tiles, zg.num_programs(0)):
        q = q_desc.load((tile * M, 0))
        top, total = zg.full((M,), -1.0e30, zg.f32), zg.zeros((M,), zg.f32)
        acc = zg.zeros((M, D), zg.f32)
        for start in zg.range(0, n, N, warp_specialize=True):
            acc, total, top = step(acc, total, top, q, k_desc, v_desc, 0, start, zg.arange(0, M), 0.25, False, N)
        out_desc.store((tile * M, 0), zg.cast(zg.div(acc, zg.expand(total, 1)), zg.f16))


def tiles_of_attention(warps: int) -> tuple[Op, Given]:
    m, n, d, length, tiles = 16 * warps, 32, 32, 96, 5
    blocks = [(m, d), (n, d), (n, d), (m, d)]

    def given() -> tuple[np.ndarray, list[Any]]:
        rng = np.random.default_rng(4)
        q, k, v = (rng.standard_normal((rows, d)).astype(np.float16) for rows in (tiles * m, length, length))
        out = np.zeros((tiles * m, d), np.float16)
        return out, [*described((q, k, v, out), blocks), length, tiles]

    return attention_of_tiles.triton(*descriptors(*blocks), I32, I32, m, n, d), given


@pytest.mark.parametrize("warps", [4, 8])
def test_the_producer_loads_the_queries_of_the_next_tile(warps: int) -> None:
    model, arguments = tiles_of_attention(warps)
    module = placed(model, warps, 2)
    (split,) = (op for op in module.walk() if isinstance(op, gpu.WarpSpecialize))
    consumer, producer = ([op for top in role.entry.ops for op in top.walk()] for role in split.roles)
    assert [sum(isinstance(op, gpu.TmaLoad) for op in ops) for ops in (consumer, producer)] == [0, 3]
    # All threads read the queries, so each warp releases their slot.
    assert sum(op.each_warp for op in consumer if isinstance(op, gpu.MbarrierArrive)) == 1
    assert count(module, gpu.LocalLoad) == 1
    judged(model, module, arguments, (2,), (0, 1, 2), rtol=4e-3, atol=4e-3)


def test_each_warp_releases_what_its_threads_read() -> None:
    """An arrival of one thread of a warp group does not order the reads of its other warps."""
    model, arguments = tiles_of_attention(8)
    module = placed(model, 8, 2)
    (arrive,) = (op for op in module.walk() if isinstance(op, gpu.MbarrierArrive) and op.each_warp)
    module = changed(module, arrive, lambda builder, _, values: builder.add(gpu.MbarrierArrive(*values)))
    (empty,) = (op for op in module.walk() if isinstance(op, gpu.MbarrierInit) and op.arrivals == 8)
    module = changed(module, empty, lambda builder, _, values: builder.add(gpu.MbarrierInit(*values, arrivals=2)))
    assert is_missed(model, module, arguments, (2,), rtol=4e-3, atol=4e-3)


def test_what_threads_read_is_fenced_before_the_producer_loads() -> None:
    model, arguments = tiles_of_attention(4)
    module = placed(model, 4, 2)
    (arrive,) = (op for op in module.walk() if isinstance(op, gpu.MbarrierArrive) and op.each_warp)
    assert arrive.parent is not None
    fence = arrive.parent.ops[arrive.parent.ops.index(arrive) - 1]
    assert isinstance(fence, gpu.FenceAsync)
    module = changed(module, fence, lambda *_: DROP)
    assert {hazard.missing for hazard in hazards(module)} == {"fence"}
    with pytest.raises(SimulationError, match="a TMA load overwrites what a thread has read without a fence"):
        simulated(module, arguments()[1], (2,))


@pytest.mark.parametrize("roles", [False, True])
def test_gradients_of_attention(roles: bool) -> None:
    """Four dots, of which two do not need each other: they overlap in roles."""
    module = placed(gradients.triton(*[SQUARE] * 6, I32, roles), 4, 2, roles)
    assert sum(op.pending > 0 for op in module.walk() if isinstance(op, gpu.WgmmaWait)) == (4 if roles else 0)

    def given() -> tuple[np.ndarray, list[Any]]:
        rng = np.random.default_rng(6)
        arrays = [(rng.standard_normal((rows, 64)) / 4).astype(np.float16) for rows in (64, 64, 192, 192)]
        result = np.zeros((2, 64, 64), np.float16)
        return result, [*described((*arrays, *result), [(64, 64)] * 6), 192]

    model = gradients.triton(*[SQUARE] * 6, I32, roles)
    judged(model, module, given, (1,), (0, 1, 2) if roles else (0,), rtol=4e-3, atol=4e-3)


# Loops of other kinds.


@zg.kernel
def backwards(a_desc, b_desc, c_desc, first, last, K: zg.constexpr, WIDE: zg.constexpr):
    """Blocks along k from the last to the first, by an index of 32 or 64 bits."""
    acc = zg.zeros((64, 16), zg.f32)
    for start in zg.range(zg.cast(first, zg.i64) if WIDE else first, last, -K, warp_specialize=True):
        at = zg.cast(start, zg.i32)
        acc = zg.dot(a_desc.load((0, at)), zg.trans(b_desc.load((0, at))), acc)
    c_desc.store((0, 0), zg.cast(acc, zg.f16))


def arguments_of(*more: Any) -> Given:
    """The model of a kernel that multiplies blocks of 64 × 64 with blocks of 16 × 64."""
    blocks = [(64, 64), (16, 64), (64, 16)]

    def given() -> tuple[np.ndarray, list[Any]]:
        arrays = random((64, 256), seed=5), random((16, 256), seed=6), np.full((64, 16), 7, np.float16)
        return arrays[2], [*described(arrays, blocks), *more]

    return given


BLOCKS = descriptors((64, 64), (16, 64), (64, 16))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(("first", "last"), [(192, -1), (0, -1), (0, 0)])
def test_backwards(wide: bool, first: int, last: int) -> None:
    judged(*placed_once(backwards, *BLOCKS, I32, zg.i32, 64, wide), arguments_of(first, last), (1,))


@zg.kernel
def carried(a_desc, b_desc, c_desc, rounds, K: zg.constexpr, JUMP: zg.constexpr):
    """The loop carries the places of blocks; with `JUMP` the place after the first is another block's, and stays."""
    acc = zg.zeros((64, 16), zg.f32)
    at = 0
    behind = rounds * K
    for _ in zg.range(0, rounds, warp_specialize=True):
        acc = zg.dot(a_desc.load((0, at)), zg.trans(b_desc.load((0, at))), acc)
        at = behind if JUMP else at + K
    c_desc.store((0, 0), zg.cast(acc, zg.f16))


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize("rounds", [1, 3])
def test_carried_addresses(jump: bool, rounds: int) -> None:
    judged(*placed_once(carried, *BLOCKS, zg.i32, 64, jump), arguments_of(rounds), (1,))


@zg.kernel
def in_sequence(
    a_desc, b_desc, e_desc, f_desc, c_desc, tiles, k, k2, SECOND: zg.constexpr, STAGES: zg.constexpr
):  # fmt: skip
    """Two loops in a loop; `SECOND`: the second one asks, too."""
    for tile in range(zg.program_id(0), tiles, zg.num_programs(0)):
        acc = zg.zeros((64, 16), zg.f32)
        for start in zg.range(0, k, 64, warp_specialize=True):
            acc = zg.dot(a_desc.load((tile * 64, start)), zg.trans(b_desc.load((0, start))), acc)
        for start in zg.range(0, k2, 32, warp_specialize=SECOND, num_stages=STAGES):
            acc = zg.dot(e_desc.load((tile * 64, start)), zg.trans(f_desc.load((0, start))), acc)
        c_desc.store((tile * 64, 0), zg.cast(acc, zg.f16))


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize(("k", "k2"), [(256, 64), (64, 160), (0, 32), (64, 0)])
def test_loops_in_sequence(second: bool, k: int, k2: int) -> None:
    """Two channels; or one, and a loop whose loads the consumer warps issue, with mbarriers of their own."""
    blocks = [(64, 64), (16, 64), (64, 32), (16, 32), (64, 16)]
    model, module = placed_once(in_sequence, *descriptors(*blocks), zg.i32, I32, I32, second, 2)
    split = role_split(module)
    assert split is not None
    fetched = [sum(isinstance(op, gpu.TmaLoad) for top in role.entry.ops for op in top.walk()) for role in split.roles]
    assert fetched == ([0, 4] if second else [4, 2])

    def given() -> tuple[np.ndarray, list[Any]]:
        arrays = [random(shape, seed=at) for at, shape in enumerate([(192, 256), (16, 256), (192, 160), (16, 160)])]
        arrays.append(np.full((192, 16), 7, np.float16))
        return arrays[-1], [*described(arrays, blocks), 3, k, k2]

    judged(model, module, given, (2,))


@zg.kernel
def handed_on(a_desc, b_desc, c_desc, k, K: zg.constexpr):
    """The second loop begins where the first one has ended: the producer's loop carries the place."""
    acc = zg.zeros((64, 16), zg.f32)
    place = 0
    for _ in zg.range(0, k, K, warp_specialize=True):
        acc = zg.dot(a_desc.load((0, place)), zg.trans(b_desc.load((0, place))), acc)
        place += K
    for start in zg.range(0, k, K, warp_specialize=True):
        acc = zg.dot(a_desc.load((0, place + start)), zg.trans(b_desc.load((0, start))), acc)
    c_desc.store((0, 0), zg.cast(acc, zg.f16))


@pytest.mark.parametrize("k", [0, 64, 128])
def test_the_place_that_a_loop_hands_to_the_next(k: int) -> None:
    model, module = placed_once(handed_on, *BLOCKS, I32, 64)
    split = role_split(module)
    assert split is not None
    fetched = [sum(isinstance(op, gpu.TmaLoad) for top in role.entry.ops for op in top.walk()) for role in split.roles]
    assert fetched == [0, 4]
    judged(model, module, arguments_of(k), (1,))


@zg.kernel
def conditional(a_desc, b_desc, c_desc, k, some, K: zg.constexpr):
    """One of the loop's loads is under an if: the producer issues the other, the consumers issue this one."""
    acc = zg.zeros((64, 16), zg.f32)
    for start in zg.range(0, k, K, warp_specialize=True):
        acc = zg.dot(a_desc.load((0, start)), zg.trans(b_desc.load((0, start))), acc)
        if start == some:
            acc = zg.dot(a_desc.load((0, 0)), zg.trans(b_desc.load((0, start))), acc)
    c_desc.store((0, 0), zg.cast(acc, zg.f16))


@zg.kernel
def looked_up(a_desc, b_desc, c_desc, table_ptr, k, K: zg.constexpr):
    """The place of one of two blocks is loaded from memory: its block is loaded when it is needed."""
    acc = zg.zeros((64, 16), zg.f32)
    for start in zg.range(0, k, K, warp_specialize=True):
        at = zg.multiple_of(zg.load(table_ptr + start // K), 16)
        acc = zg.dot(a_desc.load((0, at)), zg.trans(b_desc.load((0, start))), acc)
    c_desc.store((0, 0), zg.cast(acc, zg.f16))


def test_a_load_whose_address_is_loaded() -> None:
    model = looked_up.triton(*BLOCKS, zg.ptr(zg.i32), I32, 64)
    module = placed(model)
    split = role_split(module)
    assert split is not None and count(module, gpu.TmaLoad) == 2
    assert sum(isinstance(op, gpu.TmaLoad) for top in split.roles[1].entry.ops for op in top.walk()) == 1

    def given() -> tuple[np.ndarray, list[Any]]:
        actual, arguments = arguments_of(np.array([128, 0, 64, 64], np.int32), 256)()
        return actual, arguments

    judged(model, module, given, (1,))


@pytest.mark.parametrize("some", [0, 64, 192, -1])
def test_a_load_under_an_if(some: int) -> None:
    model, module = placed_once(conditional, *BLOCKS, I32, zg.i32, 64)
    assert count(module, gpu.TmaLoad) == 4  # Two of them in each role.
    judged(model, module, arguments_of(256, some), (1,))


@zg.kernel
def afterwards(a_desc, b_desc, c_desc, out_ptr, k, K: zg.constexpr):
    """Work of all consumer warps after the loop: a reduction over everything, and another layout."""
    acc = zg.zeros((64, 64), zg.f32)
    for start in zg.range(0, k, K, warp_specialize=True):
        acc = zg.dot(a_desc.load((0, start)), zg.trans(b_desc.load((0, start))), acc)
    at = zg.arange(0, 64)
    zg.store(zg.add(out_ptr, at), zg.sum(acc, axis=0))
    zg.store(out_ptr + 64, zg.sum(zg.sum(acc, axis=1), axis=0))
    counts = zg.histogram(zg.and_(at, 15), 16)
    zg.store(zg.add(out_ptr + 128, zg.arange(0, 16)), zg.cast(counts, zg.f32))
    c_desc.store((0, 0), zg.cast(zg.add(acc, zg.expand(zg.cumsum(zg.max(acc, axis=1), 0), 1)), zg.f16))


# The emission.


def text_of_roles(module: gpu.Module) -> tuple[str, str, str]:
    """The emitted lines before the roles, of the consumer, and of the producer."""
    before, rest = to_llvm(module).split("br i1", 1)
    computing, fetching = re.split(r"^others\d+:$", rest, flags=re.MULTILINE)
    return before, computing, fetching


@pytest.mark.parametrize(
    ("tile", "warps", "registers"),
    [
        ((64, 16, 64), 4, (232, 24, 128)),
        ((128, 16, 64), 8, (240, 24, 168)),
        ((256, 16, 64), 16, (112, 24, 96)),
    ],
)
def test_threads_and_registers(tile: tuple[int, int, int], warps: int, registers: tuple[int, int, int]) -> None:
    """The launch has the threads of both roles; registers are multiples of 8 within the register file."""
    module = placed(tiles_of(tile, tile)[0], warps)
    computing, fetching, start = registers
    assert module.num_warps == warps + 4 and registers_of(module) == start
    text = to_llvm(module)
    assert f'"nvvm.reqntid"="{32 * (warps + 4)}" "nvvm.maxnreg"="{start}"' in text
    assert re.findall(r"setmaxnreg\.(\w+)\.sync\.aligned\.u32 (\d+);", text) == [
        ("inc", str(computing)),
        ("dec", str(fetching)),
    ]
    assert all(number % 8 == 0 and 24 <= number <= 256 for number in registers)
    programs = 2 if warps == 4 else 1
    assert programs * 32 * (warps * computing + 4 * fetching) <= 65536
    # The registers of the launch cover those of the roles, at the same occupancy.
    assert warps * computing + 4 * fetching <= (warps + 4) * start
    assert programs * 32 * (warps + 4) * start <= 65536


@pytest.mark.parametrize(
    ("warps", "maxnreg", "registers", "ctas"),
    [
        (4, 80, (136, 24, 80), 3),
        (4, 64, (104, 24, 64), 4),
        (8, 80, (104, 24, 80), 2),
        (8, 87, (104, 24, 80), 2),
        (4, 255, (232, 24, 128), 2),
        (4, 1, (24, 24, 24), 10),
    ],
)
def test_registers_that_the_threads_bring_along(
    warps: int, maxnreg: int, registers: tuple[int, int, int], ctas: int
) -> None:
    """The roles trade `maxnreg` registers a thread, and more CTAs have registers on an SM."""
    module = placed(tiles_of((16 * warps, 16, 64), (16 * warps, 16, 64))[0], warps, maxnreg=maxnreg)
    split = role_split(module)
    assert split is not None and ctas_of_roles(split) == ctas
    assert (*split.registers, registers_of(module)) == registers


def test_the_barrier_of_the_consumer() -> None:
    """Barriers of the consumer are barrier 1, of its own threads; the CTA has one barrier, before the roles."""
    blocks = descriptors((64, 64), (64, 64), (64, 64))
    module = placed(afterwards.triton(*blocks, zg.ptr(zg.f32), I32, 64))
    before, computing, fetching = text_of_roles(module)
    assert re.findall(r"bar\.sync[^;]*", before) == ["bar.sync 0"]
    matches = re.findall(r"bar\.sync[^;]*", computing)
    assert len(matches) > 3 and set(matches) == {"bar.sync 1, 128"}
    assert "bar." not in fetching and "barrier.sync" not in computing
    assert "zg_slot" not in fetching


def test_code_behind_the_loop_that_meets() -> None:
    blocks = [(64, 64), (64, 64), (64, 64)]
    model = afterwards.triton(*descriptors(*blocks), zg.ptr(zg.f32), I32, 64)
    module = placed(model)

    def given(which: int) -> Given:
        def made() -> tuple[np.ndarray, list[Any]]:
            arrays = random((64, 128), seed=5), random((64, 128), seed=6), np.full((64, 64), 7, np.float16)
            out = np.full(144, 7, np.float32)
            return (arrays[2], out)[which], [*described(arrays, blocks), out, 128]

        return made

    judged(model, module, given(0), (1,))
    judged(model, module, given(1), (1,))


@zg.kernel
def deferred(q_desc, k_desc, v_desc, out_desc, n, USED: zg.constexpr):
    """The part after the softmax depends on the operand or on the accumulator of the dot that is deferred."""
    q, shape = q_desc.load((0, 0)), (64, 32)
    top, total, acc = zg.full((64,), -1.0e30, zg.f32), zg.zeros((64, 32), zg.f32), zg.zeros(shape, zg.f32)
    for start in zg.range(0, n, 32, warp_specialize=True):
        scores = zg.dot(q, zg.trans(k_desc.load((start, 0))))
        higher = zg.maximum(top, zg.max(scores, axis=1))
        powers = zg.cast(zg.exp2(zg.sub(scores, zg.expand(higher, 1))), zg.f16)
        if USED == "the operand":
            acc = zg.mul(acc, zg.expand(zg.exp2(zg.sub(top, higher)), 1))
            total = zg.add(zg.mul(total, 0.5), zg.cast(powers, zg.f32))
        elif USED == "the accumulator":
            if start == 32:
                acc = zg.mul(acc, 2.0)
        else:
            acc = zg.mul(acc, 0.5)
            zg.device_print("acc", zg.max(zg.max(acc, axis=1)))
            zg.device_print("scores", zg.max(higher))
        acc = zg.dot(powers, v_desc.load((start, 0)), acc)
        top = higher
    out_desc.store((0, 0), zg.cast(zg.add(acc, total), zg.f16))


@pytest.mark.parametrize("uses", ["the operand", "the accumulator", "prints"])
def test_what_else_uses_a_deferred_dot(uses: str) -> None:
    blocks = [(64, 32), (32, 32), (32, 32), (64, 32)]
    model = deferred.triton(*descriptors(*blocks), I32, uses)
    module = placed(model, 4, 2)
    (loop,) = (op for op in module.walk() if isinstance(op, scf.For) and count(op, gpu.Wgmma))
    assert next(op for op in loop.walk() if isinstance(op, gpu.WgmmaWait)).pending == 1
    prints = [op.prefix for op in loop.walk() if isinstance(op, tt.Print)]
    assert prints == (["acc", "scores"] if uses == "prints" else [])

    def given() -> tuple[np.ndarray, list[Any]]:
        q, k, v = random((64, 32)), random((96, 32)), random((96, 32), seed=1)
        out = np.full((64, 32), 7, np.float16)
        return out, [*described((q, k, v, out), blocks), 96]

    judged(model, module, given, (1,), rtol=1e-3, atol=1e-3)


@zg.kernel
def talkative(a_desc, b_desc, c_desc, k, K: zg.constexpr):
    acc = zg.zeros((64, 16), zg.f32)
    zg.device_assert(k > 0, "k is positive")
    zg.device_print("k", k)
    for start in zg.range(0, k, K, warp_specialize=True):
        acc = zg.dot(a_desc.load((0, start)), zg.trans(b_desc.load((0, start))), acc)
    zg.device_print("acc", acc)
    c_desc.store((0, 0), zg.cast(acc, zg.f16))


def test_prints_and_assertions(tmp_path: Path) -> None:
    """The consumer executes them, so that no line is printed twice."""
    module = placed(talkative.triton(*BLOCKS, I32, 64))
    before, computing, fetching = text_of_roles(module)
    assert "vprintf" in computing and "__assertfail" in computing
    outside = before + fetching.split("\n}\n")[0]
    assert "call i32 @vprintf" not in outside and "call void @__assertfail" not in outside
    assert "spill" in assembled(assemble(module).ptx, tmp_path)


# Synchronisation of the roles: each part is needed.


ORDER = (
    gpu.MbarrierInit, gpu.MbarrierExpect, gpu.MbarrierWait, gpu.MbarrierArrive,
    gpu.TmaLoad, gpu.TmaStoreWait, gpu.FenceAsync, gpu.WgmmaWait, gpu.Barrier,
)  # fmt: skip


def changed(module: gpu.Module, op: Op, change: Callable[[Rewriter, Op, tuple[Value, ...]], Outcome]) -> gpu.Module:
    model = transform(module, lambda builder, old, values: change(builder, old, values) if old is op else None)
    assert isinstance(model, gpu.Module)
    return model


def dropped(_builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    return operands[0] if isinstance(op, gpu.WgmmaWait) else DROP


def flipped(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    unit = builder.add(arith.ConstantOp(1, zg.i32))
    return builder.add(gpu.MbarrierWait(operands[0], builder.add(arith.XOrI(operands[1], unit))))


def is_missed(model: Op, module: gpu.Module, make_arguments: Given, grid: tuple[int, ...], **close: float) -> str:
    """The error of the simulation for a broken module, or "a wrong result"."""
    for seed in (0, 1, 2):
        try:
            judged(model, module, make_arguments, grid, (seed,), **close)
        except SimulationError as error:
            return str(error)
        except AssertionError:
            return "a wrong result"
    return ""


@pytest.mark.parametrize("warps", [4, 8])
def test_everything_that_waits_is_needed(warps: int) -> None:
    """Two tiles for each of two programs, of more iterations than buffers."""
    tile = (64 * warps // 4, 16, 64)
    model, arguments = tiles_of(tile, (2 * tile[0], 32, 192))
    module = placed(model, warps, 2)
    judged(model, module, arguments, (2,), (0,))
    results = {
        op: is_missed(model, changed(module, op, dropped), arguments, (2,))
        for op in module.walk()
        if isinstance(op, ORDER)
    }
    text = {type(op): message for op, message in results.items()}
    assert len(results) > 12 and text.keys() >= {gpu.MbarrierWait, gpu.MbarrierArrive, gpu.TmaLoad, gpu.Barrier}
    # The last wait for a store's reads is needed, as another tile is written to the same buffer.
    assert [op for op, message in results.items() if not message] == []
    assert "never ends" in text[gpu.MbarrierArrive]


def test_a_phase_taken_for_another() -> None:
    """Without waits for full slots, they are read too early; without those for empty slots, no load starts."""
    model, arguments = tiles_of((64, 16, 64), (128, 32, 192))
    module = placed(model, 4, 2)
    full, empty = (op for op in module.walk() if isinstance(op, gpu.MbarrierWait))
    assert is_missed(model, changed(module, full, flipped), arguments, (2,))
    assert "never ends" in is_missed(model, changed(module, empty, flipped), arguments, (2,))


@pytest.mark.parametrize("arrivals", [1, 3])
def test_how_many_arrive(arrivals: int) -> None:
    """Two warp groups read a slot: it is empty after two arrivals, not after one or three."""
    model, arguments = tiles_of((128, 16, 64), (128, 32, 320))
    module = placed(model, 8, 2)
    (empty,) = (op for op in module.walk() if isinstance(op, gpu.MbarrierInit) and op.arrivals == 2)
    other = changed(module, empty, lambda builder, _, values: builder.add(gpu.MbarrierInit(*values, arrivals=arrivals)))
    assert is_missed(model, other, arguments, (1,))


def test_nothing_of_attention_may_be_missing() -> None:
    """One of the waits for the scores and for the accumulator may go: both wait for all wgmmas."""
    m, n, d, length = 64, 16, 32, 128
    model = attention_of(True, m, n, d)
    module = placed(model, 4, 2)

    def given() -> tuple[np.ndarray, list[Any]]:
        rng = np.random.default_rng(4)
        q, k, v = (rng.standard_normal((length, d)).astype(np.float16) for _ in range(3))
        out = np.zeros((length, d), np.float16)
        return out, [*described((q, k, v, out), [(m, d), (n, d), (n, d), (m, d)]), length, 0.25]

    kinds = (gpu.MbarrierWait, gpu.MbarrierArrive, gpu.MbarrierExpect)
    for op in [op for op in module.walk() if isinstance(op, kinds)]:
        text = is_missed(model, changed(module, op, dropped), given, (2, 1), rtol=4e-3, atol=4e-3)
        if not text:
            # The last release: no load follows it.
            assert isinstance(op, gpu.MbarrierArrive)
            later = [other for other in module.walk() if isinstance(other, gpu.MbarrierArrive)]
            assert op is later[-1]


# As far as the assembler.


def assembled(ptx: str, folder: Path) -> str:
    """The resources from ptxas."""
    if not PTXAS.exists():
        pytest.skip("ptxas is not installed (pip install nvidia-cuda-nvcc)")
    (folder / "kernel.ptx").write_text(ptx)
    command = [str(PTXAS), "-v", "-arch=sm_90a", str(folder / "kernel.ptx"), "-o", str(folder / "kernel.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("tile", "transposed", "warps"), [((128, 256, 64), True, 8), ((128, 256, 64), False, 8), ((128, 128, 64), True, 4)]
)
def test_assembled_products(tile: tuple[int, int, int], transposed: bool, warps: int, tmp_path: Path) -> None:
    """No spills, and no wait after each wgmma (ptxas' warnings C75…)."""
    module = placed(tiles_of(tile, tile, transposed=transposed)[0], warps, 3)
    ptx = assemble(module).ptx
    text = assembled(ptx, tmp_path)
    assert "0 bytes spill stores, 0 bytes spill loads" in text and "C75" not in text, text
    assert f".reqntid {32 * (warps + 4)}" in ptx and f".maxnreg {registers_of(module)}" in ptx
    registers = re.search(r"Used (\d+) registers", text)
    assert registers is not None and int(registers[1]) <= (registers_of(module) or 0)


@pytest.mark.parametrize(("n", "d"), [(64, 64), (128, 128)])
def test_assembled_attention(n: int, d: int, tmp_path: Path) -> None:
    text = assembled(assemble(placed(attention_of(False, 128, n, d), 8, 2)).ptx, tmp_path)
    assert "0 bytes spill stores, 0 bytes spill loads" in text and "C75" not in text, text


def test_kernels_without_roles_are_as_they_were() -> None:
    model, _ = tiles_of((64, 16, 64), (64, 16, 64))
    plain = place(model, CompileOptions("sm_90a", 4, 1))
    assert role_split(plain) is None and plain.num_warps == 4 and registers_of(plain) is None
    text = to_llvm(plain)
    assert '"nvvm.reqntid"="128" }' in text and "setmaxnreg" not in text and "bar.sync 1" not in text
    assert count(plain, tt.Load) == 0
