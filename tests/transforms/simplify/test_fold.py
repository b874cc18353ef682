from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.codemodel.text.parser import parse
from ziggurat.transforms.simplify.dce import dce
from ziggurat.transforms.simplify.fold import fold


def clean(op: Any) -> Any:
    """Fold and show only what is left."""
    return dce(fold(op))


def test_the_example_of_the_documentation(becomes: Any) -> None:
    becomes(
        clean,
        """
        tt.func @"f" (%0 : i32)i32 -> {
            %1 : i32 = arith.constant @4;
            %2 : i32 = arith.constant @16;
            %3 : i32 = arith.muli %1 %2;
            %4 : tensor<x8, i32> = tt.splat %3;
            tt.print %4 @"";
            %5 : i1 = arith.cmpi %1 %2 @slt;
            %6 : i32 = scf.if %5
                ()i32 -> { %7 : i32 = arith.addi %0 %3; scf.yield %7; }
                ()i32 -> { scf.yield %1; };
            tt.return %6;
        };""",
        """
        tt.func @"f" (%0 : i32)i32 -> {
            %3 : i32 = arith.constant @64;
            %4 : tensor<x8, i32> = arith.constant @64;
            tt.print %4 @"";
            %7 : i32 = arith.addi %0 %3;
            tt.return %7;
        };""",
    )


IDENTITIES = [
    ("i32", "arith.addi %x %zero", "%x"),
    ("i32", "arith.addi %zero %x", "%x"),
    ("i32", "arith.subi %x %zero", "%x"),
    ("i32", "arith.muli %x %one", "%x"),
    ("i32", "arith.muli %x %zero", "0"),
    ("i32", "arith.muli %zero %x", "0"),
    ("i32", "arith.andi %x %ones", "%x"),
    ("i32", "arith.andi %x %zero", "0"),
    ("i32", "arith.ori %x %ones", "-1"),
    ("i32", "arith.ori %x %x", "%x"),
    ("i32", "arith.xori %x %x", "0"),
    ("i32", "arith.subi %x %x", "0"),
    ("i32", "arith.shli %x %zero", "%x"),
    ("i32", "arith.divsi %x %one", "%x"),
    ("i32", "arith.remsi %x %one", "0"),
    ("i32", "arith.maxsi %x %x", "%x"),
    ("i1", "arith.cmpi %x %x @sle", "true"),
    ("i1", "arith.cmpi %x %x @slt", "false"),
    ("i32", "arith.select %c %x %x", "%x"),
    ("f32", "arith.mulf %f %fone", "%f"),
    ("f32", "arith.divf %f %fone", "%f"),
    ("f32", "arith.subf %f %fzero", "%f"),
    ("f32", "arith.maximumf %f %f", "%f"),
    ("ptr<i32>", "tt.addptr %p %zero", "%p"),
    ("ptr<i32>", "tt.bitcast %p", "%p"),
]
SAME = [
    ("f32", "arith.addf %f %fzero"),  # -0.0 + 0.0 is 0.0
    ("f32", "arith.mulf %f %fzero"),  # NaN
    ("f32", "arith.subf %f %f"),  # infinity
    ("i1", "arith.cmpf %f %f @oeq"),
    ("i32", "arith.divsi %x %x"),
    ("i32", "arith.divsi %one %zero"),
    ("i32", "arith.remsi %one %zero"),
    ("i32", "arith.shli %one %thirtytwo"),
    ("i32", "arith.shrsi %one %ones"),
    ("i32", "arith.divsi %min %ones"),
    ("f32", "math.exp %fone"),
]
CONSTANTS = """
    %zero : i32 = arith.constant @0; %one : i32 = arith.constant @1; %ones : i32 = arith.constant @-1;
    %thirtytwo : i32 = arith.constant @32; %min : i32 = arith.constant @-2147483648;
    %fzero : f32 = arith.constant @0.0; %fone : f32 = arith.constant @1.0;
"""
PARAMETERS = "(%x : i32, %f : f32, %c : i1, %p : ptr<i32>)"


@pytest.mark.parametrize(("type_", "op", "expected"), IDENTITIES, ids=[case[1] for case in IDENTITIES])
def test_identities(type_: str, op: str, expected: str, becomes: Any) -> None:
    made = "" if expected.startswith("%") else f"%r : {type_} = arith.constant @{expected};"
    becomes(
        clean,
        f'tt.func @"f" {PARAMETERS}{type_} -> {{ {CONSTANTS} %r : {type_} = {op}; tt.return %r; }};',
        f'tt.func @"f" {PARAMETERS}{type_} -> {{ {made} tt.return {"%r" if made else expected}; }};',
    )


@pytest.mark.parametrize(("type_", "op"), SAME, ids=[case[1] for case in SAME])
def test_what_is_not_always_so_stays(type_: str, op: str) -> None:
    model = parse(f'tt.func @"f" {PARAMETERS}{type_} -> {{ {CONSTANTS} %r : {type_} = {op}; tt.return %r; }};')
    assert fold(model) is model


def test_tensors_of_one_number(becomes: Any) -> None:
    becomes(
        clean,
        """
        tt.func @"f" (%x : f32)void -> {
            %0 : f32 = arith.constant @0.5;
            %1 : tensor<x4, f32> = tt.splat %0;
            %2 : tensor<x4, x1, f32> = tt.expand_dims %1 @1;
            %3 : tensor<x4, x8, f32> = tt.broadcast %2;
            %4 : tensor<x32, f32> = tt.reshape %3;
            %5 : tensor<x32, f32> = arith.addf %4 %4;
            %6 : tensor<x1, i32> = tt.make_range @start=5 @end=6;
            tt.print %5 %6 @"constants";
            %7 : tensor<x4, f32> = tt.splat %x;
            %8 : tensor<x4, x1, f32> = tt.expand_dims %7 @1;
            %9 : tensor<x4, x8, f32> = tt.broadcast %8;
            %10 : tensor<x8, x4, f32> = tt.trans %9 @order=[1, 0];
            tt.print %10 @"splat";
            tt.return;
        };""",
        """
        tt.func @"f" (%x : f32)void -> {
            %5 : tensor<x32, f32> = arith.constant @1.0;
            %6 : tensor<x1, i32> = arith.constant @5;
            tt.print %5 %6 @"constants";
            %10 : tensor<x8, x4, f32> = tt.splat %x;
            tt.print %10 @"splat";
            tt.return;
        };""",
    )


def test_masks_that_are_known(becomes: Any) -> None:
    becomes(
        clean,
        """
        tt.func @"f" (%p : ptr<f32>, %x : f32)f32 -> {
            %yes : i1 = arith.constant @true;
            %no : i1 = arith.constant @false;
            %1 : f32 = tt.load %p %yes %x @cache=cg;
            %2 : f32 = tt.load %p %no %x;
            tt.store %p %1 %yes;
            tt.store %p %x %no;
            tt.assume %yes;
            tt.return %2;
        };""",
        """
        tt.func @"f" (%p : ptr<f32>, %x : f32)f32 -> {
            %1 : f32 = tt.load %p @cache=cg;
            tt.store %p %1;
            tt.return %x;
        };""",
    )


def test_loops_that_never_run(becomes: Any) -> None:
    becomes(
        clean,
        """
        tt.func @"f" (%x : i32, %y : i32)i32 -> {
            %0 : i32 = arith.constant @0;
            %1 : i32 = arith.constant @1;
            %n : i32 = arith.constant @-1;
            %2 : Tuple<i32, i32> = scf.for %1 %1 %1 %x %y (%i : i32, %a : i32, %b : i32)Tuple<i32, i32> -> {
                tt.print %a @"";
                scf.yield %b %a;
            };
            %3 : i32 = tuple.load %2 @1;
            %4 : i32 = scf.for %0 %1 %n %3 (%i : i32, %a : i32)i32 -> { tt.print %a @""; scf.yield %i; };
            %5 : i32 = scf.for %x %x %1 %4 (%i : i32, %a : i32)i32 -> { tt.print %a @""; scf.yield %i; };
            scf.for %x %x %0 (%i : i32)void -> { scf.yield; };
            tt.return %5;
        };""",
        """
        tt.func @"f" (%x : i32, %y : i32)i32 -> {
            %0 : i32 = arith.constant @0;
            scf.for %x %x %0 (%i : i32)void -> { scf.yield; };
            tt.return %y;
        };""",
    )


def test_a_while_whose_condition_is_false_runs_its_first_body_once(becomes: Any) -> None:
    becomes(
        clean,
        """
        tt.func @"f" (%x : i32)i32 -> {
            %no : i1 = arith.constant @false;
            %1 : i32 = scf.while %x
                (%a : i32)i32 -> { %b : i32 = arith.addi %a %a; tt.print %b @""; scf.condition %no %b; }
                (%a : i32)i32 -> { tt.print %a @"never"; scf.yield %a; };
            tt.return %1;
        };""",
        """
        tt.func @"f" (%x : i32)i32 -> {
            %b : i32 = arith.addi %x %x;
            tt.print %b @"";
            tt.return %b;
        };""",
    )


def test_carried_values_that_do_not_change(becomes: Any) -> None:
    becomes(
        clean,
        """
        tt.func @"f" (%n : i32, %x : i32, %y : i32)i32 -> {
            %0 : i32 = arith.constant @0;
            %1 : i32 = arith.constant @1;
            %2 : Tuple<i32, i32> = scf.for %0 %n %1 %x %y (%i : i32, %a : i32, %b : i32)Tuple<i32, i32> -> {
                %c : i32 = arith.addi %a %b;
                scf.yield %c %b;
            };
            %3 : i32 = tuple.load %2 @0;
            %4 : i32 = tuple.load %2 @1;
            %5 : i32 = arith.muli %3 %4;
            tt.return %5;
        };""",
        """
        tt.func @"f" (%n : i32, %x : i32, %y : i32)i32 -> {
            %0 : i32 = arith.constant @0;
            %1 : i32 = arith.constant @1;
            %2 : i32 = scf.for %0 %n %1 %x (%i : i32, %a : i32)i32 -> {
                %c : i32 = arith.addi %a %y;
                scf.yield %c;
            };
            %5 : i32 = arith.muli %2 %y;
            tt.return %5;
        };""",
    )


def test_a_branch_with_the_same_on_both_sides(becomes: Any) -> None:
    becomes(
        clean,
        """
        tt.func @"f" (%c : i1, %x : i32)i32 -> {
            %2 : Tuple<i32, i32> = scf.if %c
                ()Tuple<i32, i32> -> { tt.print %x @""; %k : i32 = arith.constant @3; scf.yield %x %k; }
                ()Tuple<i32, i32> -> { %k : i32 = arith.constant @3; scf.yield %x %k; };
            %3 : i32 = tuple.load %2 @0;
            %4 : i32 = tuple.load %2 @1;
            %5 : i32 = arith.addi %3 %4;
            tt.return %5;
        };""",
        """
        tt.func @"f" (%c : i1, %x : i32)i32 -> {
            scf.if %c
                ()void -> { tt.print %x @""; scf.yield; }
                ()void -> { scf.yield; };
            %4 : i32 = arith.constant @3;
            %5 : i32 = arith.addi %x %4;
            tt.return %5;
        };""",
    )


def test_ops_that_fold_makes_say_so() -> None:
    model = parse(
        """
        tt.func @"f" ()i32 -> {
            %1 : i32 = arith.constant @1 @loc="3:4:3:9:kernel.py";
            %2 : i32 = arith.addi %1 %1 @loc="4:4:4:9:kernel.py";
            tt.return %2;
        };"""
    )
    location = fold(model).bodies[0].entry.ops[1].location
    assert location is not None
    assert (location.line, location.by) == (4, "fold")


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=60)
def test_random_programs_do_the_same(seed: int, preserves: Any) -> None:
    preserves(fold, seed)
