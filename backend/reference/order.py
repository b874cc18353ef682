"""Seeing whether programs that run together do what they would do one after the other.

Running together is the same thing when each element of memory is accessed in the order of the programs, wherever one
of two accesses writes. So each element carries the largest id that has read it, and that has written it; an access that
comes too late raises `OutOfOrder` (basic timestamp ordering: Bernstein and Goodman, "Concurrency control in distributed
database systems", 1981). The ids of later batches are larger, so the stamps are never cleared.

Atomic updates that commute and whose old value nobody uses have stamps of their own: they need no order between them.
"""

from __future__ import annotations

import numpy as np

from ziggurat.backend.reference.memory import Region, Target
from ziggurat.backend.reference.values import Array


class OutOfOrder(Exception):
    """Programs that ran together depend on each other in a way that needs them to run one after the other."""


class Stamps:
    """The largest program ids that have accessed each unit of a region; -1 for none."""

    def __init__(self, region: Region) -> None:
        size = -(-(region.high - region.base) // region.unit)
        self.unit = region.unit
        self._read, self._written, self._updated = (np.full(size, -1, np.int32) for _ in range(3))
        self._kind = np.zeros(size, np.int8)

    def units(self, index: Array, size: int) -> list[Array]:
        """The units of elements of `size` bytes."""
        if size == self.unit:
            return [index]
        if size < self.unit:
            return [index // (self.unit // size)]
        ratio = size // self.unit
        return [index * ratio + part for part in range(ratio)]

    def read(self, at: Array, first: Array, last: Array) -> None:
        """Programs `first` … `last` read units."""
        if (self._written[at] > first).any() or (self._updated[at] > first).any():
            raise OutOfOrder
        self._read[at] = np.maximum(self._read[at], last)

    def write(self, at: Array, first: Array, last: Array) -> None:
        """Programs `first` … `last` write units."""
        if any((stamps[at] > first).any() for stamps in (self._written, self._updated, self._read)):
            raise OutOfOrder
        self._written[at] = np.maximum(self._written[at], last)

    def update(self, at: Array, first: Array, last: Array, kind: int) -> None:
        """Programs `first` … `last` update units by a commuting atomic of this kind."""
        if (self._written[at] > first).any() or (self._read[at] > first).any():
            raise OutOfOrder
        updated = self._updated[at]
        other = self._kind[at] != kind
        if (other & (updated > first)).any():
            raise OutOfOrder
        # Earlier updates of another kind must not be joined by more of that kind: they count as writes from here on.
        self._written[at] = np.where(other, np.maximum(self._written[at], updated), self._written[at])
        self._updated[at] = np.maximum(updated, last)
        self._kind[at] = kind


class Order:
    """The stamps of the regions that need them. Switched off while programs run one at a time."""

    def __init__(self, regions: list[Region]) -> None:
        self.stamps = {id(region): Stamps(region) for region in regions}
        self.on = True

    def reads(self, target: Target, size: int, programs: Array) -> None:
        """The programs read the elements of a target."""
        stamps = self._stamps(target)
        if stamps is not None:
            at, first, last = _who(target, programs)
            for units in stamps.units(at, size):
                stamps.read(units, first, last)

    def writes(self, target: Target, size: int, programs: Array) -> None:
        """The programs write the elements of a target."""
        stamps = self._stamps(target)
        if stamps is not None:
            at, first, last = _who(target, programs)
            for units in stamps.units(at, size):
                stamps.write(units, first, last)

    def updates(self, target: Target, size: int, programs: Array, kind: int | None) -> None:
        """The programs update the elements of a target, by a commuting atomic of a kind, or by one that needs order."""
        stamps = self._stamps(target)
        if stamps is not None:
            at, first, last = _who(target, programs)
            for units in stamps.units(at, size):
                if kind is None:
                    stamps.write(units, first, last)
                    stamps.read(units, first, last)
                else:
                    stamps.update(units, first, last, kind)

    def _stamps(self, target: Target) -> Stamps | None:
        return self.stamps.get(id(target.region)) if self.on else None


def _who(target: Target, programs: Array) -> tuple[Array, Array, Array]:
    """The elements, one after the other, and the first and last program that accesses each."""
    index = target.index
    if index.shape[0] == 1 and len(programs) > 1:
        first = np.broadcast_to(programs[:1], index.size)
        last = np.broadcast_to(programs[-1:], index.size)
    else:
        column = programs.reshape(-1, *(1,) * (index.ndim - 1))
        first = last = np.broadcast_to(column, index.shape).reshape(-1)
    at = index.reshape(-1)
    if target.lanes is None:
        return at, first, last
    lanes = target.lanes.reshape(-1)
    return at[lanes], first[lanes], last[lanes]
