"""Operand-tree patterns."""

from __future__ import annotations

import doctest

import pytest

from ziggurat.codemodel.dialects import arith, py
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.text.parser import parse
from ziggurat.transforms.kit import patterns
from ziggurat.transforms.kit.patterns import Pattern, anything, capture, constant, either, match, op_

MODEL = parse(
    """tt.func @"f" (%n : i32, %m : i32)void -> {
    %two : i32 = arith.constant @2;
    %sum : i32 = arith.addi %n %two;
    %twice : i32 = arith.addi %n %n;
    %difference : i32 = arith.subi %two %m;
    %product : i32 = arith.muli %sum %difference;
    %less : i1 = arith.cmpi %n %m @slt;
    tt.return; };"""
)
N, M = MODEL.bodies[0].parameters
TWO, SUM, TWICE, DIFFERENCE, PRODUCT, LESS = (op.result for op in MODEL.bodies[0].entry.ops[:-1])
X, Y = capture("x"), capture("y")


@pytest.mark.parametrize(
    ("pattern", "value", "expected"),
    [
        (anything(), N, {}),
        (X, SUM, {"x": SUM}),
        (constant(), TWO, {}),
        (constant("c"), TWO, {"c": TWO}),
        (constant(), N, None),
        (constant(value=2), TWO, {}),
        (constant(value=2.0), TWO, None),
        (constant(value=3), TWO, None),
        (op_(arith.AddI, X, Y), SUM, {"x": N, "y": TWO}),
        (op_(arith.AddI, X), SUM, None),
        (op_(arith.MulI, X, Y), SUM, None),
        (op_(arith.AddI, X, Y), N, None),
        # Commutative ops are tried both ways, others are not.
        (op_(arith.AddI, constant("c"), X), SUM, {"c": TWO, "x": N}),
        (op_(arith.SubI, X, constant()), DIFFERENCE, None),
        # One name is one value.
        (op_(arith.AddI, X, X), TWICE, {"x": N}),
        (op_(arith.AddI, X, X), SUM, None),
        # Attributes, a tuple of classes, nesting.
        (op_(arith.CmpI, X, Y, predicate=arith.IntPredicate.SLT), LESS, {"x": N, "y": M}),
        (op_(arith.CmpI, X, Y, predicate=arith.IntPredicate.SLE), LESS, None),
        (op_(arith.CmpI, X, Y, colour="red"), LESS, None),
        (op_((arith.AddI, arith.SubI), X, Y), DIFFERENCE, {"x": TWO, "y": M}),
        (op_(arith.MulI, capture("s", op_(arith.AddI, X, Y)), anything()), PRODUCT, {"s": SUM, "x": N, "y": TWO}),
        (either(op_(arith.SubI, X, Y), op_(arith.AddI, X, Y)), SUM, {"x": N, "y": TWO}),
        (either(op_(py.Add, X, Y), constant()), SUM, None),
        # The order that fits the sum first (x = n) does not fit the difference: the choice is taken back.
        (op_(arith.MulI, op_(arith.AddI, X, Y), op_(arith.SubI, X, anything())), PRODUCT, {"x": TWO, "y": N}),
        (
            op_(arith.MulI, op_(arith.AddI, either(X, Y), anything()), op_(arith.SubI, X, Y)),
            PRODUCT,
            {"x": TWO, "y": M},
        ),
    ],
)
def test_match(pattern: Pattern, value: Value, expected: dict[str, Value] | None):
    assert match(pattern, value) == expected


def test_the_captures_of_a_failed_way_are_forgotten():
    pattern = either(op_(arith.MulI, capture("a"), constant()), op_(arith.MulI, capture("b"), anything()))
    assert match(pattern, PRODUCT) == {"b": SUM}


def test_examples():
    result = doctest.testmod(patterns)
    assert result.attempted > 5 and result.failed == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: match("x", SUM), "match: each pattern must be a Pattern; got 'x'"),
        (lambda: match(X, 3), "match: 'value' must be a Value; got 3"),
        (
            lambda: op_("arith.mulf"),
            "op_: 'kind' must be a class of ops, or a trait; got 'arith.mulf'\n  hint: its class is MulF",
        ),
        (lambda: op_(arith.AddI, 3, X), "op_: each pattern must be a Pattern; got 3"),
        (lambda: capture("x", 3), "capture: each pattern must be a Pattern; got 3"),
        (lambda: either(X, 3), "either: each pattern must be a Pattern; got 3"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(KernelTypeError) as error:
        call()
    assert str(error.value).startswith(message)
