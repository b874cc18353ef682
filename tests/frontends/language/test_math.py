"""Functions of numbers."""

from __future__ import annotations

import pytest

CASES = {
    "zg.sqrt_rn(h)": "tensor<x16, f16>",
    "zg.sqrt_rn(n)": "f32",
    "zg.sqrt_rn(p)": "error: zg.sqrt_rn: the operands must be numbers; got a pointer",
    "zg.exp(h)": "tensor<x16, f16>",
    "zg.exp2(h)": "tensor<x16, f16>",
    "zg.log(h)": "tensor<x16, f16>",
    "zg.log2(h)": "tensor<x16, f16>",
    "zg.sqrt(h)": "tensor<x16, f16>",
    "zg.rsqrt(h)": "tensor<x16, f16>",
    "zg.sin(h)": "tensor<x16, f16>",
    "zg.cos(h)": "tensor<x16, f16>",
    "zg.tanh(h)": "tensor<x16, f16>",
    "zg.erf(h)": "tensor<x16, f16>",
    "zg.sigmoid(h)": "tensor<x16, f16>",
    "zg.floor(h)": "tensor<x16, f16>",
    "zg.ceil(h)": "tensor<x16, f16>",
    "zg.exp(t)": "tensor<x16, f32>",
    "zg.exp2(t)": "tensor<x16, f32>",
    "zg.log(t)": "tensor<x16, f32>",
    "zg.log2(t)": "tensor<x16, f32>",
    "zg.sqrt(t)": "tensor<x16, f32>",
    "zg.rsqrt(t)": "tensor<x16, f32>",
    "zg.sin(t)": "tensor<x16, f32>",
    "zg.cos(t)": "tensor<x16, f32>",
    "zg.tanh(t)": "tensor<x16, f32>",
    "zg.erf(t)": "tensor<x16, f32>",
    "zg.sigmoid(t)": "tensor<x16, f32>",
    "zg.floor(t)": "tensor<x16, f32>",
    "zg.ceil(t)": "tensor<x16, f32>",
    "zg.exp(p)": "error: the operands must be numbers",
    "zg.exp2(p)": "error: the operands must be numbers",
    "zg.log(p)": "error: the operands must be numbers",
    "zg.log2(p)": "error: the operands must be numbers",
    "zg.sqrt(p)": "error: the operands must be numbers",
    "zg.rsqrt(p)": "error: the operands must be numbers",
    "zg.sin(p)": "error: the operands must be numbers",
    "zg.cos(p)": "error: the operands must be numbers",
    "zg.tanh(p)": "error: the operands must be numbers",
    "zg.erf(p)": "error: the operands must be numbers",
    "zg.sigmoid(p)": "error: the operands must be numbers",
    "zg.floor(p)": "error: the operands must be numbers",
    "zg.ceil(p)": "error: the operands must be numbers",
    "zg.abs(t)": "tensor<x16, i32>",
    "zg.abs(-3)": "constant<i32, c3>",
    "zg.abs(p)": "error: the operands must be numbers",
    "zg.exp(0)": 'constant<f32, "1.0">',
    "zg.softmax(m, -1)": "tensor<x4, x16, f32>",
    "zg.softmax(t)": "tensor<x16, f32>",
    "zg.softmax(x)": "error: a tensor of numbers",
    "zg.softmax(m, 2)": "error: axis 2",
}


@pytest.mark.parametrize("expression", CASES)
def test_calls(expression: str, check):
    check(expression, CASES[expression])
