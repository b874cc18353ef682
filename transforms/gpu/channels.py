"""The proof of the channels of a model: slots are read while they hold data, and filled while nothing reads them.

    %s = gpu.channel_wait %c;                       the oldest committed slot, held from here on
    %d = gpu.wgmma %a[%s] %b[%s] %acc;
    %e = gpu.wgmma_wait %d @1;                      the wgmma of the iteration before is complete,
    gpu.channel_release %c @held=1;                 so its slot is free, and one slot is still held
    %t = gpu.channel_acquire %c %more;
    gpu.tma_load %A %a[%t] %c %more …; gpu.tma_load %B %b[%t] %c %more …;
    gpu.channel_commit %c;

A proof visits the ops of one channel in the order of the text. It visits the body of a loop twice: with the state at
the entry, and with the state after an iteration. A state counts slots and does not name them, so it is the same in all
later iterations, and on all paths to an op; otherwise the channel is refused.

`lower_channels` takes from the proof by how many slots the ops of a channel are apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import dropwhile

import attrs

from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.asynchronous import Asynchronous, BufferOp, GroupWait
from ziggurat.codemodel.gpu.scope import WarpScope, scope_of
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.traits import Loop
from ziggurat.transforms.analysis.memory_flow import allocation, read_in_flight, runs, slot_index, users_of
from ziggurat.transforms.analysis.queries import function_around
from ziggurat.transforms.gpu.barriers import Hazard
from ziggurat.transforms.tiles.multicast import Ranks

_Groups = tuple[frozenset[tuple[Op, int]], ...]


@attrs.frozen
class _ChannelState:
    """The facts about a channel at a point of the program.

    `in_flight` slots are committed and not waited for. `waits` has the results of the waits whose slots are not
    released. `acquired` is the result of the acquire whose slot is not committed, and `filled` has the rings that are
    loaded in it. `readers` has the readers in flight, by the class of waits for them and by groups, each with the slot
    that it reads: 0 is the last one held.
    """

    in_flight: int = 0
    waits: tuple[Value, ...] = ()
    acquired: Value | None = None
    filled: tuple[Value, ...] = ()
    readers: Mapping[type, _Groups] = attrs.field(factory=dict[type, _Groups])

    def counts(self) -> object:
        """The part of the state that must be the same on all paths."""
        return self.in_flight, len(self.waits), self.acquired


class ChannelProof:
    """The proof of one channel; `hazards` has what is wrong.

    `between_roles` says that one role fills the slots and others read them. `in_flight` has the number of slots that
    are committed and not waited for, before each acquire and each wait.
    """

    def __init__(self, channel: gpu.Channel) -> None:
        self.op = channel
        self.stages = channel.stages
        self.loads: dict[Value, Op] = {}  # The first load into each ring.
        self.readers: list[BufferOp] = []
        for ring in channel.rings:
            for user in (user for user in users_of(ring) if isinstance(user, BufferOp)):
                if ring in map(allocation, user.writes):
                    self.loads.setdefault(ring, user)
                else:
                    self.readers.append(user)
        uses = channel.result.uses
        self.acquires = [op for op in uses if isinstance(op, gpu.ChannelAcquire)]
        self.waits = [op for op in uses if isinstance(op, gpu.ChannelWait)]
        asynchronous = [load for load in self.loads.values() if isinstance(load, Asynchronous)]
        self.by_copies = any(load.COMMIT for load in asynchronous)
        self.by_tma = any(load.MBARRIER for load in asynchronous)
        self.between_roles = self.op.ctas > 1 or not any(isinstance(op, gpu.ChannelClose) for op in uses)
        self.in_flight: dict[Op, int] = {}
        self._frees: dict[tuple[Value, bool], bool] = {}
        self._hazards: dict[tuple[int, int, str], Hazard] = {}
        self._run()

    @property
    def hazards(self) -> list[Hazard]:
        """The pairs of ops between which something is missing."""
        return list(self._hazards.values())

    def frees(self, release: gpu.ChannelRelease) -> tuple[bool, bool]:
        """Whether a release frees a slot: in the first iteration of the loop around it, and in the later ones."""
        first = self._frees[release.result, True]
        return first, self._frees.get((release.result, False), first)

    def by_threads(self, scope: WarpScope) -> bool:
        """Whether threads of a role read the slots, and not only its matrix units."""
        return any(
            {*map(allocation, reader.reads)}.intersection(self.op.rings).difference(read_in_flight(reader))
            for reader in self.readers
            if scope_of(reader) == scope
        )

    def _note(self, first: Op, second: Op, missing: str) -> None:
        self._hazards.setdefault((id(first), id(second), missing), Hazard(first, second, missing))

    def _run(self) -> None:
        assert self.op.parent is not None
        after = list(dropwhile(lambda op: op is not self.op, self.op.parent.ops))
        if not self.between_roles:
            self._ops(after, _ChannelState(), True)
            return
        split = next((op for op in after if isinstance(op, gpu.WarpSpecialize)), None)
        if split is None:
            self._note(self.op, self.op, "close")
            return
        filling = {scope_of(op): op for op in self.acquires}
        for acquire in list(filling.values())[1:] if filling else [self.op]:
            self._note(acquire, acquire, "single role that fills the slots")
        for wait in (op for op in self.waits if scope_of(op) in filling):
            self._note(wait, wait, "other role that fills the slots")
        for load in (op for op in self.loads.values() if isinstance(op, Asynchronous)):
            if issubclass(load.WAIT, GroupWait):
                self._note(load, load, "arrival of cp.async at another role")
        for store in (op for op in self.readers if isinstance(op, gpu.TmaStore)):
            self._note(store, store, "wait for TMA to read a slot of another role")
        if self.op.ctas > 1:
            self._check_cluster()
        for role in split.roles:
            state = self._ops(role.entry.ops, _ChannelState(), True)
            if state.waits or state.acquired is not None:
                self._note(self.op, self.op, "release" if state.waits else "commit")

    def _check_cluster(self) -> None:
        """Check that all CTAs of a cluster fill slots equally often, and with the same blocks where they load together.

        Then each slot gets all parts of a block: the bytes that are expected are those of whole blocks.
        """
        func = function_around(self.op)
        ranks, loads = Ranks(func), [op for op in self.op.result.uses if isinstance(op, gpu.TmaLoad)]
        if self.op.ctas != func.num_ctas or not self.by_tma:
            self._note(self.op, self.op, "cluster of CTAs that load by TMA")
        for op in self.op.result.uses:
            if not ranks.runs_equally(op) or (isinstance(op, gpu.ChannelAcquire) and not ranks.is_equal(op.predicate)):
                self._note(op, op, "same number of slots in all CTAs")
        for op in loads:
            if op.ctas > 1 and not ranks.is_equal(*op.offsets):
                self._note(op, op, "same block in all CTAs")

    def _ops(self, ops: Iterable[Op], state: _ChannelState, first: bool) -> _ChannelState:
        for op in ops:
            state = self._structured(op, state, first) if op.bodies else self._op(op, state, first)
        return state

    def _structured(self, op: Op, state: _ChannelState, first: bool) -> _ChannelState:
        """The state after an op with bodies."""
        if not isinstance(op, Loop):
            return self._same(op, [self._ops(body.entry.ops, state, first) for body in op.bodies])
        ops = [inner for body in op.bodies for inner in body.entry.ops]
        once = self._ops(ops, state, True)
        after = self._same(op, [self._ops(ops, once, False), once])
        return after if runs(op) else self._same(op, [after, state])

    def _same(self, op: Op, states: Sequence[_ChannelState]) -> _ChannelState:
        """The state where paths meet, which must agree."""
        if len({state.counts() for state in states}) > 1:
            self._note(op, op, "same number of slots on all paths")
        waits = dict.fromkeys(wait for state in states for wait in state.readers)
        readers = {wait: _merged([state.readers.get(wait, ()) for state in states]) for wait in waits}
        return attrs.evolve(states[0], readers=readers)

    def _op(self, op: Op, state: _ChannelState, first: bool) -> _ChannelState:
        """The state after an op without bodies."""
        channel = self.op.result
        match op:
            case gpu.ChannelAcquire() if op.channel is channel:
                if state.acquired is not None:
                    self._note(op, op, "commit")
                if not self.between_roles and state.in_flight + len(state.waits) >= self.stages:
                    self._note(next(iter(self.readers), op), op, "release")
                self._count(op, state)
                return attrs.evolve(state, acquired=op.result, filled=())
            case gpu.ChannelCommit() if op.channel is channel:
                if state.acquired is None or sorted(map(id, state.filled)) != sorted(map(id, self.op.rings)):
                    self._note(op, op, "load into each ring")
                # The other role counts its waits for itself.
                return attrs.evolve(state, in_flight=state.in_flight + (not self.between_roles), acquired=None)
            case gpu.ChannelWait() if op.channel is channel:
                if not self.between_roles and not state.in_flight:
                    self._note(op, op, "commit")
                if len(state.waits) == self.stages:
                    self._note(op, op, "release")
                self._count(op, state)
                readers = {
                    wait: tuple(frozenset((reader, slot + 1) for reader, slot in group) for group in groups)
                    for wait, groups in state.readers.items()
                }
                in_flight = max(state.in_flight - 1, 0)
                return attrs.evolve(state, in_flight=in_flight, waits=(*state.waits, op.result), readers=readers)
            case gpu.ChannelRelease() if op.channel is channel:
                return self._release(op, state, first)
            case gpu.ChannelClose() if channel in op.channels:
                return attrs.evolve(state, in_flight=0)
            case _ if isinstance(op, GroupWait):
                groups = state.readers.get(type(op), ())[-op.pending :] if op.pending else ()
                return attrs.evolve(state, readers={**state.readers, type(op): groups})
            case BufferOp():
                return self._use(op, state)
            case _:
                return state

    def _count(self, op: gpu.ChannelAcquire | gpu.ChannelWait, state: _ChannelState) -> None:
        if not self.between_roles and self.in_flight.setdefault(op, state.in_flight) != state.in_flight:
            self._note(op, op, "same number of slots on all paths")

    def _release(self, op: gpu.ChannelRelease, state: _ChannelState, first: bool) -> _ChannelState:
        freed = max(len(state.waits) - op.held, 0)
        if freed > 1 or self._frees.setdefault((op.result, first), freed > 0) != freed > 0:
            self._note(op, op, "same number of slots on all paths")
        in_flight = (each for groups in state.readers.values() for group in groups for each in group)
        for reader in (reader for reader, slot in in_flight if slot >= op.held):
            self._note(reader, op, "wait")
        return attrs.evolve(state, waits=state.waits[freed:])

    def _use(self, op: BufferOp, state: _ChannelState) -> _ChannelState:
        """The state after an access to shared memory."""
        reading, in_flight = set[tuple[Op, int]](), read_in_flight(op)
        for ring, index in self._slots(op.reads):
            waits = [at for at, wait in enumerate(reversed(state.waits)) if index is None or wait is index]
            if waits and ring in in_flight:
                reading.add((op, waits[0]))
            elif not waits:
                self._note(self.loads.get(ring, self.op), op, "wait")
        if isinstance(op, Asynchronous) and op.READS:
            groups = (*state.readers.get(op.WAIT, ()), frozenset(reading))
            state = attrs.evolve(state, readers={**state.readers, op.WAIT: groups})
        for ring, index in self._slots(op.writes):
            acquire = None if state.acquired is None else state.acquired.op
            own = not isinstance(op, gpu.TmaLoad) or (
                op.barrier is self.op.result
                and isinstance(acquire, gpu.ChannelAcquire)
                and op.predicate is acquire.predicate
                and op.ctas in (1, self.op.ctas)
            )
            if not own or acquire is None or (index is not None and index is not acquire.result):
                self._note(op, op, "acquire")
            state = attrs.evolve(state, filled=(*state.filled, ring))
        return state

    def _slots(self, buffers: Iterable[Value]) -> list[tuple[Value, Value | None]]:
        """The rings of the channel among some buffers, with the index of the slot."""
        return [(ring, slot_index(value)) for value in buffers if (ring := allocation(value)) in self.op.rings]


def _merged(paths: Sequence[_Groups]) -> _Groups:
    """The groups in flight where paths meet: the last groups of all paths are one, and so on."""
    depth = max(map(len, paths))
    return tuple(
        frozenset[tuple[Op, int]]().union(*(groups[-at] for groups in paths if at <= len(groups)))
        for at in range(depth, 0, -1)
    )


def proofs_of(module: Op) -> dict[Value, ChannelProof]:
    """The proof of each channel of a model."""
    return {op.result: ChannelProof(op) for op in module.walk() if isinstance(op, gpu.Channel)}
