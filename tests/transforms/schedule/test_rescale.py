"""Factors that are often 1: which accumulators are multiplied only where a factor is another number."""

from __future__ import annotations

import pytest

import ziggurat as zg
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.transforms.gpu.gpu_passes import place

F16, N = zg.divisible(zg.ptr(zg.f16)), zg.divisible(zg.i32)
BLOCK = zg.divisible(zg.descriptor((64, 64), zg.f16), 16)


@zg.kernel
def attention(q, k, v, out, n, by_tma: zg.constexpr):
    """Attention of 64 queries, by TMA or through pointers."""
    rows, columns = zg.expand(zg.arange(0, 64), 1), zg.expand(zg.arange(0, 64), 0)
    square = zg.add(zg.mul(rows, 64), columns)
    own = q.load((0, 0)) if by_tma else zg.load(zg.add(q, square))
    top, total = zg.full((64,), -1.0e30, zg.f32), zg.zeros((64, 64), zg.f32)
    for start in range(0, n, 64):
        at = zg.add(square, zg.mul(start, 64))
        keys = k.load((start, 0)) if by_tma else zg.load(zg.add(k, at))
        values = v.load((start, 0)) if by_tma else zg.load(zg.add(v, at))
        scores = zg.dot(own, zg.trans(keys))
        higher = zg.maximum(top, zg.max(scores, 1))
        total = zg.mul(total, zg.expand(zg.exp2(zg.sub(top, higher)), 1))
        total = zg.dot(zg.cast(zg.exp2(zg.sub(scores, zg.expand(higher, 1))), zg.f16), values, total)
        top = higher
    zg.store(zg.add(out, square), zg.cast(total, zg.f16))


def count(model: Op, kind: type[Op]) -> int:
    return sum(isinstance(op, kind) for op in model.walk())


@pytest.mark.parametrize("stages", [2, 3])
def test_operands_that_tma_loads(stages: int) -> None:
    model = place(attention.triton(BLOCK, BLOCK, BLOCK, F16, N, True), CompileOptions("sm_90a", 4, stages))
    assert count(model, gpu.Rescale) and not count(model, gpu.AsyncCopy)


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_operands_that_threads_load(stages: int) -> None:
    """ptxas multiplies in any case where threads copy, and selects one of the two values afterwards."""
    options = CompileOptions("sm_90a", 4, stages, raise_pointers=False)
    model = place(attention.triton(F16, F16, F16, F16, N, False), options)
    assert not count(model, gpu.Rescale) and count(model, gpu.AsyncCopy)
