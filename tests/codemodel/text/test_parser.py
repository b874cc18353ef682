"""The parser by itself: what is read, and where malformed text is said to be. (Round trips are in ../test_text.py.)"""

from __future__ import annotations

import pytest

from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.errors import ParseError
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import PtrType, TupleType, f32, i32


def test_values_ops_and_attributes_are_read():
    model = parse(
        """// a remark
        tt.func @"f" (%p : ptr<f32>, %n : i32)void -> {
            %t : Tuple<ptr<f32>, i32> = tuple %p %n;
            %q : ptr<f32> = tuple.load %t @0;
            %x : f32 = tt.load %q @volatile=true;
            tt.return;
        };"""
    )
    result, first, load, _ = model.bodies[0].entry.ops
    assert result.result.type == TupleType((PtrType(f32), i32)) and result.operands[1] is model.bodies[0].parameters[1]
    assert first.attributes["index"] == 0 and load.attributes["volatile"] is True
    assert load.operands == (first.result,)


def test_blocks_may_be_named_before_they_stand():
    model = parse('tt.func @"f" (%0 : i1)void -> { cf.cond_br %0 ^b ^a; ^a: cf.br ^b; ^b: tt.return; };')
    entry, *others = model.bodies[0].blocks
    assert len(others) == 2 and set(entry.successors) == set(others)


# Text, the line and the column of the place, and words of the message.
MALFORMED = [
    ("", 1, 1, ""),
    ("tt.func", 1, None, ""),
    ('tt.func @"f" ()void -> {\n  tt.returns;\n};', 2, 3, "unknown op 'tt.returns'"),
    ('tt.func @"f" ()void -> {\n  tt.store %9 %9;\n};', 2, 12, "%9"),
    ('tt.func @"f" (%0 : i99)void -> { tt.return; };', 1, None, "i99"),
    ('tt.func @"f" (%0 : i32, %0 : i32)void -> { tt.return; };', 1, None, "%0"),
    ('tt.func @"f" ()void -> {\n  cf.br ^nowhere;\n};', 2, None, "nowhere"),
    ('tt.func @"f" ()void -> { %0 : void = tt.return; };', 1, None, "gives no value"),
    ('tt.func @"f" ()void -> { tt.return; }; rest', 1, None, ""),
    ('tt.func @"f ()void -> { tt.return; };', 1, None, ""),
]


@pytest.mark.parametrize(("text", "line", "column", "words"), MALFORMED)
def test_malformed_text_is_an_error_at_its_place(text, line, column, words):
    with pytest.raises(ParseError) as error:
        parse(text)
    assert error.value.line == line and (column is None or error.value.column == column)
    assert words in str(error.value)
