"""Values of batches: broadcasting, choosing, merging, comparing, marks, and undefined values."""

from __future__ import annotations

import numpy as np
import pytest

from ziggurat.backend.reference.values import (
    POINTER,
    Marked,
    chosen,
    element_dtype,
    expand,
    is_array,
    marked,
    marks_of,
    merged,
    over,
    plain,
    same_value,
    undefined,
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
    i32,
    pyobject,
    u8,
)  # fmt: skip


def test_dtypes_of_elements():
    assert all(element_dtype(scalar) == scalar.dtype for scalar in SCALARS.values())
    assert element_dtype(f16) == np.float16 and element_dtype(TensorType((4,), i1)) == np.bool_
    assert element_dtype(PtrType(f32)) == element_dtype(TensorType((4,), PtrType(i8))) == POINTER
    with pytest.raises(AssertionError, match="has no elements"):
        element_dtype(pyobject)


def test_axes_of_size_one_are_expanded():
    splat = np.full((3, 1, 1), 7)
    assert expand(splat, (2, 4)).shape == (3, 2, 4) and not expand(splat, (2, 4)).flags.owndata
    assert over(np.arange(3), 2).shape == (3, 1, 1)
    assert uniform(np.array([5])) and uniform(np.array([5, 5])) and not uniform(np.array([5, 6]))


def test_values_are_chosen_by_program():
    each, shared = np.arange(4) * 10, np.array([[7, 8]])
    actual = chosen((each, (shared,)), np.array([1, 3]))
    assert actual[0].tolist() == [10, 30] and actual[1][0] is shared, "what is the same for all is held once"
    part = chosen((each, shared, each), np.array([2]))
    assert part[0].tolist() == [20] and part[1] is shared


def test_values_that_are_no_arrays_stay_as_they_are():
    assert chosen((np.array([1, 2]), (np.array([3]), "text")), np.array([1])) == (
        np.array([2]),
        (np.array([3]), "text"),
    )
    assert is_array(np.zeros(1)) and not is_array([1])


def test_parts_are_merged_at_their_places():
    actual = merged(4, [(np.array([0, 3]), np.array([[1], [2]])), (np.array([1, 2]), np.array([[5, 6]]))])
    assert actual.tolist() == [[1, 1], [5, 6], [5, 6], [2, 2]]
    pair = merged(2, [(np.array([0]), (np.array([1]), np.array([2]))), (np.array([1]), (np.array([3]), np.array([4])))])
    assert [part.tolist() for part in pair] == [[1, 3], [2, 4]]
    whole = np.arange(3)
    assert merged(3, [(np.arange(3), whole)]) is whole


def test_values_are_compared_bit_by_bit():
    a = np.array([[1.0], [1.0]], np.float32)
    assert same_value(a, a) and same_value(a, np.array([[1.0]], np.float32)) and same_value((a, a), (a, a.copy()))
    assert not same_value(np.array([0.0]), np.array([-0.0]))
    assert same_value(np.array([np.nan]), np.array([np.nan]))
    assert same_value(None, None) and not same_value(1, 2)


@pytest.mark.parametrize("type_", [i32, f32, i1, u8, PtrType(f32)], ids=str)
def test_undefined_values_are_zeros(type_):
    assert undefined(type_).tolist() == [0] and undefined(type_).dtype == element_dtype(type_)
    assert undefined(TensorType((4, 8), type_)).shape == (1, 1, 1)


def test_undefined_tuples_have_undefined_parts():
    first, second = undefined(TupleType((f32, TensorType((4,), i32))))
    assert first.tolist() == [0] and second.shape == (1, 1)
    assert [part.tolist() for part in undefined(DescriptorType((8, 16), f32))] == [[0]] * 5


def test_marks_go_with_their_elements():
    some = Marked(np.arange(4), np.array([0, 1, 0, 2]))
    assert plain(some) is some.array and marks_of(some) is some.marks and marks_of(np.zeros((3, 2))).tolist() == [[0]]
    assert marked(some.array, np.zeros(1, int)) is some.array and marked(some.array, None) is some.array
    part = chosen((some, np.array([5])), np.array([1, 2]))
    assert part[0].marks.tolist() == [1, 0] and part[1].tolist() == [5]
    whole = merged(3, [(np.array([0, 2]), part[0]), (np.array([1]), np.array([9]))])
    assert whole.array.tolist() == [1, 9, 2] and whole.marks.tolist() == [1, 0, 0]
    assert is_array(merged(2, [(np.array([0]), np.array([1])), (np.array([1]), Marked(np.array([2]), np.array([0])))]))
    assert same_value(some, Marked(some.array, some.marks.copy())) and not same_value(some, some.array)
