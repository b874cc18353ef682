"""Products of matrices from a kernel to emitted text: run thread by thread on simulated matrix units, and assembled.

The simulation reads fragments and matrix descriptors as the PTX manual has them, so a wrong layout, swizzle or
descriptor gives wrong sums here. Inputs are small integers, of which all sums are exact.
"""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx import simulate_matrix  # noqa: F401  (teaches the simulation)
from ziggurat.backend.ptx.assemble import to_llvm
from ziggurat.backend.ptx.simulate import simulate
from ziggurat.codemodel.dialects import gpu
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.place.barriers import hazards
from ziggurat.transforms.place.pipeline import PlaceOptions, place

DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "i8": np.int8, "u8": np.uint8,
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


@zg.kernel
def product(
    a_ptr, b_ptr, c_ptr, out_ptr, steps,
    M: zg.constexpr, N: zg.constexpr, K: zg.constexpr,
    am: zg.constexpr, ak: zg.constexpr, bk: zg.constexpr, bn: zg.constexpr,
    precision: zg.constexpr = "tf32",
):  # fmt: skip
    """c plus the sum over the steps of a[:, step] · b[step, :]. An operand's strides may be those of its transpose."""
    rows = zg.expand(zg.arange(0, M), 1)
    columns = zg.expand(zg.arange(0, N), 0)
    a_ptrs = zg.add(a_ptr, zg.add(zg.mul(rows, am), zg.mul(zg.expand(zg.arange(0, K), 0), ak)))
    b_ptrs = zg.add(b_ptr, zg.add(zg.mul(zg.expand(zg.arange(0, K), 1), bk), zg.mul(columns, bn)))
    at = zg.add(zg.mul(rows, N), columns)
    total = zg.load(zg.add(c_ptr, at))
    for step in range(0, steps):
        total = zg.dot(zg.load(a_ptrs), zg.load(b_ptrs), total, input_precision=precision)
        a_ptrs = zg.add(a_ptrs, M * K)
        b_ptrs = zg.add(b_ptrs, N * K)
    zg.store(zg.add(out_ptr, at), total)


def placed(
    m: int, n: int, k: int, dtype: str, target: str, num_warps: int, *, t_a: bool, t_b: bool, precision: str, of: str
) -> gpu.Module:
    pointer, total = (zg.divisible(zg.ptr(getattr(zg, name))) for name in (dtype, of))
    strides = ((1, m) if t_a else (k, 1)) + ((1, k) if t_b else (n, 1))
    model = product.triton(pointer, pointer, total, total, zg.i32, m, n, k, *strides, precision)
    return place(model, PlaceOptions(target, num_warps))


def sum_type(dtype: str) -> str:
    return {"f64": "f64", "i8": "i32", "u8": "i32"}.get(dtype, "f32")


# (m, n, k, dtype, target, num_warps), and what is different from the usual; what computes it.
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
    (16, 16, 16, "f16", "sm_80", 4, {"of": "f16"}, "m16n8k16"),
    (8, 8, 8, "f16", "sm_80", 4, {}, "fma"),
    (32, 32, 64, "f32", "sm_80", 4, {"precision": "ieee"}, "fma"),
    (2, 4, 2, "f32", "sm_80", 1, {}, "fma"),
    (1, 64, 16, "f16", "sm_90a", 4, {}, "fma"),
    (16, 4, 16, "i8", "sm_80", 4, {"t_a": True}, "fma"),
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
]


@pytest.mark.parametrize(("m", "n", "k", "dtype", "target", "num_warps", "more", "unit"), CASES)
def test_products(
    m: int, n: int, k: int, dtype: str, target: str, num_warps: int, more: dict[str, Any], unit: str
) -> None:
    """The chosen unit computes a · b + c twice over, from operands along k and across it."""
    t_a, t_b = more.get("t_a", False), more.get("t_b", False)
    precision, of = more.get("precision", "tf32"), more.get("of", sum_type(dtype))
    module = placed(m, n, k, dtype, target, num_warps, t_a=t_a, t_b=t_b, precision=precision, of=of)
    verify(module)
    assert not hazards(module)
    text = to_llvm(module)
    if unit == "fma":
        assert "mma" not in text
    else:
        assert ("wgmma.mma_async" if "wgmma" in unit else "mma.sync") + ".sync.aligned." * ("wgmma" in unit) in text
        assert unit.split()[-1] in text
    rng = np.random.default_rng(m * n * k)
    low, high = (0, 8) if dtype == "u8" else (-3, 4)
    a, b = rng.integers(low, high, (2, m, k)), rng.integers(low, high, (2, k, n))
    c = rng.integers(-3, 4, (m, n)).astype(DTYPES.get(of, np.int32))
    given = [
        np.ascontiguousarray(x.transpose(0, 2, 1) if across else x).astype(DTYPES[dtype])
        for x, across in ((a, t_a), (b, t_b))
    ]
    out = np.zeros_like(c)
    simulate(text, num_warps=num_warps, shared=module.shared, arguments=[*given, c, out, 2])
    expected = c.astype(np.float64) + sum(x @ y for x, y in zip(a, b, strict=True))
    np.testing.assert_array_equal(out.astype(np.float64), expected)
