"""Conversions of numbers as IEEE 754 has them, over terms of z3's theory of floats.

8-bit floats saturate (PTX ISA, "cvt", `.satfinite`), floats that do not fit an integer become the nearest one, and NaN
becomes 0. A NaN is any of the type.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import z3
from llvm_numbers import NEAREST, TO_ZERO, saturated

from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.numbers import number_of_bits
from ziggurat.codemodel.types import ScalarType, f8e4m3, f8e5m2, f16, scalar_element


def sort_of(scalar: ScalarType) -> Any:
    """The sort that holds all numbers of a float type: itself, or f16."""
    layout = f16.format if scalar.is_fp8 else scalar.format
    return z3.FPSort(layout.exponent_bits, layout.precision)


def number_of(number: Any, scalar: ScalarType) -> Any:
    """A float of a type, which may be known by its bits."""
    if z3.is_fp(number):
        return number
    if not scalar.is_fp8:
        return z3.fpBVToFP(number, sort_of(scalar))
    return z3.substitute(_choice(scalar), (_CODE, number))


_CODE = z3.BitVec("code", 8)


@functools.cache
def _choice(scalar: ScalarType) -> Any:
    """The number with the bits `_CODE`."""
    choices = [z3.FPVal(number_of_bits(code, scalar), sort_of(scalar)) for code in range(256)]
    for place in range(8):
        holds = z3.Extract(place, place, _CODE) == 1
        choices = [z3.If(holds, b, a) for a, b in zip(choices[::2], choices[1::2], strict=True)]
    return choices[0]


def code_of(x: Any, scalar: ScalarType, rounding: Any = NEAREST) -> Any:
    """The bits of the 8-bit float that a float becomes.

    With one more bit in the exponent there is room above the largest number, and the numbers that were subnormal are
    normal. So numbers from 1 on are rounded there, and others with the exponent of the type.
    """
    layout = scalar.format
    wide = z3.FPSort(layout.exponent_bits + 1, layout.precision)
    narrow = z3.FPSort(layout.exponent_bits, layout.precision)
    size = z3.fpAbs(x)
    more = (1 << layout.exponent_bits - 1) << layout.mantissa_bits  # By which the wider exponent is biased.
    above_one = z3.fpToIEEEBV(z3.fpFPToFP(rounding, size, wide)) - more
    below_one = z3.ZeroExt(1, z3.fpToIEEEBV(z3.fpFPToFP(rounding, size, narrow)))
    code = z3.If(z3.fpLT(size, z3.FPVal(1.0, size.sort())), below_one, above_one)
    largest = layout.codes - 1
    sign = z3.If(z3.fpIsNegative(x), z3.BitVecVal(128, 8), z3.BitVecVal(0, 8))
    code = z3.Extract(7, 0, z3.If(z3.UGT(code, largest), z3.BitVecVal(largest, 9), code)) | sign
    return z3.If(z3.fpIsNaN(x), z3.BitVecVal(127, 8), code)


def rounded(x: Any, scalar: ScalarType, rounding: Any = NEAREST) -> Any:
    """A float as one of a type: the bits of those of 8 bits."""
    return code_of(x, scalar, rounding) if scalar.is_fp8 else z3.fpFPToFP(rounding, x, sort_of(scalar))


def of_integer(x: Any, scalar: ScalarType, *, signed: bool) -> Any:
    """An integer as a float of a type."""
    convert: Callable[..., Any] = z3.fpSignedToFP if signed else z3.fpUnsignedToFP
    if not scalar.is_fp8:
        return convert(NEAREST, x, sort_of(scalar))
    bits = x.size()
    if bits > 24:  # What is 2^20 or more in magnitude saturates.
        most, least = z3.BitVecVal(1 << 20, bits), z3.BitVecVal(-(1 << 20), bits)
        x = z3.If(x > most, most, z3.If(x < least, least, x)) if signed else z3.If(z3.UGT(x, most), most, x)
        x = z3.Extract(23, 0, x)
    return code_of(convert(NEAREST, x, z3.FPSort(8, 24)), scalar)


def alike(result: Any, meaning: Any, scalar: ScalarType) -> Any:
    """Whether two floats of a type are one; each may be known by its bits."""
    if not scalar.is_fp8:
        return number_of(result, scalar) == number_of(meaning, scalar)

    def is_nan(code: Any) -> Any:
        return z3.UGT(code & 127, scalar.format.codes) if scalar == f8e5m2 else code & 127 == 127

    return z3.Or(result == meaning, z3.And(is_nan(result), is_nan(meaning)))


def is_converted(op: arith.Cast, value: Any, result: Any) -> Any:
    """Whether a result is what a conversion means of a value."""
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    match op:
        case arith.ExtF() | arith.TruncF():
            toward_zero = isinstance(op, arith.TruncF) and op.rounding is arith.Rounding.ZERO
            return alike(result, rounded(number_of(value, source), target, TO_ZERO if toward_zero else NEAREST), target)
        case arith.SIToFP() | arith.UIToFP():
            return alike(result, of_integer(value, target, signed=isinstance(op, arith.SIToFP)), target)
        case arith.Bitcast():
            scalar, number, bits = (target, result, value) if target.is_float else (source, value, result)
            return alike(bits, number, scalar)
        case _:
            return result == saturated(number_of(value, source), target.bits, signed=target.signed)


# PTX instructions, by the text that the emitter writes (PTX ISA, "cvt" and "cvt.pack").


def _codes(*numbers: Any, scalar: ScalarType) -> Any:
    """Numbers as 8-bit floats, the first in the upper half."""
    return z3.Concat(*(code_of(x, scalar) for x in numbers))


def _halves(word: Any) -> list[Any]:
    return [z3.fpBVToFP(z3.Extract(low + 15, low, word), sort_of(f16)) for low in (16, 0)]


def _packed(signed: bool) -> Callable[[Any, Any, Any], Any]:
    least, most = (-128, 127) if signed else (0, 255)

    def saturated_byte(x: Any) -> Any:
        limited = z3.If(x < least, z3.BitVecVal(least, 32), z3.If(x > most, z3.BitVecVal(most, 32), x))
        return z3.Extract(7, 0, limited)

    return lambda a, b, c: z3.Concat(z3.Extract(15, 0, c), saturated_byte(a), saturated_byte(b))


def _cut(exponent: int, precision: int) -> Callable[[Any], Any]:
    return lambda x: z3.fpFPToFP(TO_ZERO, x, z3.FPSort(exponent, precision))


SMALL = f8e4m3, f8e5m2
INSTRUCTIONS: dict[str, Callable[..., Any]] = {
    **{f"cvt.rn.satfinite.{s.ptx}x2.f32 $0, $1, $2;": functools.partial(_codes, scalar=s) for s in SMALL},
    **{f"cvt.rn.satfinite.{s.ptx}x2.f16x2 $0, $1;": lambda word, s=s: _codes(*_halves(word), scalar=s) for s in SMALL},
    "cvt.rn.f16x2.e4m3x2 $0, $1;": lambda pair: z3.Concat(
        *(z3.fpToIEEEBV(number_of(z3.Extract(low + 7, low, pair), f8e4m3)) for low in (8, 0))
    ),
    "mov.b32 $0, {$1, $2};": lambda low, high: z3.Concat(high, low),
    "cvt.rz.f32.f64 $0, $1;": _cut(8, 24),
    "cvt.rz.f16.f32 $0, $1;": lambda x: z3.fpToIEEEBV(_cut(5, 11)(x)),
    "cvt.rz.f16.f64 $0, $1;": lambda x: z3.fpToIEEEBV(_cut(5, 11)(x)),
    "cvt.pack.sat.s8.s32.b32 $0, $1, $2, $3;": _packed(True),
    "cvt.pack.sat.u8.s32.b32 $0, $1, $2, $3;": _packed(False),
}
