from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ziggurat as zg
from ziggurat.codemodel.dialects import arith, py, scf
from ziggurat.codemodel.execute import execute
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.verify import verify
from ziggurat.frontends.reflection import reflect
from ziggurat.transforms.simplify.inline import inline
from ziggurat.transforms.simplify.lower_structured import lower_structured
from ziggurat.transforms.simplify.normalize_blocks import normalize_blocks


def test_branches_and_whiles_nest(becomes: Any) -> None:
    becomes(
        lower_structured,
        """
        tt.func @"f" (%0 : i32, %c : i1)Tuple<i32, i32> -> {
            %1 : i32 = scf.while %0
                (%a : i32)i32 -> { scf.condition %c %a; }
                (%a : i32)i32 -> {
                    %2 : i32 = scf.if %c
                        ()i32 -> { tt.return %0 %0; }
                        ()i32 -> { scf.yield %a; };
                    scf.yield %2;
                };
            %3 : Tuple<i32, i32> = scf.if %c
                ()Tuple<i32, i32> -> { scf.yield %0 %1; }
                ()Tuple<i32, i32> -> { scf.yield %1 %0; };
            tt.return %3;
        };""".replace("tt.return %0 %0", "%t : Tuple<i32, i32> = tuple %0 %0; tt.return %t"),
        """
        tt.func @"f" (%0 : i32, %c : i1)Tuple<i32, i32> -> {
            cf.br ^before(%0);
          ^before(%a : i32):
            cf.cond_br %c ^after(%a) ^rest(%a);
          ^after(%b : i32):
            cf.cond_br %c ^early ^late;
          ^early:
            %t : Tuple<i32, i32> = tuple %0 %0;
            tt.return %t;
          ^late:
            cf.br ^join(%b);
          ^join(%d : i32):
            cf.br ^before(%d);
          ^rest(%1 : i32):
            cf.cond_br %c ^then ^otherwise;
          ^then:
            cf.br ^last(%0, %1);
          ^otherwise:
            cf.br ^last(%1, %0);
          ^last(%x : i32, %y : i32):
            %3 : Tuple<i32, i32> = tuple %x %y;
            tt.return %3;
        };""",
    )


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=60)
def test_random_programs_do_the_same(seed: int, preserves: Any) -> None:
    preserves(lower_structured, seed)


def collatz(n, limit):
    steps = 0
    while n != 1 and steps < limit:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def counting(a, b):
    total = 0
    for i in range(a):
        total += i
    for i in range(b, a):
        total = total * 3 + i
    for i in range(a, b, -2):
        total = total * 5 - i
    step = b - a or 1
    for i in range(0, 2 * (b - a) + 1, step):
        total = total * 7 + i
    return total


def nested(a, b):
    actual = 0
    for i in range(a):
        if i % 2 == 0 or i > b:
            for j in range(i, b):
                if j == 3:
                    actual += i
                elif j > 4:
                    actual -= j
        else:
            actual = actual * 2 + (1 if 1 < i < b else 2)
    return actual


def early(a, b):
    if a < b:
        return a
    elif a == b:
        if a > 3:
            return 7
    return b


@pytest.mark.parametrize("function", [collatz, counting, nested, early], ids=lambda function: function.__name__)
def test_python_models_do_the_same(function: Callable[[int, int], int]) -> None:
    model = reflect(function)
    lowered = lower_structured(model)
    verify(lowered)
    copies = (scf.If, py.If, py.For, py.While, py.CondExpression, py.CondAnd, py.CondOr)
    assert not any(isinstance(op, copies) for op in lowered.walk())
    fewer = normalize_blocks(lowered)
    verify(fewer)
    assert len(fewer.bodies[0].blocks) <= len(lowered.bodies[0].blocks)
    for a in range(1, 8):
        for b in range(8):
            expected = function(a, b)
            assert execute(lowered, (a, b)) == expected, (a, b)
            assert execute(fewer, (a, b)) == expected, (a, b)


def test_a_loop_over_something_else_advances_an_iterator() -> None:
    model = parse(
        """
        func @"f" (%0 : object, %1 : object)object -> {
            for
                ()object -> { yield %0; }
                (%2 : object)object -> {
                    if %1
                        ()object -> { %3 : object = invoke %2 @"zg.device_print"; yield; }
                        ()object -> { yield; };
                    yield;
                };
            return;
        };"""
    )
    lowered = lower_structured(model)
    verify(lowered)
    blocks = lowered.bodies[0].blocks
    assert [[op.NAME for op in block.ops] for block in blocks[:2]] == [
        ["iterate", "branch"],
        ["advance", "exhausted", "cbranch"],
    ]
    assert len(blocks) == 7 and not any(isinstance(op, py.For | py.If) for op in lowered.walk())


@zg.function
def doubled_or_next(x):
    if x > 3:
        return x * 2
    return x + 1


@zg.function
def reduced_by_loops(x):
    while x > 3:
        x = x - 2
    for i in range(3):
        if i == x:
            x = x + i
    return x


@zg.function
def ordered(a, b):
    if a > b:
        return b, a
    return a, b


@zg.function
def larger(a, b):
    if a > b:
        return a
    return b


@zg.kernel
def maps(p, n):
    at = zg.add(p, zg.arange(0, 16))
    for j in range(n):
        if j > 1:
            zg.store(at, zg.map_elementwise(doubled_or_next, zg.load(at)))
        else:
            zg.store(at, zg.map_elementwise(reduced_by_loops, zg.load(at)))


@zg.kernel
def pairs(p, n):
    at = zg.add(p, zg.arange(0, 16))
    low, high = zg.map_elementwise(ordered, zg.load(at), zg.full((16,), n, zg.i32))
    zg.store(at, zg.sub(zg.mul(high, 3), low))


@zg.kernel
def combines(p, n):
    at = zg.add(p, zg.arange(0, 16))
    x = zg.associative_scan(zg.load(at), 0, larger)
    zg.store(at, zg.add(x, zg.reduce(x, 0, larger)))


@pytest.mark.parametrize("kernel", [maps, pairs, combines])
def test_bodies_that_are_applied_to_elements_may_have_blocks(kernel: Any) -> None:
    model = inline(kernel.triton(zg.ptr(zg.i32), zg.i32))
    lowered = lower_structured(model)
    verify(lowered)
    assert zg.same_model(parse(str(lowered)), lowered) and "scf." not in str(lowered)
    before, after = (np.arange(16, dtype=np.int32) % 11 for _ in range(2))
    zg.run(model, 1, before, 4)
    zg.run(lowered, 1, after, 4)
    assert before.tolist() == after.tolist() != (np.arange(16) % 11).tolist()


@pytest.mark.parametrize(("kind", "less"), [("i32", "slt"), ("u32", "ult"), ("i64", "slt"), ("u64", "ult")])
def test_the_index_is_compared_as_its_type_counts(kind: str, less: str) -> None:
    model = parse(f"""
        tt.func @"f" (%n : {kind}, %s : {kind})void -> {{
            %0 : {kind} = arith.constant @0;
            %1 : {kind} = arith.constant @1;
            scf.for %0 %n %1 (%i : {kind})void -> {{ scf.yield; }};
            tt.return;
        }};""")
    lowered = lower_structured(model)
    verify(lowered)
    assert [op.predicate.value for op in lowered.walk() if isinstance(op, arith.CmpI)] == [less]
