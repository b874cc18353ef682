"""Lists written in a kernel are tuples: as shapes and offsets, in targets, loops, branches and results."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg


@zg.kernel
def with_lists(x_desc, out_desc, a_ptr, b_ptr, n, SHAPE: zg.constexpr):
    x = x_desc.load([n, 16])
    [low, high], step = [[1, 3], 2]
    total = zg.zeros([16, SHAPE[1]], zg.f32)
    for scale, pointer in [(low, a_ptr), (high, b_ptr)]:
        zg.store(pointer, step * scale)
        total = zg.add(total, zg.mul(x, scale))
    if n > 0:
        pair = [n, low]
    else:
        pair = [low, n]
    transposed = zg.add(zg.trans(total, [1, 0]), pair[1])
    if SHAPE[0] in [16, 32]:
        out_desc.store([0, 0], zg.reshape(zg.ravel(transposed), [32, 16]))


@zg.kernel
def with_tuples(x_desc, out_desc, a_ptr, b_ptr, n, SHAPE: zg.constexpr):
    x = x_desc.load((n, 16))
    (low, high), step = ((1, 3), 2)
    total = zg.zeros((16, SHAPE[1]), zg.f32)
    for scale, pointer in ((low, a_ptr), (high, b_ptr)):
        zg.store(pointer, step * scale)
        total = zg.add(total, zg.mul(x, scale))
    if n > 0:
        pair = (n, low)
    else:
        pair = (low, n)
    transposed = zg.add(zg.trans(total, (1, 0)), pair[1])
    if SHAPE[0] in (16, 32):
        out_desc.store((0, 0), zg.reshape(zg.ravel(transposed), (32, 16)))


@zg.function
def both(x):
    return [x, x + 1]


@pytest.mark.parametrize("shape", [[16, 32], (16, 32)])
def test_lists_compute_what_tuples_do(shape):
    x = np.random.default_rng(0).standard_normal((64, 48)).astype(np.float32)
    results: list[tuple[np.ndarray, ...]] = []
    for kernel in (with_lists, with_tuples):
        out, a, b = np.zeros((32, 16), np.float32), np.zeros(1, np.int32), np.zeros(1, np.int32)
        descriptor = zg.TensorDescriptor(x, [16, 32]), zg.TensorDescriptor(out, [32, 16])
        kernel[(1,)](*descriptor, a, b, 5, SHAPE=shape)
        np.testing.assert_allclose(out, 4 * x[5:21, 16:48].T + 1, rtol=1e-6)
        assert (a[0], b[0]) == (2, 6)
        results.append((out, a, b))
    np.testing.assert_array_equal(results[0][0], results[1][0])


def test_models_are_the_same():
    block, pointer = zg.descriptor((16, 32), zg.f32), zg.ptr(zg.i32)
    types = (block, zg.descriptor((32, 16), zg.f32), pointer, pointer, zg.i32, (16, 32))
    lists, tuples = (str(kernel.triton(*types)) for kernel in (with_lists, with_tuples))
    assert lists == tuples.replace("with_tuples", "with_lists")


def test_a_device_descriptor_made_with_lists(kernel, launch):
    descriptor = kernel(
        """
        @zg.kernel
        def described(p, rows, columns):
            made = zg.make_tensor_descriptor(p, [rows, columns], [columns, 1], [2, 16])
            made.store([2, 0], zg.full([2, 16], 7.0, zg.f32))
        """
    )
    x = np.zeros((5, 16), np.float32)
    launch(descriptor, 1, [x, 5, 16])
    assert (x[2:4] == 7).all() and x.sum() == 2 * 16 * 7


def test_a_list_as_a_result(kernel, launch):
    results = kernel(
        """
        @zg.kernel
        def results(p):
            first, second = both(zg.load(p))
            zg.store(p, first * second)
        """,
        both=both,
    )
    x = np.full(1, 6, np.int32)
    launch(results, 1, [x])
    assert x[0] == 42
    assert zg.execute(both, 6) == (6, 7)


def test_traced_calls_take_lists():
    def traced(descriptor):
        descriptor.store([0, 0], zg.trans(zg.reshape(descriptor.load([0, 16]), [16, 16]), [1, 0]))

    def with_tuples(descriptor):
        descriptor.store((0, 0), zg.trans(zg.reshape(descriptor.load((0, 16)), (16, 16)), (1, 0)))

    block = zg.descriptor((16, 16), zg.f32)
    assert str(zg.trace(traced, block)).replace("traced", "with_tuples") == str(zg.trace(with_tuples, block))


def test_lists_do_not_change(kernel):
    changed = kernel(
        """
        @zg.kernel
        def changed(p):
            items = [1, 2]
            items.append(3)
        """
    )
    with pytest.raises(zg.KernelTypeError, match=r"the tuple \(1, 2\) has no method 'append'") as error_info:
        changed.triton(zg.ptr(zg.f32))
    assert error_info.value.hint == "make another one: tuples and lists in a kernel do not change"


def test_a_list_from_outside_may_change(kernel):
    outside = kernel(
        """
        @zg.kernel
        def outside(p):
            zg.store(p, SHAPE[0])
        """,
        SHAPE=[1, 2],
    )
    with pytest.raises(zg.KernelSyntaxError, match="'SHAPE' is a list, which may change after the kernel is compiled"):
        _ = outside.model
