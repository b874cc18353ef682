"""Sorting networks run on the interpreter: keys in the order of the values, sorted as NumPy sorts, NaNs last."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.types import TensorType, TupleType, bf16, f8e4m3, f16, f32, f64, i1, i8, i16, i32, i64, u8, u32
from ziggurat.frontends.library import LIBRARY
from ziggurat.frontends.library.sorting import MAX_UNROLLED, first_keys, to_keys, to_values
from ziggurat.transforms.attribution import constant, function_name
from ziggurat.transforms.attribution.attribute import Attributor
from ziggurat.transforms.simplify import simplify

NUMPY = {
    i1: np.bool_, i8: np.int8, i16: np.int16, i32: np.int32, i64: np.int64, u8: np.uint8, u32: np.uint32,
    f16: np.float16, bf16: ml_dtypes.bfloat16, f32: np.float32, f64: np.float64, f8e4m3: ml_dtypes.float8_e4m3fn,
}  # fmt: skip


SIGNED = {8: i8, 16: i16, 32: i32, 64: i64}


@zg.kernel
def apply(source, target, shape: zg.constexpr, count: zg.constexpr, part: zg.constexpr):
    result = part(zg.load(zg.add(source, zg.reshape(zg.arange(0, count), shape))))
    zg.store(zg.add(target, zg.reshape(zg.arange(0, result.numel), result.shape)), result)


def computed(array, element, part, result, shape=None):
    """The result of `part(tensor)` for an array, in this dtype and the array's shape, by a kernel of one program."""
    model = apply.triton(zg.ptr(element), zg.ptr(result), array.shape, array.size, part)
    zg.verify(model)
    out = np.zeros(array.shape if shape is None else shape, NUMPY[result])
    zg.run(model, 1, array, out)
    return out


@zg.function
def there_and_back(x):
    return to_values(to_keys(x), x.dtype)


@zg.function
def rising(x):
    return first_keys(x, x.shape[-1], False)


@zg.function
def falling(x):
    return first_keys(x, x.shape[-1], True)


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
    width = 8 if element == i1 else element.bits
    keys = computed(values, element, to_keys, element if element.is_int and element != i1 else SIGNED[width])
    assert keys.dtype.kind in "iu"
    numbers = values.astype(np.float64) if not element.is_int else values
    is_nan = numbers != numbers
    for index, other in np.ndindex(16, 16):
        if not is_nan[index] and not is_nan[other] and numbers[index] != numbers[other]:
            assert (keys[index] < keys[other]) == (numbers[index] < numbers[other])
    if is_nan.any():
        assert (keys[is_nan] == np.iinfo(keys.dtype).max).all() and (keys[~is_nan] < keys[is_nan].max()).all()
    back = computed(values, element, there_and_back, element)
    np.testing.assert_array_equal(back[~is_nan].view(np.uint8), values[~is_nan].view(np.uint8))
    assert (back[is_nan] != back[is_nan]).all()


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("shape", [(1,), (2,), (16,), (64,), (2048,), (2, 8), (2, 2, 4), (2, 16, 64)], ids=str)
def test_sorting_along_the_last_axis(shape, descending):
    values = np.random.default_rng(0).integers(-20, 20, shape).astype(np.int32)
    actual = computed(values, i32, falling if descending else rising, i32)
    expected = np.sort(values, axis=-1)
    np.testing.assert_array_equal(actual, expected[..., ::-1] if descending else expected)


def test_the_stages_of_a_large_sort_are_a_loop():
    """All steps stand in it once, so that the model of a sort of 2^n keys grows with n."""

    def ops(size, kind=object):
        model = simplify(apply.triton(zg.ptr(i32), zg.ptr(i32), (size,), size, rising))
        return sum(isinstance(op, kind) for op in model.walk())

    assert [ops(size, scf.For) for size in (MAX_UNROLLED, 2 * MAX_UNROLLED)] == [0, 1]
    assert ops(2 * MAX_UNROLLED) < ops(MAX_UNROLLED)
    assert ops(1 << 15) - ops(1 << 13) == ops(1 << 13) - ops(1 << 11) > 0


def test_unsigned_numbers_are_compared_as_such():
    values = np.array([1, 2**31, 0, 2**32 - 1], np.uint32)
    assert computed(values, u32, rising, u32).tolist() == [0, 1, 2**31, 2**32 - 1]


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("descending", [False, True])
def test_the_first_ones(count, descending):
    values = np.random.default_rng(count).integers(-20, 20, (4, 16), np.int32)

    @zg.function
    def first(x):
        return first_keys(x, count, descending)

    actual = computed(values, i32, first, i32, (4, count))
    expected = np.sort(values, axis=1)[:, ::-1] if descending else np.sort(values, axis=1)
    np.testing.assert_array_equal(actual, expected[:, :count])


@pytest.mark.parametrize(("size", "count"), [(2048, 4), (2048, 64), (4096, 2048), (1 << 14, 1)])
def test_the_first_ones_of_many(size, count):
    """Runs of 64 are sorted by a loop over stages."""
    values = np.random.default_rng(size).integers(-(2**31), 2**31, size, np.int64).astype(np.int32)

    @zg.function
    def first(x):
        return first_keys(x, count, False)

    np.testing.assert_array_equal(computed(values, i32, first, i32, (count,)), np.sort(values)[:count])


def test_types_of_results():
    tensor = TensorType((4, 16), f16)

    def result(name, *options):
        function = function_name(LIBRARY[name])
        return Attributor().function(function, (tensor, *map(constant, options)), None).result

    assert result("sort", None, True) == result("sort", 1, False) == tensor
    assert result("argsort", None, False) == TensorType((4, 16), i32)
    four = TensorType((4, 4), f16)
    assert result("topk", 4, -1, True, False) == four
    assert result("topk", 4, None, True, True) == TupleType((four, TensorType((4, 4), i32)))


@zg.kernel
def sorts(p):
    x = zg.load(zg.add(p, zg.arange(0, 16)))
    zg.store(zg.add(p, zg.arange(0, 16)), zg.sort(x, None, True))
    zg.store(zg.add(p, zg.arange(0, 2)), zg.topk(x, 2))


def test_a_sort_is_a_call_of_a_function():
    model = sorts.triton(zg.ptr(i8))
    *_, kernel = model.functions().values()
    callees = [op.callee for op in kernel.walk() if isinstance(op, tt.Call)]
    assert callees == [
        "sort_tensor<x16, i8>_None_True_tensor<x16, i8>",
        "topk_tensor<x16, i8>_2_None_True_False_tensor<x2, i8>",
    ]
