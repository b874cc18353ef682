"""Accurate functions of f32 and f64 as routines of plain LLVM. `docs/reference/accuracy.md` has the measured errors.

The polynomials have the smallest maximum error (Remez) on the intervals that are named. They were computed with 60
digits and rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from ziggurat.backend.llvm.routines import Join, Number, Routine, two_over_pi

_INFINITY = float("inf")
_NAN = float("nan")


class F32:
    """The constants for f32. `FAR` is the magnitude from which on an angle is reduced by integers."""

    NAME, KIND, BITS, DIGITS, BIAS = "f32", "float", 32, 23, 127
    # (sin x / x - 1) / x² and (cos x - 1 + x²/2) / x⁴, of x², for |x| < π/4.
    SIN = (-0.16666655242443085, 0.008332154713571072, -0.0001951407321030274)
    COS = (0.04166664555668831, -0.001388734788633883, 2.4435901650576852e-05)
    # (tanh x / x - 1) / x², of x², for |x| < 0.55.
    TANH = (-0.33333316445350647, 0.133325457572937, -0.05384724214673042, 0.021047748625278473, -0.006236656568944454)
    # erf x / x - 1, of x², for |x| < 1.
    ERF = (
        0.12837916612625122, -0.3761262595653534, 0.11283600330352783, -0.026854444295167923, 0.005189534742385149,
        -0.0008020834065973759, 7.889095286373049e-05,
    )  # fmt: skip
    # The logarithm to the base 2 of 1 - erf x, for 1 < x < 3.95.
    ERFC = (
        0.00027127040084451437, -1.6296371221542358, -0.9135433435440063, -0.15641480684280396, 0.0363677479326725,
        -0.006065871566534042, 0.0006367081659846008, -3.128704702248797e-05,
    )  # fmt: skip
    # (e^x - 1 - x) / x² for |x| < ln(2)/2, and (2^x - 1) / x for |x| < 1/2.
    EXP = (0.5, 0.16666513681411743, 0.0416661873459816, 0.008369529619812965, 0.0013951673172414303)
    EXP2 = (
        0.6931471824645996, 0.24022650718688965, 0.0555032454431057, 0.009617998264729977, 0.0013401577016338706,
        0.0001547784631839022,
    )  # fmt: skip
    # (log(1 + x) - x + x²/2) / x³, for |x| < 1/3.
    LOG = (
        0.3333323001861572, -0.24999696016311646, 0.20009785890579224, -0.1668519675731659, 0.1401461660861969,
        -0.12118282169103622, 0.13946081697940826, -0.13179698586463928,
    )  # fmt: skip
    # (log2(1 + x) - x / ln 2) / x², for |x| < 1/3.
    LOG2 = (
        -0.7213475108146667, 0.48089686036109924, -0.3606693744659424, 0.28868019580841064, -0.24071650207042694,
        0.202188178896904, -0.1748298555612564, 0.20119942724704742, -0.19014285504817963,
    )  # fmt: skip

    # π/2, ln 2 and 1/ln 2 as sums of floats.
    PI_2 = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
    LN_2 = (0.6931471824645996, -1.9046542121259336e-09)
    LOG2_E = (1.4426950216293335, 1.925963033500011e-08)
    TWO_OVER_PI = 0.6366197466850281
    FAR, TABLE_WORDS = 100000.0, 8
    # The numbers beyond which e^x and 2^x are 0 or infinite; the bits of 2/3; the power that makes subnormals normal.
    EXP_RANGE, EXP2_RANGE, LOWEST, SCALE = (-105.0, 90.0), (-151.0, 129.0), 0x3F2AAAAB, 23


class F64:
    """The constants for f64."""

    NAME, KIND, BITS, DIGITS, BIAS = "f64", "double", 64, 52, 1023
    # (sin x / x - 1) / x² and (cos x - 1 + x²/2) / x⁴, of x², for |x| < π/4.
    SIN = (
        -0.16666666666666666, 0.008333333333333323, -0.00019841269841254386, 2.755731921383101e-06,
        -2.5052104816461703e-08, 1.605835432949133e-10, -7.578079911237038e-13,
    )  # fmt: skip
    COS = (
        0.041666666666666664, -0.0013888888888888879, 2.480158730157424e-05, -2.75573192163467e-07,
        2.087675454918992e-09, -1.1470310845270196e-11, 4.7387853107580794e-14,
    )  # fmt: skip
    # (tanh x / x - 1) / x², of x², for |x| < 0.55.
    TANH = (
        -0.3333333333333333, 0.13333333333333333, -0.0539682539682535, 0.02186948853612992, -0.008863235529100448,
        0.003592128020188511, -0.0014558341590583416, 0.0005900252066205904, -0.00023911339971709831,
        9.683549151073374e-05, -3.898595188906671e-05, 1.5161302142564361e-05, -5.1070127238404905e-06,
        1.0695553365870204e-06,
    )  # fmt: skip
    # erf x / x - 1, of x², for |x| < 0.84.
    ERF = (
        0.1283791670955126, -0.37612638903183754, 0.11283791670955118, -0.02686617064512899, 0.00522397762540614,
        -0.0008548327020029399, 0.00012055332773214014, -1.4925641829699132e-05, 1.646187526314028e-06,
        -1.6361228961643952e-07, 1.4746699878092014e-08, -1.1773136375460153e-09, 6.769337480823056e-11,
    )  # fmt: skip
    # The natural logarithm of 1 - erf x, of x - 1.5 for 0.84 < x < 2.2, and of x - 4 for 2.2 < x < 5.95.
    ERFC_MIDDLE = (
        -3.3844920895515527, -3.5088008017795276, -0.8926403306150369, -0.02582414063364324, 0.00600674638645039,
        -0.0012572166868601606, 0.00021596330487737956, -2.247368765678107e-05, -2.6468343106627063e-06,
        2.3708383436320417e-06, -8.187641081029048e-07, 1.9259016794486166e-07, -2.7858290666756834e-08,
        -1.0317484696543575e-09, 2.3789017353385444e-09, -1.0507652280213725e-09, 2.728209938690929e-10,
    )  # fmt: skip
    ERFC_FAR = (
        -17.987778312103007, -8.236376892700168, -0.9734445885019753, -0.0037931431359893974, 0.0005821485728228503,
        -9.10255499050134e-05, 1.4138826044939616e-05, -2.146331433281264e-06, 3.138755553882412e-07,
        -4.3443265378136865e-08, 5.523761483323305e-09, -6.249181454338041e-10, 4.2162943245967835e-11,
        2.502619344797668e-12, 2.565601257871951e-12, 2.7011124893050994e-12, 5.934775221336568e-13,
        1.1384182147389794e-13,
    )  # fmt: skip
    # (e^x - 1 - x) / x² for |x| < ln(2)/2, and (2^x - 1) / x for |x| < 1/2.
    EXP = (
        0.5, 0.16666666666666685, 0.04166666666666673, 0.008333333333315771, 0.0013888888888856446,
        0.00019841269899660384, 2.4801587377487217e-05, 2.755723149091624e-06, 2.755723029730552e-07,
        2.5113235327321397e-08, 2.0927853711373626e-09,
    )  # fmt: skip
    EXP2 = (
        0.6931471805599453, 0.24022650695910072, 0.05550410866482171, 0.009618129107628498, 0.001333355814638745,
        0.00015403530393337742, 1.5252733859310084e-05, 1.3215486835701428e-06, 1.0178049848985744e-07,
        7.054887299271934e-09, 4.456890060767494e-10, 2.574308733981437e-11,
    )  # fmt: skip
    # (log((1 + s) / (1 - s)) - 2s) / s³, of s², where (1 + s) / (1 - s) is between √½ and √2.
    LOG = (
        0.6666666666666666, 0.4000000000000594, 0.28571428569161067, 0.22222222637592734, 0.18181776284226414,
        0.15387067492458267, 0.1325057720653805, 0.13247626439868312,
    )  # fmt: skip

    # π/2, ln 2 and 1/ln 2 as sums of floats. The first part of ln 2 ends in zeros: multiples of it are exact.
    PI_2 = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
    LN_2 = (0.6931471803691238, 1.9082149292705877e-10)
    LOG2_E = (1.4426950408889634, 2.0355273740931033e-17)
    TWO_OVER_PI = 0.6366197723675814
    FAR, TABLE_WORDS = 2.0**25, 20
    EXP_RANGE, EXP2_RANGE, LOWEST, SCALE = (-746.0, 710.0), (-1076.0, 1025.0), 0x3FE6A09E667F3BCD, 54  # √½.


Format = type[F32] | type[F64]


def _function(name: str, of: Format, lanes: int = 0) -> Routine:
    return Routine(f"zg.{name}.{of.NAME}", of.KIND, [of.KIND], lanes)


# Powers and logarithms.


def _exponential(r: Routine, x: Number, of: Format) -> Number:
    """e^x of a bounded number."""
    whole, exponent = r.nearest(x, of.LOG2_E[0])
    minus = -whole
    rest = r.fma(minus, of.LN_2[1], r.fma(minus, of.LN_2[0], x))
    grown = r.fma(rest * rest, r.poly(rest, of.EXP), rest)
    return r.scaled(grown + 1.0, exponent)


def _exp(of: Format, lanes: int = 0) -> Routine:
    r = _function("exp", of, lanes)
    return r.done(_exponential(r, r.argument().clamp(*of.EXP_RANGE), of))


def _exp2(of: Format, lanes: int = 0) -> Routine:
    r = _function("exp2", of, lanes)
    return r.done(_power_of_2(r, r.argument().clamp(*of.EXP2_RANGE), of))


def _power_of_2(r: Routine, x: Number, of: Format) -> Number:
    """2^x of a bounded number."""
    whole, exponent = r.nearest(x)
    rest = x - whole
    return r.scaled(r.fma(rest, r.poly(rest, of.EXP2), 1.0), exponent)


def _logarithm(of: Format, base_2: bool, lanes: int = 0) -> Routine:
    """The logarithm of m and e, where x is m · 2^e, and m between 2/3 and 4/3 (f32) or √½ and √2 (f64)."""
    r = _function("log2" if base_2 else "log", of, lanes)
    x = r.argument()
    tiny = x.test("olt", 2.0 ** (1 - of.BIAS))
    bits = tiny.select(x * 2.0**of.SCALE, x).bits()
    field = bits - of.LOWEST & -(1 << of.DIGITS)
    fraction = (bits - field).to("bitcast", of.KIND) - 1.0
    if of is F32:
        exponent = r.fma(field.to("sitofp", of.KIND), 2.0**-of.DIGITS, tiny.select(float(-of.SCALE), 0.0, of.KIND))
        if base_2:
            tail = r.fma(r.poly(fraction, of.LOG2), fraction, of.LOG2_E[1]) * fraction
            result = exponent + r.fma(fraction, of.LOG2_E[0], tail)
        else:
            tail = r.fma(r.poly(fraction, of.LOG), fraction, -0.5)
            result = r.fma(exponent, of.LN_2[0], r.fma(fraction * fraction, tail, fraction))
    else:
        power = field.ashr(of.DIGITS).to("trunc", "i32")
        exponent = (power + tiny.select(-of.SCALE, 0, "i32")).to("sitofp", of.KIND)
        s = r.quotient(fraction, fraction + 2.0)
        square = s * s
        half = fraction * fraction * 0.5
        inner = r.fma(square, r.poly(square, of.LOG), half)
        if base_2:
            result = in_base_2(r, exponent, fraction - r.fma(-s, inner, half), of)
        else:
            low = r.fma(s, inner, exponent * of.LN_2[1])
            result = exponent * of.LN_2[0] - (half - low - fraction)
    # Infinity stays itself, by the same sum that makes a NaN of NaNs and of negative numbers.
    special = x.bits().test("uge", (2 * of.BIAS + 1) << of.DIGITS)
    result = special.select(r.fma(x, _INFINITY, _INFINITY), result)
    return r.done(x.test("oeq", 0.0).select(-_INFINITY, result))


def in_base_2(r: Routine, exponent: Number, natural: Number, of: Format) -> Number:
    """The logarithm to the base 2, from the exponent and the natural logarithm of the mantissa."""
    scaled = natural * of.LOG2_E[0]
    lost = r.fma(natural, of.LOG2_E[0], -scaled)
    return exponent + (scaled + r.fma(natural, of.LOG2_E[1], lost))


# sin and cos.


def _near(r: Routine, x: Number, of: Format) -> list[Number]:
    """The angle less its nearest multiple of π/2, and the number of that multiple (Cody and Waite).

    For f64 the angle is the sum of the first two results.
    """
    whole, quadrant = r.nearest(x, of.TWO_OVER_PI)
    minus = -whole
    if of is F32:
        rest = x
        for part in of.PI_2:
            rest = r.fma(minus, part, rest)
        return [rest, quadrant]
    first = r.fma(minus, of.PI_2[0], x)  # Exact.
    # Subtract the second part, and keep the errors of both roundings (Knuth's two-sum).
    second = minus * of.PI_2[1]
    lost = r.fma(minus, of.PI_2[1], -second)
    high = first + second
    difference = high - first
    error = (first - (high - difference)) + (second - difference)
    low = r.fma(minus, of.PI_2[2], error + lost)
    return [high, low, quadrant.to("trunc", "i32")]


def _far(r: Routine, x: Number, of: Format) -> list[Number]:
    """The reduced angle of a large angle: the digits of x · 2/π around the point, by integers (Payne and Hanek).

    x is m · 2^e. The digits of 2/π that make multiples of 4 are left out, and those after three more words.
    """
    width, wide, last = of.BITS, f"i{2 * of.BITS}", of.TABLE_WORDS - 1
    digits = two_over_pi(width * last)
    words = [0, *(digits >> width * (last - 1 - at) & (1 << width) - 1 for at in range(last))]
    bits = x.bits()
    exponent = bits >> of.DIGITS & 2 * of.BIAS + 1
    mantissa = bits & (1 << of.DIGITS) - 1 | 1 << of.DIGITS
    position = exponent - (of.BIAS + of.DIGITS - width + 2)
    first = position >> width.bit_length() - 1
    if of is F64:
        first = first.call("llvm.umin", last - 3)
    shift = position & width - 1
    load = r.table(f"zg.two.over.pi.{of.NAME}", f"i{width}", words, first)
    coefficients = [load(at) for at in range(4)]
    factor = mantissa.to("zext", wide)
    carry: Number | int = 0
    parts: list[Number] = []
    for at in (2, 1, 0):
        word = coefficients[at].call("llvm.fshl", coefficients[at + 1], shift)
        product = word.to("zext", wide) * factor + carry
        carry = product >> width
        parts.append(product)
    low = parts[1] & (1 << width) - 1
    turns = (parts[2] << width) | low  # In units of 2^(2 - 2 width) quadrants, modulo 4.
    fraction = turns << 2  # A signed number: from half a quadrant on it counts to the next one.
    quadrant = turns >> 2 * width - 2
    up = fraction >> 2 * width - 1
    quadrant = (quadrant + up).to("trunc", "i32")
    if of is F32:
        double = fraction.to("sitofp", "double") * 8.515303950216386e-20  # π/2 · 2^-64
        angle = [double.to("fptrunc", "float")]
    else:
        angle = _as_two_floats(r, fraction)
    negative = bits.test("slt", 0)
    quadrant = negative.select(-quadrant, quadrant)
    angle[0] = abs(x).test("oeq", _INFINITY).select(_NAN, angle[0])
    return [*(negative.select(-part, part) for part in angle), quadrant]


def _as_two_floats(r: Routine, fraction: Number) -> list[Number]:
    """A signed i128 times π/2 · 2^-128, as a sum of two floats: its first 53 digits, and the next 53."""
    below = fraction.test("slt", 0)
    size = fraction.call("llvm.abs", False)
    zeros = size.call("llvm.ctlz", False) & 127
    aligned = size << zeros
    top = (aligned >> 75).to("trunc", "i64")
    following = (aligned >> 22).to("trunc", "i64") & (1 << 53) - 1
    unit = r.power_of_two(-53 - zeros.to("trunc", "i64"))
    high = top.to("uitofp", "double") * unit
    low = following.to("uitofp", "double") * 2.0**-53 * unit
    product = high * F64.PI_2[0]
    rest = r.fma(high, F64.PI_2[0], -product)
    rest = r.fma(low, F64.PI_2[0], r.fma(high, F64.PI_2[1], rest))
    return [below.select(-product, product), below.select(-rest, rest)]


def _sine(of: Format, shift: int) -> Routine:
    """sin(x + shift · π/2). The sine keeps the sign of a zero."""
    r = _function("cos" if shift else "sin", of)
    x = r.argument()
    *angle, quadrant = r.branch(abs(x).test("ult", of.FAR), lambda: _near(r, x, of), lambda: _far(r, x, of))
    rest = angle[0]
    if shift:
        quadrant = quadrant + shift
    square = rest * rest
    if of is F32:
        sine = r.fma(rest * square, r.poly(square, of.SIN), rest)
        cosine = r.fma(square * square, r.poly(square, of.COS), r.fma(square, -0.5, 1.0))
    else:
        low = angle[1]
        half = square * 0.5
        correction = r.fma(-half, low, low)
        sine = rest + r.fma(rest * square, r.poly(square, of.SIN), correction)
        whole = 1.0 - half
        lost = 1.0 - whole - half
        tail = r.fma(square * square, r.poly(square, of.COS), r.fma(-rest, low, lost))
        cosine = whole + tail
    result = quadrant.to("trunc", "i1").select(cosine, sine)
    sign = quadrant & 2
    sign = sign.to("zext", "i64") << 62 if of is F64 else sign << 30
    result = (result.bits() ^ sign).to("bitcast", of.KIND)
    return r.done(result if shift else x.test("oeq", 0.0).select(x, result), inline=of is F32)


# tanh and erf: near 0 a polynomial, elsewhere 1 - 2 / (e^2x + 1), and 1 - e^p with a polynomial p. The machine's 2^x
# is accurate enough for f32, where the division makes its error small. Beyond 44, where it is infinite, tanh is 1.
# Vectors are of CPUs.


def _tanh_f32(lanes: int = 0) -> Routine:
    r = _function("tanh", F32, lanes)
    x = r.argument()
    square = x * x
    small = r.fma(r.poly(square, F32.TANH) * square, x, x)
    exponent = abs(x) * 2.885390081777927
    if lanes:
        inverse = 1.0 / (_power_of_2(r, exponent.clamp(0.0, 64.0), F32) + 1.0)
    else:
        inverse = (exponent.approximate("ex2") + 1.0).approximate("rcp")
    large = r.fma(inverse, -2.0, 1.0)
    return r.done(abs(x).test("olt", 0.55).select(small, large).signed_as(x))


def _erf_f32(lanes: int = 0) -> Routine:
    r = _function("erf", F32, lanes)
    x = r.argument()
    small = r.fma(x, r.poly(x * x, F32.ERF), x)
    bounded = abs(x).test("ogt", 3.95).select(3.95, abs(x))
    exponent = r.poly(bounded, F32.ERFC)
    large = 1.0 - (_power_of_2(r, exponent, F32) if lanes else exponent.approximate("ex2"))
    return r.done(abs(x).test("olt", 1.0).select(small, large.signed_as(x)))


def _tanh_f64(lanes: int = 0) -> Routine:
    r = _function("tanh", F64, lanes)
    size = abs(r.argument())

    def small() -> list[Number]:
        square = size * size
        return [r.fma(size * square, r.poly(square, F64.TANH), size)]

    def large() -> list[Number]:
        bounded = size.test("ogt", 20.0).select(20.0, size)
        power = _exponential(r, bounded + bounded, F64)
        return [1.0 - r.quotient(power.like(2.0), power + 1.0)]

    (result,) = r.branch(size.test("olt", 0.55), small, large)
    return r.done(result.signed_as(r.argument()), inline=False)


def _erf_f64(lanes: int = 0) -> Routine:
    r = _function("erf", F64, lanes)
    size = abs(r.argument())

    def far() -> list[Number]:
        bounded = size.test("ogt", 5.95).select(5.95, size)
        return [r.poly(bounded - 4.0, F64.ERFC_FAR)]

    def large() -> list[Number]:
        (exponent,) = r.branch(size.test("olt", 2.2), lambda: [r.poly(size - 1.5, F64.ERFC_MIDDLE)], far)
        return [1.0 - _exponential(r, exponent, F64)]

    (result,) = r.branch(size.test("olt", 0.84), lambda: [r.fma(size, r.poly(size * size, F64.ERF), size)], large)
    return r.done(result.signed_as(r.argument()), inline=False)


def _remainder(of: Format) -> Routine:
    """C's fmod, exactly: by long division of the mantissas. NaN for an infinite x or a zero y.

    With x = m · 2^e and y = n · 2^f as integers, it is m · 2^(e - f) modulo n, with as many digits at a time as fit in
    64 bits.
    """
    r = Routine(f"zg.fmod.{of.NAME}", of.KIND, [of.KIND, of.KIND])
    bits, digits, largest = of.BITS, of.DIGITS, 2 * of.BIAS + 1
    whole = f"i{bits}"
    chunk, infinity = 63 - digits, largest << digits
    sign = r.argument()

    def parts(value: Number) -> tuple[Number, Number, Number]:
        """The magnitude's bits, the mantissa with its leading digit as an i64, and the exponent."""
        magnitude = value.bits() & (1 << bits - 1) - 1
        field = magnitude >> digits
        normal = field.test("ne", 0)
        mantissa = magnitude & (1 << digits) - 1
        mantissa = mantissa | normal.select(1 << digits, 0, whole)
        exponent = normal.select(field, 1)
        return magnitude, mantissa.to("zext", "i64") if bits == 32 else mantissa, exponent

    x, m, e = parts(sign)
    y, n, f = parts(r.argument(1))
    finite = x.test("ult", infinity)
    is_finite = y.test("ule", infinity)
    nonzero = y.test("ne", 0)
    defined = finite & is_finite & nonzero
    larger = x.test("uge", y)
    divides = defined & larger

    def divided() -> list[Number]:
        body, after = r.name("block"), r.name("block")
        head = Join(r, "block", ["i64", whole])
        r.line(f"br {head.branch([m % n, e - f])}")
        remainder, more = map(Number, (r, r), ("i64", whole), head.begin())
        r.line(f"br i1 {more.test('sgt', 0)}, label %{body}, label %{after}")
        r.start(body)
        step = more.call("llvm.smin", chunk)
        shifted = remainder << (step if bits == 64 else step.to("zext", "i64"))
        r.line(f"br {head.branch([shifted % n, more - step])}")
        head.end()
        r.start(after)
        number = remainder.to("uitofp", of.KIND)
        return [r.scaled(number, f - (of.BIAS + digits))]

    (result,) = r.branch(divides, divided, lambda: [defined.select(abs(sign), _NAN)])
    return r.done(result.signed_as(sign), inline=False)


def _routines(of: Format) -> dict[str, Callable[..., Routine]]:
    return {
        "exp": partial(_exp, of), "exp2": partial(_exp2, of), "log": partial(_logarithm, of, False),
        "log2": partial(_logarithm, of, True), "sin": partial(_sine, of, 0), "cos": partial(_sine, of, 1),
        "fmod": partial(_remainder, of),
    }  # fmt: skip


# By the LLVM type and the name.
ROUTINES: dict[str, dict[str, Callable[..., Routine]]] = {
    "float": {**_routines(F32), "tanh": _tanh_f32, "erf": _erf_f32},
    "double": {**_routines(F64), "tanh": _tanh_f64, "erf": _erf_f64},
}


# The routines that neither read tables nor, but for a choice of f64, branch.
VECTORS: dict[str, tuple[str, ...]] = dict.fromkeys(("float", "double"), ("exp", "exp2", "log", "log2", "tanh", "erf"))


@cache
def accurate(name: str, kind: str, lanes: int = 0) -> Routine:
    """The routine of a function for an LLVM type; with `lanes`, for vectors of it, if there is one."""
    return ROUTINES[kind][name](lanes) if lanes and name in VECTORS[kind] else ROUTINES[kind][name]()
