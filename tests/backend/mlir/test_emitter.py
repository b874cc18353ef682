"""The emitter: names, lines, hints on the lines that define a name, and ops without an emitter."""

from __future__ import annotations

import pytest

from ziggurat.backend.mlir.emitter import EMITTERS, Line, MlirEmitter, emits
from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import TensorType, TupleType, f32, i1, i32


@pytest.fixture
def e():
    return MlirEmitter({}, False)


def lines(e: MlirEmitter) -> list[str]:
    return str(e).splitlines()


def test_names_are_numbered_by_kind_and_function(e):
    assert [e.fresh("%"), e.fresh("%"), e.fresh("%arg"), e.fresh("^bb")] == ["%0", "%1", "%arg0", "^bb0"]
    e.restart()
    assert e.fresh("%") == "%0"


def test_lines_return_the_names_of_their_results(e):
    assert e.line("a.b %x", " : i32", 1) == ("%0",) and e.line("c.d", results=2) == ("%1#0", "%1#1")
    assert e.line("e.f", attributes={"k": "3", "flag": None}) == () and e.value("g", " : f32") == "%2"
    with e.nested():
        e.note("remark")
    assert lines(e) == ["%0 = a.b %x : i32", "%1:2 = c.d", "e.f {k = 3, flag}", "%2 = g : f32", "  // note: remark"]


def test_hints_go_to_the_line_that_defines_a_name_in_the_same_block(e):
    name = e.value("a", " : i32")
    assert e.hint(name, "k", "1") and not e.hint("%arg0", "k", "1")
    e.restart()
    assert not e.hint(name, "other", "2") and lines(e) == ["%0 = a {k = 1} : i32"]
    (opened,) = e.opening("scf.if", 1)
    assert not e.hint(opened, "k", "1"), "the attributes of an op with a region stand at its end"


def test_constants(e):
    assert [e.constant(1, i32), e.constant(True, i1), e.constant(0.5, TensorType((4,), f32))] == ["%0", "%1", "%2"]
    assert lines(e) == [
        "%0 = arith.constant 1 : i32",
        "%1 = arith.constant true",
        "%2 = arith.constant dense<0.5> : tensor<4xf32>",
    ]
    assert len(e.poison(TupleType((i32, f32)))) == 2


def test_an_op_has_one_emitter():
    with pytest.raises(ValueError, match=r"'arith\.select' has a emitter for MLIR already"):
        emits(arith.Select)(EMITTERS.get(arith.Select))


def test_an_op_without_an_emitter_is_an_error(e):
    model = parse('func @"f" (%0 : object)object -> { %1 : object = add %0 %0; return %1; };')
    with pytest.raises(TargetError, match="'add' is an op of another tier"):
        e.op(model.bodies[0].entry.ops[0])


def test_a_line_takes_attributes_until_it_is_printed():
    line = Line(1, "a", " : i32")
    line.attributes["x"] = None
    assert str(line) == "  a {x} : i32"
