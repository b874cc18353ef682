"""From one dtype to another."""

from __future__ import annotations

import pytest

CASES = {
    "zg.cast(t, zg.f16)": "tensor<x16, f16>",
    "zg.cast(t, zg.i32)": "tensor<x16, i32>",
    "zg.cast(x, zg.i1)": "i1",
    "zg.cast(p, zg.i64)": "i64",
    "zg.cast(p, zg.i32)": "error: casts to zg.i64",
    "zg.cast(p, BYTES)": "ptr<i8>",
    "zg.cast(x, BYTES)": "error: only pointers, i64 and u64",
    "zg.cast(f, zg.f16, 'rtz')": "tensor<x16, f16>",
    "zg.cast(f, zg.f16, fp_downcast_rounding='up')": "error: 'rtne' or 'rtz'",
    "zg.cast(t, zg.f16, 'rtz')": "error: to a narrower float",
    "zg.cast(f, zg.i32, bitcast=True)": "tensor<x16, i32>",
    "zg.cast(f, zg.i64, bitcast=True)": "error: keeps the width",
    "zg.cast(f, 'f16')": "tensor<x16, f16>",
    "zg.cast(f, 'f99')": "error: a dtype such as",
    "zg.cast(300, zg.u8)": "error: does not fit in u8",
    "zg.bitcast(f, zg.u32)": "tensor<x16, u32>",
    "zg.bitcast(f, zg.f16)": "error: keeps the width",
    "zg.bitcast(p, zg.i64)": "error: the operands must be numbers",
    "zg.cast(t, x)": "error: must be known at compile time",
}


@pytest.mark.parametrize("expression", CASES)
def test_calls(expression: str, check):
    check(expression, CASES[expression])
