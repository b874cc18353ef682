from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.parser import parse
from ziggurat.transforms.simplify.lower_structured import lower_structured
from ziggurat.transforms.simplify.normalize_blocks import normalize_blocks


def test_blocks_are_merged_and_passed_over(becomes: Any) -> None:
    becomes(
        normalize_blocks,
        """
        tt.func @"f" (%0 : i32, %c : i1)i32 -> {
            cf.cond_br %c ^a ^b;
          ^a:
            %1 : i32 = arith.addi %0 %0;
            cf.br ^c(%0, %1);
          ^b:
            cf.br ^c(%0, %0);
          ^c(%2 : i32, %3 : i32):
            cf.br ^d;
          ^d:
            %4 : i32 = arith.muli %2 %3;
            tt.return %4;
        };""",
        """
        tt.func @"f" (%0 : i32, %c : i1)i32 -> {
            cf.cond_br %c ^a ^c(%0);
          ^a:
            %1 : i32 = arith.addi %0 %0;
            cf.br ^c(%1);
          ^c(%3 : i32):
            %4 : i32 = arith.muli %0 %3;
            tt.return %4;
        };""",
    )


def test_parameters_that_only_compute_themselves_go(becomes: Any) -> None:
    becomes(
        normalize_blocks,
        """
        tt.func @"f" (%0 : i32, %c : i1)void -> {
            cf.br ^a(%0, %0, %0);
          ^a(%1 : i32, %2 : i32, %3 : i32):
            tt.print %3 @"";
            cf.cond_br %c ^a(%2, %1, %3) ^b(%1);
          ^b(%4 : i32):
            tt.return;
        };""",
        """
        tt.func @"f" (%0 : i32, %c : i1)void -> {
            cf.br ^a;
          ^a:
            tt.print %0 @"";
            cf.cond_br %c ^a ^b;
          ^b:
            tt.return;
        };""",
    )


def test_constants_decide(becomes: Any) -> None:
    becomes(
        normalize_blocks,
        """
        tt.func @"f" (%0 : i32, %c : i1)i32 -> {
            %no : i1 = arith.constant @false;
            cf.cond_br %no ^a ^b;
          ^a:
            cf.br ^c(%0);
          ^b:
            %1 : i32 = arith.addi %0 %0;
            cf.br ^c(%1);
          ^c(%2 : i32):
            %3 : i32 = arith.muli %2 %2;
            tt.return %3;
        };""",
        """
        tt.func @"f" (%0 : i32, %c : i1)i32 -> {
            %no : i1 = arith.constant @false;
            %1 : i32 = arith.addi %0 %0;
            %3 : i32 = arith.muli %1 %1;
            tt.return %3;
        };""",
    )


def test_a_branch_on_a_parameter_is_threaded(becomes: Any) -> None:
    becomes(
        normalize_blocks,
        """
        tt.func @"f" (%0 : i32, %c : i1, %d : i1)i32 -> {
            %yes : i1 = arith.constant @true;
            cf.cond_br %c ^a ^b;
          ^a:
            tt.print %0 @"a";
            cf.br ^test(%yes, %0);
          ^b:
            tt.print %0 @"b";
            cf.br ^test(%d, %0);
          ^test(%e : i1, %1 : i32):
            cf.cond_br %e ^then(%1) ^otherwise(%1);
          ^then(%2 : i32):
            %3 : i32 = arith.addi %2 %2;
            tt.return %3;
          ^otherwise(%4 : i32):
            tt.return %4;
        };""",
        """
        tt.func @"f" (%0 : i32, %c : i1, %d : i1)i32 -> {
            %yes : i1 = arith.constant @true;
            cf.cond_br %c ^a ^b;
          ^a:
            tt.print %0 @"a";
            cf.br ^then;
          ^b:
            tt.print %0 @"b";
            cf.cond_br %d ^then ^otherwise;
          ^then:
            %3 : i32 = arith.addi %0 %0;
            tt.return %3;
          ^otherwise:
            tt.return %0;
        };""",
    )


def test_a_block_whose_parameters_are_used_further_on_stays() -> None:
    model = parse(
        """
        tt.func @"f" (%0 : i32, %1 : i32, %c : i1, %d : i1)i32 -> {
            cf.cond_br %c ^a(%0) ^a(%1);
          ^a(%2 : i32):
            cf.cond_br %d ^b ^c;
          ^b:
            tt.return %2;
          ^c:
            tt.return %0;
        };"""
    )
    assert normalize_blocks(model) is model


def test_inner_bodies_and_functions_of_a_module(becomes: Any) -> None:
    becomes(
        normalize_blocks,
        """
        module ()void -> {
            tt.func @"f" (%0 : i32, %c : i1)void -> {
                cf.br ^a(%0);
              ^a(%1 : i32):
                scf.if %c
                    ()void -> {
                        cf.br ^b(%1);
                      ^b(%2 : i32):
                        tt.print %2 @"";
                        scf.yield;
                    }
                    ()void -> { scf.yield; };
                tt.return;
            };
            unreachable;
        };""",
        """
        module ()void -> {
            tt.func @"f" (%0 : i32, %c : i1)void -> {
                scf.if %c
                    ()void -> { tt.print %0 @""; scf.yield; }
                    ()void -> { scf.yield; };
                tt.return;
            };
            unreachable;
        };""",
    )


def lower_and_normalize(model: Op) -> Op:
    return normalize_blocks(lower_structured(model))


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=80)
def test_random_programs_do_the_same(seed: int, preserves: Any) -> None:
    preserves(lower_and_normalize, seed)


def test_an_endless_loop_of_blocks_stays_one(becomes: Any) -> None:
    becomes(
        normalize_blocks,
        """
        tt.func @"f" (%x : i32, %y : i32, %c : i1)void -> {
            cf.cond_br %c ^a(%x, %y) ^d;
          ^a(%0 : i32, %1 : i32):
            cf.br ^b(%1, %0);
          ^b(%2 : i32, %3 : i32):
            cf.br ^a(%2, %3);
          ^d:
            tt.return;
        };""",
        """
        tt.func @"f" (%x : i32, %y : i32, %c : i1)void -> {
            cf.cond_br %c ^a ^d;
          ^a:
            cf.br ^a;
          ^d:
            tt.return;
        };""",
    )
