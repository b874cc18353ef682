"""Rules that write elementwise ops as LLVM text for GPUs and CPUs; `codemodel/scalars.py` has their meanings.

A rule takes an op and its operands, numbers or vectors, and gives the result. A rule of floats computes in the LLVM
type of the operands: a machine widens small floats before it, and rounds the result, where it has to. A machine that
computes an op in another way has an emitter of its own for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from ziggurat.backend.llvm.accurate import accurate
from ziggurat.backend.llvm.routines import Number, Routine, instruction
from ziggurat.codemodel.dialects import arith, math, tt
from ziggurat.codemodel.dialects.arith import Rounding
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.numbers import bits_of_number
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ScalarType, f8e5m2, f16, f32, f64, i1, scalar_element

RULES: OpTable[Callable[..., Number]] = OpTable("rule for LLVM text")

# LLVM's instruction or intrinsic. The operands and the result have one type.
INSTRUCTIONS: dict[type[Op], str] = {
    arith.AddI: "add", arith.SubI: "sub", arith.MulI: "mul", arith.AndI: "and", arith.OrI: "or", arith.XOrI: "xor",
    arith.DivUI: "udiv", arith.RemUI: "urem",
    arith.MaxSI: "llvm.smax", arith.MinSI: "llvm.smin", arith.MaxUI: "llvm.umax", arith.MinUI: "llvm.umin",
    math.CtPop: "llvm.ctpop", math.BitReverse: "llvm.bitreverse",
    arith.AddF: "fadd", arith.SubF: "fsub", arith.MulF: "fmul", arith.DivF: "fdiv", tt.PreciseDivF: "fdiv",
    arith.MaximumF: "llvm.maximum", arith.MinimumF: "llvm.minimum",
    arith.MaxNumF: "llvm.maxnum", arith.MinNumF: "llvm.minnum",
    math.Floor: "llvm.floor", math.Ceil: "llvm.ceil", math.Trunc: "llvm.trunc", math.RoundEven: "llvm.roundeven",
    math.Sqrt: "llvm.sqrt", tt.PreciseSqrt: "llvm.sqrt",
    math.Fma: "llvm.fma",
}  # fmt: skip
# The ops whose result is one of their operands.
CHOICES: tuple[type[Op], ...] = (arith.MaximumF, arith.MinimumF, arith.MaxNumF, arith.MinNumF)

# The ops that round to whole numbers.
WHOLE: tuple[type[Op], ...] = (math.Floor, math.Ceil, math.Trunc, math.RoundEven)

_RESIZED: dict[type[Op], str] = {arith.ExtSI: "sext", arith.ExtUI: "zext", arith.TruncI: "trunc"}
_SHIFTS: dict[type[Op], str] = {arith.ShlI: "shl", arith.ShrSI: "ashr", arith.ShrUI: "lshr"}


@RULES.of(*INSTRUCTIONS)
def _instruction(op: Op, *values: Number) -> Number:
    return instruction(INSTRUCTIONS[type(op)], *values)


def is_known(value: Number) -> bool:
    """Whether an integer is a constant."""
    return value.name.lstrip("-").isdecimal()


@RULES.of(arith.DivSI, arith.RemSI)
def _signed_quotient(op: Op, a: Number, b: Number) -> Number:
    """A quotient or a remainder. That of the smallest number by -1 is apart: it is undefined in LLVM, and x86 traps."""
    opcode = "sdiv" if isinstance(op, arith.DivSI) else "srem"
    if is_known(b) and b.name != "-1":
        return instruction(opcode, a, b)
    inverts = b.test("eq", -1)
    result = instruction(opcode, a, inverts.select(1, b))
    return inverts.select(0 - a if opcode == "sdiv" else a.like(0), result)


@RULES.of(*_RESIZED)
def _resize(op: arith.Cast, a: Number) -> Number:
    return a.to(_RESIZED[type(op)], scalar_element(op.type).llvm)


@RULES.of(math.AbsI)
def _absolute(op: math.AbsI, a: Number) -> Number:
    return a.call("llvm.abs", False) if scalar_element(op.operand.type).signed else a


@RULES.of(math.CtLz)
def _leading(op: Op, a: Number) -> Number:
    return a.call("llvm.ctlz", False)


@RULES.of(tt.MulHiUI)
def _high(op: Op, a: Number, b: Number) -> Number:
    bits = int(a.kind[1:])
    x, y = (value.to("zext", f"i{2 * bits}") for value in (a, b))
    return (x * y >> bits).to("trunc", a.kind)


@RULES.of(*_SHIFTS)
def _shift(op: Op, a: Number, by: Number) -> Number:
    """A shift by the width or more shifts everything out; a signed number keeps its sign."""
    opcode, bits = _SHIFTS[type(op)], int(a.kind[1:])
    if by.name.isdecimal() and int(by.name) < bits:
        return instruction(opcode, a, by)
    if opcode == "ashr":
        return instruction(opcode, a, by.call("llvm.umin", bits - 1))
    return by.test("ult", bits).select(instruction(opcode, a, by), 0)


@RULES.of(arith.CmpI, arith.CmpF)
def _compare(op: arith.CmpI | arith.CmpF, a: Number, b: Number) -> Number:
    return a.test(op.predicate.value, b)


@RULES.of(arith.Select)
def _select(op: Op, condition: Number, then: Number, otherwise: Number) -> Number:
    return condition.select(then, otherwise)


@RULES.of(arith.NegF)
def _negate(op: Op, a: Number) -> Number:
    return a ^ (1 << int(a.kind[1:]) - 1) if a.kind[0] == "i" else -a


@RULES.of(math.AbsF)
def _magnitude(op: Op, a: Number) -> Number:
    return a & (1 << int(a.kind[1:]) - 1) - 1 if a.kind[0] == "i" else abs(a)


@RULES.of(math.Rsqrt)
def _inverse_root(op: Op, a: Number) -> Number:
    return 1.0 / a.call("llvm.sqrt")


@RULES.of(math.Exp, math.Exp2, math.Log, math.Log2, math.Sin, math.Cos, math.Tanh, math.Erf, arith.RemF)
def _routine(op: Op, a: Number, *others: Number) -> Number:
    """Call the accurate function. A remainder is C's fmod: that of two small floats is exact in f32."""
    name = "fmod" if isinstance(op, arith.RemF) else op.NAME.removeprefix("math.")
    return a.code.routine(accurate(name, a.kind, a.lanes), a, *others)


class Conversions(NamedTuple):
    """A machine's conversions of floats: of fewer than 32 bits to f32, exactly; and from f32 or f64, rounded once."""

    widen: Callable[[Number, ScalarType], Number]
    narrow: Callable[[Number, ScalarType, ScalarType], Number]


def in_f32(
    to: Conversions, cls: type[Op], scalar: ScalarType, rule: Callable[..., Number], a: Number, *others: Number
) -> Number:
    """An op of a class on floats of fewer than 32 bits, by its rule on f32."""
    if cls in (arith.NegF, math.AbsF):
        return rule(a)
    wide = [to.widen(value, scalar) for value in (a, *others)]
    if cls in CHOICES and scalar.is_fp8:  # Rounding would make an infinity finite.
        candidates, first, second = (value.bits() for value in (rule(*wide), *wide))
        is_first, is_second = candidates.test("eq", first), candidates.test("eq", second)
        return is_first.select(a, is_second.select(others[0], 127))
    if cls is arith.CmpF:
        return rule(*wide)
    narrow = to.narrow(rule(*wide), f32, scalar)
    if cls in WHOLE and scalar.is_fp8:  # Rounding would make an infinity finite here, too; NaN stays.
        narrow = (a & 127).test("ugt", bits_of_number(scalar.format.largest, scalar)).select(a, narrow)
    return narrow


# Conversions. Nothing is rounded twice; 8-bit floats saturate; floats that do not fit an integer become the nearest
# one, and NaN 0. A conversion without an instruction is a routine that computes with integers.


def from_integer(to: Conversions, op: arith.Cast, a: Number) -> Number:
    """An integer as a float."""
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    signed = isinstance(op, arith.SIToFP)
    name = "sitofp" if signed else "uitofp"
    if target.bits >= 32 or (target == f16 and source.bits < 64):
        return a.to(name, target.llvm)
    if source.bits == 64:
        # f64 holds 53 bits. The last bits of a longer integer matter only as "some are set".
        return to.narrow(_sticky(a, 11 if signed else 12, 53, signed).to(name, "double"), f64, target)
    return to.narrow((_sticky(a, 9, 24, signed) if source.bits == 32 else a).to(name, "float"), f32, target)


def _sticky(x: Number, low: int, limit: int, signed: bool) -> Number:
    """The integer with its `low` last bits replaced by 10…0 if any is set; unchanged below 2**limit. The float keeps
    that 1, of the largest integers as well."""
    mask = (1 << low) - 1
    some = (x & mask).test("ne", 0)
    sticky = x & ~mask | some.select(1 << low - 1, 0, x.kind)
    small = (x + (1 << limit)).test("ule", 1 << limit + 1) if signed else x.test("ule", 1 << limit)
    return small.select(x, sticky)


def extended(value: Number, scalar: ScalarType) -> Number:
    """An integer as an i64."""
    return value if value.kind == "i64" else value.to("sext" if scalar.signed else "zext", "i64")


def to_integer(to: Conversions, op: arith.Cast, a: Number) -> Number:
    """A float as an integer."""
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    name = f"llvm.fpto{'s' if target.signed and target != i1 else 'u'}i.sat"
    return to.widen(a, source).convert(name, target.llvm)


def half_of(value: Number, source: ScalarType) -> Number:
    """An 8-bit float as f16, exactly."""
    if source == f8e5m2:  # It is the upper half of an f16.
        return (value.to("zext", "i16") << 8).to("bitcast", "half")
    return value.code.routine(widen_e4m3(value.lanes), value)


@cache
def widen_e4m3(lanes: int = 0) -> Routine:
    """An f8e4m3 as f16.

    Moving the fields to their places in an f16 gives 1/256 of the number, for subnormals as well.
    """
    r = Routine("zg.f8e4m3.to.f16", "half", ["i8"], lanes)
    wide = r.argument().to("zext", "i16")
    magnitude = wide & 127
    sign = (wide & 128) << 8
    fields = magnitude << 7 | sign
    number = fields.to("bitcast", "half") * 256.0
    return r.done(magnitude.test("eq", 127).select(number.like(float("nan")), number))


@cache
def narrow_to_8_bits(target: ScalarType, rounding: Rounding, lanes: int = 0) -> Routine:
    """An f32 as an 8-bit float, saturating.

    The bits of normal numbers are shifted into place and rounded as an integer, so that a carry reaches the exponent.
    Below the smallest normal number, the last place has a fixed weight.
    """
    digits, bias, nan = target.format.mantissa_bits, target.format.bias, 0x7F
    largest = bits_of_number(target.format.largest, target)
    shift = 23 - digits
    smallest = 127 - bias + 1  # The exponent field, in an f32, of the smallest normal number.
    r = Routine(f"zg.f32.to.{target.name}.{rounding.value}", "i8", ["float"], lanes)
    bits = r.argument().bits()
    magnitude = bits & 0x7FFFFFFF
    number = magnitude.to("bitcast", "float")
    sign = bits >> 24 & 128
    if rounding is Rounding.NEAREST:
        last = magnitude >> shift & 1
        normal = magnitude + ((1 << shift - 1) - 1) + last
        # Adding a number whose last place has the weight of this float's rounds the sum there.
        anchor = smallest - digits + 23
        low = (number + 2.0 ** (anchor - 127)).bits() - (anchor << 23)
    else:
        normal = magnitude
        scaled = number * 2.0 ** (127 + digits - smallest)
        low = magnitude.test("ult", smallest << 23).select(scaled, 0.0).to("fptoui", "i32")
    normal = (normal >> shift) - ((smallest - 1) << digits)
    code = magnitude.test("ult", smallest << 23).select(low, normal)
    code = code.test("ugt", largest).select(largest, code)
    code = magnitude.test("ugt", 0x7F800000).select(nan, code)
    return r.done((code | sign).to("trunc", "i8"))


@cache
def to_odd(lanes: int = 0) -> Routine:
    """An f64 as f32 such that rounding the result to fewer digits gives what rounding the f64 would.

    A number that f32 lacks becomes its neighbour with an odd last bit (Boldo and Melquiond, 2008).
    """
    r = Routine("zg.f64.to.odd", "float", ["double"], lanes)
    x = r.argument()
    near = x.to("fptrunc", "float")
    back = near.to("fpext", "double")
    bits = near.bits()
    size = abs(x)
    step = abs(back).test("ogt", size).to("sext", "i32")
    odd = bits + step | 1
    finite = size.test("olt", float("inf"))
    inexact = back.test("one", x)
    return r.done((finite & inexact).select(odd, bits).to("bitcast", "float"))
