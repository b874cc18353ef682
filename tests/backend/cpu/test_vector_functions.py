"""Powers, logarithms and upper halves of products in vectors have the interpreter's bits, with this machine's
instructions and with those of AVX2 alone."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from native_machines import MACHINES
from run_cpu import run_cpu

import ziggurat as zg
from ziggurat.backend.cpu.code import CpuOptions

pytestmark = pytest.mark.parametrize("machine", MACHINES)


@zg.kernel
def powers(x_ptr, out_ptr, other_ptr, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    x = zg.load(zg.add(x_ptr, at))
    zg.store(zg.add(out_ptr, at), zg.exp(x))
    zg.store(zg.add(other_ptr, at), zg.exp2(x))


@zg.kernel
def logarithms(x_ptr, out_ptr, other_ptr, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    x = zg.load(zg.add(x_ptr, at))
    zg.store(zg.add(out_ptr, at), zg.log(x))
    zg.store(zg.add(other_ptr, at), zg.log2(x))


@zg.kernel
def hyperbolic_tangents(x_ptr, out_ptr, other_ptr, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    x = zg.load(zg.add(x_ptr, at))
    zg.store(zg.add(out_ptr, at), zg.tanh(x))
    zg.store(zg.add(other_ptr, at), zg.tanh(zg.neg(x)))


@zg.kernel
def angles(x_ptr, out_ptr, other_ptr, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    x = zg.load(zg.add(x_ptr, at))
    zg.store(zg.add(out_ptr, at), zg.sin(x))
    zg.store(zg.add(other_ptr, at), zg.cos(x))


@zg.kernel
def errors(x_ptr, out_ptr, other_ptr, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    x = zg.load(zg.add(x_ptr, at))
    zg.store(zg.add(out_ptr, at), zg.erf(x))
    zg.store(zg.add(other_ptr, at), zg.erf(zg.neg(x)))


@zg.kernel
def upper_halves(x_ptr, y_ptr, out_ptr, N: zg.constexpr):
    at = zg.arange(0, N)
    zg.store(zg.add(out_ptr, at), zg.umulhi(zg.load(zg.add(x_ptr, at)), zg.load(zg.add(y_ptr, at))))


def differences(kernel: zg.Kernel, functions: Sequence[Callable[..., Any]], x: np.ndarray, machine: CpuOptions) -> int:
    """The number of results that are not those of NumPy in f64, rounded."""
    count = 0
    results = [np.empty_like(x) for _ in range(2)]
    pointer = zg.ptr(zg.f32)
    run_cpu(kernel.triton(pointer, pointer, pointer, 256), (x.size // 256,), [x, *results], options=machine)
    with np.errstate(all="ignore"):
        for actual, function in zip(results, functions, strict=True):
            expected = function(x.astype(np.float64)).astype(np.float32)
            both_nan = np.isnan(actual) & np.isnan(expected)
            count += int(((actual.view(np.uint32) != expected.view(np.uint32)) & ~both_nan).sum())
    return count


@pytest.mark.parametrize("low, high", [(-104, 89), (-152, 129), (-1, 1), (-2e-7, 2e-7), (-90, -86), (-105, -102)])
def test_powers_of_an_interval(machine: CpuOptions, low: float, high: float):
    x = np.random.default_rng(0).uniform(low, high, 1 << 18).astype(np.float32)
    assert differences(powers, (np.exp, np.exp2), x, machine) == 0


def test_powers_of_any_bits(machine: CpuOptions):
    """Some lanes of most vectors are out of range, infinite or NaN."""
    bits = np.random.default_rng(1).integers(0, 1 << 32, 1 << 18, dtype=np.uint32)
    assert differences(powers, (np.exp, np.exp2), bits.view(np.float32), machine) == 0


def test_powers_of_masked_scores_are_zero(machine: CpuOptions):
    x = np.full(256, -np.inf, np.float32)
    x[::3] = -1000.0
    x[5] = 0.5
    assert differences(powers, (np.exp, np.exp2), x, machine) == 0


@pytest.mark.parametrize("low, high", [(0, 2), (0.99999, 1.00001), (0, 1e-38), (1e38, 3e38)])
def test_logarithms_of_an_interval(machine: CpuOptions, low: float, high: float):
    x = np.random.default_rng(2).uniform(low, high, 1 << 18).astype(np.float32)
    assert differences(logarithms, (np.log, np.log2), x, machine) == 0


def test_logarithms_of_any_bits(machine: CpuOptions):
    """Half of the numbers are negative; some are zeros, infinite or NaN."""
    bits = np.random.default_rng(3).integers(0, 1 << 32, 1 << 18, dtype=np.uint32)
    x = bits.view(np.float32)
    x[:: 1 << 10] = np.resize(np.float32([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 1e-45, -1e-45]), 1 << 8)
    assert differences(logarithms, (np.log, np.log2), x, machine) == 0


@pytest.mark.parametrize("low, high", [(-10, 10), (-0.6, 0.6), (-1e-30, 1e-30), (-1e38, 1e38)])
def test_tangents_of_an_interval(machine: CpuOptions, low: float, high: float):
    x = np.random.default_rng(5).uniform(low, high, 1 << 18).astype(np.float32)
    x[:: 1 << 10] = np.resize(np.float32([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 1e-45, 9.25]), 1 << 8)
    assert differences(hyperbolic_tangents, (np.tanh, lambda x: np.tanh(-x)), x, machine) == 0


@pytest.mark.parametrize("high", [1e-30, 0.26, 4.1, 1e38])
def test_error_functions_of_an_interval(machine: CpuOptions, high: float):
    x = np.random.default_rng(8).uniform(-high, high, 1 << 14).astype(np.float32)
    x[:: 1 << 7] = np.resize(
        np.float32([0.0, -0.0, np.inf, -np.inf, np.nan, 0.25, 1e-45, 3.75, 4.0, 3.9999998]), 1 << 7
    )
    erf = np.vectorize(math.erf)
    assert differences(errors, (erf, lambda x: erf(-x)), x, machine) == 0


@pytest.mark.parametrize("high", [1e-30, 1.0, 10.0, 1.31e5, 1e6, 1e38])
def test_angles_of_an_interval(machine: CpuOptions, high: float):
    """Some vectors have angles of 2^17 and more."""
    x = np.random.default_rng(7).uniform(-high, high, 1 << 16).astype(np.float32)
    x[:: 1 << 10] = np.resize(np.float32([0.0, -0.0, np.inf, np.nan, 1e-45, 131071.99, 131072.0, 3e38]), 1 << 6)
    assert differences(angles, (np.sin, np.cos), x, machine) == 0


@pytest.mark.parametrize("kernel, function", [(logarithms, np.log), (hyperbolic_tangents, np.tanh)])
def test_functions_of_f64(machine: CpuOptions, kernel: zg.Kernel, function: Callable[..., Any]):
    """Quotients of them may be a product with a reciprocal, to 1 ulp."""
    x = np.exp(np.random.default_rng(6).uniform(-30, 3.5, 1 << 14))
    out, other = np.empty_like(x), np.empty_like(x)
    pointer = zg.ptr(zg.f64)
    run_cpu(kernel.triton(pointer, pointer, pointer, 256), (x.size // 256,), [x, out, other], options=machine)
    expected = function(x)
    assert np.max(np.abs(out - expected) / np.spacing(np.abs(expected))) <= 2


def test_upper_halves_of_products(machine: CpuOptions):
    x, y = np.random.default_rng(4).integers(0, 1 << 32, (2, 1 << 12), dtype=np.uint32)
    x[:4], y[:4] = 0xFFFFFFFF, [0, 1, 0x80000000, 0xFFFFFFFF]
    out = np.empty_like(x)
    pointer = zg.ptr(zg.u32)
    run_cpu(upper_halves.triton(pointer, pointer, pointer, x.size), (1,), [x, y, out], options=machine)
    np.testing.assert_array_equal(out, (x.astype(np.uint64) * y >> 32).astype(np.uint32))
