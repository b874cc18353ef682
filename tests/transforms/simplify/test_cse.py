from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.codemodel.text.parser import parse
from ziggurat.transforms.simplify.cse import cse


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


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=60)
def test_random_programs_do_the_same(seed: int, preserves: Any) -> None:
    preserves(cse, seed)
