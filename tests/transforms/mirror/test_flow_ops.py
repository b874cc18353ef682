"""Building control flow: what becomes an op, what it carries, and that it computes what Python computes."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.types import PtrType, ScalarType, TupleType, f32, i1, i32, i64, u32, u64, void
from ziggurat.frontends.triton.language import TRITON
from ziggurat.transforms.attribution import attribute, constant
from ziggurat.transforms.mirror import mirror
from ziggurat.transforms.simplify.dce import remove_unused

P = PtrType(f32)


def built(kernel, *types):
    model = mirror(attribute(kernel, types))
    zg.verify(model)
    assert zg.same_model(zg.parse(str(model)), model)
    return model


def ops(model, name):
    return [op for op in model.walk() if op.NAME == name]


@zg.kernel
def carries(p, n):
    a = 0
    b = 1.0
    same = 3
    for i in range(n):
        a, b = a + i, b * 2.0
        same = 3
    zg.store(p, a + b + same)


def test_a_loop_carries_the_joined_variables_that_have_values():
    (loop,) = ops(built(carries, P, i32), "scf.for")
    assert loop.result.type == TupleType((i32, f32))
    assert [parameter.type for parameter in loop.bodies[0].parameters] == [i32, i32, f32]
    out = np.zeros(1, np.float32)
    zg.run(built(carries, P, i32), 1, out, 4)
    assert out[0] == 6 + 16 + 3


@zg.kernel
def counts(p, n):
    for i in range(n, 0, -2):
        zg.store(zg.add(p, i), 1.0)


@zg.kernel
def collects(p, n):
    total = 0.0
    for i in zg.range(0, n, num_stages=4, flatten=True):
        total += i
    zg.store(p, total)


def test_nothing_carried_is_void_and_one_value_is_itself():
    (loop,) = ops(built(counts, P, i32), "scf.for")
    assert loop.result.type == void and loop.bodies[0].parameters[0].type == i32
    (loop,) = ops(built(collects, P, i32), "scf.for")
    assert loop.result.type == f32
    assert loop.attributes["num_stages"] == 4 and loop.attributes["flatten"] is True


def test_bounds_stand_in_their_order():
    (loop,) = ops(built(counts, P, i32), "scf.for")
    _, stop, step = loop.operands[:3]
    assert [stop.op.attributes["value"], step.op.attributes["value"]] == [0, -2]
    block = stop.block.ops
    places = [next(k for k, op in enumerate(block) if op is value.op) for value in (stop, step)]
    assert places == sorted(places)


@zg.kernel
def halves(p, n):
    x = 1.0
    i = 0
    while i < n:
        x = x / 2
        i += 1
    zg.store(p, x)


def test_a_while_has_its_condition_and_its_suite():
    model = built(halves, P, i32)
    (loop,) = ops(model, "scf.while")
    assert loop.result.type == TupleType((f32, i32))
    assert [body.entry.ops[-1].NAME for body in loop.bodies] == ["scf.condition", "scf.yield"]
    out = np.zeros(1, np.float32)
    zg.run(model, 1, out, 3)
    assert out[0] == 0.125


@zg.kernel
def chooses(p, n, FLAG: zg.constexpr):
    x = 1.0
    y = 7
    if n > 0:
        x = 2.0
        y = n
    if FLAG:
        x = x + 10
    else:
        x = x - zg.load(n)
    zg.store(p, x + y)


def test_an_if_gives_what_it_joins():
    model = built(chooses, P, i32, constant(True))
    (branch,) = ops(model, "scf.if")
    assert branch.result.type == TupleType((f32, i32)) and branch.operands[0].type == i1
    for n, expected in ((3, 15.0), (-1, 18.0)):
        out = np.zeros(1, np.float32)
        zg.run(model, 1, out, n)
        assert out[0] == expected


@zg.function
def sign(n):
    if n > 0:
        return 1
    if n < 0:
        return -1
    return 0


@zg.kernel
def returns_early(p, n):
    if n > 100:
        return
    zg.store(p, sign(n) * 1.0)


def test_early_returns_move_the_rest_into_the_paths_that_go_on():
    model = built(returns_early, P, i32)
    helper, kernel = model.functions().values()
    assert [op.NAME for op in helper.bodies[0].entry.ops][-2:] == ["scf.if", "tt.return"]
    assert len(ops(helper, "scf.if")) == 2 and ops(helper, "scf.if")[0].result.type == i32
    assert ops(kernel, "scf.if")[0].result.type == void
    for n, expected in ((5, 1.0), (-5, -1.0), (0, 0.0), (101, 9.0)):
        out = np.full(1, 9, np.float32)
        zg.run(model, 1, out, n)
        assert out[0] == expected


@zg.kernel
def unrolls(p, n):
    total = 0
    for i in zg.static_range(3):
        total = total + n * i
    zg.store(p, total * 1.0)


def test_a_static_range_is_unrolled():
    model = remove_unused(built(unrolls, P, i32))
    assert ops(model, "scf.for") == [] and len(ops(model, "arith.muli")) == 3


@zg.kernel
def expressions(p, q, n, m):
    zg.store(p, (n if n > m else m) * 1.0)
    zg.store(p, zg.load(q) if n > m else 0.0)
    if n > 0 and m > 0:
        zg.store(p, 1.0)
    if n > 0 or zg.load(q) > 0:
        zg.store(p, 2.0)


def test_what_is_cheap_is_chosen_and_what_is_not_branches():
    model = built(expressions, P, P, i32, i32)
    assert len(ops(model, "arith.select")) == 1, "both values may be computed"
    assert len(ops(model, "arith.andi")) == 1 and ops(model, "arith.ori") == []
    # The load of the conditional expression, the load of the `or`, and the two statements.
    assert len(ops(model, "scf.if")) == 4


@zg.kernel
def divides(p, n, m):
    zg.store(p, (n // m if m != 0 else -1) * 1.0)


def test_the_value_that_is_not_chosen_is_not_computed():
    model = built(divides, P, i32, i32)
    out = np.zeros(1, np.float32)
    zg.run(model, 1, out, 7, 0)
    assert out[0] == -1
    (branch,) = ops(model, "scf.if")
    assert [op.NAME for op in branch.bodies[0].entry.ops if op.NAME == "arith.divsi"] == ["arith.divsi"]


@zg.kernel
def asserts(p, n):
    assert n > 0, "n is positive"
    assert True


def test_an_assertion_of_what_is_known_is_gone():
    (check,) = ops(built(asserts, P, i32), "tt.assert")
    assert check.attributes["message"] == "n is positive"
    with pytest.raises(zg.KernelRuntimeError, match="n is positive"):
        zg.run(built(asserts, P, i32), 1, np.zeros(1, np.float32), 0)


@zg.kernel
def asserts_a_constant(p, FLAG: zg.constexpr):
    assert FLAG, "the flag is set"


def test_an_assertion_of_a_constant_that_is_false_fails_at_run_time_in_tritons_python():
    def assertions(flag):
        return mirror(attribute(asserts_a_constant.model, (P, constant(flag)), language=TRITON))

    assert not ops(assertions(True), "tt.assert")
    with pytest.warns(UserWarning, match="an assert that is false at compile time has no effect without debug=True"):
        model = assertions(False)
    (check,) = ops(model, "tt.assert")
    assert check.attributes["message"] == "the flag is set"
    with pytest.raises(zg.KernelRuntimeError, match="the flag is set"):
        zg.run(model, 1, np.zeros(1, np.float32))


@zg.kernel
def comprehends(p, n, m):
    values = [3 * x + 1 for x in (n, m, 5)]
    others = [i + n for i in range(1, 6, 2) if i != 3]
    zg.store(p, values[0] * 10000.0 + values[1] * 1000 + values[2] * 100 + others[0] * 10 + others[1] + len(others))


def test_comprehensions_are_unrolled_over_values_and_numbers():
    out = np.zeros(1, np.float32)
    zg.run(built(comprehends, P, i32, i32), 1, out, 2, 3)
    assert out[0] == 7 * 10000 + 10 * 1000 + 16 * 100 + 3 * 10 + 7 + 2


@zg.kernel
def bounds_in_order(p, q):
    for i in range(zg.load(p), zg.load(q), zg.load(p)):
        zg.store(q, i)
    for i in range(2, zg.load(q)):
        zg.store(q, i)


def test_the_bounds_of_a_loop_are_start_stop_and_step():
    model = built(bounds_in_order, PtrType(i32), PtrType(i32))
    first, second = ops(model, "scf.for")
    p, q = model.bodies[0].entry.ops[0].bodies[0].parameters
    assert [bound.op.operands[0] for bound in first.operands[:3]] == [p, q, p]
    start, stop, step = second.operands[:3]
    assert (start.op.value, stop.op.operands[0], step.op.value) == (2, q, 1)


@zg.kernel
def breaks(p, n, m, s):
    total = 0
    for i in range(n, m, s):
        if i > 9:
            break
        total += i
    zg.store(p, total * 1.0)


@pytest.mark.parametrize("type_", [i32, u32, i64, u64, constant(3), constant(-2)])
def test_a_loop_with_a_break_asserts_that_a_step_at_run_time_is_not_zero(type_):
    kind = type_ if isinstance(type_, ScalarType) else i32
    model = built(breaks, P, kind, kind, type_)
    is_signed = kind.signed
    at_run_time = type_ is kind
    assert [check.message for check in ops(model, "tt.assert")] == ["the step of a loop must not be zero"] * at_run_time
    predicates = {op.predicate.value for op in ops(model, "arith.cmpi")} - {"ne"}
    if at_run_time:
        assert predicates == ({"slt", "sgt"} if is_signed else {"ult", "ugt"})
    else:
        assert predicates == ({"slt", "sgt"} if type_.value > 0 else {"sgt"})


@zg.kernel
def chooses_effects(p, n):
    zg.store(p, 1.0) if n > 0 else None
    None if n > 5 else zg.store(zg.add(p, 1), 2.0)


@pytest.mark.parametrize(("n", "expected"), [(0, [0, 2]), (3, [1, 2]), (7, [1, 0])])
def test_an_effect_of_a_conditional_expression_is_kept(n, expected):
    out = np.zeros(2, np.float32)
    zg.run(built(chooses_effects, P, i32), 1, out, n)
    assert out.tolist() == expected
