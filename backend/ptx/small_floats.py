"""8-bit floats by integer arithmetic, for targets and roundings without an instruction; and rounding to odd.

Each conversion is a routine of the module, in plain LLVM.
"""

from __future__ import annotations

from functools import cache

from ziggurat.backend.ptx.routines import Routine
from ziggurat.codemodel.dialects.arith import Rounding
from ziggurat.codemodel.numbers import bits_of_number
from ziggurat.codemodel.types import ScalarType

ZERO = "0x0000000000000000"


@cache
def widen_e4m3() -> Routine:
    """An f8e4m3 as f16.

    Moving the fields to their places in an f16 gives 1/256 of the number, for subnormals as well.
    """
    r = Routine("zg.f8e4m3.to.f16", "half", ["i8"])
    wide = r.argument().to("zext", "i16")
    magnitude = wide & 127
    sign = (wide & 128) << 8
    fields = magnitude << 7 | sign
    number = fields.to("bitcast", "half") * 256.0
    return r.done(magnitude.test("eq", 127).select(number.like(float("nan")), number))


@cache
def narrow(target: ScalarType, rounding: Rounding) -> Routine:
    """An f32 as an 8-bit float, saturating.

    The bits of normal numbers are shifted into place and rounded as an integer, so that a carry reaches the exponent.
    Below the smallest normal number, the last place has a fixed weight.
    """
    digits, bias, nan = target.format.mantissa_bits, target.format.bias, 0x7F
    largest = bits_of_number(target.format.largest, target)
    shift = 23 - digits
    smallest = 127 - bias + 1  # The exponent field, in an f32, of the smallest normal number.
    r = Routine(f"zg.f32.to.{target.name}.{rounding.value}", "i8", ["float"])
    bits = r.argument().bits()
    magnitude = bits & 0x7FFFFFFF
    number = magnitude.to("bitcast", "float")
    sign = bits >> 24 & 128
    if rounding is Rounding.NEAREST:
        last = magnitude >> shift & 1
        normal = magnitude + ((1 << shift - 1) - 1) + last
        # Adding a number whose last place has the weight of this float's rounds the sum there.
        anchor = smallest - digits + 23
        low = (number + 2.0 ** (anchor - 127)).bits() - (anchor << 23)
    else:
        normal = magnitude
        scaled = number * 2.0 ** (127 + digits - smallest)
        low = magnitude.test("ult", smallest << 23).select(scaled, 0.0).to("fptoui", "i32")
    normal = (normal >> shift) - ((smallest - 1) << digits)
    code = magnitude.test("ult", smallest << 23).select(low, normal)
    code = code.test("ugt", largest).select(largest, code)
    code = magnitude.test("ugt", 0x7F800000).select(nan, code)
    return r.done((code | sign).to("trunc", "i8"))


@cache
def to_odd() -> Routine:
    """An f64 as f32 such that rounding the result to fewer digits gives what rounding the f64 would.

    A number that f32 lacks becomes its neighbour with an odd last bit (Boldo and Melquiond, 2008).
    """
    r = Routine("zg.f64.to.odd", "float", ["double"])
    x = r.argument()
    near = x.to("fptrunc", "float")
    back = near.to("fpext", "double")
    bits = near.bits()
    size = abs(x)
    step = abs(back).test("ogt", size).to("sext", "i32")
    odd = bits + step | 1
    finite = size.test("olt", float("inf"))
    inexact = back.test("one", x)
    return r.done((finite & inexact).select(odd, bits).to("bitcast", "float"))
