"""Arguments of calls that are written in the language: checked before their function is attributed."""

from __future__ import annotations

import pytest
from call_types import Types

from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.types import PtrType, TensorType, f16, f32, i1, i32, i64, u64
from ziggurat.transforms.calls.promotion import constant

CHECKS = Types()
T = TensorType((16,), i32)
FT = TensorType((16,), f32)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("cdiv", (i32, constant(4))),
        ("cdiv", (T, i64)),
        ("sigmoid", (f16,)),
        ("sigmoid", (T,)),
        ("softmax", (TensorType((4, 8), f32), -2)),
        ("softmax", (T, 0)),
        ("philox", (u64, i32, T, constant(0), i1, 10)),
        ("philox", (T, i32, i32, i32, i32, 10)),
        ("rand", (T, i32, 0)),
        ("rand", (i32, T, 0)),
        ("randn", (constant(3), i64, 100)),
        ("randint4x", (i32, i32, 7)),
    ],
)
def test_what_is_taken(name, arguments):
    assert getattr(CHECKS, name)(*arguments) is None


@pytest.mark.parametrize(
    ("name", "arguments", "error", "words"),
    [
        ("cdiv", (f32, i32), KernelTypeError, "'x' must be an integer or a tensor of integers; got f32"),
        ("cdiv", (i32, PtrType(i32)), KernelTypeError, "'div' must be an integer"),
        ("cdiv", (T, TensorType((8,), i32)), KernelTypeError, r"zg.cdiv: the shapes \[16\] and \[8\] do not match"),
        (
            "sigmoid",
            (PtrType(f32),),
            KernelTypeError,
            "zg.sigmoid: the operands must be numbers; got a pointer, ptr<f32>",
        ),
        ("sigmoid", (constant("x"),), KernelTypeError, "zg.sigmoid: the operands must be numbers"),
        ("softmax", (f32, 0), KernelTypeError, "zg.softmax: the operand must be a tensor of numbers; got f32"),
        (
            "softmax",
            (TensorType((4,), PtrType(f32)), 0),
            KernelTypeError,
            "zg.softmax: the operand must be a tensor of numbers",
        ),
        ("softmax", (FT, 1), KernelValueError, "zg.softmax: axis 1 is not one of the 1 axes"),
        ("philox", (i32, i32, i32, FT, i32, 10), KernelTypeError, "'c2' must be an integer"),
        (
            "philox",
            (i32, i32, i32, i32, i32, -1),
            KernelValueError,
            "from 0 to 100; got -1",
        ),
        ("rand", (i32, f32, 10), KernelTypeError, "zg.rand: 'offset' must be an integer"),
        ("rand", (T, TensorType((8,), i32), 10), KernelTypeError, r"zg.rand: the shapes \[16\] and \[8\] do not match"),
        ("randn", (i32, i32, 101), KernelValueError, "zg.randn: 'n_rounds'"),
        ("randint", (i32, i32, True), KernelValueError, "zg.randint: 'n_rounds'"),
        ("rand4x", (constant(0.5), i32, 10), KernelTypeError, "zg.rand4x: 'seed' must be an integer"),
        ("randn4x", (i32, constant("a"), 10), KernelTypeError, "zg.randn4x: 'offset' must be an integer"),
        ("randint4x", (i32, i32, 2.0), KernelValueError, "zg.randint4x: 'n_rounds'"),
    ],
)
def test_what_is_not(name, arguments, error, words):
    with pytest.raises(error, match=words):
        getattr(CHECKS, name)(*arguments)
