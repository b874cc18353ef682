"""Errors of functions that a kernel reaches, found by linking: the messages name the calls that led there."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import KernelErrors, KernelSyntaxError
from ziggurat.codemodel.text.parser import parse
from ziggurat.transforms.attribution import link


@zg.function
def leaf(x):
    return x


@zg.function
def left(x):
    return leaf(x) + 1


@zg.function
def loops(n):
    return goes_back(n)


@zg.function
def goes_back(n):
    return loops(n) + 1


@zg.function
def calls_itself(n):
    return calls_itself(n)


@pytest.mark.parametrize(("function", "calls"), [(loops, 1), (calls_itself, 0)])
def test_recursion_names_the_calls(function, calls):
    with pytest.raises(KernelSyntaxError, match="recursion: ") as error_info:
        link(function)
    assert str(error_info.value).count("called from") == calls


@zg.function
def broken(x):
    y = missing + 1  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
    return absent + y  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


@zg.function
def on_the_way(x):
    return broken(x)


def test_what_is_wrong_with_a_callee_names_the_calls():
    @zg.kernel
    def kernel(p, n):
        zg.store(p, on_the_way(n) + on_the_way(3) + calls_itself(n))

    with pytest.raises(KernelErrors) as error_info:
        _ = kernel.module
    assert [error.summary for error in error_info.value.errors] == [
        "name 'missing' is not defined",
        "name 'absent' is not defined",
        "recursion: calls_itself → calls_itself",
    ]
    first = str(error_info.value.errors[0])
    assert first.count("called from") == 2
    assert "return broken(x)" in first and "zg.store(p, on_the_way(n)" in first
    assert first.index("missing + 1") < first.index("return broken(x)") < first.index("zg.store(p")


def another_leaf():
    @zg.function
    def leaf(x):
        return x * 2

    leaf.fn.__qualname__ = "leaf"
    return leaf


def test_functions_of_one_name_are_told_apart_by_numbers():
    other = another_leaf()

    @zg.function
    def uses_other(x):
        return other(x)

    @zg.kernel
    def kernel(p, n):
        zg.store(p, left(n) + uses_other(n) + other(n))

    module = link(kernel)
    assert [name for name in module.functions() if name.startswith("leaf")] == ["leaf", "leaf.1"]
    calls = [op.callee for op in module.walk() if isinstance(op, core.FuncCall) and op.callee.startswith("leaf")]
    assert sorted(calls) == ["leaf", "leaf.1", "leaf.1"] and str(parse(str(module))) == str(module)
    x = np.zeros(1, np.int32)
    kernel[(1,)](x, 5)
    assert x[0] == 5 + 1 + 10 + 10
