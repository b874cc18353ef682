"""Block pointers in loops, functions and branches, on tensors that the blocks reach beyond."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg

COPY = """
def copy(x_ptr, y_ptr, rows, columns, row, column, P: zg.constexpr):
    x = zg.make_block_ptr(x_ptr, (rows, columns), (columns, 1), (row, column), (4, 8), (1, 0))
    y = zg.make_block_ptr(y_ptr, (4, 8), (8, 1), (0, 0), (4, 8), (1, 0))
    zg.store(y, zg.load(x, boundary_check=(0, 1), padding_option=P))
"""


def block_of(x, row, column, padding):
    """The 4 × 8 block of `x` at a place that may be outside."""
    around = np.pad(x.astype(np.float64), 32, constant_values=padding)
    return around[32 + row : 36 + row, 32 + column : 40 + column]


@pytest.mark.parametrize("at", [(0, 0), (1, 2), (-3, 4), (5, -7), (-20, 0), (9, 30)])
@pytest.mark.parametrize("padding", ["", "zero", "nan"])
def test_blocks_beyond_the_tensor(at, padding, kernel, launch):
    copy = kernel(COPY)
    x = np.arange(6 * 10, dtype=np.float32).reshape(6, 10)
    y = np.full((4, 8), -1, np.float32)
    launch(copy, 1, [x, y, 6, 10, *at], P=padding)
    np.testing.assert_array_equal(y, block_of(x, *at, np.nan if padding == "nan" else 0))


@pytest.mark.parametrize("name", ["i1", "i8", "u16", "i64", "f16", "bf16", "f64", "f8e5m2"])
def test_dtypes(name, kernel, launch, dtypes):
    copy = kernel(COPY)
    x = (np.arange(6 * 10).reshape(6, 10) % 2).astype(dtypes[name])
    y = np.ones((4, 8), dtypes[name])
    launch(copy, 1, [x, y, 6, 10, 4, 5], P="")
    np.testing.assert_array_equal(y.astype(np.float64), block_of(x, 4, 5, 0))


def test_nothing_is_stored_beyond_the_checked_axes(kernel, launch):
    fill = kernel("""
    def fill(y_ptr, rows, columns):
        y = zg.make_block_ptr(y_ptr, (rows, columns), (8, 1), (-1, -2), (4, 8), (1, 0))
        zg.store(zg.advance(y, (zg.program_id(0) * 4, 0)), 1.0, boundary_check=(0, 1))
    """)
    y = np.zeros((8, 8), np.float32)
    launch(fill, 2, [y, 5, 3])
    expected = np.zeros((8, 8))
    expected[:5, :3] = 1
    np.testing.assert_array_equal(y, expected)


@zg.function
def both(a, b, step: zg.constexpr):
    return zg.advance(a, (0, step)), zg.advance(b, (step, 0))


MATMUL = """
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, BM: zg.constexpr, BN: zg.constexpr, BK: zg.constexpr):
    m = zg.program_id(0) * BM
    n = zg.program_id(1) * BN
    a = zg.make_block_ptr(a_ptr, (M, K), (sam, sak), (m, 0), (BM, BK), (1, 0))
    b = zg.make_block_ptr(b_ptr, (K, N), (sbk, sbn), (0, n), (BK, BN), (1, 0))
    acc = zg.zeros((BM, BN), zg.f32)
    for _ in range(0, K, BK):
        acc = zg.dot(zg.load(a, boundary_check=(0, 1)), zg.load(b, boundary_check=(0, 1)), acc)
        a, b = both(a, b, BK)
    c = zg.make_block_ptr(c_ptr, (M, N), (N, 1), (m, n), (BM, BN), (1, 0))
    zg.store(c, zg.cast(acc, c.dtype.element_ty), boundary_check=(0, 1))
"""


@pytest.mark.parametrize("transposed", [False, True])
def test_a_matmul(transposed, kernel, launch):
    matmul = kernel(MATMUL, both=both)
    rng = np.random.default_rng(0)
    m, n, k = 40, 25, 50
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    in_memory = np.ascontiguousarray(b.T).T if transposed else b
    c = np.zeros((m, n), np.float16)
    strides = [s // 2 for s in (*a.strides, *in_memory.strides)]
    launch(matmul, (3, 2), [a, in_memory, c, m, n, k, *strides], BM=16, BN=16, BK=16)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), atol=0.02, rtol=2e-3)


def test_branches_choose_and_move_a_block_pointer(kernel, launch):
    pick = kernel("""
    def pick(x_ptr, y_ptr, z_ptr, n):
        pid = zg.program_id(0)
        x = zg.make_block_ptr(x_ptr, (n,), (1,), (0,), (8,), (0,))
        y = zg.make_block_ptr(y_ptr, (n,), (2,), (0,), (8,), (0,))
        at = x if pid % 2 == 0 else y
        if pid > 1:
            at = zg.advance(at, (8,))
        i = 0
        while i < pid:
            at = zg.advance(at, (1,))
            i += 1
        z = zg.make_block_ptr(z_ptr, (4, 8), (8, 1), (pid, 0), (1, 8), (1, 0))
        zg.store(z, zg.expand(zg.load(at, boundary_check=0), 0))
    """)
    x, y, z = np.arange(40, dtype=np.int32), np.arange(80, dtype=np.int32) + 100, np.zeros((4, 8), np.int32)
    launch(pick, 4, [x, y, z, 18])
    starts = {0: (x[:18], 0), 1: (y[:36:2], 1), 2: (x[:18], 10), 3: (y[:36:2], 11)}
    expected = [np.pad(source, (0, 32))[at : at + 8] for source, at in starts.values()]
    np.testing.assert_array_equal(z, expected)


def test_three_axes_and_64_bit_offsets(kernel, launch):
    cube = kernel("""
    def cube(x_ptr, y_ptr, n):
        x = zg.make_block_ptr(x_ptr, (2, 3, 5), (15, 5, 1), (0, zg.cast(n, zg.i64), 0), (2, 2, 4), (2, 1, 0))
        y = zg.make_block_ptr(y_ptr, (2, 2, 4), (8, 4, 1), (0, 0, 0), (2, 2, 4), (2, 1, 0))
        zg.store(y, zg.load(zg.advance(x, (0, 0, 2)), boundary_check=(1, 2)))
    """)
    x, y = np.arange(30, dtype=np.int64).reshape(2, 3, 5), np.zeros((2, 2, 4), np.int64)
    launch(cube, 1, [x, y, 2])
    np.testing.assert_array_equal(y, np.pad(x, 8)[8:10, 10:12, 10:14])
