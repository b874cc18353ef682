"""Races between the programs of a launch: two accesses of one element, one of them a write, that nothing orders.

A GPU runs programs in any order, and at once. The reference interpreter and the simulator run them one after the other,
and note here who has accessed each unit of memory. An access of a program comes before one of a later program if an
atomic of the first one releases it, and the later one has acquired, by an atomic, from an address that was released
since. Atomics do not race with each other, and neither do stores of the same value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ziggurat.backend.launch.grids import program_name
from ziggurat.backend.launch.regions import Array, Region
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.location import Location

# The kinds of accesses. A POLL is a volatile load, which waits for what an atomic writes.
WRITE, READ, UPDATE, POLL = range(4)
# The kinds of earlier accesses that each kind may race with.
_RIVALS: Final = {WRITE: (WRITE, READ, UPDATE), READ: (WRITE, UPDATE), UPDATE: (WRITE, READ), POLL: (WRITE,)}
_RELEASED = 3  # The row of a table with the time of the last release.
_SHIFT = 32  # A note of an access has its time in the bits from this one on, and its program below.
MAX_PROGRAMS = 1 << 24
_WORDS: Final = (("writes", "written"), ("reads", "read"), ("updates", "updated"), ("reads", "read"))
HINT: Final = "programs run in any order: use an atomic, or give each program elements of its own"


class Races:
    """The accesses of the programs of a launch over a grid. `location` gives the one of an access's `place`."""

    def __init__(
        self, grid: tuple[int, ...], location: Callable[[Any], Location | None], error: type[KernelRuntimeError]
    ) -> None:
        self._grid, self._location, self._error = grid, location, error
        # For each program, the time of its last release, and the latest time of a release that it has acquired.
        self._released, self._acquired = np.zeros((2, math.prod(grid)), np.int64)
        # By the base of a region, for each of its units: the last write, a read and an update that come before no later
        # one, and the time of the last release.
        self.tables: dict[int, Array] = {}
        self._noted: set[tuple[int, int]] = set()  # The regions and the kinds of their accesses up to now.
        self._accesses: list[tuple[int, Any]] = [(0, None)]  # By the time: the kind and the place.
        self._start = 0
        self._replaced: list[tuple[Array, Array, Array]] = []  # The releases before those since `begin`.

    def begin(self) -> None:
        """Begin what `forget` takes back."""
        self._start, self._replaced = len(self._accesses), []

    def forget(self) -> None:
        """Forget the accesses since `begin`, by programs that are to be run again."""
        for table in self.tables.values():
            table[:_RELEASED][table[:_RELEASED] >> _SHIFT >= self._start] = 0
        for row, units, old in reversed(self._replaced):
            row[units] = old
        for times in (self._released, self._acquired):
            times[times >= self._start] = 0

    def note(
        self, region: Region, units: Array, programs: Array, kind: int, place: Any, *, size: int = 1,
        bits: Callable[[], Sequence[Array]] | None = None, acquires: bool = False, releases: bool = False,
    ) -> None:  # fmt: skip
        """Note an access to units of a region, each of `size` bytes and with its program. Raise the error of a race.

        `bits` gives the new and the old bits of the units of a store.
        """
        base = region.base
        if base not in self.tables:
            self.tables[base] = np.zeros((4, -(-len(region.bytes) // size)), np.int64)
        table, time = self.tables[base], len(self._accesses)
        self._accesses.append((kind, place))
        for rival in _RIVALS[kind]:
            if (base, rival) in self._noted:
                previous = table[rival].take(units)
                clash = self._unordered(previous, programs)
                if rival == WRITE and bits is not None and clash.any():
                    new, old = bits()
                    clash &= new != old
                self._check(clash, previous, region, units, programs, size)
        if acquires:
            np.maximum.at(self._acquired, programs, table[_RELEASED][units])
        if releases:
            self._replaced.append((table[_RELEASED], units, table[_RELEASED][units]))
            table[_RELEASED][units] = self._released[programs] = time
        if kind == POLL:
            return
        notes = programs.astype(np.int64) | time << _SHIFT
        if kind != WRITE and (base, kind) in self._noted:
            previous = table[kind].take(units)
            notes = np.where(self._unordered(previous, programs), previous, notes)
        self._noted.add((base, kind))
        table[kind][units] = notes
        # Several programs may write one element at once.
        if bits is not None and (table[WRITE].take(units) != notes).any():
            table[WRITE][units] = np.arange(units.size).reshape(units.shape)
            last = table[WRITE][units]
            table[WRITE][units] = notes
            new = bits()[0]
            clash = (programs != programs.flat[last]) & (new != new.flat[last])
            self._check(clash, notes.reshape(-1)[last], region, units, programs, size)

    def _unordered(self, notes: Array, programs: Array) -> Array:
        """Whether each noted access is another program's that comes in no order with one of a program now."""
        time, other = notes >> _SHIFT, notes & ((1 << _SHIFT) - 1)
        unordered = (notes != 0) & (other != programs)
        if unordered.any():
            unordered &= (time > self._released[other]) | (time > self._acquired[programs])
        return unordered

    def _check(self, clash: Array, notes: Array, region: Region, units: Array, programs: Array, size: int) -> None:
        """Raise the error of the first lane that clashes with a noted access."""
        if not clash.any():
            return
        at = int(np.argmax(clash))
        time, other = divmod(int(notes.flat[at]), 1 << _SHIFT)
        (kind, here), (rival, there) = self._accesses[-1], self._accesses[time]
        element = " or ".join(region.elements(region.base + int(units.flat[at]) * size))
        who, whom = (program_name(number, self._grid) for number in (int(programs.flat[at]), other))
        done = _WORDS[rival][1]
        error = self._error(f"{who} {_WORDS[kind][0]} {element}, which {whom} has {done}", self._location(here), HINT)
        error.add(f"it is {done} here", self._location(there))
        raise error
