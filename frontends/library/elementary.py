"""Calls of numbers that are written in the language, with ops that are exact or correctly rounded.

They give the same bits on every target, except `tan`, `sigmoid` and `softmax`, which use functions of the target. Their
arguments are f32 or f64: a call of other numbers converts them to f32, and rounds the result to the dtype of the
arguments. `docs/reference/accuracy.md` has the measured errors.

The polynomials interpolate the function at the Chebyshev points of the named interval; they were computed with 50
digits. Coefficients start with the highest power.
"""

from __future__ import annotations

from typing import Any, Final

from ziggurat.codemodel.types import f32, f64, i32, i64, u32, u64
from ziggurat.frontends import language as zg
from ziggurat.frontends.reflection import function

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
# (log(1 + m) - m) / m² as a polynomial in m, for 1 + m from √½ to √2, with the smallest maximum error (Remez).
LOG_TAIL_32: Final = (
    -0.0762181282043457, 0.12904442846775055, -0.1324297934770584, 0.14181824028491974, -0.16609083116054535,
    0.2000197321176529, -0.25001582503318787, 0.33333325386047363, -0.49999988079071045,
)  # fmt: skip
# (log((1 + s) / (1 - s)) - 2s) / s³ as a polynomial in s², for (1 + s) / (1 - s) between √½ and √2.
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
LN_2_OF_BITS: Final = 0.6931471805599453 * 2.0**-23  # ln 2 · k is this times k · 2^23, as `exponent_bits` has it.

# Adding this to a small number rounds it to an integer, which is then in the lowest bits of the sum.
ANCHOR_32: Final = 12582912.0
ANCHOR_64: Final = 6755399441055744.0
ANCHOR_BITS_32: Final = 0x4B400000
ANCHOR_BITS_64: Final = 0x4338000000000000


@function
def horner(x: Any, coefficients: zg.constexpr) -> Any:
    """The polynomial with these coefficients, the highest first."""
    total = zg.zeros(x.shape, x.dtype)
    for coefficient in coefficients:
        total = zg.fma(total, x, coefficient)
    return total


@function
def with_sign(size: Any, sign: Any) -> Any:
    """`size` with the sign of `sign`, of the same dtype."""
    bits = u64 if size.dtype == f64 else u32
    top = 1 << 63 if size.dtype == f64 else 1 << 31
    return zg.bitcast(
        zg.or_(zg.and_(zg.bitcast(size, bits), top - 1), zg.and_(zg.bitcast(sign, bits), top)), size.dtype
    )


# Rounding to an integer.


@function
def round(x: Any) -> Any:
    """The truncated sum of the number and a half with its sign. The half is the largest number below it, so that sums
    with numbers that are nearer to the lower whole number stay below the upper one."""
    half = 0.49999999999999994 if x.dtype == f64 else 0.4999999701976776
    return zg.trunc(zg.add(x, with_sign(zg.cast(half, x.dtype), x)))


# Classification of numbers.


@function
def isnan(x: Any) -> Any:
    """NaN is the only value that differs from itself."""
    return zg.not_equal(x, x)


@function
def isinf(x: Any) -> Any:
    """The absolute value is compared with infinity."""
    return zg.equal(zg.abs(x), INFINITY)


@function
def isfinite(x: Any) -> Any:
    """The absolute value is compared with infinity, which is false for NaN."""
    return zg.less(zg.abs(x), INFINITY)


# Angles.


@function
def tan(x: Any) -> Any:
    """The quotient of sine and cosine, whose relative errors are small near their zeros."""
    return zg.div_rn(zg.sin(x), zg.cos(x))


@function
def atan_unit(r: Any) -> Any:
    """The arctangent of a number from 0 to 1. Above tan(π/8) it is π/4 + atan((r - 1) / (r + 1))."""
    pi = PI_64 if r.dtype == f64 else PI_32
    far = zg.greater(r, 0.41421356237309503)
    t = zg.where(far, zg.div_rn(zg.sub(r, 1.0), zg.add(r, 1.0)), r)
    square = zg.mul(t, t)
    angle = zg.fma(zg.mul(t, square), horner(square, ATAN64 if r.dtype == f64 else ATAN32), t)
    return zg.where(far, zg.add(zg.add(angle, 0.25 * pi[1]), 0.25 * pi[0]), angle)


@function
def atan(x: Any) -> Any:
    """The arctangent of the absolute value, with the sign restored. Above 1 it is π/2 - atan(1 / x)."""
    pi = PI_64 if x.dtype == f64 else PI_32
    size = zg.abs(x)
    steep = zg.greater(size, 1.0)
    angle = atan_unit(zg.where(steep, zg.div_rn(1.0, size), size))
    result = zg.where(steep, zg.sub(0.5 * pi[0], zg.sub(angle, 0.5 * pi[1])), angle)
    return with_sign(result, x)


@function
def atan2(y: Any, x: Any) -> Any:
    """The arctangent of the smaller coordinate over the larger one, reflected into the octant of the point.

    The ratio of two infinities counts as 1.
    """
    pi = PI_64 if x.dtype == f64 else PI_32
    smaller, larger = zg.minimum(zg.abs(y), zg.abs(x)), zg.maximum(zg.abs(y), zg.abs(x))
    ratio = zg.where(zg.equal(larger, 0.0), 0.0, zg.div_rn(smaller, larger))
    ratio = zg.where(zg.equal(smaller, INFINITY), 1.0, ratio)
    angle = atan_unit(ratio)
    steep = zg.greater(zg.abs(y), zg.abs(x))
    angle = zg.where(steep, zg.sub(0.5 * pi[0], zg.sub(angle, 0.5 * pi[1])), angle)
    is_negative = zg.less(with_sign(zg.cast(1.0, x.dtype), x), 0.0)
    angle = zg.where(is_negative, zg.sub(pi[0], zg.sub(angle, pi[1])), angle)
    return zg.where(zg.or_(isnan(y), isnan(x)), NAN, with_sign(angle, y))


@function
def half_arcsine(near: Any) -> Any:
    """True above 1/2, and the arcsine of √((1 - |x|) / 2) there; up to 1/2 the arcsine of x. Both are a polynomial."""
    size = zg.abs(near)
    far = zg.greater(size, 0.5)
    square = zg.where(far, zg.mul(zg.sub(1.0, size), 0.5), zg.mul(size, size))
    sine = zg.where(far, zg.sqrt_rn(square), near)
    return far, zg.fma(zg.mul(sine, square), horner(square, ASIN64 if near.dtype == f64 else ASIN32), sine)


@function
def asin(x: Any) -> Any:
    """Above 1/2, asin x is π/2 - 2 asin √((1 - x) / 2)."""
    pi = PI_64 if x.dtype == f64 else PI_32
    far, angle = half_arcsine(zg.abs(x))
    result = zg.where(far, zg.sub(0.5 * pi[0], zg.sub(zg.mul(angle, 2.0), 0.5 * pi[1])), angle)
    return with_sign(result, x)


@function
def acos(x: Any) -> Any:
    """π/2 - asin x up to 1/2. Above, acos x is 2 asin √((1 - |x|) / 2), subtracted from π for a negative x."""
    pi = PI_64 if x.dtype == f64 else PI_32
    far, angle = half_arcsine(x)
    twice = zg.mul(angle, 2.0)
    there = zg.where(zg.less(x, 0.0), zg.sub(pi[0], zg.sub(twice, pi[1])), twice)
    return zg.where(far, there, zg.sub(0.5 * pi[0], zg.sub(angle, 0.5 * pi[1])))


# Powers and logarithms.


@function
def expm1(x: Any) -> Any:
    """With x = k · ln 2 + r, e^x - 1 is 2 · (2^(k-1) · (e^r - 1) + (2^(k-1) - 1/2)), a sum without cancellation."""
    double = x.dtype == f64
    ln_2 = LN_2_64 if double else LN_2_32
    least = zg.where(zg.less(x, -40.0), -40.0, x)
    most = 709.9 if double else 88.9
    clamped = zg.where(zg.greater(least, most), most, least)
    shifted = zg.fma(clamped, LOG2_E, ANCHOR_64 if double else ANCHOR_32)
    whole = zg.sub(shifted, ANCHOR_64 if double else ANCHOR_32)
    exponent = zg.sub(zg.bitcast(shifted, i64 if double else i32), ANCHOR_BITS_64 if double else ANCHOR_BITS_32)
    rest = zg.fma(zg.neg(whole), ln_2[1], zg.fma(zg.neg(whole), ln_2[0], clamped))
    grown = zg.fma(zg.mul(rest, rest), horner(rest, EXP64 if double else EXP32), rest)
    half_power = zg.bitcast(zg.shl(zg.add(exponent, 1022 if double else 126), 52 if double else 23), x.dtype)
    result = zg.mul(zg.fma(half_power, grown, zg.sub(half_power, 0.5)), 2.0)
    return zg.where(zg.less(zg.abs(x), 1e-30), x, result)


@function
def powers(size: Any) -> Any:
    """True below 20, with e^x - 1 and e^x there. From 20 on e^-x is negligible: False, e^(x/2) - 1 and e^(x/2).

    A product of two such powers does not overflow before sinh x and cosh x do.
    """
    near = zg.less(size, 20.0)
    grown = expm1(zg.where(near, size, zg.mul(size, 0.5)))
    return near, grown, zg.add(grown, 1.0)


@function
def sinh(x: Any) -> Any:
    """(m + m / (m + 1)) / 2 with m = e^x - 1; from 20 on (e^(x/2) / 2) · e^(x/2)."""
    near, grown, power = powers(zg.abs(x))
    small = zg.mul(zg.add(grown, zg.div_rn(grown, power)), 0.5)
    result = zg.where(near, small, zg.mul(zg.mul(power, 0.5), power))
    return with_sign(result, x)


@function
def cosh(x: Any) -> Any:
    """1 + (e^x - 1)² / 2e^x; from 20 on as `sinh`."""
    near, grown, power = powers(zg.abs(x))
    small = zg.add(zg.div_rn(zg.mul(grown, grown), zg.mul(power, 2.0)), 1.0)
    return zg.where(near, small, zg.mul(zg.mul(power, 0.5), power))


@function
def exponent_bits(x: Any) -> Any:
    """n · 2^23 for a positive normal f32 that is 2^n times a fraction from √½ to √2."""
    return zg.and_(zg.sub(zg.bitcast(x, i32), 0x3F3504F3), -(1 << 23))


@function
def log_near_1(above: Any) -> Any:
    """log(1 + m) of an f32, for 1 + m from √½ to √2."""
    return zg.fma(zg.mul(above, above), horner(above, LOG_TAIL_32), above)


@function
def with_log_limits(x: Any, result: Any) -> Any:
    """The logarithm of an f32, from that of positive finite numbers: -∞ for 0, NaN below it, and ∞ or NaN as they are.

    The bits of a negative number, an infinity or NaN are at least those of infinity, as an unsigned number. ∞ · x + ∞
    is the logarithm of these.
    """
    ordinary = zg.less(zg.bitcast(x, u32), 0x7F800000)
    result = zg.where(ordinary, result, zg.fma(x, INFINITY, INFINITY))
    return zg.where(zg.equal(x, 0.0), -INFINITY, result)


@function
def log1p(x: Any) -> Any:
    """With 1 + x = 2^k · (1 + m), the logarithm is k · ln 2 + log(1 + m)."""
    if x.dtype == f64:
        return log1p_64(x)
    total = zg.add(x, 1.0)
    shift = exponent_bits(total)
    # m is x · 2^-k + (2^-k - 1), of which only the sum is rounded. 2^-k may be subnormal, and 2^(2 - k) is not.
    scaled = zg.bitcast(zg.sub(zg.bitcast(x, i32), shift), f32)
    power = zg.bitcast(zg.sub(0x40800000, shift), f32)
    above = zg.add(scaled, zg.fma(power, 0.25, -1.0))
    result = zg.fma(zg.cast(shift, x.dtype), LN_2_OF_BITS, log_near_1(above))
    return with_sign(with_log_limits(total, result), x)


@function
def log1p_64(x: Any) -> Any:
    """With 1 + x = 2^k · (1 + f), the logarithm is k · ln 2 + log(1 + f), corrected by the rounding error of 1 + x.

    For k = 0 there is no such error, because f is x.
    """
    total = zg.add(x, 1.0)
    bits = zg.bitcast(total, i64)
    field = zg.sub(bits, 0x3FE6A09E667F3BCD)
    exponent = zg.shr(field, 52)
    fraction = zg.sub(zg.bitcast(zg.sub(bits, zg.shl(exponent, 52)), f64), 1.0)
    large = zg.greater_equal(x, 1.0)
    lost = zg.where(large, zg.sub(1.0, zg.sub(total, x)), zg.sub(x, zg.sub(total, 1.0)))
    is_whole = zg.equal(exponent, 0)
    fraction = zg.where(is_whole, x, fraction)
    lost = zg.where(is_whole, 0.0, zg.div_rn(lost, total))
    s = zg.div_rn(fraction, zg.add(fraction, 2.0))
    square = zg.mul(s, s)
    tail = zg.mul(square, horner(square, LOG64))
    half = zg.mul(zg.mul(fraction, fraction), 0.5)
    power = zg.cast(exponent, f64)
    small = zg.fma(s, zg.add(half, tail), zg.fma(power, LN_2_64[1], lost))
    result = zg.sub(zg.mul(power, LN_2_64[0]), zg.sub(zg.sub(half, small), fraction))
    result = zg.where(zg.equal(x, -1.0), -INFINITY, result)
    result = zg.where(zg.less(x, -1.0), NAN, result)
    result = zg.where(isfinite(x), result, zg.where(zg.less(x, 0.0), NAN, x))
    return zg.where(zg.less(zg.abs(x), 1e-30), x, result)


# Short compositions of other calls.

cdiv = function(zg.CALLS["cdiv"].__wrapped__)


@function
def sigmoid(x: Any) -> Any:
    """The result is computed in f32 or f64 and rounded once."""
    return zg.div(1.0, zg.add(1.0, zg.exp(zg.neg(x))))


@function
def softmax(
    x: Any,
    dim: zg.constexpr = None,
    keep_dims: zg.constexpr = False,
    ieee_rounding: zg.constexpr = False,
) -> Any:
    """The largest element is subtracted first, so that no exponential overflows."""
    axis = 0 if dim is None else dim
    powers = zg.exp(zg.sub(x, zg.max(x, axis, keep_dims=True)))
    return zg.fdiv(powers, zg.sum(powers, axis, keep_dims=True), ieee_rounding)


# Orders of programs.


@function
def swizzle2d(i: Any, j: Any, size_i: Any, size_j: Any, size_g: Any) -> Any:
    """The number of the element in row-major order, counted within a group of rows, gives its place there."""
    number = zg.add(zg.mul(i, size_j), j)
    group_size = zg.mul(size_g, size_j)
    first_row = zg.mul(zg.floordiv(number, group_size), size_g)
    rows = zg.minimum(zg.sub(size_i, first_row), size_g)
    inside = zg.mod(number, group_size)
    return zg.add(first_row, zg.mod(inside, rows)), zg.floordiv(inside, rows)
