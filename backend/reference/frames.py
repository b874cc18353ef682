"""Frames: the programs of a batch that run together, and their values.

A frame is split where control diverges. The child has some of the programs, and takes a value of its parent for these
programs at the first lookup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ziggurat.backend.reference.values import Array, chosen, merged
from ziggurat.codemodel.op import Value

_ABSENT: Final = object()


class Frame:
    """Programs that run together, and the values declared since the frame was made.

    `keys` are distinct ascending numbers, one for each running program; `programs` are the linear ids of the programs.
    The two differ only in the body of a reduction, where each element of a tensor runs as a program of its own.
    """

    __slots__ = ("_index", "_parent", "_values", "keys", "programs")

    def __init__(self, keys: Array, programs: Array, parent: Frame | None = None, index: Array | None = None) -> None:
        self.keys = keys
        self.programs = programs
        self._values: dict[Value, Any] = {}
        self._parent = parent
        self._index = index

    def __len__(self) -> int:
        return len(self.keys)

    def lookup(self, value: Value) -> Any:
        """The value of these programs."""
        found = self._values.get(value, _ABSENT)
        if found is not _ABSENT:
            return found
        assert self._parent is not None, f"{value!r} has no value"
        found = self._parent.lookup(value)
        if self._index is not None:
            found = chosen(found, self._index)
            self._values[value] = found
        return found

    def bind(self, value: Value, held: Any) -> None:
        """Give a value to these programs."""
        self._values[value] = held

    def bind_some(self, value: Value, places: Array, held: Any) -> None:
        """Give a value to the programs at these places; the other programs keep theirs."""
        old = self._values.get(value, _ABSENT)
        if len(places) == len(self) or old is _ABSENT:
            parts = [(places, held)]
        else:
            parts = [(np.arange(len(self)), old), (places, held)]
        self._values[value] = merged(len(self), parts)

    def release(self, value: Value) -> None:
        """Drop a value from this frame and its parents."""
        frame: Frame | None = self
        while frame is not None:
            frame._values.pop(value, None)
            frame = frame._parent

    def child(self) -> Frame:
        """A frame of the same programs, with the values of this frame."""
        return Frame(self.keys, self.programs, self)

    def part(self, places: Array) -> Frame:
        """A child with only the programs at these places (ascending)."""
        if len(places) == len(self):
            return self.child()
        return Frame(self.keys[places], self.programs[places], self, places)

    def elements(self, count: int) -> Frame:
        """A child with a program for each of `count` elements of each program."""
        index = np.repeat(np.arange(len(self)), count)
        return Frame(np.arange(len(index)), self.programs[index], self, index)

    def places(self, other: Frame) -> Array:
        """The places in this frame of the programs of `other`, a part of it."""
        if other.keys is self.keys:
            return np.arange(len(self))
        return np.searchsorted(self.keys, other.keys)

    def merge(self, parts: Sequence[tuple[Frame, Any]]) -> tuple[Frame, Any]:
        """Parts of this frame as one again: a frame of all their programs, and their value."""
        if len(parts) == 1:
            frame, value = parts[0]
            return (self if len(frame) == len(self) else self.part(self.places(frame))), value
        found = [self.places(frame) for frame, _ in parts]
        places = np.sort(np.concatenate(found))
        value = merged(len(places), [(np.searchsorted(places, p), v) for p, (_, v) in zip(found, parts, strict=True)])
        return (self if len(places) == len(self) else self.part(places)), value
