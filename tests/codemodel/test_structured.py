"""Structured control flow: values that pass between an op and its bodies."""

import pytest

from ziggurat.codemodel.dialects import scf
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import f32, i32

FUNCTION = parse(
    """tt.func @"f" (%n : i32, %x : f32, %c : i1)void -> {
        %z : i32 = arith.constant @0;
        %for : Tuple<i32, f32> = scf.for %z %n %n %z %x (%i : i32, %a : i32, %b : f32)Tuple<i32, f32> -> {
            scf.yield %i %b; };
        %if : f32 = scf.if %c ()f32 -> { scf.yield %x; } ()f32 -> { scf.yield %x; };
        %while : i32 = scf.while %n (%a : i32)i32 -> { scf.condition %c %z; } (%a : i32)i32 -> { scf.yield %a; };
        scf.if %c ()void -> { tt.return; } ()void -> { tt.return; };
        tt.return; };"""
)
N, X, C = FUNCTION.bodies[0].parameters
ZERO, FOR, IF, WHILE, LEAVING = FUNCTION.bodies[0].entry.ops[:5]


def handed(op: Structured) -> list[tuple[object, ...]]:
    return [terminator.handed for terminator in op.terminators()]


def test_the_values_of_a_for():
    assert isinstance(FOR, scf.For)
    zero = ZERO.result
    assert FOR.controls == (zero, N, N)
    assert FOR.inits == (zero, X)
    index, *parameters = FOR.body.parameters
    assert FOR.entry_arguments(FOR.body) == tuple(parameters)
    assert handed(FOR) == [(index, parameters[1])]
    assert FOR.value_types == (i32, f32)


def test_the_values_of_an_if():
    assert isinstance(IF, scf.If)
    assert (IF.controls, IF.inits) == ((C,), ())
    assert IF.entry_arguments(IF.then) == ()
    assert handed(IF) == [(X,), (X,)]
    assert IF.value_types == (f32,)


def test_the_values_of_a_while():
    assert isinstance(WHILE, scf.While)
    assert (WHILE.controls, WHILE.inits) == ((), (N,))
    assert [t.handed for t in WHILE.terminators(WHILE.before)] == [(ZERO.result,)]  # Not the condition.
    assert [t.handed for t in WHILE.terminators(WHILE.after)] == [tuple(WHILE.after.parameters)]


def test_a_branch_that_returns_hands_nothing_on():
    assert isinstance(LEAVING, scf.If)
    assert LEAVING.terminators() == []
    assert LEAVING.value_types == ()


@pytest.mark.parametrize("op", [FOR, IF, WHILE])
def test_every_body_may_run_and_the_op_may_end(op: Op):
    assert isinstance(op, Structured)
    reached = [*op.following(None)]
    for body in reached:
        reached += [other for other in op.following(body) if other not in reached] if body is not None else []
    assert set(reached) == {*op.bodies, None}
