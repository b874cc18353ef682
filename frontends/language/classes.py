"""Classes of Triton's language: kinds of values, for annotations and `isinstance`, and the classes of constants."""

from __future__ import annotations

import builtins
import enum
import math
from collections.abc import Iterable, Iterator
from typing import Any

from ziggurat.frontends.language.constants import constexpr
from ziggurat.frontends.language.dtypes import block_type, dtype


class PropagateNan(enum.Enum):
    """Whether `maximum`, `minimum` and `clamp` give NaN where an operand is NaN. A constant of a kernel, a bool."""

    NONE = False
    ALL = True

    @property
    def ziggurat_constant(self) -> bool:
        return True


class const:
    """The annotation of a pointer that is not written through."""


class base_value:
    """A value of a kernel or a constant. For `isinstance` and annotations."""

    def __array__(self, *arguments: Any, **keywords: Any) -> Any:
        """Refuses NumPy, which would make an array of the object itself."""
        raise TypeError("the elements of a run-time value are not known while a kernel is compiled")


class tensor(base_value):
    """A value of a kernel: a scalar, a pointer, or a block of them. For `isinstance` and annotations.

    A function that runs while a kernel is compiled is given an object of this class for a run-time value. It knows the
    type alone.
    """

    def __init__(self, type: dtype) -> None:
        self.type, self.dtype = type, type.scalar
        self.shape = builtins.tuple(map(constexpr, type.shape if isinstance(type, block_type) else ()))
        self.numel = constexpr(math.prod(size.value for size in self.shape))


class tensor_descriptor(base_value):
    """A tensor in global memory that is moved in blocks. For `isinstance` and annotations, and as `tensor` is given."""

    def __init__(self, block_type: block_type) -> None:
        self.block_type, self.block_shape, self.dtype = block_type, block_type.shape, block_type.element_ty


class constexpr_type:
    """The type of a constant."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, constexpr_type) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"constexpr_type[{self.value}]"


class tuple_type:
    """The type of a tuple: the types of its items, and their names, which are empty but for a named tuple."""

    def __init__(self, types: Iterable[Any], fields: Iterable[str] | None = None) -> None:
        self.types = [*types]
        self.fields = [""] * len(self.types) if fields is None else [*fields]
        self.name = f"[{','.join(f'{name}:{pair}' for name, pair in zip(self.fields, self.types, strict=True))}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple_type) and (self.types, self.fields) == (other.types, other.fields)

    def __hash__(self) -> int:
        return hash(self.name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.types)

    def __getitem__(self, index: int) -> Any:
        return self.types[index]

    def __repr__(self) -> str:
        return self.name


class slice:
    """An index `start:stop:step`."""

    def __init__(self, start: Any, stop: Any, step: Any) -> None:
        self.start, self.stop, self.step = start, stop, step


# A tuple of a kernel is Python's.
tuple = tuple
