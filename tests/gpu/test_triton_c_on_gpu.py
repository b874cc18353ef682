"""Kernels of Triton-C on the GPU: the listings of the documents against NumPy in float64, and declared types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import triton_c_listings as documents

import ziggurat as zg

pytestmark = pytest.mark.gpu
SOURCE = Path(__file__).resolve().parents[2] / "examples" / "triton_c" / "matmul.tc"
FLOATS = {"float": np.float32, "half": np.float16}


@zg.kernel
def matmul(a_ptr, b_ptr, c_ptr, m, n, k, lda, ldb, ldc, TM: zg.constexpr, TN: zg.constexpr, TK: zg.constexpr):
    """examples/triton_c/matmul.tc without transpositions, statement by statement."""
    rm = zg.add(zg.program_id(0) * TM, zg.arange(0, TM))
    rn = zg.add(zg.program_id(1) * TN, zg.arange(0, TN))
    rk = zg.arange(0, TK)
    c = zg.zeros((TM, TN), zg.f32)
    pa = zg.add(zg.add(a_ptr, zg.mul(zg.expand(rm, 1), lda)), zg.expand(rk, 0))
    pb = zg.add(zg.add(b_ptr, zg.mul(zg.expand(rk, 1), ldb)), zg.expand(rn, 0))
    for _ in range(0, k, TK):
        c = zg.dot(zg.load(pa), zg.load(pb), c)
        pb = zg.add(pb, TK * ldb)
        pa = zg.add(pa, TK)
    pc = zg.add(zg.add(c_ptr, zg.mul(zg.expand(rm, 1), ldc)), zg.expand(rn, 0))
    zg.store(pc, zg.cast(c, zg.f16))


def on_gpu(kernel: Any, grid: Any, *arguments: Any, **keywords: Any) -> list[np.ndarray]:
    """The arrays after a launch on the GPU."""
    inputs = [zg.to_device(a) if isinstance(a, np.ndarray) else a for a in arguments]
    kernel[grid](*inputs, **keywords)
    return [zg.to_host(a) for a, old in zip(inputs, arguments, strict=True) if isinstance(old, np.ndarray)]


@pytest.mark.parametrize("size", [32, 128, 256])
@pytest.mark.parametrize("type_", FLOATS)
@pytest.mark.parametrize("name", ["macros", "add"])
def test_vector_addition(name, type_, size, rng):
    size = size if name == "macros" else 32
    dtype = FLOATS[type_] if name == "macros" else np.float32
    macros = {"TYPE": type_, "SIZE": size} if name == "macros" else {}
    a, b = rng.standard_normal(4 * size).astype(dtype), rng.standard_normal(4 * size).astype(dtype)
    actual = on_gpu(zg.triton_c(documents.listings()[name], **macros), (4,), 4 * size, a, b, np.zeros_like(a))
    np.testing.assert_array_equal(actual[-1], a + b)


@pytest.mark.parametrize("name", ["transpose", "multiple", "checked"])
@pytest.mark.parametrize("type_", FLOATS)
def test_transposition(name, type_, rng):
    rows, columns = (1000, 600) if name == "checked" else (1024, 512)
    x = rng.standard_normal((columns, rows)).astype(FLOATS[type_])
    kernel = zg.triton_c(documents.listings()[name], TYPE=type_, TM=64, TN=32)
    actual = on_gpu(
        kernel,
        (zg.cdiv(rows, 64), zg.cdiv(columns, 32)),
        x,
        np.zeros((rows, columns), x.dtype),
        rows,
        columns,
        rows,
        columns,
    )
    np.testing.assert_array_equal(actual[-1], x.T)


@pytest.mark.parametrize("name", ["dot", "prefetched", "rematerialized"])
@pytest.mark.parametrize("type_", FLOATS)
def test_product(name, type_, rng):
    m, n, k = 256, 384, 512
    a, b = rng.standard_normal((m, k)).astype(FLOATS[type_]), rng.standard_normal((k, n)).astype(FLOATS[type_])
    kernel = zg.triton_c(documents.listings()[name], TYPE=type_, TM=64, TN=128, TK=32)
    actual = on_gpu(kernel, (m // 64, n // 128), a, b, np.zeros((m, n), a.dtype), m, n, k, k, n, n)
    np.testing.assert_allclose(actual[-1], a.astype(np.float64) @ b.astype(np.float64), rtol=2e-2, atol=0.15)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("type_", FLOATS)
def test_fused_product_in_all_transpositions(type_, transpose_a, transpose_b, rng):
    m, n, k, tile = 256, 128, 256, 32
    a = rng.standard_normal((k + tile, m) if transpose_a else (m + 1, k)).astype(FLOATS[type_])
    b = rng.standard_normal((n + 1, k) if transpose_b else (k + tile, n)).astype(FLOATS[type_])
    macros = documents.macros_of_dot(transpose_a, transpose_b)
    kernel = zg.triton_c(documents.source_of_pytriton(), TYPE=a.dtype, TM=64, TN=64, TK=tile, **macros)
    sizes = (m, n, k, m if transpose_a else k, k if transpose_b else n, n)
    actual = on_gpu(kernel, (m // 64, n // 64), a, b, np.zeros((m, n), a.dtype), *sizes)
    left, right = (a[:k].T if transpose_a else a[:m]), (b[:n].T if transpose_b else b[:k])
    np.testing.assert_allclose(actual[-1], left.astype(np.float64) @ right.astype(np.float64), rtol=2e-2, atol=0.15)


def test_lists_are_tuned_at_new_sizes(rng):
    kernel = zg.triton_c(documents.listings()["macros"], TYPE="float", SIZE=[32, 128, 256])
    for n in (1 << 14, 1 << 20):
        a, b = rng.standard_normal(n).astype(np.float32), rng.standard_normal(n).astype(np.float32)
        actual = on_gpu(kernel, lambda meta, n=n: (n // meta["SIZE"],), n, a, b, np.zeros_like(a))
        np.testing.assert_array_equal(actual[-1], a + b)
    assert len(kernel.choices) == 2


def test_declared_types_are_those_of_the_launch():
    source = """
    __global__ void f(double *d, long *l, double x, long n, unsigned u, short s, half h, bool b) {
      *d = x; *(d + 1) = h; *l = n; *(l + 1) = u; *(l + 2) = s; *(l + 3) = b;
    }
    """
    kernel = zg.triton_c(source)
    d, integers = on_gpu(kernel, 1, np.zeros(2), np.zeros(4, np.int64), 1 / 3, -5, 7, -3, 0.1, True)
    assert list(d) == [1 / 3, np.float16(0.1)]
    assert list(integers) == [-5, 7, -3, 1]
    _, integers = on_gpu(kernel, 1, np.zeros(2), np.zeros(4, np.int64), 0.5, 1 << 40, (1 << 32) - 1, 1, 2.0, False)
    assert list(integers) == [1 << 40, (1 << 32) - 1, 1, 0]


def test_the_product_of_triton_c_is_the_explicit_calls(rng):
    """The same model comes out, but for its names, so the code is the same."""
    m, n, k = 1024, 1024, 1024
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    ours = zg.triton_c(SOURCE, TYPE="half", AT=False, BT=False, TM=128, TN=128, TK=64)
    arrays = [zg.to_device(x) for x in (a, b, np.zeros((m, n), np.float16))]
    sizes = (m, n, k, k, n, n)
    times = [
        zg.testing.do_bench(lambda: ours[8, 8](*arrays, *sizes, num_warps=8)),
        zg.testing.do_bench(lambda: matmul[8, 8](*arrays, *sizes, TM=128, TN=128, TK=64, num_warps=8)),
    ]
    np.testing.assert_allclose(zg.to_host(arrays[2]), a.astype(np.float64) @ b.astype(np.float64), rtol=2e-2, atol=0.3)
    assert times[0] < 1.05 * times[1], times
