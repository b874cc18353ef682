"""The check of a placed model: asynchronous ops are not used, or overwritten, too early.

    %d = gpu.wgmma %a %b %acc;
    %e = gpu.wgmma_wait %d @0;                      before another op has the accumulator, or writes %a or %b
    gpu.tma_store %C %c …;
    gpu.tma_store_wait @0;                          before an op writes %c

It derives the order of accesses anew from the finished model, so that it judges all passes before it. `barriers` finds
missing barriers. Missing waits are found by running the model with abstract states. A state holds the groups of copies,
of wgmma and of stores in flight, in the order in which they began. There are few states, and all of them are visited:
each trip count of each loop, and both ways of each branch. Warp roles are run one by one.

The slots of one ring are not judged here, but by the proof of their channel (`channels`). The order of accesses to
different buffers that have the same memory is judged.

A tensor map is made anew only where no copy in flight reads the one before: a load is over after a wait for its
mbarrier, or where that is invalidated; a store is over after a wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import dropwhile, takewhile

import attrs

from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.fragments import MAP_BYTES
from ziggurat.codemodel.gpu.scope import WarpScope, scope_of
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import BodyTerminator
from ziggurat.codemodel.types import SharedType
from ziggurat.transforms.place.barriers import BARRIERS, Hazard, missing_barriers
from ziggurat.transforms.place.components import Component, ComponentGroup, component_of, groups_of
from ziggurat.transforms.place.memory_flow import (
    READERS,
    USERS,
    WAITS,
    Graph,
    SharedAccess,
    allocation,
    interval,
    users_of,
)
from ziggurat.transforms.place.queries import shared_of

__all__ = ["Hazard", "hazards"]

_MAX_GROUPS = 64  # In flight. No kernel has more; if one had, the oldest two would count as one.
_ASYNCHRONOUS = (*WAITS, *WAITS.values(), gpu.AsyncCommit, gpu.MbarrierInval, gpu.ClusterWait)


def hazards(module: gpu.Module) -> list[Hazard]:
    """The pairs of ops of a GPU model between which something is missing; none of a model that `place` has made.

    * a barrier or a fence between two accesses of shared memory (`barriers`);
    * a wait or a commit for asynchronous ops: copies of cp.async, wgmma, stores of TMA;
    * a wait for what other CTAs of the cluster store;
    * memory of its own for each tensor map that the kernel makes, and barriers and an acquire before its use;
    * as many arrivals in a phase of an mbarrier as it counts, from the scopes that arrive, in all CTAs of the cluster;
    * a wait at the end for arrivals of other CTAs, and one for them before a load to the memory of all CTAs.
    """
    of_mbarriers = (*_wrong_arrivals(module), *_left_arrivals(module), *_loads_too_early(module))
    return [*missing_barriers(module), *used_too_early(module), *_wrong_maps(module), *of_mbarriers]


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
    """An access of an op to a buffer of an allocation."""

    buffer: Value

    def conflicts(self, other: _Use) -> bool:
        """Whether both are of the same memory; the slots of one ring are the responsibility of its channel."""
        own = self.buffer is other.buffer and shared_of(self.buffer).count > 1
        return self.overlaps(other) and not own


Uses = frozenset[_Use]
Groups = tuple[Uses, ...]


@attrs.frozen(cache_hash=True)
class _AsyncState:
    """The asynchronous accesses at a point of the program.

    `open` are the copies that no commit has made a group yet. `loads` are the loads in flight by maps that the kernel
    has made, with their mbarriers.

    Of these maps, `made` are those that the elected thread has not acquired, `apart` those that another warp has made
    since the last barrier, and `used` are the copies by maps that the elected thread has begun since.

    All CTAs of the cluster have `started`. `sent` are the stores to all of them, and `arrived` those among them that
    have arrived here.
    """

    open: Uses = frozenset()
    copies: Groups = ()
    dots: Groups = ()
    stores: Groups = ()
    loads: frozenset[tuple[gpu.TmaLoad, Value]] = frozenset()
    made: frozenset[gpu.MakeTensorMap] = frozenset()
    apart: frozenset[gpu.MakeTensorMap] = frozenset()
    used: frozenset[Op] = frozenset()
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
        self.uses: dict[Op, list[_Use]] = {}  # Of each op.
        self.stores = [op for op in func.walk() if isinstance(op, gpu.ClusterStore)]
        self.gathered = {allocation(store.buffer) for store in self.stores}  # What other CTAs write.

    def hazards(self) -> Iterable[Hazard]:
        """Run the function from its entry."""
        followed = (*USERS, *_ASYNCHRONOUS, gpu.MbarrierArrive, tt.Return)
        if any(isinstance(op, gpu.MakeTensorMap) for op in self.func.walk()):
            followed += (*BARRIERS, gpu.AcquireTensorMaps)
        nodes = Graph(self.func.bodies[0], followed).nodes

        def following(place: tuple[int, _AsyncState]) -> Iterable[tuple[int, _AsyncState]]:
            node, state = nodes[place[0]], place[1]
            after = state if node.op is None else self._step(node.op, state)
            return ((target, after) for target in node.following)

        reached([(0, _AsyncState())], following)
        return self.hazards_by_ops.values()

    def _note(self, first: Op, second: Op, missing: str) -> None:
        self.hazards_by_ops.setdefault((id(first), id(second), missing), Hazard(first, second, missing))

    def _uses(self, op: Op) -> list[_Use]:
        """The accesses of an op, the same objects in each state."""
        if op not in self.uses:
            buffers = [allocation(value) for value in op.operands if isinstance(value.type, SharedType)]
            self.uses[op] = [_Use(op, *interval(buffer), buffer) for buffer in buffers]
        return self.uses[op]

    def _step(self, op: Op, state: _AsyncState) -> _AsyncState:
        """The state after an op without bodies."""
        uses = self._uses(op)
        if isinstance(op, READERS):
            self._meets_copies(uses, state)
        elif isinstance(op, USERS):
            self._meets_copies(uses[:1], state)
            self._meets("wait", uses[:1], (*state.dots, *state.stores))
        if isinstance(op, gpu.TmaLoad | gpu.MbarrierArrive) and op.ctas > 1 and not state.started:
            self._note(op, op, "wait for the other CTAs")
        match op:
            case gpu.ClusterWait():
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
            case gpu.AsyncCopy():
                return attrs.evolve(state, open=state.open | {*uses})
            case gpu.AsyncCommit():
                return attrs.evolve(state, open=frozenset(), copies=_begun(state.copies, state.open))
            case gpu.AsyncWait():
                return attrs.evolve(state, copies=_pending(state.copies, op.pending))
            case gpu.Wgmma():
                return attrs.evolve(state, dots=_begun(state.dots, uses))
            case gpu.WgmmaWait():
                return attrs.evolve(state, dots=_pending(state.dots, op.pending))
            case gpu.TmaStore():
                return attrs.evolve(self._uses_map(op, state), stores=_begun(state.stores, uses))
            case gpu.TmaStoreWait():
                return attrs.evolve(state, stores=_pending(state.stores, op.pending))
            case gpu.TmaLoad() if _map_of(op) is not None:
                loads = state.loads | {(op, allocation(op.barrier))}
                return attrs.evolve(self._uses_map(op, state), loads=loads)
            case gpu.MakeTensorMap():
                for copy in (
                    *(load for load, _ in state.loads),
                    *(map_.op for group in state.stores for map_ in group),
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
                mbarriers = uses[0].buffer
                here = {store for store in state.sent if allocation(store.barrier) is mbarriers}
                state = attrs.evolve(state, arrived=state.arrived | here)
                if isinstance(op, gpu.MbarrierWait) and shared_of(mbarriers).count > 1:
                    return state  # The loads of other slots are still in flight.
                return attrs.evolve(state, loads=frozenset(load for load in state.loads if load[1] is not mbarriers))
            case tt.Return():
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
        self._meets("wait", uses, state.copies)


# Mbarriers.


def _wrong_arrivals(module: gpu.Module) -> Iterator[Hazard]:
    """The mbarriers that count other arrivals than there are. A scope arrives once in a phase, by some of its ops."""
    for init in (op for op in module.walk() if isinstance(op, gpu.MbarrierInit)):
        arrivals: dict[WarpScope, int] = {}
        for op in users_of(init.buffer):
            if isinstance(op, gpu.MbarrierExpect | gpu.MbarrierArrive):
                scope, count = scope_of(op), 1
                if isinstance(op, gpu.MbarrierArrive):
                    count = op.ctas * (scope.warps if op.each_warp else scope.warp_groups)
                if arrivals.setdefault(scope, count) != count:
                    yield Hazard(init, op, "equal arrivals in all phases")
        if arrivals and sum(arrivals.values()) != init.arrivals:
            yield Hazard(init, init, f"count of {sum(arrivals.values())} arrivals")


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
