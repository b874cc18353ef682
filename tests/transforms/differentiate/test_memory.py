"""Gradients of loads, stores, atomics and descriptors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from finite_differences import check_gradient, in_f64

import ziggurat as zg
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.transforms.differentiate import differentiate

f64, i32 = zg.ptr(zg.f64), zg.i32


def ops(model: Any, *classes: type) -> list[Any]:
    return [op for op in model.walk() if isinstance(op, classes)]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_masked_loads_with_another_value(rng):
    @zg.kernel
    def kernel(x, y, out, n, BLOCK: zg.constexpr):
        at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
        fallback = zg.load(zg.add(y, at))
        value = zg.load(zg.add(x, at), zg.less(at, n), other=zg.mul(fallback, 2.0))
        zg.store(zg.add(out, at), zg.mul(value, value))

    arguments = [rng.standard_normal(13), rng.standard_normal(16), np.zeros(16), 13]
    check_gradient(kernel.triton(f64, f64, f64, i32, 8), 2, arguments, [2], [0, 1])


def test_elements_that_a_mask_leaves_out_do_not_count(rng):
    """In strict mode an undefined element is an error, and 0 · NaN would be NaN."""

    @zg.kernel
    def kernel(x, scale, out, n, BLOCK: zg.constexpr):
        at = zg.arange(0, BLOCK)
        mask = zg.less(at, n)
        product = zg.mul(zg.load(zg.add(x, at), mask), zg.load(scale))
        zg.store(zg.add(out, at), zg.where(mask, product, 0.0), mask)

    arguments = [rng.standard_normal(5), rng.standard_normal(1), np.zeros(5), 5]
    check_gradient(kernel.triton(f64, f64, f64, i32, 8), 1, arguments, [2], [0, 1])


def test_several_lanes_and_programs_read_one_element(rng):
    @zg.kernel
    def kernel(x, out, BLOCK: zg.constexpr):
        pid = zg.program_id(0)
        at = zg.arange(0, BLOCK)
        pairs = zg.load(zg.add(x, zg.floordiv(at, 2)))
        one = zg.load(x + pid)
        same = zg.load(zg.broadcast(zg.expand(zg.add(x, at), 1), (BLOCK, 4)))
        value = zg.add(zg.mul(pairs, one), zg.sum(zg.mul(same, same), axis=1))
        zg.store(zg.add(out, zg.add(pid * BLOCK, at)), value)

    check_gradient(kernel.triton(f64, f64, 8), 3, [rng.standard_normal(8), np.zeros(24)], [1], [0])


def test_lanes_that_surely_read_one_element_are_added_up_before():
    @zg.kernel
    def kernel(x, out, BLOCK: zg.constexpr):
        at = zg.arange(0, BLOCK)
        spread = zg.load(zg.broadcast(zg.expand(zg.add(x, zg.arange(0, 4)), 1), (4, BLOCK)))
        zg.store(zg.add(out, at), zg.sum(spread, axis=0))

    (total,) = ops(differentiate(kernel.triton(f64, f64, 8), [1], [0]), tt.AtomicRMW)
    assert str(total.value.type) in ("tensor<x4, x1, f64>", "tensor<x4, f64>")


def test_an_atomic_addition_is_an_output(rng):
    @zg.kernel
    def kernel(x, out, n, BLOCK: zg.constexpr):
        at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
        mask = zg.less(at, n)
        value = zg.load(zg.add(x, at), mask)
        zg.atomic_add(zg.add(out, zg.mod(at, 3)), zg.mul(value, value), mask)

    check_gradient(kernel.triton(f64, f64, i32, 8), 2, [rng.standard_normal(13), np.zeros(3), 13], [1], [0])


def test_a_store_that_a_later_one_overwrites_has_no_part(rng):
    @zg.kernel
    def kernel(x, out, BLOCK: zg.constexpr):
        at = zg.arange(0, BLOCK)
        value = zg.load(zg.add(x, at))
        zg.store(zg.add(out, at), zg.mul(value, 100.0))
        zg.store(zg.add(out, at), zg.mul(value, value))

    check_gradient(kernel.triton(f64, f64, 8), 1, [rng.standard_normal(8), np.zeros(8)], [1], [0])


def test_a_store_that_later_ones_overwrite_in_part(rng):
    @zg.kernel
    def kernel(x, out, n, BLOCK: zg.constexpr):
        at = zg.arange(0, BLOCK)
        value = zg.load(zg.add(x, at))
        zg.store(zg.add(out, at), zg.mul(value, 100.0), zg.less(at, 7))
        zg.store(zg.add(out, at), zg.mul(value, value), zg.less(at, n))
        zg.store(zg.add(out, at), zg.exp(value), zg.less(at, 2))

    check_gradient(kernel.triton(f64, f64, i32, 8), 1, [rng.standard_normal(8), np.zeros(8), 5], [1], [0])


def test_several_outputs(rng):
    @zg.kernel
    def kernel(x, y, total, BLOCK: zg.constexpr):
        at = zg.arange(0, BLOCK)
        value = zg.exp(zg.load(zg.add(x, at)))
        zg.store(zg.add(y, at), value)
        zg.store(total, zg.sum(value, axis=0))

    model = kernel.triton(f64, f64, f64, 8)
    x = rng.standard_normal(8)
    (both,) = check_gradient(model, 1, [x, np.zeros(8), np.zeros(1)], [1, 2], [0])
    (unit,) = check_gradient(model, 1, [x, np.zeros(8), np.zeros(1)], [2], [0])
    assert not np.allclose(both, unit)


def test_what_is_stored_elsewhere_does_not_count():
    @zg.kernel
    def kernel(x, y, copies, BLOCK: zg.constexpr):
        at = zg.arange(0, BLOCK)
        value = zg.load(zg.add(x, at))
        zg.store(zg.add(copies, at), zg.exp(value))
        zg.store(zg.add(y, at), value)

    gradient = differentiate(kernel.triton(f64, f64, f64, 8), [1], [0])
    assert len(ops(gradient, tt.Store, tt.AtomicRMW)) == len(ops(gradient, tt.Load)) == 1


@zg.kernel
def by_descriptors(x_ptr, w_desc, out_desc, rows, columns):
    x_desc = zg.make_tensor_descriptor(x_ptr, [rows, columns], [columns, 1], [4, 8])
    row = zg.program_id(0) * 4
    weights = w_desc.load([0, 0])
    for column in range(0, columns, 8):
        x = x_desc.load([row, column])
        out_desc.store([row, column], zg.mul(zg.mul(x, x), weights))


def test_descriptors(rng):
    block = zg.descriptor((4, 8), zg.f64)
    model = by_descriptors.triton(f64, block, block, i32, i32)

    def given(number: int, array: np.ndarray) -> Any:
        return array if number == 0 else zg.TensorDescriptor(array, (4, 8))

    arguments = [rng.standard_normal((6, 14)), rng.standard_normal((2, 6)), np.zeros((6, 14)), 6, 14]
    check_gradient(model, 2, arguments, [2], [0, 1], make_arguments=given)
    gradient = differentiate(model, [2], [0, 1])
    assert {op.kind for op in ops(gradient, tt.DescriptorReduce)} == {tt.AtomicKind.FADD}
    # The gradient has a gradient: it is linear in d_out, which it loads through a descriptor.
    again = differentiate(gradient, [1, 3], [5])
    zg.verify(again)


@pytest.mark.parametrize("dtype", [zg.f16, zg.bf16, zg.f32])
def test_narrow_floats_are_computed_in_f32(rng, dtype):
    @zg.kernel
    def kernel(x, w, out, BLOCK: zg.constexpr):
        at = zg.arange(0, BLOCK)
        a, b = zg.load(zg.add(x, at)), zg.load(zg.add(w, at))
        zg.store(zg.add(out, at), zg.mul(zg.mul(a, b), a))

    pointer = zg.ptr(dtype)
    model = kernel.triton(pointer, pointer, pointer, 64)
    gradient = differentiate(model, [2], [0, 1])
    kinds = {str(op.type.element) for op in gradient.walk() for op in [op.result] if "tensor" in str(op.type)}
    assert "f32" in kinds
    x, w, dout = (rng.standard_normal(64).astype(dtype.dtype) for _ in range(3))
    dx, dw = np.zeros_like(x), np.zeros_like(w)
    zg.run(gradient, 1, x, dx, w, dw, np.zeros_like(x), dout, strict=True)
    wide = [item.astype(np.float64) for item in (x, w, dout)]
    epsilon = float(dtype.format.epsilon)
    for actual, true in ((dx, 2 * wide[0] * wide[1] * wide[2]), (dw, wide[0] ** 2 * wide[2])):
        # The products of the forward kernel are rounded to the dtype.
        np.testing.assert_allclose(actual.astype(np.float64), true, rtol=3 * epsilon, atol=epsilon)


def test_in_place_is_refused():
    @zg.kernel
    def kernel(x, y, out):
        at = zg.arange(0, 4)
        value = zg.load(zg.add(y, at))
        zg.store(zg.add(y, at), zg.mul(value, 2.0))
        zg.store(zg.add(out, at), zg.mul(zg.load(zg.add(x, at)), value))

    with pytest.raises(KernelTypeError, match="parameter 1 must not change while the gradient needs its contents") as e:
        differentiate(kernel.triton(f64, f64, f64), [2], [0])
    assert "zg.load(zg.add(y, at))" in str(e.value)


def test_an_array_that_is_changed_but_not_needed_is_accepted(rng):
    @zg.kernel
    def kernel(x, y, out):
        at = zg.arange(0, 4)
        value = zg.load(zg.add(y, at))
        zg.store(zg.add(y, at), zg.mul(value, 2.0))
        zg.store(zg.add(out, at), zg.add(zg.load(zg.add(x, at)), value))

    differentiate(kernel.triton(f64, f64, f64), [2], [0])


def test_in_f64():
    @zg.kernel
    def kernel(x, out, n):
        at = zg.arange(0, 4)
        total = zg.zeros((4,), zg.f32)
        for i in range(0, n):
            total = zg.add(total, zg.cast(zg.load(zg.add(x, at)), zg.f32))
        zg.store(zg.add(out, at), zg.cast(zg.mul(total, zg.cast(n, zg.f32)), zg.f16))

    text = str(in_f64(kernel.triton(zg.ptr(zg.f16), zg.ptr(zg.f16), i32)))
    assert "f64>" in text and "f16>;" not in text and "f16> =" not in text and " f32" not in text
