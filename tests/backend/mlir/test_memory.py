"""Loads, stores, atomics and pointers."""

from __future__ import annotations

import pytest

CASES = {
    "%y : f32 = tt.load %p;": ["%0 = tt.load %arg0 : !tt.ptr<f32>"],
    '%y : tensor<x16, f32> = tt.load %a %m %t @cache="cg";': [
        "%0 = tt.load %arg7, %arg8, %arg5 {cachePolicy = #tt.cache_policy<cache_modifier = cg, eviction_policy = evict_normal>} : tensor<16x!tt.ptr<f32>>"  # noqa: E501
    ],
    "tt.store %a %t %m;": ["tt.store %arg7, %arg5, %arg8 : tensor<16x!tt.ptr<f32>>"],
    "%y : i32 = arith.constant @1; %z : ptr<f32> = tt.addptr %p %n;": [
        "%0 = arith.constant 1 : i32",
        "%1 = tt.addptr %arg0, %arg1 : !tt.ptr<f32>, i32",
    ],
    '%y : f32 = tt.atomic_rmw %p %x @kind="fadd" @sem="relaxed" @scope="cta";': [
        "%0 = tt.atomic_rmw fadd, relaxed, cta, %arg0, %arg2 : (!tt.ptr<f32>, f32) -> f32"
    ],
    "%y : tensor<x16, f32> = tt.load %a @volatile=true;": [
        "%0 = tt.load %arg7 {isVolatile = true} : tensor<16x!tt.ptr<f32>>"
    ],
    "%y : f32 = tt.atomic_cas %p %x %x;": [
        "%0 = tt.atomic_cas acq_rel, gpu, %arg0, %arg2, %arg2 : (!tt.ptr<f32>, f32, f32) -> f32"
    ],
}


@pytest.mark.parametrize("body", CASES)
def test_lines(body: str, written):
    assert written(body) == CASES[body]
