"""Faults of the article's proof of concept (OpenJDK Babylon, cr-examples/triton) that this compiler does not have.

One test a defect; where running says more than the model, the kernel runs on NumPy's arrays.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import arith, core, scf, tt

I32 = zg.ptr(zg.i32)
F32 = zg.ptr(zg.f32)


def main(model: Any) -> tt.Func:
    """The kernel of a module, which stands last."""
    assert isinstance(model, core.Module)
    return list(model.functions().values())[-1]  # type: ignore[return-value]


def names(model: Any) -> list[str]:
    return [op.NAME for op in model.walk()]


def run(kernel: Any, *arguments: Any, size: int = 1, dtype: Any = np.int32) -> Any:
    """The array of `size` elements that one program of a kernel writes to its first argument."""
    out = np.zeros(size, dtype)
    kernel[1](out, *arguments, strict=True)
    return out if size > 1 else out[0]


# Control flow that the proof of concept refuses.


@zg.kernel
def with_if(out, n):
    if n > 10:
        x = n * 2
    elif n > 5:
        x = n * 3
    else:
        x = 0
    zg.store(out, x)


def test_if_is_supported():
    assert [run(with_if, n) for n in (11, 10, 5)] == [22, 30, 0]
    assert names(with_if.triton(I32, zg.i32)).count("scf.if") == 2


@zg.kernel
def with_while(out, n):
    count = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        count += 1
    zg.store(out, count)


def test_while_is_supported():
    assert run(with_while, 27) == 111
    assert "scf.while" in names(with_while.triton(I32, zg.i32))


@zg.kernel
def with_early_return(out, n):
    zg.store(out, 1)
    if n < 0:
        return
    zg.store(out, 2)


def test_early_return_is_supported():
    assert [run(with_early_return, n) for n in (-1, 1)] == [1, 2]


@zg.kernel
def with_conditional_expression(out, a, b):
    zg.store(out, a if a > b else b)


def test_conditional_expressions_are_supported():
    assert run(with_conditional_expression, 3, 4) == 4
    assert run(with_conditional_expression, 4, 3) == 4


@zg.kernel
def with_nested_loops(out, n):
    total = 0
    for i in range(n):
        for j in range(i, n):
            if (i + j) % 2 == 0:
                total += i * j
    zg.store(out, total)


def test_nested_loops_are_supported():
    assert run(with_nested_loops, 7) == sum(i * j for i in range(7) for j in range(i, 7) if (i + j) % 2 == 0)


@zg.kernel
def with_a_static_range(out, n):
    total = 0
    factors = (2, n, 5)
    for i in zg.static_range(3):
        total += factors[i] * n
    zg.store(out, total)


def test_a_loop_can_take_the_items_of_a_tuple():
    assert run(with_a_static_range, 3) == 6 + 9 + 15
    assert "scf.for" not in names(with_a_static_range.triton(I32, zg.i32))


@zg.kernel
def with_else(out, n):
    while n > 0:
        n -= 1
    else:
        zg.store(out, n)


def test_what_is_not_supported_is_an_error_at_its_place_that_says_what_to_do():
    with pytest.raises(zg.KernelSyntaxError, match="else after a loop") as caught:
        with_else.triton(I32, zg.i32)
    assert caught.value.location is not None and caught.value.location.file == __file__
    assert caught.value.hint and "after the loop" in caught.value.hint


@zg.kernel
def activated(out, x_ptr, ACTIVATION: zg.constexpr):
    x = zg.load(x_ptr)
    if ACTIVATION == "leaky_relu":
        x = x if x >= 0 else 0.5 * x
    elif ACTIVATION == "of another shape":
        x = zg.arange(0, 3)
    zg.store(out, x)


def test_a_constexpr_if_takes_one_branch_and_never_looks_at_the_other():
    x = np.array([-2.0], np.float32)
    assert run(activated, x, "leaky_relu", dtype=np.float32) == -1
    assert run(activated, x, "", dtype=np.float32) == -2
    assert "scf.if" not in names(activated.triton(F32, F32, ""))
    with pytest.raises(zg.KernelValueError, match="power of two"):
        activated.triton(F32, F32, "of another shape")


# Counted loops: any bounds, step, index width, and number of loop-carried values.


@zg.kernel
def counting(out, start, stop, step, TYPE: zg.constexpr = zg.i32):
    last = start
    count = zg.cast(0, TYPE)
    for i in range(start, stop, step):
        last = i
        count += 1
    zg.store(out, count)
    zg.store(zg.add(out, 1), last)


@pytest.mark.parametrize("bounds", [(3, 20, 4), (20, 3, -4), (0, -5, -1), (5, 5, 1), (5, 0, 1)], ids=str)
def test_loops_count_from_any_start_by_any_step(bounds: tuple[int, int, int]):
    counted = list(range(*bounds))
    expected = [len(counted), counted[-1] if counted else bounds[0]]
    assert run(counting, *bounds, size=2).tolist() == expected


def test_a_loop_counts_in_64_bits():
    start = 1 << 40
    assert run(counting, start, start + 6, 2, zg.i64, size=2, dtype=np.int64).tolist() == [3, start + 4]
    model = counting.triton(zg.ptr(zg.i64), zg.i64, zg.i64, 2, zg.i64)
    (loop,) = (op for op in model.walk() if isinstance(op, scf.For))
    assert loop.start.type == zg.i64


@zg.kernel
def nothing_carried(out, n):
    for i in range(n):
        zg.store(zg.add(out, i), i * i)


def test_a_loop_without_carried_values_prints_and_parses():
    model = nothing_carried.triton(I32, zg.i32)
    (loop,) = (op for op in model.walk() if isinstance(op, scf.For))
    assert str(loop.result.type) == "void"
    assert zg.same_model(zg.parse(str(model)), model)
    assert run(nothing_carried, 5, size=5).tolist() == [0, 1, 4, 9, 16]


@zg.kernel
def counted_sum(out, n):
    acc = 0
    for i in range(n):
        acc = acc + i
    zg.store(out, acc)


def test_a_variable_that_starts_as_a_literal_is_carried():
    assert run(counted_sum, 101) == 5050
    (loop,) = (op for op in counted_sum.triton(I32, zg.i32).walk() if isinstance(op, scf.For))
    assert loop.result.type == zg.i32


# Constants.


@zg.kernel
def folded(out, BLOCK: zg.constexpr):
    offsets = zg.arange(0, 2 * BLOCK)
    half = BLOCK // 2 + BLOCK % 2
    zg.store(zg.add(out, offsets), zg.mul(offsets, half**2 - 1))


def test_constants_fold_through_arithmetic():
    model = main(folded.triton(I32, 8))
    (arange,) = (op for op in model.walk() if isinstance(op, tt.MakeRange))
    assert (arange.start, arange.end) == (0, 16)
    assert [op.value for op in model.walk() if isinstance(op, arith.ConstantOp)] == [15]
    assert run(folded, 8, size=16).tolist() == [15 * i for i in range(16)]


# Comparisons.


@zg.kernel
def compared(out, x_ptr, y_ptr, KIND: zg.constexpr):
    at = zg.arange(0, 4)
    x, y = zg.load(zg.add(x_ptr, at)), zg.load(zg.add(y_ptr, at))
    zg.store(zg.add(out, at), zg.cast(zg.compare(x, y, KIND), zg.i32))


COMPARISONS = [
    (zg.CompareKind.EQUAL, np.equal, "eq", "oeq", "eq"),
    (zg.CompareKind.NOT_EQUAL, np.not_equal, "ne", "une", "ne"),
    (zg.CompareKind.LESS_THAN, np.less, "slt", "olt", "ult"),
    (zg.CompareKind.LESS_THAN_OR_EQUAL, np.less_equal, "sle", "ole", "ule"),
    (zg.CompareKind.GREATER_THAN, np.greater, "sgt", "ogt", "ugt"),
    (zg.CompareKind.GREATER_THAN_OR_EQUAL, np.greater_equal, "sge", "oge", "uge"),
]


@pytest.mark.parametrize(("kind", "rule", "signed", "floating", "unsigned"), COMPARISONS)
def test_tensors_compare_in_every_way_and_type(kind: Any, rule: Any, signed: str, floating: str, unsigned: str):
    predicates = []
    for dtype, element in ((np.int32, zg.i32), (np.float32, zg.f32), (np.uint32, zg.u32)):
        x, y = np.array([1, 2, 3, 3], dtype), np.array([2, 2, 1, 3], dtype)
        if dtype == np.float32:
            x[3] = np.nan
        if dtype == np.uint32:
            x[0] = 2**32 - 1
        np.testing.assert_array_equal(run(compared, x, y, kind, size=4), rule(x, y))
        model = compared.triton(I32, zg.ptr(element), zg.ptr(element), kind)
        predicates += [op.predicate for op in model.walk() if isinstance(op, arith.CmpI | arith.CmpF)]
    assert [predicate.value for predicate in predicates] == [signed, floating, unsigned]


@zg.kernel
def compared_scalars(out, a, b):
    zg.store(out, zg.cast(zg.compare(a, b, zg.CompareKind.NOT_EQUAL), zg.i32) + int(a < b))


def test_scalars_compare():
    assert [run(compared_scalars, a, 2) for a in (1, 2, 3)] == [2, 0, 1]


# Pointer arithmetic.


@zg.kernel
def offset_by_small_integers(out, N: zg.constexpr):
    small = zg.cast(zg.arange(0, N), zg.i8)
    columns = zg.expand(zg.arange(0, N), 0)
    rows = zg.mul(zg.expand(small, 1), 4)
    pointers = zg.add(zg.add(out, columns), rows)
    zg.store(pointers, zg.add(zg.mul(columns, 10), rows))


def test_pointers_move_by_integers_of_any_width_and_shape():
    model = offset_by_small_integers.triton(I32, 4)
    zg.verify(model)
    assert [str(op.result.type) for op in model.walk() if isinstance(op, tt.AddPtr)] == [
        "tensor<x1, x4, ptr<i32>>",
        "tensor<x4, x4, ptr<i32>>",
    ]
    expected = [10 * j + 4 * i for i in range(4) for j in range(4)]
    assert run(offset_by_small_integers, 4, size=16).tolist() == expected


@zg.kernel
def offset_by_a_constant(out, N: zg.constexpr):
    pointers = zg.add(zg.add(out, zg.arange(0, N)), N)
    zg.store(pointers, zg.arange(0, N))


def test_pointers_move_by_constants():
    model = main(offset_by_a_constant.triton(I32, 4))
    zg.verify(model)
    assert "constant<" not in str(model)
    assert run(offset_by_a_constant, 4, size=8).tolist() == [0, 0, 0, 0, 0, 1, 2, 3]


# Conversions are of a use, not of a value.


@zg.kernel
def used_in_two_shapes(out, a, N: zg.constexpr):
    line = zg.arange(0, N)
    plane = zg.add(zg.expand(line, 1), zg.expand(zg.arange(0, N // 2), 0))
    first = zg.add(line, a)
    second = zg.add(plane, a)
    third = zg.add(line, a)
    at = zg.add(zg.mul(zg.expand(line, 1), N // 2), zg.expand(zg.arange(0, N // 2), 0))
    zg.store(zg.add(out, at), second)
    zg.store(zg.add(out, zg.add(line, N * (N // 2))), zg.add(first, third))
    zg.store(zg.add(out, N * (N // 2) + N), a)


def test_a_value_used_in_two_shapes_keeps_its_own():
    model = main(used_in_two_shapes.triton(I32, zg.i32, 4))
    splats = [str(op.result.type) for op in model.walk() if isinstance(op, tt.Splat) and op.operands[0].type == zg.i32]
    assert splats[:3] == ["tensor<x4, i32>", "tensor<x4, x2, i32>", "tensor<x4, i32>"]
    plane = [i + j + 100 for i in range(4) for j in range(2)]
    assert run(used_in_two_shapes, 100, 4, size=13).tolist() == [*plane, *(2 * (i + 100) for i in range(4)), 100]


# Reductions.


@zg.kernel
def two_maxima(out, x_ptr):
    short = zg.load(zg.add(x_ptr, zg.arange(0, 64)))
    long = zg.load(zg.add(x_ptr, zg.arange(0, 128)))
    zg.store(out, zg.max(short, 0))
    zg.store(zg.add(out, 1), zg.max(long, 0))


def test_reductions_of_unlike_shapes_are_unlike_functions():
    model = two_maxima.triton(I32, I32)
    assert isinstance(model, core.Module)
    reducing = [name for name in model.functions() if name.startswith("reduce_max")]
    assert reducing == ["reduce_max_tensor<x64, i32>_0_i32", "reduce_max_tensor<x128, i32>_0_i32"]
    assert run(two_maxima, np.arange(128, dtype=np.int32), size=2).tolist() == [63, 127]


@zg.kernel
def sums_of_axes(out, x_ptr, AXIS: zg.constexpr, KEEP: zg.constexpr):
    at = zg.add(zg.mul(zg.expand(zg.arange(0, 4), 1), 8), zg.expand(zg.arange(0, 8), 0))
    x = zg.load(zg.add(x_ptr, at))
    total = zg.sum(x, AXIS, keep_dims=KEEP)
    zg.store(zg.add(out, zg.arange(0, 8 if AXIS == 0 else 4)), zg.ravel(total))


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_reduction_of_two_axes_combines_scalars_and_drops_the_axis(axis: int, keep: bool):
    model = sums_of_axes.triton(I32, I32, axis, keep)
    zg.verify(model)
    (reduce,) = (op for op in model.walk() if isinstance(op, tt.Reduce))
    assert [str(p.type) for p in reduce.bodies[0].parameters] == ["i32", "i32"]
    size = (8, 4)[axis]
    assert str(reduce.result.type) == f"tensor<x{size}, i32>"
    x = np.arange(32, dtype=np.int32).reshape(4, 8)
    assert run(sums_of_axes, x, axis, keep, size=size).tolist() == x.sum(axis).tolist()


@zg.kernel
def masked_softmax(out, x_ptr, n, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    mask = zg.compare(at, n, zg.CompareKind.LESS_THAN)
    x = zg.load(zg.add(x_ptr, at), mask, float("-inf"))
    powers = zg.exp(zg.sub(x, zg.max(x, 0)))
    zg.store(zg.add(out, at), zg.div(powers, zg.sum(powers, 0)), mask)


def test_the_softmax_of_a_row_shorter_than_its_block():
    x = np.linspace(-3, -1, 10).astype(np.float32)
    expected = np.exp(x.astype(np.float64)) / np.exp(x.astype(np.float64)).sum()
    np.testing.assert_allclose(run(masked_softmax, x, 10, 64, size=10, dtype=np.float32), expected, rtol=1e-6)


# Types that are checked.


@zg.kernel
def least_and_most(out, a, b):
    zg.store(out, min(a, b, 7))
    zg.store(zg.add(out, 1), max(2, b, a))


def test_min_and_max_have_the_type_of_both():
    assert run(least_and_most, 3, 9, size=2).tolist() == [3, 9]
    model = main(least_and_most.triton(zg.ptr(zg.i64), zg.i32, zg.i64))
    assert {op.result.type for op in model.walk() if isinstance(op, arith.MinSI | arith.MaxSI)} == {zg.i64}


def refused(kernel: Any, *types: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        kernel.triton(*types)


@zg.kernel
def wrong_axis(out):
    zg.store(out, zg.program_id(3))


def test_there_is_no_axis_3():
    refused(wrong_axis, I32, error=zg.KernelValueError, message="0, 1 or 2")


@zg.kernel
def wrong_size(out, N: zg.constexpr):
    zg.store(zg.add(out, zg.arange(0, N)), 0)


def test_sizes_are_powers_of_two():
    refused(wrong_size, I32, 48, error=zg.KernelValueError, message="power of two")


@zg.kernel
def stored(out, x):
    zg.store(out, x)


def test_a_store_converts_to_the_pointees_type():
    assert run(stored, 2.75) == 2
    assert run(stored, 3, dtype=np.float32) == 3.0


# Calls that the proof of concept lacks.


@zg.kernel
def many_calls(out, x_ptr, N: zg.constexpr):
    at = zg.arange(0, N)
    x = zg.load(zg.add(x_ptr, at))
    y = zg.where(zg.compare(x, 0.0, zg.CompareKind.LESS_THAN), zg.neg(x), zg.sqrt(zg.maximum(x, 1.0)))
    y = zg.add(y, zg.cast(zg.argmax(x, 0), zg.f32))
    y = zg.add(zg.cumsum(y, 0), zg.log(zg.sigmoid(zg.minimum(x, 0.0))))
    y = zg.ravel(zg.trans(zg.reshape(y, (2, N // 2))))
    zg.store(zg.add(out, at), zg.mul(y, zg.cast(zg.num_programs(0), zg.f32)))
    zg.atomic_add(zg.add(out, N), 2.5)


def test_the_calls_that_are_missing_there():
    x = np.array([-2, 4, 9, -1, 0.25, 16, 2, -3], np.float32)
    wide = x.astype(np.float64)
    y = np.where(wide < 0, -wide, np.sqrt(np.maximum(wide, 1))) + wide.argmax()
    y = y.cumsum() + np.log(1 / (1 + np.exp(-np.minimum(wide, 0))))
    expected = [*y.reshape(2, 4).T.ravel(), 2.5]
    np.testing.assert_allclose(run(many_calls, x, 8, size=9, dtype=np.float32), expected, rtol=1e-6)


@zg.kernel
def accumulated(out, x_ptr, N: zg.constexpr):
    rows, columns = zg.expand(zg.arange(0, N), 1), zg.expand(zg.arange(0, N), 0)
    at = zg.add(zg.mul(rows, N), columns)
    x = zg.load(zg.add(x_ptr, at))
    zg.store(zg.add(out, at), zg.dot(x, x, zg.full((N, N), 1.0, zg.f32), input_precision="ieee"))


def test_dot_takes_an_accumulator():
    x = np.arange(256, dtype=np.float32).reshape(16, 16) / 16
    (dot,) = (op for op in accumulated.triton(F32, F32, 16).walk() if isinstance(op, tt.Dot))
    assert dot.operands[2].op.value == 1.0  # type: ignore[attr-defined]
    np.testing.assert_allclose(
        run(accumulated, x, 16, size=256, dtype=np.float32).reshape(16, 16), x @ x + 1, rtol=1e-6
    )


# The MLIR text: divisibility is said of the arguments that have it, and types are mapped as types.


@zg.kernel
def integer_pointer_fp(int_ptr, float_value, ptr_count):
    zg.store(int_ptr, ptr_count)


def test_divisibility_is_of_an_argument():
    model = integer_pointer_fp.triton(zg.divisible(zg.ptr(zg.i64)), zg.f64, zg.i64)
    header = next(line for line in zg.to_mlir(model).splitlines() if "tt.func" in line)
    assert header.count("tt.divisibility") == 1
    assert "!tt.ptr<i64>" in header and "f64" in header
    assert re.search(r"tt\.func public @\w+\(", header), "the symbol is one that MLIR takes without quotes"
