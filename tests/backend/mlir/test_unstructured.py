"""Blocks and branches."""

from __future__ import annotations

import pytest

CASES = {
    "cf.br ^a(%n); ^a(%q : i32): cf.cond_br %b ^a(%q) ^c; ^c: ": [
        "cf.br ^bb1(%arg1 : i32)",
        "^bb1(%arg13: i32):",
        "cf.cond_br %arg3, ^bb1(%arg13 : i32), ^bb2",
        "^bb2:",
    ],
}


@pytest.mark.parametrize("body", CASES)
def test_lines(body: str, written):
    assert written(body) == CASES[body]
