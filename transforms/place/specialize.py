"""Warp specialisation: the warps of a program compute, while others have the copy engine fetch what is needed.

    scf.for … (%i, %acc) @warp_specialize=true {       %full, %empty = mbarriers for each buffer of %a, %b
        %a = tt.descriptor_load %0 …;                  gpu.warp_specialize @warps=[8, 4] @registers=[240, 24]
        %b = tt.descriptor_load %1 …;                      () -> {               () -> {
        …                                      becomes         scf.for … {           scf.for … {
        %d = gpu.wgmma …;                                          wait full[r]          wait empty[r]
        %e = gpu.wgmma_wait %d @0;                                 gpu.wgmma …           expect full[r]
        scf.yield %e;                                              arrive empty[…]       gpu.tma_load …
    }                                                          }                     }

The first role is the kernel without those loads. The second is what the addresses of the loads depend on, with the
loops around: it runs as far ahead as there are buffers, through the ends of tiles too. A channel is a set of buffers in
turn, with mbarriers that tell that one is full (the engine has brought all bytes) or empty (each warp group has read
it). Which buffer's turn it is, and the phase of its mbarriers, each role carries through all loops. Loops that bring
blocks of the same shapes share a channel.

A loop is specialised that asks for it (`zg.range(…, warp_specialize=True)`), where all that it fetches are blocks for
wgmma, whose addresses follow from scalars, and no more than other loops are around it. All loops of a kernel that ask
are, or none: where one cannot be, or where the warps or shared memory would not do, they are pipelined like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import BlockParameter, Body, Op, OpResult, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, rebuilt, transform
from ziggurat.codemodel.types import SharedType, TensorType, i1, i32, i64, void
from ziggurat.transforms.place.allocate import intervals_of, limit_of, place
from ziggurat.transforms.place.loop_plan import Copy, LoopPlan, planned
from ziggurat.transforms.place.pipeline_loads import rewritten, where_it_runs
from ziggurat.transforms.place.pressure import FILE
from ziggurat.transforms.place.tma import mbarrier_buffer
from ziggurat.transforms.simplify.effects import is_pure

_WARP_GROUP = 4
_WARPS = 32  # The most that a program can have.
_FETCHING = 24  # Registers of a thread that only fetches.
_MOST = 240  # The most that a thread can ask for, as setmaxnreg counts.
# Shared memory that is left to what the lowering needs, beside the largest tensor that goes through.
_KEPT_BYTES = 4096


def specialize(module: Op, num_stages: int) -> Op:
    """The GPU model with the loops that ask for it split into roles, where that can be."""
    assert isinstance(module, gpu.Module)
    loops = [op for op in module.walk() if isinstance(op, scf.For) and op.warp_specialize]
    if not loops or module.num_warps % _WARP_GROUP or module.num_warps + _WARP_GROUP > _WARPS:
        return module
    plans = _plans(module, loops, num_stages)
    if plans is None:
        return module
    func = next(op for op in module.walk() if isinstance(op, tt.Func))
    needed = _Needed(plans)
    if len(func.body.blocks) != 1 or not needed.found():
        return module

    def split(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(op, tt.Func):
            return None
        body = _Roles(builder, op, plans, needed, module.num_warps).body()
        return builder.add(rebuilt(op, operands, [body]), op.location)

    return transform(module, split, pass_name="specialize")


def _plans(module: gpu.Module, loops: Sequence[scf.For], num_stages: int) -> dict[Value, LoopPlan] | None:
    """How each loop is pipelined; None where one of them cannot be specialised."""
    uses = module.use_map()
    # What is stored, or changes its layout, goes through shared memory while blocks are already being fetched.
    passing = [op.value for op in module.walk() if isinstance(op, tt.DescriptorStore | gpu.ConvertLayout)]
    limit = limit_of(module.target) - _KEPT_BYTES - max((_bytes(value) for value in passing), default=0)
    found: dict[Value, LoopPlan] = {}
    for loop in loops:
        stages = loop.num_stages if loop.num_stages is not None else num_stages
        plan = planned(loop, stages, uses, limit)
        if plan is None or not all(_is_for_wgmma(copy, loop) for copy in plan.copies):
            return None
        found[loop.result] = plan
    copied = {copy.buffer.result for plan in found.values() for copy in plan.copies}
    limit -= place([interval for interval in intervals_of(module) if interval.op.result not in copied])
    # Channels are there from the beginning of the kernel to its end, all of them.
    for most in range(max(plan.stages for plan in found.values()), 1, -1):
        fewer = {result: attrs.evolve(plan, stages=min(plan.stages, most)) for result, plan in found.items()}
        channels = {_shape_of(plan): plan for plan in fewer.values()}
        if sum(plan.stages * _shared_bytes(plan.copies) for plan in channels.values()) <= limit:
            return fewer
    return None


def _shared_bytes(copies: Sequence[Copy]) -> int:
    return sum(copy.buffer.type.bytes for copy in copies if isinstance(copy.buffer.type, SharedType))


def _bytes(value: Value) -> int:
    numel, element = getattr(value.type, "numel", 0), getattr(value.type, "element", i64)
    return numel * getattr(element, "bytes", 8)


def _is_for_wgmma(copy: Copy, loop: scf.For) -> bool:
    readers = [user for user in copy.buffer.result.uses if user is not copy.store]
    return copy.by_engine and all(isinstance(user, gpu.Wgmma) and user.parent is loop.body.entry for user in readers)


class _Needed:
    """What the addresses of the fetched blocks, and the loops around, depend on: ops, and carried values of loops."""

    def __init__(self, plans: dict[Value, LoopPlan]) -> None:
        self.plans = plans
        self.ops: set[Value] = set()
        self.around: dict[Value, list[int]] = {}  # The loops around, with the numbers of the carried values.

    def found(self) -> bool:
        """Collect everything; False where something does not follow from scalars by pure ops."""
        work: list[Value] = []
        for result, plan in self.plans.items():
            assert isinstance(result, OpResult) and isinstance(result.op, scf.For)
            loop = result.op
            owner = loop.parent_op
            while isinstance(owner, scf.For) and owner.result not in self.plans:
                self.around.setdefault(owner.result, [])
                work += (owner.start, owner.stop, owner.step)
                owner = owner.parent_op
            if not isinstance(owner, tt.Func):
                return False
            work += (loop.start, loop.stop, loop.step, *(loop.initial[number] for number in plan.carried))
            inside = loop.body.entry
            taken = [value for op in plan.ahead for value in op.operands]
            taken += [offset for copy in plan.copies for offset in copy.load.operands]
            taken += [inside.terminator.operands[number] for number in plan.carried]
            work += [value for value in taken if value.block is not inside]
        while work:
            value = work.pop()
            more = self._behind(value)
            if more is None:
                return False
            work += more
        return True

    def _behind(self, value: Value) -> Sequence[Value] | None:
        """What a value is computed from, where that is not known yet; None where it cannot be computed twice."""
        if isinstance(value, BlockParameter):
            owner = value.block.parent.parent
            if isinstance(owner, tt.Func):
                return ()
            if not isinstance(owner, scf.For) or owner.result not in self.around:
                return None
            number = owner.body.parameters.index(value) - 1
            if number < 0 or number in self.around[owner.result]:
                return ()
            self.around[owner.result].append(number)
            return owner.initial[number], owner.body.entry.terminator.operands[number]
        assert isinstance(value, OpResult)
        op = value.op
        if value in self.ops:
            return ()
        # One warp computes it again: a tensor is held by all that compute.
        if not is_pure(op) or op.bodies or isinstance(value.type, TensorType):
            return None
        self.ops.add(value)
        return op.operands


@attrs.frozen(eq=False)
class _Channel:
    """Buffers in turn, in the order of the copies, and for each group of copies its mbarriers."""

    stages: int
    buffers: tuple[Value, ...]
    full: tuple[Value, ...]
    empty: tuple[Value, ...]


# Of each channel: which buffer's turn it is, and the phase.
Turns = list[tuple[Value, Value]]


class _Roles:
    """Writes the function with its two roles."""

    def __init__(
        self, builder: Rewriter, func: tt.Func, plans: dict[Value, LoopPlan], needed: _Needed, num_warps: int
    ) -> None:
        self.func = func
        self.plans = plans
        self.needed = needed
        self.num_warps = num_warps
        types = [parameter.type for parameter in func.body.parameters]
        start = Builder.root(types, func.body.yield_type)
        self.outer = Rewriter.over(start, (*builder.transformers, self._consumed), builder.pass_name)
        self.outer.location = func.location
        for old, new in zip(func.body.parameters, self.outer.parameters, strict=True):
            self.outer[old] = new
        self.channels: list[_Channel] = []
        self.channel_of: dict[Value, int] = {}
        known: dict[tuple[object, ...], int] = {}
        for result, plan in plans.items():
            key = _shape_of(plan)
            if key not in known:
                known[key] = len(self.channels)
                self.channels.append(self._channel(plan))
            self.channel_of[result] = known[key]
        self.turns: Turns = []

    def _channel(self, plan: LoopPlan) -> _Channel:
        outer, stages = self.outer, plan.stages
        buffers: list[Value] = []
        for copy in plan.copies:
            assert isinstance(copy.buffer.type, SharedType)
            type_ = attrs.evolve(copy.buffer.type, count=stages)
            buffers.append(outer.add(gpu.LocalAlloc(type_, alignment=copy.buffer.alignment), copy.buffer.location))
        full, empty = ([mbarrier_buffer(outer, stages) for _ in plan.groups()] for _ in range(2))
        for mbarriers, arrivals in ((full, 1), (empty, self.num_warps // _WARP_GROUP)):
            for mbarrier in mbarriers:
                outer.add(gpu.MbarrierInit(mbarrier, arrivals=arrivals))
        return _Channel(stages, tuple(buffers), tuple(full), tuple(empty))

    def body(self) -> Body:
        """The new body of the function."""
        outer = self.outer
        outer.add(gpu.Barrier())
        roles = [self._consumer(), self._producer()]
        computing, fetching = _registers(self.num_warps)
        outer.add(
            gpu.WarpSpecialize(roles, warps=(self.num_warps, _WARP_GROUP), registers=(computing, fetching)),
            self.func.location,
        )
        outer.add(tt.Return([]), self.func.location)
        return outer.finish()

    def _fresh_turns(self, builder: Builder) -> Turns:
        zero = _number(builder, 0)
        return [(zero, zero) for _ in self.channels]

    # The role that computes.

    def _consumer(self) -> Body:
        outer = self.outer
        inner = Rewriter.over(outer.nested([], void), outer.transformers, outer.pass_name)
        inner.mapping.parent = outer.mapping
        self.turns = self._fresh_turns(inner)
        inner.rewrite_ops(self.func.body.entry.ops[:-1])
        inner.add(scf.Yield([]))
        return inner.finish()

    def _consumed(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(op, scf.For):
            return None
        if op.result in self.plans:
            return self._consuming(builder, op, operands)
        return self._around(builder, op, operands) if op.result in self.needed.around else None

    def _around(self, builder: Rewriter, loop: scf.For, operands: tuple[Value, ...]) -> Value:
        """A loop around, which carries the turns."""
        index, count = loop.body.parameters[0].type, len(loop.initial)
        initial = [*operands[3:], *_flat(self.turns)]
        types = [value.type for value in initial]
        inner = Rewriter.over(
            builder.nested([index, *types], scf.packed(types)), builder.transformers, builder.pass_name, builder.caller
        )
        inner.mapping.parent = builder.mapping
        for old, new in zip(loop.body.parameters, inner.parameters[: count + 1], strict=True):
            inner[old] = new
        self.turns = _paired(inner.parameters[count + 1 :])
        *ops, end = loop.body.entry.ops
        inner.rewrite_ops(ops)
        inner.add(scf.Yield([*(inner[value] for value in end.operands), *_flat(self.turns)]), end.location)
        start, stop, step = operands[:3]
        made = builder.add(scf.For(start, stop, step, initial, inner.finish(), **dict(loop.attributes)), loop.location)
        self.turns = _paired([builder.add(core.TupleLoad(made, at)) for at in range(count, len(initial))])
        return builder.add(core.TupleLoad(made, 0)) if count == 1 else made

    def _consuming(self, builder: Rewriter, loop: scf.For, operands: tuple[Value, ...]) -> Value:
        """A specialised loop, without what it fetched."""
        plan, number = self.plans[loop.result], self.channel_of[loop.result]
        late, count = plan.late, len(loop.initial)
        start, stop, _, *initial = operands
        initial += self.turns[number]

        def inside(builder: Rewriter) -> Sequence[Value]:
            made = self._consuming_loop(builder, loop, operands[:3], initial)
            values = [builder.add(core.TupleLoad(made, at)) for at in range(len(initial))]
            if late is not None:
                values[late.position] = builder.add(gpu.WgmmaWait(values[late.position], 0), late.wait.location)
                always = builder.add(arith.ConstantOp(True, i1))
                self._release_late(builder, plan, number, _before(builder, values[count], plan.stages), always)
            return values

        if late is None:
            values = list(inside(builder))
        else:
            made = where_it_runs(builder, (start, stop, plan.step), initial, inside)
            values = [builder.add(core.TupleLoad(made, at)) for at in range(len(initial))]
        self.turns[number] = values[count], values[count + 1]
        return values[0] if count == 1 else builder.add(core.MakeTuple(values[:count]))

    def _consuming_loop(
        self, builder: Rewriter, loop: scf.For, bounds: Sequence[Value], initial: Sequence[Value]
    ) -> Value:
        plan, number, count = self.plans[loop.result], self.channel_of[loop.result], len(loop.initial)
        types = [value.type for value in initial]
        inner = Rewriter.over(
            builder.nested([loop.start.type, *types], scf.packed(types)),
            builder.transformers,
            builder.pass_name,
            builder.caller,
        )
        inner.mapping.parent = builder.mapping
        for old, new in zip(loop.body.parameters, inner.parameters[: count + 1], strict=True):
            inner[old] = new
        turn, phase = inner.parameters[count + 1 :]
        self._consume(inner, loop, plan, self.channels[number], (turn, phase))
        end = loop.body.entry.terminator
        following = _following(inner, turn, phase, plan.stages)
        inner.add(scf.Yield([*(inner[value] for value in end.operands), *following]), end.location)
        start, stop, step = bounds
        return builder.add(scf.For(start, stop, step, initial, inner.finish(), **dict(loop.attributes)), loop.location)

    def _consume(
        self, inner: Rewriter, loop: scf.For, plan: LoopPlan, channel: _Channel, turns: tuple[Value, Value]
    ) -> None:
        """The body of a specialised loop, but for its end."""
        turn, late = turns[0], plan.late
        groups = plan.groups()
        full = dict(zip(groups, channel.full, strict=True))
        released = _releases(loop, plan)
        buffers: dict[Value, Value] = {
            copy.buffer.result: new for copy, new in zip(plan.copies, channel.buffers, strict=True)
        }
        always = inner.add(arith.ConstantOp(True, i1))
        for op in rewritten(inner, loop, plan, buffers, full, turns):
            if late is not None and op is late.covered:
                later = inner.add(arith.CmpI(inner.parameters[0], inner[loop.start], predicate=arith.IntPredicate.NE))
                before = _before(inner, turn, plan.stages)
                self._release_late(inner, plan, self.channel_of[loop.result], before, later)
            for number in released.get(op.result, ()):
                inner.add(gpu.MbarrierArrive(inner.add(gpu.LocalView(channel.empty[number], turn)), always))

    def _release_late(self, builder: Builder, plan: LoopPlan, number: int, turn: Value, condition: Value) -> None:
        """Give back, where the condition holds, the buffers that the product of the iteration before has read."""
        for group, copies in enumerate(plan.groups().values()):
            if any(_is_late(copy, plan) for copy in copies):
                view = builder.add(gpu.LocalView(self.channels[number].empty[group], turn))
                builder.add(gpu.MbarrierArrive(view, condition))

    # The role that fetches.

    def _producer(self) -> Body:
        inner = self.outer.nested([], void)
        inner.location = self.func.location
        known: dict[Value, Value] = {old: self.outer[old] for old in self.func.body.parameters}
        self._fetch(inner, self.func.body.entry.ops, known, self._fresh_turns(inner))
        inner.add(scf.Yield([]))
        return inner.finish()

    def _fetch(self, builder: Builder, ops: Sequence[Op], known: dict[Value, Value], turns: Turns) -> Turns:
        """What of these ops the fetching role does; the turns after it."""
        for op in ops:
            if op.result in self.needed.ops:
                made = rebuilt(op, [known[value] for value in op.operands], ())
                known[op.result] = builder.add(made, op.location)
            elif isinstance(op, scf.For) and op.result in self.plans:
                number = self.channel_of[op.result]
                turns = [*turns]
                turns[number] = self._fetching(builder, op, known, turns[number])
            elif isinstance(op, scf.For) and op.result in self.needed.around:
                turns = self._fetching_around(builder, op, known, turns)
        return turns

    def _fetching_around(self, builder: Builder, loop: scf.For, known: dict[Value, Value], turns: Turns) -> Turns:
        numbers = self.needed.around[loop.result]
        initial = [*(known[loop.initial[number]] for number in numbers), *_flat(turns)]
        types = [value.type for value in initial]
        inner = builder.nested([loop.start.type, *types], scf.packed(types))
        index, *carried = inner.parameters
        inside = {**known, loop.body.parameters[0]: index}
        inside.update(zip((loop.body.parameters[number + 1] for number in numbers), carried, strict=False))
        after = self._fetch(inner, loop.body.entry.ops, inside, _paired(carried[len(numbers) :]))
        end = loop.body.entry.terminator.operands
        inner.add(scf.Yield([*(inside[end[number]] for number in numbers), *_flat(after)]))
        start, stop, step = (known[value] for value in loop.operands[:3])
        made = builder.add(scf.For(start, stop, step, initial, inner.finish()), loop.location)
        return _paired([builder.add(core.TupleLoad(made, at)) for at in range(len(numbers), len(initial))])

    def _fetching(
        self, builder: Builder, loop: scf.For, known: dict[Value, Value], turns: tuple[Value, Value]
    ) -> tuple[Value, Value]:
        """A specialised loop, of which only the fetching is left."""
        plan, channel = self.plans[loop.result], self.channels[self.channel_of[loop.result]]
        initial = [*(known[loop.initial[number]] for number in plan.carried), *turns]
        types = [value.type for value in initial]
        inner = builder.nested([loop.start.type, *types], scf.packed(types))
        index, *carried = inner.parameters
        turn, phase = carried[-2:]
        inside = {**known, loop.body.parameters[0]: index}
        inside.update(zip((loop.body.parameters[number + 1] for number in plan.carried), carried, strict=False))
        for op in plan.ahead:
            inside[op.result] = inner.add(rebuilt(op, [inside[value] for value in op.operands], ()), op.location)
        always = inner.add(arith.ConstantOp(True, i1))
        other = inner.add(arith.XOrI(phase, _number(inner, 1)))
        buffers = {copy.buffer.result: new for copy, new in zip(plan.copies, channel.buffers, strict=True)}
        for copies, full, empty in zip(plan.groups().values(), channel.full, channel.empty, strict=True):
            # Before a buffer was first filled, its mbarrier is in its first phase: the one before counts as over.
            inner.add(gpu.MbarrierWait(inner.add(gpu.LocalView(empty, turn)), other))
            mbarrier = inner.add(gpu.LocalView(full, turn))
            inner.add(gpu.MbarrierExpect(mbarrier, always, bytes=_shared_bytes(copies)))
            for copy in copies:
                assert isinstance(copy.load, tt.DescriptorLoad)
                view = inner.add(gpu.LocalView(buffers[copy.buffer.result], turn))
                descriptor, *offsets = (inside[value] for value in copy.load.operands)
                inner.add(gpu.TmaLoad(descriptor, view, mbarrier, always, offsets), copy.load.location)
        end = loop.body.entry.terminator.operands
        following = _following(inner, turn, phase, plan.stages)
        inner.add(scf.Yield([*(inside[end[number]] for number in plan.carried), *following]))
        start, stop, step = (known[value] for value in loop.operands[:3])
        made = builder.add(scf.For(start, stop, step, initial, inner.finish()), loop.location)
        last = len(initial)
        return builder.add(core.TupleLoad(made, last - 2)), builder.add(core.TupleLoad(made, last - 1))


def _registers(num_warps: int) -> tuple[int, int]:
    """Registers of a thread that computes, and of one that fetches: what a multiprocessor has for one program, or where
    a program has one computing warp group, for each of two.

    A launch gives all threads as many, in eights: what one role takes is what the other gives back of that.
    """
    programs = 2 if num_warps == _WARP_GROUP else 1
    warps = num_warps + _WARP_GROUP
    given = FILE // programs // (32 * warps) // 8 * 8
    left = given * warps - _FETCHING * _WARP_GROUP
    return min(_MOST, left // num_warps // 8 * 8), _FETCHING


def _shape_of(plan: LoopPlan) -> tuple[object, ...]:
    """Equal for plans that can share a channel."""
    place = {copy.buffer.result: at for at, copy in enumerate(plan.copies)}
    groups = tuple(tuple(place[copy.buffer.result] for copy in copies) for copies in plan.groups().values())
    return plan.stages, groups, tuple(copy.buffer.type for copy in plan.copies)


def _is_late(copy: Copy, plan: LoopPlan) -> bool:
    product = plan.late.wait.value if plan.late is not None else None
    return any(user.result is product for user in copy.buffer.result.uses)


def _releases(loop: scf.For, plan: LoopPlan) -> dict[Value, list[int]]:
    """For the ops of a loop's body behind which buffers have been read: the numbers of their groups.

    That is the first wait for all products behind the last one that reads them.
    """
    found: dict[Value, list[int]] = {}
    ops = loop.body.entry.ops
    for number, copies in enumerate(plan.groups().values()):
        if any(_is_late(copy, plan) for copy in copies):
            continue
        readers = {user.result for copy in copies for user in copy.buffer.result.uses if user is not copy.store}
        last = max(at for at, op in enumerate(ops) if op.result in readers)
        over = next(op for op in ops[last:] if isinstance(op, gpu.WgmmaWait) and not op.pending)
        found.setdefault(over.result, []).append(number)
    return found


def _number(builder: Builder, value: int) -> Value:
    return builder.add(arith.ConstantOp(value, i32))


def _before(builder: Builder, turn: Value, stages: int) -> Value:
    """The turn before this one."""
    first = builder.add(arith.CmpI(turn, _number(builder, 0), arith.IntPredicate.EQ))
    less = builder.add(arith.SubI(turn, _number(builder, 1)))
    return builder.add(arith.Select(first, _number(builder, stages - 1), less))


def _following(builder: Builder, turn: Value, phase: Value, stages: int) -> tuple[Value, Value]:
    """The turn and the phase after these."""
    last = builder.add(arith.CmpI(turn, _number(builder, stages - 1), arith.IntPredicate.EQ))
    zero, one = _number(builder, 0), _number(builder, 1)
    following = builder.add(arith.Select(last, zero, builder.add(arith.AddI(turn, one))))
    return following, builder.add(arith.XOrI(phase, builder.add(arith.Select(last, one, zero))))


def _flat(turns: Turns) -> list[Value]:
    return [value for pair in turns for value in pair]


def _paired(values: Sequence[Value]) -> Turns:
    return list(zip(values[::2], values[1::2], strict=True))
