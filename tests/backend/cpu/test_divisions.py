"""Quotients and remainders of vectors of integers, by vectors and by one number, are the interpreter's."""

from __future__ import annotations

import numpy as np
import pytest
from native_machines import MACHINES
from run_cpu import run_cpu

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.backend.cpu.code import CpuOptions
from ziggurat.backend.reference.run import run

SIZE = 1024


@triton.jit
def divisions(x_ptr, y_ptr, quotient_ptr, rest_ptr, by, ONE: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    y = tl.full((N,), by, x.dtype) if ONE else tl.load(y_ptr + at)
    tl.store(quotient_ptr + at, x // y)
    tl.store(rest_ptr + at, x % y)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("type_", [zg.i8, zg.u8, zg.i16, zg.u16, zg.i32, zg.u32, zg.i64], ids=str)
@pytest.mark.parametrize("one", (False, True))
def test_divisions(machine: CpuOptions, type_: zg.ScalarType, one: bool):
    kind = np.dtype(type_.name.replace("i", "int").replace("u", "uint"))
    limits = np.iinfo(kind)
    edges = np.array([limits.min, limits.min + 1, -1, 1, 2, 3, 7, limits.max - 1, limits.max], object)
    edges = edges[edges >= limits.min].astype(kind)
    rng = np.random.default_rng(0)
    pointer = zg.ptr(type_)
    model = divisions.triton(pointer, pointer, pointer, pointer, type_, one, SIZE)
    for by in (*edges[edges != 0], 10, 100) if one else (1,):
        x, y = rng.integers(limits.min, limits.max, (2, SIZE), kind, endpoint=True)
        x[: edges.size**2], y[: edges.size**2] = (pair.ravel() for pair in np.meshgrid(edges, edges))
        x[512:] = (x[512:] // np.where(y[512:] == 0, 1, y[512:])) * y[512:]  # Whole multiples, and their neighbours.
        x[768:] -= 1
        y[y == 0] = 1
        results = []
        for launch in (
            lambda arguments: run(model, None, (1,), arguments),
            lambda arguments: run_cpu(model, (1,), arguments, options=machine),
        ):
            outs = [np.zeros(SIZE, kind) for _ in range(2)]
            launch([x, y, *outs, int(by)])
            results.append(outs)
        np.testing.assert_array_equal(results[1], results[0])
