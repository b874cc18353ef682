"""Races between the programs of a launch: two accesses of one element, one of them a write, that nothing orders.

A GPU runs programs in any order, and at once. The reference interpreter and the simulator run them one after the other,
and note here who has accessed each unit of memory. An access of a program comes before one of a later program if an
atomic of the first one releases it, and the later one has acquired, by an atomic, from an address that was released
since. Atomics do not race with each other. A store of the value that is there already races with later writes only: the
result does not depend on its place among the earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs
import numpy as np

from ziggurat.backend.launch.arrays import address
from ziggurat.backend.launch.regions import Array, span

# The kinds of accesses. A POLL is a volatile load, which waits for what an atomic writes; SAME is a store that changes
# nothing.
WRITE, READ, UPDATE, POLL, SAME = range(5)
# The kinds of earlier accesses that each kind may race with.
_RIVALS: Final = {
    WRITE: (WRITE, READ, UPDATE),
    READ: (WRITE, UPDATE),
    UPDATE: (WRITE, READ),
    POLL: (WRITE,),
    SAME: (UPDATE,),
}
_RELEASED = 3  # The row of a table with the time of the last release.
_SHIFT = 32  # A note of an access has its time in the bits from this one on, and its program below.
MAX_PROGRAMS = 1 << 24
HINT: Final = "programs run in any order: use an atomic, or give each program elements of its own"


@attrs.frozen
class Race:
    """A race: the numbers of the programs, the earlier one second; the unit; and the earlier access and its place."""

    program: int
    other: int
    unit: int
    done: str
    place: Any


class Races:
    """The accesses of the programs of a launch."""

    def __init__(self, programs: int) -> None:
        # For each program, the time of its last release, and the latest time of a release that it has acquired.
        self._released, self._acquired = np.zeros((2, programs), np.int64)
        # For each unit of a region: the last write, a read and an update that come before no later one, and the last
        # release.
        self.tables: dict[Any, Array] = {}
        self._accesses: list[tuple[str, Any]] = [("", None)]  # By the time: what is done, and where.
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
        self, region: Any, count: int, units: Array, programs: Array, kind: int, done: str, place: Any, *,
        acquires: bool = False, releases: bool = False, values: Array | None = None,
    ) -> Race | None:  # fmt: skip
        """Note an access to some of the `count` units of a region, each with its program. Gives a race, if it is one.

        `done` is "written", "read" or "updated" in messages. `values` are those of a store by several programs at once.
        """
        if not units.size:
            return None
        if region not in self.tables:
            self.tables[region] = np.zeros((4, count), np.int64)
        table, time = self.tables[region], len(self._accesses)
        self._accesses.append((done, place))
        for rival in _RIVALS[kind]:
            held = table[rival][units]
            clash = self._unordered(held, programs)
            if clash.any():
                return self._race(clash, held, units, programs)
        if acquires:
            np.maximum.at(self._acquired, programs, table[_RELEASED][units])
        if releases:
            self._replaced.append((table[_RELEASED], units, table[_RELEASED][units]))
            table[_RELEASED][units] = self._released[programs] = time
        notes = programs.astype(np.int64) | time << _SHIFT
        if values is not None:
            table[WRITE][units] = np.arange(units.size).reshape(units.shape)
            last = table[WRITE][units]
            clash = (programs != programs.flat[last]) & (values != values.flat[last])
            if clash.any():
                return self._race(clash, notes.flat[last], units, programs)
        if kind != POLL:
            row = READ if kind == SAME else kind
            if row != WRITE:
                held = table[row][units]
                notes = np.where(self._unordered(held, programs), held, notes)
            table[row][units] = notes
        return None

    def _unordered(self, notes: Array, programs: Array) -> Array:
        """Whether each noted access is another program's that comes in no order with one of a program now."""
        time, other = notes >> _SHIFT, notes & ((1 << _SHIFT) - 1)
        unordered = (notes != 0) & (other != programs)
        if unordered.any():
            unordered &= (time > self._released[other]) | (time > self._acquired[programs])
        return unordered

    def _race(self, clash: Array, notes: Array, units: Array, programs: Array) -> Race:
        at = int(np.argmax(clash))
        time, other = divmod(int(notes.flat[at]), 1 << _SHIFT)
        return Race(int(programs.flat[at]), other, int(units.flat[at]), *self._accesses[time])


def elements(arrays: Iterable[tuple[str, Array]], place: int) -> str:
    """The elements of named arrays at an address, for messages: `x[3]`, or `x[3] or y[0]` where arrays overlap."""
    return " or ".join(
        f"{name}[{(place - address(array)) // array.itemsize}]"
        for name, array in arrays
        if span(array)[0] <= place < span(array)[1]
    )
