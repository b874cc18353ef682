"""Block pointers, dots and launches of Triton's programs on a GPU, against NumPy and the interpreter."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg

pytestmark = pytest.mark.gpu
DTYPES: dict[str, Any] = {
    "f32": np.float32, "i8": np.int8, "u8": np.uint8, "f16": np.float16,
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


@zg.kernel
def matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: zg.constexpr, BN: zg.constexpr, BK: zg.constexpr,
    PRECISION: zg.constexpr = None, IMPRECISE: zg.constexpr = None,
):  # fmt: skip
    a = zg.make_block_ptr(a_ptr, (M, K), (K, 1), (zg.program_id(0) * BM, 0), (BM, BK), (1, 0))
    b = zg.make_block_ptr(b_ptr, (K, N), (N, 1), (0, zg.program_id(1) * BN), (BK, BN), (1, 0))
    acc = zg.zeros((BM, BN), c_ptr.dtype.element_ty)
    for _ in range(0, K, BK):
        acc = zg.dot(
            zg.load(a, boundary_check=(0, 1)), zg.load(b, boundary_check=(0, 1)), acc, input_precision=PRECISION,
            max_num_imprecise_acc=IMPRECISE,
        )  # fmt: skip
        a = zg.advance(a, (0, BK))
        b = zg.advance(b, (BK, 0))
    c = zg.make_block_ptr(c_ptr, (M, N), (N, 1), (zg.program_id(0) * BM, zg.program_id(1) * BN), (BM, BN), (1, 0))
    zg.store(c, acc, boundary_check=(0, 1))


def on_gpu(a: Any, b: Any, of: Any, blocks: tuple[int, int, int], **more: Any) -> Any:
    (m, k), n = a.shape, b.shape[1]
    out = zg.to_device(np.zeros((m, n), of))
    grid = (zg.cdiv(m, blocks[0]), zg.cdiv(n, blocks[1]))
    matmul[grid](zg.to_device(a), zg.to_device(b), out, m, n, k, *blocks, **more)
    return out.numpy()


@pytest.mark.parametrize("shape", [(512, 512, 256), (300, 200, 136), (77, 95, 51)])
@pytest.mark.parametrize("num_warps", [4, 8])
def test_block_pointers(shape: tuple[int, int, int], num_warps: int) -> None:
    m, n, k = shape
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (m, k)).astype(np.float16), rng.integers(-4, 5, (k, n)).astype(np.float16)
    actual = on_gpu(a, b, np.float32, (128, 128, 64), num_warps=num_warps)
    np.testing.assert_array_equal(actual, a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize(("precision", "error"), [("bf16x3", 2e-3), ("bf16x6", 5e-5), ("tf32x3", 5e-5), ("ieee", 5e-5)])
@pytest.mark.parametrize("blocks", [(64, 64, 32), (16, 16, 16)])
def test_precisions(precision: str, error: float, blocks: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((128, 256)).astype(np.float32), rng.standard_normal((256, 128)).astype(np.float32)
    actual = on_gpu(a, b, np.float32, blocks, PRECISION=precision)
    np.testing.assert_allclose(actual, a.astype(np.float64) @ b.astype(np.float64), atol=error, rtol=0)


@pytest.mark.parametrize("pair", [("f8e4m3", "f8e5m2"), ("f8e5m2", "f8e4m3"), ("i8", "u8"), ("u8", "i8")])
@pytest.mark.parametrize("blocks", [(64, 32, 64), (32, 16, 32)])
def test_two_types_of_bytes(pair: tuple[str, str], blocks: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(2)
    a, b = (
        rng.integers(0 if name == "u8" else -8, 9, shape).astype(DTYPES[name])
        for name, shape in zip(pair, ((128, 256), (256, 64)), strict=True)
    )
    actual = on_gpu(a, b, np.int32 if "u8" in pair else np.float32, blocks)
    np.testing.assert_array_equal(actual, a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize("steps", [32, 64, 128])
def test_products_of_bytes_are_added_in_f32(steps: int) -> None:
    """Without the limit, the matrix units keep about 14 bits of a sum."""
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape).astype(DTYPES["f8e4m3"]) for shape in ((256, 2048), (2048, 256)))
    true = a.astype(np.float64) @ b.astype(np.float64)
    actual = on_gpu(a, b, np.float32, (128, 128, 128), IMPRECISE=steps, num_warps=8)
    np.testing.assert_allclose(actual, true, atol=0.05, rtol=1e-3)


@zg.kernel
def scaled(a_ptr, sa_ptr, b_ptr, c_ptr, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    a = zg.load(zg.add(a_ptr, zg.reshape(zg.arange(0, M * K // 2), (M, K // 2))))
    sa = zg.load(zg.add(sa_ptr, zg.reshape(zg.arange(0, M * K // 32), (M, K // 32))))
    b = zg.load(zg.add(b_ptr, zg.reshape(zg.arange(0, K * N), (K, N))))
    c = zg.dot_scaled(a, sa, "e2m1", b, None, "e5m2")
    zg.store(zg.add(c_ptr, zg.reshape(zg.arange(0, M * N), (M, N))), c)


@pytest.mark.parametrize("shape", [(128, 64, 128), (32, 32, 64)])
def test_microscaling(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(4)
    a, sa = rng.integers(0, 256, (m, k // 2)).astype(np.uint8), rng.integers(124, 131, (m, k // 32)).astype(np.uint8)
    b = rng.integers(-4, 5, (k, n)).astype(DTYPES["f8e5m2"])
    here, there = np.zeros((m, n), np.float32), zg.to_device(np.zeros((m, n), np.float32))
    scaled[(1,)](a, sa, b, here, m, n, k)
    scaled[(1,)](zg.to_device(a), zg.to_device(sa), zg.to_device(b), there, m, n, k)
    np.testing.assert_array_equal(there.numpy(), here)
    assert np.abs(here).max() > 1


@zg.kernel
def add_one(x_ptr, n, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    mask = zg.less(at, n)
    zg.gdc_wait()
    x = zg.load(zg.add(x_ptr, at), mask)
    zg.gdc_launch_dependents()
    zg.store(zg.add(x_ptr, at), zg.add(x, 1.0), mask)


@pytest.mark.parametrize("options", [{"launch_pdl": True}, {"launch_cooperative_grid": True}, {"maxnreg": 32}])
def test_launches_one_after_the_other(options: dict[str, Any]) -> None:
    """Each launch reads what the one before it has stored, though it may begin earlier."""
    x = zg.to_device(np.zeros(100_000, np.float32))
    for _ in range(50):
        add_one[(98,)](x, 100_000, 1024, num_ctas=1, **options)
    assert (x.numpy() == 50).all()


def test_a_grid_that_cannot_run_at_once() -> None:
    x = zg.to_device(np.zeros(16, np.float32))
    with pytest.raises(zg.LaunchError, match="the programs of a cooperative launch must all run at once"):
        add_one[(1 << 20,)](x, 16, 1024, launch_cooperative_grid=True)
