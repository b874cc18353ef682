"""The operands of a loop's dots that copies bring to rings, iterations before the dots (`latency`).

    %a = tt.load %p @width=8;                              %a = tt.load %p @ahead=2 @width=8;
    %b = gpu.local_alloc;                                  %b = gpu.local_alloc @slots=3;
    gpu.local_store %b %a;                     becomes     gpu.local_store %b %a;
    %d = gpu.wgmma %b …;                                   %d = gpu.wgmma %b …;
    %e = gpu.wgmma_wait %d @0;                             %e = gpu.wgmma_wait %d @0 @late=true;

A plan says how many slots the rings have, which waits are late, and which dot is deferred.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import partial

import attrs

from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.asynchronous import ResultInFlight, ResultWait
from ziggurat.codemodel.gpu.options import USUAL_STAGES
from ziggurat.codemodel.op import OpResult, Value
from ziggurat.codemodel.types import TensorType, scalar_element
from ziggurat.transforms.analysis.memory_flow import allocation
from ziggurat.transforms.analysis.obstacle import Obstacle
from ziggurat.transforms.analysis.queries import layout_of, op_in, shared_of
from ziggurat.transforms.cost.budget import BESIDE_OPERANDS, CTAS, FEW_ACCUMULATORS
from ziggurat.transforms.layouts.tma_blocks import before_transposition
from ziggurat.transforms.schedule.loop_plan import (
    CP_ASYNC_BYTES,
    DEPENDS,
    TURNED_SLOTS,
    WRITES,
    Copy,
    LoopPlan,
    bytes_at_once,
    copies_of,
    in_flight,
    kept_in_place,
    may_begin,
    places_of,
    step_ahead,
)

MAX_CHOSEN_STAGES = 6  # The stages of a loop with few accumulators.
FULL = "there is no shared memory for a second stage"

# The occupancy (CTAs per SM), given the bytes of a loop's buffers and the registers a thread of its accumulator.
Occupancy = Callable[[int, int], int]


def operands_ahead(
    loop: scf.For,
    requested: int | None,
    limit: int,
    occupancy: Occupancy = lambda bytes_, registers: 1,
    blocked: Container[Value] | None = None,
) -> LoopPlan | Obstacle:
    """The plan for the operands of a loop's dots, with up to `requested` stages and `limit` bytes for further buffers;
    or the obstacle.

    With None, as many stages are chosen. Addresses may need other loads of the loop but those in `blocked`; none, if
    this is None.
    """
    if requested is not None and requested < 2:
        return Obstacle("it has one stage", loop)
    if isinstance(step := step_ahead(loop), Obstacle):
        return step
    copies = copies_of(loop)
    if not copies:
        return _too_narrow(loop) or Obstacle("no load in it goes only to a dot", loop)
    kept_loads = kept_in_place(loop, [copy.load for copy in copies])
    copies = [copy for copy in copies if copy.load not in kept_loads]
    if not copies:
        return Obstacle(WRITES, next(iter(kept_loads.values())))
    traced = tuple(copy for copy in copies if may_begin(loop, places_of(copy.load), blocked))
    if not traced:
        return Obstacle(DEPENDS, copies[0].load)
    stage_bytes = sum(copy.shared.bytes for copy in traced)
    for turned in (_turned(loop, traced), ()):
        late, spare = _late_waits(loop, traced, turned), 0
        most = (limit - (TURNED_SLOTS - 1) * sum(shared_of(store.buffer).bytes for store in turned)) // stage_bytes + 1
        wanted, why = _chosen(loop, traced, occupancy) if requested is None else (requested, "")
        slots = min(wanted, most)
        if late and not any(copy.by_tma for copy in traced) and in_flight(traced):
            registers = sum(layout_of(wait.result.type).num_registers for wait in late)
            more, same = (partial(occupancy, count * stage_bytes, registers) for count in (wanted, wanted - 1))
            if wanted < most and more() == same():
                slots, spare = wanted + 1, 1
            elif slots == 2:
                late = ()  # Copies that begin after the late wait would overlap with nothing.
        if not turned or (late and slots - spare > 2):
            break  # Else there is no stage for turning.
    if slots < 2 or abs(step) * slots >= 1 << 30:
        return Obstacle(f"{FULL} of {stage_bytes} bytes", loop)
    copies = [attrs.evolve(copy, ahead=slots - 1 - spare, slots=slots) for copy in traced]
    return LoopPlan(loop, tuple(copies), late=late, turned=turned, why=why)


def _too_narrow(loop: scf.For) -> Obstacle | None:
    """The obstacle if the loads for a loop's dots have fewer bytes than a copy takes."""
    for op in loop.body.entry.ops:
        value = before_transposition(op.value)[0] if isinstance(op, gpu.LocalStore) else None
        if value is not None and isinstance(value.op, tt.Load):
            bits, least = 8 * bytes_at_once(value.op), 8 * CP_ASYNC_BYTES[0]
            if bits < least:
                return Obstacle(f"a thread loads {bits} bits at once, and copies ahead take {least} or more", value.op)
    return None


def _chosen(loop: scf.For, copies: Sequence[Copy], occupancy: Occupancy) -> tuple[int, str]:
    """The stages of a loop that asks for no number, and why: three, or two where a third leaves no room for a second
    CTA.

    With few accumulators an iteration computes for a shorter time than a load takes: up to six stages, if TMA loads.
    """
    stage_bytes = sum(copy.shared.bytes for copy in copies)
    registers = accumulators(loop)
    if registers <= FEW_ACCUMULATORS and all(copy.by_tma for copy in copies):
        return MAX_CHOSEN_STAGES, f"{registers} registers of accumulators a thread are multiplied faster than loaded"
    # The buffers of one stage are counted already.
    of_two, of_three = (occupancy((count - 1) * stage_bytes, registers) for count in (2, USUAL_STAGES))
    if of_three >= min(CTAS, of_two):
        return USUAL_STAGES, f"{USUAL_STAGES} hide the latency of loads, and leave room for {of_three} CTA(s) per SM"
    return 2, f"a third leaves room for {of_three} CTA(s) per SM, not {of_two}"


def accumulators(loop: scf.For) -> int:
    """The registers a thread of the accumulators of a loop's dots."""
    dots = (op for op in loop.body.entry.ops if isinstance(op, ResultInFlight | gpu.Mma) and not _continues(op))
    return sum(layout_of(op.result.type).num_registers for op in dots)


def _continues(op: ResultInFlight | gpu.Mma) -> bool:
    """Whether the accumulator of a dot is that of a dot before it."""
    accumulator = op.c if isinstance(op, gpu.Mma) else op.accumulator
    return isinstance(accumulator.op, ResultInFlight | gpu.Mma)


def _turned(loop: scf.For, copies: Sequence[Copy]) -> tuple[gpu.LocalStore, ...]:
    """The stores of what is read from the buffers of copies, to buffers of the loop's body that only wgmma reads."""
    loads = {copy.reader.result for copy in copies if isinstance(copy.reader, gpu.LocalLoad)}
    loads = {load for load in loads if len(load.uses) == 1 and len([*load.op.operands[0].uses]) == 2}
    return tuple(
        op
        for op in loop.body.entry.ops
        if isinstance(op, gpu.LocalStore) and op.value in loads and op.buffer.block is loop.body.entry
        if all(user is op or isinstance(user, ResultInFlight) for user in op.buffer.uses)
    )


def _late_waits(loop: scf.For, copies: Sequence[Copy], turned: Sequence[gpu.LocalStore]) -> tuple[ResultWait, ...]:
    """The waits of a loop's body that can take place in the next iteration: all, if each is for a sum that only its own
    wgmma adds to, or the last one.

    Only the accumulator may be carried, and the operands must stay: in slots that are all filled in the same way, in
    those of the stores that transpose, or in buffers from before the loop.
    """
    block = loop.body.entry
    waits = [op for op in block.ops if isinstance(op, ResultWait)]
    if not waits or len({copy.by_tma for copy in copies}) > 1:
        return ()
    buffers = {copy.buffer.result for copy in copies} | {store.buffer for store in turned}
    order = {op: at for at, op in enumerate(block.ops)}
    sums = {wait: _sum_of(loop, wait, buffers) for wait in waits}
    if all(own is not None and own[1] for own in sums.values()):
        return tuple(waits)
    own, first = sums[waits[-1]], waits[0]
    if own is None or first is waits[-1]:
        return ()
    uses = [order[op_in(user, block)] for user in own[0].uses]
    return () if any(at <= order[first] for at in uses) else (waits[-1],)


def _sum_of(loop: scf.For, wait: ResultWait, buffers: Container[Value]) -> tuple[Value, bool] | None:
    """The parameter of a loop that carries what a wait gives, and whether nothing but its wgmma uses it; None if more
    depends on the wait, or its wgmma reads other buffers of the iteration."""
    block = loop.body.entry
    if not isinstance(wait.value, OpResult) or wait.pending or len(wait.value.uses) > 1:
        return None
    begun = wait.value.op
    positions = [at for at, value in enumerate(block.terminator.operands) if value is wait.result]
    if not isinstance(begun, ResultInFlight) or len(wait.result.uses) > 1 or len(positions) != 1:
        return None
    if any(value not in buffers and value.block is block for value in map(allocation, begun.reads)):
        return None
    accumulator = loop.body.parameters[positions[0] + 1]
    return accumulator, begun.chain[-1].accumulator is accumulator and len(accumulator.uses) == 1


def deferred(plan: LoopPlan, registers: int) -> ResultInFlight | None:
    """The last wgmma of a loop, if it can take place in the next iteration, while the first one's result is used.

    Attention's dot with the values, for example: only it reads its slot, and its accumulator is scaled after the wait
    for the scores. Scores, powers and accumulator then have registers at the same time, of `registers` a thread.
    """
    after = plan.after
    if not plan.late or not isinstance(after, ResultWait) or not isinstance(plan.late[-1].value, OpResult):
        return None
    begun = plan.late[-1].value.op
    assert isinstance(begun, ResultInFlight)
    alone = any(all(user is begun for copy in copies for user in copy.readers) for copies in plan.channels())
    accumulator = begun.accumulator
    scaled = isinstance(accumulator, OpResult) and not isinstance(accumulator.op, ResultInFlight)
    if not alone or not scaled or accumulator.block is not plan.loop.body.entry:
        return None
    in_use = sum(layout_of(value.type).num_registers for value in (after.value, accumulator))
    for type_ in (value.type for value in begun.operands if value is not accumulator):
        if isinstance(type_, TensorType):
            in_use += layout_of(type_).num_registers * scalar_element(type_).bytes // 4
    return begun if in_use + BESIDE_OPERANDS <= registers else None
