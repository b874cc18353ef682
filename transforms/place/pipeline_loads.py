"""Pipelining: the loads that feed the dots of a loop become copies, in flight while earlier ones are used.

    scf.for … (%i, %acc, %p) {                        prologue: the copies of the first iterations
        %a = tt.load %p @width=8;                     scf.for … (%i, %acc, %p, %slot, %q) {
        %b = gpu.local_alloc;                             gpu.async_wait @1;
        gpu.local_store %b %a;             becomes        gpu.async_copy %q %ring[%before] (if …) @width=8;
        %d = gpu.wgmma %b … %acc;                         gpu.async_commit;
        …                                                 %d = gpu.wgmma %ring[%slot] … %acc;

A ring has `num_stages` slots, and the copies of `num_stages - 1` iterations are in flight before the loop. Each
iteration waits for its own copies, then begins those of a later iteration, into the slot that the iteration before has
read. One barrier between the two, which `barriers` finds, orders both. Where there is no such later iteration, the
copies' masks are false. The values that the addresses are computed from are carried a second time, as many iterations
ahead.

TMA copies the blocks of descriptors, and mbarriers signal their arrival. Each slot has one, and the loop carries its
phase beside the slot index. The last wgmma of an iteration need not be complete at its end:

    scf.for … (%i, %acc) {                            scf.for … (%i, %acc, %slot, %phase, %q) {
        …                                                 gpu.mbarrier_wait %full[%slot] %phase;
        %d = gpu.wgmma %b … %acc;          becomes        %d = gpu.wgmma %ring[%slot] … %acc;
        %e = gpu.wgmma_wait %d @0;                        %e = gpu.wgmma_wait %d @1;
        scf.yield %e;                                     gpu.mbarrier_expect %full[%before] …;
                                                          gpu.tma_load %0 %ring[%before] … %q;
                                                          scf.yield %e …;

The wgmma of the iteration before is complete after the wait for all but one, so its slot can be filled again. In
attention's loop, the wait for the dot of queries and keys does this.

Where threads copy, this takes a second barrier: the wgmma of the other warps must be complete as well. With one slot
more, the slot that is filled was read two iterations before, and the barrier after the wait for the copies orders
both: so the ring has one slot more where the occupancy stays the same. `loop_plan` decides all this.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import attrs

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import DEFAULT_OPTIONS
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import ScalarType, i1, with_element
from ziggurat.transforms.place.loop_plan import LoopPlan, planned
from ziggurat.transforms.place.obstacle import Obstacle, warn, warn_of
from ziggurat.transforms.place.pressure import REGISTERS_OF_SM
from ziggurat.transforms.place.queries import constant, constant_of, shared_of, tensor_of
from ziggurat.transforms.place.tma import forget_mbarriers, mbarriers

_LOWERING_BYTES = 8192  # Shared memory that is left for what `lower` allocates.
_DRIVER_BYTES = 1024  # Shared memory that the driver takes for each CTA.
_OTHER_REGISTERS = 64  # Registers a thread, beside those of the accumulator.


def pipeline_loads(module: gpu.Module, num_stages: int) -> Op:
    """The GPU model whose loops with dots copy their operands ahead, in up to `num_stages` stages; 1 changes nothing.

    A loop's own `num_stages` takes precedence. There are fewer stages if shared memory does not suffice for more; a
    warning says so if the kernel asked for the number.
    """
    allocs = [op for op in module.walk() if isinstance(op, gpu.LocalAlloc)]
    plans: dict[Value, LoopPlan] = {}
    for op in module.walk():
        if isinstance(op, scf.For):
            # Other buffers, such as those of operands that the loop does not change, need their place as well.
            others = sum(shared_of(alloc.result).bytes for alloc in allocs if _lives_with(alloc, op))
            limit = TARGETS[module.target].max_shared - _LOWERING_BYTES - others
            stages = op.num_stages if op.num_stages is not None else num_stages
            plan = planned(op, stages, limit, partial(_occupancy, module, others))
            _warn_of_stages(op, plan, stages)
            if isinstance(plan, LoopPlan):
                plans[op.result] = plan

    def pipelined(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        plan = plans.get(op.result)
        return None if plan is None else _PipelinedLoop(builder, plan).write()

    return transform(module, pipelined, pass_name="pipeline_loads") if plans else module


def _warn_of_stages(loop: scf.For, plan: LoopPlan | Obstacle, stages: int) -> None:
    """Warn of a loop with fewer stages than were asked for."""
    if any(isinstance(owner, gpu.WarpSpecialize) for owner in loop.path()):
        return
    if isinstance(plan, LoopPlan) and loop.num_stages is not None:
        warn_of_loads(plan)
    if isinstance(plan, Obstacle):
        if loop.num_stages is not None and stages > 1:
            warn_of(f"the loop is not pipelined in {stages} stages", loop, plan)
    elif plan.stages < stages and (loop.num_stages is not None or stages != DEFAULT_OPTIONS.num_stages):
        each = sum(copy.shared.bytes for copy in plan.copies)
        why = f"there is no shared memory for more stages of {each} bytes"
        warn(f"the loop is pipelined in {plan.stages} stages, not {stages}: {why}", loop.location)


def warn_of_loads(plan: LoopPlan) -> None:
    """Warn of the loads that a loop does not pipeline."""
    for obstacle in plan.left:
        warn(f"the load is not pipelined: {obstacle.why}", obstacle.op.location)


def _occupancy(module: gpu.Module, others: int, ring: int, registers: int) -> int:
    """An estimate of the occupancy (CTAs per SM) if a loop's rings take `ring` bytes beside `others`, and its
    accumulator `registers` of each thread."""
    by_memory = (TARGETS[module.target].max_shared + _DRIVER_BYTES) // (others + ring + _DRIVER_BYTES)
    by_registers = REGISTERS_OF_SM // (32 * module.num_warps * (registers + _OTHER_REGISTERS))
    return max(1, min(by_memory, by_registers))


def _lives_with(alloc: gpu.LocalAlloc, loop: scf.For) -> bool:
    """Whether a buffer may be needed while a loop runs: it is made in it, or in a block that contains the loop."""
    return any(op.parent is alloc.parent for op in loop.path()) or any(op is loop for op in alloc.path())


# The new loop.


def carrying_loop(
    builder: Rewriter,
    loop: scf.For,
    numbers: Sequence[int],
    further: Sequence[Value],
    write: Callable[[Rewriter, Sequence[Value]], Iterable[Value]],
    attributes: Mapping[str, Any],
) -> Value:
    """Add a loop like `loop` that carries its values of these numbers, and after them `further`; the packed result.

    `write` adds the body but for its end. It gets the body's parameters for `further`, and returns their next values.
    """
    start, stop, step = (builder[value] for value in loop.controls)
    initial = [*(builder[loop.initial[number]] for number in numbers), *further]
    types = [value.type for value in initial]
    inner = builder.inside([start.type, *types], scf.packed(types))
    arguments, end = loop.body.parameters, loop.body.entry.terminator
    for old, new in zip((0, *(number + 1 for number in numbers)), inner.parameters, strict=False):
        inner[arguments[old]] = new
    following = write(inner, inner.parameters[1 + len(numbers) :])
    inner.add(scf.Yield([*(inner[end.operands[number]] for number in numbers), *following]), end.location)
    return builder.add(scf.For(start, stop, step, initial, inner.finish(), **attributes), loop.location)


class Counter:
    """The arithmetic on the slot index of a ring of `stages` slots, in one body."""

    def __init__(self, builder: Builder, slot: Value, stages: int) -> None:
        self.builder = builder
        self.slot = slot
        self.stages = stages
        self.zero, self.last, self.one = (constant(builder, value) for value in (0, stages - 1, 1))

    def before(self, count: int = 1) -> Value:
        """The index of the slot `count` iterations before."""
        add = self.builder.add
        if count == 1:
            wraps, around = add(arith.CmpI(self.slot, self.zero, arith.IntPredicate.EQ)), self.last
            back = self.one
        else:
            wraps = add(arith.CmpI(self.slot, constant(self.builder, count), arith.IntPredicate.SLT))
            around = add(arith.AddI(self.slot, constant(self.builder, self.stages - count)))
            back = constant(self.builder, count)
        return add(arith.Select(wraps, around, add(arith.SubI(self.slot, back))))

    def after(self, phase: Value | None) -> list[Value]:
        """The index of the next slot; and its phase, if there is one."""
        add = self.builder.add
        wraps = add(arith.CmpI(self.slot, self.last, arith.IntPredicate.EQ))
        following: list[Value] = [add(arith.Select(wraps, self.zero, add(arith.AddI(self.slot, self.one))))]
        if phase is not None:
            following.append(add(arith.XOrI(phase, add(arith.Select(wraps, self.one, self.zero)))))
        return following


class LoopWriter:
    """The writer of a loop whose loads have become copies to `rings`: one ring for each copy of the plan, in order.

    `full` has the mbarriers that say that a slot is full, for each group of TMA's copies.
    """

    def __init__(self, plan: LoopPlan, rings: Sequence[Value], full: Sequence[Value]) -> None:
        self.loop = plan.loop
        self.plan = plan
        self.rings = {copy.buffer.result: ring for copy, ring in zip(plan.copies, rings, strict=True)}
        self.full = dict(zip(plan.groups(), full, strict=True))

    def fetch(self, builder: Rewriter, reader: Value, slot: Value, condition: Value) -> None:
        """Have TMA fill the slots of the group of a reader where a condition holds, and tell the mbarrier."""
        copies = self.plan.groups()[reader]
        full = builder.add(gpu.LocalView(self.full[reader], slot))
        builder.add(gpu.MbarrierExpect(full, condition, bytes=sum(copy.shared.bytes for copy in copies)))
        for copy in copies:
            descriptor, *offsets = (builder[value] for value in copy.load.operands)
            view = builder.add(gpu.LocalView(self.rings[copy.buffer.result], slot))
            builder.add(gpu.TmaLoad(descriptor, view, full, condition, offsets), copy.load.location)

    def rewritten(self, inner: Rewriter, slot: Value, phase: Value | None) -> Iterator[Op]:
        """Write the body of the loop without the copies, op by op.

        An op is given after it was written, with the wait for the wgmma of the iteration before that follows it.
        """
        loop, deferred = self.loop, self.plan.deferred
        gone = {op.result for copy in self.plan.copies for op in (copy.load, copy.store, *copy.transposed)}
        gone |= _superfluous_fences(loop, gone)
        for op in loop.body.entry.ops[:-1]:
            if op.result in gone:
                continue
            if op.result in self.full:
                assert phase is not None
                inner.add(gpu.MbarrierWait(inner.add(gpu.LocalView(self.full[op.result], slot)), phase))
            if op.result in self.rings:
                inner[op.result] = inner.add(gpu.LocalView(self.rings[op.result], slot), op.location)
            elif deferred is not None and op is deferred.wait:
                inner[op.result] = inner[deferred.wait.value]
            else:
                inner.rewrite(op)
            if deferred is not None and op is deferred.covered:
                value = deferred.wait.value if deferred.chained else loop.body.parameters[deferred.position + 1]
                inner[value] = inner.add(gpu.WgmmaWait(inner[value], int(deferred.chained)), deferred.wait.location)
            yield op

    def completed(
        self,
        builder: Rewriter,
        initial: Sequence[Value],
        write: Callable[[Rewriter], Value],
        end: Callable[[Rewriter, Sequence[Value]], None] = lambda builder, values: None,
    ) -> Value:
        """The packed values after the new loop, which `write` adds, and a wait for the deferred wgmma. Then `end`
        writes.

        If a wgmma is deferred, these are the counterparts of `initial`, and the loop stands in a branch that runs if
        the loop has an iteration. This keeps the in-flight accumulator out of a phi with the initial one: LLVM would
        copy it, and ptxas then waits for each wgmma (its warning C7515).
        """
        deferred = self.plan.deferred
        if deferred is None:
            return write(builder)
        before = arith.IntPredicate.SLT if self.plan.step > 0 else arith.IntPredicate.SGT
        runs = builder.add(arith.CmpI(builder[self.loop.start], builder[self.loop.stop], before))
        yields = scf.packed([value.type for value in initial])
        then = builder.inside([], yields)
        made = write(then)
        values: list[Value] = [then.add(core.TupleLoad(made, at)) for at in range(len(initial))]
        values[deferred.position] = then.add(gpu.WgmmaWait(values[deferred.position], 0), deferred.wait.location)
        end(then, values)
        then.add(scf.Yield(values))
        otherwise = builder.nested([], yields)
        otherwise.add(scf.Yield(initial))
        return builder.add(scf.If(runs, then.finish(), otherwise.finish()))


class _PipelinedLoop(LoopWriter):
    """The writer of a pipelined loop, with its prologue and its end."""

    def __init__(self, builder: Rewriter, plan: LoopPlan) -> None:
        rings, groups = new_rings(builder, plan), len(plan.groups())
        super().__init__(plan, rings, mbarriers(builder, groups, plan.stages) if groups else [])
        self.builder = builder
        self.initial = [builder[value] for value in plan.loop.initial]
        self.copied = [copy for copy in plan.copies if not copy.by_tma]

    def write(self) -> Value:
        """Add everything to the builder; the value that stands for the loop's result."""
        builder, plan = self.builder, self.plan
        ahead: Sequence[Value] = [self.initial[number] for number in plan.carried]
        for number in range(plan.distance):
            ahead = self._begin(builder, builder[self.loop.start], number, ahead, constant(builder, number))
        made = self.completed(builder, self.initial, lambda inner: self._loop(inner, ahead))
        if self.copied:
            # The copies of the last iterations, which copied nothing, still hold the buffers.
            builder.add(gpu.AsyncWait(0))
        if self.full:
            forget_mbarriers(builder, self.full.values())
        return builder.add(core.TupleLoad(made, 0)) if plan.deferred is None and len(self.initial) == 1 else made

    def _loop(self, builder: Rewriter, ahead: Sequence[Value]) -> Value:
        """The loop, which carries the counters and the values `ahead` as well."""
        further = [*[constant(builder, 0)] * (2 if self.full else 1), *ahead]
        return carrying_loop(builder, self.loop, range(len(self.initial)), further, self._body, self.loop.attributes)

    def _body(self, inner: Rewriter, carried: Sequence[Value]) -> Sequence[Value]:
        plan, loop, deferred = self.plan, self.loop, self.plan.deferred
        index, slot = inner[loop.body.parameters[0]], carried[0]
        phase, ahead = (carried[1], carried[2:]) if self.full else (None, carried[1:])
        if self.copied:
            inner.add(gpu.AsyncWait(plan.distance - 1))
            if any(isinstance(op, gpu.Wgmma) for op in loop.body.entry.ops):
                # wgmma reads what this thread has copied, after the barrier that follows.
                inner.add(gpu.FenceAsync())
        counter = Counter(inner, slot, plan.stages)
        before = counter.before(plan.reuse)
        # After the barrier that follows the wait above, the wgmma that read this slot are complete in all warps.
        at_once = deferred is None or plan.reuse > 1
        if at_once:
            ahead = self._begin(inner, index, plan.distance, ahead, before)
        for op in self.rewritten(inner, slot, phase):
            if not at_once and deferred is not None and op is deferred.covered:
                ahead = self._begin(inner, index, plan.distance, ahead, before)
        return [*counter.after(phase), *ahead]

    def _begin(self, builder: Rewriter, index: Value, count: int, ahead: Sequence[Value], slot: Value) -> list[Value]:
        """Begin the copies of the iteration `count` after that of `index`, into the slots of an index.

        `ahead` are the carried values of that iteration; the result are those of the next.
        """
        plan, body = self.plan, self.loop.body
        more = has_iteration(builder, self.loop, index, count)
        shift = constant(builder, count * plan.step, index.type)
        later = builder.scoped()
        later[body.parameters[0]] = builder.add(arith.AddI(index, shift)) if count else index
        for number, value in zip(plan.carried, ahead, strict=True):
            later[body.parameters[number + 1]] = value
        later.rewrite_ops(plan.ahead)
        for reader in self.full:
            self.fetch(later, reader, slot, more)
        for copy in self.copied:
            assert isinstance(copy.load, tt.Load)
            pointers = later[copy.load.ptr]
            mask = builder.add(tt.Splat(more, with_element(tensor_of(pointers), i1)))
            if copy.load.mask is not None:
                mask = builder.add(arith.AndI(later[copy.load.mask], mask))
            for step in copy.transposed:
                pointers, mask = (builder.add(tt.Trans(value, step.order)) for value in (pointers, mask))
            view = builder.add(gpu.LocalView(self.rings[copy.buffer.result], slot))
            builder.add(gpu.AsyncCopy(pointers, view, mask, width=copy.width), copy.load.location)
        if self.copied:
            builder.add(gpu.AsyncCommit())
        yielded = body.entry.terminator.operands
        return [later[yielded[number]] for number in plan.carried]


def has_iteration(builder: Rewriter, loop: scf.For, index: Value, distance: int) -> Value:
    """Whether a loop with a constant step has the iteration `distance` after that of `index`: without a sum that may
    overflow."""
    step = constant_of(loop.step)
    assert isinstance(index.type, ScalarType) and isinstance(step, int)
    shift, up = distance * step, step > 0
    low, high = index.type.limits
    bound = builder[loop.stop]
    if shift:
        furthest = constant(builder, (low if up else high) + shift, index.type)
        bound = builder.add(arith.MaxSI(bound, furthest) if up else arith.MinSI(bound, furthest))
        bound = builder.add(arith.SubI(bound, constant(builder, shift, index.type)))
    return builder.add(arith.CmpI(index, bound, arith.IntPredicate.SLT if up else arith.IntPredicate.SGT))


def new_rings(builder: Builder, plan: LoopPlan) -> list[Value]:
    """A new ring for each copy of a loop."""
    made: list[Value] = []
    for copy in plan.copies:
        type_ = attrs.evolve(copy.shared, count=plan.stages)
        made.append(builder.add(gpu.LocalAlloc(type_, alignment=copy.buffer.alignment), copy.buffer.location))
    return made


def _superfluous_fences(loop: scf.For, gone: Container[Value]) -> set[OpResult]:
    """The fences directly before wgmma whose operands no store of the loop's body writes, stores in `gone` aside.

    The fence at the beginning of the loop suffices for them, or TMA has brought the operands.
    """
    stores = [op for op in loop.body.walk() if isinstance(op, gpu.LocalStore)]
    written = {op.buffer for op in stores if op.result not in gone}
    return {
        fence.result
        for fence, op in pairwise(loop.body.entry.ops)
        if isinstance(fence, gpu.FenceAsync) and isinstance(op, gpu.Wgmma) and not written & {op.a, op.b}
    }
