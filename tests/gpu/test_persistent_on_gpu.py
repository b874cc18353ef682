"""CTAs that run several programs on a GPU: grids of all forms, other kernels in their place, streams, CUDA graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from libraries import require
from persistent_products import TILE, arguments, matrices, product

import ziggurat as zg
from ziggurat.codemodel.gpu.options import CompileOptions

pytestmark = pytest.mark.gpu
OPTIONS: dict[str, Any] = {"num_warps": 8}


def true(arrays: list[np.ndarray], also: str = "") -> np.ndarray:
    """The third matrix after the product, in its room."""
    a, b, c = (array.astype(np.float32) for array in arrays)
    room, (m, n) = whole(arrays[2]).copy(), c.shape
    room[:m, :n] = a @ b + (c if also == "residual" else 0)
    return room


def whole(matrix: np.ndarray) -> np.ndarray:
    """The rows of a matrix with what lies between them and after them."""
    assert isinstance(matrix.base, np.ndarray)
    return matrix.base


def sent(arrays: list[np.ndarray]) -> list[Any]:
    return [zg.to_device(whole(array)) for array in arrays]


def tiles(m: int, n: int) -> tuple[int, int]:
    return -(-m // TILE[0]), -(-n // TILE[1])


@pytest.mark.parametrize("also", ["", "residual", "two stores"])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(128, 256, 64), (1000, 1000, 200), (4096, 4096, 72), (3000, 5000, 512), (100, 99, 0), (9000, 264, 33)],
)
@pytest.mark.parametrize("form", ["two axes", "three axes", "function"])
def test_grids(m: int, n: int, k: int, also: str, form: str) -> None:
    """More programs than CTAs, fewer, sizes that no tile divides, and no step at all, whose maps cannot be made."""
    arrays = matrices(m, n, k)
    expected = true(arrays, also)
    two = rows, columns = tiles(m, n)
    grid: Any = {"two axes": two, "three axes": (2, columns, -(-rows // 2)), "function": lambda argument: two}[form]
    there = sent(arrays)
    for _ in range(1 if also == "residual" else 2):
        product[grid](*arguments(m, n, k, there), *TILE, also, **OPTIONS)
    np.testing.assert_array_equal(there[2].numpy(), expected)


def test_no_programs() -> None:
    there = sent(matrices(64, 64, 64))
    before = there[2].numpy()
    product[(0, 1)](*arguments(64, 64, 64, there), *TILE, "", **OPTIONS)
    np.testing.assert_array_equal(there[2].numpy(), before)


def test_other_grids_of_the_same_arguments() -> None:
    """The sizes of the grid are no arguments: launches of the same arguments must not share them."""
    m, n, k = 1024, 1024, 128
    arrays = matrices(m, n, k)
    there, expected, rows = sent(arrays), true(arrays), 0
    for count in (1, 4, 2, 8):
        product[(count, 4)](*arguments(m, n, k, there), *TILE, "", **OPTIONS)
        rows = max(rows, count * TILE[0])
        got = there[2].numpy()
        np.testing.assert_array_equal(got[:rows], expected[:rows])
        np.testing.assert_array_equal(got[rows:], whole(arrays[2])[rows:])


def test_streams_and_cuda_graphs() -> None:
    torch = require("torch")

    m = n = k = 2048
    a, b = (torch.randint(-3, 4, (m, m), device="cuda").half() for _ in range(2))
    expected = a.float() @ b.float()
    streams = [torch.cuda.Stream() for _ in range(3)]
    outs = [torch.zeros(m, m, device="cuda", dtype=torch.float16) for _ in range(4)]
    torch.cuda.synchronize()
    for stream, out in zip(streams, outs, strict=False):
        with torch.cuda.stream(stream):
            product[tiles(m, n)](a, b, out, m, n, k, m, m, m, *TILE, "", **OPTIONS)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        product[tiles(m, n)](a, b, outs[3], m, n, k, m, m, m, *TILE, "", **OPTIONS)
    product[(1, 1)](a, b, outs[0], m, n, k, m, m, m, *TILE, "", **OPTIONS)  # The buffer of the graph's launch is free.
    graph.replay()
    torch.cuda.synchronize()
    for out in outs:
        assert torch.equal(out.float(), expected.half().float())


def test_the_option() -> None:
    """Off, and asked for with a kernel whose programs cannot be taken in turn: results are the same."""
    assert CompileOptions().persistent
    m, n, k = 700, 900, 300
    arrays = matrices(m, n, k)
    expected = true(arrays)
    for options in ({"persistent": False}, {"launch_cooperative_grid": True}, {"raise_pointers": False}):
        there = sent(arrays)
        product[tiles(m, n)](*arguments(m, n, k, there), *TILE, "", **OPTIONS, **options)
        np.testing.assert_array_equal(there[2].numpy(), expected)
