"""Operations rounded in a direction, natively and interpreted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from run_cpu import run_cpu

import ziggurat as zg
from ziggurat.backend.reference.run import run

N = 256


@zg.kernel
def directed(x_ptr, y_ptr, z_ptr, out_ptr, OPERATION: zg.constexpr, DIRECTION: zg.constexpr, ONE: zg.constexpr):
    at = 3 if ONE else zg.arange(0, N)
    x, y, z = zg.load(zg.add(x_ptr, at)), zg.load(zg.add(y_ptr, at)), zg.load(zg.add(z_ptr, at))
    if OPERATION == "sqrt":
        actual = zg.directed(OPERATION, DIRECTION, x)
    elif OPERATION == "fma":
        actual = zg.directed(OPERATION, DIRECTION, x, y, z)
    else:
        actual = zg.directed(OPERATION, DIRECTION, x, y)
    zg.store(zg.add(out_ptr, at), zg.add(actual, zg.mul(x, y)))
    zg.store(zg.add(zg.add(out_ptr, N), at), actual)


def numbers(dtype: Any, seed: int) -> Any:
    random = np.random.default_rng(seed)
    x = random.standard_normal(N) * 2.0 ** random.integers(-60, 60, N)
    x = x.astype(dtype)
    facts = np.finfo(dtype)
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, facts.max, -facts.max, facts.tiny, facts.tiny / 8]
    places = random.integers(0, N, 3 * len(special))
    x[places] = np.resize(np.array(special, dtype), len(places))
    return x


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("operation", ["add", "mul", "div", "sqrt", "fma"])
@pytest.mark.parametrize("direction", ["rz", "rd", "ru"])
def test_the_interpreter_s_bits(dtype: Any, operation: str, direction: str):
    p = zg.ptr(zg.f32 if dtype == np.float32 else zg.f64)
    x, y, z = (numbers(dtype, seed) for seed in range(3))
    y[::9], z[::7] = -x[::9], -x[::7]
    for item in (False, True):
        model = directed.triton(p, p, p, p, operation, direction, item)
        results = [np.zeros(2 * N, dtype) for _ in range(2)]
        run_cpu(model, (1,), [x, y, z, results[0]])
        with np.errstate(all="ignore"):
            run(model, None, (1,), [x, y, z, results[1]])
        bits = [np.where(np.isnan(out), dtype(0), out).view(f"u{x.itemsize}") for out in results]
        np.testing.assert_array_equal(*bits)
        np.testing.assert_array_equal(*map(np.isnan, results))
