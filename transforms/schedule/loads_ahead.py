"""All loads of a loop that begin iterations before their use: to rings, or to registers (`latency`).

    %s = tt.load %q;            becomes      %s = tt.load %q @ahead=1;

The operands of dots come first (`dots_ahead`). Each other load begins so early that loads which need it for their
addresses can begin, and goes to a ring that threads read, to registers, or stays: then the plan has the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial

import attrs

from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.scope import scope_of
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.traits import BodyTerminator
from ziggurat.codemodel.types import ScalarType, SharedType, TensorType, i1
from ziggurat.transforms.analysis.obstacle import Obstacle
from ziggurat.transforms.analysis.queries import depends_on_program, descriptor_of, layout_of, registers_alike
from ziggurat.transforms.cost.budget import CARRIED_BESIDE_DOTS, OF_LOAD, OF_LOADS, OF_LOADS_BESIDE_DOTS, WARPS
from ziggurat.transforms.cost.pressure import value_registers
from ziggurat.transforms.layouts.swizzle import copied_bases
from ziggurat.transforms.layouts.tma_blocks import buffer_for
from ziggurat.transforms.schedule.dots_ahead import FULL, Occupancy, accumulators
from ziggurat.transforms.schedule.loop_plan import (
    CP_ASYNC_BYTES,
    DEPENDS,
    WRITES,
    Begin,
    Load,
    LoopPlan,
    bytes_at_once,
    computing,
    consecutive,
    in_flight,
    is_zero_or_undefined,
    kept_in_place,
    may_begin,
    may_move,
    step_ahead,
)

_MAX_STAGES = 32
_OF_CONSUMERS = "the producer of a loop with roles loads only what goes to dots, by TMA"
_KEPT = "an op in its loop writes to the same memory or orders accesses"
_SHARED = "all programs load it, so that it is in the L1, which copies do not read"


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
    loads = loads_of(loop)
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
        best = (
            max(more, fewer, key=lambda plan: (plan.bytes <= limit, occupancy(plan.bytes, accumulators(loop))))
            if isinstance(more, LoopPlan) and isinstance(fewer, LoopPlan)
            else more
        )
        if not isinstance(best, LoopPlan):
            obstacles.update(best)
            continue
        rings = [load for load, begin in best.others.items() if begin.buffer is not None]
        if best.bytes <= limit or not rings:
            break
        if first.copies or number == 2:
            obstacles.update((load.result, Obstacle(FULL, loop)) for load in rings)
        else:
            number -= 1
    best = _read_first(best, occupancy)
    if isinstance(plan, Obstacle) and not best.ahead:
        return attrs.evolve(best, left=(*best.left, (loop, plan)))
    return best if best.ahead or operands is not None else best.left[0][1]


def _read_first(plan: LoopPlan, occupancy: Occupancy) -> LoopPlan:
    """The plan with rings of a slot less, if so few warps share an SM that this lets another CTA on it: an iteration
    fills the slot that it has read at its end."""
    loop, copies = plan.loop, plan.copies
    if not copies or plan.late or any(copy.by_tma for copy in copies) or in_flight(copies):
        return plan
    slots, registers = copies[0].slots, accumulators(loop)
    others = {
        load: attrs.evolve(begin, buffer=begin.buffer.evolve(slots=slots - 1))
        if begin.buffer is not None and begin.buffer.slots == slots
        else begin
        for load, begin in plan.others.items()
    }
    smaller = attrs.evolve(plan, copies=tuple(attrs.evolve(copy, slots=slots - 1) for copy in copies), others=others)
    more, fewer = occupancy(plan.bytes, registers), occupancy(smaller.bytes, registers)
    return smaller if slots > 2 and scope_of(loop).warps * more < WARPS and fewer > more else plan


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
    awaited = _awaited(loop) if has_dots else set[Load]()
    costs = {load: registers_of(load, awaited) for load in loads_of(loop) if load not in first.ahead}
    crowded = sum(cost for cost in costs.values() if cost <= OF_LOAD) > most
    # A load that a dot waits for begins as early as the loop asks, not one iteration before. Runs of equal elements
    # would take far more shared memory than registers.
    early = {load for load in costs if own > 1 and shared and load in awaited and not _has_runs(load)}
    # The loads that other threads than those that copy them read in a loop with dots.
    reading = {
        load
        for load, cost in costs.items()
        if has_dots and _ring_of(load) is not None
        if conversions_of(load)
        or (
            shared
            and load in awaited
            and depends_on_program(load)
            and _is_replicated(load)
            and (crowded or cost > OF_LOAD or load in early)
        )
    }
    others, left, used, least = dict[Load, Begin](), list[tuple[Op, Obstacle]](), 0, dict[Op, int]()

    def feed(load: Load, count: int) -> None:
        """The loads that the address of a load needs begin before it."""
        for op in computing(loop, load.operands):
            if isinstance(op, Load):
                least[op] = max(least.get(op, 0), count + 1)

    for load in reversed(loads_of(loop)):
        if load in first.ahead:
            feed(load, first.ahead[load])
            continue
        is_own, is_feeding = depends_on_program(load), load in least
        # Each of many words would take a copy and a read, in place of a load.
        many = has_dots and load not in awaited and costs[load] > OF_LOAD
        in_words = many and isinstance(load, tt.Load) and bytes_at_once(load) == min(CP_ASYNC_BYTES)
        goes_through = load in reading or (is_own and not in_words)
        ring = _ring_of(load) if goes_through and not is_feeding else None
        # A tensor that joins the copies for dots takes no further wait. In registers, the loop would wait for it at its
        # end, where it hands it on. What other threads need passes through a buffer in any case.
        joins = ring is not None and bool(by_threads or reading or load in early)
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


def _ring_of(load: Load) -> tuple[SharedType, int] | None:
    """The type and the alignment of a slot for what a load reads; None if no copy can bring it there."""
    if isinstance(load, tt.DescriptorLoad):
        return buffer_for(descriptor_of(load.descriptor))
    type_ = load.result.type
    if not isinstance(type_, TensorType) or not isinstance(element := type_.element, ScalarType) or element == i1:
        return None
    if load.ragged or bytes_at_once(load) not in CP_ASYNC_BYTES or (load.mask is None and load.other is not None):
        return None
    layout = layout_of(type_)
    target = next((layout_of(user.type) for user in conversions_of(load)), layout)
    shared = SharedType(type_.shape, element, copied_bases(layout, target, layout.numel, element.bytes, load.width))
    return (shared, 16) if consecutive(layout, shared, load.width) == load.width else None


def _has_runs(load: Load) -> bool:
    """Whether a thread has equal elements of runs."""
    type_ = load.result.type
    if not isinstance(load, tt.Load) or not isinstance(type_, TensorType) or not load.runs:
        return False
    return bool(registers_alike(type_, load.runs))


def _is_replicated(load: Load) -> bool:
    """Whether several threads load each element."""
    layout = layout_of(load.result.type)
    return not all((*layout.lanes, *layout.warps))


def registers_of(load: Load, awaited: Container[Load] = ()) -> int:
    """The registers a thread of what a load reads. Equal elements of a run have one, if dots wait for them."""
    type_ = load.result.type
    alike = (
        registers_alike(type_, load.runs)
        if isinstance(load, tt.Load) and load.runs and isinstance(type_, TensorType) and load in awaited
        else 0
    )
    return max(1, value_registers(type_, lambda element: True) >> alike.bit_count())


def conversions_of(load: Load) -> list[gpu.ConvertLayout]:
    """The conversions of what a load reads to other layouts, in which threads may read a buffer that a copy fills."""
    if not isinstance(load, tt.Load) or not is_zero_or_undefined(load.other):
        return []
    return [user for user in load.result.uses if isinstance(user, gpu.ConvertLayout) and user.parent is load.parent]


def loads_of(loop: scf.For) -> list[Load]:
    """The loads of a loop's body, bodies inside of it aside."""
    return [op for op in loop.body.entry.ops if isinstance(op, Load)]


def _awaited(loop: scf.For) -> set[Load]:
    """The loads of a loop that an operand of a dot is computed from, without the result of another dot of the loop."""
    dots = [op for op in loop.body.entry.ops if isinstance(op, gpu.MatrixProduct)]
    operands = {value for dot in dots for value in (dot.a, dot.b)}
    later = reached([dot.result for dot in dots], following)

    def before(value: Value) -> Sequence[Value]:
        return [user for user in following(value) if user not in later]

    return {load for load in loads_of(loop) if not operands.isdisjoint(reached([load.result], before))}


def following(value: Value) -> Sequence[Value]:
    """What is computed from a value in a loop, without dots."""
    users = [user for user in value.uses if not isinstance(user, gpu.MatrixProduct | BodyTerminator)]
    return [user.buffer if isinstance(user, gpu.LocalStore) else user.result for user in users]
