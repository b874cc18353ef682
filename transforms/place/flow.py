"""The control flow of a kernel as a graph, and the parts of shared memory that its ops touch.

    %b : shared<n3, x64, x64, f16, "…"> = gpu.local_alloc;        a ring of three slots, which a loop uses in turn
    %v : shared<x64, x64, f16, "…"> = gpu.local_view %b %slot;    the slot of this index

`barriers` and `hazards` propagate states along the edges of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Block, Body, Op, OpResult, Value
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import BodyTerminator, Loop
from ziggurat.transforms.place.components import Component, components_of
from ziggurat.transforms.place.queries import shared_of

# Ops that read buffers, and ops that read or write buffers, without those that access only mbarriers.
READERS = (gpu.Wgmma, gpu.Mma, gpu.DotFma, gpu.LocalLoad, gpu.LocalGather, gpu.TmaStore)
USERS = (*READERS, gpu.LocalStore, gpu.LocalAtomicAdd, gpu.AsyncCopy, gpu.TmaLoad, gpu.MakeTensorMap)
# Asynchronous ops, and the op that waits for each.
WAITS: dict[type[Op], type[Op]] = {
    gpu.Wgmma: gpu.WgmmaWait,
    gpu.AsyncCopy: gpu.AsyncWait,
    gpu.TmaStore: gpu.TmaStoreWait,
    gpu.TmaLoad: gpu.MbarrierWait,
}


def allocation(buffer: Value) -> Value:
    """The allocation that a buffer is part of."""
    while isinstance(buffer, OpResult) and isinstance(buffer.op, gpu.LocalView | gpu.LocalTrans):
        buffer = buffer.op.buffer
    return buffer


def slot_index(buffer: Value) -> Value | None:
    """The index of the slot that a buffer is; None for a buffer that is no slot of a ring."""
    while isinstance(buffer, OpResult) and isinstance(buffer.op, gpu.LocalTrans):
        buffer = buffer.op.buffer
    return buffer.op.index if isinstance(buffer, OpResult) and isinstance(buffer.op, gpu.LocalView) else None


def users_of(buffer: Value) -> Iterator[Op]:
    """The ops that use a buffer, a part of it, or it with its axes in another order."""
    for user in buffer.uses:
        if isinstance(user, gpu.LocalView | gpu.LocalTrans):
            yield from users_of(user.result)
        else:
            yield user


def interval(alloc: Value, slot: int | None = None) -> tuple[int, int]:
    """The bytes of an allocation, or of one of its slots; all bytes if the allocation is not known."""
    if not isinstance(alloc, OpResult) or not isinstance(alloc.op, gpu.LocalAlloc):
        return 0, 1 << 40
    type_, start = shared_of(alloc), alloc.op.offset
    size = type_.bytes // type_.count
    return (start, start + type_.bytes) if slot is None else (start + slot * size, start + (slot + 1) * size)


@attrs.frozen
class Access:
    """The bytes of shared memory that an op touches."""

    op: Op
    start: int
    end: int

    def overlaps(self, other: Access) -> bool:
        """Whether both touch some byte."""
        return self.start < other.end and other.start < self.end


@attrs.frozen(eq=False)
class Edge:
    """An edge to the node of number `target`; control flow passes `values` to the components `members`."""

    target: int
    members: Sequence[Component] = ()
    values: Sequence[Value] = ()


@attrs.frozen(eq=False)
class Node:
    """An op that matters, or a place where paths meet; `depth` is the number of loops around it."""

    op: Op | None
    depth: int
    following: list[Edge] = attrs.field(factory=list[Edge])


class Graph:
    """The ops of some classes in a function, and the paths between them. Node 0 is the entry.

    Warp roles are alternative paths: they run side by side, and mbarriers order what they share. The paths meet in a
    node of the `gpu.warp_specialize`.
    """

    def __init__(self, body: Body, kinds: tuple[type[Op], ...]) -> None:
        self.kinds = kinds
        self.nodes: list[Node] = []
        self._body(body, self._add(None, 0), 0)

    def _add(self, op: Op | None, depth: int, *sources: int) -> int:
        self.nodes.append(Node(op, depth))
        for source in sources:
            self.nodes[source].following.append(Edge(len(self.nodes) - 1))
        return len(self.nodes) - 1

    def _body(self, body: Body, start: int, depth: int) -> list[tuple[Op, int]]:
        """Add a body, entered from a node; the terminators by which it is left, and the last node before each."""
        starts: dict[Block, int] = {block: self._add(None, depth) for block in body.blocks[1:]}
        starts[body.entry] = start
        left: list[tuple[Op, int]] = []
        for block in body.blocks:
            at = starts[block]
            for op in block.ops:
                at = self._op(op, at, depth)
            for successor in block.terminator.successors:
                members = [(parameter, 0) for parameter in successor.block.parameters]
                self.nodes[at].following.append(Edge(starts[successor.block], members, successor.arguments))
            if not block.terminator.successors:
                left.append((block.terminator, at))
        return left

    def _op(self, op: Op, at: int, depth: int) -> int:
        """Add an op after a node; the last node of it."""
        if isinstance(op, gpu.WarpSpecialize):
            return self._add(op, depth, *(end for body in op.roles for _, end in self._body(body, at, depth)))
        if not isinstance(op, Structured):
            return self._add(op, depth, at) if isinstance(op, self.kinds) else at
        depth += isinstance(op, Loop)
        starts: dict[Body, int] = {}
        handed: list[tuple[Body | None, int, Sequence[Value]]] = [(None, at, op.inits)]
        for body in op.bodies:
            starts[body] = self._add(None, depth)
            for end, node in self._body(body, starts[body], depth):
                assert isinstance(end, BodyTerminator)
                handed.append((body, node, end.handed))
        after = self._add(None, depth)
        for before, node, values in handed:
            for body in op.following(before):
                members = components_of(op.result) if body is None else [(p, 0) for p in op.entry_arguments(body)]
                target = after if body is None else starts[body]
                self.nodes[node].following.append(Edge(target, members, values if members else ()))
        return after
