"""Accurate functions of f64 as routines of plain LLVM, made like those of `accurate_f32.py`."""

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
_SIN = (
    -0.16666666666666666, 0.008333333333333323, -0.00019841269841254386, 2.755731921383101e-06,
    -2.5052104816461703e-08, 1.605835432949133e-10, -7.578079911237038e-13,
)  # fmt: skip
_COS = (
    0.041666666666666664, -0.0013888888888888879, 2.480158730157424e-05, -2.75573192163467e-07,
    2.087675454918992e-09, -1.1470310845270196e-11, 4.7387853107580794e-14,
)  # fmt: skip
# (tanh x / x - 1) / x², of x², for |x| < 0.55.
_TANH = (
    -0.3333333333333333, 0.13333333333333333, -0.0539682539682535, 0.02186948853612992, -0.008863235529100448,
    0.003592128020188511, -0.0014558341590583416, 0.0005900252066205904, -0.00023911339971709831,
    9.683549151073374e-05, -3.898595188906671e-05, 1.5161302142564361e-05, -5.1070127238404905e-06,
    1.0695553365870204e-06,
)  # fmt: skip
# erf x / x - 1, of x², for |x| < 0.84.
_ERF = (
    0.1283791670955126, -0.37612638903183754, 0.11283791670955118, -0.02686617064512899, 0.00522397762540614,
    -0.0008548327020029399, 0.00012055332773214014, -1.4925641829699132e-05, 1.646187526314028e-06,
    -1.6361228961643952e-07, 1.4746699878092014e-08, -1.1773136375460153e-09, 6.769337480823056e-11,
)  # fmt: skip
# The natural logarithm of 1 - erf x, of x - 1.5 for 0.84 < x < 2.2, and of x - 4 for 2.2 < x < 5.95.
_ERFC_MIDDLE = (
    -3.3844920895515527, -3.5088008017795276, -0.8926403306150369, -0.02582414063364324, 0.00600674638645039,
    -0.0012572166868601606, 0.00021596330487737956, -2.247368765678107e-05, -2.6468343106627063e-06,
    2.3708383436320417e-06, -8.187641081029048e-07, 1.9259016794486166e-07, -2.7858290666756834e-08,
    -1.0317484696543575e-09, 2.3789017353385444e-09, -1.0507652280213725e-09, 2.728209938690929e-10,
)  # fmt: skip
_ERFC_FAR = (
    -17.987778312103007, -8.236376892700168, -0.9734445885019753, -0.0037931431359893974, 0.0005821485728228503,
    -9.10255499050134e-05, 1.4138826044939616e-05, -2.146331433281264e-06, 3.138755553882412e-07,
    -4.3443265378136865e-08, 5.523761483323305e-09, -6.249181454338041e-10, 4.2162943245967835e-11,
    2.502619344797668e-12, 2.565601257871951e-12, 2.7011124893050994e-12, 5.934775221336568e-13,
    1.1384182147389794e-13,
)  # fmt: skip
# (e^x - 1 - x) / x² for |x| < ln(2)/2, and (2^x - 1) / x for |x| < 1/2.
_EXP = (
    0.5, 0.16666666666666685, 0.04166666666666673, 0.008333333333315771, 0.0013888888888856446,
    0.00019841269899660384, 2.4801587377487217e-05, 2.755723149091624e-06, 2.755723029730552e-07,
    2.5113235327321397e-08, 2.0927853711373626e-09,
)  # fmt: skip
_EXP2 = (
    0.6931471805599453, 0.24022650695910072, 0.05550410866482171, 0.009618129107628498, 0.001333355814638745,
    0.00015403530393337742, 1.5252733859310084e-05, 1.3215486835701428e-06, 1.0178049848985744e-07,
    7.054887299271934e-09, 4.456890060767494e-10, 2.574308733981437e-11,
)  # fmt: skip
# (log((1 + s) / (1 - s)) - 2s) / s³, of s², where (1 + s) / (1 - s) is between √½ and √2.
_LOG = (
    0.6666666666666666, 0.4000000000000594, 0.28571428569161067, 0.22222222637592734, 0.18181776284226414,
    0.15387067492458267, 0.1325057720653805, 0.13247626439868312,
)  # fmt: skip

# π/2, 1/ln 2 and ln 2 as sums of floats; the first part of ln 2 ends in zeros, so that multiples of it are exact.
_PI_2 = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
_LOG2_E = (1.4426950408889634, 2.0355273740931033e-17)
_LN_2 = (0.6931471803691238, 1.9082149292705877e-10)
_TWO_OVER_PI = 0.6366197723675814

_FAR = 2.0**25
_TABLE_WORDS = 20
_INFINITY = float("inf")
_NAN = float("nan")


# Powers and logarithms.


def _exponential(r: Routine, x: Number) -> Number:
    """e^x of a number between -746 and 710."""
    return exponential(r, x, _LOG2_E[0], _LN_2, _EXP)


def _exp() -> Routine:
    r = Routine("zg.exp.f64", "double", ["double"])
    return r.done(_exponential(r, r.argument().clamp(-746.0, 710.0)))


def _exp2() -> Routine:
    r = Routine("zg.exp2.f64", "double", ["double"])
    return r.done(power_of_two(r, r.argument().clamp(-1076.0, 1025.0), _EXP2))


def _logarithm(name: str, base_2: bool) -> Routine:
    """x is m · 2^e with m between √½ and √2; log m by s = f / (2 + f), where f is m - 1."""
    r = Routine(name, "double", ["double"])
    fraction, exponent = mantissa_and_exponent(r, r.argument(), 0x3FE6A09E667F3BCD)
    number = exponent.to("sitofp", "double")
    s = fraction / (fraction + 2.0)
    square = s * s
    half_square = fraction * fraction * 0.5
    inner = r.fma(square, r.poly(square, _LOG), half_square)
    if base_2:
        result = in_base_2(r, number, fraction - r.fma(-s, inner, half_square), _LOG2_E)
    else:
        low = r.fma(s, inner, number * _LN_2[1])
        result = number * _LN_2[0] - (half_square - low - fraction)
    return r.done(logarithm(r.argument(), result))


# sin and cos.


def _reduced_near(r: Routine, x: Number) -> tuple[Number, ...]:
    """The angle less its nearest multiple of π/2, as a sum of two floats, and the number of that multiple."""
    whole, quadrant = r.nearest(x, _TWO_OVER_PI)
    minus = -whole
    first = r.fma(minus, _PI_2[0], x)  # Exact.
    # Subtract the second part, and keep the errors of both roundings (Knuth's two-sum).
    second = minus * _PI_2[1]
    lost = r.fma(minus, _PI_2[1], -second)
    high = first + second
    moved = high - first
    error = (first - (high - moved)) + (second - moved)
    low = r.fma(minus, _PI_2[2], error + lost)
    return high, low, quadrant.to("trunc", "i32")


def _reduced_far(r: Routine, x: Number) -> tuple[Number, ...]:
    """The same for a large angle: the digits of x · 2/π around the point, by integers (Payne and Hanek)."""
    digits = two_over_pi(64 * (_TABLE_WORDS - 1))
    words = [0, *(digits >> 64 * (_TABLE_WORDS - 2 - at) & (1 << 64) - 1 for at in range(_TABLE_WORDS - 1))]
    bits = x.bits()
    exponent = bits >> 52 & 2047
    mantissa = bits & (1 << 52) - 1 | 1 << 52
    position = exponent - 1013
    first = r.call("llvm.umin", position >> 6, bits.like(_TABLE_WORDS - 4))
    shift = position & 63
    load = r.table("zg.two.over.pi.f64", "i64", words, first)
    loaded = [load(at) for at in range(4)]
    factor = mantissa.to("zext", "i128")
    carry: Number | int = 0
    parts: list[Number] = []
    for at in (2, 1, 0):
        word = r.call("llvm.fshl", loaded[at], loaded[at + 1], shift)
        product = word.to("zext", "i128") * factor + carry
        carry = product >> 64
        parts.append(product.to("trunc", "i64"))
    middle = parts[1].to("zext", "i128")
    turns = parts[2].to("zext", "i128") << 64 | middle  # In units of 2^-126 quadrants, modulo 4.
    fraction = turns << 2  # A signed number: from half a quadrant on it counts to the next one.
    quadrant = parts[2] >> 62
    up = (fraction >> 127).to("trunc", "i64")
    quadrant = (quadrant + up).to("trunc", "i32")
    high, low = _as_two_floats(r, fraction)
    negative = bits.test("slt", 0)
    quadrant = negative.select(-quadrant, quadrant)
    high = abs(x).test("oeq", _INFINITY).select(_NAN, high)
    return negative.select(-high, high), negative.select(-low, low), quadrant


def _as_two_floats(r: Routine, fraction: Number) -> tuple[Number, Number]:
    """A signed i128 times π/2 · 2^-128, as a sum of two floats: its first 53 digits, and the next 53."""
    below = fraction.test("slt", 0)
    size = r.call("llvm.abs", fraction, False)
    zeros = r.call("llvm.ctlz", size, False) & 127
    aligned = size << zeros
    top = (aligned >> 75).to("trunc", "i64")
    following = (aligned >> 22).to("trunc", "i64") & (1 << 53) - 1
    unit = r.power_of_two(-53 - zeros.to("trunc", "i64"))
    high = top.to("uitofp", "double") * unit
    low = following.to("uitofp", "double") * 2.0**-53 * unit
    product = high * _PI_2[0]
    rest = r.fma(high, _PI_2[0], -product)
    rest = r.fma(low, _PI_2[0], r.fma(high, _PI_2[1], rest))
    return below.select(-product, product), below.select(-rest, rest)


def _sine(name: str, shift: int) -> Routine:
    """sin(x + shift · π/2)."""
    r = Routine(name, "double", ["double"])
    x = r.argument()
    rest, low, quadrant = reduced(r, x, _FAR, _reduced_near, _reduced_far)
    if shift:
        quadrant = quadrant + shift
    square = rest * rest
    half = square * 0.5
    correction = r.fma(-half, low, low)
    sine = rest + r.fma(rest * square, r.poly(square, _SIN), correction)
    whole = 1.0 - half
    lost = 1.0 - whole - half
    tail = r.fma(square * square, r.poly(square, _COS), r.fma(-rest, low, lost))
    cosine = whole + tail
    return r.done(sine_of(x, quadrant, sine, cosine, exact_zero=not shift), inline=False)


# tanh and erf.


def _tanh() -> Routine:
    """Near 0 a polynomial; elsewhere 1 - 2 / (e^2x + 1)."""
    r = Routine("zg.tanh.f64", "double", ["double"])
    size = abs(r.argument())

    def small() -> Number:
        square = size * size
        return r.fma(size * square, r.poly(square, _TANH), size)

    def large() -> Number:
        bounded = size.test("ogt", 20.0).select(20.0, size)
        power = _exponential(r, bounded + bounded)
        return 1.0 - 2.0 / (power + 1.0)

    made = r.branch(size.test("olt", 0.55), small, large)
    return r.done(made.signed_as(r.argument()), inline=False)


def _erf() -> Routine:
    """Near 0 a polynomial; elsewhere 1 - e^p with a polynomial p."""
    r = Routine("zg.erf.f64", "double", ["double"])
    size = abs(r.argument())

    def small() -> Number:
        return r.fma(size, r.poly(size * size, _ERF), size)

    def middle() -> Number:
        return r.poly(size - 1.5, _ERFC_MIDDLE)

    def far() -> Number:
        bounded = size.test("ogt", 5.95).select(5.95, size)
        return r.poly(bounded - 4.0, _ERFC_FAR)

    def large() -> Number:
        exponent = r.branch(size.test("olt", 2.2), middle, far)
        return 1.0 - _exponential(r, exponent)

    made = r.branch(size.test("olt", 0.84), small, large)
    return r.done(made.signed_as(r.argument()), inline=False)


ROUTINES: dict[str, Callable[[], Routine]] = {
    "exp": _exp, "exp2": _exp2, "tanh": _tanh, "erf": _erf,
    "log": partial(_logarithm, "zg.log.f64", False), "log2": partial(_logarithm, "zg.log2.f64", True),
    "sin": partial(_sine, "zg.sin.f64", 0), "cos": partial(_sine, "zg.cos.f64", 1),
}  # fmt: skip
