"""Powers of floats, written in the language: C's `pow`, with its special cases.

|x|^y is 2^(y · log2 |x|). The logarithm and the product are sums of two floats, because an error of the exponent is one
of the result, times ln 2. All operations are exact or rounded correctly, so that the results are the same on every
target and in the interpreter.

The polynomials interpolate the function at the Chebyshev points of the named interval; they were computed with 60
digits. Coefficients start with the highest power.
"""

from __future__ import annotations

from typing import Any, Final

from ziggurat.codemodel.types import f64, i32, i64
from ziggurat.frontends import language as zg
from ziggurat.frontends.library.elementary import (
    ANCHOR_32,
    ANCHOR_64,
    ANCHOR_BITS_32,
    ANCHOR_BITS_64,
    INFINITY,
    NAN,
    horner,
)
from ziggurat.frontends.reflection import function

# ((log((1 + s) / (1 - s)) / 2s - 1) / s² - 1/3) / s² as a polynomial in s², for (1 + s) / (1 - s) between √½ and √2.
TAIL_32: Final = (0.11524926126003265, 0.14281100034713745, 0.2000000774860382)
TAIL_64: Final = (
    0.058628016300963384, 0.05853002125150056, 0.06667406684555924, 0.07692297401428141, 0.09090909168444268,
    0.11111111110824641, 0.14285714285714687, 0.2,
)  # fmt: skip
# (2^x - 1) / x for |x| < 1/2.
EXP2_32: Final = (
    0.0001545416162116453, 0.0013392016990110278, 0.009618080221116543, 0.05550355091691017, 0.24022650718688965,
    0.6931471824645996,
)  # fmt: skip
EXP2_64: Final = (
    2.5730348009234352e-11, 4.4560247551334643e-10, 7.054896722470352e-09, 1.0178055912546169e-07,
    1.3215486809848003e-06, 1.5252733843864855e-05, 0.00015403530393369832, 0.001333355814640465,
    0.00961812910762848, 0.05550410866482163, 0.24022650695910072, 0.6931471805599453,
)  # fmt: skip
# 1/3 and 2 / ln 2, each as a sum of two floats.
THIRD_32: Final = (0.3333333432674408, -9.934107758624577e-09)
THIRD_64: Final = (0.3333333333333333, 1.850371707708594e-17)
TWO_LOG2_E_32: Final = (2.885390043258667, 3.851926067000022e-08)
TWO_LOG2_E_64: Final = (2.8853900817779268, 4.0710547481862066e-17)


@function
def product(a: Any, a_low: Any, b: Any, b_low: Any) -> Any:
    """The product of two sums of two floats, as such a sum."""
    high = zg.mul(a, b)
    rest = zg.fma(a, b, zg.neg(high))
    return high, zg.add(rest, zg.fma(a, b_low, zg.mul(a_low, b)))


@function
def sum_of_ordered(a: Any, b: Any) -> Any:
    """The sum of two floats, the first not smaller in size or zero, and its rounding error (Dekker)."""
    high = zg.add(a, b)
    return high, zg.add(zg.sub(a, high), b)


@function
def exponent_and_fraction(x: Any) -> Any:
    """The exponent, an integer, and a fraction between √½ and √2 whose product with 2^exponent is a positive number."""
    double = x.dtype == f64
    whole = i64 if double else i32
    digits = 52 if double else 23
    small = zg.less(x, 2.2250738585072014e-308 if double else 1.1754943508222875e-38)
    bits = zg.bitcast(zg.where(small, zg.mul(x, 2.0**54 if double else 2.0**24), x), whole)
    exponent = zg.shr(zg.sub(bits, 0x3FE6A09E667F3BCD if double else 0x3F3504F3), digits)
    fraction = zg.bitcast(zg.sub(bits, zg.shl(exponent, digits)), x.dtype)
    return zg.sub(exponent, zg.where(small, zg.cast(54 if double else 24, whole), zg.cast(0, whole))), fraction


@function
def log2_parts(x: Any) -> Any:
    """The logarithm to the base 2 of a positive finite number, as a sum of two floats."""
    double = x.dtype == f64
    third = THIRD_64 if double else THIRD_32
    factor = TWO_LOG2_E_64 if double else TWO_LOG2_E_32
    exponent, fraction = exponent_and_fraction(x)
    above = zg.sub(fraction, 1.0)
    total = zg.add(fraction, 1.0)
    lost = zg.sub(fraction, zg.sub(total, 1.0))
    inverse = zg.div_rn(1.0, total)
    s = zg.mul(above, inverse)
    s_low = zg.mul(zg.sub(zg.fma(zg.neg(s), total, above), zg.mul(s, lost)), inverse)
    square, square_low = product(s, s_low, s, s_low)
    tail = zg.mul(square, horner(square, TAIL_64 if double else TAIL_32))
    series, series_low = sum_of_ordered(zg.cast(third[0], x.dtype), tail)
    series, series_low = product(square, square_low, series, zg.add(series_low, third[1]))
    cubic, cubic_low = product(s, s_low, series, series_low)
    half, half_low = sum_of_ordered(s, cubic)
    half_low = zg.add(half_low, zg.add(cubic_low, s_low))
    log, log_low = product(half, half_low, zg.cast(factor[0], x.dtype), zg.cast(factor[1], x.dtype))
    high, low = sum_of_ordered(zg.cast(exponent, x.dtype), log)
    return high, zg.add(low, log_low)


@function
def scaled(x: Any, exponent: Any) -> Any:
    """x · 2^exponent for a number near 1, in two steps, so that a subnormal result is rounded once.

    The exponent is an integer of the float's width, at most twice that of the largest number in size.
    """
    double = x.dtype == f64
    bias = 1023 if double else 127
    digits = 52 if double else 23
    half = zg.shr(exponent, 1)
    first = zg.bitcast(zg.shl(zg.add(half, bias), digits), x.dtype)
    second = zg.bitcast(zg.shl(zg.add(zg.sub(exponent, half), bias), digits), x.dtype)
    return zg.mul(zg.mul(x, first), second)


@function
def exp2_of_parts(high: Any, low: Any) -> Any:
    """2^(high + low), where `low` is a rounding error of `high`."""
    double = high.dtype == f64
    limit = 1100.0 if double else 200.0
    inside = zg.less(zg.abs(high), limit)
    argument = zg.clamp(high, -limit, limit)
    shifted = zg.add(argument, ANCHOR_64 if double else ANCHOR_32)
    whole = zg.sub(shifted, ANCHOR_64 if double else ANCHOR_32)
    exponent = zg.sub(zg.bitcast(shifted, i64 if double else i32), ANCHOR_BITS_64 if double else ANCHOR_BITS_32)
    rest = zg.add(zg.sub(argument, whole), zg.where(inside, low, 0.0))
    power = zg.fma(rest, horner(rest, EXP2_64 if double else EXP2_32), 1.0)
    return scaled(power, exponent)


@function
def power(x: Any, y: Any, y_low: Any, is_whole: Any, is_odd: Any) -> Any:
    """x^(y + y_low). `is_whole` and `is_odd` say what the exponent is if it is an integer."""
    size = zg.abs(x)
    ordinary = zg.and_(zg.greater(size, 0.0), zg.less(size, INFINITY))
    log, log_low = log2_parts(zg.where(ordinary, size, 1.0))
    high = zg.mul(y, log)
    low = zg.add(zg.fma(y, log, zg.neg(high)), zg.fma(y, log_low, zg.mul(y_low, log)))
    result = exp2_of_parts(high, low)
    grows = zg.xor(zg.equal(size, 0.0), zg.greater(y, 0.0))
    result = zg.where(ordinary, result, zg.where(grows, INFINITY, 0.0))
    below = zg.less(x, 0.0)
    result = zg.where(zg.and_(zg.and_(below, ordinary), zg.invert(is_whole)), NAN, result)
    negative = zg.and_(is_odd, zg.or_(below, zg.and_(zg.equal(size, 0.0), zg.less(zg.div_rn(1.0, x), 0.0))))
    result = zg.where(negative, zg.neg(result), result)
    result = zg.where(zg.and_(zg.equal(size, 1.0), zg.equal(zg.abs(y), INFINITY)), 1.0, result)
    result = zg.where(zg.or_(zg.not_equal(x, x), zg.not_equal(y, y)), NAN, result)
    return zg.where(zg.or_(zg.equal(y, 0.0), zg.equal(x, 1.0)), 1.0, result)


@function
def pow(x: Any, y: Any) -> Any:
    """Infinite and very large exponents count as even integers."""
    half = zg.mul(y, 0.5)
    is_whole = zg.equal(zg.floor(y), y)
    return power(x, y, 0.0, is_whole, zg.and_(is_whole, zg.not_equal(zg.floor(half), half)))


@function
def powi(x: Any, n: Any) -> Any:
    """The integer is a sum of two floats, so that it loses nothing where f32 does not have it."""
    wide = zg.cast(n, f64)
    y = zg.cast(wide, x.dtype)
    low = zg.cast(zg.sub(wide, zg.cast(y, f64)), x.dtype)
    return power(x, y, low, True, zg.not_equal(zg.and_(n, 1), 0))
