"""The latency of loads: each load of a loop that can begins iterations before its value is used.

    scf.for … (%i, %acc, %p, %q) @num_stages=3 {       scf.for … (%i, %acc, %p, %q) @num_stages=3 {
        %a = tt.load %p @width=8;                          %a = tt.load %p @ahead=2 @width=8;
        %b = gpu.local_alloc;                              %b = gpu.local_alloc @slots=3;
        gpu.local_store %b %a;                             gpu.local_store %b %a;
        %s = tt.load %q;                       becomes     %s = tt.load %q @ahead=1;
        %d = gpu.wgmma %b …;                               %d = gpu.wgmma %b …;
        %e = gpu.wgmma_wait %d @0;                         %e = gpu.wgmma_wait %d @0 @late=true;
        … %s …; scf.yield %e …; }                          … %s …; scf.yield %e …; }

This is one rule for all loops with dots, and for the others that ask for stages, whose warps exchange values in each
iteration, or whose carried values pass through slow instructions. With n stages, loads to rings are n - 1 iterations
ahead of their use, and a load that the address of another one needs is an iteration ahead of that. A load begins
earlier only if its address follows from values that the loop carries, and from such loads, and if no op in the loop
keeps it in its place (`kept_in_place`).

A load goes to one of three places:

* **A ring**: an operand of a dot through the buffer that it has (`copy_of`), another tensor through a buffer that this
  pass adds. `copies` makes copies to slots of it.
* **Registers**, which the loop carries: small tensors where threads copy no operands, tensors with fewer than 4 bytes
  of neighbours in memory, and numbers that other addresses depend on. In a loop with dots they are one iteration ahead:
  what a dot waits for goes to a ring, if the loop has more than two stages.
* **Its iteration**: larger tensors that all programs load, such as weights, without dots: the L1 has them, which copies
  do not read. A warning says it of loads that ask for stages.

The last wgmma of an iteration need not be complete at its end, if its operands stay in their slots (`late`); nor need
the others, if each adds to a sum that nothing else in the loop uses. Where
threads copy, this takes a second barrier: the wgmma of the other warps must be complete as well. With one slot more,
the slot that is filled was read two iterations before, and the barrier after the wait for the copies orders both: so
the ring has one slot more where the occupancy stays the same.

Where threads read the slots, too few warps share an SM, and rings of one slot less let another CTA on it, threads fill
the slot that an iteration has read at its end, after a second barrier; but not where a late wait for wgmma frees slots.

A loop that has such attributes already keeps them: they can be written by hand, and `copies` checks them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import partial

import attrs

from ziggurat.codemodel.dialects import arith, math, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import USUAL_STAGES
from ziggurat.codemodel.gpu.scope import WARP_GROUP, scope_of
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.layout import axis_bases
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.traits import MayTrap
from ziggurat.codemodel.transform import Outcome, Rewriter, rebuilt, transform
from ziggurat.codemodel.types import TensorType, shape_of
from ziggurat.transforms.analysis.obstacle import Obstacle, warn, warn_of
from ziggurat.transforms.analysis.queries import bytes_of, layout_of, shared_of
from ziggurat.transforms.cost.budget import BESIDE_ACCUMULATORS, BESIDE_RINGS, OF_LOAD, occupancy
from ziggurat.transforms.cost.pressure import value_registers
from ziggurat.transforms.layouts.shuffle_rounds import is_within_warps
from ziggurat.transforms.schedule.dots_ahead import MAX_CHOSEN_STAGES, Occupancy, operands_ahead
from ziggurat.transforms.schedule.loads_ahead import conversions_of, following, is_role, loads_of, planned, registers_of
from ziggurat.transforms.schedule.loop_plan import (
    TURNED_SLOTS,
    Load,
    LoopPlan,
    computing,
    is_zero_or_undefined,
    iterations_of,
    plan_of,
)

_DOTS = (tt.Dot, gpu.MatrixProduct)
_ACCESSES = tt.DescriptorLoad | tt.DescriptorStore | tt.DescriptorReduce
_SLOW = (arith.DivF, math.Exp, math.Exp2, math.Log, math.Log2, math.Sqrt, math.Rsqrt, math.Tanh)
_FEW = 2  # Registers of a thread.
_PASSING = gpu.ConvertLayout | tt.Reshape | tt.Scan | tt.Gather | tt.Histogram | _ACCESSES  # Through shared memory.


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
    late = {wait for plan in plans for wait in plan.late}

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


# The plans of loops.


def plans_of(module: gpu.Module, num_stages: int | None) -> Iterator[tuple[scf.For, LoopPlan | Obstacle]]:
    """The plans for the loops of a model before `latency`: those with dots, those that ask for stages, and those whose
    loads ptxas does not begin early.

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
        if not has_dots and loop.holds(_DOTS):
            if loop.num_stages and isinstance(plan, Obstacle):
                yield loop, plan  # Only the dots of a loop inside are pipelined.
            continue
        if not any(isinstance(op, Load) for op in loop.body.entry.ops):
            continue
        if not has_dots and not loop.num_stages:
            yield from ((loop, plan) for plan in _ahead_unasked(loop, stages[loop]))
        elif not ((number := stages[loop]) is not None and number < 2 and isinstance(plan, Obstacle)):
            limit = rooms[loop][0] - _passing_bytes(loop, copied)
            limit -= sum(rings.get(op, 0) for op in {*loop.path(), *loop.walk()} - {loop})
            of_dots = operands[loop] if has_dots else None
            plan = planned(loop, number or USUAL_STAGES, limit, of_dots, rooms[loop][1])
            rings[loop] = plan.bytes if isinstance(plan, LoopPlan) else 0
            yield loop, plan
        elif has_dots:
            yield loop, plan


def _ahead_unasked(loop: scf.For, stages: int | None) -> Iterator[LoopPlan]:
    """The plan for a loop without dots that asks for no stages, if ptxas does not begin its loads early: barriers keep
    them in their iteration where warps exchange values; and where carried values pass through slow instructions, the
    loads that join these late are put off. Few loads go to registers, one iteration ahead.

    This is done for up to four warps: more hide the latency for each other, and their registers cost other CTAs."""
    exchanges = (stages is None or stages > 1) and _exchanges(loop)
    if is_role(loop) or scope_of(loop).warps > WARP_GROUP or not (exchanges or _is_slow_recurrence(loop)):
        return
    plan = planned(loop, 2, 0, None)
    if not isinstance(plan, LoopPlan) or sum(map(registers_of, plan.ahead)) > 2 * OF_LOAD:
        return
    addresses = computing(loop, [value for load in plan.ahead for value in load.operands])
    if not exchanges and any(isinstance(op, Load) for op in addresses):
        return  # Two loads one after the other take longer than the quotient.
    if not any(isinstance(op, MayTrap) and isinstance(op.result.type, TensorType) for op in addresses):
        yield attrs.evolve(plan, left=())  # Quotients for addresses take as long as the load.


def _exchanges(loop: scf.For) -> bool:
    """Whether warps exchange values in each iteration."""

    def is_exchange(op: Op) -> bool:
        if isinstance(op, gpu.ConvertLayout):
            return not is_within_warps(op.value, layout_of(op.type))
        if not isinstance(op, tt.Reduce):
            return False
        type_ = op.values[0].type
        return any(basis & sum(axis_bases(shape_of(type_), op.axis)) for basis in layout_of(type_).warps)

    return any(map(is_exchange, loop.body.entry.ops))


def _is_slow_recurrence(loop: scf.For) -> bool:
    """Whether a carried value depends on that of the iteration before through a quotient, a power or a root, of few
    elements a thread: of many, the instructions for some hide the latency of others."""
    body = loop.body.entry
    after = reached([*loop.body.parameters[1:]], following)
    slow = [
        op.result
        for op in body.ops
        if isinstance(op, _SLOW) and op.result in after and value_registers(op.result.type) <= _FEW
    ]
    return not reached(slow, following).isdisjoint(body.terminator.operands)


def _stages_of(loop: scf.For, num_stages: int | None) -> int | None:
    """The stages that are asked for, but no more than a loop has iterations. None lets the compiler choose."""
    stages = loop.num_stages if loop.num_stages is not None else num_stages
    count = iterations_of(loop)
    if count is None or (stages is None and count >= MAX_CHOSEN_STAGES):
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


# Warnings.


def _warn_of(loop: scf.For, plan: LoopPlan | Obstacle, num_stages: int | None) -> None:
    """Warn of the loads that are asked to begin ahead and do not, and of fewer stages than are asked for.

    If the loop asks, that is of all its loads; if the launch asks for another number than the usual one, of those from
    which dots are computed."""
    asks = (loop.num_stages or 0) > 1 or loop.warp_specialize
    stages = _stages_of(loop, num_stages) or USUAL_STAGES
    if stages < 2 or (not asks and (num_stages or 0) in (0, 1, USUAL_STAGES)):
        return
    loads = {load for load in loads_of(loop) if asks or _goes_to_dot(load)}
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


def _goes_to_dot(load: Load) -> bool:
    """Whether an operand of a dot in the same loop is computed from what a load reads."""
    values = reached([load.result], following)
    dots = (user for value in values for user in value.uses if isinstance(user, gpu.MatrixProduct))
    return any(not values.isdisjoint((dot.a, dot.b)) for dot in dots)
