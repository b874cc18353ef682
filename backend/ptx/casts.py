"""Emission of conversions: between floats, integers, and both; and of bits.

Where the target has instructions for it, two floats at a time are converted to 16 or 8 bits, and from 8 bits. All else
is in `backend/llvm/elementwise.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ziggurat.backend.llvm.elementwise import Conversions, from_integer, half_of, narrow_to_8_bits, to_integer, to_odd
from ziggurat.backend.llvm.routines import Number, Routine, llvm_type
from ziggurat.backend.ptx.bytes_in_words import as_halves, upper_halves
from ziggurat.backend.ptx.emitter import Emitted, PtxEmitter, emits
from ziggurat.backend.ptx.packed_words import pack, to_words, unpack
from ziggurat.backend.ptx.pairs import halves, has_pairs
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.dialects.arith import Rounding
from ziggurat.codemodel.types import ScalarType, bf16, f8e5m2, f16, f32, f64, scalar_element

# Widening.


def _widen_fp8(emitter: PtxEmitter, values: Sequence[str], source: ScalarType) -> list[str]:
    """8-bit floats as f16, exactly; two at a time where the target does so, or where they are the upper halves of f16
    and pieces of a word."""
    if source == f8e5m2 and len(values) % 2 == 0 and all(value in emitter.pieces for value in values):
        return upper_halves(emitter, values)
    if source == f8e5m2 or not emitter.target.converts_fp8:
        return [half_of(emitter.of("i8", value), source).name for value in values]
    elements: list[str] = []
    for at in range(0, len(values), 2):
        pair = values[at : at + 2]
        (packed,) = pack(emitter, pair, 1, 2) if len(pair) == 2 else [emitter.emit(f"zext i8 {pair[0]} to i16")]
        (both,) = emitter.asm(("i32",), "cvt.rn.f16x2.e4m3x2 $0, $1;", ("i16", packed))
        both = emitter.emit(f"bitcast i32 {both} to <2 x half>")
        elements += [emitter.emit(f"extractelement <2 x half> {both}, i32 {index}") for index in range(len(pair))]
    return elements


def widen(emitter: PtxEmitter, values: Sequence[str], source: ScalarType, target: ScalarType) -> list[str]:
    """Floats as a wider float type, exactly."""
    current = list(values)
    if source == target:
        return current
    if source.is_fp8:
        current = _widen_fp8(emitter, current, source)
        source = f16
        if target == f16:
            return current
        if target == bf16:
            current = widen(emitter, current, f16, f32)
            return [emitter.emit(f"fptrunc float {value} to bfloat") for value in current]
    before, after = llvm_type(source), llvm_type(target)

    def extended(value: str) -> str:
        word, index = emitter.pieces.get(value, ("", 0))
        if word and (source, target) == (bf16, f32):  # Half of a word is moved up, or kept.
            bits = emitter.emit(f"and i32 {word}, -65536" if index else f"shl i32 {word}, 16")
            return emitter.emit(f"bitcast i32 {bits} to float")
        return emitter.emit(f"fpext {before} {value} to {after}")

    # A value that several registers share is widened once.
    wide = {value: extended(value) for value in dict.fromkeys(current)}
    return [wide[value] for value in current]


def widened(emitter: PtxEmitter, value: Number, source: ScalarType) -> Number:
    """A float of fewer than 32 bits as f32; others as they are."""
    return emitter.of("float", widen(emitter, [value.name], source, f32)[0]) if source.bits < 32 else value


# Narrowing.


def _by_routine(emitter: PtxEmitter, routine: Routine, value: str) -> str:
    return emitter.routine(routine, emitter.of(routine.parameters[0], value)).name


def _narrow_fp8(
    emitter: PtxEmitter, values: Sequence[str], source: ScalarType, target: ScalarType, rounding: Rounding
) -> list[str]:
    """f32, or f16 where the target converts it, as 8-bit floats, saturating; two at a time where the target does so."""
    if rounding is Rounding.ZERO or not emitter.target.converts_fp8:
        return [_by_routine(emitter, narrow_to_8_bits(target, rounding), value) for value in values]
    words: list[str] = []
    for at in range(0, len(values), 2):
        pair = [*values[at : at + 2], "0x0000000000000000" if source == f32 else "0xH0000"][:2]
        if source == f32:
            text = f"cvt.rn.satfinite.{target.ptx}x2.f32 $0, $1, $2;"  # The first source is the upper half.
            words += emitter.asm(("i16",), text, *(("float", value) for value in reversed(pair)))
        else:
            (word,) = to_words(emitter, pair, f16, 4)
            words += emitter.asm(("i16",), f"cvt.rn.satfinite.{target.ptx}x2.f16x2 $0, $1;", ("i32", word))
    elements: list[str] = []
    for at in range(0, len(values) - 3, 4):
        pair = (("i16", word) for word in words[at // 2 : at // 2 + 2])
        # In this form, the second conversion also merges the result of the first.
        elements += unpack(emitter, emitter.asm(("i32",), "mov.b32 $0, {$1, $2};", *pair), 1, 4)
    return elements + unpack(emitter, words[len(elements) // 2 :], 1, 2)[: len(values) % 4]


def _cut(emitter: PtxEmitter, value: str, source: ScalarType, target: ScalarType) -> str:
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
    emitter: PtxEmitter,
    values: Sequence[str],
    source: ScalarType,
    target: ScalarType,
    rounding: Rounding = Rounding.NEAREST,
) -> list[str]:
    """Floats as a narrower float type, rounded once; to 8 bits they saturate."""
    inputs = list(values)
    if source == target:
        return inputs
    if target.is_fp8:
        if source == f64:
            inputs = [_by_routine(emitter, to_odd(), value) for value in inputs]
        elif source != f16 or rounding is Rounding.ZERO or not emitter.target.converts_fp8:
            inputs = widen(emitter, inputs, source, f32)
        else:
            return _narrow_fp8(emitter, inputs, f16, target, rounding)
        return _narrow_fp8(emitter, inputs, f32, target, rounding)
    before, after = llvm_type(source), llvm_type(target)
    if rounding is Rounding.ZERO:
        return [_cut(emitter, value, source, target) for value in inputs]
    if target == bf16 and source == f64:
        inputs, before = [_by_routine(emitter, to_odd(), value) for value in inputs], "float"
    if before != "float":
        return [emitter.emit(f"fptrunc {before} {value} to {after}") for value in inputs]
    # Two at once: the packed conversion has four times the throughput, and saves the packing.
    elements: list[str] = []
    for at in range(0, len(inputs) - 1, 2):
        pair = "poison"
        for index, value in enumerate(inputs[at : at + 2]):
            pair = emitter.emit(f"insertelement <2 x float> {pair}, float {value}, i32 {index}")
        elements += halves(emitter, emitter.emit(f"fptrunc <2 x float> {pair} to <2 x {after}>"), target)
    return elements + [emitter.emit(f"fptrunc float {value} to {after}") for value in inputs[len(elements) :]]


def narrowed(emitter: PtxEmitter, value: Number, source: ScalarType, target: ScalarType) -> Number:
    """An f32 or f64 as a narrower float, or one as wide, rounded once."""
    return emitter.of(llvm_type(target), narrow(emitter, [value.name], source, target)[0])


@emits(arith.ExtF)
def _extf(emitter: PtxEmitter, op: arith.ExtF) -> Emitted:
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    return emitter.all(op.type, op.operands, partial(widen, emitter, source=source, target=target))


@emits(arith.TruncF)
def _truncf(emitter: PtxEmitter, op: arith.TruncF) -> Emitted:
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    make = partial(narrow, emitter, source=source, target=target, rounding=op.rounding)
    return emitter.all(op.type, op.operands, make)


def conversions(emitter: PtxEmitter) -> Conversions:
    """The conversions of single numbers."""
    return Conversions(partial(widened, emitter), partial(narrowed, emitter))


# Integers.


@emits(arith.SIToFP, arith.UIToFP)
def _to_float(emitter: PtxEmitter, op: arith.SIToFP | arith.UIToFP) -> Emitted:
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    if source.bits == 8 and target.bits == 16 and has_pairs(emitter, target):
        make = partial(as_halves, emitter, target=target, signed=isinstance(op, arith.SIToFP))
        return emitter.all(op.type, op.operands, make)
    return emitter.each(op.type, op.operands, partial(from_integer, conversions(emitter), op))


@emits(arith.FPToSI, arith.FPToUI)
def _to_int(emitter: PtxEmitter, op: arith.FPToSI | arith.FPToUI) -> Emitted:
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    if source != f64 and target.bits == 8:
        return emitter.all(op.type, op.operands, partial(_to_bytes, emitter, op))
    if source == f64 or target.bits != 32:
        return emitter.each(op.type, op.operands, partial(to_integer, conversions(emitter), op))

    def convert(value: Number) -> str:
        # The instruction saturates, and takes NaN as 0; LLVM emits more code for its own intrinsic.
        wide = widened(emitter, value, source).name
        return emitter.call("i32", f"llvm.nvvm.f2{'' if target.signed else 'u'}i.rz", ("float", wide))

    return emitter.each(op.type, op.operands, convert)


def _to_bytes(emitter: PtxEmitter, op: arith.FPToSI | arith.FPToUI, values: Sequence[str]) -> list[str]:
    """Floats as bytes, four at a time: integers of 32 bits are packed in pairs, and saturate."""
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    results: list[str] = []
    for at in range(0, len(values) - 3, 4):
        four = widen(emitter, values[at : at + 4], source, f32)
        integers = [emitter.call("i32", "llvm.nvvm.f2i.rz", ("float", value)) for value in four]
        # The first source is the upper one.
        word, text = "0", f"cvt.pack.sat.{'s' if target.signed else 'u'}8.s32.b32 $0, $1, $2, $3;"
        for pair in (integers[2:], integers[:2]):
            (word,) = emitter.asm(("i32",), text, ("i32", pair[1]), ("i32", pair[0]), ("i32", word))
        results += unpack(emitter, [word], 1, 4)
    rest = [emitter.of(llvm_type(source), value) for value in values[len(results) :]]
    return results + [to_integer(conversions(emitter), op, value).name for value in rest]


@emits(arith.Bitcast)
def _bitcast(emitter: PtxEmitter, op: arith.Bitcast) -> Emitted:
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    if llvm_type(source) == llvm_type(target):
        return emitter.values[op.operand]
    return emitter.each(op.type, op.operands, lambda value: emitter.number(emitter.bits(value.name, source), target))
