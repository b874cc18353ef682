"""The control flow of a kernel as a graph, and the parts of shared memory that its ops touch.

    %b : shared<n3, x64, x64, f16, "…"> = gpu.local_alloc;        a ring of three slots, which a loop uses in turn
    %v : shared<x64, x64, f16, "…"> = gpu.local_view %b %slot;    the slot of this index

`barriers` and `hazards` propagate states along the edges of the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.fragments import panels_of
from ziggurat.codemodel.op import Block, Body, Op, Value
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.types import SharedType
from ziggurat.transforms.place.queries import shared_of

# Ops that read buffers, and ops that read or write buffers, without those that access only mbarriers.
READERS = (gpu.Wgmma, gpu.Mma, gpu.DotFma, gpu.LocalLoad, gpu.LocalGather, gpu.TmaStore)
USERS = (*READERS, gpu.LocalStore, gpu.LocalAtomicAdd, gpu.ClusterStore, gpu.AsyncCopy, gpu.TmaLoad, gpu.MakeTensorMap)
# Asynchronous ops, and the op that waits for each.
WAITS: dict[type[Op], type[Op]] = {
    gpu.Wgmma: gpu.WgmmaWait,
    gpu.AsyncCopy: gpu.AsyncWait,
    gpu.TmaStore: gpu.TmaStoreWait,
    gpu.TmaLoad: gpu.MbarrierWait,
    gpu.ClusterStore: gpu.MbarrierWait,
}


def allocation(buffer: Value) -> Value:
    """The allocation that a buffer is part of."""
    while isinstance(buffer.op, gpu.LocalView | gpu.LocalTrans):
        buffer = buffer.op.buffer
    return buffer


def slot_index(buffer: Value) -> Value | None:
    """The index of the slot that a buffer is; None for a buffer that is no slot of a ring."""
    while isinstance(buffer.op, gpu.LocalTrans):
        buffer = buffer.op.buffer
    return buffer.op.index if isinstance(buffer.op, gpu.LocalView) else None


def read_in_flight(op: Op) -> list[Value]:
    """The allocations that matrix units read, until the wait for an op.

    Only a wgmma has any. Before it begins, threads read an operand of 8 or 32 bits whose neighbours are not along k.
    """
    if not isinstance(op, gpu.Wgmma):
        return []
    values: list[Value] = []
    for value, k_axis in ((op.a, 1), (op.b, 0)):
        if isinstance(type_ := value.type, SharedType):
            panels = panels_of(type_, k_axis)
            if panels is None or panels.k_major or type_.element.bytes == 2:
                values.append(allocation(value))
    return values


def users_of(buffer: Value) -> Iterator[Op]:
    """The ops that use a buffer, a part of it, or it with its axes in another order."""
    for user in buffer.uses:
        if isinstance(user, gpu.LocalView | gpu.LocalTrans):
            yield from users_of(user.result)
        else:
            yield user


def last_of(op: Op, readers: Iterable[Op]) -> Op:
    """The last op of the block of an op that is one of these readers, or has one inside."""
    block = op.parent
    assert block is not None
    inside = {op for reader in readers for op in (reader, *reader.path())}
    return next(inner for inner in reversed(block.ops) if inner in inside)


def interval(alloc: Value) -> tuple[int, int]:
    """The bytes of an allocation; all bytes if it is not known."""
    if not isinstance(alloc.op, gpu.LocalAlloc):
        return 0, 1 << 40
    return alloc.op.offset, alloc.op.offset + shared_of(alloc).bytes


@attrs.frozen
class SharedAccess:
    """The bytes of shared memory that an op touches."""

    op: Op
    start: int
    end: int

    def overlaps(self, other: SharedAccess) -> bool:
        """Whether both touch some byte."""
        return self.start < other.end and other.start < self.end


@attrs.frozen(eq=False)
class Node:
    """An op that matters, or a place where paths meet; `depth` is the number of loops around it, and `following` has
    the numbers of the nodes to which paths go on."""

    op: Op | None
    depth: int
    following: list[int] = attrs.field(factory=list[int])


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
            self.nodes[source].following.append(len(self.nodes) - 1)
        return len(self.nodes) - 1

    def _body(self, body: Body, start: int, depth: int) -> list[int]:
        """Add a body, entered from a node; the last node before each terminator by which it is left."""
        starts: dict[Block, int] = {block: self._add(None, depth) for block in body.blocks[1:]}
        starts[body.entry] = start
        exits: list[int] = []
        for block in body.blocks:
            at = starts[block]
            for op in block.ops:
                at = self._op(op, at, depth)
            self.nodes[at].following.extend(starts[successor] for successor in block.successors)
            if not block.terminator.successors:
                exits.append(at)
        return exits

    def _op(self, op: Op, at: int, depth: int) -> int:
        """Add an op after a node; the last node of it."""
        if isinstance(op, gpu.WarpSpecialize):
            return self._add(op, depth, *(end for body in op.roles for end in self._body(body, at, depth)))
        if not isinstance(op, Structured):
            return self._add(op, depth, at) if isinstance(op, self.kinds) else at
        depth += isinstance(op, Loop)
        starts: dict[Body, int] = {}
        ends: list[tuple[Body | None, int]] = [(None, at)]
        for body in op.bodies:
            starts[body] = self._add(None, depth)
            ends += [(body, end) for end in self._body(body, starts[body], depth)]
        after = self._add(None, depth)
        for before, node in ends:
            following = op.following(before)
            self.nodes[node].following.extend(after if body is None else starts[body] for body in following)
        return after
