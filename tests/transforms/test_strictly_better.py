"""Properties that the article's proof of concept lacks, and this compiler has.

Errors, the verifier, text, functions, attribution, removal of what is unused, and symbols; test_not_ours.py has the
defects.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import arith, core
from ziggurat.transforms.simplify.cse import cse

I32 = zg.ptr(zg.i32)
F32 = zg.ptr(zg.f32)


def names(model: Any) -> list[str]:
    return [op.NAME for op in model.walk()]


def run(kernel: Any, *arguments: Any, size: int) -> list[int]:
    """The array of `size` numbers that one program of a kernel writes to its first argument."""
    out = np.zeros(size, np.int32)
    kernel[1](out, *arguments, strict=True)
    return out.tolist()


# Errors.


@zg.kernel
def several_errors(out, x_ptr, n):
    x = zg.load(zg.add(x_ptr, zg.arange(0, 64)))
    y = zg.add(x, zg.arange(0, 32))
    z = zg.add(x_ptr, 1.5)
    zg.store(out, zg.arange(0, 4))


def test_errors_name_the_place_and_the_types_and_come_together():
    with pytest.raises(zg.KernelErrors) as caught:
        several_errors.triton(F32, F32, zg.i32)
    shapes, pointer, store = caught.value.errors
    assert all(error.location is not None and error.location.file == __file__ for error in caught.value.errors)
    assert [error.location.line for error in caught.value.errors] == sorted(
        error.location.line for error in caught.value.errors
    )
    assert "[64]" in str(shapes) and "[32]" in str(shapes)
    assert "zg.add(x, zg.arange(0, 32))" in str(shapes) and "^^^" in str(shapes)
    assert "zg.add(x_ptr, 1.5)" in str(pointer)
    assert "[4]" in str(store)


def test_a_call_that_does_not_exist_is_an_error_with_a_hint():
    @zg.kernel
    def misspelt(out):
        zg.store(out, zg.program_idx(0))  # pyright: ignore

    with pytest.raises(zg.KernelNameError, match="program_idx") as caught:
        misspelt.triton(I32)
    assert "program_id" in str(caught.value).replace("program_idx", "")


def test_compiling_prints_nothing(capsys: pytest.CaptureFixture[str]):
    assert zg.kernel(with_functions.fn).triton(I32, zg.i32, zg.i32)
    assert capsys.readouterr() == ("", "")


def test_the_parser_names_line_and_column():
    with pytest.raises(zg.ParseError, match=r":2:15: ") as caught:
        zg.parse('tt.func @"f" (%0 : i32)i32 -> {\n    tt.return %1;\n};')
    assert "tt.return %1" in str(caught.value)


# The verifier knows the types of the ops.


def test_the_verifier_checks_types_and_lists_all_violations():
    model = zg.parse(
        """
        tt.func @"f" (%0 : i32, %1 : f32, %2 : ptr<f32>)void -> {
            %3 : i32 = arith.addi %0 %1;
            tt.store %2 %0;
            tt.return;
        };"""
    )
    with pytest.raises(zg.VerifyError) as caught:
        zg.verify(model)
    assert "arith.addi" in str(caught.value) and "tt.store" in str(caught.value)


# Text that reads back as what it was.


def test_every_attribute_reads_back():
    text = """
        tt.func @"f" (%0 : tensor<x4, x8, i32>, %1 : tensor<x4, x8, i32>)tensor<x8, x4, i1> -> {
            %2 : tensor<x4, x8, i1> = arith.cmpi %0 %1 @slt;
            %3 : tensor<x4, x8, i32> = arith.remsi %0 %1;
            %4 : tensor<x8, x4, i1> = tt.trans %2 @order=[1, 0];
            tt.return %4;
        };"""
    model = zg.parse(text)
    zg.verify(model)
    assert "@slt" in str(model) and "@order=[1, 0]" in str(model)
    assert zg.same_model(zg.parse(str(model)), model)
    assert type(model.bodies[0].entry.ops[1]) is arith.RemSI


def test_both_spellings_of_the_proof_of_concept_are_read():
    ours = 'tt.func @"f_i32_i32" (%0 : i32)i32 -> { %1 : i32 = arith.constant @64; tt.return %1; };'
    first = 'tt.func @"f_int_int" (%0 : int)int -> { %1 : int = arith.constant @"64"; tt.return %1; };'
    later = first.replace(": int", ': java.type:"int"').replace(")int", ')java.type:"int"').replace('"64"', "64")
    assert zg.same_model(zg.parse(first), zg.parse(later)) and zg.same_model(zg.parse(later), zg.parse(ours))


def test_text_is_deterministic():
    first = with_functions.triton(I32, zg.i32, zg.i32)
    again = zg.kernel(with_functions.fn).triton(I32, zg.i32, zg.i32)
    assert first is not again and zg.same_model(first, again)
    assert str(first) == str(again) and str(zg.parse(str(first))) == str(first)


# Functions.


@zg.function
def divided(a, b, rounded: zg.constexpr = False):
    if rounded:
        return (a + b // 2) // b, a % b
    return a // b, a % b


@zg.kernel
def with_functions(out, a, b):
    quotient, rest = divided(a, b)
    nearest, _ = divided(a, b=b, rounded=True)
    zg.store(out, quotient)
    zg.store(zg.add(out, 1), rest)
    zg.store(zg.add(out, 2), nearest)


def test_functions_take_keywords_and_give_tuples():
    assert run(with_functions, 17, 3, size=3) == [5, 2, 6]
    assert run(with_functions, -17, 3, size=3) == [-5, -2, -5]  # As C rounds.


# Attribution joins types where control flow meets, and goes on until the types of a loop are settled.


@zg.kernel
def settled(out, n):
    a, b, c = 0, 0, 0
    for i in range(n):
        c = b
        b = a
        a = i + 1
    zg.store(out, a)
    zg.store(zg.add(out, 1), b)
    zg.store(zg.add(out, 2), c)


def test_types_are_settled_over_the_loop():
    assert run(settled, 5, size=3) == [5, 4, 3]


@zg.kernel
def changes_its_shape(out, n):
    x = zg.arange(0, 4)
    for _ in range(n):
        x = zg.expand(x, 0)
    zg.store(zg.add(out, zg.arange(0, 4)), x)


def test_a_variable_that_changes_its_shape_in_a_loop_is_refused():
    with pytest.raises(zg.KernelTypeError, match="'x' must keep its type in the loop; got tensor<x4, i32> before it"):
        changes_its_shape.triton(I32, zg.i32)


# Removal of unused ops goes all the way; loads are reads.


@zg.kernel
def in_vain(out, a):
    b = a + 1
    c = b * 2
    d = zg.full((4,), c, zg.i32)
    zg.load(zg.add(out, a))
    zg.store(out, a)


def test_unused_ops_go_with_what_only_they_use():
    assert names(in_vain.triton(I32, zg.i32)) == ["module", "tt.func", "tt.store", "tt.return", "unreachable"]


@zg.kernel
def exchanged(out):
    before = zg.load(out)
    zg.store(out, before + 1)
    zg.debug_barrier()  # The program reads what it has written.
    after = zg.load(out)
    zg.store(zg.add(out, 1), before * 10 + after)


def test_loads_do_not_move_over_stores():
    assert names(cse(exchanged.triton(I32))).count("tt.load") == 2
    assert run(exchanged, size=2) == [1, 1]


# Symbols tell all instances apart; results may be several.


@zg.function
def halved(x, y):
    return zg.add(x, y)


@zg.kernel
def many_instances(out):
    small, large = zg.arange(0, 4), zg.arange(0, 8)
    zg.store(zg.add(out, small), halved(small, 1))
    zg.store(zg.add(out, zg.add(large, 4)), halved(large, 1))
    zg.store(zg.add(out, zg.add(small, 12)), halved(small, 2))
    zg.store(zg.add(out, zg.add(small, 16)), halved(small, zg.cast(small, zg.i8)))


def test_symbols_hold_shapes_dtypes_and_constants():
    model = many_instances.triton(I32)
    assert isinstance(model, core.Module)
    *callees, _ = model.functions()
    assert callees == [
        "halved_tensor<x4, i32>_1_tensor<x4, i32>",
        "halved_tensor<x8, i32>_1_tensor<x8, i32>",
        "halved_tensor<x4, i32>_2_tensor<x4, i32>",
        "halved_tensor<x4, i32>_tensor<x4, i8>_tensor<x4, i32>",
    ]
    expected = [*(i + 1 for i in range(4)), *(i + 1 for i in range(8)), *(i + 2 for i in range(4)), 0, 2, 4, 6]
    assert run(many_instances, size=20) == expected
