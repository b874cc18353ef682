"""Logarithms, tanh and erf of vectors of f32, rounded once from f64.

With AVX-512, a register pair holds a table of 16 numbers, by which the rest of an argument becomes small.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ziggurat.backend.cpu.emitter import CpuEmitter
from ziggurat.backend.cpu.exponentials import certain_or_slow, fma, joined, part_of
from ziggurat.backend.cpu.interval_functions import ERF, TANH, of_interval
from ziggurat.backend.llvm.accurate import F64, in_base_2
from ziggurat.backend.llvm.routines import QUOTIENT, Code, Number, Routine, literal
from ziggurat.codemodel.types import f64

# c for an m from 1 + j/16 on (j < 8) or (1 + j/16)/2, its -log and -log2, and (log(1 + r) - r) / r² for r from -1/32 to
# 1/16, to 2^-56.6 / r.
_INVERSES = (
    1.0, 0.9140625, 0.865234375, 0.8203125, 0.78125, 0.744140625, 0.7109375, 0.681640625, 1.306640625, 1.255859375,
    1.20703125, 1.1640625, 1.123046875, 1.083984375, 1.048828125, 1.0,
)  # fmt: skip
_LOGS = (
    0.0, 0.08985632912186105, 0.14475485499437216, 0.1980699137620938, 0.24686007793152578, 0.2955252499128068,
    0.34117075740276714, 0.3832527028370806, -0.26745943508872067, -0.2278200991981116, -0.188163832418183,
    -0.15191604202584197, -0.11604541575784265, -0.08064348870692672, -0.047673469469356904, 0.0,
)  # fmt: skip
_LOGS_2 = (
    0.0, 0.12963528041659547, 0.20883711144498168, 0.28575448233387735, 0.3561438102252753, 0.42635281250667795,
    0.49220535980130375, 0.5529167737903478, -0.38586240064146093, -0.32867492732794734, -0.27146302790437454,
    -0.21916852046216156, -0.16741814583173756, -0.1163439612374683, -0.06877827798541261, 0.0,
)  # fmt: skip
_LOG_REST = (
    -0.5000000000000002, 0.3333333333334746, -0.24999999999864847, 0.1999999992808534, -0.1666666615605146,
    0.1428581954699145, -0.12501869570922658, 0.11071531283460184, -0.08745929951608901,
)  # fmt: skip
# tanh of j · 19/32, and (tanh r / r - 1) / r² for |r| < 19/64, of r², to 2^-53.9 / r².
_TANH = (
    0.0, 0.5325872861719194, 0.8298019099859595, 0.9448294355464201, 0.982845029172576, 0.9947366520502309,
    0.9983918281287415, 0.9995092610389148, 0.9998503075449787, 0.9999543440056142, 0.9999860754874997,
    0.9999957532430751, 0.9999987048104035, 0.9999996049893131, 0.9999998795285305, 0.9999999632582761,
)  # fmt: skip
_TANH_REST = (
    -0.3333333333332774, 0.13333333331704866, -0.05396825236418122, 0.02186941353996755, -0.008861355568410244,
    0.003566088423912648, -0.0012662926102931103,
)  # fmt: skip
# erf x / x for x from j/4 to (j + 1)/4, of x - (2j + 1)/8, to 2^-54.7: the coefficients of each power.
_ERF = (
    (
        1.1225296384106704, 1.0776450918261928, 0.9971854115014688, 0.896085784068411, 0.7896784281792958,
        0.6895782347506112, 0.6021192204553746, 0.5290613640907307, 0.4693392803014201, 0.4207229733819406,
        0.3808741425767081, 0.3478094417948717, 0.31999683304491994, 0.2962957584351326, 0.2758619875475331,
        0.25806450515769186,
    ),
    (
        -0.09315495051206261, -0.2594460860807568, -0.3738974011853812, -0.42438941574658756, -0.41902619526980306,
        -0.3776134262277062, -0.3210135147279153, -0.2642749523554738, -0.2150580986762758, -0.17545957706116658,
        -0.14465762569555268, -0.12087624817809021, -0.10237826379573926, -0.08778755753906158, -0.07609924734544785,
        -0.06659720395749937,
    ),
    (
        -0.3656456655001425, -0.28849657999721606, -0.16526369386399872, -0.039728570151195575, 0.05419377062794458,
        0.10426817265990952, 0.11707451927159179, 0.10740081283203626, 0.08886299052744245, 0.06987123879566283,
        0.05395979180575651, 0.04175368412690812, 0.03269628573140189, 0.025998376418922185, 0.020990679899149246,
        0.01718603539245676,
    ),
    (
        0.05537837754097302, 0.14298769611214854, 0.17534696434236105, 0.1516024821976698, 0.0962298332082894,
        0.03903238850683905, -0.001374707462268169, -0.021311850811889584, -0.026270863690141723,
        -0.02363819170113764, -0.018693091614390624, -0.014000399346318039, -0.010334805103521864,
        -0.007675790657048294, -0.005785381008078261, -0.004434257265280887,
    ),
    (
        0.10662975367048254, 0.06292184385010748, 0.0017806228817722044, -0.04480676543882062, -0.06067247650967205,
        -0.050569453841622126, -0.029750249660626938, -0.01117228303946365, -4.233633769224544e-05,
        0.004423148689736871, 0.0050585896410248665, 0.004215178878314496, 0.003128713969397196,
        0.0022322674473760247, 0.0015873689422916096, 0.0011427934849330052,
    ),
    (
        -0.019584783379054897, -0.04652398207075599, -0.04671045384755691, -0.025610414320193845,
        -0.0005788515499741018, 0.014518892602455926, 0.01699404633045424, 0.012071929024641884, 0.005900150151510704,
        0.0016565237954760776, -0.0003202701673762735, -0.0008702315342725253, -0.0008165607895276813,
        -0.0006128869587872805, -0.0004269728538180554, -0.0002927960347222778,
    ),
    (
        -0.024624084170222348, -0.009553792109975397, 0.008584992187286441, 0.017420145720724513, 0.01432505465551827,
        0.005558067685651778, -0.001587239811965101, -0.004248928973327627, -0.003633676675595482,
        -0.0020086749349299306, -0.0007339290226207219, -9.385845309818375e-05, 0.00011655860249523891,
        0.00013821572799081226, 0.00010688103106842116, 7.323224343612039e-05,
    ),
    (
        0.0050264019112146625, 0.01091952439558346, 0.00851995718277106, 0.0013436189966071592, -0.004193803493317907,
        -0.005074250274585136, -0.0028289784810943746, -0.0003624216639823909, 0.0008303051687117658,
        0.0008976688679854621, 0.0005389786994877288, 0.00021650005107364185, 4.797515124608954e-05,
        -1.0676154341848608e-05, -2.0791350299540376e-05, -1.682575865951361e-05,
    ),
    (
        0.0046372252982414906, 0.0008778426063016925, -0.0029340764333439916, -0.0036452836881095078,
        -0.001633220018499441, 0.0005914018343378137, 0.0013860841242636097, 0.0009562167336519476,
        0.00026026324333798583, -0.00012780671599490201, -0.00019212618185276314, -0.00012247355384593654,
        -5.095719818091985e-05, -1.3087652390431042e-05, 1.9374930482972421e-07, 2.8327618910047444e-06,
    ),
    (
        -0.001010350464077387, -0.0019970599664448194, -0.0011143576129655402, 0.00043766365873837415,
        0.001124081259725961, 0.0007157757191499486, 1.783126414660243e-05, -0.0003141907679707097,
        -0.0002582113643735734, -8.881615375256738e-05, 1.4521205029071202e-05, 3.678197601037149e-05,
        2.4452718297371187e-05, 1.0225879480082002e-05, 2.7510497738461097e-06, 1.7752159397809247e-07,
    ),
    (
        -0.0007290489215229747, 1.6461185595037098e-06, 0.0006098468807084973, 0.0005164356379277423,
        2.077329289041639e-05, -0.00028395982317994844, -0.00022759989268908334, -3.978763128798254e-05,
        6.332736772596571e-05, 6.002593864409179e-05, 2.2549097422474026e-05, -1.1320453736553285e-06,
        -6.542685400875618e-06, -4.3803646694358265e-06, -1.7851571019550415e-06, -4.7471103250493887e-07,
    ),
)  # fmt: skip
_LN_2 = 0.6931471805599453


def logarithm(emitter: CpuEmitter, name: str, x: Number) -> Number:
    """The logarithm of f32 as f32, rounded once from that in f64."""
    if emitter.module.vector == 64 and x.lanes % 16 == 0:
        return _table_logarithm(emitter, name, x).to("fptrunc", "float")
    value = emitter.routine(wide_logarithm(name, x.lanes), x).to("fptrunc", "float")
    value = x.test("oeq", float("inf")).select(float("inf"), value)
    value = x.test("ult", 0.0).select(float("nan"), value)
    return x.test("oeq", 0.0).select(-float("inf"), value)


def _table_logarithm(emitter: CpuEmitter, name: str, x: Number) -> Number:
    """The logarithm of f32 as f64, with AVX-512: x is m · 2^e, where m is between 3/4 and 3/2, and c the number of a
    table, 1 for an m near 1, so that c · m = 1 + r with a small, exact r. The instructions that part x give what 0,
    infinity, negative numbers and NaN need."""
    vector, all_lanes, rounding = "<16 x float>", ("i16", "-1"), ("i32", "4")
    exponents, mantissas = list[Number](), list[Number]()
    for first in range(0, x.lanes, 16):
        part = part_of(x, first, 16)
        rest = (vector, "zeroinitializer"), all_lanes, rounding
        text = emitter.called(vector, "llvm.x86.avx512.mask.getexp.ps.512", part, *rest)
        exponents.append(emitter.made("float", text, 16))
        interval = "i32", "11"  # From 3/4 to 3/2; NaN of a negative number.
        text = emitter.called(vector, "llvm.x86.avx512.mask.getmant.ps.512", part, interval, *rest)
        mantissas.append(emitter.made("float", text, 16))
    whole, part = joined(exponents), joined(mantissas)
    exponent = part.test("olt", 1.0).select(whole + 1.0, whole).to("fpext", "double")
    mantissa = part.to("fpext", "double")
    index = mantissa.bits() >> 48
    rest = fma(mantissa, _entry_of_16(emitter, index, _INVERSES), -1.0)
    series = rest.like(_LOG_REST[-1])
    for coefficient in reversed(_LOG_REST[:-1]):
        series = fma(series, rest, coefficient)
    near = fma(rest * rest, series, rest)
    if name == "log2":
        return fma(near, F64.LOG2_E[0], exponent + _entry_of_16(emitter, index, _LOGS_2))
    return near + fma(exponent, _LN_2, _entry_of_16(emitter, index, _LOGS))


def has_intervals(emitter: CpuEmitter, x: Number) -> bool:
    """Whether tanh and erf of numbers can be those of intervals."""
    return emitter.module.vector == 64 and x.lanes > 0 and x.lanes % 16 == 0


def of_table(emitter: CpuEmitter, x: Number, name: str) -> Number | None:
    """tanh or erf of f32 as f32, rounded once from f64. None without AVX-512."""
    if emitter.module.vector < 64 or not x.lanes or x.lanes % 8:
        return None
    slow, function = (_slow_tanh, TANH) if name == "tanh" else (_slow_erf, ERF)
    if not has_intervals(emitter, x) or emitter.level(x.name) < emitter.depth:
        return emitter.routine(slow(x.lanes), x)
    return certain_or_slow(emitter, x, *of_interval(emitter, x, function), slow(x.lanes))


@cache
def _slow_tanh(lanes: int) -> Routine:
    """tanh by the sum of two angles: a multiple of 19/32, and the rest."""
    r = Routine("zg.tanh.slow", "float", ["float"], lanes)
    x = r.argument()
    size = abs(x)
    size = size.test("ogt", 9.2).select(9.2, size).to("fpext", "double")  # tanh 9.2 is 1 in f32.
    anchor = 1.5 * 2.0**52
    anchored = fma(size, 32 / 19, anchor)
    rest = fma(anchored - anchor, -19 / 32, size)
    square = rest * rest
    series = rest.like(_TANH_REST[-1])
    for coefficient in reversed(_TANH_REST[:-1]):
        series = fma(series, square, coefficient)
    first, second = _entry_of_16(r, anchored.bits(), _TANH), fma(rest * square, series, rest)
    quotient = r.routine(_quick_quotient(x.lanes), first + second, fma(first, second, 1.0))
    return r.done(quotient.to("fptrunc", "float").signed_as(x), inline=False)


@cache
def _slow_erf(lanes: int) -> Routine:
    """erf as x times a polynomial, of one of 16 intervals."""
    r = Routine("zg.erf.slow", "float", ["float"], lanes)
    x = r.argument()
    below = 3.9999998  # erf of it is 1 in f32.
    size = abs(x)
    size = size.test("ogt", below).select(below, size).to("fpext", "double")
    anchor = 1.5 * 2.0**52
    anchored = fma(size, 4.0, -0.5) + anchor  # j or, of a multiple of 1/4, j - 1, whose interval ends there.
    rest = fma(anchored - anchor, -0.25, size) - 0.125
    index, (*lower, highest) = anchored.bits(), _ERF
    series = _entry_of_16(r, index, highest)
    for coefficients in reversed(lower):
        series = fma(series, rest, _entry_of_16(r, index, coefficients))
    return r.done((size * series).to("fptrunc", "float").signed_as(x), inline=False)


def _entry_of_16(code: Code, index: Number, table: Sequence[float]) -> Number:
    """The entries of a table of 16 f64, which two registers of AVX-512 hold, that the last bits of i64s number."""
    vector = "<8 x double>"
    low, high = (
        (vector, f"<{', '.join(f'double {literal(entry, f64)}' for entry in table[first : first + 8])}>")
        for first in (0, 8)
    )
    parts = [part_of(index, first, 8) for first in range(0, index.lanes, 8)]
    texts = [code.called(vector, "llvm.x86.avx512.vpermi2var.pd.512", low, part, high) for part in parts]
    return joined([index.made("double", text, 8) for text in texts])


@cache
def wide_logarithm(name: str, lanes: int) -> Routine:
    """The logarithm of a positive, finite f32 as f64, which is never subnormal."""
    r = Routine(f"zg.{name}.wide", "double", ["float"], lanes)
    bits = r.argument().to("fpext", "double").bits()
    field = bits - F64.LOWEST & -(1 << 52)
    fraction = (bits - field).to("bitcast", "double") - 1.0
    # The exponent, in the last bits of 2^52 + 1023 + e: there is no conversion of 64 bits before AVX-512.
    exponent = ((field + (1023 << 52) >> 52) | 0x4330000000000000).to("bitcast", "double") - (2.0**52 + 1023)
    s = r.quotient(fraction, fraction + 2.0)
    square, half = s * s, fraction * fraction * 0.5
    inner = r.fma(square, r.poly(square, F64.LOG), half)
    if name == "log2":
        return r.done(in_base_2(r, exponent, fraction - r.fma(-s, inner, half), F64))
    low = r.fma(s, inner, exponent * F64.LN_2[1])
    return r.done(exponent * F64.LN_2[0] - (half - low - fraction))


def use_quick_quotients(emitter: CpuEmitter) -> None:
    """Let the routines of the emitted kernel divide f64 with AVX-512, where the machine has it."""
    for symbol in [symbol for symbol in emitter.definitions if symbol.startswith(f"{QUOTIENT}.double.")]:
        lanes = int(symbol.rpartition("v")[2])
        if emitter.module.vector == 64 and lanes % 8 == 0:
            quick = _quick_quotient(lanes)
            emitter.definitions[symbol] = quick.text
            emitter.declarations.update(quick.declarations)


@cache
def _quick_quotient(lanes: int) -> Routine:
    """Quotients of f64 with AVX-512, from the first 14 bits of reciprocals: two steps of Newton's, the last of which
    corrects the quotient. A division of 8 takes 16 cycles, and this 5."""
    r = Routine(f"{QUOTIENT}.double", "double", ["double", "double"], lanes)
    a, b = r.argument(), r.argument(1)
    vector, parts = "<8 x double>", list[Number]()
    for first in range(0, lanes, 8):
        near = r.called(vector, "llvm.x86.avx512.rcp14.pd.512", part_of(b, first, 8), (vector, "poison"), ("i8", "-1"))
        parts.append(b.made("double", near, 8))
    inverse = joined(parts)
    inverse = r.fma(inverse, r.fma(-b, inverse, 1.0), inverse)
    quotient = a * inverse
    return r.done(r.fma(r.fma(-b, quotient, a), inverse, quotient))
