"""Read, combine and write back in one step."""

from __future__ import annotations

import pytest

CASES = {
    "zg.atomic_add(qs, 1)": "tensor<x16, i32>",
    "zg.atomic_max(qs, 1)": "tensor<x16, i32>",
    "zg.atomic_min(qs, 1)": "tensor<x16, i32>",
    "zg.atomic_and(qs, 1)": "tensor<x16, i32>",
    "zg.atomic_or(qs, 1)": "tensor<x16, i32>",
    "zg.atomic_xor(qs, 1)": "tensor<x16, i32>",
    "zg.atomic_xchg(qs, 1)": "tensor<x16, i32>",
    "zg.atomic_add(ps, 1.0, b)": "tensor<x16, f32>",
    "zg.atomic_max(ps, 1.0, b)": "tensor<x16, f32>",
    "zg.atomic_min(ps, 1.0, b)": "tensor<x16, f32>",
    "zg.atomic_and(ps, 1.0, b)": "error: u64; got f32",
    "zg.atomic_or(ps, 1.0, b)": "error: u64; got f32",
    "zg.atomic_xor(ps, 1.0, b)": "error: u64; got f32",
    "zg.atomic_xchg(ps, 1.0, b)": "tensor<x16, f32>",
    "zg.atomic_add(q, n, sem='relaxed', scope='sys')": "i32",
    "zg.atomic_add(q, n, sem='strong')": "error: sem must be one of",
    "zg.atomic_add(q, n, scope='warp')": "error: scope must be one of",
    "zg.atomic_add(q, x)": "i32",
    "zg.atomic_add(n, n)": "error: 'ptr' must be a pointer",
    "zg.atomic_add(q, t)": "error: for a single pointer",
    "zg.atomic_add(qs, 1, t)": "error: the mask must be i1",
    "zg.atomic_cas(q, 0, n)": "i32",
    "zg.atomic_cas(ps, 0.0, f)": "tensor<x16, f32>",
    "zg.atomic_cas(q, x, n)": "i32",
    "zg.atomic_cas(q, 0)": "error: needs its argument 'val'",
    "zg.atomic_cas(q, 0, 1, mask=b)": "error: has no parameter 'mask'",
}


@pytest.mark.parametrize("expression", CASES)
def test_calls(expression: str, check):
    check(expression, CASES[expression])
