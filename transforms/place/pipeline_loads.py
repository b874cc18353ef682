"""Pipelining: the loads that feed the dots of a loop become copies, in flight while earlier ones are used.

    scf.for … (%i, %acc, %p) {                        %c = gpu.channel %ring;
        %a = tt.load %p @width=8;                     prologue: the copies of the first iterations
        %b = gpu.local_alloc;                         scf.for … (%i, %acc, %p, %q) {
        gpu.local_store %b %a;                            %s = gpu.channel_wait %c;
        %d = gpu.wgmma %b … %acc;          becomes        %d = gpu.wgmma %ring[%s] … %acc;
        %e = gpu.wgmma_wait %d @0;                        %e = gpu.wgmma_wait %d @1;
        scf.yield %e …;                                   gpu.channel_release %c @held=1;
    }                                                     %t = gpu.channel_acquire %c %more;
                                                          gpu.async_copy %q %ring[%t] (if %more) @width=8;
                                                          gpu.channel_commit %c;
                                                          scf.yield %e …; }
                                                      gpu.channel_close %c;

A ring has `num_stages` slots, and the copies of `num_stages - 1` iterations are in flight before the loop. Each
iteration waits for its own copies, and begins those of a later iteration, into the slot that the iteration before has
read. One barrier between the two, which `barriers` finds, orders both. Where there is no such later iteration, the
copies' masks are false. The values that the addresses are computed from are carried a second time, as many iterations
ahead. TMA copies the blocks of descriptors, `gpu.tma_load` in the place of `gpu.async_copy`.

The last wgmma of an iteration need not be complete at its end. It is after the wait for all but one in the next
iteration, as above, or in attention's loop after the wait for the dot of queries and keys: then its slot can be filled
again.

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
from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import DEFAULT_OPTIONS
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import ScalarType, i1, with_element
from ziggurat.transforms.place.flow import allocation
from ziggurat.transforms.place.loop_plan import Copy, LoopPlan, planned
from ziggurat.transforms.place.obstacle import Obstacle, warn, warn_of
from ziggurat.transforms.place.pressure import REGISTERS_OF_SM
from ziggurat.transforms.place.queries import constant, constant_of, repacked, shared_of, tensor_of, unpacked

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
        # Loads that feed no dot are not copied ahead: other warps hide their latency.
        has_dots = any(isinstance(op, gpu.MatrixProduct) for op in loop.walk())
        if loop.num_stages is not None and stages > 1 and has_dots:
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


class LoopWriter:
    """The writer of a loop whose loads have become copies: to rings, for each copy of the plan, of these channels."""

    def __init__(self, plan: LoopPlan, channels: Sequence[Value]) -> None:
        self.loop = plan.loop
        self.plan = plan
        self.channels = dict(zip(plan.channels(), channels, strict=True))

    def fetch(self, builder: Rewriter, condition: Value) -> None:
        """Begin to fill a slot of each channel where a condition holds."""
        for copies, channel in self.channels.items():
            slot = builder.add(gpu.ChannelAcquire(channel, condition))
            for copy, ring in zip(copies, rings_of(channel), strict=True):
                _begin_copy(builder, copy, builder.add(gpu.LocalView(ring, slot)), channel, condition)
            builder.add(gpu.ChannelCommit(channel))

    def wait(self, builder: Rewriter, copies: tuple[Copy, ...]) -> None:
        """Wait for a slot of a channel: from now on, its buffers stand for those that the loads filled."""
        channel = self.channels[copies]
        slot = builder.add(gpu.ChannelWait(channel))
        for copy, ring in zip(copies, rings_of(channel), strict=True):
            buffer = copy.buffer.result
            builder[buffer] = builder.add(gpu.LocalView(ring, slot), copy.buffer.location)
            for op in self.loop.body.entry.ops:
                if isinstance(op, gpu.LocalTrans) and allocation(op.result) is buffer:
                    builder.rewrite(op)

    def rewritten(self, inner: Rewriter) -> Iterator[Op]:
        """Write the body of the loop without the copies, op by op.

        An op is given after it was written, with the wait for the wgmma of the iteration before that follows it, and
        the release of slots that have been read.
        """
        loop, deferred = self.loop, self.plan.deferred
        buffers = {copy.buffer.result for copy in self.plan.copies}
        gone = {op.result for copy in self.plan.copies for op in (copy.load, copy.store, *copy.transposed)}
        gone |= _superfluous_fences(loop, gone)
        waited = {copies for copies in self.channels if not copies[0].by_tma}
        released = {copies: self.plan.released(copies) for copies in self.channels}
        for op in loop.body.entry.ops[:-1]:
            if op.result in gone or allocation(op.result) in buffers:
                continue
            for copies in self.channels:
                if copies not in waited and op is copies[0].reader:
                    self.wait(inner, copies)
                    waited.add(copies)
            if deferred is not None and op is deferred.wait:
                inner[op.result] = inner[deferred.wait.value]
            else:
                inner.rewrite(op)
            covered = deferred is not None and op is deferred.covered
            if deferred is not None and covered:
                value = deferred.wait.value if deferred.chained else loop.body.parameters[deferred.position + 1]
                inner[value] = inner.add(gpu.WgmmaWait(inner[value], int(deferred.chained)), deferred.wait.location)
            for copies, over in released.items():
                if over is op or (over is None and covered):
                    held = int(over is None and copies in waited)
                    inner.add(gpu.ChannelRelease(self.channels[copies], held=held))
            yield op

    def completed(self, builder: Rewriter, write: Callable[[Rewriter], Value], further: int = 0) -> Value:
        """The packed results of the new loop, which `write` adds, after a wait for the deferred wgmma.

        The loop gives `further` values after those of the old one. If a wgmma is deferred, the loop stands in a branch
        that runs if it has an iteration. This keeps the in-flight accumulator out of a phi with the initial one: LLVM
        would copy it, and ptxas then waits for each wgmma (its warning C7515).
        """
        deferred, initial = self.plan.deferred, [builder[value] for value in self.loop.initial]
        count = len(initial)
        if deferred is None:
            return repacked(builder, unpacked(builder, write(builder), count + further)[:count])
        before = arith.IntPredicate.SLT if self.plan.step > 0 else arith.IntPredicate.SGT
        runs = builder.add(arith.CmpI(builder[self.loop.start], builder[self.loop.stop], before))
        yields = scf.packed([value.type for value in initial])
        then = builder.inside([], yields)
        values = unpacked(then, write(then), count + further)[:count]
        values[deferred.position] = then.add(gpu.WgmmaWait(values[deferred.position], 0), deferred.wait.location)
        for copies, channel in self.channels.items():
            if self.plan.released(copies) is None:
                then.add(gpu.ChannelRelease(channel))
        then.add(scf.Yield(values))
        otherwise = builder.nested([], yields)
        otherwise.add(scf.Yield(initial))
        return builder.add(scf.If(runs, then.finish(), otherwise.finish()))


class _PipelinedLoop(LoopWriter):
    """The writer of a pipelined loop, with its prologue and its end."""

    def __init__(self, builder: Rewriter, plan: LoopPlan) -> None:
        super().__init__(plan, new_channels(builder, plan))
        self.builder = builder

    def write(self) -> Value:
        """Add everything to the builder; the value that stands for the loop's result."""
        builder, plan = self.builder, self.plan
        ahead: Sequence[Value] = [builder[plan.loop.initial[number]] for number in plan.carried]
        for number in range(plan.distance):
            ahead = self._begin(builder, builder[self.loop.start], number, ahead)
        made = self.completed(builder, lambda inner: self._loop(inner, ahead), len(ahead))
        builder.add(gpu.ChannelClose([*self.channels.values()]))
        return made

    def _loop(self, builder: Rewriter, ahead: Sequence[Value]) -> Value:
        """The loop, which carries the values `ahead` as well."""
        numbers = range(len(self.loop.initial))
        return carrying_loop(builder, self.loop, numbers, ahead, self._body, self.loop.attributes)

    def _body(self, inner: Rewriter, ahead: Sequence[Value]) -> Sequence[Value]:
        plan, deferred = self.plan, self.plan.deferred
        index = inner[self.loop.body.parameters[0]]
        for copies in self.channels:
            if not copies[0].by_tma:
                self.wait(inner, copies)
        # After the barrier that follows the wait above, the wgmma that read this slot are complete in all warps.
        at_once = deferred is None or plan.reuse > 1
        if at_once:
            ahead = self._begin(inner, index, plan.distance, ahead)
        for op in self.rewritten(inner):
            if not at_once and deferred is not None and op is deferred.covered:
                ahead = self._begin(inner, index, plan.distance, ahead)
        return ahead

    def _begin(self, builder: Rewriter, index: Value, count: int, ahead: Sequence[Value]) -> list[Value]:
        """Begin the copies of the iteration `count` after that of `index`.

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
        self.fetch(later, more)
        yielded = body.entry.terminator.operands
        return [later[yielded[number]] for number in plan.carried]


def _begin_copy(builder: Rewriter, copy: Copy, buffer: Value, channel: Value, condition: Value) -> None:
    """Begin to copy what a load reads to a buffer, where a condition holds."""
    load = copy.load
    if isinstance(load, tt.DescriptorLoad):
        descriptor, *offsets = (builder[value] for value in load.operands)
        builder.add(gpu.TmaLoad(descriptor, buffer, channel, condition, offsets), load.location)
        return
    pointers = builder[load.ptr]
    mask = builder.add(tt.Splat(condition, with_element(tensor_of(pointers), i1)))
    if load.mask is not None:
        mask = builder.add(arith.AndI(builder[load.mask], mask))
    for step in copy.transposed:
        pointers, mask = (builder.add(tt.Trans(value, step.order)) for value in (pointers, mask))
    builder.add(gpu.AsyncCopy(pointers, buffer, mask, width=copy.width), load.location)


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


def new_channels(builder: Builder, plan: LoopPlan) -> list[Value]:
    """The channels of a loop, with new rings."""
    rings: dict[Copy, Value] = {}
    for copy in plan.copies:
        type_ = attrs.evolve(copy.shared, count=plan.stages)
        rings[copy] = builder.add(gpu.LocalAlloc(type_, alignment=copy.buffer.alignment), copy.buffer.location)
    return [builder.add(gpu.Channel([rings[copy] for copy in copies])) for copies in plan.channels()]


def rings_of(channel: Value) -> Sequence[Value]:
    """The rings of a channel."""
    assert isinstance(channel, OpResult) and isinstance(channel.op, gpu.Channel)
    return channel.op.rings


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
