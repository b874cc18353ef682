"""Warp specialisation: the warps of a CTA compute, while one more warp group has TMA fetch the operands.

    scf.for … (%i, %acc) @warp_specialize=true {       %full, %empty = mbarriers for each slot of %a, %b
        %a = tt.descriptor_load %0 …;                  gpu.warp_specialize @warps=[8, 4] @registers=[240, 24]
        %b = tt.descriptor_load %1 …;                      () -> {               () -> {
        …                                      becomes         scf.for … {           scf.for … {
        %d = gpu.wgmma …;                                          wait full[r]          wait empty[r]
        %e = gpu.wgmma_wait %d @0;                                 gpu.wgmma …           expect full[r]
        scf.yield %e;                                              arrive empty[…]       gpu.tma_load …
    }                                                          }                     }

The first role, the consumer, is the kernel without those loads. The second, the producer, has the ops that the
addresses of the loads depend on, and the loops around: it runs as many slots ahead as there are, also into the next
tile. A channel is a set of rings, with mbarriers that tell that a slot is full (TMA has brought all bytes) or empty
(each warp group has read it). Each role carries the slot index and the phase through all loops. Loops that fetch blocks
of the same shapes share a channel.

A loop is specialised on request (`zg.range(…, warp_specialize=True)`), if it fetches only blocks for wgmma whose
addresses follow from scalars, and if only for loops are around it. All loops of a kernel that ask are specialised, or
none is: where one cannot be, or where there are too few warps or too little shared memory, a warning says why, and the
loops are pipelined like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import MAX_WARPS
from ziggurat.codemodel.op import BlockParameter, Body, Op, OpResult, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, rebuilt, transform
from ziggurat.codemodel.types import TensorType, i1, i64, void
from ziggurat.transforms.place.allocate import intervals_of, limit_of, place
from ziggurat.transforms.place.loop_plan import Copy, LoopPlan, planned
from ziggurat.transforms.place.obstacle import Obstacle, warn_of
from ziggurat.transforms.place.pipeline_loads import (
    Counter,
    counting_loop,
    fetch,
    rewritten,
    warn_of_loads,
    where_it_runs,
)
from ziggurat.transforms.place.pressure import REGISTERS_OF_SM
from ziggurat.transforms.place.queries import WARP_GROUP, constant
from ziggurat.transforms.place.tma import mbarrier_buffer
from ziggurat.transforms.simplify.effects import is_pure

PRODUCER_REGISTERS = 24  # A thread.
_MAX_REGISTERS = 240  # A thread, as setmaxnreg counts.
# Shared memory that is left for what `lower` allocates, beside the largest tensor that passes through.
_LOWERING_BYTES = 4096

Plans = dict[Value, LoopPlan]


def specialize(module: Op, num_stages: int) -> Op:
    """The GPU model with the loops that ask for it split into roles; a warning for each of them if they cannot be."""
    assert isinstance(module, gpu.Module)
    loops = [op for op in module.walk() if isinstance(op, scf.For) and op.warp_specialize]
    if not loops:
        return module
    func = next(op for op in module.walk() if isinstance(op, tt.Func))
    plans = _plans(module, func, loops, num_stages)
    sliced = _Slice(plans) if not isinstance(plans, Obstacle) else None
    obstacle = plans if sliced is None else sliced.collect()
    if isinstance(plans, Obstacle) or sliced is None or obstacle is not None:
        assert isinstance(obstacle, Obstacle)
        for loop in loops:
            warn_of("the loop is not specialised for warps", loop, obstacle)
        return module

    for plan in plans.values():
        warn_of_loads(plan)

    def split(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(op, tt.Func):
            return None
        body = _Roles(builder, op, plans, sliced, module.num_warps).body()
        return builder.add(rebuilt(op, operands, [body]), op.location)

    return transform(module, split, pass_name="specialize")


def _plans(module: gpu.Module, func: tt.Func, loops: Sequence[scf.For], num_stages: int) -> Plans | Obstacle:
    """The plan of each loop, or the obstacle that keeps one of them from being specialised."""
    if module.num_warps % WARP_GROUP or module.num_warps + WARP_GROUP > MAX_WARPS:
        numbers = ", ".join(map(str, range(WARP_GROUP, MAX_WARPS - WARP_GROUP + 1, WARP_GROUP)))
        return Obstacle(f"num_warps must be one of {numbers}; it is {module.num_warps}", loops[0])
    if len(func.body.blocks) != 1:
        return Obstacle("the kernel returns early", loops[0])
    uses = module.use_map()
    # Tensors that are stored, or converted, pass through shared memory while blocks are being fetched.
    passing = [op.value for op in module.walk() if isinstance(op, tt.DescriptorStore | gpu.ConvertLayout)]
    limit = limit_of(module.target) - _LOWERING_BYTES - max((_bytes(value) for value in passing), default=0)
    found: Plans = {}
    for loop in loops:
        stages = loop.num_stages if loop.num_stages is not None else num_stages
        plan = planned(loop, stages, uses, limit)
        if isinstance(plan, Obstacle):
            return plan
        other = next((copy for copy in plan.copies if not _is_for_wgmma(copy, loop)), None)
        if other is not None:
            return Obstacle("the load is not done by TMA for wgmma alone", other.load)
        found[loop.result] = plan
    copied = {copy.buffer.result for plan in found.values() for copy in plan.copies}
    limit -= place([interval for interval in intervals_of(module) if interval.op.result not in copied])
    # All channels live from the beginning of the kernel to its end.
    for most in range(max(plan.stages for plan in found.values()), 1, -1):
        fewer = {result: attrs.evolve(plan, stages=min(plan.stages, most)) for result, plan in found.items()}
        channels = {_shape_of(plan): plan for plan in fewer.values()}
        if sum(plan.stages * copy.shared.bytes for plan in channels.values() for copy in plan.copies) <= limit:
            return fewer
    return Obstacle("there is no shared memory for the channels of all loops", loops[0])


def _bytes(value: Value) -> int:
    numel, element = getattr(value.type, "numel", 0), getattr(value.type, "element", i64)
    return numel * getattr(element, "bytes", 8)


def _is_for_wgmma(copy: Copy, loop: scf.For) -> bool:
    readers = [user for user in copy.buffer.result.uses if user is not copy.store]
    return copy.by_tma and all(isinstance(user, gpu.Wgmma) and user.parent is loop.body.entry for user in readers)


class _Slice:
    """The ops and carried values on which the addresses of fetched blocks, and the loops around, depend."""

    def __init__(self, plans: Plans) -> None:
        self.plans = plans
        self.ops: set[Value] = set()
        self.around: dict[Value, list[int]] = {}  # The loops around, with the numbers of the carried values.

    def collect(self) -> Obstacle | None:
        """Collect everything; the obstacle where something does not follow from scalars by pure ops."""
        work: list[Value] = []
        for result, plan in self.plans.items():
            assert isinstance(result, OpResult) and isinstance(result.op, scf.For)
            loop = result.op
            owner = loop.parent_op
            while isinstance(owner, scf.For) and owner.result not in self.plans:
                self.around.setdefault(owner.result, [])
                work += owner.controls
                owner = owner.parent_op
            if not isinstance(owner, tt.Func):
                assert owner is not None
                kind = "a specialised loop" if isinstance(owner, scf.For) else "a branch (of an early return, too)"
                return Obstacle(f"it is inside of {'a while loop' if isinstance(owner, scf.While) else kind}", owner)
            work += (*loop.controls, *(loop.initial[number] for number in plan.carried))
            inside = loop.body.entry
            used = [value for op in plan.ahead for value in op.operands]
            used += [offset for copy in plan.copies for offset in copy.load.operands]
            used += [inside.terminator.operands[number] for number in plan.carried]
            work += [value for value in used if value.block is not inside]
        while work:
            sources = self._sources(work.pop())
            if isinstance(sources, Obstacle):
                return sources
            work += sources
        return None

    def _sources(self, value: Value) -> Sequence[Value] | Obstacle:
        """The operands of a value, unless they are known; an obstacle if the value cannot be computed twice."""
        if isinstance(value, BlockParameter):
            owner = value.block.parent.parent
            if isinstance(owner, tt.Func):
                return ()
            if not isinstance(owner, scf.For) or owner.result not in self.around:
                assert owner is not None
                return Obstacle("an address depends on a value that this op carries", owner)
            number = owner.body.parameters.index(value) - 1
            if number < 0 or number in self.around[owner.result]:
                return ()
            self.around[owner.result].append(number)
            return owner.initial[number], owner.body.entry.terminator.operands[number]
        assert isinstance(value, OpResult)
        op = value.op
        if value in self.ops:
            return ()
        # One warp computes it again, but a tensor is held by all warps that compute.
        if not is_pure(op) or op.bodies or isinstance(value.type, TensorType):
            return Obstacle("an address does not follow from scalars by arithmetic", op)
        self.ops.add(value)
        return op.operands


@attrs.frozen(eq=False)
class _Channel:
    """Rings, in the order of the copies, and for each group of copies its mbarriers."""

    stages: int
    rings: tuple[Value, ...]
    full: tuple[Value, ...]
    empty: tuple[Value, ...]


# For each channel: the slot index, and the phase.
Counters = list[tuple[Value, Value]]


class _Roles:
    """The writer of the function with its two roles."""

    def __init__(self, builder: Rewriter, func: tt.Func, plans: Plans, sliced: _Slice, num_warps: int) -> None:
        self.func = func
        self.plans = plans
        self.sliced = sliced
        self.num_warps = num_warps
        types = [parameter.type for parameter in func.body.parameters]
        self.outer = outer = builder.inside(types, func.body.yield_type, isolated=True)
        outer.transformers = (*builder.transformers, self._consumed)
        outer.location = func.location
        for old, new in zip(func.body.parameters, outer.parameters, strict=True):
            outer[old] = new
        self.channels: list[_Channel] = []
        self.channel_of: dict[Value, int] = {}
        known: dict[tuple[object, ...], int] = {}
        for result, plan in plans.items():
            key = _shape_of(plan)
            if key not in known:
                known[key] = len(self.channels)
                self.channels.append(self._channel(plan))
            self.channel_of[result] = known[key]
        self.counters: Counters = []

    def _channel(self, plan: LoopPlan) -> _Channel:
        outer, stages = self.outer, plan.stages
        rings: list[Value] = []
        for copy in plan.copies:
            type_ = attrs.evolve(copy.shared, count=stages)
            rings.append(outer.add(gpu.LocalAlloc(type_, alignment=copy.buffer.alignment), copy.buffer.location))
        full, empty = ([mbarrier_buffer(outer, stages) for _ in plan.groups()] for _ in range(2))
        for made, arrivals in ((full, 1), (empty, self.num_warps // WARP_GROUP)):
            for mbarrier in made:
                outer.add(gpu.MbarrierInit(mbarrier, arrivals=arrivals))
        return _Channel(stages, tuple(rings), tuple(full), tuple(empty))

    def body(self) -> Body:
        """The new body of the function."""
        outer = self.outer
        outer.add(gpu.Barrier())
        roles = [self._consumer(), self._producer()]
        warps, registers = (self.num_warps, WARP_GROUP), _registers(self.num_warps)
        outer.add(gpu.WarpSpecialize(roles, warps=warps, registers=registers), self.func.location)
        outer.add(tt.Return([]), self.func.location)
        return outer.finish()

    def _first_counters(self, builder: Builder) -> Counters:
        zero = constant(builder, 0)
        return [(zero, zero) for _ in self.channels]

    # The consumer.

    def _consumer(self) -> Body:
        inner = self.outer.inside([], void)
        self.counters = self._first_counters(inner)
        inner.rewrite_ops(self.func.body.entry.ops[:-1])
        inner.add(scf.Yield([]))
        return inner.finish()

    def _consumed(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(op, scf.For):
            return None
        if op.result in self.plans:
            return self._consuming(builder, op, operands)
        return self._consuming_around(builder, op, operands) if op.result in self.sliced.around else None

    def _consuming_around(self, builder: Rewriter, loop: scf.For, operands: tuple[Value, ...]) -> Value:
        """A loop around, which carries the counters."""
        count = len(loop.initial)
        initial = [*operands[3:], *_flat(self.counters)]
        inner, add = counting_loop(builder, loop, operands[:3], initial)
        self.counters = _paired(inner.parameters[count + 1 :])
        *ops, end = loop.body.entry.ops
        inner.rewrite_ops(ops)
        made = add([*(inner[value] for value in end.operands), *_flat(self.counters)])
        self.counters = _paired([builder.add(core.TupleLoad(made, at)) for at in range(count, len(initial))])
        return builder.add(core.TupleLoad(made, 0)) if count == 1 else made

    def _consuming(self, builder: Rewriter, loop: scf.For, operands: tuple[Value, ...]) -> Value:
        """A specialised loop, without the fetches of the producer."""
        plan, number = self.plans[loop.result], self.channel_of[loop.result]
        deferred, count = plan.deferred, len(loop.initial)
        initial = [*operands[3:], *self.counters[number]]

        def inside(builder: Rewriter) -> Sequence[Value]:
            made = self._consuming_loop(builder, loop, operands[:3], initial)
            values = [builder.add(core.TupleLoad(made, at)) for at in range(len(initial))]
            if deferred is not None:
                at = deferred.position
                values[at] = builder.add(gpu.WgmmaWait(values[at], 0), deferred.wait.location)
                before = Counter(builder, values[count], plan.stages).before()
                self._release_deferred(builder, plan, number, before, constant(builder, True, i1))
            return values

        if deferred is None:
            values = list(inside(builder))
        else:
            made = where_it_runs(builder, (operands[0], operands[1], plan.step), initial, inside)
            values = [builder.add(core.TupleLoad(made, at)) for at in range(len(initial))]
        self.counters[number] = values[count], values[count + 1]
        return values[0] if count == 1 else builder.add(core.MakeTuple(values[:count]))

    def _consuming_loop(
        self, builder: Rewriter, loop: scf.For, bounds: Sequence[Value], initial: Sequence[Value]
    ) -> Value:
        plan, number = self.plans[loop.result], self.channel_of[loop.result]
        channel, deferred = self.channels[number], plan.deferred
        inner, add = counting_loop(builder, loop, bounds, initial)
        slot, phase = inner.parameters[-2:]
        full = dict(zip(plan.groups(), channel.full, strict=True))
        released = _releases(loop, plan)
        counter, always = Counter(inner, slot, plan.stages), constant(inner, True, i1)
        for op in rewritten(inner, loop, plan, _rings(plan, channel), full, slot, phase):
            if deferred is not None and op is deferred.covered:
                later = inner.add(arith.CmpI(inner.parameters[0], inner[loop.start], predicate=arith.IntPredicate.NE))
                self._release_deferred(inner, plan, number, counter.before(), later)
            for group in released.get(op.result, ()):
                inner.add(gpu.MbarrierArrive(inner.add(gpu.LocalView(channel.empty[group], slot)), always))
        return add([*(inner[value] for value in loop.body.entry.terminator.operands), *counter.after(phase)])

    def _release_deferred(self, builder: Builder, plan: LoopPlan, number: int, slot: Value, condition: Value) -> None:
        """Release, where the condition holds, the slots that the wgmma of the iteration before has read."""
        for group, copies in enumerate(plan.groups().values()):
            if any(_is_deferred(copy, plan) for copy in copies):
                view = builder.add(gpu.LocalView(self.channels[number].empty[group], slot))
                builder.add(gpu.MbarrierArrive(view, condition))

    # The producer.

    def _producer(self) -> Body:
        inner = self.outer.inside([], void)
        inner.transformers = ()
        inner.location = self.func.location
        self._produce(inner, self.func.body.entry.ops, self._first_counters(inner))
        inner.add(scf.Yield([]))
        return inner.finish()

    def _produce(self, builder: Rewriter, ops: Sequence[Op], counters: Counters) -> Counters:
        """Write those of these ops that the producer needs; the counters after them."""
        for op in ops:
            if op.result in self.sliced.ops:
                made = rebuilt(op, [builder[value] for value in op.operands], ())
                builder[op.result] = builder.add(made, op.location)
            elif isinstance(op, scf.For) and op.result in self.plans:
                number = self.channel_of[op.result]
                counters = [*counters]
                counters[number] = self._fetching_loop(builder, op, counters[number])
            elif isinstance(op, scf.For) and op.result in self.sliced.around:
                counters = self._producing_around(builder, op, counters)
        return counters

    def _producing_around(self, builder: Rewriter, loop: scf.For, counters: Counters) -> Counters:
        numbers = self.sliced.around[loop.result]
        bounds = [builder[value] for value in loop.controls]
        initial = [*(builder[loop.initial[number]] for number in numbers), *_flat(counters)]
        inner, add = counting_loop(builder, loop, bounds, initial, numbers, {})
        after = self._produce(inner, loop.body.entry.ops, _paired(inner.parameters[len(numbers) + 1 :]))
        end = loop.body.entry.terminator.operands
        made = add([*(inner[end[number]] for number in numbers), *_flat(after)])
        return _paired([builder.add(core.TupleLoad(made, at)) for at in range(len(numbers), len(initial))])

    def _fetching_loop(self, builder: Rewriter, loop: scf.For, counters: tuple[Value, Value]) -> tuple[Value, Value]:
        """A specialised loop, of which only the fetches are left."""
        plan, channel = self.plans[loop.result], self.channels[self.channel_of[loop.result]]
        bounds = [builder[value] for value in loop.controls]
        initial = [*(builder[loop.initial[number]] for number in plan.carried), *counters]
        inner, add = counting_loop(builder, loop, bounds, initial, plan.carried, {})
        slot, phase = inner.parameters[-2:]
        for op in plan.ahead:
            inner[op.result] = inner.add(rebuilt(op, [inner[value] for value in op.operands], ()), op.location)
        counter, always = Counter(inner, slot, plan.stages), constant(inner, True, i1)
        other = inner.add(arith.XOrI(phase, counter.one))
        rings = _rings(plan, channel)
        for copies, full, empty in zip(plan.groups().values(), channel.full, channel.empty, strict=True):
            # Before a slot is filled for the first time, its mbarrier is in its first phase: the one before counts as
            # over.
            inner.add(gpu.MbarrierWait(inner.add(gpu.LocalView(empty, slot)), other))
            fetch(inner, copies, rings, inner.add(gpu.LocalView(full, slot)), slot, always, inner.__getitem__)
        end = loop.body.entry.terminator.operands
        made = add([*(inner[end[number]] for number in plan.carried), *counter.after(phase)])
        last = len(initial)
        return builder.add(core.TupleLoad(made, last - 2)), builder.add(core.TupleLoad(made, last - 1))


def _rings(plan: LoopPlan, channel: _Channel) -> dict[Value, Value]:
    """The ring for each buffer of a loop."""
    return {copy.buffer.result: ring for copy, ring in zip(plan.copies, channel.rings, strict=True)}


def _registers(num_warps: int) -> tuple[int, int]:
    """The registers a thread of the consumer and of the producer.

    One CTA has all registers of an SM; a CTA with one consuming warp group has half of them. A launch gives all threads
    the same number, a multiple of 8: one role takes the registers that the other gives back.
    """
    ctas = 2 if num_warps == WARP_GROUP else 1
    warps = num_warps + WARP_GROUP
    given = REGISTERS_OF_SM // ctas // (32 * warps) // 8 * 8
    left = given * warps - PRODUCER_REGISTERS * WARP_GROUP
    return min(_MAX_REGISTERS, left // num_warps // 8 * 8), PRODUCER_REGISTERS


def _shape_of(plan: LoopPlan) -> tuple[object, ...]:
    """A key that is equal for plans that can share a channel."""
    place = {copy.buffer.result: at for at, copy in enumerate(plan.copies)}
    groups = tuple(tuple(place[copy.buffer.result] for copy in copies) for copies in plan.groups().values())
    return plan.stages, groups, tuple(copy.buffer.type for copy in plan.copies)


def _is_deferred(copy: Copy, plan: LoopPlan) -> bool:
    wgmma = plan.deferred.wait.value if plan.deferred is not None else None
    return any(user.result is wgmma for user in copy.buffer.result.uses)


def _releases(loop: scf.For, plan: LoopPlan) -> dict[Value, list[int]]:
    """For ops of a loop's body after which slots have been read, the numbers of the groups.

    Such an op is the first wait for all wgmma after the last one that reads the slot.
    """
    found: dict[Value, list[int]] = {}
    ops = loop.body.entry.ops
    for number, copies in enumerate(plan.groups().values()):
        if any(_is_deferred(copy, plan) for copy in copies):
            continue
        readers = {user.result for copy in copies for user in copy.buffer.result.uses if user is not copy.store}
        last = max(at for at, op in enumerate(ops) if op.result in readers)
        over = next(op for op in ops[last:] if isinstance(op, gpu.WgmmaWait) and not op.pending)
        found.setdefault(over.result, []).append(number)
    return found


def _flat(counters: Counters) -> list[Value]:
    return [value for pair in counters for value in pair]


def _paired(values: Sequence[Value]) -> Counters:
    return list(zip(values[::2], values[1::2], strict=True))
