"""Sorting networks run on the interpreter: keys in the order of the values, sorted as NumPy sorts, NaNs last."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.types import (
    PtrType,
    TensorType,
    bf16,
    element_of,
    f8e4m3,
    f16,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
    shape_of,
    u8,
    u32,
)  # fmt: skip
from ziggurat.transforms.calls.emit import Emitter
from ziggurat.transforms.calls.sorting import sorted_keys, take_first, to_keys, to_values

NUMPY = {
    i1: np.bool_, i8: np.int8, i16: np.int16, i32: np.int32, i64: np.int64, u8: np.uint8, u32: np.uint32,
    f16: np.float16, bf16: ml_dtypes.bfloat16, f32: np.float32, f64: np.float64, f8e4m3: ml_dtypes.float8_e4m3fn,
}  # fmt: skip


def computed(array, element, build):
    """Run `build(emit, tensor)` on an array, by a kernel of one program."""

    def pointers(emit, base, shape):
        numbers = emit.add(tt.MakeRange(0, int(np.prod(shape))))
        if len(shape) > 1:
            numbers = emit.add(tt.Reshape(numbers, TensorType(shape, i32)))
        return emit.add(tt.AddPtr(emit.spread(base, shape), numbers))

    # The type of the result is known once it is built.
    draft = Builder.root([TensorType(array.shape, element)])
    result = build(Emitter(draft), draft.parameters[0]).type
    draft.abandon()
    builder = Builder.root([PtrType(element), PtrType(element_of(result))])
    emit = Emitter(builder)
    source, target = builder.parameters
    value = build(emit, emit.add(tt.Load(pointers(emit, source, array.shape))))
    emit.add(tt.Store(pointers(emit, target, shape_of(result)), value))
    builder.add(tt.Return([]))
    model = tt.Func("f", builder.finish())
    zg.verify(model)
    out = np.zeros(shape_of(result), NUMPY[element_of(result)])
    zg.run(model, 1, array, out)
    return out


def telling(element):
    """Sixteen values with the extremes, equal ones, and of floats both zeros, infinities and NaNs."""
    dtype = np.dtype(NUMPY[element])
    if element == i1:
        return np.array([True, False] * 8)
    if element.is_int:
        low, high = element.limits
        return np.array([3, low, high, 0, 7, low + 1, high - 1, 1, 3, 100, high // 2, 2, 5, 0, high // 3, 6], dtype)
    big = np.nan if element == f8e4m3 else np.inf
    some = [1.5, -big, big, np.nan, 0.0, -0.0, -1.5, 448.0, -np.nan, 0.25, 3.0, -3.0, 1.5, -448.0, 0.015625, 2.0]
    return np.array(some).astype(dtype)


@pytest.mark.parametrize("element", NUMPY, ids=str)
def test_keys_compare_as_values_do_and_give_them_back(element):
    values = telling(element)
    keys = computed(values, element, to_keys)
    assert keys.dtype.kind in "iu"
    numbers = values.astype(np.float64) if not element.is_int else values
    is_nan = numbers != numbers
    for index, other in np.ndindex(16, 16):
        if not is_nan[index] and not is_nan[other] and numbers[index] != numbers[other]:
            assert (keys[index] < keys[other]) == (numbers[index] < numbers[other])
    if is_nan.any():
        assert (keys[is_nan] == np.iinfo(keys.dtype).max).all() and (keys[~is_nan] < keys[is_nan].max()).all()
    back = computed(values, element, lambda emit, x: to_values(emit, to_keys(emit, x), element))
    np.testing.assert_array_equal(back[~is_nan].view(np.uint8), values[~is_nan].view(np.uint8))
    assert (back[is_nan] != back[is_nan]).all()


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("shape", [(1,), (2,), (16,), (64,), (2, 8), (2, 2, 4)], ids=str)
def test_sorting_along_the_last_axis(shape, descending):
    values = np.random.default_rng(0).integers(-20, 20, shape).astype(np.int32)
    found = computed(values, i32, lambda emit, x: sorted_keys(emit, x, descending))
    expected = np.sort(values, axis=-1)
    np.testing.assert_array_equal(found, expected[..., ::-1] if descending else expected)


def test_unsigned_numbers_are_compared_as_such():
    values = np.array([1, 2**31, 0, 2**32 - 1], np.uint32)
    assert computed(values, u32, lambda emit, x: sorted_keys(emit, x, False)).tolist() == [0, 1, 2**31, 2**32 - 1]


@pytest.mark.parametrize("count", [1, 2, 4, 16])
def test_the_first_ones(count):
    values = np.arange(64, dtype=np.int32).reshape(4, 16) - 30
    found = computed(values, i32, lambda emit, x: take_first(emit, x, count))
    np.testing.assert_array_equal(found, values[:, :count])
