"""Shared memory of the simulation, and who has touched what of it: an access without an order is an error.

A barrier puts what its threads have done before it in order with what they do behind it. Products of the matrix units
and fetches by the copy engine are in order with what is done by a thread that knows of them: by a barrier, or as it has
waited for an mbarrier at which those arrived that did know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ziggurat.codemodel.errors import SimulationError

Array = np.ndarray[Any, Any]

FLYING = 1 << 30  # The writer of what a copy under way will write: no thread may touch it.


class Shared:
    """Shared memory, and who touched what since the last barrier: -1 nobody, -2 several, -3 atomically.

    What products of warp groups read is kept apart, as it is ordered by arrivals at mbarriers, too: of each group and
    place the number of the last product that has read it, and of each thread how many of each group's products it knows
    to be over.
    """

    def __init__(self, size: int, seed: int, threads: int = 128) -> None:
        self.bytes = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
        self.writer = np.full(size, -1)
        self.reader = np.full(size, -1)
        self.flying = np.zeros(size, bool)  # What copies that are under way will write.
        self.reading = np.zeros(size, np.int32)  # How many products and copies that are under way read it.
        self.unfenced = np.full(size, -1)  # Who wrote it without a fence since: the asynchronous proxy may not see it.
        # Codes above FLYING, with who knows that it is over: a fetch, or what threads did before a barrier of theirs.
        self.seen: dict[int, Array] = {}
        self.met: set[int] = set()  # The latter.
        self.codes = FLYING
        self.at_barrier: list[Callable[[Array], None]] = []
        self.several = np.zeros(threads, bool)  # Who has had a part in what is marked as touched by several.
        groups = -(-threads // 128)
        self.products = np.zeros((groups, size), np.int64)
        self.begun, self.over = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
        self.known = np.zeros((threads, groups), np.int64)

    def barrier(self, threads: Array) -> None:
        """These threads, a mask, meet."""
        for act in self.at_barrier:
            act(threads)
        if threads.all():
            self.writer[:] = np.where(self.flying, np.maximum(self.writer, FLYING), -1)
            self.reader[:] = -1
            self.several[:] = False
        else:
            alone = not (self.several & ~threads).any()
            self._forget_codes()
            code = self.new_code(threads)
            self.met.add(code)
            self.writer[:] = np.where(
                self._of(self.writer, threads, alone), np.where(self.flying, FLYING, code), self.writer
            )
            self.reader[self._of(self.reader, threads, alone)] = code
            self.several[threads] &= not alone
            for seen in self.seen.values():
                seen |= threads & seen[threads].any()
        self.known[threads] = np.max([self.knowledge(int(thread)) for thread in np.flatnonzero(threads)[::32]], axis=0)

    def new_code(self, threads: Array) -> int:
        """What stands for something in `writer` or `reader` that these threads know to be over."""
        self.codes += 1
        self.seen[self.codes] = threads.copy()
        return self.codes

    def _forget_codes(self) -> None:
        """Forget the codes of barriers that stand nowhere any more."""
        if len(self.met) > 100:
            gone = self.met - {*np.unique(self.writer).tolist(), *np.unique(self.reader).tolist()}
            self.met -= gone
            for code in gone:
                del self.seen[code]

    def _of(self, touched: Array, threads: Array, alone: bool) -> Array:
        """Where what was touched is these threads'; `alone` says that no others have a part in what is several's."""
        one = (touched >= 0) & (touched < len(threads))
        return np.where(one, threads[np.where(one, touched, 0)], (touched < -1) & alone)

    def knowledge(self, thread: int) -> Array:
        """Of each warp group how many products are over, as this thread knows: of its own, those waited for."""
        known, group = self.known[thread].copy(), thread // 128
        known[group] = max(known[group], self.over[group])
        return known

    def read_by_products(self, places: Array, who: Array) -> bool:
        """Whether a product reads one of these places, or has read it and that is not known to these threads."""
        if self.reading[places].any():
            return True
        return any(
            (self.products[group][places] > self.known[who, group]).any() for group in np.flatnonzero(self.begun)
        )

    def written(self, places: Array) -> str:
        """What is wrong with a read of some of these places, in words."""
        if self.flying[places].any():
            return "which a copy in flight will write: a wait is missing"
        return "which another thread has written since the last barrier: a barrier is missing"

    def fence(self, threads: Array) -> None:
        """Show the asynchronous proxy what these threads have written."""
        self.unfenced[np.isin(self.unfenced, threads)] = -1

    def foreign(self, touched: Array, who: Array) -> Array:
        """Where what was touched, a part of `writer` or `reader`, is not for these threads."""
        found = (touched != -1) & (touched != who)
        for code in np.unique(touched[found & (touched > FLYING)]).tolist():
            found &= ~((touched == code) & self.seen[code][who])
        return found

    def _places(self, addresses: Array, size: int) -> Array:
        if len(addresses) and (addresses.min() < 0 or addresses.max() + size > len(self.bytes)):
            raise SimulationError(
                f"an access must be inside of the {len(self.bytes)} bytes of shared memory; one is outside"
            )
        return addresses[:, None] + np.arange(size)

    def load(self, addresses: Array, threads: Array, size: int) -> Array:
        places = self._places(addresses, size)
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
        places = self._places(addresses, values.shape[1])
        who = np.broadcast_to(threads[:, None], places.shape)
        for touched in (self.writer[places], self.reader[places]):
            if (wrong := self.foreign(touched, who)).any():
                raise SimulationError(
                    f"thread {who[wrong][0]} writes byte {places[wrong][0]} of shared memory, which another has touched"
                    " since the last barrier: a barrier or a wait is missing"
                )
        if self.read_by_products(places, who):
            raise SimulationError(
                "a thread writes what a wgmma or a copy in flight reads, or has since the barrier: a wait is missing"
            )
        if len(np.unique(places)) != places.size:
            raise SimulationError("two threads must not write the same place of shared memory")
        self.writer[places] = self.unfenced[places] = who
        self.bytes[places] = values
        self.flying[places] = False  # A fetch that was there is over, for those who write.

    def add(self, addresses: Array, threads: Array, amount: int) -> None:
        places = self._places(addresses, 4)
        who = np.broadcast_to(threads[:, None], places.shape)
        writer = self.writer[places]
        plain = ((writer >= 0) & (writer < FLYING)) | ((writer != -3) & self.foreign(writer, who))
        if (plain | self.foreign(self.reader[places], who)).any() or self.read_by_products(places, who):
            raise SimulationError("an atomic access of what was touched since the last barrier: a barrier is missing")
        self.writer[places] = -3
        self.several[threads] = True
        np.add.at(self.bytes.view(np.uint32), addresses // 4, np.uint32(amount))
