"""Tests of codemodel/builder.py: ops are checked as they come, and a finished body has its blocks in order."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, py, scf
from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Successor
from ziggurat.codemodel.types import f32, i1, i32, pyobject, void


def refused(message: str) -> AbstractContextManager[object]:
    return pytest.raises(BuildError, match=re.escape(message))


def constant(value: int = 1) -> arith.ConstantOp:
    return arith.ConstantOp(value, i32)


def test_the_example_of_the_docstring():
    f = Builder.root([i32, i32], i32)
    x, y = f.parameters
    total = f.add(arith.AddI(x, y))
    f.add(core.Return([total]))
    func = core.Func("sum", f.finish())
    assert str(func) == (
        'func @"sum" (%0 : i32, %1 : i32)i32 -> {\n    %2 : i32 = arith.addi %0 %1;\n    return %2;\n};\n'
    )
    assert func.bodies[0].parent is func and total.op.parent is func.bodies[0].entry


# Errors.


def test_an_op_is_placed_once():
    b = Builder.root()
    op = constant()
    b.add(op)
    with refused("arith.constant is placed already; copy it with a transform"):
        b.add(op)
    with refused("placed already"):
        Builder.root().add(op)


def test_nothing_comes_after_the_terminator():
    b = Builder.root()
    assert not b.terminated
    b.add(core.Return([]))
    assert b.terminated
    with refused("cannot add arith.constant after the block's terminator"):
        b.add(constant())


def test_operands_are_placed():
    b = Builder.root()
    free = constant().result
    with refused("an operand is the result of an op that is not placed"):
        b.add(arith.AddI(free, free))
    with refused("an operand is the result of an op that is not placed"):
        b.add(core.Return([free]))
    target = b.new_block([i32])
    with refused("not placed"):
        b.add(core.Branch(Successor(target, [free])))


def test_operands_are_visible():
    outer = Builder.root([i32])
    inner = outer.nested([i32])
    (x,), (y,) = outer.parameters, inner.parameters
    inner.add(arith.AddI(x, y))  # what is outside is visible inside
    with refused("arith.addi: an operand is not visible here"):
        outer.add(arith.AddI(x, y))
    beside = outer.nested()
    with refused("not visible"):
        beside.add(arith.AddI(x, y))
    with refused("not visible"):
        Builder.root([i32]).add(arith.AddI(x, x))  # an isolated body sees nothing


def test_operands_may_come_from_two_bodies_out_and_from_other_blocks():
    outer = Builder.root([i32])
    middle = outer.nested()
    inner = middle.nested()
    inner.move_to(inner.new_block())
    assert inner.add(arith.AddI(*outer.parameters * 2)).block is inner.block


def test_successors_are_other_blocks_of_the_body():
    b = Builder.root([i32])
    with refused("branch: the entry block cannot be a successor"):
        b.add(core.Branch(Successor(b.entry, b.parameters)))
    other = Builder.root().new_block()
    with refused("branch: a successor must be a block of the same body"):
        b.add(core.Branch(Successor(other)))


def test_a_body_stays_where_it_was_started():
    outer = Builder.root([i1], void)
    inner = outer.nested()
    then, otherwise = inner.nested(), inner.nested()
    for part in (then, otherwise):
        part.add(scf.Yield([]))
    choice = scf.If(outer.parameters[0], then.finish(), otherwise.finish())
    with refused("scf.if: its body was started at another place"):
        outer.add(choice)
    inner.add(choice)


def test_a_finished_body_takes_nothing_more():
    b = Builder.root()
    block = b.new_block()
    b.add(core.Return([]))
    other = b.at(block)
    other.add(core.Return([]))
    b.finish()
    for attempt in (lambda: other.add(constant()), b.nested, b.new_block, b.finish):
        with refused("the body is finished"):
            attempt()


def test_each_block_needs_a_terminator():
    b = Builder.root()
    with refused("block 0 has no terminator"):
        b.finish()
    block = b.new_block()
    b.add(core.Return([]))
    with refused("block 1 has no terminator"):  # also one that nothing leads to
        b.finish()
    b.move_to(block)
    b.add(constant())
    with refused("block 1 has no terminator"):
        b.finish()
    b.add(core.Return([]))
    b.finish()


def test_inner_bodies_are_finished_or_abandoned_first():
    b = Builder.root()
    inner = b.nested()
    b.add(core.Return([]))
    with refused("an inner body is not finished"):
        b.finish()
    inner.abandon()
    inner.abandon()  # twice is once
    with refused("finished"):
        inner.add(constant())
    b.finish()


def test_a_builder_stays_in_its_body():
    b = Builder.root()
    with refused("moves only among the blocks of its own body"):
        b.move_to(Builder.root().entry)
    with refused("moves only among"):
        b.at(b.nested().entry)


def test_an_unfinished_body_is_not_part_of_an_op():
    b = Builder.root()
    b.add(core.Return([]))
    with refused("func: its body is not finished"):
        core.Func("f", b.body)
    core.Func("f", b.finish())


def test_a_body_is_part_of_one_op():
    b = Builder.root()
    b.add(core.Return([]))
    body = b.finish()
    func = core.Func("f", body)
    with refused("func: its body is part of an op already"):
        core.Func("g", body)
    assert body.parent is func
    outer = Builder.root([i1])
    inner = outer.nested()
    inner.add(scf.Yield([]))
    shared = inner.finish()
    with refused("scf.if: its body is part of an op already"):
        scf.If(outer.parameters[0], shared, shared)


def test_a_body_is_free_after_an_op_refused_it():
    b = Builder.root([i1], void)
    inner = b.nested()
    inner.add(scf.Yield([]))
    part = inner.finish()
    number = b.add(constant())
    spare = b.nested()
    spare.add(scf.Yield([]))
    other = spare.finish()
    with refused("operand 'condition' of scf.if must be i1; got i32"):
        scf.If(number, part, other)
    b.add(scf.If(b.parameters[0], part, other))


# Places and locations.


def test_builders_of_one_body_share_it():
    b = Builder.root([i32], i32)
    (x,) = b.parameters
    block = b.new_block([i32])
    other = b.at(block)
    assert other.parameters == block.parameters and other.entry is b.entry and other.body is b.body
    b.add(core.Branch(Successor(block, [x])))
    other.add(core.Return([block.parameters[0]]))
    assert [len(block.ops) for block in b.finish().blocks] == [1, 1]


def test_locations_are_given_to_ops_that_have_none():
    here, there = Location("k.py", 1), Location("k.py", 2)
    b = Builder.root()
    b.location = here
    assert b.add(constant()).op.location is here
    assert b.add(constant(), there).op.location is there
    assert b.nested().add(constant()).op.location is here
    assert b.at(b.new_block()).add(constant()).op.location is here
    b.location = None
    assert b.add(constant()).op.location is None


# The order of blocks.


def diamond(first: str, second: str) -> list[str]:
    """Builds entry → a, b → join with the blocks made in another order, and names them as finished."""
    b = Builder.root([i1])
    table = {name: b.new_block() for name in ("join", "b", "a", "nowhere")}
    b.add(core.CondBranch(b.parameters[0], Successor(table[first]), Successor(table[second])))
    for name in ("a", "b"):
        b.at(table[name]).add(core.Branch(Successor(table["join"])))
    b.at(table["join"]).add(core.Return([]))
    b.at(table["nowhere"]).add(core.Branch(Successor(table["join"])))
    names = {block: name for name, block in table.items()}
    return [names.get(block, "entry") for block in b.finish().blocks]


def test_blocks_come_in_reverse_postorder_without_the_unreachable():
    assert diamond("a", "b") == ["entry", "a", "b", "join"]
    assert diamond("b", "a") == ["entry", "b", "a", "join"]


def test_what_is_dropped_is_not_a_predecessor():
    b = Builder.root()
    join, nowhere = b.new_block(), b.new_block()
    b.add(core.Branch(Successor(join)))
    b.at(nowhere).add(core.Branch(Successor(join)))
    b.at(join).add(core.Return([]))
    body = b.finish()
    assert join.predecessors == (body.entry,) and nowhere not in body.blocks


@given(st.lists(st.lists(st.integers(0, 11), max_size=2), min_size=1, max_size=12))
def test_each_block_follows_one_that_leads_to_it(graph: list[list[int]]):
    b = Builder.root([pyobject])
    blocks = [b.entry, *(b.new_block() for _ in graph[1:])]
    for block, targets in zip(blocks, graph, strict=True):
        here = b.at(block)
        successors = [Successor(blocks[1 + t % (len(blocks) - 1)]) for t in targets] if len(blocks) > 1 else []
        match successors:
            case [one]:
                here.add(core.Branch(one))
            case [one, two]:
                here.add(core.CondBranch(b.parameters[0], one, two))
            case _:
                here.add(core.Return([]))
    body = b.finish()
    assert body.blocks[0] is b.entry and len(set(body.blocks)) == len(body.blocks)
    reached = set(body.blocks)
    for position, block in enumerate(body.blocks):
        assert set(block.successors) <= reached
        if position:
            assert any(before in block.predecessors for before in body.blocks[:position])
    # Without loops, all that lead to a block come before it.
    edges = {(a, c) for a in body.blocks for c in a.successors}
    order = {block: position for position, block in enumerate(body.blocks)}
    back = {(a, c) for a, c in edges if order[a] >= order[c]}
    for _, target in back:
        assert _reaches(target, {a for a, c in back if c is target})


def _reaches(start, goals) -> bool:
    values, stack = {start}, [start]
    while stack:
        block = stack.pop()
        for following in block.successors:
            if following not in values:
                values.add(following)
                stack.append(following)
    return goals <= values


def test_types_are_checked_when_the_op_is_made():
    b = Builder.root([i32, f32])
    x, y = b.parameters
    with refused("arith.addi: the operands must be of one type; got i32 and f32"):
        arith.AddI(x, y)
    with refused("arith.addf: the operands must be floats; got i32"):
        arith.AddF(x, x)
    assert py.Add(x, y).result.type is pyobject
