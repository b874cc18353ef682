"""The routines of f64, run on this machine: errors in ulp, and special values; `docs/reference/accuracy.md`."""

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
BOUNDS = {"exp": 1.0, "exp2": 1.0, "log": 1.0, "log2": 1.6, "sin": 0.8, "cos": 0.8, "tanh": 1.4, "erf": 2.0}
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0]


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="long double has no more digits than f64 here")
@pytest.mark.parametrize("name", REFERENCES)
def test_errors_in_ulp(name: str, on_host, ulps) -> None:
    random = np.random.default_rng(2)
    x = np.concatenate([
        random.integers(0, 1 << 64, 4000, dtype=np.uint64).view(np.float64), random.uniform(-6, 6, 4000),
        random.uniform(-745, 710, 3000), random.uniform(0.5, 2, 3000), random.uniform(-1, 1, 2000),
        random.uniform(-1e9, 1e9, 3000), np.arange(-300, 300) * (np.pi / 2), SPECIAL,
        [5e-324, 1e-310, 1.7976931348623157e308, 6381956970095103 * 2.0**797, 2.0**25, 2.0**25 - 1e-8, 1e22],
    ])  # fmt: skip
    function = on_host(ROUTINES["double"][name]())
    with np.errstate(all="ignore"):
        true = erf(x) if name == "erf" else REFERENCES[name](x.astype(np.longdouble))
        error = ulps(function(x), true, np.float64)
    worst = int(np.argmax(error))
    assert error[worst] <= BOUNDS[name], f"{name}({x[worst]!r}) is {error[worst]} ulp off"


@pytest.mark.parametrize("name", ["sin", "tanh", "erf"])
def test_odd_functions_keep_the_sign_of_zero(name: str, on_host) -> None:
    actual = on_host(ROUTINES["double"][name]())(np.array([0.0, -0.0]))
    assert np.signbit(actual).tolist() == [False, True]
