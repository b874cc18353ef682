"""What the values of a Triton model are while it runs: NumPy arrays with a leading axis for the programs of a batch.

A scalar is an array of shape (P,), a tensor of shape S one of shape (P, *S). Any axis may have size 1 instead where the
value is the same along it, so a splat or a broadcast costs nothing and what is the same for all programs is held once;
`expand` gives an inner axis its size where that matters. Pointers are addresses in int64. A Tuple is a Python tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import attrs
import numpy as np

from ziggurat.codemodel.types import (
    DescriptorType,
    PtrType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
)

Array = np.ndarray[Any, np.dtype[Any]]

ADDRESS = np.dtype(np.int64)


@attrs.frozen(eq=False)
class Descriptor:
    """A value of a descriptor type: base addresses, and for each axis the sizes and the strides in elements."""

    base: Array
    shape: tuple[Array, ...]
    strides: tuple[Array, ...]
    nan: bool

    @classmethod
    def of(cls, base: int, shape: Sequence[int], strides: Sequence[int], type_: DescriptorType) -> Descriptor:
        """The descriptor of this type that all programs have."""
        sizes = tuple(np.full(1, size, np.int32) for size in shape)
        steps = tuple(np.full(1, stride, np.int64) for stride in strides)
        return cls(np.full(1, base, ADDRESS), sizes, steps, type_.padding == "nan")


@attrs.frozen(eq=False)
class Marked:
    """An array with marks on its elements: `marks` broadcasts to the array, and is 0 where there is no mark."""

    array: Array
    marks: Array


def plain(value: Any) -> Any:
    """A value without its marks."""
    return value.array if isinstance(value, Marked) else value


def marks_of(value: Any) -> Array:
    """The marks of a number or a tensor."""
    return value.marks if isinstance(value, Marked) else np.zeros((1,) * value.ndim, np.int32)


def marked(array: Any, marks: Array | None) -> Any:
    """An array with marks, where there are any."""
    return Marked(array, marks) if marks is not None and marks.any() else array


def is_array(value: object) -> TypeGuard[Array]:
    """True for a NumPy array."""
    return isinstance(value, np.ndarray)


def element_dtype(type_: Type) -> np.dtype[Any]:
    """The dtype that holds a scalar, a pointer, or the elements of a tensor of them."""
    element = type_.element if isinstance(type_, TensorType) else type_
    if isinstance(element, PtrType):
        return ADDRESS
    assert isinstance(element, ScalarType), f"{type_} has no elements"
    return element.dtype


def expand(array: Array, shape: Sequence[int]) -> Array:
    """A view in which every inner axis has its size; the leading one is left as it is."""
    return np.broadcast_to(array, (array.shape[0], *shape))


def over(array: Array, rank: int) -> Array:
    """A scalar of each program as a tensor of `rank` axes, all of size 1."""
    return array.reshape(array.shape[0], *(1,) * rank)


def uniform(array: Array) -> bool:
    """True when a scalar is the same for all programs."""
    return array.shape[0] == 1 or bool((array == array[0]).all())


def transformed(value: Any, function: Callable[[Array], Array]) -> Any:
    """The value with a function applied to each array that it consists of."""
    if is_array(value):
        return function(value)
    if isinstance(value, tuple):
        return tuple(transformed(part, function) for part in value)  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, Descriptor):
        shape = tuple(function(size) for size in value.shape)
        return Descriptor(function(value.base), shape, tuple(map(function, value.strides)), value.nan)
    if isinstance(value, Marked):
        return Marked(function(value.array), function(value.marks))
    return value


def chosen(value: Any, index: Array) -> Any:
    """The value for some of the programs, given by their places."""
    return transformed(value, lambda array: array if array.shape[0] == 1 else array[index])


def merged(count: int, parts: Sequence[tuple[Array, Any]]) -> Any:
    """The value for `count` programs, put together from parts: the places of some programs, and their value."""
    first = parts[0][1]
    if len(parts) == 1 and len(parts[0][0]) == count:
        return first
    if isinstance(first, tuple):
        size = len(first)  # pyright: ignore[reportUnknownArgumentType]
        return tuple(merged(count, [(places, value[i]) for places, value in parts]) for i in range(size))
    if isinstance(first, Descriptor):
        fields = [(places, (v.base, v.shape, v.strides)) for places, v in parts]
        base, shape, strides = merged(count, fields)
        return Descriptor(base, shape, strides, first.nan)
    if any(isinstance(value, Marked) for _, value in parts):
        array, marks = merged(count, [(places, (plain(value), marks_of(value))) for places, value in parts])
        return marked(array, marks)
    if not is_array(first):
        return first
    inner = np.broadcast_shapes(*(value.shape[1:] for _, value in parts))
    whole = np.empty((count, *inner), first.dtype)
    for places, value in parts:
        whole[places] = value
    return whole


def same_value(first: Any, second: Any) -> bool:
    """True when two values of one type are equal in every bit."""
    if first is second:
        return True
    if isinstance(first, tuple):
        return all(map(same_value, first, second))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(first, Descriptor):
        return same_value((first.base, first.shape, first.strides), (second.base, second.shape, second.strides))
    if isinstance(first, Marked) or isinstance(second, Marked):
        return same_value((plain(first), marks_of(first)), (plain(second), marks_of(second)))
    if is_array(first):
        shape = np.broadcast_shapes(first.shape, second.shape)
        wide = [np.ascontiguousarray(np.broadcast_to(a, shape)) for a in (first, second)]
        return wide[0].tobytes() == wide[1].tobytes()
    return first == second


def undefined(type_: Type, strict: bool) -> Any:
    """A value that is not defined: zeros; in strict mode NaN, or numbers so large that using them shows."""
    if isinstance(type_, TupleType):
        return tuple(undefined(component, strict) for component in type_.components)
    if isinstance(type_, DescriptorType):
        rank = len(type_.block)
        return Descriptor.of(0, (0,) * rank, (0,) * rank, type_)
    rank = type_.rank if isinstance(type_, TensorType) else 0
    element = type_.element if isinstance(type_, TensorType) else type_
    return np.full((1,) * (rank + 1), undefined_element(element, strict), element_dtype(element))


def undefined_element(element: Type, strict: bool) -> Any:
    """What stands for one element that is not defined."""
    dtype = element_dtype(element)
    if not strict or isinstance(element, PtrType):
        return np.zeros((), dtype)[()]
    assert isinstance(element, ScalarType)
    if element.is_float:
        return dtype.type(np.nan)
    # A large number, and odd: the sum of 2ⁿ of them is not 0, as it would be of the lowest.
    pattern = 0xAAAA_AAAA_AAAA_AAAB & ((1 << element.bits) - 1)
    low, high = element.limits
    return pattern if pattern <= high else pattern - high + low - 1
