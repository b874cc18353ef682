from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.codemodel.text.parser import parse
from ziggurat.transforms.simplify.cse import cse


def test_equal_ops_are_shared_into_bodies_but_not_out_of_them(becomes: Any) -> None:
    becomes(
        cse,
        """
        tt.func @"f" (%0 : i32, %1 : i32, %c : i1)void -> {
            scf.if %c
                ()void -> { %a : i32 = arith.muli %0 %1; tt.print %a @""; scf.yield; }
                ()void -> { %a : i32 = arith.muli %0 %1; tt.print %a @""; scf.yield; };
            %2 : i32 = arith.addi %0 %1;
            %3 : i32 = arith.addi %1 %0;
            %4 : i32 = arith.subi %0 %1;
            %5 : i32 = arith.subi %1 %0;
            %6 : i32 = arith.muli %2 %4;
            %7 : i32 = arith.muli %3 %4;
            scf.if %c
                ()void -> { %a : i32 = arith.addi %0 %1; tt.print %a %7 @""; scf.yield; }
                ()void -> { scf.yield; };
            tt.print %5 %6 @"";
            tt.return;
        };""",
        """
        tt.func @"f" (%0 : i32, %1 : i32, %c : i1)void -> {
            scf.if %c
                ()void -> { %a : i32 = arith.muli %0 %1; tt.print %a @""; scf.yield; }
                ()void -> { %a : i32 = arith.muli %0 %1; tt.print %a @""; scf.yield; };
            %2 : i32 = arith.addi %0 %1;
            %4 : i32 = arith.subi %0 %1;
            %5 : i32 = arith.subi %1 %0;
            %6 : i32 = arith.muli %2 %4;
            scf.if %c
                ()void -> { tt.print %2 %6 @""; scf.yield; }
                ()void -> { scf.yield; };
            tt.print %5 %6 @"";
            tt.return;
        };""",
    )


def test_attributes_and_types_tell_ops_apart() -> None:
    model = parse(
        """
        tt.func @"f" (%0 : i32, %1 : i32)void -> {
            %2 : i1 = arith.cmpi %0 %1 @slt;
            %3 : i1 = arith.cmpi %0 %1 @sle;
            %4 : i32 = arith.constant @0;
            %5 : i64 = arith.constant @0;
            %6 : f32 = arith.constant @0.0;
            %7 : f32 = arith.constant @-0.0;
            %8 : tensor<x4, i32> = tt.splat %0;
            %9 : tensor<x8, i32> = tt.splat %0;
            tt.print %2 %3 %4 %5 %6 %7 %8 %9 @"";
            tt.return;
        };"""
    )
    assert cse(model) is model


def test_reads_are_shared_until_something_may_write(becomes: Any) -> None:
    becomes(
        cse,
        """
        tt.func @"f" (%p : ptr<i32>, %q : ptr<i32>, %c : i1, %x : i32)void -> {
            %1 : i32 = tt.load %p;
            %2 : i32 = tt.load %p;
            %3 : i32 = tt.load %p %c %x;
            %4 : i32 = tt.load %p @volatile=true;
            %5 : i32 = tt.load %p;
            %6 : i32 = tt.load %p;
            scf.if %c
                ()void -> { tt.store %q %1; scf.yield; }
                ()void -> { %7 : i32 = tt.load %p; tt.print %7 @"other block"; scf.yield; };
            %8 : i32 = tt.load %p;
            tt.print %1 %2 %3 %4 %5 %6 %8 @"";
            %9 : i32 = tt.load %p;
            tt.call %p @"f";
            %10 : i32 = tt.load %p;
            tt.print %9 %10 @"";
            tt.return;
        };""",
        """
        tt.func @"f" (%p : ptr<i32>, %q : ptr<i32>, %c : i1, %x : i32)void -> {
            %1 : i32 = tt.load %p;
            %3 : i32 = tt.load %p %c %x;
            %4 : i32 = tt.load %p @volatile=true;
            %5 : i32 = tt.load %p;
            scf.if %c
                ()void -> { tt.store %q %1; scf.yield; }
                ()void -> { %7 : i32 = tt.load %p; tt.print %7 @"other block"; scf.yield; };
            %8 : i32 = tt.load %p;
            tt.print %1 %1 %3 %4 %5 %5 %8 @"";
            tt.call %p @"f";
            %10 : i32 = tt.load %p;
            tt.print %8 %10 @"";
            tt.return;
        };""",
    )


def test_reductions_are_equal_when_their_bodies_are(becomes: Any) -> None:
    reduce = (
        "%{} : f32 = tt.reduce %0 @axis=0 (%a : f32, %b : f32)f32 -> {{ %c : f32 = {} %a %b; tt.reduce.return %c; }};"
    )
    first, second, third = (
        reduce.format(i, op) for i, op in enumerate(("arith.addf", "arith.mulf", "arith.addf"), start=1)
    )
    becomes(
        cse,
        f'tt.func @"f" (%0 : tensor<x4, f32>)void -> {{ {first} {second} {third} tt.print %1 %2 %3 @""; tt.return; }};',
        f'tt.func @"f" (%0 : tensor<x4, f32>)void -> {{ {first} {second} tt.print %1 %2 %1 @""; tt.return; }};',
    )


def test_over_blocks_by_dominance(becomes: Any) -> None:
    becomes(
        cse,
        """
        tt.func @"f" (%0 : i32, %c : i1)i32 -> {
            %1 : i32 = arith.addi %0 %0;
            cf.cond_br %c ^a ^b;
          ^a:
            %2 : i32 = arith.addi %0 %0;
            %3 : i32 = arith.muli %0 %2;
            cf.br ^c(%3);
          ^b:
            %4 : i32 = arith.muli %0 %1;
            cf.br ^c(%4);
          ^c(%5 : i32):
            %6 : i32 = arith.muli %0 %1;
            %7 : i32 = arith.addi %5 %6;
            tt.return %7;
        };""",
        """
        tt.func @"f" (%0 : i32, %c : i1)i32 -> {
            %1 : i32 = arith.addi %0 %0;
            cf.cond_br %c ^a ^b;
          ^a:
            %3 : i32 = arith.muli %0 %1;
            cf.br ^c(%3);
          ^b:
            %4 : i32 = arith.muli %0 %1;
            cf.br ^c(%4);
          ^c(%5 : i32):
            %6 : i32 = arith.muli %0 %1;
            %7 : i32 = arith.addi %5 %6;
            tt.return %7;
        };""",
    )


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=60)
def test_random_programs_do_the_same(seed: int, preserves: Any) -> None:
    preserves(cse, seed)
