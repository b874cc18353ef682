"""The schedule of a loop as its ops carry it: which loads begin ahead of their iteration, and which wgmma ends late.

    %a = tt.load %p @ahead=2 @width=8;          begins two iterations before the one that uses it
    %b = gpu.local_alloc @slots=3;              becomes a ring of three slots
    gpu.local_store %b %a;                      so that the load becomes a copy to a slot of it
    %s = tt.load %q @ahead=1;                   in registers, which the loop carries
    %d = gpu.wgmma %b … %acc;
    %e = gpu.wgmma_wait %d @0 @late=true;       is complete in the next iteration

`latency` writes these attributes, `copies` reads them and writes the loop with channels and stages, and `expand` makes
iterations overlap. A `LoopPlan` is the same as a value.

A load that goes through a buffer becomes a copy if a copy does the same: the loaded tensor goes only into buffers, and
elements whose mask is false are undefined or zero. A load through pointers is copied at least 4 bytes at a time. A load
through a descriptor is done by TMA, into a buffer in TMA's own form.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import product

import attrs

from ziggurat.codemodel.dialects import core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.asynchronous import ResultInFlight, ResultWait
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.layout import Layout, bits_of, combine, inverted
from ziggurat.codemodel.op import Block, BlockParameter, Op, OpResult, Value
from ziggurat.codemodel.traits import MayTrap
from ziggurat.codemodel.types import SharedType, i1, i32, i64, scalar_element
from ziggurat.transforms.analysis.memory_flow import read_in_flight, users_of
from ziggurat.transforms.analysis.memory_order import MemoryOrder
from ziggurat.transforms.analysis.obstacle import Obstacle
from ziggurat.transforms.analysis.queries import constant_of, function_around, layout_of, shared_of
from ziggurat.transforms.layouts.tma_blocks import before_transposition, is_filled_by_tma
from ziggurat.transforms.simplify.effects import is_pure, may_trap, may_write

Load = tt.Load | tt.DescriptorLoad
READERS = (gpu.Wgmma, gpu.Mma, gpu.DotFma, gpu.LocalLoad)
CP_ASYNC_BYTES = (4, 8, 16)  # Bytes that one cp.async copies.
WRITES = "an op in it writes to global memory or orders its accesses"
TURNED_SLOTS = 3  # Of a ring of turned operands: one for each wgmma in flight, and one that is filled.
DEPENDS = "its address depends on what an earlier iteration loads, or may not be computed ahead"


@attrs.frozen(eq=False)
class Copy:
    """A load that becomes copies: through `transposed`, stored by `store` to `buffer`, `width` elements at a time.

    `reader` is the first op that reads the buffer. The copies are `ahead` iterations before it, in a ring of `slots`.
    """

    load: Load
    transposed: tuple[tt.Trans, ...]
    store: gpu.LocalStore
    buffer: gpu.LocalAlloc
    width: int
    reader: Op
    ahead: int = 0
    slots: int = 1

    @property
    def by_tma(self) -> bool:
        """Whether TMA makes the copy, and not the threads."""
        return isinstance(self.load, tt.DescriptorLoad)

    @property
    def readers(self) -> Iterator[Op]:
        """The ops that read the buffer."""
        return (user for user in users_of(self.buffer.result) if user is not self.store)

    @property
    def shared(self) -> SharedType:
        """The type of the buffer."""
        return shared_of(self.buffer.result)

    @property
    def is_read_first(self) -> bool:
        """Whether a step reads the slot before it fills it again: the ring has no slot more."""
        return self.slots == self.ahead


@attrs.frozen
class Begin:
    """The iterations by which a load is ahead: to registers, or through a buffer, the ring of which is to be made."""

    ahead: int
    buffer: gpu.LocalAlloc | None = None


@attrs.frozen(eq=False)
class LoopPlan:
    """The schedule of `loop`: its copies to the rings of buffers that it has, and its other loads that begin ahead.

    `late` are the waits for wgmma that stay in flight into the next iteration. The wgmma `deferred` itself takes place
    in the next iteration. `turned` are the stores of what threads have read from a slot for that wgmma. They take place
    an iteration ahead, to rings of `TURNED_SLOTS`. `left` are the loads that stay in their iteration, and why; and the
    loop, if no load of it moves.
    """

    loop: scf.For
    copies: tuple[Copy, ...]
    others: Mapping[Load, Begin] = {}
    late: tuple[ResultWait, ...] = ()
    deferred: ResultInFlight | None = None
    turned: tuple[gpu.LocalStore, ...] = ()
    left: tuple[tuple[Op, Obstacle], ...] = ()
    why: str = ""  # The reason for the number of stages, where the compiler has chosen it.

    @property
    def ahead(self) -> dict[Load, int]:
        """The loads that begin in earlier iterations, and by how many they are ahead."""
        others = {load: begin.ahead for load, begin in self.others.items()}
        return {copy.load: copy.ahead for copy in self.copies} | others

    @property
    def distance(self) -> int:
        """The largest number of iterations by which a load is ahead: the loop's own stage."""
        return max(self.ahead.values(), default=0)

    @property
    def stages(self) -> int:
        """The iterations that overlap, or the largest number of slots of an operand's ring if that is larger."""
        return max([self.distance + 1, *(copy.slots for copy in self.copies)])

    @property
    def bytes(self) -> int:
        """The shared memory that the rings take beside the buffers of the loop."""
        turned_bytes = sum(shared_of(store.buffer).bytes for store in self.turned)
        rings = sum((copy.slots - 1) * copy.shared.bytes for copy in self.copies)
        buffers = (begin.buffer for begin in self.others.values() if begin.buffer is not None)
        staged_bytes = sum(buffer.slots * shared_of(buffer.result).bytes for buffer in buffers)
        return rings + staged_bytes + (TURNED_SLOTS - 1) * turned_bytes

    @property
    def after(self) -> Op | None:
        """The op that the late waits follow in the next iteration: the wait for another wgmma, or the last wgmma on
        their accumulators."""
        if not self.late:
            return None
        first = next(op for op in self.loop.body.entry.ops if isinstance(op, ResultWait))
        return self.late[-1].value.op if first in self.late else first

    def with_stages(self, stages: int) -> LoopPlan:
        """The same plan with rings of at most so many slots."""
        copies = (attrs.evolve(copy, slots=min(copy.slots, stages)) for copy in self.copies)
        return attrs.evolve(self, copies=tuple(attrs.evolve(copy, ahead=copy.slots - 1) for copy in copies))

    def fills_before_late(self, copies: Sequence[Copy]) -> bool:
        """Whether the copies of a later iteration need not follow the late wait: its wgmma reads another slot."""
        return not self.late or not in_flight(copies) or copies[0].slots > copies[0].ahead + 1

    def channels(self) -> tuple[tuple[Copy, ...], ...]:
        """The copies of each channel: each that is turned, the others of the threads, and those of TMA by their first
        reader, which waits."""
        channels: dict[tuple[Value | None, int, int], list[Copy]] = {}
        values = {store.value for store in self.turned}
        for copy in sorted(self.copies, key=lambda copy: (copy.by_tma, copy.reader.result not in values)):
            apart = (copy.by_tma and not copy.is_read_first) or copy.reader.result in values
            key = copy.reader.result if apart else None
            channels.setdefault((key, copy.ahead, copy.slots), []).append(copy)
        return tuple(map(tuple, channels.values()))

    def released(self, copies: Sequence[Copy]) -> Op:
        """The op of the loop's body after which the slot of a channel has been read: its last reader, or the wait for
        the last wgmma that reads it, which may be `late`."""
        ops, buffers = self.loop.body.entry.ops, {copy.buffer.result for copy in copies}
        readers = {user for copy in copies for user in copy.readers}
        last = max(at for at, op in enumerate(ops) if op in readers)
        if not in_flight(copies):
            return ops[last]
        begun = max(at for at, op in enumerate(ops) if not buffers.isdisjoint(read_in_flight(op)))
        done = next(at for at, op in enumerate(ops) if at > begun and isinstance(op, ResultWait) and not op.pending)
        return ops[done] if ops[done] in self.late else ops[max(last, done)]


def plan_of(loop: scf.For) -> LoopPlan:
    """The schedule that a loop's ops have as attributes."""
    ops = loop.body.entry.ops
    copies = tuple(
        attrs.evolve(copy, ahead=copy.load.ahead, slots=copy.buffer.slots)
        for copy in copies_of(loop)
        if copy.load.ahead and copy.buffer.slots
    )
    copied = {copy.load for copy in copies}
    others: dict[Load, Begin] = {
        op: Begin(op.ahead) for op in ops if isinstance(op, tt.Load) and op.ahead and op not in copied
    }
    late = tuple(op for op in ops if isinstance(op, ResultWait) and op.late)
    turned = tuple(op for op in ops if isinstance(op, gpu.LocalStore) and op.ahead)
    return LoopPlan(loop, copies, others, late, turned=turned)


def in_flight(copies: Iterable[Copy]) -> bool:
    """Whether matrix units read the slots of these copies."""
    return any(copy.buffer.result in read_in_flight(user) for copy in copies for user in copy.readers)


def step_ahead(loop: scf.For) -> int | Obstacle:
    """The step of a loop whose loads may begin in earlier iterations; or the obstacle."""
    step = constant_of(loop.step)
    if not isinstance(step, int) or not step or loop.start.type not in (i32, i64):
        return Obstacle("its step must be a constant, and its index an i32 or i64", loop)
    if len(loop.body.blocks) != 1:
        return Obstacle("its body has jumps", loop)
    if not all(isinstance(op, core.TupleLoad) for op in loop.result.uses) and len(loop.initial) > 1:
        return Obstacle("its results are used as one Tuple", loop)
    return step


def iterations_of(loop: scf.For) -> int | None:
    """The number of iterations of a loop; None where it is not known."""
    bounds = [constant_of(value) for value in loop.controls]
    if not all(isinstance(bound, int) for bound in bounds) or not bounds[2]:
        return None
    start, stop, step = (bound for bound in bounds if isinstance(bound, int))
    return len(range(start, stop, step))


def kept_in_place(loop: scf.For, loads: Iterable[Load]) -> dict[Op, Op]:
    """The loads of a loop that must not begin in an earlier iteration, with the op in the way.

    A load may begin before stores and relaxed atomics through pointers and descriptors that come from other arguments;
    and before stores by TMA if TMA loads, as no launch has both of the same memory (`tma.aliasing`)."""
    writers = [inner for op in loop.body.entry.ops for inner in op.walk() if orders_memory(inner)]
    if not writers:
        return {}
    memory = MemoryOrder(function_around(loop))
    obstacles: dict[Op, Op] = {}
    for load, op in product(loads, reversed(writers)):
        by_tma = isinstance(load, tt.DescriptorLoad)
        if by_tma and isinstance(op, tt.DescriptorStore | tt.DescriptorReduce):
            continue
        if memory.keeps_order(op, [load.descriptor if by_tma else load.ptr]):
            obstacles[load] = op
    return obstacles


def bytes_at_once(load: tt.Load) -> int:
    """The bytes that a thread loads by one access."""
    return load.width * scalar_element(load.result.type).bytes


def orders_memory(op: Op) -> bool:
    """Whether a load may not be moved before this op, bodies aside."""
    if op.NAME.startswith("gpu."):
        return False
    return isinstance(op, tt.Barrier | tt.Call) or (not op.bodies and may_write(op))


def copy_of(op: Op, *, inside: bool = False) -> Copy | None:
    """The copy that replaces a load and a store to a buffer, which the same block reads, or one `inside` of its loops;
    None if there is none."""
    if not isinstance(op, gpu.LocalStore) or not isinstance(op.buffer, OpResult):
        return None
    alloc, block, shared = op.buffer.op, op.parent, shared_of(op.buffer)
    if block is None or not isinstance(alloc, gpu.LocalAlloc) or alloc.parent is not block or shared.count != 1:
        return None
    users = [user for user in users_of(op.buffer) if user is not op]
    if not all(isinstance(user, READERS) and (inside or user.parent is block) for user in users):
        return None
    value, steps = before_transposition(op.value)
    if not users or not isinstance(value, OpResult) or any(step.parent is not block for step in (value.op, *steps)):
        return None
    load = value.op
    first = set(users)
    reader = next((user for user in block.ops if user in first), users[0])
    if isinstance(load, tt.DescriptorLoad):
        return Copy(load, steps, op, alloc, 0, reader) if is_filled_by_tma(op.value, shared) else None
    if not isinstance(load, tt.Load) or load.volatile or load.ragged or load.cache is tt.CacheModifier.CV:
        return None
    if shared.element == i1 or not is_zero_or_undefined(load.other):
        return None
    width = consecutive(layout_of(op.value.type), shared, load.width)
    return Copy(load, steps, op, alloc, width, reader) if width * shared.element.bytes in CP_ASYNC_BYTES else None


def copies_of(loop: scf.For) -> list[Copy]:
    """The copies that could take the place of loads of a loop which go only to buffers."""
    return copies_in(loop.body.entry)


def copies_in(block: Block) -> list[Copy]:
    """The copies that could take the place of loads of a block which go only to buffers."""
    copies = [copy for op in block.ops if (copy := copy_of(op)) is not None]
    stores = {copy.store for copy in copies}
    return [copy for copy in copies if _is_only_stored(copy.load.result, stores)]


def consecutive(layout: Layout, shared: SharedType, width: int) -> int:
    """The number of consecutive elements of one access of `width` that are consecutive in a buffer as well."""
    places = inverted(shared.offsets)
    bases = layout.registers[: bits_of(width)]
    together = 0
    while together < len(bases) and combine(places, bases[together]) == 1 << together:
        together += 1
    return 1 << together


def _is_only_stored(value: Value, stores: Container[Op]) -> bool:
    """Whether a loaded tensor goes nowhere but into the buffers."""
    return all(
        _is_only_stored(user.result, stores) if isinstance(user, tt.Trans) else user in stores for user in value.uses
    )


def places_of(load: Load) -> list[Value]:
    """The operands of a load but for its fill."""
    return [value for value in load.operands if value is not fill_of(load)]


def fill_of(load: Load) -> Value | None:
    """The value of a load where its mask does not hold."""
    return load.other if isinstance(load, tt.Load) else None


def computing(loop: scf.For, values: Sequence[Value], available: Container[Value] = ()) -> list[Op]:
    """The ops of a loop's body, in order, from which values are computed; not those of the `available` values."""

    def inside(values: Iterable[Value]) -> list[Value]:
        return [value for value in values if value.block is loop.body.entry and value not in available]

    results = reached(inside(values), lambda value: () if value.op is None else inside(value.op.operands))
    return [op for op in loop.body.entry.ops if op.result in results]


def carried(loop: scf.For, values: Sequence[Value]) -> tuple[int, ...]:
    """The numbers of the carried values from which values are computed, in this and in later iterations."""
    parameters, yielded = loop.body.parameters[1:], loop.body.entry.terminator.operands
    positions: set[int] = set()
    while True:
        from_them = [*values, *(yielded[number] for number in positions)]
        operands = {operand for op in computing(loop, from_them) for operand in op.operands}.union(from_them)
        more = {number for number, parameter in enumerate(parameters) if parameter in operands}
        if more <= positions:
            return tuple(sorted(positions))
        positions |= more


def may_be_computed_ahead(loop: scf.For, values: Sequence[Value]) -> bool:
    """Whether values of an iteration may be computed in an earlier one: from what the loop carries, by ops that may be
    run ahead."""
    yielded = loop.body.entry.terminator.operands
    ops = computing(loop, [*values, *(yielded[number] for number in carried(loop, values))])
    return all(is_computable_ahead(loop, op) for op in ops)


def is_computable_ahead(loop: scf.For, op: Op) -> bool:
    """Whether an op may be run for an iteration that comes later, or not at all. A division by what the loop does not
    change may: `copies` sees that the divisor is not zero where the loop has no iteration."""
    if not is_pure(op) or op.bodies:
        return False
    return not may_trap(op) or (isinstance(op, MayTrap) and op.operands[1].block is not loop.body.entry)


def may_begin(loop: scf.For, values: Sequence[Value], blocked: Container[Value] | None) -> bool:
    """Whether values may be computed in an earlier iteration: from what the loop carries, and from loads of the same
    iteration but the `blocked` ones, which may begin earlier themselves; from none, if that is None."""
    ops = computing(loop, values)
    operands = [*values, *(operand for op in ops for operand in op.operands)]
    if not may_be_computed_ahead(loop, [value for value in operands if isinstance(value, BlockParameter)]):
        return False
    for op in ops:
        is_load = isinstance(op, tt.Load) and blocked is not None and op.result not in blocked and may_move(op)
        if not is_load and not is_computable_ahead(loop, op):
            return False
    return True


def may_move(load: tt.Load) -> bool:
    """Whether a load has no place of its own in the order of accesses."""
    return not (load.volatile or load.cache is tt.CacheModifier.CV)


def fault_of(plan: LoopPlan) -> Obstacle | None:
    """The reason why a loop cannot have the schedule that its ops say; None if it can."""
    loop, threads = plan.loop, {copy.ahead for copy in plan.copies if not copy.by_tma}
    if isinstance(step := step_ahead(loop), Obstacle):
        return step
    for copy in plan.copies:
        if copy.slots < copy.ahead:
            return Obstacle(f"its ring must have {copy.ahead} slots or more; got {copy.slots}", copy.load)
        if not copy.by_tma and copy.ahead != max(threads):
            return Obstacle(f"threads make all copies of a loop equally far ahead; got {sorted(threads)}", copy.load)
    for load, op in kept_in_place(loop, plan.ahead).items():
        return Obstacle(f"{op.NAME} keeps it in its place", load)
    stay = {op.result for op in loop.body.entry.ops if isinstance(op, Load) and op not in plan.ahead}
    for load, count in plan.ahead.items():
        values = places_of(load) if load not in plan.others else load.operands
        if not may_begin(loop, values, stay):
            return Obstacle(DEPENDS, load)
        for op in computing(loop, values):
            if isinstance(op, Load) and plan.ahead[op] <= count:
                return Obstacle(f"its address needs a load that is {plan.ahead[op]} iterations ahead", load)
    return None


def is_zero_or_undefined(other: Value | None) -> bool:
    """Whether a load gives zeros, or undefined values, where its mask is false. The bits of -0.0 are no zeros."""
    return other is None or str(constant_of(other)) in ("0", "0.0")
