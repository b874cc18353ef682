"""Maxima that only keep exponentials small: proofs, loops, and the gradients against finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from finite_differences import check_gradient

import ziggurat as zg
from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.op import constant_of
from ziggurat.transforms.differentiate import differentiate

f64, i32 = zg.ptr(zg.f64), zg.i32


def loops(model: Any) -> list[Any]:
    return [op for op in model.walk() if isinstance(op, scf.For)]


def depth(model: Any) -> int:
    return max((sum(isinstance(around, scf.For) for around in op.path()) for op in loops(model)), default=0)


def comparisons(model: Any) -> int:
    """The comparisons with a maximum; those of adjoints are with zero."""
    return sum(isinstance(op, arith.CmpF) and constant_of(op.rhs) != 0.0 for op in model.walk())


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@zg.function
def natural(x):
    return zg.exp(x)


@zg.function
def binary(x):
    return zg.exp2(x)


@zg.kernel
def online_softmax(x, w, out, lse, n, BLOCK: zg.constexpr, power: zg.constexpr, logarithm: zg.constexpr):
    """Σ softmax(x) · w of a row, in blocks."""
    row = zg.program_id(0)
    top = -float("inf")
    total = 0.0
    weighted = zg.zeros((BLOCK,), zg.f64)
    for start in range(0, n, BLOCK):
        at = zg.add(start, zg.arange(0, BLOCK))
        mask = zg.less(at, n)
        a = zg.load(zg.add(x + row * n, at), mask, other=-float("inf"))
        b = zg.load(zg.add(w, at), mask, other=0.0)
        higher = zg.maximum(top, zg.max(a, axis=0))
        shrink = power(top - higher)
        powers = power(zg.sub(a, higher))
        weighted = zg.add(zg.mul(weighted, shrink), zg.mul(powers, b))
        total = total * shrink + zg.sum(powers, axis=0)
        top = higher
    zg.store(out + row, zg.sum(weighted, axis=0) / total)
    zg.store(lse + row, top + logarithm(total))


@zg.function
def natural_log(x):
    return zg.log(x)


@zg.function
def binary_log(x):
    return zg.log2(x)


PAIRS = [(natural, natural_log), (binary, binary_log)]


@pytest.mark.parametrize(("power", "logarithm"), PAIRS)
def test_a_running_maximum(rng, power, logarithm):
    model = online_softmax.triton(f64, f64, f64, f64, i32, 8, power, logarithm)
    arguments = [rng.standard_normal((3, 29)), rng.standard_normal(29), np.zeros(3), np.zeros(3), 29]
    check_gradient(model, 3, arguments, [2], [0, 1])
    check_gradient(model, 3, arguments, [2, 3], [0, 1])
    gradient = differentiate(model, [2, 3], [0, 1])
    assert depth(gradient) == 1 and len(loops(gradient)) == 2
    assert comparisons(gradient) == 0


def test_other_bases_do_not_cancel(rng):
    model = online_softmax.triton(f64, f64, f64, f64, i32, 8, natural, binary_log)
    arguments = [rng.standard_normal((3, 29)), rng.standard_normal(29), np.zeros(3), np.zeros(3), 29]
    check_gradient(model, 3, arguments, [2, 3], [0, 1])  # top + log2(total) depends on top: exact all the same.
    assert depth(differentiate(model, [2, 3], [0, 1])) == 2
    assert depth(differentiate(model, [2], [0, 1])) == 1


@zg.kernel
def softmax(x, out, ROWS: zg.constexpr, COLUMNS: zg.constexpr, FORM: zg.constexpr):
    rows = zg.mul(zg.expand(zg.arange(0, ROWS), 1), COLUMNS)
    at = zg.add(rows, zg.expand(zg.arange(0, COLUMNS), 0))
    a = zg.load(zg.add(x, at))
    top = zg.max(a, axis=1)
    if FORM == "clipped":
        top = zg.minimum(top, 1.0)
    centred = zg.sub(a, zg.expand(top, 1))
    powers = zg.exp(zg.mul(centred, 2.0))
    total = zg.sum(powers, axis=1)
    if FORM == "log":
        result = zg.sub(centred, zg.expand(zg.mul(zg.log(total), 0.5), 1))
    elif FORM == "biased":
        result = zg.div(powers, zg.expand(zg.add(total, 1.0), 1))
    elif FORM == "maximum":
        result = zg.mul(zg.div(powers, zg.expand(total, 1)), zg.expand(top, 1))
    elif FORM == "other axis":
        result = zg.div(powers, zg.expand(zg.sum(powers, axis=0), 0))
    else:
        result = zg.div(powers, zg.expand(total, 1))
    zg.store(zg.add(out, at), result)


@pytest.mark.parametrize(
    ("form", "is_free"),
    [("plain", True), ("log", True), ("clipped", True), ("biased", False), ("maximum", False), ("other axis", False)],
)
def test_a_maximum(rng, form, is_free):
    model = softmax.triton(f64, f64, 4, 8, form)
    check_gradient(model, 1, [rng.standard_normal((4, 8)), np.zeros((4, 8))], [1], [0])
    gradient = differentiate(model, [1], [0])
    assert (comparisons(gradient) == 0) is is_free


def test_a_maximum_of_each_iteration(rng):
    @zg.kernel
    def kernel(x, out, n, BLOCK: zg.constexpr):
        at = zg.arange(0, BLOCK)
        for row in range(n):
            a = zg.load(zg.add(x + row * BLOCK, at))
            powers = zg.exp(zg.sub(a, zg.max(a, axis=0)))
            zg.store(zg.add(out + row * BLOCK, at), zg.div(powers, zg.sum(powers, axis=0)))

    model = kernel.triton(f64, f64, i32, 8)
    check_gradient(model, 1, [rng.standard_normal((3, 8)), np.zeros((3, 8)), 3], [1], [0])
    assert comparisons(differentiate(model, [1], [0])) == 0


def test_a_maximum_that_the_next_iteration_uses(rng):
    """Each maximum matters, but a common shift of all does not."""

    @zg.kernel
    def kernel(x, out, n, BLOCK: zg.constexpr):
        at = zg.arange(0, BLOCK)
        before = 0.0
        total = zg.zeros((BLOCK,), zg.f64)
        for row in range(n):
            a = zg.load(zg.add(x + row * BLOCK, at))
            top = zg.max(a, axis=0)
            total = zg.add(zg.mul(total, zg.exp(before - top)), zg.exp(zg.sub(a, top)))
            before = zg.minimum(top, 3.0)
        zg.store(zg.add(out, at), total)

    model = kernel.triton(f64, f64, i32, 8)
    check_gradient(model, 1, [rng.standard_normal((3, 8)), np.zeros(8), 3], [1], [0])
    assert comparisons(differentiate(model, [1], [0])) > 0


def test_two_loops_share_a_running_maximum(rng):
    """As causal attention does: the second loop starts with what the first has summed up."""

    @zg.kernel
    def kernel(x, out, n, split, BLOCK: zg.constexpr):
        at = zg.arange(0, BLOCK)
        top = zg.full((BLOCK,), -float("inf"), zg.f64)
        total = zg.zeros((BLOCK,), zg.f64)
        for row in range(0, split):
            a = zg.load(zg.add(x + row * BLOCK, at))
            higher = zg.maximum(top, a)
            total = zg.add(zg.mul(total, zg.exp2(zg.sub(top, higher))), zg.exp2(zg.sub(a, higher)))
            top = higher
        for row in range(split, n):
            a = zg.load(zg.add(x + row * BLOCK, at))
            higher = zg.maximum(zg.mul(a, 3.0), top)
            total = zg.add(zg.mul(total, zg.exp2(zg.sub(top, higher))), zg.exp2(zg.sub(zg.mul(a, 3.0), higher)))
            top = higher
        zg.store(zg.add(out, at), zg.add(top, zg.log2(total)))

    model = kernel.triton(f64, f64, i32, i32, 8)
    for split in (0, 2, 5):
        check_gradient(model, 1, [rng.standard_normal((5, 8)), np.zeros(8), 5, split], [1], [0])
    gradient = differentiate(model, [1], [0])
    assert depth(gradient) == 1 and comparisons(gradient) == 0


def test_a_running_maximum_in_a_loop(rng):
    @zg.kernel
    def kernel(x, out, rows, columns):
        for row in range(rows):
            top = -float("inf")
            total = 0.0
            for column in range(columns):
                a = zg.load(x + row * columns + column)
                higher = zg.maximum(top, a)
                total = total * zg.exp(top - higher) + zg.exp(a - higher)
                top = higher
            zg.store(out + row, top + zg.log(total))

    model = kernel.triton(f64, f64, i32, i32)
    check_gradient(model, 1, [rng.standard_normal((3, 5)), np.zeros(3), 3, 5], [1], [0])
    assert depth(differentiate(model, [1], [0])) == 2


def test_a_loop_that_stores_keeps_its_maximum(rng):
    @zg.kernel
    def kernel(x, out, n):
        top = -float("inf")
        total = 0.0
        for i in range(n):
            a = zg.load(x + i)
            higher = zg.maximum(top, a)
            total = total * zg.exp(top - higher) + zg.exp(a - higher)
            top = higher
            zg.store(out + i, total)

    model = kernel.triton(f64, f64, i32)
    check_gradient(model, 1, [rng.standard_normal(6), np.zeros(6), 6], [1], [0])


def test_the_gradient_of_attention_is_that_of_flash_attention():
    """The gradient of attention computes five dots for each block, as the one written by hand does."""
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))
    import attention

    blocks = [zg.descriptor((rows, 16), zg.f16) for rows in (32, 16, 16, 32)]
    model = attention.attention_kernel.triton(*blocks, zg.i32, zg.f32, False, 32, 16, 16)
    gradient = differentiate(model, [3], [0, 1, 2])
    assert [sum(isinstance(op, tt.Dot) for op in loop.walk()) for loop in loops(gradient)] == [2, 5]


def softmax_by(lines: str) -> Any:
    """The model of a kernel that stores `y`, computed by these lines from a block and the maxima of its rows."""
    text = f"""
def kernel(x, out, n):
    rows = zg.mul(zg.expand(zg.arange(0, 16), 1), 16)
    at = zg.add(rows, zg.expand(zg.arange(0, 16), 0))
    a = zg.load(zg.add(x, at))
    top = zg.expand(zg.max(a, axis=1), 1)
    e = zg.exp(zg.sub(a, top))
    total = zg.expand(zg.sum(e, axis=1), 1)
    {lines}
    zg.store(zg.add(out, at), y)
"""
    return zg.kernel(source=text).triton(f64, f64, i32)


@pytest.mark.parametrize(
    "lines",
    [
        # Shifts that cancel, and powers of shifts that cancel.
        "y = zg.exp(zg.add(zg.sub(a, top), zg.add(top, a)))",
        "y = zg.mul(zg.mul(e, e), zg.exp(zg.mul(top, 2.0)))",
        "y = zg.mul(e, zg.exp(top))",
        "y = zg.div(zg.exp2(zg.sub(a, top)), zg.exp2(zg.neg(top)))",
        "y = zg.div(zg.div(a, total), zg.exp(top)) * 0.0 if n > 3 else a",
        "y = zg.add(zg.log(total), top)",
        "y = zg.add(zg.log2(zg.exp2(zg.sub(a, top))), top)",
        "y = zg.exp(zg.sub(zg.div(top, 2.0), zg.mul(0.5, top)))",
        # Fused multiplication and addition.
        "y = zg.mul(zg.exp(zg.fma(a, 2.0, zg.neg(top))), zg.exp(top))",
        "y = zg.exp(zg.add(zg.fma(top, -2.0, a), zg.add(top, top)))",
        "y = zg.fma(e, zg.exp(top), a)",
        "y = zg.div(zg.fma(e, 2.0, e), total)",
        # Zero stays zero when it is multiplied, and an infinity stays one when it is shifted.
        "y = zg.div(zg.where(zg.less(a, 0.0), e, 0.0), total)",
        "y = zg.div(zg.where(zg.less(a, 0.0), 0.0, e), total)",
        "y = zg.div(zg.exp(zg.where(zg.less(a, 0.0), zg.sub(a, top), -float('inf'))), total)",
        "y = zg.div(zg.add(e, 0.0), total)",
        "y = zg.div(zg.add(0.0, e), total)",
        "y = zg.mul(zg.exp(zg.add(1.0, zg.sub(a, top))), zg.exp(top))",
        "y = zg.mul(zg.exp(zg.sub(1.0, top)), zg.exp(top))",
        # Other shapes.
        "y = zg.div(zg.trans(zg.trans(e)), total)",
        "y = zg.div(e, zg.reshape(zg.sum(e, axis=1), (16, 1)))",
        "y = zg.mul(e, zg.exp(zg.reshape(zg.reshape(top, (1, 16)), (16, 1))))",
        "y = zg.div(zg.cast(zg.cast(e, zg.f32), zg.f64), total)",
        "y = zg.cast(zg.div(zg.dot(zg.cast(e, zg.f32), zg.cast(a, zg.f32)), zg.cast(total, zg.f32)), zg.f64)",
        # Control flow.
        "y = zg.div(e if n > 0 else zg.mul(e, 2.0), total)",
        "s = e\n    for i in range(n):\n        s = zg.add(s, e)\n    y = zg.div(s, total)",
    ],
)
def test_results_that_do_not_depend_on_the_maximum(lines):
    assert comparisons(differentiate(softmax_by(lines), [1], [0])) == 0


@pytest.mark.parametrize(
    "lines",
    [
        "y = zg.add(e, zg.mul(top, 0.0))",
        "y = zg.add(e, 1.0)",
        "y = zg.add(1.0, e)",
        "y = zg.div(zg.add(1.0, e), total)",
        "y = zg.div(zg.add(e, 1.0), total)",
        "y = zg.div(zg.sub(a, e), total)",
        "y = zg.div(zg.add(e, top), total)",
        "y = zg.sub(1.0, e)",
        "y = zg.add(a, e)",
        "y = zg.add(e, top)",
        "y = zg.add(top, e)",
        "y = zg.mul(top, e)",
        "y = zg.exp(zg.sub(1.0, zg.sub(a, top)))",
        "y = zg.add(zg.sub(a, top), zg.sub(a, top))",
        "y = zg.sub(zg.sub(a, top), zg.add(top, a))",
        "y = zg.mul(e, zg.exp(zg.neg(top)))",
        "y = zg.div(e, zg.exp(top))",
        "y = zg.mul(zg.exp2(zg.sub(a, top)), zg.exp(top))",
        "y = zg.mul(e, top)",
        "y = zg.mul(zg.sub(a, top), zg.add(a, top))",
        "y = zg.div(zg.sub(a, top), total)",
        "y = zg.div(a, total)",
        "y = zg.div(a, zg.add(top, a))",
        "y = zg.add(zg.mul(a, zg.add(a, top)), 1.0)",
        "y = zg.add(zg.log2(total), top)",
        "y = zg.add(zg.log(zg.sub(a, top)), top)",
        "y = zg.exp(zg.div(e, 2.0))",
        "y = zg.fma(e, e, zg.mul(e, e))",
        "y = zg.fma(e, zg.exp(top), e)",
        "y = zg.fma(e, 1.0, 1.0)",
        "y = zg.fma(a, 1.0, top)",
        "y = zg.div(zg.where(zg.less(a, 0.0), e, 1.0), total)",
        "y = zg.where(zg.less(e, 0.5), a, 0.0)",
        "y = zg.div(zg.exp(zg.where(zg.less(a, 0.0), zg.sub(a, top), 0.0)), total)",
        "y = zg.div(zg.maximum(e, 0.5), total)",
        "y = zg.div(e, zg.expand(zg.sum(zg.trans(e), axis=1), 1))",
        "y = zg.mul(e, zg.exp(zg.reshape(top, (1, 16))))",
        "y = zg.div(e, zg.reshape(zg.sum(e, axis=1), (1, 16)))",
        "y = zg.add(zg.expand(zg.sum(zg.sub(a, top), axis=1), 1), top)",
        "y = zg.add(zg.expand(zg.max(zg.sub(a, top), axis=0), 1), top)",
        "y = zg.div(zg.sin(e), total)",
        "y = zg.cast(zg.div(zg.dot(zg.cast(a, zg.f32), zg.cast(e, zg.f32)), zg.cast(total, zg.f32)), zg.f64)",
        "y = zg.div(e if n > 0 else a, total)",
        "y = a if zg.sum(zg.sum(e, axis=0), axis=0) > 3.0 else zg.mul(a, 2.0)",
        "s = e\n    for i in range(n):\n        s = zg.add(s, 1.0)\n    y = zg.div(s, total)",
        "s = a\n    for i in range(n):\n        s = zg.add(s, e)\n    y = zg.div(s, total)",
        "zg.atomic_add(zg.add(out, at), e)\n    y = zg.div(e, total)",
    ],
)
def test_results_that_depend_on_the_maximum(lines):
    assert comparisons(differentiate(softmax_by(lines), [1], [0])) > 0


def test_maxima_beside_a_running_one(rng):
    """Maxima in the loop and after it do not matter by themselves."""

    @zg.kernel
    def kernel(x, w, out, n, BLOCK: zg.constexpr):
        at = zg.arange(0, BLOCK)
        top = -float("inf")
        total = 0.0
        for row in range(n):
            a = zg.load(zg.add(x + row * BLOCK, at))
            b = zg.load(zg.add(w + row * BLOCK, at))
            weights = zg.exp(zg.sub(b, zg.max(b, axis=0)))
            weights = zg.div(weights, zg.sum(weights, axis=0))
            higher = zg.maximum(top, zg.max(a, axis=0))
            total = total * zg.exp(top - higher) + zg.sum(zg.mul(weights, zg.exp(zg.sub(a, higher))), axis=0)
            top = higher
        c = zg.load(zg.add(w, at))
        powers = zg.exp(zg.sub(c, zg.max(c, axis=0)))
        zg.store(zg.add(out, at), zg.mul(zg.div(powers, zg.sum(powers, axis=0)), top + zg.log(total)))

    model = kernel.triton(f64, f64, f64, i32, 8)
    check_gradient(model, 1, [rng.standard_normal((3, 8)), rng.standard_normal((3, 8)), np.zeros(8), 3], [2], [0, 1])
    gradient = differentiate(model, [2], [0, 1])
    assert comparisons(gradient) == 0 and depth(gradient) == 1


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ("y = zg.div(zg.maximum(zg.mul(e, 2.0), e), total)", 2),
        ("y = zg.div(zg.maximum(zg.mul(e, 2.0), 0.5), total)", 3),
        ("y = zg.exp(zg.add(zg.expand(zg.max(zg.sub(a, top), axis=1), 1), top))", 1),
        ("y = zg.exp(zg.add(zg.expand(zg.max(zg.sub(a, zg.mul(top, 2.0)), axis=1), 1), top))", 2),
    ],
)
def test_maxima_of_values_that_depend_on_another_one(lines, count):
    """The outer maximum is compared in any case, the one of the rows where the result depends on it."""
    assert comparisons(differentiate(softmax_by(lines), [1], [0])) == count
