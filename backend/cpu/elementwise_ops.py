"""Emission of arith and math on numbers and vectors, with the meanings of `codemodel/scalars.py` and without fast-math
flags.

Floats of 16 and 8 bits are computed in f32 and rounded after each op; functions in f64, and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ziggurat.backend.cpu.angles import sine
from ziggurat.backend.cpu.casts import CONVERSIONS, from_f64, to_f64, widen
from ziggurat.backend.cpu.emitter import CpuEmitter, emits
from ziggurat.backend.cpu.exponentials import POWERS, fast_power, power, wide_power
from ziggurat.backend.cpu.interval_functions import ERF, TANH, fast_of_interval
from ziggurat.backend.cpu.table_functions import has_intervals, logarithm, of_table
from ziggurat.backend.llvm.elementwise import INSTRUCTIONS, RULES, WHOLE, extended, in_f32, is_known
from ziggurat.backend.llvm.routines import Number, Routine, instruction, suffix, together
from ziggurat.codemodel.dialects import arith, core, math, tt
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import PtrType, ScalarType, element_of, f32, f64, pointee_of, scalar_element

DIVISION_BY_ZERO = 3


@emits(arith.ConstantOp)
def _constant(emitter: CpuEmitter, op: arith.ConstantOp) -> Number:
    return emitter.constant(op.value, op.type)


@emits(arith.Elementwise, arith.CmpI, arith.Select, arith.Cast)
def _by_rule(emitter: CpuEmitter, op: Op, *values: Number) -> Number:
    return RULES[op](op, *values)


@emits(arith.DivSI, arith.DivUI, arith.RemSI, arith.RemUI)
def _divide(emitter: CpuEmitter, op: Op, a: Number, b: Number) -> Number:
    if not is_known(b) or b.name == "0":
        site = emitter.site(op, "divides")
        if emitter.tolerant:
            return _divided(emitter, op, a, b, site)
        emitter.fail(DIVISION_BY_ZERO, b.test("eq", 0), site)
    return _division(op, a, b)


def _division(op: Op, a: Number, b: Number) -> Number:
    """A quotient or a remainder of integers, by a divisor that is not 0."""
    if not max(a.lanes, b.lanes) or int(a.kind[1:]) > 32 or is_known(b):
        return RULES[op](op, a, b)
    quotient = _quotient_of_vectors(a, b, signed=isinstance(op, arith.DivSI | arith.RemSI))
    return quotient if isinstance(op, arith.DivSI | arith.DivUI) else a - quotient * b


def _quotient_of_vectors(a: Number, b: Number, *, signed: bool) -> Number:
    """The quotients of vectors of integers of up to 32 bits, through f64: processors divide no vectors of integers.

    A quotient that is not whole is 2^-32 or more away from the next whole number, so rounding does not reach it. A
    divisor that is one number has a reciprocal, which LLVM moves out of the loop. The dividend is then taken half
    larger, so that the product with the rounded reciprocal is not below a whole quotient.
    """
    x, y = (number.to("sitofp" if signed else "uitofp", "double") for number in (a, b))
    if b.lanes:
        quotient = x / y
    else:
        half = x.like(0.5).signed_as(x.spread(a.lanes)) if signed else x.like(0.5)
        quotient = (x + half) * (1.0 / y)
    # The bits of the sum with a large number end in those of the whole number, modulo any power of two.
    whole = quotient.call("llvm.trunc") + 1.5 * 2.0**52
    return whole.bits().to("trunc", a.kind)


def _divided(emitter: CpuEmitter, op: Op, a: Number, b: Number, site: int) -> Number:
    """A quotient or a remainder of a tolerant kernel: that by 0 has all bits set."""
    by_zero = b.test("eq", 0)
    emitter.note(by_zero, site, emitter.i64(0), emitter.i64(0))
    quotient = _division(op, a, by_zero.select(1, b))
    return by_zero.select(-1, quotient)


@emits(tt.IntToPtr, tt.PtrToInt, tt.Bitcast, tt.Hint)
def _same(emitter: CpuEmitter, op: Op, a: Number) -> Number:
    return a


@emits(tt.AddPtr)
def _move(emitter: CpuEmitter, op: tt.AddPtr, ptr: Number, offset: Number) -> Number:
    return ptr + emitter.scaled(extended(offset, scalar_element(op.offset.type)), pointee_of(op.ptr.type).bytes)


# Floats.


_NEAR = (0x21800000, 0x5E000000)  # The bits of 2^-60 and 2^61.


def _quotient(emitter: CpuEmitter, a: Number, b: Number) -> Number:
    """A vector of f32 divided by one number, which is known before the loop: two steps of Newton's from its reciprocal
    round as the division does (Markstein), if nothing leaves the range; else the slow instruction divides. Fast
    quotients are the products with the reciprocal, to 2 ulp."""
    inverse, divisor = (1.0 / b).spread(a.lanes), b.spread(a.lanes)
    quotient = a * inverse
    wrong = ((b.bits() & 0x7FFFFFFF) - _NEAR[0]).test("uge", _NEAR[1] - _NEAR[0])
    if not emitter.fast_math:
        for _ in range(2):
            quotient = (-quotient).call("llvm.fma", divisor, a).call("llvm.fma", inverse, quotient)
        far = ((a.bits() & 0x7FFFFFFF) - _NEAR[0]).test("uge", _NEAR[1] - _NEAR[0])
        wrong = wrong | far.any()
    before, slow, end = emitter.aside(wrong, lambda: emitter.effect(f"fdiv {a.type} {a}, {divisor}"), rare=True)
    return emitter.number(
        "float", emitter.effect(f"phi {a.type} [ {quotient}, %{before} ], [ {slow}, %{end} ]"), a.lanes
    )


@emits(arith.FloatBinary, arith.NegF, arith.CmpF, math.AbsF, *WHOLE, math.Sqrt, tt.PreciseSqrt)
def _float(emitter: CpuEmitter, op: Op, *values: Number) -> Number:
    if isinstance(op, arith.DivF | tt.PreciseDivF) and values[0].kind == "float" and values[0].lanes:
        a, b = values
        fused = emitter.module.vector > 16  # AVX2 comes with fused multiply-adds.
        loop_invariant = (
            not b.lanes and b.name[0] == "%" and emitter.level(b.name) < emitter.depth == emitter.level(a.name)
        )
        if fused and loop_invariant:
            return _quotient(emitter, a, b)
    return computed(type(op), scalar_element(op.operands[0].type), partial(RULES[op], op), *values)


# The intrinsics that order zeros, as the interpreter does.
_ORDERED: dict[type[Op], str] = {arith.MaxNumF: "llvm.maximumnum", arith.MinNumF: "llvm.minimumnum"}


def computed(cls: type[Op], scalar: ScalarType, rule: Callable[..., Number], *values: Number) -> Number:
    """An op of a class on floats, by its rule: in their type, or in f32 if that is smaller."""
    return rule(*values) if scalar.bits >= 32 else in_f32(CONVERSIONS, cls, scalar, rule, *values)


def combined(cls: type[Op], scalar: ScalarType, a: Number, b: Number) -> Number:
    """Two floats combined by an op of a class."""
    if cls in _ORDERED:
        return computed(cls, scalar, partial(_ordered, _ORDERED[cls]), a, b)
    return computed(cls, scalar, partial(instruction, INSTRUCTIONS[cls]), a, b)


def _ordered(intrinsic: str, a: Number, b: Number) -> Number:
    """The larger or the smaller of two floats.

    The code of LLVM 22 with AVX-512 gives NaN for NaN and a number that LLVM knows not to be NaN, such as one that was
    an integer. A fence hides what it knows. Vectors have other code.
    """
    if not a.lanes and not b.lanes:
        a, b = (x.call("llvm.arithmetic.fence") if x.name.startswith("%") else x for x in (a, b))
    return a.call(intrinsic, b)


@emits(*_ORDERED)
def _choose(emitter: CpuEmitter, op: Op, a: Number, b: Number) -> Number:
    return combined(type(op), scalar_element(op.result.type), a, b)


@emits(tt.MulHiUI)
def _upper_half(emitter: CpuEmitter, op: tt.MulHiUI, a: Number, b: Number) -> Number:
    """The upper halves of products. Vectors of u32 are multiplied where they are, the even lanes and the odd ones: LLVM
    would move all to lanes of twice the width."""
    lanes = max(a.lanes, b.lanes)
    if a.kind != "i32" or not lanes or lanes % 8 or emitter.module.vector < 32:
        return RULES[op](op, a, b)
    type_, pairs = f"<{lanes} x i32>", f"<{lanes // 2} x i64>"
    x, y = (emitter.made("i64", f"bitcast {number.spread(lanes).typed} to {pairs}", lanes // 2) for number in (a, b))
    even = (x & 0xFFFFFFFF) * (y & 0xFFFFFFFF) >> 32
    odd = (x >> 32) * (y >> 32) & 0xFFFFFFFF00000000
    return emitter.made("i32", f"bitcast {(even | odd).typed} to {type_}", lanes)


@emits(math.Exp, math.Exp2, math.Log, math.Log2, math.Sin, math.Cos, math.Tanh, math.Erf, math.Rsqrt)
def _function(emitter: CpuEmitter, op: math.FloatUnary, a: Number) -> Number:
    scalar, name = scalar_element(op.operand.type), op.NAME.removeprefix("math.")
    if isinstance(op, math.Sin | math.Cos) and scalar != f64 and a.lanes:
        return computed(type(op), scalar, partial(sine, emitter, name), a)
    # Rsqrt divides. Of one number, tanh and erf in f32 are routines for GPUs.
    is_slow = isinstance(op, math.Rsqrt) or (isinstance(op, math.Tanh | math.Erf) and not a.lanes)
    if emitter.fast_math and scalar != f64 and not is_slow:
        rule = partial(fast_power, emitter, name) if name in POWERS else partial(RULES[op], op)
        if isinstance(op, math.Tanh | math.Erf) and has_intervals(emitter, a):
            rule = partial(fast_of_interval, emitter, function=TANH if name == "tanh" else ERF)
        return computed(type(op), scalar, rule, a)
    if name in POWERS and scalar == f32:
        return power(emitter, name, a)
    if name in ("log", "log2") and scalar == f32 and a.lanes:
        return logarithm(emitter, name, a)
    if isinstance(op, math.Tanh | math.Erf) and scalar == f32:
        quick = of_table(emitter, a, name)
        if quick is not None:
            return quick
    if name in POWERS and scalar != f64:
        a = widen(a, scalar)
        return from_f64(emitter.routine(wide_power(name, a.lanes), a), scalar)
    return from_f64(RULES[op](op, to_f64(a, scalar)), scalar)


@emits(math.Approximate)
def _approximate(emitter: CpuEmitter, op: math.Approximate, a: Number) -> Number:
    return _function(emitter, op.accurate, a)


def sum_to_odd(near: Number, rest: Number) -> Number:
    """A sum rounded to nearest and its error, as the neighbour with an odd last bit where the error is not 0."""
    bits = near.bits()
    inexact = rest.test("one", 0.0)
    even = (bits & 1).test("eq", 0)
    grows = (rest.test("ogt", 0.0) ^ near.test("olt", 0.0)).select(bits + 1, bits - 1)
    return (inexact & even & abs(near).test("olt", float("inf"))).select(grows, bits).to("bitcast", "double")


@emits(math.Fma)
def _fma(emitter: CpuEmitter, op: math.Fma, a: Number, b: Number, c: Number) -> Number:
    scalar = scalar_element(op.a.type)
    if scalar in (f32, f64):
        return RULES[op](op, a, b, c)
    x, y, z = together(*(to_f64(value, scalar) for value in (a, b, c)))
    product = x * y  # Exact.
    near = product + z
    other = near - product
    rest = (product - (near - other)) + (z - other)
    odd = sum_to_odd(near, rest)
    zero = near.test("oeq", 0.0)
    return from_f64(zero.select(near, odd), scalar)


# LLVM's numbers of the directions, and its names of the operations.
_DIRECTIONS = {math.Direction.ZERO: "0", math.Direction.UP: "2", math.Direction.DOWN: "3"}
_TO_NEAREST = "1"
_OPERATIONS = {
    math.Operation.ADD: "fadd", math.Operation.MUL: "fmul", math.Operation.DIV: "fdiv", math.Operation.SQRT: "sqrt",
    math.Operation.FMA: "fma",
}  # fmt: skip


@emits(math.Directed)
def _directed(emitter: CpuEmitter, op: math.Directed, *values: Number) -> Number:
    """A call of a function that sets the processor's direction of rounding, and restores it. It is not inlined: only
    within it does LLVM know of the direction."""
    values = tuple(together(*values))
    kind, lanes, type_ = values[0].kind, values[0].lanes, values[0].type
    r = Routine(f"zg_{op.operation.value}_{op.direction.value}.{suffix(kind)}", kind, [kind] * len(values), lanes)

    def set_direction(number: str) -> None:
        r.line(r.called("void", "llvm.set.rounding", ("i32", number)) + " strictfp")

    set_direction(_DIRECTIONS[op.direction])
    name = f"llvm.experimental.constrained.{_OPERATIONS[op.operation]}.{suffix(type_)}"
    how = ("metadata", '!"round.dynamic"'), ("metadata", '!"fpexcept.strict"')
    call = r.emit(r.called(type_, name, *map(r.argument, range(len(values))), *how) + " strictfp")
    set_direction(_TO_NEAREST)
    return emitter.routine(r.done(Number(r, kind, call, lanes), inline=False, attributes="strictfp "), *values)


@emits(tt.InlineAsm)
def _assembly(emitter: CpuEmitter, op: Op, *values: Any) -> Any:
    raise KernelTypeError(
        "inline assembly is PTX, and cannot run on a CPU", op.location,
        hint="run the kernel on a GPU, or write the operation in the language",
    )  # fmt: skip


@emits(tt.SmId)
def _processor(emitter: CpuEmitter, op: Op) -> Number:
    return emitter.number("i32", 0)


@emits(tt.Poison)
def _poison(emitter: CpuEmitter, op: tt.Poison) -> Number:
    element = element_of(op.type)
    if isinstance(element, PtrType):
        return emitter.i64(0)
    return emitter.constant(0.0 if scalar_element(element).is_float else 0, element)


@emits(core.MakeTuple)
def _tuple(emitter: CpuEmitter, op: core.MakeTuple, *values: Any) -> Any:
    return values


@emits(core.TupleLoad)
def _component(emitter: CpuEmitter, op: core.TupleLoad, value: Any) -> Any:
    return value[op.index]
