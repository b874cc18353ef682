"""The values of a kernel's variables for a user: numbers, NumPy arrays, and pointers by argument and element."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import attrs
import numpy as np

from ziggurat.backend.reference.argument_memory import ArrayArgument, Memory, argument_numbers, real_addresses
from ziggurat.backend.reference.recording import Point
from ziggurat.backend.reference.values import Array, expand, is_array, is_tuple, plain
from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, Type, element_of, shape_of


@attrs.frozen(eq=False)
class Pointers:
    """A pointer, or an array of them, to elements of an argument: `offsets` counts elements from its first one.

    `values` are the elements there now, 0 for a pointer outside of the array.
    """

    argument: str
    offsets: Any
    values: Any = attrs.field(repr=False)

    def __str__(self) -> str:
        return f"{self.argument} + {np.array2string(np.asarray(self.offsets), threshold=20, edgeitems=3)}"

    __repr__ = __str__

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.offsets, dtype)


def array_of(memory: Memory, argument: ArrayArgument) -> Array:
    """The array of an argument as the memory has it now, as a view."""
    region, array = memory.region_of[argument.number], argument.array
    return np.ndarray(array.shape, array.dtype, region.bytes, argument.address - region.base, array.strides)


def variables_of(point: Point, memory: Memory) -> dict[str, Any]:
    """The variables of a place by name. The memory must be that of the place."""
    assert point.contents is not None
    parts = zip(point.op.names, point.op.values, point.contents, strict=True)
    leaves = {name: value_of(value.type, content, memory) for name, value, content in parts}
    return _nested(leaves | dict(point.op.constants))


def _nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Values by name, with those of `pair.0` and `pair.1` as a tuple, and those of a record as a dictionary."""
    groups: dict[str, dict[str, Any]] = {}
    for path, value in leaves.items():
        name, _, rest = path.partition(".")
        groups.setdefault(name, {})[rest] = value
    return {name: parts[""] if "" in parts else _aggregate(_nested(parts)) for name, parts in groups.items()}


def _aggregate(parts: Mapping[str, Any]) -> Any:
    if all(name.isdigit() for name in parts):
        return tuple(parts[name] for name in sorted(parts, key=int))
    return dict(parts)


def value_of(type_: Type, content: Any, memory: Memory) -> Any:
    """The value of one program: a number of NumPy, an array that cannot be written, or pointers."""
    content = plain(content)
    if isinstance(type_, DescriptorType) and is_tuple(content):
        pointers = _pointers(PtrType(type_.element), content[0][0], memory)
        return {"base": pointers, "shape": tuple(int(size[0]) for size in content[1 : 1 + len(type_.block)])}
    element = element_of(type_)
    if not isinstance(element, ScalarType | PtrType):
        return f"a value of the type {type_}"
    array = expand(content[:1], shape_of(type_))[0]
    if isinstance(element, PtrType):
        return _pointers(element, array, memory)
    return array if array.ndim else array[()]


def _pointers(type_: PtrType, array: Array, memory: Memory) -> Any:
    """Pointers to an argument; those that are of none, or of several, as addresses."""
    argument = memory.argument_of(int(array.flat[0])) if array.size else None
    if argument is None or (argument_numbers(array) != argument.number).any():
        return real_addresses(array)
    offsets = (real_addresses(array) - argument.address) // type_.pointee.bytes
    view = memory.region_of[argument.number].view(type_.pointee.dtype)
    places = (real_addresses(array) - memory.region_of[argument.number].base) // type_.pointee.bytes
    inside = (places >= 0) & (places < len(view))
    values = np.where(inside, view.take(np.where(inside, places, 0)) if len(view) else 0, view.dtype.type(0))
    return Pointers(argument.name, offsets[()], values[()])


def text_of(value: Any) -> str:
    """A value in one line."""
    if is_array(value):
        text = np.array2string(value, threshold=12, edgeitems=3, precision=6, separator=" ").replace("\n", "")
        return f"{value.dtype}{list(value.shape)} {text}"
    return str(cast(Any, value)) if isinstance(value, np.generic | Pointers) else repr(value)
