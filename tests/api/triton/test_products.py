"""Products of matrices, block pointers and dependent launches as Triton's Python writes them."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat.triton as triton
import ziggurat.triton.language as tl


@triton.jit
def product(x_ptr, y_ptr, z_ptr, N: tl.constexpr, PRECISION: tl.constexpr, OUT: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.extra.cuda.gdc_wait()
    z = tl.dot(tl.load(x_ptr + at), tl.load(y_ptr + at), input_precision=PRECISION, out_dtype=OUT)
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(z_ptr + at, z)


@pytest.mark.parametrize(
    ("dtype", "precision", "out", "result"),
    [
        (np.float16, "ieee", tl.float16, np.float16),
        (np.float16, None, tl.float32, np.float32),
        (np.float32, "bf16x6", tl.float32, np.float32),
        (np.float64, None, tl.float32, np.float64),
        (np.int8, None, tl.int8, np.int32),
    ],
)
def test_out_dtype_counts_where_there_is_a_choice(dtype, precision, out, result):
    rng = np.random.default_rng(0)
    x, y = rng.integers(-4, 5, (2, 32, 32)).astype(dtype)
    z = np.zeros((32, 32), result)
    product[(1,)](x, y, z, 32, precision, out, num_ctas=1, launch_pdl=True)
    np.testing.assert_array_equal(z, x.astype(np.float64) @ y.astype(np.float64))


@triton.jit
def scaled(x_ptr, s_ptr, y_ptr, z_ptr, M: tl.constexpr, K: tl.constexpr):
    rows = tl.arange(0, M)
    x = tl.load(x_ptr + rows[:, None] * (K // 2) + tl.arange(0, K // 2)[None, :])
    s = tl.load(s_ptr + rows[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :])
    y = tl.load(tl.make_block_ptr(y_ptr, (K, M), (M, 1), (0, 0), (K, M), (1, 0)), boundary_check=(0, 1))
    z = tl.dot_scaled(x, s, "e2m1", y, None, "bf16")
    tl.store(z_ptr + rows[:, None] * M + rows[None, :], z)


def test_scales():
    import ml_dtypes

    rng = np.random.default_rng(1)
    codes = rng.integers(0, 8, (16, 32))
    s = rng.integers(125, 130, (16, 1)).astype(np.uint8)
    y = rng.integers(-4, 5, (32, 16)).astype(ml_dtypes.bfloat16)
    z = np.zeros((16, 16), np.float32)
    scaled[(1,)]((codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8), s, y, z, 16, 32)
    x = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])[codes] * 2.0 ** (s.astype(np.float64) - 127)
    np.testing.assert_array_equal(z, x @ y.astype(np.float64))
