"""`triton.language.standard`: the calls that Triton writes in its own language."""

# pyright: reportUnusedFunction=false

from __future__ import annotations

from typing import Any

from ziggurat.frontends.language.dtypes import get_int_dtype
from ziggurat.frontends.triton import language_calls as tl
from ziggurat.frontends.triton.compile_time import TritonFunction, constexpr_function
from ziggurat.frontends.triton.triton_library import SPELLED

_NAMES = (
    "argmax", "argmin", "bitonic_merge", "cdiv", "cumprod", "cumsum", "flip", "interleave", "max", "min", "ravel",
    "reduce_or", "sigmoid", "softmax", "sort", "sort_impl", "squeeze", "sum", "swizzle2d", "topk", "unsqueeze",
    "xor_sum", "zeros", "zeros_like",
)  # fmt: skip
globals().update({name: SPELLED[name] for name in _NAMES})


@constexpr_function
def _log2(i: int) -> int:
    """The logarithm of a power of 2. Programs import it for sorts of their own."""
    return (i or 1).bit_length() - 1


@constexpr_function
def _is_power_of_two(i: int) -> bool:
    """Whether a number is a power of 2."""
    return i > 0 and i & (i - 1) == 0


_get_int_dtype = constexpr_function(get_int_dtype)


# The functions by which Triton's reductions and scans combine elements. Programs give them to reductions of their own.


@TritonFunction
def _elementwise_max(a: Any, b: Any) -> Any:
    return tl.maximum(a, b)


@TritonFunction
def _elementwise_min(a: Any, b: Any) -> Any:
    return tl.minimum(a, b)


@TritonFunction
def _sum_combine(a: Any, b: Any) -> Any:
    return a + b


@TritonFunction
def _prod_combine(a: Any, b: Any) -> Any:
    return a * b


@TritonFunction
def _xor_combine(a: Any, b: Any) -> Any:
    return a ^ b


@TritonFunction
def _or_combine(x: Any, y: Any) -> Any:
    return x | y


@TritonFunction
def _first_or_second(first: Any, value1: Any, index1: Any, value2: Any, index2: Any, tie_break_left: Any) -> Any:
    if tie_break_left:
        first = first | ((value1 == value2) & (index1 < index2))
    return tl.where(first, value1, value2), tl.where(first, index1, index2)


@TritonFunction
def _argmax_combine_tie_break_left(value1: Any, index1: Any, value2: Any, index2: Any) -> Any:
    return _first_or_second(value1 > value2, value1, index1, value2, index2, True)


@TritonFunction
def _argmax_combine_tie_break_fast(value1: Any, index1: Any, value2: Any, index2: Any) -> Any:
    return _first_or_second(value1 > value2, value1, index1, value2, index2, False)


@TritonFunction
def _argmin_combine_tie_break_left(value1: Any, index1: Any, value2: Any, index2: Any) -> Any:
    return _first_or_second(value1 < value2, value1, index1, value2, index2, True)


@TritonFunction
def _argmin_combine_tie_break_fast(value1: Any, index1: Any, value2: Any, index2: Any) -> Any:
    return _first_or_second(value1 < value2, value1, index1, value2, index2, False)
