"""Gradients of calls of the language that are functions of its library.

The library computes some functions by the bits of numbers, which have no derivative. Their calls are not inlined, and
have the derivative of the function. All other functions are inlined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.dialects.arith import FloatPredicate
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import TensorType, shape_of
from ziggurat.frontends.library import LIBRARY
from ziggurat.transforms.differentiate.adjoint import Reverse, adjoint_type, gradients
from ziggurat.transforms.differentiate.shapes import summed_to

# The derivatives of a function with respect to its arguments; `result` is its value.
Derivatives = Callable[[Reverse, list[Value], Value], list[Value]]


def _one(at: Reverse, like: Value) -> Value:
    return at.constant(1.0, like.type)


def _asin(at: Reverse, x: list[Value], result: Value) -> list[Value]:
    return [at.over(_one(at, x[0]), at.emit(maths.Sqrt(at.minus(_one(at, x[0]), at.times(x[0], x[0])))))]


def _atan2(at: Reverse, yx: list[Value], result: Value) -> list[Value]:
    y, x = yx
    square = at.plus(at.times(x, x), at.times(y, y))
    return [at.over(x, square), at.negative(at.over(y, square))]


def _pow(at: Reverse, xy: list[Value], result: Value) -> list[Value]:
    """y · x^(y - 1) and x^y · log x. At x = 0 the first is infinite below y = 1, 1 there and 0 above; for x ≤ 0 the
    second is 0."""
    x, y = xy
    zero, unit = at.zero(x.type), _one(at, x)
    is_zero = at.emit(arith.CmpF(x, zero, FloatPredicate.OEQ))
    above, below = (at.emit(arith.CmpF(y, unit, test)) for test in (FloatPredicate.OGT, FloatPredicate.OLT))
    steep = at.emit(arith.Select(below, at.constant(float("inf"), x.type), unit))
    there = at.emit(arith.Select(above, zero, steep))
    slope = at.emit(arith.Select(is_zero, there, at.over(at.times(y, result), x)))
    is_positive = at.emit(arith.CmpF(x, zero, FloatPredicate.OGT))
    log = at.emit(maths.Log(at.emit(arith.Select(is_positive, x, unit))))
    return [slope, at.times(result, log)]


def _hyperbolic(at: Reverse, x: Value, sign: Callable[[Value, Value], Value]) -> list[Value]:
    powers = at.emit(maths.Exp(x)), at.emit(maths.Exp(at.negative(x)))
    return [at.times(sign(*powers), 0.5)]


DERIVATIVES: Final[dict[str, Derivatives | None]] = {
    "asin": _asin,
    "acos": lambda at, x, result: [at.negative(_asin(at, x, result)[0])],
    "atan": lambda at, x, result: [at.over(_one(at, x[0]), at.plus(_one(at, x[0]), at.times(x[0], x[0])))],
    "atan2": _atan2,
    "pow": _pow,
    "expm1": lambda at, x, result: [at.plus(result, _one(at, result))],
    "log1p": lambda at, x, result: [at.over(_one(at, x[0]), at.plus(_one(at, x[0]), x[0]))],
    "sinh": lambda at, x, result: _hyperbolic(at, x[0], at.plus),
    "cosh": lambda at, x, result: _hyperbolic(at, x[0], at.minus),
    "round": None,
}
"""By the name of the call. None is a derivative of zero."""


def known_function(function: tt.Func) -> str | None:
    """The name of a function of the library that has a derivative of its own; None for any other function."""
    name = function.sym_name.partition("_")[0]
    if name not in DERIVATIVES:
        return None
    library = LIBRARY[name]
    # A constant argument is no parameter of the instance.
    same = len(function.body.parameters) == len(library.signature.parameters)
    # A model that was parsed has no locations.
    same = same and (function.location is None or function.location.file == library.fn.__code__.co_filename)
    return name if same else None


@gradients.of(tt.Call)
def _call(at: Reverse, op: tt.Call, adjoint: Value) -> None:
    derivatives = DERIVATIVES[op.callee.partition("_")[0]]
    if derivatives is None:
        return
    arguments = [_broadcast(at, at.wide(argument), adjoint) for argument in op.arguments]
    for argument, derivative in zip(op.arguments, derivatives(at, arguments, at.wide(op.result)), strict=True):
        part = at.guarded(adjoint, at.times(adjoint, at.as_type(derivative, adjoint.type)), op.result)
        at.add(argument, at.as_type(_summed(at, part, argument), adjoint_type(argument.type)))


def _broadcast(at: Reverse, value: Value, like: Value) -> Value:
    """An argument in the shape and the element type of the result."""
    value = at.as_type(value, like.type)
    if value.type == like.type:
        return value
    assert isinstance(like.type, TensorType)
    if not isinstance(value.type, TensorType):
        return at.emit(tt.Splat(value, like.type))
    while len(shape_of(value.type)) < like.type.rank:
        value = at.emit(tt.ExpandDims(value, 0))
    return at.emit(tt.Broadcast(value, like.type))


def _summed(at: Reverse, adjoint: Value, argument: Value) -> Value:
    """The adjoint of an argument that was broadcast."""
    shape = shape_of(argument.type)
    if not isinstance(adjoint.type, TensorType):
        return adjoint
    if not isinstance(argument.type, TensorType):
        return at.total_of_all(adjoint)
    while len(shape_of(adjoint.type)) > len(shape):
        adjoint = at.total(adjoint, 0)
    return summed_to(at, adjoint, shape)
