"""Roles on a GPU: models of three roles and more, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
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
    for held in (True, False):
        a, b = small(16 * sum(warps), K * max(steps, 1), 1), small(K * max(steps, 1), n, 2)
        made, out = (
            zg.compile(placed(products(warps, n, stages, held))),
            zg.to_device(np.full((len(a), n), 7, np.float16)),
        )
        rows, columns = zg.to_device(a), zg.to_device(b)
        given = [zg.TensorDescriptor(rows, (16 * own, K)) for own in warps]
        results = [zg.TensorDescriptor(out, (16 * own, n)) for own in warps]
        made[(1,)](*given, zg.TensorDescriptor(columns, (K, n)), *results, K * steps)
        wanted = a[:, : K * steps].astype(np.float64) @ b[: K * steps].astype(np.float64)
        np.testing.assert_array_equal(zg.to_host(out).astype(np.float64), wanted)


@pytest.mark.parametrize("steps", [1, 7, 16])
@pytest.mark.parametrize(("consumer", "converter"), [(4, 4), (4, 8), (8, 4)])
def test_a_role_that_waits_for_one_channel_and_fills_another(consumer, converter, steps):
    a, b = small(16 * consumer, K * steps, 1), small(K * steps, 64, 2)
    made, out = zg.compile(placed(doubled(consumer, converter))), zg.to_device(np.full((len(a), 64), 7, np.float16))
    given = [(zg.to_device(a), (len(a), K)), (zg.to_device(b), (K, 64)), (out, (len(a), 64))]
    made[(1,)](*(zg.TensorDescriptor(array, block) for array, block in given), K * steps)
    wanted = 2 * a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(zg.to_host(out).astype(np.float64), wanted)
