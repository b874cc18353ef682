"""Functions of scalars that are mapped over the elements of tensors."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg


@zg.function
def compare(x, y):
    if x < y:
        return -1
    elif x == y:
        return 0
    else:
        return 1


@zg.function
def collatz(n, limit):
    steps = 0
    while (n > 1) & (steps < limit):
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps, zg.cast(n, zg.f32)


@zg.function
def divided(a0, a1, b0, b1):
    return a0 // b0, a1 // b1, a0 % b0, a1 % b1


@zg.kernel
def mapped(x, y, sign, steps, last, quotient, rest, N: zg.constexpr):
    at = zg.arange(0, N)
    a, b = zg.load(zg.add(x, at)), zg.load(zg.add(y, at))
    zg.store(zg.add(sign, at), zg.map_elementwise(compare, a, b))
    count, end = zg.map_elementwise(collatz, zg.add(a, 1), 40)
    zg.store(zg.add(steps, at), count)
    zg.store(zg.add(last, at), end)
    pair = zg.map_elementwise(divided, a, b, pack=2)
    zg.store(zg.add(quotient, at), pair[0])
    zg.store(zg.add(rest, at), pair[1])


def by_python(n: int, limit: int) -> tuple[int, int]:
    steps = 0
    while n > 1 and steps < limit:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps, n


@pytest.mark.parametrize("size", [1, 64, 512])
@pytest.mark.parametrize("simulated", [False, True])
def test_mapped_functions(size: int, simulated: bool):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 60, size).astype(np.int32), rng.integers(1, 60, size).astype(np.int32)
    outputs = [np.zeros(size, dtype) for dtype in (np.int32, np.int32, np.float32, np.int32, np.int32)]
    i32, f32 = zg.ptr(zg.i32), zg.ptr(zg.f32)
    types = (i32, i32, i32, i32, f32, i32, i32, size)
    if simulated:
        mapped.compile(*types, target="sm_90a").simulate[(1,)](x, y, *outputs)
    else:
        model = mapped.triton(*types)
        zg.verify(model)
        assert zg.same_model(zg.parse(str(model)), model)
        mapped[(1,)](x, y, *outputs, size)
    expected = [by_python(int(n) + 1, 40) for n in x]
    np.testing.assert_array_equal(outputs[0], np.sign(x - y))
    np.testing.assert_array_equal(outputs[1], [steps for steps, _ in expected])
    np.testing.assert_array_equal(outputs[2], [last for _, last in expected])
    np.testing.assert_array_equal(outputs[3], x // y)
    np.testing.assert_array_equal(outputs[4], x % y)


def test_operands_are_broadcast():
    @zg.function
    def weighted(a, b, c):
        return a * 10 + b + c

    @zg.kernel
    def kernel(out):
        rows, columns = zg.expand(zg.arange(0, 4), 1), zg.expand(zg.arange(0, 8), 0)
        at = zg.add(zg.mul(rows, 8), columns)
        zg.store(zg.add(out, at), zg.map_elementwise(weighted, rows, columns, 0.5))

    out = np.zeros((4, 8), np.float32)
    kernel[(1,)](out)
    np.testing.assert_array_equal(out, np.arange(4)[:, None] * 10 + np.arange(8) + 0.5)


def test_undefined_elements_are_reported():
    @zg.function
    def chosen(a):
        return 1.0 if a > 0 else 2.0

    @zg.kernel
    def kernel(x, out):
        at = zg.arange(0, 4)
        zg.store(zg.add(out, at), zg.map_elementwise(chosen, zg.load(zg.add(x, at), zg.less(at, 2))))

    with pytest.raises(zg.KernelRuntimeError, match="undefined"):
        kernel[(1,)](np.ones(4, np.float32), np.zeros(4, np.float32), strict=True)


def test_a_model_runs_whose_mapped_function_is_unused():
    """The function is left without a call, and is no kernel."""

    @zg.function
    def doubled(a):
        return a + a

    @zg.kernel
    def kernel(x):
        unused = zg.map_elementwise(doubled, zg.load(zg.add(x, zg.arange(0, 4))))
        zg.store(x, 3.0)

    x = np.zeros(4, np.float32)
    zg.run(kernel.triton(zg.ptr(zg.f32)), 1, x)
    assert x.tolist() == [3, 0, 0, 0]
