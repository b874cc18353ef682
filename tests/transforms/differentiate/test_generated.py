"""Gradients of generated kernels against finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
from differentiable import arrays, kernel, output_shape
from finite_differences import check_gradient
from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.structured import packed
from ziggurat.codemodel.types import TensorType, f64, i32, shape_of

SHAPE = (4, 8)
UNARY = [maths.Sin, maths.Tanh, maths.Erf, arith.NegF, maths.Cos]
BINARY = [arith.AddF, arith.SubF, arith.MulF, arith.MaxNumF]


class Generated:
    """The body of a kernel, by the choices of a list of numbers. All values are tensors of one shape."""

    def __init__(self, choices: list[int]) -> None:
        self.choices = choices
        self.at = 0

    def choose(self, count: int) -> int:
        self.at += 1
        return self.choices[(self.at - 1) % len(self.choices)] % count

    def __call__(self, b: Builder, *values: Value) -> Value:
        self.at = 0
        return self.body(b, list(values), 5, 2)[-1]

    def body(self, b: Builder, values: list[Value], steps: int, depth: int) -> list[Value]:
        for _ in range(1 + self.choose(steps)):
            values = [*values, self.step(b, values, depth)]
        return values

    def step(self, b: Builder, values: list[Value], depth: int) -> Value:
        x, y = (values[self.choose(len(values))] for _ in range(2))
        match self.choose(8 if depth else 6):
            case 0:
                return b.add(UNARY[self.choose(len(UNARY))](x))
            case 1 | 2:
                return b.add(BINARY[self.choose(len(BINARY))](x, y))
            case 3:
                axis = self.choose(2)
                inner = b.nested([f64, f64], f64)
                inner.add(tt.ReduceReturn([inner.add(arith.AddF(*inner.parameters))]))
                total = b.add(tt.ExpandDims(b.add(tt.Reduce([x], axis, inner.finish())), axis))
                return b.add(arith.MulF(b.add(tt.Broadcast(total, x.type)), self.number(b, 0.1)))
            case 4:
                return b.add(arith.Select(self.is_positive(b, x), x, y))
            case 5:
                transposed = b.add(tt.Trans(b.add(tt.Reshape(x, TensorType(SHAPE[::-1], f64))), (1, 0)))
                return b.add(arith.AddF(transposed, y))
            case 6:
                return self.branch(b, x, values, depth)
            case _:
                return self.loop(b, values, depth)

    def number(self, b: Builder, number: float) -> Value:
        return b.add(arith.ConstantOp(number, type=TensorType(SHAPE, f64)))

    def is_positive(self, b: Builder, x: Value) -> Value:
        return b.add(arith.CmpF(x, b.add(arith.ConstantOp(0.0, type=x.type)), arith.FloatPredicate.OGT))

    def branch(self, b: Builder, x: Value, values: list[Value], depth: int) -> Value:
        flat = b.add(tt.Reshape(x, TensorType((32,), f64)))
        inner = b.nested([f64, f64], f64)
        inner.add(tt.ReduceReturn([inner.add(arith.AddF(*inner.parameters))]))
        condition = self.is_positive(b, b.add(tt.Reduce([flat], 0, inner.finish())))
        bodies: list[Any] = []
        for _ in range(2):
            inside = b.nested((), x.type)
            inside.add(scf.Yield([self.body(inside, values, 3, depth - 1)[-1]]))
            bodies.append(inside.finish())
        return b.add(scf.If(condition, *bodies))

    def loop(self, b: Builder, values: list[Value], depth: int) -> Value:
        count = 1 + self.choose(2)
        parameters = [values[self.choose(len(values))] for _ in range(count)]
        bounds = [b.add(arith.ConstantOp(number, type=i32)) for number in (self.choose(2), self.choose(5), 1)]
        types = [value.type for value in parameters]
        inside = b.nested([i32, *types], packed(types))
        value = self.body(inside, [*values, *inside.parameters[1:]], 3, depth - 1)
        # Bounded, so that iterations do not blow the numbers up.
        ends = [inside.add(maths.Sin(value)) if self.choose(3) else value for value in value[-count:]]
        inside.add(scf.Yield(ends))
        result = b.add(scf.For(*bounds, parameters, inside.finish()))
        return result if count == 1 else b.add(core.TupleLoad(result, self.choose(2)))


@settings(max_examples=25)
@given(st.lists(st.integers(0, 1000), min_size=4, max_size=40), st.integers(0, 100))
def test_generated_kernels(choices: list[int], seed: int):
    model = kernel([SHAPE, SHAPE], Generated(choices))
    assert shape_of(TensorType(SHAPE, f64)) == output_shape(model)
    rng = np.random.default_rng(seed)
    check_gradient(model, 1, [*arrays(rng, [SHAPE, SHAPE]), np.zeros(SHAPE)], [2], [0, 1], directions=1, tolerance=1e-4)
