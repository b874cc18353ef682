"""Functions that a GPU has an instruction for: natively and interpreted, they are the accurate ones."""

from __future__ import annotations

import numpy as np
import pytest
from run_cpu import run_cpu

import ziggurat as zg
from ziggurat.backend.reference.run import run

N = 64


@zg.kernel
def approximated(x_ptr, out_ptr, FUNCTION: zg.constexpr):
    at = zg.arange(0, N)
    zg.store(zg.add(out_ptr, at), zg.approximate(FUNCTION, zg.load(zg.add(x_ptr, at))))


@pytest.mark.parametrize("function", ["log2", "sin", "cos", "tanh"])
def test_approximations_are_accurate_where_there_is_no_instruction(function: str) -> None:
    model = approximated.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), function)
    x = np.random.default_rng(1).uniform(0.01, 9, N).astype(np.float32)
    native, interpreted = np.zeros(N, np.float32), np.zeros(N, np.float32)
    run_cpu(model, (1,), [x, native])
    run(model, None, (1,), [x, interpreted])
    np.testing.assert_allclose(native, interpreted, rtol=3e-7, atol=1e-7)
    np.testing.assert_array_equal(interpreted, getattr(np, function)(x.astype(np.float64)).astype(np.float32))


def test_other_floats_are_an_error() -> None:
    with pytest.raises(zg.KernelTypeError, match="the operands must be f32"):
        approximated.triton(zg.ptr(zg.f16), zg.ptr(zg.f16), "log2")
    with pytest.raises(zg.KernelValueError, match="'function' must be"):
        approximated.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), "log")
