"""Barriers, exactly where two accesses of shared memory conflict on some path.

    gpu.local_store %2 %1;
    %3 : tensor<…> = gpu.local_load %2;

becomes

    gpu.local_store %2 %1;
    gpu.barrier;
    %3 : tensor<…> = gpu.local_load %2;

Two accesses conflict when their intervals of shared memory overlap, at least one writes, and one thread may touch what
another has touched. Ops become the nodes of a graph of control; what was accessed since the last barrier flows along
its edges, the ways back of loops included; an access that meets a conflicting one is a hazard. The matrix units and the
copy engine read through another proxy: between a thread's writes and such a read there is a `gpu.fence_async` as well.

Copies and matrix products that are under way count as accesses until they have been waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import Layout
from ziggurat.codemodel.op import Block, Body, Op, OpResult, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import PtrType, SharedType, TensorType
from ziggurat.transforms.place.hazard import Hazard
from ziggurat.transforms.place.ldmatrix import matrix_view
from ziggurat.transforms.place.rings import allocation

READ, WRITE, COUNT = "read", "write", "count"


@attrs.frozen(eq=False)
class Access:
    """What one op does to an interval of shared memory.

    `holder` says which thread touches which place, where each place has one thread; None where that is not known.
    `flight` says of what goes on after the op which wait ends it: "copy" (cp.async), "matrix" (wgmma), "fetch" (a copy
    by the engine into shared memory; `barrier` is its mbarriers' buffer) or "bring" (one out of it). `proxy` is true of
    what does not see plain writes without a fence.
    """

    kind: str
    start: int
    end: int
    holder: tuple[int, SharedType, Layout] | None = None
    flight: str | None = None
    proxy: bool = False
    barrier: Value | None = None

    def conflicts(self, other: Access) -> bool:
        """Whether the order of the two matters and is not given by being the same thread's."""
        if self.start >= other.end or other.start >= self.end or self.kind == other.kind != WRITE:
            return False
        return self.holder is None or self.holder != other.holder


@attrs.define(eq=False)
class _Node:
    """An op that matters, or a place where paths meet."""

    op: Op | None
    depth: int
    accesses: list[int] = attrs.field(factory=list[int])
    following: list[int] = attrs.field(factory=list[int])


@attrs.frozen
class _State:
    """Sets of accesses, as masks: since the last barrier; under way; plain writes since the last fence."""

    pending: int = 0
    flying: int = 0
    unfenced: int = 0

    def __or__(self, other: _State) -> _State:
        return _State(self.pending | other.pending, self.flying | other.flying, self.unfenced | other.unfenced)


_EMPTY = _State()
_BARRIERS = (gpu.Barrier, tt.Barrier)
_FLIGHTS: dict[type[Op], str] = {gpu.AsyncWait: "copy", gpu.WgmmaWait: "matrix", gpu.TmaStoreWait: "bring"}
_WAITS = (gpu.AsyncWait, gpu.WgmmaWait, gpu.TmaStoreWait)


class _Graph:
    """The accesses of a model and the ways that control takes between them."""

    def __init__(self, module: gpu.Module) -> None:
        self.nodes: list[_Node] = []
        self.accesses: list[Access] = []
        self.owners: list[int] = []  # Of each access, its node.
        for op in module.body.entry.ops:
            if isinstance(op, tt.Func):
                self._body(op.body, [], 0)
        self.conflicts = [
            sum(1 << at for at, other in enumerate(self.accesses) if access.conflicts(other))
            for access in self.accesses
        ]
        self.flights = {
            flight: sum(1 << at for at, access in enumerate(self.accesses) if access.flight == flight)
            for flight in ("copy", "matrix", "bring")
        }
        self.fetches: dict[Value | None, int] = {}  # By the buffer of their mbarriers.
        for at, access in enumerate(self.accesses):
            if access.flight == "fetch":
                self.fetches[access.barrier] = self.fetches.get(access.barrier, 0) | 1 << at
        self.flights["fetch"] = sum(self.fetches.values())
        self.plain_writes = sum(
            1 << at for at, access in enumerate(self.accesses) if access.kind != READ and not access.proxy
        )
        self.before: list[list[int]] = [[] for _ in self.nodes]
        for number, node in enumerate(self.nodes):
            for following in node.following:
                self.before[following].append(number)

    # The graph.

    def _add(self, op: Op | None, sources: Sequence[int], depth: int) -> int:
        number = len(self.nodes)
        self.nodes.append(_Node(op, depth))
        for source in sources:
            self.nodes[source].following.append(number)
        return number

    def _body(self, body: Body, sources: list[int], depth: int) -> list[int]:
        """Add a body, entered from `sources`; the nodes where it is left."""
        if len(body.blocks) == 1:
            return self._ops(body.entry, sources, depth)
        starts: dict[Block, int] = {block: self._add(None, (), depth) for block in body.blocks}
        for source in sources:
            self.nodes[source].following.append(starts[body.entry])
        left: list[int] = []
        for block in body.blocks:
            ends = self._ops(block, [starts[block]], depth)
            for following in block.successors:
                for end in ends:
                    self.nodes[end].following.append(starts[following])
            if not block.successors:
                left += ends
        return left

    def _ops(self, block: Block, sources: list[int], depth: int) -> list[int]:
        for op in block.ops:
            sources = self._op(op, sources, depth)
        return sources

    def _op(self, op: Op, sources: list[int], depth: int) -> list[int]:
        if isinstance(op, scf.If | gpu.WarpSpecialize):
            # Roles go beside each other; what they share, mbarriers order.
            fork = self._add(None, sources, depth)
            return [end for body in op.bodies for end in self._body(body, [fork], depth)]
        if isinstance(op, scf.For | scf.While):
            head = self._add(None, sources, depth)
            leaving = [head]
            back = self._body(op.bodies[0], [head], depth + 1)
            if isinstance(op, scf.While):
                leaving = back
                back = self._body(op.after, back, depth + 1)
            for end in back:
                self.nodes[end].following.append(head)
            return leaving
        found = list(accesses_of(op))
        if not found and not isinstance(op, (*_BARRIERS, gpu.FenceAsync, gpu.MbarrierWait, *_WAITS)):
            return sources
        number = self._add(op, sources, depth)
        for access in found:
            self.nodes[number].accesses.append(len(self.accesses))
            self.accesses.append(access)
            self.owners.append(number)
        return [number]

    # What flows.

    def flow(self, barriers: set[int], fences: set[int]) -> list[_State]:
        """The state before each node, when there are further barriers and fences before some of them."""
        into = [_EMPTY] * len(self.nodes)
        work = list(range(len(self.nodes) - 1, -1, -1))
        waiting = set(work)
        while work:
            number = work.pop()
            waiting.discard(number)
            out = self._after(number, self.arriving(number, into[number], barriers, fences))
            for following in self.nodes[number].following:
                joined = into[following] | out
                if joined != into[following]:
                    into[following] = joined
                    if following not in waiting:
                        waiting.add(following)
                        work.append(following)
        return into

    def arriving(self, number: int, state: _State, barriers: set[int], fences: set[int]) -> _State:
        """The state at a node, behind what is put before it."""
        if number in barriers:
            state = attrs.evolve(state, pending=0)
        return attrs.evolve(state, unfenced=0) if number in fences else state

    def _after(self, number: int, state: _State) -> _State:
        node = self.nodes[number]
        op = node.op
        if isinstance(op, _BARRIERS):
            return attrs.evolve(state, pending=0)
        if isinstance(op, gpu.FenceAsync):
            return attrs.evolve(state, unfenced=0)
        if isinstance(op, gpu.MbarrierWait):
            # What the engine has brought is seen by all who have waited for it.
            flying = state.flying & ~self.fetches.get(allocation(op.barrier), 0)
            made = sum(1 << at for at in node.accesses)
            return attrs.evolve(state, pending=state.pending | made, flying=flying)
        if isinstance(op, _WAITS):
            over = state.flying & self.flights[_FLIGHTS[type(op)]]
            left = state.flying if op.pending else state.flying & ~over
            # A fence is of use only behind the wait.
            unfenced = state.unfenced | over & self.plain_writes
            return attrs.evolve(state, pending=state.pending | over, flying=left, unfenced=unfenced)
        made = sum(1 << at for at in node.accesses)
        flying = made & sum(self.flights.values())
        return _State(
            state.pending | made & ~flying, state.flying | flying, state.unfenced | made & self.plain_writes & ~flying
        )

    def hazards_at(self, number: int, state: _State) -> Iterator[tuple[int, str]]:
        """The accesses that conflict with those of a node, each with what is missing."""
        for at in self.nodes[number].accesses:
            access = self.accesses[at]
            conflicts = self.conflicts[at]
            for other in _bits(conflicts & state.pending):
                yield other, "barrier"
            if access.proxy:
                for other in _bits(conflicts & state.unfenced):
                    yield other, "fence"


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


# Accesses.

_ONE = Layout((), (0,) * 5, ())  # Of what one thread of the program does.


def _interval(buffer: Value) -> tuple[int, int]:
    """The first byte of the allocation of a buffer, and the byte after its last; all bytes where it is not known."""
    buffer = allocation(buffer)
    if not isinstance(buffer, OpResult) or not isinstance(buffer.op, gpu.LocalAlloc):
        return 0, 1 << 40
    return buffer.op.offset, buffer.op.offset + _type(buffer).bytes


def _type(buffer: Value) -> SharedType:
    assert isinstance(buffer.type, SharedType)
    return buffer.type


def _access(
    kind: str,
    buffer: Value,
    holder: Value | None = None,
    flight: str | None = None,
    proxy: bool = False,
    barrier: Value | None = None,
) -> Access:
    start, end = _interval(buffer)
    who: tuple[int, SharedType, Layout] | None = None
    type_ = holder.type if holder is not None else None
    if isinstance(type_, TensorType) and type_.layout is not None and not any(type_.layout.free[1:]):
        assert isinstance(buffer.type, SharedType)
        # Matrices are moved by the lanes of a warp together, so that a place has not one thread.
        if matrix_view(type_.layout, buffer.type.offsets, buffer.type.element.bytes) is None:
            who = (start, attrs.evolve(buffer.type, count=1), type_.layout)
    return Access(kind, start, end, who, flight, proxy, None if barrier is None else allocation(barrier))


def accesses_of(op: Op) -> Iterator[Access]:
    """What an op, without those inside it, does to shared memory."""
    if isinstance(op, gpu.LocalLoad):
        yield _access(READ, op.buffer, op.result)
    elif isinstance(op, gpu.LocalStore):
        yield _access(WRITE, op.buffer, op.value)
    elif isinstance(op, gpu.LocalGather):
        yield _access(READ, op.buffer)
    elif isinstance(op, gpu.LocalAtomicAdd):
        yield _access(COUNT, op.buffer)
    elif isinstance(op, gpu.AsyncCopy):
        assert isinstance(op.ptr.type, TensorType) and isinstance(op.ptr.type.element, PtrType)
        yield _access(WRITE, op.buffer, flight="copy")
    elif isinstance(op, gpu.Wgmma):
        for operand in (op.a, op.b):
            if isinstance(operand.type, SharedType):
                yield _access(READ, operand, flight="matrix", proxy=True)
    elif isinstance(op, gpu.DotFma | gpu.Mma):
        for operand in (op.a, op.b):
            if isinstance(operand.type, SharedType):
                yield _access(READ, operand)
    elif isinstance(op, gpu.TmaLoad):
        yield _access(WRITE, op.buffer, flight="fetch", proxy=True, barrier=op.barrier)
    elif isinstance(op, gpu.TmaStore):
        yield _access(READ, op.buffer, flight="bring", proxy=True)
    elif isinstance(op, gpu.MbarrierInit | gpu.MbarrierInval):
        # One thread's, and always the same's.
        yield attrs.evolve(_access(WRITE, op.buffer), holder=(-1, _type(op.buffer), _ONE))
    elif isinstance(op, gpu.MbarrierWait):
        yield _access(READ, op.barrier)


# The passes.


def missing_barriers(module: gpu.Module) -> list[Hazard]:
    """The pairs of accesses that no barrier, or no fence, keeps apart; none are left after the pass."""
    graph = _Graph(module)
    found: list[Hazard] = []
    for number, state in enumerate(graph.flow(set(), set())):
        node = graph.nodes[number]
        for other, missing in graph.hazards_at(number, state):
            first = graph.nodes[graph.owners[other]].op
            assert first is not None and node.op is not None
            found.append(Hazard(first, node.op, missing))
    return found


def insert_barriers(module: Op) -> Op:
    """The GPU model with barriers and fences where they are needed, and no more."""
    assert isinstance(module, gpu.Module)
    graph = _Graph(module)
    barriers, fences = _needed(graph)
    if not barriers and not fences:
        return module
    places = {
        node.op.result: (number in fences, number in barriers)
        for number, node in enumerate(graph.nodes)
        if node.op is not None
    }

    def with_barrier(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        fence, barrier = places.get(op.result, (False, False))
        if fence:
            builder.add(gpu.FenceAsync())
        if barrier:
            builder.add(gpu.Barrier())
        return None

    return transform(module, with_barrier, pass_name="barriers")


def _needed(graph: _Graph) -> tuple[set[int], set[int]]:
    """The nodes that need a barrier, and those that need a fence, before them."""
    barriers: set[int] = set()
    fences: set[int] = set()
    while (found := _first(graph, barriers, fences)) is not None:
        number, missing = found
        (fences if missing == "fence" else barriers).add(number)
    # A barrier that was needed when it was found may not be, with those that came later. The innermost go first.
    for number in sorted(barriers, key=lambda n: (-graph.nodes[n].depth, n)):
        if _first(graph, barriers - {number}, fences) is None:
            barriers = barriers - {number}
    return barriers, fences


def _first(graph: _Graph, barriers: set[int], fences: set[int]) -> tuple[int, str] | None:
    """The first node that needs one more barrier or fence, and which."""
    for number, state in enumerate(graph.flow(barriers, fences)):
        state = graph.arriving(number, state, barriers, fences)
        for _, missing in graph.hazards_at(number, state):
            return number, missing
    return None
