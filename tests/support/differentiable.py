"""Kernels of a few ops, for the tests of gradient rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import PtrType, TensorType, f64, i32, shape_of

Body = Callable[..., Value]


def pointers(builder: Builder, base: Value, shape: Sequence[int]) -> Value:
    """Pointers to the elements of an array, row-major; a pointer for the shape ()."""
    if not shape:
        return base
    assert isinstance(base.type, PtrType)
    numbers: Value = builder.add(tt.MakeRange(0, math.prod(shape)))
    if len(shape) > 1:
        numbers = builder.add(tt.Reshape(numbers, TensorType(tuple(shape), i32)))
    spread = builder.add(tt.Splat(base, TensorType(tuple(shape), base.type)))
    return builder.add(tt.AddPtr(spread, numbers))


def kernel(shapes: Sequence[Sequence[int]], body: Body) -> Op:
    """The kernel that loads arrays of f64, and stores the result of `body(builder, *loaded)` to the last parameter."""
    types = [PtrType(f64)] * (len(shapes) + 1)
    builder = Builder.root(types)
    values = [
        builder.add(tt.Load(pointers(builder, base, shape)))
        for base, shape in zip(builder.parameters, shapes, strict=False)
    ]
    result = body(builder, *values)
    builder.add(tt.Store(pointers(builder, builder.parameters[-1], shape_of(result.type)), result))
    builder.add(tt.Return(()))
    outside = Builder.root()
    outside.add(tt.Func("kernel", builder.finish()))
    outside.add(core.Unreachable())
    return core.Module(outside.finish())


def output_shape(model: Op) -> tuple[int, ...]:
    """The shape of what a kernel of `kernel` stores."""
    (store,) = (op for op in model.walk() if isinstance(op, tt.Store))
    return shape_of(store.value.type)


def arrays(rng: np.random.Generator, shapes: Sequence[Any], positive: bool = False) -> list[np.ndarray]:
    """Numbers of both signs, or positive ones, none near zero."""
    results = [rng.uniform(0.3, 2.0, shape or (1,)) for shape in shapes]
    return results if positive else [item * rng.choice([-1.0, 1.0], item.shape) for item in results]
