"""Values by the way they are made, and memory by the way it was written.

A value that has few elements, or of which all are known, is an array. Any other tensor is a `Tensor`: the op that makes
it, on which operands. The memory of an array is a chain of versions, likewise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.proof.cells import Cells
from ziggurat.backend.proof.elements import FALSE, TRUE, Element, Pointer, Sum, Term, identity_of
from ziggurat.backend.reference.values import Array, is_array, is_tuple
from ziggurat.codemodel import scalars
from ziggurat.codemodel.types import ScalarType, TensorType, Type, element_of

FEW = 16  # Elements of an array that are computed at once.
Index = tuple[Sum, ...]  # The place of an element: a 32-bit integer for each axis.


class Tensor:
    """A value by the way it is made. `origins` are the arrays to which its elements point, if they are pointers. A
    `choice` is a scalar condition, and the values if it holds and if not. With a `source`, it has the elements of
    another tensor: that, its shape, and the number there of each element. With `parts`, it has those of several: a
    tensor, or None, and others with the numbers of the elements that are theirs. `type` is None for a tuple. `at`
    gives the element at an index, for tensors whose elements are made in one way."""

    __slots__ = (
        "_make", "_origin", "_value", "at", "choice", "elements", "number", "origins", "parts", "source", "type",
    )  # fmt: skip

    def __init__(
        self, number: int, make: Callable[[], Any], origins: frozenset[int], type_: TensorType | None,
        at: Callable[[Index], Element] | None,
    ) -> None:  # fmt: skip
        self.number = number
        self.origins = origins
        self.type = type_
        self.at = at
        self.elements: dict[Hashable, tuple[Index, Element]] = {}
        self._origin: dict[tuple[int, ...], tuple[Tensor, tuple[int, ...], Array]] = {}
        self.choice: tuple[Any, Any, Any] | None = None
        self.source: tuple[Tensor, tuple[int, ...], Any] | None = None
        self.parts: tuple[Any, list[tuple[Any, Any]]] | None = None
        self._make = make  # It keeps the terms, whose numbers no other ones get.
        self._value: Any = None

    def place_in(self, source: Tensor, shape: tuple[int, ...], places: Array) -> None:
        """Say that the elements are those of a tensor of a shape at some places."""
        self.source, self._origin = (source, shape, places), {}

    def origin(self, shape: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...], Array]:
        """The tensor that has the elements of this one where it stands for one of `shape`: that, its shape, and the
        number there of each element."""
        if shape not in self._origin:
            own = shape if self.type is None else self.type.shape
            source, whole, places = self.source or (self, own, np.arange(math.prod(own)))
            self._origin[shape] = source, whole, np.broadcast_to(np.reshape(places, own), shape).ravel()
        return self._origin[shape]

    @property
    def value(self) -> Any:
        """The array, or the tuple of values."""
        if self._value is None:
            self._value = forced(self._make())
        return self._value


def objects(array: Array, type_: Type) -> Array:
    """An array as one of elements; `type_` is that of the numbers, or of a tensor of them."""
    if array.dtype == object:
        return array
    scalar = element_of(type_)
    assert isinstance(scalar, ScalarType), f"{type_} has no known numbers"
    if scalar.bits == 1:
        bits: Any = np.frompyfunc(lambda holds: TRUE if holds else FALSE, 1, 1)(array)
        return np.asarray(bits, object)
    result: Any = np.frompyfunc(lambda number: Sum.number(number, scalar.bits), 1, 1)(scalars.bits_of(array))
    return np.asarray(result, object)


def objects_of(element: Element) -> Array:
    """An array of one element."""
    result = np.empty(1, object)
    result[0] = element
    return result


def forced(value: Any) -> Any:
    """A value with its tensors as arrays."""
    if isinstance(value, Tensor):
        return value.value
    return tuple(map(forced, value)) if is_tuple(value) else value


def key_of(value: Any) -> Hashable:
    """Values with equal keys are equal."""
    if isinstance(value, Tensor):
        return value.number
    if is_tuple(value):
        return tuple(map(key_of, value))
    if not is_array(value):
        return value
    if value.dtype == object:
        numbers = tuple(map(identity_of, value.flat))
        uniform = len(set(numbers)) == 1  # Then the array may be that of one element as well.
        return ((1,) * value.ndim, numbers[:1]) if uniform else (value.shape, numbers)
    content = value.tobytes()
    if content == content[: value.itemsize] * value.size:
        return value.dtype.str, (1,) * value.ndim, content[: value.itemsize]
    return value.dtype.str, value.shape, content


def origins_of(value: Any) -> frozenset[int]:
    """The arrays to which pointers point."""
    if isinstance(value, Tensor):
        return value.origins
    if is_tuple(value):
        return frozenset[int]().union(*map(origins_of, value))
    if not is_array(value) or value.dtype != object or not isinstance(value.flat[0], Pointer):
        return frozenset()
    return frozenset(element.origin for element in value.flat)


@attrs.frozen(eq=False)
class PartialProduct:
    """A product of matrices from `start` to `end` along k, and what it is added to. `factors` say of which, `operands`
    are these with their types, and `kind` are the types of the numbers and the precision. `added_to` makes the same
    product added to something else."""

    factors: Hashable
    addend: Any
    start: int
    end: int
    added_to: Callable[[Any], Tensor]
    kind: Hashable
    operands: tuple[tuple[Any, TensorType], ...]
    type: TensorType


@attrs.frozen(eq=False)
class Reduction:
    """The elements of a tensor, each combined of some of another one's: of those of a line of places there."""

    combining: Hashable
    source: Tensor
    shape: tuple[int, ...]  # Of the source.
    lines: Any


@attrs.frozen(eq=False)
class Winner:
    """The place in a line of elements of the one that a reduction chooses. `is_kept` says that the winner combined with
    the element at another place, is the winner."""

    size: int
    place: Sum
    is_kept: Callable[[Sum], Term]


class Version:
    """The contents of an array after some writes."""

    def __init__(
        self, number: int, parent: Version | None, key: Hashable, write: Callable[[Cells], Any], content: Any = None,
        cells: Cells | None = None,
    ) -> None:  # fmt: skip
        self.number = number
        # Of the last write.
        self.key = key
        self.write = write
        self.content = content
        self._parent = parent
        self._cells = cells
        self.result: Any = None
        """What the last write gives: an atomic, what was there."""

    def cells(self) -> Cells:
        """The contents, element by element."""
        waiting: list[Version] = []
        version: Version | None = self
        while version is not None and version._cells is None:
            waiting.append(version)
            version = version._parent
        for version in reversed(waiting):
            assert version._parent is not None and version._parent._cells is not None
            version._cells = version._parent._cells.copy()
            version.result = version.write(version._cells)
        assert self._cells is not None
        return self._cells

    @property
    def first(self) -> Version:
        """The array before all writes."""
        version = self
        while version._parent is not None:
            version = version._parent
        return version

    def since(self, earlier: Version) -> list[Version]:
        """The versions after an earlier one, up to this one."""
        versions: list[Version] = []
        version = self
        while version is not earlier:
            versions.append(version)
            assert version._parent is not None
            version = version._parent
        return versions[::-1]


def is_few(value: Any) -> bool:
    """Whether a value is to be computed at once: an array of few elements, or one that is known."""
    if is_tuple(value):
        return all(map(is_few, value))
    return not isinstance(value, Tensor) and (not is_array(value) or value.dtype != object or value.size <= FEW)
