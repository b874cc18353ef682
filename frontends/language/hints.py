"""Facts about values that the compiler cannot infer. A hint that is false makes the program undefined."""

from __future__ import annotations

from ziggurat.frontends.language import host
from ziggurat.frontends.language.kinds import ConstInts, Value
from ziggurat.frontends.language.signature import call

__all__ = ["assume", "max_constancy", "max_contiguous", "multiple_of"]


@call("Hints", host=host.hint)
def multiple_of(x: Value, values: ConstInts) -> Value:
    """State that the first element of each run of consecutive elements is divisible by a number.

    - `x`: a scalar or a tensor of integers or pointers (whose addresses in bytes are meant).
    - `values`: a power of two for each axis; one number for a scalar or a single axis.

    Result: `x`.
    Errors: another number of values than axes.
    """


@call("Hints", host=host.hint)
def max_contiguous(x: Value, values: ConstInts) -> Value:
    """State that the elements come in runs of consecutive numbers.

    - `x`: a scalar or a tensor of integers or pointers.
    - `values`: the length of the runs along each axis; one number for a scalar or a single axis.

    Result: `x`.
    Errors: another number of values than axes.
    """


@call("Hints", host=host.hint)
def max_constancy(x: Value, values: ConstInts) -> Value:
    """State that the elements come in runs of equal numbers.

    - `x`: a scalar or a tensor.
    - `values`: the length of the runs along each axis; one number for a scalar or a single axis.

    Result: `x`.
    Errors: another number of values than axes.
    """


@call("Hints", host=host.assume)
def assume(cond: Value) -> None:
    """State that a condition holds; the compiler may rely on it.

    - `cond`: an i1 scalar.

    Result: none.
    Errors: a tensor.
    """
