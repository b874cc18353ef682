"""Dots."""

from __future__ import annotations

import pytest

CASES = {
    "zg.dot(m, zg.trans(m))": "tensor<x4, x4, f32>",
    "zg.dot(m, m)": "error: the inner sizes differ",
    "zg.dot(zg.zeros((16, 16), zg.i8), zg.zeros((16, 16), zg.i8))": "tensor<x16, x16, i32>",
    "zg.dot(zg.zeros((16, 16), zg.i32), zg.zeros((16, 16), zg.i32))": "error: floats or 8-bit integers",
    "zg.dot(m, zg.zeros((16, 4), zg.f16))": "error: the operands must be of one element type",
    "zg.dot(m, zg.trans(m), zg.zeros((4, 4), zg.f32), input_precision='ieee')": "tensor<x4, x4, f32>",
    "zg.dot(m, zg.trans(m), input_precision='half')": "error: input_precision must be",
    "zg.dot(m, zg.trans(m), acc=m)": "error: the accumulator must have the shape",
    "zg.dot(zg.zeros((2, 16, 16), zg.f16), zg.zeros((2, 16, 16), zg.f16))": "tensor<x2, x16, x16, f32>",
    "zg.dot(m, zg.trans(m), input_precision='bf16x6')": "tensor<x4, x4, f32>",
    "zg.dot(zg.cast(w, zg.f8e4m3), zg.cast(w, zg.f8e5m2))": "tensor<x16, x16, f32>",
    "zg.dot(zg.cast(w, zg.f8e4m3), zg.cast(w, zg.i8))": "error: or both 8-bit floats or integers",
    "zg.dot(w, w, out_dtype=zg.f16)": "tensor<x16, x16, f16>",
    "zg.dot(w, w, out_dtype=zg.bf16)": "error: accumulates in f32 or f16; got bf16",
    "zg.dot(w, w, zg.zeros((16, 16), zg.f32), out_dtype=zg.f16)": "error: the accumulator must be f16, as 'out_dtype'",
    "zg.dot(zg.cast(w, zg.f8e4m3), zg.cast(w, zg.f8e5m2), max_num_imprecise_acc=32)": "error: must be from 0 to 16",
    "zg.dot(zg.zeros((2, 2, 4, 8), zg.f16), zg.zeros((2, 2, 8, 4), zg.f16))": "tensor<x2, x2, x4, x4, f32>",
    "zg.dot(zg.zeros((2, 4, 4, 8), zg.f16), zg.zeros((4, 2, 8, 4), zg.f16))": "error: two equal batches of them",
    "zg.dot(t, t)": "error: two matrices",
    "zg.dot(w, w, w)": "tensor<x16, x16, f16>",
}


BYTES = "zg.zeros((16, 64), zg.u8)"
SCALES = "zg.zeros((16, 2), zg.u8)"
# Calls of dot_scaled by their arguments.
SCALED = {
    f"{BYTES}, {SCALES}, 'e4m3', zg.trans({BYTES}), None, 'e5m2'": "tensor<x16, x16, f32>",
    f"{BYTES}, None, 'e2m1', zg.zeros((128, 16), zg.f16), None, 'fp16', out_dtype=zg.f16": "tensor<x16, x16, f16>",
    f"{BYTES}, {SCALES}, 'e2m1', zg.trans({BYTES}), None, 'e4m3', lhs_k_pack=False": "error: [32, 2]; got",
    f"{BYTES}, None, 'e2m1', zg.trans({BYTES}), None, 'e4m3', lhs_k_pack=False": "tensor<x32, x16, f32>",
    f"{BYTES}, None, 'e2m1', zg.trans({BYTES}), None, 'e4m3'": "error: equally many elements along K; got [16, 128]",
    f"{BYTES}, None, 'e4m3', zg.trans({BYTES}), None, 'e4m3', rhs_k_pack=False": "error: 'rhs_k_pack' must be True",
    f"{BYTES}, None, 'e3m0', {BYTES}, None, 'e4m3'": "error: lhs_format must be one of 'e2m1', 'e4m3', 'e5m2'",
    f"{BYTES}, None, 'bf16', {BYTES}, None, 'e4m3'": "error: 'lhs' of the format 'bf16' must be bf16 or u16",
    f"{BYTES}, m, 'e4m3', zg.trans({BYTES}), None, 'e4m3'": "error: 'lhs_scale' must be u8 or i8 (exponents) or f8e4m3",
    "t, None, 'e4m3', t, None, 'e4m3'": "error: 'lhs' of the format 'e4m3' must be f8e4m3 or u8",
    "zg.cast(t, zg.u8), None, 'e4m3', w, None, 'e4m3'": "error: 'lhs' must be a matrix, or a batch of them",
    f"{BYTES}, None, 'e4m3', zg.trans({BYTES}), None, 'e4m3', m": "error: the accumulator must have the shape",
}


@pytest.mark.parametrize("arguments", SCALED)
def test_calls_with_scales(arguments: str, check):
    check(f"zg.dot_scaled({arguments})", SCALED[arguments])


@pytest.mark.parametrize("expression", CASES)
def test_calls(expression: str, check):
    check(expression, CASES[expression])
