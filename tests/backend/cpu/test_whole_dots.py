"""Dots of integers of 8 bits are exact modulo 2^32, by instructions for pairs of them as well."""

from __future__ import annotations

import numpy as np
import pytest
from native_machines import MACHINES, host_without
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


ALL_MACHINES = [
    *MACHINES,
    pytest.param(host_without("amx"), id="no tiles"),
    pytest.param(host_without("amx", "avx512vnni", "avxvnni"), id="pairs"),
]


def instructions(features: str, block: tuple[int, int, int], signed: tuple[bool, bool], transposed: bool) -> list[str]:
    """The beginnings of the names of those for dots of bytes, of which a tile has 64 in a row, or 32."""
    names = features.split(",")
    if "+amx-int8" in names and (block[2] % 64 == 0 or not transposed):
        return ["tdpb" + "".join("s" if sign else "u" for sign in signed)]
    if "+avx512vnni" in names and signed[1]:
        return ["vpdpbusd"]
    return ["vpdpwssd", "vpmaddwd"] if "+avx2" in names else [""]  # LLVM joins the second one and a sum.


@pytest.mark.parametrize("machine", ALL_MACHINES)
@pytest.mark.parametrize("transposed", (False, True))
@pytest.mark.parametrize("signed", [(True, True), (False, False), (False, True)], ids=str)
@pytest.mark.parametrize(
    "sizes, block",
    [((96, 160, 96), (32, 32, 32)), ((50, 47, 33), (16, 64, 32)), ((64, 80, 200), (64, 16, 64))],
    ids=str,
)
def test_whole_dots(
    machine: CpuOptions,
    sizes: tuple[int, int, int],
    block: tuple[int, int, int],
    signed: tuple[bool, bool],
    transposed: bool,
):
    m, n, k = sizes
    rng, kinds = np.random.default_rng(m), [np.int8 if sign else np.uint8 for sign in signed]
    a, b = (
        rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape, kind, endpoint=True)
        for kind, shape in zip(kinds, ((m, k), (k, n)), strict=True)
    )
    a[0], b[:, 0] = np.iinfo(kinds[0]).min, np.iinfo(kinds[1]).min
    pointers = [zg.ptr(zg.i8 if sign else zg.u8) for sign in signed]
    model = product.triton(*pointers, zg.ptr(zg.i32), zg.i32, zg.i32, zg.i32, *block, transposed)
    c = np.zeros((m, n), np.int32)
    operand = np.ascontiguousarray(b.T) if transposed else b
    code = run_cpu(model, (-(-m // block[0]), -(-n // block[1])), [a, operand, c, m, n, k], options=machine)
    exact = a.astype(np.int64) @ b.astype(np.int64) + 2147483600
    np.testing.assert_array_equal(c, exact.astype(np.int32))
    options = machine.resolved()
    assembly = to_assembly(code.llvm, options)
    assert any(name in assembly for name in instructions(options.features, block, signed, transposed))
