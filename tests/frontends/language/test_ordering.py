"""Sorting, counting and picking."""

from __future__ import annotations

import pytest

CASES = {
    "zg.argsort(m)": "tensor<x4, x16, i32>",
    "zg.argsort(m, 0)": "error: zg.argsort: the axis must be the last one",
    "zg.sort(m)": "tensor<x4, x16, f32>",
    "zg.sort(m, -1, descending=True)": "tensor<x4, x16, f32>",
    "zg.sort(m, 0)": "error: the axis must be the last one",
    "zg.sort(x)": "error: a tensor of numbers",
    "zg.topk(m, 4)": "tensor<x4, x4, f32>",
    "zg.topk(m, 3)": "error: a power of two up to 16",
    "zg.topk(m, 32)": "error: up to 16",
    "zg.topk(m, n)": "error: must be known",
    "zg.histogram(t, 8)": "tensor<x8, i32>",
    "zg.histogram(t, num_bins=8, mask=b)": "tensor<x8, i32>",
    "zg.histogram(f, 8)": "error: a tensor of integers",
    "zg.histogram(t, 10)": "error: a power of two",
    "zg.histogram(t, 8, t)": "error: the mask must be",
    "zg.gather(f, t, 0)": "tensor<x16, f32>",
    "zg.gather(f, f, 0)": "error: must hold integers",
    "zg.gather(m, t, 0)": "error: equally many axes",
    "zg.gather(src=f, index=t, axis=1)": "error: axis 1",
}


@pytest.mark.parametrize("expression", CASES)
def test_calls(expression: str, check):
    check(expression, CASES[expression])
