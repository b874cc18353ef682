"""Gradients of kernels against finite differences, on the reference interpreter in f64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import ziggurat as zg
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, rebuilt, transform
from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, Type, element_of, f64, with_element
from ziggurat.transforms.differentiate import differentiate


def in_f64(model: Op) -> Op:
    """The model with f64 in the place of every float type, in memory and in registers."""

    def widened(type_: Type) -> Type:
        if isinstance(type_, PtrType):
            return PtrType(f64) if type_.pointee.is_float else type_
        if isinstance(type_, DescriptorType):
            return DescriptorType(type_.block, f64, type_.padding) if type_.element.is_float else type_
        element = element_of(type_)
        return with_element(type_, f64) if isinstance(element, ScalarType) and element.is_float else type_

    def transformer(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        match op:
            case tt.Func():
                types = [widened(parameter.type) for parameter in op.body.parameters]
                body = builder.rewrite_body(op.body, isolated=True, parameter_types=types)
                return builder.add(rebuilt(op, (), [body]), op.location)
            case arith.ConstantOp():
                return builder.add(arith.ConstantOp(op.value, type=widened(op.type)), op.location)
            case arith.ExtF() | arith.TruncF():
                return operands[0]
            case arith.SIToFP() | arith.UIToFP():
                return builder.add(type(op)(operands[0], widened(op.type)), op.location)
            case _:
                return None

    result = transform(zg.simplify(model), transformer)
    zg.verify(result)
    return result


Given = Callable[[int, np.ndarray], Any]


def as_it_is(number: int, array: np.ndarray) -> Any:
    """The argument of a launch for an array: the array."""
    return array


def check_gradient(
    model: Op,
    grid: Any,
    arguments: Sequence[Any],
    of: Sequence[int],
    wrt: Sequence[int],
    *,
    directions: int = 3,
    step: float = 1e-6,
    tolerance: float = 1e-6,
    make_arguments: Given = as_it_is,
) -> list[np.ndarray]:
    """Compare the gradient of a model in f64 with finite differences along random directions; gives the gradients.

    `arguments` are those of the model. `given` makes the argument of a launch of each array: a descriptor, say.
    """
    rng = np.random.default_rng(1)
    gradient = differentiate(model, of, wrt)
    zg.verify(gradient)
    assert zg.same_model(zg.parse(str(gradient)), gradient)
    assert zg.simplify(gradient) is gradient
    adjoints = {number: rng.standard_normal(arguments[number].shape) for number in of}
    results = {number: np.zeros_like(arguments[number]) for number in wrt}
    launched: list[Any] = []
    copies = [np.copy(item) for item in arguments]
    for number, argument in enumerate(copies):
        for item in (argument, *({**adjoints, **results}[number] for _ in range(number in (*of, *wrt)))):
            launched.append(make_arguments(number, item) if item.ndim else arguments[number])
    zg.run(gradient, grid, *launched, strict=True)
    for argument, after in zip(arguments, copies, strict=True):
        np.testing.assert_array_equal(argument, after)  # The gradient kernel writes gradients only.

    def value(changed: int, by: np.ndarray) -> float:
        values = [np.zeros_like(array) if number in of else np.copy(array) for number, array in enumerate(arguments)]
        values[changed] = values[changed] + by
        zg.run(
            model, grid, *(make_arguments(n, array) if array.ndim else arguments[n] for n, array in enumerate(values))
        )
        return sum(float((values[number] * adjoints[number]).sum()) for number in of)

    for number in wrt:
        for _ in range(directions):
            direction = rng.standard_normal(arguments[number].shape)
            expected = (value(number, step * direction) - value(number, -step * direction)) / (2 * step)
            parts = results[number] * direction
            scale = max(1.0, abs(expected), float(np.abs(parts).sum()))
            assert abs(float(parts.sum()) - expected) <= tolerance * scale, (number, float(parts.sum()), expected)
    return [results[number] for number in wrt]
