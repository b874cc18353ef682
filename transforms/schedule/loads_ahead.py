"""Loads of a loop without dots that asks for stages: they begin iterations before their values are used.

    scf.for … (%i, %sum, %p) @num_stages=3 {          %c = gpu.channel %ring;
        %a = tt.load %p;                              scf.for … (%i, %sum, %p, %q) {
        %s = arith.addf %sum %a;                          %more = gpu.stage @0 @order=1;
        %r = tt.addptr %p …;               becomes        %r = tt.addptr %q …;
        scf.yield %s %r; }                                %t = gpu.channel_acquire %c %more;
                                                          gpu.async_copy %q %ring[%t] %more;
                                                          gpu.channel_commit %c;
                                                          gpu.stage @2 @order=0;
                                                          %u = gpu.channel_wait %c;
                                                          %a = gpu.local_load %ring[%u];
                                                          gpu.channel_release %c;
                                                          gpu.stage @2 @order=2;
                                                          %s = arith.addf %sum %a; …
                                                          scf.yield %s … %r; }
                                                      gpu.channel_close %c;

With n stages the loop's own stage is n - 1, and a ring has as many slots: a step reads a slot before it fills it again.
A thread reads the elements that it has copied, so that copies need no barrier. Three kinds of loads are to registers,
which the loop carries: small tensors, tensors with fewer than 4 bytes of neighbours in memory, and numbers that other
addresses depend on.
Larger tensors that all programs load, such as weights, stay where they are: the L1 has them, which copies do not read.
TMA copies the blocks of descriptors.

A load whose address depends on another load begins some stages after that one; the stages are divided evenly. All
copies belong to one stage, so that their groups come in order.

Loads of a later iteration begin before stores of an earlier one through other arguments (`memory_order`).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import attrs

from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import BlockParameter, Op, OpResult, Value
from ziggurat.codemodel.transform import Rewriter
from ziggurat.codemodel.types import ScalarType, SharedType, TensorType, Type, i1
from ziggurat.transforms.analysis.obstacle import Obstacle
from ziggurat.transforms.analysis.queries import descriptor_of, layout_of, unpacked
from ziggurat.transforms.cost.pressure import value_registers
from ziggurat.transforms.gpu.swizzle import buffer_bases
from ziggurat.transforms.gpu.tma import buffer_for
from ziggurat.transforms.schedule.loop_plan import (
    CP_ASYNC_BYTES,
    DEPENDS,
    WRITES,
    Load,
    LoopPlan,
    ahead_of,
    bytes_at_once,
    consecutive,
    fill_of,
    is_zero_or_undefined,
    kept_in_place,
    places_of,
    step_ahead,
)
from ziggurat.transforms.schedule.pipeline_loads import begin_copy, load_where, rings_of
from ziggurat.transforms.schedule.schedule import carrying_loop
from ziggurat.transforms.simplify.effects import is_pure, may_trap

# Registers of a thread for values in flight: those of a load that are not copied to shared memory, and those of a loop.
# (For 8 registers and two stages on an H200, registers were faster by 1.3; for more of either, copies.)
IN_REGISTERS, _OF_A_LOOP = 8, 96
_BESIDE_DOTS, _CARRIED = 16, 192  # Of a loop with dots: registers for small loads, and those that the loop may carry.
_OF_CONSUMERS = "the producer of a loop with roles loads only what goes to dots, by TMA"
_KEPT = "an op in its loop writes to the same memory or orders accesses"
_DEPENDS = "its address depends on what an earlier iteration loads, or may not be computed ahead"
_MAX_STAGES = 32
_SHARED = "all programs load it, so that it is in the L1, which copies do not read"


@attrs.frozen(eq=False)
class LoadsAhead:
    """The loads of a loop that begin in earlier iterations.

    `loads` has the stage in which each begins, in program order; `own` is the loop's own stage. The loads in `rings`
    are copied to buffers of these types, aligned to these numbers of bytes. `carried` has the numbers of the carried
    values from which addresses are computed. `left` are the loads that stay where they are, and why. In a loop
    with dots, `staged` are loads that go through buffers of these types: `pipeline_loads` copies them ahead.
    """

    loop: scf.For
    loads: dict[Value, int]
    own: int
    rings: dict[Value, tuple[SharedType, int]]
    carried: tuple[int, ...]
    left: tuple[tuple[Load, Obstacle], ...]
    staged: dict[Value, tuple[SharedType, int]]

    @property
    def bytes(self) -> int:
        """The shared memory that the rings take."""
        rings = sum(type_.bytes * (self.own - self.loads[value]) for value, (type_, _) in self.rings.items())
        return rings + sum(type_.bytes * (self.own + 1) for type_, _ in self.staged.values())

    @property
    def moves(self) -> bool:
        """Whether any load begins in an earlier iteration."""
        return bool(self.loads or self.staged)

    @property
    def groups(self) -> list[list[Value]]:
        """The loads of each channel: those that threads copy, and those that TMA does."""
        by_tma = [value for value in self.rings if isinstance(_op(value), tt.DescriptorLoad)]
        return [group for group in ([value for value in self.rings if value not in by_tma], by_tma) if group]

    def _used(self, value: Value) -> Sequence[Value]:
        """The operands that a load needs when it begins: copies fill with zeros, and other values come later."""
        return places_of(_op(value)) if value in self.rings else _op(value).operands

    def write(self, builder: Rewriter) -> Value:
        """Add the annotated loop; the value that stands for the old one's result."""
        loop = self.loop
        parameters, yielded = loop.body.parameters[1:], loop.body.entry.terminator.operands

        def ring(value: Value) -> Value:
            type_, alignment = self.rings[value]
            slots = attrs.evolve(type_, count=self.own - self.loads[value])
            return builder.add(gpu.LocalAlloc(slots, alignment=alignment), _op(value).location)

        rings = [[ring(value) for value in group] for group in self.groups]
        channels = [builder.add(gpu.Channel(group)) for group in rings]

        def body(inner: Rewriter, ahead: Sequence[Value]) -> Sequence[Value]:
            following: list[Value] = []
            values: dict[Value, Value] = {}
            for stage in sorted({0, *self.loads.values()}):
                more = inner.add(gpu.Stage(stage, order=1))
                later = inner.scoped()
                for number, value in zip(self.carried, ahead, strict=True):
                    later[parameters[number]] = value
                for value, new in values.items():
                    later[value] = new
                begun = [value for value, other in self.loads.items() if other == stage]
                operands = [operand for value in begun for operand in self._used(value)]
                operands += [] if stage else [yielded[number] for number in self.carried]
                later.rewrite_ops(_computing(loop, operands, self.loads))
                for value, load in ((value, _op(value)) for value in begun):
                    if value not in self.rings and isinstance(load, tt.Load):
                        values[value] = load_where(later, load, more)
                if not stage:
                    following = [later[yielded[number]] for number in self.carried]
                for channel, group in zip(channels, self.groups, strict=True):
                    if self.loads[group[0]] == stage:
                        slot = later.add(gpu.ChannelAcquire(channel, more))
                        for value, buffer in zip(group, rings_of(channel), strict=True):
                            view = later.add(gpu.LocalView(buffer, slot))
                            load = _op(value)
                            width = load.width if isinstance(load, tt.Load) else 1
                            begin_copy(later, load, view, channel, more, width=width)
                        later.add(gpu.ChannelCommit(channel))
            inner.add(gpu.Stage(self.own, order=0))
            for channel, group in zip(channels, self.groups, strict=True):
                slot = inner.add(gpu.ChannelWait(channel))
                for value, buffer in zip(group, rings_of(channel), strict=True):
                    view = inner.add(gpu.LocalView(buffer, slot))
                    values[value] = inner.add(gpu.LocalLoad(view, value.type), _op(value).location)
                inner.add(gpu.ChannelRelease(channel))
            inner.add(gpu.Stage(self.own, order=2))
            for op in loop.body.entry.ops[:-1]:
                if op.result not in self.loads:
                    inner.rewrite(op)
                    continue
                value = values[op.result]
                if op.result in self.rings and isinstance(op, tt.Load) and not is_zero_or_undefined(op.other):
                    assert op.mask is not None and op.other is not None
                    value = inner.add(arith.Select(inner[op.mask], value, inner[op.other]), op.location)
                inner[op.result] = value
            return following

        count = len(loop.initial)
        initial = [builder[loop.initial[number]] for number in self.carried]
        result = carrying_loop(builder, loop, range(count), initial, body, loop.attributes)
        if channels:
            builder.add(gpu.ChannelClose(channels))
        return unpacked(builder, result, count + len(initial))[0] if count == 1 else result


def loads_ahead(
    loop: scf.For, stages: int, limit: int, dots: LoopPlan | Obstacle | None = None
) -> LoadsAhead | Obstacle:  # fmt: skip
    """The plan for a loop, with up to `stages` stages and `limit` bytes of buffers, or the obstacle.

    A loop with dots has the plan for their operands. Then the plan for its other loads may be to move none.
    """
    if isinstance(step := step_ahead(loop), Obstacle):
        return step
    copied = {copy.load for copy in dots.copies} if isinstance(dots, LoopPlan) else set[Load]()
    ops = [op for op in loop.body.entry.ops if isinstance(op, Load) and op not in copied]
    writers, obstacles = kept_in_place(loop, ops), dict[Value, Obstacle]()
    if is_role(loop):
        obstacles = {op.result: Obstacle(_OF_CONSUMERS, op) for op in ops}
    if dots is not None:
        obstacles |= {op.result: Obstacle(DEPENDS, op) for op in ops if isinstance(op, tt.DescriptorLoad)}
    elif writers and len(writers) == len(ops):
        return Obstacle(WRITES, next(iter(writers.values())))
    obstacles |= {load.result: Obstacle(_KEPT, op) for load, op in writers.items()}
    for count in range(min(stages, _MAX_STAGES), 1, -1):
        plan = _planned(loop, ops, obstacles, count, dots)
        if plan.bytes <= limit:
            return plan if plan.loads or dots is not None else plan.left[0][1]
    full = Obstacle("there is no shared memory for a second stage", loop)
    large = {op.result: full for op in ops if _registers(op.result.type) > IN_REGISTERS}
    return full if dots is None else _planned(loop, ops, obstacles | large, 2, dots)


def _planned(
    loop: scf.For,
    ops: Sequence[Load],
    obstacles: Mapping[Value, Obstacle],
    stages: int,
    dots: LoopPlan | Obstacle | None,
) -> LoadsAhead:
    """The plan with this number of stages, without the loads that have `obstacles`."""
    own, levels = stages - 1, _Levels(loop, obstacles)
    level_of = {op.result: level for op in ops if (level := levels.of(op.result)) is not None}
    refusals = [(op, obstacles.get(op.result) or Obstacle(_DEPENDS, op)) for op in ops if op.result not in level_of]
    deepest = min(max(level_of.values(), default=1), own) - 1
    why = f"it waits for another load, and {stages} stages are too few for both"
    refusals += [(_op(value), Obstacle(why, _op(value))) for value, level in level_of.items() if level - 1 > deepest]
    level_of = {value: level for value, level in level_of.items() if level - 1 <= deepest}
    each = own // (deepest + 1)
    feeding = {op.result for value in level_of for op in _computing(loop, _op(value).operands) if op.result in level_of}
    stage = {value: each * (level - 1 if value in feeding else deepest) for value, level in level_of.items()}
    carried_registers = sum(value_registers(value.type) for value in loop.initial)
    most = min(_BESIDE_DOTS, _CARRIED - carried_registers) if dots is not None else _OF_A_LOOP
    rings, registers = dict[Value, tuple[SharedType, int]](), 0
    staged = dict[Value, tuple[SharedType, int]]()
    by_threads = isinstance(dots, LoopPlan) and not any(copy.by_tma for copy in dots.copies)
    for value in [*feeding, *(value for value in level_of if value not in feeding)]:
        load = _op(value)
        if dots is not None and value not in feeding and _registers(value.type) <= IN_REGISTERS:
            stage[value] = own - 1  # The dots need registers as well.
        cost = _registers(value.type) * (own - stage[value])
        small = value in feeding or (cost <= IN_REGISTERS and isinstance(load, tt.Load))
        why = None if small or _is_own(load) else _SHARED
        ring = None if small or why else _ring_of(load)
        if why is None and ring is None and registers + cost > most:
            why = f"its values in flight would take {cost} registers of a thread"
        if why is not None and value in feeding:
            return _planned(loop, ops, {**obstacles, value: Obstacle(why, load)}, stages, dots)
        with_dots = ring is not None and by_threads and level_of[value] == 1 and is_zero_or_undefined(fill_of(load))
        if dots is not None and ring is not None and not with_dots and _is_replicated(load):
            why = "several threads load each of its elements, which no copy for the dots orders"
        if why is not None:
            refusals.append((load, Obstacle(why, load)))
            del stage[value]
        elif ring is not None and with_dots:
            staged[value] = ring
            del stage[value]
        elif ring is not None:
            rings[value] = ring
        else:
            registers += cost
    operands = [operand for value in stage for operand in _op(value).operands]
    begun: dict[Value, int] = {value: stage[value] for value in level_of if value in stage}
    return LoadsAhead(loop, begun, own, rings, _carried(loop, operands), tuple(refusals), staged)


def is_role(loop: scf.For) -> bool:
    """Whether a loop belongs to a role of warps: its producer loads ahead."""
    return any(isinstance(owner, gpu.WarpSpecialize) for owner in loop.path())


class _Levels:
    """The number of loads, one after the other, that it takes to compute the values of an iteration."""

    def __init__(self, loop: scf.For, blocked_values: Container[Value]) -> None:
        self.loop = loop
        self.obstacles = blocked_values
        self.levels: dict[Value, int | None] = {}

    def of(self, value: Value) -> int | None:
        """The number for a value; None for one that may not be computed in an earlier iteration."""
        block = self.loop.body.entry
        if value.block is not block:
            return 0
        if value not in self.levels:
            if not isinstance(value, OpResult):
                self.levels[value] = None if ahead_of(self.loop, [value]) is None else 0
            else:
                self.levels[value] = self._of_op(value.op)
        return self.levels[value]

    def _of_op(self, op: Op) -> int | None:
        is_load = isinstance(op, Load) and _may_move(op) and op.result not in self.obstacles
        if not is_load and (not is_pure(op) or op.bodies or may_trap(op)):
            return None
        before = [self.of(operand) for operand in op.operands]
        # A block that TMA copies comes to registers in the loop's own stage.
        copied = (isinstance(operand.op, tt.DescriptorLoad) for operand in op.operands)
        if any(level is None for level in before) or any(copied):
            return None
        return max((level for level in before if level is not None), default=0) + is_load


def _op(value: Value) -> Load:
    """The load whose result a value is."""
    assert isinstance(value.op, Load)
    return value.op


def _may_move(load: Load) -> bool:
    return isinstance(load, tt.DescriptorLoad) or not (load.volatile or load.cache is tt.CacheModifier.CV)


def _computing(loop: scf.For, values: Sequence[Value], available: Container[Value] = ()) -> list[Op]:
    """The ops of a loop's body, in order, from which values are computed; not those of the `available` values."""
    results: set[Value] = set()
    work = list(values)
    while work:
        value = work.pop()
        if value.block is loop.body.entry and value not in results and value not in available:
            results.add(value)
            work += value.op.operands if isinstance(value, OpResult) else ()
    return [op for op in loop.body.entry.ops if op.result in results]


def _carried(loop: scf.For, values: Sequence[Value]) -> tuple[int, ...]:
    """The numbers of the carried values from which values are computed, in this and in later iterations."""
    parameters, yielded = loop.body.parameters[1:], loop.body.entry.terminator.operands
    positions: set[int] = set()
    while True:
        from_them = [*values, *(yielded[number] for number in positions)]
        operands = {operand for op in _computing(loop, from_them) for operand in op.operands}.union(from_them)
        more = {number for number, parameter in enumerate(parameters) if parameter in operands}
        if more <= positions:
            return tuple(sorted(positions))
        positions |= more


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
    shared = SharedType(type_.shape, element, buffer_bases(layout, layout, layout.numel, element.bytes))
    return (shared, 16) if consecutive(layout, shared, load.width) == load.width else None


def _is_replicated(load: Load) -> bool:
    """Whether several threads load each element."""
    layout = layout_of(load.result.type)
    return not all((*layout.lanes, *layout.warps))


def _registers(type_: Type) -> int:
    return value_registers(type_, lambda element: True)


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
