"""The check of a placed model: asynchronous ops are not used, or overwritten, too early.

    %3 = scf.for … (%i, %slot, %acc) {
        gpu.async_wait @1;                          the copies of all but the last group are complete
        gpu.barrier;
        %d = gpu.wgmma %a[%slot] %b[%slot] %acc;
        %e = gpu.wgmma_wait %d @1;                  the wgmma of the iteration before is complete,
        gpu.barrier;
        gpu.async_copy … %a[%before]; …             so the slot that it read can be filled again
        gpu.async_commit;
        scf.yield %e …;
    }
    %4 = gpu.wgmma_wait %3 @0;                      before anything else has the accumulator

It derives the order of accesses anew from the finished model, so that it judges all passes before it. `barriers` finds
missing barriers. Missing waits, commits and arrivals are found by running the model with abstract states. A state holds
the numbers that slot indices and parities are computed from, the groups of copies and of wgmma in flight, in the order
in which they began, and the slots that hold data. These numbers count around in rings, so there are few states, and all
of them are visited: each trip count of each loop, and both ways of each branch. Two warp roles are run one by one; each
must wait for everything that it needs from the other.

    gpu.mbarrier_init %full @arrivals=1;
    …
    %f = gpu.local_view %full %slot;
    gpu.mbarrier_expect %f %more @bytes=16384;        the arrival, and the bytes of all loads that name this mbarrier
    gpu.tma_load %A %a[%slot] %f %more …;             128 × 32 of f16
    gpu.tma_load %B %b[%slot] %f %more …;             32 × 128 of f16

The loads of a phase stand in the block of its `gpu.mbarrier_expect`, with the same slot index and the same predicate.
A phase with too few expected bytes ends before the data is there; one with too many, or without a
`gpu.mbarrier_expect`, never ends.

A tensor map is made anew only where no copy in flight reads the one before: a load is over after a wait for its
mbarrier, or where that is invalidated, which needs an mbarrier between two phases; a store is over after a wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from ziggurat.codemodel.dialects import arith, core, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.fragments import MAP_BYTES
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.numbers import ELEMENTWISE, on_numbers
from ziggurat.codemodel.op import Block, Body, Op, OpResult, Value
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import BodyTerminator
from ziggurat.codemodel.types import SharedType
from ziggurat.transforms.place.barriers import BARRIERS, Hazard, missing_barriers
from ziggurat.transforms.place.components import Component, Group, component_of, groups_of
from ziggurat.transforms.place.flow import READERS, USERS, WAITS, Access, Edge, Graph, allocation, interval, slot_index
from ziggurat.transforms.place.queries import WARP_GROUP, shared_of

__all__ = ["Hazard", "hazards"]

_MAX_GROUPS = 64  # In flight. No kernel has more; if one had, the oldest two would count as one.
_ASYNCHRONOUS = (
    *WAITS, *WAITS.values(), gpu.AsyncCommit, gpu.MbarrierInit, gpu.MbarrierInval, gpu.MbarrierArrive,
)  # fmt: skip

Slot = tuple[Value, int | None]  # An allocation, and the index of a slot; None for any of them.


def hazards(module: gpu.Module) -> list[Hazard]:
    """The pairs of ops of a GPU model between which something is missing; none of a model that `place` has made.

    * a barrier or a fence between two accesses of shared memory (`barriers`);
    * a wait, a commit or an arrival for asynchronous ops: copies of cp.async, wgmma, loads and stores of TMA;
    * the bytes and arrivals that an mbarrier expects;
    * memory of its own for each tensor map that the kernel makes, and barriers and an acquire before its use.
    """
    return [*missing_barriers(module), *used_too_early(module), *_wrong_phases(module), *_wrong_maps(module)]


def used_too_early(module: gpu.Module) -> Iterator[Hazard]:
    """The ops of a module that use data in flight, or overwrite data that is still read."""
    for func in module.functions().values():
        if any(isinstance(op, _ASYNCHRONOUS) for op in func.walk()):
            groups = groups_of(func)
            yield from _accumulators_in_use(func, groups)
            yield from _Run(func, groups).hazards()


# Accumulators, by the values that hold them.


def _accumulators_in_use(func: Op, groups: Mapping[Component, Group]) -> Iterator[Hazard]:
    """The uses of accumulators that may be in flight, except by waits, other wgmma and control flow."""
    for op in func.walk():
        if isinstance(op, gpu.WgmmaWait | Structured | BodyTerminator | core.MakeTuple | core.TupleLoad):
            continue
        for value in op.operands:
            wgmma = _computing(component_of(value), groups, set())
            if wgmma is not None and not (isinstance(op, gpu.Wgmma) and value is op.c is not op.a):
                yield Hazard(wgmma, op, "wait")


def _computing(component: Component, groups: Mapping[Component, Group], seen: set[Component]) -> gpu.Wgmma | None:
    """A wgmma that may still be computing a component."""
    if component in seen:
        return None
    seen.add(component)
    op = component[0].op if isinstance(component[0], OpResult) else None
    if isinstance(op, gpu.Wgmma):
        return op
    if isinstance(op, gpu.WgmmaWait):
        return _computing(component_of(op.value), groups, seen) if op.pending else None
    sources = groups[component].sources if component in groups else ()
    found = (_computing(source, groups, seen) for _, source in sources)
    return next((wgmma for wgmma in found if wgmma is not None), None)


# Shared memory, state by state.


Accesses = frozenset[Access]
Groups = tuple[Accesses, ...]


@attrs.frozen(cache_hash=True)
class _State:
    """The facts at a point of the program; see the top of this file.

    `open` are the copies that no commit has made a group yet. `full` are slots that TMA has filled, `empty` slots that
    the consumer has released to the producer. `odd` are the mbarriers whose next wait is for another parity than the
    first one was. `loads` are the loads in flight by maps that the kernel has made, with their mbarriers.

    Of these maps, `made` are those that the elected thread has not acquired, `apart` those that another warp has made
    since the last barrier, and `used` are the copies by maps that the elected thread has begun since.
    """

    numbers: frozenset[tuple[Component, int | None]] = frozenset()
    open: Accesses = frozenset()
    copies: Groups = ()
    dots: Groups = ()
    stores: Groups = ()
    full: frozenset[Slot] = frozenset()
    empty: frozenset[Slot] = frozenset()
    odd: frozenset[Slot] = frozenset()
    loads: frozenset[tuple[gpu.TmaLoad, Slot]] = frozenset()
    made: frozenset[gpu.MakeTensorMap] = frozenset()
    apart: frozenset[gpu.MakeTensorMap] = frozenset()
    used: frozenset[Op] = frozenset()


def _begun(groups: Groups, *group: Access) -> Groups:
    if len(groups) == _MAX_GROUPS:
        groups = (groups[0] | groups[1], *groups[2:])
    return (*groups, frozenset(group))


def _pending(groups: Groups, count: int) -> Groups:
    return groups[-count:] if count else ()


class _Run:
    """A run of a function through all states. A hazard is noted once for each pair of ops."""

    def __init__(self, func: Op, groups: Mapping[Component, Group]) -> None:
        self.func = func
        self.groups = groups
        self.found: dict[tuple[int, int, str], Hazard] = {}
        self.fetches: dict[Value, gpu.TmaLoad] = {}  # One load into each ring.
        self.filled_by: dict[Value, set[Value]] = {}  # The rings that the loads of an mbarrier fill.
        self.emptied_by: dict[Value, set[Value]] = {}  # The rings that the arrivals at an mbarrier release.
        self.readers: dict[Value, list[Op]] = {}
        ops = list(func.walk())
        numbers = [op.index for op in ops if isinstance(op, gpu.LocalView)]
        numbers += [op.parity for op in ops if isinstance(op, gpu.MbarrierWait)]
        self.tracked = self._sources(numbers)
        expected = {allocation(op.barrier) for op in ops if isinstance(op, gpu.MbarrierExpect)}
        waited: dict[Block | None, Value] = {}  # The mbarrier of empty slots that each block has waited for last.
        for op in ops:
            if isinstance(op, gpu.MbarrierWait) and allocation(op.barrier) not in expected:
                waited[op.parent] = allocation(op.barrier)
            elif isinstance(op, gpu.TmaLoad):
                ring = allocation(op.buffer)
                self.fetches.setdefault(ring, op)
                self.filled_by.setdefault(allocation(op.barrier), set()).add(ring)
                if op.parent in waited:
                    self.emptied_by.setdefault(waited[op.parent], set()).add(ring)
            elif isinstance(op, READERS):
                for buffer in op.operands:
                    self.readers.setdefault(allocation(buffer), []).append(op)
        self.released = {ring for rings in self.emptied_by.values() for ring in rings}

    def hazards(self) -> Iterable[Hazard]:
        """Run the function from its entry."""
        for op in self.func.walk():
            for role in op.roles[1:] if isinstance(op, gpu.WarpSpecialize) else ():
                self._readers_of(role)
        followed = (gpu.LocalAlloc, *USERS, *_ASYNCHRONOUS, tt.Return)
        if any(isinstance(op, gpu.MakeTensorMap) for op in self.func.walk()):
            followed += (*BARRIERS, gpu.AcquireTensorMaps)
        nodes = Graph(self.func.bodies[0], followed).nodes

        def following(place: tuple[int, _State]) -> Iterable[tuple[int, _State]]:
            node, state = nodes[place[0]], place[1]
            after = state if node.op is None else self._step(node.op, state)
            return ((edge.target, self._passed(after, edge)) for edge in node.following)

        reached([(0, _State())], following)
        return self.found.values()

    def _note(self, first: Op, second: Op, missing: str) -> None:
        self.found.setdefault((id(first), id(second), missing), Hazard(first, second, missing))

    def _readers_of(self, producer: Body) -> None:
        """Note the reads of a producer's rings that no arrival orders before the next fetch into the slot."""
        for fetch in producer.walk():
            ring = allocation(fetch.buffer) if isinstance(fetch, gpu.TmaLoad) else None
            for reader in self.readers.get(ring, ()) if ring is not None else ():
                if not isinstance(reader, gpu.Wgmma):
                    # One thread of each warp group arrives, which does not order the reads of the other threads.
                    self._note(reader, fetch, "barrier")
                elif ring not in self.released:
                    self._note(reader, fetch, "wait")

    # Numbers.

    def _sources(self, values: Sequence[Value]) -> set[Component]:
        """The components that control flow passes on, from which these values are computed."""

        def sources(component: Component) -> Iterable[Component]:
            value, group = component[0], self.groups.get(component)
            if group is not None:
                return (*group.members, *(source for _, source in group.sources))
            return map(component_of, value.op.operands) if isinstance(value, OpResult) and not value.op.bodies else ()

        return reached(map(component_of, values), sources) & self.groups.keys()

    def _number(self, value: Value, numbers: Mapping[Component, int | None]) -> int | None:
        """The number that a value is, where it is known."""
        component = component_of(value)
        if component in self.groups:
            return numbers.get(component)
        op = component[0].op if isinstance(component[0], OpResult) else None
        if isinstance(op, arith.ConstantOp):
            return op.value if isinstance(op.value, int) else None
        if not isinstance(op, ELEMENTWISE):
            return None
        given = [number for operand in op.operands if (number := self._number(operand, numbers)) is not None]
        return int(on_numbers(op, given)) if len(given) == len(op.operands) else None

    def _passed(self, state: _State, edge: Edge) -> _State:
        """The state after an edge, on which components get the numbers of the values that are passed to them."""
        known = dict(state.numbers)
        pairs = zip(edge.members, edge.values, strict=True)
        passed = {member: self._number(value, known) for member, value in pairs if member in self.tracked}
        return attrs.evolve(state, numbers=frozenset((known | passed).items())) if passed else state

    # Ops.

    def _slot(self, buffer: Value, state: _State) -> Slot:
        index = slot_index(buffer)
        return allocation(buffer), 0 if index is None else self._number(index, dict(state.numbers))

    def _step(self, op: Op, state: _State) -> _State:
        """The state after an op without bodies."""
        buffers = [value for value in op.operands if isinstance(value.type, SharedType)]
        slots = [self._slot(buffer, state) for buffer in buffers]
        accesses = [Access(op, *interval(*slot)) for slot in slots]
        if isinstance(op, READERS):
            self._meets_copies(accesses, state)
            for slot in slots:
                if slot[0] in self.fetches and slot not in state.full:
                    self._note(self.fetches[slot[0]], op, "wait")
        elif isinstance(op, USERS):
            self._meets_copies(accesses[:1], state)
            self._meets("wait", accesses[:1], (*state.dots, *state.stores))
        match op:
            case gpu.AsyncCopy():
                return attrs.evolve(state, open=state.open | {*accesses})
            case gpu.AsyncCommit():
                return attrs.evolve(state, open=frozenset(), copies=_begun(state.copies, *state.open))
            case gpu.AsyncWait():
                return attrs.evolve(state, copies=_pending(state.copies, op.pending))
            case gpu.Wgmma():
                return attrs.evolve(state, dots=_begun(state.dots, *accesses))
            case gpu.WgmmaWait():
                return attrs.evolve(state, dots=_pending(state.dots, op.pending))
            case gpu.TmaStore():
                return attrs.evolve(self._uses_map(op, state), stores=_begun(state.stores, *accesses))
            case gpu.TmaStoreWait():
                return attrs.evolve(state, stores=_pending(state.stores, op.pending))
            case gpu.TmaLoad():
                if slots[0][0] in self.released and slots[0] not in state.empty:
                    self._note(self.readers[slots[0][0]][0], op, "wait")
                loads = state.loads if _map_of(op) is None else state.loads | {(op, slots[1])}
                state = self._uses_map(op, state)
                return attrs.evolve(state, full=state.full - {slots[0]}, empty=state.empty - {slots[0]}, loads=loads)
            case gpu.MakeTensorMap():
                for copy in (*(load for load, _ in state.loads), *(one.op for group in state.stores for one in group)):
                    if _map_of(copy) == op.index:
                        self._note(copy, op, "wait")
                for copy in (copy for copy in state.used if op.warp and _map_of(copy) == op.index):
                    self._note(copy, op, "barrier")
                return attrs.evolve(
                    state, made=state.made | {op}, apart=state.apart | ({op} if op.warp else frozenset())
                )
            case gpu.AcquireTensorMaps():
                made = {value.op for value in op.maps if isinstance(value, OpResult)}
                for one in state.apart & made:
                    self._note(one, op, "barrier")
                return attrs.evolve(state, made=state.made - made)
            case gpu.Barrier() | tt.Barrier():
                return attrs.evolve(state, apart=frozenset(), used=frozenset())
            case gpu.MbarrierInval():
                return attrs.evolve(state, loads=frozenset(one for one in state.loads if one[1][0] is not slots[0][0]))
            case gpu.LocalAlloc() | gpu.MbarrierInit():
                # An allocation in a loop is a new one in each iteration.
                new = op.buffer if isinstance(op, gpu.MbarrierInit) else op.result
                full, odd = ({slot for slot in known if slot[0] is not new} for known in (state.full, state.odd))
                return attrs.evolve(state, full=frozenset(full), odd=frozenset(odd))
            case gpu.MbarrierWait():
                return self._wait(op, slots[0], state)
            case gpu.MbarrierArrive():
                return self._arrive(slots[0], state)
            case gpu.WarpSpecialize():
                # The end of a role.
                for ring in {ring for ring, _ in state.full if ring in self.released}:
                    self._note(self.readers[ring][0], self.fetches[ring], "arrival")
                return state
            case tt.Return():
                for store in (store for group in state.stores for store in group):
                    # Another CTA may have the memory before the store has read it.
                    self._note(store.op, store.op, "wait")
                return state
            case _:
                return state

    def _uses_map(self, op: gpu.TmaLoad | gpu.TmaStore, state: _State) -> _State:
        """The state after the begin of a copy, with regard to its map."""
        if _map_of(op) is None:
            return state
        for made in (one for one in state.made if one.index == _map_of(op)):
            self._note(made, op, "acquire")
        return attrs.evolve(state, used=state.used | {op})

    def _meets(self, missing: str, accesses: Iterable[Access], groups: Groups) -> None:
        """Note what overlaps these accesses."""
        for access in accesses:
            for other in (other for group in groups for other in group if other.overlaps(access)):
                self._note(other.op, access.op, missing)

    def _meets_copies(self, accesses: Iterable[Access], state: _State) -> None:
        self._meets("commit", accesses, (state.open,))
        self._meets("wait", accesses, state.copies)

    def _wait(self, op: gpu.MbarrierWait, mbarrier: Slot, state: _State) -> _State:
        """The state after a wait until slots are full, or empty; each wait must be for the other parity."""
        rings, released = (known.get(mbarrier[0], set()) for known in (self.filled_by, self.emptied_by))
        # The phase before the first counts as over: the first wait for an empty slot is for that one.
        expected = int((mbarrier in state.odd) != bool(released))
        if self._number(op.parity, dict(state.numbers)) != expected:
            self._note(op, op, "phase")
        for ring in rings & self.released:
            if (ring, mbarrier[1]) in state.full:
                self._note(self.readers[ring][0], self.fetches[ring], "arrival")
        full, empty = (frozenset((ring, mbarrier[1]) for ring in known) for known in (rings, released))
        loads = frozenset(one for one in state.loads if one[1] != mbarrier)
        return attrs.evolve(
            state, full=state.full | full, empty=state.empty | empty, odd=state.odd ^ {mbarrier}, loads=loads
        )

    def _arrive(self, mbarrier: Slot, state: _State) -> _State:
        """The state after the consumer has released slots, which no wgmma may still read."""
        slots = frozenset((ring, mbarrier[1]) for ring in self.emptied_by.get(mbarrier[0], ()))
        for ring, index in slots:
            self._meets("wait", [Access(self.fetches[ring], *interval(ring, index))], state.dots)
        return attrs.evolve(state, full=state.full - slots)


# Tensor maps.


def _map_of(copy: Op) -> int | None:
    """The number of the map, made by the kernel, by which a copy of TMA goes; None for a map that is a parameter."""
    assert isinstance(copy, gpu.TmaLoad | gpu.TmaStore)
    made = copy.descriptor.op if isinstance(copy.descriptor, OpResult) else None
    return made.index if isinstance(made, gpu.MakeTensorMap) else None


def _wrong_maps(module: gpu.Module) -> Iterator[Hazard]:
    """The tensor maps whose memory is another map's as well, or is not provided."""
    made: dict[int, gpu.MakeTensorMap] = {}
    for op in module.walk():
        if isinstance(op, gpu.MakeTensorMap):
            first = made.setdefault(op.index, op)
            if first is not op or (op.index + 1) * MAP_BYTES > module.scratch:
                yield Hazard(first, op, "memory for a tensor map")


# Mbarriers.


def _wrong_phases(module: gpu.Module) -> Iterator[Hazard]:
    """The loads and mbarriers of a module whose phases end too early, or never."""
    expected: dict[object, list[gpu.MbarrierExpect]] = {}
    loads: dict[object, list[gpu.TmaLoad]] = {}
    inits: dict[Value, gpu.MbarrierInit] = {}
    counted: dict[Value, tuple[Op, int]] = {}  # An op that arrives, and how often it does in a phase.
    for op in module.walk():
        if isinstance(op, gpu.MbarrierInit):
            inits[op.buffer] = op
        elif isinstance(op, gpu.MbarrierArrive):
            counted[allocation(op.barrier)] = op, module.num_warps // WARP_GROUP
        elif isinstance(op, gpu.MbarrierExpect):
            counted[allocation(op.barrier)] = op, 1
            expected.setdefault(_phase(op), []).append(op)
        elif isinstance(op, gpu.TmaLoad):
            phase = _phase(op)
            loads.setdefault(phase, []).append(op)
            if phase not in expected:
                yield Hazard(op, op, "expectation")
            if slot_index(op.buffer) is not slot_index(op.barrier):
                yield Hazard(op, op, "match of slots")
    for phase, expects in expected.items():
        brought = loads.get(phase, [])
        if len(expects) > 1:
            yield Hazard(expects[0], expects[1], "load")
        elif sum(shared_of(load.buffer).bytes for load in brought) != expects[0].bytes:
            yield Hazard(expects[0], brought[-1] if brought else expects[0], "match of bytes")
    for mbarrier, (op, arrivals) in counted.items():
        init = inits.get(mbarrier)
        if init is None or init.arrivals != arrivals:
            yield Hazard(op if init is None else init, op, "initialisation")


def _phase(op: gpu.MbarrierExpect | gpu.TmaLoad) -> object:
    """A key of the phase of an mbarrier that an op takes part in."""
    return op.parent, allocation(op.barrier), slot_index(op.barrier), op.predicate
