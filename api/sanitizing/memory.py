"""The memory of a sanitised launch: the facts about its arrays, and the places of the tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.launch.arrays import address, as_array, is_array, on_gpu
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.backend.launch.device_arrays import layout, view
from ziggurat.backend.launch.regions import overlapping, span, stretch
from ziggurat.codemodel.errors import LaunchError
from ziggurat.frontends.library.sanitizing import LAST
from ziggurat.transforms.sanitize import Sanitized
from ziggurat.transforms.sanitize.records import FACTS, HEADER, units

_ANYWHERE = 1 << 62  # The bounds of an array that does not tell its size.


@attrs.frozen
class ArrayFacts:
    """An array of a launch: the name of its parameter, the address of its first element, the bytes of an element, their
    number, and the addresses of its lowest byte and of the one after its highest."""

    name: str
    address: int
    itemsize: int
    size: int
    low: int
    high: int


def facts_of(value: Any, name: str) -> ArrayFacts:
    """The facts about an array or a descriptor, on a GPU or in memory."""
    start = None
    if isinstance(value, TensorDescriptor):
        value, start = value.array, value.address
    if not on_gpu(value):
        array = as_array(value, name)
        low, high = span(array)
        return ArrayFacts(name, address(array) if start is None else start, array.itemsize, array.size, low, high)
    facts = view(value, name)
    first, width = facts.address if start is None else start, facts.element.bytes
    shape_and_strides = layout(value, width)
    if shape_and_strides is None:
        return ArrayFacts(name, first, width, 0, first - _ANYWHERE, first + _ANYWHERE)
    shape, strides = shape_and_strides
    low, high = stretch(facts.address, shape, [stride * width for stride in strides], width)
    return ArrayFacts(name, first, width, math.prod(shape), low, high)


def is_memory(value: Any) -> bool:
    """Whether an argument of a launch is an array or a descriptor."""
    return isinstance(value, TensorDescriptor) or is_array(value)


def sharing(facts: Sequence[ArrayFacts]) -> list[list[int]]:
    """The numbers of arrays that share memory, in groups of two and more."""
    return [group for group in overlapping([(fact.low, fact.high) for fact in facts]) if len(group) > 1]


def memory_of(
    sanitized: Sanitized, facts: Sequence[ArrayFacts], programs: int
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], int]:
    """The words of the memory of a launch before its tables, and the number of all words, which are 0.

    `facts` has those of the arrays in their order. Raises `LaunchError` for more programs than tables can name.
    """
    races = "races" in sanitized.names
    if races and programs >= LAST:
        raise LaunchError(f"a launch that is sanitized for races must have less than {LAST} programs; got {programs}")
    words = np.zeros(sanitized.size, np.int64)
    times = 2 * programs if races and sanitized.orders else 0
    words[1], end = len(words), len(words) + times
    places: dict[int, tuple[int, int, int]] = {}  # By group: its lowest address, the words of a row, the place.
    for group in dict.fromkeys(array.group for array in sanitized.arrays):
        members = [(a, f) for a, f in zip(sanitized.arrays, facts, strict=True) if a.group == group]
        low, high = min(fact.low for _, fact in members), max(fact.high for _, fact in members)
        tables = max(array.tables for array, _ in members) if high - low < _ANYWHERE else 0
        row = units(high - low, [array for array, _ in members]) if tables else 0
        places[group] = low, row, end
        end += tables * row
    for number, (array, fact) in enumerate(zip(sanitized.arrays, facts, strict=True)):
        low, row, place = places[array.group]
        unit = min(other.unit for other in sanitized.arrays if other.group == array.group)
        first = place + (fact.address - low) // unit
        at = HEADER + FACTS * number
        words[at : at + FACTS] = fact.low - fact.address, fact.high - fact.address, first if row else 0, row
    return words, end
