"""Operands of dots that are exact in tf32 are not rounded, and those that a loop does not change are rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg


@zg.function
def as_it_is(x: Any) -> Any:
    return zg.cast(x, zg.f32)


@zg.function
def changed_sign(x: Any) -> Any:
    return zg.maximum(zg.neg(zg.cast(x, zg.f32)), 0.5)


@zg.function
def chosen(x: Any) -> Any:
    return zg.where(zg.greater(x, 0.0), zg.cast(x, zg.f32), 1.0)


@zg.function
def inexact(x: Any) -> Any:
    return zg.where(zg.greater(x, 0.0), zg.cast(x, zg.f32), 0.1)


@zg.function
def scaled(x: Any) -> Any:
    return zg.mul(zg.cast(x, zg.f32), 3.0)


@zg.kernel
def product(x, y, z, F: zg.constexpr, N: zg.constexpr):
    rows, columns = zg.expand(zg.arange(0, N), 1), zg.expand(zg.arange(0, N), 0)
    at = zg.add(zg.mul(rows, N), columns)
    a, b = F(zg.load(x + at)), F(zg.load(y + at))
    zg.store(z + at, zg.dot(a, zg.trans(b), zg.zeros((N, N), zg.f32), "tf32"))


@zg.kernel
def repeated(x, y, z, steps, N: zg.constexpr):
    rows, columns = zg.expand(zg.arange(0, N), 1), zg.expand(zg.arange(0, N), 0)
    at = zg.add(zg.mul(rows, N), columns)
    a, total = zg.mul(zg.load(x + at), 3.0), zg.zeros((N, N), zg.f32)
    for step in range(0, steps):
        total = zg.dot(a, zg.cast(zg.load(y + zg.add(at, step)), zg.f32), total, "tf32")
    zg.store(z + at, total)


@pytest.mark.parametrize("element", [zg.f16, zg.bf16, zg.i8], ids=str)
@pytest.mark.parametrize("function", [as_it_is, changed_sign, chosen, inexact, scaled], ids=lambda f: f.name)
def test_exact_operands_are_not_rounded(function: Any, element: Any) -> None:
    pointer = zg.ptr(element)
    compiled = product.compile(pointer, pointer, zg.ptr(zg.f32), function, 32, target="sm_80", num_warps=4)
    assert ("cvt.rna.tf32" in compiled.ptx) is (function in (inexact, scaled))
    x, y = (np.random.default_rng(seed).integers(-100, 100, (32, 32)).astype(element.dtype) for seed in (1, 2))
    z, true = np.zeros((32, 32), np.float32), np.zeros((32, 32), np.float32)
    compiled.simulate[(1,)](x, y, z)
    product[(1,)](x, y, true, function, 32)
    np.testing.assert_allclose(z, true, rtol=2e-3, atol=1e-3 * np.abs(true).max())


def test_an_operand_that_a_loop_does_not_change_is_rounded_before_it() -> None:
    compiled = repeated.compile(zg.ptr(zg.f32), zg.ptr(zg.f16), zg.ptr(zg.f32), zg.i32, 32, target="sm_80", num_warps=4)
    before, _, after = str(compiled.stages["gpu"]).partition("scf.for")
    assert before.count("gpu.round_tf32") == 1 and "gpu.round_tf32" not in after
