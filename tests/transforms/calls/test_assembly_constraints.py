"""Constraints of inline assembly that are not those of its results and operands, and what is said of them."""

from __future__ import annotations

import pytest

from ziggurat.codemodel.errors import KernelValueError
from ziggurat.codemodel.types import PtrType, ScalarType, TensorType, f16, f32, f64, i1, i8, i16, i32, i64, u8
from ziggurat.transforms.calls.assembly_constraints import check_assembly, per_register
from ziggurat.transforms.calls.promotion import constant

P = PtrType(f32)


def tensor(element: ScalarType) -> TensorType:
    return TensorType((16,), element)


@pytest.mark.parametrize(
    ("constraints", "arguments", "results", "pack"),
    [
        ("=r,r", [i32], [i32], 1),
        ("=r, r", [tensor(i32)], [tensor(i32)], 1),
        ("=f,f", [f32], [f32], 1),
        ("=r,f", [f32], [i32], 1),
        ("=f,r", [i32], [f32], 1),
        ("=&r,=l,d,l", [f64, P], [i32, i64], 1),
        ("=d,l", [i64], [f64], 1),
        ("=h,h,r,c", [f16, i16, i8], [f16], 1),
        ("=b,b,r", [i1, i1], [i1], 1),
        ("=r,r", [tensor(f16)], [tensor(f16)], 2),
        ("=r,=r,r,r", [tensor(f16)], [tensor(f16)], 4),
        ("=r,=f,=f,=f,=f,r", [tensor(u8)], [tensor(u8), tensor(f32)], 4),
        ("=r,r,~{memory}", [i32], [i32], 1),
        ("=r,0", [i32], [i32], 1),
        ("=r,n", [constant(5)], [i32], 1),
        ("=r,r", [constant(5)], [i32], 1),
        ("=r", [], [i32], 1),
    ],
)
def test_what_fits(constraints, arguments, results, pack):
    check_assembly("asm", "mov $0, $0; $$ ${0} ${:uid}", constraints, arguments, results, pack)


@pytest.mark.parametrize(
    ("constraints", "arguments", "results", "pack", "words", "hint"),
    [
        ("", [i32], [i32], 1, "name 0 registers; 1 register of results and 1 of operands", "'=r,r' fits"),
        ("=r", [i32], [i32], 1, "name 1 register;", "'=r,r' fits"),
        ("=r,r,r", [f32], [f64], 1, "name 3 registers", "'=d,f' fits"),
        ("=r,r", [tensor(f16)], [tensor(f32)], 2, "2 registers of results and 1 of operands", "'=f,=f,r' fits"),
        ("=r,,r", [i32], [i32], 1, "name 3 registers", "'=r,r'"),
        ("r,r", [i32], [i32], 1, "results come first, and begin with '='", "'=r,r'"),
        ("=r,=r", [i32], [i32], 1, "stands for an operand", "'=r,r'"),
        ("+r,r", [i32], [i32], 1, "what is read and written", "'=r,0'"),
        ("=q,r", [i32], [i32], 1, "'=q' is none of PTX's", "'=r,r'"),
        ("=r,x", [i32], [i32], 1, "'x' is none of PTX's: b (a predicate)", "'=r,r'"),
        ("=l,r", [i32], [i32], 1, "'=l' is a register of 64 bits; the result has 32 in one, i32", "'=r,r'"),
        ("=r,h", [i32], [i32], 1, "'h' is a register of 16 bits; the operand has 32 in one, i32", "'=r,r'"),
        ("=r,f", [f16], [i32], 1, "'f' is a register of 32 bits; the operand has 16", "'=r,h'"),
        ("=h,r", [tensor(f16)], [tensor(f16)], 2, "the result has 32 in one, 2 elements of f16", "pack=2"),
        ("=r,r", [P], [i32], 1, "the operand has 64 in one, ptr<f32>", "'=r,l'"),
        ("=r,b", [i32], [i32], 1, "'b' is a register of 1 bit;", "'=r,r'"),
        ("=r,r", [constant(0.5)], [i64], 1, "'=r' is a register of 32 bits", "'=l,f'"),
        ("=r,1", [i32], [i32], 1, "'1' is the number of no result", "'=r,r'"),
        ("=f,0", [i64], [f32], 1, "'0' is a register of 32 bits; the operand has 64", "'=f,l'"),
        ("=r,n", [i32], [i32], 1, "'n' must be an integer known at compile time; got i32", "'=r,r'"),
        ("=r,n", [constant(0.5)], [i32], 1, "'n' must be an integer known", "'=r,f'"),
        ("=r,r,~memory", [i32], [i32], 1, "'~memory' is no clobber", "~{memory}"),
    ],
)
def test_what_does_not(constraints, arguments, results, pack, words, hint):
    with pytest.raises(KernelValueError) as error_info:
        check_assembly("asm", "", constraints, arguments, results, pack)
    assert words in error_info.value.summary
    assert hint in str(error_info.value.hint)


def test_registers_that_the_text_names_exist():
    check_assembly("asm", "mov $1, $0; // $$7", "=r,r", [i32], [i32], 1)
    with pytest.raises(KernelValueError, match=r"names \$2, and the constraints have \$0 to \$1"):
        check_assembly("asm", "add $0, $1, $2;", "=r,r", [i32], [i32], 1)
    with pytest.raises(KernelValueError, match=r"names \$3"):
        check_assembly("asm", "add $0, ${3};", "=r,r", [i32], [i32], 1)
    with pytest.raises(KernelValueError, match=r"must begin \$0"):
        check_assembly("asm", "add $0, ${1:x};", "=r,r", [i32], [i32], 1)


def test_elements_of_a_register():
    assert [per_register(t, 4) for t in (i1, u8, f16, f32, f64, P)] == [4, 4, 2, 1, 1, 1]
    assert [per_register(t, 1) for t in (u8, f16, f64)] == [1, 1, 1] and per_register(u8, 2) == 2
