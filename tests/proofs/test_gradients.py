"""Gradient rules of elementwise ops are right for all real numbers.

The gradient kernel of an op gives the derivatives by each operand, times the adjoint. With tangents of the operands,
their sum is the adjoint times the tangent of the result, which is defined apart: for sums, products, quotients and
roots by their equations over dual numbers a + a'·ε with ε² = 0; for a function such as exp, which is unknown, by its
known derivative. Where a function has no derivative (|x| at 0, the larger of equal numbers), the claim is the
documented one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import z3
from differentiable import kernel
from planted import Fault, edit, entry, must_find
from proving import prove

import ziggurat as zg
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import f16, f32, f64
from ziggurat.transforms.differentiate import differentiate, elementwise, gradients

LN_2, ROOT_PI = z3.Real("ln 2"), z3.Real("√π")
# Numbers of the rules that are not rational, and what they stand for.
NUMBERS = {math.log(2): LN_2, 1 / math.log(2): 1 / LN_2, 2 / math.sqrt(math.pi): 2 / ROOT_PI}
FACTS = [LN_2 > 0, ROOT_PI > 0]
REAL = z3.RealSort()


@functools.cache
def unknown(name: str) -> Any:
    """A function of which nothing is known but its name."""
    return z3.Function(name, REAL, REAL)


def rational(number: float) -> Any:
    return NUMBERS[number] if number in NUMBERS else z3.Q(*number.as_integer_ratio())


_RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "oeq": lambda a, b: a == b, "une": lambda a, b: a != b, "olt": lambda a, b: a < b, "ole": lambda a, b: a <= b,
    "ogt": lambda a, b: a > b, "oge": lambda a, b: a >= b,
}  # fmt: skip
_OPS: dict[type[Op], Callable[..., Any]] = {
    arith.AddF: lambda a, b: a + b, arith.SubF: lambda a, b: a - b, arith.MulF: lambda a, b: a * b,
    arith.DivF: lambda a, b: a / b, tt.PreciseDivF: lambda a, b: a / b, arith.NegF: lambda a: -a,
    maths.Fma: lambda a, b, c: a * b + c, arith.ExtF: lambda a: a, arith.TruncF: lambda a: a,
    maths.AbsF: lambda a: z3.If(a < 0, -a, a), arith.AndI: z3.And, arith.Select: z3.If,
    arith.MaximumF: lambda a, b: z3.If(a < b, b, a), arith.MaxNumF: lambda a, b: z3.If(a < b, b, a),
    arith.MinimumF: lambda a, b: z3.If(a < b, a, b), arith.MinNumF: lambda a, b: z3.If(a < b, a, b),
}  # fmt: skip


def stored(model: Op, inputs: dict[int, Any]) -> dict[int, Any]:
    """The real numbers that a kernel of scalars stores, by the numbers of parameters."""
    (func,) = model.functions().values()
    body = func.bodies[0]
    places = {parameter: at for at, parameter in enumerate(body.parameters)}
    values, results = dict[Value, Any](), dict[int, Any]()
    for op in body.entry.ops[:-1]:
        match op:
            case tt.Load():
                values[op.result] = inputs[places[op.ptr]]
            case tt.Store():
                results[places[op.ptr]] = values[op.value]
            case arith.ConstantOp():
                values[op.result] = rational(op.value) if isinstance(op.value, float) else z3.BoolVal(op.value)
            case arith.CmpF():
                values[op.result] = _RELATIONS[op.predicate.value](*map(values.__getitem__, op.operands))
            case _:
                function = _OPS[type(op)] if type(op) in _OPS else unknown(op.NAME)
                values[op.result] = function(*map(values.__getitem__, op.operands))
    return results


@attrs.frozen
class Rule:
    """An op, and the equations of its result and of the tangent of the result.

    `equations` takes the operands, their tangents, the result and its tangent. Operands are those of which
    `condition` holds.
    """

    build: Callable[..., Value]
    operands: int
    equations: Callable[..., Any]
    condition: Callable[..., Any] = lambda *operands: True


def unary(cls: Callable[[Value], Op], equations: Callable[..., Any], condition: Any = lambda x: True) -> Rule:
    return Rule(lambda b, x: b.add(cls(x)), 1, equations, condition)


def binary(
    cls: Callable[[Value, Value], Op], equations: Callable[..., Any], condition: Any = lambda x, y: True
) -> Rule:
    return Rule(lambda b, x, y: b.add(cls(x, y)), 2, equations, condition)


def _function(cls: type[Op], derivative: Callable[[Any, Any], Any], condition: Any = lambda x: True) -> Rule:
    """A function with its derivative at x, where it has the value y."""
    return unary(cls, lambda x, dx, y, dy: z3.And(y == unknown(cls.NAME)(x), dy == derivative(x, y) * dx), condition)


def _extremum(cls: type[arith.FloatBinary], larger: bool) -> Rule:
    def equations(a: Any, b: Any, da: Any, db: Any, y: Any, dy: Any) -> Any:
        first = a > b if larger else a < b
        return dy == z3.If(a == b, (da + db) / 2, z3.If(first, da, db))

    return binary(cls, equations)


def _quotient(cls: type[arith.FloatBinary]) -> Rule:
    """The quotient times the divisor is the dividend, and so are their products of dual numbers."""
    return binary(
        cls, lambda a, b, da, db, y, dy: z3.And(y * b == a, y * db + dy * b == da), lambda a, b: b != 0
    )  # fmt: skip


def _root(cls: type[Op]) -> Rule:
    """The square of the result is the operand."""
    return unary(
        cls,
        lambda x, dx, y, dy: z3.And(y == unknown(cls.NAME)(x), y > 0, y * y == x, 2 * y * dy == dx),
        lambda x: x > 0,
    )


def _chosen(b: Builder, x: Value, y: Value) -> Value:
    zero = b.add(arith.ConstantOp(0.0, type=x.type))
    return b.add(arith.Select(b.add(arith.CmpF(x, zero, arith.FloatPredicate.OGT)), x, y))


def _approximate(b: Builder, x: Value) -> Value:
    """The hyperbolic tangent of a number that becomes an f32."""
    result = b.add(maths.Approximate(b.add(arith.TruncF(x, type=f32)), maths.Function.TANH))
    return b.add(arith.ExtF(result, type=f64))


def _remainder(a: Any, b: Any, da: Any, db: Any, y: Any, dy: Any) -> Any:
    whole = z3.ToReal(z3.Int("quotient"))  # It stays where the operands move a little.
    return z3.And(y == unknown_remainder(a, b), y == a - whole * b, dy == da - whole * db)


unknown_remainder = z3.Function(arith.RemF.NAME, REAL, REAL, REAL)
_OPS[arith.RemF] = unknown_remainder
exp, sin, cos = (unknown(cls.NAME) for cls in (maths.Exp, maths.Sin, maths.Cos))

RULES: dict[type[Op], Rule] = {
    arith.AddF: binary(arith.AddF, lambda a, b, da, db, y, dy: dy == da + db),
    arith.SubF: binary(arith.SubF, lambda a, b, da, db, y, dy: dy == da - db),
    arith.MulF: binary(arith.MulF, lambda a, b, da, db, y, dy: dy == a * db + da * b),
    arith.DivF: _quotient(arith.DivF),
    tt.PreciseDivF: _quotient(tt.PreciseDivF),
    arith.RemF: binary(arith.RemF, _remainder, lambda a, b: b != 0),
    arith.NegF: unary(arith.NegF, lambda x, dx, y, dy: dy == -dx),
    maths.Fma: Rule(lambda b, *values: b.add(maths.Fma(*values)), 3,
                    lambda a, b, c, da, db, dc, y, dy: dy == a * db + da * b + dc),
    arith.MaximumF: _extremum(arith.MaximumF, True), arith.MaxNumF: _extremum(arith.MaxNumF, True),
    arith.MinimumF: _extremum(arith.MinimumF, False), arith.MinNumF: _extremum(arith.MinNumF, False),
    arith.Select: Rule(_chosen, 2, lambda a, b, da, db, y, dy: dy == z3.If(a > 0, da, db)),
    arith.TruncF: unary(lambda x: arith.TruncF(x, type=f16), lambda x, dx, y, dy: dy == dx),
    arith.ExtF: Rule(lambda b, x: b.add(arith.ExtF(b.add(arith.TruncF(x, type=f16)), type=f64)), 1,
                     lambda x, dx, y, dy: dy == dx),
    maths.Approximate: Rule(_approximate, 1, lambda x, dx, y, dy: z3.And(y == unknown(maths.Approximate.NAME)(x),
                                                                         dy == (1 - y * y) * dx)),
    maths.AbsF: unary(maths.AbsF, lambda x, dx, y, dy: dy == z3.If(x > 0, dx, z3.If(x < 0, -dx, 0))),
    maths.Exp: _function(maths.Exp, lambda x, y: y),
    maths.Exp2: _function(maths.Exp2, lambda x, y: y * LN_2),
    maths.Log: _function(maths.Log, lambda x, y: 1 / x, lambda x: x > 0),
    maths.Log2: _function(maths.Log2, lambda x, y: 1 / (x * LN_2), lambda x: x > 0),
    maths.Sqrt: _root(maths.Sqrt),
    tt.PreciseSqrt: _root(tt.PreciseSqrt),
    maths.Rsqrt: unary(maths.Rsqrt, lambda x, dx, y, dy: z3.And(y == unknown(maths.Rsqrt.NAME)(x), y * y * x == 1,
                     2 * y * dy * x + y * y * dx == 0), lambda x: x > 0),
    maths.Sin: _function(maths.Sin, lambda x, y: cos(x)),
    maths.Cos: _function(maths.Cos, lambda x, y: -sin(x)),
    maths.Tanh: _function(maths.Tanh, lambda x, y: 1 - y * y),
    maths.Erf: _function(maths.Erf, lambda x, y: exp(-(x * x)) * 2 / ROOT_PI),
}  # fmt: skip


def prove_gradient(cls: type[Op]) -> None:
    rule = RULES[cls]
    count = rule.operands
    model = kernel([()] * count, rule.build) if cls is not arith.TruncF else _narrow(rule)
    gradient = zg.simplify(differentiate(model, of=(count,), wrt=tuple(range(count))))
    operands, tangents = z3.Reals(" ".join("abc"[:count])), z3.Reals(" ".join(f"d{name}" for name in "abc"[:count]))
    adjoint, y, dy = z3.Reals("adjoint y dy")
    # The parameters of the gradient kernel: each operand and its gradient, the result and its adjoint.
    inputs = {2 * at: x for at, x in enumerate(operands)} | {2 * count + 1: adjoint}
    results = stored(gradient, inputs)
    total = sum(results[2 * at + 1] * tangent for at, tangent in enumerate(tangents))
    facts = [*FACTS, rule.condition(*operands), rule.equations(*operands, *tangents, y, dy)]
    prove(total == adjoint * dy, facts, steps=2_000_000)


def _narrow(rule: Rule) -> Op:
    """A kernel whose result is a narrower float, widened again to be stored."""
    return kernel([()], lambda b, x: b.add(arith.ExtF(rule.build(b, x), type=f64)))


@pytest.mark.parametrize("cls", RULES, ids=lambda cls: cls.NAME)
def test_derivatives(cls: type[Op]) -> None:
    prove_gradient(cls)


def test_all_elementwise_rules_are_proved() -> None:
    rules = {rule for rule in elementwise.__dict__.values() if getattr(rule, "__module__", "") == elementwise.__name__}
    # That of an approximation is the rule of its function.
    assert {*RULES, maths.Approximate} == {cls for cls in every_class() if gradients.get(cls) in rules}


def every_class() -> list[type[Op]]:
    classes = [Op]
    for cls in classes:
        classes += cls.__subclasses__()
    return classes


# Faults, each of which a proof above finds.


derivative = functools.partial(entry, elementwise.DERIVATIVES)
FAULTS: list[tuple[type[Op], Fault]] = [
    (arith.SubF, edit(elementwise._sub, "at.negative(adjoint)", "adjoint")),
    (arith.MulF, edit(elementwise._mul, "at.wide(op.rhs)), op.rhs", "at.wide(op.lhs)), op.rhs")),
    (arith.DivF, edit(elementwise._div, "at.times(share, at.wide(op.result))", "at.times(share, at.wide(op.lhs))")),
    (tt.PreciseDivF, edit(elementwise._div, "at.negative(at.guarded(share", "(at.guarded(share")),
    (arith.RemF, edit(elementwise._rem, "at.minus(at.wide(op.lhs), at.wide(op.result))", "at.wide(op.lhs)")),
    (arith.NegF, edit(elementwise._neg, "at.negative(adjoint)", "adjoint")),
    (maths.Fma, edit(elementwise._fma, "at.add(op.c, adjoint)", "at.add(op.b, adjoint)")),
    (arith.MaximumF, edit(elementwise._extremum, "0.5", "1.0")),
    (arith.MinNumF, edit(elementwise._extremum, "at.where(is_rhs, share, 0.0)", "at.where(is_lhs, share, 0.0)")),
    (arith.Select, edit(elementwise._select, "at.where(condition, 0.0, adjoint)", "adjoint")),
    (maths.AbsF, edit(elementwise._abs, "FloatPredicate.OGT", "FloatPredicate.OGE")),
    (maths.Exp2, derivative(maths.Exp2, lambda at, x, y: y)),
    (maths.Log2, derivative(maths.Log2, lambda at, x, y: at.over(at.constant(1.0, x.type), x))),
    (maths.Sqrt, derivative(maths.Sqrt, lambda at, x, y: at.over(at.constant(1.0, y.type), y))),
    (maths.Rsqrt, derivative(maths.Rsqrt, lambda at, x, y: at.times(at.times(y, y), -0.5))),
    (maths.Cos, derivative(maths.Cos, lambda at, x, y: at.emit(maths.Sin(x)))),
    (maths.Tanh, derivative(maths.Tanh, lambda at, x, y: at.minus(at.constant(1.0, y.type), y))),
    (
        maths.Erf,
        derivative(maths.Erf, lambda at, x, y: at.times(at.emit(maths.Exp(at.times(x, x))), 2 / math.sqrt(math.pi))),
    ),
]

test_planted_faults = must_find((fault, functools.partial(prove_gradient, cls)) for cls, fault in FAULTS)
