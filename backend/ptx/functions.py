"""Emission of the math dialect.

exp, exp2, log, log2, sqrt and rsqrt of f32 are the machine's fast instructions, as in Triton; with `exact_math` they
are accurate. sin, cos, tanh and erf are routines (`accurate_f32.py`), and so are all functions of f64
(`accurate_f64.py`). Functions of smaller floats are computed in f32. `docs/accuracy.md` has the error bounds.
"""

from __future__ import annotations

from ziggurat.backend.ptx import accurate_f32, accurate_f64
from ziggurat.backend.ptx.casts import narrow, widen
from ziggurat.backend.ptx.elementwise import in_f32
from ziggurat.backend.ptx.emitter import Emitted, Emitter, emits
from ziggurat.backend.ptx.numbers import llvm_type, suffix
from ziggurat.codemodel.dialects import math, tt
from ziggurat.codemodel.numbers import bits_of_number
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import f64, scalar_element

_NAMES: dict[type[Op], str] = {
    math.Exp: "exp", math.Exp2: "exp2", math.Log: "log", math.Log2: "log2", math.Sqrt: "sqrt", math.Rsqrt: "rsqrt",
    math.Sin: "sin", math.Cos: "cos", math.Tanh: "tanh", math.Erf: "erf",
}  # fmt: skip

_LOG2_E = "0x3FF7154760000000"
_LN_2 = "0x3FE62E4300000000"


def _approximate(emitter: Emitter, instruction: str, value: str) -> str:
    return emitter.asm(("float",), f"{instruction} $0, $1;", ("float", value))[0]


def _fast(emitter: Emitter, name: str, value: str) -> str | None:
    """The result of the machine's instruction for f32; None where it has none."""
    match name:
        case "exp":
            scaled = emitter.emit(f"fmul float {value}, {_LOG2_E}")
            return _approximate(emitter, "ex2.approx.ftz.f32", scaled)
        case "exp2":
            return _approximate(emitter, "ex2.approx.ftz.f32", value)
        case "log":
            return emitter.emit(f"fmul float {_approximate(emitter, 'lg2.approx.f32', value)}, {_LN_2}")
        case "log2":
            return _approximate(emitter, "lg2.approx.f32", value)
        case "sqrt" | "rsqrt":
            return _approximate(emitter, f"{name}.approx.f32", value)
        case _:
            return None


def function(emitter: Emitter, name: str, value: str, kind: str) -> str:
    """A function of an f32 or f64, `kind` its LLVM type."""
    if kind == "float" and not emitter.options.exact_math:
        found = _fast(emitter, name, value)
        if found is not None:
            return found
    if name in ("sqrt", "rsqrt"):
        root = emitter.call(kind, f"llvm.sqrt.{suffix(kind)}", (kind, value))
        return root if name == "sqrt" else emitter.emit(f"fdiv {kind} 0x3FF0000000000000, {root}")
    routines = accurate_f32.ROUTINES if kind == "float" else accurate_f64.ROUTINES
    symbol = f"zg.{name}.{suffix(kind)}"
    emitter.define(symbol, routines[name])
    return emitter.emit(f"call {kind} @{symbol}({kind} {value})")


@emits(*_NAMES)
def _function(emitter: Emitter, op: math.FloatUnary) -> Emitted:
    scalar, name = scalar_element(op.operand.type), _NAMES[type(op)]

    def apply(value: str) -> str:
        if scalar.bits < 32:
            return in_f32(emitter, scalar, (value,), lambda x: function(emitter, name, x, "float"))
        return function(emitter, name, value, llvm_type(scalar))

    return emitter.each(op.result.type, op.operands, apply)


@emits(tt.PreciseSqrt)
def _precise_root(emitter: Emitter, op: tt.PreciseSqrt) -> Emitted:
    scalar = scalar_element(op.operand.type)
    kind = "double" if scalar == f64 else "float"

    def root(value: str) -> str:
        return emitter.call(kind, f"llvm.sqrt.{suffix(kind)}", (kind, value))

    narrow_too = scalar.bits < 32
    return emitter.each(
        op.result.type, op.operands, lambda a: in_f32(emitter, scalar, (a,), root) if narrow_too else root(a)
    )


@emits(math.Floor, math.Ceil)
def _whole(emitter: Emitter, op: math.FloatUnary) -> Emitted:
    scalar, name = scalar_element(op.operand.type), op.NAME.removeprefix("math.")
    kind = "double" if scalar == f64 else "float"

    def apply(value: str) -> str:
        if scalar.bits >= 32:
            return emitter.call(kind, f"llvm.{name}.{suffix(kind)}", (kind, value))
        whole = in_f32(emitter, scalar, (value,), lambda x: emitter.call(kind, f"llvm.{name}.f32", (kind, x)))
        if not scalar.is_fp8:
            return whole
        # An infinity or a NaN stays: rounding to 8 bits would make it finite.
        magnitude = emitter.emit(f"and i8 {value}, 127")
        largest = bits_of_number(scalar.format.largest, scalar)
        special = emitter.emit(f"icmp ugt i8 {magnitude}, {largest}")
        return emitter.emit(f"select i1 {special}, i8 {value}, i8 {whole}")

    return emitter.each(op.result.type, op.operands, apply)


@emits(math.AbsF)
def _magnitude(emitter: Emitter, op: math.AbsF) -> Emitted:
    kind = llvm_type(op.operand.type)
    if scalar_element(op.operand.type).is_fp8:
        return emitter.each(op.result.type, op.operands, lambda a: emitter.emit(f"and i8 {a}, 127"))
    name = f"llvm.fabs.{suffix(kind)}"
    return emitter.each(op.result.type, op.operands, lambda a: emitter.call(kind, name, (kind, a)))


# LLVM's intrinsic by op, with its arguments after the number.
_INTEGER_FUNCTIONS: dict[type[Op], tuple[str, list[tuple[str, str]]]] = {
    math.AbsI: ("abs", [("i1", "false")]), math.CtPop: ("ctpop", []), math.CtLz: ("ctlz", [("i1", "false")]),
    math.BitReverse: ("bitreverse", []),
}  # fmt: skip


@emits(*_INTEGER_FUNCTIONS)
def _integer_function(emitter: Emitter, op: math.IntUnary) -> Emitted:
    kind = llvm_type(op.operand.type)
    if isinstance(op, math.AbsI) and not scalar_element(op.operand.type).signed:
        return emitter.values[op.operand]
    name, rest = _INTEGER_FUNCTIONS[type(op)]
    return emitter.each(
        op.result.type, op.operands, lambda a: emitter.call(kind, f"llvm.{name}.{kind}", (kind, a), *rest)
    )


@emits(math.Fma)
def _fma(emitter: Emitter, op: math.Fma) -> Emitted:
    scalar = scalar_element(op.a.type)
    # The product of two 8-bit floats and the sum are exact in f64, so that only the last step rounds.
    computed = f64 if scalar.is_fp8 else scalar
    kind = llvm_type(computed)

    def apply(*values: str) -> str:
        given = [(kind, widen(emitter, [value], scalar, computed)[0]) for value in values]
        result = emitter.call(kind, f"llvm.fma.{suffix(kind)}", *given)
        return narrow(emitter, [result], computed, scalar)[0]

    return emitter.each(op.result.type, op.operands, apply)
