"""Maxima and minima of floats have the interpreter's bits: zeros are ordered, and NaN loses to any number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_machines import MACHINES
from run_cpu import run_cpu

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.backend.cpu.code import CpuOptions
from ziggurat.backend.reference.run import run


@triton.jit
def extremes(x_ptr, high_ptr, low_ptr, n, ROWS: tl.constexpr, SIZE: tl.constexpr, AXIS: tl.constexpr):
    rows, at = tl.arange(0, ROWS), tl.arange(0, SIZE)
    mask = (at < n)[None, :] & (rows < ROWS)[:, None]
    place = rows[:, None] * SIZE + at[None, :]
    results = tl.arange(0, SIZE if AXIS == 0 else ROWS)
    tl.store(high_ptr + results, tl.max(tl.load(x_ptr + place, mask, other=-float("inf")), axis=AXIS))
    tl.store(low_ptr + results, tl.min(tl.load(x_ptr + place, mask, other=float("inf")), axis=AXIS))


@triton.jit
def extremes_of_row(x_ptr, high_ptr, low_ptr, n, ROWS: tl.constexpr, SIZE: tl.constexpr, AXIS: tl.constexpr):
    for row in range(ROWS):
        at = tl.arange(0, SIZE)
        x = tl.load(x_ptr + row * SIZE + at, at < n, other=float("nan"))
        tl.store(high_ptr + row, tl.max(x, axis=0))
        tl.store(low_ptr + row, tl.min(x, axis=0))


def hard(rng: np.random.Generator, shape: tuple[int, ...], kind: type[np.floating]) -> np.ndarray:
    """Rows of few different numbers each, most of which are special."""
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.0, -1.0, 5e-324, -5e-324], kind)
    rows = [rng.choice(rng.choice(special, rng.integers(1, 4)), shape[1:]) for _ in range(shape[0])]
    return np.stack(rows).astype(kind)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(
    "kernel, shape, axis, n",
    [(extremes, (32, 64), 1, 64), (extremes, (32, 64), 0, 64), (extremes, (8, 128), 1, 77), (extremes, (4, 2), 1, 2)]
    + [(extremes_of_row, (16, 256), 1, 256), (extremes_of_row, (16, 256), 1, 201), (extremes_of_row, (8, 4), 1, 3)],
)
def test_extremes(
    machine: CpuOptions, kind: type[np.floating], kernel: triton.JITFunction, shape: tuple[int, int], axis: int, n: int
):
    pointer = zg.ptr(zg.f32 if kind is np.float32 else zg.f64)
    model = kernel.triton(pointer, pointer, pointer, zg.i32, *shape, axis)
    rng = np.random.default_rng(0)
    for _ in range(20):
        x = hard(rng, shape, kind)
        if axis == 0:
            x = np.ascontiguousarray(hard(rng, shape[::-1], kind).T)
        results = []
        for launch in (
            lambda arguments: run(model, None, (1,), arguments),
            lambda a: run_cpu(model, (1,), a, options=machine),
        ):
            outs = [np.zeros(shape[1 - axis], kind) for _ in range(2)]
            launch([x, *outs, n])
            results.append(outs)
        for expected, actual in zip(*results, strict=True):
            np.testing.assert_array_equal(actual, expected)
            numbers = ~np.isnan(expected)
            np.testing.assert_array_equal(np.signbit(actual[numbers]), np.signbit(expected[numbers]))


@triton.jit
def extremes_of_numbers(x_ptr, whole_ptr, high_ptr, low_ptr):
    at = tl.program_id(0)
    x, whole = tl.load(x_ptr + at), tl.load(whole_ptr + at).to(x_ptr.dtype.element_ty)
    tl.store(high_ptr + at, tl.maximum(x, whole) + tl.maximum(whole * 2, x))
    tl.store(low_ptr + at, tl.minimum(x, whole) + tl.minimum(tl.abs(whole), x))


@triton.jit
def extremes_of_one(x_ptr, whole_ptr, high_ptr, low_ptr):
    at = tl.program_id(0) + tl.arange(0, 1)
    whole = tl.load(whole_ptr + at, at < 8).to(x_ptr.dtype.element_ty)
    tl.store(high_ptr + tl.program_id(0), tl.max(whole, 0))
    tl.store(low_ptr + tl.program_id(0), tl.min(whole, 0))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("scalar", [zg.f16, zg.f32, zg.f64], ids=str)
@pytest.mark.parametrize("kernel", [extremes_of_numbers, extremes_of_one])
def test_extremes_of_nan_and_an_integer(machine: CpuOptions, scalar: Any, kernel: triton.JITFunction):
    """The code of LLVM 22 with AVX-512 gives NaN for scalars of which it knows one not to be NaN."""
    pointer = zg.ptr(scalar)
    model = kernel.triton(pointer, zg.ptr(zg.i32), pointer, pointer)
    x = np.array([np.nan, -np.nan, np.nan, 1, -np.inf, np.inf, 0, -0.0], scalar.dtype)
    whole = np.array([3, -3, 0, 5, 2, 2, 0, 0], np.int32)
    results = []
    for launch in (
        lambda arguments: run(model, None, (8,), arguments),
        lambda a: run_cpu(model, (8,), a, options=machine),
    ):
        outs = [np.zeros(8, scalar.dtype) for _ in range(2)]
        launch([x, whole, *outs])
        results.append(outs)
    np.testing.assert_array_equal(results[1], results[0])
    assert not np.isnan(results[0]).any()
