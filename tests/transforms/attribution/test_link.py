"""Linking: a kernel and what it reaches as one module."""

from __future__ import annotations

import pytest

import ziggurat as zg
from ziggurat.codemodel.errors import KernelSyntaxError
from ziggurat.transforms.attribution import link


@zg.function
def leaf(x):
    return x


@zg.function
def left(x):
    return leaf(x) + 1


@zg.function
def right(x):
    return leaf(x) + 2


@zg.kernel
def diamond(p, n):
    zg.store(p, left(n) + right(n))


@zg.function
def loops(n):
    return goes_back(n)


@zg.function
def goes_back(n):
    return loops(n) + 1


@zg.function
def calls_itself(n):
    return calls_itself(n)


def test_callees_come_first_and_each_once():
    module = link(diamond)
    zg.verify(module)
    assert [f.attributes["sym_name"] for f in module.functions().values()] == ["leaf", "left", "right", "diamond"]
    assert zg.same_model(zg.parse(str(module)), module)


def test_the_functions_are_the_models_themselves():
    functions = list(link(diamond).functions().values())
    assert zg.same_model(functions[0], leaf.model) and zg.same_model(functions[-1], diamond.model)


def test_a_function_that_calls_none_is_alone():
    assert len(link(leaf).functions()) == 1


@pytest.mark.parametrize(
    ("function", "way"), [(loops, "loops → goes_back → loops"), (calls_itself, "calls_itself → calls_itself")]
)
def test_recursion_is_an_error(function, way):
    with pytest.raises(KernelSyntaxError, match=f"recursion: {way}") as error_info:
        link(function)
    assert error_info.value.hint == "write a loop instead" and error_info.value.location is not None
