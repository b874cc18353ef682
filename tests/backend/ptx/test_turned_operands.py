"""Operands of wgmma whose neighbours in memory lie along m or n: those of 8 and 32 bits are turned on the way."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.gpu import dialect as gpu

F8 = ml_dtypes.float8_e4m3fn


@zg.kernel
def product(
    a_ptr, b_ptr, c_ptr, k_size, a_row, a_column, b_row, b_column, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr,
    TOTAL: zg.constexpr,
):  # fmt: skip
    row, column, at = zg.arange(0, M), zg.arange(0, N), zg.arange(0, K)
    a = zg.add(zg.add(a_ptr, zg.mul(zg.expand(row, 1), a_row)), zg.mul(zg.expand(at, 0), a_column))
    b = zg.add(zg.add(b_ptr, zg.mul(zg.expand(at, 1), b_row)), zg.mul(zg.expand(column, 0), b_column))
    total = zg.zeros((M, N), TOTAL)
    for _ in range(0, k_size, K):
        total = zg.dot(zg.load(a), zg.load(b), total)
        a, b = zg.add(a, K * a_column), zg.add(b, K * b_row)
    zg.store(zg.add(zg.add(c_ptr, zg.mul(zg.expand(row, 1), N)), zg.expand(column, 0)), total)


@pytest.mark.parametrize("turned", [(False, True), (True, False), (True, True)], ids=["NN", "TT", "TN"])
@pytest.mark.parametrize(
    ("element", "dtype", "tile", "warps"),
    [
        (zg.f8e4m3, F8, (128, 128, 128), 8),
        (zg.f8e4m3, F8, (64, 32, 64), 4),
        (zg.i8, np.int8, (64, 64, 32), 4),
        (zg.f32, np.float32, (64, 64, 32), 4),
        (zg.f32, np.float32, (128, 32, 16), 8),
    ],
)
def test_products(element: Any, dtype: Any, tile: tuple[int, int, int], warps: int, turned: tuple[bool, bool]) -> None:
    """Copies run ahead of the loop, and no byte is stored alone."""
    m, n, k = tile
    whole = np.issubdtype(dtype, np.integer)
    total = zg.i32 if whole else zg.f32
    # Strides of 1 are constants of the kernel, as they would be in a launch.
    strides = [*((1, zg.divisible(zg.i32)) if turned[0] else (zg.divisible(zg.i32), 1))]
    strides += [*((zg.divisible(zg.i32), 1) if turned[1] else (1, zg.divisible(zg.i32)))]
    made = product.compile(
        zg.divisible(zg.ptr(element)), zg.divisible(zg.ptr(element)), zg.divisible(zg.ptr(total)), zg.i32, *strides,
        m, n, k, total, target="sm_90a", num_warps=warps, num_stages=3, verify=True,
    )  # fmt: skip
    ops = list(made.stages["gpu"].walk())
    assert sum(isinstance(op, gpu.AsyncCopy) for op in ops) == 2 * 3
    assert sum(isinstance(op, gpu.LocalLoad) for op in ops) == sum(turned)
    assert "st.shared.b8" not in made.stages["ptx"]
    random, depth = np.random.default_rng(1), 3 * k
    a, b = (random.integers(-3, 4, shape).astype(dtype) for shape in ((m, depth), (depth, n)))
    wanted = a.astype(np.int64) @ b.astype(np.int64)
    a_given, b_given = np.ascontiguousarray(a.T if turned[0] else a), np.ascontiguousarray(b if turned[1] else b.T)
    found = np.zeros((m, n), np.int32 if whole else np.float32)
    sizes = [m if turned[0] else depth, n if turned[1] else depth]
    made.simulate[(1,)](a_given, b_given, found, depth, *sizes)
    np.testing.assert_array_equal(found, wanted)


@zg.kernel
def interleaved(x_ptr, y_ptr, out_ptr, SIZE: zg.constexpr):
    """The bytes of two tensors by turns."""
    at = zg.arange(0, SIZE)
    both = zg.join(zg.load(zg.add(x_ptr, at)), zg.load(zg.add(y_ptr, at)))
    zg.store(zg.add(out_ptr, zg.arange(0, 2 * SIZE)), zg.reshape(both, (2 * SIZE,)))


def test_bytes_of_two_words() -> None:
    size = 1024
    pointer = zg.divisible(zg.ptr(zg.i8))
    made = interleaved.compile(pointer, pointer, pointer, size, target="sm_90a", num_warps=4)
    assert "prmt" in made.stages["ptx"]
    x, y = np.random.default_rng(1).integers(-128, 128, (2, size)).astype(np.int8)
    found = np.zeros(2 * size, np.int8)
    made.simulate[(1,)](x, y, found)
    np.testing.assert_array_equal(found, np.stack([x, y], 1).ravel())
