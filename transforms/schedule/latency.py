"""The latency of loads: each load of a loop that can begins iterations before its value is used.

    scf.for … (%i, %acc, %p, %q) @num_stages=3 {       scf.for … (%i, %acc, %p, %q) @num_stages=3 {
        %a = tt.load %p @width=8;                          %a = tt.load %p @ahead=2 @width=8;
        %b = gpu.local_alloc;                              %b = gpu.local_alloc @slots=3;
        gpu.local_store %b %a;                             gpu.local_store %b %a;
        %s = tt.load %q;                       becomes     %s = tt.load %q @ahead=1;
        %d = gpu.wgmma %b …;                               %d = gpu.wgmma %b …;
        %e = gpu.wgmma_wait %d @0;                         %e = gpu.wgmma_wait %d @0 @late=true;
        … %s …; scf.yield %e …; }                          … %s …; scf.yield %e …; }

This is one rule for all loops with dots, and for the others that ask for stages, or whose warps exchange values in each
iteration. With n stages, loads to rings are n - 1 iterations ahead of their use, and a load that the address of another
one needs is an iteration ahead of that. A load begins earlier only if its address follows from values that the loop
carries, and from such loads, and if no op in the loop keeps it in its place (`kept_in_place`).

A load goes to one of three places:

* **A ring**: an operand of a dot through the buffer that it has (`copy_of`), another tensor through a buffer that this
  pass adds. `copies` makes copies to slots of it.
* **Registers**, which the loop carries: small tensors where threads copy no operands, tensors with fewer than 4 bytes
  of neighbours in memory, and numbers that other addresses depend on. In a loop with dots they are one iteration ahead.
* **Its iteration**: larger tensors that all programs load, such as weights, without dots: the L1 has them, which copies
  do not read. A warning says it of loads that ask for stages.

The last wgmma of an iteration need not be complete at its end, if its operands stay in their slots (`late`). Where
threads copy, this takes a second barrier: the wgmma of the other warps must be complete as well. With one slot more,
the slot that is filled was read two iterations before, and the barrier after the wait for the copies orders both: so
the ring has one slot more where the occupancy stays the same.

Where threads read the slots, too few warps share an SM, and rings of one slot less let another CTA on it, threads fill
the slot that an iteration has read at its end, after a second barrier; but not where a late wait for wgmma frees slots.

A loop that has such attributes already keeps them: they can be written by hand, and `copies` checks them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial

import attrs

from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.asynchronous import ResultInFlight, ResultWait
from ziggurat.codemodel.gpu.options import USUAL_STAGES
from ziggurat.codemodel.gpu.scope import WARP_GROUP, scope_of
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.layout import axis_bases
from ziggurat.codemodel.op import BlockParameter, Op, OpResult, Value
from ziggurat.codemodel.traits import BodyTerminator, MayTrap
from ziggurat.codemodel.transform import Outcome, Rewriter, rebuilt, transform
from ziggurat.codemodel.types import ScalarType, SharedType, TensorType, i1, scalar_element, shape_of
from ziggurat.transforms.analysis.memory_flow import allocation
from ziggurat.transforms.analysis.obstacle import Obstacle, warn, warn_of
from ziggurat.transforms.analysis.queries import (
    bytes_of,
    descriptor_of,
    layout_of,
    op_in,
    registers_alike,
    shared_of,
)
from ziggurat.transforms.cost.budget import (
    BESIDE_ACCUMULATORS,
    BESIDE_OPERANDS,
    BESIDE_RINGS,
    CARRIED_BESIDE_DOTS,
    CTAS,
    FEW_ACCUMULATORS,
    OF_LOAD,
    OF_LOADS,
    OF_LOADS_BESIDE_DOTS,
    WARPS,
    occupancy,
)
from ziggurat.transforms.cost.pressure import value_registers
from ziggurat.transforms.layouts.shuffle_rounds import is_within_warps
from ziggurat.transforms.layouts.swizzle import copied_bases
from ziggurat.transforms.layouts.tma_blocks import before_transposition, buffer_for
from ziggurat.transforms.schedule.loop_plan import (
    CP_ASYNC_BYTES,
    DEPENDS,
    TURNED_SLOTS,
    WRITES,
    Begin,
    Copy,
    Load,
    LoopPlan,
    bytes_at_once,
    computing,
    consecutive,
    copies_of,
    in_flight,
    is_zero_or_undefined,
    iterations_of,
    kept_in_place,
    may_begin,
    may_move,
    places_of,
    plan_of,
    step_ahead,
)

_DEEPEST = 6  # The stages of a loop with few accumulators.
_MAX_STAGES = 32
_OF_CONSUMERS = "the producer of a loop with roles loads only what goes to dots, by TMA"
_KEPT = "an op in its loop writes to the same memory or orders accesses"
_SHARED = "all programs load it, so that it is in the L1, which copies do not read"
_FULL = "there is no shared memory for a second stage"

_DOTS = (tt.Dot, gpu.MatrixProduct)
_ACCESSES = tt.DescriptorLoad | tt.DescriptorStore | tt.DescriptorReduce
_PASSING = gpu.ConvertLayout | tt.Reshape | tt.Scan | tt.Gather | tt.Histogram | _ACCESSES  # Through shared memory.

# The occupancy (CTAs per SM), given the bytes of a loop's buffers and the registers a thread of its accumulator.
Occupancy = Callable[[int, int], int]


def latency(module: gpu.Module, num_stages: int | None) -> Op:
    """The GPU model whose loads, buffers and waits say what begins or ends in another iteration; a warning for each
    load that asks for it and does not.

    A loop with dots has up to `num_stages` stages; below 2 forbids it, and None lets the compiler choose. A loop's own
    number takes precedence; without dots, only this counts.
    """
    plans: list[LoopPlan] = []
    for loop, plan in plans_of(module, num_stages):
        _warn_of(loop, plan, num_stages)
        if isinstance(plan, LoopPlan):
            plans.append(plan)
    ahead = {load: count for plan in plans for load, count in plan.ahead.items()}
    buffers = {load: begin.buffer for plan in plans for load, begin in plan.others.items()}
    slots = {copy.buffer: copy.slots for plan in plans for copy in plan.copies}
    slots |= {store.buffer.op: TURNED_SLOTS for plan in plans for store in plan.turned}
    turned = {store for plan in plans for store in plan.turned}
    late = {plan.late for plan in plans}

    rings: dict[Op, Value] = {}

    def annotated(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, gpu.ConvertLayout) and op.value.op in rings:
            return builder.add(gpu.LocalLoad(rings[op.value.op], op.type), op.location)
        if isinstance(op, Load) and op in ahead:
            buffer = buffers.get(op)
            if buffer is not None:
                ring = builder.add(buffer.evolve(), op.location)
                if conversions_of(op):
                    rings[op] = ring
                return _through(builder, op, operands, ring, ahead[op])
            return _changed(builder, op, operands, ahead=ahead[op])
        if op in slots:
            return _changed(builder, op, operands, slots=slots[op])
        if op in turned:
            return _changed(builder, op, operands, ahead=1)
        return _changed(builder, op, operands, late=True) if op in late else None

    return transform(module, annotated, pass_name="latency") if ahead else module


def _changed(builder: Rewriter, op: Op, operands: tuple[Value, ...], **attributes: object) -> Value:
    """Add an op like `op`, with other attributes."""
    return builder.add(rebuilt(op.evolve(**attributes), operands, (), type_=op.result.type), op.location)


def _through(builder: Rewriter, load: Load, operands: tuple[Value, ...], ring: Value, ahead: int) -> Value:
    """Add a load that goes through a buffer. A copy fills it with zeros where the mask does not hold."""
    if not isinstance(load, tt.Load) or is_zero_or_undefined(load.other):
        value = _changed(builder, load, operands, ahead=ahead)
        builder.add(gpu.LocalStore(ring, value), load.location)
        if len(conversions_of(load)) == len(load.result.uses):
            return value
        return builder.add(gpu.LocalLoad(ring, load.result.type), load.location)
    assert load.mask is not None and load.other is not None
    masked = load.evolve(ptr=builder[load.ptr], mask=builder[load.mask], other=None, ahead=ahead)
    builder.add(gpu.LocalStore(ring, builder.add(masked, load.location)), load.location)
    value = builder.add(gpu.LocalLoad(ring, load.result.type), load.location)
    mask = builder.add(tt.MaxConstancy(builder[load.mask], _runs_at_once(load)))
    return builder.add(arith.Select(mask, value, builder[load.other]), load.location)


def _runs_at_once(load: tt.Load) -> tuple[int, ...]:
    """The length of the runs of elements that a load reads, or masks, together, along each axis."""
    shape, first = shape_of(load.result.type), layout_of(load.result.type).registers[:1]
    return tuple(load.width if first == tuple(axis_bases(shape, axis)[:1]) else 1 for axis in range(len(shape)))


def conversions_of(load: Load) -> list[gpu.ConvertLayout]:
    """The conversions of what a load reads to other layouts, in which threads may read a buffer that a copy fills."""
    if not isinstance(load, tt.Load) or not is_zero_or_undefined(load.other):
        return []
    return [user for user in load.result.uses if isinstance(user, gpu.ConvertLayout) and user.parent is load.parent]


# The plans of loops.


def plans_of(module: gpu.Module, num_stages: int | None) -> Iterator[tuple[scf.For, LoopPlan | Obstacle]]:
    """The plans for the loops of a model before `latency`: those with dots, those that ask for stages, and those whose
    warps exchange values in each iteration.

    A loop that has a schedule, written by hand, has no other."""
    loops = [op for op in module.walk() if isinstance(op, scf.For) and not plan_of(op).ahead]
    stages = {loop: _stages_of(loop, num_stages) for loop in loops}
    rooms = {loop: _room(module, loop) for loop in loops}
    operands = {loop: partial(operands_ahead, loop, stages[loop], *rooms[loop]) for loop in loops}
    plans = {loop: plan(()) for loop, plan in operands.items()}
    rings: dict[Op, int] = {loop: plan.bytes for loop, plan in plans.items() if isinstance(plan, LoopPlan)}
    copied = {copy.load for plan in plans.values() if isinstance(plan, LoopPlan) for copy in plan.copies}
    for loop, plan in plans.items():
        has_dots = any(isinstance(op, _DOTS) for op in loop.body.entry.ops)
        if not has_dots and any(isinstance(op, _DOTS) for op in loop.walk()):
            if loop.num_stages and isinstance(plan, Obstacle):
                yield loop, plan  # Only the dots of a loop inside are pipelined.
            continue
        if not any(isinstance(op, Load) for op in loop.body.entry.ops):
            continue
        if not has_dots and not loop.num_stages:
            if (number := stages[loop]) is None or number > 1:
                yield from ((loop, plan) for plan in _ahead_of_barriers(loop))
        elif not ((number := stages[loop]) is not None and number < 2 and isinstance(plan, Obstacle)):
            limit = rooms[loop][0] - _passing_bytes(loop, copied)
            limit -= sum(rings.get(op, 0) for op in {*loop.path(), *loop.walk()} - {loop})
            of_dots = operands[loop] if has_dots else None
            plan = planned(loop, number or USUAL_STAGES, limit, of_dots, rooms[loop][1])
            rings[loop] = plan.bytes if isinstance(plan, LoopPlan) else 0
            yield loop, plan
        elif has_dots:
            yield loop, plan


def _ahead_of_barriers(loop: scf.For) -> Iterator[LoopPlan]:
    """The plan for a loop whose warps exchange values in each iteration: the barriers there keep ptxas from beginning
    the loads of the next iteration earlier. Few loads go to registers, one iteration ahead.

    This is done for up to four warps: more hide the latency for each other, and their registers cost other CTAs."""

    def is_exchange(op: Op) -> bool:
        if isinstance(op, gpu.ConvertLayout):
            return not is_within_warps(op.value, layout_of(op.type))
        if not isinstance(op, tt.Reduce):
            return False
        type_ = op.values[0].type
        return any(basis & sum(axis_bases(shape_of(type_), op.axis)) for basis in layout_of(type_).warps)

    if is_role(loop) or scope_of(loop).warps > WARP_GROUP or not any(map(is_exchange, loop.body.entry.ops)):
        return
    plan = planned(loop, 2, 0, None)
    if not isinstance(plan, LoopPlan) or sum(map(_registers, plan.ahead)) > 2 * OF_LOAD:
        return
    addresses = computing(loop, [value for load in plan.ahead for value in load.operands])
    if not any(isinstance(op, MayTrap) and isinstance(op.result.type, TensorType) for op in addresses):
        yield attrs.evolve(plan, left=())  # Quotients for addresses take as long as the load.


def _stages_of(loop: scf.For, num_stages: int | None) -> int | None:
    """The stages that are asked for, but no more than a loop has iterations. None lets the compiler choose."""
    stages = loop.num_stages if loop.num_stages is not None else num_stages
    count = iterations_of(loop)
    if count is None or (stages is None and count >= _DEEPEST):
        return stages
    return min(USUAL_STAGES if stages is None else stages, max(count, 1))


def _room(module: gpu.Module, loop: scf.For) -> tuple[int, Occupancy]:
    """The bytes of shared memory for the rings of a loop, beside what is in use while it runs, such as operands that it
    does not change; and the occupancy."""
    target = TARGETS[module.target]
    allocs = (op for op in module.walk() if isinstance(op, gpu.LocalAlloc))
    others = sum(shared_of(alloc.result).bytes for alloc in allocs if _lives_with(alloc, loop))

    def estimated(ring: int, registers: int) -> int:
        return occupancy(target, module.num_warps, registers + BESIDE_ACCUMULATORS, others + ring)

    return target.max_shared - BESIDE_RINGS - others, estimated


def _lives_with(alloc: gpu.LocalAlloc, loop: scf.For) -> bool:
    """Whether a buffer may be needed while a loop runs: it is made in it, or in a block that contains the loop."""
    return any(op.parent is alloc.parent for op in loop.path()) or any(op is loop for op in alloc.path())


def _passing_bytes(loop: scf.For, copied: Container[Op]) -> int:
    """The bytes of the largest tensor for which later passes may allocate shared memory in a loop."""
    passing = (op for op in loop.walk() if isinstance(op, _PASSING) and op not in copied)
    values = (value for op in passing for value in (*op.operands, op.result))
    return max((bytes_of(value) for value in values if isinstance(value.type, TensorType)), default=0)


# The operands of dots.


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
        late, spare = _late_wait(loop, traced, turned), 0
        most = (limit - (TURNED_SLOTS - 1) * sum(shared_of(store.buffer).bytes for store in turned)) // stage_bytes + 1
        wanted, why = _chosen(loop, traced, occupancy) if requested is None else (requested, "")
        slots = min(wanted, most)
        if late is not None and not any(copy.by_tma for copy in traced) and in_flight(traced):
            registers = layout_of(late.result.type).num_registers
            more, same = (partial(occupancy, count * stage_bytes, registers) for count in (wanted, wanted - 1))
            if wanted < most and more() == same():
                slots, spare = wanted + 1, 1
            elif slots == 2:
                late = None  # Copies that begin after the late wait would overlap with nothing.
        elif late is None and slots > 2 and not any(copy.by_tma for copy in traced) and not in_flight(traced):
            registers = _accumulators(loop)
            more, fewer = (partial(occupancy, (count - 1) * stage_bytes, registers) for count in (slots, slots - 1))
            if scope_of(loop).warps * more() < WARPS and fewer() > more():
                slots, spare = slots - 1, -1  # The slot that an iteration has read is filled at its end.
        if not turned or (late is not None and slots - spare > 2):
            break  # Else there is no stage for turning.
    if slots < 2 or abs(step) * slots >= 1 << 30:
        return Obstacle(f"{_FULL} of {stage_bytes} bytes", loop)
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
    registers = _accumulators(loop)
    if registers <= FEW_ACCUMULATORS and all(copy.by_tma for copy in copies):
        return _DEEPEST, f"{registers} registers of accumulators a thread are multiplied faster than loaded"
    # The buffers of one stage are counted already.
    of_two, of_three = (occupancy((count - 1) * stage_bytes, registers) for count in (2, USUAL_STAGES))
    if of_three >= min(CTAS, of_two):
        return USUAL_STAGES, f"{USUAL_STAGES} hide the latency of loads, and leave room for {of_three} CTA(s) per SM"
    return 2, f"a third leaves room for {of_three} CTA(s) per SM, not {of_two}"


def _accumulators(loop: scf.For) -> int:
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


def _late_wait(loop: scf.For, copies: Sequence[Copy], turned: Sequence[gpu.LocalStore]) -> ResultWait | None:
    """The wait for the last wgmma of a loop's body, if it can take place in the next iteration.

    Only its accumulator may be carried, and its operands must stay: in slots that are all filled in the same way, in
    those of the stores that transpose, or in buffers from before the loop.
    """
    block = loop.body.entry
    waits = [op for op in block.ops if isinstance(op, ResultWait)]
    if not waits or len({copy.by_tma for copy in copies}) > 1:
        return None
    wait, end = waits[-1], block.terminator
    if not isinstance(wait.value, OpResult) or wait.pending or len(wait.value.uses) > 1:
        return None
    begun = wait.value.op
    positions = [at for at, value in enumerate(end.operands) if value is wait.result]
    if not isinstance(begun, ResultInFlight) or len(wait.result.uses) > 1 or len(positions) != 1:
        return None
    buffers = {copy.buffer.result for copy in copies} | {store.buffer for store in turned}
    if any(value not in buffers and value.block is block for value in map(allocation, begun.reads)):
        return None
    accumulator = loop.body.parameters[positions[0] + 1]
    order = {op: at for at, op in enumerate(block.ops)}
    uses = [order[op_in(user, block)] for user in accumulator.uses]
    if begun.chain[-1].accumulator is accumulator and len(uses) == 1 and len(waits) == 1:
        return wait
    covered = waits[0]
    return None if covered is wait or any(at <= order[covered] for at in uses) else wait


def deferred(plan: LoopPlan, registers: int) -> ResultInFlight | None:
    """The last wgmma of a loop, if it can take place in the next iteration, while the first one's result is used.

    Attention's dot with the values, for example: only it reads its slot, and its accumulator is scaled after the wait
    for the scores. Scores, powers and accumulator then have registers at the same time, of `registers` a thread.
    """
    after = plan.after
    if plan.late is None or not isinstance(after, ResultWait) or not isinstance(plan.late.value, OpResult):
        return None
    begun = plan.late.value.op
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


# All loads.


def planned(
    loop: scf.For,
    stages: int,
    limit: int,
    operands: Callable[[Container[Value]], LoopPlan | Obstacle] | None,
    occupancy: Occupancy = lambda bytes_, registers: 1,
) -> LoopPlan | Obstacle:
    """The plan for all loads of a loop, with up to `stages` stages and `limit` bytes for further buffers; or the
    obstacle to all of them.

    `operands` gives the plan for the operands of its dots, if it has any, without loads that are not ahead.
    """
    if isinstance(step := step_ahead(loop), Obstacle):
        return step
    loads = _loads_of(loop)
    writers, obstacles = kept_in_place(loop, loads), dict[Value, Obstacle]()
    if is_role(loop):
        reasons = ((op, DEPENDS if isinstance(op, tt.DescriptorLoad) else _OF_CONSUMERS) for op in loads)
        obstacles.update((op.result, Obstacle(why, op)) for op, why in reasons)
    elif operands is None and len(writers) == len(loads):
        return Obstacle(WRITES, next(iter(writers.values())))
    obstacles.update((load.result, Obstacle(_KEPT, op)) for load, op in writers.items())
    number = min(stages, _MAX_STAGES)
    while True:
        plan = None if operands is None else operands(obstacles)
        first = plan if isinstance(plan, LoopPlan) else LoopPlan(loop, ())
        assigned = partial(_assigned, first, obstacles, first.distance or number - 1, has_dots=operands is not None)
        more = assigned()
        fewer = assigned(shared=False) if isinstance(more, LoopPlan) else more
        chosen = (
            max(more, fewer, key=lambda plan: occupancy(plan.bytes, _accumulators(loop)))
            if isinstance(more, LoopPlan) and isinstance(fewer, LoopPlan)
            else more
        )
        if not isinstance(chosen, LoopPlan):
            obstacles.update(chosen)
            continue
        rings = [load for load, begin in chosen.others.items() if begin.buffer is not None]
        if chosen.bytes <= limit or not rings:
            break
        if first.copies or number == 2:
            obstacles.update((load.result, Obstacle(_FULL, loop)) for load in rings)
        else:
            number -= 1
    if isinstance(plan, Obstacle) and not chosen.ahead:
        return attrs.evolve(chosen, left=(*chosen.left, (loop, plan)))
    return chosen if chosen.ahead or operands is not None else chosen.left[0][1]


def is_role(loop: scf.For) -> bool:
    """Whether a loop belongs to a role of warps: its producer loads ahead."""
    return any(isinstance(owner, gpu.WarpSpecialize) for owner in loop.path())


def _assigned(
    first: LoopPlan, obstacles: Mapping[Value, Obstacle], own: int, *, has_dots: bool, shared: bool = True
) -> LoopPlan | Mapping[Value, Obstacle]:
    """The plan for all loads of a loop, with `first` for its operands, and rings that are `own` iterations ahead; or
    further obstacles: to loads that others need for their addresses.

    Where they are not `shared`, no rings are added for the sake of loads of which several threads hold each element."""
    loop = first.loop
    by_threads = [copy for copy in first.copies if not copy.by_tma]
    carried_registers = sum(value_registers(value.type) for value in loop.initial)
    most = min(OF_LOADS_BESIDE_DOTS, CARRIED_BESIDE_DOTS - carried_registers) if has_dots else OF_LOADS
    costs = {load: _registers(load) for load in _loads_of(loop) if load not in first.ahead}
    crowded = sum(cost for cost in costs.values() if cost <= OF_LOAD) > most
    # The loads that other threads than those that copy them read in a loop with dots.
    reading = {
        load
        for load, cost in costs.items()
        if has_dots and _ring_of(load) is not None
        if conversions_of(load)
        or (shared and _is_own(load) and _is_replicated(load) and (crowded or cost > OF_LOAD) and _is_awaited(load))
    }
    others, left, used, least = dict[Load, Begin](), list[tuple[Op, Obstacle]](), 0, dict[Op, int]()

    def feed(load: Load, count: int) -> None:
        """The loads that the address of a load needs begin before it."""
        for op in computing(loop, load.operands):
            if isinstance(op, Load):
                least[op] = max(least.get(op, 0), count + 1)

    for load in reversed(_loads_of(loop)):
        if load in first.ahead:
            feed(load, first.ahead[load])
            continue
        is_own, is_feeding = _is_own(load), load in least
        ring = _ring_of(load) if (is_own or load in reading) and not is_feeding else None
        # A tensor that joins the copies for dots takes no further wait. In registers, the loop would wait for it at its
        # end, where it hands it on. What other threads need passes through a buffer in any case.
        joins = ring is not None and bool(by_threads or reading)
        few = has_dots and not joins and costs[load] <= OF_LOAD
        count = least.get(load, 1 if few else own)
        cost = costs[load] * count
        small = not joins and (is_feeding or (cost <= OF_LOAD and used + cost <= most and isinstance(load, tt.Load)))
        ring = None if small else ring
        why = None if small or is_own or ring is not None else _SHARED
        if load.result in obstacles:
            why = obstacles[load.result]
        elif (
            not may_begin(loop, load.operands, obstacles)
            or (isinstance(load, tt.Load) and not may_move(load))
            or (has_dots and isinstance(load, tt.DescriptorLoad))
        ):
            why = DEPENDS
        elif why is None and ring is None and used + cost > most:
            why = f"its values in flight would take {cost} registers of a thread"
        elif ring is not None and has_dots and not joins and _is_replicated(load):
            why = "several threads load each of its elements, which no copy for the dots orders"
        if why is not None:
            obstacle = why if isinstance(why, Obstacle) else Obstacle(why, load)
            if is_feeding and load.result not in obstacles:
                return {load.result: obstacle}
            left.append((load, obstacle))
            continue
        feed(load, count)
        if ring is None:
            others[load], used = Begin(count), used + cost
        else:
            # Threads that copy nothing for dots read what they have copied themselves, before they fill a slot again.
            slots = max((copy.slots for copy in by_threads), default=count + bool(reading))
            others[load] = Begin(count, gpu.LocalAlloc(ring[0], alignment=ring[1], slots=slots))
    return attrs.evolve(first, others=dict(reversed(others.items())), left=tuple(reversed(left)))


def _is_own(load: Load) -> bool:
    """Whether the number of the program decides what is loaded."""
    return any(isinstance(source.op, tt.GetProgramId) for source in reached([*load.operands], _sources))


def _ring_of(load: Load) -> tuple[SharedType, int] | None:
    """The type and the alignment of a slot for what a load reads; None if no copy can bring it there."""
    if isinstance(load, tt.DescriptorLoad):
        return buffer_for(descriptor_of(load.descriptor))
    type_ = load.result.type
    if not isinstance(type_, TensorType) or not isinstance(element := type_.element, ScalarType) or element == i1:
        return None
    if bytes_at_once(load) not in CP_ASYNC_BYTES or (load.mask is None and load.other is not None):
        return None
    layout = layout_of(type_)
    target = next((layout_of(user.type) for user in conversions_of(load)), layout)
    shared = SharedType(type_.shape, element, copied_bases(layout, target, layout.numel, element.bytes, load.width))
    return (shared, 16) if consecutive(layout, shared, load.width) == load.width else None


def _is_replicated(load: Load) -> bool:
    """Whether several threads load each element."""
    layout = layout_of(load.result.type)
    return not all((*layout.lanes, *layout.warps))


def _registers(load: Load) -> int:
    """The registers a thread of what a load reads. Equal elements of a run have one, if dots wait for them."""
    type_ = load.result.type
    alike = (
        registers_alike(type_, load.runs)
        if isinstance(load, tt.Load) and load.runs and isinstance(type_, TensorType) and _is_awaited(load)
        else 0
    )
    return max(1, value_registers(type_, lambda element: True) >> alike.bit_count())


def _sources(value: Value) -> Sequence[Value]:
    """The values that one is computed from; of a loop's parameters, what they begin with, and what follows."""
    if isinstance(value, OpResult):
        ends = [body.entry.terminator.operands for body in value.op.bodies]
        return [*value.op.operands, *(operand for operands in ends for operand in operands)]
    owner = value.block.parent.parent if isinstance(value, BlockParameter) else None
    if not isinstance(owner, scf.For) or not isinstance(value, BlockParameter):
        return ()
    number = value.index - 1
    return (owner.start,) if number < 0 else (owner.initial[number], owner.body.entry.terminator.operands[number])


# Warnings.


def _warn_of(loop: scf.For, plan: LoopPlan | Obstacle, num_stages: int | None) -> None:
    """Warn of the loads that are asked to begin ahead and do not, and of fewer stages than are asked for.

    If the loop asks, that is of all its loads; if the launch asks for another number than the usual one, of those from
    which dots are computed."""
    asks = (loop.num_stages or 0) > 1 or loop.warp_specialize
    stages = _stages_of(loop, num_stages) or USUAL_STAGES
    if stages < 2 or (not asks and (num_stages or 0) in (0, 1, USUAL_STAGES)):
        return
    loads = {load for load in _loads_of(loop) if asks or _goes_to_dot(load)}
    if not loads:
        return
    if isinstance(plan, LoopPlan) and plan.ahead and plan.stages < stages and not is_role(loop):
        size = plan.bytes // plan.distance
        why = f"there is no shared memory for more stages of {size} bytes" if size else "its loads go to registers"
        warn(f"the loop is pipelined in {plan.stages} stages, not {stages}: {why}", loop.location)
    for op, reason in [(loop, plan)] if isinstance(plan, Obstacle) else plan.left:
        if op in loads:
            warn_of("the load is not pipelined", op, reason)
        elif op is loop and (asks or loads) and not is_role(loop):
            warn_of(f"the loop is not pipelined in {stages} stages", op, reason)


def _loads_of(loop: scf.For) -> list[Load]:
    return [op for op in loop.body.entry.ops if isinstance(op, Load)]


def _goes_to_dot(load: Load) -> bool:
    """Whether an operand of a dot in the same loop is computed from what a load reads."""
    values = reached([load.result], _following)
    dots = (user for value in values for user in value.uses if isinstance(user, gpu.MatrixProduct))
    return any(not values.isdisjoint((dot.a, dot.b)) for dot in dots)


def _is_awaited(load: Load) -> bool:
    """Whether an operand of a dot is computed from what a load reads, and from no other dot of the loop."""
    assert load.parent is not None
    dots = [op for op in load.parent.ops if isinstance(op, gpu.MatrixProduct)]
    later = reached([dot.result for dot in dots], _following)

    def before(value: Value) -> Sequence[Value]:
        return [user for user in _following(value) if user not in later]

    values = reached([load.result], before)
    return any(not values.isdisjoint((dot.a, dot.b)) for dot in dots)


def _following(value: Value) -> Sequence[Value]:
    """What is computed from a value in a loop, without dots."""
    users = [user for user in value.uses if not isinstance(user, gpu.MatrixProduct | BodyTerminator)]
    return [user.buffer if isinstance(user, gpu.LocalStore) else user.result for user in users]
