"""The variables of a model: those that become values, and where their values go."""

from __future__ import annotations

from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.dialects import core, scf, tt
from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.ssa import VariableFlow, promotable, ssa
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.text.parser import parse


def function(body: str):
    model = parse(f'tt.func @"f" (%p : ptr<i32>, %n : i32, %b : i1)void -> {{ {body} tt.return; }};')
    variables = {op.name: op.result for op in model.walk() if isinstance(op, core.Var)}
    return model, variables


def promoted(body: str) -> list[str]:
    return [var.name for var in promotable(function(body)[0]).values()]


V = '%v : Var<i32> = var %n @"v"; '
W = '%w : Var<i32> = var %n @"w"; '
LOAD = "%x : i32 = var.load %v;"
IF = "scf.if %b ()void -> {{ {} scf.yield; }} ()void -> {{ {} scf.yield; }}; "


def test_what_is_only_loaded_and_stored_becomes_a_value():
    assert promoted(V + W + "var.store %v %n; %x : i32 = var.load %w;") == ["v", "w"]
    assert promoted(V + IF.format("var.store %v %n;", "")) == ["v"], "an if can hand it on"
    assert promoted('%v : Var<i32> = var @"v"; var.store %v %n;') == ["v"]


def test_what_is_used_otherwise_stays():
    assert promoted(V + W + "%t : Tuple<Var<i32>, i32> = tuple %v %n;") == ["w"]


def handed_by(body: str, kind: type[Structured]) -> list[str]:
    """The names of the variables that the first op of a kind hands on."""
    model, variables = function(body)
    op = next(op for op in model.walk() if isinstance(op, kind))
    names = {value: name for name, value in variables.items()}
    return [names[value] for value in VariableFlow(model, promotable(model)).handed(op)]


def test_which_variables_an_op_hands_on():
    stores = V + W + IF.format("var.store %w %n; var.store %v %n;", "var.store %w %n;")
    assert handed_by(stores + LOAD + "%y : i32 = var.load %w;", scf.If) == ["w", "v"], "by their first stores"
    assert handed_by(stores + LOAD, scf.If) == ["v"], "only what is loaded"
    assert handed_by(stores + "var.store %v %n;" + LOAD, scf.If) == [], "it has another value where it is loaded"


def test_a_variable_of_the_inside_is_not_handed_out():
    assert handed_by(IF.format(V + "var.store %v %n;" + LOAD, ""), scf.If) == []


def test_what_loops_and_ifs_give():
    model, _ = function(
        "%r : i32 = scf.if %b ()i32 -> { scf.yield %n; } ()i32 -> { scf.yield %n; };"
        "%l : i32 = scf.for %n %n %n %n (%i : i32, %c : i32)i32 -> { scf.yield %c; };"
    )
    branch, loop, _ = model.bodies[0].entry.ops
    assert [str(t) for t in branch.value_types] == ["i32"] and [str(t) for t in loop.value_types] == ["i32"]


def needs_initial(body: str) -> bool:
    """Whether the first value of the variable `v` is needed: without one, it is undefined, or there is an error."""
    try:
        return any(isinstance(op, tt.Poison) for op in ssa(function('%v : Var<i32> = var @"v";' + body)[0]).walk())
    except BuildError:
        return True


def test_values_through_an_if():
    for then, other, reads, sets in (
        ("var.store %v %n;", "var.store %v %n;", False, True),
        ("var.store %v %n;", "", False, False),
        (LOAD, "var.store %v %n;", True, False),
    ):
        branch = IF.format(then, other)
        assert needs_initial(branch) == reads
        assert needs_initial(branch + LOAD.replace("%x", "%y")) != sets


def test_a_loop_may_be_skipped_and_repeated():
    loop = "%c : i32 = arith.constant @1; scf.for %n %n %c (%i : i32)void -> { {} scf.yield; }; "
    loop = loop.replace("{}", LOAD + "var.store %v %i;")
    for after in ("", LOAD.replace("%x", "%y")):
        assert needs_initial(loop + after)
        assert handed_by(V + loop + after, scf.For) == ["v"], "the next iteration loads it"
