"""Reductions and scans with bodies of every kind."""

import functools
import itertools

import numpy as np
import pytest

from ziggurat.backend.reference.run import run
from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.text.parser import parse

X = np.random.default_rng(3).integers(-9, 10, (2, 4, 8))


def combining(op, type_, body, shape, result, axis, attributes=""):
    return f"""
    %y0 : {result} = {op} %a @axis={axis} {attributes} (%l : {type_}, %r : {type_}){type_} -> {{
        {body}
        {op}.return %m;
    }};"""


def text(type_, shape):
    return f"tensor<{', '.join(f'x{n}' for n in shape)}, {type_}>" if shape else type_


OPS = {
    "addi": np.add, "muli": np.multiply, "andi": np.bitwise_and, "ori": np.bitwise_or, "xori": np.bitwise_xor,
    "maxsi": np.maximum, "minsi": np.minimum, "addf": np.add, "mulf": np.multiply, "maximumf": np.maximum,
    "minnumf": np.fmin,
}  # fmt: skip


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("swapped", [False, True])
def test_reduce_by_one_op(apply, op, axis, swapped):
    type_ = "f32" if op.endswith("f") else "i32"
    x = X.clip(-1, 2) if op.startswith("mul") else X
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    operands = "%r %l" if swapped else "%l %r"
    body = combining("tt.reduce", type_, f"%m : {type_} = arith.{op} {operands};", x.shape, text(type_, shape), axis)
    actual = apply(body, [(type_, x)], [(type_, shape)])
    np.testing.assert_array_equal(actual, OPS[op].reduce(x, axis=axis))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_by_one_op(apply, op, axis, reverse):
    type_ = "f32" if op.endswith("f") else "i32"
    x = X.clip(-1, 2) if op.startswith("mul") else X
    shape = text(type_, x.shape)
    body = combining(
        "tt.scan", type_, f"%m : {type_} = arith.{op} %l %r;", x.shape, shape, axis, f"@reverse={str(reverse).lower()}"
    )
    actual = apply(body, [(type_, x)], [(type_, x.shape)])
    flip = (lambda v: np.flip(v, axis)) if reverse else (lambda v: v)
    np.testing.assert_array_equal(actual, flip(OPS[op].accumulate(flip(x), axis=axis)))


@pytest.mark.parametrize("type_", ["i8", "u64", "f16", "bf16", "f8e4m3", "f64", "i1"])
def test_reduce_of_other_types(apply, type_):
    op = "addf" if type_[0] in "fb" else "addi"
    x = np.array([1, 1, 0, 1, 0, 1, 1, 1])
    body = combining("tt.reduce", type_, f"%m : {type_} = arith.{op} %l %r;", (8,), type_, 0)
    assert float(apply(body, [(type_, x)], [(type_, ())])) == (6 % 2 if type_ == "i1" else 6)


def test_sums_of_f16_round_at_each_step(apply):
    body = combining("tt.reduce", "f16", "%m : f16 = arith.addf %l %r;", (4,), "f16", 0)
    # (2048 + 1) rounds to 2048, and so does the other pair: summed in f32 it would be 4098.
    assert float(apply(body, [("f16", [2048, 1, 2048, 1])], [("f16", ())])) == 4096.0


def test_order_is_kept_by_a_body_that_does_not_commute(apply):
    # 10 * l + r on digits is not associative, but (l, r) -> l is.
    body = combining("tt.reduce", "i32", "%z : i32 = arith.constant @0; %m : i32 = arith.addi %l %z;", (8,), "i32", 0)
    assert int(apply(body, [("i32", np.arange(5, 13))], [("i32", ())])) == 5
    scan = combining(
        "tt.scan", "i32", "%z : i32 = arith.constant @0; %m : i32 = arith.addi %r %z;", (8,), text("i32", (8,)), 0
    )
    assert apply(scan, [("i32", np.arange(5, 13))], [("i32", (8,))]).tolist() == list(range(5, 13))


def test_affine_maps_compose_in_order(apply):
    """x -> a x + b: composition is associative and does not commute."""
    a, b = np.array([2, 3, 1, 5]), np.array([1, 4, 7, 2])
    body = """
    %t : Tuple<tensor<x4, i32>, tensor<x4, i32>> = tt.scan %a %b @axis=0
        (%la : i32, %lb : i32, %ra : i32, %rb : i32)Tuple<i32, i32> -> {
            %pa : i32 = arith.muli %ra %la;
            %q : i32 = arith.muli %ra %lb;
            %pb : i32 = arith.addi %q %rb;
            tt.scan.return %pa %pb;
        };
    %y0 : tensor<x4, i32> = tuple.load %t @0;
    %y1 : tensor<x4, i32> = tuple.load %t @1;"""
    actual = apply(body, [("i32", a), ("i32", b)], [("i32", (4,))] * 2)
    steps = itertools.accumulate(zip(a, b, strict=True), lambda p, q: (q[0] * p[0], q[0] * p[1] + q[1]))
    assert list(zip(*(x.tolist() for x in actual), strict=True)) == [tuple(map(int, s)) for s in steps]


ARGMAX = """
    %i : tensor<x8, i32> = tt.make_range @start=0 @end=8;
    %t : Tuple<f32, i32> = tt.reduce %a %i @axis=0
        (%lv : f32, %li : i32, %rv : f32, %ri : i32)Tuple<f32, i32> -> {
            %gt : i1 = arith.cmpf %lv %rv @ogt;
            %eq : i1 = arith.cmpf %lv %rv @oeq;
            %lt : i1 = arith.cmpi %li %ri @slt;
            %tie : i1 = arith.andi %eq %lt;
            %nan : i1 = arith.cmpf %lv %lv @une;
            %k : i1 = arith.ori %gt %tie;
            %keep : i1 = arith.ori %k %nan;
            %v : f32 = arith.select %keep %lv %rv;
            %x : i32 = arith.select %keep %li %ri;
            tt.reduce.return %v %x;
        };
    %y0 : i32 = tuple.load %t @1;"""


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [([1, 5, 2, 5, 0, 5, 1, 1], 1), ([3] * 8, 0), ([0, 1, 2, 3, 4, 5, 6, 7], 7), ([1, np.nan, 9, 0, 0, 0, 0, 0], 1)],
)
def test_argmax_with_ties_and_nan(apply, numbers, expected):
    assert int(apply(ARGMAX, [("f32", np.array(numbers, float))], [("i32", ())])) == expected


def test_body_with_control_flow_and_an_outer_value(apply):
    body = """
    %y0 : tensor<x2, i32> = tt.reduce %a @axis=1 (%l : i32, %r : i32)i32 -> {
        %c : i1 = arith.cmpi %l %r @sgt;
        %m : i32 = scf.if %c ()i32 -> {
            %n : i32 = arith.maxsi %l %b;
            scf.yield %n;
        } ()i32 -> {
            %n : i32 = arith.maxsi %r %b;
            scf.yield %n;
        };
        tt.reduce.return %m;
    };"""
    x = np.array([[1, 9, 3, 4], [0, 0, 1, 1]])
    assert apply(body, [("i32", x), ("i32", 2)], [("i32", (2,))]).tolist() == [9, 2]


def test_body_that_calls_a_function():
    model = parse("""
module ()void -> {
    tt.func @"both" (%a : f32, %b : f32)f32 -> {
        %c : f32 = arith.maximumf %a %b;
        tt.return %c;
    };
    tt.func @"far" (%a : f32, %b : f32)f32 -> {
        %x : f32 = math.absf %a;
        %y : f32 = math.absf %b;
        %c : i1 = arith.cmpf %x %y @oge;
        %d : f32 = arith.select %c %a %b;
        tt.return %d;
    };
    tt.func @"kernel" (%p : ptr<f32>, %q : ptr<f32>)void -> {
        %pid : i32 = tt.get_program_id @0;
        %r : tensor<x8, i32> = tt.make_range @start=0 @end=8;
        %n : i32 = arith.constant @8;
        %o : i32 = arith.muli %pid %n;
        %p1 : ptr<f32> = tt.addptr %p %o;
        %s : tensor<x8, ptr<f32>> = tt.splat %p1;
        %t : tensor<x8, ptr<f32>> = tt.addptr %s %r;
        %v : tensor<x8, f32> = tt.load %t;
        %m : f32 = tt.reduce %v @axis=0 (%l : f32, %k : f32)f32 -> {
            %c : f32 = tt.call %l %k @"both";
            tt.reduce.return %c;
        };
        %f : f32 = tt.reduce %v @axis=0 (%l : f32, %k : f32)f32 -> {
            %c : f32 = tt.call %l %k @"far";
            tt.reduce.return %c;
        };
        %two : i32 = arith.constant @2;
        %o2 : i32 = arith.muli %pid %two;
        %q0 : ptr<f32> = tt.addptr %q %o2;
        tt.store %q0 %m;
        %one : i32 = arith.constant @1;
        %q1 : ptr<f32> = tt.addptr %q0 %one;
        tt.store %q1 %f;
        tt.return;
    };
    unreachable;
};""")
    x = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    actual = np.zeros((5, 2), np.float32)
    run(model, "kernel", (5,), [x, actual])
    far = [functools.reduce(lambda a, b: a if abs(a) >= abs(b) else b, row) for row in x]
    np.testing.assert_array_equal(actual, np.stack([x.max(1), far], 1))


def test_zeros_of_both_signs(apply):
    body = combining("tt.reduce", "f32", "%m : f32 = arith.maximumf %l %r;", (4,), "f32", 0)
    actual = apply(body, [("f32", [-0.0, 0.0, -0.0, -1.0])], [("f32", ())])
    assert not np.signbit(actual)
