"""Products of matrices in microscaling formats, against the values that the formats' specification gives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

FORMATS = [*itertools.product(["e2m1", "e4m3", "e5m2"], ["e2m1", "e5m2", "bf16", "fp16"])]
AXES = [*itertools.product([True, False], repeat=2)]
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
DTYPES = {"e4m3": "f8e4m3", "e5m2": "f8e5m2", "bf16": "bf16", "fp16": "f16"}


def operand(rng, name, shape, axis, dtypes):
    """An operand whose elements are packed along an axis, and its values."""
    if name != "e2m1":
        elements = (rng.integers(-16, 17, shape) / 8).astype(dtypes[DTYPES[name]])
        return elements, elements.astype(np.float64)
    codes = rng.integers(0, 16, shape)
    halves = [np.take(codes, range(start, shape[axis], 2), axis) for start in (0, 1)]
    return (halves[0] | halves[1] << 4).astype(np.uint8), np.where(codes & 8, -1, 1) * FP4[codes & 7]


def scales(rng, shape):
    """Scales near 1, and the factor of each element along the last axis."""
    codes = rng.integers(123, 132, shape).astype(np.uint8)
    return codes, np.repeat(2.0 ** (codes.astype(np.float64) - 127), 32, axis=-1)


CALL = "y = zg.dot_scaled(a, {a}, '{left}', b, {b}, '{right}'{more})"


@pytest.mark.parametrize(("left", "right"), FORMATS)
def test_formats(left, right, compute, dtypes):
    rng = np.random.default_rng(0)
    a, true_a = operand(rng, left, (2, 32, 64), 2, dtypes)
    b, true_b = operand(rng, right, (2, 64, 16), 1, dtypes)
    sa, factor_a = scales(rng, (2, 32, 2))
    inputs, of_b = {"a": a, "b": b, "sa": sa}, "None"
    if right not in ("bf16", "fp16"):
        inputs["sb"], factor_b = scales(rng, (2, 16, 2))
        of_b, true_b = "sb", true_b * factor_b.transpose(0, 2, 1)
    expected = (true_a * factor_a) @ true_b
    body = CALL.format(a="sa", left=left, b=of_b, right=right, more="")
    compute(body, inputs, {"y": expected.astype(np.float32)})


@pytest.mark.parametrize("packed", AXES)
def test_fp4_packed_along_either_axis(packed, compute, dtypes):
    rng = np.random.default_rng(1)
    a, true_a = operand(rng, "e2m1", (2, 32, 64), 2 if packed[0] else 1, dtypes)
    b, true_b = operand(rng, "e2m1", (2, 64, 32), 1 if packed[1] else 2, dtypes)
    (sa, factor_a), (sb, factor_b) = scales(rng, (2, 32, 2)), scales(rng, (2, 32, 2))
    c = rng.integers(-8, 9, (2, 32, 32)).astype(np.float32)
    expected = (true_a * factor_a) @ (true_b * factor_b.transpose(0, 2, 1)) + c
    more = f", c, lhs_k_pack={packed[0]}, rhs_k_pack={packed[1]}"
    body = CALL.format(a="sa", left="e2m1", b="sb", right="e2m1", more=more)
    compute(body, {"a": a, "b": b, "c": c, "sa": sa, "sb": sb}, {"y": expected.astype(np.float32)})


def test_batches_and_bytes(compute, dtypes):
    """8-bit floats may come as their bytes, and scales as signed ones."""
    rng = np.random.default_rng(2)
    a, true_a = operand(rng, "e4m3", (2, 2, 16, 32), 3, dtypes)
    b, true_b = operand(rng, "e2m1", (2, 2, 32, 16), 2, dtypes)
    sa, factor_a = scales(rng, (2, 2, 16, 1))
    body = CALL.format(a="sa", left="e4m3", b="None", right="e2m1", more="")
    inputs = {"a": a.view(np.uint8), "b": b, "sa": sa.view(np.int8)}
    compute(body, inputs, {"y": ((true_a * factor_a) @ true_b).astype(np.float32)})


def test_scales_that_are_floats_belong_to_16_elements(compute, dtypes):
    rng = np.random.default_rng(3)
    a, true_a = operand(rng, "e2m1", (2, 16, 64), 2, dtypes)
    b, true_b = operand(rng, "bf16", (2, 64, 16), 1, dtypes)
    sa = (rng.integers(1, 9, (2, 16, 4)) / 4).astype(dtypes["f8e4m3"])
    true_a *= np.repeat(sa.astype(np.float64), 16, axis=-1)
    body = CALL.format(a="sa", left="e2m1", b="None", right="bf16", more="")
    compute(body, {"a": a, "b": b, "sa": sa}, {"y": (true_a @ true_b).astype(np.float32)})


def test_the_scale_255_is_nan(compute):
    a, b = np.full((1, 16, 32), 0x22, np.uint8), np.full((1, 32, 16), 0x22, np.uint8)  # Two 1.0 each.
    sa = np.full((1, 16, 2), 127, np.uint8)
    sa[0, 3, 1] = 255
    expected = np.full((1, 16, 16), 64, np.float32)
    expected[0, 3] = np.nan
    compute(
        CALL.format(a="sa", left="e2m1", b="None", right="e2m1", more=""), {"a": a, "b": b, "sa": sa}, {"y": expected}
    )
