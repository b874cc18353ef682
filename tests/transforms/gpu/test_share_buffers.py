"""A tensor that two dots read, in one or the other order of its axes, is in one buffer; results stay the same."""

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.gpu import dialect as gpu

M, N, D, STEPS = 64, 32, 64, 4


@zg.kernel
def twice(x_ptr, q_ptr, out_ptr, steps, M: zg.constexpr, N: zg.constexpr, D: zg.constexpr, TURNED: zg.constexpr):
    """The sum of (x · q) · qᵀ over blocks q of shape (D, N), or of x · q + x · q."""
    rows, columns = zg.expand(zg.arange(0, M), 1), zg.expand(zg.arange(0, D), 0)
    x = zg.load(zg.add(x_ptr, zg.add(zg.mul(rows, D), columns)))
    total = zg.zeros((M, D if TURNED else N), zg.f32)
    for step in range(steps):
        places = zg.add(zg.expand(zg.arange(0, D), 1), zg.mul(zg.expand(zg.arange(0, N), 0), D))
        q = zg.load(zg.add(q_ptr, zg.add(places, step * N * D)))
        if TURNED:
            total = zg.dot(zg.cast(zg.dot(x, q), zg.f16), zg.trans(q), total)
        else:
            total = zg.add(total, zg.add(zg.dot(x, q), zg.dot(zg.add(x, x), q)))
    out = zg.zeros((M, D if TURNED else N), zg.i32)
    out = zg.add(out, zg.add(zg.mul(rows, D if TURNED else N), zg.expand(zg.arange(0, D if TURNED else N), 0)))
    zg.store(zg.add(out_ptr, out), total)


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("transposed", [True, False])
def test_one_buffer_serves_two_dots(transposed: bool, stages: int) -> None:
    rng = np.random.default_rng(stages)
    half = zg.divisible(zg.ptr(zg.f16))
    compiled = twice.compile(
        half, half, zg.divisible(zg.ptr(zg.f32)), zg.i32, M, N, D, transposed,
        target="sm_90a", num_stages=stages, verify=True,
    )  # fmt: skip
    ops = list(compiled.stages["gpu"].walk())
    assert sum(isinstance(op, gpu.Wgmma) for op in ops) == 2
    buffers = [op.type for op in ops if isinstance(op, gpu.LocalAlloc) and op.type.element == zg.f16]
    assert sum(set(type_.shape) == {D, N} for type_ in buffers) == 1
    assert any(isinstance(op, gpu.LocalTrans) for op in ops) == transposed
    x = rng.integers(-2, 3, (M, D)).astype(np.float16)
    q = rng.integers(-2, 3, (STEPS, N, D)).astype(np.float16)
    out = np.zeros((M, D if transposed else N), np.float32)
    compiled.simulate[(1,)](x, q, out, STEPS)
    wide = x.astype(np.float64)
    blocks_of_q = q.astype(np.float64)
    if transposed:
        np.testing.assert_array_equal(out, sum((wide @ b.T) @ b for b in blocks_of_q))
    else:
        np.testing.assert_array_equal(out, sum(3 * wide @ b.T for b in blocks_of_q))
