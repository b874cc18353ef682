"""Dots leave out what masks make 0 where it changes no bit: results are those of matrices with the zeros in memory."""

from __future__ import annotations

import numpy as np
import pytest
from native_machines import MACHINES
from run_cpu import run_cpu

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.backend.cpu.code import CpuOptions


@triton.jit
def product(
    a_ptr, b_ptr, c_ptr, m, n, k, pitch, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, MASKED: tl.constexpr
):
    rows, columns = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    acc = tl.load(c_ptr + rows[:, None] * pitch + columns[None, :])
    for start in range(0, k, K):
        a_at = a_ptr + rows[:, None] * pitch + (inner[None, :] + start)
        b_at = b_ptr + (inner[:, None] + start) * pitch + columns[None, :]
        if MASKED:
            a = tl.load(a_at, (rows[:, None] < m) & (inner[None, :] + start < k), other=0.0)
            b = tl.load(b_at, (inner[:, None] + start < k) & (columns[None, :] < n), other=0.0)
        else:
            a, b = tl.load(a_at), tl.load(b_at)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + rows[:, None] * pitch + columns[None, :], acc)


SPECIAL = np.float32([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38])


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("block", [(32, 64, 16), (16, 32, 32), (64, 128, 16)], ids=str)
def test_ragged_dots(machine: CpuOptions, block: tuple[int, int, int]):
    size = 128
    pointer = zg.ptr(zg.f32)
    masked, whole = (
        product.triton(pointer, pointer, pointer, zg.i32, zg.i32, zg.i32, zg.i32, *block, argument)
        for argument in (True, False)
    )
    rng = np.random.default_rng(0)
    grid = -(-size // block[0]), -(-size // block[1])
    for round_ in range(24):
        m, n, k = (int(number) for number in rng.integers(1, size + 1, 3))
        a, b, c = rng.standard_normal((3, size, size)).astype(np.float32)
        c[m:], c[:, n:] = 0.0 if round_ % 4 < 3 else rng.choice([0.0, -0.0, 1.0]), 0.0
        for array, limits in ((a, (m, k)), (b, (k, n)), (c, (m, n)))[round_ % 4 :]:  # In some rounds all are finite.
            places = rng.integers(0, limits, (3, 2)).T
            array[*places] = rng.choice(SPECIAL, 3)
        results = []
        for model, (x, y) in ((masked, (a, b)), (whole, (a.copy(), b.copy()))):
            if model is whole:
                x[m:], x[:, k:], y[k:], y[:, n:] = 0, 0, 0, 0
            out = c.copy()
            run_cpu(model, grid, [x, y, out, m, n, k, size], options=machine)
            results.append(out)
        numbers = ~np.isnan(results[1])
        np.testing.assert_array_equal(np.isnan(results[0]), ~numbers)
        np.testing.assert_array_equal(results[0].view(np.int32)[numbers], results[1].view(np.int32)[numbers])
