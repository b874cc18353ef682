"""The same elements in another shape."""

from __future__ import annotations

import pytest

CASES = {
    "zg.flip(m)": "tensor<x4, x16, f32>",
    "zg.flip(m, 2)": "error: axis 2 is not one of the 2 axes",
    "zg.flip(x)": "error: zg.flip: the operand must be a tensor",
    "zg.interleave(m, 1)": "tensor<x4, x32, f32>",
    "zg.interleave(n, x)": "tensor<x2, f32>",
    "zg.interleave(p, p)": "tensor<x2, ptr<f32>>",
    "zg.interleave(1, 2)": "error: two constants",
    "zg.interleave(p, t)": "error: the operands must be numbers, or pointers of one type",
    "zg.expand(t, 0)": "tensor<x1, x16, i32>",
    "zg.expand(t, (0, -1))": "tensor<x1, x16, x1, i32>",
    "zg.expand(x, 0)": "tensor<x1, f32>",
    "zg.expand(t, 2)": "error: not one of the 2 axes",
    "zg.expand(t, (0, 0))": "error: different axes",
    "zg.broadcast(t, m)": "tensor<x4, x16, i32>",
    "zg.broadcast(t, (2, 16))": "tensor<x2, x16, i32>",
    "zg.broadcast(x, ())": "f32",
    "zg.broadcast(m, (16,))": "error: does not broadcast",
    "zg.reshape(m, (8, 8))": "tensor<x8, x8, f32>",
    "zg.reshape(m, (8,))": "error: elements",
    "zg.ravel(m)": "tensor<x64, f32>",
    "zg.ravel(x)": "error: the operand must be a tensor",
    "zg.trans(m)": "tensor<x16, x4, f32>",
    "zg.trans(t)": "error: at least two axes",
    "zg.trans(m, 0, 1)": "tensor<x4, x16, f32>",
    "zg.permute(m, (1, 0))": "tensor<x16, x4, f32>",
    "zg.permute(m, 1, 0)": "tensor<x16, x4, f32>",
    "zg.permute(m)": "error: not a permutation",
    "zg.join(t, x)": "tensor<x16, x2, f32>",
    "zg.split(zg.join(t, t))": "Tuple<tensor<x16, i32>, tensor<x16, i32>>",
    "zg.split(t)": "error: last axis has size 2",
    "zg.split(zg.zeros((2,), zg.f32))": "Tuple<f32, f32>",
    "zg.cat(t, f)": "tensor<x32, f32>",
    "zg.cat(t, m)": "error: two tensors of one shape",
    "zg.cat(n, n)": "error: the operand must be a tensor",
}


@pytest.mark.parametrize("expression", CASES)
def test_calls(expression: str, check):
    check(expression, CASES[expression])
