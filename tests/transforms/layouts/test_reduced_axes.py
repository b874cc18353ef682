"""Axes that loops reduce, of tensors that no loop loads or stores: threads hold runs along them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.layout import axis_bases

F32 = zg.divisible(zg.ptr(zg.f32), 16)


@zg.kernel
def balanced(x, out, n, B: zg.constexpr, N: zg.constexpr):
    """Rows and columns of small matrices are divided by their maxima in turn."""
    b, r, c = zg.arange(0, B), zg.arange(0, N), zg.arange(0, N)
    rows = zg.add(zg.expand(zg.expand(b, 1), 2) * N * N, zg.expand(zg.expand(r, 0), 2) * N)
    at = zg.add(rows, zg.expand(zg.expand(c, 0), 0))
    a = zg.load(x + at)
    for _ in range(n):
        a = a / zg.max(a, 2, keep_dims=True)
        a = a / zg.max(a, 1, keep_dims=True)
    zg.store(out + at, a)


@zg.kernel
def read_again(x, out, n, B: zg.constexpr, N: zg.constexpr):
    """The loop itself loads what it reduces: whole sectors at once."""
    b, r, c = zg.arange(0, B), zg.arange(0, N), zg.arange(0, N)
    rows = zg.add(zg.expand(zg.expand(b, 1), 2) * N * N, zg.expand(zg.expand(r, 0), 2) * N)
    at = zg.add(rows, zg.expand(zg.expand(c, 0), 0))
    total = zg.zeros((B, 1, N), zg.f32)
    for i in range(n):
        total = total + zg.max(zg.load(x + i * 256 + at), 1, keep_dims=True)
    zg.store(out + at, zg.broadcast(total, (B, N, N)))


@zg.kernel
def sums_of_pairs(x, y, out, m, N: zg.constexpr, M: zg.constexpr):
    """Each iteration loads what the columns are computed from, element by element."""
    row = zg.load(x + zg.arange(0, N))
    total = zg.zeros((N,), zg.f32)
    for start in range(0, m, M):
        column = zg.load(y + (start + zg.arange(0, M)) * 3)
        total = total + zg.sum(zg.exp(zg.expand(row, 1) * zg.expand(column, 0)), 1)
    zg.store(out + zg.arange(0, N), total)


def registers_along(compiled: Any, axis: int) -> int:
    (load,) = (op for op in compiled.stages["gpu"].walk() if isinstance(op, tt.Load))
    along = axis_bases(load.result.type.shape, axis)
    return sum(basis in along for basis in load.result.type.layout.registers)


@pytest.mark.parametrize(("count", "size", "warps"), [(1, 2, 1), (1, 4, 4), (2, 4, 1), (64, 2, 1)])
def test_matrices_of_fewer_elements_than_threads(count: int, size: int, warps: int) -> None:
    compiled = balanced.compile(F32, F32, zg.i32, count, size, num_warps=warps, target="sm_90a")
    x = np.random.default_rng(0).uniform(1, 2, (count, size, size)).astype(np.float32)
    out = np.zeros_like(x)
    compiled.simulate[1,](x, out, 1)
    x = x / x.max(2, keepdims=True)
    np.testing.assert_allclose(out, x / x.max(1, keepdims=True), rtol=1e-6)


def test_columns_are_reduced_by_one_shuffle_of_each_column() -> None:
    compiled = balanced.compile(F32, F32, zg.i32, 16, 4, num_warps=1, target="sm_90a")
    assert registers_along(compiled, 2) == 2 and registers_along(compiled, 1) == 1
    if compiled.ptx:
        assert compiled.ptx.count("shfl.sync") == 4  # A thread has half of four columns.
    x = np.random.default_rng(0).uniform(1, 2, (16, 4, 4)).astype(np.float32)
    out = np.zeros_like(x)
    compiled.simulate[1,](x, out, 3)
    for _ in range(3):
        x = x / x.max(2, keepdims=True)
        x = x / x.max(1, keepdims=True)
    np.testing.assert_allclose(out, x, rtol=1e-6)


def test_what_a_loop_loads_stays_as_its_accesses_are_best() -> None:
    compiled = read_again.compile(F32, F32, zg.i32, 16, 4, num_warps=1, target="sm_90a")
    assert registers_along(compiled, 1) == 0


def test_what_a_loop_loads_is_not_exchanged_in_place_of_what_it_reduces() -> None:
    compiled = sums_of_pairs.compile(F32, F32, F32, zg.i32, 128, 32, num_warps=4, target="sm_90a")
    if compiled.ptx:
        assert compiled.ptx.count("shfl.sync") <= 24
    random = np.random.default_rng(0)
    x, y = (random.uniform(0, 1, size).astype(np.float32) for size in (128, (64, 3)))
    out = np.zeros_like(x)
    compiled.simulate[1,](x, y, out, 64)
    np.testing.assert_allclose(out, np.exp(np.outer(x, y[:, 0])).sum(1), rtol=1e-5)
