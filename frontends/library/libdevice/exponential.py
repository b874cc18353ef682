"""Powers, logarithms, circular and hyperbolic functions, roots and norms.

Logarithms and powers of two of f64 are sums of two floats (`powers`), so that factors such as log2 10 lose nothing.
Those of f32 are as short as CUDA's: compilers of models call them for each softmax.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ziggurat.codemodel.types import f32, f64, i32
from ziggurat.frontends import language as zg
from ziggurat.frontends.library.elementary import (
    ANCHOR_32,
    INFINITY,
    LN_2_OF_BITS,
    NAN,
    PI_32,
    PI_64,
    exponent_bits,
    horner,
    log_near_1,
    with_log_limits,
    with_sign,
)
from ziggurat.frontends.library.libdevice.table import add_function, helper, libdevice
from ziggurat.frontends.library.powers import exp2_of_parts, log2_parts, powi, product

# As sums of two floats, or as one.
LOG2_E_32 = (1.4426950216293335, 1.925963033500011e-08)
LOG2_E_64 = (1.4426950408889634, 2.0355273740931033e-17)
LOG2_10_32 = (3.321928024291992, 7.059536955011936e-08)
LOG2_10_64 = (3.321928094887362, 1.661617516973592e-16)
LN_2_32 = 0.6931471824645996
LOG10_2_32 = 0.3010300099849701
LOG10_E_32 = (0.4342944920063019, -1.0103049952192578e-08)
LOG10_2_64 = (0.3010299956639812, -2.8037281277851704e-18)
LN_2_PARTS_64 = (0.6931471805599453, 2.3190468138462996e-17)
THIRD_32 = (0.3333333432674408, -9.934107758624577e-09)
THIRD_64 = (0.3333333333333333, 1.850371707708594e-17)
ONE = (1.0, 0.0)
# The integer that this adds to is in the lowest bits of the sum, with the bias of exponents less the smallest of them.
LOWEST_ANCHOR = ANCHOR_32 + 1
EXPONENTS = 253.0  # From the smallest exponent of a normal number, -126, to the largest, 127.
# log2(1 + m) / m - 1 as a polynomial in m, for 1 + m from √½ to √2, with the smallest maximum error (Remez).
LOG2_TAIL_32 = (
    -0.10995026677846909, 0.18617530167102814, -0.19106264412403107, 0.20460057258605957, -0.23961740732192993,
    0.2885674238204956, -0.3606966435909271, 0.4808982312679291, -0.7213473320007324, 0.4426950514316559,
)  # fmt: skip
# A number plus this is rounded to its floor, but for numbers less than 2^-10 below an integer.
TO_FLOOR = 2.0**-10 - 0.5


@helper
def exponential(x: Any, factors: zg.constexpr) -> Any:
    """2^(x · factor), by the factors for f32 and f64."""
    if x.dtype != f64:
        return zg.exp2(x) if factors[0] == ONE else short_exponential(x, factors[0])
    argument, factor = zg.clamp(x, -2000.0, 2000.0), factors[1]
    high, low = product(argument, zg.cast(0.0, f64), zg.cast(factor[0], f64), zg.cast(factor[1], f64))
    return zg.where(zg.isnan(x), NAN, exp2_of_parts(high, low))


@helper
def short_exponential(x: Any, factor: zg.constexpr) -> Any:
    """2^n · 2^rest for n, the floor of the exponent x · factor, or the nearest of -126 to 127. The second power is the
    machine's, from 1 to 2 as in CUDA's. For other exponents the product is subnormal, or infinite.

    The place of n in the range of exponents is a number from 0 to 1, to which the machine limits a sum at no cost.
    """
    place = zg.fma(x, factor[0] / EXPONENTS, (126.0 + TO_FLOOR) / EXPONENTS)
    shifted = zg.fma(zg.minimum(zg.maximum(place, 0.0), 1.0), EXPONENTS, LOWEST_ANCHOR)
    rest = zg.fma(x, factor[1], zg.fma(x, factor[0], zg.sub(LOWEST_ANCHOR + 126.0, shifted)))
    return zg.mul(zg.exp2(rest), zg.bitcast(zg.shl(zg.bitcast(shifted, i32), 23), f32))


@helper
def logarithm(x: Any, factors: zg.constexpr) -> Any:
    """The logarithm to a base, by the base for f32, and the logarithm of 2 to it for f64."""
    if x.dtype != f64:
        return short_logarithm(x, factors[0])
    ordinary = zg.and_(zg.greater(x, 0.0), zg.less(x, INFINITY))
    log, log_low = log2_parts(zg.where(ordinary, x, 1.0))
    high, low = product(log, log_low, zg.cast(factors[1][0], f64), zg.cast(factors[1][1], f64))
    result = zg.where(zg.equal(x, 0.0), -INFINITY, zg.where(zg.greater(x, 0.0), x, NAN))
    return zg.where(ordinary, zg.add(high, low), result)


@helper
def short_logarithm(x: Any, base: zg.constexpr) -> Any:
    """The logarithm of an f32, 2^n times a fraction from √½ to √2."""
    small = zg.less(x, 1.1754943508222875e-38)
    normal = zg.where(small, zg.mul(x, 2.0**23), x)
    shift = exponent_bits(normal)
    above = zg.sub(zg.bitcast(zg.sub(zg.bitcast(normal, i32), shift), f32), 1.0)
    shift = zg.cast(zg.where(small, zg.sub(shift, 23 << 23), shift), f32)
    if base == 2:
        result = zg.fma(shift, 2.0**-23, zg.fma(above, horner(above, LOG2_TAIL_32), above))
    else:
        result = zg.fma(shift, LN_2_OF_BITS, log_near_1(above))
        if base == 10:
            result = zg.fma(result, LOG10_E_32[0], zg.mul(result, LOG10_E_32[1]))
    return with_log_limits(x, result)


def _with_factors(of: Callable[..., Any], factors: Any) -> Callable[..., Any]:
    """A power or a logarithm to a base, by factors for it."""

    def function(x: Any) -> Any:
        return of(x, factors)

    return function


for _base, _power, _log in (
    ("", (LOG2_E_32, LOG2_E_64), (0, LN_2_PARTS_64)),
    ("2", (ONE, ONE), (2, ONE)),
    ("10", (LOG2_10_32, LOG2_10_64), (10, LOG10_2_64)),
):
    add_function(f"exp{_base}", _with_factors(exponential, _power))
    add_function(f"log{_base}", _with_factors(logarithm, _log))


@libdevice
def pow_(x: Any, y: Any) -> Any:
    """x^y; an integer exponent is taken exactly."""
    return zg.pow(x, y) if y.dtype.is_float or x.dtype.bits < 32 else powi(x, y)


# Angles.


@libdevice
def atan2(y: Any, x: Any) -> Any:
    """The angle of the point (x, y)."""
    return zg.atan2(y, x)


@helper
def half_turns(x: Any) -> Any:
    """The quarter turn nearest to x half turns, modulo 4, and the rest as an angle and its rounding error."""
    pi = PI_64 if x.dtype == f64 else PI_32
    turns = zg.sub(x, zg.mul(zg.floor(zg.mul(x, 0.5)), 2.0))
    quarters = zg.rint(zg.mul(turns, 2.0))
    rest = zg.sub(turns, zg.mul(quarters, 0.5))
    angle, low = product(rest, zg.cast(0.0, x.dtype), zg.cast(pi[0], x.dtype), zg.cast(pi[1], x.dtype))
    return quarters, angle, low


@helper
def of_quarter(quarters: Any, angle: Any, low: Any) -> Any:
    """The sine of an angle and so many quarter turns, 0 to 4."""
    sine, cosine = zg.sin(angle), zg.cos(angle)
    sine, cosine = zg.fma(low, cosine, sine), zg.fma(zg.neg(low), sine, cosine)
    odd = zg.or_(zg.equal(quarters, 1.0), zg.equal(quarters, 3.0))
    result = zg.where(odd, cosine, sine)
    negative = zg.or_(zg.equal(quarters, 2.0), zg.equal(quarters, 3.0))
    return zg.where(negative, zg.neg(result), result)


@libdevice
def sinpi(x: Any) -> Any:
    """The sine of π · x. That of a whole number is a zero with the sign of the number."""
    size = zg.abs(x)
    quarters, angle, low = half_turns(size)
    result = of_quarter(quarters, angle, low)
    whole = zg.equal(zg.floor(x), x)
    result = zg.where(zg.less(x, 0.0), zg.neg(result), result)
    result = zg.where(whole, with_sign(zg.cast(0.0, x.dtype), x), result)
    return zg.where(zg.isfinite(x), result, NAN)


@libdevice
def cospi(x: Any) -> Any:
    """The cosine of π · x: the sine a quarter turn on."""
    quarters, angle, low = half_turns(zg.abs(x))
    quarters = zg.where(zg.equal(quarters, 4.0), 1.0, zg.add(quarters, 1.0))
    result = of_quarter(zg.where(zg.equal(quarters, 4.0), 0.0, quarters), angle, low)
    return zg.where(zg.isfinite(x), zg.add(result, 0.0), NAN)


# Hyperbolic functions.


@libdevice
def asinh(x: Any) -> Any:
    """log1p(x + x² / (1 + √(x² + 1))); log x + log 2 where the square would overflow."""
    ln_2 = 0.6931471805599453
    size = zg.abs(x)
    large = zg.greater(size, 1e17 if x.dtype == f64 else 1e9)
    near = zg.where(large, 1.0, size)
    square = zg.mul(near, near)
    small = zg.add(near, zg.div(square, zg.add(zg.sqrt(zg.add(square, 1.0)), 1.0)))
    result = zg.log1p(zg.where(large, size, small))
    return with_sign(zg.add(result, zg.where(large, ln_2, zg.cast(0.0, x.dtype))), x)


@libdevice
def acosh(x: Any) -> Any:
    """log1p(t + √(2t + t²)) with t = x - 1; log x + log 2 where the square would overflow."""
    ln_2 = 0.6931471805599453
    large = zg.greater(x, 1e17 if x.dtype == f64 else 1e9)
    t = zg.sub(zg.where(large, 2.0, x), 1.0)
    small = zg.add(t, zg.sqrt(zg.fma(t, t, zg.mul(t, 2.0))))
    result = zg.log1p(zg.where(large, x, small))
    return zg.where(zg.less(x, 1.0), NAN, zg.add(result, zg.where(large, ln_2, zg.cast(0.0, x.dtype))))


@libdevice
def atanh(x: Any) -> Any:
    """log1p(2x / (1 - x)) / 2."""
    size = zg.abs(x)
    result = zg.mul(zg.log1p(zg.div(zg.mul(size, 2.0), zg.sub(1.0, size))), 0.5)
    result = zg.where(zg.greater(size, 1.0), NAN, zg.where(zg.equal(size, 1.0), INFINITY, result))
    return with_sign(result, x)


# Roots and norms.


@helper
def root(x: Any, sign: zg.constexpr) -> Any:
    """The power of a number's size with the exponent 1/3 or -1/3, with the sign of the number."""
    third = THIRD_64 if x.dtype == f64 else THIRD_32
    size = zg.abs(x)
    ordinary = zg.and_(zg.greater(size, 0.0), zg.less(size, INFINITY))
    log, log_low = log2_parts(zg.where(ordinary, size, 1.0))
    high, low = product(log, log_low, zg.cast(sign * third[0], x.dtype), zg.cast(sign * third[1], x.dtype))
    special = zg.mul(size, size) if sign > 0 else zg.div_rn(1.0, size)
    return with_sign(zg.where(ordinary, exp2_of_parts(high, low), special), x)


@libdevice
def cbrt(x: Any) -> Any:
    """The cubic root."""
    return root(x, 1.0)


@libdevice
def rcbrt(x: Any) -> Any:
    """1 over the cubic root."""
    return root(x, -1.0)


@helper
def scale_of(size: Any) -> Any:
    """A power of two that brings the largest coordinate near 1, or 1 where its square is an ordinary number."""
    down = zg.where(zg.greater(size, 1e150), 2.0**-600, zg.cast(1.0, f64))
    return zg.where(zg.less(size, 1e-140), 2.0**600, down)


@helper
def norm(a: Any, b: Any, c: Any, d: Any, inverse: zg.constexpr) -> Any:
    """The root of the sum of four squares in f64, or 1 over it. Infinite where a coordinate is."""
    size = zg.maximum(zg.maximum(zg.abs(a), zg.abs(b)), zg.maximum(zg.abs(c), zg.abs(d)))
    scale = scale_of(size)
    a, b, c, d = zg.mul(a, scale), zg.mul(b, scale), zg.mul(c, scale), zg.mul(d, scale)
    total = zg.fma(a, a, zg.fma(b, b, zg.fma(c, c, zg.mul(d, d))))
    length = zg.sqrt_rn(total)
    infinite = zg.equal(size, INFINITY)
    if inverse:
        result = zg.mul(zg.div_rn(1.0, length), scale)
        return zg.where(infinite, 0.0, zg.where(zg.equal(size, 0.0), INFINITY, result))
    result = zg.div_rn(length, scale)
    return zg.where(infinite, INFINITY, result)


@helper
def norm_of(x: Any, y: Any, z: Any, w: Any, inverse: zg.constexpr) -> Any:
    """The norm in the dtype of the coordinates; that of f32 is computed in f64 and rounded."""
    dtype = zg.add(zg.add(x, y), zg.add(z, w)).dtype
    length = norm(zg.cast(x, f64), zg.cast(y, f64), zg.cast(z, f64), zg.cast(w, f64), inverse)
    return zg.cast(length, dtype)


def _norms(inverse: bool) -> tuple[Callable[..., Any], ...]:
    """The norms of two, three and four coordinates."""

    def of_two(x: Any, y: Any) -> Any:
        return norm_of(x, y, zg.cast(0.0, x.dtype), zg.cast(0.0, x.dtype), inverse)

    def of_three(x: Any, y: Any, z: Any) -> Any:
        return norm_of(x, y, z, zg.cast(0.0, x.dtype), inverse)

    def of_four(x: Any, y: Any, z: Any, w: Any) -> Any:
        return norm_of(x, y, z, w, inverse)

    return of_two, of_three, of_four


for _inverse, _names in ((False, ("hypot", "norm3d", "norm4d")), (True, ("rhypot", "rnorm3d", "rnorm4d"))):
    for _name, _norm in zip(_names, _norms(_inverse), strict=True):
        add_function(_name, _norm)


# The fast functions of f32: the machine's instructions.


@libdevice
def fast_log2f(x: Any) -> Any:
    """The logarithm to the base 2."""
    return zg.approximate("log2", x)


@libdevice
def fast_logf(x: Any) -> Any:
    """The natural logarithm."""
    return zg.mul(zg.approximate("log2", x), LN_2_32)


@libdevice
def fast_sinf(x: Any) -> Any:
    """The sine."""
    return zg.approximate("sin", x)


@libdevice
def fast_cosf(x: Any) -> Any:
    """The cosine."""
    return zg.approximate("cos", x)


@libdevice
def fast_tanhf(x: Any) -> Any:
    """The hyperbolic tangent."""
    return zg.approximate("tanh", x)


@libdevice
def fast_tanf(x: Any) -> Any:
    """The quotient of sine and cosine."""
    return zg.div(zg.approximate("sin", x), zg.approximate("cos", x))


@libdevice
def fast_exp10f(x: Any) -> Any:
    """10^x."""
    return zg.exp2(zg.mul(x, LOG2_10_32[0]))


@libdevice
def fast_log10f(x: Any) -> Any:
    """The logarithm to the base 10."""
    return zg.mul(zg.approximate("log2", x), LOG10_2_32)


@libdevice
def fast_powf(x: Any, y: Any) -> Any:
    """2^(y · log2 x); NaN for negative numbers."""
    return zg.exp2(zg.mul(y, zg.approximate("log2", x)))
