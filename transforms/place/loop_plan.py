"""What of a loop can be pipelined: which loads become copies ahead of their use, and which product stays under way.

A load is pipelined where a copy does the same: it goes only into buffers; its address follows from what the loop
carries; and nothing in the loop writes memory. A load through pointers is copied at least 4 bytes at a time, and what
its masks leave out is undefined or zero; a block goes through the copy engine, into a buffer as that lays it out.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

import attrs

from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import bits_of, combine, inverted
from ziggurat.codemodel.op import Block, BlockParameter, Op, OpResult, Value
from ziggurat.codemodel.types import SharedType, TensorType, i1, i32, i64
from ziggurat.transforms.place.tma import is_filled_by_engine
from ziggurat.transforms.simplify.effects import is_pure, may_trap, may_write

_READERS = (gpu.Wgmma, gpu.Mma, gpu.DotFma)
_COPIED_BYTES = (4, 8, 16)  # What one cp.async moves.

Uses = Mapping[Value, tuple[Op, ...]]
Programs = Callable[[int, int], int]


@attrs.frozen(eq=False)
class Copy:
    """A load that becomes copies: through `transposed`, stored by `store` to `buffer`, `width` elements at a time.

    By the copy engine if the load is of a block; `reader` is then the first op that reads the buffer.
    """

    load: tt.Load | tt.DescriptorLoad
    transposed: tuple[tt.Trans, ...]
    store: gpu.LocalStore
    buffer: gpu.LocalAlloc
    width: int
    reader: Op

    @property
    def by_engine(self) -> bool:
        """Whether the copy engine does it."""
        return isinstance(self.load, tt.DescriptorLoad)


@attrs.frozen(eq=False)
class Late:
    """A product that is waited for in the next iteration.

    `wait` is its wait, whose value the loop carries at `position`. Behind `covered`, an op of the loop, the product of
    the iteration before is complete: either the wait for another product, or the product itself, which adds to the same
    sum and is waited for but for one group (`chained`).
    """

    wait: gpu.WgmmaWait
    position: int
    covered: Op
    chained: bool


@attrs.frozen(eq=False)
class LoopPlan:
    """How a loop is pipelined.

    `ahead` are the ops that compute the addresses and what they need of the next iteration, in order; `carried` the
    numbers of the carried values that they start from. Copies go into the buffer that was read `behind` iterations
    before: 1 needs a barrier behind the wait for the late product, 2 none but that behind the wait for the copies.
    """

    copies: tuple[Copy, ...]
    stages: int
    step: int
    ahead: tuple[Op, ...]
    carried: tuple[int, ...]
    late: Late | None
    behind: int = 1

    @property
    def distance(self) -> int:
        """By how many iterations the copies are ahead."""
        return self.stages - self.behind

    def groups(self) -> dict[Value, list[Copy]]:
        """The engine's copies by the result of their first reader: each group has an mbarrier for each stage."""
        found: dict[Value, list[Copy]] = {}
        for copy in self.copies:
            if copy.by_engine:
                found.setdefault(copy.reader.result, []).append(copy)
        return found


def planned(
    loop: scf.For, num_stages: int, uses: Uses, limit: int, programs: Programs = lambda further, registers: 1
) -> LoopPlan | None:
    """How to pipeline a loop with up to `limit` bytes for further buffers. `programs` tells how many programs a
    multiprocessor holds when these take so many bytes, and the loop's sum so many registers of a thread."""
    step = _constant(loop.step)
    if num_stages < 2 or not step or loop.start.type not in (i32, i64) or len(loop.body.blocks) != 1:
        return None
    if not all(isinstance(op, core.TupleLoad) for op in uses.get(loop.result, ())) and len(loop.initial) > 1:
        return None
    if any(_orders_memory(op) for op in loop.body.entry.ops):
        return None
    copies = [copy for op in loop.body.entry.ops if (copy := _copy_of(op, uses)) is not None]
    stores = {copy.store.result for copy in copies}
    copies = [copy for copy in copies if _only_stored(copy.load, uses, stores)]
    traced = [(copy, found) for copy in copies if (found := _ahead(loop, _addresses(copy))) is not None]
    if not traced:
        return None
    ahead = {op.result for _, (ops, _) in traced for op in ops}
    carried = sorted({number for _, (_, numbers) in traced for number in numbers})
    each = sum(_shared(copy.buffer).bytes for copy, _ in traced)
    in_order = tuple(op for op in loop.body.entry.ops if op.result in ahead)
    kept = tuple(copy for copy, _ in traced)
    most = limit // each + 1
    stages, behind, late = min(num_stages, most), 1, _late(loop, kept)
    if late is not None and not any(copy.by_engine for copy in kept):
        if num_stages < most and _as_many(programs, late, (num_stages - 1) * each, each):
            stages, behind = num_stages + 1, 2
        elif stages == 2:
            late = None  # The copies would begin only when there is nothing left to hide them behind.
    if stages < 2 or abs(step) * stages >= 1 << 30:
        return None
    return LoopPlan(kept, stages, step, in_order, tuple(carried), late, behind)


def _as_many(programs: Programs, late: Late, further: int, more: int) -> bool:
    """Whether a multiprocessor holds as many programs when the buffers of a loop take `more` bytes than `further`."""
    type_ = late.wait.result.type
    assert isinstance(type_, TensorType) and type_.layout is not None
    registers = type_.layout.num_registers
    return programs(further + more, registers) == programs(further, registers)


def _late(loop: scf.For, copies: Sequence[Copy]) -> Late | None:
    """The last product of a loop's body, if it can be waited for in the next iteration.

    Only its sum may be taken on, and what it reads must still be there: in buffers of several that are filled in one
    way, or from before the loop.
    """
    block = loop.body.entry
    waits = [op for op in block.ops if isinstance(op, gpu.WgmmaWait)]
    if not waits or len({copy.by_engine for copy in copies}) > 1:
        return None
    wait, end = waits[-1], block.terminator
    if not isinstance(wait.value, OpResult) or wait.pending or len(wait.value.uses) > 1:
        return None
    product = wait.value.op
    positions = [at for at, value in enumerate(end.operands) if value is wait.result]
    if not isinstance(product, gpu.Wgmma) or len(wait.result.uses) > 1 or len(positions) != 1:
        return None
    kept = {copy.buffer.result for copy in copies}
    read = [value for value in (product.a, product.b) if isinstance(value.type, SharedType)]
    if any(value not in kept and value.block is block for value in read):
        return None
    carried = loop.body.parameters[positions[0] + 1]
    order = {op.result: at for at, op in enumerate(block.ops)}
    used = [order[op_in(user, block).result] for user in carried.uses]
    if product.c is carried and len(used) == 1 and len(waits) == 1:
        return Late(wait, positions[0], product, chained=True)
    covered = waits[0]
    if covered is wait or covered.pending or any(at <= order[covered.result] for at in used):
        return None
    return Late(wait, positions[0], covered, chained=False)


def _orders_memory(op: Op) -> bool:
    """Whether a load may not be moved before this op, which stands in the loop."""
    for inner in op.walk():
        if inner.NAME.startswith("gpu."):
            continue
        if isinstance(inner, tt.Barrier | tt.Call) or (not inner.bodies and may_write(inner)):
            return True
    return False


def _copy_of(op: Op, uses: Uses) -> Copy | None:
    """How the tensor that an op stores to a buffer can be copied there instead."""
    if not isinstance(op, gpu.LocalStore) or not isinstance(op.buffer, OpResult):
        return None
    alloc, block = op.buffer.op, op.parent
    if block is None or not isinstance(alloc, gpu.LocalAlloc) or alloc.parent is not block or _shared(alloc).count != 1:
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
        filled = is_filled_by_engine(op.value, _shared(alloc))
        return Copy(load, steps, op, alloc, 0, reader) if filled else None
    if not isinstance(load, tt.Load):
        return None
    element = _shared(alloc).element
    if load.volatile or load.cache is tt.CacheModifier.CV or element == i1 or not _is_nothing(load.other):
        return None
    width = _width(op, load.width)
    if width * element.bytes not in _COPIED_BYTES:
        return None
    return Copy(load, steps, op, alloc, width, reader)


def _width(store: gpu.LocalStore, width: int) -> int:
    """How many of the neighbours that a load takes together are neighbours in the buffer, too."""
    assert isinstance(store.value.type, TensorType) and store.value.type.layout is not None
    places = inverted(_type(store.buffer).offsets)
    bases = store.value.type.layout.registers[: bits_of(width)]
    together = 0
    while together < len(bases) and combine(places, bases[together]) == 1 << together:
        together += 1
    return 1 << together


def _only_stored(value: Op, uses: Uses, stores: Container[Value]) -> bool:
    """Whether a load goes nowhere but into the buffers."""
    return all(
        _only_stored(user, uses, stores) if isinstance(user, tt.Trans) else user.result in stores
        for user in uses.get(value.result, ())
    )


def _addresses(copy: Copy) -> list[Value]:
    if isinstance(copy.load, tt.DescriptorLoad):
        return list(copy.load.offsets)
    return [copy.load.ptr] if copy.load.mask is None else [copy.load.ptr, copy.load.mask]


def _ahead(loop: scf.For, wanted: Sequence[Value]) -> tuple[list[Op], set[int]] | None:
    """The ops of a loop that compute these values, and their like in later iterations, from what it carries.

    None where they may not be run ahead.
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


def _is_nothing(other: Value | None) -> bool:
    """Whether what a load gives for false masks is undefined, or zeros."""
    while isinstance(other, OpResult) and isinstance(other.op, tt.Splat | tt.Broadcast | gpu.ConvertLayout):
        other = other.op.value
    if other is None:
        return True
    if not isinstance(other, OpResult) or not isinstance(other.op, arith.ConstantOp):
        return False
    return str(other.op.value) in ("0", "0.0")  # Not -0.0, whose bits are others.


def _constant(value: Value) -> int | None:
    return value.op.value if isinstance(value, OpResult) and isinstance(value.op, arith.ConstantOp) else None


def _type(value: Value) -> SharedType:
    assert isinstance(value.type, SharedType)
    return value.type


def _shared(alloc: gpu.LocalAlloc) -> SharedType:
    return _type(alloc.result)


def op_in(op: Op, block: Block) -> Op:
    """The op of a block that an op is, or is inside of."""
    while op.parent is not block:
        owner = op.parent_op
        assert owner is not None
        op = owner
    return op
