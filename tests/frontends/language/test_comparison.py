"""Comparing and choosing."""

from __future__ import annotations

import operator

import pytest

from ziggurat.frontends.language import CompareKind

CASES = {
    "zg.compare(t, 0.5, K.EQUAL)": "tensor<x16, i1>",
    "zg.compare(p, p, K.EQUAL)": "i1",
    "zg.compare(p, n, K.EQUAL)": "error: the operands must be numbers; got a pointer",
    "zg.compare(t, t, 'eq')": "error: a member of zg.CompareKind",
    "zg.compare(1, 2, K.LESS_THAN)": 'constant<i1, "True">',
    "zg.where(b, t, 1.5)": "tensor<x16, f32>",
    "zg.where(b, p, p)": "tensor<x16, ptr<f32>>",
    "zg.where(p, t, t)": "error: the condition must be i1",
    "zg.where(b, p, q)": "error: unlike pointers",
    "zg.where(True, n, x)": "f32",
}


@pytest.mark.parametrize("expression", CASES)
def test_calls(expression: str, check):
    check(expression, CASES[expression])


def test_the_kinds_are_pythons_comparisons():
    values = {kind.name: getattr(operator, kind.value)(1, 2) for kind in CompareKind}
    assert values == {
        "EQUAL": False,
        "NOT_EQUAL": True,
        "LESS_THAN": True,
        "LESS_THAN_OR_EQUAL": True,
        "GREATER_THAN": False,
        "GREATER_THAN_OR_EQUAL": False,
    }
