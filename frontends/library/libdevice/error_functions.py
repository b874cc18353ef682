"""The error function's family and the normal distribution, in f64; f32 is computed in f64 and rounded.

The polynomials interpolate the function at the Chebyshev points of the named interval; they were computed with 80
digits. Coefficients start with the highest power.
"""

from __future__ import annotations

from typing import Any, Final

from ziggurat.codemodel.types import f64
from ziggurat.frontends import language as zg
from ziggurat.frontends.library.elementary import INFINITY, NAN, horner, with_sign
from ziggurat.frontends.library.libdevice.table import helper, in_f64
from ziggurat.frontends.library.powers import product

# (1 + 2x) · e^(x²) · erfc x as a polynomial in (x - 4) / (x + 4), for x ≥ 0.
ERFCX: Final = (
    -1.4311318470928162e-10, -2.655726616312575e-10, 1.825695118953907e-09, 3.1672611119361695e-09,
    -1.4806988146925795e-08, -2.05545313698593e-08, 1.1025271999000152e-07, 7.74606863568198e-08,
    -8.25078338681245e-07, 2.9198219084548256e-07, 5.709314113532492e-06, -1.1221292615314274e-05,
    -2.43989944557621e-05, 0.00015062149237837335, -0.00019925676026410458, -0.000757773262030915,
    0.0050319699895242515, -0.01619773405968329, 0.03716751553632399, -0.06633036581219905, 0.0937328349984105,
    -0.1010390660362999, 0.0680970542546913, 0.01537965210261959, -0.1396211168405625, 1.2329951186255526,
)  # fmt: skip
HALF_ROOT_PI: Final = 0.886226925452758
TWO_OVER_ROOT_PI: Final = 1.1283791670955126
ROOT_TWO: Final = 1.4142135623730951
# √½ as a sum of two floats.
ROOT_HALF: Final = (0.7071067811865476, -4.833646656726457e-17)


@helper
def scaled_tail(x: Any) -> Any:
    """e^(x²) · erfc x for x ≥ 0."""
    far = zg.greater(x, 1e300)
    near = zg.where(far, 1e300, x)
    place = zg.div_rn(zg.sub(near, 4.0), zg.add(near, 4.0))
    return zg.where(far, 0.0, zg.div_rn(horner(place, ERFCX), zg.fma(near, 2.0, 1.0)))


@helper
def gauss(x: Any, low: Any) -> Any:
    """e^(-(x + low)²), with the square as a sum of two floats."""
    square, rest = product(x, low, x, low)
    return zg.mul(zg.exp(zg.neg(square)), zg.sub(1.0, rest))


@helper
def tail(x: Any, low: Any) -> Any:
    """erfc(x + low), where `low` is a rounding error of x."""
    size = zg.minimum(zg.abs(x), 30.0)
    rest = zg.where(zg.less(x, 0.0), zg.neg(low), low)
    far = zg.mul(scaled_tail(size), gauss(size, rest))
    far = zg.where(zg.less(x, 0.0), zg.sub(2.0, far), far)
    near = zg.sub(1.0, zg.fma(zg.mul(rest, TWO_OVER_ROOT_PI), gauss(size, 0.0), zg.erf(x)))
    result = zg.where(zg.less(size, 0.5), near, far)
    return zg.where(zg.isnan(x), NAN, result)


@in_f64
def erfc(x: Any) -> Any:
    """1 - erf x."""
    return tail(x, zg.cast(0.0, f64))


@in_f64
def erfcx(x: Any) -> Any:
    """e^(x²) · erfc x; for a negative x that is 2 e^(x²) less the function of -x."""
    size = zg.abs(x)
    square, rest = product(size, zg.cast(0.0, f64), size, zg.cast(0.0, f64))
    grown = zg.exp(square)
    grown = zg.mul(zg.where(zg.less(square, 705.0), zg.fma(grown, rest, grown), grown), 2.0)
    result = scaled_tail(size)
    result = zg.where(zg.less(x, 0.0), zg.sub(grown, result), result)
    return zg.where(zg.isnan(x), NAN, result)


@in_f64
def normcdf(x: Any) -> Any:
    """erfc(-x / √2) / 2."""
    argument = zg.clamp(x, -1000.0, 1000.0)
    high, low = product(zg.neg(argument), zg.cast(0.0, f64), zg.cast(ROOT_HALF[0], f64), zg.cast(ROOT_HALF[1], f64))
    return zg.where(zg.isnan(x), NAN, zg.mul(tail(high, low), 0.5))


# Inverses: a first guess, and steps of Halley's method on the function itself.


@helper
def first_guess(q: Any) -> Any:
    """The inverse of erfc from 0 to 1, roughly: the asymptotic form for small numbers, else a rational function."""
    w = zg.neg(zg.log(zg.mul(q, zg.sub(2.0, q))))
    root = zg.sqrt_rn(w)
    # erf y ≈ √(1 - e^(-y² (4/π + a y²) / (1 + a y²))), solved for y (Winitzki).
    a = 0.147
    half = zg.fma(w, -0.5, 2.0 / (3.141592653589793 * a))
    middle = zg.sqrt_rn(zg.maximum(zg.sub(zg.sqrt_rn(zg.fma(half, half, zg.div_rn(w, a))), half), 0.0))
    far = zg.sqrt_rn(zg.maximum(zg.sub(w, zg.mul(zg.log(zg.maximum(zg.mul(w, 3.141592653589793), 1.0)), 0.5)), 0.0))
    return zg.where(zg.greater(root, 4.0), far, middle)


@helper
def inverse_tail(q: Any) -> Any:
    """The number from 0 on whose erfc is q, for q from 0 to 1."""
    argument = zg.clamp(q, 5e-324, 1.0)
    y = first_guess(argument)
    central = zg.greater(argument, 0.5)
    for _ in zg.static_range(3):
        scale = zg.exp(zg.mul(y, y))
        far = zg.sub(scaled_tail(y), zg.mul(argument, scale))
        near = zg.mul(zg.sub(zg.sub(1.0, argument), zg.erf(y)), scale)
        step = zg.mul(zg.where(central, near, far), HALF_ROOT_PI)
        y = zg.add(y, zg.div_rn(step, zg.fma(zg.neg(y), step, 1.0)))
    return zg.where(zg.equal(q, 0.0), INFINITY, y)


@in_f64
def erfcinv(x: Any) -> Any:
    """The number whose erfc is x."""
    upper = zg.greater(x, 1.0)
    result = inverse_tail(zg.where(upper, zg.sub(2.0, x), x))
    result = zg.where(upper, zg.neg(result), result)
    return zg.where(zg.and_(zg.greater_equal(x, 0.0), zg.less_equal(x, 2.0)), result, NAN)


@in_f64
def erfinv(x: Any) -> Any:
    """The number whose erf is x: near zero by steps on erf, farther out by erfc of 1 - |x|, which is exact there."""
    size = zg.abs(x)
    near = zg.less(size, 0.5)
    y = zg.mul(size, HALF_ROOT_PI)
    argument = zg.where(near, size, 0.0)
    for _ in zg.static_range(4):
        step = zg.mul(zg.mul(zg.sub(argument, zg.erf(y)), zg.exp(zg.mul(y, y))), HALF_ROOT_PI)
        y = zg.add(y, zg.div_rn(step, zg.fma(zg.neg(y), step, 1.0)))
    result = zg.where(near, y, inverse_tail(zg.where(near, 0.5, zg.sub(1.0, size))))
    return zg.where(zg.less_equal(size, 1.0), with_sign(result, x), NAN)


@in_f64
def normcdfinv(x: Any) -> Any:
    """-√2 · erfcinv(2x)."""
    return zg.sub(0.0, zg.mul(erfcinv(zg.mul(x, 2.0)), ROOT_TWO))
