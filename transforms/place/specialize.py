"""Warp specialisation: the warps of a CTA compute, while one more warp group has TMA fetch the operands.

    scf.for … (%i, %acc) @warp_specialize=true {       %c = gpu.channel %a %b
        %a = tt.descriptor_load %0 …;                  gpu.warp_specialize @warps=[8, 4] @registers=[240, 24]
        %b = tt.descriptor_load %1 …;                      () -> {                     () -> {
        …                                      becomes         scf.for … {                 scf.for … {
        %d = gpu.wgmma …;                                          gpu.channel_wait %c         gpu.channel_acquire %c
        %e = gpu.wgmma_wait %d @0;                                 gpu.wgmma …                 gpu.tma_load …
        scf.yield %e;                                              gpu.channel_release %c      gpu.channel_commit %c
    }                                                          }                           }

The first role, the consumer, is the kernel without those loads. The second, the producer, has the ops that the
addresses of the loads depend on, and the loops around: it runs as many slots ahead as there are, also into the next
tile. A channel connects the two. Loops that fetch blocks of the same shapes share their channels.

A loop is specialised on request (`zg.range(…, warp_specialize=True)`), if it fetches only blocks for wgmma whose
addresses follow from scalars, and if only for loops are around it. All loops of a kernel that ask are specialised, or
none is. If one cannot be, or if there are too few warps or too little shared memory, a warning says why, and the loops
are pipelined like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import MAX_WARPS
from ziggurat.codemodel.gpu.scope import WARP_GROUP
from ziggurat.codemodel.gpu.targets import REGISTERS_OF_SM, TARGETS
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, rebuilt, transform
from ziggurat.codemodel.types import ScalarType, TensorType, i1, void
from ziggurat.transforms.place.allocate import Interval, intervals_of, place
from ziggurat.transforms.place.components import component_types
from ziggurat.transforms.place.divide import Part, parts_of, whole
from ziggurat.transforms.place.flow import read_in_flight
from ziggurat.transforms.place.loop_plan import LOOP_REGISTERS, Copy, LoopPlan, computed_from, deferred, planned
from ziggurat.transforms.place.obstacle import Obstacle, warn_of
from ziggurat.transforms.place.pipeline_loads import StagedLoop, new_channels, warn_of_loads
from ziggurat.transforms.place.pressure import value_registers
from ziggurat.transforms.place.queries import constant, tensor_of
from ziggurat.transforms.place.schedule import carrying_loop

PRODUCER_REGISTERS = 24  # A thread.
_MAX_REGISTERS = 240  # A thread, as setmaxnreg counts.
# Shared memory that is left for what `lower` allocates, beside the largest tensor that passes through.
_LOWERING_BYTES = 4096

Plans = dict[Value, LoopPlan]


def specialize(module: gpu.Module, num_stages: int | None, every: bool = False) -> Op:
    """The GPU model with the loops that ask for it split into roles; a warning for each of them if they cannot be.

    With `every`, all loops of wgmma are split if they can be, where none asks for it.
    """
    asked = [op for op in module.walk() if isinstance(op, scf.For) and op.warp_specialize]
    loops = asked or (_loops_of_wgmma(module) if every else [])
    if not loops:
        return module
    (func,) = module.functions().values()
    assert isinstance(func, tt.Func)
    found = _planned(module, func, loops, num_stages, parts_of(module) if asked else [whole(module)])
    if isinstance(found, Obstacle):
        found = _planned(module, func, loops, num_stages, [whole(module)])
    if isinstance(found, Obstacle):
        for loop in asked:
            warn_of("the loop is not specialised for warps", loop, found)
        return module
    split = found
    for plan in split.sliced.plans.values() if asked else ():
        warn_of_loads(plan)

    def write(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, gpu.Module):
            body = builder.rewrite_body(op.body, isolated=True)
            return builder.add(op.evolve(num_warps=sum(split.warps), body=body), op.location)
        if not isinstance(op, tt.Func):
            return None
        body = _Roles(builder, op, split).body()
        return builder.add(rebuilt(op, operands, [body]), op.location)

    return transform(module, write, pass_name="specialize")


def why_no_roles(module: gpu.Module, num_stages: int | None) -> Obstacle | None:
    """The obstacle to splitting the loops of wgmma of a model before `specialize`; None where there is none."""
    (func,), loops = module.functions().values(), _loops_of_wgmma(module)
    assert isinstance(func, tt.Func)
    found = _planned(module, func, loops, num_stages, [whole(module)]) if loops else None
    return found if isinstance(found, Obstacle) else None


def _loops_of_wgmma(module: gpu.Module) -> list[scf.For]:
    """The loops whose bodies have a wgmma."""
    loops = (op for op in module.walk() if isinstance(op, scf.For))
    return [loop for loop in loops if any(isinstance(op, gpu.Wgmma) for op in loop.body.entry.ops)]


@attrs.frozen(eq=False)
class _Split:
    """A kernel as roles: the producer's slice, and the plans for the loops of the part of each consumer."""

    sliced: _Slice
    parts: Sequence[tuple[Part, Plans]]
    warps: tuple[int, ...]
    registers: tuple[int, ...]

    def readers(self, plan: LoopPlan) -> tuple[tuple[int, ...], ...]:
        """For each channel of a loop, the numbers of the parts that read it."""
        read = [
            {part.origin[copy.buffer.result] for own in plans.values() for copy in own.copies}
            for part, plans in self.parts
        ]
        return tuple(
            tuple(at for at, buffers in enumerate(read) if any(copy.buffer.result in buffers for copy in copies))
            for copies in plan.channels()
        )


def _planned(
    module: gpu.Module, func: tt.Func, loops: Sequence[scf.For], num_stages: int | None, parts: Sequence[Part]
) -> _Split | Obstacle:
    """The plans of all loops, with a consumer for each part, or the obstacle that keeps one from being specialised."""
    consumers = len(parts) * module.num_warps
    if module.num_warps % WARP_GROUP or consumers + WARP_GROUP > MAX_WARPS:
        numbers = ", ".join(map(str, range(WARP_GROUP, MAX_WARPS - WARP_GROUP + 1, WARP_GROUP)))
        return Obstacle(f"num_warps must be one of {numbers}; it is {consumers}", loops[0])
    if len(func.body.blocks) != 1:
        return Obstacle("the kernel returns early", loops[0])
    limit = TARGETS[module.target].max_shared - _LOWERING_BYTES
    found: Plans = {}
    for loop in loops:
        plan = planned(loop, loop.num_stages if loop.num_stages is not None else num_stages, limit)
        if isinstance(plan, Obstacle):
            return plan
        other = next((copy for copy in plan.copies if not _is_for_wgmma(copy)), None)
        if other is not None:
            return Obstacle("the load is not done by TMA for wgmma alone", other.load)
        found[loop.result] = plan
    copied = {copy.buffer.result for plan in found.values() for copy in plan.copies}
    for part in parts:
        left = [one for one in intervals_of(part.module) if part.origin[one.op.result] not in copied]
        limit -= _other_bytes(part.module, left)
    # All channels live from the beginning of the kernel to its end.
    for most in range(max(plan.stages for plan in found.values()), 1, -1):
        fewer = {result: attrs.evolve(plan, stages=min(plan.stages, most)) for result, plan in found.items()}
        shapes = {_shape_of(plan): plan for plan in fewer.values()}
        if sum(plan.stages * copy.shared.bytes for plan in shapes.values() for copy in plan.copies) <= limit:
            break
    else:
        return Obstacle("there is no shared memory for the channels of all loops", loops[0])
    sliced, most = _slice(fewer), _registers(consumers)
    own = [_plans_of(part, fewer, most) for part in parts]
    if isinstance(sliced, Obstacle):
        return sliced
    if None in own:
        return Obstacle("the parts of the kernel read different loads of a loop", loops[0])
    plans = [(part, plans) for part, plans in zip(parts, own, strict=True) if plans is not None]
    for loop in (plan.loop for _, plans_of_part in plans for plan in plans_of_part.values()):
        carried = sum(map(value_registers, component_types(loop.result.type)))
        if len(parts) > 1 and carried + LOOP_REGISTERS > most:
            return Obstacle(f"its consumers have {most} registers a thread, and it carries {carried}", loop)
    count = len(parts)
    warps, registers = (*[module.num_warps] * count, WARP_GROUP), (*[most] * count, PRODUCER_REGISTERS)
    return _Split(sliced, plans, warps, registers)


def _plans_of(part: Part, kernel: Plans, registers: int) -> Plans | None:
    """The plans for the loops of a part, which read some of the loads of the whole kernel's; None if they do not."""
    found: Plans = {}
    for loop in (op for op in part.module.walk() if isinstance(op, scf.For) and part.origin[op.result] in kernel):
        of_all = kernel[part.origin[loop.result]]
        plan = planned(loop, of_all.stages, 1 << 30)
        buffers = {copy.buffer.result for copy in of_all.copies}
        if isinstance(plan, Obstacle) or not buffers.issuperset(part.origin[one.buffer.result] for one in plan.copies):
            return None
        plan = attrs.evolve(plan, stages=of_all.stages)
        found[loop.result] = attrs.evolve(plan, deferred=deferred(plan, registers))
    return found if len(found) == len(kernel) else None


def _other_bytes(module: gpu.Module, intervals: Sequence[Interval]) -> int:
    """The bytes of shared memory for these buffers, and for tensors that pass through it while blocks are fetched."""
    most = place(intervals)
    for at, op in enumerate(module.walk()):
        if isinstance(op, tt.DescriptorStore | tt.DescriptorReduce | gpu.ConvertLayout):
            type_ = tensor_of(op.value)
            size = type_.numel * (type_.element.bytes if isinstance(type_.element, ScalarType) else 8)
            most = max(most, size + sum(one.size for one in intervals if one.start <= at <= one.end))
    return most


def _is_for_wgmma(copy: Copy) -> bool:
    return copy.by_tma and all(copy.buffer.result in read_in_flight(user) for user in copy.readers)


@attrs.frozen(eq=False)
class _Slice:
    """The ops and carried values on which the addresses of fetched blocks, and the loops around, depend.

    `around` has the results of the loops, with the numbers of the carried values.
    """

    plans: Plans
    ops: set[Value]
    around: dict[Value, list[int]]


def _slice(plans: Plans) -> _Slice | Obstacle:
    """The slice for the producer; the obstacle where something does not follow from scalars by pure ops."""
    wanted: list[Value] = []
    around: dict[Value, list[int]] = {}
    for plan in plans.values():
        owner: Op | None = plan.loop
        while isinstance(owner, scf.For) and (owner is plan.loop or owner.result not in plans):
            around.setdefault(owner.result, [])
            wanted += owner.controls
            owner = owner.parent_op
        if not isinstance(owner, tt.Func):
            assert owner is not None
            kind = "a specialised loop" if isinstance(owner, scf.For) else "a branch (of an early return, too)"
            return Obstacle(f"it is inside of {'a while loop' if isinstance(owner, scf.While) else kind}", owner)
        wanted += [value for copy in plan.copies for value in copy.load.operands]
    # One warp computes the slice again, but a tensor is held by all warps that compute.
    ops = computed_from(wanted, around, lambda op: not isinstance(op.result.type, TensorType))
    return ops if isinstance(ops, Obstacle) else _Slice(plans, ops, around)


class _Roles:
    """The writer of the function with its roles."""

    def __init__(self, builder: Rewriter, func: tt.Func, split: _Split) -> None:
        self.func, self.split, self.sliced = func, split, split.sliced
        types = [parameter.type for parameter in func.body.parameters]
        self.outer = outer = builder.inside(types, func.body.yield_type, isolated=True)
        outer.transformers = (*builder.transformers, self._consumed)
        outer.location = func.location
        for body in (func.body, *(_body_of(part) for part, _ in split.parts)):
            for old, new in zip(body.parameters, outer.parameters, strict=True):
                outer[old] = new
        channels: dict[object, Sequence[Value]] = {}
        self.fills: dict[Value, StagedLoop] = {}
        for loop, plan in self.sliced.plans.items():
            key = _shape_of(plan), split.readers(plan)
            if key not in channels:
                channels[key] = new_channels(outer, plan)
            self.fills[loop] = StagedLoop(plan, channels[key])
        self.writers = {
            loop: self.fills[part.origin[loop]].of_part(plan, part.origin)
            for part, plans in split.parts
            for loop, plan in plans.items()
        }

    def body(self) -> Body:
        """The new body of the function."""
        outer, split = self.outer, self.split
        roles = [self._role(Rewriter.rewrite_ops, _body_of(part)) for part, _ in split.parts]
        barriers = (*range(1, len(roles) + 1), 0)
        roles.append(self._role(self._produce, self.func.body))
        outer.add(gpu.WarpSpecialize(roles, split.warps, split.registers, barriers), self.func.location)
        outer.add(tt.Return([]), self.func.location)
        return outer.finish()

    def _role(self, write: Callable[[Rewriter, Sequence[Op]], None], body: Body) -> Body:
        inner = self.outer.inside([], void)
        inner.location = self.func.location
        write(inner, body.entry.ops[:-1])
        inner.add(scf.Yield([]))
        return inner.finish()

    def _consumed(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        """A specialised loop, without the fetches of the producer."""
        if not isinstance(op, scf.For) or op.result not in self.writers:
            return None
        return carrying_loop(builder, op, range(len(op.initial)), (), self.writers[op.result].compute, op.attributes)

    def _produce(self, builder: Rewriter, ops: Sequence[Op]) -> None:
        """Write those of these ops that the producer needs."""
        for op in ops:
            if op.result in self.sliced.ops:
                builder.rewrite(op)
            elif isinstance(op, scf.For) and op.result in self.sliced.around:
                self._loop(builder, op)

    def _loop(self, builder: Rewriter, loop: scf.For) -> None:
        """A loop of the producer, which fills slots if it is specialised."""

        def body(inner: Rewriter, _: Sequence[Value]) -> Sequence[Value]:
            self._produce(inner, loop.body.entry.ops[:-1])
            if loop.result in self.fills:
                self.fills[loop.result].fill(inner, constant(inner, True, i1))
            return ()

        carrying_loop(builder, loop, sorted(self.sliced.around[loop.result]), (), body, {})


def _body_of(part: Part) -> Body:
    """The body of the function of a part."""
    (func,) = part.module.functions().values()
    return func.bodies[0]


def _registers(consumers: int) -> int:
    """The registers a thread of so many consuming warps, beside a producer.

    One CTA has all registers of an SM; a CTA with one consuming warp group has half of them. A launch gives all threads
    the same number, a multiple of 8: one role takes the registers that the other gives back.
    """
    ctas = 2 if consumers == WARP_GROUP else 1
    warps = consumers + WARP_GROUP
    given = REGISTERS_OF_SM // ctas // (32 * warps) // 8 * 8
    left = given * warps - PRODUCER_REGISTERS * WARP_GROUP
    return min(_MAX_REGISTERS, left // consumers // 8 * 8)


def _shape_of(plan: LoopPlan) -> tuple[object, ...]:
    """A key that is equal for plans that can share channels."""
    return plan.stages, tuple(tuple(copy.buffer.type for copy in copies) for copies in plan.channels())
