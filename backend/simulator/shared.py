"""Shared memory of the simulation, with the last accesses of each byte: accesses that nothing orders are errors.

Vector clocks order them (Mattern, "Virtual time and global states of distributed systems", 1989). An access has a
stamp: its agent, and the time. Agents are the threads, the wgmmas of a warp group, and the TMA loads of an mbarrier. A
thread knows, for each agent, the time up to which that agent's accesses come before its own. Threads learn what others
know at barriers, by waiting at an mbarrier where those have arrived, and by waits for asynchronous work.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ziggurat.backend.simulator.text import unknown
from ziggurat.codemodel.errors import SimulationError

Array = np.ndarray[Any, Any]

_BITS = 12  # Of a stamp, those of its agent's number; the time is above them.
_AGENTS = 1 << _BITS
_MBARRIERS = 256
_ROLES = 9  # Roles, and the threads before they have one.


class Shared:
    """Shared memory, with stamps of the last write and the last read of each byte.

    The agent of reads by several threads is `several`, that of reads by several threads of one role is of `by_role`,
    and the agent of atomics is `atomic`; `parts` has the time at which each thread last took part in such an access. No
    thread ever knows of the accesses of the agent `in_flight`. Reads by wgmma are kept apart: `wgmmas` has the last one
    of each warp group. After the knowledge of the threads of this CTA comes that of the other CTAs of its cluster.
    """

    def __init__(self, size: int, seed: int, threads: int = 128) -> None:
        self.bytes = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
        groups = -(-threads // 128)
        self.several, self.atomic, self.in_flight = range(threads, threads + 3)
        self._groups = threads + 3 + np.arange(groups)
        self._waited = self._groups + groups  # A thread that waits for wgmmas knows of its own part only.
        self._mbarriers: dict[int, int] = {}
        self.time = 1
        agents = threads + 3 + 2 * groups + _MBARRIERS
        self.by_role, self.roles = range(agents, agents + _ROLES), np.zeros(threads, np.int64)
        self.known = np.ones((threads, agents + _ROLES), np.int64)
        np.fill_diagonal(self.known, np.iinfo(np.int64).max)  # A thread's own accesses are in order.
        self.writer, self.reader = np.zeros((2, size), np.int64)
        self.wgmmas = np.zeros((groups, size), np.int64)
        self.parts = np.zeros(threads, np.int64)
        self.reading = np.zeros(size, np.int32)  # The number of TMA stores in flight that read it.
        self.unfenced = np.full(size, -1)  # The thread that wrote it without a fence since.
        self.fenced = np.zeros(threads, np.int64)  # The times of the threads' last fences.

    # Order.

    def stamp(self, agent: Any) -> Any:
        """The stamp of accesses by agents now."""
        return self.time * _AGENTS + agent

    def loads_of(self, mbarrier: int) -> int:
        """The agent of the TMA loads that arrive at the mbarrier of this address."""
        number = self._mbarriers.setdefault(mbarrier, len(self._mbarriers))
        if number == _MBARRIERS:
            raise unknown(f"more than {_MBARRIERS} mbarriers")
        return int(self._waited[-1]) + 1 + number

    def knowledge(self, threads: Array) -> Array:
        """For each agent, the time up to which these threads, by number, know of its accesses and of their own."""
        self.time += 1
        clock = self.known[threads]
        clock[np.arange(len(threads)), threads] = self.time
        clock[:, self._groups] = np.maximum(clock[:, self._groups], clock[:, self._waited])
        return clock.max(0)

    def learn(self, threads: Array, knowledge: Array) -> None:
        """Let these threads know what `knowledge` returned."""
        count = len(threads)
        if count and threads[-1] - threads[0] + 1 == count:  # The numbers ascend.
            rows = self.known[threads[0] : threads[-1] + 1]  # No copy, unlike with numbers as index.
            np.maximum(rows, knowledge, out=rows)
        else:
            self.known[threads] = np.maximum(self.known[threads], knowledge)

    @staticmethod
    def precedes(stamp: int, knowledge: Array) -> bool:
        """Whether those who learn what `knowledge` returned know of an access with a stamp."""
        time, agent = divmod(stamp, _AGENTS)
        return time < int(knowledge[agent])

    def barrier(self, threads: Array) -> None:
        """Run a barrier of these threads, a mask."""
        numbers = np.flatnonzero(threads)
        self.learn(numbers, self.knowledge(numbers))

    def foreign(self, stamps: Any, who: Any) -> Array:
        """A mask of the accesses with these stamps that the threads `who`, or one thread, do not know to come before
        their own."""
        time, agent = stamps >> _BITS, stamps & _AGENTS - 1
        known = self.known.reshape(-1)  # One index is quicker than two.
        is_foreign: Array = time >= known[who * self.known.shape[1] + agent]
        if not is_foreign.any():
            return is_foreign
        shared = is_foreign & ((agent == self.several) | (agent == self.atomic) | (agent >= self.by_role.start))
        if shared.any():
            pairs, at = np.unique(np.where(shared, stamps * _AGENTS + who, 0)[shared], return_inverse=True)
            time, agent = pairs[:, None] >> 2 * _BITS, pairs[:, None] >> _BITS & _AGENTS - 1
            others = (agent >= self.by_role.start) & (agent - self.by_role.start != self.roles)
            parts = np.where(others, 0, np.minimum(time, self.parts))
            readers = pairs & _AGENTS - 1
            is_foreign[shared] = np.any(parts >= self.known[readers, : len(self.parts)], axis=1)[at]
        return is_foreign

    def begin_wgmma(self, group: int, places: Array) -> int:
        """Note that wgmmas of a warp group read these places from now on. Returns the time for `end_wgmma`."""
        self.wgmmas[group][places] = self.stamp(self._groups[group])
        self.time += 1
        return self.time

    def end_wgmma(self, group: int, time: int) -> None:
        """Note that a warp group has waited for its wgmmas that began before a time."""
        self.known[128 * group : 128 * group + 128, self._waited[group]] = time

    def join_cluster(self, ctas: int) -> None:
        """Make room for what the threads of the other CTAs know."""
        threads, agents = len(self.parts), self.known.shape[1]
        self.known = np.concatenate([self.known, np.ones(((ctas - 1) * threads, agents), np.int64)])

    def fence(self, threads: Array) -> None:
        """Order the accesses of these threads before those of the asynchronous proxy."""
        self.unfenced[np.isin(self.unfenced, threads)] = -1
        self.fenced[threads] = self.time
        self.time += 1

    # Checks.

    def places(self, addresses: Array, size: int) -> Array:
        """The bytes of accesses of one size. Raises `SimulationError` for those outside of shared memory."""
        if len(addresses) and (addresses.min() < 0 or addresses.max() + size > len(self.bytes)):
            raise SimulationError(
                f"an access must be inside of shared memory; one is outside of its {len(self.bytes)} bytes"
            )
        return addresses[:, None] + np.arange(size)

    def read_by_wgmma(self, places: Array, who: Any) -> bool:
        """Whether a wgmma reads one of these places, or has read it without these threads' knowledge."""
        return bool(self.reading[places].any() or self.foreign(self.wgmmas[:, places], who).any())

    def written(self, places: Array) -> str:
        """The reason why these places must not be read, for messages."""
        if (self.writer[places] % _AGENTS >= self.in_flight).any():
            return "which a copy in flight will write: a wait is missing"
        return "which another thread has written since the last barrier: a barrier is missing"

    def check_free(self, places: Array, who: Any, what: str) -> None:
        """Raise `SimulationError` unless these threads may write these bytes; `what` begins the message."""
        for touched in (self.writer[places], self.reader[places]):
            if (wrong := self.foreign(touched, who)).any():
                raise SimulationError(
                    f"{what} byte {places[wrong][0]} of shared memory, which another has touched since the last "
                    "barrier: a barrier or a wait is missing"
                )
        if self.read_by_wgmma(places, who):
            raise SimulationError(
                f"{what} shared memory that a wgmma or a copy in flight reads, or has read since the last barrier: a "
                "wait is missing"
            )

    def check_fenced(self, places: Array, what: str) -> None:
        """Raise `SimulationError` unless the asynchronous proxy sees these bytes; `what` begins the message."""
        if (self.unfenced[places] != -1).any():
            raise SimulationError(
                f"{what} what a thread has written without a fence since: a fence.proxy.async is missing"
            )

    def check_reads_fenced(self, places: Array, what: str) -> None:
        """Raise `SimulationError` unless each thread that has read one of these bytes has had a fence since; `what`
        begins the message."""
        time, agent = np.divmod(np.unique(self.reader[places]), _AGENTS)
        own = agent < len(self.roles)
        late = (time[own] > self.fenced[agent[own]]).any()
        for read, by in zip(time[~own], agent[~own], strict=True):
            others = (by >= self.by_role.start) & (by - self.by_role.start != self.roles)
            late |= (np.where(others, 0, np.minimum(read, self.parts)) > self.fenced).any()
        if late:
            raise SimulationError(
                f"{what} what a thread has read without a fence since: a fence.proxy.async is missing"
            )

    # Accesses.

    def note_reads(self, places: Array, who: Any) -> None:
        """Note that threads read these bytes."""
        together = self._together(places, who)
        stamps = self.stamp(np.where(self.foreign(self.reader[places], who), together, who))
        self.reader[places] = stamps
        clash = self.reader[places] != stamps
        self.reader[places[clash]] = self.stamp(together[clash])
        self.reader[places[stamps == self.stamp(self.several)]] = self.stamp(self.several)
        self.parts[who] = self.time

    def note_reads_of_warp(self, places: Array, lanes: Array) -> None:
        """Note that the lanes of a warp read these bytes together."""
        who = lanes[0]
        own = self.by_role.start + self.roles[who]
        foreign = self.foreign(self.reader[places], who)
        self.reader[places] = self.stamp(np.where(foreign, self._together(places, who), own))
        self.parts[lanes] = self.time

    def _together(self, places: Array, who: Any) -> Array:
        """The agent of reads by those who have read these bytes and by threads of one role."""
        before, own = self.reader[places] % _AGENTS, self.by_role.start + self.roles[who]
        same: Array = self.by_role.start + self.roles[np.minimum(before, len(self.roles) - 1)] == own
        owners: Array = np.where(np.where(before < len(self.roles), same, before == own), own, self.several)
        return owners

    def load(self, addresses: Array, threads: Array, size: int) -> Array:
        places = self.places(addresses, size)
        who = np.broadcast_to(threads[:, None], places.shape)
        if (wrong := self.foreign(self.writer[places], who)).any():
            at = places[wrong][0]
            raise SimulationError(f"thread {who[wrong][0]} reads byte {at} of shared memory, {self.written(at)}")
        self.note_reads(places, who)
        return self.bytes[places]

    def store(self, addresses: Array, threads: Array, values: Array) -> None:
        places = self.places(addresses, values.shape[1])
        who = np.broadcast_to(threads[:, None], places.shape)
        self.check_free(places, who, "a thread writes")
        if (np.diff(np.sort(addresses)) < values.shape[1]).any():
            raise SimulationError("two threads must not write the same place of shared memory")
        self.write(places, who, values)

    def write(self, places: Array, who: Any, values: Array) -> None:
        """Write bytes without a check."""
        self.writer[places], self.unfenced[places], self.bytes[places] = self.stamp(who), who, values

    def add(self, addresses: Array, threads: Array, amount: int) -> None:
        places = self.places(addresses, 4)
        who = np.broadcast_to(threads[:, None], places.shape)
        writer = self.writer[places]
        plain = (writer % _AGENTS != self.atomic) & self.foreign(writer, who)
        if (plain | self.foreign(self.reader[places], who)).any() or self.read_by_wgmma(places, who):
            raise SimulationError("an atomic access of what was touched since the last barrier: a barrier is missing")
        self.writer[places] = self.stamp(self.atomic)
        self.parts[threads] = self.time
        np.add.at(self.bytes.view(np.uint32), addresses // 4, np.uint32(amount))
