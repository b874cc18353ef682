"""Triton models printed as Triton-C, and read again."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ziggurat as zg

ROOT = Path(__file__).parents[3]


def without_symbols(model: zg.Op) -> str:
    """The text of a simplified model without the names of functions."""
    return re.sub(r'@"[^"]*_[^"]*"', "@f", str(zg.simplify(model)))


def loaded(file: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{file}", ROOT / "examples" / f"{file}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


F16, F32, I32 = zg.ptr(zg.f16), zg.divisible(zg.ptr(zg.f32), 16), zg.ptr(zg.i32)
MATMUL = [F16, F16, F16, *[zg.i32] * 4, 1, zg.i32, 1, zg.i32, 1]


@pytest.mark.parametrize(
    ("file", "name", "types"),
    [
        ("vector_add", "add_kernel", [F32, F32, F32, zg.i32, 1024]),
        ("fused_softmax", "softmax_kernel", [F32, F32, *[zg.i32] * 3, 1024]),
        ("fused_softmax", "softmax_kernel", [F16, F16, *[zg.i32] * 3, 256]),
        ("layer_norm", "layer_norm_kernel", [F16, F16, *[F32] * 4, zg.i32, zg.i32, zg.f32, 2048]),
        ("histogram", "histogram_kernel", [I32, I32, zg.i32, 16, 256]),
        ("while_loop", "collatz_kernel", [I32, zg.ptr(zg.i64)]),
        ("own_transform", "polynomial_kernel", [F32, F32, zg.i32, 128]),
        ("grouped_matmul", "matmul_kernel", [*MATMUL, 32, 64, 32, 4, "leaky_relu"]),
        ("grouped_matmul", "matmul_kernel", [*MATMUL, 128, 128, 64, 8, None]),
    ],
)
def test_examples_are_read_as_they_were(file, name, types):
    model = getattr(loaded(file), name).triton(*types)
    read = zg.triton_c(zg.to_triton_c(model)).triton()
    assert without_symbols(read) == without_symbols(model)


@zg.kernel
def of_many_ops(x_ptr, n_ptr, out_ptr, count, N: zg.constexpr):
    i = zg.arange(0, N)
    mask = zg.less(i, count)
    x = zg.load(zg.add(x_ptr, i), mask, other=-1.5)
    n = zg.load(zg.add(n_ptr, i))
    pairs = zg.reshape(x, (N // 2, 2))
    left, right = zg.split(pairs)
    both = zg.ravel(zg.join(zg.add(left, 1.0), zg.mul(right, 2.0)))
    rows = zg.trans(zg.permute(pairs, 1, 0))
    total = zg.sum(rows, axis=0)
    largest, place = zg.max(x, axis=0, return_indices=True)
    product = zg.prod(zg.where(zg.greater(x, 0.0), x, 1.0), axis=0)
    bits = zg.add(zg.xor(zg.shl(n, 2), zg.popc(n)), zg.mod(n, 7))
    small = zg.cast(zg.cast(x, zg.f16), zg.f32)
    chosen = zg.where(mask, both, small)
    chosen = zg.add(chosen, zg.add(zg.cumsum(x, 0), zg.sub(largest, zg.cast(place, zg.f32))))
    k = 0
    value = product
    while k < count:
        value = zg.add(value, zg.sum(total, axis=0))
        if k == 3:
            value = zg.mul(value, 0.5)
        k += 1
    for j in range(count, 0, -2):
        value = zg.add(value, zg.cast(j, zg.f32))
    if count > 100:
        value = zg.exp(value)
    else:
        value = zg.sqrt(zg.abs(value))
    chosen = zg.add(zg.add(chosen, value), zg.cast(bits, zg.f32))
    zg.store(zg.add(out_ptr, i), chosen, mask)
    zg.atomic_add(out_ptr, zg.cast(zg.program_id(0), zg.f32))
    zg.atomic_max(n_ptr, 5)


def test_the_text_computes_the_same():
    model = of_many_ops.triton(zg.ptr(zg.f32), zg.ptr(zg.i32), zg.ptr(zg.f32), zg.i32, 32)
    text = zg.to_triton_c(model)
    kernel = zg.triton_c(text)
    random = np.random.default_rng(0)
    x, n = random.standard_normal(32).astype(np.float32), random.integers(0, 99, 32).astype(np.int32)
    results = []
    for run in (lambda *a: of_many_ops[1](*a, 32), kernel[1]):
        out, numbers = np.zeros(32, np.float32), n.copy()
        run(x, numbers, out, 29)
        results.append((out, numbers))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])
    assert zg.to_triton_c(kernel.triton()).count("\n") >= 40


@zg.kernel
def of_options(x_ptr, out_ptr, N: zg.constexpr):
    i = zg.arange(0, N)
    x = zg.load(zg.add(x_ptr, i), cache_modifier=".cg", eviction_policy="evict_first")
    bits = zg.bitcast(zg.bitcast(x, zg.bf16), zg.f16)
    value, place = zg.min(x, axis=0, return_indices=True)
    zg.store(zg.add(out_ptr, i), zg.cast(bits, zg.f32), cache_modifier=".wb")
    zg.atomic_add(out_ptr, zg.cast(place, zg.f32), sem="relaxed", scope="cta")
    zg.atomic_max(out_ptr, zg.cast(value, zg.f32))


def test_options_of_accesses_and_bits_are_kept():
    model = of_options.triton(zg.ptr(zg.f16), zg.ptr(zg.f32), 16)
    text = zg.to_triton_c(model)
    for said in ('".cg", "evict_first")', "bitcast(", '".wb"', '"relaxed", "cta")', "min(v", "true)[1]"):
        assert said in text, said
    x = np.array([1.5, np.nan, -2.25, 3.0] * 4, np.float16)
    results = [np.zeros(16, np.float32), np.zeros(16, np.float32)]
    of_options[1](x, results[0], 16)
    zg.triton_c(text)[1](x, results[1])
    np.testing.assert_array_equal(*results)


def test_a_constant_that_is_shifted_keeps_its_type():
    @zg.kernel
    def powers(out_ptr, n, N: zg.constexpr):
        i = zg.cast(zg.arange(0, N), zg.i64)
        zg.store(zg.add(out_ptr, zg.arange(0, N)), zg.shl(1, zg.add(i, n)))

    out = np.zeros(8, np.int64)
    zg.triton_c(zg.to_triton_c(powers.triton(zg.ptr(zg.i64), zg.i32, 8)))[1](out, 40)
    assert list(out) == [1 << k for k in range(40, 48)]


def test_the_text_of_a_small_kernel():
    @zg.kernel
    def scale(x_ptr, out_ptr, n, BLOCK: zg.constexpr):
        i = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
        x = zg.load(zg.add(x_ptr, i), zg.less(i, n), other=0.0)
        zg.store(zg.add(out_ptr, i), zg.mul(x, 0.5))

    text = zg.to_triton_c(scale.triton(zg.divisible(zg.ptr(zg.f32), 16), zg.ptr(zg.f32), zg.divisible(zg.i32, 8), 64))
    assert (
        text
        == """\
__global__ void scale(float *p0 __aligned(16), float *p1, int p2 __multipleof(8)) {
  int v3 = 64;
  int v4 = get_program_id(0);
  int v5 = v4 * v3;
  int v6[64] = 0 ... 64;
  int v7[64] = v5 + v6;
  float *v8[64] = p0 + v7;
  bool v9[64] = v7 < p2;
  float v10[64] = 0.0;
  float v11[64] = load(v8, v9, v10);
  float *v12[64] = p1 + v7;
  float v13[64] = v11 * 0.5;
  *v12 = v13;
}
"""
    )


def test_an_op_that_triton_c_cannot_express_is_an_error_at_its_place():
    @zg.kernel
    def described(x_ptr, n):
        block = zg.make_tensor_descriptor(x_ptr, (n, n), (n, 1), (16, 16))
        block.store((0, 0), block.load((0, 0)))

    with pytest.raises(zg.TargetError, match=r"Triton-C cannot express tt\.make_tensor_descriptor") as found:
        zg.to_triton_c(described.triton(zg.ptr(zg.f32), zg.i32))
    assert "zg.make_tensor_descriptor(x_ptr" in str(found.value)
    assert "hint: use pointers" in str(found.value)

    @zg.kernel
    def pipelined(x_ptr, n):
        for i in zg.range(0, n, 1, num_stages=3):
            zg.store(x_ptr + i, 1.0)

    with pytest.raises(zg.TargetError, match=r"the option num_stages of a loop\n(.*\n)*  hint: leave the option out"):
        zg.to_triton_c(pipelined.triton(zg.ptr(zg.f32), zg.i32))
    with pytest.raises(zg.TargetError, match="takes a Triton model"):
        zg.to_triton_c(pipelined.model)

    @zg.kernel
    def printing(n):
        print("n", n)

    with pytest.raises(zg.TargetError, match=r"tt\.print: a whole line\n(.*\n)*  hint: use zg\.device_print for each"):
        zg.to_triton_c(printing.triton(zg.i32))


@pytest.mark.parametrize("wrong", [None, "model", zg.kernel])
def test_only_models_are_printed(wrong: object):
    with pytest.raises(zg.KernelTypeError, match="the model must be an Op"):
        zg.to_triton_c(wrong)  # type: ignore[arg-type]
