"""Demand: which results of a model are needed, and what must stay for its effects."""

from __future__ import annotations

from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.parser import parse
from ziggurat.transforms.simplify.demand import Demand, callees, reachable_roots, value_count

PARAMETERS = "%p : ptr<i32>, %n : i32, %b : i1"


def function(body: str) -> Op:
    return parse(f'tt.func @"f" ({PARAMETERS})void -> {{ {body} tt.return; }};')


def kept(body: str, **options: bool) -> list[str]:
    """The names of the ops of a function that stay, without its return, in the order of the text."""
    model = function(body)
    demand = Demand(model, **options)
    return [op.NAME for op in model.bodies[0].walk() if op.result in demand.kept][:-1]


def test_what_is_used_stays_and_what_is_not_goes():
    body = "%a : i32 = arith.addi %n %n; %c : i32 = arith.muli %n %n; tt.store %p %a;"
    assert kept(body) == ["arith.addi", "tt.store"]


def test_reads_go_where_they_are_unused_but_for_volatile_ones():
    assert kept("%a : i32 = tt.load %p;") == []
    assert kept("%a : i32 = tt.load %p @volatile=true;") == ["tt.load"]
    assert kept('%a : i32 = tt.atomic_rmw %p %n @kind="add";') == ["tt.atomic_rmw"]


def test_effects_stay():
    asm = '%a : i32 = tt.elementwise_inline_asm %n @asm="a" @constraints="=r,r" @is_pure='
    assert kept(f"{asm}true;") == [] and kept(f"{asm}false;") == ["tt.elementwise_inline_asm"]
    assert kept('tt.print %n @prefix="x"; tt.assert %b @message="m"; tt.assume %b;') == [
        "tt.print",
        "tt.assert",
        "tt.assume",
    ]


def test_a_variable_is_stored_to_only_while_it_is_loaded():
    names = '%v : Var<i32> = var %n @"v"; var.store %v %n;'
    assert kept(names) == []
    values = f"{names} %a : i32 = var.load %v; tt.store %p %a;"
    assert kept(values) == ["var", "var.store", "var.load", "tt.store"]


LOOP = """
    %zero : i32 = arith.constant @0;
    %one : i32 = arith.constant @1;
    %r : Tuple<i32, i32> = scf.for %zero %n STEP %n %n (%i : i32, %a : i32, %c : i32)Tuple<i32, i32> -> {
        %a2 : i32 = arith.addi %a %i;
        %c2 : i32 = arith.muli %c %i;
        scf.yield %a2 %c2;
    };
"""


def test_a_loop_that_ends_goes_and_one_that_may_not_stays():
    assert kept(LOOP.replace("STEP", "%one")) == []
    assert "scf.for" in kept(LOOP.replace("STEP", "%n")), "a step of zero is an error"
    assert "scf.for" in kept(LOOP.replace("STEP", "%zero"))
    waits = "scf.while ()void -> { scf.condition %b; } ()void -> { scf.yield; };"
    assert "scf.while" in kept(waits)


def test_a_loop_carries_only_what_is_needed_of_it():
    model = function(LOOP.replace("STEP", "%one") + "%x : i32 = tuple.load %r @1; tt.store %p %x;")
    demand = Demand(model)
    loop = next(op for op in model.walk() if op.NAME == "scf.for")
    assert demand.of(loop) == [1]
    names = [op.NAME for op in loop.bodies[0].entry.ops if op.result in demand.kept]
    assert names == ["arith.muli", "scf.yield"], "what only computes its own next value is not needed"


def test_values_inside_a_loop_that_are_needed_keep_others():
    body = LOOP.replace("STEP", "%one").replace("arith.muli %c %i", "arith.muli %c %a")
    model = function(body + "%x : i32 = tuple.load %r @1; tt.store %p %x;")
    loop = next(op for op in model.walk() if op.NAME == "scf.for")
    assert Demand(model).of(loop) == [0, 1]


def test_without_structure_loops_stay_whole():
    body = LOOP.replace("STEP", "%one")
    assert kept(body, structure=False).count("scf.for") == 1
    model = function(body)
    loop = next(op for op in model.walk() if op.NAME == "scf.for")
    assert Demand(model, structure=False).of(loop) == [0, 1]


MODULE = parse("""
module ()void -> {
    tt.func @"pure" (%0 : i32)i32 -> { %1 : i32 = arith.addi %0 %0; tt.return %1; };
    tt.func @"writes" (%0 : ptr<i32>)i32 -> { %1 : i32 = arith.constant @1; tt.store %0 %1; tt.return %1; };
    tt.func @"unused" (%0 : i32)i32 -> { tt.return %0; };
    tt.func @"kernel" (%0 : ptr<i32>, %1 : i32)void -> {
        %2 : i32 = tt.call %1 @"pure";
        %3 : i32 = tt.call %0 @"writes";
        tt.return;
    };
    unreachable;
};
""")


def test_calls_stay_for_what_the_function_does():
    demand = Demand(MODULE)
    calls = {op.attributes["callee"]: op.result in demand.kept for op in MODULE.walk() if op.NAME == "tt.call"}
    assert calls == {"pure": False, "writes": True}


def test_recursive_and_unknown_functions_may_do_anything():
    model = parse(
        """
        module ()void -> {
            tt.func @"ping" (%n : i32)i32 -> { %1 : i32 = tt.call %n @"pong"; tt.return %1; };
            tt.func @"pong" (%n : i32)i32 -> { %1 : i32 = tt.call %n @"ping"; tt.return %1; };
            tt.func @"kernel" (%n : i32)void -> {
                %1 : i32 = tt.call %n @"ping";
                %2 : i32 = tt.call %n @"unknown";
                tt.return;
            };
            unreachable;
        };"""
    )
    demand = Demand(model)
    assert [op.result in demand.kept for op in model.functions()["kernel"].bodies[0].entry.ops] == [True, True, True]
    assert [demand.has_effects(name) for name in ("ping", "pong", "unknown")] == [True, True, True]


def test_functions_that_nothing_calls_are_the_roots():
    functions = MODULE.functions()
    assert [callees(op) for op in functions["kernel"].bodies[0].entry.ops] == [("pure",), ("writes",), ()]
    assert {op.attributes["sym_name"] for op in reachable_roots(MODULE)} == {"kernel"}
    demand = Demand(MODULE)
    assert functions["kernel"].result in demand.kept and functions["unused"].result not in demand.kept
    assert functions["unused"].result in Demand(MODULE, structure=False).kept


def test_how_many_values_an_op_gives():
    model = function(
        LOOP.replace("STEP", "%one")
        + "%s : i32 = scf.if %b ()i32 -> { scf.yield %n; } ()i32 -> { scf.yield %n; };"
        + "scf.if %b ()void -> { scf.yield; } ()void -> { scf.yield; };"
    )
    counts = [value_count(op) for op in model.bodies[0].entry.ops]
    assert counts == [0, 0, 2, 1, 0, 0]
