"""TMA: emitted text as ptxas takes it, and simulated against the interpreter of Triton models.

Inputs are small integers, of which all sums are exact, but for attention. The simulated engine is late with the seed 0,
early with 1, and anything with others, which attention is run with.
"""

from __future__ import annotations

import re
import subprocess
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.assemble import assemble, to_llvm
from ziggurat.backend.reference.run import run
from ziggurat.backend.simulator.shared import SimulationError
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.backend.simulator.tma import in_parts
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import SharedType
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.analysis.queries import function_of
from ziggurat.transforms.gpu.gpu_passes import place
from ziggurat.transforms.gpu.hazards import hazards

NVDISASM = Path(sysconfig.get_paths()["purelib"]) / "nvidia/cu13/bin/nvdisasm"
PTXAS = NVDISASM.with_name("ptxas")
GE = zg.CompareKind.GREATER_THAN_OR_EQUAL


@zg.kernel
def matmul(
    a_desc, b_desc, c_desc, m, n, k,
    M: zg.constexpr, N: zg.constexpr, K: zg.constexpr, a_turned: zg.constexpr, b_turned: zg.constexpr,
):  # fmt: skip
    """Tiles of c = a · b; `a_turned`: a is k × m in memory, `b_turned`: b is n × k."""
    row, column = zg.program_id(0) * M, zg.program_id(1) * N
    acc = zg.zeros((M, N), zg.f32)
    for start in range(0, k, K):
        a = zg.trans(a_desc.load((start, row))) if a_turned else a_desc.load((row, start))
        b = zg.trans(b_desc.load((column, start))) if b_turned else b_desc.load((start, column))
        acc = zg.dot(a, b, acc)
    c_desc.store((row, column), zg.cast(acc, c_desc.dtype))


def stored(block: tuple[int, int]) -> Any:
    """The type of a descriptor of f16 whose rows are known to be whole 16 bytes, as TMA stores need."""
    return zg.divisible(zg.descriptor(block, zg.f16))


def placed(model: Op, num_warps: int = 4, num_stages: int = 3, target: str = "sm_90a", **options: Any) -> gpu.Module:
    module = place(model, CompileOptions(target, num_warps, num_stages, **options))
    verify(module)
    assert hazards(module) == []
    return module


def count(module: Op, cls: type[Op]) -> int:
    return sum(isinstance(op, cls) for op in module.walk())


def simulated(
    module: gpu.Module, arguments: Sequence[Any], grid: tuple[int, ...] = (1,), seed: int = 0, llvm: str = ""
) -> None:
    simulate(
        llvm or to_llvm(module),
        num_warps=module.num_warps,
        shared=module.shared,
        grid=grid,
        arguments=in_parts(function_of(module), arguments),
        seed=seed,
    )


def judged(
    model: Op, module: gpu.Module, make_arguments: Callable[[], tuple[np.ndarray, list[Any]]], grid: tuple[int, ...],
    seeds: Sequence[int] = (0, 1), **close: float,
) -> np.ndarray:  # fmt: skip
    """The array that the interpreter writes, compared with the simulation's. `given` makes the array and
    the arguments, which begin alike each time."""
    expected, arguments = make_arguments()
    run(model, None, grid, arguments)
    llvm = to_llvm(module)
    for seed in seeds:
        actual, arguments = make_arguments()
        simulated(module, arguments, grid, seed, llvm)
        if close:
            np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64), **close)
        else:
            np.testing.assert_array_equal(actual.astype(np.float64), expected.astype(np.float64))
    return expected


def random(shape: tuple[int, int], dtype: Any, seed: int) -> np.ndarray:
    """Small integers, in rows that are apart by more than their length, and by a multiple of 16 bytes."""
    whole = np.random.default_rng(seed).integers(-3, 4, (shape[0], -(-shape[1] // 16) * 16 + 16)).astype(dtype)
    return whole[:, : shape[1]]


DTYPES: dict[str, tuple[Any, Any]] = {
    "f16": (zg.f16, np.float16),
    "bf16": (zg.bf16, ml_dtypes.bfloat16),
    "e4m3": (zg.f8e4m3, ml_dtypes.float8_e4m3fn),
    "e5m2": (zg.f8e5m2, ml_dtypes.float8_e5m2),
    "f32": (zg.f32, np.float32),
}


def product(
    tile: tuple[int, int, int], sizes: tuple[int, int, int], name: str = "f16", form: str = "NT", pad: str = "zero"
) -> tuple[Op, Callable[[], tuple[np.ndarray, list[Any]]], tuple[int, int]]:
    """A model of `matmul`, its arguments, and its grid."""
    (m, n, k), (rows, columns, depth) = tile, sizes
    element, dtype = DTYPES[name]
    a_turned, b_turned = form[0] == "T", form[1] == "T"
    a_block, b_block = ((k, m) if a_turned else (m, k)), ((n, k) if b_turned else (k, n))
    types = [zg.descriptor(block, element, padding=pad) for block in (a_block, b_block)]
    types.append(stored((m, n)))
    model = matmul.triton(*types, zg.i32, zg.i32, zg.i32, m, n, k, a_turned, b_turned)

    def given() -> tuple[np.ndarray, list[Any]]:
        long = max(depth, 1)
        a = random((long, rows) if a_turned else (rows, long), dtype, 1)
        b = random((columns, long) if b_turned else (long, columns), dtype, 2)
        c = random((rows, columns), np.float16, 3)
        blocks = [zg.TensorDescriptor(a, a_block, padding=pad), zg.TensorDescriptor(b, b_block, padding=pad)]
        return c, [*blocks, zg.TensorDescriptor(c, (m, n)), rows, columns, depth]

    return model, given, (-(-rows // m), -(-columns // n))


@pytest.mark.parametrize(
    ("tile", "sizes", "name", "form", "warps", "stages"),
    [
        ((64, 16, 64), (70, 24, 192), "f16", "NT", 4, 3),
        ((64, 64, 64), (130, 72, 200), "f16", "NN", 4, 3),
        ((64, 64, 32), (72, 40, 136), "f16", "TN", 4, 2),
        ((64, 32, 16), (64, 32, 80), "f16", "TT", 4, 4),
        ((128, 64, 64), (100, 56, 64), "bf16", "NN", 8, 4),
        ((64, 32, 128), (64, 40, 300), "f16", "NT", 4, 2),
        ((64, 16, 128), (65, 24, 257), "e4m3", "NT", 4, 3),
        ((64, 32, 64), (64, 32, 130), "e5m2", "NT", 4, 3),
        ((64, 16, 64), (64, 16, 0), "f16", "NT", 4, 3),
        ((64, 16, 64), (64, 16, 64), "f16", "NT", 4, 3),
        ((64, 16, 64), (64, 16, 128), "f16", "NT", 4, 5),
    ],
)
def test_products(
    tile: tuple[int, int, int], sizes: tuple[int, int, int], name: str, form: str, warps: int, stages: int
) -> None:
    """Swizzles of 128, 64 and 32 bytes, several panels, ragged edges; loops shorter than the pipeline, and none."""
    model, arguments, grid = product(tile, sizes, name, form)
    module = placed(model, warps, stages)
    assert count(module, gpu.TmaLoad) == 2 * stages and count(module, gpu.TmaStore) == 1
    assert not count(module, tt.Load) and not count(module, gpu.LocalLoad)
    judged(model, module, arguments, grid)


@pytest.mark.parametrize(
    ("target", "tile", "sizes", "name", "form", "warps", "stages"),
    [
        ("sm_120a", (32, 32, 32), (40, 40, 96), "f16", "NN", 4, 2),
        ("sm_120", (128, 64, 64), (100, 56, 136), "bf16", "NN", 8, 3),
        ("sm_100a", (64, 32, 64), (72, 40, 136), "f16", "TN", 4, 3),
        ("sm_90", (16, 32, 16), (16, 32, 80), "f16", "TT", 2, 4),
        ("sm_120a", (64, 16, 128), (65, 24, 257), "e4m3", "NT", 4, 3),
        ("sm_103a", (32, 32, 32), (40, 32, 100), "f32", "NT", 4, 3),
    ],
)
def test_products_of_mma_sync(
    target: str, tile: tuple[int, int, int], sizes: tuple[int, int, int], name: str, form: str, warps: int, stages: int,
    ptxas: Any,
) -> None:  # fmt: skip
    """ldmatrix reads the slots that TMA has filled, with each swizzle, of each target with TMA."""
    model, arguments, grid = product(tile, sizes, name, form)
    module = placed(model, warps, stages, target)
    assert count(module, gpu.TmaLoad) == 2 * stages and count(module, gpu.TmaStore) == count(module, gpu.Mma) == 1
    assert not any(count(module, kind) for kind in (tt.Load, gpu.LocalLoad, gpu.AsyncCopy, gpu.Wgmma))
    judged(model, module, arguments, grid)
    ptxas(assemble(module).ptx, target)


def test_blocks_outside_are_nan_where_they_are_padded_so() -> None:
    """A last block along k that is half outside makes every sum NaN; none does with zeros."""
    for pad, expected in (("zero", False), ("nan", True)):
        model, arguments, grid = product((64, 16, 64), (64, 16, 96), "f16", "NT", pad)
        result = judged(model, placed(model), arguments, grid)
        assert np.isnan(result).all() == np.isnan(result).any() == expected


def test_tma_writes_whole_16_bytes() -> None:
    """Rows of other sizes than multiples of 16 bytes, which the kernel is compiled for, are a simulation error."""
    model, arguments, _ = product((64, 16, 64), (64, 20, 64))
    with pytest.raises(SimulationError, match="must be a multiple of 16 bytes"):
        simulated(placed(model), arguments()[1])


def test_tma_pads_no_8_bit_floats_with_nan() -> None:
    """A tensor map of bytes cannot pad with NaN (`cuTensorMapEncodeTiled`): such blocks are loaded through pointers."""
    model, arguments, grid = product((64, 16, 64), (64, 16, 96), "e4m3", "NT", "nan")
    module = placed(model)
    assert not count(module, gpu.TmaLoad) and count(module, gpu.TmaStore) == 1
    assert np.isnan(judged(model, module, arguments, grid, (0,))).all()


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
    for start in range(0, block * M if CAUSAL else n, N):
        acc, total, top = step(acc, total, top, q, k_desc, v_desc, at, start, rows, scale, False, N)
    if CAUSAL:
        for start in range(block * M, (block + 1) * M, N):
            acc, total, top = step(acc, total, top, q, k_desc, v_desc, at, start, rows, scale, True, N)
    out_desc.store((at + block * M, 0), zg.cast(zg.div(acc, zg.expand(total, 1)), zg.f16))


def attention_of(causal: bool, m: int, n: int, d: int) -> Op:
    blocks = [zg.descriptor(block, zg.f16) for block in ((m, d), (n, d), (n, d))]
    return attention.triton(*blocks, stored((m, d)), zg.i32, zg.f32, causal, m, n, d)


@pytest.mark.parametrize(("causal", "stages"), [(False, 2), (False, 3), (True, 3)])
def test_attention(causal: bool, stages: int) -> None:
    """Two heads; the dot with the values stays in flight, through the end of the first of two loops as well."""
    m, n, d, length = 64, 32, 32, 128
    model = attention_of(causal, m, n, d)
    module = placed(model, 4, stages)
    assert not count(module, tt.Load)
    assert any(isinstance(op, gpu.WgmmaWait) for op in module.walk())

    def given() -> tuple[np.ndarray, list[Any]]:
        rng = np.random.default_rng(4)
        q, k, v = (rng.standard_normal((2 * length, d)).astype(np.float16) for _ in range(3))
        out = np.zeros((2 * length, d), np.float16)
        blocks = [(q, (m, d)), (k, (n, d)), (v, (n, d)), (out, (m, d))]
        return out, [*(zg.TensorDescriptor(array, block) for array, block in blocks), length, 0.25]

    judged(model, module, given, (length // m, 2), (0, 1, 2), rtol=4e-3, atol=4e-3)


@zg.kernel
def persistent(a_desc, b_desc, c_desc, tiles, across, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    """A few programs compute all tiles: mbarriers are initialised and invalidated in the outer loop."""
    for tile in zg.range(zg.program_id(0), tiles, zg.num_programs(0), num_stages=1):
        row, column = tile // across * M, tile % across * N
        acc = zg.zeros((M, N), zg.f32)
        for start in range(0, k, K):
            acc = zg.dot(a_desc.load((row, start)), zg.trans(b_desc.load((column, start))), acc)
        c_desc.store((row, column), zg.cast(acc, zg.f16))


@pytest.mark.parametrize("depth", [0, 64, 256])
def test_loops_in_loops(depth: int) -> None:
    m, n, k, rows, columns = 64, 16, 64, 190, 40
    blocks = [zg.descriptor(block, zg.f16) for block in ((m, k), (n, k))]
    model = persistent.triton(*blocks, stored((m, n)), zg.i32, zg.i32, zg.i32, m, n, k)
    module = placed(model)

    def given() -> tuple[np.ndarray, list[Any]]:
        a, b, c = (
            random((rows, 256), np.float16, 1),
            random((columns, 256), np.float16, 2),
            random((rows, columns), np.float16, 3),
        )
        shapes = [(a, (m, k)), (b, (n, k)), (c, (m, n))]
        return c, [*(zg.TensorDescriptor(array, block) for array, block in shapes), 9, 3, depth]

    judged(model, module, given, (2,))


@zg.kernel
def backwards(a_desc, b_desc, c_desc, first, last, K: zg.constexpr, WIDE: zg.constexpr):
    """Blocks along k from the last to the first, by an index of 32 or 64 bits."""
    acc = zg.zeros((64, 16), zg.f32)
    for start in zg.range(zg.cast(first, zg.i64) if WIDE else first, last, -K):
        at = zg.cast(start, zg.i32)
        acc = zg.dot(a_desc.load((0, at)), zg.trans(b_desc.load((0, at))), acc)
    c_desc.store((0, 0), zg.cast(acc, zg.f16))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(("first", "last"), [(192, -1), (64, -64), (0, -1), (0, 0), (192, 70)])
def test_backwards_from_the_index(wide: bool, first: int, last: int) -> None:
    blocks = [(64, 64), (16, 64), (64, 16)]
    given_blocks = [zg.descriptor(block, zg.f16) for block in blocks[:2]]
    model = backwards.triton(*given_blocks, stored((64, 16)), zg.divisible(zg.i32, 64), zg.i32, 64, wide)
    module = placed(model, 4, 3)
    assert count(module, gpu.TmaLoad) == 6

    def given() -> tuple[np.ndarray, list[Any]]:
        arrays = random((64, 256), np.float16, 5), random((16, 256), np.float16, 6), random((64, 16), np.float16, 7)
        results = [zg.TensorDescriptor(array, block) for array, block in zip(arrays, blocks, strict=True)]
        return arrays[2], [*results, first, last]

    judged(model, module, given, (1,))


@zg.kernel
def mixed(a_desc, b_ptr, c_desc, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    """One operand by TMA, the other by copies of the threads, in one loop."""
    along, across = zg.expand(zg.arange(0, K), 1), zg.expand(zg.arange(0, N), 0)
    acc = zg.zeros((M, N), zg.f32)
    for start in range(0, k, K):
        b = zg.load(zg.add(b_ptr, zg.add(zg.mul(zg.add(start, along), N), across)))
        acc = zg.dot(a_desc.load((0, start)), b, acc)
    c_desc.store((0, 0), zg.cast(acc, zg.f16))


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("depth", [0, 64, 320])
def test_both_kinds_of_copies_in_a_loop(stages: int, depth: int) -> None:
    m, n, k = 64, 32, 64
    types = [zg.descriptor((m, k), zg.f16), zg.divisible(zg.ptr(zg.f16)), stored((m, n))]
    model = mixed.triton(*types, zg.i32, m, n, k)
    module = placed(model, 4, stages, raise_pointers=False)
    assert count(module, gpu.TmaLoad) == count(module, gpu.AsyncCopy) == stages

    def given() -> tuple[np.ndarray, list[Any]]:
        b = np.random.default_rng(2).integers(-3, 4, (320, n)).astype(np.float16)
        a, c = random((m, 320), np.float16, 1), random((m, n), np.float16, 3)
        return c, [zg.TensorDescriptor(a, (m, k)), b, zg.TensorDescriptor(c, (m, n)), depth]

    judged(model, module, given, (1,))


# Synchronisation of TMA with the threads: each part is needed.


def without(module: gpu.Module, number: int, kinds: tuple[type[Op], ...]) -> gpu.Module:
    """The module without its op of this number, of the given kinds."""
    results = [op for op in module.walk() if isinstance(op, kinds)][number]

    def dropped(_builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op is not results:
            return None
        return operands[0] if isinstance(op, gpu.WgmmaWait) else DROP

    model = transform(module, dropped)
    assert isinstance(model, gpu.Module)
    return model


ORDER = (
    gpu.FenceAsync, gpu.MbarrierInit, gpu.MbarrierExpect, gpu.MbarrierWait,
    gpu.TmaLoad, gpu.TmaStoreWait, gpu.WgmmaWait,
)  # fmt: skip


def test_everything_that_waits_is_needed() -> None:
    """A missing wait, fence, arrival or load is an error or a wrong result, whenever TMA completes."""
    model, inputs, _ = product((64, 16, 64), (64, 16, 320))
    module = placed(model)
    expected, arguments = inputs()
    run(model, None, (1,), arguments)
    numbers = range(sum(isinstance(op, ORDER) for op in module.walk()))
    assert len(numbers) > 10
    for number in numbers:
        less = without(module, number, ORDER)
        for seed in (0, 1):
            actual, arguments = inputs()
            try:
                simulated(less, arguments, seed=seed)
            except SimulationError:
                continue
            assert not np.array_equal(actual, expected), f"number {number} is not missed"


@pytest.mark.parametrize("tile", [(64, 256, 16), (64, 128, 16)])
def test_the_memory_of_mbarriers_is_used_again(tile: tuple[int, int, int]) -> None:
    """The block that is stored is larger than the loop's buffers, and lies where the mbarriers were."""
    model, arguments, grid = product(tile, (tile[0], tile[1], 48))
    module = placed(model, 4, 2)
    allocs = [op for op in module.walk() if isinstance(op, gpu.LocalAlloc)]
    (values,) = [op for op in allocs if any(isinstance(user, gpu.TmaStore) for user in op.result.uses)]
    (phases,) = [op for op in allocs if any(isinstance(user, gpu.MbarrierInit) for user in op.result.uses)]
    assert isinstance(values.type, SharedType) and values.offset <= phases.offset < values.offset + values.type.bytes
    judged(model, module, arguments, grid)


def test_the_barrier_between_a_dot_and_a_fetch_is_needed() -> None:
    """The analysis and the simulation agree on it: every barrier of the loop is needed."""
    model, arguments, _ = product((64, 16, 64), (64, 16, 320))
    module = placed(model)
    in_loop = [
        number
        for number, op in enumerate(op for op in module.walk() if isinstance(op, gpu.Barrier))
        if any(isinstance(other, gpu.TmaLoad | gpu.Wgmma) for other in op.parent.ops) and _is_in_loop(op)
    ]
    assert in_loop
    for number in in_loop:
        less = without(module, number, (gpu.Barrier,))
        assert "barrier" in {hazard.missing for hazard in hazards(less)}
        for seed in (0, 1):
            with pytest.raises(SimulationError, match="a TMA load writes"):
                simulated(less, arguments()[1], seed=seed)


def test_the_fence_between_reads_of_threads_and_a_fetch_is_needed() -> None:
    model, arguments, _ = product((64, 16, 64), (64, 16, 320))
    module = placed(model, target="sm_120a")
    fences = [op for op in module.walk() if isinstance(op, gpu.FenceAsync)]
    (number,) = [number for number, op in enumerate(fences) if _is_in_loop(op)]
    less = without(module, number, (gpu.FenceAsync,))
    assert {hazard.missing for hazard in hazards(less)} == {"fence"}
    with pytest.raises(SimulationError, match="a TMA load overwrites what a thread has read without a fence"):
        simulated(less, arguments()[1])


def _is_in_loop(op: Op) -> bool:
    owner = op.parent.parent.parent if op.parent is not None else None
    return owner is not None and (owner.NAME == "scf.for" or _is_in_loop(owner))


@zg.kernel
def handed_over(x_desc, mid, mid_desc, b_desc, out_desc, out, sums, flags):
    """The first program hands a block to the second one, which reads its own result again as well."""
    rows, columns = zg.expand(zg.arange(0, 64), 1), zg.expand(zg.arange(0, 64), 0)
    square = zg.add(zg.mul(rows, 64), columns)
    if zg.program_id(0) == 0:
        block = zg.dot(x_desc.load((0, 0)), b_desc.load((0, 0)))
        zg.store(zg.add(mid, square), zg.cast(block, zg.f16))
        zg.atomic_xchg(flags, 1)
    else:
        seen = zg.atomic_cas(flags, 1, 1, sem="acquire")
        while seen == 0:
            seen = zg.atomic_cas(flags, 1, 1, sem="acquire")
        total = zg.zeros((64, 64), zg.f32)
        for at in range(0, 64, 32):
            total = zg.dot(mid_desc.load((0, at)), b_desc.load((0, 0)), total)
        out_desc.store((0, 0), zg.cast(total, zg.f16))
        zg.debug_barrier()
        zg.store(zg.add(sums, zg.arange(0, 64)), zg.sum(zg.cast(zg.load(zg.add(out, square)), zg.f32), 1))
        zg.atomic_add(zg.add(flags, 1), 1, sem="release")


def blocks_handed_over() -> tuple[Op, Callable[[], tuple[np.ndarray, list[Any]]]]:
    blocks = [(64, 32), (64, 32), (32, 64), (64, 64)]
    x, mid, b, out = (zg.divisible(zg.descriptor(block, zg.f16)) for block in blocks)
    f16, f32 = zg.divisible(zg.ptr(zg.f16)), zg.divisible(zg.ptr(zg.f32))

    def given() -> tuple[np.ndarray, list[Any]]:
        rng = np.random.default_rng(1)
        arrays = [rng.integers(-1, 2, shape).astype(np.float16) for shape in ((64, 32), (64, 64), (32, 64), (64, 64))]
        described = [zg.TensorDescriptor(array, block) for array, block in zip(arrays, blocks, strict=True)]
        sums = np.zeros(64, np.float32)
        return sums, [described[0], arrays[1], *described[1:], arrays[3], sums, np.zeros(2, np.int32)]

    return handed_over.triton(x, f16, mid, b, out, f16, f32, zg.ptr(zg.i32)), given


def test_tma_after_an_acquire_and_before_a_release() -> None:
    model, arguments = blocks_handed_over()
    for target in ("sm_90a", "sm_120a"):
        module = placed(model, 4, 2, target)
        assert count(module, gpu.TmaLoad) == 5 and count(module, gpu.TmaStore) == 1
        judged(model, module, arguments, (2,))
        text = assemble(module).ptx
        assert "fence.proxy.async.global;" in text and "cp.async.bulk.wait_group 0;" in text


def test_the_order_of_tma_and_of_other_accesses_is_checked() -> None:
    """A wait for what is written comes before a barrier and a release, and a fence after an acquire."""
    model, arguments = blocks_handed_over()
    module = placed(model, 4, 2)
    waits = [op for op in module.walk() if isinstance(op, gpu.TmaStoreWait)]
    assert [wait.written for wait in waits] == [False, True, True]
    less = without(module, 1, (gpu.TmaStoreWait,))
    assert {hazard.missing for hazard in hazards(less)} == {"wait for what is written"}
    expected, values = arguments()
    run(model, None, (2,), values)
    actual, values = arguments()
    simulated(less, values, (2,))
    assert not np.array_equal(actual, expected)
    missing = [
        {hazard.missing for hazard in hazards(without(module, number, (gpu.FenceGlobal,)))}
        for number in range(count(module, gpu.FenceGlobal))
    ]
    assert missing == [set(), set(), {"fence"}, {"fence"}]  # The first program loads nothing afterwards.


def test_a_phase_that_never_ends_is_an_error() -> None:
    """An mbarrier that expects two arrivals and gets one is an error, not a hang."""
    model, arguments, _ = product((64, 16, 64), (64, 16, 128))
    module = placed(model)
    text = re.sub(r"(mbarrier\.init\.shared::cta\.b64 \[\$0\+0\]), 1;", r"\1, 2;", to_llvm(module))
    with pytest.raises(SimulationError, match="never ends"):
        simulate(text, num_warps=4, shared=module.shared, arguments=in_parts(function_of(module), arguments()[1]))


def test_a_phase_taken_for_another_is_an_error() -> None:
    """A thread that waits for the parity of the phase before continues at once, and reads data in flight."""
    model, arguments, _ = product((64, 16, 64), (64, 16, 128))
    module = placed(model)

    def flipped(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(op, gpu.MbarrierWait):
            return None
        unit = builder.add(arith.ConstantOp(1, zg.i32))
        return builder.add(gpu.MbarrierWait(operands[0], builder.add(arith.XOrI(operands[1], unit))))

    wrong = transform(module, flipped)
    assert isinstance(wrong, gpu.Module)
    with pytest.raises(SimulationError, match="on its way"):
        simulated(wrong, arguments()[1])


# As far as the assembler.


def assembled(ptx: str, folder: Path) -> tuple[str, str]:
    """The resources from ptxas, and the SASS."""
    if not PTXAS.exists():
        pytest.skip("ptxas is not installed (pip install nvidia-cuda-nvcc)")
    (folder / "kernel.ptx").write_text(ptx)
    cubin = str(folder / "kernel.cubin")
    command = [str(PTXAS), "-v", "-arch=sm_90a", str(folder / "kernel.ptx"), "-o", cubin]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if not NVDISASM.exists():
        return done.stderr, ""
    return done.stderr, subprocess.run([str(NVDISASM), "-c", cubin], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("tile", "form", "warps", "stages"),
    [((128, 256, 64), "NT", 8, 4), ((128, 256, 64), "NN", 8, 4), ((128, 128, 64), "NT", 4, 4)],
)
def test_assembled_products(tile: tuple[int, int, int], form: str, warps: int, stages: int, tmp_path: Path) -> None:
    """No spills, no wait after each wgmma (C7510); enough registers for the loop."""
    module = placed(product(tile, tile, "f16", form)[0], warps, stages)
    text, sass = assembled(assemble(module).ptx, tmp_path)
    assert "0 bytes spill stores, 0 bytes spill loads" in text and "C7510" not in text, text
    registers = re.search(r"Used (\d+) registers", text)
    assert registers is not None and int(registers[1]) <= (168 if tile[1] == 256 else 200), text
    if sass:
        assert len(re.findall(r"\bUTMALDG\.2D", sass)) >= 2 and re.search(r"\bUTMASTG\.2D", sass)
        assert "SYNCS.PHASECHK.TRANS64.TRYWAIT" in sass and re.search(r"SYNCS\.ARRIVE\.TRANS64", sass)
        assert not re.search(r"\bLDG\b", sass)


def test_assembled_attention(tmp_path: Path) -> None:
    module = placed(attention_of(False, 128, 128, 64), 8, 3)
    text, sass = assembled(assemble(module).ptx, tmp_path)
    assert "0 bytes spill stores, 0 bytes spill loads" in text and "C7510" not in text, text
    assert not sass or "UTMALDG.2D" in sass
