"""The walk: the values built, findings of the scopes around, and the places of ops."""

from __future__ import annotations

import pytest

import ziggurat as zg
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, py, scf, tt
from ziggurat.codemodel.types import PtrType, i32, void
from ziggurat.transforms.attribution import attribute
from ziggurat.transforms.attribution.attribution import Scope
from ziggurat.transforms.calls.emit import Operand
from ziggurat.transforms.mirror.flow import body_of
from ziggurat.transforms.mirror.mirror import FunctionMirror, ModuleMirror


@zg.function
def twice(x):
    return x + x


@zg.kernel
def kernel(p, n):
    zg.store(p, twice(n))


@pytest.fixture
def walk():
    found = attribute(kernel, (PtrType(i32), i32))
    builder = Builder.root([PtrType(i32), i32])
    return FunctionMirror(ModuleMirror(frozenset()), found, builder)


def op(cls):
    return next(op for op in kernel.model.walk() if isinstance(op, cls))


def test_an_operand_is_the_type_and_what_was_built(walk):
    parameter = kernel.model.bodies[0].parameters[1]
    assert walk.operand(parameter) == Operand(i32, None)
    walk.values[parameter] = walk.emit.builder.parameters[1]
    assert walk.operand(parameter).value is walk.emit.builder.parameters[1]


def test_findings_of_outer_scopes_are_seen(walk):
    call = op(core.FuncCall)
    callee = walk.finding(lambda scope: scope.callees, call)
    assert callee.symbol == "twice_i32_i32"
    outer = walk.scope
    walk.scope = Scope(outer)
    assert (
        walk.finding(lambda scope: scope.callees, call) is callee
        and walk.finding(lambda scope: scope.static_branches, call) is None
    )
    walk.scope.static_branches[call.result] = 0
    assert walk.finding(lambda scope: scope.static_branches, call) == 0


def test_a_callee_is_in_the_module_once_it_is_asked_for(walk):
    walk.op = op(core.FuncCall)
    assert walk.module.symbols == set()
    assert walk.callee().symbol == "twice_i32_i32" and walk.module.symbols == {"twice_i32_i32"}


def test_ops_go_into_a_nested_body_and_its_variables_end_with_it(walk):
    outer = walk.emit

    def part(parameters):
        assert walk.emit is not outer and walk.emit.functions is walk
        walk.emit.add(tt.GetProgramId(0))
        walk.variables["inner"] = parameters[0]
        return scf.Yield([])

    body = body_of(walk, [i32], void, part)
    assert walk.emit is outer and walk.variables == {}
    assert [op.NAME for op in body.entry.ops] == ["tt.get_program_id", "scf.yield"]


def test_a_step_builds_at_the_place_of_its_op(walk):
    parameter = kernel.model.bodies[0].parameters[1]
    walk.values[parameter] = walk.emit.builder.parameters[1]
    for inner in kernel.model.bodies[0].entry.ops:
        if isinstance(inner, core.Var | core.VarLoad | core.FuncCall):
            walk.step(inner)
    call = op(core.FuncCall)
    assert walk.values[call.result].op.location == call.location and walk.op is call


def test_a_value_that_became_a_constant_is_forgotten(walk):
    first = op(core.Var)
    walk.values[first.result] = "from an earlier iteration"
    walk.values[kernel.model.bodies[0].parameters[0]] = walk.emit.builder.parameters[0]
    walk.step(first)
    assert first.result not in walk.values


def test_a_suite_leaves_out_its_yield(walk):
    model = zg.parse(
        'func @"f" (%0 : object)object -> { if %0 ()object -> { yield; } ()object -> { yield; }; return; };'
    )
    branch = next(op for op in model.walk() if isinstance(op, py.If))
    walk.suite(branch.bodies[0].entry.ops)
    assert walk.op is kernel.model, "no step was made"
