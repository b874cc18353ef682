"""The check of asynchronous ops in flight: copies of cp.async, wgmma, and loads and stores of TMA.

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

The check runs the model with abstract states. A state holds the numbers that slot indices and parities are computed
from, the groups of copies and of wgmma in flight, in the order in which they began, and the slots that hold data. These
numbers count around in rings, so there are few states, and all of them are visited: each trip count of each loop, and
both ways of each branch. Two warp roles are run one by one; what each of them needs from the other, it has to wait for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from ziggurat.codemodel.dialects import arith, core, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.numbers import ELEMENTWISE, on_numbers
from ziggurat.codemodel.op import Block, Body, Op, OpResult, Value
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import BodyTerminator
from ziggurat.codemodel.types import SharedType
from ziggurat.transforms.place.components import Component, Group, component_of, components_of, groups_of
from ziggurat.transforms.place.rings import READERS, Hazard, allocation, slot_index

_MAX_GROUPS = 64  # In flight. Of more, which no kernel has, the oldest two count as one.
_WRITERS = (gpu.LocalStore, gpu.LocalAtomicAdd, gpu.AsyncCopy, gpu.TmaLoad)
_ASYNCHRONOUS = (gpu.AsyncCopy, gpu.AsyncCommit, gpu.AsyncWait, gpu.Wgmma, gpu.WgmmaWait, gpu.TmaStore)
_MBARRIERS = (gpu.TmaStoreWait, gpu.MbarrierInit, gpu.MbarrierWait, gpu.MbarrierArrive)
_RELEVANT = (gpu.LocalAlloc, *READERS, *_WRITERS, *_ASYNCHRONOUS, *_MBARRIERS)

Slot = tuple[Value, int | None]  # An allocation, and the index of a slot; None for any of them.


def used_too_early(module: gpu.Module) -> Iterator[Hazard]:
    """The ops of a module that use data in flight, or overwrite data that is still read."""
    for op in module.walk():
        if isinstance(op, tt.Func) and any(isinstance(inner, (*_ASYNCHRONOUS, *_MBARRIERS)) for inner in op.walk()):
            groups = groups_of(op)
            yield from _accumulators_in_use(op, groups)
            yield from _Run(op, groups).hazards()


# Accumulators, by the values that hold them.


def _accumulators_in_use(func: tt.Func, groups: Mapping[Component, Group]) -> Iterator[Hazard]:
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


@attrs.frozen
class _Access:
    """The bytes of shared memory that an op touches."""

    op: Op
    start: int
    end: int

    @staticmethod
    def of(op: Op, slot: Slot) -> _Access:
        """An access of a slot; of the whole ring where the index is not known."""
        ring, index = slot
        if not isinstance(ring, OpResult) or not isinstance(ring.op, gpu.LocalAlloc):
            return _Access(op, 0, 1 << 40)
        type_, start = ring.op.type, ring.op.offset
        assert isinstance(type_, SharedType)
        size = type_.bytes // type_.count
        slots = (0, type_.count) if index is None else (index, index + 1)
        return _Access(op, start + slots[0] * size, start + slots[1] * size)

    def overlaps(self, other: _Access) -> bool:
        return self.start < other.end and other.start < self.end


Accesses = frozenset[_Access]
Groups = tuple[Accesses, ...]


@attrs.frozen(cache_hash=True)
class _State:
    """The facts at a point of the program; see the top of this file.

    `open` are the copies that no commit has made a group yet. `full` are slots that TMA has filled, `empty` slots that
    the consumer has released to the producer. `odd` are the mbarriers whose next wait is for another parity than the
    first one was.
    """

    numbers: frozenset[tuple[Component, int]] = frozenset()
    open: Accesses = frozenset()
    copies: Groups = ()
    dots: Groups = ()
    stores: Groups = ()
    full: frozenset[Slot] = frozenset()
    empty: frozenset[Slot] = frozenset()
    odd: frozenset[Slot] = frozenset()


def _begun(groups: Groups, *group: _Access) -> Groups:
    if len(groups) == _MAX_GROUPS:
        groups = (groups[0] | groups[1], *groups[2:])
    return (*groups, frozenset(group))


def _pending(groups: Groups, count: int) -> Groups:
    return groups[-count:] if count else ()


class _Run:
    """A run of a function through all states. A hazard is noted once for each pair of ops."""

    def __init__(self, func: tt.Func, groups: Mapping[Component, Group]) -> None:
        self.func = func
        self.groups = groups
        self.found: dict[tuple[int, int, str], Hazard] = {}
        self.fetches: dict[Value, gpu.TmaLoad] = {}  # One load into each ring.
        self.filled_by: dict[Value, set[Value]] = {}  # The rings that the loads of an mbarrier fill.
        self.emptied_by: dict[Value, set[Value]] = {}  # The rings that the arrivals at an mbarrier release.
        self.readers: dict[Value, list[Op]] = {}
        self._relevant: dict[Block, list[Op]] = {}
        ops = list(func.walk())
        numbers = [op.index for op in ops if isinstance(op, gpu.LocalView)]
        numbers += [op.parity for op in ops if isinstance(op, gpu.MbarrierWait)]
        self.tracked = self._sources(numbers)
        expected = {allocation(op.barrier) for op in ops if isinstance(op, gpu.MbarrierExpect)}
        for op in ops:
            if isinstance(op, gpu.TmaLoad):
                ring = allocation(op.buffer)
                self.fetches.setdefault(ring, op)
                self.filled_by.setdefault(allocation(op.barrier), set()).add(ring)
                assert op.parent is not None
                before = op.parent.ops[: list(map(id, op.parent.ops)).index(id(op))]
                waits = [allocation(wait.barrier) for wait in before if isinstance(wait, gpu.MbarrierWait)]
                for mbarrier in [mbarrier for mbarrier in waits if mbarrier not in expected][-1:]:
                    self.emptied_by.setdefault(mbarrier, set()).add(ring)
            elif isinstance(op, READERS):
                for buffer in op.operands:
                    self.readers.setdefault(allocation(buffer), []).append(op)
        self.released = {ring for rings in self.emptied_by.values() for ring in rings}

    def hazards(self) -> Iterable[Hazard]:
        """Run the function from its entry."""
        for op in self.func.walk():
            for role in op.roles[1:] if isinstance(op, gpu.WarpSpecialize) else ():
                self._readers_of(role)
        for _, state in self._body(self.func.body, _State()):
            for store in (store for group in state.stores for store in group):
                # Another CTA may have the memory before the store has read it.
                self._note(store.op, store.op, "wait")
        return self.found.values()

    def _note(self, first: Op, second: Op, missing: str) -> None:
        self.found.setdefault((id(first), id(second), missing), Hazard(first, second, missing))

    def _readers_of(self, producer: Body) -> None:
        """Note the readers of rings that a producer fills, and that cannot say when they have read a slot."""
        for fetch in producer.walk():
            ring = allocation(fetch.buffer) if isinstance(fetch, gpu.TmaLoad) else None
            for reader in self.readers.get(ring, ()) if ring is not None else ():
                if not isinstance(reader, gpu.Wgmma):
                    # One thread arrives; it cannot speak for the others, which have read as well.
                    self._note(reader, fetch, "barrier")
                elif ring not in self.released:
                    self._note(reader, fetch, "wait")

    # Numbers.

    def _sources(self, values: Sequence[Value]) -> set[Component]:
        """The components that control flow passes on, from which these values are computed."""
        seen: set[Component] = set()
        work = [component_of(value) for value in values]
        while work:
            component = work.pop()
            if component in seen:
                continue
            seen.add(component)
            if component in self.groups:
                seen.update(self.groups[component].members)
                work += [source for _, source in self.groups[component].sources]
            elif isinstance(component[0], OpResult) and not component[0].op.bodies:
                work += map(component_of, component[0].op.operands)
        return seen & self.groups.keys()

    def _number(self, value: Value, numbers: Mapping[Component, int]) -> int | None:
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

    def _bound(self, state: _State, members: Sequence[Component], values: Sequence[Value]) -> _State:
        """The state in which these components hold the numbers of these values."""
        known = dict(state.numbers)
        new = {component: number for component, number in known.items() if component not in members}
        for member, value in zip(members, values, strict=True):
            number = self._number(value, known) if member in self.tracked else None
            if number is not None:
                new[member] = number
        return attrs.evolve(state, numbers=frozenset(new.items()))

    # Control flow.

    def _body(self, body: Body, state: _State) -> list[tuple[Op, _State]]:
        """Run a body; the terminators by which it is left, and the states there."""
        left: list[tuple[Op, _State]] = []
        work = [(body.entry, state)]
        seen = set(work)
        while work:
            block, before = work.pop()
            for after in self._ops(block, before):
                if not block.terminator.successors:
                    left.append((block.terminator, after))
                for successor in block.terminator.successors:
                    parameters = [(parameter, 0) for parameter in successor.block.parameters]
                    pair = successor.block, self._bound(after, parameters, successor.arguments)
                    if pair not in seen:
                        seen.add(pair)
                        work.append(pair)
        return left

    def _ops(self, block: Block, state: _State) -> set[_State]:
        states = {state}
        if block not in self._relevant:
            self._relevant[block] = [op for op in block.ops if self._is_relevant(op)]
        for op in self._relevant[block]:
            if isinstance(op, Structured):
                states = {after for state in states for after in self._structured(op, state)}
            elif isinstance(op, gpu.WarpSpecialize):
                states = {after for state in states for body in op.roles for after in self._role(body, state)}
            else:
                states = {self._step(op, state) for state in states}
        return states

    def _is_relevant(self, op: Op) -> bool:
        if any(component in self.tracked for component in components_of(op.result)):
            return True
        return any(isinstance(inner, _RELEVANT) for inner in op.walk())

    def _structured(self, op: Structured, state: _State) -> set[_State]:
        """The states after an op that passes values from body to body."""
        out: set[_State] = set()
        work: list[tuple[Body, _State]] = []
        seen: set[tuple[Body, _State]] = set()

        def enter(before: Body | None, values: Sequence[Value], state: _State) -> None:
            for body in op.following(before):
                if body is None:
                    out.add(self._bound(state, components_of(op.result), values))
                    continue
                arguments = [(argument, 0) for argument in op.entry_arguments(body)]
                pair = body, self._bound(state, arguments, values if arguments else ())
                if pair not in seen:
                    seen.add(pair)
                    work.append(pair)

        enter(None, op.inits, state)
        while work:
            body, before = work.pop()
            for terminator, after in self._body(body, before):
                if isinstance(terminator, BodyTerminator):
                    enter(body, terminator.handed, after)
        return out

    def _role(self, body: Body, state: _State) -> set[_State]:
        states = {after for _, after in self._body(body, state)}
        for ring in {ring for after in states for ring, _ in after.full if ring in self.released}:
            self._note(self.readers[ring][0], self.fetches[ring], "arrival")
        return states

    # Ops.

    def _slot(self, buffer: Value, state: _State) -> Slot:
        index = slot_index(buffer)
        return allocation(buffer), 0 if index is None else self._number(index, dict(state.numbers))

    def _step(self, op: Op, state: _State) -> _State:
        """The state after an op without bodies."""
        buffers = [value for value in op.operands if isinstance(value.type, SharedType)]
        slots = [self._slot(buffer, state) for buffer in buffers]
        accesses = [_Access.of(op, slot) for slot in slots]
        if isinstance(op, READERS):
            self._meets_copies(accesses, state)
            for slot in slots:
                if slot[0] in self.fetches and slot not in state.full:
                    self._note(self.fetches[slot[0]], op, "wait")
        elif isinstance(op, _WRITERS):
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
                return attrs.evolve(state, stores=_begun(state.stores, *accesses))
            case gpu.TmaStoreWait():
                return attrs.evolve(state, stores=_pending(state.stores, op.pending))
            case gpu.TmaLoad():
                if slots[0][0] in self.released and slots[0] not in state.empty:
                    self._note(self.readers[slots[0][0]][0], op, "wait")
                return attrs.evolve(state, full=state.full - {slots[0]}, empty=state.empty - {slots[0]})
            case gpu.LocalAlloc() | gpu.MbarrierInit():
                # An allocation in a loop is a new one in each iteration.
                new = op.buffer if isinstance(op, gpu.MbarrierInit) else op.result
                full, odd = ({slot for slot in known if slot[0] is not new} for known in (state.full, state.odd))
                return attrs.evolve(state, full=frozenset(full), odd=frozenset(odd))
            case gpu.MbarrierWait():
                return self._wait(op, slots[0], state)
            case gpu.MbarrierArrive():
                return self._arrive(slots[0], state)
            case _:
                return state

    def _meets(self, missing: str, accesses: Iterable[_Access], groups: Groups) -> None:
        """Note what overlaps these accesses."""
        for access in accesses:
            for other in (other for group in groups for other in group if other.overlaps(access)):
                self._note(other.op, access.op, missing)

    def _meets_copies(self, accesses: Iterable[_Access], state: _State) -> None:
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
        return attrs.evolve(state, full=state.full | full, empty=state.empty | empty, odd=state.odd ^ {mbarrier})

    def _arrive(self, mbarrier: Slot, state: _State) -> _State:
        """The state after the consumer has released slots, which no wgmma may still read."""
        slots = frozenset((ring, mbarrier[1]) for ring in self.emptied_by.get(mbarrier[0], ()))
        for ring, index in slots:
            self._meets("wait", [_Access.of(self.fetches[ring], (ring, index))], state.dots)
        return attrs.evolve(state, full=state.full - slots)
