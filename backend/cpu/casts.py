"""Emission of conversions between floats, integers, and both. Nothing is rounded twice; 8-bit floats saturate; floats
that do not fit an integer become the nearest one, and NaN 0."""

from __future__ import annotations

from ziggurat.backend.cpu.emitter import Emitter, emits, kind_of
from ziggurat.backend.ptx.casts import narrow_to_8_bits, to_odd, widen_e4m3
from ziggurat.backend.ptx.routines import Number, suffix
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.dialects.arith import Rounding
from ziggurat.codemodel.types import ScalarType, bf16, f8e5m2, f16, f32, f64, i1, scalar_element


def widen(emitter: Emitter, value: Number, source: ScalarType) -> Number:
    """A float of fewer than 32 bits as f32, exactly; others as they are."""
    if source.bits >= 32:
        return value
    if source == bf16:
        return (value.to("zext", "i32") << 16).to("bitcast", "float")
    if source == f8e5m2:
        value = (value.to("zext", "i16") << 8).to("bitcast", "half")
    elif source != f16:
        value = emitter.routine(widen_e4m3(value.lanes), value)
    return value.to("fpext", "float")


def to_f64(emitter: Emitter, value: Number, source: ScalarType) -> Number:
    """A float as f64, exactly."""
    return value if source == f64 else widen(emitter, value, source).to("fpext", "double")


def from_f64(emitter: Emitter, value: Number, target: ScalarType) -> Number:
    """An f64 as a float type, rounded once."""
    return narrow(emitter, value, f64, target)


def _to_bf16(x: Number) -> Number:
    """f32 as the bits of a bf16. The machine's own instruction takes subnormal numbers as zero."""
    bits = x.bits()
    nearest = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    nan = bits >> 16 | 64
    return x.test("uno", 0.0).select(nan, nearest).to("trunc", "i16")


def round_to(emitter: Emitter, value: Number, target: ScalarType) -> Number:
    """An f32 as a float of up to 32 bits, to nearest."""
    return narrow(emitter, value, f32, target)


def narrow(
    emitter: Emitter, value: Number, source: ScalarType, target: ScalarType, rounding: Rounding = Rounding.NEAREST
) -> Number:
    """f32 or f64 as a narrower float, or one as wide, rounded once."""
    if source == target:
        return value
    if rounding is Rounding.ZERO and not target.is_fp8:
        return _cut(emitter, value, source, target)
    if source == f64 and target != f32:
        value = emitter.routine(to_odd(value.lanes), value)
    if target == f32:
        return value.to("fptrunc", "float")
    if target == f16:
        return value.to("fptrunc", "half")
    if target == bf16:
        return _to_bf16(value)
    return emitter.routine(narrow_to_8_bits(target, rounding, value.lanes), value)


def _cut(emitter: Emitter, value: Number, source: ScalarType, target: ScalarType) -> Number:
    """f32 or f64 as a narrower float of at least 16 bits, toward zero: the neighbour of the nearest one where that is
    larger. What is too large becomes the largest number; an infinity stays."""
    near = narrow(emitter, value, source, target)
    back = widen(emitter, near, target)
    if source == f64:
        back = back.to("fpext", "double")
    larger = abs(back).test("ogt", abs(value))
    bits = near if near.kind[0] == "i" else near.bits()
    made = larger.select(bits - 1, bits)
    return made if near.kind[0] == "i" else made.to("bitcast", near.kind)


@emits(arith.ExtF)
def _extf(emitter: Emitter, op: arith.ExtF, value: Number) -> Number:
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    wide = widen(emitter, value, source)
    if target == f64:
        return to_f64(emitter, value, source)
    return wide if target == f32 else narrow(emitter, wide, f32, target)


@emits(arith.TruncF)
def _truncf(emitter: Emitter, op: arith.TruncF, value: Number) -> Number:
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    if source.bits < 32:
        value, source = widen(emitter, value, source), f32
    return narrow(emitter, value, source, target, op.rounding)


def sticky(value: Number, low: int, limit: int, signed: bool) -> Number:
    """The integer with its `low` last bits replaced by 10…0 if any is set; unchanged below 2**limit."""
    rest = value & (1 << low) - 1
    kept = value - rest
    some = rest.test("ne", 0).select(kept | 1 << low - 1, kept)
    small = (value + (1 << limit)).test("ule", 1 << limit + 1) if signed else value.test("ule", 1 << limit)
    return small.select(value, some)


@emits(arith.SIToFP, arith.UIToFP)
def _to_float(emitter: Emitter, op: arith.Cast, value: Number) -> Number:
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    signed = isinstance(op, arith.SIToFP)
    name = "sitofp" if signed else "uitofp"
    if target.bits >= 32:
        return value.to(name, kind_of(target))
    if source.bits == 64:  # f64 holds 53 bits.
        value = sticky(value, 11, 53, signed)
    return from_f64(emitter, value.to(name, "double"), target)


@emits(arith.FPToSI, arith.FPToUI)
def _to_int(emitter: Emitter, op: arith.Cast, value: Number) -> Number:
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    wide = widen(emitter, value, source)
    kind = f"i{target.bits}"
    name = f"llvm.fpto{'s' if target.signed and target != i1 else 'u'}i.sat"
    lanes = f"v{wide.lanes}" if wide.lanes else ""
    full = f"{name}.{lanes}{kind}.{lanes}{suffix(wide.kind)}"
    result = Number(emitter, kind, "", wide.lanes).type
    emitter.declarations[f"declare {result} @{full}({wide.type})"] = None
    return emitter.made(kind, f"call {result} @{full}({wide.typed})", wide.lanes)


@emits(arith.Bitcast)
def _bitcast(emitter: Emitter, op: arith.Bitcast, value: Number) -> Number:
    kind = kind_of(op.type)
    return value if value.kind == kind else value.to("bitcast", kind)
