"""Loads of loops without dots that ask for stages: they begin iterations ahead, with the same results."""

from collections import Counter
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest
from counted_kernels import KERNELS

import ziggurat as zg
from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.transforms.gpu.gpu_passes import place

F16, F32, I32 = (zg.divisible(zg.ptr(type_)) for type_ in (zg.f16, zg.f32, zg.i32))
N = zg.divisible(zg.i32)
LESS = zg.CompareKind.LESS_THAN


@zg.kernel
def column_sums(x, out, rows, n, BLOCK: zg.constexpr, STAGES: zg.constexpr, STEP: zg.constexpr = 1):
    """The sums of columns of a matrix of f32, and what the mask hides counts as 1."""
    columns = zg.add(zg.mul(zg.program_id(0), BLOCK), zg.arange(0, BLOCK))
    total = zg.zeros((BLOCK,), zg.f32)
    for row in zg.range(0, rows, STEP, num_stages=STAGES):
        at = zg.add(x, zg.add(zg.mul(row, n), columns))
        total = zg.add(total, zg.load(at, zg.compare(columns, n, LESS), other=1.0))
    zg.store(zg.add(out, columns), total)


@zg.kernel
def moved_pointers(x, w, out, count, BLOCK: zg.constexpr, STAGES: zg.constexpr):
    """Σ x[i] · w[i] over blocks, through pointers that the loop moves, and a factor for each block."""
    x_ptrs = zg.add(zg.add(x, zg.mul(zg.program_id(0), BLOCK)), zg.arange(0, BLOCK))
    w_ptrs = w
    total = zg.zeros((BLOCK,), zg.f32)
    for _ in zg.range(0, count, 1, num_stages=STAGES):
        total = zg.add(total, zg.mul(zg.cast(zg.load(x_ptrs), zg.f32), zg.load(w_ptrs)))
        x_ptrs = zg.add(x_ptrs, BLOCK)
        w_ptrs = zg.add(w_ptrs, 1)
    zg.store(zg.add(out, zg.arange(0, BLOCK)), total)


@zg.kernel
def gathered_rows(x, places, scales, out, count, BLOCK: zg.constexpr, STAGES: zg.constexpr):
    """Σ x[places[i]] · scales[places[i]]: the addresses depend on an earlier load."""
    columns = zg.add(zg.arange(0, BLOCK), zg.mul(zg.program_id(0), BLOCK))
    total = zg.zeros((BLOCK,), zg.f32)
    for at in zg.range(0, count, 1, num_stages=STAGES):
        place_ = zg.load(zg.add(places, at))
        row = zg.load(zg.add(x, zg.add(zg.mul(place_, BLOCK), columns)))
        total = zg.add(total, zg.mul(row, zg.load(zg.add(scales, place_))))
    zg.store(zg.add(out, columns), total)


@zg.kernel
def chained(x, places, out, count, STAGES: zg.constexpr):
    """Σ x[places[places[i]]], element by element."""
    lanes = zg.arange(0, 128)
    total = zg.zeros((128,), zg.f32)
    for at in zg.range(0, count, 1, num_stages=STAGES):
        first = zg.load(zg.add(places, zg.add(zg.mul(at, 128), lanes)))
        second = zg.load(zg.add(places, first))
        total = zg.add(total, zg.load(zg.add(x, second)))
    zg.store(zg.add(out, lanes), total)


@zg.kernel
def doubled_rows(x, out, rows, step, BLOCK: zg.constexpr, STAGES: zg.constexpr):
    """Rows to rows: the loop stores through another argument."""
    for row in zg.range(zg.program_id(0), rows, step, num_stages=STAGES):
        at = zg.add(zg.mul(row, BLOCK), zg.arange(0, BLOCK))
        zg.store(zg.add(out, at), zg.mul(zg.load(zg.add(x, at)), 2.0))


def placed(kernel: Any, *types: Any, **options: Any) -> gpu.Module:
    return place(kernel.triton(*types), CompileOptions(verify=True, **options))


def ops_of(model: Op) -> Counter[type]:
    return Counter(type(op) for op in model.walk())


def in_loop(model: Op) -> list[Op]:
    loop = next(op for op in model.walk() if isinstance(op, scf.For))
    return list(loop.body.entry.ops)


RANDOM = np.random.default_rng(5)


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize(("block", "step"), [(128, 1), (2048, 1), (2048, 3)])
@pytest.mark.parametrize("rows", [0, 1, 2, 7])
def test_sums_of_columns(stages: int, block: int, step: int, rows: int) -> None:
    compiled = _compiled(column_sums, F32, F32, zg.i32, N, block, stages, step)
    n = block - 48
    x, out = RANDOM.integers(-9, 9, (rows, n)).astype(np.float32), np.full(block, np.nan, np.float32)
    # The array ends with the last row: the simulation reports what is read beyond.
    compiled.simulate[(1,)](x.ravel() if rows else np.zeros(1, np.float32), out, rows, n)
    assert np.array_equal(out[:n], x[::step].sum(0))
    assert np.array_equal(out[n:], np.full(48, len(range(0, rows, step)), np.float32))


@cache
def _compiled(kernel: Any, *types: Any) -> Any:
    return kernel.compile(*types, verify=True)


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("count", [0, 1, 3, 6])
def test_pointers_that_the_loop_moves(stages: int, count: int) -> None:
    compiled = _compiled(moved_pointers, F16, F32, F32, zg.i32, 4096, stages)
    x = RANDOM.integers(-9, 9, (count, 4096)).astype(np.float16)
    w, out = RANDOM.integers(-9, 9, count + 1).astype(np.float32), np.full(4096, np.nan, np.float32)
    compiled.simulate[(1,)](x.ravel() if count else np.zeros(8, np.float16), w[: max(count, 1)], out, count)
    assert np.array_equal(out, (x.astype(np.float32) * w[:count, None]).sum(0))


@pytest.mark.parametrize("stages", [2, 3, 4, 7])
@pytest.mark.parametrize("count", [0, 1, 2, 9])
@pytest.mark.filterwarnings("ignore:the load is not pipelined")
def test_addresses_that_depend_on_a_load(stages: int, count: int) -> None:
    x, scales = RANDOM.integers(-9, 9, (5, 2048)).astype(np.float32), RANDOM.integers(-9, 9, 5).astype(np.float32)
    places, out = RANDOM.integers(0, 5, max(count, 1)).astype(np.int32), np.full(2048, np.nan, np.float32)
    compiled = _compiled(gathered_rows, F32, I32, F32, F32, zg.i32, 2048, stages)
    compiled.simulate[(1,)](x.ravel(), places, scales, out, count)
    selection = places[:count]
    assert np.array_equal(out, (x[selection] * scales[selection, None]).sum(0, dtype=np.float32))


@pytest.mark.parametrize("stages", [2, 3, 4, 8])
@pytest.mark.parametrize("count", [0, 1, 4])
def test_chains_of_loads(stages: int, count: int) -> None:
    x = RANDOM.integers(-9, 9, 640).astype(np.float32)
    places, out = RANDOM.integers(0, 512, 640).astype(np.int32), np.full(128, np.nan, np.float32)
    compiled = chained.compile(F32, I32, F32, zg.i32, stages, verify=True)
    compiled.simulate[(1,)](x, places, out, count)
    first = places[: 128 * count].reshape(count, 128)
    assert np.array_equal(out, x[places[first]].sum(0, dtype=np.float32))


def test_a_thread_reads_what_it_has_copied() -> None:
    model = placed(column_sums, F32, F32, zg.i32, N, 2048, 4)
    inside = Counter(map(type, in_loop(model)))
    assert inside[gpu.AsyncCopy] == inside[gpu.AsyncWait] == inside[gpu.LocalLoad] == 1
    ring = next(op for op in model.walk() if isinstance(op, gpu.LocalAlloc))
    assert ring.result.type.count == 3 and not ops_of(model)[gpu.Barrier] and not inside[tt.Load]


@pytest.mark.parametrize(("columns", "stages", "copied"), [(512, 3, False), (512, 4, True), (1024, 2, False)])
def test_eight_registers_of_a_thread_are_in_flight_at_most(columns: int, stages: int, copied: bool) -> None:
    """Loads with more values in flight are copied to shared memory."""
    model = placed(column_sums, F32, F32, zg.i32, N, columns, stages)
    assert any(isinstance(op, gpu.AsyncCopy) for op in in_loop(model)) == copied


def test_small_tensors_stay_in_registers() -> None:
    model = placed(column_sums, F32, F32, zg.i32, N, 128, 4)
    ops = in_loop(model)
    (load,) = (op for op in ops if isinstance(op, tt.Load))
    assert not ops_of(model)[gpu.LocalAlloc] and load.result in ops[-1].operands


def test_the_option_of_the_kernel_is_for_dots() -> None:
    model = placed(column_sums, F32, F32, zg.i32, N, 2048, None, num_stages=4)
    (load,) = (op for op in in_loop(model) if isinstance(op, tt.Load))
    assert load.result not in in_loop(model)[-1].operands


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("rows", [0, 1, 3, 8])
def test_stores_through_another_argument(stages: int, rows: int) -> None:
    compiled = _compiled(doubled_rows, F32, F32, zg.i32, zg.i32, 2048, stages)
    x, out = RANDOM.standard_normal((rows, 2048)).astype(np.float32), np.zeros((rows, 2048), np.float32)
    compiled.simulate[(2,)](x.ravel() if rows else np.zeros(4, np.float32), out if rows else x, rows, 2)
    assert np.array_equal(out, 2 * x)
    assert ops_of(placed(doubled_rows, F32, F32, zg.i32, zg.i32, 4096, stages))[gpu.AsyncCopy]


@zg.kernel
def in_place(x, rows, BLOCK: zg.constexpr, STAGES: zg.constexpr):
    for row in zg.range(zg.program_id(0), rows, 1, num_stages=STAGES):
        at = zg.add(zg.mul(row, BLOCK), zg.arange(0, BLOCK))
        zg.store(zg.add(x, at), zg.mul(zg.load(zg.add(x, at)), 2.0))


@zg.kernel
def linked(x, out, count, STAGES: zg.constexpr):
    place_ = zg.cast(0, zg.i32)
    for _ in zg.range(0, count, 1, num_stages=STAGES):
        place_ = zg.load(zg.add(x, place_))
    zg.store(out, place_)


@pytest.mark.parametrize(
    ("kernel", "types", "why"),
    [
        (in_place, (F32, zg.i32, 2048, 3), "not pipelined in 3 stages: an op in it writes"),
        (linked, (I32, I32, zg.i32, 3), "its address depends on what an earlier iteration loads"),
    ],
)
def test_obstacles(kernel: Any, types: Any, why: str) -> None:
    with pytest.warns(zg.ZigguratWarning, match=why):
        place(kernel.triton(*types), CompileOptions())


def test_fewer_stages_where_shared_memory_ends() -> None:
    with pytest.warns(zg.ZigguratWarning, match="pipelined in 7 stages, not 9"):
        model = place(column_sums.triton(F32, F32, zg.i32, N, 8192, 9), CompileOptions(num_warps=8))
    ring = next(op for op in model.walk() if isinstance(op, gpu.LocalAlloc))
    assert ring.result.type.count == 6


@zg.kernel
def weighted(x, weights, out, n, BLOCK: zg.constexpr, STAGES: zg.constexpr):
    start = zg.mul(zg.program_id(0), n)
    for column in zg.range(0, n, BLOCK, num_stages=STAGES):
        columns = zg.add(column, zg.arange(0, BLOCK))
        row = zg.load(zg.add(x, zg.add(start, columns)))
        zg.store(zg.add(out, zg.add(start, columns)), zg.mul(row, zg.load(zg.add(weights, columns))))


@zg.kernel
def mixed(x, y, places, out, first, last, case: zg.constexpr):
    """Loads of several kinds, chosen by `case`, whose masks, strides, fills and chains are random."""
    block, step, stages = case[0], case[1], case[2]
    masked, gathered, result, values, fill = case[3], case[4], case[5], case[6], case[7]
    lanes = zg.arange(0, block)
    own = zg.mul(zg.program_id(0), block)
    total = zg.zeros((block,), zg.f32)
    pointers = zg.add(zg.add(y, own), lanes)
    for at in zg.range(first, last, step, num_stages=stages):
        row = at
        if gathered:
            row = zg.load(zg.add(places, at))
        columns = zg.add(own, lanes)
        if masked:
            mask = zg.compare(zg.add(lanes, zg.mul(row, 7)), block, LESS)
            value = zg.load(zg.add(x, zg.add(zg.mul(row, 2 * block), columns)), mask, other=fill)
        else:
            value = zg.load(zg.add(x, zg.add(zg.mul(row, 2 * block), columns)))
        total = zg.add(total, zg.cast(value, zg.f32))
        if result:
            total = zg.mul(total, zg.cast(zg.load(pointers), zg.f32))
            pointers = zg.add(pointers, block)
        if values:
            zg.store(zg.add(out, zg.add(columns, zg.mul(zg.add(at, 1), 2 * block))), total)
    zg.store(zg.add(zg.add(out, own), lanes), total)


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.filterwarnings("ignore:the load is not pipelined")
def test_random_loops(seed: int) -> None:
    """The interpreter runs the placed model, whose waits `verify` checks; one in four runs in the simulation."""
    random = Random(seed)
    case = (
        random.choice((64, 512, 2048, 4096)),
        random.choice((1, 1, 2, -1, -3)),
        random.randint(2, 6),
        *(random.random() < 0.5 for _ in range(4)),
        random.choice((0.0, 1.0, -2.0)),
    )
    block, step, count = case[0], case[1], random.randint(0, 7)
    element = random.choice((zg.f16, zg.f32))
    dtype = np.float16 if element is zg.f16 else np.float32
    values = np.random.default_rng(seed)
    x = values.integers(-3, 4, (8, 2 * block)).astype(dtype)
    y = values.choice(np.array([-1, 1], dtype), 10 * block)
    places = values.integers(0, 8, 8).astype(np.int32)
    first, last = (0, count) if step > 0 else (count, 0)
    pointer = zg.divisible(zg.ptr(element))
    compiled = mixed.compile(
        pointer, pointer, I32, F32, zg.i32, zg.i32, case, num_warps=random.choice((1, 4)), verify=True
    )
    actual, expected = (np.zeros((9, 2 * block), np.float32) for _ in range(2))
    if seed % 4 == 0:
        compiled.simulate[(2,)](x, y, places, actual, first, last, seed=seed // 4)
    else:
        zg.run(compiled.stages["gpu"], 2, x, y, places, actual, first, last)
    mixed[(2,)](x, y, places, expected, first, last, case, interpret=True)
    assert np.array_equal(actual, expected)


def test_what_all_programs_load_stays_in_place() -> None:
    with pytest.warns(zg.ZigguratWarning, match="all programs load it"):
        model = place(weighted.triton(F32, F32, F32, N, 4096, 3), CompileOptions())
    assert Counter(map(type, in_loop(model)))[gpu.AsyncCopy] == 1


BLOCK = zg.divisible(zg.descriptor((32, 64), zg.f16))


@zg.kernel
def sum_of_blocks(x, out, count, STAGES: zg.constexpr):
    total = zg.zeros((32, 64), zg.f32)
    for at in zg.range(0, count, 1, num_stages=STAGES):
        total = zg.add(total, zg.cast(x.load((zg.mul(at, 32), zg.mul(zg.program_id(0), 64))), zg.f32))
    rows, columns = zg.expand(zg.arange(0, 32), 1), zg.expand(zg.arange(0, 64), 0)
    zg.store(zg.add(out, zg.add(zg.mul(rows, 64), columns)), total)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_blocks_of_descriptors_by_tma(count: int) -> None:
    x, out = RANDOM.integers(-9, 9, (32 * count, 64)).astype(np.float16), np.full((32, 64), np.nan, np.float32)
    compiled = _compiled(sum_of_blocks, BLOCK, F32, zg.i32, 4)
    compiled.simulate[(1,)](zg.TensorDescriptor(x, (32, 64)), out, count)
    assert np.array_equal(out, x.reshape(count, 32, 64).astype(np.float32).sum(0))
    inside = Counter(map(type, in_loop(placed(sum_of_blocks, BLOCK, F32, zg.i32, 4))))
    assert inside[gpu.TmaLoad] == 1 and inside[gpu.Barrier] == 1


@zg.kernel
def squares(x, out, count):
    """Σ x[i] · x[i]ᵀ and the sums of rows: both operands of the dot, and another op, use one small load."""
    rows, columns = zg.arange(0, 16), zg.arange(0, 32)
    at = zg.add(zg.add(zg.mul(zg.expand(rows, 1), 32), zg.expand(columns, 0)), zg.mul(zg.program_id(0), 512 * count))
    total = zg.zeros((16, 16), zg.f32)
    for i in zg.range(0, count):
        tile = zg.load(zg.add(x, zg.add(at, i * 512)))
        total = zg.add(zg.dot(tile, zg.trans(tile), total), zg.expand(zg.sum(zg.cast(tile, zg.f32), axis=1), 1))
    places = zg.add(zg.mul(zg.expand(rows, 1), 16), zg.expand(rows, 0))
    zg.store(zg.add(out, zg.add(places, zg.mul(zg.program_id(0), 256))), total)


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_load_that_a_dot_and_another_op_use(warps: int, stages: int, count: int) -> None:
    compiled = squares.compile(F16, F32, zg.i32, num_warps=warps, num_stages=stages, verify=True)
    x, out = (
        RANDOM.integers(-3, 4, (2, max(count, 1), 16, 32)).astype(np.float16),
        np.full((2, 16, 16), np.nan, np.float32),
    )
    compiled.simulate[(2,)](x, out, count)
    tiles = x[:, :count].astype(np.float32)
    assert np.array_equal(out, np.einsum("pnik,pnjk->pij", tiles, tiles) + tiles.sum((1, 3))[:, :, None])


def test_all_rings_of_a_loop_have_a_slot_less_if_another_cta_shares_the_sm_then() -> None:
    """Words and scales of 4-bit weights have rings beside that of the other operand."""
    counted = KERNELS["matmul, weights of four bits"]
    compiled = counted.kernel.compile(*counted.types, target=counted.target, **counted.options)
    (model,) = (snapshot.model for snapshot in compiled.passes if snapshot.name == "latency")
    rings = [op.slots for op in model.walk() if isinstance(op, gpu.LocalAlloc) and op.slots]
    assert len(rings) == 3 and set(rings) == {3}


@pytest.mark.parametrize(("count", "slots"), [(1, None), (2, 2), (3, 3), (9, 4)])
def test_a_loop_has_no_more_stages_than_iterations(count: int, slots: int | None) -> None:
    """Slots that no iteration fills would take shared memory from other CTAs."""

    @zg.kernel
    def few(x, out):
        rows, columns = zg.expand(zg.arange(0, 64), 1), zg.expand(zg.arange(0, 64), 0)
        at, total = zg.add(zg.mul(rows, 64), columns), zg.zeros((64, 64), zg.f32)
        for i in zg.range(0, count):
            tile = zg.load(zg.add(x, zg.add(at, i * 4096)))
            total = zg.dot(tile, zg.load(zg.add(x, zg.add(at, i * 4096))), total)
        zg.store(zg.add(out, at), total)

    model = placed(few, F16, F32, target="sm_80", num_warps=4, num_stages=4)
    rings = {op.type.count for op in model.walk() if isinstance(op, gpu.LocalAlloc)} - {1}
    assert rings == (set() if slots is None else {slots})


def test_loads_begin_before_the_barriers_of_the_iteration_before() -> None:
    """The maximum of each column goes through shared memory in each iteration."""

    @zg.kernel
    def largest(x, out, count):
        rows, columns = zg.expand(zg.arange(0, 32), 1), zg.expand(zg.arange(0, 32), 0)
        total = zg.full((32,), -1000.0, zg.f32)
        for i in zg.range(0, count):
            tile = zg.load(zg.add(x, zg.add(zg.add(zg.mul(rows, 32), columns), i * 1024)))
            total = zg.maximum(total, zg.add(zg.max(zg.cast(tile, zg.f32), 0), total * 0.5))
        zg.store(zg.add(out, zg.arange(0, 32)), total)

    compiled = largest.compile(F16, F32, zg.i32, target="sm_90a", num_warps=4)
    model = next(item.model for item in compiled.passes if item.name == "latency")
    assert [op.ahead for op in model.walk() if isinstance(op, tt.Load)] == [1]
    x, out = RANDOM.integers(-9, 9, (3, 32, 32)).astype(np.float16), np.zeros(32, np.float32)
    compiled.simulate[(1,)](x, out, 3)
    total = np.full(32, -1000.0, np.float32)
    for tile in x:
        total = np.maximum(total, tile.max(0) + total * 0.5)
    assert np.array_equal(out, total)


@pytest.mark.parametrize(
    ("divides", "looks_up", "warps", "ahead"),
    [
        (True, False, 4, 1),
        (True, False, 2, None),
        (False, False, 4, None),
        (True, False, 8, None),
        (True, True, 4, None),
    ],
)
def test_loads_begin_before_the_quotient_of_the_iteration_before(
    divides: bool, looks_up: bool, warps: int, ahead: int | None
) -> None:
    """ptxas puts off a load that joins the carried value after a quotient, so that its latency is added to that."""

    @zg.kernel
    def recurrence(x, w, places, out, count):
        at, total = zg.arange(0, 256), zg.full((256,), 1.0, zg.f32)
        for i in zg.range(0, count):
            place = zg.load(places + i) if looks_up else i
            scale = zg.load(w + at + place * 256)
            total = scale / (total + 2.0) if divides else scale * (total + 2.0)
            total = total + zg.load(x + at + i * 256)
        zg.store(out + at, total)

    compiled = recurrence.compile(F32, F32, I32, F32, zg.i32, target="sm_90a", num_warps=warps)
    model = next(item.model for item in compiled.passes if item.name == "latency")
    assert {op.ahead for op in model.walk() if isinstance(op, tt.Load)} == {ahead}
    x, w = (RANDOM.integers(1, 9, (3, 256)).astype(np.float32) for _ in range(2))
    out, expected = np.zeros(256, np.float32), np.ones(256, np.float32)
    compiled.simulate[(1,)](x, w, np.arange(3, dtype=np.int32), out, 3)
    for addend, scale in zip(x, w, strict=True):
        expected = (scale / (expected + 2) if divides else scale * (expected + 2)) + addend
    assert np.allclose(out, expected, rtol=1e-5)


def test_scattered_loads_that_are_added_to_a_dot_have_its_layout() -> None:
    """Each element has an address of its own, so any layout loads it as well; a copy of each word, which threads read
    again, would take two instructions in place of one."""

    @zg.kernel
    def biased(x, y, bias, out, count):
        rows, columns = zg.expand(zg.arange(0, 64), 1), zg.expand(zg.arange(0, 64), 0)
        first = zg.program_id(0) * 64
        a, total = zg.load(x + ((first + rows) * 64 + columns)), zg.zeros((64, 64), zg.f32)
        for i in zg.range(0, count):
            b = zg.load(y + (i * 4096 + rows * 64 + columns))
            distance = zg.maximum(first + rows - columns - i * 64, 0)
            total = total + zg.exp(zg.dot(a, b) * 0.1 + zg.load(bias + zg.minimum(distance // 3, 31) * 4))
        zg.store(out + ((first + rows) * 64 + columns), total)

    compiled = biased.compile(F16, F16, F32, F32, zg.i32, target="sm_90a", num_warps=4, num_stages=3)
    model = next(item.model for item in compiled.passes if item.name == "latency")
    [load] = (op for op in model.walk() if isinstance(op, tt.Load) and op.result.type.element == zg.f32)
    assert not any(isinstance(user, gpu.ConvertLayout | gpu.LocalStore) for user in load.result.uses)
    x, y, bias = (RANDOM.standard_normal(shape) for shape in ((2, 64, 64), (2, 64, 64), (32, 4)))
    x, y, bias, out = x.astype(np.float16), y.astype(np.float16), bias.astype(np.float32), np.zeros((128, 64))
    out = out.astype(np.float32)
    compiled.simulate[(2,)](x, y, bias, out, 2)
    row, column = np.arange(128)[:, None], np.arange(64)[None]
    expected = sum(
        np.exp(
            x.reshape(128, 64).astype(np.float32) @ y[i].astype(np.float32) * 0.1
            + bias[np.minimum(np.maximum(row - column - i * 64, 0) // 3, 31), 0]
        )
        for i in range(2)
    )
    assert np.allclose(out, expected, rtol=2e-3)


# Schedules written by hand.


@zg.kernel
def tiles(x, y, scales, out, count):
    """Σ scales[i] · (x[i] · y[i]), 64×32 by 32×32."""
    rows, along, columns = zg.arange(0, 64), zg.arange(0, 32), zg.arange(0, 32)
    a = zg.add(zg.mul(zg.expand(rows, 1), 32), zg.expand(along, 0))
    b = zg.add(zg.mul(zg.expand(along, 1), 32), zg.expand(columns, 0))
    total = zg.zeros((64, 32), zg.f32)
    for i in zg.range(0, count):
        product = zg.dot(zg.load(zg.add(x, zg.add(a, i * 2048))), zg.load(zg.add(y, zg.add(b, i * 1024))))
        total = zg.add(total, zg.mul(product, zg.load(zg.add(scales, i))))
    zg.store(zg.add(out, a), total)


def annotated() -> str:
    """The model of `tiles` after `latency`: operands are two iterations ahead, in three slots, and a number one."""
    compiled = tiles.compile(F16, F16, F32, F32, zg.i32, num_warps=4, num_stages=3, target="sm_80")
    (model,) = (snapshot.model for snapshot in compiled.passes if snapshot.name == "latency")
    text = str(model)
    assert text.count("@ahead=2") == text.count("@slots=3") == 2 and text.count("@ahead=1") == 1
    return text


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"@ahead=2": "@ahead=1", "@slots=3": "@slots=2"},
        {" @ahead=1": ""},
        {"@slots=3": "@slots=6"},
        {"@ahead=1": "@ahead=4"},
    ],
)
@pytest.mark.parametrize("count", [0, 1, 6])
def test_a_schedule_can_be_changed_in_the_text(changes: dict[str, str], count: int) -> None:
    text = annotated()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    compiled = zg.compile(zg.parse(text), phase="schedule", verify=True)
    x, y = (RANDOM.integers(-2, 3, (max(count, 1), *shape)).astype(np.float16) for shape in ((64, 32), (32, 32)))
    scales, out = RANDOM.integers(1, 4, max(count, 1)).astype(np.float32), np.full((64, 32), np.nan, np.float32)
    compiled.simulate[(1,)](x, y, scales, out, count)
    assert np.array_equal(
        out, np.einsum("nij,njk,n->ik", x, y, scales, dtype=np.float32)[:] if count else np.zeros((64, 32))
    )


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("@slots=3", "@slots=1", "its ring must have 2 slots or more; got 1"),
        ("@ahead=2", "@ahead=1", "threads make all copies of a loop equally far ahead; got"),
    ],
)
def test_a_schedule_that_a_loop_cannot_have(old: str, new: str, why: str) -> None:
    with pytest.raises(zg.LaunchError, match=why):
        zg.compile(zg.parse(annotated().replace(old, new, 1)), phase="schedule")
