"""Blocks that are released before the last dot, whose channels are proven, and results with and without the pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from left_out import with_and_without

import ziggurat as zg
from ziggurat.codemodel.dialects import scf
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.gpu.channels import proofs_of
from ziggurat.transforms.gpu.gpu_passes import PLACE
from ziggurat.transforms.schedule.release_early import release_early

M, N, D = 128, 64, 256


@zg.kernel
def attention(q_desc, k_desc, v_desc, out_desc, tiles, n):
    """Tiles of attention whose queries have no room in registers."""
    for tile in zg.range(zg.program_id(0), tiles, zg.num_programs(0)):
        q = q_desc.load((zg.mul(tile, 128), 0))
        top, acc = zg.full((128,), -1.0e30, zg.f32), zg.zeros((128, 256), zg.f32)
        for start in zg.range(0, n, 64, warp_specialize=True):
            scores = zg.dot(q, zg.trans(k_desc.load((start, 0))))
            higher = zg.maximum(top, zg.max(scores, axis=1))
            acc = zg.mul(acc, zg.expand(zg.exp2(zg.sub(top, higher)), 1))
            powers = zg.cast(zg.exp2(zg.sub(scores, zg.expand(higher, 1))), zg.f16)
            acc = zg.dot(powers, v_desc.load((start, 0)), acc)
            top = higher
        left, right = zg.split(zg.permute(zg.reshape(acc, (128, 2, 128)), (0, 2, 1)))
        for half in zg.static_range(2):
            one, two = zg.split(zg.permute(zg.reshape(right if half else left, (128, 2, 64)), (0, 2, 1)))
            out_desc.store((zg.mul(tile, 128), 128 * half), zg.cast(one, zg.f16))
            out_desc.store((zg.mul(tile, 128), 128 * half + 64), zg.cast(two, zg.f16))


TYPES: list[Any] = [
    *(zg.divisible(zg.descriptor(shape, zg.f16), 16) for shape in ((M, D), (N, D), (N, D), (M, 64))),
    zg.i32,
    zg.divisible(zg.i32, 64),
]
OPTIONS: dict[str, Any] = {"num_warps": 8, "num_stages": 2}


def before() -> Any:
    """The model before the pass."""
    model: Any = attention.triton(*TYPES)
    for step, arguments in PLACE:
        if step == "release_early":
            return model
        model = arguments(model, CompileOptions("sm_90a", **OPTIONS))
    raise AssertionError("no such step")


def releases_of_queries(module: Op) -> list[gpu.ChannelRelease]:
    actual = (op for op in module.walk() if isinstance(op, gpu.ChannelRelease))
    return [op for op in actual if op.channel.op.rings[0].type.shape == (M, D)]  # pyright: ignore


def test_the_queries_are_released_before_the_last_dot_with_the_values() -> None:
    model = before()
    result = release_early(model)
    verify(result)
    assert not any(proof.hazards for proof in proofs_of(result).values())
    (late,) = releases_of_queries(model)
    assert isinstance(late.parent_op, scf.For)
    early, other = releases_of_queries(result)
    branch = early.parent_op
    assert isinstance(branch, scf.If) and other.parent_op is branch and early.parent is branch.then.entry
    ops = branch.then.entry.ops
    after = ops[ops.index(early) :]
    assert isinstance(ops[ops.index(early) - 1], scf.For) and sum(isinstance(op, gpu.Wgmma) for op in after) == 1
    assert release_early(result) is result


@pytest.mark.parametrize(("n", "tiles"), [(64, 3), (192, 2)])
def test_results(n: int, tiles: int) -> None:
    numbers = np.random.default_rng(n)

    def given() -> tuple[np.ndarray, list[Any]]:
        rows = (tiles * M, n, n)
        q, k, v = ((numbers.standard_normal((count, D)) / 8).astype(np.float16) for count in rows)
        out = np.zeros((tiles * M, D), np.float16)
        pairs = ((q, (M, D)), (k, (N, D)), (v, (N, D)), (out, (M, 64)))
        return out, [*(zg.TensorDescriptor(array, list(block)) for array, block in pairs), tiles, n]

    state = numbers.bit_generator.state

    def again() -> tuple[np.ndarray, list[Any]]:
        numbers.bit_generator.state = state
        return given()

    changed, plain, true = with_and_without("release_early", attention, TYPES, again, **OPTIONS)
    np.testing.assert_array_equal(changed, plain)
    np.testing.assert_allclose(changed.astype(float), true.astype(float), atol=5e-3, rtol=5e-3)
    assert changed.any()
