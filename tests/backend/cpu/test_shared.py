"""Slow paths that are alike, as one function: results where accesses are not as planned, errors, and the functions."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.cpu import shared

F32 = zg.ptr(zg.f32)
ROWS = 9


@zg.kernel
def strided(x_ptr, out_ptr, step, n, R: zg.constexpr):
    """Rows whose elements lie `step` apart, some of them outside of the array, where `other` stands for them."""
    pid = zg.program_id(0)
    at = zg.arange(0, 16)
    for a in zg.static_range(R):
        place = zg.add(zg.mul(at, step), a * 3 + pid)
        x = zg.load(zg.add(x_ptr, place), zg.less(place, n), other=a % 2)
        zg.store(zg.add(out_ptr, zg.add(at, (pid * R + a) * 16)), x)


@zg.kernel
def sums(x_ptr, out_ptr, R: zg.constexpr):
    at = zg.arange(0, 64)
    total = zg.zeros((64,), zg.f32)
    for a in zg.static_range(R):
        total = zg.fma(zg.load(zg.add(x_ptr, zg.add(at, a))), 2.0, total)
    zg.store(zg.add(out_ptr, at), total)


@zg.kernel
def overlapping(x_ptr, R: zg.constexpr):
    """Each row is stored over the one that the next row reads."""
    at = zg.arange(0, 16)
    for a in zg.static_range(R):
        zg.store(zg.add(x_ptr, zg.add(at, a + 1)), zg.add(zg.load(zg.add(x_ptr, zg.add(at, a))), 1))


@functools.cache
def slow_functions(kernel: zg.Kernel, *types: object) -> list[str]:
    text = kernel.compile(*types, R=ROWS, target="cpu").llvm
    return re.findall(rf"^define [^@]*@[\w.]+\.{shared.SLOW}\d+\(.*?^}}", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("dtype", ("f32", "f64", "f16", "i8", "u16", "i64"))
@pytest.mark.parametrize("step", (0, 1, 3))
def test_accesses_that_are_not_as_planned(dtype, step):
    pointer = zg.ptr(getattr(zg, dtype))
    x = np.random.default_rng(step).integers(0, 100, 64).astype(getattr(zg, dtype).numpy)
    native, interpreted = (np.zeros(3 * ROWS * 16, x.dtype) for _ in range(2))
    strided[(3,)](x, native, step, 61, R=ROWS)
    strided[(3,)](x, interpreted, step, 61, R=ROWS, interpret=True)
    np.testing.assert_array_equal(native, interpreted)
    assert slow_functions(strided, pointer, pointer, zg.i32, zg.i32)


def test_loads_of_what_was_stored_just_before():
    native, interpreted = (np.arange(32, dtype=np.float32) ** 2 for _ in range(2))
    overlapping[1](native, R=ROWS)
    overlapping[1](interpreted, R=ROWS, interpret=True)
    np.testing.assert_array_equal(native, interpreted)


@pytest.mark.parametrize("size", (64, 67, 71))
def test_an_error_names_the_access_of_the_first_element_outside(size):
    """The functions get the numbers of the accesses, which have the lines of errors."""
    x, out = np.zeros(size, np.float32), np.zeros(64, np.float32)
    with pytest.raises(zg.MemoryAccessError, match=rf"reads x_ptr\[{size}\]") as native:
        sums[1](x, out, R=ROWS)
    with pytest.raises(zg.MemoryAccessError) as interpreted:
        sums[1](x, out, R=ROWS, interpret=True)
    assert str(native.value) == str(interpreted.value)


def test_one_function_serves_all_slow_paths_of_an_unrolled_loop():
    (function,) = slow_functions(sums, F32, F32)
    assert "i32 %c" in function, "the offsets differ, so they are parameters"
    assert sums.compile(F32, F32, R=ROWS, target="cpu").llvm.count("call preserve_mostcc") == ROWS - 1


def test_few_slow_paths_stay_in_the_kernel():
    assert not re.search("preserve_mostcc", sums.compile(F32, F32, R=shared.MIN_PATHS - 1, target="cpu").llvm)
