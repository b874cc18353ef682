"""Functions of floats that are written in the language: their types, and how far they are from the true value."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.frontends.language import SIGNATURES
from ziggurat.frontends.library import LIBRARY

# In last places; `docs/reference/accuracy.md` has these numbers.
BOUNDS = {
    "tan": 2.0, "asin": 2.5, "acos": 1.2, "atan": 2.1, "sinh": 3.5, "cosh": 3.6, "expm1": 1.9, "log1p": 1.5,
}  # fmt: skip
TRUE = {
    "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "expm1": np.expm1, "log1p": np.log1p,
}  # fmt: skip
ELEMENTARY = {name for name in LIBRARY if SIGNATURES[name].group == "Math"} - {"sigmoid", "softmax"}


@zg.kernel
def applied(x_ptr, y_ptr, function: zg.constexpr, N: zg.constexpr):
    at = zg.add(zg.program_id(0) * N, zg.arange(0, N))
    zg.store(zg.add(y_ptr, at), function(zg.load(zg.add(x_ptr, at))))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOUNDS)
def test_errors_in_last_places(name: str, dtype: type):
    """Against NumPy's in the longest float that there is, of 64 digits on the machines that tests are run on."""
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("NumPy has no float that is longer than f64 here")
    rng = np.random.default_rng(1)
    n = 1024
    x = np.concatenate([
        rng.uniform(-1, 1, 8 * n), rng.uniform(-6, 6, 4 * n), rng.uniform(-100, 100, 4 * n),
        10.0 ** rng.uniform(-44, 38, 2 * n), -(10.0 ** rng.uniform(-44, 4, 2 * n)), rng.uniform(-750, 720, 4 * n),
        1 - 10.0 ** rng.uniform(-8, 0, 4 * n), 10.0 ** rng.uniform(-8, 0, 4 * n) - 1,
    ]).astype(dtype)  # fmt: skip
    x[:11] = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, 1e-45, -1e-45]
    actual = np.zeros_like(x)
    applied[(len(x) // n,)](x, actual, LIBRARY[name], n)
    true = TRUE[name](x.astype(np.longdouble))
    expected = true.astype(dtype)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite])
    np.testing.assert_array_equal(np.signbit(actual[:2]), np.signbit(expected[:2]))
    unit = np.spacing(np.maximum(np.abs(expected[finite]), np.finfo(dtype).tiny)).astype(np.longdouble)
    error = np.abs(actual[finite] - true[finite]) / unit
    worst = int(np.argmax(error))
    assert error[worst] <= BOUNDS[name], f"{name}({x[finite][worst]!r}) is {error[worst]} last places off"


def test_the_table_has_every_function_under_its_name():
    assert {*BOUNDS, "atan2", "round", "isnan", "isinf", "isfinite", "pow"} == ELEMENTARY
