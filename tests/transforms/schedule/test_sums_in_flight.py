"""Loops with two products, whose sums stay in flight into the next iteration: with copies by threads, and by TMA."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import scf
from ziggurat.codemodel.gpu import dialect as gpu

F16, F32 = zg.divisible(zg.ptr(zg.f16)), zg.divisible(zg.ptr(zg.f32))
RANDOM = np.random.default_rng(7)


@zg.kernel
def adapted(x, w, a, out, low, steps, BY_TMA: zg.constexpr, STAGES: zg.constexpr):
    """Σ x[t] · w[t] and Σ x[t] · a[t], of 64×32 by 32×64 and by 32×16."""
    m, k, n, r = zg.arange(0, 64), zg.arange(0, 32), zg.arange(0, 64), zg.arange(0, 16)
    x_at = zg.add(x, zg.add(zg.mul(zg.expand(m, 1), 32), zg.expand(k, 0)))
    w_at = zg.add(w, zg.add(zg.mul(zg.expand(k, 1), 64), zg.expand(n, 0)))
    a_at = zg.add(a, zg.add(zg.mul(zg.expand(k, 1), 16), zg.expand(r, 0)))
    if BY_TMA:
        x_blocks = zg.make_tensor_descriptor(x, (4096, 32), (32, 1), (64, 32))
        w_blocks = zg.make_tensor_descriptor(w, (4096, 64), (64, 1), (32, 64))
        a_blocks = zg.make_tensor_descriptor(a, (4096, 16), (16, 1), (32, 16))
    total, small = zg.zeros((64, 64), zg.f32), zg.zeros((64, 16), zg.f32)
    for t in zg.range(0, steps, num_stages=STAGES):
        if BY_TMA:
            block, weights, adapter = x_blocks.load((t * 64, 0)), w_blocks.load((t * 32, 0)), a_blocks.load((t * 32, 0))
        else:
            block, weights = zg.load(zg.add(x_at, t * 2048)), zg.load(zg.add(w_at, t * 2048))
            adapter = zg.load(zg.add(a_at, t * 512))
        total = zg.dot(block, weights, total)
        small = zg.dot(block, adapter, small)
    zg.store(zg.add(out, zg.add(zg.mul(zg.expand(m, 1), 64), zg.expand(n, 0))), total)
    zg.store(zg.add(low, zg.add(zg.mul(zg.expand(m, 1), 16), zg.expand(r, 0))), small)


@cache
def compiled(by_tma: bool, stages: int) -> Any:
    return adapted.compile(F16, F16, F16, F32, F32, zg.i32, by_tma, stages, target="sm_90a", num_warps=4, verify=True)


@pytest.mark.parametrize("by_tma", [False, True])
@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.filterwarnings("ignore:the block is moved")
def test_results(by_tma: bool, stages: int, steps: int) -> None:
    x, w, a = (
        RANDOM.integers(-4, 4, (max(steps, 1), *shape)).astype(np.float16) for shape in ((64, 32), (32, 64), (32, 16))
    )
    out, low = np.full((64, 64), np.nan, np.float32), np.full((64, 16), np.nan, np.float32)
    compiled(by_tma, stages).simulate[(1,)](x.ravel(), w.ravel(), a.ravel(), out, low, steps)
    blocks = x[:steps].astype(np.float32)
    assert np.array_equal(out, (blocks @ w[:steps].astype(np.float32)).sum(0))
    assert np.array_equal(low, (blocks @ a[:steps].astype(np.float32)).sum(0))


def test_waits_leave_both_products_of_an_iteration_in_flight() -> None:
    (loop,) = (op for op in compiled(False, 4).stages["gpu"].walk() if isinstance(op, scf.For))
    waits = [op.pending for op in loop.walk() if isinstance(op, gpu.WgmmaWait)]
    assert waits == [2, 2]
