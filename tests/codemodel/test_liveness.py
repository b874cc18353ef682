"""Liveness against its definition: a value is live where some path leads to a use before the value is made again."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, cf, scf, tt
from ziggurat.codemodel.dominance import DominatorTree
from ziggurat.codemodel.liveness import Liveness, used_by
from ziggurat.codemodel.op import Block, Body, Op, Successor, Value
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import i1, i32


def random_body(rng: random.Random) -> Body:
    """A body of a few blocks, each with a parameter, whose ops use values that dominate them; some have bodies."""
    shape = random_shape(rng)
    builder = Builder.root([i1, i32])
    choice, number = builder.parameters
    blocks = [builder.block, *(builder.new_block([i32]) for _ in shape[1:])]
    for block, following in zip(blocks, shape, strict=True):
        builder.move_to(block)
        known: list[Value] = [number, *block.parameters[-1:]]
        for _ in range(rng.randint(0, 3)):
            known.append(builder.add(arith.AddI(rng.choice(known), rng.choice(known))))
        if rng.random() < 0.3:
            inner = builder.nested([], i32)
            inner.add(scf.Yield([inner.add(arith.MulI(rng.choice(known), rng.choice(known)))]))
            other = builder.nested([], i32)
            other.add(scf.Yield([rng.choice(known)]))
            known.append(builder.add(scf.If(choice, inner.finish(), other.finish())))
        targets = [Successor(blocks[index], [rng.choice(known)]) for index in following]
        if not targets:
            builder.add(tt.Return([]))
        elif len(targets) == 1:
            builder.add(cf.Br(targets[0]))
        else:
            builder.add(cf.CondBr(choice, *targets))
    return builder.finish()


def random_shape(rng: random.Random) -> list[list[int]]:
    count = rng.randint(1, 6)
    if count == 1:
        return [[]]
    return [[rng.randint(1, count - 1) for _ in range(rng.choice([0, 1, 2, 2]))] for _ in range(count)]


def needed(block: Block, start: int, value: Value, seen: set[Block]) -> bool:
    """Whether a walk from op `start` of the block finds a use of the value before the value is made."""
    for op in block.ops[start:]:
        if value in used_by(op):
            return True
        if op.result is value:
            return False
    for following in block.successors:
        if following not in seen:
            seen.add(following)
            if value not in following.parameters and needed(following, 0, value, seen):
                return True
    return False


@given(st.integers(0, 1 << 32))
def test_live_sets_are_those_of_the_definition(seed: int):
    body = random_body(random.Random(seed))
    live = Liveness(body)
    values: set[Value] = {value for block in body.blocks for value in block.parameters}
    values |= {op.result for block in body.blocks for op in block.ops}
    for block in body.blocks:
        end = len(block.ops)
        assert live.live_in(block) == {v for v in values if v not in block.parameters and needed(block, 0, v, set())}
        assert live.live_out(block) == {v for v in values if needed(block, end, v, set())}
        for index, op in enumerate(block.ops):
            after = {v for v in values if needed(block, index + 1, v, set())}
            assert live.live_after(op) == after
            for value in values:
                assert live.is_last_use(value, op) == (value in used_by(op) and value not in after)


@given(st.integers(0, 1 << 32))
def test_what_is_live_at_a_start_dominates_it(seed: int):
    body = random_body(random.Random(seed))
    live, tree = Liveness(body), DominatorTree(body)
    for block in body.blocks:
        for value in live.live_in(block):
            home = value.block
            assert home is not None and home is not block and tree.dominates(home, block)


def test_a_capture_is_a_use_of_the_op():
    model = parse(
        """tt.func @"f" (%n : i32, %c : i1)void -> {
        %0 : i32 = arith.constant @1; %1 : i32 = arith.addi %n %0;
        scf.if %c ()void -> { tt.print %1 @""; scf.yield; } ()void -> { scf.yield; };
        tt.print %n @""; tt.return; };"""
    )
    body = model.bodies[0]
    ops: dict[str, Op] = {op.NAME: op for op in body.entry.ops}
    live = Liveness(body)
    number, condition = body.parameters
    assert list(used_by(ops["scf.if"])) == [condition, ops["arith.addi"].result]
    assert live.is_last_use(ops["arith.addi"].result, ops["scf.if"])
    assert live.is_last_use(condition, ops["scf.if"])
    assert not live.is_last_use(number, ops["arith.addi"]) and live.is_last_use(number, ops["tt.print"])
    inner = Liveness(ops["scf.if"].bodies[0])
    assert inner.live_in(ops["scf.if"].bodies[0].entry) == {ops["arith.addi"].result}
    with pytest.raises(ValueError, match="does not stand directly in the body"):
        live.is_last_use(number, ops["scf.if"].bodies[0].entry.ops[0])
