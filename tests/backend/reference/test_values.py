"""Values of batches: what is held once, chosen, merged, compared bit by bit, and left undefined."""

from __future__ import annotations

import numpy as np
import pytest

from ziggurat.backend.reference.values import (
    ADDRESS,
    Descriptor,
    chosen,
    element_dtype,
    expand,
    is_array,
    merged,
    over,
    same_value,
    transformed,
    undefined,
    undefined_element,
    uniform,
)  # fmt: skip
from ziggurat.codemodel.types import (
    SCALARS,
    DescriptorType,
    PtrType,
    TensorType,
    TupleType,
    f16,
    f32,
    i1,
    i8,
    i16,
    i32,
    i64,
    pyobject,
    u8,
    u16,
    u32,
    u64,
)  # fmt: skip


def test_dtypes_of_elements():
    assert all(element_dtype(scalar) == scalar.dtype for scalar in SCALARS.values())
    assert element_dtype(f16) == np.float16 and element_dtype(TensorType((4,), i1)) == np.bool_
    assert element_dtype(PtrType(f32)) == element_dtype(TensorType((4,), PtrType(i8))) == ADDRESS
    with pytest.raises(AssertionError, match="has no elements"):
        element_dtype(pyobject)


def test_axes_of_size_one_stand_for_any():
    splat = np.full((3, 1, 1), 7)
    assert expand(splat, (2, 4)).shape == (3, 2, 4) and not expand(splat, (2, 4)).flags.owndata
    assert over(np.arange(3), 2).shape == (3, 1, 1)
    assert uniform(np.array([5])) and uniform(np.array([5, 5])) and not uniform(np.array([5, 6]))


def test_values_are_chosen_by_program():
    each, shared = np.arange(4) * 10, np.array([[7, 8]])
    found = chosen((each, (shared,)), np.array([1, 3]))
    assert found[0].tolist() == [10, 30] and found[1][0] is shared, "what is the same for all is held once"
    descriptor = Descriptor(each, (shared,), (each,), True)
    part = chosen(descriptor, np.array([2]))
    assert part.base.tolist() == [20] and part.nan and part.shape[0] is shared


def test_a_function_reaches_every_array():
    value = (np.array([1]), (np.array([2]), "text"))
    assert transformed(value, lambda array: array + 1) == (np.array([2]), (np.array([3]), "text"))
    assert is_array(np.zeros(1)) and not is_array([1])


def test_parts_are_merged_at_their_places():
    found = merged(4, [(np.array([0, 3]), np.array([[1], [2]])), (np.array([1, 2]), np.array([[5, 6]]))])
    assert found.tolist() == [[1, 1], [5, 6], [5, 6], [2, 2]]
    pair = merged(2, [(np.array([0]), (np.array([1]), np.array([2]))), (np.array([1]), (np.array([3]), np.array([4])))])
    assert [part.tolist() for part in pair] == [[1, 3], [2, 4]]
    whole = np.arange(3)
    assert merged(3, [(np.arange(3), whole)]) is whole


def test_equal_means_every_bit():
    a = np.array([[1.0], [1.0]], np.float32)
    assert same_value(a, a) and same_value(a, np.array([[1.0]], np.float32)) and same_value((a, a), (a, a.copy()))
    assert not same_value(np.array([0.0]), np.array([-0.0]))
    assert same_value(np.array([np.nan]), np.array([np.nan]))
    one, other = (Descriptor(np.array([n]), (), (), False) for n in (1, 2))
    assert same_value(one, Descriptor(np.array([1]), (), (), False)) and not same_value(one, other)
    assert same_value(None, None) and not same_value(1, 2)


@pytest.mark.parametrize(
    ("type_", "strict", "element"),
    [(i32, False, 0), (f32, False, 0.0), (i1, False, False), (i32, True, -0x55555555), (u8, True, 171),
     (PtrType(f32), True, 0), (PtrType(f32), False, 0)],
)  # fmt: skip
def test_what_is_undefined_is_zero_or_large(type_, strict, element):
    assert undefined_element(type_, strict) == element
    assert undefined(type_, strict).tolist() == [element]
    assert undefined(TensorType((4, 8), type_), strict).shape == (1, 1, 1)


@pytest.mark.parametrize("type_", [i1, i8, i16, i32, i64, u8, u16, u32, u64], ids=str)
def test_undefined_integers_show_in_sums(type_):
    one = undefined_element(type_, True)
    assert type_.limits[0] <= one <= type_.limits[1]
    assert type_ is i1 or abs(one) >= 2 ** (type_.bits - 2), "it is large"
    assert all((one << power) % 2**type_.bits for power in range(type_.bits)), "the sum of 2ⁿ of them is not 0"


def test_undefined_floats_are_nan_and_tuples_have_undefined_parts():
    assert np.isnan(undefined_element(f16, True))
    first, second = undefined(TupleType((f32, TensorType((4,), i32))), True)
    assert np.isnan(first).all() and second.shape == (1, 1)
    descriptor = undefined(DescriptorType((8, 16), f32), True)
    assert descriptor.base.tolist() == [0] and len(descriptor.shape) == len(descriptor.strides) == 2
