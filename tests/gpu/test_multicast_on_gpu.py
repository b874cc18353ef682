"""Dots that clusters of CTAs share on a GPU: blocks that each CTA loads in part for all, in kernels of all forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from divided_kernels import products
from libraries import require
from multicast_kernels import attended, integers, three_blocks, tiles
from persistent_products import arguments, matrices, product

import ziggurat as zg
from ziggurat.backend.devices.driver import current_device

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def has_multicast() -> None:
    if current_device().capability != (9, 0):
        pytest.skip("roles and TMA are for Hopper")


def described(array: np.ndarray, block: tuple[int, int]) -> Any:
    return zg.TensorDescriptor(zg.to_device(array), block)


def host(descriptor: Any) -> np.ndarray:
    return zg.to_host(descriptor.array)


# Products of one step, of many, and of ragged sizes; of fewer programs than the card has room for, and of more.
SIZES = [(256, 256, 64), (1000, 1000, 200), (4096, 2048, 520), (100, 104, 8), (3000, 2504, 1024)]


@pytest.mark.parametrize("form", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize(
    ("tile", "warps", "ctas"),
    [
        ((256, 256, 64), 8, 2),
        ((128, 256, 64), 8, 2),
        ((256, 128, 64), 4, 2),
        ((512, 128, 64), 4, 4),
        ((128, 64, 64), 4, 2),
    ],
)
def test_products_by_descriptors(tile: tuple[int, int, int], warps: int, ctas: int, form: str) -> None:
    for m, n, k in SIZES:
        m = -(-m // 8) * 8
        a, b, c = integers(m, k), integers(k, n, seed=1), np.full((m, n), 7, np.float16)
        expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
        M, N, K = tile
        arguments = [
            described(np.ascontiguousarray(item.T) if transposed else item, block[::-1] if transposed else block)
            for item, block, transposed in (
                (a, (M, K), form[0] == "T"),
                (b, (K, N), form[1] == "T"),
                (c, (M, N), False),
            )
        ]
        count = -(-m // M) * -(-n // N)
        for grid in (count, min(count, 5)):
            tiles[grid,](
                *arguments, m, n, k, *tile, form[0] == "T", form[1] == "T", zg.f16, True, num_warps=warps, num_ctas=ctas
            )
            np.testing.assert_array_equal(host(arguments[2]), expected)


@pytest.mark.parametrize("name", ["bf16", "f8e4m3"])
def test_other_elements(name: str) -> None:
    element = getattr(zg, name)
    out, m, n, k = zg.bf16 if name == "bf16" else zg.f16, 1000, 1008, 512
    a, b = integers(m, k, element.dtype), integers(k, n, element.dtype, 1)
    expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(out.dtype)
    K = 64 * 2 // element.bytes
    arguments = [
        described(item, block)
        for item, block in (
            (a, (256, K)), (np.ascontiguousarray(b.T), (128, K)), (np.zeros((m, n), out.dtype), (256, 128))
        )
    ]  # fmt: skip
    tiles[9,](*arguments, m, n, k, 256, 128, K, False, True, out, True, num_warps=4, num_ctas=2)
    np.testing.assert_array_equal(host(arguments[2]).astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("also", ["", "residual"])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(256, 256, 64), (1000, 1000, 200), (4096, 4096, 72), (3000, 5000, 512), (100, 99, 0), (9000, 264, 33)],
)
@pytest.mark.parametrize("tile", [(256, 256, 64), (128, 512, 64), (256, 128, 64)])
def test_products_by_pointers(tile: tuple[int, int, int], m: int, n: int, k: int, also: str) -> None:
    """The first two are persistent: as many clusters as run at once take the programs in turn."""
    arrays = matrices(m, n, k)
    a, b, c = (value.astype(np.float32) for value in arrays)
    there = []
    for value in arrays:
        assert isinstance(value.base, np.ndarray)
        there.append(zg.to_device(value.base))
    expected = a @ b + (c if also else 0)
    grid = -(-m // tile[0]), -(-n // tile[1])
    warps = 4 if tile[1] == 128 else 8
    for _ in range(1 if also else 3):
        product[grid](*arguments(m, n, k, there), *tile, also, num_warps=warps, num_ctas=2)
    np.testing.assert_array_equal(there[2].numpy()[:m, :n], expected)


@pytest.mark.parametrize("steps", [1, 2, 7, 64])
@pytest.mark.parametrize("count", [2, 3])
def test_consumers(count: int, steps: int) -> None:
    m, n, k, rows = 128, 64, 64, 128 * count * 90 - 40
    a, b = integers(rows, steps * k) % 2, integers(steps * k, n) % 2
    expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    arguments = [described(a, (m, k)), described(b, (k, n)), described(np.zeros((rows, n), np.float16), (m, n))]
    for programs in (90, 17, 1):
        if count == 2:
            products[programs,](*arguments, 90, steps * k, m, n, k, "", num_warps=4, num_ctas=2)
        else:
            three_blocks[programs,](*arguments, rows, steps * k, m, n, k, num_warps=4, num_ctas=2)
        np.testing.assert_array_equal(host(arguments[2]), expected)


@pytest.mark.parametrize("n", [64, 300, 4096])
def test_attention(n: int) -> None:
    rows, d = 1000, 64
    q, k, v = (np.random.default_rng(at).standard_normal((count, d)) / 2 for at, count in enumerate((rows, n, n)))
    n = -(-n // 64) * 64
    k, v = (np.pad(item, ((0, n - len(item)), (0, 0))) for item in (k, v))
    q, k, v = (item.astype(np.float16) for item in (q, k, v))
    arguments = [described(q, (256, d)), described(k, (64, d)), described(v, (64, d))]
    out = described(np.zeros((rows, d), np.float16), (256, d))
    for _ in range(3):
        attended[4,](*arguments, out, n, 256, 64, d, num_warps=8, num_ctas=2)
        powers = np.exp2(q.astype(np.float64) @ k.astype(np.float64).T * 0.125)
        expected = powers @ v.astype(np.float64) / powers.sum(1, keepdims=True)
        np.testing.assert_allclose(host(out), expected, atol=4e-3)


def test_streams_and_cuda_graphs() -> None:
    torch = require("torch")

    m, n, k, tile = 1024, 1024, 512, (256, 256, 64)
    a, b = (torch.randint(-2, 3, (m, m), device="cuda").half() for _ in range(2))
    expected = (a[:, :k].float() @ b[:k].float()).half()
    streams = [torch.cuda.Stream() for _ in range(3)]
    outs = [torch.zeros(m, n, device="cuda", dtype=torch.float16) for _ in range(4)]

    def launch(out: Any) -> None:
        product[4, 4](a, b, out, m, n, k, m, m, n, *tile, "", num_warps=8, num_ctas=2)

    torch.cuda.synchronize()
    for stream, out in zip(streams, outs, strict=False):
        with torch.cuda.stream(stream):
            for _ in range(20):
                launch(out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(outs[3])
    graph.replay()
    torch.cuda.synchronize()
    for out in outs:
        assert torch.equal(out, expected)
