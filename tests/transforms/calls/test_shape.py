"""Type rules of the calls that make and reshape tensors."""

from __future__ import annotations

import pytest
from call_types import Types

from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.types import (
    MAX_ELEMENTS,
    PtrType,
    TensorType,
    TupleType,
    f16,
    f32,
    i1,
    i32,
    i64,
    u8,
)  # fmt: skip
from ziggurat.transforms.calls.promotion import constant
from ziggurat.transforms.calls.rule import Typing, is_power_of_two
from ziggurat.transforms.calls.rule import axis as checked_axis
from ziggurat.transforms.calls.rule import shape as checked_shape

R = Types()
T = TensorType((4, 16), i32)
P = PtrType(f32)
ZEROS = Typing("zeros")


def test_powers_of_two():
    assert [n for n in range(-2, 17) if is_power_of_two(n)] == [1, 2, 4, 8, 16]


def test_a_shape_is_powers_of_two():
    assert checked_shape(ZEROS, 16) == (16,) and checked_shape(ZEROS, ()) == ()
    assert checked_shape(ZEROS, (1024, 1024)) == (1024, 1024)
    with pytest.raises(KernelValueError, match=r"the size 48 in the shape \[4, 48\] is not a power of two") as caught:
        checked_shape(ZEROS, (4, 48))
    assert caught.value.hint.startswith("use 64 (zg.next_power_of_2(48))")
    for size in (0, -4):
        with pytest.raises(KernelValueError) as caught:
            checked_shape(ZEROS, (size,))
        assert caught.value.hint is None
    with pytest.raises(KernelValueError, match=f"more than {MAX_ELEMENTS} elements"):
        checked_shape(ZEROS, (2048, 1024))
    for size in (True, 4.0, "4", i32):
        with pytest.raises(KernelTypeError, match="a shape must be made of integers"):
            checked_shape(ZEROS, (4, size))


def test_an_axis_counts_from_either_end():
    assert [checked_axis("zg.sum", axis, 3) for axis in (0, 2, -1, -3)] == [0, 2, 2, 0]
    for axis in (3, -4):
        with pytest.raises(KernelValueError, match=f"zg.sum: axis {axis} is not one of the 3 axes"):
            checked_axis("zg.sum", axis, 3)


def test_creation():
    assert R.arange(0, 16) == R.arange(5, 21) == R.arange(-16, 0) == TensorType((16,), i32)
    assert R.zeros((4, 16), f16) == TensorType((4, 16), f16) and R.zeros((), i1) == i1
    assert R.full((8,), constant(255), u8) == R.full((8,), i64, u8) == TensorType((8,), u8)


@pytest.mark.parametrize(
    ("name", "arguments", "error", "words"),
    [
        ("arange", (0, 12), KernelValueError, r"must give a power of two of numbers; got 12"),
        ("arange", (8, 8), KernelValueError, "got 0"),
        ("arange", (0, 1 << 21), KernelValueError, "at most 1048576 numbers"),
        ("arange", (2**31, 2**31 + 4), KernelValueError, "constant 2147483648 does not fit in i32"),
        ("arange", (2**31 - 2, 2**31 + 2), KernelValueError, "constant 2147483650 does not fit in i32"),
        ("arange", (-(2**31) - 2, -(2**31) + 2), KernelValueError, "constant -2147483650 does not fit in i32"),
        ("zeros", ((4,), "f32"), KernelTypeError, "zg.zeros: 'dtype' must be a dtype"),
        ("zeros", ((4,), P), KernelTypeError, "zg.zeros: 'dtype' must be a dtype"),
        ("full", ((4,), T, i32), KernelTypeError, "zg.full: 'value' must be a scalar"),
        ("full", ((4,), constant("1"), i32), KernelTypeError, "zg.full: 'value' must be a scalar"),
        ("full", ((3,), constant(1), u8), KernelValueError, "not a power of two"),
        ("expand", (T, 3), KernelValueError, "axis 3 is not one of the 3 axes"),
        ("expand", (T, (0, 0)), KernelValueError, "does not name different axes"),
        ("expand", (T, (0, -4)), KernelValueError, "does not name different axes"),
        ("expand", (T, ()), KernelValueError, "does not name different axes"),
        ("broadcast", (T, constant((16, 16))), KernelTypeError, "do not match"),
        ("broadcast", (T, constant((16,))), KernelTypeError, "does not broadcast to"),
        ("broadcast", (T, constant("x")), KernelTypeError, "'shape' must be a shape or a tensor"),
        ("reshape", (T, (8, 4)), KernelTypeError, r"\[4, 16\] has 64 elements, \[8, 4\] has 32"),
        ("reshape", (i32, (1,)), KernelTypeError, "zg.reshape: the operand must be a tensor; got i32"),
        ("ravel", (i32,), KernelTypeError, "zg.ravel: the operand must be a tensor"),
        ("trans", (TensorType((16,), i32), ()), KernelTypeError, "at least two axes"),
        ("trans", (T, (0, 0)), KernelValueError, r"zg.trans: \[0, 0\] is not a permutation of the 2 axes"),
        ("permute", (T, ()), KernelValueError, r"zg.permute: \[\] is not a permutation"),
        ("permute", (T, (1, -2)), KernelValueError, "is not a permutation"),
        ("permute", (T, ((True, False),)), KernelValueError, "is not a permutation"),
        ("join", (constant(1), constant(2)), KernelTypeError, "got two constants"),
        ("join", (T, TensorType((8,), i32)), KernelTypeError, "do not match"),
        ("split", (T,), KernelTypeError, "whose last axis has size 2"),
        ("cat", (T, TensorType((16, 4), i32)), KernelTypeError, "two tensors of one shape"),
        ("cat", (T, i32), KernelTypeError, "zg.cat: the operand must be a tensor"),
        ("gather", (T, TensorType((4, 2), f32), 1), KernelTypeError, "the index must hold integers"),
        ("gather", (T, TensorType((16,), i32), 1), KernelTypeError, "equally many axes"),
        ("gather", (T, TensorType((8, 16), i32), 1), KernelTypeError, "differ along another axis than 1"),
        ("gather", (T, T, 2), KernelValueError, "axis 2"),
    ],
)
def test_what_makes_no_tensor(name, arguments, error, words):
    with pytest.raises(error, match=words):
        getattr(R, name)(*arguments)


def test_shapes():
    assert R.expand(T, 0).shape == (1, 4, 16) and R.expand(T, (-1, 0)).shape == (1, 4, 16, 1)
    assert R.expand(P, 0) == TensorType((1,), P) and R.expand(constant(3), 0) == TensorType((1,), i32)
    assert R.broadcast(TensorType((16,), P), T) == TensorType((4, 16), P)
    assert R.broadcast(constant(1), constant((2, 2))) == TensorType((2, 2), i32)
    assert R.broadcast(i32, constant(())) == i32
    assert R.reshape(T, (8, 8)) == R.reshape(T, (8, -1)) == TensorType((8, 8), i32)
    assert R.ravel(T) == R.reshape(T, 64) == TensorType((64,), i32)
    wide = TensorType((2, 4, 8), P)
    assert R.trans(wide, ()) == TensorType((2, 8, 4), P)
    assert R.permute(wide, (2, 0, 1)) == R.trans(wide, ((2, 0, 1),)) == TensorType((8, 2, 4), P)


def test_two_in_one_and_one_in_two():
    assert R.join(T, TensorType((16,), f16)) == TensorType((4, 16, 2), f16)
    assert R.join(i32, constant(1)) == TensorType((2,), i32) and R.join(P, P) == TensorType((2,), P)
    half = TensorType((4,), f32)
    assert R.split(TensorType((4, 2), f32)) == TupleType((half, half))
    assert R.split(TensorType((2,), f32)) == TupleType((f32, f32))
    assert R.cat(T, TensorType((4, 16), i64)) == TensorType((8, 16), i64)
    assert R.gather(TensorType((4, 16), P), TensorType((4, 2), u8), -1) == TensorType((4, 2), P)
