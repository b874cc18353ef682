"""Each gradient rule against finite differences, and the ops without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from differentiable import arrays, kernel, output_shape
from finite_differences import check_gradient

import ziggurat as zg
from ziggurat.codemodel import dialects
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.structured import packed
from ziggurat.codemodel.types import TensorType, f32, f64, i32
from ziggurat.transforms.differentiate import differentiate, gradients
from ziggurat.transforms.differentiate.undifferentiated import CONSTANT, INTEGER, REASONS

UNARY: list[type[Op]] = [
    maths.Exp, maths.Exp2, maths.Sin, maths.Cos, maths.Tanh, maths.Erf, maths.AbsF, arith.NegF,
]  # fmt: skip
OF_POSITIVE: list[type[Op]] = [maths.Log, maths.Log2, maths.Sqrt, maths.Rsqrt, tt.PreciseSqrt]
BINARY: list[type[Op]] = [
    arith.AddF, arith.SubF, arith.MulF, arith.DivF, arith.MaximumF, arith.MinimumF, arith.MaxNumF, arith.MinNumF,
    arith.RemF, tt.PreciseDivF,
]  # fmt: skip


def combining(builder: Builder, ends: Any, combiner: Any) -> Any:
    inner = builder.nested([f64, f64], f64)
    inner.add(ends([inner.add(combiner(*inner.parameters))]))
    return inner.finish()


def reduce_by(combiner: Any, axis: int) -> Callable[..., Value]:
    return lambda b, x: b.add(tt.Reduce([x], axis, combining(b, tt.ReduceReturn, combiner)))


def scan_by(combiner: Any, axis: int, reverse: bool = False) -> Callable[..., Value]:
    return lambda b, x: b.add(tt.Scan([x], axis, combining(b, tt.ScanReturn, combiner), reverse=reverse))


def positive(b: Builder, x: Value) -> Value:
    zero = b.add(arith.ConstantOp(0.0, type=x.type))
    return b.add(arith.CmpF(x, zero, arith.FloatPredicate.OGT))


def chosen(b: Builder, x: Value, y: Value) -> Value:
    return b.add(arith.Select(positive(b, x), x, y))


def chosen_by_a_scalar(b: Builder, x: Value, y: Value) -> Value:
    total = b.add(tt.Reduce([x], 0, combining(b, tt.ReduceReturn, arith.AddF)))
    return b.add(arith.Select(positive(b, total), x, y))


def through_f32(b: Builder, x: Value) -> Value:
    """Exact for the numbers of a test that are rounded before."""
    narrow = b.add(arith.TruncF(x, TensorType((8,), f32)))
    wide = b.add(arith.ExtF(narrow, x.type))
    return b.add(arith.AddF(x, b.add(arith.SubF(x, wide))))


def with_floor(b: Builder, x: Value) -> Value:
    return b.add(arith.SubF(x, b.add(maths.Floor(x))))


def with_integer(b: Builder, x: Value) -> Value:
    whole = b.add(arith.FPToSI(x, TensorType((8,), i32)))
    return b.add(arith.MulF(x, b.add(arith.SIToFP(whole, x.type))))


def splat(b: Builder, x: Value) -> Value:
    return b.add(tt.Splat(x, TensorType((4, 8), f64)))


def broadcast(b: Builder, x: Value) -> Value:
    return b.add(tt.Broadcast(x, TensorType((4, 8, 2), f64)))


def expanded(b: Builder, x: Value) -> Value:
    wide = b.add(tt.Broadcast(b.add(tt.ExpandDims(x, 1)), TensorType((8, 4), f64)))
    return b.add(arith.MulF(wide, wide))


def expanded_only(b: Builder, x: Value) -> Value:
    return b.add(tt.ExpandDims(x, 0))


def joined(b: Builder, x: Value, y: Value) -> Value:
    return b.add(tt.Join(x, b.add(arith.MulF(x, y))))


def split(b: Builder, x: Value) -> Value:
    halves = b.add(tt.Split(x))
    rest = b.add(core.TupleLoad(halves, 0))
    return b.add(arith.MulF(rest, b.add(core.TupleLoad(halves, 1))))


def split_in_part(b: Builder, x: Value) -> Value:
    return b.add(core.TupleLoad(b.add(tt.Split(x)), 1))


def gathered(axis: int) -> Callable[..., Value]:
    def body(b: Builder, x: Value, y: Value) -> Value:
        scaled = b.add(arith.MulF(y, b.add(arith.ConstantOp(3.99, type=y.type))))
        whole = b.add(arith.FPToSI(b.add(maths.AbsF(scaled)), TensorType((4, 4), i32)))
        three = b.add(arith.ConstantOp(3, type=whole.type))
        return b.add(tt.Gather(x, b.add(arith.AndI(whole, three)), axis))

    return body


def tuples(b: Builder, x: Value, y: Value) -> Value:
    both = b.add(core.TupleWith(b.add(core.MakeTuple([x, y, x])), b.add(arith.MulF(x, y)), 1))
    return b.add(arith.MulF(b.add(core.TupleLoad(both, 0)), b.add(core.TupleLoad(both, 1))))


def dot(b: Builder, x: Value, y: Value, z: Value) -> Value:
    return b.add(tt.Dot(x, y, z))


def dot_of_transposed(b: Builder, x: Value, y: Value) -> Value:
    rank = len(x.type.shape)  # type: ignore[attr-defined]
    order = (*range(rank - 2), rank - 1, rank - 2)
    zero = b.add(arith.ConstantOp(0.0, type=TensorType((4, 4), f64)))
    product = b.add(tt.Dot(b.add(tt.Trans(y, order)), b.add(tt.Trans(x, order)), zero))
    return b.add(tt.Dot(b.add(tt.Trans(product, order)), product, product))


def select_pair(predicate: arith.FloatPredicate, axis: int) -> Callable[..., Value]:
    """The largest or smallest element with its index."""

    def body(b: Builder, x: Value) -> Value:
        shape = x.type.shape  # type: ignore[attr-defined]
        numbers: Value = b.add(tt.MakeRange(0, shape[axis]))
        if len(shape) > 1:
            numbers = b.add(tt.ExpandDims(numbers, 1 - axis))
            numbers = b.add(tt.Broadcast(numbers, TensorType(shape, i32)))
        inner = b.nested([f64, i32, f64, i32], packed([f64, i32]))
        v, i, w, j = inner.parameters
        first = inner.add(arith.CmpF(v, w, predicate))
        values = [inner.add(arith.Select(first, v, w)), inner.add(arith.Select(first, i, j))]
        inner.add(tt.ReduceReturn(values))
        pair = b.add(tt.Reduce([x, numbers], axis, inner.finish()))
        return b.add(core.TupleLoad(pair, 0))

    return body


def two_sums(b: Builder, x: Value, y: Value) -> Value:
    inner = b.nested([f64] * 4, packed([f64, f64]))
    p, q, r, s = inner.parameters
    inner.add(tt.ReduceReturn([inner.add(arith.AddF(p, r)), inner.add(arith.MulF(s, q))]))
    pair = b.add(tt.Reduce([x, y], 1, inner.finish()))
    return b.add(arith.MulF(b.add(core.TupleLoad(pair, 0)), b.add(core.TupleLoad(pair, 1))))


Case = tuple[Sequence[tuple[int, ...]], Callable[..., Value], bool]
CASES: dict[str, Case] = {
    **{op.NAME: ([(8,)], lambda b, x, op=op: b.add(op(x)), False) for op in UNARY},
    **{op.NAME: ([(8,)], lambda b, x, op=op: b.add(op(x)), True) for op in OF_POSITIVE},
    **{op.NAME: ([(8,), (8,)], lambda b, x, y, op=op: b.add(op(x, y)), False) for op in BINARY},
    "square": ([(8,)], lambda b, x: b.add(arith.MulF(x, x)), False),
    "scalar": ([(), ()], lambda b, x, y: b.add(arith.DivF(x, y)), False),
    "fma": ([(8,)] * 3, lambda b, x, y, z: b.add(maths.Fma(x, y, z)), False),
    "select": ([(8,)] * 2, chosen, False),
    "select by a scalar": ([(8,)] * 2, chosen_by_a_scalar, False),
    "casts": ([(8,)], through_f32, False),
    "floor": ([(8,)], with_floor, False),
    "ceil": ([(8,)], lambda b, x: b.add(arith.MulF(x, b.add(maths.Ceil(x)))), False),
    "integers": ([(8,)], with_integer, False),
    "splat": ([()], splat, False),
    "broadcast": ([(1, 8, 1)], broadcast, False),
    "broadcast of one": ([(1, 1, 1)], broadcast, False),
    "expand_dims": ([(8,)], expanded, False),
    "expand_dims alone": ([(8,)], expanded_only, False),
    "reshape": ([(8,)], lambda b, x: b.add(tt.Reshape(x, TensorType((2, 4), f64))), False),
    "reshape in any order": (
        [(8,)], lambda b, x: b.add(tt.Reshape(x, TensorType((2, 4), f64), allow_reorder=True)), False,
    ),
    "trans": ([(2, 4, 8)], lambda b, x: b.add(tt.Trans(x, (2, 0, 1))), False),
    "join": ([(4,), (4,)], joined, False),
    "join of scalars": ([(), ()], joined, False),
    "split": ([(4, 2)], split, False),
    "split of one": ([(2,)], split, False),
    "split in part": ([(4, 2)], split_in_part, False),
    "cat": ([(4, 2), (4, 2)], lambda b, x, y: b.add(tt.Cat(x, y)), False),
    "gather": ([(4, 4), (4, 4)], gathered(1), False),
    "gather along 0": ([(4, 4), (4, 4)], gathered(0), False),
    "tuples": ([(4,), (4,)], tuples, False),
    "dot": ([(2, 8), (8, 4), (2, 4)], dot, False),
    "dot of batches": ([(2, 2, 8), (2, 8, 4), (2, 2, 4)], dot, False),
    "dot of transposed": ([(4, 4), (4, 4)], dot_of_transposed, False),
    "sum": ([(4, 8)], reduce_by(arith.AddF, 1), False),
    "sum to a scalar": ([(8,)], reduce_by(arith.AddF, 0), False),
    "product": ([(4, 8)], reduce_by(arith.MulF, 0), False),
    "max": ([(4, 8)], reduce_by(arith.MaxNumF, 1), False),
    "max to a scalar": ([(8,)], reduce_by(arith.MaximumF, 0), False),
    "min": ([(4, 8)], reduce_by(arith.MinNumF, 0), False),
    "minimum": ([(4, 8)], reduce_by(arith.MinimumF, 1), False),
    "max with index": ([(4, 8)], select_pair(arith.FloatPredicate.OGT, 1), False),
    "min with index": ([(8,)], select_pair(arith.FloatPredicate.OLT, 0), False),
    "two reductions": ([(4, 8), (4, 8)], two_sums, False),
    "cumulative sum": ([(4, 8)], scan_by(arith.AddF, 1), False),
    "cumulative sum from the end": ([(4, 8)], scan_by(arith.AddF, 0, True), False),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_that_of_finite_differences(name: str):
    shapes, body, is_positive = CASES[name]
    rng = np.random.default_rng(0)
    model = kernel(shapes, body)
    inputs = arrays(rng, shapes, is_positive)
    if name == "casts":
        inputs = [array.astype(np.float32).astype(np.float64) for array in inputs]
        (actual,) = check_gradient(model, 1, [*inputs, np.zeros(8)], [1], [0], directions=0)
        # x + (x - x) is x; the adjoint is rounded to f32 on the way.
        np.testing.assert_allclose(actual, np.random.default_rng(1).standard_normal(8), rtol=1e-6)
        return
    output = np.zeros(output_shape(model) or (1,))
    check_gradient(model, 1, [*inputs, output], [len(inputs)], range(len(inputs)))


def test_every_rule_is_tried():
    names = {type(op) for shapes, body, _ in CASES.values() for op in kernel(shapes, body).walk()}
    # Accesses and control flow have tests of their own; hints are about integers.
    apart = {tt.AtomicRMW, tt.AtomicCAS, tt.DescriptorLoad, tt.DescriptorStore, tt.DescriptorReduce}
    apart |= {scf.If, scf.For, scf.While, tt.Call, tt.MultipleOf, tt.MaxContiguous, tt.MaxConstancy}
    apart |= {maths.Approximate}  # Its operand is f32; below.
    untried = [
        cls.NAME
        for cls in OPS.values()
        if cls in gradients and not issubclass(cls, (*CONSTANT, *INTEGER, *REASONS)) and cls not in names | apart
    ]
    assert untried == []


@zg.kernel
def sums_of_functions(x_ptr, out_ptr, FAST: zg.constexpr):
    at = zg.arange(0, 16)
    x = zg.load(zg.add(x_ptr, at))
    if FAST:
        y = zg.approximate("log2", x) + zg.approximate("sin", x) * zg.approximate("cos", x) + zg.approximate("tanh", x)
    else:
        y = zg.log2(x) + zg.sin(x) * zg.cos(x) + zg.tanh(x)
    zg.store(zg.add(out_ptr, at), y)


def test_approximations_have_the_derivatives_of_their_functions():
    x, ones = np.linspace(0.1, 2.0, 16, dtype=np.float32), np.ones(16, np.float32)
    kernel = zg.grad(sums_of_functions, wrt="x_ptr", of="out_ptr")
    gradient, accurate = np.zeros((2, 16), np.float32)
    kernel[(1,)](x, gradient, np.zeros_like(x), ones, True)
    kernel[(1,)](x, accurate, np.zeros_like(x), ones, False)
    np.testing.assert_allclose(gradient, accurate, rtol=1e-6)
    np.testing.assert_allclose(gradient, 1 / (x * np.log(2)) + np.cos(2 * x) + 1 - np.tanh(x) ** 2, 1e-5, 1e-6)


def test_every_op_of_the_triton_model_has_a_rule_or_a_reason():
    files = (dialects.arith, dialects.math, dialects.scf, dialects.tt)
    classes = [cls for cls in OPS.values() if cls.__module__ in {file.__name__ for file in files}]
    classes += [core.TupleLoad, core.TupleWith, core.MakeTuple]
    assert gradients.missing(classes) == []


@pytest.mark.parametrize("combiner", [arith.MaximumF, arith.MinNumF])
def test_equal_extrema_share_the_adjoint(combiner: Any):
    model = kernel([(4,)], reduce_by(combiner, 0))
    x, actual = np.array([1.0, -1.0, 1.0, -1.0]), np.zeros(4)
    run(model, [x, actual, np.zeros(1), np.array([8.0])], [1], [0])
    best = x.max() if combiner is arith.MaximumF else x.min()
    np.testing.assert_array_equal(actual, np.where(x == best, 4.0, 0.0))


def run(model: Op, arguments: Sequence[Any], of: Sequence[int], wrt: Sequence[int]) -> None:
    zg.run(differentiate(model, of, wrt), 1, *arguments, strict=True)


@pytest.mark.parametrize("op", [arith.MaximumF, arith.MinNumF])
def test_equal_operands_share_the_adjoint(op: Any):
    model = kernel([(2,), (2,)], lambda b, x, y: b.add(op(x, y)))
    x, y, dx, dy = np.array([1.0, 2.0]), np.array([1.0, 2.0]), np.zeros(2), np.zeros(2)
    run(model, [x, dx, y, dy, np.zeros(2), np.array([2.0, 4.0])], [2], [0, 1])
    np.testing.assert_array_equal(dx, [1.0, 2.0])
    np.testing.assert_array_equal(dy, [1.0, 2.0])


def test_the_magnitude_of_zero_has_the_derivative_zero():
    dx = np.zeros(2)
    run(kernel([(2,)], lambda b, x: b.add(maths.AbsF(x))), [np.zeros(2), dx, np.zeros(2), np.ones(2)], [1], [0])
    np.testing.assert_array_equal(dx, [0.0, 0.0])


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_the_gradient_of_a_product_with_zeros(zeros: int):
    x, dx = np.array([2.0, 3.0, 5.0, 7.0]), np.zeros(4)
    x[:zeros] = 0.0
    run(kernel([(4,)], reduce_by(arith.MulF, 0)), [x, dx, np.zeros(1), np.ones(1)], [1], [0])
    np.testing.assert_allclose(dx, [np.prod(np.delete(x, index)) for index in range(4)])


@pytest.mark.parametrize("axis", [0, 1])
def test_the_calls_that_give_an_index(axis: int):
    @zg.kernel
    def indexed(x, out, AXIS: zg.constexpr):
        rows = zg.mul(zg.expand(zg.arange(0, 4), 1), 4)
        a = zg.load(zg.add(x, zg.add(rows, zg.expand(zg.arange(0, 4), 0))))
        largest, at = zg.max(a, axis=AXIS, return_indices=True)
        smallest, _ = zg.min(zg.mul(a, a), axis=AXIS, return_indices=True)
        zg.store(zg.add(out, zg.arange(0, 4)), zg.add(zg.mul(largest, smallest), zg.cast(at, zg.f64)))

    model = indexed.triton(zg.ptr(zg.f64), zg.ptr(zg.f64), axis)
    check_gradient(model, 1, [*arrays(np.random.default_rng(0), [(4, 4)]), np.zeros(4)], [1], [0])
