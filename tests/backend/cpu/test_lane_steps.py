"""Loads whose addresses rise by an element from lane to lane, or by none, have the interpreter's results and errors."""

from __future__ import annotations

import ctypes
import mmap
import re
import sys
from typing import Any

import numpy as np
import pytest
from native_machines import MACHINES
from run_cpu import run_cpu

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.backend.cpu.code import CpuOptions
from ziggurat.backend.cpu.compile import compile_cpu
from ziggurat.backend.reference.run import run

SIZE = 64


@triton.jit
def by_quotients(x, out, first, divisor, shift, limit, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + ((at + first) // divisor + shift), mask=at < limit, other=-1))


@triton.jit
def to_quotients(x, out, first, divisor, shift, limit, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + ((at + first) // divisor + shift), tl.load(x + at), mask=at < limit)


@triton.jit
def rows_of_a_table(x, rows, out, columns, M: tl.constexpr, N: tl.constexpr):
    row, column = tl.arange(0, M), tl.arange(0, N)
    places = tl.load(rows + row)[:, None] * columns + column[None, :]
    value = tl.load(x + places, mask=column[None, :] < columns, other=7)
    tl.store(out + row[:, None] * N + column[None, :], value)


def outcome(model: Any, arguments: list[Any], machine: CpuOptions | None) -> Any:
    """The results of a launch, or its error: of native code, or without a machine of the interpreter."""
    values = [value.copy() if isinstance(value, np.ndarray) else value for value in arguments]
    try:
        if machine is None:
            run(model, None, (1,), values)
        else:
            run_cpu(model, (1,), values, options=machine)
    except zg.KernelRuntimeError as error:
        return type(error)
    return [value.tolist() for value in values if isinstance(value, np.ndarray)]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", [np.int8, np.float32, np.int64])
@pytest.mark.parametrize("kernel", [by_quotients, to_quotients])
def test_quotients_that_rise_at_some_lanes(kernel: Any, kind: Any, machine: CpuOptions):
    element = zg.ptr({np.int8: zg.i8, np.float32: zg.f32, np.int64: zg.i64}[kind])
    model = kernel.triton(element, element, zg.i32, zg.i32, zg.i32, zg.i32, SIZE)
    x, outcomes = np.arange(40, 120).astype(kind), []
    for first, divisor, shift, limit in (
        (0, 1, 0, SIZE),  # Neighbours.
        (3, 1, 7, 50),
        (0, SIZE, 3, SIZE),  # One element.
        (96, 32, 0, 41),
        (5, 16, 0, SIZE),  # Quotients rise within vectors.
        (5, 3, 1, 63),
        (-20, 7, 3, SIZE),  # Toward zero.
        (20, -7, 13, SIZE),
        (2**31 - 30, 1 << 30, 2, SIZE),  # An integer wraps around.
        (2**31 - 30, 2**31 - 1, 2, SIZE),
        (60, 1, 0, SIZE),  # Stray lanes.
        (60, 1, 0, 20),  # Masked ones.
        (0, 1, -3, SIZE),
        (0, 0, 0, SIZE),
    ):
        arguments = [x, np.zeros(SIZE if kernel is by_quotients else x.size, kind), first, divisor, shift, limit]
        expected = outcome(model, arguments, None)
        assert outcome(model, arguments, machine) == expected, (first, divisor, shift, limit)
        outcomes.append(expected)
    assert zg.MemoryAccessError in outcomes and sum(isinstance(entry, list) for entry in outcomes) == 11


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("columns", [32, 64, 37, 70])
def test_rows_in_any_order(columns: int, machine: CpuOptions):
    p, i = zg.ptr(zg.f32), zg.ptr(zg.i32)
    model = rows_of_a_table.triton(p, i, p, zg.i32, 8, SIZE)
    assert re.search(r"^run\d+:", compile_cpu(model, machine).llvm, re.MULTILINE)  # A branch without a gather.
    random = np.random.default_rng(columns)
    x, rows = random.standard_normal((20, columns)).astype(np.float32), random.permutation(20)[:8].astype(np.int32)
    for row in (rows, np.where(rows == rows[3], 20, rows).astype(np.int32)):  # The last one is outside.
        arguments = [x, row, np.zeros((8, SIZE), np.float32), columns]
        assert outcome(model, arguments, machine) == outcome(model, arguments, None)


@zg.kernel
def by_blocks(x, out, n, size, N: zg.constexpr):
    at = zg.program_id(0) * N + zg.arange(0, N)
    zg.store(out + at, zg.load(x + at // size, at < n, other=0), at < n)


@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect of Linux")
def test_where_no_lane_is_loaded_nothing_is_read() -> None:
    """Without checks, the address of such lanes may be outside of all memory."""
    size = mmap.PAGESIZE
    pages = np.frombuffer(mmap.mmap(-1, 2 * size), np.float32)
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(pages.ctypes.data + size), size, 0) == 0
    x, out = pages[size // 4 - 4 : size // 4], np.zeros(256, np.float32)
    x[:] = range(4)
    by_blocks[(1,)](x, out, 256, 64, 1024, check=False)
    np.testing.assert_array_equal(out, np.repeat(x, 64))
