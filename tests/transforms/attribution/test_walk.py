"""The walk over one function: the places of errors, and the ops that are attributed after one."""

from __future__ import annotations

import ziggurat as zg
from ziggurat.codemodel.dialects import py
from ziggurat.codemodel.errors import KernelErrors, KernelTypeError, KernelValueError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.types import i32
from ziggurat.transforms.attribution.attribute import Attributor, FunctionAttributor
from ziggurat.transforms.calls.constant_arguments import FunctionName
from ziggurat.transforms.calls.lattice import ERROR
from ziggurat.transforms.calls.promotion import NONE

MODEL = zg.parse(
    'func @"f" (%0 : object)object -> { %1 : object = add %0 %0; %2 : Var<object> = var %1 @"v"; return %1; };'
)
PLACE = Location("f.py", 3, 4)
CALL = Location("g.py", 9, 1)


def walk(caller=None) -> FunctionAttributor:
    return FunctionAttributor(Attributor(), FunctionName("f", MODEL), (i32,), caller)


def test_it_gives_types_and_the_result():
    attribution = walk().run()
    add = next(op for op in MODEL.walk() if isinstance(op, py.Add))
    assert attribution.scope.types[add.result] == i32 == attribution.result
    assert attribution.parameter_types == (i32,) and attribution.func is MODEL


def test_a_function_without_return_gives_nothing():
    model = zg.parse('func @"f" (%0 : object)object -> { return; };')
    assert FunctionAttributor(Attributor(), FunctionName("f", model), (i32,), None).run().result == NONE


def test_an_error_is_noted_once_at_the_op_and_its_callers():
    at = walk(CALL)
    op = MODEL.bodies[0].entry.ops[0]
    at.report(op, KernelTypeError("bad", PLACE))
    at.report(op, KernelTypeError("bad", PLACE))
    at.report(op, KernelTypeError("worse", PLACE))
    assert [error.summary for error in at.program.errors.values()] == ["bad", "worse"]
    several = KernelErrors([KernelTypeError("worse", PLACE), KernelValueError("another", PLACE)])
    at.report(op, several)
    assert [error.summary for error in at.program.errors.values()] == ["bad", "worse", "another"]


def test_places_carry_the_call_that_led_there():
    at = walk(CALL)
    at.op = next(op for op in kernel.model.walk() if isinstance(op, py.Add))
    assert at.place().caller == CALL and at.place().line == at.op.location.line
    assert at.place_of(at.op.result).caller == CALL
    assert at.place_of(MODEL.bodies[0].parameters[0]) == at.place(), "a parameter has no place of its own"
    alone = walk()
    alone.op = at.op
    assert alone.place() == at.op.location and alone.place().caller is None


@zg.kernel
def kernel(p, n):
    zg.store(p, n + n)


def test_what_depends_on_an_error_is_in_error_and_is_not_reported():
    at = walk()
    at.scope.types[MODEL.bodies[0].parameters[0]] = ERROR
    at.ops(MODEL.bodies[0].entry.ops)
    add, var, _ = MODEL.bodies[0].entry.ops
    assert at.scope.types[add.result] is ERROR and at.state[var.result] is ERROR
    assert [type_ for type_, _ in at.returns] == [ERROR] and not at.program.errors


def test_an_op_that_would_have_stored_leaves_its_variables_in_error():
    model = zg.parse(
        """func @"f" (%0 : object)object -> {
            %1 : Var<object> = var %0 @"v";
            if %0 ()object -> { var.store %1 %0; yield; } ()object -> { yield; };
            return;
        };"""
    )
    at = FunctionAttributor(Attributor(), FunctionName("f", model), (i32,), None)
    at.scope.types[model.bodies[0].parameters[0]] = i32
    var, branch, _ = model.bodies[0].entry.ops
    at.ops([var])
    assert at.state[var.result] == i32
    assert at.in_error(branch) is ERROR and at.state[var.result] is ERROR


def test_a_return_at_a_later_visit_replaces_the_one_before():
    at = walk()
    op = MODEL.bodies[0].entry.ops[-1]
    at.returned(op, i32)
    at.returned(op, NONE)
    assert at.returns == [(NONE, op)]
