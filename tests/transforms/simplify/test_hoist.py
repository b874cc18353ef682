from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.codemodel.text.parser import parse
from ziggurat.transforms.simplify.hoist import hoist


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
