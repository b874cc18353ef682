"""Shared memory of the simulation, with the threads that have accessed each byte: unordered accesses are errors.

A barrier orders the accesses of its threads before it and after it. A wgmma or a TMA load is ordered with the accesses
of a thread that knows of its completion: by a wait, by a barrier, or by an mbarrier at which threads arrived that knew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ziggurat.codemodel.errors import SimulationError

Array = np.ndarray[Any, Any]

IN_FLIGHT = 1 << 30  # The writer of bytes that a copy in flight will write: no thread may touch them.


class Shared:
    """Shared memory, with the writer and reader of each byte since the last barrier: -1 none, -2 several, -3 atomics.

    Reads by wgmma are kept apart, as arrivals at mbarriers order them as well: `wgmmas` has the code of the last wgmma
    of each warp group that has read a byte.
    """

    def __init__(self, size: int, seed: int, threads: int = 128) -> None:
        self.bytes = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
        self.writer = np.full(size, -1)
        self.reader = np.full(size, -1)
        self.in_flight = np.zeros(size, bool)  # Bytes that copies in flight will write.
        self.reading = np.zeros(size, np.int32)  # The number of TMA stores in flight that read it.
        self.unfenced = np.full(size, -1)  # The thread that wrote it without a fence since.
        # For each code above IN_FLIGHT, of a TMA load, a wgmma or accesses before a partial barrier: who knows it
        # complete. `waited` has the threads that have waited for a wgmma: they know of their own part only.
        self.seen: dict[int, Array] = {}
        self.waited: dict[int, Array] = {}
        self.complete: set[int] = set()  # The codes of partial barriers, and of wgmmas after the wait.
        self.codes = IN_FLIGHT
        self.at_barrier: list[Callable[[Array], None]] = []
        self.several = np.zeros(threads, bool)  # Threads with a part in bytes that are marked -2 or -3.
        self.wgmmas = np.full((-(-threads // 128), size), -1)

    def barrier(self, threads: Array) -> None:
        """Run a barrier of these threads, a mask."""
        for act in self.at_barrier:
            act(threads)
        alone = not (self.several & ~threads).any()
        code = -1 if threads.all() else self.new_code(threads)
        self.complete |= {code} - {-1}
        self.writer[:] = np.where(
            self._of(self.writer, threads, alone), np.where(self.in_flight, IN_FLIGHT, code), self.writer
        )
        self.reader[self._of(self.reader, threads, alone)] = code
        self.several[threads] &= not alone
        for known in self.known_by(threads):
            self.seen[known] |= threads

    def new_code(self, threads: Array) -> int:
        """A new code for `writer` or `reader`, of something that these threads know to be complete."""
        if len(self.complete) > 100:  # Forget those that no byte has.
            gone = self.complete.difference(*(np.unique(at).tolist() for at in (self.writer, self.reader, self.wgmmas)))
            self.complete -= gone
            for code in gone:
                del self.seen[code]
                self.waited.pop(code, None)
        self.codes += 1
        self.seen[self.codes] = threads.copy()
        return self.codes

    def known_by(self, threads: Any) -> frozenset[int]:
        """The codes that one of these threads, a mask or a number, knows or has waited for."""
        return frozenset(
            code for code, seen in self.seen.items() if (seen | self.waited.get(code, False))[threads].any()
        )

    def _of(self, touched: Array, threads: Array, alone: bool) -> Array:
        """The bytes that only these threads touched. With `alone`, no others have a part in bytes marked -2 or -3."""
        one = (touched >= 0) & (touched < len(threads))
        return np.where(one, threads[np.where(one, touched, 0)], (touched < -1) & alone)

    def read_by_wgmma(self, places: Array, who: Array) -> bool:
        """Whether a wgmma reads one of these places, or has read it without these threads' knowledge."""
        return bool(self.reading[places].any() or self.foreign(self.wgmmas[:, places], who).any())

    def written(self, places: Array) -> str:
        """The reason why these places must not be read, for messages."""
        if self.in_flight[places].any():
            return "which a copy in flight will write: a wait is missing"
        return "which another thread has written since the last barrier: a barrier is missing"

    def fence(self, threads: Array) -> None:
        """Make the writes of these threads visible to the asynchronous proxy."""
        self.unfenced[np.isin(self.unfenced, threads)] = -1

    def foreign(self, touched: Array, who: Array) -> Array:
        """A mask of the bytes that these threads must not access, from a part of `writer` or `reader`."""
        found = (touched != -1) & (touched != who)
        for code in np.unique(touched[found & (touched > IN_FLIGHT)]).tolist():
            found &= ~((touched == code) & self.seen[code][who])
        return found

    def places(self, addresses: Array, size: int) -> Array:
        """The bytes of accesses of one size. Raises `SimulationError` for those outside of shared memory."""
        if len(addresses) and (addresses.min() < 0 or addresses.max() + size > len(self.bytes)):
            raise SimulationError(
                f"an access must be inside of shared memory; one is outside of its {len(self.bytes)} bytes"
            )
        return addresses[:, None] + np.arange(size)

    def check_free(self, places: Array, who: Array, what: str) -> None:
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

    def load(self, addresses: Array, threads: Array, size: int) -> Array:
        places = self.places(addresses, size)
        who = np.broadcast_to(threads[:, None], places.shape)
        writer, reader = self.writer[places], self.reader[places]
        if (wrong := self.foreign(writer, who)).any():
            at = places[wrong][0]
            raise SimulationError(f"thread {who[wrong][0]} reads byte {at} of shared memory, {self.written(at)}")
        made = np.where(self.foreign(reader, who), -2, who)
        self.reader[places] = made
        self.reader[places[self.reader[places] != made]] = -2
        self.several[threads] = True
        return self.bytes[places]

    def store(self, addresses: Array, threads: Array, values: Array) -> None:
        places = self.places(addresses, values.shape[1])
        who = np.broadcast_to(threads[:, None], places.shape)
        self.check_free(places, who, "a thread writes")
        if len(np.unique(places)) != places.size:
            raise SimulationError("two threads must not write the same place of shared memory")
        self.writer[places] = self.unfenced[places] = who
        self.bytes[places] = values
        self.in_flight[places] = False  # A thread that may write knows that an earlier copy is complete.

    def add(self, addresses: Array, threads: Array, amount: int) -> None:
        places = self.places(addresses, 4)
        who = np.broadcast_to(threads[:, None], places.shape)
        writer = self.writer[places]
        plain = ((writer >= 0) & (writer < IN_FLIGHT)) | ((writer != -3) & self.foreign(writer, who))
        if (plain | self.foreign(self.reader[places], who)).any() or self.read_by_wgmma(places, who):
            raise SimulationError("an atomic access of what was touched since the last barrier: a barrier is missing")
        self.writer[places] = -3
        self.several[threads] = True
        np.add.at(self.bytes.view(np.uint32), addresses // 4, np.uint32(amount))
