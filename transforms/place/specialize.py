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
tile. A channel connects the two. Loops that fetch blocks of the same shapes share their channels. Blocks that a loop
around loads for them, such as the queries of each tile in attention, have channels of one slot.

A loop is specialised on request (`zg.range(…, warp_specialize=True)`), if it fetches only blocks for wgmma whose
addresses follow from scalars, and if only for loops are around it. All loops of a kernel that ask are specialised, or
none is. If one cannot be, or if there are too few warps or too little shared memory, a warning says why, and the loops
are pipelined like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import attrs

from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import MAX_WARPS
from ziggurat.codemodel.gpu.scope import WARP_GROUP
from ziggurat.codemodel.gpu.targets import REGISTERS_OF_SM, TARGETS
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, rebuilt, transform
from ziggurat.codemodel.types import TensorType, i1, void
from ziggurat.transforms.place.allocate import SPARE_BYTES, Interval, intervals_of, place
from ziggurat.transforms.place.flow import last_of, read_in_flight
from ziggurat.transforms.place.loop_plan import Copy, LoopPlan, computed_from, copy_of, deferred, planned
from ziggurat.transforms.place.memory_order import MemoryOrder
from ziggurat.transforms.place.obstacle import Obstacle, warn_of
from ziggurat.transforms.place.persist import is_persistent
from ziggurat.transforms.place.pipeline_loads import StagedLoop, begin_copy, new_channels, warn_of_loads
from ziggurat.transforms.place.queries import bytes_of, constant
from ziggurat.transforms.place.schedule import carrying_loop
from ziggurat.transforms.simplify.effects import is_pure

PRODUCER_REGISTERS = 24  # A thread.
_MAX_REGISTERS = 240  # A thread, as setmaxnreg counts.

Plans = dict[Value, LoopPlan]


def specialize(module: gpu.Module, num_stages: int | None, every: bool = False, maxnreg: int | None = None) -> Op:
    """The GPU model with the loops that ask for it split into roles; a warning for each of them if they cannot be.

    With `every`, or if CTAs take programs in turn (`persist`), all loops of wgmma are split if they can be, where none
    asks for it. `maxnreg` are the registers that each thread of a CTA brings along, before the roles trade them.
    """
    (func,) = module.functions().values()
    assert isinstance(func, tt.Func)
    asked = [op for op in module.walk() if isinstance(op, scf.For) and op.warp_specialize]
    loops = asked or (_loops_of_wgmma(module) if every or is_persistent(func) else [])
    if not loops:
        return module
    registers = _registers(module.num_warps, maxnreg)
    sliced = _planned_slice(module, func, loops, num_stages, registers[0])
    if isinstance(sliced, Obstacle):
        for loop in asked:
            warn_of("the loop is not specialised for warps", loop, sliced)
        return module
    for plan in sliced.plans.values() if asked else ():
        warn_of_loads(plan.left)

    def split(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, gpu.Module):
            body = builder.rewrite_body(op.body, isolated=True)
            return builder.add(op.evolve(num_warps=op.num_warps + WARP_GROUP, body=body), op.location)
        if not isinstance(op, tt.Func):
            return None
        body = _Roles(builder, op, sliced, module.num_warps, registers).body()
        return builder.add(rebuilt(op, operands, [body]), op.location)

    return transform(module, split, pass_name="specialize")


def why_no_roles(module: gpu.Module, num_stages: int | None) -> Obstacle | None:
    """The obstacle to splitting the loops of wgmma of a model before `specialize`; None where there is none."""
    (func,), loops = module.functions().values(), _loops_of_wgmma(module)
    assert isinstance(func, tt.Func)
    registers, _ = _registers(module.num_warps, None)
    found = _planned_slice(module, func, loops, num_stages, registers) if loops else None
    return found if isinstance(found, Obstacle) else None


def _loops_of_wgmma(module: gpu.Module) -> list[scf.For]:
    """The loops whose bodies have a wgmma."""
    loops = (op for op in module.walk() if isinstance(op, scf.For))
    return [loop for loop in loops if any(isinstance(op, gpu.Wgmma) for op in loop.body.entry.ops)]


def _planned_slice(
    module: gpu.Module, func: tt.Func, loops: Sequence[scf.For], num_stages: int | None, registers: int
) -> _Slice | Obstacle:
    """The slice for the plans of all loops, or the obstacle that keeps one of them from being specialised. `registers`
    are those of a thread of the consumer."""
    if not TARGETS[module.target].has_roles:
        able = ", ".join(name for name, target in TARGETS.items() if target.has_roles)
        return Obstacle(f"{module.target} is not a target whose wgmma reads what TMA has loaded: {able}", loops[0])
    if module.num_warps % WARP_GROUP or module.num_warps + WARP_GROUP > MAX_WARPS:
        numbers = ", ".join(map(str, range(WARP_GROUP, MAX_WARPS - WARP_GROUP + 1, WARP_GROUP)))
        return Obstacle(f"num_warps must be one of {numbers}; it is {module.num_warps}", loops[0])
    if len(func.body.blocks) != 1:
        return Obstacle("the kernel returns early", loops[0])
    limit = TARGETS[module.target].max_shared - SPARE_BYTES
    found: Plans = {}
    for loop in loops:
        stages = loop.num_stages if loop.num_stages is not None else num_stages
        plan = planned(loop, stages, limit)
        if isinstance(plan, Obstacle):
            return plan
        other = next((copy for copy in plan.copies if not _is_for_wgmma(copy)), None)
        if other is not None:
            return Obstacle("the load is not done by TMA for wgmma alone", other.load)
        found[loop.result] = attrs.evolve(plan, deferred=deferred(plan, registers))
    # All channels live from the beginning of the kernel to its end.
    for most, once in product(range(max(plan.stages for plan in found.values()), 1, -1), (_once(loops), ())):
        fewer = {result: attrs.evolve(plan, stages=min(plan.stages, most)) for result, plan in found.items()}
        shapes = {_shape_of(plan): plan for plan in fewer.values()}
        copies = [copy for plan in fewer.values() for copy in plan.copies] + [*once]
        size = sum(plan.stages * copy.shared.bytes for plan in shapes.values() for copy in plan.copies)
        size += sum(copy.shared.bytes for copy in once)
        copied = {copy.buffer.result for copy in copies}
        others = [interval for interval in intervals_of(module) if interval.op.result not in copied]
        if size + _other_bytes(module, others) <= (limit if not once or module.num_warps > WARP_GROUP else limit // 2):
            sliced = _slice(func, fewer, once)
            if not once or isinstance(sliced, _Slice):
                return sliced
    return Obstacle("there is no shared memory for the channels of all loops", loops[0])


def _once(loops: Sequence[scf.For]) -> tuple[Copy, ...]:
    """The blocks that loops around these load in each iteration, and that only wgmma inside reads."""
    around = {owner.result: owner for loop in loops for owner in loop.path() if isinstance(owner, scf.For)}
    asked = {loop.result for loop in loops}
    stores = (op for result, owner in around.items() if result not in asked for op in owner.body.entry.ops)
    copies = [copy for op in stores if (copy := copy_of(op, inside=True)) is not None and _is_for_wgmma(copy)]
    return tuple(copy for copy in copies if not copy.transposed and len(copy.load.result.uses) == 1)


def _other_bytes(module: gpu.Module, intervals: Sequence[Interval]) -> int:
    """The bytes of shared memory for these buffers, and for tensors that pass through it while blocks are fetched."""
    most = place(intervals)
    for at, op in enumerate(module.walk()):
        if isinstance(op, tt.DescriptorStore | tt.DescriptorReduce | gpu.ConvertLayout):
            most = max(most, bytes_of(op.value) + sum(one.size for one in intervals if one.start <= at <= one.end))
    return most


def _is_for_wgmma(copy: Copy) -> bool:
    return copy.by_tma and all(copy.buffer.result in read_in_flight(user) for user in copy.readers)


@attrs.frozen(eq=False)
class _Slice:
    """The ops and carried values on which the addresses of fetched blocks, and the loops around, depend.

    `around` has the results of the loops, with the numbers of the carried values. `once` has the blocks that the loops
    around load, by their stores.
    """

    plans: Plans
    once: dict[Value, Copy]
    ops: set[Value]
    around: dict[Value, list[int]]


def _slice(func: tt.Func, plans: Plans, once: Sequence[Copy]) -> _Slice | Obstacle:
    """The slice for the producer; the obstacle where something does not follow from scalars by pure ops and loads of
    what the kernel does not change."""
    wanted: list[Value] = [value for copy in once for value in copy.load.operands]
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
    memory = MemoryOrder(func)

    def may_move(op: Op) -> bool:
        # One warp computes the slice again, but a tensor is held by all warps that compute.
        is_scalar = not isinstance(op.result.type, TensorType)
        return is_scalar and (memory.stays(op) if isinstance(op, tt.Load) else is_pure(op))

    ops = computed_from(wanted, around, may_move)
    return ops if isinstance(ops, Obstacle) else _Slice(plans, {copy.store.result: copy for copy in once}, ops, around)


class _Roles:
    """The writer of the function with its two roles."""

    def __init__(
        self, builder: Rewriter, func: tt.Func, sliced: _Slice, num_warps: int, registers: Sequence[int]
    ) -> None:
        self.func = func
        self.sliced = sliced
        self.num_warps = num_warps
        self.registers = registers
        types = [parameter.type for parameter in func.body.parameters]
        self.outer = outer = builder.inside(types, func.body.yield_type, isolated=True)
        outer.transformers = (*builder.transformers, self._consumed)
        outer.location = func.location
        for old, new in zip(func.body.parameters, outer.parameters, strict=True):
            outer[old] = new
        channels: dict[object, Sequence[Value]] = {}
        for plan in sliced.plans.values():
            if _shape_of(plan) not in channels:
                channels[_shape_of(plan)] = new_channels(outer, plan)
        self.rings: dict[Value, Value] = {}  # Of blocks that loops around load, by their buffers.
        self.once: dict[Value, Value] = {}  # Their channels, by their stores.
        self.released: dict[Value, list[Value]] = {}  # The same, by the ops of their blocks with the last readers.
        for store, copy in sliced.once.items():
            type_, alloc = copy.shared, copy.buffer
            ring = outer.add(gpu.LocalAlloc(type_, alignment=alloc.alignment), alloc.location)
            self.rings[alloc.result], self.once[store] = ring, outer.add(gpu.Channel([ring]))
            self.released.setdefault(last_of(alloc, copy.readers).result, []).append(self.once[store])
        self.writers = {loop: StagedLoop(plan, channels[_shape_of(plan)]) for loop, plan in sliced.plans.items()}

    def body(self) -> Body:
        """The new body of the function."""
        outer = self.outer
        roles = [self._role(Rewriter.rewrite_ops), self._role(self._produce)]
        warps = (self.num_warps, WARP_GROUP)
        outer.add(gpu.WarpSpecialize(roles, warps, self.registers, barriers=(1, 0)), self.func.location)
        outer.add(tt.Return([]), self.func.location)
        return outer.finish()

    def _role(self, write: Callable[[Rewriter, Sequence[Op]], None]) -> Body:
        inner = self.outer.inside([], void)
        inner.location = self.func.location
        write(inner, self.func.body.entry.ops[:-1])
        inner.add(scf.Yield([]))
        return inner.finish()

    def _consumed(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        """A specialised loop, without the fetches of the producer; and waits for blocks of loops around."""
        if op.result in self.rings:
            return self.rings[op.result]
        if op.result in self.once:
            builder.add(gpu.ChannelWait(self.once[op.result]))
            return DROP
        if any(op is copy.load for copy in self.sliced.once.values()):
            return operands[0]  # Only the store uses it.
        made = None
        if isinstance(op, scf.For) and op.result in self.writers:
            write = self.writers[op.result].compute
            made = carrying_loop(builder, op, range(len(op.initial)), (), write, op.attributes)
        if op.result in self.released:
            made = builder.copy(op, operands) if made is None else made
            for channel in self.released[op.result]:
                builder.add(gpu.ChannelRelease(channel))
        return made

    def _produce(self, builder: Rewriter, ops: Sequence[Op]) -> None:
        """Write those of these ops that the producer needs."""
        for op in ops:
            if op.result in self.sliced.ops:
                builder.rewrite(op)
            elif op.result in self.once:
                channel, always = self.once[op.result], constant(builder, True, i1)
                builder.add(gpu.ChannelAcquire(channel, always))
                copy = self.sliced.once[op.result]
                begin_copy(builder, copy.load, self.rings[copy.buffer.result], channel, always)
                builder.add(gpu.ChannelCommit(channel))
            elif isinstance(op, scf.For) and op.result in self.sliced.around:
                self._loop(builder, op)

    def _loop(self, builder: Rewriter, loop: scf.For) -> None:
        """A loop of the producer, which fills slots if it is specialised."""

        def body(inner: Rewriter, _: Sequence[Value]) -> Sequence[Value]:
            self._produce(inner, loop.body.entry.ops[:-1])
            if loop.result in self.writers:
                self.writers[loop.result].fill(inner, constant(inner, True, i1))
            return ()

        carrying_loop(builder, loop, sorted(self.sliced.around[loop.result]), (), body, {})


def _registers(num_warps: int, maxnreg: int | None) -> tuple[int, int]:
    """The registers a thread of the consumer and of the producer.

    One CTA has all registers of an SM; a CTA with one consuming warp group has half of them. With `maxnreg`, it has so
    many for each of its threads. A launch gives all threads the same number, a multiple of 8: one role takes the
    registers that the other gives back.
    """
    ctas = 2 if num_warps == WARP_GROUP else 1
    warps = num_warps + WARP_GROUP
    given = min(REGISTERS_OF_SM // ctas // (32 * warps), maxnreg or REGISTERS_OF_SM) // 8 * 8
    left = max(given, PRODUCER_REGISTERS) * warps - PRODUCER_REGISTERS * WARP_GROUP
    return min(_MAX_REGISTERS, left // num_warps // 8 * 8), PRODUCER_REGISTERS


def _shape_of(plan: LoopPlan) -> tuple[object, ...]:
    """A key that is equal for plans that can share channels."""
    return plan.stages, tuple(tuple(copy.buffer.type for copy in copies) for copies in plan.channels())
