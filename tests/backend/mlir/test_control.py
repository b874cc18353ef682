"""Loops and branches with a form in MLIR's structured ops."""

from __future__ import annotations

import pytest

CASES = {
    "%c : i32 = arith.constant @1; %y : f32 = scf.for %n %n %c %x (%i : i32, %s : f32)f32 -> { scf.yield %s; };": [
        "%0 = arith.constant 1 : i32",
        "%1 = scf.for %arg13 = %arg1 to %arg1 step %0 iter_args(%arg14 = %arg2) -> (f32) : i32 {",
        "scf.yield %arg14 : f32",
        "}",
    ],
    "%y : f32 = scf.if %b ()f32 -> { scf.yield %x; } ()f32 -> { scf.yield %x; };": [
        "%0 = scf.if %arg3 -> (f32) {",
        "scf.yield %arg2 : f32",
        "} else {",
        "scf.yield %arg2 : f32",
        "}",
    ],
    "%y : f32 = scf.while %x (%s : f32)f32 -> { scf.condition %b %s; } (%s : f32)f32 -> { scf.yield %s; };": [
        "%0 = scf.while (%arg13 = %arg2) : (f32) -> f32 {",
        "scf.condition(%arg3) %arg13 : f32",
        "} do {",
        "^bb0(%arg14: f32):",
        "scf.yield %arg14 : f32",
        "}",
    ],
}


@pytest.mark.parametrize("body", CASES)
def test_lines(body: str, written):
    assert written(body) == CASES[body]
