"""Reductions that choose an element with its index: which are divided, and with which results."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.simplify import simplify
from ziggurat.transforms.tiles.choices import divide_choices
from ziggurat.transforms.tiles.prepare import prepare_for_gpu

ROWS, COLUMNS = 4, 16
NAN, INF = np.nan, np.inf


@zg.function
def nan_is_largest(a, i, b, j):
    better = (a > b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    first = better | (equal & (i < j))
    return zg.where(first, a, b), zg.where(first, i, j)


@zg.function
def nan_is_smallest(a, i, b, j):
    is_second = (b < a) | ((b != b) & (a == a)) | (((a == b) | ((a != a) & (b != b))) & (i > j))
    return zg.where(is_second, b, a), zg.where(is_second, j, i)


@zg.function
def larger(a, i, b, j):
    first = (a > b) | ((a == b) & (i <= j))
    return zg.where(first, a, b), zg.where(first, i, j)


@zg.function
def last_of_equal(a, i, b, j):
    first = (a > b) | ((a == b) & (i > j))
    return zg.where(first, a, b), zg.where(first, i, j)


@zg.function
def above_one(a, i, b, j):
    first = (a > b) | ((a == b) & (i < j)) & (a > 1)
    return zg.where(first, a, b), zg.where(first, i, j)


@zg.function
def mixed(a, i, b, j):
    first = (a > b) | ((a == b) & (i < j))
    return zg.where(first, a, b), zg.where(a > b, i, j)


def reduction(combine):
    @zg.kernel
    def kernel(x, value, place, AXIS: zg.constexpr, FIRST: zg.constexpr):
        columns = zg.arange(0, 16)
        numbers = zg.load(x + zg.arange(0, 4)[:, None] * 16 + columns[None, :])
        places = zg.arange(0, 4)[:, None] if AXIS == 0 else columns[None, :]
        places = zg.broadcast(places + FIRST, [4, 16])
        v, i = zg.reduce((numbers, places), AXIS, combine)
        out = columns if AXIS == 0 else zg.arange(0, 4)
        zg.store(value + out, v)
        zg.store(place + out, i)

    return kernel


@zg.kernel
def largest(x, value, place, AXIS: zg.constexpr, FIRST: zg.constexpr):
    columns = zg.arange(0, 16)
    v, i = zg.max(zg.load(x + zg.arange(0, 4)[:, None] * 16 + columns[None, :]), AXIS, return_indices=True)
    out = columns if AXIS == 0 else zg.arange(0, 4)
    zg.store(value + out, v)
    zg.store(place + out, i)


@zg.kernel
def smallest_place(x, value, place, AXIS: zg.constexpr, FIRST: zg.constexpr):
    columns = zg.arange(0, 16)
    i = zg.argmin(zg.load(x + zg.arange(0, 4)[:, None] * 16 + columns[None, :]), AXIS)
    zg.store(place + (columns if AXIS == 0 else zg.arange(0, 4)), i)


def models(kernel, dtype, axis, first=0):
    pointers = zg.ptr(dtype), zg.ptr(dtype), zg.ptr(zg.i32)
    before = prepare_for_gpu(kernel.triton(*pointers, axis, first))
    after = divide_choices(before)
    verify(after)
    return before, after


def results(model, numbers):
    value, place = np.zeros(COLUMNS, numbers.dtype), np.zeros(COLUMNS, np.int32)
    zg.run(model, (1,), numbers, value, place)
    return (value.astype(np.float64) if value.dtype.itemsize < 4 else value), place  # Exact, and NumPy can compare it.


def edge_cases(dtype):
    """Rows with each kind of number that an order may treat as special, also without any other."""
    rng = np.random.default_rng(0)
    if dtype.is_int:
        info = np.iinfo(dtype.dtype)
        return np.array([info.min, info.max, 0, 1, info.max - 1], dtype.dtype)[rng.integers(0, 5, (ROWS, COLUMNS))]
    pools = [[NAN], [NAN, -INF, INF], [-0.0, 0.0, NAN], [NAN, -INF, INF, -0.0, 0.0, 1.0, -1.0]]
    rows = [rng.choice(pool, COLUMNS) for pool in pools]
    return np.array(rows).astype(dtype.dtype)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [zg.f16, zg.bf16, zg.f32, zg.f64, zg.i8, zg.i16, zg.i32, zg.i64, zg.u8, zg.u32])
@pytest.mark.parametrize(
    "kernel", [largest, smallest_place, reduction(nan_is_largest), reduction(nan_is_smallest)],
    ids=["max", "argmin", "nan largest", "nan smallest"],
)  # fmt: skip
def test_the_two_reductions_give_the_results_of_the_one(kernel, dtype, axis):
    before, after = models(kernel, dtype, axis)
    assert str(after).count("tt.reduce ") == 2 and "tuple.load" not in str(simplify(after))
    numbers = edge_cases(dtype)
    for expected, result in zip(results(before, numbers), results(after, numbers), strict=True):
        np.testing.assert_array_equal(result, expected)
        if not dtype.is_int:
            is_number = expected == expected
            np.testing.assert_array_equal(np.signbit(result)[is_number], np.signbit(expected)[is_number])


@pytest.mark.parametrize(
    ("combine", "dtype", "first", "divided"),
    [
        (larger, zg.i32, 0, True),
        (larger, zg.i32, 5, True),  # The index may be any number where NaN cannot be an element.
        (nan_is_largest, zg.f32, 5, False),
        (larger, zg.f32, 0, False),  # Which NaN it chooses depends on the order of combination.
        (last_of_equal, zg.i32, 0, False),
        (above_one, zg.i32, 0, False),
        (mixed, zg.i32, 0, False),
    ],
)
def test_an_order_is_recognised_by_its_results(combine, dtype, first, divided):
    before, after = models(reduction(combine), dtype, 1, first)
    assert (after is not before) == divided
    if divided:
        numbers = edge_cases(dtype)
        for expected, result in zip(results(before, numbers), results(after, numbers), strict=True):
            np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("start", "divided"), [(0, True), (8, False), (2**31 - 17, False)])
def test_the_indices_of_floats_count_from_0(start, divided):
    """An axis of NaN gives its first index, and indices are doubled: neither holds for ranges that begin elsewhere."""

    @zg.function
    def larger_number(a, i, b, j):
        is_before = ((a == b) | ((a != a) & (b != b))) & (i < j)
        first = (a > b) | ((a == a) & (b != b)) | is_before
        return zg.where(first, a, b), zg.where(first, i, j)

    @zg.kernel
    def kernel(x, value, place, START: zg.constexpr, END: zg.constexpr):
        places = zg.arange(START, END)
        v, i = zg.reduce((zg.load(x + (places - START)), places), 0, larger_number)
        zg.store(value, v)
        zg.store(place, i)

    before = prepare_for_gpu(kernel.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.ptr(zg.i32), start, start + 16))
    after = divide_choices(before)
    assert (after is not before) == divided
    for numbers in (np.full(16, NAN, np.float32), np.arange(16, dtype=np.float32) % 12):
        for expected, result in zip(results(before, numbers), results(after, numbers), strict=True):
            np.testing.assert_array_equal(result, expected)


def test_the_index_carries_no_sign_where_only_the_index_is_used():
    _, after = models(smallest_place, zg.f32, 1)
    assert "arith.shli" not in str(simplify(after))
    _, after = models(largest, zg.f32, 1)
    assert "arith.shli" in str(after)
