"""`triton.language.standard`: the calls that Triton writes in its own language."""

# pyright: reportUnusedFunction=false

from __future__ import annotations

from ziggurat.frontends.triton.compile_time import constexpr_function
from ziggurat.frontends.triton.dtypes import get_int_dtype
from ziggurat.frontends.triton.library import SPELLED

_NAMES = (
    "argmax", "argmin", "bitonic_merge", "cdiv", "cumprod", "cumsum", "flip", "interleave", "max", "min", "ravel",
    "reduce_or", "sigmoid", "softmax", "sort", "sum", "swizzle2d", "topk", "xor_sum", "zeros", "zeros_like",
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
