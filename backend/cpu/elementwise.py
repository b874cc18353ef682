"""Emission of arith and math on numbers and vectors, with the meanings of `codemodel/scalars.py` and without fast-math
flags.

Floats of 16 and 8 bits are computed in f32 and rounded after each op; functions in f64, and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ziggurat.backend.cpu.casts import from_f64, narrow, round_to, to_f64, widen
from ziggurat.backend.cpu.emitter import Emitter, emits, kind_of
from ziggurat.backend.cpu.exponentials import POWERS, fast_power, power, wide_power
from ziggurat.backend.ptx.accurate import VECTORS, accurate
from ziggurat.backend.ptx.routines import Number, Routine, together, vector_type
from ziggurat.codemodel.dialects import arith, core, math, tt
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.numbers import bits_of_number
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import PtrType, ScalarType, element_of, f32, f64, scalar_element

DIVISION_BY_ZERO = 3

_BINARY: dict[type[Op], str] = {
    arith.AddI: "add", arith.SubI: "sub", arith.MulI: "mul", arith.AndI: "and", arith.OrI: "or", arith.XOrI: "xor",
}  # fmt: skip
_CALLS: dict[type[Op], str] = {
    arith.MaxSI: "smax", arith.MinSI: "smin", arith.MaxUI: "umax", arith.MinUI: "umin",
    math.CtPop: "ctpop", math.BitReverse: "bitreverse",
}  # fmt: skip
_FLOAT: dict[type[Op], str] = {
    arith.AddF: "fadd", arith.SubF: "fsub", arith.MulF: "fmul", arith.DivF: "fdiv", tt.PreciseDivF: "fdiv",
}  # fmt: skip
_CHOICES: dict[type[Op], str] = {
    arith.MaximumF: "maximum", arith.MinimumF: "minimum", arith.MaxNumF: "maximumnum", arith.MinNumF: "minimumnum",
}  # fmt: skip


def binary(emitter: Emitter, opcode: str, a: Number, b: Number) -> Number:
    """An instruction on two numbers or vectors."""
    a, b = together(a, b)
    return emitter.made(a.kind, f"{opcode} {a.type} {a}, {b}", a.lanes)


@emits(arith.ConstantOp)
def _constant(emitter: Emitter, op: arith.ConstantOp) -> Number:
    return emitter.constant(op.value, op.type)


@emits(*_BINARY)
def _integers(emitter: Emitter, op: Op, a: Number, b: Number) -> Number:
    return binary(emitter, _BINARY[type(op)], a, b)


@emits(*_CALLS)
def _calls(emitter: Emitter, op: Op, a: Number, *rest: Number) -> Number:
    return a.call(f"llvm.{_CALLS[type(op)]}", *rest)


@emits(math.AbsI)
def _abs(emitter: Emitter, op: math.AbsI, a: Number) -> Number:
    return a.call("llvm.abs", False) if scalar_element(op.operand.type).signed else a


@emits(math.CtLz)
def _leading(emitter: Emitter, op: Op, a: Number) -> Number:
    return a.call("llvm.ctlz", False)


@emits(tt.MulHiUI)
def _high(emitter: Emitter, op: Op, a: Number, b: Number) -> Number:
    bits = int(a.kind[1:])
    x, y = (value.to("zext", f"i{2 * bits}") for value in (a, b))
    return (x * y >> bits).to("trunc", a.kind)


@emits(arith.ShlI, arith.ShrSI, arith.ShrUI)
def _shift(emitter: Emitter, op: Op, a: Number, by: Number) -> Number:
    """A shift by the width or more shifts everything out; a signed number keeps its sign."""
    bits = int(a.kind[1:])
    if isinstance(op, arith.ShrSI):
        return binary(emitter, "ashr", a, by.call("llvm.umin", bits - 1))
    opcode = "shl" if isinstance(op, arith.ShlI) else "lshr"
    if _is_known(by) and 0 <= int(by.name) < bits:
        return binary(emitter, opcode, a, by)
    within = by.test("ult", bits)
    return within.select(binary(emitter, opcode, a, within.select(by, 0)), 0)


@emits(arith.DivSI, arith.DivUI, arith.RemSI, arith.RemUI)
def _divide(emitter: Emitter, op: Op, a: Number, b: Number) -> Number:
    if not _is_known(b) or b.name == "0":
        site = emitter.site(op, "divides")
        zero = emitter.i64(0)
        if emitter.tolerant:
            return _divided(emitter, op, a, b, site)
        emitter.fail(DIVISION_BY_ZERO, b.test("eq", 0), site, zero, zero)
    return quotient(emitter, op, a, b)


def _divided(emitter: Emitter, op: Op, a: Number, b: Number, site: int) -> Number:
    """A quotient or a remainder of a tolerant kernel: that by 0 has all bits set."""
    by_zero = b.test("eq", 0)
    emitter.note(by_zero, site, emitter.i64(0), emitter.i64(0))
    found = quotient(emitter, op, a, by_zero.select(1, b))
    return by_zero.select(-1, found)


def _is_known(value: Number) -> bool:
    """Whether an integer is a constant."""
    return value.name.lstrip("-").isdecimal()


def quotient(emitter: Emitter, op: Op, a: Number, b: Number) -> Number:
    """A quotient or a remainder by numbers that are not 0. The smallest number by -1 is apart: the machine traps."""
    signed, divides = isinstance(op, arith.DivSI | arith.RemSI), isinstance(op, arith.DivSI | arith.DivUI)
    opcode = f"{'s' if signed else 'u'}{'div' if divides else 'rem'}"
    if not signed or (_is_known(b) and b.name != "-1") or a.kind == "i1":
        return binary(emitter, opcode, a, b)
    inverts = b.test("eq", -1)
    result = binary(emitter, opcode, a, inverts.select(1, b))
    return inverts.select(0 - a if divides else a.like(0), result)


@emits(arith.CmpI)
def _compare(emitter: Emitter, op: arith.CmpI, a: Number, b: Number) -> Number:
    return a.test(op.predicate.value, b)


@emits(arith.Select)
def _select(emitter: Emitter, op: Op, condition: Number, then: Number, otherwise: Number) -> Number:
    return condition.select(then, otherwise)


@emits(arith.ExtSI, arith.ExtUI, arith.TruncI)
def _resize(emitter: Emitter, op: arith.Cast, a: Number) -> Number:
    names: dict[type[Op], str] = {arith.ExtSI: "sext", arith.ExtUI: "zext", arith.TruncI: "trunc"}
    return a.to(names[type(op)], kind_of(op.type))


@emits(tt.IntToPtr, tt.PtrToInt, tt.Bitcast, tt.Hint)
def _same(emitter: Emitter, op: Op, a: Number) -> Number:
    return a


@emits(tt.AddPtr)
def _move(emitter: Emitter, op: tt.AddPtr, ptr: Number, offset: Number) -> Number:
    pointer = element_of(op.ptr.type)
    assert isinstance(pointer, PtrType)
    if offset.kind != "i64":
        offset = offset.to("sext" if scalar_element(op.offset.type).signed else "zext", "i64")
    return ptr + emitter.scaled(offset, pointer.pointee.bytes)


# Floats.


def computed(emitter: Emitter, scalar: ScalarType, make: Callable[..., Number], *values: Number) -> Number:
    """A function of f32 or f64, for floats of any type: the smaller ones are widened to f32, and the result rounded."""
    if scalar.bits >= 32:
        return make(*values)
    return round_to(emitter, make(*(widen(emitter, value, scalar) for value in values)), scalar)


_NEAR = (0x21800000, 0x5E000000)  # The bits of 2^-60 and 2^61.


def _quotient(emitter: Emitter, a: Number, b: Number) -> Number:
    """A vector of f32 divided by one number, which is known before the loop: two steps of Newton's from its reciprocal
    round as the division does (Markstein), if nothing leaves the range; else the slow instruction divides. Fast
    quotients are the products with the reciprocal, to 2 ulp."""
    inverse, divisor = (1.0 / b).spread(a.lanes), b.spread(a.lanes)
    found = a * inverse
    wrong = ((b.bits() & 0x7FFFFFFF) - _NEAR[0]).test("uge", _NEAR[1] - _NEAR[0])
    if not emitter.fast_math:
        for _ in range(2):
            found = (-found).call("llvm.fma", divisor, a).call("llvm.fma", inverse, found)
        far = ((a.bits() & 0x7FFFFFFF) - _NEAR[0]).test("uge", _NEAR[1] - _NEAR[0])
        wrong = wrong | emitter.intrinsic("i1", f"llvm.vector.reduce.or.v{a.lanes}i1", far)
    before, slow, end = emitter.aside(wrong, lambda: emitter.effect(f"fdiv {a.type} {a}, {divisor}"), rare=True)
    return emitter.number("float", emitter.effect(f"phi {a.type} [ {found}, %{before} ], [ {slow}, %{end} ]"), a.lanes)


@emits(*_FLOAT)
def _float(emitter: Emitter, op: Op, a: Number, b: Number) -> Number:
    opcode = _FLOAT[type(op)]
    if opcode == "fdiv" and a.kind == "float" and a.lanes and not b.lanes and b.name[0] == "%":
        fused = emitter.module.vector > 16  # AVX2 comes with fused multiply-adds.
        if fused and emitter.level(b.name) < emitter.depth == emitter.level(a.name):
            return _quotient(emitter, a, b)

    def make(x: Number, y: Number) -> Number:
        return binary(emitter, opcode, x, y)

    return computed(emitter, scalar_element(op.result.type), make, a, b)


@emits(*_CHOICES)
def _choose(emitter: Emitter, op: Op, a: Number, b: Number) -> Number:
    """The result is one of the operands, so that nothing is rounded."""
    scalar, name = scalar_element(op.result.type), f"llvm.{_CHOICES[type(op)]}"
    if scalar.bits >= 32:
        return a.call(name, b)
    x, y = (widen(emitter, value, scalar) for value in (a, b))
    chosen = x.call(name, y)
    if not scalar.is_fp8:
        return narrow(emitter, chosen, f32, scalar)
    nan = chosen.test("uno", 0.0)
    return nan.select(127, (chosen.bits() - x.bits()).test("eq", 0).select(a, b))


@emits(arith.NegF)
def _negate(emitter: Emitter, op: Op, a: Number) -> Number:
    return a ^ (1 << int(a.kind[1:]) - 1) if a.kind[0] == "i" else -a


@emits(math.AbsF)
def _magnitude(emitter: Emitter, op: Op, a: Number) -> Number:
    return a & (1 << int(a.kind[1:]) - 1) - 1 if a.kind[0] == "i" else abs(a)


@emits(arith.CmpF)
def _compare_floats(emitter: Emitter, op: arith.CmpF, a: Number, b: Number) -> Number:
    scalar = scalar_element(op.lhs.type)
    if scalar.bits < 32:
        a, b = widen(emitter, a, scalar), widen(emitter, b, scalar)
    return a.test(op.predicate.value, b)


@emits(math.Floor, math.Ceil)
def _whole(emitter: Emitter, op: math.FloatUnary, a: Number) -> Number:
    scalar, name = scalar_element(op.operand.type), f"llvm.{op.NAME.removeprefix('math.')}"

    def make(x: Number) -> Number:
        return x.call(name)

    whole = computed(emitter, scalar, make, a)
    if not scalar.is_fp8:
        return whole
    # An infinity or a NaN stays: rounding to 8 bits would make it finite.
    return (a & 127).test("ugt", bits_of_number(scalar.format.largest, scalar)).select(a, whole)


@emits(math.Sqrt, tt.PreciseSqrt)
def _root(emitter: Emitter, op: math.FloatUnary, a: Number) -> Number:
    def make(x: Number) -> Number:
        return x.call("llvm.sqrt")

    return computed(emitter, scalar_element(op.operand.type), make, a)


@emits(math.Rsqrt)
def _inverse_root(emitter: Emitter, op: math.FloatUnary, a: Number) -> Number:
    scalar = scalar_element(op.operand.type)
    root = to_f64(emitter, a, scalar).call("llvm.sqrt")
    return from_f64(emitter, 1.0 / root, scalar)


def by_lane(emitter: Emitter, make: Callable[..., Number], *values: Number) -> Number:
    """A function of numbers applied to each lane of vectors."""
    lanes = max(value.lanes for value in values)
    if not lanes:
        return make(*values)
    result: Number | None = None
    for lane in range(lanes):
        given = [
            emitter.made(value.kind, f"extractelement {value.typed}, i64 {lane}") if value.lanes else value
            for value in values
        ]
        found = make(*given)
        if result is None:
            result = emitter.number(found.kind, "poison", lanes)
        result = emitter.made(found.kind, f"insertelement {result.typed}, {found.typed}, i64 {lane}", lanes)
    assert result is not None
    return result


def function(emitter: Emitter, name: str, x: Number) -> Number:
    """A function of f64, or for `fast_math` of f32."""
    if name in VECTORS[x.kind]:
        return emitter.routine(accurate(name, x.kind, x.lanes), x)
    return call_by_lane(emitter, accurate(name, x.kind), x)


def call_by_lane(emitter: Emitter, routine: Routine, *values: Number) -> Number:
    """A routine of numbers, called for each lane."""

    def make(*given: Number) -> Number:
        return emitter.routine(routine, *given)

    return by_lane(emitter, make, *values)


@emits(math.Exp, math.Exp2, math.Log, math.Log2, math.Sin, math.Cos, math.Tanh, math.Erf)
def _function(emitter: Emitter, op: math.FloatUnary, a: Number) -> Number:
    scalar, name = scalar_element(op.operand.type), op.NAME.removeprefix("math.")
    if emitter.fast_math and scalar != f64 and name not in ("tanh", "erf"):  # Those divide, or call the C library.

        def make(x: Number) -> Number:
            return fast_power(emitter, name, x) if name in POWERS else function(emitter, name, x)

        return computed(emitter, scalar, make, a)
    if name in POWERS and scalar == f32:
        return power(emitter, name, a)
    if name in POWERS and scalar != f64:
        a = widen(emitter, a, scalar)
        return from_f64(emitter, emitter.routine(wide_power(name, a.lanes), a), scalar)
    return from_f64(emitter, function(emitter, name, to_f64(emitter, a, scalar)), scalar)


@emits(arith.RemF)
def _remainder(emitter: Emitter, op: Op, a: Number, b: Number) -> Number:
    scalar = scalar_element(op.result.type)

    def make(x: Number, y: Number) -> Number:
        return call_by_lane(emitter, accurate("fmod", x.kind), x, y)

    return computed(emitter, scalar, make, a, b)


def sum_to_odd(near: Number, rest: Number) -> Number:
    """A sum rounded to nearest and its error, as the neighbour with an odd last bit where the error is not 0."""
    bits = near.bits()
    inexact = rest.test("one", 0.0)
    even = (bits & 1).test("eq", 0)
    grows = (rest.test("ogt", 0.0) ^ near.test("olt", 0.0)).select(bits + 1, bits - 1)
    return (inexact & even & abs(near).test("olt", float("inf"))).select(grows, bits).to("bitcast", "double")


@emits(math.Fma)
def _fma(emitter: Emitter, op: math.Fma, a: Number, b: Number, c: Number) -> Number:
    scalar = scalar_element(op.a.type)
    if scalar in (f32, f64):
        a, b, c = together(a, b, c)
        return a.call("llvm.fma", b, c)
    x, y, z = together(*(to_f64(emitter, value, scalar) for value in (a, b, c)))
    product = x * y  # Exact.
    near = product + z
    other = near - product
    rest = (product - (near - other)) + (z - other)
    odd = sum_to_odd(near, rest)
    zero = near.test("oeq", 0.0)
    return from_f64(emitter, zero.select(near, odd), scalar)


# LLVM's numbers of the directions, and its names of the operations.
_DIRECTIONS = {math.Direction.ZERO: 0, math.Direction.UP: 2, math.Direction.DOWN: 3}
_TO_NEAREST = 1
_OPERATIONS = {
    math.Operation.ADD: "fadd", math.Operation.MUL: "fmul", math.Operation.DIV: "fdiv", math.Operation.SQRT: "sqrt",
    math.Operation.FMA: "fma",
}  # fmt: skip


@emits(math.Directed)
def _directed(emitter: Emitter, op: math.Directed, *values: Number) -> Number:
    """A call of a function that sets the processor's direction of rounding, and restores it. It is not inlined: only
    within it does LLVM know of the direction."""
    values = tuple(together(*values))
    lanes, kind, number = values[0].lanes, values[0].kind, _DIRECTIONS[op.direction]
    type_ = vector_type(kind, lanes)
    suffix = type_.strip("<>").replace(" x ", "").replace("float", "f32").replace("double", "f64")
    name = f"llvm.experimental.constrained.{_OPERATIONS[op.operation]}.{'v' * (lanes > 0)}{suffix}"
    symbol = f"zg_{op.operation.value}_{op.direction.value}.{suffix}"
    types, given = ", ".join([type_] * len(values)), ", ".join(f"{type_} %a{n}" for n in range(len(values)))
    emitter.declarations[f"declare {type_} @{name}({types}, metadata, metadata)"] = None
    emitter.declarations["declare void @llvm.set.rounding(i32)"] = None
    emitter.definitions[symbol] = (
        f"define internal {type_} @{symbol}({given}) noinline nounwind strictfp {{\n"
        f"  call void @llvm.set.rounding(i32 {number}) strictfp\n"
        f"  %r = call {type_} @{name}({given}, "
        'metadata !"round.dynamic", metadata !"fpexcept.strict") strictfp\n'
        f"  call void @llvm.set.rounding(i32 {_TO_NEAREST}) strictfp\n"
        f"  ret {type_} %r\n}}"
    )
    return emitter.made(kind, f"call {type_} @{symbol}({', '.join(value.typed for value in values)})", lanes)


@emits(tt.InlineAsm)
def _assembly(emitter: Emitter, op: Op, *values: Any) -> Any:
    raise KernelTypeError(
        "inline assembly is PTX, and cannot run on a CPU", op.location,
        hint="run the kernel on a GPU, or write the operation in the language",
    )  # fmt: skip


@emits(tt.SmId)
def _processor(emitter: Emitter, op: Op) -> Number:
    return emitter.number("i32", 0)


@emits(tt.Poison)
def _poison(emitter: Emitter, op: tt.Poison) -> Number:
    element = element_of(op.type)
    if isinstance(element, PtrType):
        return emitter.i64(0)
    return emitter.constant(0.0 if scalar_element(element).is_float else 0, element)


@emits(core.MakeTuple)
def _tuple(emitter: Emitter, op: core.MakeTuple, *values: Any) -> Any:
    return values


@emits(core.TupleLoad)
def _component(emitter: Emitter, op: core.TupleLoad, value: Any) -> Any:
    return value[op.index]
