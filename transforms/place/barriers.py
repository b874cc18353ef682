"""Barriers, exactly where two accesses of shared memory conflict on some path.

    gpu.local_store %2 %1;
    %3 : tensor<…> = gpu.local_load %2;

becomes

    gpu.local_store %2 %1;
    gpu.barrier;
    %3 : tensor<…> = gpu.local_load %2;

Two accesses conflict if their intervals of shared memory overlap, at least one writes, and one thread may touch what
another has touched. The accesses since the last barrier flow along the edges of a control-flow graph (`flow`), back
edges of loops included. The matrix units and TMA access memory through another proxy: between a thread's writes and
such a read there is a `gpu.fence_async` as well.

An asynchronous access counts from the wait for it on; `hazards` checks that there is one in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any

import attrs

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import Layout
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import SharedType, TensorType
from ziggurat.transforms.place.flow import WAITS, Graph, Hazard, allocation, interval
from ziggurat.transforms.place.queries import shared_of
from ziggurat.transforms.place.swizzle import matrix_view

READ, WRITE, COUNT = "read", "write", "count"


@attrs.frozen(eq=False)
class Access:
    """An access of one op to an interval of shared memory.

    `holder` says which thread touches which place, if each place has one thread; None where that is not known. `proxy`
    is true of accesses that do not see plain writes without a fence.
    """

    kind: str
    start: int
    end: int
    holder: tuple[int, SharedType, Layout] | None = None
    proxy: bool = False

    def conflicts(self, other: Access) -> bool:
        """Whether a barrier must order the two: they overlap, one writes, and they may be of different threads."""
        if self.start >= other.end or other.start >= self.end or self.kind == other.kind != WRITE:
            return False
        return self.holder is None or self.holder != other.holder


_ONE_THREAD = Layout((), (0,) * 5, ())


def _access(kind: str, buffer: Value, holder: Value | None = None, proxy: bool = False) -> Access:
    """An access to a buffer, which may touch all bytes of its allocation."""
    start, end = interval(allocation(buffer))
    who: tuple[int, SharedType, Layout] | None = None
    type_ = holder.type if holder is not None else None
    if isinstance(type_, TensorType) and type_.layout is not None and not any(type_.layout.free[1:]):
        shared = shared_of(buffer)
        # The lanes of a warp move a matrix together, so that a place does not belong to one thread.
        if matrix_view(type_.layout, shared.offsets, shared.element.bytes) is None:
            who = (start, attrs.evolve(shared, count=1), type_.layout)
    return Access(kind, start, end, who, proxy)


def _by_one_thread(op: gpu.MbarrierInit | gpu.MbarrierInval) -> list[Access]:
    return [attrs.evolve(_access(WRITE, op.buffer), holder=(-1, shared_of(op.buffer), _ONE_THREAD))]


def _operands(op: gpu.Wgmma | gpu.Mma | gpu.DotFma) -> list[Access]:
    read = [value for value in (op.a, op.b) if isinstance(value.type, SharedType)]
    return [_access(READ, value, proxy=isinstance(op, gpu.Wgmma)) for value in read]


# The accesses of each op to shared memory.
_ACCESSES: dict[type[Op], Callable[[Any], list[Access]]] = {
    gpu.LocalLoad: lambda op: [_access(READ, op.buffer, op.result)],
    gpu.LocalStore: lambda op: [_access(WRITE, op.buffer, op.value)],
    gpu.LocalGather: lambda op: [_access(READ, op.buffer)],
    gpu.LocalAtomicAdd: lambda op: [_access(COUNT, op.buffer)],
    gpu.AsyncCopy: lambda op: [_access(WRITE, op.buffer)],
    gpu.Wgmma: _operands,
    gpu.Mma: _operands,
    gpu.DotFma: _operands,
    gpu.TmaLoad: lambda op: [_access(WRITE, op.buffer, proxy=True)],
    gpu.TmaStore: lambda op: [_access(READ, op.buffer, proxy=True)],
    gpu.MbarrierInit: _by_one_thread,
    gpu.MbarrierInval: _by_one_thread,
    gpu.MbarrierWait: lambda op: [_access(READ, op.barrier)],
}


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


class _Flow:
    """The accesses of a kernel, and how they flow along the paths of control."""

    def __init__(self, module: gpu.Module) -> None:
        (func,) = module.functions().values()
        self.nodes = Graph(func.bodies[0], (*_ACCESSES, *_BARRIERS, gpu.FenceAsync, *_WAITS)).nodes
        self.accesses: list[Access] = []
        self.owners: list[Op] = []  # The op of each access.
        self.made: list[Sequence[int]] = []  # The numbers of the accesses of each node.
        for node in self.nodes:
            op = node.op
            found = _ACCESSES[type(op)](op) if op is not None and type(op) in _ACCESSES else []
            self.made.append(range(len(self.accesses), len(self.accesses) + len(found)))
            self.accesses += found
            self.owners += [op for _ in found if op is not None]
        numbered = list(enumerate(self.accesses))
        self.conflicts = [sum(1 << at for at, other in numbered if access.conflicts(other)) for _, access in numbered]
        # The asynchronous accesses that end at each class of waits, or at a wait for an mbarrier.
        self.until: dict[type[Op] | Value, int] = {}
        for at, op in enumerate(self.owners):
            if wait := WAITS.get(type(op)):
                until = allocation(op.barrier) if isinstance(op, gpu.TmaLoad) else wait
                self.until[until] = self.until.get(until, 0) | 1 << at
        self.asynchronous = sum(self.until.values())
        self.plain_writes = sum(1 << at for at, access in numbered if access.kind != READ and not access.proxy)

    def states(self, barriers: Set[int], fences: Set[int]) -> list[_State]:
        """The state at each node, with further barriers and fences before some of them."""
        into = [_State()] * len(self.nodes)

        def arriving(number: int) -> _State:
            state = into[number] if number not in barriers else attrs.evolve(into[number], pending=0)
            return attrs.evolve(state, unfenced=0) if number in fences else state

        work = list(range(len(self.nodes) - 1, -1, -1))
        waiting = set(work)
        while work:
            number = work.pop()
            waiting.discard(number)
            out = self._after(number, arriving(number))
            for edge in self.nodes[number].following:
                joined = into[edge.target] | out
                if joined != into[edge.target]:
                    into[edge.target] = joined
                    if edge.target not in waiting:
                        waiting.add(edge.target)
                        work.append(edge.target)
        return list(map(arriving, range(len(into))))

    def _after(self, number: int, state: _State) -> _State:
        op = self.nodes[number].op
        made = sum(1 << at for at in self.made[number])
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

    def missing(self, barriers: Set[int], fences: Set[int]) -> Iterator[tuple[int, int, str]]:
        """The accesses that conflict with those of a node: the node, the access, and the op that is missing."""
        for number, state in enumerate(self.states(barriers, fences)):
            for at in self.made[number]:
                for other in _bits(self.conflicts[at] & state.pending):
                    yield number, other, "barrier"
                for other in _bits(self.conflicts[at] & state.unfenced) if self.accesses[at].proxy else ():
                    yield number, other, "fence"


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


# The passes.


def missing_barriers(module: gpu.Module) -> list[Hazard]:
    """The pairs of accesses that no barrier, or no fence, keeps apart; none are left after the pass."""
    flow = _Flow(module)
    found: list[Hazard] = []
    for number, other, missing in flow.missing(set(), set()):
        second = flow.nodes[number].op
        assert second is not None
        found.append(Hazard(flow.owners[other], second, missing))
    return found


def insert_barriers(module: gpu.Module) -> Op:
    """The GPU model with barriers and fences where they are needed, and no more."""
    flow = _Flow(module)
    needed: dict[str, set[int]] = {"barrier": set(), "fence": set()}  # The nodes that one is needed before.
    while (found := next(flow.missing(needed["barrier"], needed["fence"]), None)) is not None:
        needed[found[2]].add(found[0])
    barriers, fences = needed["barrier"], needed["fence"]
    if not barriers and not fences:
        return module
    # With the later barriers, an earlier one may be superfluous. The innermost go first.
    for number in sorted(barriers, key=lambda n: (-flow.nodes[n].depth, n)):
        if next(flow.missing(barriers - {number}, fences), None) is None:
            barriers = barriers - {number}
    places = {node.op.result: number for number, node in enumerate(flow.nodes) if node.op is not None}

    def with_barrier(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        number = places.get(op.result)
        if number in fences:
            builder.add(gpu.FenceAsync())
        if number in barriers:
            builder.add(gpu.Barrier())
        return None

    return transform(module, with_barrier, pass_name="barriers")
