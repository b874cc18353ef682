"""Accurate functions of f32 as routines of plain LLVM. `docs/accuracy.md` has the errors that were measured.

The polynomials have the smallest maximum error (Remez) on the intervals that are named. They were computed with 60
digits and rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ziggurat.backend.ptx.accurate import (
    exponential,
    in_base_2,
    logarithm,
    mantissa_and_exponent,
    power_of_two,
    reduced,
    sine_of,
)
from ziggurat.backend.ptx.routines import Number, Routine, two_over_pi

# (sin x / x - 1) / x² and (cos x - 1 + x²/2) / x⁴, of x², for |x| < π/4.
_SIN = (-0.16666655242443085, 0.008332154713571072, -0.0001951407321030274)
_COS = (0.04166664555668831, -0.001388734788633883, 2.4435901650576852e-05)
# (tanh x / x - 1) / x², of x², for |x| < 0.55.
_TANH = (-0.33333316445350647, 0.133325457572937, -0.05384724214673042, 0.021047748625278473, -0.006236656568944454)
# erf x / x - 1, of x², for |x| < 1.
_ERF = (
    0.12837916612625122, -0.3761262595653534, 0.11283600330352783, -0.026854444295167923, 0.005189534742385149,
    -0.0008020834065973759, 7.889095286373049e-05,
)  # fmt: skip
# The logarithm to the base 2 of 1 - erf x, for 1 < x < 3.95.
_ERFC = (
    0.00027127040084451437, -1.6296371221542358, -0.9135433435440063, -0.15641480684280396, 0.0363677479326725,
    -0.006065871566534042, 0.0006367081659846008, -3.128704702248797e-05,
)  # fmt: skip
# (e^x - 1 - x) / x² for |x| < ln(2)/2, and (2^x - 1) / x for |x| < 1/2.
_EXP = (0.5, 0.16666513681411743, 0.0416661873459816, 0.008369529619812965, 0.0013951673172414303)
_EXP2 = (
    0.6931471824645996, 0.24022650718688965, 0.0555032454431057, 0.009617998264729977, 0.0013401577016338706,
    0.0001547784631839022,
)  # fmt: skip
# (log(1 + x) - x + x²/2) / x³, for |x| < 1/3.
_LOG = (
    0.3333323001861572, -0.24999696016311646, 0.20009785890579224, -0.1668519675731659, 0.1401461660861969,
    -0.12118282169103622, 0.13946081697940826, -0.13179698586463928,
)  # fmt: skip

# π/2, ln 2 and 1/ln 2 as sums of floats.
_PI_2 = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
_LN_2 = (0.6931471824645996, -1.9046542121259336e-09)
_LOG2_E = (1.4426950216293335, 1.925963033500011e-08)
_TWO_OVER_PI = 0.6366197466850281

# Below this magnitude, the multiple of π/2 is subtracted in three steps.
_FAR = 100000.0
_TABLE_WORDS = 8
_INFINITY = float("inf")
_NAN = float("nan")


# sin and cos.


def _reduced_near(r: Routine, x: Number) -> tuple[Number, ...]:
    """The angle less its nearest multiple of π/2, and the number of that multiple (Cody and Waite)."""
    whole, quadrant = r.nearest(x, _TWO_OVER_PI)
    minus = -whole
    rest = x
    for part in _PI_2:
        rest = r.fma(minus, part, rest)
    return rest, quadrant


def _reduced_far(r: Routine, x: Number) -> tuple[Number, ...]:
    """The same for a large angle (Payne and Hanek): the digits of x · 2/π around the point, by integers.

    x is m · 2^e. The digits of 2/π that make multiples of 4 are left out, and those after 96 more.
    """
    digits = two_over_pi(32 * (_TABLE_WORDS - 1))
    words = [0, *(digits >> 32 * (_TABLE_WORDS - 2 - at) & 0xFFFFFFFF for at in range(_TABLE_WORDS - 1))]
    bits = x.bits()
    exponent = bits >> 23 & 255
    mantissa = bits & 0x7FFFFF | 0x800000
    position = exponent - 120
    first = position >> 5
    shift = position & 31
    load = r.table("zg.two.over.pi.f32", "i32", words, first)
    loaded = [load(at) for at in range(4)]
    factor = mantissa.to("zext", "i64")
    carry: Number | int = 0
    parts: list[Number] = []
    for at in (2, 1, 0):
        word = r.call("llvm.fshl", loaded[at], loaded[at + 1], shift)
        product = word.to("zext", "i64") * factor + carry
        carry = product >> 32
        parts.append(product)
    low = parts[1] & 0xFFFFFFFF
    turns = (parts[2] << 32) | low  # In units of 2^-62 quadrants, modulo 4.
    fraction = turns << 2  # A signed number: from half a quadrant on it counts to the next one.
    quadrant = turns >> 62
    up = fraction >> 63
    quadrant = (quadrant + up).to("trunc", "i32")
    wide = fraction.to("sitofp", "double") * 8.515303950216386e-20  # π/2 · 2^-64
    rest = wide.to("fptrunc", "float")
    negative = bits.test("slt", 0)
    rest = negative.select(-rest, rest)
    quadrant = negative.select(-quadrant, quadrant)
    infinite = abs(x).test("oeq", _INFINITY)
    return infinite.select(_NAN, rest), quadrant


def _sine(name: str, shift: int) -> Routine:
    """sin(x + shift · π/2)."""
    r = Routine(name, "float", ["float"])
    x = r.argument()
    rest, quadrant = reduced(r, x, _FAR, _reduced_near, _reduced_far)
    if shift:
        quadrant = quadrant + shift
    square = rest * rest
    sine = r.fma(rest * square, r.poly(square, _SIN), rest)
    cosine = r.fma(square * square, r.poly(square, _COS), r.fma(square, -0.5, 1.0))
    return r.done(sine_of(x, quadrant, sine, cosine, exact_zero=not shift))


# tanh and erf. Near 1 the machine's 2^x is accurate enough: its error is divided there.


def _tanh() -> Routine:
    """Near 0 a polynomial; elsewhere 1 - 2 / (e^2x + 1)."""
    r = Routine("zg.tanh.f32", "float", ["float"])
    size = abs(r.argument())
    square = size * size
    small = r.fma(size * square, r.poly(square, _TANH), size)
    bounded = size.test("ogt", 10.0).select(10.0, size)
    power = r.call("llvm.exp2", bounded * 2.885390081777927)
    inverse = r.emit("float", f"fdiv afn float {size.like(1.0)}, {power + 1.0}")
    large = r.fma(inverse, -2.0, 1.0)
    return r.done(size.test("olt", 0.55).select(small, large).signed_as(r.argument()))


def _erf() -> Routine:
    """Near 0 a polynomial; elsewhere 1 - 2^p with a polynomial p."""
    r = Routine("zg.erf.f32", "float", ["float"])
    size = abs(r.argument())
    small = r.fma(size, r.poly(size * size, _ERF), size)
    bounded = size.test("ogt", 3.95).select(3.95, size)
    power = r.call("llvm.exp2", r.poly(bounded, _ERFC))
    near = size.test("olt", 1.0)
    return r.done(near.select(small, 1.0 - power).signed_as(r.argument()))


# Powers and logarithms, for `exact_math`.


def _exp() -> Routine:
    r = Routine("zg.exp.f32", "float", ["float"])
    return r.done(exponential(r, r.argument().clamp(-105.0, 90.0), _LOG2_E[0], _LN_2, _EXP))


def _exp2() -> Routine:
    r = Routine("zg.exp2.f32", "float", ["float"])
    return r.done(power_of_two(r, r.argument().clamp(-151.0, 129.0), _EXP2))


def _logarithm(name: str, base_2: bool) -> Routine:
    """x is m · 2^e with m between 2/3 and 4/3."""
    r = Routine(name, "float", ["float"])
    fraction, exponent = mantissa_and_exponent(r, r.argument(), 0x3F2AAAAB)
    number = exponent.to("sitofp", "float")
    square = fraction * fraction
    tail = r.fma(r.poly(fraction, _LOG), fraction, -0.5)
    natural = r.fma(square, tail, fraction)
    result = in_base_2(r, number, natural, _LOG2_E) if base_2 else r.fma(number, _LN_2[0], natural)
    return r.done(logarithm(r.argument(), result))


ROUTINES: dict[str, Callable[[], Routine]] = {
    "exp": _exp, "exp2": _exp2, "tanh": _tanh, "erf": _erf,
    "log": partial(_logarithm, "zg.log.f32", False), "log2": partial(_logarithm, "zg.log2.f32", True),
    "sin": partial(_sine, "zg.sin.f32", 0), "cos": partial(_sine, "zg.cos.f32", 1),
}  # fmt: skip
