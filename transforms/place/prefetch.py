"""Prefetching: the small loads of a loop with dots are begun one iteration before their values are used.

    scf.for … (%i, %acc, %p) {                        scf.for … (%i, %acc, %p) {
        %m = tt.load %p;                                  %more = gpu.stage @0 @order=1;
        %d = gpu.wgmma …;                  becomes        %m = tt.load %p %more;
        … %m …                                            gpu.stage @1 @order=0;
        %q = tt.addptr %p …;                              %q = tt.addptr %p …;
        scf.yield %d %q; }                                gpu.stage @1 @order=2;
                                                          %d = gpu.wgmma …; … %m …
                                                          scf.yield %d %q; }

The dots' own operands become copies to shared memory (`pipeline_loads`). The loop waits for its other loads, such as
scales or the maxima of attention's rows, in the iteration that uses them: some hundred cycles without an MMA. Their
values fit in registers, so `expand` lets the loop carry them there.
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.transforms.place.flow import users_of
from ziggurat.transforms.place.loads_ahead import LoadsAhead, loads_ahead
from ziggurat.transforms.place.loop_plan import CP_ASYNC_BYTES, ahead_of, bytes_at_once, step_ahead
from ziggurat.transforms.place.obstacle import Obstacle, warn, warn_of
from ziggurat.transforms.place.pipeline_loads import load_where, room_for, warn_of_loads
from ziggurat.transforms.place.pressure import value_registers
from ziggurat.transforms.place.schedule import carrying_loop

# Registers of a thread that the values of one load may take, those of all loads of a loop, and those that the loop may
# carry with them: the dots need some as well.
_OF_A_LOAD, _OF_A_LOOP, _CARRIED = 8, 16, 192


def prefetch_loads(module: gpu.Module, num_stages: int | None) -> Op:
    """The GPU model whose loops with dots have a stage of their own for small loads, one iteration ahead.

    `num_stages` below 2 forbids it. A loop's own takes precedence; without dots, only this counts (`loads_ahead`).
    """
    loads: dict[Value, list[tt.Load] | LoadsAhead] = {}
    for op in module.walk():
        stages = None if not isinstance(op, scf.For) else num_stages if op.num_stages is None else op.num_stages
        if isinstance(op, scf.For) and (stages is None or stages > 1):
            around = (loads.get(owner.result) for owner in op.path())
            taken = sum(plan.bytes for plan in around if isinstance(plan, LoadsAhead))
            plan = loads_ahead(op, room_for(module, op)[1] - taken)
            _warn_of(op, plan)
            found = _loads_of(op) if plan is None else plan
            if found and not isinstance(found, Obstacle):
                loads[op.result] = found

    def prefetched(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        found = loads.get(op.result)
        if found is None or not isinstance(op, scf.For):
            return None
        return found.write(builder) if isinstance(found, LoadsAhead) else _annotated(builder, op, found)

    return transform(module, prefetched, pass_name="prefetch_loads") if loads else module


def _warn_of(loop: scf.For, plan: LoadsAhead | Obstacle | None) -> None:
    """Warn of what a loop without dots asks for and does not get."""
    if isinstance(plan, Obstacle):
        warn_of(f"the loop is not pipelined in {loop.num_stages} stages", loop, plan)
    elif plan is not None:
        warn_of_loads(plan.left)
        if plan.own + 1 < (loop.num_stages or 0):
            why = f"there is no shared memory for more stages of {plan.bytes // plan.own} bytes"
            warn(f"the loop is pipelined in {plan.own + 1} stages, not {loop.num_stages}: {why}", loop.location)


def _loads_of(loop: scf.For) -> list[tt.Load]:
    """The loads of a loop that can be prefetched."""
    block, loads = loop.body.entry, list[tt.Load]()
    has_dot = any(isinstance(op, gpu.Wgmma | gpu.Mma) for op in block.ops)
    is_role = any(isinstance(owner, gpu.WarpSpecialize) for owner in loop.path())
    if not has_dot or is_role or isinstance(step_ahead(loop), Obstacle):
        return loads
    left = min(_OF_A_LOOP, _CARRIED - sum(value_registers(value.type) for value in loop.initial))
    for op in block.ops:
        if not isinstance(op, tt.Load) or op.volatile or op.cache is tt.CacheModifier.CV or _is_copied(op):
            continue
        registers = value_registers(op.result.type)
        if registers <= min(_OF_A_LOAD, left) and ahead_of(loop, op.operands) is not None:
            left -= registers
            loads.append(op)
    return loads


def _is_copied(load: tt.Load) -> bool:
    """Whether a loaded tensor goes to shared memory in units of 4 bytes or more: `pipeline_loads` copies it there."""
    is_stored = any(isinstance(user, gpu.LocalStore | tt.Trans) for user in users_of(load.result))
    return is_stored and bytes_at_once(load) >= CP_ASYNC_BYTES[0]


def _annotated(builder: Rewriter, loop: scf.For, loads: Sequence[tt.Load]) -> Value:
    """Add the loop with its loads in stage 0, one iteration ahead; the value that stands for the loop's result."""
    ops, yielded = loop.body.entry.ops[:-1], loop.body.entry.terminator.operands
    ahead, numbers = ahead_of(loop, [value for load in loads for value in load.operands]) or ((), ())
    handed, _ = ahead_of(loop, [yielded[number] for number in numbers]) or ((), ())
    done = {op.result for op in (*handed, *loads)}

    def write(inner: Rewriter, _: Sequence[Value]) -> Sequence[Value]:
        inner.add(gpu.Stage(0, order=1))
        later = inner.scoped()
        later.rewrite_ops(ahead)
        more = inner.add(gpu.Stage(0, order=1))
        for load in loads:
            inner[load.result] = load_where(later, load, more)
        # The loads of the next iteration start from the values that this one hands on.
        inner.add(gpu.Stage(1, order=0))
        inner.rewrite_ops(handed)
        inner.add(gpu.Stage(1, order=2))
        inner.rewrite_ops([op for op in ops if op.result not in done])
        return ()

    return carrying_loop(builder, loop, range(len(loop.initial)), (), write, loop.attributes)
