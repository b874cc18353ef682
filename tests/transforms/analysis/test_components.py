"""Components and groups: Tuples are looked through, and control flow joins components."""

from __future__ import annotations

import pytest

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, scf, tt
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import TensorType, TupleType, component_types, f32, i32, void
from ziggurat.transforms.analysis.components import (
    ComponentGroup,
    Propagation,
    component_of,
    components_of,
    groups_of,
    tensor_operands,
    tensor_type,
)

TENSOR = TensorType((8,), f32)


def function(body: str, parameters: str = "%n : i32, %x : tensor<x8, f32>, %c : i1") -> tt.Func:
    func = parse(f'tt.func @"f" ({parameters})void -> {{ {body} }};')
    assert isinstance(func, tt.Func)
    return func


def only(func: Op, kind: type[Op]) -> Op:
    (results,) = [op for op in func.walk() if isinstance(op, kind)]
    return results


LOOP = """%zero : i32 = arith.constant @0; %one : i32 = arith.constant @1;
    %t : Tuple<tensor<x8, f32>, i32> = scf.for %zero %n %one %x %n
        (%i : i32, %y : tensor<x8, f32>, %m : i32)Tuple<tensor<x8, f32>, i32> -> {
            %z : tensor<x8, f32> = arith.addf %y %y; scf.yield %z %i; };
    %a : tensor<x8, f32> = tuple.load %t @0; %b : i32 = tuple.load %t @1; tt.print %a %b @""; tt.return;"""


def test_types_of_components() -> None:
    assert component_types(i32) == (i32,) and component_types(void) == ()
    assert component_types(TupleType((TENSOR, i32))) == (TENSOR, i32)


def test_a_loaded_component_is_that_of_the_op_that_gives_it() -> None:
    func = function(LOOP)
    loop, printed = only(func, scf.For), only(func, tt.Print)
    tensor, number = printed.operands
    assert component_of(tensor) == (loop.result, 0) and component_of(number) == (loop.result, 1)
    assert components_of(loop.result) == ((loop.result, 0), (loop.result, 1))
    assert tensor_type((loop.result, 0)) == TENSOR and tensor_type((loop.result, 1)) is None
    # A parameter and a result that is no Tuple stand for themselves.
    assert component_of(func.body.parameters[0]) == (func.body.parameters[0], 0)
    assert components_of(only(func, tt.Return).result) == ()


def test_a_component_of_a_made_tuple() -> None:
    func = function("""%t : Tuple<i32, tensor<x8, f32>> = tuple %n %x; %y : tensor<x8, f32> = tuple.load %t @1;
        %u : Tuple<tensor<x8, f32>, i32> = tuple %y %n; %z : tensor<x8, f32> = tuple.load %u @0;
        tt.print %z @""; tt.return;""")
    (text,) = only(func, tt.Print).operands
    assert component_of(text) == (func.body.parameters[1], 0)


@pytest.mark.parametrize("whole", ["parameter", "changed"])
def test_a_tuple_that_is_not_of_one_op_is_an_internal_error(whole: str) -> None:
    """`prepare` leaves none."""
    f = Builder.root([TupleType((i32, i32)), i32])
    tuple_, number = f.parameters
    if whole == "changed":
        tuple_ = f.add(core.TupleWith(f.add(core.MakeTuple((number, number))), number, 1))
    values = f.add(core.TupleLoad(tuple_, 0))
    f.add(tt.Return([]))
    tt.Func("f", f.finish())
    with pytest.raises(InternalError, match="a Tuple that is more than the results of one op"):
        component_of(values)


def test_operands_that_are_tensors() -> None:
    func = function('%y : tensor<x8, f32> = arith.select %c %x %x; tt.print %n %y @""; tt.return;')
    x = func.body.parameters[1]
    assert tensor_operands(func.body.entry.ops[0]) == [(1, (x, 0), TENSOR), (2, (x, 0), TENSOR)]
    choice = func.body.entry.ops[0].result
    assert tensor_operands(only(func, tt.Print)) == [(1, (choice, 0), TENSOR)]


def test_a_loop_carried_variable_is_a_group() -> None:
    func = function(LOOP)
    loop = only(func, scf.For)
    assert isinstance(loop, scf.For)
    groups = groups_of(func)
    index, tensor, number = loop.body.parameters
    group = groups[(tensor, 0)]
    assert group.members == ((tensor, 0), (loop.result, 0)) and groups[(loop.result, 0)] is group
    # Sources from inside come first.
    end = only(func, scf.Yield)
    assert group.sources == ((end, (end.operands[0], 0)), (loop, (func.body.parameters[1], 0)))
    assert groups[(number, 0)].sources == ((end, (index, 0)), (loop, (func.body.parameters[0], 0)))
    assert (index, 0) not in groups and len(groups) == 4


def test_a_while_joins_both_bodies() -> None:
    func = function("""%w : tensor<x8, f32> = scf.while %x
        (%y : tensor<x8, f32>)tensor<x8, f32> -> { scf.condition %c %y; }
        (%z : tensor<x8, f32>)tensor<x8, f32> -> { %s : tensor<x8, f32> = arith.addf %z %z; scf.yield %s; };
        tt.return;""")
    loop = only(func, scf.While)
    assert isinstance(loop, scf.While)
    (before,), (after,) = loop.before.parameters, loop.after.parameters
    groups = groups_of(func)
    assert set(groups) == {(before, 0), (after, 0), (loop.result, 0)} and len(set(groups.values())) == 1
    group = groups[(after, 0)]
    end, condition = only(func, scf.Yield), only(func, scf.Condition)
    expected = ((end, (end.operands[0], 0)), (condition, (before, 0)), (loop, (func.body.parameters[1], 0)))
    assert group.sources == expected


def test_the_branches_of_an_if_give_one_component() -> None:
    func = function("""%t : Tuple<tensor<x8, f32>, i32> = scf.if %c
        ()Tuple<tensor<x8, f32>, i32> -> { scf.yield %x %n; }
        ()Tuple<tensor<x8, f32>, i32> -> { %y : tensor<x8, f32> = arith.addf %x %x; scf.yield %y %n; }; tt.return;""")
    choice = only(func, scf.If)
    assert isinstance(choice, scf.If)
    (then,), (otherwise,) = choice.terminators(choice.then), choice.terminators(choice.otherwise)
    group = groups_of(func)[(choice.result, 0)]
    assert group.members == ((choice.result, 0),)
    assert group.sources == ((then, (func.body.parameters[1], 0)), (otherwise, (otherwise.operands[0], 0)))


def test_parameters_of_blocks_are_groups() -> None:
    func = function("""%y : tensor<x8, f32> = arith.addf %x %x; cf.br ^block_1(%x);
      ^block_1(%a : tensor<x8, f32>):
        %b : tensor<x8, f32> = arith.addf %a %y; cf.cond_br %c ^block_1(%b) ^block_2(%n);
      ^block_2(%m : i32): tt.return;""")
    _, head, last = func.body.blocks
    groups = groups_of(func)
    assert set(groups) == {(head.parameters[0], 0), (last.parameters[0], 0)}
    group = groups[(head.parameters[0], 0)]
    inside, outside = group.sources
    assert inside[0] is head.terminator and inside[1] == (head.ops[0].result, 0)
    assert outside == (func.body.entry.terminator, (func.body.parameters[1], 0))


def row_of_branches(count: int) -> tuple[tt.Func, list[Op | ComponentGroup]]:
    """A row of branches, each of which continues with the result of the one before."""
    branch = """%y{0} : tensor<x8, f32> = scf.if %c
        ()tensor<x8, f32> -> {{ %a{0} : tensor<x8, f32> = arith.addf %{1} %x; scf.yield %a{0}; }} ()tensor<x8, f32> ->
        {{ %b{0} : tensor<x8, f32> = arith.mulf %{1} %x; scf.yield %b{0}; }};"""
    text = "".join(branch.format(at, f"y{at - 1}" if at else "x") for at in range(count))
    func = function(f"{text} tt.return;")
    return func, [*dict.fromkeys(groups_of(func).values()), *func.walk()]


@pytest.mark.parametrize("count", [1, 10, 20])
def test_each_branch_of_a_row_is_visited_as_often_as_the_first(count: int) -> None:
    """Groups come before all ops here, so a fact passes one branch in a round."""
    func, items = row_of_branches(count)
    constants: set[object] = {(parameter, 0) for parameter in func.body.parameters}
    visits = 0

    def visit(item: Op | ComponentGroup) -> list[tuple[Value, int]]:
        nonlocal visits
        visits += 1
        results = item.members if isinstance(item, ComponentGroup) else ((item.result, 0),)
        sources = [s for _, s in item.sources] if isinstance(item, ComponentGroup) else [(v, 0) for v in item.operands]
        if results[0] in constants or not all(source in constants for source in sources):
            return []
        constants.update(results)
        return list(results)

    Propagation(items).run(visit)
    assert all(component in constants for component in groups_of(func))
    assert visits <= len(items) + 8 * count
