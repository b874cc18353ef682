"""Comparisons and choices, element by element."""

from __future__ import annotations

import enum
from functools import partial
from typing import Any, Final

from ziggurat.codemodel.declare import constant_enum
from ziggurat.frontends.language import host
from ziggurat.frontends.language.kinds import CONVERSIONS, Value
from ziggurat.frontends.language.signature import call

__all__ = ["CompareKind", "compare", "equal", "greater", "greater_equal", "less", "less_equal", "not_equal", "where"]


@constant_enum
class CompareKind(enum.Enum):
    """The comparisons of `compare`. The value is the name of Python's comparison in the Python code model.

    >>> CompareKind("<")
    <CompareKind.LESS_THAN: 'lt'>
    """

    EQUAL = "eq"
    NOT_EQUAL = "ne"
    LESS_THAN = "lt"
    LESS_THAN_OR_EQUAL = "le"
    GREATER_THAN = "gt"
    GREATER_THAN_OR_EQUAL = "ge"

    @classmethod
    def _missing_(cls, value: object) -> CompareKind | None:
        return _SIGNS.get(value)


_SIGNS: Final[dict[Any, CompareKind]] = dict(zip(("==", "!=", "<", "<=", ">", ">="), CompareKind, strict=True))
# The comparisons that have a call of their own, by its name.
NAMED: Final[dict[str, CompareKind]] = dict(
    zip(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"), CompareKind, strict=True)
)

ConstCompareKind = CompareKind
CONVERSIONS["ConstCompareKind"] = lambda kind: _SIGNS.get(kind, kind) if isinstance(kind, str) else kind


@call("Comparison", host=host.compare)
def compare(a: Value, b: Value, kind: ConstCompareKind) -> Value:
    """Compare two values.

    - `a`, `b`: scalars or tensors of numbers, or both of pointers; numbers are promoted to one dtype first.
    - `kind`: a member of `CompareKind` (EQUAL, NOT_EQUAL, LESS_THAN, LESS_THAN_OR_EQUAL, GREATER_THAN,
      GREATER_THAN_OR_EQUAL), or its sign: "==", "!=", "<", "<=", ">", ">=".

    Result: the broadcast shape, in i1. With a NaN only NOT_EQUAL is true.
    Errors: shapes that do not broadcast; a number and a pointer.
    """


@call("Comparison", host=partial(host.compare, kind=CompareKind.EQUAL))
def equal(a: Value, b: Value) -> Value:
    """Compare two values: `a == b`.

    - `a`, `b`: scalars or tensors of numbers, or both of pointers; numbers are promoted to one dtype first.

    Result: the broadcast shape, in i1. False with a NaN.
    Errors: shapes that do not broadcast; a number and a pointer.
    """


@call("Comparison", host=partial(host.compare, kind=CompareKind.NOT_EQUAL))
def not_equal(a: Value, b: Value) -> Value:
    """Compare two values: `a != b`.

    - `a`, `b`: scalars or tensors of numbers, or both of pointers; numbers are promoted to one dtype first.

    Result: the broadcast shape, in i1. True with a NaN.
    Errors: shapes that do not broadcast; a number and a pointer.
    """


@call("Comparison", host=partial(host.compare, kind=CompareKind.LESS_THAN))
def less(a: Value, b: Value) -> Value:
    """Compare two values: `a < b`.

    - `a`, `b`: scalars or tensors of numbers, or both of pointers; numbers are promoted to one dtype first.

    Result: the broadcast shape, in i1. False with a NaN.
    Errors: shapes that do not broadcast; a number and a pointer.
    """


@call("Comparison", host=partial(host.compare, kind=CompareKind.LESS_THAN_OR_EQUAL))
def less_equal(a: Value, b: Value) -> Value:
    """Compare two values: `a <= b`.

    - `a`, `b`: scalars or tensors of numbers, or both of pointers; numbers are promoted to one dtype first.

    Result: the broadcast shape, in i1. False with a NaN.
    Errors: shapes that do not broadcast; a number and a pointer.
    """


@call("Comparison", host=partial(host.compare, kind=CompareKind.GREATER_THAN))
def greater(a: Value, b: Value) -> Value:
    """Compare two values: `a > b`.

    - `a`, `b`: scalars or tensors of numbers, or both of pointers; numbers are promoted to one dtype first.

    Result: the broadcast shape, in i1. False with a NaN.
    Errors: shapes that do not broadcast; a number and a pointer.
    """


@call("Comparison", host=partial(host.compare, kind=CompareKind.GREATER_THAN_OR_EQUAL))
def greater_equal(a: Value, b: Value) -> Value:
    """Compare two values: `a >= b`.

    - `a`, `b`: scalars or tensors of numbers, or both of pointers; numbers are promoted to one dtype first.

    Result: the broadcast shape, in i1. False with a NaN.
    Errors: shapes that do not broadcast; a number and a pointer.
    """


@call("Comparison", host=host.where)
def where(condition: Value, x: Value, y: Value) -> Value:
    """The elements of `x` where the condition is true, of `y` elsewhere. Both are computed.

    - `condition`: i1, or numbers, which are true where they are not 0; a scalar or a tensor.
    - `x`, `y`: numbers, or pointers of one type. They alone are promoted.

    Result: the broadcast shape of all three, in the promoted dtype of `x` and `y`.
    Errors: a condition that is no number; shapes that do not broadcast.
    """
