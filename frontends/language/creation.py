"""New tensors. A tensor has a constant shape of powers of two, at most 2²⁰ elements in all."""

from __future__ import annotations

from ziggurat.frontends.language.kinds import ConstDtype, ConstInt, ConstShape, Value
from ziggurat.frontends.language.signature import call

__all__ = ["arange", "full", "zeros"]


@call("Creation")
def arange(start: ConstInt, end: ConstInt) -> Value:
    """The integers from `start` to `end` - 1.

    - `start`, `end`: their difference is a power of two; `start` itself may be any number.

    Result: a tensor of shape (end - start,), i32.
    Errors: a length that is not a power of two; a bound that does not fit in i32.
    """


@call("Creation")
def zeros(shape: ConstShape, dtype: ConstDtype) -> Value:
    """A tensor of zeros.

    - `shape`: a tuple of powers of two.
    - `dtype`: of the elements.

    Result: a tensor of this shape and dtype.
    """


@call("Creation")
def full(shape: ConstShape, value: Value, dtype: ConstDtype) -> Value:
    """A tensor whose every element is one value.

    - `shape`: a tuple of powers of two.
    - `value`: a scalar; it is cast to `dtype`.
    - `dtype`: of the elements.

    Result: a tensor of this shape and dtype.
    Errors: a `value` that is a tensor; a literal that does not fit an integer `dtype`.
    """
