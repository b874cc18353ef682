"""Kernels that store over what they have loaded, in layouts that the compiler chooses: the text's order holds."""

from __future__ import annotations

import numpy as np
import pytest
from pass_cases import normal

import ziggurat as zg

FLOATS = zg.divisible(zg.ptr(zg.f32))


@zg.kernel
def scale_and_sum(x, sums, n, ROWS: zg.constexpr, COLUMNS: zg.constexpr):
    """Rows of 512 numbers, each of which is doubled in its place, and the sums of columns."""
    column = zg.expand(zg.arange(0, COLUMNS), 1)
    total = zg.zeros((COLUMNS, ROWS), zg.f32)
    for row in range(0, n, ROWS):
        places = x + column + 512 * (row + zg.expand(zg.arange(0, ROWS), 0))
        twice = zg.load(places) * 2.0
        total = total + twice
        zg.store(places, twice)
    zg.store(sums + zg.arange(0, COLUMNS), zg.sum(total, 1))


@zg.kernel
def halve_number(x):
    """A number that all threads load and one stores, and then needs again."""
    number = zg.load(x)
    zg.store(x, number * 0.5)
    at = zg.arange(0, 64)
    zg.store(x + 1 + at, number + zg.cast(at, zg.f32))


@pytest.mark.parametrize("num_warps", [1, 4, 8])
@pytest.mark.parametrize("columns", [16, 64, 128])
def test_few_elements_for_many_threads(columns: int, num_warps: int) -> None:
    x, sums = normal(4, 512, dtype=np.float32), np.zeros(columns, np.float32)
    twice = np.hstack([2 * x[:, :columns], x[:, columns:]])
    compiled = scale_and_sum.compile(FLOATS, FLOATS, zg.i32, 2, columns, num_warps=num_warps, target="sm_90a")
    compiled.simulate[(1,)](x, sums, 4)
    np.testing.assert_array_equal(x, twice)
    np.testing.assert_allclose(sums, twice[:, :columns].sum(0), rtol=1e-5)


def test_a_number_in_its_place() -> None:
    x = np.full(65, 3, np.float32)
    halve_number.compile(FLOATS, num_warps=4, target="sm_90a").simulate[(1,)](x)
    np.testing.assert_array_equal(x, [1.5, *range(3, 67)])
