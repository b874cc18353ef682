from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.parser import parse
from ziggurat.transforms.simplify.lower_structured import lower_structured
from ziggurat.transforms.simplify.normalize_blocks import normalize_blocks


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


def lower_and_normalize(model: Op) -> Op:
    return normalize_blocks(lower_structured(model))


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=80)
def test_random_programs_do_the_same(seed: int, preserves: Any) -> None:
    preserves(lower_and_normalize, seed)
