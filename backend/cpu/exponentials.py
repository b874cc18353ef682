"""e^x and 2^x of floats of up to 32 bits, rounded as the interpreter's, which computes them in f64.

With AVX-512, most vectors of f32 need no f64: x is n/32 · ln 2 + r, and e^x is 2^⌊n/32⌋ · T · e^r, where T is one of 32
powers of 2 in a register. T · e^r is computed as the sum of two f32, to 2^-35. Where that may not tell to which f32 it
rounds, in about one lane of 1,000, the vector is computed in f64. With AVX2, a register holds 8 powers of 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ziggurat.backend.cpu.emitter import CpuEmitter
from ziggurat.backend.llvm.accurate import F32, F64, accurate
from ziggurat.backend.llvm.routines import Number, Routine

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


def power(emitter: CpuEmitter, name: str, x: Number) -> Number:
    """e^x or 2^x of f32 as f32, correctly rounded but for results within 3 ulp of f64 of a midpoint."""
    vector = emitter.module.vector
    quick = {64: _quick, 32: _quick_by_8}.get(vector)
    if quick is None or not x.lanes or x.lanes % (vector // 4) or emitter.level(x.name) < emitter.depth:
        return emitter.routine(wide_power(name, x.lanes), x).to("fptrunc", "float")
    return certain_or_slow(emitter, x, *quick(emitter, name, x), _in_f64(name, x.lanes))


def certain_or_slow(emitter: CpuEmitter, x: Number, estimate: Number, certain: Number, slow: Routine) -> Number:
    """An estimate of a function of x where it is certain, and else the result of a routine."""
    # The callee keeps the registers that hold the constants of the quick way.
    convention = "preserve_allcc " if emitter.module.vector == 32 else ""
    emitter.definitions |= slow.definitions
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
    rest = fma(count, -_STEP[0] if natural else -1.0 / _ENTRIES, x)
    rest = fma(count, -_STEP[1], rest) if natural else rest * F32.LN_2[0]
    high = entry_of_32(emitter, number, _HIGH)
    near = fma(high, fma(rest * rest, fma(rest, _REST[1], _REST[0]), rest), high)
    scaled = _scaled(near, number)
    low, top = (-87.33654, 88.72284) if natural else (-126.0, 128.0)
    powers = x.test("olt", low).select(0.0, x.test("oge", top).select(float("inf"), scaled))
    return x.test("uno", x).select(x, powers)  # The sum of bits may make a number of a NaN.


def _quick(emitter: CpuEmitter, name: str, x: Number) -> tuple[Number, Number]:
    """The powers, and whether all are rounded as they have to be."""

    natural = name == "exp"
    number, count = _nearest_entry(x, natural)
    high, low = (entry_of_32(emitter, number, values) for values in (_HIGH, _LOW))
    if natural:
        first = fma(count, -_STEP[0], x)  # Exact.
        rest = fma(count, -_STEP[1], first)
        error = count * -_STEP[1]
    else:
        exact = fma(count, -1.0 / _ENTRIES, x)
        first = rest = exact * F32.LN_2[0]
        error = fma(exact, F32.LN_2[1], fma(exact, F32.LN_2[0], -first))
    square = rest * rest
    poly = fma(fma(rest, _REST[2], _REST[1]), rest, _REST[0])
    error = fma(square, poly, error)
    near = fma(high, first, high)
    error = fma(near, low, fma(high, error, fma(high, first, high - near)))  # The last fma is exact up to 2^-48.
    bounds, other = near + fma(high, _ERROR, error), near + fma(high, -_ERROR, error)
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
    high, low = (entry_of_32(emitter, number, values[::4]) for values in (_HIGH, _LOW))
    if name == "exp":
        rest = fma(count, -_STEP_8[0], x)  # Exact.
        error = count * -_STEP_8[1]
    else:
        exact = fma(count, -1.0 / 8, x)
        rest = exact * F32.LN_2[0]
        error = fma(exact, F32.LN_2[1], fma(exact, F32.LN_2[0], -rest))
    square = rest * rest
    small = fma(square, 0.5, rest)
    error = fma(error, small, error)
    cubic = rest * fma(fma(rest, _REST_8[2], _REST_8[1]), rest, _REST_8[0])
    error = fma(square, cubic, error)
    error = fma(fma(rest, rest, -square), 0.5, error)
    error = fma(square, 0.5, rest - small) + error
    near = fma(high, small, high)
    error = fma(high, error, fma(high, small, high - near))
    upper, lower = (near + fma(near, low + bound, error) for bound in (2 * _ERROR_8, -2 * _ERROR_8))
    limit, _ = _RANGES[name]
    doubtful: Number | None = None  # In eight lanes: masks of eight are quicker to combine than to pack.
    for first in range(0, x.lanes, 8):
        u, v, argument = (part_of(value, first, 8) for value in (upper, lower, x))
        mask = (u.test("une", v) | abs(argument).test("ugt", limit)).to("sext", "i32")
        doubtful = mask if doubtful is None else doubtful | mask
    assert doubtful is not None
    certain = emitter.made("i8", f"bitcast {doubtful.test('slt', 0).typed} to i8").test("eq", 0)
    return _scaled(upper, number, 8), certain


def fma(a: Number, b: Number | float, c: Number | float) -> Number:
    return a.call("llvm.fma", b, c)


def _nearest_entry(x: Number, natural: bool, entries: int = _ENTRIES) -> tuple[Number, Number]:
    """The power as a count of parts of an octave, rounded: in the last bits of an integer, and as f32."""
    anchor = 1.5 * 2.0**23
    anchored = fma(x, entries * F32.LOG2_E[0] if natural else float(entries), anchor)
    return anchored.bits(), anchored - anchor


def _scaled(power: Number, number: Number, entries: int = _ENTRIES) -> Number:
    """A number between 1 and 2, times 2 to the whole part of a count of parts of an octave."""
    return (power.bits() + ((number << 24 - entries.bit_length()) & 0xFF800000)).to("bitcast", "float")


def entry_of_32(emitter: CpuEmitter, index: Number, table: Sequence[int]) -> Number:
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
        part = part_of(index, first, lanes)
        if lanes == 16:
            text = emitter.called(vector, "llvm.x86.avx512.vpermi2var.d.512", registers[0], part, registers[1])
        else:
            text = emitter.called(vector, "llvm.x86.avx2.permd", registers[0], part)
        parts.append(emitter.made("i32", text, lanes))
    return joined(parts).to("bitcast", "float")


def joined(parts: list[Number]) -> Number:
    """Vectors one after the other, as one."""
    while len(parts) > 1:
        lanes = 2 * parts[0].lanes
        picks = ", ".join(f"i32 {lane}" for lane in range(lanes))
        parts = [
            a.made(a.kind, f"shufflevector {a.typed}, {b.typed}, <{lanes} x i32> <{picks}>", lanes)
            for a, b in zip(parts[::2], parts[1::2], strict=True)
        ]
    return parts[0]


def part_of(x: Number, first: int, lanes: int) -> Number:
    """The lanes of a vector from a first one on."""
    picks = ", ".join(f"i32 {first + lane}" for lane in range(lanes))
    return x.made(x.kind, f"shufflevector {x.typed}, {x.type} poison, <{lanes} x i32> <{picks}>", lanes)


@cache
def wide_power(name: str, lanes: int) -> Routine:
    """e^x or 2^x of f32 as f64, to be rounded: fewer steps than for an f64, whose results reach further."""
    r = Routine(f"zg.{name}.wide", "double", ["float"], lanes)
    return r.done(_wide(r, name))


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
