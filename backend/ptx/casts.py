"""Emission of conversions: between floats, integers, and both; of bits and of addresses.

A conversion without an instruction on the target is a routine of the module that computes with integers. The results
are those of the reference interpreter: 8-bit floats saturate, integers saturate and take NaN as 0, and nothing is
rounded twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from ziggurat.backend.ptx.emitter import Emitted, Emitter, emits
from ziggurat.backend.ptx.pairs import halves
from ziggurat.backend.ptx.routines import Routine, llvm_type, suffix
from ziggurat.backend.ptx.words import pack, unpack
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects.arith import Rounding
from ziggurat.codemodel.numbers import bits_of_number
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import ScalarType, Type, bf16, f8e5m2, f16, f32, f64, i1, scalar_element

Many = Callable[[Sequence[str]], list[str]]


def _all(emitter: Emitter, type_: Type, value: Value, make: Many) -> Emitted:
    """Apply `make` to a scalar, or to all registers of a tensor at once; copies are left out."""
    registers = emitter.layout(type_).unique_registers
    made = make([emitter.at(value, register) for register in registers])
    return emitter.value(type_, dict(zip(registers, made, strict=True)))


# Widening.


def _widen_fp8(emitter: Emitter, values: Sequence[str], source: ScalarType) -> list[str]:
    """8-bit floats as f16, exactly; two at a time where the target does so."""
    if source == f8e5m2:  # It is the upper half of an f16.
        return [(emitter.of("i8", x).to("zext", "i16") << 8).to("bitcast", "half").name for x in values]
    if not emitter.target.converts_fp8:
        return [emitter.routine(widen_e4m3(), value) for value in values]
    made: list[str] = []
    for at in range(0, len(values), 2):
        pair = values[at : at + 2]
        (packed,) = pack(emitter, pair, 1, 2) if len(pair) == 2 else [emitter.emit(f"zext i8 {pair[0]} to i16")]
        (both,) = emitter.asm(("i32",), "cvt.rn.f16x2.e4m3x2 $0, $1;", ("i16", packed))
        both = emitter.emit(f"bitcast i32 {both} to <2 x half>")
        made += [emitter.emit(f"extractelement <2 x half> {both}, i32 {index}") for index in range(len(pair))]
    return made


def widen(emitter: Emitter, values: Sequence[str], source: ScalarType, target: ScalarType) -> list[str]:
    """Floats as a wider float type, exactly."""
    given = list(values)
    if source == target:
        return given
    if source.is_fp8:
        given = _widen_fp8(emitter, given, source)
        source = f16
        if target == f16:
            return given
        if target == bf16:
            given = widen(emitter, given, f16, f32)
            return [emitter.emit(f"fptrunc float {value} to bfloat") for value in given]
    before, after = llvm_type(source), llvm_type(target)

    def extended(value: str) -> str:
        word, index = emitter.pieces.get(value, ("", 0))
        if word and (source, target) == (bf16, f32):  # Half of a word is moved up, or kept.
            bits = emitter.emit(f"and i32 {word}, -65536" if index else f"shl i32 {word}, 16")
            return emitter.emit(f"bitcast i32 {bits} to float")
        return emitter.emit(f"fpext {before} {value} to {after}")

    # A value that several registers share is widened once.
    made = {value: extended(value) for value in dict.fromkeys(given)}
    return [made[value] for value in given]


def widened(emitter: Emitter, value: str, source: ScalarType) -> str:
    """A float of fewer than 32 bits as f32; others as they are."""
    return widen(emitter, [value], source, f32)[0] if source.bits < 32 else value


# Narrowing.


def _narrow_fp8(emitter: Emitter, values: Sequence[str], target: ScalarType, rounding: Rounding) -> list[str]:
    """f32 as 8-bit floats, saturating; two at a time where the target does so."""
    if rounding is Rounding.ZERO or not emitter.target.converts_fp8:
        return [emitter.routine(narrow_to_8_bits(target, rounding), value) for value in values]
    made: list[str] = []
    for at in range(0, len(values), 2):
        low, *rest = values[at : at + 2]
        high = rest[0] if rest else ZERO
        text = f"cvt.rn.satfinite.{target.ptx}x2.f32 $0, $1, $2;"  # The first source is the upper half.
        (packed,) = emitter.asm(("i16",), text, ("float", high), ("float", low))
        made += unpack(emitter, [packed], 1, 2)[: 1 + len(rest)]
    return made


def _cut(emitter: Emitter, value: str, source: ScalarType, target: ScalarType) -> str:
    """f32 or f64 as a narrower float of at least 16 bits, toward zero."""
    if target == bf16:
        if source == f64:
            value = _cut(emitter, value, f64, f32)
        x = emitter.of("float", value)
        cut = (x.bits() & 0xFFFF0000).to("bitcast", "float")
        return x.test("ord", x).select(cut, x).to("fptrunc", "bfloat").name  # A NaN must keep a digit.
    kind = llvm_type(source)
    if target == f32:
        return emitter.asm(("float",), "cvt.rz.f32.f64 $0, $1;", (kind, value))[0]
    (bits,) = emitter.asm(("i16",), f"cvt.rz.f16.{source.name} $0, $1;", (kind, value))
    return emitter.emit(f"bitcast i16 {bits} to half")


def narrow(
    emitter: Emitter,
    values: Sequence[str],
    source: ScalarType,
    target: ScalarType,
    rounding: Rounding = Rounding.NEAREST,
) -> list[str]:
    """Floats as a narrower float type, rounded once; to 8 bits they saturate."""
    given = list(values)
    if source == target:
        return given
    if target.is_fp8:
        if source == f64:
            given = [emitter.routine(to_odd(), value) for value in given]
        elif source.bits < 32:
            given = widen(emitter, given, source, f32)
        return _narrow_fp8(emitter, given, target, rounding)
    before, after = llvm_type(source), llvm_type(target)
    if rounding is Rounding.ZERO:
        return [_cut(emitter, value, source, target) for value in given]
    if target == bf16 and source == f64:
        given, before = [emitter.routine(to_odd(), value) for value in given], "float"
    if before != "float":
        return [emitter.emit(f"fptrunc {before} {value} to {after}") for value in given]
    # Two at once: the packed conversion has four times the throughput, and saves the packing.
    made: list[str] = []
    for at in range(0, len(given) - 1, 2):
        pair = "poison"
        for index, value in enumerate(given[at : at + 2]):
            pair = emitter.emit(f"insertelement <2 x float> {pair}, float {value}, i32 {index}")
        made += halves(emitter, emitter.emit(f"fptrunc <2 x float> {pair} to <2 x {after}>"), target)
    return made + [emitter.emit(f"fptrunc float {value} to {after}") for value in given[len(made) :]]


def rounded(emitter: Emitter, value: str, target: ScalarType) -> str:
    """An f32 as a float of up to 32 bits."""
    return narrow(emitter, [value], f32, target)[0]


@emits(arith.ExtF)
def _extf(emitter: Emitter, op: arith.ExtF) -> Emitted:
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    return _all(emitter, op.type, op.operand, lambda values: widen(emitter, values, source, target))


@emits(arith.TruncF)
def _truncf(emitter: Emitter, op: arith.TruncF) -> Emitted:
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    return _all(emitter, op.type, op.operand, lambda values: narrow(emitter, values, source, target, op.rounding))


# Integers.


def int_to_float(emitter: Emitter, value: str, source: ScalarType, target: ScalarType, signed: bool) -> str:
    """An integer as a float, rounded once."""
    name, kind = "sitofp" if signed else "uitofp", f"i{source.bits}"
    if target.bits >= 32 or (target == f16 and source.bits < 64):
        return emitter.emit(f"{name} {kind} {value} to {llvm_type(target)}")
    if source.bits == 64:
        # f64 holds 53 bits. The last bits of a longer integer matter only as "some are set".
        value = _sticky(emitter, value, 64, 11, 53, signed)
        number = emitter.emit(f"{name} i64 {value} to double")
        return narrow(emitter, [number], f64, target)[0]
    if source.bits == 32:
        value = _sticky(emitter, value, 32, 9, 24, signed)
    number = emitter.emit(f"{name} {kind} {value} to float")
    return rounded(emitter, number, target)


def _sticky(emitter: Emitter, value: str, bits: int, low: int, limit: int, signed: bool) -> str:
    """The integer with its `low` last bits replaced by 10…0 if any is set; unchanged below 2**limit."""
    x, mask = emitter.of(f"i{bits}", value), (1 << low) - 1
    some = (x & mask).test("ne", 0)
    sticky = x & ~mask | some.select(1 << low - 1, 0, x.kind)
    small = (x + (1 << limit)).test("ule", 1 << limit + 1) if signed else x.test("ule", 1 << limit)
    return small.select(x, sticky).name


@emits(arith.SIToFP, arith.UIToFP)
def _to_float(emitter: Emitter, op: arith.SIToFP | arith.UIToFP) -> Emitted:
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    signed = isinstance(op, arith.SIToFP)
    return emitter.each(op.type, op.operands, lambda value: int_to_float(emitter, value, source, target, signed))


@emits(arith.FPToSI, arith.FPToUI)
def _to_int(emitter: Emitter, op: arith.FPToSI | arith.FPToUI) -> Emitted:
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    signed = target.signed and target != i1
    kind, result = "double" if source == f64 else "float", f"i{target.bits}"

    def convert(value: str) -> str:
        value = widened(emitter, value, source)
        if kind == "float" and target.bits == 32:
            # The instruction saturates, and takes NaN as 0; LLVM emits more code for its own intrinsic.
            return emitter.call("i32", f"llvm.nvvm.f2{'' if signed else 'u'}i.rz", ("float", value))
        function = f"llvm.fpto{'s' if signed else 'u'}i.sat.{result}.{suffix(kind)}"
        return emitter.call(result, function, (kind, value))

    return emitter.each(op.type, op.operands, convert)


# Bits and addresses.


@emits(arith.Bitcast)
def _bitcast(emitter: Emitter, op: arith.Bitcast) -> Emitted:
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    if llvm_type(source) == llvm_type(target):
        return emitter.values[op.operand]
    return emitter.each(op.type, op.operands, lambda value: emitter.number(emitter.bits(value, source), target))


@emits(tt.Bitcast)
def _pointer_cast(emitter: Emitter, op: tt.Bitcast) -> Emitted:
    return emitter.values[op.value]


ZERO = "0x0000000000000000"


@cache
def widen_e4m3(lanes: int = 0) -> Routine:
    """An f8e4m3 as f16.

    Moving the fields to their places in an f16 gives 1/256 of the number, for subnormals as well.
    """
    r = Routine("zg.f8e4m3.to.f16", "half", ["i8"], lanes)
    wide = r.argument().to("zext", "i16")
    magnitude = wide & 127
    sign = (wide & 128) << 8
    fields = magnitude << 7 | sign
    number = fields.to("bitcast", "half") * 256.0
    return r.done(magnitude.test("eq", 127).select(number.like(float("nan")), number))


@cache
def narrow_to_8_bits(target: ScalarType, rounding: Rounding, lanes: int = 0) -> Routine:
    """An f32 as an 8-bit float, saturating.

    The bits of normal numbers are shifted into place and rounded as an integer, so that a carry reaches the exponent.
    Below the smallest normal number, the last place has a fixed weight.
    """
    digits, bias, nan = target.format.mantissa_bits, target.format.bias, 0x7F
    largest = bits_of_number(target.format.largest, target)
    shift = 23 - digits
    smallest = 127 - bias + 1  # The exponent field, in an f32, of the smallest normal number.
    r = Routine(f"zg.f32.to.{target.name}.{rounding.value}", "i8", ["float"], lanes)
    bits = r.argument().bits()
    magnitude = bits & 0x7FFFFFFF
    number = magnitude.to("bitcast", "float")
    sign = bits >> 24 & 128
    if rounding is Rounding.NEAREST:
        last = magnitude >> shift & 1
        normal = magnitude + ((1 << shift - 1) - 1) + last
        # Adding a number whose last place has the weight of this float's rounds the sum there.
        anchor = smallest - digits + 23
        low = (number + 2.0 ** (anchor - 127)).bits() - (anchor << 23)
    else:
        normal = magnitude
        scaled = number * 2.0 ** (127 + digits - smallest)
        low = magnitude.test("ult", smallest << 23).select(scaled, 0.0).to("fptoui", "i32")
    normal = (normal >> shift) - ((smallest - 1) << digits)
    code = magnitude.test("ult", smallest << 23).select(low, normal)
    code = code.test("ugt", largest).select(largest, code)
    code = magnitude.test("ugt", 0x7F800000).select(nan, code)
    return r.done((code | sign).to("trunc", "i8"))


@cache
def to_odd(lanes: int = 0) -> Routine:
    """An f64 as f32 such that rounding the result to fewer digits gives what rounding the f64 would.

    A number that f32 lacks becomes its neighbour with an odd last bit (Boldo and Melquiond, 2008).
    """
    r = Routine("zg.f64.to.odd", "float", ["double"], lanes)
    x = r.argument()
    near = x.to("fptrunc", "float")
    back = near.to("fpext", "double")
    bits = near.bits()
    size = abs(x)
    step = abs(back).test("ogt", size).to("sext", "i32")
    odd = bits + step | 1
    finite = size.test("olt", float("inf"))
    inexact = back.test("one", x)
    return r.done((finite & inexact).select(odd, bits).to("bitcast", "float"))
