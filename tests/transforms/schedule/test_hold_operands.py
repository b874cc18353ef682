"""Operands that stay in registers, and factors that are often 1. `tests/backend/ptx/test_roles.py` runs them, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from left_out import with_and_without

import ziggurat as zg
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import SharedType, TensorType
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.gpu.gpu_passes import PLACE
from ziggurat.transforms.schedule.hold_operands import hold_operands
from ziggurat.transforms.schedule.rescale import rescale


@zg.kernel
def attention(q_desc, k_desc, v_desc, out_desc, n, ROLES: zg.constexpr, SCALED: zg.constexpr):
    q = q_desc.load((0, 0))
    shape: zg.constexpr = q.shape
    top, acc = zg.full((shape[0],), -1.0e30, zg.f32), zg.zeros(shape, zg.f32)
    for start in zg.range(0, n, 64, warp_specialize=ROLES):
        scores = zg.dot(q, zg.trans(k_desc.load((start, 0))))
        higher = zg.maximum(top, zg.max(scores, axis=1))
        shrink = zg.exp2(zg.sub(top, higher) if SCALED == "by maxima" else zg.sub(higher, top))
        acc = zg.mul(acc, zg.expand(shrink, 1))
        acc = zg.dot(zg.cast(zg.exp2(zg.sub(scores, zg.expand(higher, 1))), zg.f16), v_desc.load((start, 0)), acc)
        top = higher
    out_desc.store((0, 0), zg.cast(acc, zg.f16))


BLOCKS = (128, 64, 64, 128)


def before(name: str, d: int, roles: bool = True, scaled: str = "by maxima") -> Any:
    """The model before a pass."""
    blocks = [zg.divisible(zg.descriptor((rows, d), zg.f16), 16) for rows in BLOCKS]
    model: Any = attention.triton(*blocks, zg.divisible(zg.i32), roles, scaled)
    for step, arguments in PLACE:
        if step == name:
            return model
        model = arguments(model, CompileOptions("sm_90a", 8, 2))
    raise AssertionError("no such step")


def operands(module: Op) -> list[type]:
    """The types of the first operands of all wgmma."""
    return [type(op.a.type) for op in module.walk() if isinstance(op, gpu.Wgmma)]


def test_queries_are_read_once() -> None:
    model = before("hold_operands", 128)
    values = hold_operands(model)
    verify(values)
    # The first step and the loop have a dot with the queries; the loop and the end one with the values.
    assert operands(model).count(SharedType) == 2 and operands(values) == [TensorType] * 4
    assert sum(isinstance(op, gpu.LocalLoad) for op in values.walk()) == 1
    assert zg.same_model(hold_operands(values), values)


@pytest.mark.parametrize(("d", "roles"), [(256, True), (128, False)])
def test_without_room_they_stay_in_shared_memory(d: int, roles: bool) -> None:
    """With D = 256 the accumulator takes 128 registers; without roles no wgmma is in flight during the softmax."""
    model = before("hold_operands", d, roles)
    assert hold_operands(model) is model


@zg.kernel
def two_products(a_desc, b_desc, c_desc, out_desc, n):
    a, b, acc = a_desc.load((0, 0)), b_desc.load((0, 0)), zg.zeros((128, 64), zg.f32)
    for start in zg.range(0, n, 64, warp_specialize=True):
        c = zg.trans(c_desc.load((start, 0)))
        acc = zg.add(acc, zg.mul(zg.dot(a, c), zg.dot(b, c)))
    out_desc.store((0, 0), zg.cast(acc, zg.f16))


def test_two_blocks_are_held_and_kept_to_the_end_of_the_loop() -> None:
    blocks = [zg.divisible(zg.descriptor((rows, 64), zg.f16), 16) for rows in (128, 128, 64, 128)]
    model: Any = two_products.triton(*blocks, zg.divisible(zg.i32))
    for step, arguments in PLACE:
        if step == "hold_operands":
            break
        model = arguments(model, CompileOptions("sm_90a", 8, 2))
    values = hold_operands(model)
    verify(values)
    assert operands(model) == [SharedType] * 2 and operands(values) == [TensorType] * 2
    ops = list(values.walk())
    loop = max(at for at, op in enumerate(ops) if isinstance(op, gpu.Wgmma))
    copies = [at for at, op in enumerate(ops) if isinstance(op, gpu.Keep)]
    assert len(copies) == 2 and min(copies) > loop


@pytest.mark.parametrize("roles", [False, True])
def test_accumulators_are_scaled_where_a_maximum_has_changed(roles: bool) -> None:
    scaled = rescale(before("rescale", 64, roles))
    verify(scaled)
    assert sum(isinstance(op, gpu.Rescale) for op in scaled.walk()) == 1


@pytest.mark.parametrize(("name", "roles"), [("rescale", False), ("rescale", True), ("hold_operands", True)])
def test_the_results_are_those_without_the_pass(name: str, roles: bool) -> None:
    """The maxima of some rows change in each step, those of others never, and those of others only in some."""

    def given() -> tuple[np.ndarray, list[Any]]:
        random = np.random.default_rng(2)
        q, v = random.standard_normal((128, 64)), random.standard_normal((192, 64))
        k = random.standard_normal((192, 64)) * np.repeat([0.5, 1, 2], 64)[:, None]
        q[::3], k[:, 0], q[1::3, 0] = np.abs(q[::3]), np.repeat([6, 3, 0], 64), 4
        q, k, v = (item.astype(np.float16) for item in (q / 4, k / 4, v))
        result = np.zeros((128, 64), np.float16)
        blocks = [zg.TensorDescriptor(item, [rows, 64]) for item, rows in zip((q, k, v, result), BLOCKS, strict=True)]
        return result, [*blocks, 192]

    types = [*(zg.divisible(zg.descriptor((rows, 64), zg.f16), 16) for rows in BLOCKS), zg.divisible(zg.i32)]
    types += [roles, "by maxima"]
    changed, plain, true = with_and_without(name, attention, types, given, num_warps=8, num_stages=2)
    np.testing.assert_array_equal(changed, plain)
    np.testing.assert_allclose(changed.astype(np.float32), true.astype(np.float32), rtol=4e-3, atol=2e-2)


def test_other_factors_multiply_everywhere() -> None:
    model = before("rescale", 64, scaled="by the inverse")
    assert zg.same_model(rescale(model), model)
