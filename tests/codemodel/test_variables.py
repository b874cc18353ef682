"""The variables of a model: those that become values, and their liveness."""

from __future__ import annotations

from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.dialects import core, scf
from ziggurat.codemodel.ssa import VariableLiveness, promotable, set_by, stored_in
from ziggurat.codemodel.text.parser import parse


def function(body: str):
    model = parse(f'tt.func @"f" (%p : ptr<i32>, %n : i32, %b : i1)void -> {{ {body} tt.return; }};')
    variables = {op.name: op.result for op in model.walk() if isinstance(op, core.Var)}
    return model, variables


def promoted(body: str) -> list[str]:
    return [var.name for var in promotable(function(body)[0]).values()]


V = '%v : Var<i32> = var %n @"v"; '
W = '%w : Var<i32> = var %n @"w"; '
IF = "scf.if %b ()void -> {{ {} scf.yield; }} ()void -> {{ {} scf.yield; }}; "


def test_what_is_only_loaded_and_stored_becomes_a_value():
    assert promoted(V + W + "var.store %v %n; %x : i32 = var.load %w;") == ["v", "w"]
    assert promoted(V + IF.format("var.store %v %n;", "")) == ["v"], "an if can hand it on"
    assert promoted('%v : Var<i32> = var @"v"; var.store %v %n;') == ["v"]


def test_what_is_used_otherwise_stays():
    assert promoted(V + W + "%t : Tuple<Var<i32>, i32> = tuple %v %n;") == ["w"]


def test_which_variables_an_op_changes():
    model, variables = function(V + W + IF.format("var.store %w %n; var.store %v %n;", "var.store %w %n;"))
    branch = next(op for op in model.walk() if isinstance(op, scf.If))
    everything = set(variables.values())
    assert stored_in(branch, everything) == set_by(branch, everything) == (variables["w"], variables["v"])
    assert stored_in(branch, {variables["v"]}) == (variables["v"],)
    var, _, _, _ = model.bodies[0].entry.ops
    assert set_by(var, everything) == (variables["v"],)


def test_a_variable_of_the_inside_is_not_handed_out():
    model, variables = function(IF.format(V + "var.store %v %n;", ""))
    branch = next(op for op in model.walk() if isinstance(op, scf.If))
    assert stored_in(branch, set(variables.values())) == ()


def test_what_loops_and_ifs_give():
    model, _ = function(
        "%r : i32 = scf.if %b ()i32 -> { scf.yield %n; } ()i32 -> { scf.yield %n; };"
        "%l : i32 = scf.for %n %n %n %n (%i : i32, %c : i32)i32 -> { scf.yield %c; };"
    )
    branch, loop, _ = model.bodies[0].entry.ops
    assert [str(t) for t in branch.value_types] == ["i32"] and [str(t) for t in loop.value_types] == ["i32"]


def test_liveness_through_an_if():
    load = "%x : i32 = var.load %v;"
    for then, other, reads, sets in (
        ("var.store %v %n;", "var.store %v %n;", False, True),
        ("var.store %v %n;", "", False, False),
        (load, "var.store %v %n;", True, False),
    ):
        model, variables = function(V + IF.format(then, other))
        branch = next(op for op in model.walk() if isinstance(op, scf.If))
        live = VariableLiveness(variables.values())
        assert (variables["v"] in live.before(branch, frozenset())) == reads
        assert (variables["v"] not in live.before(branch, frozenset(variables.values()))) == sets


def test_a_loop_may_be_skipped_and_repeated():
    loop = "%c : i32 = arith.constant @1; scf.for %n %n %c (%i : i32)void -> { {} scf.yield; }; "
    model, variables = function(V + loop.replace("{}", "%x : i32 = var.load %v; var.store %v %i;"))
    op = next(op for op in model.walk() if isinstance(op, scf.For))
    live = VariableLiveness(variables.values())
    assert live.before(op, frozenset()) == live.before(op, frozenset([variables["v"]])) == {variables["v"]}
    assert live.at_exits(op, frozenset()) == [frozenset([variables["v"]])], "the next iteration loads it"
