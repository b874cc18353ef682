"""Calls of integers and floats that are short compositions of other calls."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.types import f32, f64
from ziggurat.frontends.language.arithmetic import add, div, neg, sub
from ziggurat.frontends.language.conversion import cast
from ziggurat.frontends.language.function import constexpr
from ziggurat.frontends.language.math import exp
from ziggurat.frontends.language.reductions import max, sum
from ziggurat.frontends.language.signature import CALLS
from ziggurat.frontends.library.elementary import FLOATS
from ziggurat.frontends.reflection import function

cdiv = function(CALLS["cdiv"].__wrapped__)


@function
def sigmoid(x: Any) -> Any:
    """The result is computed in f32 or f64 and rounded once."""
    wide = cast(x, f64 if x.dtype == f64 else f32)
    return cast(div(1.0, add(1.0, exp(neg(wide)))), x.dtype if x.dtype in FLOATS else f32)


@function
def softmax(x: Any, dim: constexpr = 0) -> Any:
    """The largest element is subtracted first, so that no exponential overflows."""
    wide = cast(x, f64 if x.dtype == f64 else f32)
    powers = exp(sub(wide, max(wide, dim, keep_dims=True)))
    return cast(div(powers, sum(powers, dim, keep_dims=True)), x.dtype if x.dtype in FLOATS else f32)
