"""Programs of several CTAs on a GPU: rows of all lengths, grids of all forms, streams and CUDA graphs, Triton's
options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cluster_kernels import NAMES, arguments, normalised
from libraries import require

import ziggurat as zg
from ziggurat.backend.devices.driver import current_device

pytestmark = pytest.mark.gpu
OPTIONS: dict[str, Any] = {"exact_math": True, "check": True}  # Quotients to the bit.


@pytest.fixture(autouse=True)
def has_clusters() -> None:
    if current_device().capability < (9, 0):
        pytest.skip("clusters need Hopper")


def sent(argument: list[Any]) -> list[Any]:
    return [zg.to_device(array) if isinstance(array, np.ndarray) else array for array in argument]


def same(argument: list[Any], there: list[Any]) -> None:
    for array, other in zip(argument, there, strict=True):
        if isinstance(array, np.ndarray):
            np.testing.assert_array_equal(other.numpy(), array)


@pytest.mark.parametrize("ctas", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("name", NAMES)
def test_kernels(name: str, ctas: int) -> None:
    for rows, n, block in ((300, 70, 512), (40, 8192, 8192), (40, 5001, 8192)):
        kernel, inputs, constants = arguments(name, rows, n, block)
        there = sent(inputs)
        kernel[rows,](*inputs, *constants, interpret=True)
        for _ in range(3):
            kernel[rows,](*there, *constants, num_ctas=ctas, num_warps=4, **OPTIONS)
        same(inputs, there)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(("ctas", "warps"), [(None, None), (8, 16), (16, 8), (16, 16), (4, 32)])
def test_long_rows(dtype: str, ctas: int | None, warps: int | None) -> None:
    """Rows as long as vocabularies, many more than run at once. Powers of two, whose sum is exact in any order."""
    dtype = zg.bf16.dtype if dtype == "bfloat16" else np.dtype(dtype)  # type: ignore[assignment]
    rows, n = 500, 128256
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (rows, n)).astype(dtype)
    labels, loss = rng.integers(0, n, rows).astype(np.int32), np.zeros(rows, np.float32)
    there = sent([x, np.zeros_like(x), labels, loss, n])
    normalised[rows,](*there, 131072, num_ctas=ctas, num_warps=warps, check=True)
    powers = np.exp2(x.astype(np.float32) - 3)
    total = powers.sum(1, dtype=np.float64)
    expected = powers / total[:, None].astype(np.float32)
    np.put_along_axis(expected, labels[:, None].astype(np.int64), -1, 1)
    step = 2.0**-24 if dtype == np.float16 else 0.0  # The results are subnormal numbers of f16.
    np.testing.assert_allclose(there[1].numpy().astype(np.float32), expected, rtol=1e-2, atol=step)
    picked = np.take_along_axis(x.astype(np.float32), labels[:, None].astype(np.int64), 1)[:, 0]
    np.testing.assert_allclose(there[3].numpy(), total + picked, rtol=1e-6)


@pytest.mark.parametrize("form", ["two axes", "three axes", "function"])
def test_grids(form: str) -> None:
    _, inputs, constants = arguments("normalised", 60, 2000, 2048)
    there = sent(inputs)
    normalised[60,](*inputs, *constants, interpret=True)
    grid: Any = {"two axes": (6, 10), "three axes": (6, 10, 1), "function": lambda _: (10, 6)}[form]
    for _ in range(2):
        normalised[grid](*there, *constants, num_ctas=8, **OPTIONS)
    same(inputs, there)


def test_no_programs_and_other_arguments() -> None:
    _, inputs, constants = arguments("normalised", 4, 1000, 1024)
    there = sent(inputs)
    normalised[0,](*there, *constants, num_ctas=4, **OPTIONS)
    same(inputs, there)
    for rows in (4, 2, 3):
        normalised[rows,](*there, *constants, num_ctas=4, **OPTIONS)
    normalised[4,](*inputs, *constants, interpret=True)
    same(inputs, there)


def test_streams_and_graphs() -> None:
    torch = require("torch")
    _, inputs, constants = arguments("normalised", 64, 4000, 4096)
    there = [torch.from_numpy(value).cuda() if isinstance(value, np.ndarray) else value for value in inputs]
    for _ in range(60):  # So that machine code launches, where it can.
        normalised[64,](*there, *constants, num_ctas=4, exact_math=True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        normalised[64,](*there, *constants, num_ctas=4, exact_math=True)
    there[1].zero_()
    there[3].zero_()
    graph.replay()
    torch.cuda.synchronize()
    normalised[64,](*inputs, *constants, interpret=True)
    for value, other in zip(inputs, there, strict=True):
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(other.cpu().numpy(), value)


def test_cooperative_launches() -> None:
    _, inputs, constants = arguments("normalised", 8, 4000, 4096)
    there = sent(inputs)
    normalised[8,](*there, *constants, num_ctas=4, launch_cooperative_grid=True, **OPTIONS)
    normalised[8,](*inputs, *constants, interpret=True)
    same(inputs, there)
