"""Dots from a kernel to emitted text: run thread by thread on simulated matrix units, and assembled.

The simulation reads fragments and matrix descriptors as the PTX manual has them, so a wrong layout, swizzle or
descriptor gives wrong sums here. Inputs are small integers, of which all sums are exact.
"""

import re
import subprocess
import sysconfig
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.assemble import assemble, to_llvm
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.codemodel.dialects import scf
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import TensorType
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.gpu.gpu_passes import place
from ziggurat.transforms.gpu.hazards import hazards

DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "i8": np.int8, "u8": np.uint8,
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


@zg.kernel
def product(
    a_ptr, b_ptr, c_ptr, out_ptr, steps,
    M: zg.constexpr, N: zg.constexpr, K: zg.constexpr,
    am: zg.constexpr, ak: zg.constexpr, bk: zg.constexpr, bn: zg.constexpr,
    precision: zg.constexpr = "tf32", imprecise: zg.constexpr = None,
):  # fmt: skip
    """c plus the sum over the steps of a[:, step] · b[step, :]. An operand's strides may be those of its transpose."""
    rows = zg.expand(zg.arange(0, M), 1)
    columns = zg.expand(zg.arange(0, N), 0)
    a_ptrs = zg.add(a_ptr, zg.add(zg.mul(rows, am), zg.mul(zg.expand(zg.arange(0, K), 0), ak)))
    b_ptrs = zg.add(b_ptr, zg.add(zg.mul(zg.expand(zg.arange(0, K), 1), bk), zg.mul(columns, bn)))
    at = zg.add(zg.mul(rows, N), columns)
    total = zg.load(zg.add(c_ptr, at))
    for step in range(0, steps):
        total = zg.dot(
            zg.load(a_ptrs), zg.load(b_ptrs), total, input_precision=precision, max_num_imprecise_acc=imprecise
        )
        a_ptrs = zg.add(a_ptrs, M * K)
        b_ptrs = zg.add(b_ptrs, N * K)
    zg.store(zg.add(out_ptr, at), total)


def placed(
    m: int, n: int, k: int, dtype: str, target: str, num_warps: int, *, t_a: bool, t_b: bool, precision: str, of: str,
    b: str = "", imprecise: int | None = None,
) -> gpu.Module:  # fmt: skip
    pointer, other, total = (zg.divisible(zg.ptr(getattr(zg, name))) for name in (dtype, b or dtype, of))
    strides = ((1, m) if t_a else (k, 1)) + ((1, k) if t_b else (n, 1))
    model = product.triton(pointer, other, total, total, zg.i32, m, n, k, *strides, precision, imprecise)
    return place(model, CompileOptions(target, num_warps, raise_pointers=False))


def sum_type(dtype: str) -> str:
    return {"f64": "f64", "i8": "i32", "u8": "i32"}.get(dtype, "f32")


# (m, n, k, dtype, target, num_warps), the arguments that differ from the default, and the unit.
CASES: list[tuple[Any, ...]] = [
    (16, 16, 16, "f16", "sm_80", 1, {}, "m16n8k16"),
    (16, 16, 16, "f16", "sm_90a", 4, {}, "m16n8k16"),
    (32, 64, 32, "bf16", "sm_80", 4, {"t_a": True}, "m16n8k16"),
    (64, 32, 64, "f16", "sm_80", 4, {"t_b": True}, "m16n8k16"),
    (32, 16, 16, "f32", "sm_80", 2, {}, "m16n8k8"),
    (16, 32, 32, "f32", "sm_80", 4, {"t_b": True, "precision": "tf32x3"}, "m16n8k8"),
    (32, 32, 64, "i8", "sm_80", 4, {}, "m16n8k32"),
    (32, 16, 32, "u8", "sm_80", 1, {"t_b": True}, "m16n8k32"),
    (32, 16, 32, "f8e4m3", "sm_89", 2, {}, "m16n8k32"),
    (32, 16, 32, "f8e5m2", "sm_80", 2, {}, "m16n8k16"),
    (16, 16, 16, "f8e4m3", "sm_90a", 4, {}, "m16n8k16"),
    (32, 16, 16, "f64", "sm_80", 4, {}, "m8n8k4"),
    (32, 16, 32, "f64", "sm_90a", 4, {"t_a": True}, "m16n8k16"),
    (64, 16, 16, "f64", "sm_100a", 4, {"t_b": True}, "m16n8k16"),
    (16, 16, 8, "f64", "sm_90", 1, {}, "m16n8k8"),
    (16, 8, 4, "f64", "sm_90a", 1, {}, "m16n8k4"),
    (16, 8, 4, "f64", "sm_80", 1, {}, "m8n8k4"),
    (8, 16, 16, "f64", "sm_90a", 2, {}, "m8n8k4"),
    (32, 16, 16, "i8", "sm_80", 4, {}, "m16n8k16"),
    (16, 32, 16, "u8", "sm_90a", 2, {"t_a": True, "t_b": True}, "m16n8k16"),
    (64, 32, 16, "i8", "sm_90a", 4, {"t_b": True}, "m16n8k16"),
    (16, 16, 16, "f16", "sm_80", 4, {"of": "f16"}, "m16n8k16"),
    (8, 8, 8, "f16", "sm_80", 4, {}, "fma"),
    (32, 32, 64, "f32", "sm_80", 4, {"precision": "ieee"}, "fma"),
    (2, 4, 2, "f32", "sm_80", 1, {}, "fma"),
    # Of fewer rows or columns than the unit has, lanes have copies; or it computes the transposed product.
    (1, 64, 16, "f16", "sm_90a", 4, {}, "m16n8k16"),
    (16, 4, 16, "i8", "sm_80", 4, {"t_a": True}, "m16n8k16"),
    (8, 64, 32, "bf16", "sm_90a", 4, {}, "m16n8k16"),
    (8, 32, 64, "f16", "sm_80", 4, {"t_a": True, "t_b": True}, "m16n8k16"),
    (2, 16, 32, "f16", "sm_80", 2, {"t_b": True}, "m16n8k16"),
    (4, 32, 32, "f8e4m3", "sm_89", 4, {"t_b": True}, "m16n8k32"),
    (8, 16, 64, "i8", "sm_90a", 4, {}, "m16n8k32"),
    (1, 1, 64, "f16", "sm_90a", 4, {}, "m16n8k16"),
    (2, 2, 16, "bf16", "sm_80", 1, {"t_a": True}, "m16n8k16"),
    (1, 16, 16, "f32", "sm_90a", 4, {}, "m16n8k8"),
    (4, 8, 32, "f32", "sm_80", 2, {"t_b": True, "precision": "tf32x3"}, "m16n8k8"),
    (4, 2, 16, "f64", "sm_80", 2, {}, "m8n8k4"),
    (4, 16, 8, "f64", "sm_100a", 2, {}, "m8n8k4"),
    (32, 1, 16, "f64", "sm_90a", 4, {}, "m16n8k16"),
    (16, 1, 64, "f16", "sm_90a", 4, {"of": "f16"}, "m16n8k16"),
    (128, 4, 32, "f16", "sm_90a", 4, {}, "m16n8k16"),
    (4, 128, 64, "f16", "sm_90a", 8, {}, "m16n8k16"),
    (4, 16, 2, "f64", "sm_80", 8, {}, "fma"),
    (64, 64, 32, "f16", "sm_90a", 4, {}, "wgmma m64n64k16"),
    (64, 32, 64, "bf16", "sm_90a", 4, {"t_b": True}, "wgmma m64n32k16"),
    (128, 32, 16, "f16", "sm_90a", 4, {"t_a": True}, "wgmma m64n32k16"),
    (128, 128, 64, "f16", "sm_90a", 8, {}, "wgmma m64n128k16"),
    (64, 128, 32, "f16", "sm_90a", 8, {"t_a": True}, "wgmma m64n64k16"),
    (64, 16, 128, "f16", "sm_90a", 4, {}, "wgmma m64n16k16"),
    (64, 8, 16, "f16", "sm_90a", 4, {}, "wgmma m64n8k16"),
    (64, 16, 32, "f32", "sm_90a", 4, {}, "wgmma m64n16k8"),
    (64, 16, 8, "f32", "sm_90a", 4, {"t_a": True, "t_b": True}, "wgmma m64n16k8"),
    (64, 32, 16, "f32", "sm_90a", 4, {"precision": "tf32x3"}, "wgmma m64n32k8"),
    (64, 32, 64, "i8", "sm_90a", 4, {}, "wgmma m64n32k32"),
    (64, 32, 32, "u8", "sm_90a", 8, {"t_b": True}, "wgmma m64n16k32"),
    (64, 16, 128, "f8e4m3", "sm_90a", 4, {}, "wgmma m64n16k32"),
    (64, 16, 32, "f8e5m2", "sm_90a", 4, {"t_a": True}, "wgmma m64n16k32"),
    (64, 16, 16, "f16", "sm_90a", 4, {"of": "f16"}, "wgmma m64n16k16"),
    (16, 32, 32, "f32", "sm_80", 4, {"t_b": True, "precision": "bf16x3"}, "m16n8k16"),
    (64, 32, 16, "f32", "sm_90a", 4, {"precision": "bf16x6"}, "wgmma m64n32k16"),
    (16, 16, 8, "f32", "sm_90a", 1, {"precision": "bf16x6"}, "fma"),
    (32, 16, 32, "f8e4m3", "sm_89", 2, {"b": "f8e5m2"}, "m16n8k32"),
    (32, 16, 32, "f8e5m2", "sm_80", 2, {"b": "f8e4m3"}, "m16n8k16"),
    (64, 16, 64, "f8e5m2", "sm_90a", 4, {"b": "f8e4m3"}, "wgmma m64n16k32"),
    (32, 16, 64, "i8", "sm_80", 2, {"b": "u8"}, "m16n8k32"),
    (64, 16, 32, "u8", "sm_90a", 4, {"b": "i8", "t_a": True}, "wgmma m64n16k32"),
    (8, 8, 8, "u8", "sm_80", 4, {"b": "i8"}, "fma"),
    (64, 16, 128, "f8e4m3", "sm_90a", 4, {"imprecise": 64}, "wgmma m64n16k32"),
    (64, 16, 64, "f8e5m2", "sm_90a", 4, {"imprecise": 64, "t_b": True}, "wgmma m64n16k32"),
]


@pytest.mark.parametrize(("m", "n", "k", "dtype", "target", "num_warps", "more", "unit"), CASES)
def test_products(
    m: int, n: int, k: int, dtype: str, target: str, num_warps: int, more: dict[str, Any], unit: str
) -> None:
    """The chosen unit computes a · b + c twice over, from operands along k and across it."""
    t_a, t_b = more.get("t_a", False), more.get("t_b", False)
    precision, of = more.get("precision", "tf32"), more.get("of", sum_type(dtype))
    rest = {name: more[name] for name in ("b", "imprecise") if name in more}
    module = placed(m, n, k, dtype, target, num_warps, t_a=t_a, t_b=t_b, precision=precision, of=of, **rest)
    verify(module)
    assert not hazards(module)
    text = to_llvm(module)
    if unit == "fma":
        assert "mma" not in text
    else:
        assert ("wgmma.mma_async" if "wgmma" in unit else "mma.sync") + ".sync.aligned." * ("wgmma" in unit) in text
        assert unit.split()[-1] in text
    rng = np.random.default_rng(m * n * k)
    names = (dtype, rest.get("b", dtype))
    limits = [(0, 8) if name == "u8" else (-3, 4) for name in names]
    a, b = rng.integers(*limits[0], (2, m, k)), rng.integers(*limits[1], (2, k, n))
    c = rng.integers(-3, 4, (m, n)).astype(DTYPES.get(of, np.int32))
    arguments = [
        np.ascontiguousarray(x.transpose(0, 2, 1) if across else x).astype(DTYPES[name])
        for x, across, name in zip((a, b), (t_a, t_b), names, strict=True)
    ]
    out = np.zeros_like(c)
    simulate(text, num_warps=num_warps, shared=module.shared, arguments=[*arguments, c, out, 2])
    expected = c.astype(np.float64) + sum(x @ y for x, y in zip(a, b, strict=True))
    np.testing.assert_array_equal(out.astype(np.float64), expected)


@zg.kernel
def chained(q_ptr, k_ptr, v_ptr, out_ptr, M: zg.constexpr, N: zg.constexpr, D: zg.constexpr):
    """(q · kᵀ) · v, with the scores rounded to f16 in between, as in attention."""
    rows, across = zg.expand(zg.arange(0, M), 1), zg.expand(zg.arange(0, D), 0)
    keys = zg.expand(zg.arange(0, N), 1)
    q = zg.load(zg.add(q_ptr, zg.add(zg.mul(rows, D), across)))
    k = zg.load(zg.add(k_ptr, zg.add(zg.mul(keys, D), across)))
    v = zg.load(zg.add(v_ptr, zg.add(zg.mul(keys, D), across)))
    scores = zg.cast(zg.add(zg.dot(q, zg.trans(k)), 1.0), zg.f16)
    zg.store(zg.add(out_ptr, zg.add(zg.mul(rows, D), across)), zg.dot(scores, v))


@pytest.mark.parametrize(
    ("target", "m", "num_warps"), [("sm_90a", 64, 4), ("sm_90a", 128, 8), ("sm_80", 64, 4), ("sm_90a", 16, 4)]
)
def test_a_sum_goes_on_as_an_operand(target: str, m: int, num_warps: int) -> None:
    """The accumulator of the first dot is an operand of the second one, in the same registers, if warps have rows."""
    n, d = 32, 16
    half = zg.divisible(zg.ptr(zg.f16))
    module = place(
        chained.triton(half, half, half, zg.divisible(zg.ptr(zg.f32)), m, n, d), CompileOptions(target, num_warps)
    )
    verify(module)
    assert not hazards(module)
    products = [op for op in module.walk() if isinstance(op, gpu.Wgmma | gpu.Mma)]
    assert len(products) == 2
    # Warps that share the columns of the first dot need the columns of other warps.
    assert isinstance(products[1].a.type, TensorType) == (m >= 16 * num_warps)
    rng = np.random.default_rng(0)
    q, k, v = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((m, d), (n, d), (n, d)))
    out = np.zeros((m, d), np.float32)
    simulate(to_llvm(module), num_warps=num_warps, shared=module.shared, arguments=[q, k, v, out])
    wide = [x.astype(np.float64) for x in (q, k, v)]
    np.testing.assert_array_equal(out, (wide[0] @ wide[1].T + 1) @ wide[2])


@zg.kernel
def chained_batch(q_ptr, k_ptr, v_ptr, out_ptr, B: zg.constexpr, M: zg.constexpr, N: zg.constexpr, D: zg.constexpr):
    """The same for each matrix of a batch."""
    of_m, of_n = zg.reshape(zg.arange(0, B * M * D), (B, M, D)), zg.reshape(zg.arange(0, B * N * D), (B, N, D))
    q, k = zg.load(zg.add(q_ptr, of_m)), zg.load(zg.add(k_ptr, of_n))
    scores = zg.cast(zg.add(zg.dot(q, zg.permute(k, 0, 2, 1)), 1.0), zg.f16)
    zg.store(zg.add(out_ptr, of_m), zg.dot(scores, zg.load(zg.add(v_ptr, of_n))))


@pytest.mark.parametrize(("target", "count", "num_warps"), [("sm_80", 4, 4), ("sm_90a", 2, 4), ("sm_90a", 8, 2)])
def test_sums_of_a_batch_go_on_as_operands(target: str, count: int, num_warps: int) -> None:
    """The accumulators stay in their registers: a warp has whole rows of both dots."""
    m, n, d = 32, 16, 16
    half = zg.divisible(zg.ptr(zg.f16))
    model = chained_batch.triton(half, half, half, zg.divisible(zg.ptr(zg.f32)), count, m, n, d)
    module = place(model, CompileOptions(target, num_warps))
    assert not hazards(module)
    products = [op for op in module.walk() if isinstance(op, gpu.Mma)]
    assert len(products) == 2 and isinstance(products[1].a.type, TensorType)
    rng = np.random.default_rng(0)
    q, k, v = (rng.integers(-2, 3, (count, size, d)).astype(np.float16) for size in (m, n, n))
    out = np.zeros((count, m, d), np.float32)
    simulate(to_llvm(module), num_warps=num_warps, shared=module.shared, arguments=[q, k, v, out])
    wide = [x.astype(np.float64) for x in (q, k, v)]
    np.testing.assert_array_equal(out, (wide[0] @ wide[1].swapaxes(1, 2) + 1) @ wide[2])


@zg.kernel
def repeated(q_ptr, k_ptr, out_ptr, steps, M: zg.constexpr, N: zg.constexpr, D: zg.constexpr):
    """The sum over steps of q · k[step]ᵀ, twice."""
    rows, across = zg.expand(zg.arange(0, M), 1), zg.expand(zg.arange(0, D), 0)
    keys = zg.expand(zg.arange(0, N), 1)
    q = zg.load(zg.add(q_ptr, zg.add(zg.mul(rows, D), across)))
    total = zg.zeros((M, N), zg.f32)
    for _ in range(0, 2):
        for step in range(0, steps):
            k = zg.load(zg.add(k_ptr + step * N * D, zg.add(zg.mul(keys, D), across)))
            total = zg.dot(q, zg.trans(k), total)
    zg.store(zg.add(out_ptr, zg.add(zg.mul(rows, N), zg.expand(zg.arange(0, N), 0))), total)


@pytest.mark.parametrize(("target", "m"), [("sm_90a", 64), ("sm_80", 32)])
def test_a_loop_invariant_operand_is_stored_before_the_loop(target: str, m: int) -> None:
    n, d, steps = 16, 32, 3
    half = zg.divisible(zg.ptr(zg.f16))
    module = place(repeated.triton(half, half, zg.ptr(zg.f32), zg.i32, m, n, d), CompileOptions(target, 4, 1))
    verify(module)
    assert not hazards(module)
    loops = [op for op in module.walk() if isinstance(op, scf.For)]
    assert all(sum(isinstance(op, gpu.LocalStore) for op in loop.body.walk()) == 1 for loop in loops)
    rng = np.random.default_rng(3)
    q, k = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((m, d), (steps, n, d)))
    out = np.zeros((m, n), np.float32)
    simulate(to_llvm(module), num_warps=4, shared=module.shared, arguments=[q, k, out, steps])
    np.testing.assert_array_equal(out, 2 * sum(q.astype(np.float64) @ x.astype(np.float64).T for x in k))


@zg.kernel
def batched(
    a_ptr, b_ptr, c_ptr, out_ptr, steps, count,
    B: zg.constexpr, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr,
    am: zg.constexpr, ak: zg.constexpr, bk: zg.constexpr, bn: zg.constexpr,
    precision: zg.constexpr = "tf32",
):  # fmt: skip
    """`product` for each of `count` matrices; the other matrices of a batch are loaded as 0."""
    batch = zg.reshape(zg.arange(0, B), (B, 1, 1))
    rows, columns = zg.reshape(zg.arange(0, M), (1, M, 1)), zg.reshape(zg.arange(0, N), (1, 1, N))
    deep_a, deep_b = zg.reshape(zg.arange(0, K), (1, 1, K)), zg.reshape(zg.arange(0, K), (1, K, 1))
    a_ptrs = zg.add(a_ptr, zg.add(zg.mul(batch, M * K), zg.add(zg.mul(rows, am), zg.mul(deep_a, ak))))
    b_ptrs = zg.add(b_ptr, zg.add(zg.mul(batch, K * N), zg.add(zg.mul(deep_b, bk), zg.mul(columns, bn))))
    at = zg.add(zg.mul(batch, M * N), zg.add(zg.mul(rows, N), columns))
    inside = zg.compare(batch, count, zg.CompareKind.LESS_THAN)
    total = zg.load(zg.add(c_ptr, at), inside, other=0)
    for step in range(0, steps):
        a, b = zg.load(a_ptrs, inside, other=0), zg.load(b_ptrs, inside, other=0)
        total = zg.dot(a, b, total, input_precision=precision)
        a_ptrs = zg.add(a_ptrs, B * M * K)
        b_ptrs = zg.add(b_ptrs, B * N * K)
    zg.store(zg.add(out_ptr, at), total, inside)


def placed_batch(
    shape: tuple[int, int, int, int], dtype: str, target: str, num_warps: int, *, stages: int = 3, **more: Any
) -> gpu.Module:
    _, m, n, k = shape
    of = more.get("of", sum_type(dtype))
    pointer, total = (zg.divisible(zg.ptr(getattr(zg, name))) for name in (dtype, of))
    strides = ((1, m) if more.get("t_a") else (k, 1)) + ((1, k) if more.get("t_b") else (n, 1))
    precision = more.get("precision", "tf32")
    model = batched.triton(pointer, pointer, total, total, zg.i32, zg.i32, *shape, *strides, precision)
    return place(model, CompileOptions(target, num_warps, stages))


# (batch, m, n, k), dtype, target, num_warps, the arguments that differ from the default, and the unit.
BATCHES: list[tuple[Any, ...]] = [
    ((2, 16, 8, 16), "f16", "sm_90a", 4, {}, "m16n8k16"),
    ((4, 16, 16, 32), "f16", "sm_80", 1, {"count": 3}, "m16n8k16"),
    ((4, 32, 32, 16), "bf16", "sm_80", 2, {"t_a": True, "count": 3}, "m16n8k16"),
    ((2, 64, 16, 32), "f16", "sm_90a", 4, {"t_b": True}, "m16n8k16"),  # wgmma has no batches.
    ((8, 16, 16, 32), "f16", "sm_100a", 8, {"t_a": True, "t_b": True, "count": 5}, "m16n8k16"),
    ((1, 32, 32, 32), "f16", "sm_80", 8, {}, "m16n8k16"),
    ((2, 16, 16, 16), "f16", "sm_80", 4, {"of": "f16"}, "m16n8k16"),
    ((2, 32, 16, 16), "f32", "sm_80", 8, {"count": 1}, "m16n8k8"),
    ((4, 16, 16, 16), "f32", "sm_90a", 4, {"t_b": True, "precision": "tf32x3"}, "m16n8k8"),
    ((4, 16, 16, 64), "i8", "sm_80", 4, {"t_b": True}, "m16n8k32"),
    ((2, 16, 32, 32), "u8", "sm_90a", 4, {"count": 1}, "m16n8k32"),
    ((2, 16, 16, 16), "i8", "sm_80", 4, {}, "m16n8k16"),
    ((2, 16, 16, 64), "f8e4m3", "sm_89", 2, {"t_b": True}, "m16n8k32"),
    ((4, 16, 8, 32), "f8e5m2", "sm_80", 4, {}, "m16n8k16"),
    ((2, 16, 16, 8), "f64", "sm_80", 4, {"t_a": True}, "m8n8k4"),
    ((4, 16, 16, 16), "f64", "sm_90a", 4, {"t_b": True, "count": 3}, "m16n8k16"),
    ((2, 32, 8, 8), "f64", "sm_90a", 2, {}, "m16n8k8"),
    ((4, 2, 4, 8), "f16", "sm_90a", 1, {}, "fma"),
    ((2, 8, 16, 16), "f16", "sm_80", 4, {"count": 1}, "m16n8k16"),
    ((4, 1, 4, 64), "bf16", "sm_90a", 1, {}, "m16n8k16"),
    ((4, 4, 4, 32), "f16", "sm_80", 2, {"t_a": True}, "m16n8k16"),
    ((2, 16, 1, 16), "f32", "sm_90a", 4, {"count": 1}, "m16n8k8"),
    ((8, 2, 32, 64), "i8", "sm_90a", 4, {"t_b": True}, "m16n8k32"),
    ((2, 16, 16, 16), "f32", "sm_80", 4, {"precision": "ieee"}, "fma"),
]


@pytest.mark.parametrize(("shape", "dtype", "target", "num_warps", "more", "unit"), BATCHES)
def test_batches(
    shape: tuple[int, int, int, int], dtype: str, target: str, num_warps: int, more: dict[str, Any], unit: str
) -> None:
    """Dots of batches, by the MMA of single matrices; in a pipelined loop of three steps."""
    count, m, n, k = shape
    real, of = more.get("count", count), more.get("of", sum_type(dtype))
    module = placed_batch(shape, dtype, target, num_warps, **more)
    verify(module)
    assert not hazards(module)
    text = to_llvm(module)
    assert "wgmma" not in text and ("mma.sync" not in text if unit == "fma" else f"aligned.{unit}." in text)
    rng = np.random.default_rng(count * m * n * k)
    low, high = (0, 8) if dtype == "u8" else (-3, 4)
    a, b = rng.integers(low, high, (3, count, m, k)), rng.integers(low, high, (3, count, k, n))
    c = rng.integers(-3, 4, (count, m, n)).astype(DTYPES.get(of, np.int32))
    arguments = [
        np.ascontiguousarray(x.swapaxes(2, 3) if across else x).astype(DTYPES[dtype])
        for x, across in ((a, more.get("t_a")), (b, more.get("t_b")))
    ]
    out = np.zeros_like(c)
    simulate(text, num_warps=num_warps, shared=module.shared, arguments=[*arguments, c, out, 3, real])
    expected = c.astype(np.float64) + (a.astype(np.float64) @ b.astype(np.float64)).sum(axis=0)
    expected[real:] = 0
    np.testing.assert_array_equal(out.astype(np.float64), expected)


@pytest.mark.parametrize(("target", "num_warps"), [("sm_80", 1), ("sm_80", 4), ("sm_90a", 8)])
def test_warps_have_matrices_of_their_own(target: str, num_warps: int) -> None:
    """With as many matrices as warps, no two warps read the same matrix."""
    module = placed_batch((8, 16, 16, 32), "f16", target, num_warps)
    (results,) = [op for op in module.walk() if isinstance(op, gpu.Mma)]
    assert isinstance(results.c.type, TensorType) and results.c.type.layout is not None
    assert results.c.type.layout.warps == tuple(256 << bit for bit in range(num_warps.bit_length() - 1))
    # 8 matrices × 2 columns of instructions × 2 along k, shared by the warps.
    assert to_llvm(module).count("mma.sync") == 32 // num_warps


def test_precisions_of_f32() -> None:
    """tf32 has 10 bits of mantissa, three products of it have nearly 24, and an infinity stays one."""
    m, n, k = 64, 16, 32
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    b[0, 0] = np.inf
    true = a.astype(np.float64) @ b.astype(np.float64)
    finite = np.isfinite(true)
    errors: dict[str, float] = {}
    for precision in ("tf32", "tf32x3", "bf16x3", "bf16x6", "ieee"):
        module = placed(m, n, k, "f32", "sm_90a", 4, t_a=False, t_b=False, precision=precision, of="f32")
        out = np.zeros((m, n), np.float32)
        zeros = np.zeros_like(out)
        simulate(to_llvm(module), num_warps=4, shared=module.shared, arguments=[a, b, zeros, out, 1])
        np.testing.assert_array_equal(np.isfinite(out), finite)
        np.testing.assert_array_equal(out[~finite], true[~finite])
        errors[precision] = float(np.abs(out[finite] - true[finite]).max())
    assert 1e-4 < errors["tf32"] < 2e-2
    assert errors["tf32x3"] < 2e-5 and errors["bf16x6"] < 2e-5
    assert 2e-5 < errors["bf16x3"] < 1e-3
    assert errors["ieee"] < 1e-5


def test_a_dot_that_was_not_placed() -> None:
    layout = '"1 2 | 4 8 16 32 64 | 128"'
    tile = f"tensor<x16, x16, f32, {layout}>"
    text = f"""gpu.module @target="sm_80" @num_warps=2 ()void -> {{
        tt.func @"k" ()void -> {{
            %0 : {tile} = arith.constant @0.0;
            %1 : {tile} = tt.dot %0 %0 %0;
            tt.return;
        }};
        unreachable;
    }};"""
    module = parse(text)
    assert isinstance(module, gpu.Module)
    with pytest.raises(InternalError, match="should have been placed"):
        to_llvm(module)


PTXAS = Path(sysconfig.get_paths()["purelib"]) / "nvidia/cu13/bin/ptxas"
ASSEMBLED: list[tuple[Any, ...]] = [
    (128, 128, 64, "f16", "sm_90a", 4, "HGMMA"),
    (128, 256, 64, "f16", "sm_90a", 8, "HGMMA"),
    (64, 64, 32, "f32", "sm_90a", 4, "HGMMA"),
    (128, 128, 64, "i8", "sm_90a", 4, "IGMMA"),
    (128, 128, 64, "f8e4m3", "sm_90a", 4, "QGMMA"),
    (16, 16, 16, "f16", "sm_90a", 4, "HMMA"),
    (64, 64, 32, "f64", "sm_90a", 4, "DMMA"),
    (128, 128, 64, "f16", "sm_80", 4, "HMMA"),
    (128, 256, 64, "f16", "sm_80", 8, "HMMA"),
    (64, 64, 32, "f32", "sm_80", 4, "HMMA"),
    (128, 128, 64, "i8", "sm_80", 4, "IMMA"),
    (128, 128, 64, "f8e5m2", "sm_80", 4, "HMMA"),
    (64, 64, 32, "f64", "sm_90a", 8, "DMMA.16x8x16"),
    (64, 64, 16, "i8", "sm_80", 4, "IMMA.16816"),
    (64, 64, 32, "f32", "sm_90a", 4, "HGMMA.64x64x16.F32.BF16", {"precision": "bf16x6"}),
    (64, 64, 64, "f8e5m2", "sm_90a", 4, "QGMMA.64x64x32.F32.E5M2.E4M3", {"b": "f8e4m3"}),
    (64, 64, 64, "u8", "sm_90a", 4, "IGMMA.64x64x32.U8.S8", {"b": "i8"}),
    (32, 32, 64, "i8", "sm_80", 4, "IMMA.16832.S8.U8", {"b": "u8"}),
    (128, 128, 128, "f8e4m3", "sm_90a", 8, "QGMMA", {"imprecise": 64}),
]


# (batch, m, n, k), type, warps; the instructions of each warp on sm_80, on sm_90a and on sm_100a.
HMMA, IMMA, DMMA = "HMMA.16816.F32", "IMMA.16832.S8.S8", "DMMA.8x8x4"
ASSEMBLED_BATCHES: list[tuple[Any, ...]] = [
    ((4, 64, 64, 32), "f16", 4, {}, [(HMMA, 64)] * 3),
    ((8, 32, 32, 32), "bf16", 8, {"t_a": True}, [(HMMA + ".BF16", 16)] * 3),
    ((2, 64, 64, 64), "f16", 8, {"t_b": True}, [(HMMA, 32)] * 3),
    ((4, 32, 32, 32), "f32", 4, {"t_b": True}, [("HMMA.1688.F32.TF32", 32)] * 3),
    ((4, 32, 32, 64), "i8", 4, {"t_b": True}, [(IMMA, 16)] * 3),
    ((4, 32, 32, 16), "i8", 4, {"t_b": True}, [("IMMA.16816.S8.S8", 8)] * 3),
    ((4, 32, 32, 32), "f8e5m2", 4, {}, [(HMMA, 16)] * 3),  # ptxas makes two f16 MMAs of an fp8 one.
    ((4, 32, 32, 16), "f64", 4, {}, [("DMMA.884", 64), ("DMMA.16x8x16", 8), (DMMA, 64)]),
    # Where the copies of the next step are begun before it, LLVM unrolls the small loop eight times.
    ((2, 16, 16, 8), "f64", 2, {"t_b": True}, [("DMMA.884", 8), ("DMMA.16x8x8", 16), (DMMA, 64)]),
]


@cache
def machine_codes(target: str) -> dict[str, tuple[int, str]]:
    """The bytes of spills and the SASS of all these kernels for a target, by their names: those of dots by their cases,
    those of batches by theirs. The SASS is "" without a disassembler.

    They are one text for ptxas and nvdisasm, which takes most of a second to start.
    """
    if not PTXAS.exists():
        pytest.skip("ptxas is not installed (pip install nvidia-cuda-nvcc)")
    modules: dict[str, gpu.Module] = {}
    for case in ASSEMBLED:
        m, n, k, dtype, of_target, num_warps, _, *more = case
        options = {"precision": "tf32", **(more[0] if more else {})}
        if of_target == target:
            modules[str(case)] = placed(
                m, n, k, dtype, target, num_warps, t_a=False, t_b=True, of=sum_type(dtype), **options
            )
    for shape, dtype, num_warps, more, _ in ASSEMBLED_BATCHES:
        modules[str((shape, dtype))] = placed_batch(shape, dtype, target, num_warps, **more)
    text = ""
    for number, module in enumerate(modules.values()):
        assembly = assemble(module, CompileOptions(line_info=False))
        ptx = assembly.ptx.replace(assembly.symbol, f"k{number}")
        text += ptx if not text else ptx[ptx.index(".visible .entry") :]
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder) / "k.ptx", Path(folder) / "k.cubin"
        source.write_text(text)
        command = [str(PTXAS), "-v", "-arch", target, str(source), "-o", str(binary)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        message = done.stdout + done.stderr
        assert done.returncode == 0, message
        assert "C7510" not in message and "serialized" not in message
        disassembler = PTXAS.with_name("nvdisasm")
        sass = ""
        if disassembler.exists():
            command = [str(disassembler), "-c", "-ndf", str(binary)]
            sass = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    spills = dict(re.findall(r"Function properties for (k\d+)\n.* (\d+) bytes spill stores", message))
    codes = {
        f"k{number}": code for number, code in re.findall(r"\.text\.k(\d+):(.*?)(?=\.section|\Z)", sass, re.DOTALL)
    }
    assert len(spills) == len(modules) and len(codes) in (0, len(modules))
    return {name: (int(spills[f"k{at}"]), codes.get(f"k{at}", "")) for at, name in enumerate(modules)}


@pytest.mark.parametrize("case", ASSEMBLED, ids=str)
def test_assembled(case: tuple[Any, ...]) -> None:
    """ptxas finds registers for the accumulators and does not serialise wgmma; the machine code has the instruction."""
    target, instruction = case[4], case[6]
    spilled, code = machine_codes(target)[str(case)]
    assert not spilled and (not code or instruction in code)


@pytest.mark.parametrize("at", range(3), ids=["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize(("shape", "dtype", "num_warps", "more", "make"), ASSEMBLED_BATCHES)
def test_assembled_batches(
    shape: tuple[int, int, int, int], dtype: str, num_warps: int, more: dict[str, Any], make: Any, at: int
) -> None:
    """The machine code has exactly the MMAs of the dot, and no multiply-adds of floats."""
    target, (instruction, count) = ("sm_80", "sm_90a", "sm_100a")[at], make[at]
    spilled, code = machine_codes(target)[str((shape, dtype))]
    # ptxas spills one register for the conversions of fp8, though it takes only 80.
    assert spilled <= (4 if dtype == "f8e5m2" else 0)
    if code:
        assert len(re.findall(rf"\b{re.escape(instruction)} ", code)) == count, sorted(re.findall(r"[DHI]MMA\S*", code))
        assert not re.search(r"\b[FD]FMA", code)


@zg.kernel
def by_blocks(a_desc, b_desc, out_ptr, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    total = zg.zeros((M, N), zg.f32)
    for start in range(0, k, K):
        total = zg.dot(a_desc.load((0, start)), b_desc.load((start, 0)), total)
    rows, columns = zg.expand(zg.arange(0, M), 1), zg.expand(zg.arange(0, N), 0)
    zg.store(zg.add(out_ptr, zg.add(zg.mul(rows, N), columns)), total)


@pytest.mark.parametrize(("m", "target"), [(2, "sm_90a"), (8, "sm_90a"), (8, "sm_120a")])
def test_few_rows_by_blocks(m: int, target: str) -> None:
    """Blocks of 8 rows come by TMA, those of fewer by pointers, and lanes read copies of their rows."""
    n, k, rng = 64, 192, np.random.default_rng(m)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    out = np.zeros((m, n), np.float32)
    blocks = [zg.divisible(zg.descriptor(shape, zg.f16), 16) for shape in ((m, 64), (64, n))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zg.ZigguratWarning)
        compiled = by_blocks.compile(*blocks, zg.ptr(zg.f32), zg.i32, m, n, 64, target=target)
    assert compiled.ptx.count("cp.async.bulk.tensor") >= (2 if m == 8 else 1) and "mma.sync" in compiled.ptx
    compiled.simulate[(1,)](zg.TensorDescriptor(a, (m, 64)), zg.TensorDescriptor(b, (64, n)), out, k)
    np.testing.assert_array_equal(out, a.astype(np.float64) @ b.astype(np.float64))
