"""Facts that the author states and the compiler cannot infer."""

from __future__ import annotations

import pytest

from ziggurat.frontends.language.programs import max_constancy, max_contiguous, multiple_of

CASES = {
    "zg.multiple_of(n, 16)": "i32",
    "zg.multiple_of(ps, (8,))": "tensor<x16, ptr<f32>>",
    "zg.multiple_of(m, (4, 4))": "error: the operands must be integers or pointers",
    "zg.multiple_of(n, 3)": "error: powers of two",
    "zg.multiple_of(t, (4, 4))": "error: must be 1 positive",
    "zg.max_contiguous(t, 16)": "tensor<x16, i32>",
    "zg.max_contiguous(f, 16)": "error: the operands must be integers",
    "zg.max_constancy(m, (1, 16))": "tensor<x4, x16, f32>",
    "zg.max_constancy(t, n)": "error: must be known",
    "zg.assume(n > 0)": 'constant<object, "None">',
    "zg.assume(b)": "error: the condition must be a scalar",
    "zg.assume(False)": "error: that is false",
}


@pytest.mark.parametrize("expression", CASES)
def test_calls(expression: str, check):
    check(expression, CASES[expression])


def test_outside_of_kernels_a_hint_changes_nothing():
    assert [hint(48, 16) for hint in (multiple_of, max_contiguous, max_constancy)] == [48, 48, 48]
