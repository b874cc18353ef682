"""The routines of functions, run on this machine: errors in ulp, and what is special; `docs/accuracy.md` says more."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ziggurat.backend.ptx import accurate_f32, accurate_f64
from ziggurat.backend.ptx.remainders import remainder
from ziggurat.backend.reference.functions import erf

# What overflows or is NaN is compared, too.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

REFERENCES = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    "erf": erf,
}  # fmt: skip
BOUNDS_F32 = {"exp": 1.1, "exp2": 1.1, "log": 1.1, "log2": 2.1, "sin": 1.7, "cos": 1.7, "tanh": 2.0, "erf": 1.3}
BOUNDS_F64 = {"exp": 1.0, "exp2": 1.0, "log": 1.0, "log2": 1.6, "sin": 0.8, "cos": 0.8, "tanh": 1.4, "erf": 2.0}
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0]


def distance(found, true, dtype):
    """The error in units of the last place of the rounded true value; where that is not finite, 0 if it is the same."""
    rounded = true.astype(dtype)
    finite = np.isfinite(rounded) & np.isfinite(found)
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    unit = np.spacing(np.abs(np.where(finite, rounded, dtype(1)))).astype(true.dtype)
    error = np.abs(np.where(finite, found, 0).astype(true.dtype) - np.where(finite, true, 0)) / unit
    return np.where(finite, error, np.where(same, 0, np.inf))


@pytest.mark.parametrize("name", accurate_f32.ROUTINES)
def test_f32_functions(name: str, on_host) -> None:
    random = np.random.default_rng(1)
    x = np.concatenate([
        random.integers(0, 1 << 32, 150_000, dtype=np.uint64).astype(np.uint32).view(np.float32),
        random.uniform(-6, 6, 100_000), random.uniform(-110, 95, 50_000), random.uniform(0.5, 2, 50_000),
        random.uniform(-2e5, 2e5, 50_000), np.arange(-300, 300) * (np.pi / 2), SPECIAL,
        [1e-45, -1e-45, 3.4028235e38, 100000.0, 99999.99],
    ]).astype(np.float32)  # fmt: skip
    function = on_host(accurate_f32.ROUTINES[name]())
    with np.errstate(all="ignore"):
        true = REFERENCES[name](x.astype(np.float64))
        error = distance(function(x), true, np.float32)
    worst = int(np.argmax(error))
    assert error[worst] <= BOUNDS_F32[name], f"{name}({x[worst]!r}) is {error[worst]} ulp off"


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="long double has no more digits than f64 here")
@pytest.mark.parametrize("name", accurate_f64.ROUTINES)
def test_f64_functions(name: str, on_host) -> None:
    random = np.random.default_rng(2)
    x = np.concatenate([
        random.integers(0, 1 << 64, 4000, dtype=np.uint64).view(np.float64), random.uniform(-6, 6, 4000),
        random.uniform(-745, 710, 3000), random.uniform(0.5, 2, 3000), random.uniform(-1, 1, 2000),
        random.uniform(-1e9, 1e9, 3000), np.arange(-300, 300) * (np.pi / 2), SPECIAL,
        [5e-324, 1e-310, 1.7976931348623157e308, 6381956970095103 * 2.0**797, 2.0**25, 2.0**25 - 1e-8, 1e22],
    ])  # fmt: skip
    function = on_host(accurate_f64.ROUTINES[name]())
    with np.errstate(all="ignore"):
        true = erf(x) if name == "erf" else REFERENCES[name](x.astype(np.longdouble))
        error = distance(function(x), true, np.float64)
    worst = int(np.argmax(error))
    assert error[worst] <= BOUNDS_F64[name], f"{name}({x[worst]!r}) is {error[worst]} ulp off"


@pytest.mark.parametrize("suffix, routines", [("f32", accurate_f32.ROUTINES), ("f64", accurate_f64.ROUTINES)])
@pytest.mark.parametrize("name", ["sin", "tanh", "erf"])
def test_odd_functions_keep_the_sign_of_zero(suffix: str, routines, name: str, on_host) -> None:
    found = on_host(routines[name]())(np.array([0.0, -0.0]))
    assert np.signbit(found).tolist() == [False, True]


@pytest.mark.parametrize("kind, dtype, bits", [("float", np.float32, np.uint32), ("double", np.float64, np.uint64)])
def test_the_remainder_is_exact(kind: str, dtype, bits, on_host) -> None:
    random = np.random.default_rng(3)
    anything = random.integers(0, 1 << 64, (2, 60_000), dtype=np.uint64).astype(bits).view(dtype)
    small = random.integers(-40, 40, (2, 20_000)).astype(dtype)
    subnormal = (random.integers(0, 1 << 64, (2, 20_000), dtype=np.uint64).astype(bits) >> bits(10)).view(dtype)
    special = np.array([*SPECIAL, 3, 0.1, np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal], dtype)
    x, y = np.concatenate([anything, small, subnormal, np.stack(np.meshgrid(special, special)).reshape(2, -1)], axis=1)
    with np.errstate(all="ignore"):
        true = np.fmod(x, y)
    found = on_host(remainder(kind))(x, y)
    np.testing.assert_array_equal(found, true)
    known = ~np.isnan(true)
    assert (np.signbit(found) == np.signbit(true))[known].all()
