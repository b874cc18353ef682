"""Dots."""

from __future__ import annotations

import pytest

CASES = {
    "zg.dot(m, zg.trans(m))": "tensor<x4, x4, f32>",
    "zg.dot(m, m)": "error: the inner sizes differ",
    "zg.dot(zg.zeros((16, 16), zg.i8), zg.zeros((16, 16), zg.i8))": "tensor<x16, x16, i32>",
    "zg.dot(zg.zeros((16, 16), zg.i32), zg.zeros((16, 16), zg.i32))": "error: floats or 8-bit integers",
    "zg.dot(m, zg.zeros((16, 4), zg.f16))": "error: the operands must be of one element type",
    "zg.dot(m, zg.trans(m), zg.zeros((4, 4), zg.f32), input_precision='ieee')": "tensor<x4, x4, f32>",
    "zg.dot(m, zg.trans(m), input_precision='half')": "error: input_precision must be",
    "zg.dot(m, zg.trans(m), acc=m)": "error: the accumulator must have the shape",
    "zg.dot(zg.zeros((2, 16, 16), zg.f16), zg.zeros((2, 16, 16), zg.f16))": "tensor<x2, x16, x16, f32>",
    "zg.dot(t, t)": "error: two matrices",
    "zg.dot(w, w, w)": "tensor<x16, x16, f16>",
}


@pytest.mark.parametrize("expression", CASES)
def test_calls(expression: str, check):
    check(expression, CASES[expression])
