"""Warp specialisation: warps of a CTA compute, while one more warp group has TMA fetch the operands.

    scf.for … (%i, %acc) @warp_specialize=true {       %c = gpu.channel %a %b
        %a = tt.descriptor_load %0 …;                  gpu.warp_specialize @warps=[8, 4] @registers=[240, 24] …
        %b = tt.descriptor_load %1 …;                      () -> {                     () -> {
        …                                      becomes         scf.for … {                 scf.for … {
        %d = gpu.wgmma …;                                          gpu.channel_wait %c         gpu.channel_acquire %c
        %e = gpu.wgmma_wait %d @0;                                 gpu.wgmma …                 gpu.tma_load …
        scf.yield %e;                                              gpu.channel_release %c      gpu.channel_commit %c
    }                                                          }                           }

Each role is a part of the kernel (`divide`): some ops, and all that they need. The first role, the consumer, is the
kernel without those loads. A kernel whose dots no store needs together has a consumer for each of them. The last role,
the producer, is the part that the loads need: their addresses, and the loops around. It runs as many slots ahead as
there are, also into the next tile. Channels connect it with the consumers. Loops that fetch blocks of the same shapes
share their channels. Blocks that a loop around loads for them, such as the queries of each tile in attention, have
channels of one slot.

A loop is specialised on request (`zg.range(…, warp_specialize=True)`), if it fetches only blocks for wgmma whose
addresses follow from scalars, and if only for loops are around it. All loops of a kernel that ask are specialised, or
none is. If one cannot be, or if there are too few warps, too little shared memory, or fewer registers than a loop
carries, a warning says why, and the loops are pipelined like any other. Loops that do not ask get no roles either if
only a thread without roles has the registers for another accumulator beside.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from itertools import product

import attrs

from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.asynchronous import ResultInFlight
from ziggurat.codemodel.gpu.options import MAX_REGISTERS, MAX_WARPS
from ziggurat.codemodel.gpu.scope import ROLE_REGISTERS, WARP_GROUP
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.op import Body, Op, OpResult, Value
from ziggurat.codemodel.traits import SymbolTable, Terminator
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, rebuilt, transform
from ziggurat.codemodel.types import TensorType, i1, void
from ziggurat.transforms.analysis.intervals import intervals_of, place
from ziggurat.transforms.analysis.memory_flow import last_of, read_in_flight
from ziggurat.transforms.analysis.memory_order import MemoryOrder
from ziggurat.transforms.analysis.obstacle import Obstacle, warn_of
from ziggurat.transforms.analysis.queries import bytes_of, constant, is_persistent
from ziggurat.transforms.cost.budget import BESIDE_OPERANDS, BESIDE_ROLES, CTAS, registers_of_thread
from ziggurat.transforms.cost.pressure import loop_registers
from ziggurat.transforms.schedule.copies import StagedLoop, begin_copy, new_channels, parts_of_load, rings_of
from ziggurat.transforms.schedule.divide import KernelPart, part_for, parts_of, whole
from ziggurat.transforms.schedule.dots_ahead import deferred, operands_ahead
from ziggurat.transforms.schedule.loop_plan import Copy, LoopPlan, copy_of
from ziggurat.transforms.schedule.schedule import carrying_loop
from ziggurat.transforms.simplify.effects import is_pure

PRODUCER_REGISTERS = ROLE_REGISTERS.start  # A thread.

Plans = dict[Value, LoopPlan]


def specialize(module: gpu.Module, num_stages: int | None, every: bool = False, maxnreg: int | None = None) -> Op:
    """The GPU model with the loops that ask for it split into roles; a warning for each of them if they cannot be.

    With `every`, or if CTAs take programs in turn (`persist`), all loops of wgmma are split if they can be, where none
    asks for it. `maxnreg` are the registers that each thread of a CTA brings along, before the roles trade them.
    """
    (func,) = module.functions().values()
    assert isinstance(func, tt.Func)
    annotated = [op for op in module.walk() if isinstance(op, scf.For) and op.warp_specialize]
    loops = annotated or (_loops_of_wgmma(module) if every or is_persistent(func) else [])
    if not loops:
        return module
    parts = parts_of(module)
    plans = parts if isinstance(parts, Obstacle) else _planned(module, func, loops, num_stages, parts, maxnreg)
    if isinstance(plans, Obstacle) and (isinstance(parts, Obstacle) or len(parts) > 1):
        why, plans = plans, _planned(module, func, loops, num_stages, [whole(module)], maxnreg)
        if annotated and not isinstance(plans, Obstacle):
            warn_of("the dots of the loop are not divided among consumers", annotated[0], why)
    if isinstance(plans, Obstacle):
        for loop in annotated:
            warn_of("the loop is not specialised for warps", loop, plans)
        if not annotated and func.num_ctas > 1:
            warn_of("each CTA of a cluster loads all blocks of the loop, without roles", loops[0], plans)
        return module
    split = plans

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
    plans = _planned(module, func, loops, num_stages, [whole(module)]) if loops else None
    return plans if isinstance(plans, Obstacle) else None


def _loops_of_wgmma(module: gpu.Module) -> list[scf.For]:
    """The loops whose bodies have a wgmma."""
    loops = (op for op in module.walk() if isinstance(op, scf.For))
    return [loop for loop in loops if any(isinstance(op, ResultInFlight) for op in loop.body.entry.ops)]


@attrs.frozen(eq=False)
class _Consumer:
    """A part of a kernel that is a role, the plans for its loops, and the blocks that loops around load for these."""

    part: KernelPart
    plans: Plans
    once: Sequence[Copy]


@attrs.frozen(eq=False)
class _Split:
    """A kernel as roles: a producer and consumers. `plans` are those for the loops of the whole kernel. `once` has the
    blocks that loops around these load, by their stores."""

    plans: Plans
    once: Mapping[Value, Copy]
    producer: KernelPart
    consumers: Sequence[_Consumer]
    warps: tuple[int, ...]
    registers: tuple[int, ...]

    def readers(self, plan: LoopPlan) -> tuple[tuple[int, ...], ...]:
        """For each channel of a loop, the numbers of the consumers that read it."""
        read = [
            {consumer.part.origin[copy.buffer.result] for own in consumer.plans.values() for copy in own.copies}
            for consumer in self.consumers
        ]
        return tuple(
            tuple(at for at, buffers in enumerate(read) if any(copy.buffer.result in buffers for copy in copies))
            for copies in plan.channels()
        )


def _planned(
    module: gpu.Module, func: tt.Func, loops: Sequence[scf.For], num_stages: int | None, parts: Sequence[KernelPart],
    maxnreg: int | None = None,
) -> _Split | Obstacle:  # fmt: skip
    """The roles, with a consumer for each part, or the obstacle that keeps a loop from being specialised."""
    if not TARGETS[module.target].has_roles:
        able = ", ".join(name for name, target in TARGETS.items() if target.has_roles)
        return Obstacle(f"{module.target} is not a target whose wgmma reads what TMA has loaded: {able}", loops[0])
    warps = len(parts) * module.num_warps
    if module.num_warps % WARP_GROUP or module.num_warps + WARP_GROUP > MAX_WARPS:
        numbers = ", ".join(map(str, range(WARP_GROUP, MAX_WARPS - WARP_GROUP + 1, WARP_GROUP)))
        return Obstacle(f"num_warps must be one of {numbers}; it is {module.num_warps}", loops[0])
    if warps + WARP_GROUP > MAX_WARPS:
        return Obstacle(f"{len(parts)} times {module.num_warps} warps are more than a CTA can have", loops[0])
    if len(func.body.blocks) != 1:
        return Obstacle("the kernel returns early", loops[0])
    limit = TARGETS[module.target].max_shared - BESIDE_ROLES
    plans: Plans = {}
    for loop in loops:
        stages = loop.num_stages if loop.num_stages is not None else num_stages
        plan = operands_ahead(loop, stages, limit)
        if isinstance(plan, Obstacle):
            return plan
        other = next((copy for copy in plan.copies if not _is_for_wgmma(copy)), None)
        if other is not None:
            return Obstacle("the load is not done by TMA for wgmma alone", other.load)
        plans[loop.result] = plan
    # All channels live from the beginning of the kernel to its end.
    for most, once in product(range(max(plan.stages for plan in plans.values()), 1, -1), (_once(loops), ())):
        fewer = {result: plan.with_stages(most) for result, plan in plans.items()}
        shapes = {_shape_of(plan): plan for plan in fewer.values()}
        copies = [copy for plan in fewer.values() for copy in plan.copies] + [*once]
        size = sum(plan.stages * copy.shared.bytes for plan in shapes.values() for copy in plan.copies)
        size += sum(copy.shared.bytes for copy in once)
        copied = {copy.buffer.result for copy in copies}
        size += sum(_other_bytes(part, copied) for part in parts)
        if size <= (limit if not once or warps > WARP_GROUP else limit // CTAS):
            producer = _producer(module, func, fewer, once)
            if isinstance(producer, KernelPart):
                blocks: dict[Value, Copy] = {copy.store.result: copy for copy in once}
                return _split(module.num_warps, fewer, blocks, producer, parts, maxnreg)
            if not once:
                return producer
    return Obstacle("there is no shared memory for the channels of all loops", loops[0])


def _split(
    num_warps: int, plans: Plans, once: Mapping[Value, Copy], producer: KernelPart, parts: Sequence[KernelPart],
    maxnreg: int | None,
) -> _Split | Obstacle:  # fmt: skip
    """The roles of a kernel, or the obstacle that keeps a part from being a consumer."""
    registers, consumers = _registers(len(parts) * num_warps, maxnreg), list[_Consumer]()
    without_roles = min(registers_of_thread(num_warps), maxnreg or MAX_REGISTERS)
    for part in parts:
        consumer = _consumer(part, plans, once, registers)
        if isinstance(consumer, Obstacle):
            return consumer
        consumers.append(consumer)
        for loop in (plan.loop for plan in consumer.plans.values()):
            own_registers, beside = loop_registers(loop)
            if own_registers + (BESIDE_OPERANDS if len(parts) > 1 else 0) > registers:
                return Obstacle(
                    f"a thread of a consumer has {registers} registers, and the loop carries {own_registers}", loop
                )
            if not loop.warp_specialize and registers < own_registers + beside <= without_roles:
                return Obstacle(
                    f"a consumer's thread has {registers} registers, and the loop needs {own_registers + beside}",
                    loop,
                )
    warps = (*[num_warps] * len(parts), WARP_GROUP)
    return _Split(plans, once, producer, consumers, warps, (*[registers] * len(parts), PRODUCER_REGISTERS))


def _consumer(
    part: KernelPart, plans_of_kernel: Plans, once_of_kernel: Container[Value | None], registers: int
) -> _Consumer | Obstacle:
    """The consumer that a part becomes, which reads some of the blocks that the producer loads."""
    plans: Plans = {}
    once: list[Copy] = []
    for op in part.module.walk():
        origin = part.origin.get(op.result)
        if origin in once_of_kernel and (copy := copy_of(op, inside=True)) is not None:
            once.append(copy)
        if origin not in plans_of_kernel or not isinstance(op, scf.For):
            continue
        kernel = plans_of_kernel[origin]
        plan = operands_ahead(op, kernel.stages, 1 << 30)
        buffers = {copy.buffer.result for copy in kernel.copies}
        if isinstance(plan, Obstacle):
            return plan
        if not buffers.issuperset(part.origin[copy.buffer.result] for copy in plan.copies):
            return Obstacle("parts of the kernel read different loads of it", kernel.loop)
        plan = plan.with_stages(kernel.stages)
        # The sooner a slot is released, the sooner the producer fills it: so only the last wgmma stays in flight.
        plan = attrs.evolve(plan, late=plan.late[-1:])
        plans[op.result] = attrs.evolve(plan, deferred=deferred(plan, registers))
    return _Consumer(part, plans, once)


def _once(loops: Sequence[scf.For]) -> tuple[Copy, ...]:
    """The blocks that loops around these load in each iteration, and that only wgmma inside reads."""
    around = dict.fromkeys(owner for loop in loops for owner in loop.path() if isinstance(owner, scf.For))
    stores = (op for owner in around if owner not in loops for op in owner.body.entry.ops)
    copies = [copy for op in stores if (copy := copy_of(op, inside=True)) is not None and _is_for_wgmma(copy)]
    return tuple(copy for copy in copies if not copy.transposed and len(copy.load.result.uses) == 1)


def _other_bytes(part: KernelPart, copied: Container[Value]) -> int:
    """The bytes of shared memory for the buffers of a part that the producer does not fill, and for tensors that pass
    through it while blocks are fetched."""
    intervals = [interval for interval in intervals_of(part.module) if part.origin[interval.op.result] not in copied]
    most = place(intervals)
    for at, op in enumerate(part.module.walk()):
        if isinstance(op, tt.DescriptorStore | tt.DescriptorReduce | gpu.ConvertLayout):
            most = max(
                most,
                bytes_of(op.value)
                + sum(interval.size for interval in intervals if interval.start <= at <= interval.end),
            )
    return most


def _is_for_wgmma(copy: Copy) -> bool:
    return copy.by_tma and all(copy.buffer.result in read_in_flight(user) for user in copy.readers)


def _producer(module: gpu.Module, func: tt.Func, plans: Plans, once: Sequence[Copy]) -> KernelPart | Obstacle:
    """The part of a kernel that loads blocks; the obstacle where an address does not follow from scalars by pure ops
    and loads of what the kernel does not change."""
    roots = [copy.load for plan in plans.values() for copy in plan.copies] + [copy.store for copy in once]
    around: set[Op] = set()
    for plan in plans.values():
        owner: Op | None = plan.loop
        while isinstance(owner, scf.For) and (owner is plan.loop or owner.result not in plans):
            around.add(owner)
            owner = owner.parent_op
        if not isinstance(owner, tt.Func):
            assert owner is not None
            kind = "a specialised loop" if isinstance(owner, scf.For) else "a branch (of an early return, too)"
            return Obstacle(f"it is inside of {'a while loop' if isinstance(owner, scf.While) else kind}", owner)
    moved = {*roots, *(op for copy in once for op in (copy.load, copy.buffer))}
    part, memory = part_for(module, roots), MemoryOrder(func)
    for op in (value.op for value in part.origin.values() if isinstance(value, OpResult)):
        if op in moved or op in around or isinstance(op, SymbolTable | tt.Func | Terminator):
            continue
        # One warp computes the part again, but a tensor is held by all warps that compute.
        is_scalar = not op.bodies and not isinstance(op.result.type, TensorType)
        if not is_scalar or not (memory.stays(op) if isinstance(op, tt.Load) else is_pure(op)):
            return Obstacle("an address does not follow from scalars by arithmetic", op)
    return part


class _Roles:
    """The writer of the function with its roles."""

    def __init__(self, builder: Rewriter, func: tt.Func, split: _Split) -> None:
        self.func, self.split = func, split
        types = [parameter.type for parameter in func.body.parameters]
        self.outer = outer = builder.inside(types, func.body.yield_type, isolated=True)
        outer.transformers = (*builder.transformers, self._consumed)
        outer.location = func.location
        for body in (split.producer.body, *(consumer.part.body for consumer in split.consumers)):
            for old, new in zip(body.parameters, outer.parameters, strict=True):
                outer[old] = new
        channels: dict[object, Sequence[Value]] = {}
        fills: dict[Value, StagedLoop] = {}  # By the loops of the kernel.
        for loop, plan in split.plans.items():
            key = _shape_of(plan), split.readers(plan)
            if key not in channels:
                channels[key] = new_channels(outer, plan, between_roles=True)
            fills[loop] = StagedLoop(plan, channels[key])
        # The channels of blocks that loops around load, by the stores of the kernel.
        once: dict[Value, Value] = {}
        for store, copy in split.once.items():
            alloc = copy.buffer
            ring = outer.add(gpu.LocalAlloc(copy.shared, alignment=alloc.alignment), alloc.location)
            once[store] = outer.add(gpu.Channel([ring]))
        # By the ops of the consumers: the writers of loops, the channels whose ring a buffer becomes, that a store
        # becomes a wait for, and that are free after an op; and what the producer loads.
        self.writers: dict[Value, StagedLoop] = {}
        self.rings: dict[Op, Value] = {}
        self.waits: dict[Op, Value] = {}
        self.released: dict[Op, list[Value]] = {}
        self.loads: set[Op] = set()
        for consumer in split.consumers:
            origin = consumer.part.origin
            self.writers |= {loop: fills[origin[loop]].of_part(plan, origin) for loop, plan in consumer.plans.items()}
            for copy in consumer.once:
                channel = once[origin[copy.store.result]]
                self.loads.add(copy.load)
                (self.rings[copy.buffer],), self.waits[copy.store] = rings_of(channel), channel
                self.released.setdefault(last_of(copy.buffer, copy.readers), []).append(channel)
        # By the ops of the producer: the slots that a loop fills, and the channel of a block that it stores.
        ops = [*split.producer.ops()]
        loads = {old: op for op, old in ops}
        self.filled = {op: fills[old].with_loads(loads) for op, old in ops if old in fills}
        self.fetched = {op: once[old] for op, old in ops if old in once}

    def body(self) -> Body:
        """The new body of the function."""
        outer, split = self.outer, self.split
        roles = [self._role(Rewriter.rewrite_ops, consumer.part.body) for consumer in split.consumers]
        barriers = (*range(1, len(roles) + 1), 0)
        roles.append(self._role(self._produce, split.producer.body))
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
        """A specialised loop, without the fetches of the producer; and waits for blocks of loops around."""
        if op in self.rings:
            return self.rings[op]
        if op in self.waits:
            builder.add(gpu.ChannelWait(self.waits[op]))
            return DROP
        if op in self.loads:
            return operands[0]  # Only the store uses it.
        loop = None
        if isinstance(op, scf.For) and op.result in self.writers:
            write = self.writers[op.result].compute
            loop = carrying_loop(builder, op, range(len(op.initial)), (), write, op.attributes)
        if op in self.released:
            loop = builder.copy(op, operands) if loop is None else loop
            for channel in self.released[op]:
                builder.add(gpu.ChannelRelease(channel))
        return loop

    def _produce(self, builder: Rewriter, ops: Sequence[Op]) -> None:
        """Write ops of the producer, with what its loops fill."""
        for op in ops:
            if isinstance(op, scf.For):
                self._loop(builder, op)
            elif isinstance(op, gpu.LocalStore):
                load, channel, always = op.value.op, self.fetched[op], constant(builder, True, i1)
                assert isinstance(load, tt.DescriptorLoad)
                builder.add(gpu.ChannelAcquire(channel, always))
                begin_copy(builder, load, rings_of(channel)[0], channel, always)
                builder.add(gpu.ChannelCommit(channel))
            elif not isinstance(op, tt.DescriptorLoad | gpu.LocalAlloc):
                builder.rewrite(op)

    def _loop(self, builder: Rewriter, loop: scf.For) -> None:
        """A loop of the producer, which fills slots if it is specialised."""

        def body(inner: Rewriter, _: Sequence[Value]) -> Sequence[Value]:
            self._produce(inner, loop.body.entry.ops[:-1])
            if loop in self.filled:
                self.filled[loop].fill(inner, constant(inner, True, i1))
            return ()

        builder[loop.result] = carrying_loop(builder, loop, range(len(loop.initial)), (), body, {})


def _registers(warps: int, maxnreg: int | None) -> int:
    """The registers a thread of so many warps that compute, beside a producer.

    One CTA has all registers of an SM; a CTA with one consuming warp group has half of them. With `maxnreg`, it has so
    many for each of its threads. A launch gives all threads the same number, a multiple of 8: one role takes the
    registers that the other gives back.
    """
    ctas, total = CTAS if warps == WARP_GROUP else 1, warps + WARP_GROUP
    registers = min(registers_of_thread(total, ctas), maxnreg or MAX_REGISTERS) // 8 * 8
    rest = max(registers, PRODUCER_REGISTERS) * total - PRODUCER_REGISTERS * WARP_GROUP
    return rest // warps // 8 * 8


def _shape_of(plan: LoopPlan) -> tuple[object, ...]:
    """A key that is equal for plans that can share channels."""
    return plan.stages, tuple(
        tuple((copy.buffer.type, parts_of_load(copy)) for copy in copies) for copies in plan.channels()
    )
