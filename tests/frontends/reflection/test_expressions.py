"""Expressions: the ops, and the order in which they stand."""

import pytest


@pytest.mark.parametrize(
    ("operator", "op"),
    [
        ("+", "add"), ("-", "sub"), ("*", "mul"), ("/", "div"), ("//", "floordiv"), ("%", "mod"), ("**", "pow"),
        ("&", "and"), ("|", "or"), ("^", "xor"), ("<<", "shl"), (">>", "shr"), ("==", "eq"), ("!=", "ne"),
        ("<", "lt"), ("<=", "le"), (">", "gt"), (">=", "ge"), ("is", "is"), ("is not", "is_not"), ("in", "in"),
        ("not in", "not_in"),
    ],
)  # fmt: skip
def test_binary_operators(lines, operator, op):
    assert lines(f"return x {operator} y") == [
        "%6 : object = var.load %3;",
        "%7 : object = var.load %4;",
        f"%8 : object = {op} %6 %7;",
        "return %8;",
    ]


@pytest.mark.parametrize(("operator", "op"), [("-", "neg"), ("+", "pos"), ("~", "invert"), ("not ", "not")])
def test_unary_operators(lines, operator, op):
    assert lines(f"return {operator}x")[1] == f"%7 : object = {op} %6;"


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        ("1", "1"),
        ("-1", "-1"),
        ("-0.0", "-0.0"),
        ("True", "true"),
        ("None", "null"),
        ("'a\"b'", r'"a\"b"'),
        ("1e400", "inf"),
    ],
)
def test_literals(lines, literal, text):
    assert lines(f"a = {literal}")[0] == f"%6 : object = constant @{text};"


@pytest.mark.parametrize("suite", ["return x.load({})", "a, b = {}", "for i in {}:\n    pass", "a = {}[0]"])
def test_a_display_of_a_list_is_that_of_a_tuple(lines, suite):
    assert lines(suite.format("[x, [n, 3]]")) == lines(suite.format("(x, (n, 3))"))
    assert lines(suite.format("[]")) == lines(suite.format("()"))


def test_tuple_attribute_and_subscript(lines):
    assert lines("return (x.shape[0], ())") == [
        "%6 : object = var.load %3;",
        '%7 : object = attribute %6 @"shape";',
        "%8 : object = constant @0;",
        "%9 : object = subscript %7 %8;",
        "%10 : object = pack;",
        "%11 : object = pack %9 %10;",
        "return %11;",
    ]


def test_conditional_expression(lines):
    assert lines("return x if n else y") == [
        "%6 : object = var.load %5;",
        "%7 : object = cexpression %6",
        "    ()object -> {",
        "        %8 : object = var.load %3;",
        "        yield %8;",
        "    }",
        "    ()object -> {",
        "        %9 : object = var.load %4;",
        "        yield %9;",
        "    };",
        "return %7;",
    ]


def test_chain_evaluates_its_middle_once_and_its_end_last(lines):
    text = "\n".join(lines("return zg.abs(x) < zg.exp(y) <= zg.log(n)"))
    assert text.count("zg.exp") == 1
    before, _, inside = text.partition("cand")
    assert "zg.abs" in before and "zg.exp" in before
    assert "zg.log" in inside and inside.index("lt") < inside.index("zg.log") < inside.index("le ")


def test_and_or_have_a_body_for_each_part(lines):
    text = "\n".join(lines("return x and y and n"))
    assert text.count("cand") == 1 and text.count("yield") == 3
    assert "cor" in "\n".join(lines("return x or y"))
