from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.transforms.simplify import simplify


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=60)
def test_random_programs_do_the_same(seed: int, preserves: Any) -> None:
    preserves(partial(simplify, verify=True), seed)
