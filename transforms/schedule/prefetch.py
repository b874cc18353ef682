"""Prefetching: the loads of a loop begin some iterations before their values are used, as far as it asks for stages.

    scf.for … (%i, %acc, %p) {                        scf.for … (%i, %acc, %q) {
        %m = tt.load %p;                                  %more = gpu.stage @1 @order=1;
        %d = gpu.wgmma …;                  becomes        %m = tt.load %q %more;
        … %m …                                            %r = tt.addptr %q …;
        %r = tt.addptr %p …;                              gpu.stage @2 @order=2;
        scf.yield %d %r; }                                %d = gpu.wgmma …; … %m …
                                                          scf.yield %d … %r; }

In a loop with dots, the dots' own operands become copies to shared memory later (`pipeline_loads`). Without more, the
loop would wait for its other loads, such as scales, the maxima of attention's rows or weights that threads convert, in
the iteration that uses them: some hundred cycles without an MMA. `loads_ahead` plans them: small ones are one iteration
ahead, in registers that `expand` lets the loop carry; others are copied.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import USUAL_STAGES
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.traits import BodyTerminator
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import SharedType, TensorType
from ziggurat.transforms.analysis.obstacle import Obstacle, warn, warn_of
from ziggurat.transforms.analysis.queries import bytes_of
from ziggurat.transforms.schedule.loads_ahead import LoadsAhead, is_role, loads_ahead
from ziggurat.transforms.schedule.loop_plan import Load, LoopPlan
from ziggurat.transforms.schedule.pipeline_loads import plans_of, room_for

_DOTS = (tt.Dot, gpu.MatrixProduct)
_ACCESSES = tt.DescriptorLoad | tt.DescriptorStore | tt.DescriptorReduce
_PASSING = gpu.ConvertLayout | tt.Reshape | tt.Scan | tt.Gather | tt.Histogram | _ACCESSES  # Through shared memory.

# A loop, the plan for the operands of its dots, and that for its other loads.
Plans = tuple[scf.For, LoopPlan | Obstacle, LoadsAhead | Obstacle]


def prefetch_loads(module: gpu.Module, num_stages: int | None) -> Op:
    """The GPU model whose loops begin their loads in stages of their own; a warning for each that asks for it and does
    not.

    `num_stages` below 2 forbids it. A loop's own takes precedence; without dots, only this counts.
    """
    plans: dict[Op, LoadsAhead] = {}
    staged: dict[Value, tuple[SharedType, int]] = {}
    for loop, copies, plan in prefetch_plans(module, num_stages):
        _warn_of(loop, copies, plan, num_stages)
        if isinstance(plan, LoadsAhead):
            plans |= {loop: plan} if plan.loads else {}
            staged |= plan.staged

    def prefetched(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op.result in staged and isinstance(op, tt.Load):
            type_, alignment = staged[op.result]
            buffer = builder.add(gpu.LocalAlloc(type_, alignment=alignment))
            builder.add(gpu.LocalStore(buffer, builder.copy(op, operands)))
            return builder.add(gpu.LocalLoad(buffer, op.result.type))
        return plans[op].write(builder) if op in plans else None

    return transform(module, prefetched, pass_name="prefetch_loads") if plans or staged else module


def prefetch_plans(module: gpu.Module, num_stages: int | None) -> Iterator[Plans]:
    """The plans for the loops of a model before `prefetch_loads`: those with dots, and those that ask for stages."""
    plans = [*plans_of(module, num_stages)]
    rings = [copies for _, _, copies in plans if isinstance(copies, LoopPlan)]
    copied = {copy.load for ring in rings for copy in ring.copies}
    ring_bytes: dict[Op, int] = {ring.loop: ring.bytes for ring in rings}  # The bytes of the rings of loops.
    for loop, stages, copies in plans:
        has_dots = any(isinstance(op, _DOTS) for op in loop.body.entry.ops)
        if not has_dots and any(isinstance(op, _DOTS) for op in loop.walk()):
            if loop.num_stages and isinstance(copies, Obstacle):
                yield loop, copies, copies  # Only the dots of a loop inside are pipelined.
            continue
        if not _loads_of(loop) or not (has_dots or loop.num_stages):
            continue
        if stages is not None and stages < 2 and isinstance(copies, Obstacle):
            if has_dots:
                yield loop, copies, copies
            continue
        limit = room_for(module, loop)[1] - _passing_bytes(loop, copied)
        limit -= sum(ring_bytes.get(op, 0) for op in {*loop.path(), *loop.walk()})
        stages = copies.stages if isinstance(copies, LoopPlan) else stages
        plan = loads_ahead(loop, stages or USUAL_STAGES, limit, copies if has_dots else None)
        ring_bytes[loop] = ring_bytes.get(loop, 0) + (plan.bytes if isinstance(plan, LoadsAhead) else 0)
        yield loop, copies, plan


def _passing_bytes(loop: scf.For, copied: Container[Op]) -> int:
    """The bytes of the largest tensor for which later passes may allocate shared memory in a loop."""
    passing = (op for op in loop.walk() if isinstance(op, _PASSING) and op not in copied)
    values = (value for op in passing for value in (*op.operands, op.result))
    return max((bytes_of(value) for value in values if isinstance(value.type, TensorType)), default=0)


def _loads_of(loop: scf.For) -> list[Load]:
    return [op for op in loop.body.entry.ops if isinstance(op, Load)]


def _warn_of(loop: scf.For, copies: LoopPlan | Obstacle, plan: LoadsAhead | Obstacle, num_stages: int | None) -> None:
    """Warn of the loads that are asked to begin ahead and do not: of all, if the loop asks; of those from which dots
    are computed, if the launch asks for another number of stages than the usual one."""
    asks = (loop.num_stages or 0) > 1 or loop.warp_specialize
    if not asks and (num_stages or 0) in (0, 1, USUAL_STAGES):
        return
    stages = USUAL_STAGES if num_stages is None else num_stages
    stages = stages if loop.num_stages is None else loop.num_stages
    loads = [load for load in _loads_of(loop) if stages > 1 and (asks or _goes_to_dot(load))]
    reasons = {load.result: reason for load, reason in plan.left} if isinstance(plan, LoadsAhead) else {}
    if isinstance(plan, Obstacle) or (isinstance(copies, Obstacle) and not plan.moves and not is_role(loop)):
        if isinstance(copies, Obstacle) and stages > 1 and (asks or loads):
            obstacle = plan if isinstance(plan, Obstacle) else copies
            warn_of(f"the loop is not pipelined in {stages} stages", loop, obstacle)
    elif isinstance(copies, Obstacle) and plan.own + 1 < stages and not is_role(loop):
        why = f"there is no shared memory for more stages of {plan.bytes // plan.own} bytes"
        warn(f"the loop is pipelined in {plan.own + 1} stages, not {stages}: {why}", loop.location)
    for load in loads:
        if load.result in reasons:
            warn_of("the load is not pipelined", load, reasons[load.result])


def _goes_to_dot(load: Load) -> bool:
    """Whether an operand of a dot in the same loop is computed from what a load reads."""

    def following(value: Value) -> Sequence[Value]:
        users = [user for user in value.uses if not isinstance(user, gpu.MatrixProduct | BodyTerminator)]
        return [user.buffer if isinstance(user, gpu.LocalStore) else user.result for user in users]

    values = reached([load.result], following)
    dots = (user for value in values for user in value.uses if isinstance(user, gpu.MatrixProduct))
    return any(not values.isdisjoint((dot.a, dot.b)) for dot in dots)
