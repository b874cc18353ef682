"""The writer by itself: attributes and strings, locations, remarks, and one op on a line."""

from __future__ import annotations

import math

import pytest

from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.dialects.tt import EvictionPolicy
from ziggurat.codemodel.op import same_model
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.text.writer import attribute_text, string_text, summary, to_text
from ziggurat.codemodel.types import PtrType, f32

MODEL = parse(
    """tt.func @"f" (%p : ptr<i32>, %n : i32)void -> {
        %c : i32 = arith.constant @1;
        scf.for %n %n %c (%i : i32)void -> { tt.store %p %i; scf.yield; };
        tt.return;
    };"""
)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "null"), (True, "true"), (3, "3"), (-0.0, "-0.0"), (1e300, "1e+300"), (math.inf, "inf"),
     (-math.inf, "-inf"),
     (math.nan, "nan"), ("a", '"a"'), ((1, (2.0, "b")), '[1, [2.0, "b"]]'), ((), "[]"), (f32, "f32"),
     (PtrType(f32), "ptr<f32>"), (EvictionPolicy("evict_first"), "evict_first")],
)  # fmt: skip
def test_attributes(value, text):
    assert attribute_text(value) == text


def test_what_no_attribute_holds():
    with pytest.raises(TypeError, match="an attribute cannot hold"):
        attribute_text(object())


@pytest.mark.parametrize("value", ["", 'a"b', "back\\slash", "new\nline", "\0", "\x85", "·", "\U0001f5fc"])
def test_strings_are_on_one_line_and_read_back(value):
    text = string_text(value)
    assert text.startswith('"') and text.endswith('"') and "\n" not in text
    func = parse(f"tt.func @{text} ()void -> {{ tt.return; }};")
    assert func.attributes["sym_name"] == value


def test_values_are_numbered_in_the_order_of_the_text():
    text = to_text(MODEL)
    assert text.splitlines()[0] == 'func @"f" (%0 : ptr<i32>, %1 : i32)void -> {'.replace("func", "tt.func")
    assert "%2 : i32 = arith.constant @1;" in text and "(%3 : i32)void -> {" in text
    assert str(MODEL) == text


def test_remarks_stand_under_their_ops():
    text = to_text(MODEL, remark=lambda op: ["stored"] if op.NAME == "tt.store" else [])
    lines = [line.strip() for line in text.splitlines()]
    assert lines[lines.index("tt.store %0 %3;") + 1] == "// stored" and text.count("//") == 1
    assert same_model(parse(text), MODEL)


def test_one_op_on_a_line():
    constant, loop, _ = MODEL.bodies[0].entry.ops
    assert summary(constant) == "arith.constant @1"
    assert summary(loop).startswith("scf.for %1 %1 %2") and summary(loop).endswith("{…}")
    assert summary(loop.bodies[0].entry.ops[0]) == "tt.store %0 %3"
