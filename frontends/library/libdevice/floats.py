"""Floats taken apart and put together: classes, signs, exponents, whole numbers, remainders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ziggurat.codemodel.types import f64, i32, i64
from ziggurat.frontends import language as zg
from ziggurat.frontends.library.elementary import INFINITY, NAN, with_sign
from ziggurat.frontends.library.libdevice.table import add_function, helper, libdevice

INT_MAX = 2**31 - 1
INT_MIN = -(2**31)


def _test(holds: Callable[..., Any]) -> Callable[..., Any]:
    """The function that gives 1 where a test of the language holds, else 0."""

    def test(x: Any) -> Any:
        return zg.cast(holds(x), i32)

    return test


for _name, _holds in (("isnan", zg.isnan), ("isinf", zg.isinf), ("finitef", zg.isfinite), ("isfinited", zg.isfinite)):
    add_function(_name, _test(_holds))


@libdevice
def signbit(x: Any) -> Any:
    """1 for a negative sign, else 0."""
    return zg.cast(zg.less(zg.bitcast(x, i64 if x.dtype == f64 else i32), 0), i32)


@libdevice
def copysign(x: Any, y: Any) -> Any:
    """The size of `x` with the sign of `y`."""
    return with_sign(x, zg.cast(y, x.dtype))


@libdevice
def nextafter(x: Any, y: Any) -> Any:
    """The float after `x` in the direction of `y`."""
    integer = i64 if x.dtype == f64 else i32
    away = zg.equal(zg.less(x, y), zg.greater(x, 0.0))
    neighbour = zg.bitcast(zg.add(zg.bitcast(x, integer), zg.where(away, 1, -1)), x.dtype)
    least = with_sign(zg.bitcast(zg.cast(1, integer), x.dtype), zg.cast(y, x.dtype))
    neighbour = zg.where(zg.equal(x, 0.0), least, neighbour)
    neighbour = zg.where(zg.equal(x, y), y, neighbour)
    return zg.where(zg.or_(zg.isnan(x), zg.isnan(y)), NAN, neighbour)


@libdevice
def fdim(x: Any, y: Any) -> Any:
    """x - y where that is positive, else 0."""
    above = zg.where(zg.greater(x, y), zg.sub(x, y), 0.0)
    return zg.where(zg.or_(zg.isnan(x), zg.isnan(y)), NAN, above)


@libdevice
def saturatef(x: Any) -> Any:
    """Limited to [0, 1]; 0 for NaN."""
    return zg.clamp(x, 0.0, 1.0)


# Whole numbers and remainders.


@libdevice
def remainder(x: Any, y: Any) -> Any:
    """x - n · y for the whole number n nearest to x / y, ties to even.

    The remainder by 2y is exact; where it is above y / 2, at most two subtractions of y are exact too.
    """
    divisor = zg.abs(y)
    small = zg.less(divisor, 1e-300 if x.dtype == f64 else 1e-30)
    doubled = zg.add(divisor, divisor)
    rest = zg.mod(zg.abs(x), doubled)
    scale = zg.where(small, zg.cast(2.0, x.dtype), 1.0)
    half = zg.where(small, divisor, zg.mul(divisor, 0.5))
    once = zg.greater(zg.mul(rest, scale), half)
    rest = zg.where(once, zg.sub(rest, divisor), rest)
    rest = zg.where(zg.and_(once, zg.greater_equal(zg.mul(rest, scale), half)), zg.sub(rest, divisor), rest)
    return zg.where(zg.less(with_sign(zg.cast(1.0, x.dtype), x), 0.0), zg.neg(rest), rest)


# Exponents.


@helper
def exponent(x: Any) -> Any:
    """The whole part of the logarithm to the base 2 of a finite number that is not zero, as an integer of its width."""
    double = x.dtype == f64
    digits = 52 if double else 23
    small = zg.less(zg.abs(x), 2.2250738585072014e-308 if double else 1.1754943508222875e-38)
    scaled = zg.where(small, zg.mul(x, 2.0**54 if double else 2.0**24), x)
    field = zg.and_(zg.shr(zg.bitcast(scaled, i64 if double else i32), digits), 2047 if double else 255)
    return zg.sub(field, zg.where(small, 1077 if double else 151, 1023 if double else 127))


@libdevice
def ilogb(x: Any) -> Any:
    """The exponent; the smallest integer for zero and NaN, the largest for infinities."""
    result = zg.where(zg.isinf(x), INT_MAX, zg.cast(exponent(x), i32))
    return zg.where(zg.or_(zg.equal(x, 0.0), zg.isnan(x)), INT_MIN, result)


@libdevice
def logb(x: Any) -> Any:
    """The exponent as a float."""
    result = zg.where(zg.equal(x, 0.0), -INFINITY, zg.cast(exponent(x), x.dtype))
    return zg.where(zg.isfinite(x), result, zg.abs(x))


@helper
def power_of_two(n: Any, dtype: zg.constexpr) -> Any:
    """2^n for the exponent of a normal number."""
    wide = zg.cast(n, i64 if dtype == f64 else i32)
    return zg.bitcast(zg.shl(zg.add(wide, 1023 if dtype == f64 else 127), 52 if dtype == f64 else 23), dtype)


@libdevice
def ldexp(x: Any, n: Any) -> Any:
    """x · 2^n, rounded once: steps down stay above the subnormal numbers until the last one."""
    double = x.dtype == f64
    most = 1023 if double else 127
    step = 969 if double else 102
    rest = zg.broadcast(n, zg.add(x, zg.cast(n, x.dtype)))
    result = zg.broadcast(x, rest)
    for _ in zg.static_range(2):
        up = zg.greater(rest, most)
        down = zg.less(rest, 1 - most)
        factor = zg.where(up, 2.0**most, zg.where(down, 2.0**-step, zg.cast(1.0, x.dtype)))
        result = zg.mul(result, factor)
        rest = zg.sub(rest, zg.where(up, most, zg.where(down, -step, 0)))
    return zg.mul(result, power_of_two(zg.clamp(rest, 1 - most, most), x.dtype))


@libdevice
def scalbn(x: Any, n: Any) -> Any:
    """x · 2^n."""
    return ldexp(x, n)
