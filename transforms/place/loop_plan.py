"""The plan for pipelining a loop: which loads become copies ahead of their use, and which wgmma stays in flight.

A load is pipelined if a copy does the same: the loaded tensor goes only into buffers, its address follows from values
that the loop carries, and nothing in the loop writes memory. A load through pointers is copied at least 4 bytes at a
time, and elements whose mask is false are undefined or zero. A load through a descriptor is done by TMA, into a buffer
in TMA's own form.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial

import attrs

from ziggurat.codemodel.dialects import core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import bits_of, combine, inverted
from ziggurat.codemodel.op import BlockParameter, Op, OpResult, Value
from ziggurat.codemodel.types import SharedType, i1, i32, i64
from ziggurat.transforms.place.obstacle import Obstacle
from ziggurat.transforms.place.queries import constant_of, layout_of, op_in, shared_of
from ziggurat.transforms.place.tma import is_filled_by_tma
from ziggurat.transforms.simplify.effects import is_pure, may_trap, may_write

_READERS = (gpu.Wgmma, gpu.Mma, gpu.DotFma)
_CP_ASYNC_BYTES = (4, 8, 16)  # Bytes that one cp.async copies.

Uses = Mapping[Value, tuple[Op, ...]]
# The occupancy (CTAs per SM), given the bytes of a loop's buffers and the registers a thread of its accumulator.
Occupancy = Callable[[int, int], int]


@attrs.frozen(eq=False)
class Copy:
    """A load that becomes copies: through `transposed`, stored by `store` to `buffer`, `width` elements at a time.

    `reader` is the first op that reads the buffer.
    """

    load: tt.Load | tt.DescriptorLoad
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
    def shared(self) -> SharedType:
        """The type of the buffer."""
        return shared_of(self.buffer.result)


@attrs.frozen(eq=False)
class Deferred:
    """A wgmma that is waited for in the next iteration.

    `wait` is its wait, whose value the loop carries at `position`. After the op `covered`, the wgmma of the previous
    iteration is complete: `covered` is a wait for another wgmma, or (`chained`) this iteration's wgmma on the same
    accumulator, with a wait for all but one group after it.
    """

    wait: gpu.WgmmaWait
    position: int
    covered: Op
    chained: bool


@attrs.frozen(eq=False)
class LoopPlan:
    """The plan for one pipelined loop.

    `ahead` are the ops, in order, that compute the addresses of the next iteration; `carried` the numbers of the
    carried values that they start from. A copy fills the slot that was read `reuse` iterations before: 1 needs a
    barrier after the wait for the deferred wgmma; for 2, the barrier after the wait for the copies does. `left` are the
    loads for dots that are not pipelined.
    """

    copies: tuple[Copy, ...]
    stages: int
    step: int
    ahead: tuple[Op, ...]
    carried: tuple[int, ...]
    deferred: Deferred | None
    reuse: int = 1
    left: tuple[Obstacle, ...] = ()

    @property
    def distance(self) -> int:
        """The number of iterations by which the copies are ahead."""
        return self.stages - self.reuse

    def groups(self) -> dict[Value, list[Copy]]:
        """TMA's copies by the result of their first reader: each group has an mbarrier for each stage."""
        found: dict[Value, list[Copy]] = {}
        for copy in self.copies:
            if copy.by_tma:
                found.setdefault(copy.reader.result, []).append(copy)
        return found


def planned(
    loop: scf.For, num_stages: int, uses: Uses, limit: int, occupancy: Occupancy = lambda bytes_, registers: 1
) -> LoopPlan | Obstacle:
    """The plan for a loop, with up to `num_stages` stages and `limit` bytes for further buffers; or the obstacle."""
    step = constant_of(loop.step)
    if num_stages < 2:
        return Obstacle("it has one stage", loop)
    if not isinstance(step, int) or not step or loop.start.type not in (i32, i64):
        return Obstacle("its step must be a constant, and its index an i32 or i64", loop)
    if len(loop.body.blocks) != 1:
        return Obstacle("its body has jumps", loop)
    if not all(isinstance(op, core.TupleLoad) for op in uses.get(loop.result, ())) and len(loop.initial) > 1:
        return Obstacle("its results are used as one Tuple", loop)
    writer = next((inner for op in loop.body.entry.ops for inner in op.walk() if _orders_memory(inner)), None)
    if writer is not None:
        return Obstacle("an op in it writes to global memory or orders its accesses", writer)
    copies = [copy for op in loop.body.entry.ops if (copy := _copy_of(op, uses)) is not None]
    stores = {copy.store.result for copy in copies}
    copies = [copy for copy in copies if _is_only_stored(copy.load, uses, stores)]
    if not copies:
        return Obstacle("no load in it goes only to a dot", loop)
    traced = [(copy, found) for copy in copies if (found := _ahead(loop, _addresses(copy))) is not None]
    why = "its address depends on what the loop loads, or may not be computed ahead"
    left = [Obstacle(why, copy.load) for copy in copies if all(copy is not other for other, _ in traced)]
    if not traced:
        return left[0]
    ahead = {op.result for _, (ops, _) in traced for op in ops}
    carried = sorted({number for _, (_, numbers) in traced for number in numbers})
    stage_bytes = sum(copy.shared.bytes for copy, _ in traced)
    in_order = tuple(op for op in loop.body.entry.ops if op.result in ahead)
    kept = tuple(copy for copy, _ in traced)
    most = limit // stage_bytes + 1
    stages, reuse, deferred = min(num_stages, most), 1, _deferred(loop, kept)
    if deferred is not None and not any(copy.by_tma for copy in kept):
        registers = layout_of(deferred.wait.result.type).num_registers
        more, same = (partial(occupancy, count * stage_bytes, registers) for count in (num_stages, num_stages - 1))
        if num_stages < most and more() == same():
            stages, reuse = num_stages + 1, 2
        elif stages == 2:
            deferred = None  # Copies that begin after the deferred wgmma would overlap with nothing.
    if stages < 2 or abs(step) * stages >= 1 << 30:
        return Obstacle(f"there is no shared memory for a second stage of {stage_bytes} bytes", loop)
    return LoopPlan(kept, stages, step, in_order, tuple(carried), deferred, reuse, tuple(left))


def _deferred(loop: scf.For, copies: Sequence[Copy]) -> Deferred | None:
    """The last wgmma of a loop's body, if it can be waited for in the next iteration.

    Only its accumulator may be carried, and its operands must stay: in slots that are all filled in the same way, or
    in buffers from before the loop.
    """
    block = loop.body.entry
    waits = [op for op in block.ops if isinstance(op, gpu.WgmmaWait)]
    if not waits or len({copy.by_tma for copy in copies}) > 1:
        return None
    wait, end = waits[-1], block.terminator
    if not isinstance(wait.value, OpResult) or wait.pending or len(wait.value.uses) > 1:
        return None
    wgmma = wait.value.op
    positions = [at for at, value in enumerate(end.operands) if value is wait.result]
    if not isinstance(wgmma, gpu.Wgmma) or len(wait.result.uses) > 1 or len(positions) != 1:
        return None
    kept = {copy.buffer.result for copy in copies}
    read = [value for value in (wgmma.a, wgmma.b) if isinstance(value.type, SharedType)]
    if any(value not in kept and value.block is block for value in read):
        return None
    carried = loop.body.parameters[positions[0] + 1]
    order = {op.result: at for at, op in enumerate(block.ops)}
    used = [order[op_in(user, block).result] for user in carried.uses]
    if wgmma.c is carried and len(used) == 1 and len(waits) == 1:
        return Deferred(wait, positions[0], wgmma, chained=True)
    covered = waits[0]
    if covered is wait or covered.pending or any(at <= order[covered.result] for at in used):
        return None
    return Deferred(wait, positions[0], covered, chained=False)


def _orders_memory(op: Op) -> bool:
    """Whether a load may not be moved before this op, bodies aside."""
    if op.NAME.startswith("gpu."):
        return False
    return isinstance(op, tt.Barrier | tt.Call) or (not op.bodies and may_write(op))


def _copy_of(op: Op, uses: Uses) -> Copy | None:
    """The copy that replaces a load and a store to a buffer; None if there is none."""
    if not isinstance(op, gpu.LocalStore) or not isinstance(op.buffer, OpResult):
        return None
    alloc, block, shared = op.buffer.op, op.parent, shared_of(op.buffer)
    if block is None or not isinstance(alloc, gpu.LocalAlloc) or alloc.parent is not block or shared.count != 1:
        return None
    users = [user for user in uses[op.buffer] if user is not op]
    if not all(isinstance(user, _READERS) and user.parent is block for user in users):
        return None
    transposed: list[tt.Trans] = []
    value = op.value
    while isinstance(value, OpResult) and isinstance(value.op, tt.Trans) and value.op.parent is block:
        transposed.append(value.op)
        value = value.op.value
    if not isinstance(value, OpResult) or value.op.parent is not block or not users:
        return None
    load = value.op
    first = {user.result for user in users}
    reader = next(user for user in block.ops if user.result in first)
    steps = tuple(reversed(transposed))
    if isinstance(load, tt.DescriptorLoad):
        return Copy(load, steps, op, alloc, 0, reader) if is_filled_by_tma(op.value, shared) else None
    if not isinstance(load, tt.Load) or load.volatile or load.cache is tt.CacheModifier.CV:
        return None
    if shared.element == i1 or not _is_zero_or_undefined(load.other):
        return None
    width = _width(op, load.width)
    return Copy(load, steps, op, alloc, width, reader) if width * shared.element.bytes in _CP_ASYNC_BYTES else None


def _width(store: gpu.LocalStore, width: int) -> int:
    """The number of consecutive elements of one access of a load that are consecutive in the buffer as well."""
    places = inverted(shared_of(store.buffer).offsets)
    bases = layout_of(store.value.type).registers[: bits_of(width)]
    together = 0
    while together < len(bases) and combine(places, bases[together]) == 1 << together:
        together += 1
    return 1 << together


def _is_only_stored(value: Op, uses: Uses, stores: Container[Value]) -> bool:
    """Whether a loaded tensor goes nowhere but into the buffers."""
    return all(
        _is_only_stored(user, uses, stores) if isinstance(user, tt.Trans) else user.result in stores
        for user in uses.get(value.result, ())
    )


def _addresses(copy: Copy) -> list[Value]:
    """The operands of a load that make its addresses."""
    if isinstance(copy.load, tt.DescriptorLoad):
        return list(copy.load.offsets)
    return [copy.load.ptr] if copy.load.mask is None else [copy.load.ptr, copy.load.mask]


def _ahead(loop: scf.For, wanted: Sequence[Value]) -> tuple[list[Op], set[int]] | None:
    """The ops of a loop that compute these values in this and in later iterations, and the carried values they need.

    None where an op among them may not be run ahead.
    """
    block = loop.body.entry
    yielded = block.terminator.operands
    ops: dict[Value, Op] = {}
    carried: set[int] = set()
    work = list(wanted)
    while work:
        value = work.pop()
        if value.block is not block or value in ops:
            continue
        if isinstance(value, BlockParameter):
            number = loop.body.parameters.index(value) - 1
            if number >= 0 and number not in carried:
                carried.add(number)
                work.append(yielded[number])
            continue
        assert isinstance(value, OpResult)
        op = value.op
        if not is_pure(op) or op.bodies or may_trap(op):
            return None
        ops[value] = op
        work += op.operands
    return list(ops.values()), carried


def _is_zero_or_undefined(other: Value | None) -> bool:
    """Whether a load gives zeros, or undefined values, where its mask is false. The bits of -0.0 are no zeros."""
    return other is None or str(constant_of(other)) in ("0", "0.0")
