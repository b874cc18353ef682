"""Dominators against their definition: a dominates b when b cannot be reached without a."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import cf, core, tt
from ziggurat.codemodel.dominance import Dominance, DominatorTree
from ziggurat.codemodel.op import Block, Body, Successor
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import i1


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    """Up to 8 nodes with up to two successors each; never the entry, as in a body."""
    count = draw(st.integers(1, 8))
    if count == 1:
        return [[]]
    return [draw(st.lists(st.integers(1, count - 1), max_size=2)) for _ in range(count)]


def blocks_of(graph: list[list[int]]) -> tuple[Body, list[Block]]:
    """A body with this flow, and its blocks. The body lacks those that nothing leads to."""
    builder = Builder.root([i1])
    blocks = [builder.block, *(builder.new_block() for _ in graph[1:])]
    for block, following in zip(blocks, graph, strict=True):
        builder.move_to(block)
        targets = [Successor(blocks[index]) for index in following]
        if not targets:
            builder.add(tt.Return([]))
        elif len(targets) == 1:
            builder.add(cf.Br(targets[0]))
        else:
            builder.add(cf.CondBr(builder.entry.parameters[0], *targets))
    return builder.finish(), blocks


def reaches(successors: dict[int, list[int]], start: int, goal: int, without: int | None = None) -> bool:
    """Whether there is a path (of no or more steps) that passes no `without`."""
    if without is not None and without in (start, goal):
        return False
    values, work = {start}, [start]
    while work:
        node = work.pop()
        if node == goal:
            return True
        for following in successors[node]:
            if following not in values and following != without:
                values.add(following)
                work.append(following)
    return False


def graph_of(body: Body) -> dict[int, list[int]]:
    return {block.index: [s.index for s in block.successors] for block in body.blocks}


@given(graphs())
def test_dominators_are_those_of_the_definition(graph: list[list[int]]):
    body, _ = blocks_of(graph)
    flow, tree = graph_of(body), DominatorTree(body)
    strict: dict[int, set[int]] = {}
    for b in body.blocks:
        assert tree.reachable(b)
        above = {a.index for a in body.blocks if a is not b and not reaches(flow, 0, b.index, without=a.index)}
        assert {a.index for a in body.blocks if tree.dominates(a, b)} == above | {b.index}
        strict[b.index] = above
    for b in body.blocks:
        # The immediate dominator is the strict dominator that all others dominate.
        closest = [a for a in strict[b.index] if strict[b.index] == strict[a] | {a}]
        parent = tree.parent[b]
        assert closest == ([] if parent is None else [parent.index])


@given(graphs())
def test_frontiers_are_those_of_the_definition(graph: list[list[int]]):
    body, _ = blocks_of(graph)
    tree = DominatorTree(body)
    for a in body.blocks:
        expected = [
            b
            for b in body.blocks
            if any(tree.dominates(a, p) for p in b.predecessors) and (a is b or not tree.dominates(a, b))
        ]
        assert list(tree.frontiers[a]) == expected
    everything = set(body.blocks)
    assert tree.iterated_frontier(body.blocks) == {b for a in everything for b in tree.frontiers[a]}


@given(graphs())
def test_blocks_that_are_not_reached_dominate_themselves_only(graph: list[list[int]]):
    blocks = blocks_of(graph)[1]
    flow, tree = dict(enumerate(graph)), DominatorTree(blocks[0].parent)
    for index, block in enumerate(blocks):
        assert tree.reachable(block) == (block in tree.parent) == reaches(flow, 0, index)
        if not tree.reachable(block):
            assert [other for other in blocks if tree.dominates(block, other) or tree.dominates(other, block)] == [
                block
            ]


MODEL = """tt.func @"f" (%n : i32, %c : i1)void -> {
    %0 : i32 = arith.constant @1;
    %1 : i32 = scf.if %c ()i32 -> { %2 : i32 = arith.addi %0 %n; scf.yield %2; }
                         ()i32 -> { %3 : i32 = arith.subi %0 %n; scf.yield %3; };
    cf.cond_br %c ^a ^b;
  ^a: %4 : i32 = arith.muli %1 %1; cf.br ^d;
  ^b: cf.br ^d;
  ^d: tt.print %1 @""; tt.return;
};"""


def test_values_dominate_across_bodies():
    model = parse(MODEL)
    ops = {op.NAME: op for op in model.walk()}
    unit, choice = ops["arith.constant"].result, ops["scf.if"].result
    parameter = model.bodies[0].parameters[0]
    constants = Dominance()
    assert all(constants.dominates(parameter, op) for op in model.bodies[0].walk())
    assert constants.dominates(unit, ops["arith.addi"]) and constants.dominates(unit, ops["tt.print"])
    assert not constants.dominates(unit, ops["arith.constant"])
    assert not constants.dominates(ops["arith.addi"].result, ops["arith.subi"])
    assert not constants.dominates(ops["arith.addi"].result, ops["tt.print"])
    assert not constants.dominates(choice, ops["arith.addi"]), "the result is not there inside of the op"
    assert constants.dominates(choice, ops["arith.muli"])
    assert not constants.dominates(ops["arith.muli"].result, ops["tt.print"])
    assert constants.dominates(choice, ops["tt.print"])
    assert not constants.dominates(ops["tt.print"].result, ops["scf.if"])
    assert not constants.dominates(choice, ops["scf.if"])


def test_the_result_of_an_op_that_is_not_placed_dominates_nothing():
    builder = Builder.root()
    loose = tt.GetProgramId(0)
    builder.add(core.Unreachable())
    module = core.Module(builder.finish())
    assert not Dominance().dominates(loose.result, module.bodies[0].entry.terminator)
