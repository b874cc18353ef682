"""Roles on a GPU: models of three roles and more, and kernels that the compiler divides, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from divided_kernels import attention, gated, of_two, pointers
from role_kernels import K, doubled, placed, products

import ziggurat as zg

pytestmark = pytest.mark.gpu


def small(rows: int, columns: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-2, 3, (rows, columns)).astype(np.float16)


@pytest.mark.parametrize("steps", [0, 1, 5, 32])
@pytest.mark.parametrize(
    ("warps", "n", "stages"), [((8, 4), 128, 3), ((4, 8), 64, 4), ((4, 4, 4), 128, 2), ((4, 4), 64, 3)]
)
def test_consumers_of_any_sizes(warps, n, stages, steps):
    for values in (True, False):
        a, b = small(16 * sum(warps), K * max(steps, 1), 1), small(K * max(steps, 1), n, 2)
        binary, out = (
            zg.compile(placed(products(warps, n, stages, values))),
            zg.to_device(np.full((len(a), n), 7, np.float16)),
        )
        rows, columns = zg.to_device(a), zg.to_device(b)
        arguments = [zg.TensorDescriptor(rows, (16 * own, K)) for own in warps]
        results = [zg.TensorDescriptor(out, (16 * own, n)) for own in warps]
        binary[(1,)](*arguments, zg.TensorDescriptor(columns, (K, n)), *results, K * steps)
        expected = a[:, : K * steps].astype(np.float64) @ b[: K * steps].astype(np.float64)
        np.testing.assert_array_equal(zg.to_host(out).astype(np.float64), expected)


@pytest.mark.parametrize("steps", [1, 7, 16])
@pytest.mark.parametrize(("consumer", "converter"), [(4, 4), (4, 8), (8, 4)])
def test_a_role_that_waits_for_one_channel_and_fills_another(consumer, converter, steps):
    a, b = small(16 * consumer, K * steps, 1), small(K * steps, 64, 2)
    binary, out = zg.compile(placed(doubled(consumer, converter))), zg.to_device(np.full((len(a), 64), 7, np.float16))
    arguments = [(zg.to_device(a), (len(a), K)), (zg.to_device(b), (K, 64)), (out, (len(a), 64))]
    binary[(1,)](*(zg.TensorDescriptor(array, block) for array, block in arguments), K * steps)
    expected = 2 * a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(zg.to_host(out).astype(np.float64), expected)


def normal(rows: int, columns: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float16)


@pytest.mark.parametrize("keys", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("n", "programs"), [(64, 1), (300, 1), (300, 2), (1024, 3), (4096, 22), (5000, 7)])
def test_three_consumers_of_attention(n, programs, causal, keys):
    """The producer loads the queries of the next tile, sizes are ragged, and masks are in branches."""
    q, k, v = (normal(n, 64, seed) / 2 for seed in range(3))
    scores = q.astype(np.float64) @ k.astype(np.float64).T
    if causal:
        scores[~np.tri(n, dtype=bool)] = -np.inf
    top = scores.max(1, keepdims=True)
    powers = np.exp2(scores - top)
    total = powers.sum(1, keepdims=True)
    there = [zg.to_device(item) for item in (q, k, v, np.full_like(q, 7))]
    lse = zg.to_device(np.full(n, 7, np.float32))
    arguments = [zg.TensorDescriptor(item, (rows, 64)) for item, rows in zip(there, (64, keys, keys, 64), strict=True)]
    for _ in range(2):
        attention[(programs,)](*arguments, lse, n, -(-n // 192), keys, 64, causal, num_warps=4, num_stages=2)
        np.testing.assert_allclose(there[3].numpy(), powers @ v.astype(np.float64) / total, atol=4e-3)
        np.testing.assert_allclose(lse.numpy(), (top + np.log2(total))[:, 0], atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize(("tiles", "programs"), [(1, 1), (2, 1), (300, 132)])
def test_a_block_that_two_consumers_read(tiles, programs):
    q, k, v, n = small(64 * tiles, 64, 1), small(192, 64, 2), small(192, 64, 3), 96
    there = [zg.to_device(item) for item in (q, k, v, np.full((64 * tiles, 128), 7, np.float16))]
    arguments = [zg.TensorDescriptor(item, (rows, 64)) for item, rows in zip(there, (64, 32, 32, 64), strict=True)]
    of_two[(programs,)](*arguments, n, tiles, 64, num_warps=4, num_stages=2)
    expected = np.zeros((64 * tiles, 128))
    for at, start in ((at, start) for at in (0, 1) for start in range(0, n, 32)):
        rows = slice(at * n + start, at * n + start + 32)
        half = expected[:, 64 * at : 64 * at + 64]
        half[:] = half / 2 + (q.astype(np.float64) @ k[rows].T.astype(np.float64)) @ v[rows].astype(np.float64)
    np.testing.assert_allclose(there[3].numpy(), expected, atol=0.01, rtol=2e-3)


@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 64), (1000, 1000, 200), (4096, 4096, 72), (100, 99, 0)])
def test_persistent_programs_of_two_consumers(m, n, k):
    pitch, depth = -(-n // 16) * 16, max(-(-k // 16) * 16, 16)
    a, b, c = small(m, depth, 1), small(depth, pitch, 2), small(depth, pitch, 3)
    outs = [np.full((m, pitch), 7, np.float16) for _ in range(2)]
    there = [zg.to_device(item) for item in (a, b, c, *outs)]
    gated[(-(-m // 128), -(-n // 128))](*there, m, n, k, depth, pitch, pitch, 128, 128, 64, num_warps=8)
    for right, got in ((b, there[3]), (c, there[4])):
        expected = np.full((m, pitch), 7.0)
        expected[:, :n] = a[:, :k].astype(np.float64) @ right[:k, :n].astype(np.float64)
        np.testing.assert_array_equal(got.numpy().astype(np.float64), expected)


@pytest.mark.parametrize("where", ["rows", "columns", "argument"])
def test_stores_through_pointers(where):
    a, b = small(128, 128, 1), small(128, 32, 2)
    left, right = zg.to_device(a), zg.to_device(b)
    outs = [zg.to_device(np.full((128, 64), 7, np.float16)) for _ in range(2)]
    arguments = zg.TensorDescriptor(left, (64, 64)), zg.TensorDescriptor(right, (64, 32))
    pointers[(1,)](*arguments, *outs, 128, 64, 16, 64, 32, 64, where, num_warps=4, num_stages=3)
    expected = [np.full((128, 64), 7.0) for _ in range(2)]
    product = a.astype(np.float64) @ b.astype(np.float64)
    expected[0][:64, :32] = product[:64]
    places = {"rows": (0, 64, 0), "columns": (0, 0, 32), "argument": (1, 0, 0)}
    which, row, column = places[where]
    expected[which][row : row + 64, column : column + 32] = product[64:]
    for got, right_one in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(got.numpy().astype(np.float64), right_one)
