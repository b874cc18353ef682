"""Conversions between f16 and f32 for processors of x86-64 without F16C, as LLVM text.

There, LLVM calls functions of the compiler's own library, which Python's process does not have.
"""

from __future__ import annotations

from ziggurat.backend.llvm.functions import Function, define, module
from ziggurat.backend.llvm.routines import Number

_INFINITY_16, _NAN_16, _NORMAL_16 = 0x7C00, 0x7E00, 0x0400  # Bits of f16: ∞, a NaN, and the least normal number.
_SIGN_16 = 0x8000
_INFINITY, _BEYOND_16, _LEAST_16, _HALF = 0x7F800000, 0x47800000, 0x38800000, 0x3F000000  # Of f32: ∞, 2^16, 2^-14, 1/2.
_REBIAS = 0x38000000  # The difference of the exponents' biases, among the bits of an f32.


@define("float", "half", symbol="__extendhfsf2", linkage="weak", attributes="nounwind")
def _extended(f: Function, x: Number) -> None:
    bits = x.bits().to("zext", "i32")
    magnitude, sign = bits & _SIGN_16 - 1, (bits & _SIGN_16) << 16
    bias = magnitude.test("uge", _INFINITY_16).select(2 * _REBIAS, _REBIAS, "i32")
    subnormal = (magnitude.to("uitofp", "float") * 2.0**-24).bits()
    result = magnitude.test("ult", _NORMAL_16).select(subnormal, (magnitude << 13) + bias)
    f.give((result | sign).to("bitcast", "float"))


@define("half", "float", symbol="__truncsfhf2", linkage="weak", attributes="nounwind")
def _truncated(f: Function, x: Number) -> None:
    bits = x.bits()
    magnitude, sign = bits & (1 << 31) - 1, bits >> 16 & _SIGN_16
    # Rounded to nearest, ties to even: by adding half of the last bit, less one unless that bit is odd.
    normal = magnitude - (_REBIAS - 0xFFF) + (magnitude >> 13 & 1) >> 13
    subnormal = (magnitude.to("bitcast", "float") + 0.5).bits() - _HALF
    finite = magnitude.test("ult", _LEAST_16).select(subnormal, normal)
    bounded = magnitude.test("uge", _BEYOND_16).select(_INFINITY_16, finite)
    result = magnitude.test("ugt", _INFINITY).select(_NAN_16, bounded) | sign
    f.give(result.to("trunc", "i16").to("bitcast", "half"))


def text() -> str:
    """The LLVM text of the conversions."""
    return module([_extended, _truncated], {})
