"""Gradients of the kernels of examples: against finite differences, by hand, assembled, and simulated."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finite_differences import check_gradient, in_f64

import ziggurat as zg
from ziggurat.backend.ptx.sass import assembled, tool
from ziggurat.codemodel.op import Op
from ziggurat.transforms.differentiate import differentiate

ROOT = Path(__file__).resolve().parents[3]
f32, f16, i32 = zg.ptr(zg.f32), zg.ptr(zg.f16), zg.i32


@cache
def example(name: str, folder: str = "examples") -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@zg.function
def gelu(x):
    return zg.mul(zg.mul(x, 0.5), zg.add(zg.erf(zg.mul(x, 0.7071067811865476)), 1.0))


@zg.kernel
def gelu_matmul(a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, BLOCK: zg.constexpr):
    """gelu(A · B + bias)."""
    rows = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    columns = zg.add(zg.program_id(1) * BLOCK, zg.arange(0, BLOCK))
    row_mask = zg.expand(zg.less(rows, M), 1)
    column_mask = zg.expand(zg.less(columns, N), 0)
    total = zg.zeros((BLOCK, BLOCK), zg.f32)
    for start in range(0, K, BLOCK):
        ks = zg.add(start, zg.arange(0, BLOCK))
        a_at = zg.add(zg.expand(zg.mul(rows, K), 1), zg.expand(ks, 0))
        b_at = zg.add(zg.expand(zg.mul(ks, N), 1), zg.expand(columns, 0))
        a = zg.load(zg.add(a_ptr, a_at), zg.and_(row_mask, zg.expand(zg.less(ks, K), 0)), other=0.0)
        b = zg.load(zg.add(b_ptr, b_at), zg.and_(zg.expand(zg.less(ks, K), 1), column_mask), other=0.0)
        total = zg.dot(a, b, total)
    bias = zg.load(zg.add(bias_ptr, columns), zg.less(columns, N))
    c = gelu(zg.add(total, zg.expand(bias, 0)))
    c_at = zg.add(zg.expand(zg.mul(rows, N), 1), zg.expand(columns, 0))
    zg.store(zg.add(c_ptr, c_at), zg.cast(c, c_ptr.dtype.element_ty), zg.and_(row_mask, column_mask))


def matrices(rng: np.random.Generator, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [rng.standard_normal(shape) for shape in shapes]


def test_vector_add(rng):
    model = in_f64(example("vector_add").add_kernel.triton(f32, f32, f32, i32, 64))
    x, y = matrices(rng, (100,), (100,))
    dx, dy = check_gradient(model, 2, [x, y, np.zeros(100), 100], [2], [0, 1])
    np.testing.assert_array_equal(dx, dy)


def test_polynomial(rng):
    model = in_f64(example("own_transform").polynomial_kernel.triton(f32, f32, i32, 64))
    check_gradient(model, 2, [*matrices(rng, (100,)), np.zeros(100), 100], [1], [0])


def test_softmax(rng):
    model = in_f64(example("fused_softmax").softmax_kernel.triton(f32, f32, i32, i32, i32, 64))
    check_gradient(model, 5, [np.zeros((5, 50)), *matrices(rng, (5, 50)), 50, 50, 50], [0], [1])


@pytest.mark.parametrize("of", [[1], [1, 4, 5]])
def test_layer_norm(rng, of):
    model = in_f64(example("layer_norm").layer_norm_kernel.triton(*[f32] * 6, i32, i32, zg.f32, 32))
    x, weight, bias = matrices(rng, (5, 50), (50,), (50,))
    arguments = [x, np.zeros_like(x), weight, bias, np.zeros(5), np.zeros(5), 50, 50, 1e-5]
    check_gradient(model, 5, arguments, of, [0, 2, 3])


def test_layer_norm_agrees_with_the_formula(rng):
    """In f32 and f16, with the derivatives that kernels written by hand compute."""
    kernel = zg.grad(example("layer_norm").layer_norm_kernel, wrt=("x_ptr", "weight_ptr", "bias_ptr"), of="y_ptr")
    for dtype, tolerance in ((np.float32, 3e-5), (np.float16, 1e-2)):
        x, dy = (rng.standard_normal((7, 100)).astype(dtype) for _ in range(2))
        weight, bias = rng.standard_normal((2, 100), np.float32)
        dx, dweight, dbias = np.zeros_like(x), np.zeros_like(weight), np.zeros_like(bias)
        unused = np.zeros_like(x), np.zeros(7, np.float32), np.zeros(7, np.float32)
        y, mean, rstd = unused
        kernel[(7,)](x, dx, y, dy, weight, dweight, bias, dbias, mean, rstd, 100, 100, 1e-5, BLOCK_SIZE=32)
        wide, arguments = x.astype(np.float64), dy.astype(np.float64)
        scale = 1 / np.sqrt(wide.var(axis=1, keepdims=True) + 1e-5)
        normal = (wide - wide.mean(axis=1, keepdims=True)) * scale
        part = arguments * weight
        true = scale * (part - normal * (part * normal).mean(1, keepdims=True) - part.mean(1, keepdims=True))
        np.testing.assert_allclose(dx, true, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(dweight, (arguments * normal).sum(0), rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(dbias, arguments.sum(0), rtol=tolerance, atol=tolerance)
        assert not y.any() and not mean.any() and not rstd.any()


@pytest.mark.parametrize("activation", [None, "leaky_relu"])
def test_grouped_matmul(rng, activation):
    kernel = example("grouped_matmul").matmul_kernel
    model = in_f64(kernel.triton(f16, f16, f16, *[i32] * 9, 16, 32, 16, 2, activation))
    a, b = matrices(rng, (20, 40), (40, 36))
    check_gradient(model, 4, [a, b, np.zeros((20, 36)), 20, 36, 40, 40, 1, 36, 1, 36, 1], [2], [0, 1])


def test_descriptor_matmul(rng):
    blocks = [zg.descriptor((16, 16), zg.f16)] * 3
    model = in_f64(example("descriptor_matmul").matmul_kernel.triton(*blocks, i32, i32, i32, 16, 16, 16, 2))

    def given(number: int, array: np.ndarray) -> Any:
        return zg.TensorDescriptor(array, (16, 16))

    a, b = matrices(rng, (20, 40), (36, 40))
    check_gradient(model, 6, [a, b, np.zeros((20, 36)), 20, 36, 40], [2], [0, 1], make_arguments=given)


def test_gelu_matmul(rng):
    model = in_f64(gelu_matmul.triton(f16, f16, f16, f16, i32, i32, i32, 16))
    a, b, bias = matrices(rng, (20, 40), (40, 18), (18,))
    check_gradient(model, (2, 2), [a, b, bias, np.zeros((20, 18)), 20, 18, 40], [3], [0, 1, 2])


def of_blocks(number: int, array: np.ndarray) -> Any:
    return zg.TensorDescriptor(array, [32 if number in (0, 3) else 16, array.shape[1]])


@pytest.mark.parametrize("causal", [False, True])
def test_attention(rng, causal):
    blocks = [zg.descriptor((rows, 16), zg.f16) for rows in (32, 16, 16, 32)]
    model = in_f64(example("attention").attention_kernel.triton(*blocks, i32, zg.f32, causal, 32, 16, 16))
    q, k, v = matrices(rng, *[(128, 16)] * 3)
    arguments = [q, k, v, np.zeros_like(q), 64, 0.25]
    check_gradient(model, (2, 2), arguments, [3], [0, 1, 2], tolerance=1e-5, make_arguments=of_blocks)


def test_attention_in_f16(rng):
    attention = example("attention")
    kernel = zg.grad(attention.attention_kernel, wrt=("q_desc", "k_desc", "v_desc"), of="out_desc")
    n, d = 64, 16
    q, k, v, dout = rng.standard_normal((4, 2 * n, d)).astype(np.float16)
    dq, dk, dv, out = np.zeros((4, 2 * n, d), np.float16)
    pairs = ((0, q), (0, dq), (1, k), (1, dk), (1, v), (1, dv), (3, out), (3, dout))
    kernel[(2, 2)](
        *(of_blocks(number, array) for number, array in pairs), n, d**-0.5, CAUSAL=True, BLOCK_M=32, BLOCK_N=16, D=d
    )
    wide = [item.astype(np.float64).reshape(2, n, d) for item in (q, k, v, dout)]
    true = attention_gradient(*wide, d**-0.5, np.tri(n, dtype=bool))
    for actual, expected in zip((dq, dk, dv), true, strict=True):
        np.testing.assert_allclose(actual.reshape(2, n, d), expected, rtol=2e-2, atol=2e-2)


def attention_gradient(q: Any, k: Any, v: Any, dout: Any, scale: float, values: Any) -> list[Any]:
    """The gradients of attention, with all scores at once."""
    scores = np.where(values, q @ k.transpose(0, 2, 1) * scale, -np.inf)
    p = np.exp(scores - scores.max(axis=2, keepdims=True))
    p /= p.sum(axis=2, keepdims=True)
    dp = dout @ v.transpose(0, 2, 1)
    ds = p * (dp - (dp * p).sum(axis=2, keepdims=True)) * scale
    return [ds @ k, ds.transpose(0, 2, 1) @ q, p.transpose(0, 2, 1) @ dout]


# Kernels written by hand.


def test_layer_norm_agrees_with_the_kernel_by_hand(rng):
    by_hand = example("kernels_gradients", "benchmarks")
    kernel = zg.grad(by_hand.layer_norm, wrt=("x_ptr", "weight_ptr", "bias_ptr"), of="y_ptr")
    x, dy = rng.standard_normal((2, 9, 50), np.float32)
    weight, bias = rng.standard_normal((2, 50), np.float32)
    actual, text = ([np.zeros_like(value) for value in (x, weight, bias)] for _ in range(2))
    dx, dweight, dbias = actual
    y = np.zeros_like(x)
    kernel[(9,)](x, dx, y, dy, weight, dweight, bias, dbias, 50, 50, 1e-5, BLOCK=64, strict=True)
    by_hand.layer_norm_backward[(4,)](
        x, text[0], dy, weight, *text[1:], 9, 50, 50, 1e-5, BLOCK=64, strict=True
    )  # fmt: skip
    for value, other in zip(actual, text, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-4, atol=1e-5)


def test_attention_agrees_with_the_kernels_by_hand(rng):
    by_hand, attention = example("kernels_gradients", "benchmarks"), example("attention")
    kernel = zg.grad(attention.attention_kernel, wrt=("q_desc", "k_desc", "v_desc"), of="out_desc")
    n, d = 64, 16
    q, k, v, dout = rng.standard_normal((4, 2 * n, d)).astype(np.float16)
    out, dq, dk, dv, wq, wk, wv = np.zeros((7, 2 * n, d), np.float16)

    def blocks(rows: int, *arrays: np.ndarray) -> list[Any]:
        return [zg.TensorDescriptor(array, [rows, d]) for array in arrays]

    attention.attention(q, k, v, out, n, False, 32, 16)
    kernel[(2, 2)](
        *blocks(32, q, dq), *blocks(16, k, dk, v, dv), *blocks(32, out, dout), n, 0.25,
        CAUSAL=False, BLOCK_M=32, BLOCK_N=16, D=d,
    )  # fmt: skip
    scores = [
        a.astype(float) @ b.astype(float).T * 0.25 for a, b in zip(q.reshape(2, n, d), k.reshape(2, n, d), strict=True)
    ]
    lse = np.concatenate([np.log2(np.exp(value).sum(axis=1)) for value in scores]).astype(np.float32)
    delta = np.zeros(2 * n, np.float32)
    by_hand.attention_delta[(4,)](out, dout, delta, 2 * n, BLOCK=32, D=d)
    by_hand.attention_keys[(4, 2)](
        *blocks(32, q), *blocks(16, k, v), *blocks(32, dout), *blocks(16, wk, wv), lse, delta, n, 0.25,
        BLOCK_M=32, BLOCK_N=16, D=d,
    )  # fmt: skip
    by_hand.attention_queries[(2, 2)](
        *blocks(32, q), *blocks(16, k, v), *blocks(32, dout, wq), lse, delta, n, 0.25, BLOCK_M=32, BLOCK_N=16, D=d
    )
    for value, other in ((dq, wq), (dk, wk), (dv, wv)):
        np.testing.assert_allclose(value, other, rtol=2e-2, atol=2e-2)


# Compiled gradients.


def gradients_to_compile() -> dict[str, tuple[Op, list[int], list[int]]]:
    blocks = [zg.descriptor((rows, 64), zg.f16) for rows in (128, 64, 64, 128)]
    return {
        "vector_add": (example("vector_add").add_kernel.triton(f32, f32, f32, i32, 1024), [2], [0, 1]),
        "softmax": (example("fused_softmax").softmax_kernel.triton(f16, f16, i32, i32, i32, 256), [0], [1]),
        "layer_norm": (
            example("layer_norm").layer_norm_kernel.triton(f16, f16, *[f32] * 4, i32, i32, zg.f32, 256), [1], [0, 2, 3],
        ),
        "matmul": (
            example("grouped_matmul").matmul_kernel.triton(f16, f16, f16, *[i32] * 9, 64, 64, 32, 4, "leaky_relu"),
            [2], [0, 1],
        ),
        "gelu_matmul": (gelu_matmul.triton(*[zg.ptr(zg.bf16)] * 4, i32, i32, i32, 32), [3], [0, 1, 2]),
        "attention": (
            example("attention").attention_kernel.triton(*blocks, i32, zg.f32, False, 128, 64, 64), [3], [0, 1, 2],
        ),
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore::ziggurat.ZigguratWarning")
@pytest.mark.skipif(tool("ptxas") is None, reason="ptxas is not installed")
@pytest.mark.parametrize("name", ["vector_add", "softmax", "layer_norm", "matmul", "gelu_matmul", "attention"])
def test_gradients_are_assembled(name):
    compiled = zg.compile(differentiate(*gradients_to_compile()[name]), target="sm_90a", num_warps=8)
    assembled(compiled.ptx, compiled.target)


@pytest.mark.filterwarnings("ignore::ziggurat.ZigguratWarning")
def test_a_compiled_gradient_simulated(rng):
    kernel = zg.grad(example("fused_softmax").softmax_kernel, wrt="input_ptr", of="output_ptr")
    x, dy = rng.standard_normal((2, 3, 50)).astype(np.float32)
    actual, simulated = np.zeros((2, 3, 50), np.float32)
    kernel[(3,)](np.zeros_like(x), dy, x, actual, 50, 50, 50, BLOCK_SIZE=64)
    compiled = kernel.compile(f32, f32, f32, f32, i32, i32, i32, 64, num_warps=1)
    compiled.simulate[(3,)](np.zeros_like(x), dy, x, simulated, 50, 50, 50)
    np.testing.assert_allclose(simulated, actual, rtol=1e-4, atol=1e-6)
