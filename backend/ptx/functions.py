"""Emission of the math dialect.

exp, exp2, log, log2, sqrt and rsqrt of f32 are the machine's fast instructions, as in Triton; with `exact_math` they
are accurate. sin, cos, tanh and erf are routines (`accurate.py`), and so are all functions of f64. Functions of smaller
floats are computed in f32. `docs/accuracy.md` has the error bounds.
"""

from __future__ import annotations

from ziggurat.backend.ptx.accurate import accurate
from ziggurat.backend.ptx.casts import narrow, widen
from ziggurat.backend.ptx.elementwise import computed, computing
from ziggurat.backend.ptx.emitter import Emitted, Emitter, emits
from ziggurat.backend.ptx.numbers import llvm_type, suffix
from ziggurat.codemodel.dialects import arith, math, tt
from ziggurat.codemodel.numbers import bits_of_number
from ziggurat.codemodel.types import f64, scalar_element

_LOG2_E = "0x3FF7154760000000"
_LN_2 = "0x3FE62E4300000000"
# The machine's instructions for f32; e^x is 2^(x · log2 e), and log x is log2 x · ln 2.
_FAST = {
    "exp": "ex2.approx.ftz.f32", "exp2": "ex2.approx.ftz.f32", "log": "lg2.approx.f32", "log2": "lg2.approx.f32",
    "sqrt": "sqrt.approx.f32", "rsqrt": "rsqrt.approx.f32",
}  # fmt: skip


def function(emitter: Emitter, name: str, value: str, kind: str) -> str:
    """A function of an f32 or f64, `kind` its LLVM type."""
    if kind == "float" and name in _FAST and not emitter.options.exact_math:
        if name == "exp":
            value = emitter.emit(f"fmul float {value}, {_LOG2_E}")
        (found,) = emitter.asm(("float",), f"{_FAST[name]} $0, $1;", ("float", value))
        return emitter.emit(f"fmul float {found}, {_LN_2}") if name == "log" else found
    if name in ("sqrt", "rsqrt"):
        root = emitter.call(kind, f"llvm.sqrt.{suffix(kind)}", (kind, value))
        return root if name == "sqrt" else emitter.emit(f"fdiv {kind} 0x3FF0000000000000, {root}")
    return emitter.routine(accurate(name, kind), value)


@emits(
    math.Exp, math.Exp2, math.Log, math.Log2, math.Sqrt, math.Rsqrt, math.Sin, math.Cos, math.Tanh, math.Erf
)  # fmt: skip
def _function(emitter: Emitter, op: math.FloatUnary) -> Emitted:
    name = op.NAME.removeprefix("math.")
    return computed(emitter, op, lambda kind, value: function(emitter, name, value, kind))


@emits(arith.RemF)
def _remf(emitter: Emitter, op: arith.RemF) -> Emitted:
    """Call C's fmod. In f32 the remainder of two small floats is exact."""
    return computed(emitter, op, lambda kind, a, b: emitter.routine(accurate("fmod", kind), a, b))


@emits(tt.PreciseSqrt)
def _precise_root(emitter: Emitter, op: tt.PreciseSqrt) -> Emitted:
    return computed(emitter, op, lambda kind, value: emitter.call(kind, f"llvm.sqrt.{suffix(kind)}", (kind, value)))


@emits(math.Floor, math.Ceil)
def _whole(emitter: Emitter, op: math.FloatUnary) -> Emitted:
    scalar, name = scalar_element(op.operand.type), op.NAME.removeprefix("math.")
    make = computing(
        emitter, scalar, lambda kind, value: emitter.call(kind, f"llvm.{name}.{suffix(kind)}", (kind, value))
    )

    def apply(value: str) -> str:
        whole = make(value)
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
