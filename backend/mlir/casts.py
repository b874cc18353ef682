"""Conversions between number types. Triton converts 8-bit floats from and to f32, f16 and bf16 only, by its own op."""

from __future__ import annotations

from ziggurat.backend.mlir.emitter import Emitter, Names, emits
from ziggurat.backend.mlir.types import mlir_type
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects.arith import Rounding
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.types import (
    PtrType,
    Type,
    element_of,
    f8e5m2,
    f32,
    f64,
    i1,
    i64,
    scalar_element,
    with_element,
)


def cast(e: Emitter, op: str, name: str, source: Type, target: Type) -> str:
    """A cast of the arith dialect; no op if MLIR has one type for both."""
    before, after = mlir_type(source), mlir_type(target)
    return name if before == after else e.value(f"{op} {name}", f" : {before} to {after}")


def convert_float(e: Emitter, name: str, source: Type, target: Type, rounding: Rounding = Rounding.NEAREST) -> str:
    """A float as another float type.

    A conversion between f64 and fp8 goes by way of f32, so a number is rounded twice. Raises `TargetError` for a
    rounding toward zero that Triton lacks: from f64, and to f8e4m3.
    """
    here, there = scalar_element(source), scalar_element(target)
    if here == there:
        return name
    middle = with_element(source, f32)
    if here.bits < there.bits:
        if not here.is_fp8:
            return cast(e, "arith.extf", name, source, target)
        if there == f64:
            return cast(e, "arith.extf", convert_float(e, name, source, middle), middle, target)
        return e.value(f"tt.fp_to_fp {name}", f" : {mlir_type(source)} -> {mlir_type(target)}")
    if rounding is Rounding.ZERO:
        if here == f64 or (there.is_fp8 and there != f8e5m2):
            raise TargetError(f"Triton has no conversion from {here} to {there} that rounds toward zero")
        if there.is_fp8 and here != f32:
            name, source = cast(e, "arith.extf", name, source, middle), middle
    elif not there.is_fp8:
        return cast(e, "arith.truncf", name, source, target)
    elif here == f64:
        name, source = cast(e, "arith.truncf", name, source, middle), middle
    return e.value(f"tt.fp_to_fp {name}", f", rounding = {rounding.value} : {mlir_type(source)} -> {mlir_type(target)}")


@emits(arith.ExtF, arith.TruncF)
def float_to_float(e: Emitter, op: arith.ExtF | arith.TruncF) -> Names:
    rounding = op.rounding if isinstance(op, arith.TruncF) else Rounding.NEAREST
    return (convert_float(e, e.name(op.operand), op.operand.type, op.type, rounding),)


@emits(arith.Cast)
def convert(e: Emitter, op: arith.Cast) -> Names:
    """Between integers, or between an integer and a float. A float of 8 bits goes by way of f32."""
    source, target = (
        with_element(type_, f32) if scalar_element(type_).is_fp8 else type_ for type_ in (op.operand.type, op.type)
    )
    name = e.name(op.operand)
    if source != op.operand.type:
        name = convert_float(e, name, op.operand.type, source)
    name = cast(e, op.NAME, name, source, target)
    return (name if target == op.type else convert_float(e, name, target, op.type),)


@emits(arith.Bitcast)
def bitcast(e: Emitter, op: arith.Bitcast) -> Names:
    """The tt dialect's op: Triton cannot compile arith's between integers and floats."""
    return (same_bits(e, "tt.bitcast", e.name(op.operand), op.operand.type, op.type),)


def same_bits(e: Emitter, op: str, name: str, source: Type, target: Type) -> str:
    """A cast of the tt dialect; no op if MLIR has one type for both."""
    before, after = mlir_type(source), mlir_type(target)
    return name if before == after else e.value(f"{op} {name}", f" : {before} -> {after}")


@emits(tt.Bitcast, tt.IntToPtr, tt.PtrToInt)
def cast_pointer(e: Emitter, op: tt.Bitcast | tt.IntToPtr | tt.PtrToInt) -> Names:
    return (same_bits(e, op.NAME, e.name(op.value), op.value.type, op.result.type),)


def addresses(e: Emitter, name: str, type_: Type) -> tuple[str, Type]:
    """Pointers as integers, which can be compared; numbers as they are. Returns the name and the type."""
    if not isinstance(element_of(type_), PtrType):
        return name, type_
    target = with_element(type_, i64)
    return same_bits(e, "tt.ptr_to_int", name, type_, target), target


def is_boolean(type_: Type) -> bool:
    """Whether a type is i1 or a tensor of i1."""
    return element_of(type_) == i1
