"""Divisions by inverses: every quotient is exact, on the host, in the simulator and in the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.llvm.routines import Routine
from ziggurat.backend.ptx.divisions import inverse_of, quotient_by, signed_quotient, unsigned_quotient

LEAST, MOST = -(1 << 31), (1 << 31) - 1


def divisors() -> np.ndarray:
    """Numbers of all sizes, and those around powers of two."""
    random = np.random.default_rng(3)
    around = [(1 << bits) + step for bits in range(1, 31) for step in range(-3, 4)]
    sizes = np.concatenate(
        [np.arange(1, 2000), around, random.integers(1, 1 << 31, 2000) >> random.integers(0, 31, 2000)]
    )
    sizes = np.maximum(sizes, 1)
    return np.concatenate([sizes, -sizes, [LEAST, MOST]]).astype(np.int64)


def dividends(divisor: np.ndarray) -> list[np.ndarray]:
    """The smallest and the largest numbers, and those around multiples of the divisors, for each of them."""
    size = np.abs(divisor)
    top = (1 << 31) // size * size
    random = np.random.default_rng(4).integers(0, 1 << 31, len(size))
    values = [0 * size, size - 1, size, top - 1, top, top - size, 0 * size + MOST, 0 * size - LEAST, random]
    values += [random // size * size, random // size * size - 1]
    return [value.clip(LEAST, MOST) for value in values] + [(-value).clip(LEAST, MOST) for value in values]


def test_quotients_of_signed_numbers_are_exact(on_host) -> None:
    r = Routine("q", "i32", ["i32", "i32"])
    n, d = r.argument(), r.argument(1)
    quotient = on_host(r.done(signed_quotient(n, inverse_of(d, 1)) * (d.ashr(31) | 1)))
    divisor = divisors()
    for n in dividends(divisor):
        true = (np.abs(n) // np.abs(divisor) * np.sign(n) * np.sign(divisor)).astype(np.int32)
        actual = quotient(n.astype(np.int32).view(np.uint32), divisor.astype(np.int32).view(np.uint32)).view(np.int32)
        np.testing.assert_array_equal(actual, true)


def test_quotients_of_numbers_that_are_not_negative_are_exact(on_host) -> None:
    r = Routine("q", "i32", ["i32", "i32"])
    quotient = on_host(r.done(unsigned_quotient(r.argument(), inverse_of(r.argument(1), 0))))
    divisor = divisors()
    for n in dividends(divisor):
        n = np.abs(n).clip(0, MOST)
        actual = quotient(n.astype(np.uint32), divisor.astype(np.int32).view(np.uint32))
        np.testing.assert_array_equal(actual, n // np.abs(divisor))


@pytest.mark.parametrize("divisor", [1, 2, 3, 5, 7, 10, 64, 640, 641, 32000, 65535, 65537, 1 << 30, MOST - 1, MOST])
def test_quotients_by_constants_are_exact(divisor: int, on_host) -> None:
    r = Routine("q", "i32", ["i32"])
    quotient = on_host(r.done(quotient_by(r.argument(), divisor)))
    random = np.random.default_rng(5).integers(0, 1 << 31, 100_000)
    n = np.concatenate([random, random // divisor * divisor, random // divisor * divisor + divisor - 1, [0, MOST]])
    n = n[n <= MOST]
    np.testing.assert_array_equal(quotient(n.astype(np.uint32)), n // divisor)


@zg.kernel
def divide(x, q, r, d):
    at = zg.arange(0, 512)
    n = zg.load(x + at)
    zg.store(q + at, zg.floordiv(n, d))
    zg.store(r + at, zg.mod(n, d))


@zg.kernel
def decompose(q, r, d, C: zg.constexpr):
    """Quotients and remainders of indices, which are not negative, by an argument and by a constant, in a loop."""
    for step in range(0, 2):
        at = zg.add(zg.arange(0, 512), zg.mul(step, 512))
        zg.store(q + at, zg.add(zg.mul(zg.floordiv(at, d), 1000), zg.floordiv(at, C)))
        zg.store(r + at, zg.add(zg.mul(zg.mod(at, d), 1000), zg.mod(at, C)))


@pytest.mark.parametrize("d", [1, -1, 2, 3, -3, 7, 128, 1000, -65537, 1 << 30, MOST, LEAST])
def test_divided_by_an_argument(d: int) -> None:
    random = np.random.default_rng(6)
    x = (random.integers(LEAST, MOST, 512) >> random.integers(0, 31, 512)).astype(np.int32)
    x[:8] = LEAST, LEAST + 1, -1, 0, 1, MOST, MOST - 1, -MOST
    compiled = divide.compile(zg.ptr(zg.i32), zg.ptr(zg.i32), zg.ptr(zg.i32), zg.i32, target="sm_90a", num_warps=4)
    assert "rcp.approx.ftz.f64" in compiled.ptx and "div.s32" not in compiled.ptx
    q, r = np.zeros_like(x), np.zeros_like(x)
    compiled.simulate[(1,)](x, q, r, d)
    wide = x.astype(np.int64)
    true = np.abs(wide) // abs(d) * np.sign(wide) * np.sign(d)
    np.testing.assert_array_equal(q, true.astype(np.int32))
    np.testing.assert_array_equal(r, (wide - true * d).astype(np.int32))


@pytest.mark.parametrize("d", [1, 3, 16, -5, 511, 1 << 30])
def test_indices_divided(d: int) -> None:
    compiled = decompose.compile(zg.ptr(zg.i32), zg.ptr(zg.i32), zg.i32, 48, target="sm_90a", num_warps=4)
    assert "@nonnegative" in str(compiled.stages["gpu"])
    results = []
    for run in (compiled.simulate[(1,)], lambda *values: decompose[(1,)](*values, 48)):
        q, r = np.zeros(1024, np.int32), np.zeros(1024, np.int32)
        run(q, r, d)
        results += [q, r]
    np.testing.assert_array_equal(results[0], results[2])
    np.testing.assert_array_equal(results[1], results[3])
    at = np.arange(1024)
    np.testing.assert_array_equal(results[1], at % abs(d) * 1000 + at % 48)
