"""Prefetched loads: a loop with dots loads its scales one iteration ahead, with the same results."""

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.transforms.gpu.gpu_passes import place

F16, F32 = zg.divisible(zg.ptr(zg.f16)), zg.divisible(zg.ptr(zg.f32))


@zg.kernel
def scaled_product(a_ptr, b_ptr, scale_ptr, out_ptr, steps, K: zg.constexpr, STAGES: zg.constexpr = None):
    """Σ over steps of scales[step] ⊙ (a[step] · b[step]), a scale for each column; 64×K by K×16."""
    rows, columns, along = zg.arange(0, 64), zg.arange(0, 16), zg.arange(0, K)
    a_ptrs = zg.add(a_ptr, zg.add(zg.mul(zg.expand(rows, 1), K), zg.expand(along, 0)))
    b_ptrs = zg.add(b_ptr, zg.add(zg.mul(zg.expand(along, 1), 16), zg.expand(columns, 0)))
    total = zg.zeros((64, 16), zg.f32)
    for step in zg.range(0, steps, 1, num_stages=STAGES):
        scales = zg.load(zg.add(scale_ptr, zg.add(zg.mul(step, 16), columns)))
        product = zg.dot(zg.load(a_ptrs), zg.load(b_ptrs))
        total = zg.add(total, zg.mul(product, zg.expand(scales, 0)))
        a_ptrs = zg.add(a_ptrs, 64 * K)
        b_ptrs = zg.add(b_ptrs, 16 * K)
    zg.store(zg.add(out_ptr, zg.add(zg.mul(zg.expand(rows, 1), 16), zg.expand(columns, 0))), total)


TYPES = (F16, F16, F32, F32, zg.i32, 32)


def expected(a: np.ndarray, b: np.ndarray, scales: np.ndarray) -> np.ndarray:
    return np.einsum("smk,skn,sn->mn", a.astype(np.float64), b.astype(np.float64), scales.astype(np.float64))


def given(steps: int) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(steps)
    a, b = (random.integers(-3, 4, (steps, *shape)).astype(np.float16) for shape in ((64, 32), (32, 16)))
    return a, b, random.integers(1, 5, (steps, 16)).astype(np.float32)


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.parametrize("num_stages", [1, 2, 3])
def test_results_are_the_same(steps: int, num_stages: int) -> None:
    compiled = scaled_product.compile(*TYPES, num_stages=num_stages)
    a, b, scales = given(steps)
    out = np.full((64, 16), np.nan, np.float32)
    # The arrays end where the last iteration ends: the simulation reports what is read behind them.
    compiled.simulate[(1,)](a, b, scales, out, steps)
    assert np.array_equal(out, expected(a, b, scales))


def loads_of_the_loop(stages: int | None = None, **options: int) -> tuple[list[tt.Load], scf.For]:
    module = place(scaled_product.triton(*TYPES, stages), CompileOptions(**options))
    loop = next(op for op in module.walk() if isinstance(op, scf.For))
    return [op for op in loop.body.entry.ops if isinstance(op, tt.Load)], loop


def test_the_loop_carries_the_scales_of_the_next_iteration() -> None:
    (load,), loop = loads_of_the_loop(num_stages=3)
    assert load.mask is not None and load.result in loop.body.entry.terminator.operands
    ops = list(loop.body.entry.ops)
    assert ops.index(load) < next(index for index, op in enumerate(ops) if isinstance(op, gpu.Wgmma | gpu.Mma))


@pytest.mark.parametrize(("own", "requested"), [(None, 1), (None, 0), (0, 3), (1, 3)])
def test_one_stage_or_none_keeps_the_load_in_place(own: int | None, requested: int) -> None:
    loads, loop = loads_of_the_loop(own, num_stages=requested)
    assert not any(load.result in loop.body.entry.terminator.operands for load in loads)


@zg.kernel
def grouped_product(a_ptr, b_ptr, scale_ptr, out_ptr, steps, group):
    """As `scaled_product`, with one row of scales for each `group` steps; columns that have none are not scaled."""
    rows, columns, along = zg.arange(0, 64), zg.arange(0, 16), zg.arange(0, 32)
    a_ptrs = zg.add(a_ptr, zg.add(zg.mul(zg.expand(rows, 1), 32), zg.expand(along, 0)))
    b_ptrs = zg.add(b_ptr, zg.add(zg.mul(zg.expand(along, 1), 16), zg.expand(columns, 0)))
    total = zg.zeros((64, 16), zg.f32)
    for step in range(0, steps):
        own = zg.add(scale_ptr, zg.add(zg.add(zg.program_id(0), zg.mul(step // group, 16)), columns))
        scales = zg.load(own, zg.less(columns, 8), other=1.0)
        total = zg.add(total, zg.mul(zg.dot(zg.load(a_ptrs), zg.load(b_ptrs)), zg.expand(scales, 0)))
        a_ptrs = zg.add(a_ptrs, 64 * 32)
        b_ptrs = zg.add(b_ptrs, 16 * 32)
    zg.store(zg.add(out_ptr, zg.add(zg.mul(zg.expand(rows, 1), 16), zg.expand(columns, 0))), total)


@pytest.mark.parametrize(("steps", "group"), [(0, 0), (1, 3), (5, 2)])
def test_addresses_that_need_a_division_are_computed_ahead(steps: int, group: int) -> None:
    """The divisor is the loop's, which divides by it in each iteration: in a loop that has none, it may be zero."""
    types = F16, F16, F32, F32, zg.i32, zg.i32
    a, b, scales = given(max(steps, 1))
    out = np.full((64, 16), np.nan, np.float32)
    grouped_product.compile(*types, num_warps=4).simulate[(1,)](a, b, scales, out, steps, group)
    rows = [step // group for step in range(steps)]
    factors = np.where(np.arange(16) < 8, scales[rows], 1) if steps else np.zeros((0, 16), np.float32)
    assert np.array_equal(out, expected(a[:steps], b[:steps], factors))
    module = place(grouped_product.triton(*types), CompileOptions(num_warps=4))
    loop = next(op for op in module.walk() if isinstance(op, scf.For))
    loads = [op for op in loop.body.entry.ops if isinstance(op, tt.Load)]
    assert all(load.result in loop.body.entry.terminator.operands for load in loads)
    assert not any(isinstance(op, arith.DivSI) and op.rhs.op is None for op in loop.walk()), "the divisor as it was"


@zg.kernel
def odd_product(a_ptr, b_ptr, out_ptr, k, stride_a, stride_b):
    """a · b, 64×k by k×64, in steps of 32; nothing is known of the strides."""
    rows, along = zg.arange(0, 64), zg.arange(0, 32)
    a_ptrs = zg.add(a_ptr, zg.add(zg.mul(zg.expand(rows, 1), stride_a), zg.expand(along, 0)))
    b_ptrs = zg.add(b_ptr, zg.add(zg.mul(zg.expand(along, 1), stride_b), zg.expand(rows, 0)))
    total = zg.zeros((64, 64), zg.f32)
    for start in range(0, k, 32):
        rest = k - start
        a = zg.load(a_ptrs, zg.compare(zg.expand(along, 0), rest, zg.CompareKind.LESS_THAN), other=0.0)
        b = zg.load(b_ptrs, zg.compare(zg.expand(along, 1), rest, zg.CompareKind.LESS_THAN), other=0.0)
        total = zg.dot(a, b, total)
        a_ptrs = zg.add(a_ptrs, 32)
        b_ptrs = zg.add(b_ptrs, 32 * stride_b)
    zg.store(zg.add(out_ptr, zg.add(zg.mul(zg.expand(rows, 1), 64), zg.expand(rows, 0))), total)


ODD = (F16, F16, F32, zg.i32, zg.i32, zg.i32)


@pytest.mark.parametrize("k", [0, 1, 32, 75, 133])
def test_operands_that_no_copy_can_move_are_loaded_ahead(k: int) -> None:
    random = np.random.default_rng(k)
    a, b = (random.integers(-3, 4, shape).astype(np.float16) for shape in ((64, k + 1), (k, 65)))
    out = np.full((64, 64), np.nan, np.float32)
    a, b = a.ravel()[: max(1, a.size - 1)], b.ravel()[: max(1, b.size - 1)]  # The arrays end with the last element.
    odd_product.compile(*ODD, num_warps=4).simulate[(1,)](a, b if k else a, out, k, k + 1, 65)
    left = np.append(a, 0).reshape(64, k + 1)[:, :k] if k else np.zeros((64, 0))
    right = np.append(b, 0).reshape(k, 65)[:, :64] if k else np.zeros((0, 64))
    assert np.array_equal(out, left.astype(np.float64) @ right.astype(np.float64))


def test_they_lie_in_shared_memory_as_lanes_hold_them() -> None:
    module = place(odd_product.triton(*ODD), CompileOptions(num_warps=4))
    loop = next(op for op in module.walk() if isinstance(op, scf.For))
    parameters = loop.body.entry.terminator.operands
    loads = [op for op in loop.body.entry.ops if isinstance(op, tt.Load)]
    assert len(loads) == 2 and all(load.result in parameters for load in loads)
    buffers = [op.result.type for op in loop.body.entry.ops if isinstance(op, gpu.LocalAlloc)]
    assert [type_.offsets[:5] for type_ in buffers] == [(1, 2, 4, 8, 16)] * 2  # Both along their rows.


@triton.jit
def masked_product(a_desc, b_desc, factor_ptr, out_ptr, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        factors = tl.load(factor_ptr + tl.program_id(0) + rows[:, None] * n + columns[None, :] + start)
        total = tl.dot(a_desc.load([0, start]), b_desc.load([0, start]).T, total) * factors
    tl.store(out_ptr + rows[:, None] * n + columns[None, :], total)


@pytest.mark.parametrize("stages", [None, 3, 4])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 256, 32), (64, 128, 64), (128, 128, 64), (128, 64, 128)])
def test_rings_leave_shared_memory_for_what_passes_between_threads(m: int, n: int, k: int, stages: int | None) -> None:
    a, b = (zg.divisible(zg.descriptor((size, k), zg.f16)) for size in (m, n))
    types = (a, b, F32, F32, zg.divisible(zg.i32), zg.divisible(zg.i32), m, n, k)
    options = CompileOptions(num_warps=4, num_stages=stages, target="sm_90a")
    assert place(masked_product.triton(*types), options).shared <= TARGETS["sm_90a"].max_shared
