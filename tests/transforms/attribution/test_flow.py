"""Attribution of control flow: what is chosen, joined, carried and unrolled."""

from __future__ import annotations

import pytest
from findings import callees, facts

import ziggurat as zg
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import KernelSyntaxError, KernelTypeError, KernelValueError
from ziggurat.codemodel.types import PtrType, TensorType, f32, i1, i16, i32, i64, u32, u64
from ziggurat.transforms.attribution import attribute, constant
from ziggurat.transforms.attribution.attribute import Attributor, FunctionAttributor
from ziggurat.transforms.attribution.flow import index_type, stored_variables
from ziggurat.transforms.calls.constant_arguments import FunctionName
from ziggurat.transforms.calls.lattice import RangeType, Unusable
from ziggurat.transforms.calls.promotion import NONE

P = PtrType(f32)


def joins(attribution, cls):
    """The joins of the first op of a class: the types by the variables' names."""
    op = next(op for op in attribution.func.walk() if isinstance(op, cls))
    return {var.op.name: type_ for var, type_ in attribution.scope.finding(op).joins.items()}


@zg.kernel
def branches(p, n, FLAG: zg.constexpr):
    a = 1
    b = 2
    if n > 0:
        a = n
        c = n
    else:
        b = p
        c = 3
    if FLAG:
        d = 1.0
    else:
        d = zg.load(n)
    zg.store(p, a + d + c)


def test_an_if_joins_what_its_bodies_store():
    attribution = attribute(branches, (P, i32, constant(True)))
    assert joins(attribution, py.If) == {"a": i32, "c": i32, "b": Unusable((constant(2), P))}
    ifs = [op for op in branches.model.walk() if isinstance(op, py.If)]
    assert facts(attribution, "static_branch") == {ifs[1]: 0} and not attribution.scope.finding(ifs[1]).joins


def test_the_body_that_is_not_taken_is_not_looked_at():
    attribution = attribute(branches, (P, i32, constant(True)))
    load = next(op for op in branches.model.walk() if isinstance(op, py.Invoke) and op.callee == "zg.load")
    with pytest.raises(KeyError):
        attribution.scope.type_of(load.result)
    with pytest.raises(KernelTypeError, match=r"zg.load: 'ptr' must be a pointer"):
        attribute(branches, (P, i32, constant(False)))


@zg.kernel
def carries(p, n):
    total = 0
    same = 5
    i = n
    while i > 0:
        total = total + 0.5
        same = 5
        i = i - 1
    for k in range(n):
        total = total + k
    zg.store(p, total + same)


def test_a_loop_is_brought_to_a_fixpoint():
    attribution = attribute(carries, (P, i32))
    assert joins(attribution, py.While) == {"total": f32, "same": constant(5), "i": i32}
    assert joins(attribution, py.For) == {"total": f32}
    (range_,) = facts(attribution, "range").values()
    assert range_ == RangeType(constant(0), i32, constant(1))


@zg.kernel
def never_runs(p, n):
    while False:
        zg.load(n)
    zg.store(p, 1.0)


@zg.kernel
def never_ends(p):
    while True:
        zg.store(p, 1.0)


@zg.kernel
def changes_type(p, n):
    a = zg.zeros((4,), zg.f32)
    for i in range(n):
        a = p
    zg.store(p, zg.sum(a))


@zg.kernel
def too_long(p):
    for i in zg.static_range(4097):
        zg.debug_barrier()


def test_loops_that_are_known_at_the_start():
    attribution = attribute(never_runs, (P, i32))
    assert list(facts(attribution, "static_branch").values()) == [1]
    with pytest.raises(KernelSyntaxError, match="this loop never ends: its condition is always true"):
        attribute(never_ends, (P,))


@pytest.mark.parametrize(
    ("kernel", "types", "error", "words"),
    [
        (changes_type, (P, i32), KernelTypeError, "'a' must keep its type in the loop; got tensor<x4, f32> before it"),
        (too_long, (P,), KernelValueError, "an unrolled loop must have at most 4096 iterations"),
    ],
)  # fmt: skip
def test_loops_that_are_none(kernel, types, error, words):
    with pytest.raises(error, match=words):
        attribute(kernel, types)


def test_a_for_runs_over_a_tuple_and_nothing_else():
    model = zg.parse(
        'func @"k" (%0 : object)object -> { for ()object -> { yield %0; } (%1 : object)object -> { yield; }; return; };'
    )
    attribution = attribute(model, (constant((1, 2.5)),))
    ((_, iterations),) = facts(attribution, "iterations").items()
    assert [item for item, _ in iterations] == [constant(1), constant(2.5)]
    for type_ in (i32, TensorType((4,), i32), constant("ab")):
        with pytest.raises(KernelTypeError, match="'for' must run over a range or a tuple; got"):
            attribute(model, (type_,))


@zg.function
def chosen(a, b, c):
    return a if c else b


@zg.function
def both(a, b, c):
    return a and b and c


@zg.function
def either(a, b, c):
    return a or b or c


@zg.function
def early(a, b, c):
    if c > 0:
        return a
    return b


@zg.function
def falls_off(a, b, c):
    if c > 0:
        return a


def result_of(function, *types):
    kernel = zg.parse(
        'func @"k" (%0 : object, %1 : object, %2 : object)object -> { %3 : object = func.call %0 %1 %2 @"f"; return; };'
    )
    (callee,) = callees(attribute(kernel, types, {"f": function.model}))
    return callee


@pytest.mark.parametrize(
    ("function", "types", "expected"),
    [
        (chosen, (i32, f32, constant(1)), i32),
        (chosen, (i32, i32, i1), i32),
        (chosen, (constant(1), constant(2), i1), i32),
        (chosen, (constant(1), f32, i1), f32),
        (chosen, (constant(0.5), i32, i1), f32),
        (both, (constant(0), i32, i32), constant(0)),
        (both, (i32, constant(0), i32), constant(0)),
        (both, (i32, i32, constant(3)), i32),
        (both, (constant(2), constant(None), i32), constant(None)),
        (both, (constant(2), i64, constant(True)), i64),
        (both, (constant(1), constant("a"), constant(2)), constant(2)),
        (both, (i32, constant(1), i64), i1),
        (either, (constant(7), i32, i32), constant(7)),
        (either, (i32, f32, constant(0)), i1),
        (either, (constant(0), f32, constant(None)), f32),
        (either, (constant(None), constant(0), PtrType(i16)), PtrType(i16)),
        (either, (constant(0), i16, constant(700)), i16),
        (either, (constant(0), i1, constant(True)), constant(True)),
        (either, (constant(0), constant(()), constant(None)), constant(None)),
        (early, (i32, i32, i32), i32),
        (early, (constant(1), constant(2), i32), i32),
        (early, (i32, f32, constant(1)), i32),
    ],
)  # fmt: skip
def test_values_that_are_chosen(function, types, expected):
    assert result_of(function, *types).result == expected


def test_values_that_cannot_be_chosen():
    with pytest.raises(KernelTypeError, match="the values of 'if … else' must have one type; got i32 and ptr<f32>"):
        result_of(chosen, i32, P, i1)
    with pytest.raises(KernelTypeError, match="the condition of 'if' must be a scalar"):
        result_of(chosen, i32, i32, TensorType((4,), i1))
    with pytest.raises(KernelTypeError, match="returns i32 on one path and f32 here"):
        result_of(early, i32, f32, i32)


def test_a_path_that_is_not_taken_returns_nothing():
    assert result_of(falls_off, i32, i32, constant(1)).result == i32
    assert result_of(falls_off, i32, i32, constant(0)).result == NONE
    assert result_of(falls_off, i32, i32, i32).result == i32


@zg.function
def unrolled_over(n, COUNT: zg.constexpr, m):
    for _ in zg.static_range(COUNT):
        n = n
    return n


def test_a_loop_is_unrolled_over_4096_iterations_at_most():
    assert result_of(unrolled_over, i32, constant(4096), i32).result == i32
    with pytest.raises(KernelValueError, match="an unrolled loop must have at most 4096 iterations; got more"):
        result_of(unrolled_over, i32, constant(4097), i32)


@zg.function
def unrolled_twice(n, COUNT: zg.constexpr, m):
    for _ in zg.static_range(COUNT):
        for _ in zg.static_range(COUNT):
            pass
    return n


def test_unrolled_loops_have_32768_iterations_in_all_at_most():
    with pytest.raises(KernelValueError, match="must have at most 32768 iterations in all; got more"):
        result_of(unrolled_twice, i32, constant(181), i32)


def test_the_index_has_the_common_type_of_the_bounds():
    def of(start, stop):
        return index_type(RangeType(start, stop, constant(1)))

    assert of(constant(0), constant(10)) == i32 and of(constant(0), constant(2**31)) == u32
    assert of(constant(-1), constant(2**31)) == i64 and of(constant(0), constant(2**63)) == u64
    assert of(constant(0), constant(2**32)) == i64 and of(constant(-1), constant(2**63)) == i64
    assert of(constant(-(2**31)), constant(2**31 - 1)) == i32 and of(constant(0), constant(2**32 - 1)) == u32
    assert of(constant(0), i64) == i64 and of(i32, i64) == i64 and of(i32, u32) == u32
    with pytest.raises(KernelValueError, match="does not fit in i32"):
        of(constant(2**40), i32)


def test_stored_variables_stand_in_the_order_of_the_first_store():
    loop = next(op for op in carries.model.walk() if isinstance(op, py.While))
    context = FunctionAttributor(Attributor(), FunctionName("f", loop.root()), (), None)
    assert [var.op.name for var in stored_variables(context, loop)] == ["total", "same", "i"]
    assert all(isinstance(var.op, core.Var) for var in stored_variables(context, loop))
