"""Arithmetic of 16-bit floats two at a time, simulated, against the interpreter; and division by a shared divisor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.types import SCALARS

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@zg.kernel
def arithmetic(x_ptr, y_ptr, out_ptr, NAN: zg.constexpr):
    """Each op, of two loaded numbers, or of a loaded number and one for all."""
    at = zg.arange(0, 1024)
    x, y = zg.load(zg.add(x_ptr, at)), zg.load(zg.add(y_ptr, at))
    one = zg.load(y_ptr)
    zg.store(zg.add(out_ptr, at), zg.add(x, y))
    zg.store(zg.add(out_ptr + 1024, at), zg.sub(x, one))
    zg.store(zg.add(out_ptr + 2048, at), zg.mul(zg.neg(x), y))
    zg.store(zg.add(out_ptr + 3072, at), zg.fma(x, y, one))
    zg.store(zg.add(out_ptr + 4096, at), zg.maximum(x, y, propagate_nan=NAN))
    zg.store(zg.add(out_ptr + 5120, at), zg.minimum(x, y, propagate_nan=NAN))
    zg.store(zg.add(out_ptr + 6144, at), zg.abs(x))
    zg.store(zg.add(out_ptr + 7168, at), zg.exp(x))


@zg.kernel
def choices(x_ptr, y_ptr, out_ptr):
    """Runs of eight numbers that have one condition, and numbers that each have their own."""
    at = zg.arange(0, 1024)
    x, y = zg.load(zg.add(x_ptr, at)), zg.load(zg.add(y_ptr, at))
    zg.store(zg.add(out_ptr, at), zg.where(zg.less(zg.floordiv(at, 8), 100), x, y))
    zg.store(zg.add(out_ptr + 1024, at), zg.where(zg.less(x, y), x, 1.0))


def special(element: str) -> np.ndarray:
    """All pairs of 32 numbers: zeros, NaN, infinities, subnormal and ordinary ones."""
    random = np.random.default_rng(3).normal(size=20)
    tiny = 2.0**-130 if element == "bf16" else 2.0**-20
    results = [0.0, -0.0, np.nan, np.inf, -np.inf, 1, -1, 60000, -60000, tiny, -tiny, 3 * tiny, *random]
    return np.array(results, np.float32).astype(SCALARS[element].dtype)


def both(kernel: Any, *arguments: Any, size: int, element: str) -> tuple[np.ndarray, np.ndarray, str]:
    """The simulator's result, the interpreter's, and the PTX: of a kernel whose parameter before its constants is the
    result."""
    dtype = SCALARS[element].dtype
    arrays = [value for value in arguments if isinstance(value, np.ndarray)]
    constants = [value for value in arguments if not isinstance(value, np.ndarray)]
    pointers = [zg.divisible(zg.ptr(SCALARS[element]), 16)] * (len(arrays) + 1)
    compiled = kernel.compile(*pointers, *constants, target="sm_90a", num_warps=4)
    actual, true = np.zeros(size, dtype), np.zeros(size, dtype)
    compiled.simulate[1](*arrays, actual)
    kernel[1](*arrays, true, *constants)
    return actual, true, compiled.ptx


@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("nan", [False, True])
def test_elementwise_arithmetic(element: str, nan: bool, same) -> None:
    x, y = (np.ascontiguousarray(part).ravel() for part in np.meshgrid(special(element), special(element)))
    actual, true, ptx = both(arithmetic, x, y, nan, size=8192, element=element)
    same(actual[:7168], true[:7168])
    np.testing.assert_allclose(actual[7168:].astype(np.float32), true[7168:].astype(np.float32), rtol=1e-2, atol=1e-6)
    # Eight registers a thread are four pairs.
    for name in ("add", "sub", "mul", "fma", "max", "min"):
        instructions = [line.split()[0] for line in ptx.splitlines() if line.strip().startswith(name + ".")]
        instructions = [line for line in instructions if line.endswith(("f16", "f16x2"))]
        assert len(instructions) == 4 and all(line.endswith(f"{element}x2") for line in instructions), instructions
    assert ptx.count(f"cvt.rn.{element}x2.f32") == 4 and f"cvt.rn.{element}.f32" not in ptx


@zg.kernel
def reductions(x_ptr, out_ptr, AXIS: zg.constexpr):
    """The largest and smallest numbers, and the sums, of 32 rows or 64 columns."""
    rows, columns = zg.expand(zg.arange(0, 32), 1), zg.expand(zg.arange(0, 64), 0)
    at = zg.arange(0, 64 if AXIS == 0 else 32)
    x = zg.load(zg.add(x_ptr, zg.add(zg.mul(rows, 64), columns)))
    zg.store(zg.add(out_ptr, at), zg.max(x, axis=AXIS))
    zg.store(zg.add(out_ptr + 64, at), zg.min(x, axis=AXIS))
    zg.store(zg.add(out_ptr + 128, at), zg.sum(x, axis=AXIS))


@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("axis", [0, 1])
def test_reductions(element: str, axis: int, same) -> None:
    """Rows are along the words of registers, columns across them. NaN is left out of both extremes."""
    x = np.random.default_rng(5).integers(-8, 9, (32, 64)).astype(SCALARS[element].dtype)
    x[3, 5], x[7, :], x[:, 9], x[9, 2], x[11, 4:6] = np.nan, -0.0, -0.0, np.inf, -np.inf
    actual, true, ptx = both(reductions, x.ravel(), axis, size=192, element=element)
    same(actual, true)
    assert f"max.{element}x2" in ptx and f"min.{element}x2" in ptx


@zg.kernel
def quotients(x_ptr, y_ptr, out_ptr):
    """Rows of 64 numbers, each divided by one number."""
    rows, columns = zg.arange(0, 64), zg.expand(zg.arange(0, 64), 0)
    at = zg.add(zg.mul(zg.expand(rows, 1), 64), columns)
    zg.store(zg.add(out_ptr, at), zg.div(zg.load(zg.add(x_ptr, at)), zg.expand(zg.load(zg.add(y_ptr, rows)), 1)))


def test_quotients_by_a_shared_divisor() -> None:
    """The divisors include those whose inverse is subnormal or infinite."""
    powers = [0, 1, 60, 125, 126, 127, -60, -125, -126, -127, -140, -149]
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, 3]
    y = np.resize(np.array([*(1.5 * 2.0**power for power in powers), *ends], np.float32), 64)
    x = np.concatenate([y, np.random.default_rng(6).normal(size=64 * 63).astype(np.float32)])
    actual, true, ptx = both(quotients, x, y, size=4096, element="f32")
    assert "div.full" not in ptx
    with np.errstate(all="ignore"):
        normal = (np.abs(true) >= 2.0**-126) & np.isfinite(true)
    np.testing.assert_array_equal(actual[~np.isfinite(true)], true[~np.isfinite(true)])
    np.testing.assert_array_max_ulp(actual[normal], true[normal], 2)
    np.testing.assert_allclose(actual[~normal & np.isfinite(true)], true[~normal & np.isfinite(true)], atol=2.0**-125)


@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_halves_are_chosen_together_by_one_condition(element: str, same) -> None:
    x, y = (np.ascontiguousarray(part).ravel() for part in np.meshgrid(special(element), special(element)))
    actual, true, ptx = both(choices, x, y, size=2048, element=element)
    same(actual, true)
    assert ptx.count("selp.b32") >= 4, "four words of a thread's eight numbers"
