"""Ranges and constant tensors."""

from __future__ import annotations

import pytest

CASES = {
    "zg.arange(0, 8)": "tensor<x8, i32>",
    "zg.arange(3, 7)": "tensor<x4, i32>",
    "zg.arange(start=0, end=6)": "error: a power of two of numbers; got 6",
    "zg.arange(8, 0)": "error: a power of two of numbers; got -8",
    "zg.arange(0, n)": "error: must be known at compile time",
    "zg.zeros((4, 8), zg.f16)": "tensor<x4, x8, f16>",
    "zg.zeros((), zg.f16)": "f16",
    "zg.zeros(16, zg.i1)": "tensor<x16, i1>",
    "zg.zeros((3,), zg.f16)": "error: not a power of two",
    "zg.zeros((4,), BYTES)": "error: 'dtype' must be a dtype",
    "zg.zeros((2048, 1024), zg.f32)": "error: more than 1048576",
    "zg.full((4,), x, zg.i8)": "tensor<x4, i8>",
    "zg.full((4,), value=-1, dtype=zg.u8)": "tensor<x4, u8>",
    "zg.full((4,), t, zg.i8)": "error: 'value' must be a scalar",
}


@pytest.mark.parametrize("expression", CASES)
def test_calls(expression: str, check):
    check(expression, CASES[expression])
