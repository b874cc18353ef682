"""Conversions between number types. The C++ Triton converts fp8 by an op of its own, and by way of f32 where that op
stops."""

from __future__ import annotations

from ziggurat.backend.mlir.emitter import Emitter, Names, emits
from ziggurat.backend.mlir.types import mlir_type
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects.arith import Rounding
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.types import PtrType, ScalarType, Type, element_of, f8e5m2, f32, f64, i1, i64, with_element


def scalar_type(type_: Type) -> ScalarType:
    """The scalar that a number is, or the elements of a tensor of numbers are."""
    scalar = element_of(type_)
    assert isinstance(scalar, ScalarType)
    return scalar


def cast(e: Emitter, op: str, name: str, source: Type, target: Type) -> str:
    """A cast of the arith dialect; nothing where MLIR has one type for both."""
    before, after = mlir_type(source), mlir_type(target)
    return name if before == after else e.value(f"{op} {name}", f" : {before} to {after}")


def convert_float(e: Emitter, name: str, source: Type, target: Type, rounding: Rounding = Rounding.NEAREST) -> str:
    """A float as another float type.

    Between f64 and fp8 this goes by way of f32, so a number is rounded twice. Raises `TargetError` for a rounding
    toward zero that Triton does not do: from f64, and to f8e4m3.
    """
    here, there = scalar_type(source), scalar_type(target)
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


@emits(arith.ExtF)
def extend_float(e: Emitter, op: arith.ExtF) -> Names:
    return (convert_float(e, e.name(op.operand), op.operand.type, op.type),)


@emits(arith.TruncF)
def truncate_float(e: Emitter, op: arith.TruncF) -> Names:
    return (convert_float(e, e.name(op.operand), op.operand.type, op.type, op.rounding),)


@emits(arith.ExtSI, arith.ExtUI, arith.TruncI)
def resize_integer(e: Emitter, op: arith.Cast) -> Names:
    return (cast(e, op.NAME, e.name(op.operand), op.operand.type, op.type),)


@emits(arith.SIToFP, arith.UIToFP)
def integer_to_float(e: Emitter, op: arith.Cast) -> Names:
    target = with_element(op.type, f32) if scalar_type(op.type).is_fp8 else op.type
    name = cast(e, op.NAME, e.name(op.operand), op.operand.type, target)
    return (convert_float(e, name, target, op.type),)


@emits(arith.FPToSI, arith.FPToUI)
def float_to_integer(e: Emitter, op: arith.Cast) -> Names:
    source = op.operand.type
    name = e.name(op.operand)
    if scalar_type(source).is_fp8:
        name, source = convert_float(e, name, source, with_element(source, f32)), with_element(source, f32)
    return (cast(e, op.NAME, name, source, op.type),)


@emits(arith.Bitcast)
def bitcast(e: Emitter, op: arith.Bitcast) -> Names:
    """By the tt dialect's op: arith's has no code in Triton where the kind changes."""
    return (same_bits(e, "tt.bitcast", e.name(op.operand), op.operand.type, op.type),)


def same_bits(e: Emitter, op: str, name: str, source: Type, target: Type) -> str:
    """A cast of the tt dialect; nothing where MLIR has one type for both."""
    before, after = mlir_type(source), mlir_type(target)
    return name if before == after else e.value(f"{op} {name}", f" : {before} -> {after}")


@emits(tt.Bitcast, tt.IntToPtr, tt.PtrToInt)
def cast_pointer(e: Emitter, op: tt.Bitcast | tt.IntToPtr | tt.PtrToInt) -> Names:
    return (same_bits(e, op.NAME, e.name(op.value), op.value.type, op.result.type),)


def addresses(e: Emitter, name: str, type_: Type) -> tuple[str, Type]:
    """Pointers as numbers, which can be compared; numbers as they are. Gives name and type."""
    if not isinstance(element_of(type_), PtrType):
        return name, type_
    target = with_element(type_, i64)
    return same_bits(e, "tt.ptr_to_int", name, type_, target), target


def is_boolean(type_: Type) -> bool:
    """True for i1 and tensors of it."""
    return element_of(type_) == i1
