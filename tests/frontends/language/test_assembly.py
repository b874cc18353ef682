"""PTX by hand."""

from __future__ import annotations

import pytest

CASES = {
    "zg.inline_asm_elementwise('mov $0, $1', '=r,r', (t,), zg.i32, True, 1)": "tensor<x16, i32>",
    "zg.inline_asm_elementwise('', '', (t, n), (zg.i32, zg.f32), True, 1)": "Tuple<tensor<x16, i32>, tensor<x16, f32>>",
    "zg.inline_asm_elementwise(asm='a', constraints='=r,r', args=(x,), dtype=zg.f16, is_pure=True, pack=2)": "f16",
    "zg.inline_asm_elementwise('a', '=r', (t, zg.arange(0, 8)), zg.i32, True, 1)": "error: do not match",
    "zg.inline_asm_elementwise('a', '=r', (t,), zg.i32, True, 3)": "error: a power of two",
    "zg.inline_asm_elementwise(n, '=r', (t,), zg.i32, True, 1)": "error: must be known",
    "zg.inline_asm_elementwise('a', '=r', (t,), 'i32', True, 1)": "error: a dtype such as zg.f32, or a tuple",
    "zg.inline_asm_elementwise('a', '=r', (t,), zg.i32, 1, 1)": "error: True or False",
}


@pytest.mark.parametrize("expression", CASES)
def test_calls(expression: str, check):
    check(expression, CASES[expression])
