"""Plans of pipelined loops: the copies, their groups, and the wgmma that stays in flight."""

from __future__ import annotations

from typing import Any

import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op, expect
from ziggurat.transforms.analysis.obstacle import Obstacle
from ziggurat.transforms.analysis.queries import constant_of
from ziggurat.transforms.gpu.gpu_passes import PLACE
from ziggurat.transforms.schedule.dots_ahead import Occupancy, operands_ahead
from ziggurat.transforms.schedule.latency import plans_of
from ziggurat.transforms.schedule.loop_plan import LoopPlan, carried

PLENTY = 200_000


def placed(model: Op, target: str = "sm_90a", num_warps: int = 4) -> Op:
    """The model before the pass `latency`."""
    options = CompileOptions(target, num_warps, raise_pointers=False)
    for name, step in PLACE:
        if name in ("specialize",):
            break
        model = step(model, options)
    return model


def loops_of(module: Op) -> list[scf.For]:
    return [op for op in module.walk() if isinstance(op, scf.For)]


def plan_of(model: Op, stages: int = 3, limit: int = PLENTY, **options: Any) -> LoopPlan | None:
    """The plan of the only loop."""
    module = placed(model, **options)
    (loop,) = loops_of(module)
    plan = operands_ahead(loop, stages, limit)
    return plan if isinstance(plan, LoopPlan) else None


def sure(plan: LoopPlan | Obstacle | None) -> LoopPlan:
    assert isinstance(plan, LoopPlan)
    return plan


@zg.kernel
def product(a_desc, b_desc, c_desc, out_ptr, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr, also: zg.constexpr):
    """c = a · b, with `also` in the loop."""
    acc = zg.zeros((M, N), zg.f32)
    for start in range(0, k, K):
        if also == "barrier":
            zg.debug_barrier()
        if also == "stores":
            zg.store(zg.add(out_ptr, start), 1.0)
        if also in ("relaxed", "acq_rel"):
            zg.atomic_add(out_ptr, 1.0, sem=also)
        if also == "divides":
            a = a_desc.load((0, 4096 // k))
        else:
            a = a_desc.load((0, start))
        if also == "scales before":
            acc = zg.mul(acc, 2.0)
        if also == "changes":
            a = zg.mul(a, a)
        acc = zg.dot(a, b_desc.load((start, 0)), acc)
        if also == "scales after":
            acc = zg.mul(acc, 2.0)
    c_desc.store((0, 0), zg.cast(acc, zg.f16))


def product_of(also: str = "", m: int = 64, n: int = 64, k: int = 64) -> Op:
    blocks = [zg.descriptor(block, zg.f16) for block in ((m, k), (k, n), (m, n))]
    return product.triton(*blocks, zg.ptr(zg.f32), zg.i32, m, n, k, also)


def test_a_wgmma_that_adds_to_its_own_accumulator_stays_in_flight() -> None:
    plan = sure(plan_of(product_of()))
    assert [copy.by_tma for copy in plan.copies] == [True, True]
    assert (plan.stages, plan.distance) == (3, 2)
    (late,) = plan.late
    assert isinstance(plan.after, gpu.Wgmma) and late.value is plan.after.result
    # The addresses follow from the index alone.
    assert carried(plan.loop, [value for load in plan.ahead for value in load.operands]) == ()
    # Both blocks are for one dot, and have one channel, whose slot is free in the next iteration.
    (copies,) = plan.channels()
    assert copies == plan.copies and {copy.reader for copy in copies} == {plan.after}
    assert plan.released(copies) is late


@pytest.mark.parametrize(("n", "stages"), [(32, 6), (64, 6), (128, 3)])
def test_few_accumulators_have_six_stages(n: int, stages: int) -> None:
    """32 registers a thread are multiplied faster than the next blocks arrive."""
    (loop,) = loops_of(placed(product_of(n=n)))
    assert sure(operands_ahead(loop, None, PLENTY)).stages == stages


@zg.kernel
def products_in_a_loop(a_desc, b_desc, c_desc, k, n, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    """The product of a and each block of b, n times."""
    acc = zg.zeros((M, N), zg.f32)
    for start in range(0, k, K):
        b = b_desc.load((start, 0))
        for row in range(0, n):
            acc = zg.dot(a_desc.load((row, start)), b, acc)
    c_desc.store((0, 0), zg.cast(acc, zg.f16))


def test_a_load_for_a_dot_of_an_inner_loop_is_not_pipelined() -> None:
    """The inner loop reads its slot as often as it runs, which can be never."""
    blocks = [zg.descriptor((64, 64), zg.f16)] * 3
    outer, inner = loops_of(placed(products_in_a_loop.triton(*blocks, zg.i32, zg.i32, 64, 64, 64)))
    assert operands_ahead(outer, 3, PLENTY) == Obstacle("no load in it goes only to a dot", outer)
    assert [copy.by_tma for copy in sure(operands_ahead(inner, 3, PLENTY)).copies] == [True]


@pytest.mark.parametrize(
    ("also", "copies", "why"),
    [
        ("scales before", 2, "the sum is needed before the product"),
        ("scales after", 2, "the accumulator is needed after it"),
        ("changes", 1, "its operand is stored by the threads, in a single buffer"),
    ],
)
def test_no_wgmma_stays_in_flight(also: str, copies: int, why: str) -> None:
    plan = sure(plan_of(product_of(also)))
    assert plan.late == () and plan.after is None, why
    assert len(plan.copies) == copies


@pytest.mark.parametrize(
    ("also", "copies"),
    [
        ("barrier", None), ("acq_rel", None), ("relaxed", 2), ("stores", 2), ("divides", 1), ("changes", 1), ("", 2),
    ],
)  # fmt: skip
def test_which_loads_are_pipelined(also: str, copies: int | None) -> None:
    """None if the loop orders memory accesses; no block whose address may trap, or that threads change."""
    plan = plan_of(product_of(also))
    assert (None if plan is None else len(plan.copies)) == copies


@pytest.mark.parametrize(
    ("stages", "limit", "expected"),
    [
        (1, PLENTY, None),
        (2, PLENTY, 2),
        (5, PLENTY, 5),
        (5, 2 * 16384, 3),  # Further buffers, beside the first.
        (5, 2 * 16384 - 1, 2),
        (5, 16383, None),
    ],
)
def test_stages_are_limited_by_shared_memory(stages: int, limit: int, expected: int | None) -> None:
    plan = plan_of(product_of(), stages, limit)
    assert (None if plan is None else plan.stages) == expected


@zg.kernel
def attention(
    q_desc, k_desc, v_desc, out_desc, n, M: zg.constexpr, N: zg.constexpr, D: zg.constexpr, rescaled: zg.constexpr
):
    """Two dots in a loop; the second reads the result of the first."""
    q = q_desc.load((0, 0))
    total = zg.zeros((M,), zg.f32)
    acc = zg.zeros((M, D), zg.f32)
    for start in range(0, n, N):
        if rescaled == "first":
            acc = zg.mul(acc, 0.5)
        scores = zg.dot(q, zg.trans(k_desc.load((start, 0))))
        p = zg.exp2(scores)
        if rescaled == "between":
            acc = zg.mul(acc, 0.5)
        acc = zg.dot(zg.cast(p, zg.f16), v_desc.load((start, 0)), acc)
        total = zg.add(total, zg.sum(p, axis=1))
    out_desc.store((0, 0), zg.cast(zg.div(acc, zg.expand(total, 1)), zg.f16))


def attention_of(rescaled: str) -> Op:
    m, n, d = 64, 32, 32
    blocks = [zg.descriptor(block, zg.f16) for block in ((m, d), (n, d), (n, d), (m, d))]
    return attention.triton(*blocks, zg.i32, m, n, d, rescaled)


@pytest.mark.parametrize("rescaled", ["", "between"])
def test_the_wait_for_another_wgmma_covers_the_last(rescaled: str) -> None:
    """After the wait for queries and keys, the accumulator of the iteration before is complete and may be scaled."""
    plan = sure(plan_of(attention_of(rescaled)))
    (late,), after = plan.late, plan.after
    assert isinstance(after, gpu.WgmmaWait) and after is not late
    # Keys and values have different readers and channels: scores need not wait for values.
    keys, values = plan.channels()
    assert len(keys) == len(values) == 1
    assert after.value is keys[0].reader.result and late.value is values[0].reader.result
    assert plan.released(keys) is after and plan.released(values) is late


def test_an_accumulator_that_is_read_earlier_is_waited_for() -> None:
    plan = sure(plan_of(attention_of("first")))
    assert plan.late == () and len(plan.copies) == 2


@zg.kernel
def adapted(x_desc, w_desc, a_desc, out_desc, low_desc, k, uses: zg.constexpr):
    """Two products of one operand, each with a sum of its own, which the other may need."""
    acc = zg.zeros((64, 64), zg.f32)
    low = zg.zeros((64, 16), zg.f32)
    for start in range(0, k, 64):
        x = x_desc.load((0, start))
        acc = zg.dot(x, w_desc.load((start, 0)), acc)
        low = zg.dot(x, a_desc.load((start, 0)), low)
        if uses:
            low = zg.add(low, zg.expand(zg.sum(acc, axis=1), 1))
    out_desc.store((0, 0), zg.cast(acc, zg.f16))
    low_desc.store((0, 0), zg.cast(low, zg.f16))


@pytest.mark.parametrize("uses", [False, True])
def test_two_sums_stay_in_flight_if_nothing_else_needs_them(uses: bool) -> None:
    blocks = [zg.descriptor(block, zg.f16) for block in ((64, 64), (64, 64), (64, 16), (64, 64), (64, 16))]
    plan = sure(plan_of(adapted.triton(*blocks, zg.i32, uses)))
    assert len(plan.late) == (0 if uses else 2)
    if not uses:
        assert plan.after is plan.late[1].value.op
        # The slots of the operand of both are released after the later wait.
        assert [plan.released(copies) for copies in plan.channels()] == [plan.late[1]] * 2


@zg.kernel
def pointed(a_ptr, b_desc, c_desc, k, N: zg.constexpr, stride: zg.constexpr):
    """One operand through pointers that the loop carries, the other by TMA."""
    rows, along = zg.expand(zg.arange(0, N), 1), zg.expand(zg.arange(0, N), 0)
    pointers = zg.add(a_ptr, zg.add(zg.mul(rows, stride), along))
    acc = zg.zeros((N, N), zg.f32)
    for start in range(0, k, N):
        acc = zg.dot(zg.load(pointers), b_desc.load((start, 0)), acc)
        pointers = zg.add(pointers, N)
    c_desc.store((0, 0), zg.cast(acc, zg.f16))


def pointed_of() -> Op:
    block = zg.descriptor((64, 64), zg.f16)
    return pointed.triton(zg.divisible(zg.ptr(zg.f16)), block, block, zg.i32, 64, 512)


def test_copies_of_threads_beside_tma() -> None:
    """If both copy, no wgmma stays in flight."""
    plan = sure(plan_of(pointed_of()))
    assert [copy.by_tma for copy in plan.copies] in ([True, False], [False, True])
    assert plan.late == ()
    (load,) = [copy.load for copy in plan.copies if not copy.by_tma]
    assert isinstance(load, tt.Load) and {copy.width for copy in plan.copies} == {0, 8}
    # The pointers are carried, and computed ahead.
    assert len(carried(plan.loop, load.operands)) == 1
    threads, tma = plan.channels()
    assert [copy.by_tma for copy in (*threads, *tma)] == [False, True]
    # Both operands are of one wgmma, which is waited for in its iteration.
    assert isinstance(plan.released(threads), gpu.WgmmaWait) and plan.released(threads) is plan.released(tma)


@zg.kernel
def both_pointed(a_ptr, b_ptr, out_ptr, k, N: zg.constexpr):
    rows, columns = zg.expand(zg.arange(0, N), 1), zg.expand(zg.arange(0, N), 0)
    at = zg.add(zg.mul(rows, N), columns)
    total = zg.zeros((N, N), zg.f32)
    for step in range(0, k):
        tile = zg.add(at, step * N * N)
        total = zg.dot(zg.load(zg.add(a_ptr, tile)), zg.load(zg.add(b_ptr, tile)), total)
    zg.store(zg.add(out_ptr, at), total)


TILE = 2 * 64 * 64


@pytest.mark.parametrize(
    ("stages", "limit", "occupancy", "expected"),
    [
        # One slot more: the slot that is filled was read two iterations before.
        (3, PLENTY, lambda further, registers: 4, (4, True, True)),
        (2, PLENTY, lambda further, registers: 4, (3, True, True)),
        # One slot more would lower the occupancy: there are two barriers instead.
        (3, PLENTY, lambda further, registers: PLENTY // further, (3, False, True)),
        (3, 2 * 2 * TILE, lambda further, registers: 1, (3, False, True)),
        # With two slots, none can be filled while a wgmma is in flight.
        (2, 2 * TILE, lambda further, registers: 1, (2, False, False)),
        (3, 2 * TILE, lambda further, registers: 1, (2, False, False)),
    ],
)
def test_a_wgmma_of_copied_operands_stays_in_flight(
    stages: int, limit: int, occupancy: Occupancy, expected: tuple[int, bool, bool]
) -> None:
    pointer = zg.divisible(zg.ptr(zg.f16))
    module = placed(both_pointed.triton(pointer, pointer, zg.ptr(zg.f32), zg.i32, 64))
    (loop,) = loops_of(module)
    calls: list[tuple[int, int]] = []

    def counted(further: int, registers: int) -> int:
        calls.append((further, registers))
        return occupancy(further, registers)

    plan = sure(operands_ahead(loop, stages, limit, counted))
    assert (plan.stages, plan.stages > plan.distance + 1, bool(plan.late)) == expected
    assert plan.stages - plan.distance in (1, 2)
    # The accumulator of 64 × 64 in 128 threads; the slots beside the loop's own buffer.
    assert calls in ([], [(stages * 2 * TILE, 32), ((stages - 1) * 2 * TILE, 32)])


@zg.kernel
def shared_block(a_desc, c_desc, d_desc, k, N: zg.constexpr):
    """Two dots of one loop: the first reads two blocks, the second one of them again, and a third."""
    first, second = zg.zeros((N, N), zg.f32), zg.zeros((N, N), zg.f32)
    for start in range(0, k, N):
        a = a_desc.load((0, start))
        b = a_desc.load((start, 0))
        first = zg.dot(a, b, first)
        second = zg.dot(a_desc.load((start, start)), b, second)
    c_desc.store((0, 0), zg.cast(first, zg.f16))
    d_desc.store((0, 0), zg.cast(second, zg.f16))


def test_blocks_are_grouped_by_their_first_reader() -> None:
    block = zg.descriptor((64, 64), zg.f16)
    plan = sure(plan_of(shared_block.triton(block, block, block, zg.i32, 64)))
    channels = plan.channels()
    assert len(channels) == 2 and sum(map(len, channels)) == len(plan.copies)
    order = [op.result for op in plan.copies[0].reader.parent.ops] if plan.copies[0].reader.parent is not None else []
    for copy in plan.copies:
        readers = [user for user in copy.readers if isinstance(user, gpu.Wgmma)]
        assert copy.reader is min(readers, key=lambda op: order.index(op.result))
        assert all(other.reader is copy.reader for copies in channels if copy in copies for other in copies)


@zg.kernel
def stepped(a_desc, c_desc, first, last, STEP: zg.constexpr):
    acc = zg.zeros((64, 64), zg.f32)
    for start in zg.range(first, last, STEP):
        at = zg.cast(start, zg.i32)
        acc = zg.dot(a_desc.load((0, at)), a_desc.load((at, 0)), acc)
    c_desc.store((0, 0), zg.cast(acc, zg.f16))


@pytest.mark.parametrize("index", [zg.i32, zg.i64])
@pytest.mark.parametrize(("step", "expected"), [(-64, 3), (1, 3), (1 << 28, 3), (1 << 29, None)])
def test_steps(index: Any, step: int, expected: int | None) -> None:
    """Down as well as up, unless the index of an iteration ahead could overflow."""
    block = zg.descriptor((64, 64), zg.f16)
    plan = plan_of(stepped.triton(block, block, zg.divisible(index), index, step))
    assert (None if plan is None else plan.stages) == expected
    assert plan is None or constant_of(plan.loop.step) == step


@zg.kernel
def unknown_step(a_desc, c_desc, last, step):
    acc = zg.zeros((64, 64), zg.f32)
    for start in range(0, last, step):
        acc = zg.dot(a_desc.load((0, start)), a_desc.load((start, 0)), acc)
    c_desc.store((0, 0), zg.cast(acc, zg.f16))


def test_a_loop_with_an_unknown_step_counts_its_iterations() -> None:
    block = zg.descriptor((64, 64), zg.f16)
    plan = plan_of(unknown_step.triton(block, block, zg.i32, zg.i32))
    assert plan is not None and constant_of(plan.loop.step) == 1


@zg.kernel
def widened(a_desc, w_ptr, c_desc, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    """A product with weights of 8 bits, 4 registers a thread, which the threads widen."""
    rows, columns = zg.expand(zg.arange(0, K), 1), zg.expand(zg.arange(0, N), 0)
    at = zg.add(zg.add(zg.mul(rows, N), columns), zg.program_id(0) * N)
    acc = zg.zeros((M, N), zg.f32)
    for start in range(0, k, K):
        weights = zg.load(zg.add(w_ptr, zg.add(at, start * N)))
        acc = zg.dot(a_desc.load((0, start)), zg.cast(weights, zg.f16), acc)
    c_desc.store((0, 0), zg.cast(acc, zg.f16))


@pytest.mark.parametrize(("stages", "ahead"), [(2, 1), (3, 2), (4, 3)])
def test_small_loads_for_dots_are_as_early_as_the_loop_asks(stages: int, ahead: int) -> None:
    """In registers, a load would be one iteration ahead: enough for two stages."""
    blocks = [zg.descriptor(block, zg.f16) for block in ((64, 32), (64, 64))]
    model = widened.triton(blocks[0], zg.divisible(zg.ptr(zg.i8)), blocks[1], zg.i32, 64, 64, 32)
    ((_, plan),) = plans_of(expect(placed(model), gpu.Module), stages)
    (begin,) = sure(plan).others.values()
    assert begin.ahead == ahead
    assert (begin.buffer is None) == (stages == 2)
