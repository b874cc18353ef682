"""Operands of wgmma of 8 and 32 bits whose neighbours in memory lie along m or n.

Threads read one of them from shared memory to registers, which are wgmma's first operand: if b is that one, the
transposed product is computed. Where both lie so, threads turn the other one in shared memory.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import scf
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


CASES = [
    (zg.f8e4m3, F8, (128, 128, 128), 8),
    (zg.f8e4m3, F8, (64, 32, 64), 4),
    (zg.f8e5m2, ml_dtypes.float8_e5m2, (256, 64, 64), 8),
    (zg.i8, np.int8, (64, 64, 32), 4),
    (zg.u8, np.uint8, (64, 128, 64), 8),
    (zg.f32, np.float32, (64, 64, 32), 4),
    (zg.f32, np.float32, (128, 32, 16), 8),
    (zg.f32, np.float32, (64, 256, 8), 4),
]
TURNED = {"NN": (False, True), "TT": (True, False), "TN": (True, True)}


# All pairs of two of these, by loads that are raised to TMA and those that are not in turn.
@pytest.mark.parametrize(
    ("element", "dtype", "tile", "warps", "transposed", "plan"),
    [
        pytest.param(*case, transposed, bool((at + number) % 2), id=f"{name}-{case[0]}-{case[2]}")
        for at, case in enumerate(CASES)
        for number, (name, transposed) in enumerate(TURNED.items())
    ],
)
def test_products(
    element: Any, dtype: Any, tile: tuple[int, int, int], warps: int, transposed: tuple[bool, bool], plan: bool
) -> None:
    """Copies run ahead of the loop, wgmma is in flight while threads read and turn, and no byte is stored alone."""
    m, n, k = tile
    whole = np.issubdtype(dtype, np.integer)
    total = zg.i32 if whole else zg.f32
    # Strides of 1 are constants of the kernel, as they would be in a launch.
    strides = [*((1, zg.divisible(zg.i32)) if transposed[0] else (zg.divisible(zg.i32), 1))]
    strides += [*((zg.divisible(zg.i32), 1) if transposed[1] else (1, zg.divisible(zg.i32)))]
    binary = product.compile(
        zg.divisible(zg.ptr(element)), zg.divisible(zg.ptr(element)), zg.divisible(zg.ptr(total)), zg.i32, *strides,
        m, n, k, total, target="sm_90a", num_warps=warps, num_stages=3, verify=True,
        raise_pointers=plan,
    )  # fmt: skip
    ops = list(binary.stages["gpu"].walk())
    assert sum(isinstance(op, gpu.TmaLoad if binary.maps else gpu.AsyncCopy) for op in ops) == 2 * 3
    assert plan or not binary.maps
    loads = [op for op in ops if isinstance(op, gpu.LocalLoad) and isinstance(op.parent_op, scf.For)]
    assert len(loads) == (transposed[1] and (transposed[0] or n < 64))
    waits = [op.pending for op in ops if isinstance(op, gpu.WgmmaWait) and isinstance(op.parent_op, scf.For)]
    assert waits == [2 if k * np.dtype(dtype).itemsize > 32 and (transposed[0] or n >= 64) else 1]
    assert "st.shared.b8" not in binary.stages["ptx"]
    random, depth = np.random.default_rng(1), 4 * k
    low = 0 if dtype is np.uint8 else -3
    a, b = (random.integers(low, 4, shape).astype(dtype) for shape in ((m, depth), (depth, n)))
    expected = a.astype(np.int64) @ b.astype(np.int64)
    a_given, b_given = (
        np.ascontiguousarray(a.T if transposed[0] else a),
        np.ascontiguousarray(b if transposed[1] else b.T),
    )
    actual = np.zeros((m, n), np.int32 if whole else np.float32)
    sizes = [m if transposed[0] else depth, n if transposed[1] else depth]
    binary.simulate[(1,)](a_given, b_given, actual, depth, *sizes)
    np.testing.assert_array_equal(actual, expected)


@zg.kernel
def by_blocks(
    a_desc, b_desc, c_ptr, k_size, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr, TOTAL: zg.constexpr,
    A_TURNED: zg.constexpr, B_TURNED: zg.constexpr,
):  # fmt: skip
    total = zg.zeros((M, N), TOTAL)
    for at in range(0, k_size, K):
        a = zg.trans(a_desc.load((at, 0))) if A_TURNED else a_desc.load((0, at))
        b = b_desc.load((at, 0)) if B_TURNED else zg.trans(b_desc.load((0, at)))
        total = zg.dot(a, b, total)
    zg.store(zg.add(zg.add(c_ptr, zg.mul(zg.expand(zg.arange(0, M), 1), N)), zg.expand(zg.arange(0, N), 0)), total)


@pytest.mark.parametrize("transposed", [(False, True), (True, False), (True, True)], ids=["NN", "TT", "TN"])
@pytest.mark.parametrize(("element", "dtype", "k"), [(zg.f8e4m3, F8, 64), (zg.f32, np.float32, 32)])
def test_tma_brings_operands_that_threads_read(element: Any, dtype: Any, k: int, transposed: tuple[bool, bool]) -> None:
    m, n, depth = 64, 128, 5 * k
    blocks = [(k, m) if transposed[0] else (m, k), (k, n) if transposed[1] else (n, k)]
    binary = by_blocks.compile(
        *(zg.divisible(zg.descriptor(block, element)) for block in blocks), zg.divisible(zg.ptr(zg.f32)), zg.i32,
        m, n, k, zg.f32, *transposed, target="sm_90a", num_warps=4, num_stages=3, verify=True,
    )  # fmt: skip
    ops = list(binary.stages["gpu"].walk())
    assert sum(isinstance(op, gpu.TmaLoad) for op in ops) == (0 if all(transposed) and element is zg.f32 else 2 * 3)
    random = np.random.default_rng(1)
    a, b = (random.integers(-3, 4, shape).astype(dtype) for shape in ((m, depth), (depth, n)))
    arguments = np.ascontiguousarray(a.T if transposed[0] else a), np.ascontiguousarray(b if transposed[1] else b.T)
    actual = np.zeros((m, n), np.float32)
    descriptor = [zg.TensorDescriptor(array, block) for array, block in zip(arguments, blocks, strict=True)]
    binary.simulate[(1,)](*descriptor, actual, depth)
    np.testing.assert_array_equal(actual, a.astype(np.float64) @ b.astype(np.float64))


@zg.kernel
def interleaved(x_ptr, y_ptr, out_ptr, SIZE: zg.constexpr):
    """The bytes of two tensors by turns."""
    at = zg.arange(0, SIZE)
    both = zg.join(zg.load(zg.add(x_ptr, at)), zg.load(zg.add(y_ptr, at)))
    zg.store(zg.add(out_ptr, zg.arange(0, 2 * SIZE)), zg.reshape(both, (2 * SIZE,)))


def test_bytes_of_two_words() -> None:
    size = 1024
    pointer = zg.divisible(zg.ptr(zg.i8))
    binary = interleaved.compile(pointer, pointer, pointer, size, target="sm_90a", num_warps=4)
    assert "prmt" in binary.stages["ptx"]
    x, y = np.random.default_rng(1).integers(-128, 128, (2, size)).astype(np.int8)
    actual = np.zeros(2 * size, np.int8)
    binary.simulate[(1,)](x, y, actual)
    np.testing.assert_array_equal(actual, np.stack([x, y], 1).ravel())
