"""The context: the values built, findings of the scopes around, and the places of ops."""

from __future__ import annotations

import pytest

import ziggurat as zg
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, py, scf, tt
from ziggurat.codemodel.types import PtrType, i32, void
from ziggurat.transforms.attribution import attribute
from ziggurat.transforms.attribution.attribution import Finding, Scope
from ziggurat.transforms.calls.emit import Operand
from ziggurat.transforms.mirror.flow_ops import body_of
from ziggurat.transforms.mirror.mirror import FunctionMirror, ModuleMirror


@zg.function
def twice(x):
    return x + x


@zg.kernel
def kernel(p, n):
    zg.store(p, twice(n))


@pytest.fixture
def context():
    attribution = attribute(kernel, (PtrType(i32), i32))
    builder = Builder.root([PtrType(i32), i32])
    return FunctionMirror(ModuleMirror(frozenset(), checks_overflow=False), attribution, builder)


def op(cls):
    return next(op for op in kernel.model.walk() if isinstance(op, cls))


def test_an_operand_is_the_type_and_what_was_built(context):
    parameter = kernel.model.bodies[0].parameters[1]
    assert context.operand(parameter) == Operand(i32, None)
    context.values[parameter] = context.emit.builder.parameters[1]
    assert context.operand(parameter).value is context.emit.builder.parameters[1]


def test_findings_of_outer_scopes_are_seen(context):
    call = op(core.FuncCall)
    callee = context.finding(call).callee
    assert callee.symbol == "twice_i32_i32"
    context.scope = Scope(context.scope)
    assert context.finding(call).callee is callee and context.finding(call).static_branch is None
    context.scope.findings[call] = Finding(static_branch=0)
    assert context.finding(call) == Finding(static_branch=0)


def test_a_callee_is_in_the_module_once_it_is_asked_for(context):
    context.op = op(core.FuncCall)
    assert context.module.symbols == set()
    assert context.callee().symbol == "twice_i32_i32" and context.module.symbols == {"twice_i32_i32"}


def test_ops_go_into_a_nested_body_and_its_variables_end_with_it(context):
    outer = context.emit

    def part(parameters):
        assert context.emit is not outer and context.emit.functions is context
        context.emit.add(tt.GetProgramId(0))
        context.variables["inner"] = parameters[0]
        return scf.Yield([])

    body = body_of(context, [i32], void, part)
    assert context.emit is outer and context.variables == {}
    assert [op.NAME for op in body.entry.ops] == ["tt.get_program_id", "scf.yield"]


def test_a_step_builds_at_the_place_of_its_op(context):
    parameter = kernel.model.bodies[0].parameters[1]
    context.values[parameter] = context.emit.builder.parameters[1]
    for inner in kernel.model.bodies[0].entry.ops:
        if isinstance(inner, core.Var | core.VarLoad | core.FuncCall):
            context.step(inner)
    call = op(core.FuncCall)
    assert context.values[call.result].op.location == call.location and context.op is call


def test_a_value_that_became_a_constant_is_forgotten(context):
    first = op(core.Var)
    context.values[first.result] = "from an earlier iteration"
    context.values[kernel.model.bodies[0].parameters[0]] = context.emit.builder.parameters[0]
    context.step(first)
    assert first.result not in context.values


def test_a_suite_leaves_out_its_yield(context):
    model = zg.parse(
        'func @"f" (%0 : object)object -> { if %0 ()object -> { yield; } ()object -> { yield; }; return; };'
    )
    branch = next(op for op in model.walk() if isinstance(op, py.If))
    context.suite(branch.bodies[0].entry.ops)
    assert context.op is kernel.model, "no step was made"
