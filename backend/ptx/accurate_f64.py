"""Accurate functions of f64 as routines of plain LLVM; made as those of `accurate_f32.py` are."""

from __future__ import annotations

from collections.abc import Callable

from ziggurat.backend.ptx.routines import Real, Routine, two_over_pi

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
# (log((1 + s) / (1 - s)) - 2s) / s³, of s², for the s of numbers between √½ and √2.
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


def _exponential(r: Real, x: str) -> str:
    """e^x of a number between -746 and 710."""
    whole, exponent = r.nearest(x, _LOG2_E[0])
    minus = r.negative(whole)
    rest = r.fma(minus, _LN_2[1], r.fma(minus, _LN_2[0], x))
    grown = r.fma(r.mul(rest, rest), r.poly(rest, _EXP), rest)
    return r.scaled(r.add(grown, 1.0), exponent)


def _exp() -> Routine:
    r = Real("zg.exp.f64", "double")
    return r.done(_exponential(r, r.clamp("%a0", -746.0, 710.0)))


def _exp2() -> Routine:
    r = Real("zg.exp2.f64", "double")
    x = r.clamp("%a0", -1076.0, 1025.0)
    whole, exponent = r.nearest(x)
    rest = r.sub(x, whole)
    return r.done(r.scaled(r.fma(rest, r.poly(rest, _EXP2), 1.0), exponent))


def _logarithm(name: str, base_2: bool) -> Routine:
    """x is m · 2^e with m between √½ and √2; log m by s = f / (2 + f), where f is m - 1."""
    r = Real(name, "double")
    tiny = r.compare("olt", "%a0", 2.2250738585072014e-308)
    x = r.select(tiny, r.mul("%a0", 2.0**54), "%a0")
    bits = r.to_bits(x)
    field = r.emit(f"sub i64 {bits}, {0x3FE6A09E667F3BCD}")
    field = r.emit(f"and i64 {field}, {-(1 << 52)}")
    fraction = r.sub(r.from_bits(r.emit(f"sub i64 {bits}, {field}")), 1.0)
    exponent = r.emit(f"ashr i64 {field}, 52")
    exponent = r.emit(f"trunc i64 {exponent} to i32")
    exponent = r.emit(f"add i32 {exponent}, {r.select(tiny, -54, 0, 'i32')}")
    number = r.emit(f"sitofp i32 {exponent} to double")
    s = r.div(fraction, r.add(fraction, 2.0))
    square = r.mul(s, s)
    half_square = r.mul(r.mul(fraction, fraction), 0.5)
    inner = r.fma(square, r.poly(square, _LOG), half_square)
    if base_2:
        natural = r.sub(fraction, r.fma(r.negative(s), inner, half_square))
        scaled = r.mul(natural, _LOG2_E[0])
        lost = r.fma(natural, _LOG2_E[0], r.negative(scaled))
        result = r.add(number, r.add(scaled, r.fma(natural, _LOG2_E[1], lost)))
    else:
        low = r.fma(s, inner, r.mul(number, _LN_2[1]))
        result = r.sub(r.mul(number, _LN_2[0]), r.sub(r.sub(half_square, low), fraction))
    result = r.select(r.compare("oeq", "%a0", _INFINITY), _INFINITY, result)
    result = r.select(r.compare("ult", "%a0", 0.0), _NAN, result)
    return r.done(r.select(r.compare("oeq", "%a0", 0.0), -_INFINITY, result))


def _log() -> Routine:
    return _logarithm("zg.log.f64", False)


def _log2() -> Routine:
    return _logarithm("zg.log2.f64", True)


# sin and cos.


def _reduced_near(r: Real, x: str) -> tuple[str, str, str]:
    """The angle less its nearest multiple of π/2, as a sum of two floats, and which multiple that is."""
    whole, quadrant = r.nearest(x, _TWO_OVER_PI)
    minus = r.negative(whole)
    first = r.fma(minus, _PI_2[0], x)  # Exact.
    # Less the second part, with what both roundings lose (Knuth's sum of two).
    second = r.mul(minus, _PI_2[1])
    lost = r.fma(minus, _PI_2[1], r.negative(second))
    high = r.add(first, second)
    moved = r.sub(high, first)
    error = r.add(r.sub(first, r.sub(high, moved)), r.sub(second, moved))
    low = r.fma(minus, _PI_2[2], r.add(error, lost))
    return high, low, r.emit(f"trunc i64 {quadrant} to i32")


def _reduced_far(r: Real, x: str) -> tuple[str, str, str]:
    """The same for a large angle: the digits of x · 2/π around the point, by integers (Payne and Hanek)."""
    digits = two_over_pi(64 * (_TABLE_WORDS - 1))
    words = [0, *(digits >> 64 * (_TABLE_WORDS - 2 - at) & (1 << 64) - 1 for at in range(_TABLE_WORDS - 1))]
    table = r.constant("zg.two.over.pi.f64", "i64", words)
    bits = r.to_bits(x)
    exponent = r.emit(f"lshr i64 {bits}, 52")
    exponent = r.emit(f"and i64 {exponent}, 2047")
    mantissa = r.emit(f"and i64 {bits}, {(1 << 52) - 1}")
    mantissa = r.emit(f"or i64 {mantissa}, {1 << 52}")
    position = r.emit(f"sub i64 {exponent}, 1013")
    first = r.emit(f"lshr i64 {position}, 6")
    first = r.call("i64", "llvm.umin.i64", ("i64", first), ("i64", str(_TABLE_WORDS - 4)))
    shift = r.emit(f"and i64 {position}, 63")
    loaded: list[str] = []
    for at in range(4):
        index = r.emit(f"add i64 {first}, {at}")
        place = r.emit(f"getelementptr i64, ptr addrspace(4) {table}, i64 {index}")
        loaded.append(r.emit(f"load i64, ptr addrspace(4) {place}"))
    factor = r.emit(f"zext i64 {mantissa} to i128")
    carry = "0"
    parts: list[str] = []
    for at in (2, 1, 0):
        word = r.call("i64", "llvm.fshl.i64", ("i64", loaded[at]), ("i64", loaded[at + 1]), ("i64", shift))
        product = r.emit(f"zext i64 {word} to i128")
        product = r.emit(f"mul i128 {product}, {factor}")
        product = r.emit(f"add i128 {product}, {carry}")
        carry = r.emit(f"lshr i128 {product}, 64")
        parts.append(r.emit(f"trunc i128 {product} to i64"))
    middle = r.emit(f"zext i64 {parts[1]} to i128")
    turns = r.emit(f"zext i64 {parts[2]} to i128")
    turns = r.emit(f"shl i128 {turns}, 64")
    turns = r.emit(f"or i128 {turns}, {middle}")  # In units of 2^-126 quadrants, modulo 4.
    fraction = r.emit(f"shl i128 {turns}, 2")  # A signed number: half a quadrant and more belongs to the next one.
    quadrant = r.emit(f"lshr i64 {parts[2]}, 62")
    up = r.emit(f"lshr i128 {fraction}, 127")
    up = r.emit(f"trunc i128 {up} to i64")
    quadrant = r.emit(f"add i64 {quadrant}, {up}")
    quadrant = r.emit(f"trunc i64 {quadrant} to i32")
    high, low = _as_two_floats(r, fraction)
    negative = r.emit(f"icmp slt i64 {bits}, 0")
    quadrant = r.select(negative, r.emit(f"sub i32 0, {quadrant}"), quadrant, "i32")
    high = r.select(r.compare("oeq", r.magnitude(x), _INFINITY), _NAN, high)
    return r.select(negative, r.negative(high), high), r.select(negative, r.negative(low), low), quadrant


def _as_two_floats(r: Real, fraction: str) -> tuple[str, str]:
    """A signed i128 times π/2 · 2^-128, as a sum of two floats: its first 53 digits, and the next 53."""
    below = r.emit(f"icmp slt i128 {fraction}, 0")
    size = r.call("i128", "llvm.abs.i128", ("i128", fraction), ("i1", "false"))
    zeros = r.call("i128", "llvm.ctlz.i128", ("i128", size), ("i1", "false"))
    zeros = r.emit(f"and i128 {zeros}, 127")
    aligned = r.emit(f"shl i128 {size}, {zeros}")
    top = r.emit(f"lshr i128 {aligned}, 75")
    top = r.emit(f"trunc i128 {top} to i64")
    next_ = r.emit(f"lshr i128 {aligned}, 22")
    next_ = r.emit(f"trunc i128 {next_} to i64")
    next_ = r.emit(f"and i64 {next_}, {(1 << 53) - 1}")
    zeros = r.emit(f"trunc i128 {zeros} to i64")
    unit = r.power_of_two(r.emit(f"sub i64 -53, {zeros}"))
    high = r.mul(r.emit(f"uitofp i64 {top} to double"), unit)
    low = r.mul(r.mul(r.emit(f"uitofp i64 {next_} to double"), 2.0**-53), unit)
    product = r.mul(high, _PI_2[0])
    rest = r.fma(high, _PI_2[0], r.negative(product))
    rest = r.fma(low, _PI_2[0], r.fma(high, _PI_2[1], rest))
    return r.select(below, r.negative(product), product), r.select(below, r.negative(rest), rest)


def _sine(name: str, shift: int) -> Routine:
    """sin(x + shift · π/2)."""
    r = Real(name, "double")
    x = "%a0"
    far = r.compare("oge", r.magnitude(x), _FAR)
    near_label, far_label, after = (r.fresh("block") for _ in range(3))
    r.line(f"br i1 {far}, label %{far_label}, label %{near_label}")
    ends: list[tuple[tuple[str, str, str], str]] = []
    for label, reduce in ((near_label, _reduced_near), (far_label, _reduced_far)):
        r.start(label)
        ends.append((reduce(r, x), label))
        r.line(f"br label %{after}")
    r.start(after)
    kinds = ("double", "double", "i32")
    rest, low, quadrant = (
        r.emit(f"phi {kind} " + ", ".join(f"[ {values[index]}, %{label} ]" for values, label in ends))
        for index, kind in enumerate(kinds)
    )
    if shift:
        quadrant = r.emit(f"add i32 {quadrant}, {shift}")
    square = r.mul(rest, rest)
    half = r.mul(square, 0.5)
    correction = r.fma(r.negative(half), low, low)
    sine = r.add(rest, r.fma(r.mul(rest, square), r.poly(square, _SIN), correction))
    whole = r.sub(1.0, half)
    lost = r.sub(r.sub(1.0, whole), half)
    tail = r.fma(r.mul(square, square), r.poly(square, _COS), r.fma(r.negative(rest), low, lost))
    cosine = r.add(whole, tail)
    odd = r.emit(f"trunc i32 {quadrant} to i1")
    result = r.select(odd, cosine, sine)
    sign = r.emit(f"and i32 {quadrant}, 2")
    sign = r.emit(f"zext i32 {sign} to i64")
    sign = r.emit(f"shl i64 {sign}, 62")
    result = r.from_bits(r.emit(f"xor i64 {r.to_bits(result)}, {sign}"))
    return r.done(result if shift else r.select(r.compare("oeq", x, 0.0), x, result), inline=False)


def _sin() -> Routine:
    return _sine("zg.sin.f64", 0)


def _cos() -> Routine:
    return _sine("zg.cos.f64", 1)


# tanh and erf.


def _tanh() -> Routine:
    """Near 0 a polynomial; elsewhere 1 - 2 / (e^2x + 1)."""
    r = Real("zg.tanh.f64", "double")
    size = r.magnitude("%a0")

    def small() -> str:
        square = r.mul(size, size)
        return r.fma(r.mul(size, square), r.poly(square, _TANH), size)

    def large() -> str:
        bounded = r.select(r.compare("ogt", size, 20.0), 20.0, size)
        power = _exponential(r, r.add(bounded, bounded))
        return r.sub(1.0, r.div(2.0, r.add(power, 1.0)))

    return r.done(r.signed_as(r.branch(r.compare("olt", size, 0.55), small, large), "%a0"), inline=False)


def _erf() -> Routine:
    """Near 0 a polynomial; elsewhere 1 - e^p with a polynomial p."""
    r = Real("zg.erf.f64", "double")
    size = r.magnitude("%a0")

    def small() -> str:
        return r.fma(size, r.poly(r.mul(size, size), _ERF), size)

    def middle() -> str:
        return r.poly(r.sub(size, 1.5), _ERFC_MIDDLE)

    def far() -> str:
        bounded = r.select(r.compare("ogt", size, 5.95), 5.95, size)
        return r.poly(r.sub(bounded, 4.0), _ERFC_FAR)

    def large() -> str:
        exponent = r.branch(r.compare("olt", size, 2.2), middle, far)
        return r.sub(1.0, _exponential(r, exponent))

    return r.done(r.signed_as(r.branch(r.compare("olt", size, 0.84), small, large), "%a0"), inline=False)


ROUTINES: dict[str, Callable[[], Routine]] = {
    "exp": _exp, "exp2": _exp2, "log": _log, "log2": _log2, "sin": _sin, "cos": _cos, "tanh": _tanh, "erf": _erf,
}  # fmt: skip
