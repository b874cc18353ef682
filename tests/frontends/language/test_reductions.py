"""Combining along an axis, by the functions of the language and by one's own."""

from __future__ import annotations

import pytest

import ziggurat as zg


@zg.function
def larger(a, b):
    return zg.maximum(a, b)


@zg.function
def both(a, b, c, d):
    return zg.add(a, c), zg.add(b, d)


CASES = {
    "zg.prod(m, 0)": "tensor<x16, f32>",
    "zg.prod(t, dtype=zg.i64)": "i64",
    "zg.any(m, -1)": "tensor<x4, i1>",
    "zg.all(t)": "i1",
    "zg.all(p)": "error: zg.all: the operand must be a tensor of numbers",
    "zg.reduce_or(t, 0, keep_dims=True)": "tensor<x1, i32>",
    "zg.reduce_or(f)": "error: zg.reduce_or: the operands must be integers",
    "zg.cummax(h, -1)": "tensor<x16, f16>",
    "zg.cummin(m, 2)": "error: axis 2 is not one of the 2 axes",
    "zg.sum(m, 0)": "tensor<x16, f32>",
    "zg.sum(m)": "f32",
    "zg.sum(m, axis=-1, keep_dims=True)": "tensor<x4, x1, f32>",
    "zg.sum(b)": "i32",
    "zg.sum(zg.cast(t, zg.u8))": "u32",
    "zg.sum(h)": "f16",
    "zg.sum(h, dtype=zg.f32)": "f32",
    "zg.sum(m, 2)": "error: axis 2",
    "zg.sum(ps)": "error: a tensor of numbers",
    "zg.max(m, 1)": "tensor<x4, f32>",
    "zg.max(t, 0, return_indices=True)": "Tuple<i32, i32>",
    "zg.min(m, 0, True, keep_dims=True)": "Tuple<tensor<x1, x16, f32>, tensor<x1, x16, i32>>",
    "zg.max(x)": "error: a tensor of numbers",
    "zg.max(m, 0, return_indices=1)": "error: True or False",
    "zg.argmax(m, None)": "i32",
    "zg.argmin(m, 1, tie_break_left=False)": "tensor<x4, i32>",
    "zg.argmax(m)": "error: needs its argument 'axis'",
    "zg.xor_sum(t)": "i32",
    "zg.xor_sum(f)": "error: the operands must be integers",
    "zg.reduce(m, 0, larger)": "tensor<x16, f32>",
    "zg.reduce((t, f), 0, both)": "Tuple<i32, f32>",
    "zg.reduce((t, m), 0, both)": "error: of one shape",
    "zg.reduce(m, 0, 'sum')": "error: a function of the language",
    "zg.reduce(m, 0, both)": "error: parameters",
    "zg.cumsum(b)": "tensor<x16, i32>",
    "zg.cumprod(m, 1, reverse=True)": "tensor<x4, x16, f32>",
    "zg.cumsum(m, None)": "error: 'axis' must be an integer",
    "zg.associative_scan(t, 0, larger)": "tensor<x16, i32>",
    "zg.associative_scan((t, f), -1, both, reverse=True)": "Tuple<tensor<x16, i32>, tensor<x16, f32>>",
    "zg.associative_scan(m, 2, larger)": "error: axis 2",
}


@pytest.mark.parametrize("expression", CASES)
def test_calls(expression: str, check):
    check(expression, CASES[expression], larger=larger, both=both)
