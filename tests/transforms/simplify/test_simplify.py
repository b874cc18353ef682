from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ziggurat as zg
from ziggurat.transforms.simplify import simplify


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=60)
def test_random_programs_do_the_same(seed: int, preserves: Any) -> None:
    preserves(partial(simplify, verify=True), seed)


def test_models_are_verified_only_where_that_is_asked_for() -> None:
    """A call of a function that the module lacks breaks an invariant of models."""
    model = zg.parse(
        """module ()void -> {
            tt.func @"f" (%0 : i32)void -> {
                %1 : i32 = arith.addi %0 %0;
                tt.call %0 @"unknown";
                tt.return;
            };
            unreachable;
        };"""
    )
    assert len(simplify(model).functions()["f"].bodies[0].entry.ops) == 2  # type: ignore[attr-defined]
    with pytest.raises(zg.VerifyError, match="the module has no function 'unknown'"):
        simplify(model, verify=True)
