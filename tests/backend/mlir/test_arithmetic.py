"""Arithmetic and functions of floats, computed in a wider type if Triton has no narrow op."""

from __future__ import annotations

import pytest

CASES = {
    "%y : i32 = arith.addi %n %n;": ["%0 = arith.addi %arg1, %arg1 : i32"],
    "%y : u32 = arith.divui %u %u;": ["%0 = arith.divui %arg4, %arg4 : i32"],
    "%y : f32 = arith.maxnumf %x %x;": ["%0 = arith.maxnumf %arg2, %arg2 : f32"],
    '%y : i1 = arith.cmpi %u %u @"ult";': ["%0 = arith.cmpi ult, %arg4, %arg4 : i32"],
    '%y : i1 = arith.cmpf %x %x @"une";': ["%0 = arith.cmpf une, %arg2, %arg2 : f32"],
    "%y : f32 = arith.select %b %x %x;": ["%0 = arith.select %arg3, %arg2, %arg2 : f32"],
    "%y : tensor<x16, f32> = math.exp %t;": ["%0 = math.exp %arg5 : tensor<16xf32>"],
    "%y : f32 = math.rsqrt %x;": ["%0 = math.rsqrt %arg2 : f32"],
    "%y : f32 = arith.negf %x;": ["%0 = arith.negf %arg2 : f32"],
    "%y : f16 = arith.divf %h %h;": [
        "%0 = arith.extf %arg10 {zg.step} : f16 to f32",
        "%1 = arith.extf %arg10 {zg.step} : f16 to f32",
        "%2 = arith.divf %0, %1 : f32",
        "%3 = arith.truncf %2 {zg.step} : f32 to f16",
    ],
    "%y : f8e4m3 = arith.addf %e %e;": [
        "%0 = tt.fp_to_fp %arg12 {zg.step} : f8E4M3FN -> f32",
        "%1 = tt.fp_to_fp %arg12 {zg.step} : f8E4M3FN -> f32",
        "%2 = arith.addf %0, %1 : f32",
        "%3 = tt.fp_to_fp %2 {zg.step}, rounding = rtne : f32 -> f8E4M3FN",
    ],
    "%y : f16 = arith.addf %h %h;": ["%0 = arith.addf %arg10, %arg10 : f16"],
    "%y : f32 = math.tanh %x;": [
        '%0 = tt.extern_elementwise %arg2 {libname = "", libpath = "", pure = true, symbol = "__nv_tanhf"} : (f32) -> f32'  # noqa: E501
    ],
    "%y : f16 = math.roundeven %h;": [
        "%0 = arith.extf %arg10 {zg.step} : f16 to f32",
        '%1 = tt.extern_elementwise %0 {libname = "", libpath = "", pure = true, symbol = "__nv_rintf"} : (f32) -> f32',
        "%2 = arith.truncf %1 {zg.step} : f32 to f16",
    ],
    "%y : u32 = math.absi %u;": [],
    "%y : u32 = math.bitreverse %u;": [
        '%0 = tt.extern_elementwise %arg4 {libname = "", libpath = "", pure = true, symbol = "__nv_brev", zg.op = "math.bitreverse"} : (i32) -> i32'  # noqa: E501
    ],
    "%y : tensor<x16, f32> = arith.select %m %t %t;": [
        "%0 = arith.select %arg8, %arg5, %arg5 : tensor<16xi1>, tensor<16xf32>"
    ],
    '%y : i1 = arith.cmpi %p %p @"eq";': [
        "%0 = tt.ptr_to_int %arg0 {zg.step} : !tt.ptr<f32> -> i64",
        "%1 = tt.ptr_to_int %arg0 {zg.step} : !tt.ptr<f32> -> i64",
        "%2 = arith.cmpi eq, %0, %1 : i64",
    ],
    "%y : u32 = tt.mulhiui %u %u;": ["%0 = tt.mulhiui %arg4, %arg4 : i32"],
}


@pytest.mark.parametrize("body", CASES)
def test_lines(body: str, written):
    assert written(body) == CASES[body]
