"""Barriers, exactly where two accesses of memory conflict on some path.

    gpu.local_store %2 %1;
    %3 : tensor<…> = gpu.local_load %2;

becomes

    gpu.local_store %2 %1;
    gpu.barrier;
    %3 : tensor<…> = gpu.local_load %2;

Two accesses conflict if their intervals of shared memory overlap, at least one writes, and one thread may touch what
another has touched. The accesses since the last barrier flow along the edges of a control-flow graph (`flow`), back
edges of loops included. The matrix units and TMA access memory through another proxy: between a thread's access and
one of theirs there is a `gpu.fence_async` as well (PTX manual, "Async proxy"). This includes a thread's read of what
TMA then overwrites: without a fence, TMA may be ahead of the read (triton-lang/triton#7262, deepseek-ai/DeepEP#642).

An asynchronous access counts from the wait for it on; `hazards` checks that there is one in time.

In global memory, two accesses conflict if a thread of another warp may be ahead with the second one:

    %5 : tensor<x64, f32, " | 1 2 4 8 16 | 32 0"> = tt.load %3;      four warps, of which two load each element
    tt.store %3 %7;                                                  the first two store

These are a load and a store after it that may be of one place; and any two of the same pointers, one of which writes.
Threads are the compiler's: what one program does is in the order of its text. Only what a store writes through other
pointers than those of a load after it needs a `debug_barrier` in the text (`memory_order`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from itertools import product
from typing import Any

import attrs

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.asynchronous import Asynchronous, BufferOp, GroupWait
from ziggurat.codemodel.gpu.scope import scope_of
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.traits import Loop, Pure
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import TensorType, constant_key
from ziggurat.transforms.analysis.memory_flow import Graph, SharedAccess, allocation, interval
from ziggurat.transforms.analysis.memory_order import MemoryOrder
from ziggurat.transforms.analysis.queries import function_of, layout_of, owners_of, role_split, shared_of
from ziggurat.transforms.layouts.swizzle import matrix_view

READ, WRITE, COUNT = "read", "write", "count"


@attrs.frozen
class Hazard:
    """Two ops between which something is missing on some path: a "barrier", "fence", "wait", "commit", "release" …

    For what is missing at one op, both are this op.
    """

    first: Op
    second: Op
    missing: str

    def __str__(self) -> str:
        place = f"at {self.first!r}" if self.first is self.second else f"between {self.first!r} and {self.second!r}"
        return f"no {self.missing} {place}"


@attrs.frozen(eq=False)
class _Access(SharedAccess):
    """An access of one op, which may touch all bytes of an allocation.

    `holder` says which thread touches which place, if each place has one thread; None where that is not known. `proxy`
    is true of accesses that only a fence orders with those of threads. `wait` is the class of waits for it.
    """

    kind: str
    holder: object
    proxy: bool
    wait: type[Op] | None

    def conflicts(self, before: _Access | _GlobalAccess) -> bool:
        """Whether a barrier must order the two: they overlap, one writes, and they may be of different threads."""
        if isinstance(before, _GlobalAccess) or not self.overlaps(before) or self.kind == before.kind != WRITE:
            return False
        return self.holder is None or self.holder != before.holder


@attrs.frozen(eq=False)
class _GlobalAccess:
    """A load of global memory by threads, or what writes it. A barrier must order it after those in `others`."""

    op: Op
    pointer: Value
    kind: str
    others: set[_GlobalAccess] = attrs.field(factory=set["_GlobalAccess"], repr=False)
    proxy = False
    wait = None

    def conflicts(self, before: _Access | _GlobalAccess) -> bool:
        """Whether a barrier must order the two: they may be of one place and of two warps, and one writes."""
        return before in self.others

    def is_own(self, before: _GlobalAccess) -> bool:
        """Whether each thread touches what it has touched before: through the same pointers, each in one warp, of the
        same iteration of the loops around them."""
        if self.pointer is not before.pointer:
            return False
        if self.kind == before.kind:
            return True  # One thread of all that hold an element writes it.
        type_ = self.pointer.type
        in_one_warp = isinstance(type_, TensorType) and not layout_of(type_).free[2]
        together = self.op.parent is before.op.parent or before.kind == WRITE
        return in_one_warp and (together or not any(isinstance(op, Loop) for op in owners_of(self.pointer)))


_WRITES = (tt.Store, gpu.TmaStore, tt.AtomicRMW, tt.AtomicCAS)


def _global_accesses(module: gpu.Module) -> dict[Op, _GlobalAccess]:
    """The accesses of a kernel to global memory that may conflict."""
    func = function_of(module)
    ops = [op for op in func.walk() if isinstance(op, (tt.Load, *_WRITES)) and scope_of(op).warps > 1]
    if not any(isinstance(op, _WRITES) for op in ops):
        return {}
    order, numbers = MemoryOrder(func), _numbers(func)
    accesses = [
        _GlobalAccess(op, op.descriptor, WRITE)
        if isinstance(op, gpu.TmaStore)
        else _GlobalAccess(op, op.ptr, READ if isinstance(op, tt.Load) else WRITE)
        for op in ops
    ]
    for access, before in product(accesses, accesses):
        if access.kind == before.kind == READ or access.is_own(before):
            continue
        if (
            order.may_share(access.pointer, before.pointer)
            if before.kind == READ
            else numbers.get(access.pointer, access.pointer) == numbers.get(before.pointer, before.pointer)
        ):
            access.others.add(before)
    return {each.op: each for access in accesses if access.others for each in (access, *access.others)}


def _numbers(func: Op) -> dict[Value, int]:
    """The values of a function by numbers: values that are computed alike, perhaps in other layouts, have the same."""
    numbers: dict[Value, int] = {}
    by_key: dict[Any, int] = {}

    def number(value: Value) -> int:
        return numbers.setdefault(value, len(numbers))

    for op in func.walk():
        key = op.result
        if isinstance(op, Pure) and not op.bodies:
            attributes = [constant_key(value) for value in op.attributes.values()]
            key = (type(op), *map(number, op.operands), *attributes)
        numbers[op.result] = by_key.setdefault(key, len(numbers))
    return numbers


_MBARRIERS = (gpu.MbarrierInit, gpu.MbarrierInval, gpu.MbarrierWait)


def _accesses(op: Op | None) -> Iterator[_Access]:
    """The accesses of an op to shared memory."""
    if isinstance(op, _MBARRIERS):
        yield _access(op, op.operands[0], READ if isinstance(op, gpu.MbarrierWait) else WRITE)
    elif isinstance(op, BufferOp):
        yield from (_access(op, buffer, READ) for buffer in op.reads)
        yield from (_access(op, buffer, COUNT if isinstance(op, gpu.LocalAtomicAdd) else WRITE) for buffer in op.writes)


def _access(op: Op, buffer: Value, kind: str) -> _Access:
    start, end = interval(allocation(buffer))
    begun = op if isinstance(op, Asynchronous) and buffer in op.in_flight else None
    proxy, wait = (False, None) if begun is None else (begun.BY_PROXY, begun.WAIT)
    return _Access(op, start, end, kind, _holder(op, buffer, start), proxy, wait)


def _holder(op: Op, buffer: Value, start: int) -> object:
    """The `holder` of an access to a buffer that starts at an offset."""
    shared = shared_of(buffer)
    if isinstance(op, gpu.MbarrierInit | gpu.MbarrierInval | gpu.MakeTensorMap):
        return shared
    if isinstance(op, gpu.AsyncCopy):
        layout, together = layout_of(op.ptr.type), False
    elif isinstance(op, gpu.LocalLoad | gpu.LocalStore):
        layout = layout_of(op.result.type if isinstance(op, gpu.LocalLoad) else op.value.type)
        # The lanes of a warp move a matrix together, so that a place does not belong to one thread.
        together = matrix_view(layout, shared.offsets, shared.element.bytes) is not None
    else:
        return None
    if together or any(layout.free[1:]):
        return None
    return start, attrs.evolve(shared, count=1), layout


BARRIERS = (gpu.Barrier, gpu.ClusterBarrier, tt.Barrier)


class _Flow:
    """The accesses of a kernel, and how they flow along the paths of control.

    A state has three sets of accesses, as masks in one integer: those since the last barrier (`pending`), those in
    flight, and those of a thread since its last fence (`unfenced`).
    """

    def __init__(self, module: gpu.Module) -> None:
        kinds = (BufferOp, *_MBARRIERS, *BARRIERS, gpu.FenceAsync, GroupWait)
        in_global_memory = _global_accesses(module)
        kinds += tuple({type(op) for op in in_global_memory})
        self.nodes = Graph(function_of(module).body, kinds).nodes
        self.accesses: list[_Access | _GlobalAccess] = []
        self.accesses_of: list[Sequence[int]] = []  # The numbers of the accesses of each node.
        for node in self.nodes:
            before = len(self.accesses)
            self.accesses += _accesses(node.op)
            self.accesses += [in_global_memory[node.op]] if node.op in in_global_memory else []
            self.accesses_of.append(range(before, len(self.accesses)))
        numbered = list(enumerate(self.accesses))
        self.conflicts = [sum(1 << at for at, before in numbered if access.conflicts(before)) for _, access in numbered]
        self.until: dict[type[Op], int] = {}  # The asynchronous accesses that end at each class of waits.
        for at, access in numbered:
            if access.wait is not None:
                self.until[access.wait] = self.until.get(access.wait, 0) | 1 << at
        self.asynchronous = sum(self.until.values())
        self.by_threads = sum(1 << at for at, access in numbered if not access.proxy)
        self.size = len(numbered)
        self.pending = (1 << self.size) - 1
        self.unfenced = self.pending << 2 * self.size
        self.steps = [*map(self._step, range(len(self.nodes)))]
        self.removed_fences: Set[int] = frozenset()

    def _step(self, number: int) -> tuple[int, int, int]:
        """The state that a node removes, the state that it adds, and the accesses in flight that it waits for."""
        op = self.nodes[number].op
        if isinstance(op, BARRIERS):
            return self.pending, 0, 0
        if isinstance(op, gpu.FenceAsync):
            return self.unfenced, 0, 0
        if isinstance(op, GroupWait):  # Threads that have waited for an mbarrier need no barrier.
            over = self.until.get(type(op), 0)
            return 0 if op.pending else over << self.size, 0, over
        accesses = sum(1 << at for at in self.accesses_of[number])
        begun, done = accesses & self.asynchronous, accesses & ~self.asynchronous
        return 0, done | begun << self.size | (done & self.by_threads) << 2 * self.size, 0

    def states(self, barriers: Set[int], fences: Set[int]) -> list[int]:
        """The state at each node, with further barriers and fences before some of them."""
        into = [0] * len(self.nodes)
        removed = [0] * len(self.nodes)
        for numbers, sets in ((barriers, self.pending), (fences, self.unfenced)):
            for number in numbers:
                removed[number] |= sets
        work = list(range(len(self.nodes) - 1, -1, -1))
        waiting = set(work)
        while work:
            number = work.pop()
            waiting.discard(number)
            state = into[number] & ~removed[number]
            removes, adds, waited = self.steps[number]
            over = state >> self.size & waited
            out = state if number in self.removed_fences else state & ~removes | adds
            if over:  # A fence before the wait does not count.
                out |= over | (over & self.by_threads) << 2 * self.size
            for target in self.nodes[number].following:
                if out & ~into[target]:
                    into[target] |= out
                    if target not in waiting:
                        waiting.add(target)
                        work.append(target)
        return [state & ~gone for state, gone in zip(into, removed, strict=True)]

    def missing(self, barriers: Set[int], fences: Set[int]) -> Iterator[tuple[int, Hazard]]:
        """The accesses that conflict with those of a node, and what is missing between them, with the node's number."""
        for number, state in enumerate(self.states(barriers, fences)):
            for access, conflicts in ((self.accesses[at], self.conflicts[at]) for at in self.accesses_of[number]):
                for other in _bits(conflicts & state):
                    yield number, Hazard(self.accesses[other].op, access.op, "barrier")
                for other in _bits(conflicts & state >> 2 * self.size) if access.proxy else ():
                    yield number, Hazard(self.accesses[other].op, access.op, "fence")


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


# The passes.


def missing_barriers(module: gpu.Module) -> list[Hazard]:
    """The pairs of accesses that no barrier, or no fence, keeps apart; none are left after the pass."""
    return [hazard for _, hazard in _Flow(module).missing(set(), set())]


def insert_barriers(module: gpu.Module) -> Op:
    """The GPU model with barriers and fences where they are needed, and no more.

    A fence that the model has in a loop is removed where the other fences are enough. A kernel with roles keeps its
    fences: other roles read what a role has written, and the flow graph has no path between roles.
    """
    flow = _Flow(module)
    required: dict[str, set[int]] = {"barrier": set(), "fence": set()}  # The nodes that one is needed before.
    while (point := next(flow.missing(required["barrier"], required["fence"]), None)) is not None:
        required[point[1].missing].add(point[0])
    barriers, fences = required["barrier"], required["fence"]

    def innermost_first(numbers: Set[int]) -> list[int]:
        return sorted(numbers, key=lambda n: (-flow.nodes[n].depth, n))

    # With the later ones, an earlier one may be superfluous.
    for number in innermost_first(barriers):
        if next(flow.missing(barriers - {number}, fences), None) is None:
            barriers = barriers - {number}
    for number in innermost_first(fences):
        if next(flow.missing(barriers, fences - {number}), None) is None:
            fences = fences - {number}
    if role_split(module) is None:
        in_loops = {n for n, node in enumerate(flow.nodes) if isinstance(node.op, gpu.FenceAsync) and node.depth}
        for number in innermost_first(in_loops):
            flow.removed_fences |= {number}
            if next(flow.missing(barriers, fences), None) is not None:
                flow.removed_fences -= {number}
    if not barriers and not fences and not flow.removed_fences:
        return module
    places = {node.op: number for number, node in enumerate(flow.nodes) if node.op is not None}

    def with_barrier(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        number = places.get(op)
        if number in fences:
            builder.add(gpu.FenceAsync())
        if number in barriers:
            builder.add(gpu.Barrier())
        return DROP if number in flow.removed_fences else None

    return transform(module, with_barrier, pass_name="barriers")
