"""Emission of arith: one LLVM instruction or intrinsic for each register."""

from __future__ import annotations

from typing import Any

from ziggurat.backend.ptx.emitter import Emitted, Emitter, emits
from ziggurat.backend.ptx.numbers import literal, llvm_type
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import PtrType, ScalarType, TensorType, Type, element_of

_BINARY: dict[type[Op], str] = {
    arith.AddI: "add",
    arith.SubI: "sub",
    arith.MulI: "mul",
    arith.AndI: "and",
    arith.OrI: "or",
    arith.XOrI: "xor",
    arith.ShlI: "shl",
    arith.ShrSI: "ashr",
    arith.ShrUI: "lshr",
    arith.DivSI: "sdiv",
    arith.DivUI: "udiv",
    arith.RemSI: "srem",
    arith.RemUI: "urem",
    arith.AddF: "fadd",
    arith.SubF: "fsub",
    arith.MulF: "fmul",
}

_INTRINSICS: dict[type[Op], str] = {
    arith.MaxSI: "smax",
    arith.MinSI: "smin",
    arith.MaxUI: "umax",
    arith.MinUI: "umin",
    arith.MaximumF: "maximum",
    arith.MinimumF: "minimum",
    arith.MaxNumF: "maxnum",
    arith.MinNumF: "minnum",
}

_SUFFIX = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}


def scalar_of(type_: Type) -> ScalarType:
    """The scalar type of a number or of a tensor's elements."""
    element = element_of(type_)
    assert isinstance(element, ScalarType)
    return element


def suffix(kind: str) -> str:
    """How an intrinsic names a type."""
    return _SUFFIX.get(kind, kind)


@emits(arith.ConstantOp)
def _constant(emitter: Emitter, op: arith.ConstantOp) -> Emitted:
    text = literal(op.value, scalar_of(op.type))
    if isinstance(op.type, TensorType):
        assert op.type.layout is not None
        return [text] * op.type.layout.num_registers
    return text


@emits(*_BINARY)
def _binary(emitter: Emitter, op: Any) -> Emitted:
    kind = llvm_type(op.lhs.type)
    name = _BINARY[type(op)]
    return emitter.each(op.result.type, op.operands, lambda a, b: emitter.emit(f"{name} {kind} {a}, {b}"))


@emits(*_INTRINSICS)
def _intrinsic(emitter: Emitter, op: Any) -> Emitted:
    kind = llvm_type(op.lhs.type)
    function = f"llvm.{_INTRINSICS[type(op)]}.{suffix(kind)}"
    return emitter.each(op.result.type, op.operands, lambda a, b: emitter.call(kind, function, (kind, a), (kind, b)))


@emits(arith.DivF)
def _divf(emitter: Emitter, op: arith.DivF) -> Emitted:
    kind = llvm_type(op.lhs.type)

    def divide(a: str, b: str) -> str:
        if kind == "float" and not emitter.options.exact_math:
            return emitter.asm("float", "div.full.f32 $0, $1, $2;", "=f,f,f", ("float", a), ("float", b))
        if kind in ("half", "bfloat"):
            wide = [emitter.emit(f"fpext {kind} {x} to float") for x in (a, b)]
            quotient = emitter.emit(f"fdiv float {wide[0]}, {wide[1]}")
            return emitter.emit(f"fptrunc float {quotient} to {kind}")
        return emitter.emit(f"fdiv {kind} {a}, {b}")

    return emitter.each(op.result.type, op.operands, divide)


@emits(arith.NegF)
def _negf(emitter: Emitter, op: arith.NegF) -> Emitted:
    kind = llvm_type(op.operand.type)
    return emitter.each(op.result.type, op.operands, lambda a: emitter.emit(f"fneg {kind} {a}"))


@emits(arith.CmpI)
def _cmpi(emitter: Emitter, op: arith.CmpI) -> Emitted:
    kind = llvm_type(op.lhs.type)
    predicate = op.predicate.value
    return emitter.each(op.result.type, op.operands, lambda a, b: emitter.emit(f"icmp {predicate} {kind} {a}, {b}"))


@emits(arith.CmpF)
def _cmpf(emitter: Emitter, op: arith.CmpF) -> Emitted:
    kind = llvm_type(op.lhs.type)
    predicate = op.predicate.value
    return emitter.each(op.result.type, op.operands, lambda a, b: emitter.emit(f"fcmp {predicate} {kind} {a}, {b}"))


@emits(arith.Select)
def _select(emitter: Emitter, op: arith.Select) -> Emitted:
    kind = llvm_type(op.then.type)
    return emitter.each(
        op.result.type, op.operands, lambda c, a, b: emitter.emit(f"select i1 {c}, {kind} {a}, {kind} {b}")
    )


@emits(tt.AddPtr)
def _addptr(emitter: Emitter, op: tt.AddPtr) -> Emitted:
    pointer = element_of(op.ptr.type)
    assert isinstance(pointer, PtrType)
    offset = scalar_of(op.offset.type)
    index = llvm_type(offset)
    memory = f"i{8 * pointer.pointee.bytes}"

    def move(base: str, by: str) -> str:
        if offset.bits < 64:
            by = emitter.emit(f"{'sext' if offset.signed else 'zext'} {index} {by} to i64")
        return emitter.emit(f"getelementptr {memory}, ptr addrspace(1) {base}, i64 {by}")

    return emitter.each(op.result.type, op.operands, move)


@emits(tt.MulHiUI)
def _mulhi(emitter: Emitter, op: tt.MulHiUI) -> Emitted:
    bits = scalar_of(op.lhs.type).bits

    def high(a: str, b: str) -> str:
        wide = [emitter.emit(f"zext i{bits} {x} to i{2 * bits}") for x in (a, b)]
        product = emitter.emit(f"mul i{2 * bits} {wide[0]}, {wide[1]}")
        shifted = emitter.emit(f"lshr i{2 * bits} {product}, {bits}")
        return emitter.emit(f"trunc i{2 * bits} {shifted} to i{bits}")

    return emitter.each(op.result.type, op.operands, high)
