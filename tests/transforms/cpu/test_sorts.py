"""Sorts on CPUs: a loop over the steps of the network, with the interpreter's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from run_cpu import run_cpu

import ziggurat as zg
from ziggurat.backend.reference.run import run
from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.types import find_scalar
from ziggurat.transforms.cpu.sorts import sort_in_loops
from ziggurat.transforms.simplify import simplify


@zg.kernel
def sort(x_ptr, out_ptr, ROWS: zg.constexpr, N: zg.constexpr, DOWN: zg.constexpr):
    at = zg.add(zg.expand(zg.mul(zg.arange(0, ROWS), N), 1), zg.expand(zg.arange(0, N), 0))
    zg.store(zg.add(out_ptr, at), zg.sort(zg.load(zg.add(x_ptr, at)), descending=DOWN))


@zg.kernel
def argsort(x_ptr, out_ptr, ROWS: zg.constexpr, N: zg.constexpr, DOWN: zg.constexpr):
    at = zg.add(zg.expand(zg.mul(zg.arange(0, ROWS), N), 1), zg.expand(zg.arange(0, N), 0))
    zg.store(zg.add(out_ptr, at), zg.argsort(zg.load(zg.add(x_ptr, at)), descending=DOWN))


@zg.kernel
def topk(x_ptr, out_ptr, ROWS: zg.constexpr, N: zg.constexpr, DOWN: zg.constexpr):
    at = zg.add(zg.expand(zg.mul(zg.arange(0, ROWS), N), 1), zg.expand(zg.arange(0, N), 0))
    values, order = zg.topk(zg.load(zg.add(x_ptr, at)), 2, descending=DOWN, return_indices=True)
    to = zg.add(zg.expand(zg.mul(zg.arange(0, ROWS), N), 1), zg.expand(zg.arange(0, 2), 0))
    zg.store(zg.add(out_ptr, to), order)


def numbers(dtype: Any, count: int) -> Any:
    random = np.random.default_rng(count)
    if np.dtype(dtype).kind == "f":
        x = random.standard_normal(count).astype(dtype)
        x[random.integers(0, count, count // 8)] = np.nan
        x[random.integers(0, count, count // 8)] = -0.0
        x[random.integers(0, count, count // 8)] = 0.0
        return x
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = random.integers(low, high, count, dtype, endpoint=True)
    return np.where(random.random(count) < 0.5, x, x[::-1])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int8, np.uint8, np.int64, np.uint64])
@pytest.mark.parametrize("kernel", [sort, argsort, topk])
@pytest.mark.parametrize(("rows", "size", "down"), [(1, 64, False), (4, 16, True), (2, 2, False)])
def test_sorts_have_the_interpreter_s_bits(dtype: Any, kernel: Any, rows: int, size: int, down: bool):
    x = numbers(dtype, rows * size)
    scalar = find_scalar(x.dtype)
    assert scalar is not None
    element = zg.ptr(scalar)
    model = kernel.triton(element, element if kernel is sort else zg.ptr(zg.i32), rows, size, down)
    results = [np.zeros(rows * size, x.dtype if kernel is sort else np.int32) for _ in range(2)]
    run_cpu(model, (1,), [x, results[0]])
    run(model, None, (1,), [x, results[1]])
    np.testing.assert_array_equal(results[0].view(np.uint8), results[1].view(np.uint8))


def test_the_model_of_a_large_sort_is_small():
    f32 = zg.ptr(zg.f32)
    sizes = {}
    for size in (64, 1 << 16):
        looped = simplify(sort_in_loops(sort.triton(f32, f32, 1, size, False)))
        sizes[size] = sum(1 for _ in looped.walk())
        assert sum(isinstance(op, scf.For) for op in looped.walk()) == 2
        assert sum(isinstance(op, tt.Func) for op in looped.walk()) == 1
    assert sizes[1 << 16] == sizes[64] < 100


@zg.function
def sorted_keys(keys: Any, factor: zg.constexpr) -> Any:
    return zg.mul(keys, factor)


@zg.kernel
def other(x_ptr):
    at = zg.add(x_ptr, zg.arange(0, 8))
    zg.store(at, sorted_keys(zg.load(at), 3))


def test_another_function_of_that_name_is_left_alone():
    model = other.triton(zg.ptr(zg.i32))
    assert sort_in_loops(model) is model
    x = np.arange(8, dtype=np.int32)[::-1].copy()
    other[1,](x)
    np.testing.assert_array_equal(x, 3 * np.arange(8)[::-1])
