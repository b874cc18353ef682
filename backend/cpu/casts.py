"""Emission of conversions between floats, integers, and both. Nothing is rounded twice; 8-bit floats saturate; floats
that do not fit an integer become the nearest one, and NaN 0."""

from __future__ import annotations

from ziggurat.backend.cpu.emitter import CpuEmitter, emits, kind_of
from ziggurat.backend.llvm.elementwise import Conversions, from_integer, half_of, narrow_to_8_bits, to_integer, to_odd
from ziggurat.backend.llvm.routines import Number
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.dialects.arith import Rounding
from ziggurat.codemodel.types import ScalarType, bf16, f16, f32, f64, scalar_element


def widen(value: Number, source: ScalarType) -> Number:
    """A float of fewer than 32 bits as f32, exactly; others as they are."""
    if source.bits >= 32:
        return value
    if source == bf16:
        return (value.to("zext", "i32") << 16).to("bitcast", "float")
    return (half_of(value, source) if source.is_fp8 else value).to("fpext", "float")


def to_f64(value: Number, source: ScalarType) -> Number:
    """A float as f64, exactly."""
    return value if source == f64 else widen(value, source).to("fpext", "double")


def from_f64(value: Number, target: ScalarType) -> Number:
    """An f64 as a float type, rounded once."""
    return narrow(value, f64, target)


def _to_bf16(x: Number) -> Number:
    """f32 as the bits of a bf16. The machine's own instruction takes subnormal numbers as zero."""
    bits = x.bits()
    nearest = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    nan = bits >> 16 | 64
    return x.test("uno", 0.0).select(nan, nearest).to("trunc", "i16")


def narrow(value: Number, source: ScalarType, target: ScalarType, rounding: Rounding = Rounding.NEAREST) -> Number:
    """f32 or f64 as a narrower float, or one as wide, rounded once."""
    if source == target:
        return value
    if rounding is Rounding.ZERO and not target.is_fp8:
        return _cut(value, source, target)
    if source == f64 and target != f32:
        value = value.code.routine(to_odd(value.lanes), value)
    if target == f32:
        return value.to("fptrunc", "float")
    if target == f16:
        return value.to("fptrunc", "half")
    if target == bf16:
        return _to_bf16(value)
    return value.code.routine(narrow_to_8_bits(target, rounding, value.lanes), value)


def _cut(value: Number, source: ScalarType, target: ScalarType) -> Number:
    """f32 or f64 as a narrower float of at least 16 bits, toward zero: the neighbour of the nearest one where that is
    larger. What is too large becomes the largest number; an infinity stays."""
    near = narrow(value, source, target)
    back = widen(near, target)
    if source == f64:
        back = back.to("fpext", "double")
    larger = abs(back).test("ogt", abs(value))
    bits = near if near.kind[0] == "i" else near.bits()
    narrowed = larger.select(bits - 1, bits)
    return narrowed if near.kind[0] == "i" else narrowed.to("bitcast", near.kind)


@emits(arith.ExtF)
def _extf(emitter: CpuEmitter, op: arith.ExtF, value: Number) -> Number:
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    wide = widen(value, source)
    if target == f64:
        return to_f64(value, source)
    return wide if target == f32 else narrow(wide, f32, target)


@emits(arith.TruncF)
def _truncf(emitter: CpuEmitter, op: arith.TruncF, value: Number) -> Number:
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    if source.bits < 32:
        value, source = widen(value, source), f32
    return narrow(value, source, target, op.rounding)


CONVERSIONS = Conversions(widen, narrow)


@emits(arith.SIToFP, arith.UIToFP)
def _to_float(emitter: CpuEmitter, op: arith.Cast, value: Number) -> Number:
    return from_integer(CONVERSIONS, op, value)


@emits(arith.FPToSI, arith.FPToUI)
def _to_int(emitter: CpuEmitter, op: arith.Cast, value: Number) -> Number:
    return to_integer(CONVERSIONS, op, value)


@emits(arith.Bitcast)
def _bitcast(emitter: CpuEmitter, op: arith.Bitcast, value: Number) -> Number:
    kind = kind_of(op.type)
    return value if value.kind == kind else value.to("bitcast", kind)
