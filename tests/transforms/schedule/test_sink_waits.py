"""Waits for wgmma stand where their results are used, and leave later wgmma in flight."""

from __future__ import annotations

from typing import Any

import numpy as np
from asynchronous_kernels import I32, SQUARE, gradients
from left_out import with_and_without

import ziggurat as zg
from ziggurat.codemodel.dialects import math
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.gpu.gpu_passes import PLACE, place
from ziggurat.transforms.gpu.hazards import hazards
from ziggurat.transforms.schedule.sink_waits import sink_waits


def ops_of(module: Op) -> list[str | int]:
    """The dots of a model, its exponentials, and the numbers of wgmma that its waits leave in flight."""
    names: dict[type[Op], str] = {gpu.Wgmma: "dot", math.Exp2: "exp2"}
    kinds = (*names, gpu.WgmmaWait)
    results = [op for op in module.walk() if isinstance(op, kinds)]
    return [op.pending if isinstance(op, gpu.WgmmaWait) else names[type(op)] for op in results]


def before(roles: bool) -> Any:
    model: Any = gradients.triton(*[SQUARE] * 6, I32, roles)
    for name, step in PLACE:
        if name == "sink_waits":
            return model
        model = step(model, CompileOptions("sm_90a", 4, 2))
    raise AssertionError("no such step")


def test_dots_that_do_not_need_each_other_overlap() -> None:
    model = before(False)
    assert ops_of(model) == ["dot", 0, "dot", 0, "exp2", "dot", 0, "dot", 0]
    sunk = sink_waits(model, every=True)
    verify(sunk)
    assert ops_of(sunk) == ["dot", "dot", 1, "exp2", "dot", 1, "dot", 1, 0]
    assert sink_waits(sunk, every=True) is sunk
    assert sink_waits(model, every=False) is model


def test_the_results_are_those_of_waits_at_once() -> None:
    def given() -> tuple[np.ndarray, list[Any]]:
        random = np.random.default_rng(6)
        arrays = [(random.standard_normal((rows, 64)) / 4).astype(np.float16) for rows in (64, 64, 128, 128)]
        result = np.zeros((2, 64, 64), np.float16)
        return result, [*(zg.TensorDescriptor(array, [64, 64]) for array in (*arrays, *result)), 128]

    types = [*[SQUARE] * 6, I32, True]
    sunk, at_once, true = with_and_without("sink_waits", gradients, types, given, num_warps=4, num_stages=2)
    np.testing.assert_array_equal(sunk, at_once)
    np.testing.assert_allclose(sunk.astype(np.float32), true.astype(np.float32), rtol=4e-3, atol=4e-3)


def test_the_last_dot_is_in_flight_in_the_next_iteration() -> None:
    module = place(gradients.triton(*[SQUARE] * 6, I32, True), CompileOptions("sm_90a", 4, 2))
    verify(module)
    assert hazards(module) == []
    # After the wait for the scores, that for the last dot of the iteration before; after the loop, once more.
    assert ops_of(module) == ["dot", "dot", 1, 1, "exp2", "dot", 1, "dot", 1, 0]


@zg.kernel
def returns(a_desc, b_desc, c_desc, n):
    total = zg.dot(a_desc.load((0, 0)), b_desc.load((0, 0)))
    if n > 3:
        return
    c_desc.store((0, 0), zg.cast(total, zg.f16))


def test_a_result_that_is_used_behind_a_return() -> None:
    blocks = [zg.divisible(zg.descriptor((64, 64), zg.f16), 16) for _ in range(3)]
    module = place(returns.triton(*blocks, I32), CompileOptions("sm_90a", 4, 2))
    verify(module)
    assert hazards(module) == [] and ops_of(module) == ["dot", 0]
