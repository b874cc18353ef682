"""Arithmetic of bytes in words of four, and their conversion to f16 in pairs: for all bytes, simulated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg

N = 256
BYTES: dict[Any, Any] = {zg.i8: np.int8, zg.u8: np.uint8}
POINTEES = {np.dtype(np.int8): zg.i8, np.dtype(np.uint8): zg.u8, np.dtype(np.float16): zg.f16}
OTHER = np.random.default_rng(0).permutation(N).astype(np.uint8)


@zg.kernel
def combined(a, b, out, WITH: zg.constexpr, N: zg.constexpr):
    at = zg.arange(0, N)
    zg.store(out + at, WITH(zg.load(a + at), zg.load(b + at)))


@zg.kernel
def computed(a, out, WITH: zg.constexpr, C: zg.constexpr, N: zg.constexpr):
    at = zg.arange(0, N)
    zg.store(out + at, WITH(zg.load(a + at), C))


@zg.kernel
def constant_first(a, out, WITH: zg.constexpr, C: zg.constexpr, N: zg.constexpr):
    at = zg.arange(0, N)
    zg.store(out + at, WITH(C, zg.load(a + at)))


@zg.kernel
def converted(a, out, TO: zg.constexpr, N: zg.constexpr):
    at = zg.arange(0, N)
    zg.store(out + at, zg.cast(zg.load(a + at), TO))


@zg.kernel
def nibbles(a, out, N: zg.constexpr):
    at = zg.arange(0, N)
    x = zg.load(a + at)
    low, high = zg.cast(x & 15, zg.i8) - 8, zg.cast(x >> 4, zg.i8) - 8
    both = zg.reshape(zg.join(low, high), (2 * N,))
    zg.store(out + zg.arange(0, 2 * N), zg.cast(both, zg.f16))


@zg.kernel
def carried(a, out, n, N: zg.constexpr):
    """Bytes that a loop and a branch hand on."""
    at = zg.arange(0, N)
    total, x = zg.load(a + at), zg.load(a + at)
    for i in range(0, n):
        total = total + (x ^ 3)
        if i == 2:
            x = total
        else:
            x = x - 5
    zg.store(out + at, total)


def run(kernel: Any, arrays: list[Any], *constants: Any, numbers: tuple[int, ...] = ()) -> str:
    """Simulate one program of a kernel of arrays, numbers and constants; its LLVM text."""
    pointers = [zg.divisible(zg.ptr(POINTEES[array.dtype]), 16) for array in arrays]
    compiled = kernel.compile(*pointers, *[zg.i32] * len(numbers), *constants, num_warps=1, target="sm_90a")
    compiled.simulate[1,](*arrays, *numbers)
    return compiled.stages["llvm"]


OPS = {
    "and": (zg.and_, np.bitwise_and), "or": (zg.or_, np.bitwise_or), "xor": (zg.xor, np.bitwise_xor),
    "add": (zg.add, np.add), "sub": (zg.sub, np.subtract),
}  # fmt: skip


@pytest.mark.parametrize("dtype", BYTES, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_two_tensors(name: str, dtype: Any) -> None:
    op, expected = OPS[name]
    a, b = np.arange(N).astype(BYTES[dtype]), OTHER.astype(BYTES[dtype])
    out = np.zeros(N, BYTES[dtype])
    llvm = run(combined, [a, b, out], op, N)
    np.testing.assert_array_equal(out, expected(a, b))
    assert "add i8" not in llvm and "sub i8" not in llvm


@pytest.mark.parametrize("number", [0, 1, 8, 15, 127, -1, -128], ids=str)
@pytest.mark.parametrize("name", OPS)
def test_constants(name: str, number: int) -> None:
    op, expected = OPS[name]
    for dtype, numpy in BYTES.items():
        constant = number & 255 if dtype == zg.u8 else number
        a, after, before = np.arange(N).astype(numpy), np.zeros(N, numpy), np.zeros(N, numpy)
        run(computed, [a, after], op, constant, N)
        run(constant_first, [a, before], op, constant, N)
        np.testing.assert_array_equal(after, expected(a, numpy(constant)))
        np.testing.assert_array_equal(before, expected(numpy(constant), a))


@pytest.mark.parametrize("by", range(8))
def test_shifts(by: int) -> None:
    a, out = np.arange(N).astype(np.uint8), np.zeros(N, np.uint8)
    assert "lshr i8" not in run(computed, [a, out], zg.shr, by, N)
    np.testing.assert_array_equal(out, a >> by)
    signed, out = a.astype(np.int8), np.zeros(N, np.int8)
    run(computed, [signed, out], zg.shr, by, N)
    np.testing.assert_array_equal(out, signed >> by)


@pytest.mark.parametrize("dtype", BYTES, ids=str)
@pytest.mark.parametrize("size", [N, 32])
def test_all_bytes_as_f16(dtype: Any, size: int) -> None:
    """Eight bytes a thread, and one, which has no neighbour."""
    for first in range(0, N, size):
        a, out = np.arange(first, first + size).astype(BYTES[dtype]), np.zeros(size, np.float16)
        llvm = run(converted, [a, out], zg.f16, size)
        np.testing.assert_array_equal(out, a.astype(np.float16))
        assert ("itofp" in llvm) == (size == 32)


def test_nibbles_of_packed_weights() -> None:
    a, out = np.arange(N).astype(np.uint8), np.zeros(2 * N, np.float16)
    run(nibbles, [a, out], N)
    np.testing.assert_array_equal(out, np.stack([(a & 15) - 8.0, (a >> 4) - 8.0], 1).reshape(-1))


def test_bytes_that_control_flow_hands_on() -> None:
    a, out = np.arange(N).astype(np.uint8), np.zeros(N, np.uint8)
    assert "phi i8" not in run(carried, [a, out], N, numbers=(6,))
    total, x = a.copy(), a.copy()
    for i in range(6):
        total = total + (x ^ 3)
        x = total if i == 2 else x - 5
    np.testing.assert_array_equal(out, total)
