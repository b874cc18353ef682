"""Loads and stores."""

from __future__ import annotations

import pytest

CASES = {
    "zg.load(p)": "f32",
    "zg.load(ps)": "tensor<x16, f32>",
    "zg.load(ps, b)": "tensor<x16, f32>",
    "zg.load(ps, mask=b, other=0)": "tensor<x16, f32>",
    "zg.load(n)": "error: 'ptr' must be a pointer",
    "zg.load(ps, t)": "error: the mask must be i1",
    "zg.load(ps, other=0.0)": "error: there is no mask",
    "zg.load(p, b)": "error: for a single pointer",
    "zg.load(qs, b, 0.5)": "tensor<x16, i32>",
    "zg.load(p, cache_modifier='.cg', eviction_policy='evict_last', volatile=True)": "f32",
    "zg.load(p, cache_modifier='x')": "error: cache_modifier must be one of",
    "zg.store(ps, f)": 'constant<object, "None">',
    "zg.store(ps, 1)": 'constant<object, "None">',
    "zg.store(ps, x, b)": 'constant<object, "None">',
    "zg.store(p, f)": "error: for a single pointer",
    "zg.store(ps, t)": 'constant<object, "None">',
    "zg.store(f, f)": "error: 'ptr' must be a pointer",
    "zg.store(p, 1.0, eviction_policy='never')": "error: eviction_policy must be one of",
}


@pytest.mark.parametrize("expression", CASES)
def test_calls(expression: str, check):
    check(expression, CASES[expression])
