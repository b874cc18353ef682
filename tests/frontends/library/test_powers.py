"""Powers: their distance from the true value, and C's special cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.frontends.library import powers

Array = np.ndarray[Any, Any]
N = 1024


@zg.kernel
def applied(x_ptr, y_ptr, out_ptr, function: zg.constexpr, N: zg.constexpr):
    at = zg.add(zg.program_id(0) * N, zg.arange(0, N))
    zg.store(zg.add(out_ptr, at), function(zg.load(zg.add(x_ptr, at)), zg.load(zg.add(y_ptr, at))))


def computed(x: Array, y: Array, function: Any = powers.pow) -> Array:
    result = np.zeros_like(x)
    applied[(len(x) // N,)](x, y, result, function, N)
    return result


def assert_near(actual: Array, true: Any, ulp: float):
    expected = true.astype(actual.dtype)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite])
    unit = np.spacing(np.maximum(np.abs(expected[finite]), np.finfo(actual.dtype).tiny)).astype(np.longdouble)
    assert (np.abs(actual[finite] - true[finite]) / unit).max() <= ulp


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("dtype", "ulp", "decades"), [(np.float32, 0.9, 38), (np.float64, 1.0, 307)])
def test_errors_in_last_places(dtype: type, ulp: float, decades: int):
    """`docs/reference/accuracy.md` has these numbers."""
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("NumPy has no float that is longer than f64 here")
    rng = np.random.default_rng(1)
    n = 4 * N
    near_one = np.abs(1 + rng.standard_normal(n) * 10.0 ** rng.uniform(-6, 0, n))
    x = np.concatenate([10.0 ** rng.uniform(-decades - 6, decades, n), rng.uniform(0, 4, n), near_one]).astype(dtype)
    widest = rng.uniform(-1, 1, len(x)) * decades * 3.4 / np.maximum(np.abs(np.log2(x)), 1e-12)
    y = np.where(rng.random(len(x)) < 0.5, widest, rng.uniform(-20, 20, len(x))).astype(dtype)
    assert_near(computed(x, y), np.power(x.astype(np.longdouble), y.astype(np.longdouble)), ulp)


SPECIAL = [
    0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, np.inf, -np.inf, np.nan, 1e-45, 1e30, -1e30, 2.0**24 - 1, 2.5, -2.5, 7,
    -7, 0.1, -0.1, 1e10, -1e10, 1.0000001, -1.0000001, -1e-40, 1e-40, 33, -33, 2.0**24,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_special_cases(dtype: type):
    x, y = (grid.ravel().copy() for grid in np.meshgrid(np.array(SPECIAL, dtype), np.array(SPECIAL, dtype)))
    actual = computed(x, y)
    expected = np.power(x.astype(np.float64), y.astype(np.float64)).astype(dtype)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(actual[numbers]), np.signbit(expected[numbers]))
    np.testing.assert_allclose(
        actual, expected, rtol=4 * np.finfo(dtype).eps, atol=2 * np.finfo(dtype).smallest_subnormal
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_integer_exponents_that_f32_does_not_have():
    exponents = np.array([2**24 + 1, 2**31 - 1, -(2**31), -(2**24) - 1, 5, 0, -1, 1], np.int32).repeat(N // 8)
    x = np.resize(np.array([-1, 1, -1.0000001, 0.9999999, -0.0, np.inf], np.float32), N)
    actual = computed(x, exponents, powers.powi)
    assert_near(actual, np.power(x.astype(np.longdouble), exponents.astype(np.longdouble)), 0.9)
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(np.power(x.astype(np.float64), exponents)))


def test_f16_is_computed_in_f32():
    @zg.kernel
    def kernel(x, out):
        at = zg.arange(0, 8)
        zg.store(zg.add(out, at), zg.pow(zg.load(zg.add(x, at)), 3))

    x = np.linspace(-3, 3, 8).astype(np.float16)
    out = np.zeros_like(x)
    kernel[(1,)](x, out)
    np.testing.assert_array_equal(out, np.power(x.astype(np.float32), 3).astype(np.float16))
