"""Large blocks of elementwise kernels are computed chunk by chunk, with the same results."""

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.reference.run import run
from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import TensorType
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.tiles.chunks import divide_blocks
from ziggurat.transforms.tiles.prepare import prepare_for_gpu

F32 = zg.divisible(zg.ptr(zg.f32))
LESS = zg.CompareKind.LESS_THAN


@zg.kernel
def gelu(x, y, out, n, BLOCK: zg.constexpr):
    at = zg.add(zg.mul(zg.program_id(0), BLOCK), zg.arange(0, BLOCK))
    mask = zg.compare(at, n, LESS)
    a, b = zg.load(zg.add(x, at), mask, other=0.5), zg.load(zg.add(y, at), mask)
    zg.store(zg.add(out, at), zg.add(zg.mul(a, zg.sigmoid(a)), zg.mul(b, 3.0)), mask)


@zg.kernel
def doubled_in_place(x, y, out, n, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    places = zg.add(x, at)
    zg.store(places, zg.add(zg.load(places), zg.load(places)))


@zg.kernel
def shifted(x, y, out, n, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    zg.store(zg.add(x, zg.add(at, 1)), zg.load(zg.add(x, at)))


@zg.kernel
def counted_in_place(x, y, out, n, BLOCK: zg.constexpr):
    """Several positions load and store one element: the chunks would count one after the other."""
    places = zg.add(x, zg.and_(zg.arange(0, BLOCK), 1023))
    zg.store(places, zg.add(zg.load(places), 1.0))


@zg.kernel
def stored_twice(x, y, out, n, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    zg.store(zg.add(out, at), zg.load(zg.add(x, at)))
    zg.store(zg.add(out, zg.sub(BLOCK - 1, at)), zg.load(zg.add(y, at)))


@zg.kernel
def summed(x, y, out, n, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    row = zg.load(zg.add(x, at))
    zg.store(zg.add(out, at), zg.div(row, zg.sum(row, axis=0)))


def models(kernel: Any, block: int) -> tuple[Any, Op]:
    prepared: Any = prepare_for_gpu(kernel.triton(F32, F32, F32, zg.i32, block))
    result = divide_blocks(prepared, 1)
    verify(result)
    return prepared, result


@pytest.mark.parametrize("kernel", [gelu, doubled_in_place])
def test_the_interpreter_gives_the_same_results(kernel: Any) -> None:
    block, n = 16384, 20000
    prepared, result = models(kernel, block)
    assert sum(isinstance(op, scf.For) for op in result.walk()) == 1
    sizes = {op.result.type.shape for op in result.walk() if isinstance(op.result.type, TensorType)}
    assert sizes == {(2048,)}
    results = []
    for model in (prepared, result):
        x, y = (np.random.default_rng(seed).standard_normal(n).astype(np.float32) for seed in (1, 2))
        out = np.zeros(n, np.float32)
        run(model, None, (2,) if kernel is gelu else (1,), [x, y, out, n])
        results.append((x, out))
    for before, after in zip(*results, strict=True):
        assert np.array_equal(before, after)


def test_simulated_code_gives_the_same_results() -> None:
    x, y = (np.random.default_rng(seed).standard_normal(9000).astype(np.float32) for seed in (1, 2))
    actual, expected = np.zeros(9000, np.float32), np.zeros(9000, np.float32)
    gelu.compile(F32, F32, F32, zg.i32, 8192, num_warps=1, verify=True).simulate[(2,)](x, y, actual, 9000)
    gelu[(2,)](x, y, expected, 9000, 8192, interpret=True)
    assert np.allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kernel", [shifted, counted_in_place, stored_twice, summed])
def test_blocks_that_stay_whole(kernel: Any) -> None:
    prepared, model = models(kernel, 16384)
    assert model is prepared


def test_small_blocks_stay_whole() -> None:
    prepared, model = models(gelu, 4096)
    assert model is prepared and not any(isinstance(op, scf.For) for op in model.walk())
    assert sum(isinstance(op, tt.Load) for op in model.walk()) == 2
    assert any(isinstance(op, scf.For) for op in models(gelu, 8192)[1].walk()), "256 elements a thread are divided"
