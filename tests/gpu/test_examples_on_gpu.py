"""The kernels of the examples on the GPU, on arrays of this package, against NumPy in float64."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ziggurat as zg

pytestmark = pytest.mark.gpu

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("warps", [1, 4, 8])
@pytest.mark.parametrize("n", [1, 1000, 98432, 1 << 20])
def test_vector_add(n, warps, rng):
    x, y = rng.standard_normal((2, n), np.float32)
    out = zg.to_device(np.zeros(n, np.float32))
    kernel = example("vector_add").add_kernel
    kernel[(zg.cdiv(n, 1024),)](zg.to_device(x), zg.to_device(y), out, n, BLOCK_SIZE=1024, num_warps=warps)
    np.testing.assert_array_equal(zg.to_host(out), x + y)


@pytest.mark.parametrize("warps", [1, 4, 8])
@pytest.mark.parametrize("shape", [(4, 8), (37, 100), (64, 781), (2, 1), (8, 4096), (3, 12000)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_softmax(shape, dtype, warps, rng):
    softmax = example("fused_softmax")
    x = (rng.standard_normal(shape, np.float32) * 3).astype(dtype)
    rows, columns = shape
    out = zg.to_device(np.zeros_like(x))
    block = zg.next_power_of_2(columns)
    softmax.softmax_kernel[(rows,)](out, zg.to_device(x), columns, columns, columns, BLOCK_SIZE=block, num_warps=warps)
    actual, true = zg.to_host(out), softmax.reference(x)
    bound = 2e-6 if dtype == np.float32 else 1e-3
    assert (
        (np.abs(actual - true) <= bound * true + 1e-7).all()
        if dtype == np.float32
        else np.abs(actual - true).max() < bound
    )


@pytest.mark.parametrize("warps", [1, 4, 8])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-5), (np.float16, 1e-2)])
def test_layer_norm(dtype, tolerance, warps, rng):
    rows, columns = 48, 500
    x = (rng.standard_normal((rows, columns)) * 3 + 1).astype(dtype)
    weight, bias = rng.standard_normal((2, columns), np.float32)
    y, mean, rstd = (
        zg.to_device(array) for array in (np.zeros_like(x), np.zeros(rows, np.float32), np.zeros(rows, np.float32))
    )
    arguments = [zg.to_device(array) for array in (x, weight, bias)]
    kernel = example("layer_norm").layer_norm_kernel
    kernel[(rows,)](
        arguments[0], y, arguments[1], arguments[2], mean, rstd, columns, columns, 1e-5, BLOCK_SIZE=128, num_warps=warps
    )
    wide = x.astype(np.float64)
    true_mean, true_rstd = wide.mean(axis=1), 1 / np.sqrt(wide.var(axis=1) + 1e-5)
    true = (wide - true_mean[:, None]) * true_rstd[:, None] * weight + bias
    np.testing.assert_allclose(zg.to_host(mean), true_mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(zg.to_host(rstd), true_rstd, rtol=1e-5)
    np.testing.assert_allclose(zg.to_host(y), true, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("activation", [None, "leaky_relu"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("blocks", "warps"),
    [
        ((16, 16, 16), 1),
        ((32, 64, 32), 1),
        ((32, 64, 32), 4),
        ((64, 64, 32), 4),
        ((128, 128, 64), 4),
        ((128, 256, 64), 8),
    ],
)
def test_matmul(blocks, transposed, activation, warps, rng):
    matmul = example("grouped_matmul")
    (m, n, k), (block_m, block_n, block_k) = (200, 150, 300), blocks
    a = rng.standard_normal((m, k)).astype(np.float16)
    b = rng.standard_normal((k, n)).astype(np.float16)
    strides = (1, k) if transposed else (n, 1)
    values = zg.to_device(np.ascontiguousarray(b.T) if transposed else b)
    c = zg.to_device(np.zeros((m, n), np.float16))
    matmul.matmul_kernel[(zg.cdiv(m, block_m) * zg.cdiv(n, block_n),)](
        zg.to_device(a), values, c, m, n, k, k, 1, *strides, n, 1,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP_SIZE=4, ACTIVATION=activation, num_warps=warps,
    )  # fmt: skip
    np.testing.assert_allclose(zg.to_host(c), matmul.reference(a, b, activation), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("blocks", "warps"), [((64, 64, 32), 4), ((128, 128, 64), 8), ((32, 64, 16), 1)])
@pytest.mark.parametrize("shape", [(200, 152, 296), (256, 256, 256), (8, 8, 8), (129, 72, 1000)])
def test_descriptor_matmul(shape, blocks, warps, rng):
    example_of = example("descriptor_matmul")
    m, n, k = shape
    a = rng.standard_normal((m, k)).astype(np.float16)
    b = rng.standard_normal((n, k)).astype(np.float16)
    c = zg.to_device(np.zeros((m, n), np.float16))
    example_of.matmul(zg.to_device(a), zg.to_device(b), c, *blocks, num_warps=warps)
    np.testing.assert_allclose(zg.to_host(c), example_of.reference(a, b), rtol=2e-3, atol=5e-3)


@pytest.mark.parametrize("roles", [False, True])
@pytest.mark.parametrize(("blocks", "warps"), [((64, 64), 4), ((64, 32), 4), ((128, 64), 8), ((128, 128), 8)])
@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal, d, blocks, warps, roles, rng):
    example_of = example("attention")
    heads, n = 3, 640
    # Queries of every other head are large: one key has nearly all of the weight, and maxima change by much.
    large = np.where(np.arange(heads) % 2, 8, 1).repeat(n)[:, None]
    q, k, v = rng.standard_normal((3, heads * n, d))
    q, k, v = (x.astype(np.float16) for x in (q * large, k, v))
    out = zg.to_device(np.full((heads * n, d), np.nan, np.float16))
    arguments = [zg.to_device(x) for x in (q, k, v)]
    stages = 2 if d == 128 and blocks[1] == 128 else 3  # the buffers of three do not fit
    options = {"num_warps": warps, "num_stages": stages, "WARP_SPECIALIZE": roles}
    example_of.attention(*arguments, out, n, causal, *blocks, **options)
    np.testing.assert_allclose(zg.to_host(out), example_of.reference(q, k, v, n, causal), rtol=4e-3, atol=4e-3)


def launch(model, grid, *arguments):
    """Run a model that no kernel object stands for."""
    from ziggurat.backend.cuda.launch import Launcher

    Launcher(zg.compile(model).binary)(grid, *arguments, check=True)


def test_traced_kernels(rng):
    traced = example("traced_kernel")
    n = 1000
    x = rng.standard_normal(n, np.float32)
    out = zg.to_device(np.zeros_like(x))
    chain = [lambda v: zg.mul(v, 2.0), lambda v: zg.add(v, 1.0), zg.sigmoid, lambda v: zg.mul(v, v)]
    launch(traced.fused(chain), (zg.cdiv(n, traced.BLOCK),), zg.to_device(x), out, n)
    np.testing.assert_allclose(zg.to_host(out), (1 / (1 + np.exp(-(2.0 * x.astype(float) + 1)))) ** 2, rtol=1e-5)
    series = zg.trace(traced.power_series, zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, zg.i32)
    launch(series, (zg.cdiv(n, traced.BLOCK),), zg.to_device(x), out, n, 24)
    np.testing.assert_allclose(zg.to_host(out), np.exp(x.astype(float)), rtol=1e-4)


def test_own_transform(rng):
    own = example("own_transform")
    n = 10_000
    x = rng.standard_normal(n, np.float32)
    wide = x.astype(float)
    before = own.polynomial_kernel.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, 128)
    after = zg.transform(before, own.fuse_multiply_add, pass_name="fuse_multiply_add")
    for model in (before, after):
        out = zg.to_device(np.zeros_like(x))
        launch(model, (zg.cdiv(n, 128),), zg.to_device(x), out, n)
        true = ((0.5 * wide + 0.25) * wide + 3) * wide - 1
        np.testing.assert_allclose(zg.to_host(out), true, rtol=1e-5, atol=1e-6)


@zg.kernel
def far_rows(x_ptr, out_ptr, stride: zg.i64, SIZE: zg.constexpr):
    row = zg.program_id(0)
    at = zg.arange(0, SIZE)
    far = zg.cast(row, zg.i64) * stride
    zg.store(zg.add(out_ptr + row * SIZE, at), zg.load(zg.add(x_ptr + far, at)))


def test_offsets_of_64_bits(rng):
    """Rows that lie 3 · 2³⁰ bytes apart: the second is out of reach of 32 bits."""
    from ziggurat.backend.cuda.device_memory import DeviceArray
    from ziggurat.codemodel.types import u8

    apart, size = 3 << 30, 64
    x = zg.empty(2 * apart + size, np.uint8)
    rows = rng.integers(0, 256, (3, size)).astype(np.uint8)
    move = zg.to_device(rows)
    for row in range(3):
        part = DeviceArray(x.pointer + row * apart, (size,), u8, x.device, base=x)
        from_ = DeviceArray(move.pointer + row * size, (size,), u8, x.device, base=move)
        far_rows[(1,)](from_, part, 0, SIZE=size)
    out = zg.to_device(np.zeros((3, size), np.uint8))
    far_rows[(3,)](x, out, apart, SIZE=size)
    np.testing.assert_array_equal(zg.to_host(out), rows)
