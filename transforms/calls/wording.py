"""Values and types in the words of an error message: as the author of a kernel writes them."""

from __future__ import annotations

import enum
from typing import Any

from ziggurat.codemodel.types import ConstantType, PtrType, ScalarType, TupleType, Type
from ziggurat.transforms.calls.function_name import FunctionName

_LONGEST = 60


# The hint where the choice of a function depends on a run-time value.
CHOSEN_FUNCTION = "which function is called has to be known at compile time; call each in a branch of its own"


def is_function(type_: Type) -> bool:
    """True of the type of a constant that is a function."""
    return isinstance(type_, ConstantType) and isinstance(type_.value, FunctionName)


def show(value: Any) -> str:
    """A constant as it is written in a kernel: `zg.f32`, `zg.CompareKind.EQUAL`, `(1, None)`."""
    if isinstance(value, FunctionName):
        return f"the function '{value.symbol}'"
    if isinstance(value, ScalarType):
        return f"zg.{value}"
    if isinstance(value, PtrType):
        return f"zg.ptr(zg.{value.pointee})"
    if isinstance(value, Type):
        return describe(value)
    if isinstance(value, enum.Enum):
        return f"zg.{type(value).__name__}.{value.name}"
    if isinstance(value, tuple):
        return _in_a_row([show(item) for item in value])  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def describe(type_: Type) -> str:
    """An attributed type: what is known of a constant, or the type of a run-time value."""
    if isinstance(type_, ConstantType):
        value = type_.value
        if value is None or isinstance(value, FunctionName):
            return show(value)
        kind = "type" if isinstance(value, Type) else "tuple" if isinstance(value, tuple) else "constant"
        return f"the {kind} {show(value)}"
    if isinstance(type_, TupleType):
        return f"the tuple {_in_a_row([_part(part) for part in type_.components])}"
    return str(type_)


def _part(type_: Type) -> str:
    return show(type_.value) if isinstance(type_, ConstantType) else describe(type_).removeprefix("the tuple ")


def _in_a_row(items: list[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
