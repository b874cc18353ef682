"""Identities: ops that give one of their operands, or a constant, whatever the other operands are."""

from __future__ import annotations

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects.arith import IntPredicate
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.types import ScalarType, TensorType, Type, constant_key, element_of
from ziggurat.transforms.simplify.evaluate import Number

Operands = tuple[Value, ...]


def constant_of(value: Value) -> Number | None:
    """The number that a value is known to be (of a tensor: every element of it), or None."""
    if isinstance(value, OpResult) and isinstance(value.op, arith.ConstantOp):
        return value.op.value
    return None


def constant(builder: Builder, number: Number, type_: Type) -> OpResult:
    """Append the constant of this type."""
    return builder.add(arith.ConstantOp(number, type=type_))


def same_number(a: Number | None, b: Number | None) -> bool:
    """Whether two constants are the same: -0.0 is not 0.0, and NaN is NaN."""
    return constant_key(a) == constant_key(b)


def simpler(builder: Builder, op: Op, operands: Operands) -> Value | None:
    """A value that the op's result always is, or None. `operands` are those of the new model."""
    if isinstance(op, arith.IntBinary):
        return _integers(builder, op, *operands)
    if isinstance(op, arith.FloatBinary):
        return _floats(op, *operands)
    if isinstance(op, arith.Select):
        return _select(*operands)
    if isinstance(op, arith.CmpI) and operands[0] is operands[1]:
        equal = (IntPredicate.EQ, IntPredicate.SLE, IntPredicate.SGE, IntPredicate.ULE, IntPredicate.UGE)
        return constant(builder, op.predicate in equal, op.result.type)
    if isinstance(op, arith.NegF):
        inner = _maker(operands[0])
        return inner.operand if isinstance(inner, arith.NegF) else None
    if isinstance(op, arith.Cast):
        return _cast(op, operands[0])
    if isinstance(op, tt.AddPtr):
        return operands[0] if _is(operands[1], 0) else None
    if isinstance(op, tt.PtrToInt):
        inner = _maker(operands[0])
        return inner.value if isinstance(inner, tt.IntToPtr) else None
    if isinstance(op, tt.IntToPtr | tt.Bitcast):
        inner = _maker(operands[0])
        if operands[0].type == op.type:
            return operands[0]
        if isinstance(inner, tt.PtrToInt if isinstance(op, tt.IntToPtr) else tt.Bitcast):
            return inner.value if inner.value.type == op.type else None
        return None
    return _shaped(builder, op, operands)


def _maker(value: Value) -> Op | None:
    return value.op if isinstance(value, OpResult) else None


def _is(value: Value, number: Number) -> bool:
    return same_number(constant_of(value), number)


def _is_integer(value: Value, number: int) -> bool:
    """Whether a value is an integer constant; of i1, true is 1 (and -1, all bits set)."""
    found = constant_of(value)
    if isinstance(found, bool):
        return found == bool(number)
    return type(found) is int and found == number


def _all_ones(value: Value) -> bool:
    scalar = element_of(value.type)
    assert isinstance(scalar, ScalarType)
    if scalar.bits == 1:
        return constant_of(value) is True
    return _is_integer(value, -1 if scalar.signed else scalar.limits[1])


def _integers(builder: Builder, op: arith.IntBinary, lhs: Value, rhs: Value) -> Value | None:
    same = lhs is rhs
    if isinstance(op, arith.AddI | arith.OrI | arith.XOrI):
        if _is_integer(rhs, 0):
            return lhs
        if _is_integer(lhs, 0):
            return rhs
    if isinstance(op, arith.MulI | arith.AndI):
        for value in (lhs, rhs):
            if _is_integer(value, 0):
                return value
    if isinstance(op, arith.MulI):
        if _is_integer(rhs, 1):
            return lhs
        if _is_integer(lhs, 1):
            return rhs
    if isinstance(op, arith.AndI):
        if _all_ones(rhs) or same:
            return lhs
        if _all_ones(lhs):
            return rhs
    if isinstance(op, arith.OrI):
        if _all_ones(rhs) or same:
            return rhs
        if _all_ones(lhs):
            return lhs
    if isinstance(op, arith.SubI | arith.ShlI | arith.ShrSI | arith.ShrUI) and _is_integer(rhs, 0):
        return lhs
    if isinstance(op, arith.SubI | arith.XOrI) and same:
        return _zero(builder, op.result.type)
    if isinstance(op, arith.DivSI | arith.DivUI) and _is_integer(rhs, 1):
        return lhs
    if isinstance(op, arith.RemSI | arith.RemUI) and _is_integer(rhs, 1):
        return _zero(builder, op.result.type)
    if isinstance(op, arith.MaxSI | arith.MinSI | arith.MaxUI | arith.MinUI) and same:
        return lhs
    return None


def _zero(builder: Builder, type_: Type) -> OpResult:
    scalar = element_of(type_)
    return constant(builder, False if isinstance(scalar, ScalarType) and scalar.bits == 1 else 0, type_)


def _floats(op: arith.FloatBinary, lhs: Value, rhs: Value) -> Value | None:
    """Only what holds for zeros of both signs, infinities and NaN as well: x + 0.0 is not x for x = -0.0, nor is
    x * 1.0 for an infinite x of a type that saturates."""
    if isinstance(op, arith.MaximumF | arith.MinimumF | arith.MaxNumF | arith.MinNumF):
        return lhs if lhs is rhs else None
    if _saturates_infinities(lhs.type):
        return None
    if isinstance(op, arith.AddF):
        return lhs if _is(rhs, -0.0) else rhs if _is(lhs, -0.0) else None
    if isinstance(op, arith.SubF):
        return lhs if _is(rhs, 0.0) else None
    if isinstance(op, arith.MulF):
        return lhs if _is(rhs, 1.0) else rhs if _is(lhs, 1.0) else None
    if isinstance(op, arith.DivF):
        return lhs if _is(rhs, 1.0) else None
    return None


def _saturates_infinities(type_: Type) -> bool:
    """True of floats whose infinities become finite when a result is rounded: those of f8e5m2."""
    scalar = element_of(type_)
    return isinstance(scalar, ScalarType) and scalar.saturates and scalar.format.has_infinity


def _select(condition: Value, then: Value, otherwise: Value) -> Value | None:
    known = constant_of(condition)
    if known is not None:
        return then if known else otherwise
    return then if then is otherwise else None


def _cast(op: arith.Cast, operand: Value) -> Value | None:
    """A cast there and back again that loses nothing."""
    if operand.type == op.type:
        return operand
    inner = _maker(operand)
    if not isinstance(inner, arith.Cast) or inner.operand.type != op.type:
        return None
    exact = (
        (isinstance(op, arith.TruncI) and isinstance(inner, arith.ExtSI | arith.ExtUI))
        or (isinstance(op, arith.TruncF) and isinstance(inner, arith.ExtF) and not _saturates_infinities(op.type))
        or (isinstance(op, arith.Bitcast) and isinstance(inner, arith.Bitcast))
    )
    return inner.operand if exact else None


def _shaped(builder: Builder, op: Op, operands: Operands) -> Value | None:
    """Ops that only move elements: on tensors of one number, or of one shape."""
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
    inner = _maker(source)
    if isinstance(inner, tt.Splat):
        assert isinstance(type_, TensorType)
        return builder.add(tt.Splat(inner.value, type_))
    if isinstance(inner, tt.Broadcast) and isinstance(op, tt.Broadcast):
        return builder.add(tt.Broadcast(inner.value, type_))
    if isinstance(inner, tt.Reshape) and isinstance(op, tt.Reshape) and not (inner.allow_reorder or op.allow_reorder):
        return builder.add(tt.Reshape(inner.value, type_))
    number = constant_of(source)
    return None if number is None else constant(builder, number, type_)
