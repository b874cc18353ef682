"""Conversions: the types of unsigned integers; 8-bit floats by Triton's own op, or by way of f32."""

from __future__ import annotations

import pytest

from ziggurat.codemodel.errors import TargetError

CASES = {
    "%y : i64 = arith.extsi %n;": ["%0 = arith.extsi %arg1 : i32 to i64"],
    "%y : u64 = arith.extui %u;": ['%0 = arith.extui %arg4 {zg.type = "u64"} : i32 to i64'],
    "%y : i32 = arith.bitcast %u;": ["%0 = tt.bitcast %arg4 : i32 -> i32"],
    "%y : i32 = arith.bitcast %x;": ["%0 = tt.bitcast %arg2 : f32 -> i32"],
    "%y : f16 = arith.truncf %x;": ["%0 = arith.truncf %arg2 : f32 to f16"],
    "%y : f32 = arith.sitofp %n;": ["%0 = arith.sitofp %arg1 : i32 to f32"],
    "%y : u8 = arith.fptoui %x;": ['%0 = arith.fptoui %arg2 {zg.type = "u8"} : f32 to i8'],
    "%y : f8e4m3 = arith.truncf %x;": ["%0 = tt.fp_to_fp %arg2, rounding = rtne : f32 -> f8E4M3FN"],
    "%y : i64 = tt.ptr_to_int %p;": ["%0 = tt.ptr_to_int %arg0 : !tt.ptr<f32> -> i64"],
    "%y : f64 = arith.extf %e;": [
        "%0 = tt.fp_to_fp %arg12 {zg.step} : f8E4M3FN -> f32",
        "%1 = arith.extf %0 : f32 to f64",
    ],
    "%y : f8e5m2 = arith.truncf %d;": [
        "%0 = arith.truncf %arg11 {zg.step} : f64 to f32",
        "%1 = tt.fp_to_fp %0, rounding = rtne : f32 -> f8E5M2",
    ],
    "%y : i32 = arith.fptosi %e;": [
        "%0 = tt.fp_to_fp %arg12 {zg.step} : f8E4M3FN -> f32",
        "%1 = arith.fptosi %0 : f32 to i32",
    ],
    '%y : f16 = arith.truncf %x @rounding="rtz";': ["%0 = tt.fp_to_fp %arg2, rounding = rtz : f32 -> f16"],
}


@pytest.mark.parametrize("body", CASES)
def test_lines(body: str, written):
    assert written(body) == CASES[body]


@pytest.mark.parametrize(
    "body", ['%y : f8e4m3 = arith.truncf %x @rounding="rtz";', '%y : f16 = arith.truncf %d @rounding="rtz";']
)
def test_roundings_that_triton_lacks(body, written):
    with pytest.raises(TargetError, match="that rounds toward zero"):
        written(body)
