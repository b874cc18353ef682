"""Numbers of LLVM text over terms of z3, and the meanings of instructions on them.

Each number has a term and a condition under which it is poison, as the LLVM Language Reference defines it. A float is a
term of z3's theory of floats, and has its bits as well if it was made of them: there, NaN is one value, but its bits
are many.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import z3

NEAREST, TO_ZERO = z3.RNE(), z3.RTZ()
FORMATS = {"half": (5, 11), "bfloat": (8, 8), "float": (8, 24), "double": (11, 53)}
FALSE, TRUE = z3.BoolVal(False), z3.BoolVal(True)
fresh = itertools.count()


def is_float(kind: str) -> bool:
    return kind in FORMATS


def bits_of(kind: str) -> int:
    return sum(FORMATS[kind]) if is_float(kind) else int(kind[1:])


def sort_of(kind: str) -> Any:
    return z3.FPSort(*FORMATS[kind]) if is_float(kind) else z3.BitVecSort(bits_of(kind))


@attrs.frozen(eq=False)
class Scalar:
    """A number of an LLVM type, as a term, and when it is poison."""

    kind: str
    term: Any
    poison: Any = FALSE
    known_bits: Any = None

    def bits(self) -> Any:
        """The bits as an integer. Those of a NaN that was computed are any of a NaN."""
        if not is_float(self.kind):
            return self.term
        if self.known_bits is not None:
            return self.known_bits
        bits, (exponent, digits) = z3.fpToIEEEBV(self.term), FORMATS[self.kind]
        any_nan = z3.BitVec(f"nan!{next(fresh)}!{bits.size()}", bits.size()) | ((1 << exponent + 1) - 1) << digits - 2
        return z3.If(z3.fpIsNaN(self.term), any_nan, bits)


Value = Scalar | tuple[Scalar, ...]  # A vector is a tuple.


def of_bits(kind: str, bits: Any, poison: Any = FALSE) -> Scalar:
    """The number with these bits."""
    if not is_float(kind):
        return Scalar(kind, bits, poison)
    return Scalar(kind, z3.fpBVToFP(bits, sort_of(kind)), poison, bits)


def symbol(name: str, kind: str) -> Scalar:
    """Any number of a type."""
    return of_bits(kind, z3.BitVec(name, bits_of(kind)))


def bit(condition: Any) -> Any:
    return z3.If(condition, z3.BitVecVal(1, 1), z3.BitVecVal(0, 1))


def lanes_of(value: Value) -> tuple[Scalar, ...]:
    return value if isinstance(value, tuple) else (value,)


# Instructions of two integers: the result, when it is poison, and when the behaviour is undefined.

_INTEGERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "and": lambda a, b: a & b,
    "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "shl": lambda a, b: a << b, "lshr": z3.LShR,
    "ashr": lambda a, b: a >> b, "udiv": z3.UDiv, "urem": z3.URem, "sdiv": lambda a, b: a / b, "srem": z3.SRem,
}  # fmt: skip
_FLOATS: dict[str, Callable[[Any, Any], Any]] = {
    "fadd": lambda a, b: z3.fpAdd(NEAREST, a, b), "fsub": lambda a, b: z3.fpSub(NEAREST, a, b),
    "fmul": lambda a, b: z3.fpMul(NEAREST, a, b), "fdiv": lambda a, b: z3.fpDiv(NEAREST, a, b),
}  # fmt: skip
OPERATIONS = {**_INTEGERS, **_FLOATS}
WRAPS: dict[tuple[str, str], Callable[[Any, Any], Any]] = {
    ("add", "nsw"): lambda a, b: z3.And(z3.BVAddNoOverflow(a, b, True), z3.BVAddNoUnderflow(a, b)),
    ("add", "nuw"): lambda a, b: z3.BVAddNoOverflow(a, b, False),
    ("sub", "nsw"): lambda a, b: z3.And(z3.BVSubNoOverflow(a, b), z3.BVSubNoUnderflow(a, b, True)),
    ("sub", "nuw"): lambda a, b: z3.BVSubNoUnderflow(a, b, False),
    ("mul", "nsw"): lambda a, b: z3.And(z3.BVMulNoOverflow(a, b, True), z3.BVMulNoUnderflow(a, b)),
    ("mul", "nuw"): lambda a, b: z3.BVMulNoOverflow(a, b, False),
    ("shl", "nsw"): lambda a, b: (a << b) >> b == a,
    ("shl", "nuw"): lambda a, b: z3.LShR(a << b, b) == a,
    ("lshr", "exact"): lambda a, b: z3.LShR(a, b) << b == a,
    ("or", "disjoint"): lambda a, b: a & b == 0,
}
_INTEGER_TESTS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "slt": lambda a, b: a < b, "sle": lambda a, b: a <= b,
    "sgt": lambda a, b: a > b, "sge": lambda a, b: a >= b, "ult": z3.ULT, "ule": z3.ULE, "ugt": z3.UGT, "uge": z3.UGE,
}  # fmt: skip
_FLOAT_TESTS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": z3.fpEQ, "ne": lambda a, b: z3.Not(z3.fpEQ(a, b)),
    "lt": z3.fpLT, "le": z3.fpLEQ, "gt": z3.fpGT, "ge": z3.fpGEQ,
}  # fmt: skip


def compare_floats(predicate: str, a: Any, b: Any) -> Any:
    """The condition of an fcmp: ordered (false with a NaN), or unordered (true with one)."""
    unordered = z3.Or(z3.fpIsNaN(a), z3.fpIsNaN(b))
    if predicate in ("ord", "uno"):
        return unordered if predicate == "uno" else z3.Not(unordered)
    holds = _FLOAT_TESTS[predicate[1:]](a, b)
    return z3.Or(unordered, holds) if predicate[0] == "u" else z3.And(z3.Not(unordered), holds)


def extreme(a: Any, b: Any, *, larger: bool, keeps_nan: bool) -> Any:
    """The larger or the smaller of two floats, with -0.0 below 0.0. A NaN is the result, or else the other operand."""
    below = z3.Or(z3.fpLT(a, b), z3.And(z3.fpIsZero(a), z3.fpIsZero(b), z3.fpIsNegative(a)))
    choice = z3.If(below == z3.BoolVal(larger), b, a)
    if keeps_nan:
        return z3.If(z3.fpIsNaN(a), a, z3.If(z3.fpIsNaN(b), b, choice))
    return z3.If(z3.fpIsNaN(a), b, z3.If(z3.fpIsNaN(b), a, choice))


def to_integer(x: Any, bits: int, *, signed: bool) -> tuple[Any, Any, Any]:
    """A float as an integer, toward zero; and whether it is below or above all of them. NaN is neither."""
    whole, sort = z3.fpRoundToIntegral(TO_ZERO, x), x.sort()
    convert = z3.fpToSBV if signed else z3.fpToUBV
    # Powers of two, which are floats of the type, or infinities where the type has no number that large.
    least = z3.fpRealToFP(NEAREST, z3.RealVal(-(1 << bits - 1) if signed else 0), sort)
    beyond = z3.fpRealToFP(NEAREST, z3.RealVal(1 << bits - signed), sort)
    infinite, negative = z3.fpIsInf(x), z3.fpIsNegative(x)
    below = z3.Or(z3.fpLT(whole, least), z3.And(infinite, negative))
    above = z3.Or(z3.fpGEQ(whole, beyond), z3.And(infinite, z3.Not(negative)))
    return convert(TO_ZERO, x, z3.BitVecSort(bits)), below, above


def saturated(x: Any, bits: int, *, signed: bool) -> Any:
    """A float as the nearest integer toward zero, and NaN as 0."""
    number, below, above = to_integer(x, bits, signed=signed)
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    limited = z3.If(below, z3.BitVecVal(least, bits), z3.If(above, z3.BitVecVal(most, bits), number))
    return z3.If(z3.fpIsNaN(x), z3.BitVecVal(0, bits), limited)


def _halves(x: Any) -> tuple[Any, Any]:
    """The upper and the lower half of an integer."""
    half = x.size() // 2
    return z3.Extract(x.size() - 1, half, x), z3.Extract(half - 1, 0, x)


def _count(x: Any) -> Any:
    """The number of bits that are set."""
    if x.size() == 1:
        return x
    high, low = (z3.ZeroExt(x.size() // 2, _count(part)) for part in _halves(x))
    return high + low


def _leading_zeros(x: Any) -> Any:
    if x.size() == 1:
        return ~x
    half = x.size() // 2
    high, low = (z3.ZeroExt(half, _leading_zeros(part)) for part in _halves(x))
    return z3.If(_halves(x)[0] == 0, low + half, high)


def _reversed(x: Any) -> Any:
    return z3.Concat(*map(_reversed, reversed(_halves(x)))) if x.size() > 1 else x


# Intrinsics whose operands and result have one type.
INTRINSICS: dict[str, Callable[..., Any]] = {
    "smax": lambda a, b: z3.If(a < b, b, a), "smin": lambda a, b: z3.If(a < b, a, b),
    "umax": lambda a, b: z3.If(z3.ULT(a, b), b, a), "umin": lambda a, b: z3.If(z3.ULT(a, b), a, b),
    "ctpop": _count, "ctlz": lambda a, _: _leading_zeros(a), "abs": lambda a, _: z3.If(a < 0, -a, a),
    "cttz": lambda a, _: _leading_zeros(_reversed(a)),
    "bitreverse": _reversed,
    "fabs": z3.fpAbs, "fma": lambda a, b, c: z3.fpFMA(NEAREST, a, b, c), "sqrt": lambda a: z3.fpSqrt(NEAREST, a),
    "copysign": lambda a, b: z3.If(z3.fpIsNegative(a) == z3.fpIsNegative(b), a, z3.fpNeg(a)),
    "floor": lambda a: z3.fpRoundToIntegral(z3.RTN(), a), "ceil": lambda a: z3.fpRoundToIntegral(z3.RTP(), a),
    "trunc": lambda a: z3.fpRoundToIntegral(TO_ZERO, a), "roundeven": lambda a: z3.fpRoundToIntegral(NEAREST, a),
    "maximum": lambda a, b: extreme(a, b, larger=True, keeps_nan=True),
    "minimum": lambda a, b: extreme(a, b, larger=False, keeps_nan=True),
    "arithmetic": lambda a: a,  # arithmetic.fence, which hides from LLVM what it knows.
    "maximumnum": lambda a, b: extreme(a, b, larger=True, keeps_nan=False),
    "minimumnum": lambda a, b: extreme(a, b, larger=False, keeps_nan=False),
    # LLVM leaves open which zero these give. PTX's max and min, which they become, order zeros (PTX ISA, "max").
    "maxnum": lambda a, b: extreme(a, b, larger=True, keeps_nan=False),
    "minnum": lambda a, b: extreme(a, b, larger=False, keeps_nan=False),
    "prmt": lambda a, b, selected: _permuted(a, b, selected),
}  # fmt: skip


def _permuted(a: Any, b: Any, selected: Any) -> Any:
    """The bytes of two words that the hexadecimal digits of a constant name (PTX ISA, "prmt")."""
    both, digits = z3.Concat(b, a), z3.simplify(selected).as_long()
    places = [8 * (digits >> 4 * at & 7) for at in range(4)]
    return z3.Concat(*(z3.Extract(place + 7, place, both) for place in reversed(places)))


def chosen(condition: Any, then: Value, otherwise: Value) -> Value:
    """One of two values of a type."""
    lanes = [_chosen_lane(condition, a, b) for a, b in zip(lanes_of(then), lanes_of(otherwise), strict=True)]
    return tuple(lanes) if isinstance(then, tuple) else lanes[0]


def _chosen_lane(condition: Any, a: Scalar, b: Scalar) -> Scalar:
    terms = [(a.term, b.term), (a.poison, b.poison)]
    if a.known_bits is not None and b.known_bits is not None:
        terms.append((a.known_bits, b.known_bits))
    return Scalar(a.kind, *(z3.If(condition, x, y) for x, y in terms))


def select(condition: Scalar, a: Scalar, b: Scalar) -> Scalar:
    choice = _chosen_lane(condition.term == 1, a, b)
    return attrs.evolve(choice, poison=z3.Or(condition.poison, choice.poison))


def test(opcode: str, predicate: str, a: Scalar, b: Scalar) -> Scalar:
    """An icmp or an fcmp."""
    x, y = a.term, b.term
    holds = _INTEGER_TESTS[predicate](x, y) if opcode == "icmp" else compare_floats(predicate, x, y)
    return Scalar("i1", bit(holds), z3.Or(a.poison, b.poison))


def negated(a: Scalar) -> Scalar:
    bits = None if a.known_bits is None else a.known_bits ^ 1 << a.known_bits.size() - 1
    return Scalar(a.kind, z3.fpNeg(a.term), a.poison, bits)


def frozen(a: Scalar) -> Scalar:
    return Scalar(a.kind, z3.If(a.poison, z3.Const(f"frozen!{next(fresh)}", sort_of(a.kind)), a.term))


def cast(opcode: str, flags: Sequence[str], a: Scalar, kind: str) -> Scalar:
    x, bits, poison = a.term, bits_of(kind), [a.poison]
    if "nneg" in flags:
        poison.append(x < 0)
    match opcode:
        case "zext" | "sext":
            term = (z3.ZeroExt if opcode == "zext" else z3.SignExt)(bits - x.size(), x)
        case "trunc":
            term = z3.Extract(bits - 1, 0, x)
        case "fpext" | "fptrunc":
            term = z3.fpFPToFP(NEAREST, x, sort_of(kind))
        case "sitofp" | "uitofp":
            term = (z3.fpSignedToFP if opcode == "sitofp" else z3.fpUnsignedToFP)(NEAREST, x, sort_of(kind))
        case "fptosi" | "fptoui":
            term, below, above = to_integer(x, bits, signed=opcode == "fptosi")
            poison.append(z3.Or(z3.fpIsNaN(x), below, above))
        case _:
            raise NotImplementedError(opcode)
    return Scalar(kind, term, z3.Or(*poison))


def cast_bits(value: Value, target: str) -> Value:
    """A bitcast: the lanes of a vector follow each other from the lowest bits on."""
    lanes = lanes_of(value)
    bits = lanes[0].bits() if len(lanes) == 1 else z3.Concat(*(lane.bits() for lane in reversed(lanes)))
    poison = z3.Or(*(lane.poison for lane in lanes))
    vector = re.fullmatch(r"<(\d+) x (\w+)>", target)
    if vector is None:
        return of_bits(target, bits, poison)
    count, kind = int(vector[1]), vector[2]
    size = bits.size() // count
    return tuple(of_bits(kind, z3.Extract(size * at + size - 1, size * at, bits), poison) for at in range(count))
