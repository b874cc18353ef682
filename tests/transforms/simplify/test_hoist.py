from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.codemodel.text.parser import parse
from ziggurat.transforms.simplify.hoist import hoist


def test_invariant_ops_leave_all_their_loops(becomes: Any) -> None:
    becomes(
        hoist,
        """
        tt.func @"f" (%0 : i32, %1 : i32, %c : i1)void -> {
            scf.for %0 %1 %1 (%i : i32)void -> {
                scf.while
                    ()void -> {
                        %2 : i32 = arith.muli %0 %1;
                        tt.print %2 @"";
                        scf.condition %c;
                    }
                    ()void -> {
                        %3 : i32 = arith.constant @8;
                        %4 : i32 = arith.divsi %0 %3;
                        %5 : i32 = arith.addi %4 %i;
                        %6 : i32 = arith.divsi %0 %1;
                        scf.if %c
                            ()void -> { %7 : i32 = arith.subi %0 %1; tt.print %7 @""; scf.yield; }
                            ()void -> { scf.yield; };
                        tt.print %5 %6 @"";
                        scf.yield;
                    };
                scf.yield;
            };
            tt.return;
        };""",
        """
        tt.func @"f" (%0 : i32, %1 : i32, %c : i1)void -> {
            %2 : i32 = arith.muli %0 %1;
            %3 : i32 = arith.constant @8;
            %4 : i32 = arith.divsi %0 %3;
            scf.for %0 %1 %1 (%i : i32)void -> {
                %5 : i32 = arith.addi %4 %i;
                scf.while
                    ()void -> {
                        tt.print %2 @"";
                        scf.condition %c;
                    }
                    ()void -> {
                        %6 : i32 = arith.divsi %0 %1;
                        scf.if %c
                            ()void -> { %7 : i32 = arith.subi %0 %1; tt.print %7 @""; scf.yield; }
                            ()void -> { scf.yield; };
                        tt.print %5 %6 @"";
                        scf.yield;
                    };
                scf.yield;
            };
            tt.return;
        };""",
    )


def test_reads_leave_loops_that_surely_read_and_never_write(becomes: Any) -> None:
    becomes(
        hoist,
        """
        tt.func @"f" (%p : ptr<i32>, %n : i32)void -> {
            %0 : i32 = arith.constant @0;
            %1 : i32 = arith.constant @1;
            scf.for %0 %1 %1 (%i : i32)void -> { %2 : i32 = tt.load %p; tt.print %2 @"runs"; scf.yield; };
            scf.for %1 %0 %1 (%i : i32)void -> { %2 : i32 = tt.load %p; tt.print %2 @"does not"; scf.yield; };
            scf.for %0 %n %1 (%i : i32)void -> { %2 : i32 = tt.load %p; tt.print %2 @"may not"; scf.yield; };
            scf.for %0 %1 %1 (%i : i32)void -> { %2 : i32 = tt.load %p; tt.store %p %i; tt.print %2 @""; scf.yield; };
            scf.for %0 %1 %1 (%i : i32)void -> {
                %c : i1 = arith.cmpi %i %0 @eq;
                tt.assert %c @"first";
                %2 : i32 = tt.load %p;
                tt.print %2 @"may fail before";
                scf.yield;
            };
            scf.while
                ()void -> {
                    %2 : i32 = tt.load %p;
                    %c : i1 = arith.cmpi %2 %0 @eq;
                    tt.print %2 @"";
                    scf.condition %c;
                }
                ()void -> { %2 : i32 = tt.load %p @cache=cg; tt.print %2 @""; scf.yield; };
            tt.return;
        };""",
        """
        tt.func @"f" (%p : ptr<i32>, %n : i32)void -> {
            %0 : i32 = arith.constant @0;
            %1 : i32 = arith.constant @1;
            %l : i32 = tt.load %p;
            scf.for %0 %1 %1 (%i : i32)void -> { tt.print %l @"runs"; scf.yield; };
            scf.for %1 %0 %1 (%i : i32)void -> { %2 : i32 = tt.load %p; tt.print %2 @"does not"; scf.yield; };
            scf.for %0 %n %1 (%i : i32)void -> { %2 : i32 = tt.load %p; tt.print %2 @"may not"; scf.yield; };
            scf.for %0 %1 %1 (%i : i32)void -> { %2 : i32 = tt.load %p; tt.store %p %i; tt.print %2 @""; scf.yield; };
            scf.for %0 %1 %1 (%i : i32)void -> {
                %c : i1 = arith.cmpi %i %0 @eq;
                tt.assert %c @"first";
                %2 : i32 = tt.load %p;
                tt.print %2 @"may fail before";
                scf.yield;
            };
            %2 : i32 = tt.load %p;
            %c : i1 = arith.cmpi %2 %0 @eq;
            scf.while
                ()void -> { tt.print %2 @""; scf.condition %c; }
                ()void -> { %3 : i32 = tt.load %p @cache=cg; tt.print %3 @""; scf.yield; };
            tt.return;
        };""",
    )


def test_a_loop_may_keep_its_ops() -> None:
    model = parse(
        """
        tt.func @"f" (%0 : i32)void -> {
            scf.for %0 %0 %0 @disable_licm=true (%i : i32)void -> {
                %1 : i32 = arith.constant @8;
                tt.print %1 @"";
                scf.yield;
            };
            tt.return;
        };"""
    )
    assert hoist(model) is model


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=60)
def test_random_programs_do_the_same(seed: int, preserves: Any) -> None:
    preserves(hoist, seed)
