"""Functions below decorators that wrap them: the source, the signature and the globals are the wrapped function's."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl


def logged(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*arguments: Any, **keywords: Any) -> Any:
        return function(*arguments, **keywords)

    return wrapper


@triton.jit
@logged
def of_triton(out, n: tl.int64, BLOCK: tl.constexpr = 4):
    tl.store(out, n + BLOCK + helper_of_triton(n))


@triton.jit
@logged
@functools.cache
@logged
def helper_of_triton(n):
    return n * 2


@zg.function
@logged
def helper(n, scale: zg.constexpr = 2):
    return n * scale


@zg.kernel
@functools.lru_cache
@logged
@logged
def explicit(out, n: zg.i64, BLOCK: zg.constexpr = 4):
    zg.store(out, n + BLOCK + helper(n))


@triton.autotune([triton.Config({"BLOCK": 4})], key=[])
@triton.jit
@logged
def tuned(out, n: tl.int64, BLOCK: tl.constexpr):
    tl.store(out, n + BLOCK + helper_of_triton(n))


@pytest.mark.parametrize("kernel", [of_triton, explicit, tuned])
def test_the_wrapped_function_is_read(kernel: Any):
    for mode in ({}, {}, {"interpret": True}):
        out = np.zeros(1, np.int64)
        kernel[(1,)](out, 1 << 40, **mode)
        assert out[0] == 3 * (1 << 40) + 4


def test_closures_are_those_of_the_wrapped_function():
    def kernel_of(number: int) -> Any:
        @zg.kernel
        @logged
        def inner(out):
            zg.store(out, number)

        return inner

    for number in (3, 5):
        out = np.zeros(1, np.int32)
        kernel_of(number)[(1,)](out)
        assert out[0] == number


def test_a_kernel_can_be_made_of_a_wrapped_helper():
    def body(out):
        zg.store(out, 7)

    kernel, out = zg.kernel(logged(zg.function(body))), np.zeros(1, np.int32)
    kernel[(1,)](out)
    assert out[0] == 7 and kernel.name == "body"


def test_errors_point_into_the_wrapped_function():
    @zg.kernel
    @logged
    def wrong(out):
        zg.store(out, unknown)  # noqa: F821

    with pytest.raises(zg.KernelNameError, match="'unknown' is not defined") as error_info:
        wrong[(1,)](np.zeros(1))
    assert error_info.value.location is not None and "zg.store(out, unknown)" in str(error_info.value)


def test_wrappers_in_a_circle_are_an_error():
    def circle(out):
        zg.store(out, 1)

    circle.__wrapped__ = circle  # pyright: ignore
    with pytest.raises(zg.ZigguratError):
        zg.kernel(circle)
