"""Random numbers from a counter."""

from __future__ import annotations

import pytest

CASES = {
    "zg.philox(n, t, 0, 0, n)": "Tuple<tensor<x16, u32>, tensor<x16, u32>, tensor<x16, u32>, tensor<x16, u32>>",
    "zg.philox(t, n, 0, 0, 0)": "Tuple<tensor<x16, u32>, tensor<x16, u32>, tensor<x16, u32>, tensor<x16, u32>>",
    "zg.philox(n, zg.cast(n, zg.i64), 0, 0, 0)": "Tuple<u64, u64, u64, u64>",
    "zg.philox(zg.arange(0, 8), t, 0, 0, 0)": "error: do not match",
    "zg.rand(t, n)": "tensor<x16, f32>",
    "zg.randn(zg.arange(0, 8), t)": "error: do not match",
    "zg.philox(n, x, 0, 0, 0)": "error: 'c0' must be an integer",
    "zg.philox(n, t, 0, 0, 0, n_rounds=-1)": "error: from 0 to 100",
    "zg.rand(n, t)": "tensor<x16, f32>",
    "zg.rand(n, n)": "f32",
    "zg.rand(n, f)": "error: 'offset' must be an integer",
    "zg.rand(n, t, n)": "error: must be known",
    "zg.randn(42, t)": "tensor<x16, f32>",
    "zg.randint(n, t)": "tensor<x16, u32>",
    "zg.rand4x(n, t)": "Tuple<tensor<x16, f32>, tensor<x16, f32>, tensor<x16, f32>, tensor<x16, f32>>",
    "zg.randn4x(n, n)": "Tuple<f32, f32, f32, f32>",
    "zg.randint4x(n, n, 7)": "Tuple<u32, u32, u32, u32>",
    "zg.randint4x(x, n)": "error: 'seed' must be an integer",
}


@pytest.mark.parametrize("expression", CASES)
def test_calls(expression: str, check):
    check(expression, CASES[expression])
