"""A loop is visited until its types are settled; its errors are reported once, also those of a variable with itself."""

from __future__ import annotations

from typing import Any

import pytest

import ziggurat as zg

I32 = zg.ptr(zg.i32)


@zg.kernel
def own_shape(out, n):
    x = zg.arange(0, 4)
    for _ in range(n):
        x = zg.expand(x, 0)
    zg.store(zg.add(out, zg.arange(0, 4)), x)


@zg.kernel
def own_operand(out, n):
    x = zg.arange(0, 4)
    while n > 0:
        x = zg.add(x, zg.arange(0, 8))
        n -= 1
    zg.store(zg.add(out, zg.arange(0, 4)), x)


@zg.kernel
def nested(out, n):
    x = zg.arange(0, 4)
    y = 0
    for i in range(n):
        for j in range(i):
            x = zg.dot(x, x)
            y += j
    zg.store(zg.add(out, zg.arange(0, 4)), zg.add(x, y))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (own_shape, "'x' must keep its type in the loop; got tensor<x4, i32> before it and tensor<x1, x4, i32>"),
        (own_operand, r"the shapes \[4\] and \[8\] do not match"),
        (nested, "zg.dot"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_an_error_about_its_own_variable_is_reported_once(kernel: Any, message: str):
    with pytest.raises((zg.KernelTypeError, zg.KernelValueError), match=message) as error_info:
        kernel.triton(I32, zg.i32)
    assert str(error_info.value).count("zg.add(out") == 0


@zg.kernel
def two_errors(out, n):
    x = zg.arange(0, 4)
    y = 1
    for i in range(n):
        x = zg.expand(x, 0)
        y = zg.add(y, zg.arange(0, 3))
    zg.store(out, y)


def test_all_errors_of_a_loop_are_reported():
    with pytest.raises(zg.KernelErrors) as error_info:
        two_errors.triton(I32, zg.i32)
    first, second = error_info.value.errors
    assert "'x' must keep its type" in str(first)
    assert "power of two" in str(second)
