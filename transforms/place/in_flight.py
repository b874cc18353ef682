"""The check of what is in flight: copies of cp.async, reads of wgmma, and what TMA loads and stores.

    %3 = scf.for … (%i, %slot, %sum) {
        gpu.async_wait @1;                          the copies of all but the last group are complete
        gpu.barrier;
        %d = gpu.wgmma %a[%slot] %b[%slot] %sum;
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

import operator
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

import attrs

from ziggurat.codemodel.dialects import arith, core, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Block, BlockParameter, Body, Op, OpResult, Value
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import BodyTerminator
from ziggurat.codemodel.types import SharedType
from ziggurat.transforms.place.components import Component, Group, component_of, components_of, groups_of
from ziggurat.transforms.place.hazard import Hazard
from ziggurat.transforms.place.rings import READERS, allocation, slot_index

_COMPARED: Mapping[arith.IntPredicate, Callable[[int, int], bool]] = {
    arith.IntPredicate.EQ: operator.eq,
    arith.IntPredicate.SLT: operator.lt,
}
_COMPUTED: Mapping[type[Op], Callable[[int, int], int]] = {
    arith.AddI: operator.add,
    arith.SubI: operator.sub,
    arith.MulI: operator.mul,
    arith.XOrI: operator.xor,
}
_MAX_GROUPS = 64  # In flight. Of more, which no kernel has, the oldest two count as one.
_WRITERS = (gpu.LocalStore, gpu.LocalAtomicAdd, gpu.AsyncCopy, gpu.TmaLoad)
_MBARRIERS = (gpu.MbarrierInit, gpu.MbarrierWait, gpu.MbarrierArrive)
_GROUPS = (gpu.AsyncCopy, gpu.AsyncCommit, gpu.AsyncWait, gpu.Wgmma, gpu.WgmmaWait, gpu.TmaStore, gpu.TmaStoreWait)
_RELEVANT = (gpu.LocalAlloc, *READERS, *_WRITERS, *_MBARRIERS, *_GROUPS)

Slot = tuple[Value, int | None]  # An allocation, and the index of a slot; None for any of them.


def used_too_early(module: gpu.Module) -> Iterator[Hazard]:
    """The ops of a module that use what is in flight, or overwrite what is still read."""
    yield from _accumulators_in_use(module)
    for op in module.walk():
        if isinstance(op, tt.Func) and any(isinstance(inner, (*_MBARRIERS, *_GROUPS)) for inner in op.walk()):
            yield from _Run(op).hazards()


# Accumulators, by the values that hold them.


def _accumulators_in_use(module: Op) -> Iterator[Hazard]:
    """The uses of accumulators that may be in flight, but for waits, for other wgmma, and for passing them on."""
    for op in module.walk():
        for value in op.operands:
            if isinstance(op, gpu.WgmmaWait | Structured | BodyTerminator | core.MakeTuple | core.TupleLoad):
                continue
            wgmma = _in_flight(value, set())
            if wgmma is not None and not (isinstance(op, gpu.Wgmma) and value is op.c is not op.a):
                yield Hazard(wgmma, op, "wait")


def _in_flight(value: Value, seen: set[Value]) -> gpu.Wgmma | None:
    """A wgmma that may still be computing a value."""
    root, index = component_of(value) if not isinstance(value.type, SharedType) else (value, 0)
    if root in seen:
        return None
    if isinstance(root, BlockParameter):
        seen.add(root)
        owner = root.block.parent.parent
        if not isinstance(owner, Structured):
            return None
        at = next((at for at, p in enumerate(owner.entry_arguments(root.block.parent)) if p is root), None)
        return None if at is None else _first_in_flight(owner, at, seen)
    assert isinstance(root, OpResult)
    op = root.op
    if isinstance(op, gpu.Wgmma):
        return op
    if isinstance(op, gpu.WgmmaWait):
        return _in_flight(op.value, seen) if op.pending else None
    return _first_in_flight(op, index, seen) if isinstance(op, Structured) else None


def _first_in_flight(op: Structured, at: int, seen: set[Value]) -> gpu.Wgmma | None:
    values = [end.handed[at] for end in op.terminators()] + ([op.inits[at]] if op.inits else [])
    return next((found for value in values if (found := _in_flight(value, seen)) is not None), None)


def _last_wait(fetch: gpu.TmaLoad, mbarriers: Container[Value]) -> Value | None:
    """The last of some mbarriers for which a load's block waits before it."""
    assert fetch.parent is not None
    found: Value | None = None
    for op in fetch.parent.ops:
        if op is fetch:
            break
        if isinstance(op, gpu.MbarrierWait) and allocation(op.barrier) in mbarriers:
            found = allocation(op.barrier)
    return found


# Shared memory, state by state.


@attrs.frozen
class _Access:
    """The bytes of shared memory that an op touches."""

    op: Op
    start: int
    end: int

    def overlaps(self, other: _Access) -> bool:
        return self.start < other.end and other.start < self.end


Accesses = frozenset[_Access]


@attrs.frozen(cache_hash=True)
class _State:
    """What is known at a point of the program; see the top of this file.

    `open` are the copies that no commit has made a group yet. `full` are slots that TMA has filled, `empty` slots that
    the consumer has released to the producer. `odd` are the mbarriers whose next wait is for another parity than the
    first one was.
    """

    numbers: frozenset[tuple[Component, int]] = frozenset()
    open: Accesses = frozenset()
    copies: tuple[Accesses, ...] = ()
    dots: tuple[Accesses, ...] = ()
    stores: tuple[Accesses, ...] = ()
    full: frozenset[Slot] = frozenset()
    empty: frozenset[Slot] = frozenset()
    odd: frozenset[Slot] = frozenset()


def _access(op: Op, slot: Slot) -> _Access:
    """An access of a slot; of the whole ring where the index is not known."""
    ring, index = slot
    if not isinstance(ring, OpResult) or not isinstance(ring.op, gpu.LocalAlloc):
        return _Access(op, 0, 1 << 40)
    type_, start = ring.op.type, ring.op.offset
    assert isinstance(type_, SharedType)
    if index is None:
        return _Access(op, start, start + type_.bytes)
    size = type_.bytes // type_.count
    return _Access(op, start + index * size, start + (index + 1) * size)


def _begun(groups: tuple[Accesses, ...], group: Accesses) -> tuple[Accesses, ...]:
    if len(groups) == _MAX_GROUPS:
        groups = (groups[0] | groups[1], *groups[2:])
    return (*groups, group)


def _pending(groups: tuple[Accesses, ...], count: int) -> tuple[Accesses, ...]:
    return groups[-count:] if count else ()


class _Run:
    """A run of a function through all states. Hazards are noted once for each pair of ops."""

    def __init__(self, func: tt.Func) -> None:
        self.func = func
        self.groups: Mapping[Component, Group] = groups_of(func)
        self.found: dict[tuple[int, int, str], Hazard] = {}
        self.fetches: dict[Value, gpu.TmaLoad] = {}  # One load into each ring.
        self.filled_by: dict[Value, set[Value]] = {}  # The rings that the loads of an mbarrier fill.
        self.emptied_by: dict[Value, set[Value]] = {}  # The rings that the arrivals at an mbarrier release.
        self.readers: dict[Value, list[Op]] = {}
        views: list[Value] = []
        ops = list(func.walk())
        waited = {allocation(op.barrier) for op in ops if isinstance(op, gpu.MbarrierWait)}
        waited -= {allocation(op.barrier) for op in ops if isinstance(op, gpu.MbarrierExpect)}
        for op in ops:
            if isinstance(op, gpu.LocalView):
                views.append(op.index)
            elif isinstance(op, gpu.MbarrierWait):
                views.append(op.parity)
            elif isinstance(op, gpu.TmaLoad):
                ring = allocation(op.buffer)
                self.fetches.setdefault(ring, op)
                self.filled_by.setdefault(allocation(op.barrier), set()).add(ring)
                empty = _last_wait(op, waited)
                if empty is not None:
                    self.emptied_by.setdefault(empty, set()).add(ring)
            elif isinstance(op, READERS):
                for buffer in op.operands:
                    self.readers.setdefault(allocation(buffer), []).append(op)
        self.released = {ring for rings in self.emptied_by.values() for ring in rings}
        self.tracked = self._sources(views)
        self._relevant: dict[Block, list[Op]] = {}

    def hazards(self) -> Iterable[Hazard]:
        """Run the function from its entry."""
        for op in self.func.walk():
            if isinstance(op, gpu.WarpSpecialize):
                self._roles(op)
        for _, state in self._body(self.func.body, _State()):
            for store in (store for group in state.stores for store in group):
                # Another CTA may have the memory before the store has read it.
                self._note(store.op, store.op, "wait")
        return self.found.values()

    def _note(self, first: Op, second: Op, missing: str) -> None:
        self.found.setdefault((id(first), id(second), missing), Hazard(first, second, missing))

    def _roles(self, op: gpu.WarpSpecialize) -> None:
        """Note the readers of rings that another role fills, and that cannot say when they have read a slot."""
        for body in op.roles[1:]:
            for fetch in body.walk():
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
        found: set[Component] = set()
        work = [component_of(value) for value in values]
        seen = set(work)
        while work:
            component = work.pop()
            group = self.groups.get(component)
            if group is not None:
                found.update(group.members)
                more = [source for _, source in group.sources]
            elif isinstance(component[0], OpResult) and not component[0].op.bodies:
                more = [component_of(value) for value in component[0].op.operands]
            else:
                more = []
            work += [source for source in more if source not in seen]
            seen.update(more)
        return found

    def _number(self, value: Value, numbers: Mapping[Component, int]) -> int | None:
        component = component_of(value)
        if component in self.groups:
            return numbers.get(component)
        root = component[0]
        if not isinstance(root, OpResult):
            return None
        op = root.op
        if isinstance(op, arith.ConstantOp):
            return int(op.value) if isinstance(op.value, int) else None
        if not isinstance(op, arith.Select | arith.CmpI) and type(op) not in _COMPUTED:
            return None
        given = [self._number(operand, numbers) for operand in op.operands]
        if isinstance(op, arith.Select) and given[0] is not None:
            return given[1] if given[0] else given[2]
        first, second = given[0], given[1]
        if first is None or second is None or isinstance(op, arith.Select):
            return None
        if isinstance(op, arith.CmpI):
            compare = _COMPARED.get(op.predicate)
            return None if compare is None else int(compare(first, second))
        return _COMPUTED[type(op)](first, second)

    def _bound(self, state: _State, members: Sequence[Component], values: Sequence[Value]) -> _State:
        """The state in which these components hold what these values do."""
        known = dict(state.numbers)
        new = dict(known)
        for member, value in zip(members, values, strict=True):
            if member in self.tracked:
                number = self._number(value, known)
                new.pop(member, None)
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
            block, state = work.pop()
            for after in self._ops(block, state):
                terminator = block.terminator
                if not terminator.successors:
                    left.append((terminator, after))
                for successor in terminator.successors:
                    parameters = [(parameter, 0) for parameter in successor.block.parameters]
                    pair = successor.block, self._bound(after, parameters, successor.arguments)
                    if pair not in seen:
                        seen.add(pair)
                        work.append(pair)
        return left

    def _ops(self, block: Block, state: _State) -> set[_State]:
        states = {state}
        for op in self._relevant_in(block):
            if isinstance(op, Structured):
                states = {after for state in states for after in self._structured(op, state)}
            elif isinstance(op, gpu.WarpSpecialize):
                states = {after for state in states for body in op.roles for after in self._role(body, state)}
            else:
                states = {self._step(op, state) for state in states}
        return states

    def _relevant_in(self, block: Block) -> list[Op]:
        found = self._relevant.get(block)
        if found is None:
            found = self._relevant[block] = [op for op in block.ops if self._is_relevant(op)]
        return found

    def _is_relevant(self, op: Op) -> bool:
        if any(component in self.tracked for component in components_of(op.result)):
            return True
        return any(isinstance(inner, _RELEVANT) for inner in op.walk())

    def _structured(self, op: Structured, state: _State) -> set[_State]:
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

    def _access(self, op: Op, buffer: Value, state: _State) -> _Access:
        return _access(op, self._slot(buffer, state))

    def _step(self, op: Op, state: _State) -> _State:
        """The state after an op without bodies."""
        if isinstance(op, READERS):
            for buffer in op.operands:
                if isinstance(buffer.type, SharedType):
                    self._read(op, buffer, state)
        if isinstance(op, _WRITERS):
            self._write(op, self._access(op, op.buffer, state), state)
        match op:
            case gpu.AsyncCopy():
                return attrs.evolve(state, open=state.open | {self._access(op, op.buffer, state)})
            case gpu.AsyncCommit():
                return attrs.evolve(state, open=frozenset(), copies=_begun(state.copies, state.open))
            case gpu.AsyncWait():
                return attrs.evolve(state, copies=_pending(state.copies, op.pending))
            case gpu.Wgmma():
                read = [self._access(op, value, state) for value in (op.a, op.b) if isinstance(value.type, SharedType)]
                return attrs.evolve(state, dots=_begun(state.dots, frozenset(read)))
            case gpu.WgmmaWait():
                return attrs.evolve(state, dots=_pending(state.dots, op.pending))
            case gpu.TmaStore():
                return attrs.evolve(state, stores=_begun(state.stores, frozenset([self._access(op, op.buffer, state)])))
            case gpu.TmaStoreWait():
                return attrs.evolve(state, stores=_pending(state.stores, op.pending))
            case gpu.TmaLoad():
                return self._fetch(op, state)
            case gpu.LocalAlloc() | gpu.MbarrierInit():
                # Of an allocation in a loop, each iteration has a new one.
                old = op.buffer if isinstance(op, gpu.MbarrierInit) else op.result
                full, odd = ({slot for slot in slots if slot[0] is not old} for slots in (state.full, state.odd))
                return attrs.evolve(state, full=frozenset(full), odd=frozenset(odd))
            case gpu.MbarrierWait():
                return self._wait(op, state)
            case gpu.MbarrierArrive():
                return self._arrive(op, state)
            case _:
                return state

    def _read(self, op: Op, buffer: Value, state: _State) -> None:
        self._meets_copies(op, self._access(op, buffer, state), state)
        slot = self._slot(buffer, state)
        if slot[0] in self.fetches and slot not in state.full:
            self._note(self.fetches[slot[0]], op, "wait")

    def _write(self, op: Op, access: _Access, state: _State) -> None:
        self._meets_copies(op, access, state)
        for read in (read for group in (*state.dots, *state.stores) for read in group):
            if read.overlaps(access):
                self._note(read.op, op, "wait")

    def _meets_copies(self, op: Op, access: _Access, state: _State) -> None:
        for missing, groups in (("commit", (state.open,)), ("wait", state.copies)):
            for copy in (copy for group in groups for copy in group):
                if copy.overlaps(access):
                    self._note(copy.op, op, missing)

    def _fetch(self, op: gpu.TmaLoad, state: _State) -> _State:
        """A load of TMA: into a slot that the consumer has released, where another role reads it."""
        slot = self._slot(op.buffer, state)
        if slot[0] in self.released and slot not in state.empty:
            self._note(self.readers[slot[0]][0], op, "wait")
        return attrs.evolve(state, full=state.full - {slot}, empty=state.empty - {slot})

    def _wait(self, op: gpu.MbarrierWait, state: _State) -> _State:
        """A wait until slots are full, or empty, for each parity in turn."""
        mbarrier = self._slot(op.barrier, state)
        rings, index = self.filled_by.get(mbarrier[0], set()), mbarrier[1]
        released = self.emptied_by.get(mbarrier[0], set())
        # The phase before the first counts as over: the first wait for an empty slot is for that one.
        expected = int((mbarrier in state.odd) != bool(released))
        if self._number(op.parity, dict(state.numbers)) != expected:
            self._note(op, op, "phase")
        for ring in rings & self.released:
            if (ring, index) in state.full:
                self._note(self.readers[ring][0], self.fetches[ring], "arrival")
        return attrs.evolve(
            state,
            full=state.full | {(ring, index) for ring in rings},
            empty=state.empty | {(ring, index) for ring in released},
            odd=state.odd ^ {mbarrier},
        )

    def _arrive(self, op: gpu.MbarrierArrive, state: _State) -> _State:
        """The consumer releases slots, which no wgmma may still read."""
        mbarrier, index = self._slot(op.barrier, state)
        slots = {(ring, index) for ring in self.emptied_by.get(mbarrier, ())}
        for read in (read for group in state.dots for read in group):
            for value in (value for value in read.op.operands if isinstance(value.type, SharedType)):
                ring = allocation(value)
                if (ring, index) in slots and _access(op, (ring, index)).overlaps(read):
                    self._note(read.op, self.fetches[ring], "wait")
        return attrs.evolve(state, full=state.full - slots)
