"""Values of a Triton model at run time: NumPy arrays with a leading axis for the programs of a batch.

A scalar is an array of shape (P,), a tensor of shape S an array of shape (P, *S). An axis has size 1 instead if the
value is the same along it: a splat or a broadcast costs nothing, and a value that is the same for all programs is held
once. `expand` gives the inner axes their sizes. A pointer is an int64: see `argument_memory.py`. A Tuple is a Python
tuple, and so is a descriptor: the pointer, the size of each axis, and its stride in elements.

A frame has the programs of a batch that run together, and their values. It is split where control diverges. The child
has some of the programs, and takes a value of its parent for these programs at the first lookup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeGuard

import attrs
import numpy as np

from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, TensorType, TupleType, Type, element_of

Array = np.ndarray[Any, np.dtype[Any]]
POINTER = np.dtype(np.int64)


@attrs.frozen(eq=False)
class Marked:
    """An array with marks on its elements: `marks` broadcasts to the array, and is 0 for an element without a mark."""

    array: Array
    marks: Array


def plain(value: Any) -> Any:
    """A value without its marks."""
    return value.array if isinstance(value, Marked) else value


def marks_of(value: Any) -> Array:
    """The marks of a number or a tensor."""
    return value.marks if isinstance(value, Marked) else np.zeros((1,) * value.ndim, np.int32)


def marked(array: Any, marks: Array | None) -> Any:
    """An array with marks, or the array alone if there are none."""
    return Marked(array, marks) if marks is not None and marks.any() else array


def is_array(value: object) -> TypeGuard[Array]:
    """Whether a value is a NumPy array."""
    return isinstance(value, np.ndarray)


def is_tuple(value: object) -> TypeGuard[tuple[Any, ...]]:
    """Whether a value is a tuple, of any values."""
    return isinstance(value, tuple)


def element_dtype(type_: Type) -> np.dtype[Any]:
    """The dtype of the array for a scalar, a pointer, or a tensor of them."""
    element = element_of(type_)
    if isinstance(element, PtrType):
        return POINTER
    assert isinstance(element, ScalarType), f"{type_} has no elements"
    return element.dtype


def expand(array: Array, shape: Sequence[int]) -> Array:
    """A view with all inner axes at their sizes; the leading axis stays as it is."""
    return np.broadcast_to(array, (array.shape[0], *shape))


def over(array: Array, rank: int) -> Array:
    """A scalar of each program as a tensor of `rank` axes, all of size 1."""
    return array.reshape(array.shape[0], *(1,) * rank)


def uniform(array: Array) -> bool:
    """Whether a scalar is the same for all programs."""
    return array.shape[0] == 1 or bool((array == array[0]).all())


def chosen(value: Any, index: Array) -> Any:
    """A value for the programs at some places."""
    if is_array(value):
        return value if value.shape[0] == 1 else value[index]
    if is_tuple(value):
        return tuple(chosen(part, index) for part in value)
    return Marked(chosen(value.array, index), chosen(value.marks, index)) if isinstance(value, Marked) else value


def merged(count: int, parts: Sequence[tuple[Array, Any]]) -> Any:
    """A value for `count` programs, from parts: the places of some programs, and their value."""
    first = parts[0][1]
    if len(parts) == 1 and len(parts[0][0]) == count:
        return first
    if is_tuple(first):
        return tuple(merged(count, [(places, value[i]) for places, value in parts]) for i in range(len(first)))
    if any(isinstance(value, Marked) for _, value in parts):
        return marked(*merged(count, [(places, (plain(value), marks_of(value))) for places, value in parts]))
    if not is_array(first):
        return first
    inner = np.broadcast_shapes(*(value.shape[1:] for _, value in parts))
    whole = np.empty((count, *inner), first.dtype)
    for places, value in parts:
        whole[places] = value
    return whole


def same_value(first: Any, second: Any) -> bool:
    """Whether two values of one type are equal in every bit."""
    if first is second:
        return True
    if is_tuple(first):
        return all(map(same_value, first, second))
    if isinstance(first, Marked) or isinstance(second, Marked):
        return same_value((plain(first), marks_of(first)), (plain(second), marks_of(second)))
    if is_array(first):
        wide = [np.ascontiguousarray(array) for array in np.broadcast_arrays(first, second)]
        return wide[0].tobytes() == wide[1].tobytes()
    return first == second


def undefined(type_: Type) -> Any:
    """An undefined value: zeros."""
    if isinstance(type_, TupleType):
        return tuple(map(undefined, type_.components))
    if isinstance(type_, DescriptorType):
        padding = (np.zeros(1, np.bool_),) * (type_.padding == "either")
        return (*descriptor(0, (0,) * len(type_.block), (0,) * len(type_.block)), *padding)
    rank = type_.rank if isinstance(type_, TensorType) else 0
    return np.zeros((1,) * (rank + 1), element_dtype(type_))


def descriptor(pointer: int, shape: Sequence[int], strides: Sequence[int]) -> tuple[Array, ...]:
    """A descriptor that is the same for all programs."""
    sizes = (np.full(1, size, np.int32) for size in shape)
    return (np.full(1, pointer, POINTER), *sizes, *(np.full(1, stride, np.int64) for stride in strides))


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
        content = self._values.get(value, _ABSENT)
        if content is not _ABSENT:
            return content
        assert self._parent is not None, f"{value!r} has no value"
        content = self._parent.lookup(value)
        if self._index is not None:
            content = chosen(content, self._index)
            self._values[value] = content
        return content

    def bind(self, value: Value, content: Any) -> None:
        """Give a value to these programs."""
        self._values[value] = content

    def bind_some(self, value: Value, places: Array, content: Any) -> None:
        """Give a value to the programs at these places; the other programs keep theirs."""
        old = self._values.get(value, _ABSENT)
        if len(places) == len(self) or old is _ABSENT:
            parts = [(places, content)]
        else:
            parts = [(np.arange(len(self)), old), (places, content)]
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

    def fresh(self) -> Frame:
        """A frame of the same programs, without values."""
        return Frame(self.keys, self.programs)

    def keep(self, value: Value, programs: Frame) -> None:
        """Give a value to the programs of a part of this frame, as it is there; the other programs keep theirs."""
        self.bind_some(value, self.places(programs), programs.lookup(value))

    def split(self, condition: Array) -> list[tuple[bool, Frame]]:
        """The programs for which an i1 holds, and the others; of each side only if it has programs."""
        if uniform(condition):
            return [(bool(condition[0]), self)]
        sides = ((True, np.flatnonzero(condition)), (False, np.flatnonzero(~condition)))
        return [(side, self.part(places)) for side, places in sides]

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
        indices = [self.places(frame) for frame, _ in parts]
        places = np.sort(np.concatenate(indices))
        value = merged(len(places), [(np.searchsorted(places, p), v) for p, (_, v) in zip(indices, parts, strict=True)])
        return (self if len(places) == len(self) else self.part(places)), value
