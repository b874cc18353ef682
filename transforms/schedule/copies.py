"""Copies: loads that go through buffers ahead of their use become copies into the slots of channels.

    scf.for … (%i, %acc, %p) {                        %c = gpu.channel %ring;
        %a = tt.load %p @ahead=1 @width=8;            scf.for … (%i, %acc, %q) {
        %b = gpu.local_alloc @slots=2;                    %more = gpu.stage @0 @order=6;
        gpu.local_store %b %a;                            %t = gpu.channel_acquire %c %more;
        %d = gpu.wgmma %b … %acc;          becomes        gpu.async_copy %q %ring[%t] (if %more) @width=8;
        %e = gpu.wgmma_wait %d @0 @late=true;             gpu.channel_commit %c;
        scf.yield %e …;                                   gpu.stage @1;
    }                                                     %s = gpu.channel_wait %c;
                                                          %d = gpu.wgmma %ring[%s] … %acc;
                                                          gpu.stage @2 @order=3;
                                                          %e = gpu.wgmma_wait %d @0;
                                                          gpu.channel_release %c;
                                                          gpu.stage @1;
                                                          scf.yield %e …; }
                                                      gpu.channel_close %c;

`latency` has written the attributes, or a user has. `expand` makes iterations of the result overlap. Each iteration
waits for its own copies, and begins those of a later iteration, into the slot that the iteration before has read. One
barrier between the two, which `barriers` finds, orders both. Where there is no such later iteration, the copies' masks
are false. The values that the addresses are computed from are carried a second time, as many iterations ahead. TMA
copies the blocks of descriptors, `gpu.tma_load` in the place of `gpu.async_copy`.

A load that is ahead and goes through no buffer stays a load, to registers that the loop then carries. It begins before
the iteration waits for its copies.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import dropwhile, pairwise, takewhile

import attrs

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.asynchronous import ResultInFlight, ResultWait
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.traits import MayTrap
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import TensorType, i1, with_element
from ziggurat.transforms.analysis.memory_flow import allocation
from ziggurat.transforms.analysis.memory_order import ATOMICS
from ziggurat.transforms.analysis.queries import constant, constant_of, descriptor_of, shared_of, unpacked
from ziggurat.transforms.schedule.loop_plan import (
    TURNED_SLOTS,
    Copy,
    Load,
    LoopPlan,
    carried,
    computing,
    fault_of,
    kept_in_place,
    places_of,
    plan_of,
)
from ziggurat.transforms.schedule.schedule import carrying_loop
from ziggurat.transforms.simplify.effects import is_pure, may_trap

# Those that loads may begin before.
_WRITERS = (tt.DescriptorStore, tt.DescriptorReduce, tt.Store, *ATOMICS, tt.Print, tt.Assert)


# The order of a part of a stage, and the loads to registers and the channels' copies that begin in it.
_Part = tuple[int, Sequence[Load], Sequence[tuple[Copy, ...]]]


def make_copies(module: gpu.Module) -> Op:
    """The GPU model whose loops begin the loads that are ahead, divided into stages.

    Raises `LaunchError` for a schedule that the loop cannot have."""
    loops = [op for op in module.walk() if isinstance(op, scf.For)]
    plans: dict[Op, LoopPlan] = {loop: plan for loop in loops if (plan := plan_of(loop)).ahead}
    for plan in plans.values():
        if (fault := fault_of(plan)) is not None:
            count = next((count for load, count in plan.ahead.items() if load is fault.op), plan.distance)
            message = f"a load cannot begin {count} iterations ahead: {fault.why}"
            raise LaunchError(message, fault.op.location, hint="leave out '@ahead', and '@slots' of its buffer")

    def staged(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        plan = plans.get(op)
        if plan is None:
            return None
        loop = StagedLoop(plan, new_channels(builder, plan))
        new = loop.write(builder)
        channels = [*loop.channels.values(), *loop.channel_of_transpose.values()]
        if channels:
            builder.add(gpu.ChannelClose(channels))
        return new

    return transform(module, staged, pass_name="copies") if plans else module


class StagedLoop:
    """The writer of a loop whose loads have become copies to the slots of these channels, annotated with stages.

    The loop's own stage is as many stages after that of a load as the load is ahead. The late wait, and the release of
    the slots that are read until then, are one stage later still. In a step, loads to registers come first, the late
    wait comes after the plan's `after`, and the fetches come after the wait for copies, or after the late wait if they
    need the slot that it frees.
    """

    def __init__(self, plan: LoopPlan, channels: Sequence[Value]) -> None:
        self.loop = plan.loop
        self.plan = plan
        self.values: dict[Value, Value] = {}  # The results of loads to registers.
        self.channels = dict(zip(plan.channels(), channels, strict=False))
        self.channel_of_transpose = dict(zip(plan.turned, channels[len(self.channels) :], strict=True))
        pairs = ((copies, rings_of(channel)) for copies, channel in self.channels.items())
        self.rings = {copy: ring for copies, rings in pairs for copy, ring in zip(copies, rings, strict=True)}

    def of_part(self, plan: LoopPlan, origin: Mapping[Value, Value]) -> StagedLoop:
        """The writer of the loop of a part of the kernel (`divide`), which reads some of these rings."""
        order = {op: at for at, op in enumerate(plan.loop.body.entry.ops)}
        own = {origin[copy.buffer.result]: copy for copy in plan.copies}
        loop = StagedLoop(attrs.evolve(plan, turned=()), ())
        for copies, channel in self.channels.items():
            read = {own[copy.buffer.result]: self.rings[copy] for copy in copies if copy.buffer.result in own}
            if read:
                loop.channels[tuple(sorted(read, key=lambda copy: order[copy.reader]))] = channel
                loop.rings.update(read)
        return loop

    def with_loads(self, ops: Mapping[Value, Op]) -> StagedLoop:
        """The writer that fills slots by these loads, each in the place of a load of the plan."""
        copies = tuple(attrs.evolve(copy, load=ops[copy.load.result]) for copy in self.plan.copies)
        return StagedLoop(attrs.evolve(self.plan, copies=copies), [*self.channels.values()])

    def write(self, builder: Rewriter) -> Value:
        """Add the loop; the value that stands for the old one's result."""
        loop, own = self.loop, self.plan.distance
        parameters, yielded = loop.body.parameters[1:], loop.body.entry.terminator.operands
        # The addresses start from values of their own, which are carried after the others.
        addresses = [value for load in self.plan.ahead for value in self._needed(load)]
        numbers = carried(loop, addresses)
        divisors = _divisors(builder, loop, [*addresses, *(yielded[number] for number in numbers)])

        def body(inner: Rewriter, ahead: Sequence[Value]) -> Sequence[Value]:
            views: list[Rewriter] = []
            for stage in sorted({0, *(own - count for count in self.plan.ahead.values())}):
                view = inner.scoped()
                view.mapping.values.update(self.values | divisors)
                for number, value in zip(numbers, ahead, strict=True):
                    view[parameters[number]] = value
                self._begin(inner, view, stage, [yielded[number] for number in numbers] if not stage else [])
                views.append(view)
            self.compute(inner)
            return [views[0][yielded[number]] for number in numbers]

        initial, count = [builder[loop.initial[number]] for number in numbers], len(loop.initial)
        new = carrying_loop(builder, loop, range(count), initial, body, loop.attributes)
        return unpacked(builder, new, count + len(initial))[0] if count == 1 else new

    def _needed(self, load: Load) -> Sequence[Value]:
        """The operands that a load needs when it begins: copies fill with zeros."""
        return load.operands if load in self.plan.others else places_of(load)

    def _begin(self, inner: Rewriter, view: Rewriter, stage: int, values: Sequence[Value]) -> None:
        """Begin the loads of a stage, and compute these values, as the stage sees them.

        Loads to registers come first in a step, then copies to slots that are free. Copies to the slot that the late
        wait frees follow it, and those to a slot that this step reads follow its dots.
        """
        own, plan = self.plan.distance, self.plan
        loads = [load for load, begin in plan.others.items() if own - begin.ahead == stage]
        groups = [copies for copies in self.channels if own - copies[0].ahead == stage]
        early = [copies for copies in groups if plan.fills_before_late(copies)]
        late = [copies for copies in groups if copies not in early]
        last = [copies for copies in early if copies[0].is_read_first and not _are_held(copies)]
        early = [copies for copies in early if copies not in last]
        parts: list[_Part] = [(0, loads, ()), (1, (), early), (6, (), late), (8, (), last)]
        for order, begun, copied in [part for part in parts if part[1] or part[2]] or [(1, (), ())]:
            more = inner.add(gpu.Stage(stage, order=order))
            every = [*begun, *(copy.load for copies in copied for copy in copies)]
            needed = [value for load in every for value in self._needed(load)] + [*values]
            view.rewrite_ops(
                computing(self.loop, needed, {*view.mapping.values, *(load.result for load in plan.ahead)})
            )
            for load in begun:
                assert isinstance(load, tt.Load)
                self.values[load.result] = view[load.result] = load_where(view, load, more)
            self.fill(view, more, copied)

    def fill(self, builder: Rewriter, condition: Value, groups: Container[tuple[Copy, ...]] | None = None) -> None:
        """Begin to fill a slot of each channel, or of those of these copies, where a condition holds."""
        for copies, channel in self.channels.items():
            if groups is not None and copies not in groups:
                continue
            slot = builder.add(gpu.ChannelAcquire(channel, condition))
            for copy in copies:
                view = builder.add(gpu.LocalView(self.rings[copy], slot))
                begin_copy(builder, copy.load, view, channel, condition, width=copy.width, transposed=copy.transposed)
            builder.add(gpu.ChannelCommit(channel))

    def _wait(self, builder: Rewriter, copies: tuple[Copy, ...], predicate: Value | None = None) -> None:
        """Wait for a slot of a channel: from now on, its buffers stand for those that the loads filled."""
        channel = self.channels[copies]
        slot = builder.add(gpu.ChannelWait(channel, predicate))
        for copy in copies:
            buffer = copy.buffer.result
            builder[buffer] = builder.add(gpu.LocalView(self.rings[copy], slot), copy.buffer.location)
            transposes = [op for op in self.loop.body.entry.ops if isinstance(op, gpu.LocalTrans)]
            builder.rewrite_ops([op for op in transposes if allocation(op.result) is buffer])

    def _turn(self, builder: Rewriter) -> None:
        """Read the slots of operands that are turned, and store them to slots of their own, an iteration ahead."""
        for store, channel in self.channel_of_transpose.items():
            copies = next(copies for copies in self.channels if copies[0].reader.result is store.value)
            self._wait(builder, copies, builder.add(gpu.Stage(self.plan.distance - 1, order=0)))
            builder.add(gpu.Stage(self.plan.distance - 1, order=3))
            builder.rewrite(copies[0].reader)
            builder.add(gpu.ChannelRelease(self.channels[copies]))
            slot = builder.add(gpu.ChannelAcquire(channel, constant(builder, True, i1)))
            view = builder.add(gpu.LocalView(rings_of(channel)[0], slot))
            builder.add(gpu.LocalStore(view, builder[store.value]), store.location)
            builder.add(gpu.ChannelCommit(channel))

    def compute(self, inner: Rewriter, _: Sequence[Value] = ()) -> Sequence[Value]:
        """Add the other ops of the body, with the waits for slots and their release."""
        loop, plan, own = self.loop, self.plan, self.plan.distance
        buffers = {copy.buffer.result for copy in plan.copies}
        removed = {op.result for copy in plan.copies for op in (copy.load, copy.store, *copy.transposed)}
        removed |= {load.result for load in plan.others}
        removed |= {value for store in self.channel_of_transpose for value in (store.value, store.buffer, store.result)}
        removed |= _superfluous_fences(loop, removed)
        released = {channel: plan.released(copies) for copies, channel in self.channels.items()}
        released |= dict.fromkeys(self.channel_of_transpose.values(), plan.late[-1] if plan.late else None)
        self._turn(inner)
        inner.mapping.values.update(self.values)
        inner.add(gpu.Stage(own, order=0))
        first = _begun_for_later(plan)
        inner.rewrite_ops(first)
        for copies, channel in self.channels.items():
            if copies[0].is_read_first and _are_held(copies):
                self._wait(inner, copies)
                inner.rewrite_ops([copy.reader for copy in copies])
                inner.add(gpu.ChannelRelease(channel))
                removed |= {copy.reader.result for copy in copies}
                del released[channel]
            elif not copies[0].by_tma and copies[0].reader.result not in removed:
                self._wait(inner, copies)
        for store, channel in self.channel_of_transpose.items():
            slot = inner.add(gpu.ChannelWait(channel))
            inner[store.buffer] = inner.add(gpu.LocalView(rings_of(channel)[0], slot))
        places, place = self._places(), (own, 2)
        inner.add(gpu.Stage(own, order=2))

        def begin(to: tuple[int, int]) -> None:
            nonlocal place
            if to != place:
                place = to
                inner.add(gpu.Stage(to[0], order=to[1]))

        for op in sorted(loop.body.entry.ops[:-1], key=lambda op: places[op][0]):
            if op.result in removed or allocation(op.result) in buffers or op in first:
                continue
            begin(places[op])
            for copies, channel in self.channels.items():
                if copies[0].by_tma and op is copies[0].reader and channel in released:
                    self._wait(inner, copies)
            inner.rewrite(op)
            if op is plan.after or op in plan.late:
                begin((own, 4) if op is plan.after else (own + 1, 5))
            for channel, over in released.items():
                if over is op:
                    inner.add(gpu.ChannelRelease(channel))
        begin(places[loop.body.entry.terminator])
        return ()

    def _places(self) -> dict[Op, tuple[int, int]]:
        """The stage and the order of each op of the loop's body."""
        plan, own, block = self.plan, self.plan.distance, self.loop.body.entry
        after = set(dropwhile(lambda op: op is not plan.after, block.ops))
        places: dict[Op, tuple[int, int]] = {op: (own, 7 if op in after else 2) for op in block.ops}
        if plan.after is not None:
            places[plan.after] = own, 2
        places |= dict.fromkeys(plan.late, (own + 1, 1 if _starts_from_registers(plan) else 3))
        if plan.deferred is not None and plan.late:
            # Of the ops after the first wait, only those come after the late one that depend on the accumulator, or on
            # the operand, which then takes the registers of the one before. What they write to memory stays in order.
            at = block.terminator.operands.index(plan.late[-1].result)
            copied = {plan.deferred.accumulator, *(copy.buffer.result for copy in plan.copies)}
            values = {block.parameters[at + 1], *plan.deferred.operands} - copied
            wrote = False
            for op in block.ops:
                writes = op.holds(_WRITERS)
                if (wrote and writes) or any(values.intersection(inner.operands) for inner in op.walk()):
                    values.add(op.result)
                    wrote = wrote or writes
                elif op in after and op.result not in values:
                    places[op] = own, 4
            places[plan.deferred], places[plan.late[-1]] = (own + 1, 3), (own + 1, 5)
        return places


def _are_held(copies: Sequence[Copy]) -> bool:
    """Whether threads read the slots of these copies to registers, and nothing else reads them."""
    return all(
        isinstance(reader, gpu.LocalLoad) and reader is copy.reader for copy in copies for reader in copy.readers
    )


def _divisors(builder: Rewriter, loop: scf.For, values: Sequence[Value]) -> dict[Value, Value]:
    """What values are divided by in a loop, with what they are divided by before it: 1 where it has no iteration."""
    divisors = [op.operands[1] for op in computing(loop, values) if isinstance(op, MayTrap) and may_trap(op)]
    if not divisors:
        return {}
    step = constant_of(loop.step)
    less = arith.IntPredicate.SLT if isinstance(step, int) and step > 0 else arith.IntPredicate.SGT
    runs = builder.add(arith.CmpI(builder[loop.start], builder[loop.stop], less))

    def chosen_divisor(divisor: Value) -> Value:
        type_ = divisor.type
        alike = builder.add(tt.Splat(runs, with_element(type_, i1))) if isinstance(type_, TensorType) else runs
        return builder.add(arith.Select(alike, builder[divisor], constant(builder, 1, type_)))

    return {divisor: chosen_divisor(divisor) for divisor in dict.fromkeys(divisors)}


def _begun_for_later(plan: LoopPlan) -> list[Op]:
    """The loads to registers whose values only a later iteration uses, and what computes their addresses.

    They begin before the iteration waits for its copies: as the loop hands on their values, it waits for them itself.
    A load stays where it is if an op of the loop may write what it reads.
    """
    block = plan.loop.body.entry
    loads = [op for op in block.ops if isinstance(op, tt.Load) and {*op.result.uses} == {block.terminator}]
    loads = [op for op in loads if op not in plan.ahead]
    kept_loads = kept_in_place(plan.loop, loads)
    loads = [op for op in loads if op not in kept_loads]
    results: list[Value] = [op.result for op in loads]
    needed = reached(results, lambda value: () if value.op is None else value.op.operands)
    ops = [op for op in block.ops if op.result in needed]
    return ops if all(is_pure(op) or op in loads for op in ops) else []


def _starts_from_registers(plan: LoopPlan) -> bool:
    """Whether threads write an accumulator while the wgmma of the late wait is in flight, for which ptxas waits."""
    if not isinstance(plan.after, ResultWait):
        return False
    before = takewhile(lambda op: op is not plan.after, plan.loop.body.entry.ops)
    sums = [op.accumulator for op in before if isinstance(op, ResultInFlight) and op.adds]
    return any(isinstance(value, OpResult) and not isinstance(value.op, ResultInFlight) for value in sums)


def begin_copy(
    builder: Rewriter,
    load: tt.Load | tt.DescriptorLoad,
    buffer: Value,
    channel: Value,
    condition: Value,
    *,
    width: int = 1,
    transposed: Sequence[tt.Trans] = (),
) -> None:
    """Begin to copy what a load reads to a buffer, where a condition holds."""
    if isinstance(load, tt.DescriptorLoad):
        descriptor, *offsets = (builder[value] for value in load.operands)
        assert isinstance(channel.op, gpu.Channel)
        ctas = descriptor_of(descriptor).parts if channel.op.ctas > 1 else 1
        builder.add(gpu.TmaLoad(descriptor, buffer, channel, condition, offsets, ctas=ctas), load.location)
        return
    pointers, mask = builder[load.ptr], mask_of(builder, load, condition)
    for step in transposed:
        pointers, mask = (builder.add(tt.Trans(value, step.order)) for value in (pointers, mask))
    builder.add(gpu.AsyncCopy(pointers, buffer, mask, width=width), load.location)


def load_where(builder: Rewriter, load: tt.Load, condition: Value) -> Value:
    """Load where a condition holds."""
    other = None if load.other is None else builder[load.other]
    mask = mask_of(builder, load, condition)
    return builder.add(load.evolve(ptr=builder[load.ptr], mask=mask, other=other, ahead=None), load.location)


def mask_of(builder: Rewriter, load: tt.Load, condition: Value) -> Value:
    """The mask of a load, and a condition."""
    pointers = builder[load.ptr].type
    if isinstance(pointers, TensorType):
        condition = builder.add(tt.Splat(condition, with_element(pointers, i1)))
    return condition if load.mask is None else builder.add(arith.AndI(builder[load.mask], condition))


def new_channels(builder: Builder, plan: LoopPlan, *, between_roles: bool = False) -> list[Value]:
    """The channels of a loop, with new rings: those of its copies, and those of its turned operands.

    Between roles, the CTAs of a cluster share a channel with blocks of which each loads a part."""

    def ring(buffer: Value, count: int) -> Value:
        assert isinstance(buffer.op, gpu.LocalAlloc)
        type_ = attrs.evolve(shared_of(buffer), count=count)
        return builder.add(gpu.LocalAlloc(type_, alignment=buffer.op.alignment), buffer.op.location)

    rings = {copy: ring(copy.buffer.result, copy.slots) for copy in plan.copies}
    groups = [[rings[copy] for copy in copies] for copies in plan.channels()]
    ctas = [max(map(parts_of_load, copies)) if between_roles else 1 for copies in plan.channels()]
    groups += [[ring(store.buffer, TURNED_SLOTS)] for store in plan.turned]
    ctas += [1] * len(plan.turned)
    return [builder.add(gpu.Channel(group, ctas=count)) for group, count in zip(groups, ctas, strict=True)]


def parts_of_load(copy: Copy) -> int:
    """The CTAs of a cluster that load a block together, each a part of it; 1 for a block that one CTA loads."""
    return descriptor_of(copy.load.descriptor).parts if isinstance(copy.load, tt.DescriptorLoad) else 1


def rings_of(channel: Value) -> Sequence[Value]:
    """The rings of a channel."""
    assert isinstance(channel.op, gpu.Channel)
    return channel.op.rings


def _superfluous_fences(loop: scf.For, removed: Container[Value]) -> set[OpResult]:
    """The fences directly before wgmma whose operands no store of the loop's body writes, stores in `removed` aside.

    The fence at the beginning of the loop suffices for them, or TMA has brought the operands.
    """
    stores = [op for op in loop.body.walk() if isinstance(op, gpu.LocalStore)]
    buffers = {op.buffer for op in stores if op.result not in removed}
    return {
        fence.result
        for fence, op in pairwise(loop.body.entry.ops)
        if isinstance(fence, gpu.FenceAsync) and isinstance(op, ResultInFlight) and not buffers.intersection(op.reads)
    }
