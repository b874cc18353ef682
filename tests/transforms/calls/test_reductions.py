"""Type rules of reductions, scans, sorting and histograms, and what they ask of the functions that combine."""

from __future__ import annotations

import pytest
from call_types import Types

from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.types import (
    PtrType,
    TensorType,
    TupleType,
    bf16,
    f16,
    f32,
    f64,
    i1,
    i8,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)  # fmt: skip
from ziggurat.frontends.library import COMBINE
from ziggurat.transforms.calls.constants import FunctionName
from ziggurat.transforms.calls.promotion import constant
from ziggurat.transforms.calls.reductions import accumulator, computing

T = TensorType((4, 16), i32)
F = TensorType((4, 16), f16)
LINE = TensorType((16,), f32)
FUNCTION = FunctionName("mine", COMBINE["sum"].model)


@pytest.fixture
def rules():
    return Types()


def test_small_integers_widen_and_small_floats_are_computed_in_f32():
    assert [accumulator(e) for e in (i1, i8, u8, u16, i32, u64, f16)] == [i32, i32, u32, u32, i32, u64, f16]
    assert [computing(e) for e in (f16, bf16, f32, f64, i8)] == [f32, f32, f32, f64, i32]


@pytest.mark.parametrize(
    ("axis", "keep", "shape"),
    [(0, False, (16,)), (1, False, (4,)), (-1, True, (4, 1)), (None, False, ()), (None, True, (1, 1))],
)
def test_the_axis_goes_or_stays_with_size_one(rules, axis, keep, shape):
    expected = TensorType(shape, i32) if shape else i32
    assert rules.sum(T, axis, keep, None) == rules.xor_sum(T, axis, keep) == expected
    assert rules.max(T, axis, False, True, keep) == rules.argmin(T, axis, True, keep) == expected
    assert rules.reduce(T, axis, FUNCTION, keep) == expected


def test_what_the_combining_function_is_attributed_for(rules):
    rules.sum(TensorType((16,), i8), 0, False, None)
    rules.sum(F, 0, False, None)
    rules.sum(F, 0, False, f64)
    rules.max(F, 0, False, True, False)
    rules.max(F, 0, True, True, False)
    rules.argmin(F, 0, False, False)
    rules.cumprod(F, 0, False)
    rules.reduce(TupleType((T, F)), 0, FUNCTION, False)
    assert rules.asked == [
        ("sum", [i32], "zg.sum"), ("sum", [f32], "zg.sum"), ("sum", [f64], "zg.sum"), ("max", [f16], "zg.max"),
        ("argmax", [f16, i32], "zg.max"), ("argmin_any", [f16, i32], "zg.argmin"), ("cumprod", [f32], "zg.cumprod"),
        (FUNCTION, [i32, f16], "zg.reduce"),
    ]  # fmt: skip
    assert all(function is FUNCTION or function in COMBINE for function, _, _ in rules.asked)


def test_dtypes_of_results(rules):
    assert rules.sum(TensorType((16,), u8), 0, False, None) == u32
    assert rules.sum(LINE, None, False, f64) == f64
    assert rules.max(F, 0, True, True, False) == TupleType((TensorType((16,), f16), TensorType((16,), i32)))
    assert rules.max(LINE, None, True, True, False) == TupleType((f32, i32))
    assert rules.cumsum(TensorType((16,), i1), 0, False) == TensorType((16,), i32)
    assert rules.cumsum(F, -1, True) == TensorType((4, 16), f16)
    assert rules.associative_scan(TupleType((T, F)), 1, FUNCTION, False) == TupleType((T, F))
    assert rules.sort(F, None, True) is rules.sort(F, 1, False) is rules.topk(F, 4, -1) is None  # The library's.
    assert rules.histogram(TensorType((16,), i64), 8, TensorType((16,), i1)) == TensorType((8,), i32)


@pytest.mark.parametrize(
    ("name", "arguments", "error", "words"),
    [
        ("sum", (f32, 0, False, None), KernelTypeError, "zg.sum: the operand must be a tensor of numbers; got f32"),
        ("sum", (TensorType((4,), PtrType(f32)), 0, False, None), KernelTypeError, "a tensor of numbers"),
        ("sum", (T, 2, False, None), KernelValueError, "axis 2 is not one of the 2 axes"),
        ("sum", (T, -3, False, None), KernelValueError, "axis -3"),
        ("sum", (T, 0, False, i1), KernelValueError, "zg.sum: dtype must be an integer or a float; got i1"),
        ("xor_sum", (F, 0, False), KernelTypeError, "zg.xor_sum: the operands must be integers"),
        ("max", (constant(1), 0, False, True, False), KernelTypeError, "zg.max: the operand must be a tensor"),
        ("argmax", (f32, 0, True, False), KernelTypeError, "the operand must be a tensor"),
        ("reduce", (f32, 0, FUNCTION, False), KernelTypeError, "a tensor, or a tuple of tensors; got f32"),
        ("reduce", (TupleType((T, i32)), 0, FUNCTION, False), KernelTypeError, "a tuple of tensors"),
        (
            "reduce",
            (TupleType((T, LINE)), 0, FUNCTION, False),
            KernelTypeError,
            r"got \[4, 16\] and \[16\]",
        ),
        ("associative_scan", (T, 2, FUNCTION, False), KernelValueError, "axis 2"),
        ("cumsum", (T, 5, False), KernelValueError, "zg.cumsum: axis 5"),
        ("sort", (T, 0, False), KernelValueError, "the axis must be the last one; got axis 0"),
        ("topk", (T, 3, None), KernelValueError, "k must be a power of two up to 16; got 3"),
        ("topk", (T, 32, None), KernelValueError, "up to 16; got 32"),
        ("topk", (T, 4, 0), KernelValueError, "the axis must be the last one"),
        ("histogram", (LINE, 8, None), KernelTypeError, "a tensor of integers with one axis"),
        ("histogram", (T, 8, None), KernelTypeError, "with one axis"),
        ("histogram", (TensorType((16,), i32), 10, None), KernelValueError, "a power of two up to"),
        ("histogram", (TensorType((16,), i32), 8, i1), KernelTypeError, "the mask must be tensor<x16, i1>; got i1"),
    ],
)
def test_what_is_no_reduction(rules, name, arguments, error, words):
    with pytest.raises(error, match=words):
        getattr(rules, name)(*arguments)
