"""Rules of products of matrices."""

from __future__ import annotations

import pytest
from call_types import Types

from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.types import PtrType, TensorType, bf16, f8e4m3, f16, f32, f64, i8, i32, u8
from ziggurat.transforms.calls.emit import Operand

R = Types()
P = PtrType(f32)


def matrix(rows, columns, element, *batch):
    return TensorType((*batch, rows, columns), element)


@pytest.mark.parametrize(
    ("element", "result"), [(f16, f32), (bf16, f32), (f8e4m3, f32), (f32, f32), (f64, f64), (i8, i32), (u8, i32)]
)
def test_dtypes_of_dot(element, result):
    found = R.dot(matrix(16, 32, element), matrix(32, 8, element), None)
    assert found == matrix(16, 8, result)
    assert R.dot(matrix(16, 32, element, 2), matrix(32, 8, element, 2), matrix(16, 8, result, 2)).shape == (2, 16, 8)


def test_f16_accumulates_in_f16_where_asked():
    small = matrix(16, 16, f16)
    assert R.dot(small, small, small) == small
    with pytest.raises(KernelTypeError, match=r"zg.dot of f32 accumulates in f32; got f16") as caught:
        R.dot(matrix(16, 16, f32), matrix(16, 16, f32), small)
    assert caught.value.hint == "begin with zg.zeros((16, 16), zg.f32)"


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((matrix(16, 32, f16), matrix(16, 32, f16), None), KernelTypeError, "the inner sizes differ"),
        (
            (matrix(16, 16, f16), matrix(16, 16, f32), None),
            KernelTypeError,
            "one element type, or both 8-bit floats or integers; got f16 and f32",
        ),
        (
            (matrix(16, 16, f8e4m3), matrix(16, 16, i8), None),
            KernelTypeError,
            "one element type, or both 8-bit floats or integers; got f8e4m3 and i8",
        ),
        (
            (matrix(16, 16, i32), matrix(16, 16, i32), None),
            KernelTypeError,
            "the operands must be floats or 8-bit integers; got i32",
        ),
        (
            (matrix(16, 16, P), matrix(16, 16, P), None),
            KernelTypeError,
            "the operands must be floats or 8-bit integers; got ptr",
        ),
        ((TensorType((16,), f16), matrix(16, 16, f16), None), KernelTypeError, "the operands must be two matrices"),
        ((matrix(16, 16, f16, 2), matrix(16, 16, f16, 4), None), KernelTypeError, "two equal batches"),
        ((matrix(16, 16, f16), f16, None), KernelTypeError, "zg.dot: the operand must be a tensor"),
        ((matrix(16, 16, f16), matrix(16, 16, f16), f32), KernelTypeError, "the operand must be a tensor; got f32"),
        ((matrix(16, 16, f16), matrix(16, 16, f16), None, "fast"), KernelValueError, "got 'fast'"),
    ],
)
def test_products_that_are_none(arguments, error, words):
    with pytest.raises(error, match=words):
        R.dot(*arguments)


def test_out_dtype_is_that_of_the_accumulator():
    small = matrix(16, 16, f16)
    assert R.dot(small, small, None, None, None, f16) == small
    with pytest.raises(KernelTypeError, match="the accumulator must be f16, as 'out_dtype' says"):
        R.dot(small, small, matrix(16, 16, f32), None, None, f16)
    with pytest.raises(KernelTypeError, match="accumulates in f32 or f16; got bf16"):
        R.dot(small, small, None, None, None, bf16)


def test_a_dot_of_several_axes_is_one_of_a_batch(emitted, calls):
    types = [matrix(4, 8, f16, 2, 2), matrix(8, 16, f16, 2, 2)]
    result = R.dot(*types, None)
    assert result == matrix(4, 16, f32, 2, 2)
    built = emitted(types, lambda emit, x, y: calls(emit).dot(result, Operand(x.type, x), Operand(y.type, y), None))
    assert built.names == ["arith.constant", "tt.reshape", "tt.reshape", "tt.reshape", "tt.dot", "tt.reshape"]
    assert built.result.op.value.type == matrix(4, 16, f32, 4)
