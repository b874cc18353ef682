"""Arithmetic: the shapes and dtypes of results, and operands that are not numbers."""

from __future__ import annotations

import pytest

CASES = {
    "zg.div_rn(t, f)": "tensor<x16, f32>",
    "zg.div_rn(n, n)": "f32",
    "zg.div_rn(p, 1)": "error: zg.div_rn: the operands must be numbers; got a pointer",
    "zg.add(t, f)": "tensor<x16, f32>",
    "zg.add(p, t)": "tensor<x16, ptr<f32>>",
    "zg.add(t, p)": "tensor<x16, ptr<f32>>",
    "zg.add(p, q)": "error: one operand must be an integer; got two pointers",
    "zg.add(p, x)": "error: the offset of the pointer",
    "zg.add(t, zg.arange(0, 8))": "error: do not match",
    "zg.add(1, 2)": "constant<i32, c3>",
    "zg.sub(p, 4)": "ptr<f32>",
    "zg.sub(t, p)": "error: got a pointer",
    "zg.sub(b=n, a=x)": "f32",
    "zg.mul(b, b)": "tensor<x16, i32>",
    "zg.mul(ps, 2)": "error: the operands must be numbers",
    "zg.div(t, t)": "tensor<x16, f32>",
    "zg.div(h, n)": "tensor<x16, f16>",
    "zg.floordiv(t, n)": "tensor<x16, i32>",
    "zg.floordiv(x, n)": "error: the operands must be integers",
    "zg.floordiv(-7, 2)": 'constant<i32, "-3">',
    "zg.mod(x, 2)": "f32",
    "zg.mod(n, 3)": "i32",
    "zg.neg(t)": "tensor<x16, i32>",
    "zg.neg(b)": "error: the operands must be integers or floats; got",
    "zg.invert(b)": "tensor<x16, i1>",
    "zg.invert(f)": "error: the operands must be integers",
    "zg.and_(b, b)": "tensor<x16, i1>",
    "zg.or_(f, 1)": "error: the operands must be integers",
    "zg.xor(t, -1)": "tensor<x16, i32>",
    "zg.shl(t, 2)": "tensor<x16, i32>",
    "zg.shr(x, 1)": "error: the operands must be integers",
    "zg.minimum(t, 0.5)": "tensor<x16, f32>",
    "zg.maximum(p, 0)": "error: the operands must be numbers",
    "zg.clamp(t, min=0, max=x)": "tensor<x16, f32>",
    "zg.clamp(9, 0, 5)": "constant<i32, c5>",
    "zg.fma(f, 2, n)": "tensor<x16, f32>",
    "zg.fma(t, t, t)": "error: the operands must be floats",
    "zg.umulhi(t, n)": "tensor<x16, u32>",
    "zg.umulhi(zg.cast(t, zg.i16), 1)": "error: integers of 32 or 64 bits",
    "zg.cdiv(n, 16)": "i32",
    "zg.cdiv(33, 16)": "constant<i32, c3>",
    "zg.cdiv(x, 2)": "error: an integer",
    "zg.next_power_of_2(100)": "constant<i32, c128>",
    "zg.next_power_of_2(n)": "error: must be known at compile time",
    "zg.add(t)": "error: needs its argument 'b'",
}


@pytest.mark.parametrize("expression", CASES)
def test_calls(expression: str, check):
    check(expression, CASES[expression])
