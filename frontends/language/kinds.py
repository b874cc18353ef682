"""What the annotations of calls say. One that starts with `Const` takes a value known at compile time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ziggurat.codemodel.types import PtrType, ScalarType

# Of a kernel: a scalar, a pointer, or a tensor of either; a Python number stands for a scalar.
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
