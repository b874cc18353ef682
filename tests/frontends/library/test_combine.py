"""The functions by which reductions combine: run as Python, on numbers, in any order and grouping."""

from __future__ import annotations

import functools
import itertools
import math

import pytest

import ziggurat as zg
from ziggurat.frontends.language import Function
from ziggurat.frontends.library.combine import COMBINE

NAN = math.nan
VALUES = [1.0, -2.0, 3.0, 3.0, NAN]


def test_each_is_a_function_named_as_what_it_computes():
    assert all(isinstance(function, Function) for function in COMBINE.values())
    assert COMBINE["sum"].name == "sum" and COMBINE["cumsum"] is COMBINE["sum"]
    assert COMBINE["cumprod"] is COMBINE["prod"] and COMBINE["prod"].name == "mul"
    for name, function in COMBINE.items():
        zg.verify(function.model)
        assert len(function.model.bodies[0].parameters) == (4 if name.startswith("arg") else 2)


@pytest.mark.parametrize(("name", "expected"), [("sum", 10), ("prod", 24), ("xor_sum", 4), ("max", 4), ("min", 1)])
def test_they_compute_what_they_say(name, expected):
    for order in itertools.permutations([1, 2, 3, 4]):
        assert functools.reduce(COMBINE[name].fn, order) == expected


def test_extremes_pass_over_nan():
    assert COMBINE["max"].fn(NAN, 1.0) == COMBINE["max"].fn(1.0, NAN) == 1.0
    assert COMBINE["min"].fn(NAN, 1.0) == 1.0 and math.isnan(COMBINE["min"].fn(NAN, NAN))


@pytest.mark.parametrize(("name", "value", "index"), [("argmax", 3.0, 2), ("argmin", -2.0, 1)])
def test_of_equal_elements_the_first_wins_in_every_order(name, value, index):
    combine = COMBINE[name].fn
    pairs = [(v, k) for k, v in enumerate(VALUES)]
    for order in itertools.permutations(pairs):
        result = functools.reduce(lambda a, b: combine(*a, *b), order)
        assert result == (value, index), order


def test_among_nans_the_first_wins():
    value, index = COMBINE["argmax"].fn(NAN, 5, NAN, 2)
    assert math.isnan(value) and index == 2


def test_grouping_does_not_matter():
    for name in ("argmax", "argmin", "max", "min"):
        combine = COMBINE[name].fn
        items = [(v, k) for k, v in enumerate(VALUES)] if name.startswith("arg") else [(v,) for v in VALUES]

        def both(a, b, combine=combine):
            result = combine(*a, *b)
            return result if isinstance(result, tuple) else (result,)

        for a, b, c in itertools.permutations(items, 3):
            left, right = both(both(a, b), c), both(a, both(b, c))
            assert repr(left) == repr(right)
