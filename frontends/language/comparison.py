"""Comparing and choosing, element by element."""

from __future__ import annotations

import enum

from ziggurat.codemodel.declare import constant_enum
from ziggurat.frontends.language import host
from ziggurat.frontends.language.kinds import Value
from ziggurat.frontends.language.signature import call


@constant_enum
class CompareKind(enum.Enum):
    """How `compare` compares. The value is the name of Python's comparison in the Python code model."""

    EQUAL = "eq"
    NOT_EQUAL = "ne"
    LESS_THAN = "lt"
    LESS_THAN_OR_EQUAL = "le"
    GREATER_THAN = "gt"
    GREATER_THAN_OR_EQUAL = "ge"


ConstCompareKind = CompareKind


@call("Comparison", host=host.compare)
def compare(a: Value, b: Value, kind: ConstCompareKind) -> Value:
    """Compare two values.

    - `a`, `b`: scalars or tensors of numbers, or both of pointers; numbers are promoted to one dtype first.
    - `kind`: a member of `CompareKind`: EQUAL, NOT_EQUAL, LESS_THAN, LESS_THAN_OR_EQUAL, GREATER_THAN,
      GREATER_THAN_OR_EQUAL.

    Result: the broadcast shape, in i1. With a NaN only NOT_EQUAL is true.
    Errors: shapes that do not broadcast; a number and a pointer.
    """


@call("Comparison", host=host.where)
def where(condition: Value, x: Value, y: Value) -> Value:
    """The elements of `x` where the condition is true, of `y` elsewhere. Both are computed.

    - `condition`: i1; a scalar or a tensor.
    - `x`, `y`: numbers, or pointers of one type. They alone are promoted.

    Result: the broadcast shape of all three, in the promoted dtype of `x` and `y`.
    Errors: a condition that is not i1; shapes that do not broadcast.
    """
