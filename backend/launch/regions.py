"""Stretches of this machine's memory that arrays share."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from ziggurat.backend.launch.arrays import address
from ziggurat.codemodel.errors import LaunchError

Array = np.ndarray[Any, np.dtype[Any]]


def span(array: Array) -> tuple[int, int]:
    """The addresses of the lowest byte of an array's elements, and of the one after the highest."""
    return stretch(address(array), array.shape, array.strides, array.itemsize)


def stretch(start: int, shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """The addresses of the lowest byte of elements, and of the one after the highest. The first one is at `start`; the
    strides are in bytes."""
    if 0 in shape:
        return start, start
    steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    return start + sum(step for step in steps if step < 0), start + sum(s for s in steps if s > 0) + itemsize


def check_aligned(array: Array, name: str) -> None:
    """Raise `LaunchError` unless the elements of an array are aligned to their size, of up to 8 bytes."""
    size = array.itemsize
    if address(array) % min(size, 8) or any(stride % size for stride in array.strides):
        raise LaunchError(f"the array for {name} must be aligned to its elements of {size} bytes")


NO_AXIS: Final = 64


def known_stride(array: Array, numbers: Mapping[int, Sequence[int]]) -> tuple[int, int] | None:
    """An axis of an array and its stride in elements, which is among the numbers of a launch; None without one.

    As 1 is a number of most launches, it tells nothing unless all strides but those of 0 are 1, and there are as many
    such numbers. Then there is no axis, but `NO_AXIS`: a later launch is to be checked as this one.
    """
    steps = {axis: stride // array.itemsize for axis, stride in enumerate(array.strides) if array.shape[axis] > 1}
    for axis, step in steps.items():
        if step != 1 and step in numbers:
            return axis, step
    others = [step for step in steps.values() if step]
    return (NO_AXIS, 1) if others == [1] * len(others) and 0 < len(others) <= len(numbers.get(1, ())) else None


class Region:
    """The memory from the first to the last byte of some arrays; `base` is the last multiple of `aligned` before it."""

    def __init__(self, arrays: Sequence[Array], aligned: int = 1) -> None:
        self.arrays = tuple(arrays)  # Keeps the memory alive.
        spans = list(map(span, arrays))
        self.low, self.high = min(low for low, _ in spans), max(high for _, high in spans)
        self.base = self.low // aligned * aligned
        size = self.high - self.base
        raw = (ctypes.c_uint8 * size).from_address(self.base) if size else (ctypes.c_uint8 * 0)()
        self.bytes: Array = np.ctypeslib.as_array(raw)
        self.unit = min(array.itemsize for array in arrays)  # The size of its smallest elements, in bytes.
        self._elements = [(low, _combs(array)) for (low, _), array in zip(spans, arrays, strict=True)]
        self.names: Sequence[str] = ()  # Those of the arrays, for messages.
        self.has_gaps = (self.low, [(1, self.high - self.low)]) not in self._elements

    def elements(self, place: int) -> list[str]:
        """The elements of the arrays at an address: `x[3]`."""
        pairs = zip(self.names, self.arrays, strict=True)
        inside = [(name, array) for name, array in pairs if span(array)[0] <= place < span(array)[1]]
        return [f"{name}[{(place - address(array)) // array.itemsize}]" for name, array in inside]

    def missing(self, offsets: Array, size: int) -> Array:
        """For each offset from the base, whether one of `size` bytes there is in no element of an array."""
        missing = np.zeros(offsets.shape, np.bool_)
        for part in range(0, size, self.unit):
            present = np.zeros(offsets.shape, np.bool_)
            for low, combs in self._elements:
                inside = np.ones(offsets.shape, np.bool_)
                position = offsets + (self.base + part - low)
                for stride, count in combs:
                    step, position = np.divmod(position, stride)
                    inside &= (step >= 0) & (step < count)
                present |= inside
            missing |= ~present
        return missing


def _combs(array: Array) -> list[tuple[int, int]]:
    """Strides and counts, the widest stride first, whose sums are the bytes of the elements within the span.

    An array whose axes overlap irregularly is taken to have every byte of its span.
    """
    low, high = span(array)
    combs = [(1, array.itemsize if array.size else 0)]
    extent = combs[0][1]
    axes = zip(array.strides, array.shape, strict=True)
    for stride, size in sorted((abs(stride), size) for stride, size in axes if size > 1 and stride):
        width, count = combs[0]
        if stride % width == 0 and stride <= width * count:
            combs[0] = (width, stride // width * (size - 1) + count)
        elif stride >= extent:
            combs.insert(0, (stride, size))
        else:
            return [(1, high - low)]
        extent += stride * (size - 1)
    return combs


def grouped(arrays: Sequence[Array], *, views: bool) -> list[list[int]]:
    """The numbers of the arrays whose spans overlap; with `views`, or that are views of one array."""
    return overlapping([*map(span, arrays)], [*map(_owner, arrays)] if views else ())


def overlapping(spans: Sequence[tuple[int, int]], owner_of: Sequence[int] = ()) -> list[list[int]]:
    """The numbers of the spans that overlap, or have a common owner."""
    groups: list[tuple[int, int, set[int], list[int]]] = []
    for number in sorted(range(len(spans)), key=spans.__getitem__):
        (low, high), owners, members = spans[number], {*owner_of[number : number + 1]}, [number]
        for group in list(groups):
            if owners & group[2] or (low < group[1] and group[0] < high):
                groups.remove(group)
                low, high = min(low, group[0]), max(high, group[1])
                owners, members = owners | group[2], [*group[3], *members]
        groups.append((low, high, owners, members))
    return [sorted(members) for _, _, _, members in groups]


def _owner(array: Array) -> int:
    """The identity of the object that owns the memory of an array."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base  # pyright: ignore[reportUnknownMemberType]
    return id(owner)  # pyright: ignore[reportUnknownArgumentType]
