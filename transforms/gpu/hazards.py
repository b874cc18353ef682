"""The check of a placed model: asynchronous ops are not used, or overwritten, too early.

    %d = gpu.wgmma %a %b %acc;
    %e = gpu.wgmma_wait %d @0;                      before another op has the accumulator, or writes %a or %b
    gpu.tma_store %C %c …;
    gpu.tma_store_wait @0;                          before an op writes %c

It derives the order of accesses anew from the finished model, so that it checks all passes before it. `barriers` finds
missing barriers. Missing waits are found by running the model with abstract states. A state holds the groups of copies,
of wgmma and of stores in flight, in the order in which they began. There are few states, and all of them are visited:
each trip count of each loop, and both ways of each branch. Warp roles are run one by one.

The numbers of slots are computed on the way (`SlotNumbers`), so the slots of one ring are told apart. Where a number
is not known, they are the responsibility of the proof of their channel (`channels`).

A load of TMA is complete after a wait for its mbarrier; an mbarrier is used after its initialisation, and its memory by
others after it is invalidated. Of a ring between roles, a role reads the slots that it has waited for and not released,
and releases each of them once, after a fence if its threads have read what TMA will overwrite; another one fills a slot
that it has found free (`_RingsBetweenRoles`).

A tensor map is made anew only where no copy in flight reads the one before: a load is over after a wait for its
mbarrier, or where that is invalidated; a store is over after a wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, dropwhile, takewhile

import attrs

from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.fragments import MAP_BYTES
from ziggurat.codemodel.gpu.scope import WarpScope, scope_of
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import Block, Op, OpResult, Value
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import BodyTerminator
from ziggurat.codemodel.types import SharedType
from ziggurat.transforms.analysis.components import Component, ComponentGroup, component_of, groups_of
from ziggurat.transforms.analysis.memory_flow import (
    READERS,
    USERS,
    WAITS,
    Graph,
    Numbers,
    SharedAccess,
    SlotNumbers,
    allocation,
    interval,
    read_in_flight,
    slot_index,
    users_of,
)
from ziggurat.transforms.analysis.queries import constant_of, role_split, shared_of
from ziggurat.transforms.gpu.barriers import BARRIERS, Hazard, missing_barriers

__all__ = ["Hazard", "hazards"]

_MAX_GROUPS = 64  # In flight. No kernel has more; if one had, the oldest two would count as one.
_MBARRIERS = (
    gpu.MbarrierInit, gpu.MbarrierInval, gpu.MbarrierExpect, gpu.MbarrierArrive, gpu.MbarrierWait
)  # fmt: skip
_CLUSTERS = (gpu.ClusterArrive, gpu.ClusterWait)
_ASYNCHRONOUS = (*WAITS, *WAITS.values(), gpu.AsyncCommit, gpu.FenceAsync, *_MBARRIERS, *_CLUSTERS)


def hazards(module: gpu.Module) -> list[Hazard]:
    """The pairs of ops of a GPU model between which something is missing; none of a model that `place` has made.

    * a barrier or a fence between two accesses of shared memory (`barriers`);
    * a wait or a commit for asynchronous ops: copies of cp.async, wgmma, stores of TMA;
    * a wait for what other CTAs of the cluster store;
    * an initialisation of an mbarrier, and its end before other uses of its memory;
    * the bytes that a phase of an mbarrier expects, which are those of the loads that follow;
    * memory of its own for what other roles use, or other CTAs write, as nothing orders these uses;
    * a wait for a slot that another role fills, or releases, and a release of each slot that was waited for;
    * memory of its own for each tensor map that the kernel makes, and barriers and an acquire before its use;
    * as many arrivals in a phase of an mbarrier as it counts, from the scopes that arrive, in all CTAs of the cluster;
    * a wait at the end for arrivals of other CTAs, and one for them before a load to the memory of all CTAs.
    """
    of_mbarriers = (
        *_wrong_arrivals(module), *_wrong_bytes(module), *_left_arrivals(module), *_loads_too_early(module)
    )  # fmt: skip
    overlaps = (*_overlapping_in_roles(module), *_overlapping_in_clusters(module))
    return [*missing_barriers(module), *used_too_early(module), *_wrong_maps(module), *of_mbarriers, *overlaps]


def used_too_early(module: gpu.Module) -> Iterator[Hazard]:
    """The ops of a module that use data in flight, or overwrite data that is still read."""
    for func in module.functions().values():
        if any(isinstance(op, _ASYNCHRONOUS) for op in func.walk()):
            yield from _accumulators_in_use(func, groups_of(func))
            yield from _Run(func).hazards()


# Accumulators, by the values that hold them.


def _accumulators_in_use(func: Op, groups: Mapping[Component, ComponentGroup]) -> Iterator[Hazard]:
    """The uses of accumulators that may be in flight, except by waits, other wgmma and control flow."""
    for op in func.walk():
        if isinstance(op, gpu.WgmmaWait | Structured | BodyTerminator | core.MakeTuple | core.TupleLoad):
            continue
        for value in op.operands:
            wgmma = _computing(component_of(value), groups, set())
            if wgmma is not None and not (isinstance(op, gpu.Wgmma) and value is op.c is not op.a):
                yield Hazard(wgmma, op, "wait")


def _computing(
    component: Component, groups: Mapping[Component, ComponentGroup], visited: set[Component]
) -> gpu.Wgmma | None:
    """A wgmma that may still be computing a component."""
    if component in visited:
        return None
    visited.add(component)
    op = component[0].op
    if isinstance(op, gpu.Wgmma):
        return op
    if isinstance(op, gpu.WgmmaWait):
        complete = op.pending <= _begun_between(op)
        return None if complete else _computing(component_of(op.value), groups, visited)
    sources = groups[component].sources if component in groups else ()
    results = (_computing(source, groups, visited) for _, source in sources)
    return next((wgmma for wgmma in results if wgmma is not None), None)


def _begun_between(wait: gpu.WgmmaWait) -> int:
    """The number of wgmma that a block begins between the one that a wait is for and the wait."""
    first = wait.value.op
    if not isinstance(first, gpu.Wgmma) or first.parent is None or first.parent is not wait.parent:
        return 0
    after = dropwhile(lambda op: op is not first, first.parent.ops)
    return sum(isinstance(op, gpu.Wgmma) for op in takewhile(lambda op: op is not wait, after)) - 1


# Shared memory, state by state.


@attrs.frozen(eq=False)
class _Use(SharedAccess):
    """An access of an op to a slot of an allocation, whose number may not be known: then the bytes are those of all."""

    buffer: Value
    slot: int | None

    def conflicts(self, other: _Use) -> bool:
        """Whether both are of the same memory, unless they are unknown slots of one ring."""
        own = self.buffer is other.buffer and (self.slot is None or other.slot is None)
        return self.overlaps(other) and not own

    @property
    def place(self) -> _Slot:
        """The slot that is accessed."""
        return self.buffer, self.slot


_Slot = tuple[Value, int | None]
Uses = frozenset[_Use]
Groups = tuple[Uses, ...]


@attrs.frozen(eq=False)
class _Load:
    """A load of TMA in flight, its access to the buffer, and its mbarrier."""

    op: gpu.TmaLoad
    use: _Use
    mbarrier: _Use


@attrs.frozen(cache_hash=True)
class _AsyncState:
    """The asynchronous accesses at a point of the program.

    `open` are the copies that no commit has made a group yet. `loads` are the loads of TMA in flight.

    `numbers` are the known numbers of slots, and `mbarriers` those that are initialised. Of the rings between roles,
    `held` are the slots, by their mbarriers, that this role has waited for and not released, `read` those that its
    threads have read since the last fence, and `free` those that it has found free last.

    Of these maps, `made` are those that the elected thread has not acquired, `apart` those that another warp has made
    since the last barrier, and `used` are the copies by maps that the elected thread has begun since.

    This CTA has `arrived_at_cluster`, and all CTAs of the cluster have `started`. `sent` are the stores to all of them,
    and `arrived` those among them that have arrived here.
    """

    open: Uses = frozenset()
    copies: Groups = ()
    dots: Groups = ()
    stores: Groups = ()
    loads: frozenset[_Load] = frozenset()
    numbers: Numbers = frozenset()
    mbarriers: frozenset[Value] = frozenset()
    held: frozenset[_Slot] = frozenset()
    read: frozenset[_Slot] = frozenset()
    free: frozenset[_Slot] = frozenset()
    made: frozenset[gpu.MakeTensorMap] = frozenset()
    apart: frozenset[gpu.MakeTensorMap] = frozenset()
    used: frozenset[Op] = frozenset()
    arrived_at_cluster: bool = False
    started: bool = False
    sent: frozenset[gpu.ClusterStore] = frozenset()
    arrived: frozenset[gpu.ClusterStore] = frozenset()


def _begun(groups: Groups, group: Iterable[_Use]) -> Groups:
    if len(groups) == _MAX_GROUPS:
        groups = (groups[0] | groups[1], *groups[2:])
    return (*groups, frozenset(group))


def _pending(groups: Groups, count: int) -> Groups:
    return groups[-count:] if count else ()


class _Run:
    """A run of a function through all states. A hazard is noted once for each pair of ops."""

    def __init__(self, func: Op) -> None:
        self.func = func
        self.hazards_by_ops: dict[tuple[int, int, str], Hazard] = {}
        self.numbers = SlotNumbers(func)
        self.uses: dict[tuple[Op, tuple[int | None, ...]], list[_Use]] = {}  # Of each op, and the numbers of its slots.
        self.loads: dict[tuple[_Use, _Use], _Load] = {}
        self.rings = _rings_between_roles(func)
        self.initialised = {op.buffer: op for op in func.walk() if isinstance(op, gpu.MbarrierInit)}
        self.loaded = {allocation(op.buffer) for op in func.walk() if isinstance(op, gpu.TmaLoad)}
        self.stores = [op for op in func.walk() if isinstance(op, gpu.ClusterStore)]
        self.gathered = {allocation(store.buffer) for store in self.stores}  # What other CTAs write.

    def hazards(self) -> Iterable[Hazard]:
        """Run the function from its entry."""
        followed = (*USERS, *_ASYNCHRONOUS, tt.Return)
        if any(isinstance(op, gpu.MakeTensorMap) for op in self.func.walk()):
            followed += (*BARRIERS, gpu.AcquireTensorMaps)
        nodes = Graph(self.func.bodies[0], followed).nodes

        def following(place: tuple[int, _AsyncState]) -> Iterable[tuple[int, _AsyncState]]:
            node, state = nodes[place[0]], place[1]
            numbers = self.numbers.after(node, state.numbers)
            state = state if numbers == state.numbers else attrs.evolve(state, numbers=numbers)
            after = state if node.op is None else self._step(node.op, state)
            return ((target, after) for target in node.following)

        reached([(0, _AsyncState())], following)
        return self.hazards_by_ops.values()

    def _note(self, first: Op, second: Op, missing: str) -> None:
        self.hazards_by_ops.setdefault((id(first), id(second), missing), Hazard(first, second, missing))

    def _uses(self, op: Op, state: _AsyncState) -> list[_Use]:
        """The accesses of an op, the same objects in each state with the same slots."""
        buffers = [value for value in op.operands if isinstance(value.type, SharedType)]
        slots = tuple(self.numbers.slot(buffer, state.numbers) for buffer in buffers)
        if (op, slots) not in self.uses:
            self.uses[op, slots] = [self._use(op, *pair) for pair in zip(map(allocation, buffers), slots, strict=True)]
        return self.uses[op, slots]

    def _use(self, op: Op, buffer: Value, slot: int | None) -> _Use:
        start, end = interval(buffer)
        if slot is not None:
            if slot >= shared_of(buffer).count:
                self._note(op, op, f"slot with the number {slot}")
            size = (end - start) // shared_of(buffer).count
            start, end = start + slot * size, start + (slot + 1) * size
        return _Use(op, start, end, buffer, slot)

    def _step(self, op: Op, state: _AsyncState) -> _AsyncState:
        """The state after an op without bodies."""
        uses = self._uses(op, state)
        if isinstance(op, READERS):
            self._meets_copies(uses, state)
        elif isinstance(op, USERS):
            self._meets_copies(uses[:1], state)
            self._meets("wait", uses[:1], (*state.dots, *state.stores))
        if isinstance(op, USERS):
            self._uses_memory_of_mbarriers(op, uses, state)
            self._uses_rings_between_roles(op, uses, state)
        if isinstance(op, READERS) and (read := self._read_by_threads(op, uses)) - state.read:
            state = attrs.evolve(state, read=state.read | read)
        if isinstance(op, gpu.TmaLoad | gpu.MbarrierArrive) and op.ctas > 1 and not state.started:
            self._note(op, op, "wait for the other CTAs")
        if isinstance(op, _MBARRIERS):
            state = self._after_mbarrier(op, uses[0], state)
        match op:
            case gpu.ClusterArrive():
                return attrs.evolve(state, arrived_at_cluster=True)
            case gpu.ClusterWait():
                if not state.arrived_at_cluster:
                    self._note(op, op, "arrival at the cluster")
                return attrs.evolve(state, started=True)
            case gpu.ClusterStore():
                if not state.started or op in state.sent:
                    self._note(op, op, "wait for the other CTAs")
                return attrs.evolve(state, sent=state.sent | {op})
            case gpu.LocalLoad() | gpu.LocalGather() if any(use.buffer in self.gathered for use in uses):
                for store in self.stores:
                    if store not in state.arrived and allocation(store.buffer) is uses[0].buffer:
                        self._note(store, op, "wait")
                return state
            case gpu.FenceAsync():
                return attrs.evolve(state, read=frozenset())
            case gpu.AsyncCopy():
                return attrs.evolve(state, open=state.open | {*uses})
            case gpu.AsyncCommit():
                return attrs.evolve(state, open=frozenset(), copies=_begun(state.copies, state.open))
            case gpu.AsyncWait():
                return attrs.evolve(state, copies=_pending(state.copies, op.pending))
            case gpu.Wgmma():
                in_flight = read_in_flight(op)
                return attrs.evolve(state, dots=_begun(state.dots, (use for use in uses if use.buffer in in_flight)))
            case gpu.WgmmaWait():
                return attrs.evolve(state, dots=_pending(state.dots, op.pending))
            case gpu.TmaStore():
                return attrs.evolve(self._uses_map(op, state), stores=_begun(state.stores, uses))
            case gpu.TmaStoreWait():
                return attrs.evolve(state, stores=_pending(state.stores, op.pending))
            case gpu.TmaLoad() if _map_of(op) is not None or uses[1].buffer not in self.rings.mbarriers:
                load = self.loads.setdefault((uses[0], uses[1]), _Load(op, *uses))
                return attrs.evolve(self._uses_map(op, state), loads=state.loads | {load})
            case gpu.MakeTensorMap():
                for copy in (
                    *(load.op for load in state.loads),
                    *(use.op for group in state.stores for use in group),
                ):
                    if _map_of(copy) == op.index:
                        self._note(copy, op, "wait")
                for copy in (copy for copy in state.used if op.warp and _map_of(copy) == op.index):
                    self._note(copy, op, "barrier")
                return attrs.evolve(
                    state, made=state.made | {op}, apart=state.apart | ({op} if op.warp else frozenset())
                )
            case gpu.AcquireTensorMaps():
                maps = {value.op for value in op.maps if isinstance(value, OpResult)}
                for map_ in state.apart & maps:
                    self._note(map_, op, "barrier")
                return attrs.evolve(state, made=state.made - maps)
            case gpu.Barrier() | tt.Barrier() | gpu.ClusterBarrier():
                return attrs.evolve(state, apart=frozenset(), used=frozenset())
            case gpu.MbarrierInval() | gpu.MbarrierWait():
                mbarrier = uses[0]
                here = {store for store in state.sent if allocation(store.barrier) is mbarrier.buffer}
                over = [load for load in state.loads if load.mbarrier.buffer is mbarrier.buffer]
                if isinstance(op, gpu.MbarrierWait):
                    over = [load for load in over if load.mbarrier.slot == mbarrier.slot is not None]
                for load in (load for load in over if isinstance(op, gpu.MbarrierInval)):
                    if constant_of(load.op.predicate) is not None:  # Others load for iterations that do not come.
                        self._note(load.op, op, "wait")
                return attrs.evolve(state, arrived=state.arrived | here, loads=state.loads.difference(over))
            case gpu.WarpSpecialize():
                for mbarriers, _ in state.held:
                    self._note(self.initialised.get(mbarriers, op), op, "release")
                return attrs.evolve(state, held=frozenset(), read=frozenset(), free=frozenset(), numbers=frozenset())
            case tt.Return():
                # Another CTA may have the memory before these copies are complete.
                for load in (load for load in self._loads_of_this_role(state) if load.use.slot is not None):
                    self._note(load.op, load.op, "wait")
                for copy in (copy for group in (state.open, *state.copies) for copy in group):
                    self._note(copy.op, copy.op, "wait")
                for message in state.sent - state.arrived:
                    self._note(message, message, "wait")
                for store in (store for group in state.stores for store in group):
                    # Another CTA may have the memory before the store has read it.
                    self._note(store.op, store.op, "wait")
                return state
            case _:
                return state

    def _uses_map(self, op: gpu.TmaLoad | gpu.TmaStore, state: _AsyncState) -> _AsyncState:
        """The state after the begin of a copy, with regard to its map."""
        if _map_of(op) is None:
            return state
        for map_ in (map_ for map_ in state.made if map_.index == _map_of(op)):
            self._note(map_, op, "acquire")
        return attrs.evolve(state, used=state.used | {op})

    def _meets(self, missing: str, uses: Iterable[_Use], groups: Groups) -> None:
        """Note what conflicts with these accesses."""
        for use in uses:
            for other in (other for group in groups for other in group if other.conflicts(use)):
                self._note(other.op, use.op, missing)

    def _meets_copies(self, uses: Iterable[_Use], state: _AsyncState) -> None:
        self._meets("commit", uses, (state.open,))
        self._meets("wait", uses, (*state.copies, frozenset(load.use for load in self._loads_of_this_role(state))))

    def _loads_of_this_role(self, state: _AsyncState) -> Iterator[_Load]:
        """The loads in flight that no other role waits for."""
        return (load for load in state.loads if load.mbarrier.buffer not in self.rings.mbarriers)

    # Mbarriers, and rings between roles.

    def _uses_memory_of_mbarriers(self, op: Op, uses: Sequence[_Use], state: _AsyncState) -> None:
        """Note an access to memory in which an mbarrier lies, and a copy whose mbarrier is not initialised."""
        own = {allocation(op.barrier)} if isinstance(op, gpu.TmaLoad | gpu.ClusterStore) else set[Value]()
        if own - state.mbarriers:
            self._note(op, op, "initialisation of an mbarrier")
        for mbarriers in state.mbarriers - own:
            start, end = interval(mbarriers)
            if any(use.start < end and start < use.end for use in uses):
                self._note(self.initialised[mbarriers], op, "end of an mbarrier")

    def _after_mbarrier(self, op: Op, use: _Use, state: _AsyncState) -> _AsyncState:
        """The state after an op on mbarriers, with regard to these, and to the slots that they are about."""
        initialised = state.mbarriers
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

    def _after_release(self, op: gpu.MbarrierArrive, use: _Use, state: _AsyncState) -> _AsyncState:
        """The state after an arrival that may release a slot: no wgmma reads it."""
        filled = [mbarriers for mbarriers, at in self.rings.released_at.items() if at is use.buffer]
        for place in ((mbarriers, use.slot) for mbarriers in filled):
            if place not in state.held and constant_of(op.predicate):
                self._note(op, op, "wait")
            if place in state.read:
                self._note(op, op, "fence")
            for dot in (dot for group in state.dots for dot in group):
                if self.rings.mbarriers_of.get(dot.buffer) is place[0] and dot.slot == use.slot:
                    self._note(dot.op, op, "wait")
            state = attrs.evolve(state, held=state.held - {place})
        return state

    def _read_by_threads(self, op: Op, uses: Iterable[_Use]) -> frozenset[_Slot]:
        """The slots of rings between roles that threads read by an op, and that TMA fills."""
        rings = self.rings.mbarriers_of
        reads = [use for use in uses if use.buffer in self.loaded and use.buffer not in read_in_flight(op)]
        return frozenset((rings[use.buffer], use.slot) for use in reads if use.buffer in rings)

    def _uses_rings_between_roles(self, op: Op, uses: Sequence[_Use], state: _AsyncState) -> None:
        """Note a read of a slot that the role does not hold, and a write to one that it has not found free."""
        for use in uses[: None if isinstance(op, READERS) else 1]:
            mbarriers = self.rings.mbarriers_of.get(use.buffer)
            if mbarriers is None or use.slot is None:
                continue
            if isinstance(op, READERS):
                if (mbarriers, use.slot) not in state.held:
                    self._note(self.initialised[mbarriers], op, "wait")
            elif (self.rings.released_at.get(mbarriers), use.slot) not in state.free:
                self._note(op, op, "wait for a free slot")


@attrs.frozen(eq=False)
class _RingsBetweenRoles:
    """The rings that one role fills and others read.

    `mbarriers_of` has the mbarriers that tell of filled slots, by the ring; `released_at` has those at which the
    readers of these slots arrive, by the former.
    """

    mbarriers_of: dict[Value, Value] = attrs.field(factory=dict[Value, Value])
    released_at: dict[Value, Value] = attrs.field(factory=dict[Value, Value])

    @property
    def mbarriers(self) -> Collection[Value]:
        """The mbarriers that tell of filled slots."""
        return self.mbarriers_of.values()


def _rings_between_roles(func: Op) -> _RingsBetweenRoles:
    """The rings between the roles of a function.

    The role that fills a slot waits for an mbarrier, and then loads with another one that has the same index, or stores
    and arrives at it.
    """
    rings = _RingsBetweenRoles()
    for role in (role for op in func.walk() if isinstance(op, gpu.WarpSpecialize) for role in op.roles):
        inside = {op.result for op in role.walk()}
        for block in dict.fromkeys(op.parent for op in role.walk() if op.parent is not None):
            _rings_of_block(block, inside, rings)
    return rings


def _rings_of_block(block: Block, inside: Collection[Value], rings: _RingsBetweenRoles) -> None:
    waits: dict[Value | None, Value] = {}  # The mbarrier of the last wait, by the index of the slot.
    stored: dict[Value | None, list[Value]] = {}  # The rings that threads have written, by the index of the slot.
    for op in block.ops:
        match op:
            case gpu.MbarrierWait():
                waits[slot_index(op.barrier)] = allocation(op.barrier)
            case gpu.LocalStore():
                stored.setdefault(slot_index(op.buffer), []).append(allocation(op.buffer))
            case gpu.TmaLoad() | gpu.MbarrierArrive():
                index, mbarriers = slot_index(op.barrier), allocation(op.barrier)
                buffers = [allocation(op.buffer)] if isinstance(op, gpu.TmaLoad) else stored.get(index, [])
                for ring in (ring for ring in buffers if ring not in inside):
                    rings.mbarriers_of[ring] = mbarriers
                    if index in waits and waits[index] is not mbarriers:
                        rings.released_at.setdefault(mbarriers, waits[index])
            case _:
                pass


# Mbarriers.


def _wrong_arrivals(module: gpu.Module) -> Iterator[Hazard]:
    """The mbarriers that count other arrivals than there are. A scope arrives once in a phase, by some of its ops."""
    for init in (op for op in module.walk() if isinstance(op, gpu.MbarrierInit)):
        arrivals: dict[WarpScope, int] = {}
        users = list(users_of(init.buffer))
        for op in users:
            if isinstance(op, gpu.MbarrierExpect | gpu.MbarrierArrive):
                scope, count = scope_of(op), 1
                if isinstance(op, gpu.MbarrierArrive):
                    count = op.ctas * (scope.warps if op.each_warp else scope.warp_groups)
                if arrivals.setdefault(scope, count) != count:
                    yield Hazard(init, op, "equal arrivals in all phases")
        waits = [op for op in users if isinstance(op, gpu.MbarrierWait)]
        if arrivals and not waits:
            yield Hazard(init, init, "wait for its phases")
        if waits and sum(arrivals.values()) != init.arrivals:
            yield Hazard(init, init, f"count of {sum(arrivals.values())} arrivals")


def _wrong_bytes(module: gpu.Module) -> Iterator[Hazard]:
    """The loads of TMA, and stores to other CTAs, whose bytes no phase of their mbarrier expects.

    The loads of a phase follow the op that expects their bytes, in its block. An mbarrier of stores has one phase.
    """
    for init in (op for op in module.walk() if isinstance(op, gpu.MbarrierInit)):
        users = list(users_of(init.buffer))
        expects = [op for op in users if isinstance(op, gpu.MbarrierExpect)]
        stores = [op for op in users if isinstance(op, gpu.ClusterStore)]
        for store in stores[:1]:
            if sum(op.bytes for op in expects) != sum(shared_of(op.buffer).bytes for op in stores):
                yield Hazard(init, store, "count of bytes")
        for block in dict.fromkeys(op.parent for op in users if isinstance(op, gpu.TmaLoad | gpu.MbarrierExpect)):
            assert block is not None
            open_: dict[Value | None, tuple[Op, int]] = {}  # The bytes that are expected still, by the slot's index.
            for op in (op for op in block.ops if op in users and isinstance(op, gpu.TmaLoad | gpu.MbarrierExpect)):
                index = slot_index(op.barrier)
                last, size = open_.get(index, (op, 0))
                if isinstance(op, gpu.MbarrierExpect):
                    if size:
                        yield Hazard(last, op, "count of bytes")
                    open_[index] = op, op.bytes
                else:
                    open_[index] = op, size - shared_of(op.buffer).bytes
            for last, size in open_.values():
                if size and not stores:
                    yield Hazard(last, last, "count of bytes")


def _left_arrivals(module: gpu.Module) -> Iterator[Hazard]:
    """The mbarriers at which other CTAs may arrive when this one has ended: no role ends with a wait for each."""
    for init in (op for op in module.walk() if isinstance(op, gpu.MbarrierInit)):
        users = list(users_of(init.buffer))
        if not any(isinstance(op, gpu.MbarrierArrive) and op.ctas > 1 for op in users):
            continue
        waits = [op for op in users if isinstance(op, gpu.MbarrierWait)]
        roles = [op.parent for op in waits[-1:] if op.parent and isinstance(op.parent_op, gpu.WarpSpecialize)]
        last = [op for block in roles for op in takewhile(lambda op: not op.bodies, reversed(block.ops))]
        if sum(op in waits for op in last) < shared_of(init.buffer).count:
            yield Hazard(init, init, "wait for the last arrivals of other CTAs")


def _loads_too_early(module: gpu.Module) -> Iterator[Hazard]:
    """The loads to the shared memory of all CTAs without a wait in their block, for an mbarrier at which all arrive."""
    for op in (op for op in module.walk() if isinstance(op, gpu.TmaLoad) and op.ctas > 1):
        assert op.parent is not None
        before = op.parent.ops[: op.parent.ops.index(op)]
        waited = {allocation(other.barrier) for other in before if isinstance(other, gpu.MbarrierWait)}
        arrivals = (user for buffer in waited for user in users_of(buffer) if isinstance(user, gpu.MbarrierArrive))
        if not any(user.ctas == op.ctas for user in arrivals):
            yield Hazard(op, op, "wait for the releases of all CTAs")


def _overlapping_in_roles(module: gpu.Module) -> Iterator[Hazard]:
    """The allocations that have bytes in common, though one role uses one of them, and another role the other."""
    split = role_split(module)
    if split is None:
        return
    roles: dict[gpu.LocalAlloc, set[int]] = {}
    for number, role in enumerate(split.roles):
        for value in (value for op in role.walk() for value in op.operands if isinstance(value.type, SharedType)):
            if isinstance(alloc := allocation(value).op, gpu.LocalAlloc):
                roles.setdefault(alloc, set()).add(number)
    for (first, users), (second, others) in combinations(roles.items(), 2):
        if _have_common_bytes(first.result, second.result) and len(users | others) > 1:
            yield Hazard(first, second, "memory of its own")


def _overlapping_in_clusters(module: gpu.Module) -> Iterator[Hazard]:
    """The allocations that have bytes in common with one that other CTAs write: one of these may be ahead."""
    written = {allocation(op.buffer) for op in module.walk() if isinstance(op, gpu.ClusterStore)}
    others = [op for op in module.walk() if isinstance(op, gpu.LocalAlloc)] if written else []
    for buffer in written:
        for other in (other for other in others if other.result is not buffer):
            if _have_common_bytes(buffer, other.result):
                yield Hazard(next(op for op in others if op.result is buffer), other, "memory of its own")


def _have_common_bytes(first: Value, second: Value) -> bool:
    (start, end), (other_start, other_end) = interval(first), interval(second)
    return start < other_end and other_start < end


# Tensor maps.


def _map_of(copy: Op) -> int | None:
    """The number of the map, made by the kernel, by which a copy of TMA goes; None for a map that is a parameter."""
    assert isinstance(copy, gpu.TmaLoad | gpu.TmaStore)
    maker = copy.descriptor.op
    return maker.index if isinstance(maker, gpu.MakeTensorMap) else None


def _wrong_maps(module: gpu.Module) -> Iterator[Hazard]:
    """The tensor maps whose memory is another map's as well, or is not provided."""
    makers: dict[int, gpu.MakeTensorMap] = {}
    for op in module.walk():
        if isinstance(op, gpu.MakeTensorMap):
            first = makers.setdefault(op.index, op)
            if first is not op or (op.index + 1) * MAP_BYTES > module.scratch:
                yield Hazard(first, op, "memory for a tensor map")
