"""Barriers, exactly where two accesses of shared memory conflict on some path.

    gpu.local_store %2 %1;
    %3 : tensor<…> = gpu.local_load %2;

becomes

    gpu.local_store %2 %1;
    gpu.barrier;
    %3 : tensor<…> = gpu.local_load %2;

Two accesses conflict if their intervals of shared memory overlap, at least one writes, and one thread may touch what
another has touched. Ops become the nodes of a control-flow graph; the accesses since the last barrier flow along its
edges, back edges of loops included. The matrix units and TMA access memory through another proxy: between a thread's
writes and such a read there is a `gpu.fence_async` as well.

An asynchronous access counts from the wait for it on; `in_flight` checks that there is one in time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import Layout
from ziggurat.codemodel.op import Block, Body, Op, OpResult, Value
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import SharedType, TensorType
from ziggurat.transforms.place.ldmatrix import matrix_view
from ziggurat.transforms.place.queries import shared_of
from ziggurat.transforms.place.rings import Hazard, allocation

READ, WRITE, COUNT = "read", "write", "count"


@attrs.frozen(eq=False)
class Access:
    """An access of one op to an interval of shared memory.

    `holder` says which thread touches which place, if each place has one thread; None where that is not known. `until`
    says of an asynchronous access what ends it: the class of a wait, or the allocation of an mbarrier. `proxy` is true
    of accesses that do not see plain writes without a fence.
    """

    kind: str
    start: int
    end: int
    holder: tuple[int, SharedType, Layout] | None = None
    until: type[Op] | Value | None = None
    proxy: bool = False

    def conflicts(self, other: Access) -> bool:
        """Whether the order of the two matters, and is not given by being the same thread's."""
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
    """Sets of accesses, as masks: those since the last barrier, those in flight, plain writes since the last fence."""

    pending: int = 0
    in_flight: int = 0
    unfenced: int = 0

    def __or__(self, other: _State) -> _State:
        return _State(self.pending | other.pending, self.in_flight | other.in_flight, self.unfenced | other.unfenced)


_BARRIERS = (gpu.Barrier, tt.Barrier)
_WAITS = (gpu.AsyncWait, gpu.WgmmaWait, gpu.TmaStoreWait)


class _Graph:
    """The accesses of a model, and the paths of control between them."""

    def __init__(self, module: gpu.Module) -> None:
        self.nodes: list[_Node] = []
        self.accesses: list[Access] = []
        self.owners: list[int] = []  # The node of each access.
        for op in module.body.entry.ops:
            if isinstance(op, tt.Func):
                self._body(op.body, [], 0)
        numbered = list(enumerate(self.accesses))
        self.conflicts = [sum(1 << at for at, other in numbered if access.conflicts(other)) for _, access in numbered]
        self.until: dict[type[Op] | Value | None, int] = {}  # The accesses that each wait ends.
        for at, access in numbered:
            self.until[access.until] = self.until.get(access.until, 0) | 1 << at
        self.asynchronous = sum(mask for wait, mask in self.until.items() if wait is not None)
        self.plain_writes = sum(1 << at for at, access in numbered if access.kind != READ and not access.proxy)

    # The graph.

    def _add(self, op: Op | None, sources: Sequence[int], depth: int) -> int:
        number = len(self.nodes)
        self.nodes.append(_Node(op, depth))
        self._lead(sources, number)
        return number

    def _lead(self, sources: Sequence[int], target: int) -> None:
        for source in sources:
            self.nodes[source].following.append(target)

    def _body(self, body: Body, sources: Sequence[int], depth: int) -> Sequence[int]:
        """Add a body, entered from `sources`; the nodes where it is left."""
        if len(body.blocks) == 1:
            return self._ops(body.entry, sources, depth)
        starts: dict[Block, int] = {block: self._add(None, (), depth) for block in body.blocks}
        self._lead(sources, starts[body.entry])
        left: list[int] = []
        for block in body.blocks:
            ends = self._ops(block, [starts[block]], depth)
            for following in block.successors:
                self._lead(ends, starts[following])
            if not block.successors:
                left += ends
        return left

    def _ops(self, block: Block, sources: Sequence[int], depth: int) -> Sequence[int]:
        for op in block.ops:
            sources = self._op(op, sources, depth)
        return sources

    def _op(self, op: Op, sources: Sequence[int], depth: int) -> Sequence[int]:
        if isinstance(op, gpu.WarpSpecialize):
            # Roles run side by side; mbarriers order what they share.
            fork = self._add(None, sources, depth)
            return [end for body in op.roles for end in self._body(body, [fork], depth)]
        if isinstance(op, Structured):
            head = self._add(None, sources, depth)
            ends: dict[Body | None, Sequence[int]] = {None: [head]}
            for body in op.bodies:
                entered = [end for before, nodes in ends.items() if body in op.following(before) for end in nodes]
                ends[body] = self._body(body, entered, depth + isinstance(op, Loop))
                if any(following in ends for following in op.following(body) if following is not None):
                    self._lead(ends[body], head)
            return [end for body, nodes in ends.items() if None in op.following(body) for end in nodes]
        found = list(accesses_of(op))
        if not found and not isinstance(op, (*_BARRIERS, gpu.FenceAsync, gpu.MbarrierWait, *_WAITS)):
            return sources
        number = self._add(op, sources, depth)
        for access in found:
            self.nodes[number].accesses.append(len(self.accesses))
            self.accesses.append(access)
            self.owners.append(number)
        return [number]

    # The flow of accesses.

    def flow(self, barriers: set[int], fences: set[int]) -> list[_State]:
        """The state before each node, if there are further barriers and fences before some of them."""
        into = [_State()] * len(self.nodes)
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
        """The state at a node, after the barrier and the fence before it."""
        if number in barriers:
            state = attrs.evolve(state, pending=0)
        return attrs.evolve(state, unfenced=0) if number in fences else state

    def _after(self, number: int, state: _State) -> _State:
        op = self.nodes[number].op
        made = sum(1 << at for at in self.nodes[number].accesses)
        if isinstance(op, _BARRIERS):
            return attrs.evolve(state, pending=0)
        if isinstance(op, gpu.FenceAsync):
            return attrs.evolve(state, unfenced=0)
        if isinstance(op, gpu.MbarrierWait):
            # Threads that have waited for a fetch see its data: no barrier is needed for that.
            brought = self.until.get(allocation(op.barrier), 0)
            return attrs.evolve(state, pending=state.pending | made, in_flight=state.in_flight & ~brought)
        if isinstance(op, _WAITS):
            over = state.in_flight & self.until.get(type(op), 0)
            left = state.in_flight if op.pending else state.in_flight & ~over
            # A fence before the wait does not count.
            return _State(state.pending | over, left, state.unfenced | over & self.plain_writes)
        begun = made & self.asynchronous
        made &= ~begun
        return _State(state.pending | made, state.in_flight | begun, state.unfenced | made & self.plain_writes)

    def hazards_at(self, number: int, state: _State) -> Iterator[tuple[int, str]]:
        """The accesses that conflict with those of a node, each with the op that is missing."""
        for at in self.nodes[number].accesses:
            for other in _bits(self.conflicts[at] & state.pending):
                yield other, "barrier"
            for other in _bits(self.conflicts[at] & state.unfenced) if self.accesses[at].proxy else ():
                yield other, "fence"


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


# Accesses.

_ONE_THREAD = Layout((), (0,) * 5, ())


def _access(
    kind: str,
    buffer: Value,
    holder: Value | None = None,
    until: type[Op] | Value | None = None,
    proxy: bool = False,
) -> Access:
    """An access to a buffer: to all bytes of its allocation, or to all bytes at all if that is not known."""
    alloc, start, end = allocation(buffer), 0, 1 << 40
    if isinstance(alloc, OpResult) and isinstance(alloc.op, gpu.LocalAlloc):
        start = alloc.op.offset
        end = start + shared_of(alloc).bytes
    who: tuple[int, SharedType, Layout] | None = None
    type_ = holder.type if holder is not None else None
    if isinstance(type_, TensorType) and type_.layout is not None and not any(type_.layout.free[1:]):
        shared = shared_of(buffer)
        # The lanes of a warp move a matrix together, so that a place does not belong to one thread.
        if matrix_view(type_.layout, shared.offsets, shared.element.bytes) is None:
            who = (start, attrs.evolve(shared, count=1), type_.layout)
    return Access(kind, start, end, who, until, proxy)


def accesses_of(op: Op) -> Iterator[Access]:
    """The accesses of an op to shared memory, without those of ops inside of it."""
    match op:
        case gpu.LocalLoad():
            yield _access(READ, op.buffer, op.result)
        case gpu.LocalStore():
            yield _access(WRITE, op.buffer, op.value)
        case gpu.LocalGather():
            yield _access(READ, op.buffer)
        case gpu.LocalAtomicAdd():
            yield _access(COUNT, op.buffer)
        case gpu.AsyncCopy():
            yield _access(WRITE, op.buffer, until=gpu.AsyncWait)
        case gpu.Wgmma() | gpu.Mma() | gpu.DotFma():
            is_wgmma = isinstance(op, gpu.Wgmma)
            for operand in (op.a, op.b):
                if isinstance(operand.type, SharedType):
                    yield _access(READ, operand, until=gpu.WgmmaWait if is_wgmma else None, proxy=is_wgmma)
        case gpu.TmaLoad():
            yield _access(WRITE, op.buffer, until=allocation(op.barrier), proxy=True)
        case gpu.TmaStore():
            yield _access(READ, op.buffer, until=gpu.TmaStoreWait, proxy=True)
        case gpu.MbarrierInit() | gpu.MbarrierInval():
            # Always the same thread's.
            yield attrs.evolve(_access(WRITE, op.buffer), holder=(-1, shared_of(op.buffer), _ONE_THREAD))
        case gpu.MbarrierWait():
            yield _access(READ, op.barrier)
        case _:
            pass


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
    # With the later barriers, an earlier one may be superfluous. The innermost go first.
    for number in sorted(barriers, key=lambda n: (-graph.nodes[n].depth, n)):
        if _first(graph, barriers - {number}, fences) is None:
            barriers = barriers - {number}
    return barriers, fences


def _first(graph: _Graph, barriers: set[int], fences: set[int]) -> tuple[int, str] | None:
    """The first node that needs one more barrier or fence, and which of them."""
    for number, state in enumerate(graph.flow(barriers, fences)):
        state = graph.arriving(number, state, barriers, fences)
        for _, missing in graph.hazards_at(number, state):
            return number, missing
    return None
