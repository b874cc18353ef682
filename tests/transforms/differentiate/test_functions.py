"""Gradients of the calls that the library computes, and of calls that it builds of others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from finite_differences import check_gradient

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.transforms.differentiate import differentiate
from ziggurat.transforms.differentiate.functions import DERIVATIVES

f64 = zg.ptr(zg.f64)


@zg.kernel
def apply(x, out, function: zg.constexpr):
    at = zg.arange(0, 8)
    a = zg.load(zg.add(x, at))
    zg.store(zg.add(out, at), zg.mul(function(zg.mul(a, 0.5)), a))


@zg.function
def asin(x):
    return zg.asin(x)


@zg.function
def acos(x):
    return zg.acos(x)


@zg.function
def atan(x):
    return zg.atan(x)


@zg.function
def atan2(x):
    return zg.add(zg.atan2(x, zg.add(x, 0.5)), zg.atan2(zg.mul(x, x), zg.add(zg.mul(x, 0.0), 2.0)))


@zg.function
def pow(x):
    powers = zg.add(zg.pow(x, 3), zg.pow(zg.add(zg.abs(x), 0.1), x))
    return zg.add(powers, zg.pow(2.0, x))


@zg.function
def expm1(x):
    return zg.expm1(x)


@zg.function
def log1p(x):
    return zg.log1p(x)


@zg.function
def sinh(x):
    return zg.sinh(x)


@zg.function
def cosh(x):
    return zg.cosh(x)


@zg.function
def round(x):
    return zg.round(zg.mul(x, 3.0))


@zg.function
def rint(x):
    return zg.rint(zg.mul(x, 3.0))


@zg.function
def tan(x):
    return zg.tan(x)


@zg.function
def sigmoid(x):
    return zg.sigmoid(x)


@zg.function
def softmax(x):
    return zg.softmax(x)


@zg.function
def trunc(x):
    return zg.trunc(zg.mul(x, 3.0))


@zg.function
def clamp(x):
    return zg.clamp(x, -0.3, 0.4)


FUNCTIONS = [
    asin, acos, atan, atan2, pow, expm1, log1p, sinh, cosh, round, rint, tan, sigmoid, softmax, trunc, clamp,
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_functions(function: Any):
    x = np.random.default_rng(0).uniform(-1.6, 1.6, 8)
    # A difference of results that are rounded to f64 is not exact to the last digits.
    check_gradient(apply.triton(f64, f64, function), 1, [x, np.zeros(8)], [1], [0], tolerance=1e-5)


def test_every_derivative_is_tried():
    assert set(DERIVATIVES) <= {function.name for function in FUNCTIONS}


def test_arguments_that_are_broadcast():
    @zg.kernel
    def kernel(x, y, out):
        a = zg.load(zg.add(x, zg.arange(0, 4)))
        b = zg.load(y)
        rows, columns = zg.expand(a, 1), zg.expand(zg.mul(a, 2.0), 0)
        total = zg.add(zg.atan2(rows, columns), zg.atan2(rows, b))
        at = zg.add(zg.mul(zg.expand(zg.arange(0, 4), 1), 4), zg.expand(zg.arange(0, 4), 0))
        zg.store(zg.add(out, at), total)

    rng = np.random.default_rng(0)
    arguments = [rng.uniform(0.5, 2, 4), rng.uniform(0.5, 2, 1), np.zeros((4, 4))]
    check_gradient(kernel.triton(f64, f64, f64), 1, arguments, [2], [0, 1])


def test_a_function_of_a_user_with_the_name_of_one_is_inlined():
    @zg.function
    def expm1(x):
        return zg.mul(x, x)

    x = np.random.default_rng(0).uniform(0.5, 2, 8)
    check_gradient(apply.triton(f64, f64, expm1), 1, [x, np.zeros(8)], [1], [0])
    gradient = differentiate(apply.triton(f64, f64, expm1), [1], [0])
    assert not any(isinstance(op, tt.Call) for op in gradient.walk())


def test_a_function_that_must_not_be_inlined_is():
    @zg.kernel
    def kernel(x, out):
        at = zg.arange(0, 8)
        zg.store(zg.add(out, at), asin(zg.load(zg.add(x, at))))

    text = str(kernel.triton(f64, f64)).replace('tt.func @"asin_', 'tt.func @noinline=true @"asin_', 1)
    check_gradient(zg.parse(text), 1, [np.random.default_rng(0).uniform(-0.9, 0.9, 8), np.zeros(8)], [1], [0])


def test_the_bits_of_numbers_have_no_gradient():
    @zg.kernel
    def kernel(x, out):
        at = zg.arange(0, 8)
        sorted = zg.sort(zg.load(zg.add(x, at)))
        zg.store(zg.add(out, at), sorted)

    with pytest.raises(KernelTypeError, match=r"^zg\.sort has no gradient: it reads the bits of a number") as error:
        differentiate(kernel.triton(f64, f64), [1], [0])
    assert "zg.sort(zg.load(zg.add(x, at)))" in str(error.value)


def test_a_call_of_the_library_without_a_gradient_is_named_in_the_words_of_the_kernel():
    @zg.function
    def ordered(values):
        return zg.topk(values, 4)

    @zg.kernel
    def kernel(x, out):
        zg.store(zg.add(out, zg.arange(0, 4)), ordered(zg.load(zg.add(x, zg.arange(0, 8)))))

    @triton.jit
    def in_triton(x, out):
        at = tl.arange(0, 8)
        tl.store(out + at, tl.load(x + at).sort())

    source = zg.triton_c("__global__ void f(double *x, double *o) { int i[8] = 0...8; *(o + i) = sort(*(x + i)); }")
    for model, name in ((kernel.triton(f64, f64), r"zg\.topk"), (source.triton(f64, f64), "sort")):
        with pytest.raises(KernelTypeError, match=f"^{name} has no gradient"):
            differentiate(model, [1], [0])
    with pytest.raises(KernelTypeError, match="has no gradient: it reads") as error:
        differentiate(in_triton.triton(f64, f64), [1], [0])
    assert "arith." not in error.value.summary
