"""e^x and 2^x of f32 have the interpreter's bits, in vectors with and without a lane that is computed in f64."""

import numpy as np
import pytest

import ziggurat as zg


@zg.kernel
def powers(x_ptr, out_ptr, other_ptr, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    x = zg.load(zg.add(x_ptr, at))
    zg.store(zg.add(out_ptr, at), zg.exp(x))
    zg.store(zg.add(other_ptr, at), zg.exp2(x))


def differences(x: np.ndarray) -> int:
    """The number of results that are not those of NumPy in f64, rounded."""
    count = 0
    results = [np.empty_like(x) for _ in range(2)]
    powers[x.size // 256,](x, *results, 256)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for mine, function in zip(results, (np.exp, np.exp2), strict=True):
            expected = function(x.astype(np.float64)).astype(np.float32)
            count += int(((mine.view(np.uint32) != expected.view(np.uint32)) & ~(np.isnan(mine) & np.isnan(x))).sum())
    return count


@pytest.mark.parametrize("low, high", [(-104, 89), (-152, 129), (-1, 1), (-2e-7, 2e-7), (-90, -86), (-105, -102)])
def test_numbers_of_an_interval(low: float, high: float):
    x = np.random.default_rng(0).uniform(low, high, 1 << 18).astype(np.float32)
    assert differences(x) == 0


def test_any_bits():
    """Some lanes of most vectors are out of range, infinite or NaN."""
    bits = np.random.default_rng(1).integers(0, 1 << 32, 1 << 18, dtype=np.uint32)
    assert differences(bits.view(np.float32)) == 0


def test_masked_scores_are_zero():
    x = np.full(256, -np.inf, np.float32)
    x[::3] = -1000.0
    x[5] = 0.5
    assert differences(x) == 0
