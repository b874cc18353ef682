"""The plan for pipelining a loop: which loads become copies ahead of their use, and which wgmma stays in flight.

A load is pipelined if a copy does the same: the loaded tensor goes only into buffers, its address follows from values
that the loop carries, and no op in the loop keeps it in its place (`step_ahead`). A load through pointers is copied at
least 4 bytes at a time, and elements whose mask is false are undefined or zero. A load through a descriptor is done by
TMA, into a buffer in TMA's own form.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from itertools import product

import attrs

from ziggurat.codemodel.dialects import core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import USUAL_STAGES
from ziggurat.codemodel.layout import Layout, bits_of, combine, inverted
from ziggurat.codemodel.op import Block, BlockParameter, Op, OpResult, Value
from ziggurat.codemodel.types import SharedType, TensorType, i1, i32, i64, scalar_element
from ziggurat.transforms.analysis.memory_flow import allocation, read_in_flight, users_of
from ziggurat.transforms.analysis.memory_order import MemoryOrder
from ziggurat.transforms.analysis.obstacle import Obstacle
from ziggurat.transforms.analysis.queries import begun_by, constant_of, layout_of, op_in, shared_of
from ziggurat.transforms.gpu.tma import before_transposition, is_filled_by_tma
from ziggurat.transforms.simplify.effects import is_pure, may_trap, may_write

Load = tt.Load | tt.DescriptorLoad
_READERS = (gpu.Wgmma, gpu.Mma, gpu.DotFma, gpu.LocalLoad)
CP_ASYNC_BYTES = (4, 8, 16)  # Bytes that one cp.async copies.

TURNED_SLOTS = 3  # Of a ring of turned operands: one for each wgmma in flight, and one that is filled.
WRITES = "an op in it writes to global memory or orders its accesses"
DEPENDS = "its address depends on what the loop loads, or may not be computed ahead"

_CTAS = 2  # The CTAs that share an SM, if they can: one computes while the other waits.
_FEW_ACCUMULATORS = 32  # Registers a thread: those of 64×64 f32 by 4 warps.
_DEEPEST = 6  # The stages of a loop with few accumulators.
LOOP_REGISTERS = 25  # Of a thread, where its accumulators and operands are counted apart.

# The occupancy (CTAs per SM), given the bytes of a loop's buffers and the registers a thread of its accumulator.
Occupancy = Callable[[int, int], int]


@attrs.frozen(eq=False)
class Copy:
    """A load that becomes copies: through `transposed`, stored by `store` to `buffer`, `width` elements at a time.

    `reader` is the first op that reads the buffer.
    """

    load: Load
    transposed: tuple[tt.Trans, ...]
    store: gpu.LocalStore
    buffer: gpu.LocalAlloc
    width: int
    reader: Op

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


@attrs.frozen(eq=False)
class LoopPlan:
    """The plan for pipelining `loop`, with copies to rings of `stages` slots.

    `ahead` are the ops, in order, that compute the addresses of the next iteration; `carried` the numbers of the
    carried values that they start from. `late` is the wait for a wgmma that stays in flight into the next iteration. It
    takes place there after the op `after`: the wait for another wgmma, or the next wgmma on the same accumulator. With
    a `spare` slot, the copies of a later iteration need not follow it. The wgmma `deferred` itself takes place in the
    next iteration, before `after`, which is then the wait for the first wgmma. `turned` are the stores of what threads
    have read from a slot for that wgmma. They take place an iteration ahead, to rings of three slots: one for each
    wgmma in flight.
    """

    loop: scf.For
    copies: tuple[Copy, ...]
    stages: int
    ahead: tuple[Op, ...]
    carried: tuple[int, ...]
    late: gpu.WgmmaWait | None
    after: Op | None
    spare: bool = False
    deferred: gpu.Wgmma | None = None
    turned: tuple[gpu.LocalStore, ...] = ()
    why: str = ""  # The reason for the number of stages, where the compiler has chosen it.

    @property
    def distance(self) -> int:
        """The number of iterations by which the copies are ahead."""
        return self.stages - 1 - self.spare

    @property
    def bytes(self) -> int:
        """The shared memory that the rings take beside the buffers of the loop."""
        turned_bytes = sum(shared_of(store.buffer).bytes for store in self.turned)
        return (self.stages - 1) * sum(copy.shared.bytes for copy in self.copies) + (TURNED_SLOTS - 1) * turned_bytes

    @property
    def ahead_of_late(self) -> bool:
        """Whether copies of a later iteration need not follow the late wait."""
        return self.late is None or self.spare or not _in_flight(self.copies)

    def channels(self) -> tuple[tuple[Copy, ...], ...]:
        """The copies of each channel: each that is turned, the others of the threads, and those of TMA by their first
        reader, which waits."""
        channels: dict[Value | None, list[Copy]] = {}
        values = {store.value for store in self.turned}
        for copy in sorted(self.copies, key=lambda copy: (copy.by_tma, copy.reader.result not in values)):
            apart = copy.by_tma or copy.reader.result in values
            channels.setdefault(copy.reader.result if apart else None, []).append(copy)
        return tuple(map(tuple, channels.values()))

    def released(self, copies: Sequence[Copy]) -> Op:
        """The op of the loop's body after which the slot of a channel has been read: its last reader, or the wait for
        the last wgmma that reads it, which may be `late`."""
        ops, buffers = self.loop.body.entry.ops, {copy.buffer.result for copy in copies}
        readers = {user for copy in copies for user in copy.readers}
        last = max(at for at, op in enumerate(ops) if op in readers)
        if not _in_flight(copies):
            return ops[last]
        begun = max(at for at, op in enumerate(ops) if not buffers.isdisjoint(read_in_flight(op)))
        done = next(at for at, op in enumerate(ops) if at > begun and isinstance(op, gpu.WgmmaWait) and not op.pending)
        return ops[done] if ops[done] is self.late else ops[max(last, done)]


def planned(
    loop: scf.For, requested_stages: int | None, limit: int, occupancy: Occupancy = lambda bytes_, registers: 1
) -> LoopPlan | Obstacle:
    """The plan for a loop, with up to `requested_stages` stages and `limit` bytes for further buffers; or the obstacle.

    With None, as many stages are chosen.
    """
    if requested_stages is not None and requested_stages < 2:
        return Obstacle("it has one stage", loop)
    if isinstance(step := step_ahead(loop), Obstacle):
        return step
    copies = [copy for op in loop.body.entry.ops if (copy := copy_of(op)) is not None]
    stores = {copy.store for copy in copies}
    copies = [copy for copy in copies if _is_only_stored(copy.load.result, stores)]
    if not copies:
        return _too_narrow(loop) or Obstacle("no load in it goes only to a dot", loop)
    kept_loads = kept_in_place(loop, [copy.load for copy in copies])
    copies = [copy for copy in copies if copy.load not in kept_loads]
    if not copies:
        return Obstacle(WRITES, next(iter(kept_loads.values())))
    traced = tuple(copy for copy in copies if ahead_of(loop, places_of(copy.load)) is not None)
    ahead = ahead_of(loop, [value for copy in traced for value in places_of(copy.load)])
    if not traced or ahead is None:
        return Obstacle(DEPENDS, copies[0].load)
    stage_bytes = sum(copy.shared.bytes for copy in traced)
    for transposes in (_turned(loop, traced), ()):
        (late, after), spare = _late_wait(loop, traced, transposes), False
        most = (
            limit - (TURNED_SLOTS - 1) * sum(shared_of(store.buffer).bytes for store in transposes)
        ) // stage_bytes + 1
        num_stages, why = _chosen(loop, traced, occupancy) if requested_stages is None else (requested_stages, "")
        stages = min(num_stages, most)
        if late is not None and not any(copy.by_tma for copy in traced) and _in_flight(traced):
            registers = layout_of(late.result.type).num_registers
            more, same = (partial(occupancy, count * stage_bytes, registers) for count in (num_stages, num_stages - 1))
            if num_stages < most and more() == same():
                stages, spare = num_stages + 1, True
            elif stages == 2:
                late = after = None  # Copies that begin after the late wait would overlap with nothing.
        if not transposes or (late is not None and stages - spare > 2):
            break  # Else there is no stage for turning.
    if stages < 2 or abs(step) * stages >= 1 << 30:
        return Obstacle(f"there is no shared memory for a second stage of {stage_bytes} bytes", loop)
    return LoopPlan(loop, traced, stages, *ahead, late, after, spare, turned=transposes, why=why)


def _chosen(loop: scf.For, copies: Sequence[Copy], occupancy: Occupancy) -> tuple[int, str]:
    """The stages of a loop that asks for no number, and why: three, or two where a third leaves no room for a second
    CTA.

    With few accumulators an iteration computes for a shorter time than a load takes: up to six stages, if TMA loads.
    """
    stage_bytes = sum(copy.shared.bytes for copy in copies)
    dots = (op for op in loop.body.entry.ops if isinstance(op, gpu.Wgmma | gpu.Mma) and not _continues(op))
    registers = sum(layout_of(op.result.type).num_registers for op in dots)
    if registers <= _FEW_ACCUMULATORS and all(copy.by_tma for copy in copies):
        return _DEEPEST, f"{registers} registers of accumulators a thread are multiplied faster than loaded"
    # The buffers of one stage are counted already.
    of_two, of_three = (occupancy((count - 1) * stage_bytes, registers) for count in (2, USUAL_STAGES))
    if of_three >= min(_CTAS, of_two):
        return USUAL_STAGES, f"{USUAL_STAGES} hide the latency of loads, and leave room for {of_three} CTA(s) per SM"
    return 2, f"a third leaves room for {of_three} CTA(s) per SM, not {of_two}"


def _continues(op: gpu.Wgmma | gpu.Mma) -> bool:
    """Whether the accumulator of a dot is that of a dot before it."""
    return isinstance(op.c.op, gpu.Wgmma | gpu.Mma)


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


def kept_in_place(loop: scf.For, loads: Iterable[Load]) -> dict[Op, Op]:
    """The loads of a loop that must not begin in an earlier iteration, with the op in the way.

    A load may begin before stores and relaxed atomics through pointers and descriptors that come from other arguments;
    and before stores by TMA if TMA loads, as no launch has both of the same memory (`tma.aliasing`)."""
    writers = [inner for op in loop.body.entry.ops for inner in op.walk() if _orders_memory(inner)]
    if not writers:
        return {}
    memory = MemoryOrder(next(op for op in loop.path() if isinstance(op, tt.Func)))
    obstacles: dict[Op, Op] = {}
    for load, op in product(loads, reversed(writers)):
        by_tma = isinstance(load, tt.DescriptorLoad)
        if by_tma and isinstance(op, tt.DescriptorStore | tt.DescriptorReduce):
            continue
        if memory.keeps_order(op, [load.descriptor if by_tma else load.ptr]):
            obstacles[load] = op
    return obstacles


def _too_narrow(loop: scf.For) -> Obstacle | None:
    """The obstacle if the loads for a loop's dots have fewer bytes than a copy takes."""
    for op in loop.body.entry.ops:
        value = before_transposition(op.value)[0] if isinstance(op, gpu.LocalStore) else None
        if value is not None and isinstance(value.op, tt.Load):
            bits, least = 8 * bytes_at_once(value.op), 8 * CP_ASYNC_BYTES[0]
            if bits < least:
                return Obstacle(f"a thread loads {bits} bits at once, and copies ahead take {least} or more", value.op)
    return None


def bytes_at_once(load: tt.Load) -> int:
    """The bytes that a thread loads by one access."""
    return load.width * scalar_element(load.result.type).bytes


def _in_flight(copies: Sequence[Copy]) -> bool:
    """Whether matrix units read the slots of these copies."""
    return any(copy.buffer.result in read_in_flight(user) for copy in copies for user in copy.readers)


def _turned(loop: scf.For, copies: Sequence[Copy]) -> tuple[gpu.LocalStore, ...]:
    """The stores of what is read from the buffers of copies, to buffers of the loop's body that only wgmma reads."""
    loads = {copy.reader.result for copy in copies if isinstance(copy.reader, gpu.LocalLoad)}
    loads = {load for load in loads if len(load.uses) == 1 and len([*users_of(load.op.operands[0])]) == 2}
    return tuple(
        op
        for op in loop.body.entry.ops
        if isinstance(op, gpu.LocalStore) and op.value in loads and op.buffer.block is loop.body.entry
        if all(user is op or isinstance(user, gpu.Wgmma) for user in op.buffer.uses)
    )


def _late_wait(
    loop: scf.For, copies: Sequence[Copy], transposes: Sequence[gpu.LocalStore]
) -> tuple[gpu.WgmmaWait, Op] | tuple[None, None]:
    """The wait for the last wgmma of a loop's body, if it can take place in the next iteration, and the op before it.

    Only its accumulator may be carried, and its operands must stay: in slots that are all filled in the same way, in
    those of the stores that transpose, or in buffers from before the loop.
    """
    block = loop.body.entry
    waits = [op for op in block.ops if isinstance(op, gpu.WgmmaWait)]
    if not waits or len({copy.by_tma for copy in copies}) > 1:
        return None, None
    wait, end = waits[-1], block.terminator
    if not isinstance(wait.value, OpResult) or wait.pending or len(wait.value.uses) > 1:
        return None, None
    wgmma = wait.value.op
    positions = [at for at, value in enumerate(end.operands) if value is wait.result]
    if not isinstance(wgmma, gpu.Wgmma) or len(wait.result.uses) > 1 or len(positions) != 1:
        return None, None
    buffers = {copy.buffer.result for copy in copies} | {store.buffer for store in transposes}
    first = begun_by(wgmma)[-1]
    read = [allocation(value) for value in (wgmma.a, wgmma.b) if isinstance(value.type, SharedType)]
    if any(value not in buffers and value.block is block for value in read):
        return None, None
    accumulator = loop.body.parameters[positions[0] + 1]
    order = {op: at for at, op in enumerate(block.ops)}
    positions_of_uses = [order[op_in(user, block)] for user in accumulator.uses]
    if first.c is accumulator and len(positions_of_uses) == 1 and len(waits) == 1:
        return wait, wgmma
    covered = waits[0]
    if covered is wait or any(at <= order[covered] for at in positions_of_uses):
        return None, None
    return wait, covered


def deferred(plan: LoopPlan, registers: int) -> gpu.Wgmma | None:
    """The last wgmma of a loop, if it can take place in the next iteration, while the first one's result is used.

    Attention's dot with the values, for example: only it reads its slot, and its accumulator is scaled after the wait
    for the scores. Scores, powers and accumulator then have registers at the same time, of `registers` a thread.
    """
    if plan.late is None or not isinstance(plan.after, gpu.WgmmaWait) or not isinstance(plan.late.value, OpResult):
        return None
    wgmma = plan.late.value.op
    assert isinstance(wgmma, gpu.Wgmma)
    alone = any(all(user is wgmma for copy in copies for user in copy.readers) for copies in plan.channels())
    scaled = isinstance(wgmma.c, OpResult) and not isinstance(wgmma.c.op, gpu.Wgmma)
    if not alone or not scaled or wgmma.c.block is not plan.loop.body.entry:
        return None
    accumulator_registers = sum(layout_of(value.type).num_registers for value in (plan.after.value, wgmma.c))
    if isinstance(wgmma.a.type, TensorType):
        accumulator_registers += layout_of(wgmma.a.type).num_registers * scalar_element(wgmma.a.type).bytes // 4
    return wgmma if accumulator_registers + LOOP_REGISTERS <= registers else None


def _orders_memory(op: Op) -> bool:
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
    if not all(isinstance(user, _READERS) and (inside or user.parent is block) for user in users):
        return None
    value, steps = before_transposition(op.value)
    if not users or not isinstance(value, OpResult) or any(step.parent is not block for step in (value.op, *steps)):
        return None
    load = value.op
    first = set(users)
    reader = next((user for user in block.ops if user in first), users[0])
    if isinstance(load, tt.DescriptorLoad):
        return Copy(load, steps, op, alloc, 0, reader) if is_filled_by_tma(op.value, shared) else None
    if not isinstance(load, tt.Load) or load.volatile or load.cache is tt.CacheModifier.CV:
        return None
    if shared.element == i1 or not is_zero_or_undefined(load.other):
        return None
    width = consecutive(layout_of(op.value.type), shared, load.width)
    return Copy(load, steps, op, alloc, width, reader) if width * shared.element.bytes in CP_ASYNC_BYTES else None


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


def ahead_of(loop: scf.For, values: Sequence[Value]) -> tuple[tuple[Op, ...], tuple[int, ...]] | None:
    """The ops of a loop, in order, that compute these values in this and in later iterations, and the numbers of the
    carried values that they need.

    None if an op among them may not be run ahead.
    """
    around: dict[Value, list[int]] = {loop.result: []}
    computing = computed_from(values, around, lambda op: is_pure(op) and not may_trap(op), loop.body.entry)
    if isinstance(computing, Obstacle):
        return None
    return tuple(op for op in loop.body.entry.ops if op.result in computing), tuple(sorted(around[loop.result]))


def computed_from(
    values: Sequence[Value], around: dict[Value, list[int]], may_move: Callable[[Op], bool], within: Block | None = None
) -> set[Value] | Obstacle:
    """The results of the ops from which values are computed, or the op that may not be computed elsewhere.

    `around` has the results of the loops whose carried values may be computed, too, and gets the numbers of those that
    are. The ops are those of the block `within`, or of the whole function.
    """
    results: set[Value] = set()
    work = list(values)
    while work:
        value = work.pop()
        if value in results or (within is not None and value.block is not within):
            continue
        if isinstance(value, BlockParameter):
            owner = value.block.parent.parent
            assert owner is not None
            if isinstance(owner, tt.Func):
                continue
            if not isinstance(owner, scf.For) or owner.result not in around:
                return Obstacle("an address depends on a value that this op carries", owner)
            numbers, number = around[owner.result], value.index - 1
            if number >= 0 and number not in numbers:
                numbers.append(number)
                work += (owner.initial[number], owner.body.entry.terminator.operands[number])
            continue
        assert isinstance(value, OpResult)
        if value.op.bodies or not may_move(value.op):
            return Obstacle("an address does not follow from scalars by arithmetic", value.op)
        results.add(value)
        work += value.op.operands
    return results


def is_zero_or_undefined(other: Value | None) -> bool:
    """Whether a load gives zeros, or undefined values, where its mask is false. The bits of -0.0 are no zeros."""
    return other is None or str(constant_of(other)) in ("0", "0.0")
