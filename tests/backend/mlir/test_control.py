"""Loops and branches: MLIR's structured ops, blocks, and trip counts."""

from __future__ import annotations

import re

import pytest

from ziggurat.backend.mlir.control import step_sign, trip_count
from ziggurat.backend.mlir.emitter import MlirEmitter
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.types import i8, i32, u32

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


# Trip counts of loops, evaluated from the written lines, for every sign of the step.


MASK = (1 << 8) - 1


def signed(x: int) -> int:
    return (x & MASK) - (1 << 8) * ((x & MASK) >> 7)


def evaluated(e: MlirEmitter, names: dict[str, int]) -> dict[str, int]:
    """The values of the names that lines of `arith` on i8 define."""
    found_items = dict(names)
    for line in str(e).splitlines():
        name, op, rest = re.fullmatch(r"(%\d+) = arith\.(\w+) (.*?)(?: : \w+)?", line).groups()
        words = rest.split(", ")
        if op == "constant":
            found_items[name] = int({"true": 1, "false": 0}.get(rest, rest)) & MASK
        elif op == "cmpi":
            a, b = (found_items[word] for word in words[1:])
            a, b = (signed(a), signed(b)) if words[0].startswith("s") else (a, b)
            found_items[name] = int(a < b if words[0].endswith("lt") else a > b)
        elif op == "select":
            condition, then, otherwise = (found_items[word] for word in words)
            found_items[name] = then if condition else otherwise
        else:
            a, b = (found_items[word] for word in words)
            results = {"addi": a + b, "subi": a - b, "divui": a // b if b else 0}
            found_items[name] = results[op] & MASK
    return found_items


@pytest.mark.parametrize("step", [1, 2, 7, 127, -1, -3, -128])
@pytest.mark.parametrize(("start", "stop"), [(0, 10), (10, 0), (5, 5), (-128, 127), (127, -128), (-3, 4), (3, -4)])
def test_trip_counts_are_those_of_range(start, stop, step):
    for sign in {0, 0 if step > 0 else -1}:
        e = MlirEmitter({}, False)
        name = trip_count(e, ("%a", "%b", "%c"), sign, i8)
        actual = evaluated(e, {"%a": start & MASK, "%b": stop & MASK, "%c": step & MASK})
        assert actual[name] == len(range(start, stop, step)), (sign, str(e))


def test_the_sign_of_a_step():
    builder = Builder.root([i32, u32])
    constants = [builder.add(arith.ConstantOp(number, i32)) for number in (3, -2, 0)]
    assert [step_sign(value) for value in constants] == [1, -1, 0]
    assert [step_sign(value) for value in builder.parameters] == [0, 1], "an unsigned step counts up"
