"""Conversions between dtypes. They are explicit; only promotion (see below) is implicit."""

from __future__ import annotations

from ziggurat.frontends.language import host
from ziggurat.frontends.language.kinds import ConstBool, ConstDtype, ConstStr, Value
from ziggurat.frontends.language.signature import call

__all__ = ["bitcast", "cast"]


@call("Conversion", host=host.cast)
def cast(
    x: Value, dtype: ConstDtype, fp_downcast_rounding: ConstStr | None = None, bitcast: ConstBool = False
) -> Value:
    """The value as another dtype.

    - `x`: a scalar or a tensor.
    - `dtype`: of the result. To i1: true where not zero. Float to integer: toward zero, undefined out of range. To a
      narrower integer: the low bits. To a wider integer: by the sign of the source. Pointers go to other pointers, and
      to and from i64.
    - `fp_downcast_rounding`: "rtne" (to nearest, ties to even; the default) or "rtz" (toward zero); only from a float
      to a narrower one.
    - `bitcast`: keep the bits instead of the value; the dtypes have one width.

    Result: the shape of `x`, in `dtype`; `x` itself where it has that dtype.
    Errors: a rounding where nothing is rounded; a bitcast between widths; a pointer to or from a float.
    """


@call("Conversion")
def bitcast(x: Value, dtype: ConstDtype) -> Value:
    """The bits of the value as another dtype of the same width: `cast(x, dtype, bitcast=True)`.

    - `x`: a scalar or a tensor.
    - `dtype`: as wide as that of `x`.

    Result: the shape of `x`, in `dtype`.
    Errors: dtypes of unequal width.
    """
