"""Dots of integers of 8 bits are exact modulo 2^32, by instructions for pairs of them as well."""

from __future__ import annotations

import numpy as np
import pytest
from native_machines import MACHINES
from run_cpu import run_cpu

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.backend.cpu.code import CpuOptions
from ziggurat.backend.cpu.compile import to_assembly


@triton.jit
def product(a_ptr, b_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, TRANSPOSED: tl.constexpr):
    rows, columns = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    acc = tl.full((M, N), 2147483600, tl.int32)
    for start in range(0, k, K):
        at = inner + start
        a = tl.load(a_ptr + rows[:, None] * k + at[None, :], (rows[:, None] < m) & (at[None, :] < k), other=0)
        if TRANSPOSED:
            mask = (columns[:, None] < n) & (at[None, :] < k)
            b = tl.load(b_ptr + columns[:, None] * k + at[None, :], mask, other=0).T
        else:
            b = tl.load(b_ptr + at[:, None] * n + columns[None, :], (at[:, None] < k) & (columns[None, :] < n), other=0)
        acc = tl.dot(a, b, acc, out_dtype=tl.int32)
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], acc, (rows[:, None] < m) & (columns[None, :] < n))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("transposed", (False, True))
@pytest.mark.parametrize("kind", (np.int8, np.uint8))
@pytest.mark.parametrize("sizes, block", [((96, 160, 96), (32, 32, 32)), ((50, 47, 33), (16, 64, 32))], ids=str)
def test_whole_dots(
    machine: CpuOptions, sizes: tuple[int, int, int], block: tuple[int, int, int], kind: type, transposed: bool
):
    m, n, k = sizes
    limits, rng = np.iinfo(kind), np.random.default_rng(m)
    a, b = (rng.integers(limits.min, limits.max, shape, kind, endpoint=True) for shape in ((m, k), (k, n)))
    a[0], b[:, 0] = limits.min, limits.min
    pointer = zg.ptr(zg.i8 if kind is np.int8 else zg.u8)
    model = product.triton(pointer, pointer, zg.ptr(zg.i32), zg.i32, zg.i32, zg.i32, *block, transposed)
    c = np.zeros((m, n), np.int32)
    operand = np.ascontiguousarray(b.T) if transposed else b
    code = run_cpu(model, (-(-m // block[0]), -(-n // block[1])), [a, operand, c, m, n, k], options=machine)
    exact = a.astype(np.int64) @ b.astype(np.int64) + 2147483600
    np.testing.assert_array_equal(c, exact.astype(np.int32))
    if "+avx2" in machine.resolved().features:
        assert any(name in to_assembly(code.llvm, machine.resolved()) for name in ("vpmaddwd", "vpdpwssd"))
