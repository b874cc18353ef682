from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.codemodel.text.parser import parse
from ziggurat.transforms.simplify.dce import dce, remove_unused

BOTH = pytest.mark.parametrize("step", [dce, remove_unused])


@BOTH
def test_a_model_without_waste_is_given_back(step: Any) -> None:
    model = parse('tt.func @"f" (%0 : i32)i32 -> { tt.return %0; };')
    assert step(model) is model


CYCLE = """
tt.func @"f" (%0 : i32, %1 : i32)i32 -> {
    %2 : i32 = arith.constant @0;
    %3 : i32 = arith.constant @1;
    %5 : Tuple<i32, i32, i32> = scf.for %2 %0 %3 %2 %2 %1 (%6 : i32, %7 : i32, %8 : i32, %9 : i32)
        Tuple<i32, i32, i32> -> {
        %10 : i32 = arith.addi %7 %6;
        %11 : i32 = arith.muli %8 %9;
        scf.yield %10 %11 %8;
    };
    %12 : i32 = tuple.load %5 @0;
    %13 : i32 = tuple.load %5 @2;
    tt.return %12;
};"""


def test_cyclically_dead_carried_values_go(becomes: Any) -> None:
    becomes(
        dce,
        CYCLE,
        """
        tt.func @"f" (%0 : i32, %1 : i32)i32 -> {
            %2 : i32 = arith.constant @0;
            %3 : i32 = arith.constant @1;
            %5 : i32 = scf.for %2 %0 %3 %2 (%6 : i32, %7 : i32)i32 -> {
                %10 : i32 = arith.addi %7 %6;
                scf.yield %10;
            };
            tt.return %5;
        };""",
    )


def test_remove_unused_keeps_carried_values_and_their_unpacking(becomes: Any) -> None:
    becomes(remove_unused, CYCLE.replace("tt.return", "%14 : i32 = arith.addi %12 %13; tt.return"), CYCLE)


def test_a_result_used_as_a_whole_keeps_all(becomes: Any) -> None:
    text = """
        tt.func @"f" (%0 : i32, %c : i1)Tuple<i32, i32> -> {
            %1 : Tuple<i32, i32> = scf.if %c
                ()Tuple<i32, i32> -> { %2 : i32 = arith.addi %0 %0; scf.yield %0 %2; }
                ()Tuple<i32, i32> -> { scf.yield %0 %0; };
            tt.return %1;
        };"""
    becomes(dce, text, text)


def test_loops_and_branches_without_effect_go_unless_they_may_fail(becomes: Any) -> None:
    loops = """
        tt.func @"f" (%0 : i32, %c : i1)void -> {
            %1 : i32 = arith.constant @1;
            %2 : i32 = arith.constant @0;
            %nested : i32 = scf.for %0 %0 %1 %0 (%i : i32, %a : i32)i32 -> {
                %b : i32 = scf.if %c
                    ()i32 -> { scf.yield %a; }
                    ()i32 -> { scf.yield %i; };
                scf.yield %b;
            };
            scf.for %0 %0 %2 (%i : i32)void -> { scf.yield; };
            scf.for %0 %0 %0 (%i : i32)void -> { scf.yield; };
            scf.while
                ()void -> { scf.condition %c; }
                ()void -> { scf.yield; };
            tt.return;
        };"""
    becomes(
        dce,
        loops,
        """
        tt.func @"f" (%0 : i32, %c : i1)void -> {
            %2 : i32 = arith.constant @0;
            scf.for %0 %0 %2 (%i : i32)void -> { scf.yield; };
            scf.for %0 %0 %0 (%i : i32)void -> { scf.yield; };
            scf.while
                ()void -> { scf.condition %c; }
                ()void -> { scf.yield; };
            tt.return;
        };""",
    )
    becomes(remove_unused, loops, loops)


def test_an_op_that_leaves_the_function_keeps_what_it_stands_in(becomes: Any) -> None:
    text = """
        tt.func @"f" (%0 : i32, %c : i1)i32 -> {
            scf.if %c
                ()void -> { tt.return %0; }
                ()void -> { scf.yield; };
            %1 : i32 = arith.addi %0 %0;
            tt.return %1;
        };"""
    becomes(dce, text, text)


MODULE = """
module ()void -> {
    tt.func @"pure" (%0 : i32)i32 -> { %1 : i32 = arith.addi %0 %0; tt.return %1; };
    tt.func @"inner" (%0 : ptr<i32>)void -> { %1 : i32 = tt.load %0; tt.store %0 %1; tt.return; };
    tt.func @"outer" (%0 : ptr<i32>)i32 -> { tt.call %0 @"inner"; %1 : i32 = tt.load %0; tt.return %1; };
    tt.func @"unused" (%0 : i32)i32 -> { %1 : i32 = tt.call %0 @"only"; tt.return %1; };
    tt.func @"only" (%0 : i32)i32 -> { tt.return %0; };
    tt.func @"kernel" (%0 : ptr<i32>, %1 : i32)void -> {
        %2 : i32 = tt.call %1 @"pure";
        %3 : i32 = tt.call %0 @"outer";
        tt.return;
    };
    unreachable;
};"""


def test_functions_that_no_kernel_reaches_go(becomes: Any) -> None:
    becomes(
        dce,
        MODULE,
        """
        module ()void -> {
            tt.func @"inner" (%0 : ptr<i32>)void -> { %1 : i32 = tt.load %0; tt.store %0 %1; tt.return; };
            tt.func @"outer" (%0 : ptr<i32>)i32 -> { tt.call %0 @"inner"; %1 : i32 = tt.load %0; tt.return %1; };
            tt.func @"kernel" (%0 : ptr<i32>, %1 : i32)void -> {
                %3 : i32 = tt.call %0 @"outer";
                tt.return;
            };
            unreachable;
        };""",
    )
    becomes(remove_unused, MODULE, MODULE)


def test_a_module_without_kernel_is_a_library(becomes: Any) -> None:
    text = """
        module ()void -> {
            tt.func @"a" (%0 : i32)i32 -> { tt.return %0; };
            tt.func @"b" (%0 : i32)i32 -> { %1 : i32 = tt.call %0 @"a"; tt.return %1; };
            unreachable;
        };"""
    becomes(dce, text, text)


def test_it_is_fast_enough_to_run_on_each_compile() -> None:
    ops = "\n".join(f"%a{i} : i32 = arith.addi %{'p' if i < 2 else f'a{i - 2}'} %p;" for i in range(140))
    model = parse(f'tt.func @"f" (%p : i32)i32 -> {{ {ops} tt.return %a138; }};')
    best = min(_seconds(lambda: dce(model)) for _ in range(20))
    assert best < 1.5e-3 * 4, "140 ops take under 1.5 ms here; four times that is not noise"


def _seconds(run: Any) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


@BOTH
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=60)
def test_random_programs_do_the_same(step: Any, seed: int, preserves: Any) -> None:
    preserves(step, seed)
