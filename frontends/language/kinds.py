"""Annotations of the parameters of calls. One that starts with `Const` takes a value known at compile time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ziggurat.codemodel.types import PtrType, ScalarType, TensorType, find_scalar

# A value of a kernel: a scalar, a pointer, or a tensor of either; a Python number stands for a scalar.
Value: TypeAlias = Any
Values: TypeAlias = Sequence[Any]
# A shape, or a value whose shape is meant.
ShapeOrValue: TypeAlias = Any

ConstInt: TypeAlias = int
ConstBool: TypeAlias = bool
ConstStr: TypeAlias = str
ConstShape: TypeAlias = Sequence[int]
ConstInts: TypeAlias = int | Sequence[int]
ConstDtype: TypeAlias = ScalarType | PtrType
ConstDtypes: TypeAlias = ScalarType | Sequence[ScalarType]
ConstFunction: TypeAlias = Callable[..., Any]
ConstAny: TypeAlias = Any
# A constant that is true or false. A run-time value is true, as Triton's compiler asks Python for the truth of it.
ConstTruth: TypeAlias = Any


def _dtype(value: Any) -> Any:
    """A dtype; the type of a tensor stands for that of its elements."""
    return value.element if isinstance(value, TensorType) else find_scalar(value) or value


def _dtypes(value: Any) -> Any:
    return tuple(map(_dtype, value)) if isinstance(value, tuple) else _dtype(value)  # pyright: ignore[reportUnknownArgumentType]


# Conversions of constant arguments by the kind of their parameter: dtypes of NumPy and torch, and names, become ours.
CONVERSIONS: dict[str, Callable[[Any], Any]] = {"ConstDtype": _dtype, "ConstDtypes": _dtypes}
