from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.transforms.simplify import simplify


def test_the_passes_work_together(becomes: Any) -> None:
    becomes(
        simplify,
        """
        module ()void -> {
            tt.func @"cdiv" (%0 : i32, %1 : i32)i32 -> {
                %2 : i32 = arith.addi %0 %1;
                %3 : i32 = arith.constant @1;
                %4 : i32 = arith.subi %2 %3;
                %5 : i32 = arith.divsi %4 %1;
                tt.return %5;
            };
            tt.func @"kernel" (%p : ptr<f32>, %n : i32)void -> {
                %0 : i32 = arith.constant @0;
                %1 : i32 = arith.constant @1;
                %2 : i32 = arith.constant @32;
                %3 : i32 = tt.call %n %2 @"cdiv";
                %zero : f32 = arith.constant @0.0;
                %4 : Tuple<f32, ptr<f32>, i32> = scf.for %0 %3 %1 %zero %p %2
                    (%i : i32, %a : f32, %q : ptr<f32>, %b : i32)Tuple<f32, ptr<f32>, i32> -> {
                        %5 : i32 = arith.muli %b %1;
                        %6 : f32 = tt.load %q;
                        %7 : f32 = arith.addf %a %6;
                        %8 : ptr<f32> = tt.addptr %q %5;
                        scf.yield %7 %8 %b;
                    };
                %9 : f32 = tuple.load %4 @0;
                %10 : i32 = tt.call %n %2 @"cdiv";
                %11 : i1 = arith.cmpi %3 %10 @eq;
                scf.if %11
                    ()void -> { tt.store %p %9; scf.yield; }
                    ()void -> { tt.store %p %zero; scf.yield; };
                tt.return;
            };
            unreachable;
        };""",
        """
        module ()void -> {
            tt.func @"kernel" (%p : ptr<f32>, %n : i32)void -> {
                %0 : i32 = arith.constant @0;
                %1 : i32 = arith.constant @1;
                %2 : i32 = arith.constant @32;
                %sum : i32 = arith.addi %n %2;
                %less : i32 = arith.subi %sum %1;
                %3 : i32 = arith.divsi %less %2;
                %zero : f32 = arith.constant @0.0;
                %4 : Tuple<f32, ptr<f32>> = scf.for %0 %3 %1 %zero %p
                    (%i : i32, %a : f32, %q : ptr<f32>)Tuple<f32, ptr<f32>> -> {
                        %6 : f32 = tt.load %q;
                        %7 : f32 = arith.addf %a %6;
                        %8 : ptr<f32> = tt.addptr %q %2;
                        scf.yield %7 %8;
                    };
                %9 : f32 = tuple.load %4 @0;
                tt.store %p %9;
                tt.return;
            };
            unreachable;
        };""",
    )


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=60)
def test_random_programs_do_the_same(seed: int, preserves: Any) -> None:
    preserves(partial(simplify, verify=True), seed)
