"""Type rules of the calls that make and reshape tensors."""

from __future__ import annotations

import pytest
from call_types import Types

from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.types import (
    MAX_ELEMENTS,
    PtrType,
    TensorType,
    f32,
    i32,
)  # fmt: skip
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
    with pytest.raises(
        KernelValueError, match=r"the size 48 in the shape \[4, 48\] is not a power of two"
    ) as error_info:
        checked_shape(ZEROS, (4, 48))
    assert error_info.value.hint.startswith("use 64 (zg.next_power_of_2(48))")
    for size in (0, -4):
        with pytest.raises(KernelValueError) as error_info:
            checked_shape(ZEROS, (size,))
        assert error_info.value.hint is None
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
