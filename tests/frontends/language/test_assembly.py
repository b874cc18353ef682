"""PTX by hand."""

from __future__ import annotations

import pytest

ASM = "zg.inline_asm_elementwise"
CASES = {
    f"{ASM}('mov $0, $1', '=r,r', (t,), zg.i32, True, 1)": "tensor<x16, i32>",
    f"{ASM}('', '=r,=f,r,r', (t, n), (zg.i32, zg.f32), True, 1)": "Tuple<tensor<x16, i32>, tensor<x16, f32>>",
    f"{ASM}(asm='a', constraints='=r,f,f', args=(x,), dtype=zg.f16, is_pure=True, pack=2)": "f16",
    f"{ASM}('mov.u32 $0, %smid;', '=r', (), zg.i32, False, 1)": "i32",
    f"{ASM}('a', '=r,=l', (), (zg.i32, zg.u64), False, 1)": "Tuple<i32, u64>",
    f"{ASM}('a', '=r', (), None, True, 1)": "error: a dtype such as zg.f32, or a tuple",
    f"{ASM}('a', '=r', (t, zg.arange(0, 8)), zg.i32, True, 1)": "error: do not match",
    f"{ASM}('a', '=r', (t,), zg.i32, True, 3)": "error: a power of two",
    f"{ASM}(n, '=r', (t,), zg.i32, True, 1)": "error: must be known",
    f"{ASM}('a', '=r', (t,), 'i32', True, 1)": "error: the constraints '=r' name 1 register",
    f"{ASM}('a', '=r', (t,), zg.i32, 1, 1)": "error: True or False",
    f"{ASM}('a', '=r', (t,), zg.i32, True, 1)": "error: 1 register of results and 1 of operands are needed",
}


@pytest.mark.parametrize("expression", CASES)
def test_calls(expression: str, check):
    check(expression, CASES[expression])
