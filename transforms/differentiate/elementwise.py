"""Gradients of ops on floats, element by element.

Where two operands of a maximum or minimum are equal, each gets half of the adjoint. The derivative of |x| at 0 is 0. A
cast between floats passes the adjoint on: rounding counts as the identity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.dialects.arith import FloatPredicate
from ziggurat.codemodel.op import Op, Value
from ziggurat.transforms.differentiate.adjoint import Reverse, adjoint_type, gradients


@gradients.of(arith.AddF)
def _add(at: Reverse, op: arith.AddF, adjoint: Value) -> None:
    at.add(op.lhs, adjoint)
    at.add(op.rhs, adjoint)


@gradients.of(arith.SubF)
def _sub(at: Reverse, op: arith.SubF, adjoint: Value) -> None:
    at.add(op.lhs, adjoint)
    at.add(op.rhs, at.negative(adjoint))


@gradients.of(arith.MulF)
def _mul(at: Reverse, op: arith.MulF, adjoint: Value) -> None:
    at.add(op.lhs, at.guarded(adjoint, at.times(adjoint, at.wide(op.rhs)), op.rhs))
    at.add(op.rhs, at.guarded(adjoint, at.times(adjoint, at.wide(op.lhs)), op.lhs))


@gradients.of(arith.DivF, tt.PreciseDivF)
def _div(at: Reverse, op: arith.DivF | tt.PreciseDivF, adjoint: Value) -> None:
    """d(a / b) = da / b - (a / b) · db / b."""
    share = at.guarded(adjoint, at.over(adjoint, at.wide(op.rhs)), op.result)
    at.add(op.lhs, share)
    at.add(op.rhs, at.negative(at.guarded(share, at.times(share, at.wide(op.result)), op.result)))


@gradients.of(arith.RemF)
def _rem(at: Reverse, op: arith.RemF, adjoint: Value) -> None:
    """a - trunc(a / b) · b: the quotient is (a - result) / b, a whole number."""
    at.add(op.lhs, adjoint)
    quotient = at.over(at.minus(at.wide(op.lhs), at.wide(op.result)), at.wide(op.rhs))
    at.add(op.rhs, at.negative(at.guarded(adjoint, at.times(adjoint, quotient), op.result)))


@gradients.of(arith.NegF)
def _neg(at: Reverse, op: arith.NegF, adjoint: Value) -> None:
    at.add(op.operand, at.negative(adjoint))


@gradients.of(maths.Fma)
def _fma(at: Reverse, op: maths.Fma, adjoint: Value) -> None:
    at.add(op.a, at.guarded(adjoint, at.times(adjoint, at.wide(op.b)), op.b))
    at.add(op.b, at.guarded(adjoint, at.times(adjoint, at.wide(op.a)), op.a))
    at.add(op.c, adjoint)


@gradients.of(arith.MaximumF, arith.MinimumF, arith.MaxNumF, arith.MinNumF)
def _extremum(at: Reverse, op: arith.FloatBinary, adjoint: Value) -> None:
    result = at.value(op.result)
    is_lhs = at.compare(at.value(op.lhs), result, FloatPredicate.OEQ)
    is_rhs = at.compare(at.value(op.rhs), result, FloatPredicate.OEQ)
    share = at.where(at.both(is_lhs, is_rhs), at.times(adjoint, 0.5), adjoint)
    at.add(op.lhs, at.where(is_lhs, share, 0.0))
    at.add(op.rhs, at.where(is_rhs, share, 0.0))


@gradients.of(arith.Select)
def _select(at: Reverse, op: arith.Select, adjoint: Value) -> None:
    condition = at.value(op.condition)
    at.add(op.then, at.where(condition, adjoint, 0.0))
    at.add(op.otherwise, at.where(condition, 0.0, adjoint))


@gradients.of(arith.ExtF, arith.TruncF)
def _cast(at: Reverse, op: arith.ExtF | arith.TruncF, adjoint: Value) -> None:
    at.add(op.operand, at.as_type(adjoint, adjoint_type(op.operand.type)))


@gradients.of(maths.AbsF)
def _abs(at: Reverse, op: maths.AbsF, adjoint: Value) -> None:
    x = at.wide(op.operand)
    zero = at.zero(x.type)
    negative = at.where(at.compare(x, zero, FloatPredicate.OLT), at.negative(adjoint), 0.0)
    at.add(op.operand, at.where(at.compare(x, zero, FloatPredicate.OGT), adjoint, negative))


# The derivative of a function at x, where it has the value y.
DERIVATIVES: Final[dict[type[Op], Callable[[Reverse, Value, Value], Value]]] = {
    maths.Exp: lambda at, x, y: y,
    maths.Exp2: lambda at, x, y: at.times(y, math.log(2)),
    maths.Log: lambda at, x, y: at.over(at.constant(1.0, x.type), x),
    maths.Log2: lambda at, x, y: at.over(at.constant(1 / math.log(2), x.type), x),
    maths.Sqrt: lambda at, x, y: at.over(at.constant(0.5, y.type), y),
    tt.PreciseSqrt: lambda at, x, y: at.over(at.constant(0.5, y.type), y),
    maths.Rsqrt: lambda at, x, y: at.times(at.times(y, at.times(y, y)), -0.5),
    maths.Sin: lambda at, x, y: at.emit(maths.Cos(x)),
    maths.Cos: lambda at, x, y: at.negative(at.emit(maths.Sin(x))),
    maths.Tanh: lambda at, x, y: at.minus(at.constant(1.0, y.type), at.times(y, y)),
    maths.Erf: lambda at, x, y: at.times(at.emit(maths.Exp(at.negative(at.times(x, x)))), 2 / math.sqrt(math.pi)),
}


@gradients.of(*DERIVATIVES, maths.Approximate)
def _function(at: Reverse, op: Any, adjoint: Value) -> None:
    function: Op = op.accurate if isinstance(op, maths.Approximate) else op
    derivative = DERIVATIVES[type(function)](at, at.wide(op.operand), at.wide(op.result))
    at.add(op.operand, at.guarded(adjoint, at.times(adjoint, derivative), op.operand, op.result))
