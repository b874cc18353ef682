"""Type rules of reductions, scans, sorting and histograms, and what they ask of the functions that combine."""

from __future__ import annotations

import pytest
from call_types import Types

from ziggurat.codemodel.types import (
    TensorType,
    TupleType,
    bf16,
    f8e5m2,
    f16,
    f32,
    f64,
    i1,
    i8,
    i32,
    u8,
    u16,
    u32,
    u64,
)  # fmt: skip
from ziggurat.frontends.language.languages import EXPLICIT
from ziggurat.frontends.library import COMBINE
from ziggurat.frontends.triton.language import TRITON
from ziggurat.transforms.calls.constant_arguments import FunctionName
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
    elements = (f16, bf16, f8e5m2, f32, f64, i8)
    assert [computing(e, EXPLICIT) for e in elements] == [f32, f32, f32, f32, f64, i32]
    assert [computing(e, TRITON) for e in elements] == [f16, bf16, f32, f32, f64, i32]


def test_what_the_combining_function_is_attributed_for(rules):
    rules.sum(TensorType((16,), i8), 0, False, None)
    rules.sum(F, 0, False, None)
    rules.sum(F, 0, False, f64)
    rules.max(F, 0, False, True, False)
    rules.max(F, 0, True, True, False)
    rules.argmin(F, 0, False, False)
    rules.cumprod(F, 0, False)
    rules.reduce(TupleType((T, F)), 0, FUNCTION, False)
    assert rules.combinations == [
        ("sum", [i32], "zg.sum"), ("sum", [f32], "zg.sum"), ("sum", [f64], "zg.sum"), ("max", [f16], "zg.max"),
        ("argmax", [f16, i32], "zg.max"), ("argmin", [f16, i32], "zg.argmin"), ("cumprod", [f32], "zg.cumprod"),
        (FUNCTION, [i32, f16], "zg.reduce"),
    ]  # fmt: skip
    assert all(function is FUNCTION or function in COMBINE for function, _, _ in rules.combinations)
