"""e^x and 2^x of floats of up to 32 bits, rounded as the interpreter's, which computes them in f64.

With AVX-512, most vectors of f32 need no f64: x is n/32 · ln 2 + r, and e^x is 2^⌊n/32⌋ · T · e^r, where T is one of 32
powers of 2 in a register. T · e^r is computed as the sum of two f32, to 2^-35. Where that may not tell to which f32 it
rounds, in about one lane of 1,000, the vector is computed in f64. With AVX2, a register holds 8 powers of 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ziggurat.backend.cpu.emitter import CpuEmitter
from ziggurat.backend.llvm.accurate import F32, F64, accurate, in_base_2
from ziggurat.backend.llvm.routines import QUOTIENT, Number, Routine, literal
from ziggurat.codemodel.types import f64

# e^x for |x| < ln(2)/2 and 2^x for |x| < 1/2, from the lowest power on: to 2^-51.5, by Remez.
POWERS = {
    "exp": (
        1.0, 1.0, 0.49999999999998346, 0.16666666666611935, 0.041666666668125865, 0.008333333370717391,
        0.001388888851777863, 0.00019841185425699452, 2.480193094019987e-05, 2.763491663842906e-06,
        2.747687313029916e-07,
    ),
    "exp2": (
        1.0, 0.6931471805599491, 0.24022650695909106, 0.055504108664484575, 0.00961812910798207, 0.0013333558225447752,
        0.00015403529994689334, 1.5252659601892195e-05, 1.3215653641116539e-06, 1.020829364483464e-07,
        7.0381425860978235e-09,
    ),
}  # fmt: skip

_ENTRIES = 32  # Of the table of powers of 2.
# The bits of 2^(j/32) as f32, and of the relative errors of these numbers.
_HIGH = (
    0x3F800000, 0x3F82CD87, 0x3F85AAC3, 0x3F88980F, 0x3F8B95C2, 0x3F8EA43A, 0x3F91C3D3, 0x3F94F4F0,
    0x3F9837F0, 0x3F9B8D3A, 0x3F9EF532, 0x3FA27043, 0x3FA5FED7, 0x3FA9A15B, 0x3FAD583F, 0x3FB123F6,
    0x3FB504F3, 0x3FB8FBAF, 0x3FBD08A4, 0x3FC12C4D, 0x3FC5672A, 0x3FC9B9BE, 0x3FCE248C, 0x3FD2A81E,
    0x3FD744FD, 0x3FDBFBB8, 0x3FE0CCDF, 0x3FE5B907, 0x3FEAC0C7, 0x3FEFE4BA, 0x3FF5257D, 0x3FFA83B3,
)  # fmt: skip
_LOW = (
    0x00000000, 0xB34A3A0A, 0x3346CB6A, 0xB36ED17E, 0xB24E0611, 0xB3517DD9, 0x334B2482, 0xB31586DE,
    0x33092801, 0xB2E6F467, 0x331B85F2, 0x3099B6F1, 0xB3051AA8, 0xB2E2A0DA, 0xB2006C56, 0xB3365942,
    0x329302AE, 0x32C595DC, 0xB302E5A2, 0xB28E10A1, 0x31B3D0E5, 0xB31A472B, 0x31D1DAF2, 0xB305BF64,
    0xB27CE182, 0xB2F26443, 0xB1B4B0DA, 0xB1DA8A8F, 0xB1D290BE, 0xB2D5B899, 0x31B0A147, 0xB2156AFC,
)  # fmt: skip
_STEP = (0.021660849452018738, -5.952044412893542e-11)  # ln(2)/32. The first part's last bit is 2^-29.
_REST = (0.5, 0.16666752099990845, 0.0416669137775898)  # (e^r - 1 - r) / r² for |r| < ln(2)/64, to 2^-42 / r².
# The same with every fourth power: ln(2)/8, whose first part's last bit is 2^-27, and (e^r - 1 - r - r²/2) / r³ for
# |r| < ln(2)/16, to 2^-39.8 / r³.
_STEP_8 = (0.08664339780807495, -2.380817765157417e-10)
_REST_8 = (0.1666666716337204, 0.04166899994015694, 0.00833392795175314)
# Above the relative error of the sum of two f32, with 32 and 8 powers; 2^-36 is not, for one number of 637 million.
_ERROR, _ERROR_8 = 2.0**-35.5, 2.0**-36
_RANGES = {"exp": (87.3125, -104.0), "exp2": (126.0, -150.5)}  # |x| of normal powers; powers below are 0.
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


def power(emitter: CpuEmitter, name: str, x: Number) -> Number:
    """e^x or 2^x of f32 as f32, correctly rounded but for results within 3 ulp of f64 of a midpoint."""
    vector = emitter.module.vector
    quick = {64: _quick, 32: _quick_by_8}.get(vector)
    if quick is None or not x.lanes or x.lanes % (vector // 4) or emitter.level(x.name) < emitter.depth:
        return emitter.routine(wide_power(name, x.lanes), x).to("fptrunc", "float")
    estimate, certain = quick(emitter, name, x)
    slow = _in_f64(name, x.lanes)
    # The callee keeps the registers that hold the constants of the quick way.
    convention = "preserve_allcc " if vector == 32 else ""
    emitter.definitions[slow.symbol] = slow.text.replace("define internal ", f"define internal {convention}")
    emitter.declarations.update(slow.declarations)
    call = f"call {convention}{x.type} @{slow.symbol}({x.typed})"
    before, values, end = emitter.aside(certain, lambda: emitter.effect(call), when=False, rare=True)
    phi = f"phi {x.type} [ {estimate}, %{before} ], [ {values}, %{end} ]"
    return emitter.number("float", emitter.effect(phi), x.lanes)


def fast_power(emitter: CpuEmitter, name: str, x: Number) -> Number:
    """e^x or 2^x of f32 as f32, to 1.1 ulp; with AVX-512, results below 2^-126 are 0."""
    if emitter.module.vector < 64 or not x.lanes or x.lanes % 16:
        return emitter.routine(accurate(name, "float", x.lanes), x)

    natural = name == "exp"
    number, count = _nearest_entry(x, natural)
    rest = _fma(count, -_STEP[0] if natural else -1.0 / _ENTRIES, x)
    rest = _fma(count, -_STEP[1], rest) if natural else rest * F32.LN_2[0]
    high = _entry(emitter, number, _HIGH)
    near = _fma(high, _fma(rest * rest, _fma(rest, _REST[1], _REST[0]), rest), high)
    scaled = _scaled(near, number)
    low, top = (-87.33654, 88.72284) if natural else (-126.0, 128.0)
    powers = x.test("olt", low).select(0.0, x.test("oge", top).select(float("inf"), scaled))
    return x.test("uno", x).select(x, powers)  # The sum of bits may make a number of a NaN.


def _quick(emitter: CpuEmitter, name: str, x: Number) -> tuple[Number, Number]:
    """The powers, and whether all are rounded as they have to be."""

    natural = name == "exp"
    number, count = _nearest_entry(x, natural)
    high, low = (_entry(emitter, number, values) for values in (_HIGH, _LOW))
    if natural:
        first = _fma(count, -_STEP[0], x)  # Exact.
        rest = _fma(count, -_STEP[1], first)
        error = count * -_STEP[1]
    else:
        exact = _fma(count, -1.0 / _ENTRIES, x)
        first = rest = exact * F32.LN_2[0]
        error = _fma(exact, F32.LN_2[1], _fma(exact, F32.LN_2[0], -first))
    square = rest * rest
    poly = _fma(_fma(rest, _REST[2], _REST[1]), rest, _REST[0])
    error = _fma(square, poly, error)
    near = _fma(high, first, high)
    error = _fma(near, low, _fma(high, error, _fma(high, first, high - near)))  # The last fma is exact up to 2^-48.
    bounds, other = near + _fma(high, _ERROR, error), near + _fma(high, -_ERROR, error)
    scaled = _scaled(bounds, number)
    limit, lowest = _RANGES[name]
    none = x.test("olt", lowest)
    certain = none | (abs(x).test("ole", limit) & bounds.test("oeq", other))
    every = emitter.made(f"i{x.lanes}", f"bitcast {certain.typed} to i{x.lanes}").test("eq", -1)
    return none.select(0.0, scaled), every


def _quick_by_8(emitter: CpuEmitter, name: str, x: Number) -> tuple[Number, Number]:
    """The same with a table of 8 powers, whose rests are longer: e^r is 1 + (r + r²/2) + the error of that sum and its
    square, + r³ times a polynomial."""
    number, count = _nearest_entry(x, name == "exp", 8)
    high, low = (_entry(emitter, number, values[::4]) for values in (_HIGH, _LOW))
    if name == "exp":
        rest = _fma(count, -_STEP_8[0], x)  # Exact.
        error = count * -_STEP_8[1]
    else:
        exact = _fma(count, -1.0 / 8, x)
        rest = exact * F32.LN_2[0]
        error = _fma(exact, F32.LN_2[1], _fma(exact, F32.LN_2[0], -rest))
    square = rest * rest
    small = _fma(square, 0.5, rest)
    error = _fma(error, small, error)
    cubic = rest * _fma(_fma(rest, _REST_8[2], _REST_8[1]), rest, _REST_8[0])
    error = _fma(square, cubic, error)
    error = _fma(_fma(rest, rest, -square), 0.5, error)
    error = _fma(square, 0.5, rest - small) + error
    near = _fma(high, small, high)
    error = _fma(high, error, _fma(high, small, high - near))
    upper, lower = (near + _fma(near, low + bound, error) for bound in (2 * _ERROR_8, -2 * _ERROR_8))
    limit, _ = _RANGES[name]
    doubtful: Number | None = None  # In eight lanes: masks of eight are quicker to combine than to pack.
    for first in range(0, x.lanes, 8):
        u, v, argument = (_part(value, first, 8) for value in (upper, lower, x))
        mask = (u.test("une", v) | abs(argument).test("ugt", limit)).to("sext", "i32")
        doubtful = mask if doubtful is None else doubtful | mask
    assert doubtful is not None
    certain = emitter.made("i8", f"bitcast {doubtful.test('slt', 0).typed} to i8").test("eq", 0)
    return _scaled(upper, number, 8), certain


def _fma(a: Number, b: Number | float, c: Number | float) -> Number:
    return a.call("llvm.fma", b, c)


def _nearest_entry(x: Number, natural: bool, entries: int = _ENTRIES) -> tuple[Number, Number]:
    """The power as a count of parts of an octave, rounded: in the last bits of an integer, and as f32."""
    anchor = 1.5 * 2.0**23
    anchored = _fma(x, entries * F32.LOG2_E[0] if natural else float(entries), anchor)
    return anchored.bits(), anchored - anchor


def _scaled(power: Number, number: Number, entries: int = _ENTRIES) -> Number:
    """A number between 1 and 2, times 2 to the whole part of a count of parts of an octave."""
    return (power.bits() + ((number << 24 - entries.bit_length()) & 0xFF800000)).to("bitcast", "float")


def _entry(emitter: CpuEmitter, index: Number, table: Sequence[int]) -> Number:
    """The entries of a table of f32, given by their bits, that the last bits of integers number: 32 entries in two
    registers of AVX-512, or 8 in one of AVX2."""
    lanes = 16 if len(table) > 8 else 8
    vector = f"<{lanes} x i32>"
    registers = [
        (vector, f"<{', '.join(f'i32 {entry}' for entry in table[first : first + lanes])}>")
        for first in range(0, len(table), lanes)
    ]
    parts = list[Number]()
    for first in range(0, index.lanes, lanes):
        part = _part(index, first, lanes)
        if lanes == 16:
            text = emitter.called(vector, "llvm.x86.avx512.vpermi2var.d.512", registers[0], part, registers[1])
        else:
            text = emitter.called(vector, "llvm.x86.avx2.permd", registers[0], part)
        parts.append(emitter.made("i32", text, lanes))
    return _joined(parts).to("bitcast", "float")


def _joined(parts: list[Number]) -> Number:
    """Vectors one after the other, as one."""
    while len(parts) > 1:
        lanes = 2 * parts[0].lanes
        picks = ", ".join(f"i32 {lane}" for lane in range(lanes))
        parts = [
            a.made(a.kind, f"shufflevector {a.typed}, {b.typed}, <{lanes} x i32> <{picks}>", lanes)
            for a, b in zip(parts[::2], parts[1::2], strict=True)
        ]
    return parts[0]


def _part(x: Number, first: int, lanes: int) -> Number:
    """The lanes of a vector from a first one on."""
    picks = ", ".join(f"i32 {first + lane}" for lane in range(lanes))
    return x.made(x.kind, f"shufflevector {x.typed}, {x.type} poison, <{lanes} x i32> <{picks}>", lanes)


@cache
def wide_power(name: str, lanes: int) -> Routine:
    """e^x or 2^x of f32 as f64, to be rounded: fewer steps than for an f64, whose results reach further."""
    r = Routine(f"zg.{name}.wide", "double", ["float"], lanes)
    return r.done(_wide(r, name))


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
        part = _part(x, first, 16)
        rest = (vector, "zeroinitializer"), all_lanes, rounding
        text = emitter.called(vector, "llvm.x86.avx512.mask.getexp.ps.512", part, *rest)
        exponents.append(emitter.made("float", text, 16))
        interval = "i32", "11"  # From 3/4 to 3/2; NaN of a negative number.
        text = emitter.called(vector, "llvm.x86.avx512.mask.getmant.ps.512", part, interval, *rest)
        mantissas.append(emitter.made("float", text, 16))
    whole, part = _joined(exponents), _joined(mantissas)
    exponent = part.test("olt", 1.0).select(whole + 1.0, whole).to("fpext", "double")
    mantissa = part.to("fpext", "double")
    index = mantissa.bits() >> 48
    rest = _fma(mantissa, _entry_of_16(emitter, index, _INVERSES), -1.0)
    series = rest.like(_LOG_REST[-1])
    for coefficient in reversed(_LOG_REST[:-1]):
        series = _fma(series, rest, coefficient)
    near = _fma(rest * rest, series, rest)
    if name == "log2":
        return _fma(near, F64.LOG2_E[0], exponent + _entry_of_16(emitter, index, _LOGS_2))
    return near + _fma(exponent, _LN_2, _entry_of_16(emitter, index, _LOGS))


def tangent(emitter: CpuEmitter, x: Number) -> Number | None:
    """tanh of f32 as f32, rounded once from that in f64, by the sum of two angles: a multiple of 19/32, and the rest.
    None without AVX-512."""
    if emitter.module.vector < 64 or not x.lanes or x.lanes % 8:
        return None
    size = abs(x)
    size = size.test("ogt", 9.2).select(9.2, size).to("fpext", "double")  # tanh 9.2 is 1 in f32.
    anchor = 1.5 * 2.0**52
    anchored = _fma(size, 32 / 19, anchor)
    rest = _fma(anchored - anchor, -19 / 32, size)
    square = rest * rest
    series = rest.like(_TANH_REST[-1])
    for coefficient in reversed(_TANH_REST[:-1]):
        series = _fma(series, square, coefficient)
    first, second = _entry_of_16(emitter, anchored.bits(), _TANH), _fma(rest * square, series, rest)
    quotient = emitter.routine(_quick_quotient(x.lanes), first + second, _fma(first, second, 1.0))
    return quotient.to("fptrunc", "float").signed_as(x)


def error_function(emitter: CpuEmitter, x: Number) -> Number | None:
    """erf of f32 as f32, rounded once from that in f64: x times a polynomial, of one of 16 intervals. None without
    AVX-512."""
    if emitter.module.vector < 64 or not x.lanes or x.lanes % 8:
        return None
    below = 3.9999998  # erf of it is 1 in f32.
    size = abs(x)
    size = size.test("ogt", below).select(below, size).to("fpext", "double")
    anchor = 1.5 * 2.0**52
    anchored = _fma(size, 4.0, -0.5) + anchor  # j or, of a multiple of 1/4, j - 1, whose interval ends there.
    rest = _fma(anchored - anchor, -0.25, size) - 0.125
    index, (*lower, highest) = anchored.bits(), _ERF
    series = _entry_of_16(emitter, index, highest)
    for coefficients in reversed(lower):
        series = _fma(series, rest, _entry_of_16(emitter, index, coefficients))
    return (size * series).to("fptrunc", "float").signed_as(x)


def _entry_of_16(emitter: CpuEmitter, index: Number, table: Sequence[float]) -> Number:
    """The entries of a table of 16 f64, which two registers of AVX-512 hold, that the last bits of i64s number."""
    vector = "<8 x double>"
    low, high = (
        (vector, f"<{', '.join(f'double {literal(entry, f64)}' for entry in table[first : first + 8])}>")
        for first in (0, 8)
    )
    return _joined([
        emitter.made(
            "double", emitter.called(vector, "llvm.x86.avx512.vpermi2var.pd.512", low, _part(index, first, 8), high), 8
        )
        for first in range(0, index.lanes, 8)
    ])  # fmt: skip


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
    """Let the routines of the emitted kernel divide by the processor's own way, where it has one."""
    for symbol in [symbol for symbol in emitter.definitions if symbol.startswith(QUOTIENT)]:
        lanes = int(symbol.rpartition("v")[2])
        if emitter.module.vector == 64 and lanes % 8 == 0:
            quick = _quick_quotient(lanes)
            emitter.definitions[symbol] = quick.text
            emitter.declarations.update(quick.declarations)


@cache
def _quick_quotient(lanes: int) -> Routine:
    """Quotients of f64 with AVX-512, from the first 14 bits of reciprocals: two steps of Newton's, the last of which
    corrects the quotient. A division of 8 takes 16 cycles, and this 5."""
    r = Routine(QUOTIENT, "double", ["double", "double"], lanes)
    a, b = r.argument(), r.argument(1)
    vector, parts = "<8 x double>", list[Number]()
    for first in range(0, lanes, 8):
        near = r.called(vector, "llvm.x86.avx512.rcp14.pd.512", _part(b, first, 8), (vector, "poison"), ("i8", "-1"))
        parts.append(b.made("double", near, 8))
    inverse = _joined(parts)
    inverse = r.fma(inverse, r.fma(-b, inverse, 1.0), inverse)
    quotient = a * inverse
    return r.done(r.fma(r.fma(-b, quotient, a), inverse, quotient))


@cache
def _in_f64(name: str, lanes: int) -> Routine:
    r = Routine(f"zg.{name}.slow", "float", ["float"], lanes)
    return r.done(_wide(r, name).to("fptrunc", "float"), inline=False)


def _wide(r: Routine, name: str) -> Number:
    natural, anchor = name == "exp", 1.5 * 2.0**52
    limits, factor = (F32.EXP_RANGE, F64.LOG2_E[0]) if natural else (F32.EXP2_RANGE, 1.0)
    x = r.argument().clamp(*limits).to("fpext", "double")
    anchored = r.fma(x, factor, anchor)  # The whole number nearest to x · factor is in the last bits.
    whole = anchored - anchor
    rest = r.fma(whole, -F64.LN_2[1], r.fma(whole, -F64.LN_2[0], x)) if natural else x - whole
    return (r.poly(rest, POWERS[name]).bits() + (anchored.bits() << 52)).to("bitcast", "double")
