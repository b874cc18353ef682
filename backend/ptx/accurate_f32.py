"""Accurate functions of f32 as routines of plain LLVM. `docs/accuracy.md` has the errors that were measured.

The polynomials are the best ones in the sense of the least largest error (Remez), on the intervals that are named; they
were computed with 60 digits and rounded.
"""

from __future__ import annotations

from collections.abc import Callable

from ziggurat.backend.ptx.routines import Real, Routine, f64, two_over_pi

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

# Up to here the product of π/2 and the number of quadrants is subtracted in three steps.
_FAR = 100000.0
_TABLE_WORDS = 8
_INFINITY = float("inf")
_NAN = float("nan")


# sin and cos.


def _reduced_near(r: Real, x: str) -> tuple[str, str]:
    """The angle less its nearest multiple of π/2, and which multiple that is (Cody and Waite)."""
    whole, quadrant = r.nearest(x, _TWO_OVER_PI)
    minus = r.negative(whole)
    rest = x
    for part in _PI_2:
        rest = r.fma(minus, part, rest)
    return rest, quadrant


def _reduced_far(r: Real, x: str) -> tuple[str, str]:
    """The same for a large angle (Payne and Hanek): the digits of x · 2/π around the point, by integers.

    x is m · 2^e. Of the digits of 2/π those are left out that make multiples of 4, and those after 96 more.
    """
    digits = two_over_pi(32 * (_TABLE_WORDS - 1))
    words = [0, *(digits >> 32 * (_TABLE_WORDS - 2 - at) & 0xFFFFFFFF for at in range(_TABLE_WORDS - 1))]
    table = r.constant("zg.two.over.pi.f32", "i32", words)
    bits = r.to_bits(x)
    exponent = r.emit(f"lshr i32 {bits}, 23")
    exponent = r.emit(f"and i32 {exponent}, 255")
    mantissa = r.emit(f"and i32 {bits}, {0x7FFFFF}")
    mantissa = r.emit(f"or i32 {mantissa}, {0x800000}")
    position = r.emit(f"sub i32 {exponent}, 120")
    first = r.emit(f"lshr i32 {position}, 5")
    shift = r.emit(f"and i32 {position}, 31")
    loaded: list[str] = []
    for at in range(4):
        index = r.emit(f"add i32 {first}, {at}")
        place = r.emit(f"getelementptr i32, ptr addrspace(4) {table}, i32 {index}")
        loaded.append(r.emit(f"load i32, ptr addrspace(4) {place}"))
    factor = r.emit(f"zext i32 {mantissa} to i64")
    carry = "0"
    parts: list[str] = []
    for at in (2, 1, 0):
        word = r.call("i32", "llvm.fshl.i32", ("i32", loaded[at]), ("i32", loaded[at + 1]), ("i32", shift))
        product = r.emit(f"zext i32 {word} to i64")
        product = r.emit(f"mul i64 {product}, {factor}")
        product = r.emit(f"add i64 {product}, {carry}")
        carry = r.emit(f"lshr i64 {product}, 32")
        parts.append(product)
    low = r.emit(f"and i64 {parts[1]}, {0xFFFFFFFF}")
    high = r.emit(f"shl i64 {parts[2]}, 32")
    turns = r.emit(f"or i64 {high}, {low}")  # In units of 2^-62 quadrants, modulo 4.
    fraction = r.emit(f"shl i64 {turns}, 2")  # A signed number: half a quadrant and more belongs to the next one.
    quadrant = r.emit(f"lshr i64 {turns}, 62")
    up = r.emit(f"lshr i64 {fraction}, 63")
    quadrant = r.emit(f"add i64 {quadrant}, {up}")
    quadrant = r.emit(f"trunc i64 {quadrant} to i32")
    rest = r.emit(f"sitofp i64 {fraction} to double")
    rest = r.emit(f"fmul double {rest}, {f64(8.515303950216386e-20)}")  # π/2 · 2^-64
    rest = r.emit(f"fptrunc double {rest} to float")
    negative = r.emit(f"icmp slt i32 {bits}, 0")
    rest = r.select(negative, r.negative(rest), rest)
    quadrant = r.select(negative, r.emit(f"sub i32 0, {quadrant}"), quadrant, "i32")
    infinite = r.compare("oeq", r.magnitude(x), _INFINITY)
    return r.select(infinite, _NAN, rest), quadrant


def _sine(name: str, shift: int) -> Routine:
    """sin(x + shift · π/2)."""
    r = Real(name, "float")
    x = "%a0"
    far = r.compare("oge", r.magnitude(x), _FAR)
    near_label, far_label, after = (r.fresh("block") for _ in range(3))
    r.line(f"br i1 {far}, label %{far_label}, label %{near_label}")
    ends: list[tuple[tuple[str, str], str]] = []
    for label, reduce in ((near_label, _reduced_near), (far_label, _reduced_far)):
        r.start(label)
        ends.append((reduce(r, x), label))
        r.line(f"br label %{after}")
    r.start(after)
    rest = r.emit("phi float " + ", ".join(f"[ {values[0]}, %{label} ]" for values, label in ends))
    quadrant = r.emit("phi i32 " + ", ".join(f"[ {values[1]}, %{label} ]" for values, label in ends))
    if shift:
        quadrant = r.emit(f"add i32 {quadrant}, {shift}")
    square = r.mul(rest, rest)
    sine = r.fma(r.mul(rest, square), r.poly(square, _SIN), rest)
    cosine = r.fma(r.mul(square, square), r.poly(square, _COS), r.fma(square, -0.5, 1.0))
    odd = r.emit(f"trunc i32 {quadrant} to i1")
    result = r.select(odd, cosine, sine)
    sign = r.emit(f"and i32 {quadrant}, 2")
    sign = r.emit(f"shl i32 {sign}, 30")
    result = r.from_bits(r.emit(f"xor i32 {r.to_bits(result)}, {sign}"))
    return r.done(result if shift else r.select(r.compare("oeq", x, 0.0), x, result))


def _sin() -> Routine:
    return _sine("zg.sin.f32", 0)


def _cos() -> Routine:
    return _sine("zg.cos.f32", 1)


# tanh and erf, by the machine's own 2^x where they are near 1: its error is divided there.


def _tanh() -> Routine:
    """Near 0 a polynomial; elsewhere 1 - 2 / (e^2x + 1)."""
    r = Real("zg.tanh.f32", "float")
    size = r.magnitude("%a0")
    square = r.mul(size, size)
    small = r.fma(r.mul(size, square), r.poly(square, _TANH), size)
    bounded = r.select(r.compare("ogt", size, 10.0), 10.0, size)
    power = r.call("float", "llvm.exp2.f32", ("float", r.mul(bounded, 2.885390081777927)))
    inverse = r.emit(f"fdiv afn float {r.number(1.0)}, {r.add(power, 1.0)}")
    large = r.fma(inverse, -2.0, 1.0)
    result = r.select(r.compare("olt", size, 0.55), small, large)
    return r.done(r.signed_as(result, "%a0"))


def _erf() -> Routine:
    """Near 0 a polynomial; elsewhere 1 - 2^p with a polynomial p."""
    r = Real("zg.erf.f32", "float")
    size = r.magnitude("%a0")
    small = r.fma(size, r.poly(r.mul(size, size), _ERF), size)
    bounded = r.select(r.compare("ogt", size, 3.95), 3.95, size)
    power = r.call("float", "llvm.exp2.f32", ("float", r.poly(bounded, _ERFC)))
    result = r.select(r.compare("olt", size, 1.0), small, r.sub(1.0, power))
    return r.done(r.signed_as(result, "%a0"))


# Powers and logarithms, for `exact_math`.


def _exp() -> Routine:
    r = Real("zg.exp.f32", "float")
    x = r.clamp("%a0", -105.0, 90.0)
    whole, exponent = r.nearest(x, _LOG2_E[0])
    minus = r.negative(whole)
    rest = r.fma(minus, _LN_2[1], r.fma(minus, _LN_2[0], x))
    grown = r.fma(r.mul(rest, rest), r.poly(rest, _EXP), rest)
    return r.done(r.scaled(r.add(grown, 1.0), exponent))


def _exp2() -> Routine:
    r = Real("zg.exp2.f32", "float")
    x = r.clamp("%a0", -151.0, 129.0)
    whole, exponent = r.nearest(x)
    rest = r.sub(x, whole)
    return r.done(r.scaled(r.fma(rest, r.poly(rest, _EXP2), 1.0), exponent))


def _logarithm(name: str, base_2: bool) -> Routine:
    """x is m · 2^e with m between 2/3 and 4/3."""
    r = Real(name, "float")
    tiny = r.compare("olt", "%a0", 1.1754943508222875e-38)
    x = r.select(tiny, r.mul("%a0", 8388608.0), "%a0")
    bits = r.to_bits(x)
    two_thirds = 0x3F2AAAAB
    field = r.emit(f"sub i32 {bits}, {two_thirds}")
    field = r.emit(f"and i32 {field}, {-0x800000}")
    fraction = r.sub(r.from_bits(r.emit(f"sub i32 {bits}, {field}")), 1.0)
    exponent = r.emit(f"ashr i32 {field}, 23")
    exponent = r.emit(f"add i32 {exponent}, {r.select(tiny, -23, 0, 'i32')}")
    number = r.emit(f"sitofp i32 {exponent} to float")
    square = r.mul(fraction, fraction)
    tail = r.fma(r.poly(fraction, _LOG), fraction, -0.5)
    natural = r.fma(square, tail, fraction)
    if base_2:
        scaled = r.mul(natural, _LOG2_E[0])
        lost = r.fma(natural, _LOG2_E[0], r.negative(scaled))
        result = r.add(number, r.add(scaled, r.fma(natural, _LOG2_E[1], lost)))
    else:
        result = r.fma(number, _LN_2[0], natural)
    result = r.select(r.compare("oeq", "%a0", _INFINITY), _INFINITY, result)
    result = r.select(r.compare("ult", "%a0", 0.0), _NAN, result)
    return r.done(r.select(r.compare("oeq", "%a0", 0.0), -_INFINITY, result))


def _log() -> Routine:
    return _logarithm("zg.log.f32", False)


def _log2() -> Routine:
    return _logarithm("zg.log2.f32", True)


ROUTINES: dict[str, Callable[[], Routine]] = {
    "exp": _exp, "exp2": _exp2, "log": _log, "log2": _log2, "sin": _sin, "cos": _cos, "tanh": _tanh, "erf": _erf,
}  # fmt: skip
