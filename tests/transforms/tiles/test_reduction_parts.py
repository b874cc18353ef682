"""Reductions of blocks that are too large for registers are computed part by part, with the same results."""

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.reference.run import run
from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import TensorType
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.tiles.prepare import prepare_for_gpu
from ziggurat.transforms.tiles.reduction_parts import divide_reductions

F32 = zg.divisible(zg.ptr(zg.f32))
I32 = zg.divisible(zg.ptr(zg.i32))
LESS = zg.CompareKind.LESS_THAN
ROWS, COLUMNS = 1024, 32


@zg.kernel
def weighted(x, y, places, n, ROWS: zg.constexpr, COLUMNS: zg.constexpr):
    """Sums of columns, weighted by a softmax of other numbers, which are not loaded as part of the block."""
    rows, columns = zg.arange(0, ROWS), zg.arange(0, COLUMNS)
    weights = zg.load(y + rows)
    weights = zg.exp(weights - zg.max(weights, axis=0))
    weights = weights / zg.sum(weights, axis=0)
    at = zg.expand(rows, 1) * COLUMNS + zg.expand(columns, 0)
    block = zg.load(x + at, zg.broadcast(zg.expand(rows, 1) < n, (ROWS, COLUMNS)), other=1.0)
    zg.store(y + columns, zg.sum(block * zg.expand(weights, 1), axis=0))


@zg.kernel
def largest(x, y, places, n, ROWS: zg.constexpr, COLUMNS: zg.constexpr):
    rows, columns = zg.arange(0, ROWS), zg.arange(0, COLUMNS)
    block = zg.load(x + (zg.expand(columns, 1) * ROWS + zg.expand(rows, 0)))
    zg.store(places + columns, zg.argmax(block, axis=1))
    zg.store(y + columns, zg.max(zg.abs(block), axis=1))


@zg.kernel
def whole(x, y, places, n, ROWS: zg.constexpr, COLUMNS: zg.constexpr):
    zg.store(y, zg.sum(zg.load(x + zg.arange(0, ROWS * COLUMNS)), axis=0))


@zg.kernel
def stored_before(x, y, places, n, ROWS: zg.constexpr, COLUMNS: zg.constexpr):
    """The block is loaded before a store that may change it."""
    block = zg.load(x + zg.arange(0, ROWS * COLUMNS))
    zg.store(x + 1, zg.load(y))
    zg.store(y, zg.sum(block, axis=0))


@zg.kernel
def scanned(x, y, places, n, ROWS: zg.constexpr, COLUMNS: zg.constexpr):
    zg.store(y, zg.max(zg.cumsum(zg.load(x + zg.arange(0, ROWS * COLUMNS)), axis=0), axis=0))


def models(kernel: Any) -> tuple[Any, Op]:
    prepared: Any = prepare_for_gpu(kernel.triton(F32, F32, I32, zg.i32, ROWS, COLUMNS))
    result = divide_reductions(prepared, 1)
    verify(result)
    return prepared, result


def results(launch: Any) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    x, y = (random.standard_normal(size).astype(np.float32) for size in (ROWS * COLUMNS, ROWS))
    places = np.zeros(COLUMNS, np.int32)
    launch(x, y, places, 1000)
    return y, places


@pytest.mark.parametrize("kernel", [weighted, largest, whole])
def test_the_interpreter_gives_the_same_results(kernel: Any) -> None:
    before, after = models(kernel)
    assert any(isinstance(op, scf.For) for op in after.walk())
    sizes = [op.result.type.numel for op in after.walk() if isinstance(op.result.type, TensorType)]
    assert max(sizes) <= 2 * 2048  # Of two parts side by side.
    (y, places), (expected, expected_places) = (
        results(lambda *arguments, model=model: run(model, None, (1,), list(arguments))) for model in (after, before)
    )
    assert np.allclose(y, expected, rtol=1e-5, atol=1e-5)
    assert np.array_equal(places, expected_places)


@pytest.mark.parametrize("kernel", [weighted, largest, whole])
def test_simulated_code_gives_the_same_results(kernel: Any) -> None:
    compiled = kernel.compile(F32, F32, I32, zg.i32, ROWS, COLUMNS, num_warps=1, verify=True)
    y, places = results(lambda *arguments: compiled.simulate[(1,)](*arguments))
    expected, expected_places = results(lambda *arguments: kernel[(1,)](*arguments, ROWS, COLUMNS, interpret=True))
    assert np.allclose(y, expected, rtol=1e-4, atol=1e-4)
    assert np.array_equal(places, expected_places)


@pytest.mark.parametrize("kernel", [stored_before, scanned])
def test_blocks_that_stay_whole(kernel: Any) -> None:
    prepared, model = models(kernel)
    assert model is prepared


def test_small_blocks_stay_whole() -> None:
    prepared: Any = prepare_for_gpu(whole.triton(F32, F32, I32, zg.i32, ROWS, COLUMNS))
    assert divide_reductions(prepared, 4) is prepared
    assert any(isinstance(op, tt.Load) for op in prepared.walk())
