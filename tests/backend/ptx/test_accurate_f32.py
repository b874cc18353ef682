"""The routines of f32, run on this machine: errors in ulp, and special values; `docs/reference/accuracy.md`."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ziggurat.backend.llvm.accurate import ROUTINES
from ziggurat.codemodel.scalars import erf

# Overflows and NaN are compared as well.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

REFERENCES = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    "erf": erf,
}  # fmt: skip
BOUNDS = {"exp": 1.1, "exp2": 1.1, "log": 1.1, "log2": 1.5, "sin": 1.7, "cos": 1.7, "tanh": 2.0, "erf": 1.3}
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0]


@pytest.mark.parametrize("name", REFERENCES)
def test_errors_in_ulp(name: str, on_host, ulps) -> None:
    random = np.random.default_rng(1)
    x = np.concatenate([
        random.integers(0, 1 << 32, 150_000, dtype=np.uint64).astype(np.uint32).view(np.float32),
        random.uniform(-6, 6, 100_000), random.uniform(-110, 95, 50_000), random.uniform(0.5, 2, 50_000),
        random.uniform(-2e5, 2e5, 50_000), np.arange(-300, 300) * (np.pi / 2), SPECIAL,
        [1e-45, -1e-45, 3.4028235e38, 100000.0, 99999.99],
    ]).astype(np.float32)  # fmt: skip
    function = on_host(ROUTINES["float"][name]())
    with np.errstate(all="ignore"):
        true = REFERENCES[name](x.astype(np.float64))
        error = ulps(function(x), true, np.float32)
    worst = int(np.argmax(error))
    assert error[worst] <= BOUNDS[name], f"{name}({x[worst]!r}) is {error[worst]} ulp off"


@pytest.mark.parametrize("name", ["sin", "tanh", "erf"])
def test_odd_functions_keep_the_sign_of_zero(name: str, on_host) -> None:
    actual = on_host(ROUTINES["float"][name]())(np.array([0.0, -0.0]))
    assert np.signbit(actual).tolist() == [False, True]
