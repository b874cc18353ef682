"""Block pointers in PTX: the copies and dots of the same kernel with plain pointers."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

import ziggurat as zg


@zg.kernel
def by_block(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BM: zg.constexpr, BN: zg.constexpr, BK: zg.constexpr):
    m = zg.program_id(0) * BM
    n = zg.program_id(1) * BN
    a = zg.make_block_ptr(a_ptr, (M, K), (sa, 1), (m, 0), (BM, BK), (1, 0))
    b = zg.make_block_ptr(b_ptr, (K, N), (sb, 1), (0, n), (BK, BN), (1, 0))
    acc = zg.zeros((BM, BN), zg.f32)
    for _ in range(0, K, BK):
        acc = zg.dot(zg.load(a, boundary_check=(0, 1)), zg.load(b, boundary_check=(0, 1)), acc)
        a = zg.advance(a, (0, BK))
        b = zg.advance(b, (BK, 0))
    c = zg.make_block_ptr(c_ptr, (M, N), (sc, 1), (m, n), (BM, BN), (1, 0))
    zg.store(c, zg.cast(acc, zg.f16), boundary_check=(0, 1))


@zg.kernel
def by_element(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BM: zg.constexpr, BN: zg.constexpr, BK: zg.constexpr):
    m = zg.expand(zg.add(zg.program_id(0) * BM, zg.arange(0, BM)), 1)
    n = zg.expand(zg.add(zg.program_id(1) * BN, zg.arange(0, BN)), 0)
    k = zg.arange(0, BK)
    a = zg.add(a_ptr, zg.add(zg.mul(m, sa), zg.expand(k, 0)))
    b = zg.add(b_ptr, zg.add(zg.mul(zg.expand(k, 1), sb), n))
    acc = zg.zeros((BM, BN), zg.f32)
    for start in range(0, K, BK):
        inside = zg.less(k, K - start)
        in_a = zg.and_(zg.less(m, M), zg.expand(inside, 0))
        in_b = zg.and_(zg.expand(inside, 1), zg.less(n, N))
        acc = zg.dot(zg.load(a, in_a, 0.0), zg.load(b, in_b, 0.0), acc)
        a = zg.add(a, BK)
        b = zg.add(b, BK * sb)
    out = zg.add(c_ptr, zg.add(zg.mul(m, sc), n))
    zg.store(out, zg.cast(acc, zg.f16), zg.and_(zg.less(m, M), zg.less(n, N)))


def test_copies_and_dots_are_those_of_plain_pointers():
    """Copies of 16 bytes in several stages, asynchronous dots, and stores of 16 bytes."""
    types = [*[zg.divisible(zg.ptr(zg.f16))] * 3, *[zg.divisible(zg.i32)] * 6, 128, 128, 64]
    counts: list[Counter[str]] = []
    for kernel in (by_block, by_element):
        ptx = kernel.compile(*types, target="sm_90a", num_warps=8, raise_pointers=False).ptx
        counts.append(
            Counter(re.findall(r"(cp\.async\.[\w.]+|wgmma\.mma_async[\w.]+|st\.global[\w.]*|bar\.sync)", ptx))
        )
    assert counts[0] == counts[1]
    assert counts[0]["cp.async.cg.shared.global"] == 24 and counts[0]["st.global.v4.b32"] == 8


@pytest.mark.parametrize("m, n, k", [(64, 64, 64), (88, 72, 80), (16, 128, 8)])
def test_blocks_that_a_loop_advances_come_by_tma(m: int, n: int, k: int) -> None:
    """Offsets of 32 bits stay such in the loop, and the check from below is left out where none is negative."""
    pointer, number = zg.divisible(zg.ptr(zg.f16)), zg.divisible(zg.i32, 8)
    compiled = by_block.compile(*[pointer] * 3, *[number] * 6, 64, 64, 32, target="sm_90a", num_warps=4)
    assert "cp.async.bulk.tensor" in compiled.ptx and "cp.async.cg" not in compiled.ptx
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c = np.zeros((m, n), np.float16)
    compiled.simulate[zg.cdiv(m, 64), zg.cdiv(n, 64)](a, b, c, m, n, k, k, n, n)
    np.testing.assert_array_equal(c, a.astype(np.float64) @ b.astype(np.float64))
