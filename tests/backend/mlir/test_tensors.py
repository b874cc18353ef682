"""Making, reshaping and reducing tensors."""

from __future__ import annotations

import pytest

CASES = {
    "%y : tensor<x4, i32> = tt.make_range @start=0 @end=4;": [
        "%0 = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<4xi32>"
    ],
    "%y : tensor<x16, i32> = tt.splat %n;": ["%0 = tt.splat %arg1 : i32 -> tensor<16xi32>"],
    "%y : tensor<x1, x16, f32> = tt.expand_dims %t @axis=0;": [
        "%0 = tt.expand_dims %arg5 {axis = 0 : i32} : tensor<16xf32> -> tensor<1x16xf32>"
    ],
    "%y : tensor<x4, x4, f32> = tt.reshape %t;": ["%0 = tt.reshape %arg5 : tensor<16xf32> -> tensor<4x4xf32>"],
    "%y : tensor<x16, x16, f16> = tt.trans %w @order=[1, 0];": [
        "%0 = tt.trans %arg9 {order = array<i32: 1, 0>} : tensor<16x16xf16> -> tensor<16x16xf16>"
    ],
    "%y : f32 = tt.reduce %t @axis=0 (%c : f32, %d : f32)f32 -> { %e : f32 = arith.addf %c %d; tt.reduce.return %e; };": [  # noqa: E501
        '%0 = "tt.reduce"(%arg5) <{axis = 0 : i32}> ({',
        "^bb0(%arg13: f32, %arg14: f32):",
        "%1 = arith.addf %arg13, %arg14 : f32",
        "tt.reduce.return %1 : f32",
        "}) : (tensor<16xf32>) -> f32",
    ],
    "%y : tensor<x16, x2, f32> = tt.join %t %t;": ["%0 = tt.join %arg5, %arg5 : tensor<16xf32> -> tensor<16x2xf32>"],
}


@pytest.mark.parametrize("body", CASES)
def test_lines(body: str, written):
    assert written(body) == CASES[body]
