"""Loads whose neighbours have one address, as the scales of groups have: a thread reads each address once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import tt

F32, TIMES_16 = zg.divisible(zg.ptr(zg.f32), 16), zg.divisible(zg.i32, 16)


@zg.kernel
def scaled(x, scales, y, n, group, N: zg.constexpr):
    at = zg.program_id(0) * N + zg.arange(0, N)
    inside = at < n
    scale = zg.load(scales + at // group, inside, other=0.5)
    zg.store(y + at, zg.load(x + at, inside) * scale, inside)


@zg.kernel
def scaled_rows(x, scales, y, group, M: zg.constexpr, N: zg.constexpr):
    at = zg.expand(zg.arange(0, M), 1) * N + zg.expand(zg.arange(0, N), 0)
    zg.store(y + at, zg.load(x + at) * zg.load(scales + zg.expand(zg.arange(0, M), 1) // group))


def runs_of(compiled: Any) -> list[tuple[int, ...]]:
    return [op.runs for op in compiled.stages["gpu"].walk() if isinstance(op, tt.Load)]


@pytest.mark.parametrize(("group", "n"), [(16, 1136), (32, 1136), (48, 2048)])
def test_groups_of_a_row(group: int, n: int) -> None:
    compiled = scaled.compile(F32, F32, F32, TIMES_16, TIMES_16, 1024, num_warps=4, target="sm_90a")
    assert runs_of(compiled) == [(16,), ()]
    assert compiled.ptx.count("ld.global") == 4  # A thread has two runs of four neighbours.
    x = np.random.default_rng(0).standard_normal(2048).astype(np.float32)
    scales = np.random.default_rng(1).standard_normal(2048 // group + 1).astype(np.float32)
    y = np.full(2048, 7, np.float32)
    compiled.simulate[2,](x, scales, y, n, group)
    np.testing.assert_array_equal(y[:n], x[:n] * scales[np.arange(n) // group])
    assert (y[n:] == 7).all()


@pytest.mark.parametrize("types", [(zg.i32, zg.i32), (TIMES_16, zg.i32), (zg.i32, TIMES_16)], ids=str)
def test_groups_of_any_size(types: tuple[Any, Any]) -> None:
    """Without a known divisor of the group and of the mask's end, each element is read for itself."""
    compiled = scaled.compile(F32, F32, F32, *types, 1024, num_warps=4, target="sm_90a")
    assert runs_of(compiled)[0] == ()
    x, scales, y = np.ones(1024, np.float32), np.arange(200, dtype=np.float32), np.zeros(1024, np.float32)
    compiled.simulate[1,](x, scales, y, 992, 16)
    np.testing.assert_array_equal(y[:992], np.arange(992) // 16)


def test_rows_of_groups() -> None:
    compiled = scaled_rows.compile(F32, F32, F32, TIMES_16, 64, 16, num_warps=2, target="sm_90a")
    assert runs_of(compiled)[-1] == (16, 1)
    x, scales = np.arange(1024, dtype=np.float32), np.array([2, 3, 5, 7], np.float32)
    y = np.zeros(1024, np.float32)
    compiled.simulate[1,](x, scales, y, 16)
    np.testing.assert_array_equal(y, x * scales.repeat(256))


def test_volatile_reads_are_made_for_each_element() -> None:
    @zg.kernel
    def volatile(x, y, group):
        at = zg.arange(0, 128)
        zg.store(y + at, zg.load(x + at // group, volatile=True))

    assert runs_of(volatile.compile(F32, F32, TIMES_16, num_warps=1, target="sm_90a")) == [()]


@zg.kernel
def overwritten(rows_ptr, weights_ptr, out_ptr, x_ptr, n, N: zg.constexpr):
    """Products, weighted by numbers that are read by index and overwritten before the products."""
    rows, columns = zg.arange(0, N), zg.expand(zg.arange(0, N), 0)
    places = zg.load(zg.add(rows_ptr, rows * 3)) // 3
    total = zg.zeros((N, N), zg.f32)
    for step in range(0, n):
        weights = zg.load(zg.add(weights_ptr, places))
        zg.debug_barrier()
        zg.store(zg.add(weights_ptr, rows), zg.cast(rows + step, zg.f32))
        zg.debug_barrier()
        a = zg.load(x_ptr + zg.expand(rows, 1) * 16 + zg.expand(zg.arange(0, 16), 0))
        b = zg.load(x_ptr + zg.expand(zg.arange(0, 16), 1) * N + columns)
        total = total + zg.dot(a, b) * zg.expand(weights, 1)
    zg.store(out_ptr + zg.expand(rows, 1) * N + columns, total)


def test_a_load_by_a_converted_index_stays_before_the_store_that_follows() -> None:
    size, random = 64, np.random.default_rng(0)
    index = np.zeros(3 * size, np.int32)
    index[::3] = 3 * random.permutation(size)
    weights = random.standard_normal(size).astype(np.float32)
    x = random.standard_normal(32 * size).astype(np.float16)
    pointers = [zg.divisible(zg.ptr(dtype)) for dtype in (zg.i32, zg.f32, zg.f32, zg.f16)]
    compiled = overwritten.compile(*pointers, zg.i32, size, target="sm_80", num_warps=4)
    out, expected = np.zeros((2, size, size), np.float32)
    compiled.simulate[(1,)](index, weights.copy(), out, x, 3)
    overwritten[(1,)](index, weights.copy(), expected, x, 3, size, interpret=True)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
