"""Algebraic identities: ops whose result is one of their operands, or a constant, for all values of the others."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects.arith import IntPredicate
from ziggurat.codemodel.numbers import Number, integer, wrapped
from ziggurat.codemodel.op import Op, OpResult, Value, constant_of
from ziggurat.codemodel.traits import Commutative
from ziggurat.codemodel.types import ScalarType, TensorType, Type, constant_key, element_of, i1

Operands = tuple[Value, ...]


def constant(builder: Builder, number: Number, type_: Type) -> OpResult:
    """Append the constant of this type."""
    return builder.add(arith.ConstantOp(number, type=type_))


def same_number(a: Number | None, b: Number | None) -> bool:
    """Whether two constants are the same. -0.0 differs from 0.0, and NaN equals NaN."""
    return constant_key(a) == constant_key(b)


def simpler(builder: Builder, op: Op, operands: Operands) -> Value | None:
    """A simpler value that equals the op's result, or None. `operands` are those of the new model."""
    if isinstance(op, arith.IntBinary | arith.FloatBinary):
        return _binary(builder, op, *operands)
    if isinstance(op, arith.Select):
        return _select(*operands)
    if isinstance(op, arith.CmpI) and operands[0] is operands[1]:
        equal = (IntPredicate.EQ, IntPredicate.SLE, IntPredicate.SGE, IntPredicate.ULE, IntPredicate.UGE)
        return constant(builder, op.predicate in equal, op.result.type)
    if isinstance(op, arith.Cast | tt.Bitcast) and operands[0].type == op.type:
        return operands[0]
    if type(op) in _INVERSES:
        return _undone(op, operands[0])
    if isinstance(op, tt.AddPtr):
        return operands[0] if _is(operands[1], 0) else None
    return _shaped(builder, op, operands)


def _is(value: Value, number: Number) -> bool:
    """Whether a value is this constant. Integers are compared by their bits: -1 has all of them set."""
    constant = constant_of(value)
    scalar = element_of(value.type)
    if constant is None or not isinstance(scalar, ScalarType) or scalar.is_float:
        return constant is not None and same_number(constant, number)
    return (int(constant) - int(number)) % (1 << scalar.bits) == 0


# The right operand that leaves the left operand unchanged; for a commutative op, the left operand as well. The floats
# are neutral for zeros of both signs, infinities and NaN too: 0.0 is not neutral for addition, as -0.0 + 0.0 is 0.0.
_NEUTRAL: dict[type[Op], Number] = {
    **dict.fromkeys((arith.AddI, arith.SubI, arith.OrI, arith.XOrI, arith.ShlI, arith.ShrSI, arith.ShrUI), 0),
    **dict.fromkeys((arith.MulI, arith.DivSI, arith.DivUI), 1),
    arith.AndI: -1,
    arith.AddF: -0.0,
    arith.SubF: 0.0,
    arith.MulF: 1.0,
    arith.DivF: 1.0,
}
# The operand of a commutative op that is the result for every other operand.
_ABSORBING: dict[type[Op], Number] = {arith.MulI: 0, arith.AndI: 0, arith.OrI: -1}
# Ops on one value twice: the first give the value itself, the second zero.
_IDEMPOTENT = (
    arith.AndI, arith.OrI, arith.MaxSI, arith.MinSI, arith.MaxUI, arith.MinUI, arith.MaximumF, arith.MinimumF,
    arith.MaxNumF, arith.MinNumF,
)  # fmt: skip
_CANCELLING = (arith.SubI, arith.XOrI)


def _binary(builder: Builder, op: Op, lhs: Value, rhs: Value) -> Value | None:
    if lhs is rhs and isinstance(op, _IDEMPOTENT):
        return lhs
    if (lhs is rhs and isinstance(op, _CANCELLING)) or (isinstance(op, arith.RemSI | arith.RemUI) and _is(rhs, 1)):
        scalar = element_of(op.result.type)
        return constant(builder, False if scalar == i1 else 0, op.result.type)
    if _saturates_infinities(lhs.type):  # x * 1.0 is not x for an infinite x.
        return None
    sides = ((lhs, rhs), (rhs, lhs)) if isinstance(op, Commutative) else ((lhs, rhs),)
    for value, number in sides:
        if type(op) in _NEUTRAL and _is(number, _NEUTRAL[type(op)]):
            return value
        if type(op) in _ABSORBING and _is(number, _ABSORBING[type(op)]):
            return number
    if (limits := _LIMITS.get(type(op))) is not None:
        return _limited(lhs, rhs, limits)
    if isinstance(op, arith.AddI | arith.SubI):
        return _cancelled(op, lhs, rhs) or _sum_with_constant(builder, op, lhs, rhs)
    return _with_constants(builder, op, lhs, rhs) if isinstance(op, _ASSOCIATIVE) else None


# The integer ops that take the smaller or the larger operand: whether it is the smaller, and whether of signed numbers.
_LIMITS: dict[type[Op], tuple[bool, bool]] = {
    arith.MinSI: (True, True), arith.MaxSI: (False, True), arith.MinUI: (True, False), arith.MaxUI: (False, False),
}  # fmt: skip
_ASSOCIATIVE = (arith.MulI, arith.AndI, arith.OrI, arith.XOrI)


def _limited(lhs: Value, rhs: Value, limits: tuple[bool, bool]) -> Value | None:
    """The smaller or the larger of a number and the smallest or the largest one of its type."""
    smaller, signed = limits
    bits = _bits(lhs.type)
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, -1)
    for value, number in ((lhs, rhs), (rhs, lhs)):
        if _is(number, most if smaller else least):
            return value
        if _is(number, least if smaller else most):
            return number
    return None


def _cancelled(op: Op, lhs: Value, rhs: Value) -> Value | None:
    """(a + b) - b, (a - b) + b and a - (a - b), which wrap around to a number that went into them."""
    first, second = lhs.op, rhs.op
    if isinstance(op, arith.AddI):
        for difference, value in ((first, rhs), (second, lhs)):
            if isinstance(difference, arith.SubI) and difference.rhs is value:
                return difference.lhs
        return None
    if isinstance(first, arith.AddI) and rhs in first.operands:
        return first.rhs if first.lhs is rhs else first.lhs
    return second.rhs if isinstance(second, arith.SubI) and second.lhs is lhs else None


def _sum_with_constant(builder: Builder, op: Op, lhs: Value, rhs: Value) -> Value | None:
    """A constant and a sum or a difference with a constant, as a sum or a difference with one constant.

    Each is ±x + c; that of the constant itself has no x.
    """
    outer, parts = (1, 1 if isinstance(op, arith.AddI) else -1), (_signed_part(lhs), _signed_part(rhs))
    terms = [(sign * inner, x) for sign, (inner, x, _) in zip(outer, parts, strict=True) if x is not None]
    if len(terms) != 1 or terms[0][1] in (lhs, rhs):
        return None
    total = sum(sign * number for sign, (_, _, number) in zip(outer, parts, strict=True))
    number, ((sign, x),) = _constant_like(builder, total, lhs.type), terms
    return builder.add(arith.AddI(x, number) if sign > 0 else arith.SubI(number, x))


def _signed_part(value: Value) -> tuple[int, Value | None, int]:
    """A value as ±x + c: the sign, x, which is None for a constant, and c."""
    number = constant_of(value)
    if number is not None:
        return 1, None, int(number)
    op = value.op
    if isinstance(op, arith.AddI | arith.SubI):
        first, second = map(constant_of, op.operands)
        minus = isinstance(op, arith.SubI)
        if second is not None:
            return 1, op.lhs, -int(second) if minus else int(second)
        if first is not None:
            return -1 if minus else 1, op.rhs, int(first)
    return 1, value, 0


def _with_constants(builder: Builder, op: Op, lhs: Value, rhs: Value) -> Value | None:
    """(x ∘ c) ∘ d as x ∘ (c ∘ d), for constants c and d."""
    cls: type[Any] = type(op)
    for inner, other in ((lhs.op, constant_of(rhs)), (rhs.op, constant_of(lhs))):
        if type(inner) is cls and other is not None:
            assert isinstance(inner, arith.IntBinary)
            for value, number in (inner.operands, inner.operands[::-1]):
                if (first := constant_of(number)) is not None:
                    folded = integer(cls, int(first), int(other))
                    return builder.add(cls(value, _constant_like(builder, folded, lhs.type)))
    return None


def _bits(type_: Type) -> int:
    scalar = element_of(type_)
    assert isinstance(scalar, ScalarType)
    return scalar.bits


def _constant_like(builder: Builder, number: int, type_: Type) -> OpResult:
    """A constant of an integer type, to which a number is wrapped."""
    scalar = element_of(type_)
    assert isinstance(scalar, ScalarType)
    return constant(builder, wrapped(number, scalar), type_)


def _saturates_infinities(type_: Type) -> bool:
    """Whether rounding makes infinities of this float type finite; f8e5m2 is the only one."""
    scalar = element_of(type_)
    return isinstance(scalar, ScalarType) and scalar.saturates and scalar.format.has_infinity


def _select(condition: Value, then: Value, otherwise: Value) -> Value | None:
    constant = constant_of(condition)
    if constant is not None:
        return then if constant else otherwise
    return then if then is otherwise else None


# Ops of one operand, with the ops that they undo.
_INVERSES: dict[type[Op], tuple[type[Op], ...]] = {
    arith.NegF: (arith.NegF,),
    arith.TruncI: (arith.ExtSI, arith.ExtUI),
    arith.TruncF: (arith.ExtF,),
    arith.Bitcast: (arith.Bitcast,),
    tt.Bitcast: (tt.Bitcast,),
    tt.PtrToInt: (tt.IntToPtr,),
    tt.IntToPtr: (tt.PtrToInt,),
}


def _undone(op: Op, operand: Value) -> Value | None:
    """The operand of the inner op, if the two lose nothing."""
    inner, type_ = operand.op, op.result.type
    if not isinstance(inner, _INVERSES[type(op)]) or inner.operands[0].type != type_:
        return None
    return None if isinstance(op, arith.TruncF) and _saturates_infinities(type_) else inner.operands[0]


def _shaped(builder: Builder, op: Op, operands: Operands) -> Value | None:
    """Ops that only move elements: of a constant, or without effect on the shape."""
    type_ = op.result.type
    if isinstance(op, tt.MakeRange) and op.end == op.start + 1:
        return constant(builder, op.start, type_)
    if isinstance(op, tt.Splat):
        number = constant_of(operands[0])
        return None if number is None else constant(builder, number, type_)
    if isinstance(op, tt.Join | tt.Cat | tt.Gather):
        number = constant_of(operands[0])
        other = number if isinstance(op, tt.Gather) else constant_of(operands[1])
        return constant(builder, number, type_) if number is not None and same_number(number, other) else None
    if not isinstance(op, tt.Broadcast | tt.ExpandDims | tt.Reshape | tt.Trans):
        return None
    source = operands[0]
    unmoved = not isinstance(op, tt.Trans) or list(op.order) == sorted(op.order)
    if source.type == type_ and unmoved and not (isinstance(op, tt.Reshape) and op.allow_reorder):
        return source
    inner = source.op
    if isinstance(inner, tt.Splat):
        assert isinstance(type_, TensorType)
        return builder.add(tt.Splat(inner.value, type_))
    if isinstance(inner, tt.Broadcast) and isinstance(op, tt.Broadcast):
        return builder.add(tt.Broadcast(inner.value, type_))
    if isinstance(inner, tt.Reshape) and isinstance(op, tt.Reshape) and not (inner.allow_reorder or op.allow_reorder):
        return builder.add(tt.Reshape(inner.value, type_))
    number = constant_of(source)
    return None if number is None else constant(builder, number, type_)
