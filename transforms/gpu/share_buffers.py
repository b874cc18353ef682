"""Sharing of buffers: a tensor that is stored to two buffers in one form is stored once.

    %q : shared<x64, x32, f16, "32 64 …"> = gpu.local_alloc;
    gpu.local_store %q %value;
    %t = tt.trans %value @order=[1, 0];                  becomes    the first two ops, and
    %r : shared<x32, x64, f16, "1 2 …"> = gpu.local_alloc;          %r : shared<…> = gpu.local_trans %q @order=[1, 0];
    gpu.local_store %r %t;

The matrix units read both a matrix and its transpose, so two dots often need one tensor in two orders of its axes. The
backward pass of attention reads queries and the gradient of its result so. The dots of a branch read the buffers of the
block around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.asynchronous import BufferOp
from ziggurat.codemodel.op import Block, Op, Value
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import SharedType
from ziggurat.transforms.analysis.queries import shared_of
from ziggurat.transforms.layouts.tma_blocks import before_transposition


@attrs.frozen(eq=False)
class _Stored:
    """A buffer that is filled by one store, with axis i of it being axis `order[i]` of the tensor `value`."""

    store: gpu.LocalStore
    alloc: gpu.LocalAlloc
    value: Value
    order: tuple[int, ...]

    def form(self) -> SharedType:
        """The type of the buffer with the axes of the tensor."""
        back = [self.order.index(axis) for axis in range(len(self.order))]
        return gpu.transposed(shared_of(self.alloc.result), back)


def share_buffers(module: Op) -> Op:
    """The GPU model in which a tensor that several buffers hold in one form is in the first of them."""
    # For the allocation of a buffer that is not needed: the one that holds the tensor, and what is stored to it itself.
    instead: dict[Op, tuple[_Stored, _Stored]] = {}
    _find(module, {}, instead)
    alignments: dict[Op, int] = {}
    for first, tile in instead.values():
        best = alignments.get(first.alloc, first.alloc.alignment)
        alignments[first.alloc] = max(best, tile.alloc.alignment)
    if not instead:
        return module
    superfluous = {tile.store for _, tile in instead.values()}

    def shared(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op in superfluous:
            return DROP
        if op in alignments:
            return builder.add(gpu.LocalAlloc(op.result.type, alignment=alignments[op]), op.location)
        if op not in instead:
            return None
        first, tile = instead[op]
        buffer = builder[first.alloc.result]
        order = [first.order.index(axis) for axis in tile.order]
        return buffer if order == sorted(order) else builder.add(gpu.LocalTrans(buffer, order), op.location)

    return transform(module, shared, pass_name="share_buffers")


def _find(
    op: Op, outer: Mapping[tuple[Value, SharedType], _Stored], instead: dict[Op, tuple[_Stored, _Stored]]
) -> None:
    """Note the buffers in the bodies of an op that hold what another one holds: of the same block, or of the blocks
    around, the buffers of which before the op are `outer`."""
    for block in (block for body in op.bodies for block in body.blocks):
        tiles, tiles_by_store = dict(outer), dict[Op, _Stored]()
        tiles_by_store.update((tile.store, tile) for tile in _stored_once(block))
        for inner in block.ops:
            if (tile := tiles_by_store.get(inner)) is not None:
                first = tiles.setdefault((tile.value, tile.form()), tile)
                if first is not tile and (first.alloc.parent is not block or _is_before(first.alloc, tile.alloc)):
                    instead[tile.alloc] = first, tile
            _find(inner, tiles, instead)


def _is_before(first: Op, second: Op) -> bool:
    """Whether an op of a block comes before another one of it."""
    assert first.parent is not None
    return next(op for op in first.parent.ops if op is first or op is second) is first


def _stored_once(block: Block) -> Iterator[_Stored]:
    """The stores of a block to new buffers that no other op writes."""
    for store in block.ops:
        if not isinstance(store, gpu.LocalStore):
            continue
        alloc = store.buffer.op
        if not isinstance(alloc, gpu.LocalAlloc) or alloc.parent is not block:
            continue
        if all(user is store or (isinstance(user, BufferOp) and not user.writes) for user in store.buffer.uses):
            value, steps = before_transposition(store.value)
            order = tuple(range(len(shared_of(store.buffer).shape)))
            for step in steps:
                order = tuple(order[axis] for axis in step.order)
            yield _Stored(store, alloc, value, order)
