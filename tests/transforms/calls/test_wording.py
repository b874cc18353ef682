"""Values and types as the author of a kernel writes them."""

from __future__ import annotations

import pytest

from ziggurat.codemodel.types import ConstantType, PtrType, TensorType, TupleType, f32, i32, pyobject
from ziggurat.frontends.language import CompareKind
from ziggurat.frontends.library import COMBINE
from ziggurat.transforms.calls.constant_arguments import FunctionName, describe, show
from ziggurat.transforms.calls.promotion import constant

FUNCTION = FunctionName("combine", COMBINE["sum"].model)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        ("a", "'a'"),
        (None, "None"),
        (f32, "zg.f32"),
        (PtrType(f32), "zg.ptr(zg.f32)"),
        (TensorType((4,), i32), "tensor<x4, i32>"),
        (CompareKind.LESS_THAN, "zg.CompareKind.LESS_THAN"),
        (FUNCTION, "the function 'combine'"),
        ((), "()"),
        ((1,), "(1,)"),
        ((1, None, (f32, "x")), "(1, None, (zg.f32, 'x'))"),
    ],
)
def test_constants_are_shown_as_they_are_written(value, text):
    assert show(value) == text


def test_long_constants_are_cut_short():
    assert show("x" * 58) == repr("x" * 58)
    cut = show("x" * 59)
    assert len(cut) == 60 and cut.endswith("…") and cut.startswith("'xxx")


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (i32, "i32"),
        (PtrType(f32), "ptr<f32>"),
        (TensorType((4, 8), f32), "tensor<x4, x8, f32>"),
        (constant(3), "the constant 3"),
        (constant(None), "None"),
        (constant((1, f32)), "the tuple (1, zg.f32)"),
        (constant(f32), "the type zg.f32"),
        (constant("n"), "the constant 'n'"),
        (ConstantType(FUNCTION, pyobject), "the function 'combine'"),
        (TupleType((i32, constant(2))), "the tuple (i32, 2)"),
        (TupleType((TupleType((i32, f32)),)), "the tuple ((i32, f32),)"),
    ],
)
def test_what_is_known_of_a_value_is_described(type_, text):
    assert describe(type_) == text
