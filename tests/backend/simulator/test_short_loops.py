"""Short loops as emitted, thread by thread: dots in branches, gates in few steps, neighbours that are counted alike."""

from __future__ import annotations

import numpy as np
import pytest
from counted_kernels import KERNELS
from pass_cases import integers, lower_blocks, normal, running_means

import ziggurat as zg

HALVES, FLOATS = zg.divisible(zg.ptr(zg.f16)), zg.divisible(zg.ptr(zg.f32))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("num_warps", [1, 2, 4])
@pytest.mark.parametrize("n", [16, 32])
def test_dots_of_a_branch_read_the_buffers_of_the_block_around(n: int, num_warps: int, target: str) -> None:
    x, blocks = integers(32, 64), np.zeros((3, 16, 16), np.float32)
    compiled = lower_blocks.compile(HALVES, FLOATS, zg.i32, 16, 32, num_warps=num_warps, target=target)
    compiled.simulate[(1,)](x, blocks, n)
    products = x.astype(np.float32) @ x.T.astype(np.float32)
    expected = [products[:16, :16], products[16:, :16] * (n > 16), products[16:, 16:] * (n > 16)]
    np.testing.assert_array_equal(blocks, expected)


@pytest.mark.parametrize(("n", "divisor"), [(2000, 16), (1999, 1), (2000, 1), (16, 16)])
@pytest.mark.parametrize("num_warps", [1, 2])
def test_neighbours_that_are_counted_alike(n: int, divisor: int, num_warps: int) -> None:
    x, means = normal(n, dtype=np.float32), np.zeros((2, 256), np.float32)
    compiled = running_means.compile(
        FLOATS, FLOATS, zg.divisible(zg.i32, divisor), 256, num_warps=num_warps, target="sm_90a"
    )
    compiled.simulate[(1,)](x, means, n)
    columns = [x[column::256].astype(np.float64) for column in range(256)]
    np.testing.assert_array_equal(means[1], [len(column) for column in columns])
    np.testing.assert_allclose(means[0], [column.sum() / max(1, len(column)) for column in columns], atol=1e-6)


@pytest.mark.parametrize("name", [name for name in KERNELS if name.startswith("gated scores")])
def test_gated_scores(name: str) -> None:
    """The sum has four steps or two, all of them unrolled."""
    case = KERNELS[name]
    types = [*case.types[:4], zg.i32, *case.types[5:]]
    q, k = (normal(16, 128, dtype=np.float32, seed=seed).astype(zg.bf16.dtype) for seed in (0, 1))
    gates = normal(16, 128, dtype=np.float32, seed=2) / 4
    scores = np.zeros((16, 16), np.float32)
    case.kernel.compile(*types, target=case.target, **case.options).simulate[(1,)](q, k, gates, scores, 16)
    left, right = q.astype(np.float64) * np.exp2(gates), k.astype(np.float64) * np.exp2(-gates)
    np.testing.assert_allclose(scores, left @ right.T, rtol=1e-2, atol=1e-1)
