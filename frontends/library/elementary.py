"""Functions of floats that are written in the language, with ops that are exact or correctly rounded.

They give the same bits on every target, except `tan`, which depends on the target's sine and cosine. Types narrower
than f32 are computed in f32 and rounded. `docs/accuracy.md` has the measured errors.

The polynomials interpolate the function at the Chebyshev points of the named interval; they were computed with 50
digits. Coefficients start with the highest power.
"""

from __future__ import annotations

from typing import Any, Final

from ziggurat.codemodel.types import SCALARS, f32, f64, i32, i64, u32, u64
from ziggurat.frontends.language.arithmetic import (
    add,
    and_,
    div_rn,
    fma,
    maximum,
    minimum,
    mul,
    neg,
    or_,
    shl,
    shr,
    sub,
)
from ziggurat.frontends.language.comparison import CompareKind, compare, where
from ziggurat.frontends.language.conversion import bitcast, cast
from ziggurat.frontends.language.creation import zeros
from ziggurat.frontends.language.function import Function, constexpr
from ziggurat.frontends.language.math import abs, ceil, cos, floor, sin, sqrt_rn
from ziggurat.frontends.reflection import function

FLOATS: Final = tuple(scalar for scalar in SCALARS.values() if scalar.is_float)
INFINITY: Final = float("inf")
NAN: Final = float("nan")

# (atan t / t - 1) / t² as a polynomial in t², for |t| < tan(π/8).
ATAN32: Final = (
    -0.06450377404689789, 0.10743263363838196, -0.14263911545276642, 0.19999539852142334, -0.3333333134651184,
)  # fmt: skip
ATAN64: Final = (
    -0.013908703447288225, 0.030626287828475898, -0.04104029750501821, 0.04719294405473837, -0.052580257920073425,
    0.05881923626133301, -0.06666641908302051, 0.07692306730961795, -0.09090909066866446, 0.11111111110752325,
    -0.14285714285711498, 0.19999999999999993, -0.3333333333333333,
)  # fmt: skip
# (asin x / x - 1) / x² as a polynomial in x², for |x| < 1/2.
ASIN32: Final = (
    0.03370072692632675, 0.017143717035651207, 0.031101727858185768, 0.044599320739507675, 0.07500094920396805,
    0.1666666567325592,
)  # fmt: skip
ASIN64: Final = (
    0.030744526924322193, -0.024063914377949604, 0.022586112401573495, 0.0003664940923274747, 0.008799140451914983,
    0.008135014193193648, 0.009792863988301035, 0.011549075679439491, 0.013965010669331847, 0.017352757444179825,
    0.02237215928067093, 0.030381944441346388, 0.04464285714288356, 0.07499999999999991, 0.16666666666666666,
)  # fmt: skip
# (e^x - 1 - x) / x² as a polynomial in x, for |x| < ln(2)/2.
EXP32: Final = (0.0013926203828305006, 0.008363194763660431, 0.041666556149721146, 0.16666576266288757, 0.5)
EXP64: Final = (
    1.6086642574672407e-10, 2.09181596693241e-09, 2.505207105477011e-08, 2.7557263219790347e-07,
    2.755731924725567e-06, 2.480158733649766e-05, 0.00019841269841263285, 0.0013888888888879054,
    0.008333333333333333, 0.04166666666666668, 0.16666666666666666, 0.5,
)  # fmt: skip
# (log((1 + s) / (1 - s)) - 2s) / s³ as a polynomial in s², for (1 + s) / (1 - s) between √½ and √2.
LOG32: Final = (0.23330964148044586, 0.28550803661346436, 0.4000012278556824, 0.6666666865348816)
LOG64: Final = (
    0.11882627381096524, 0.1168805409426866, 0.13335641774000268, 0.15384575060560599, 0.1818181859457047,
    0.22222222219852464, 0.2857142857143538, 0.3999999999999999, 0.6666666666666666,
)  # fmt: skip

# π and ln 2, each as a sum of two floats. The first part of ln 2 ends in zeros, so that multiples of it are exact.
PI_32: Final = (3.1415927410125732, -8.742277657347586e-08)
PI_64: Final = (3.141592653589793, 1.2246467991473532e-16)
LN_2_32: Final = (0.693145751953125, 1.428606765330187e-06)
LN_2_64: Final = (0.6931471803691238, 1.9082149292705877e-10)
LOG2_E: Final = 1.4426950408889634

# Adding this to a small number rounds it to an integer, which is then in the lowest bits of the sum.
ANCHOR_32: Final = 12582912.0
ANCHOR_64: Final = 6755399441055744.0
ANCHOR_BITS_32: Final = 0x4B400000
ANCHOR_BITS_64: Final = 0x4338000000000000


@function
def real(x: Any) -> Any:
    """A number in the float type of the computation: f64, or f32 for everything else."""
    return cast(x, f64 if x.dtype == f64 else f32)


@function
def horner(x: Any, coefficients: constexpr) -> Any:
    """The polynomial with these coefficients, the highest first."""
    total = zeros(x.shape, x.dtype)
    for coefficient in coefficients:
        total = fma(total, x, coefficient)
    return total


@function
def with_sign(size: Any, sign: Any) -> Any:
    """`size` with the sign of `sign`, of the same dtype."""
    bits = u64 if size.dtype == f64 else u32
    top = 1 << 63 if size.dtype == f64 else 1 << 31
    return bitcast(or_(and_(bitcast(size, bits), top - 1), and_(bitcast(sign, bits), top)), size.dtype)


# Rounding to integers.


@function
def trunc(x: Any) -> Any:
    """The floor of a positive number, the ceiling of a negative one."""
    wide = real(x)
    whole = where(compare(wide, 0.0, CompareKind.LESS_THAN), ceil(wide), floor(wide))
    return cast(whole, x.dtype if x.dtype in FLOATS else f32)


@function
def round(x: Any) -> Any:
    """The truncated number, moved away from zero by 1 when the fraction is a half or more.

    x - trunc(x) is exact. For an infinity it is NaN, so the comparison is false.
    """
    wide = real(x)
    whole = trunc(wide)
    more = compare(abs(sub(wide, whole)), 0.5, CompareKind.GREATER_THAN_OR_EQUAL)
    rounded = where(more, add(whole, with_sign(cast(1.0, wide.dtype), wide)), whole)
    return cast(rounded, x.dtype if x.dtype in FLOATS else f32)


@function
def rint(x: Any) -> Any:
    """The floor, or the floor plus 1 when the fraction is above a half, or a half and the floor is odd."""
    wide = real(x)
    below = floor(wide)
    rest = sub(wide, below)
    half = mul(below, 0.5)
    is_odd = compare(floor(half), half, CompareKind.NOT_EQUAL)
    up = or_(compare(rest, 0.5, CompareKind.GREATER_THAN), and_(compare(rest, 0.5, CompareKind.EQUAL), is_odd))
    rounded = with_sign(where(up, add(below, 1.0), below), wide)
    return cast(rounded, x.dtype if x.dtype in FLOATS else f32)


# Classification of numbers.


@function
def isnan(x: Any) -> Any:
    """NaN is the only value that differs from itself."""
    return compare(real(x), real(x), CompareKind.NOT_EQUAL)


@function
def isinf(x: Any) -> Any:
    """The absolute value is compared with infinity."""
    return compare(abs(real(x)), INFINITY, CompareKind.EQUAL)


@function
def isfinite(x: Any) -> Any:
    """The absolute value is compared with infinity, which is false for NaN."""
    return compare(abs(real(x)), INFINITY, CompareKind.LESS_THAN)


# Angles.


@function
def tan(x: Any) -> Any:
    """The quotient of sine and cosine, whose relative errors are small near their zeros."""
    wide = real(x)
    return cast(div_rn(sin(wide), cos(wide)), x.dtype if x.dtype in FLOATS else f32)


@function
def atan_unit(r: Any) -> Any:
    """The arctangent of a number from 0 to 1. Above tan(π/8) it is π/4 + atan((r - 1) / (r + 1))."""
    pi = PI_64 if r.dtype == f64 else PI_32
    far = compare(r, 0.41421356237309503, CompareKind.GREATER_THAN)
    t = where(far, div_rn(sub(r, 1.0), add(r, 1.0)), r)
    square = mul(t, t)
    angle = fma(mul(t, square), horner(square, ATAN64 if r.dtype == f64 else ATAN32), t)
    return where(far, add(add(angle, 0.25 * pi[1]), 0.25 * pi[0]), angle)


@function
def atan(x: Any) -> Any:
    """The arctangent of the absolute value, with the sign restored. Above 1 it is π/2 - atan(1 / x)."""
    wide = real(x)
    pi = PI_64 if wide.dtype == f64 else PI_32
    size = abs(wide)
    steep = compare(size, 1.0, CompareKind.GREATER_THAN)
    angle = atan_unit(where(steep, div_rn(1.0, size), size))
    result = where(steep, sub(0.5 * pi[0], sub(angle, 0.5 * pi[1])), angle)
    return cast(with_sign(result, wide), x.dtype if x.dtype in FLOATS else f32)


@function
def atan2(y: Any, x: Any) -> Any:
    """The arctangent of the smaller coordinate over the larger one, reflected into the octant of the point.

    The ratio of two infinities counts as 1.
    """
    both = maximum(y, x)
    result_type = both.dtype if both.dtype in FLOATS else f32
    wide_type = f64 if result_type == f64 else f32
    pi = PI_64 if result_type == f64 else PI_32
    rise, run = cast(y, wide_type), cast(x, wide_type)
    smaller, larger = minimum(abs(rise), abs(run)), maximum(abs(rise), abs(run))
    ratio = where(compare(larger, 0.0, CompareKind.EQUAL), 0.0, div_rn(smaller, larger))
    ratio = where(compare(smaller, INFINITY, CompareKind.EQUAL), 1.0, ratio)
    angle = atan_unit(ratio)
    steep = compare(abs(rise), abs(run), CompareKind.GREATER_THAN)
    angle = where(steep, sub(0.5 * pi[0], sub(angle, 0.5 * pi[1])), angle)
    left = compare(with_sign(cast(1.0, wide_type), run), 0.0, CompareKind.LESS_THAN)
    angle = where(left, sub(pi[0], sub(angle, pi[1])), angle)
    result = where(or_(isnan(rise), isnan(run)), NAN, with_sign(angle, rise))
    return cast(result, result_type)


@function
def asin(x: Any) -> Any:
    """The polynomial up to 1/2. Above, asin x is π/2 - 2 asin √((1 - x) / 2)."""
    wide = real(x)
    pi = PI_64 if wide.dtype == f64 else PI_32
    size = abs(wide)
    far = compare(size, 0.5, CompareKind.GREATER_THAN)
    square = where(far, mul(sub(1.0, size), 0.5), mul(size, size))
    sine = where(far, sqrt_rn(square), size)
    angle = fma(mul(sine, square), horner(square, ASIN64 if wide.dtype == f64 else ASIN32), sine)
    result = where(far, sub(0.5 * pi[0], sub(mul(angle, 2.0), 0.5 * pi[1])), angle)
    return cast(with_sign(result, wide), x.dtype if x.dtype in FLOATS else f32)


@function
def acos(x: Any) -> Any:
    """π/2 - asin x up to 1/2. Above, acos x is 2 asin √((1 - |x|) / 2), subtracted from π for a negative x."""
    wide = real(x)
    pi = PI_64 if wide.dtype == f64 else PI_32
    size = abs(wide)
    far = compare(size, 0.5, CompareKind.GREATER_THAN)
    square = where(far, mul(sub(1.0, size), 0.5), mul(size, size))
    sine = where(far, sqrt_rn(square), wide)
    angle = fma(mul(sine, square), horner(square, ASIN64 if wide.dtype == f64 else ASIN32), sine)
    twice = mul(angle, 2.0)
    there = where(compare(wide, 0.0, CompareKind.LESS_THAN), sub(pi[0], sub(twice, pi[1])), twice)
    result = where(far, there, sub(0.5 * pi[0], sub(angle, 0.5 * pi[1])))
    return cast(result, x.dtype if x.dtype in FLOATS else f32)


# Powers and logarithms.


@function
def expm1(x: Any) -> Any:
    """With x = k · ln 2 + r, e^x - 1 is 2 · (2^(k-1) · (e^r - 1) + (2^(k-1) - 1/2)), a sum without cancellation."""
    wide = real(x)
    double = wide.dtype == f64
    ln_2 = LN_2_64 if double else LN_2_32
    least = where(compare(wide, -40.0, CompareKind.LESS_THAN), -40.0, wide)
    most = 709.9 if double else 88.9
    given = where(compare(least, most, CompareKind.GREATER_THAN), most, least)
    shifted = fma(given, LOG2_E, ANCHOR_64 if double else ANCHOR_32)
    whole = sub(shifted, ANCHOR_64 if double else ANCHOR_32)
    exponent = sub(bitcast(shifted, i64 if double else i32), ANCHOR_BITS_64 if double else ANCHOR_BITS_32)
    rest = fma(neg(whole), ln_2[1], fma(neg(whole), ln_2[0], given))
    grown = fma(mul(rest, rest), horner(rest, EXP64 if double else EXP32), rest)
    half_power = bitcast(shl(add(exponent, 1022 if double else 126), 52 if double else 23), wide.dtype)
    result = mul(fma(half_power, grown, sub(half_power, 0.5)), 2.0)
    result = where(compare(abs(wide), 1e-30, CompareKind.LESS_THAN), wide, result)
    return cast(result, x.dtype if x.dtype in FLOATS else f32)


@function
def sinh(x: Any) -> Any:
    """(m + m / (m + 1)) / 2 with m = e^x - 1. From 20 on, e^-x is negligible, and sinh x is (e^(x/2) / 2) · e^(x/2),
    which does not overflow before sinh x does."""
    wide = real(x)
    size = abs(wide)
    near = compare(size, 20.0, CompareKind.LESS_THAN)
    grown = expm1(where(near, size, mul(size, 0.5)))
    power = add(grown, 1.0)
    result = where(near, mul(add(grown, div_rn(grown, power)), 0.5), mul(mul(power, 0.5), power))
    return cast(with_sign(result, wide), x.dtype if x.dtype in FLOATS else f32)


@function
def cosh(x: Any) -> Any:
    """1 + (e^x - 1)² / 2e^x. From 20 on it is computed as `sinh` is."""
    wide = real(x)
    size = abs(wide)
    near = compare(size, 20.0, CompareKind.LESS_THAN)
    grown = expm1(where(near, size, mul(size, 0.5)))
    power = add(grown, 1.0)
    result = where(near, add(div_rn(mul(grown, grown), mul(power, 2.0)), 1.0), mul(mul(power, 0.5), power))
    return cast(result, x.dtype if x.dtype in FLOATS else f32)


@function
def log1p(x: Any) -> Any:
    """With 1 + x = 2^k · (1 + f), the logarithm is k · ln 2 + log(1 + f), corrected by the rounding error of 1 + x.

    For k = 0 there is no such error, because f is x.
    """
    wide = real(x)
    double = wide.dtype == f64
    ln_2 = LN_2_64 if double else LN_2_32
    total = add(wide, 1.0)
    bits = bitcast(total, i64 if double else i32)
    field = sub(bits, 0x3FE6A09E667F3BCD if double else 0x3F3504F3)
    digits = 52 if double else 23
    exponent = shr(field, digits)
    fraction = sub(bitcast(sub(bits, shl(exponent, digits)), wide.dtype), 1.0)
    large = compare(wide, 1.0, CompareKind.GREATER_THAN_OR_EQUAL)
    lost = where(large, sub(1.0, sub(total, wide)), sub(wide, sub(total, 1.0)))
    is_whole = compare(exponent, 0, CompareKind.EQUAL)
    fraction = where(is_whole, wide, fraction)
    lost = where(is_whole, 0.0, div_rn(lost, total))
    s = div_rn(fraction, add(fraction, 2.0))
    square = mul(s, s)
    tail = mul(square, horner(square, LOG64 if double else LOG32))
    half = mul(mul(fraction, fraction), 0.5)
    power = cast(exponent, wide.dtype)
    small = fma(s, add(half, tail), fma(power, ln_2[1], lost))
    result = sub(mul(power, ln_2[0]), sub(sub(half, small), fraction))
    result = where(compare(wide, -1.0, CompareKind.EQUAL), -INFINITY, result)
    result = where(compare(wide, -1.0, CompareKind.LESS_THAN), NAN, result)
    result = where(isfinite(wide), result, where(compare(wide, 0.0, CompareKind.LESS_THAN), NAN, wide))
    result = where(compare(abs(wide), 1e-30, CompareKind.LESS_THAN), wide, result)
    return cast(result, x.dtype if x.dtype in FLOATS else f32)


ELEMENTARY: Final[dict[str, Function]] = {
    made.name: made
    for made in (
        trunc, round, rint, isnan, isinf, isfinite, tan, atan, atan2, asin, acos, expm1, sinh, cosh, log1p,
    )
}  # fmt: skip
