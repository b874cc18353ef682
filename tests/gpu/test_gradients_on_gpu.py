"""Generated gradients on the GPU, against NumPy in float64."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ziggurat as zg

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]


def example(name: str, folder: str = "examples") -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("warps", [1, 4, 8])
def test_softmax(warps, rng):
    kernel = zg.grad(example("fused_softmax").softmax_kernel, wrt="input_ptr", of="output_ptr")
    x, dy = rng.standard_normal((2, 37, 781)).astype(np.float32)
    actual, arguments = zg.to_device(np.zeros_like(x)), zg.to_device(x)
    kernel[(37,)](arguments, zg.to_device(dy), arguments, actual, 781, 781, 781, BLOCK_SIZE=1024, num_warps=warps)
    p = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    true = p * (dy - (p * dy).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(zg.to_host(actual), true, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("warps", [1, 4, 8])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-4), (np.float16, 2e-2)])
@pytest.mark.parametrize("name", ["in loops", "of whole rows"])
def test_layer_norm(name, dtype, tolerance, warps, rng):
    wrt = ("x_ptr", "weight_ptr", "bias_ptr")
    x, dy = rng.standard_normal((2, 48, 500)).astype(dtype)
    weight, bias = rng.standard_normal((2, 500), np.float32)
    dx, dweight, dbias = (zg.to_device(np.zeros_like(item)) for item in (x, weight, bias))
    y, mean, rstd = (zg.to_device(np.zeros(shape, np.float32)) for shape in ((48, 500), 48, 48))
    y = zg.to_device(np.zeros_like(x))
    arrays = (zg.to_device(x), dx, y, zg.to_device(dy), zg.to_device(weight), dweight, zg.to_device(bias), dbias)
    if name == "in loops":
        kernel = zg.grad(example("layer_norm").layer_norm_kernel, wrt=wrt, of="y_ptr")
        kernel[(48,)](*arrays, mean, rstd, 500, 500, 1e-5, BLOCK_SIZE=128, num_warps=warps)
    else:
        kernel = zg.grad(example("kernels_gradients", "benchmarks").layer_norm, wrt=wrt, of="y_ptr")
        kernel[(48,)](*arrays, 500, 500, 1e-5, BLOCK=512, num_warps=warps)
    wide, arguments = x.astype(np.float64), dy.astype(np.float64)
    scale = 1 / np.sqrt(wide.var(axis=1, keepdims=True) + 1e-5)
    normal = (wide - wide.mean(axis=1, keepdims=True)) * scale
    part = arguments * weight
    true = scale * (part - normal * (part * normal).mean(1, keepdims=True) - part.mean(1, keepdims=True))
    for actual, expected in ((dx, true), (dweight, (arguments * normal).sum(0)), (dbias, arguments.sum(0))):
        np.testing.assert_allclose(zg.to_host(actual), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("warps", [4, 8])
def test_matmul(warps, rng):
    kernel = zg.grad(example("grouped_matmul").matmul_kernel, wrt=("a_ptr", "b_ptr"), of="c_ptr")
    (m, n, k), block = (200, 150, 300), 64
    a, b, dc = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n), (m, n)))
    da, db, c = (zg.to_device(np.zeros_like(item)) for item in (a, b, dc))
    kernel[(zg.cdiv(m, block) * zg.cdiv(n, block),)](
        zg.to_device(a), da, zg.to_device(b), db, c, zg.to_device(dc), m, n, k, k, 1, n, 1, n, 1,
        BLOCK_M=block, BLOCK_N=block, BLOCK_K=32, GROUP_SIZE=4, num_warps=warps,
    )  # fmt: skip
    wide = [item.astype(np.float64) for item in (a, b, dc)]
    for actual, expected in ((da, wide[2] @ wide[1].T), (db, wide[0].T @ wide[2])):
        np.testing.assert_allclose(zg.to_host(actual), expected, rtol=1e-2, atol=6e-2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("m", "block", "warps"), [(64, 32, 4), (128, 64, 8)])
def test_attention(m, block, warps, causal, rng):
    kernel = zg.grad(example("attention").attention_kernel, wrt=("q_desc", "k_desc", "v_desc"), of="out_desc")
    heads, n, d = 2, 256, 64
    q, k, v, dout = rng.standard_normal((4, heads * n, d)).astype(np.float16)
    dq, dk, dv, out = (zg.to_device(np.zeros_like(q)) for _ in range(4))

    def blocks(rows: int, *arrays: Any) -> list[Any]:
        return [zg.TensorDescriptor(array, [rows, d]) for array in arrays]

    arguments = [zg.to_device(item) for item in (q, k, v, dout)]
    kernel[(n // m, heads)](
        *blocks(m, arguments[0], dq), *blocks(block, arguments[1], dk, arguments[2], dv),
        *blocks(m, out, arguments[3]), n, d**-0.5,
        CAUSAL=causal, BLOCK_M=m, BLOCK_N=block, D=d, num_warps=warps,
    )  # fmt: skip
    q, k, v, dout = (item.astype(np.float64).reshape(heads, n, d) for item in (q, k, v, dout))
    scores = q @ k.transpose(0, 2, 1) * d**-0.5
    if causal:
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(axis=2, keepdims=True))
    p /= p.sum(axis=2, keepdims=True)
    dp = dout @ v.transpose(0, 2, 1)
    ds = p * (dp - (dp * p).sum(axis=2, keepdims=True)) * d**-0.5
    for actual, expected in ((dq, ds @ k), (dk, ds.transpose(0, 2, 1) @ q), (dv, p.transpose(0, 2, 1) @ dout)):
        np.testing.assert_allclose(zg.to_host(actual).reshape(expected.shape), expected, rtol=2e-2, atol=2e-2)
