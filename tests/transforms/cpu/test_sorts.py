"""Sorts on CPUs: one op, with the interpreter's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_machines import MACHINES
from run_cpu import run_cpu

import ziggurat as zg
from ziggurat.backend.cpu.code import CpuOptions
from ziggurat.backend.reference.run import run
from ziggurat.codemodel.dialects import cpu, tt
from ziggurat.codemodel.types import find_scalar
from ziggurat.transforms.cpu.cpu_passes import lower
from ziggurat.transforms.cpu.sorts import find_sorts
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


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint32, np.int64])
@pytest.mark.parametrize("size", [2, 4, 32, 512, 4096])
def test_rows_of_any_size_are_sorted(dtype: Any, size: int, machine: CpuOptions):
    rows = 2
    x = numbers(dtype, rows * size)
    element = zg.ptr(find_scalar(x.dtype))
    for down in (False, True):
        out = np.zeros_like(x)
        run_cpu(sort.triton(element, element, rows, size, down), (1,), [x, out], options=machine)
        expected = np.sort(x.reshape(rows, size), axis=1)
        np.testing.assert_array_equal(out.reshape(rows, size), expected[:, ::-1] if down else expected)


def test_a_sort_is_one_op():
    f32 = zg.ptr(zg.f32)
    for size, down in ((64, False), (1 << 16, True)):
        model = simplify(find_sorts(sort.triton(f32, f32, 1, size, down)))
        assert sum(isinstance(op, cpu.Sort) for op in model.walk()) == 1
        assert sum(isinstance(op, tt.Func) for op in model.walk()) == 1
        x, results = numbers(np.float32, size), [np.zeros(size, np.float32) for _ in range(2)]
        for result, tier in zip(results, (model, lower(model, 32)), strict=True):
            run(tier, None, (1,), [x, result])
        assert results[0].tobytes() == results[1].tobytes()


@zg.function
def sorted_keys(keys: Any, factor: zg.constexpr) -> Any:
    return zg.mul(keys, factor)


@zg.kernel
def other(x_ptr):
    at = zg.add(x_ptr, zg.arange(0, 8))
    zg.store(at, sorted_keys(zg.load(at), 3))


def test_another_function_of_that_name_is_left_alone():
    model = other.triton(zg.ptr(zg.i32))
    assert find_sorts(model) is model
    x = np.arange(8, dtype=np.int32)[::-1].copy()
    other[1,](x)
    np.testing.assert_array_equal(x, 3 * np.arange(8)[::-1])
