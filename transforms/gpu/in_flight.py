"""Accesses in flight: asynchronous ops whose data is used, or overwritten, too early.

    %d = gpu.wgmma %a %b %acc;                      the wgmma reads %a and %b, and computes %d, from here
    gpu.local_store %a %x;                          no wait between them: a hazard
    %e = gpu.wgmma_wait %d @0;                      to here

Missing waits are found by running the model with abstract states. A state holds the accesses in flight, by the class
of waits for them and in the order of their groups, or with their mbarrier. There are few states, and all of them are
visited: each trip count of each loop, and both ways of each branch. Warp roles are run one by one. The ops declare what
they access, until when (`Asynchronous`).

The numbers of slots are computed on the way (`SlotNumbers`), so the slots of one ring are told apart. Where a number
is not known, they are the responsibility of the proof of their channel (`channels`).

An mbarrier is used after its initialisation, and its memory by others after it is invalidated. Of a ring between roles,
a role reads the slots that it has waited for and not released, and releases each of them once, after a fence if its
threads have read what TMA will overwrite; another one fills a slot that it has found free (`RingsBetweenRoles`).

A tensor map is made anew only where no copy in flight reads the one before: a load is over after a wait for its
mbarrier, or where that is invalidated; a store is over after a wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, dropwhile, product, takewhile
from typing import TypeVar

import attrs

from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.asynchronous import Asynchronous, BufferOp, GroupWait, ResultInFlight, ResultWait
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import Op, OpResult, Value, expect
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import BodyTerminator
from ziggurat.transforms.analysis.components import Component, ComponentGroup, component_of, groups_of
from ziggurat.transforms.analysis.memory_flow import (
    Graph,
    Numbers,
    SharedAccess,
    SlotNumbers,
    allocation,
    interval,
    read_in_flight,
)
from ziggurat.transforms.analysis.memory_order import MemoryOrder, acquires, may_order, releases
from ziggurat.transforms.analysis.queries import constant_of, shared_of
from ziggurat.transforms.gpu.barriers import BARRIERS, Hazard
from ziggurat.transforms.gpu.mbarriers import rings_between_roles
from ziggurat.transforms.gpu.store_order import store_order

_Item = TypeVar("_Item")
_MAX_GROUPS = 64  # In flight. No kernel has more; if one had, the oldest two would count as one.
_ORDERED = (Asynchronous, GroupWait, gpu.FenceAsync, gpu.MbarrierOp, gpu.ClusterArrive, gpu.ClusterWait)


def used_too_early(module: gpu.Module) -> Iterator[Hazard]:
    """The ops of a module that use data in flight, or overwrite data that is still read."""
    for func in module.functions().values():
        if func.holds(_ORDERED):
            yield from _results_in_use(func, groups_of(func))
            yield from _Run(expect(func, tt.Func)).hazards()


# Results in flight, by the values that hold them.


def _results_in_use(func: Op, groups: Mapping[Component, ComponentGroup]) -> Iterator[Hazard]:
    """The uses of results that may be in flight, except by waits, as accumulators, and by control flow."""
    for op in func.walk():
        if isinstance(op, GroupWait | Structured | BodyTerminator | core.MakeTuple | core.TupleLoad):
            continue
        for value in op.operands:
            begun = _computing(component_of(value), groups, set())
            if begun is not None and not _continues(op, value, begun):
                yield Hazard(begun, op, "wait")


def _continues(op: Op, value: Value, begun: Asynchronous) -> bool:
    """Whether an op only adds to a value that another one computes."""
    is_accumulator = isinstance(op, ResultInFlight) and op.WAIT is begun.WAIT and value is op.accumulator
    return is_accumulator and op.operands.count(value) == 1


def _computing(
    component: Component, groups: Mapping[Component, ComponentGroup], visited: set[Component]
) -> Asynchronous | None:
    """An op that may still be computing a component."""
    if component in visited:
        return None
    visited.add(component)
    op = component[0].op
    if isinstance(op, Asynchronous):
        return op
    if isinstance(op, ResultWait):
        complete = op.pending <= _begun_between(op.value, op)
        return None if complete else _computing(component_of(op.value), groups, visited)
    sources = groups[component].sources if component in groups else ()
    results = (_computing(source, groups, visited) for _, source in sources)
    return next((begun for begun in results if begun is not None), None)


def _begun_between(value: Value, wait: ResultWait) -> int:
    """The number of groups that a block begins between the op of a value and the wait for it."""
    first = value.op
    if not isinstance(first, Asynchronous) or first.parent is None or first.parent is not wait.parent:
        return 0
    between = takewhile(lambda op: op is not wait, dropwhile(lambda op: op is not first, first.parent.ops))
    return wait.begun(between) - 1


# Shared memory, state by state.


@attrs.frozen(eq=False)
class _Use(SharedAccess):
    """An access of an op to a slot of an allocation, whose number may not be known: then the bytes are those of all."""

    value: Value
    buffer: Value
    slot: int | None
    writes: bool

    def conflicts(self, other: _Use) -> bool:
        """Whether both are of the same memory, unless they are unknown slots of one ring, and one writes."""
        apart = self.buffer is other.buffer and (self.slot is None or other.slot is None)
        return (self.writes or other.writes) and self.overlaps(other) and not apart

    @property
    def place(self) -> _Slot:
        """The slot that is accessed."""
        return self.buffer, self.slot


_Slot = tuple[Value, int | None]
Uses = frozenset[_Use]
Groups = tuple[Uses, ...]


@attrs.frozen(eq=False)
class _Counted:
    """An op in flight, its accesses until the wait, and the mbarrier that counts its bytes."""

    op: Asynchronous
    uses: Uses
    mbarrier: _Use


@attrs.frozen(cache_hash=True)
class _AsyncState:
    """The asynchronous accesses at a point of the program.

    For each class of waits, `groups` has the groups, and `open` what no commit has made a group yet. `counted` are the
    ops that mbarriers complete.

    `numbers` are the known numbers of slots, and `mbarriers` those that are initialised. Of the rings between roles,
    `held` are the slots, by their mbarriers, that this role has waited for and not released, `read` those that its
    threads have read since the last fence, and `free` those that it has found free last.

    `unwritten` are the stores of TMA that may not be in global memory yet, and `waited` those since the last barrier of
    which only the thread that has waited for them knows that they are. `unfenced` are the ops since the last fence that
    come before later accesses of TMA, and `alone` those among them since the last barrier.

    Of these maps, `made` are those that the elected thread has not acquired, `apart` those that another warp has made
    since the last barrier, and `used` are the copies by maps that the elected thread has begun since.

    This CTA has `arrived_at_cluster`, and all CTAs of the cluster have `started`. `sent` are the stores to all of them,
    and `arrived` those among them that have arrived here.
    """

    open: tuple[Uses, ...]
    groups: tuple[Groups, ...]
    counted: frozenset[_Counted] = frozenset()
    numbers: Numbers = frozenset()
    mbarriers: frozenset[Value] = frozenset()
    held: frozenset[_Slot] = frozenset()
    read: frozenset[_Slot] = frozenset()
    free: frozenset[_Slot] = frozenset()
    unwritten: frozenset[gpu.TmaStore] = frozenset()
    waited: frozenset[gpu.TmaStore] = frozenset()
    unfenced: frozenset[Op] = frozenset()
    alone: frozenset[Op] = frozenset()
    made: frozenset[gpu.MakeTensorMap] = frozenset()
    apart: frozenset[gpu.MakeTensorMap] = frozenset()
    used: frozenset[Op] = frozenset()
    arrived_at_cluster: bool = False
    started: bool = False
    sent: frozenset[gpu.ClusterStore] = frozenset()
    arrived: frozenset[gpu.ClusterStore] = frozenset()


class _Run:
    """A run of a function through all states. A hazard is noted once for each pair of ops."""

    def __init__(self, func: tt.Func) -> None:
        self.func = func
        self.hazards_by_ops: dict[tuple[int, int, str], Hazard] = {}
        self.numbers = SlotNumbers(func)
        self.uses: dict[tuple[Op, Value, int | None, bool], _Use] = {}
        self.counted: dict[tuple[Uses, _Use], _Counted] = {}
        self.rings = rings_between_roles(func)
        self.initialised = {op.buffer: op for op in func.walk() if isinstance(op, gpu.MbarrierInit)}
        by_proxy = (op for op in func.walk() if isinstance(op, Asynchronous) and op.BY_PROXY)
        self.loaded = {allocation(buffer) for op in by_proxy for buffer in op.writes}
        self.stores = [op for op in func.walk() if isinstance(op, gpu.ClusterStore)]
        self.gathered = {allocation(store.buffer) for store in self.stores}  # What other CTAs write.
        kinds = dict.fromkeys(type(op) for op in func.walk() if isinstance(op, Asynchronous))
        numbers: dict[type[Op], int] = {}  # The classes of waits for groups.
        for kind in (kind for kind in kinds if not kind.MBARRIER):
            numbers.setdefault(kind.WAIT, len(numbers))
        self.waits = numbers
        self.order = store_order(list(func.walk()), MemoryOrder(func))
        self.commits = {kind.COMMIT: numbers[kind.WAIT] for kind in kinds if kind.COMMIT is not None}

    def hazards(self) -> Iterable[Hazard]:
        """Run the function from its entry."""
        followed = (BufferOp, *_ORDERED, *self.commits, tt.Return)
        if self.func.holds(gpu.MakeTensorMap):
            followed += (*BARRIERS, gpu.AcquireTensorMaps)
        if self.func.holds(gpu.TmaCopy):
            ordered = (op for op in self.func.walk() if may_order(op) or op in self.order.after | self.order.before)
            followed += (gpu.FenceGlobal, *BARRIERS, *(type(op) for op in ordered))
        nodes = Graph(self.func.bodies[0], followed).nodes

        def following(place: tuple[int, _AsyncState]) -> Iterable[tuple[int, _AsyncState]]:
            node, state = nodes[place[0]], place[1]
            numbers = self.numbers.after(node, state.numbers)
            state = state if numbers == state.numbers else attrs.evolve(state, numbers=numbers)
            after = state if node.op is None else self._step(node.op, state)
            return ((target, after) for target in node.following)

        none, count = frozenset[_Use](), len(self.waits)
        reached([(0, _AsyncState((none,) * count, ((),) * count))], following)
        return self.hazards_by_ops.values()

    def _note(self, first: Op, second: Op, missing: str) -> None:
        self.hazards_by_ops.setdefault((id(first), id(second), missing), Hazard(first, second, missing))

    def _use(self, op: Op, value: Value, state: _AsyncState, *, writes: bool = False) -> _Use:
        """An access of an op to a buffer, the same object in each state with the same slot."""
        buffer, slot = allocation(value), self.numbers.slot(value, state.numbers)
        key = op, value, slot, writes
        if key not in self.uses:
            start, end = interval(buffer)
            if slot is not None:
                if slot >= shared_of(buffer).count:
                    self._note(op, op, f"slot with the number {slot}")
                size = (end - start) // shared_of(buffer).count
                start, end = start + slot * size, start + (slot + 1) * size
            self.uses[key] = _Use(op, start, end, value, buffer, slot, writes)
        return self.uses[key]

    def _step(self, op: Op, state: _AsyncState) -> _AsyncState:
        """The state after an op without bodies."""
        state = self._in_order(op, state)
        match op:
            case BufferOp():
                return self._access(op, state)
            case gpu.MbarrierOp():
                return self._after_mbarrier(op, self._use(op, op.operands[0], state), state)
            case gpu.ClusterArrive():
                return attrs.evolve(state, arrived_at_cluster=True)
            case gpu.ClusterWait():
                if not state.arrived_at_cluster:
                    self._note(op, op, "arrival at the cluster")
                return attrs.evolve(state, started=True)
            case gpu.FenceAsync():
                return attrs.evolve(state, read=frozenset())
            case gpu.AcquireTensorMaps():
                maps = {value.op for value in op.maps if isinstance(value, OpResult)}
                for map_ in state.apart & maps:
                    self._note(map_, op, "barrier")
                return attrs.evolve(state, made=state.made - maps)
            case gpu.Barrier() | tt.Barrier() | gpu.ClusterBarrier():
                return attrs.evolve(state, apart=frozenset(), used=frozenset())
            case gpu.WarpSpecialize():
                for mbarriers, _ in state.held:
                    self._note(self.initialised.get(mbarriers, op), op, "release")
                return attrs.evolve(state, held=frozenset(), read=frozenset(), free=frozenset(), numbers=frozenset())
            case tt.Return():
                self._end(state)
                return state
            case _ if type(op) in self.commits:
                number = self.commits[type(op)]
                open_ = _with(state.open, number, frozenset())
                return attrs.evolve(self._with_group(state, number, state.open[number]), open=open_)
            case _ if isinstance(op, GroupWait) and type(op) in self.waits:
                number = self.waits[type(op)]
                pending = state.groups[number][-op.pending :] if op.pending else ()
                return attrs.evolve(state, groups=_with(state.groups, number, pending))
            case _:
                return state

    def _in_order(self, op: Op, state: _AsyncState) -> _AsyncState:
        """The state after an op, with regard to the order of global memory between TMA and what releases or acquires,
        or writes the same memory.

        Each role is a run of its own: no load of one that TMA does is ordered by an op of another one.
        """
        is_barrier, is_store = isinstance(op, BARRIERS), isinstance(op, gpu.TmaStore)
        for store in state.unwritten if op in self.order.after or (may_order(op) and releases(op)) else ():
            self._note(store, op, "wait for what is written")
        for store in state.waited if op in self.order.after and not is_store else ():
            self._note(store, op, "barrier")
        if is_barrier:
            state = attrs.evolve(state, waited=frozenset(), alone=frozenset())
        if op in self.order.before or (may_order(op) and acquires(op)):
            alone = state.alone if is_barrier else state.alone | {op}
            state = attrs.evolve(state, unfenced=state.unfenced | {op}, alone=alone)
        if isinstance(op, gpu.TmaLoad | gpu.TmaStore):
            for other in state.unfenced:
                if other in self.order.before if is_store else other not in self.order.before or acquires(other):
                    self._note(other, op, "fence")
        match op:
            case gpu.TmaStore():
                return attrs.evolve(state, unwritten=state.unwritten | {op})
            case gpu.TmaStoreWait() if op.written and not op.pending:
                return attrs.evolve(state, unwritten=frozenset(), waited=state.waited | state.unwritten)
            case gpu.FenceGlobal():
                return attrs.evolve(state, unfenced=state.alone)
            case _:
                return state

    # Accesses.

    def _access(self, op: BufferOp, state: _AsyncState) -> _AsyncState:
        """The state after an access to shared memory, with what it begins."""
        uses = [self._use(op, value, state) for value in op.reads]
        uses += [self._use(op, value, state, writes=True) for value in op.writes]
        self._meets("commit", uses, state.open)
        self._meets("wait", uses, self._in_flight(state))
        self._uses_memory_of_mbarriers(op, uses, state)
        self._uses_rings_between_roles(op, uses, state)
        if (read := self._read_by_threads(op, uses)) - state.read:
            state = attrs.evolve(state, read=state.read | read)
        match op:
            case gpu.ClusterStore():
                if not state.started or op in state.sent:
                    self._note(op, op, "wait for the other CTAs")
                return attrs.evolve(state, sent=state.sent | {op})
            case gpu.LocalLoad() | gpu.LocalGather() if any(use.buffer in self.gathered for use in uses):
                for store in self.stores:
                    if store not in state.arrived and allocation(store.buffer) is uses[0].buffer:
                        self._note(store, op, "wait")
                return state
            case gpu.MakeTensorMap():
                return self._make_map(op, state)
            case Asynchronous():
                return self._begin(op, frozenset(use for use in uses if use.value in op.in_flight), state)
            case _:
                return state

    def _begin(self, op: Asynchronous, uses: Uses, state: _AsyncState) -> _AsyncState:
        """The state after the begin of accesses."""
        if op.crosses_ctas and not state.started:
            self._note(op, op, "wait for the other CTAs")
        if _map_of(op) is not None:
            for map_ in (map_ for map_ in state.made if map_.index == _map_of(op)):
                self._note(map_, op, "acquire")
            state = attrs.evolve(state, used=state.used | {op})
        if op.mbarrier is not None:
            mbarrier = self._use(op, op.mbarrier, state)
            if _map_of(op) is None and mbarrier.buffer in self.rings.mbarriers:
                return state  # Another role waits.
            counted = self.counted.setdefault((uses, mbarrier), _Counted(op, uses, mbarrier))
            return attrs.evolve(state, counted=state.counted | {counted})
        number = self.waits[op.WAIT]
        if op.COMMIT is not None:
            return attrs.evolve(state, open=_with(state.open, number, state.open[number] | uses))
        return self._with_group(state, number, uses)

    def _with_group(self, state: _AsyncState, number: int, group: Uses) -> _AsyncState:
        groups = state.groups[number]
        if len(groups) == _MAX_GROUPS:
            groups = (groups[0] | groups[1], *groups[2:])
        return attrs.evolve(state, groups=_with(state.groups, number, (*groups, group)))

    def _in_flight(self, state: _AsyncState) -> Iterator[Uses]:
        """The accesses in flight, in groups, without those that another role waits for."""
        yield from (group for groups in state.groups for group in groups)
        yield from (each.uses for each in self._counted_here(state))

    def _counted_here(self, state: _AsyncState) -> Iterator[_Counted]:
        return (each for each in state.counted if each.mbarrier.buffer not in self.rings.mbarriers)

    def _meets(self, missing: str, uses: Iterable[_Use], groups: Iterable[Uses]) -> None:
        """Note what conflicts with these accesses."""
        for group in groups:
            for use, other in product(uses, group):
                if other.conflicts(use):
                    self._note(other.op, use.op, missing)

    def _end(self, state: _AsyncState) -> None:
        """Note what is in flight at the end: another CTA may have the memory before it is complete."""
        for use in (use for group in (*state.open, *chain(*state.groups)) for use in group):
            self._note(use.op, use.op, "wait")
        for each in self._counted_here(state):
            if all(use.slot is not None for use in each.uses):
                self._note(each.op, each.op, "wait")
        for message in state.sent - state.arrived:
            self._note(message, message, "wait")

    # Tensor maps.

    def _make_map(self, op: gpu.MakeTensorMap, state: _AsyncState) -> _AsyncState:
        """The state after a map is made, which no copy in flight may read."""
        reading = (*(each.op for each in state.counted), *(use.op for use in chain(*chain(*state.groups))))
        for copy in (copy for copy in reading if _map_of(copy) == op.index):
            self._note(copy, op, "wait")
        for copy in (copy for copy in state.used if op.warp and _map_of(copy) == op.index):
            self._note(copy, op, "barrier")
        return attrs.evolve(state, made=state.made | {op}, apart=state.apart | ({op} if op.warp else frozenset()))

    # Mbarriers, and rings between roles.

    def _uses_memory_of_mbarriers(self, op: BufferOp, uses: Iterable[_Use], state: _AsyncState) -> None:
        """Note an access to memory in which an mbarrier lies, and a copy whose mbarrier is not initialised."""
        mbarrier = op.mbarrier if isinstance(op, Asynchronous) else None
        own = set[Value]() if mbarrier is None else {allocation(mbarrier)}
        if own - state.mbarriers:
            self._note(op, op, "initialisation of an mbarrier")
        for mbarriers in state.mbarriers - own:
            start, end = interval(mbarriers)
            if any(use.start < end and start < use.end for use in uses):
                self._note(self.initialised[mbarriers], op, "end of an mbarrier")

    def _after_mbarrier(self, op: gpu.MbarrierOp, use: _Use, state: _AsyncState) -> _AsyncState:
        """The state after an op on mbarriers, with regard to these, and to the slots that they are about."""
        initialised = state.mbarriers
        if isinstance(op, gpu.MbarrierArrive) and op.ctas > 1 and not state.started:
            self._note(op, op, "wait for the other CTAs")
        if isinstance(op, gpu.MbarrierWait | gpu.MbarrierInval):
            state = self._completed(op, use, state)
        if isinstance(op, gpu.MbarrierInit):
            if use.buffer in initialised:
                self._note(op, op, "end of an mbarrier")
            return attrs.evolve(state, mbarriers=initialised | {use.buffer})
        if use.buffer not in initialised:
            self._note(op, op, "initialisation of an mbarrier")
        if isinstance(op, gpu.MbarrierInval):
            return attrs.evolve(state, mbarriers=initialised - {use.buffer})
        if isinstance(op, gpu.MbarrierWait) and use.buffer in self.rings.released_at.values():
            free = frozenset(slot for slot in state.free if slot[0] is not use.buffer)
            return attrs.evolve(state, free=free | {use.place})
        if isinstance(op, gpu.MbarrierWait) and use.buffer in self.rings.released_at and use.slot is not None:
            if use.place in state.held:
                self._note(op, op, "release")
            return attrs.evolve(state, held=state.held | {use.place})
        if isinstance(op, gpu.MbarrierArrive) and use.slot is not None:
            return self._after_release(op, use, state)
        return state

    def _completed(self, op: gpu.MbarrierWait | gpu.MbarrierInval, use: _Use, state: _AsyncState) -> _AsyncState:
        """The state after the end of what an mbarrier counts."""
        here = {store for store in state.sent if allocation(store.barrier) is use.buffer}
        over = [each for each in state.counted if each.mbarrier.buffer is use.buffer]
        if isinstance(op, gpu.MbarrierWait):
            over = [each for each in over if each.mbarrier.slot == use.slot is not None]
        for each in (each for each in over if isinstance(op, gpu.MbarrierInval)):
            # A load whose predicate is no constant is for an iteration that does not come.
            if not isinstance(each.op, gpu.TmaLoad) or constant_of(each.op.predicate) is not None:
                self._note(each.op, op, "wait")
        return attrs.evolve(state, arrived=state.arrived | here, counted=state.counted.difference(over))

    def _after_release(self, op: gpu.MbarrierArrive, use: _Use, state: _AsyncState) -> _AsyncState:
        """The state after an arrival that may release a slot: nothing in flight accesses it."""
        filled = [mbarriers for mbarriers, at in self.rings.released_at.items() if at is use.buffer]
        for place in ((mbarriers, use.slot) for mbarriers in filled):
            if place not in state.held and constant_of(op.predicate):
                self._note(op, op, "wait")
            if place in state.read:
                self._note(op, op, "fence")
            for other in (other for group in self._in_flight(state) for other in group):
                if self.rings.mbarriers_of.get(other.buffer) is place[0] and other.slot == use.slot:
                    self._note(other.op, op, "wait")
            state = attrs.evolve(state, held=state.held - {place})
        return state

    def _read_by_threads(self, op: BufferOp, uses: Iterable[_Use]) -> frozenset[_Slot]:
        """The slots of rings between roles that threads read by an op, and that TMA fills."""
        rings, apart = self.rings.mbarriers_of, read_in_flight(op)
        reads = [use for use in uses if not use.writes and use.buffer in self.loaded and use.buffer not in apart]
        return frozenset((rings[use.buffer], use.slot) for use in reads if use.buffer in rings)

    def _uses_rings_between_roles(self, op: Op, uses: Iterable[_Use], state: _AsyncState) -> None:
        """Note a read of a slot that the role does not hold, and a write to one that it has not found free."""
        for use in uses:
            mbarriers = self.rings.mbarriers_of.get(use.buffer)
            if mbarriers is None or use.slot is None:
                continue
            if not use.writes and (mbarriers, use.slot) not in state.held:
                self._note(self.initialised[mbarriers], op, "wait")
            if use.writes and (self.rings.released_at.get(mbarriers), use.slot) not in state.free:
                self._note(op, op, "wait for a free slot")


def _with(items: tuple[_Item, ...], number: int, item: _Item) -> tuple[_Item, ...]:
    return (*items[:number], item, *items[number + 1 :])


def _map_of(op: Op) -> int | None:
    """The number of the map, made by the kernel, by which a copy of TMA goes; None for a map that is a parameter."""
    maker = op.descriptor.op if isinstance(op, gpu.TmaCopy) else None
    return maker.index if isinstance(maker, gpu.MakeTensorMap) else None
