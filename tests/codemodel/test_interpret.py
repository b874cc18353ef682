"""The interpreter's engine, with a small table of meanings of its own."""

import pytest

from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.dialects import arith, cf, core, scf
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.errors import InternalError, KernelRuntimeError
from ziggurat.codemodel.interpret import Interpreter, Jump, Returned, Yielded
from ziggurat.codemodel.text.parser import parse


@pytest.fixture
def integers():
    table = OpTable("meaning in integers")

    @table.of(arith.ConstantOp)
    def constant(interpreter, op, operands):
        return op.value

    @table.of(arith.AddI)
    def add(interpreter, op, operands):
        return operands[0] + operands[1]

    @table.of(arith.DivSI)
    def divide(interpreter, op, operands):
        if operands[1] == 0:
            raise KernelRuntimeError("division by zero")
        return operands[0] // operands[1]

    @table.of(arith.CmpI)
    def less(interpreter, op, operands):
        return operands[0] < operands[1]

    @table.of(scf.If)
    def choose(interpreter, op, operands):
        outcome = interpreter.run_body(op.then if operands[0] else op.otherwise)
        return outcome.values[0] if isinstance(outcome, Yielded) else outcome

    @table.of(scf.Yield)
    def give(interpreter, op, operands):
        return Yielded(operands)

    @table.of(core.Return)
    def leave(interpreter, op, operands):
        return Returned(operands)

    @table.of(cf.Br)
    def go(interpreter, op, operands):
        return Jump(op.target)

    @table.of(cf.CondBr)
    def fork(interpreter, op, operands):
        return Jump(op.then if operands[0] else op.otherwise)

    return table


def call(table, text, *arguments):
    return Interpreter(table).call(parse(text).bodies[0], arguments)


LOOP = """
func @"sum" (%n : i32)i32 -> {
    %zero : i32 = arith.constant @0;
    cf.br ^head(%zero, %zero);
  ^head(%i : i32, %total : i32):
    %more : i1 = arith.cmpi %i %n @slt;
    cf.cond_br %more ^body ^end;
  ^body:
    %one : i32 = arith.constant @1;
    %t : i32 = arith.addi %total %i;
    %j : i32 = arith.addi %i %one;
    cf.br ^head(%j, %t);
  ^end:
    return %total;
};"""


def test_blocks_and_branches(integers):
    assert [call(integers, LOOP, n) for n in (0, 1, 10)] == [(0,), (0,), (45,)]


def test_block_arguments_change_places_at_once(integers):
    text = """
func @"swap" (%a : i32, %b : i32)i32 -> {
    %0 : i32 = arith.constant @0;
    cf.br ^head(%a, %b, %0);
  ^head(%x : i32, %y : i32, %n : i32):
    %c : i32 = arith.constant @3;
    %more : i1 = arith.cmpi %n %c @slt;
    cf.cond_br %more ^body ^end;
  ^body:
    %1 : i32 = arith.constant @1;
    %m : i32 = arith.addi %n %1;
    cf.br ^head(%y, %x, %m);
  ^end:
    return %x;
};"""
    assert call(integers, text, 5, 8) == (8,)


NESTED = """
func @"f" (%a : i32, %b : i32)i32 -> {
    %c : i1 = arith.cmpi %a %b @slt;
    %r : i32 = scf.if %c ()i32 -> {
        scf.yield %b;
    } ()i32 -> {
        return %a;
    };
    %s : i32 = arith.addi %r %b;
    return %s;
};"""


def test_a_return_leaves_the_function_from_within(integers):
    assert call(integers, NESTED, 1, 5) == (10,)
    assert call(integers, NESTED, 9, 5) == (9,)


def test_errors_carry_the_place_of_the_op(integers):
    text = """
func @"f" (%a : i32, %b : i32)i32 -> {
    %q : i32 = arith.divsi %a %b @loc="12:4:12:9:program.py";
    return %q;
};"""
    with pytest.raises(KernelRuntimeError) as error:
        call(integers, text, 1, 0)
    assert str(error.value.location) == "program.py:12:5"
    with pytest.raises(TypeError) as other:
        call(integers, text, None, 1)
    assert "program.py:12:5" in other.value.__notes__[0]


def test_an_op_without_meaning_is_an_internal_error(integers):
    text = 'func @"f" (%a : i32)i32 -> { %b : i32 = arith.muli %a %a; return %b; };'
    with pytest.raises(InternalError, match=r"'arith.muli' has no meaning in integers"):
        call(integers, text, 1)
    assert integers.missing([arith.MulI, arith.AddI, arith.SubI]) == ["arith.muli", "arith.subi"]


def test_a_meaning_is_registered_once(integers):
    with pytest.raises(ValueError, match=r"'arith.addi' has a meaning"):
        integers.of(arith.AddI)(lambda interpreter, op, operands: 0)


def test_values_are_forgotten_after_their_last_use(integers):
    interpreter = Interpreter(integers)
    body = parse(LOOP).bodies[0]
    interpreter.run_body(body, (4,))
    assert body.parameters[0] in interpreter.values  # Another block uses it.
    one = next(op for op in body.walk() if op.attributes.get("value") == 1)
    assert one.result not in interpreter.values
