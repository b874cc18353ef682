"""Lanes that do not count may compute infinities: gradients are finite all the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from finite_differences import check_gradient

import ziggurat as zg
from ziggurat.codemodel.dialects import arith
from ziggurat.transforms.differentiate import differentiate
from ziggurat.transforms.differentiate.finite import may_be_infinite

f64, i32 = zg.ptr(zg.f64), zg.i32


@zg.function
def quotient(x, s):
    return zg.div(s, x)


@zg.function
def divisor(x, s):
    return zg.div(zg.div(1.0, x), s)


@zg.function
def logarithm(x, s):
    return zg.mul(zg.log(x), s)


@zg.function
def logarithm_of_product(x, s):
    return zg.log2(zg.mul(x, s))


@zg.function
def root(x, s):
    return zg.sqrt(zg.mul(x, s))


@zg.function
def reciprocal_root(x, s):
    return zg.fma(zg.rsqrt(x), s, zg.rsqrt(zg.mul(x, s)))


@zg.function
def remainder(x, s):
    return zg.mul(zg.mod(s, x), s)


@zg.function
def library(x, s):
    return zg.mul(zg.log1p(zg.sub(zg.mul(x, s), 1.0)), s)


@zg.function
def power(x, s):
    return zg.exp(zg.mul(zg.log(x), s))


FUNCTIONS = [
    quotient, divisor, logarithm, logarithm_of_product, root, reciprocal_root, remainder, library, power,
]  # fmt: skip


@pytest.mark.parametrize("other", [None, 0.0])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_what_a_masked_load_leaves_out(function: Any, other: Any):
    @zg.kernel
    def kernel(x, s, out, n, f: zg.constexpr, OTHER: zg.constexpr):
        at = zg.arange(0, 8)
        mask = zg.less(at, n)
        a = zg.load(zg.add(x, at), mask, other=OTHER)
        zg.store(zg.add(out, at), f(a, zg.load(s)), mask)

    x, s = np.random.default_rng(0).uniform(0.5, 2, 5), np.array([1.3])
    model = kernel.triton(f64, f64, f64, i32, function, other)
    check_gradient(model, 1, [x, s, np.zeros(5), 5], [2], [0, 1])


def test_rows_that_are_left_out():
    """The softmax of a row of -inf is NaN; its products with a matrix are sums over rows."""

    @zg.kernel
    def kernel(x, w, out, rows, columns):
        i, j = zg.arange(0, 4), zg.arange(0, 8)
        at = zg.add(zg.expand(zg.mul(i, columns), 1), zg.expand(j, 0))
        mask = zg.and_(zg.expand(zg.less(i, rows), 1), zg.expand(zg.less(j, columns), 0))
        a = zg.load(zg.add(x, at), mask, other=-float("inf"))
        powers = zg.exp(zg.sub(a, zg.expand(zg.max(a, axis=1), 1)))
        p = zg.div(powers, zg.expand(zg.sum(powers, axis=1), 1))
        bias = zg.load(zg.add(w, zg.arange(0, 4)))
        square = zg.load(zg.add(w, zg.add(zg.expand(zg.mul(j, 4), 1), zg.expand(zg.arange(0, 4), 0))))
        result = zg.mul(zg.dot(p, square), zg.expand(bias, 0))
        zg.store(
            zg.add(out, zg.add(zg.expand(zg.mul(i, 4), 1), zg.expand(zg.arange(0, 4), 0))),
            result,
            zg.expand(zg.less(i, rows), 1),
        )

    rng = np.random.default_rng(0)
    arguments = [rng.standard_normal((3, 6)), rng.standard_normal((8, 4)), np.zeros((3, 4)), 3, 6]
    check_gradient(kernel.triton(f64, f64, f64, i32, i32), 1, arguments, [2], [0, 1])


def test_what_is_finite_is_not_guarded():
    @zg.kernel
    def kernel(x, s, out):
        at = zg.arange(0, 8)
        a = zg.load(zg.add(x, at))
        scale = zg.rsqrt(zg.sum(zg.mul(a, a), axis=0))
        zg.store(zg.add(out, at), zg.mul(zg.exp(zg.mul(a, scale)), zg.div(zg.load(s), scale)))

    gradient = differentiate(kernel.triton(f64, f64, f64), [2], [0, 1])
    assert not any(isinstance(op, arith.CmpF | arith.Select) for op in gradient.walk())


VALUES = """tt.func @"k" (%s : f32, %c : i1, %p : tensor<x8, ptr<f32>>, %m : tensor<x8, i1>, %n : i32)void -> {
    %zero : i32 = arith.constant @0;
    %one : i32 = arith.constant @1;
    %infinite : tensor<x8, f32> = arith.constant @inf;
    %undefined : tensor<x8, f32> = arith.constant @nan;
    %finite : tensor<x8, f32> = arith.constant @2.0;
    %number : f32 = arith.constant @inf;
    %splat : tensor<x8, f32> = tt.splat %number;
    %load : tensor<x8, f32> = tt.load %p;
    %masked : tensor<x8, f32> = tt.load %p %m %infinite;
    %padded : tensor<x8, f32> = tt.load %p %m %finite;
    %byload : tensor<x8, f32> = arith.divf %finite %load;
    %bysplat : tensor<x8, f32> = arith.divf %load %splat;
    %infinitebysplat : tensor<x8, f32> = arith.divf %infinite %splat;
    %precise : tensor<x8, f32> = tt.precise_divf %finite %load;
    %log : tensor<x8, f32> = math.log %load;
    %scalarlog : f32 = math.log %s;
    %least : tensor<x8, f32> = arith.minnumf %log %load;
    %both : tensor<x8, f32> = arith.maxnumf %log %infinite;
    %sum : tensor<x8, f32> = arith.addf %load %log;
    %product : tensor<x8, f32> = arith.mulf %load %finite;
    %pair : Tuple<tensor<x8, f32>, tensor<x8, f32>> = tuple %load %log;
    %first : tensor<x8, f32> = tuple.load %pair @0;
    %second : tensor<x8, f32> = tuple.load %pair @1;
    %branch : tensor<x8, f32> = scf.if %c
        ()tensor<x8, f32> -> { scf.yield %load; }
        ()tensor<x8, f32> -> { scf.yield %log; };
    %finitebranch : tensor<x8, f32> = scf.if %c
        ()tensor<x8, f32> -> { scf.yield %load; }
        ()tensor<x8, f32> -> { scf.yield %finite; };
    %steady : tensor<x8, f32> = scf.for %zero %n %one %load (%i : i32, %a : tensor<x8, f32>)tensor<x8, f32> -> {
        %b : tensor<x8, f32> = arith.addf %a %finite;
        scf.yield %b;
    };
    %growing : tensor<x8, f32> = scf.for %zero %n %one %load (%i : i32, %a : tensor<x8, f32>)tensor<x8, f32> -> {
        %b : tensor<x8, f32> = math.log %a;
        scf.yield %b;
    };
    %begun : tensor<x8, f32> = scf.for %zero %n %one %log (%i : i32, %a : tensor<x8, f32>)tensor<x8, f32> -> {
        %b : tensor<x8, f32> = arith.addf %a %finite;
        scf.yield %b;
    };
    %waits : tensor<x8, f32> = scf.while %load
        (%a : tensor<x8, f32>)tensor<x8, f32> -> { scf.condition %c %a; }
        (%a : tensor<x8, f32>)tensor<x8, f32> -> { scf.yield %a; };
    tt.return;
};"""


def test_values_that_may_be_infinite_in_some_lanes():
    names = [line.split()[0][1:] for line in VALUES.splitlines() if line.startswith("    %")]
    values = [op.result for op in zg.parse(VALUES).bodies[0].entry.ops]
    assert {name for name, value in zip(names, values, strict=False) if may_be_infinite(value)} == {
        "infinite", "undefined", "masked", "byload", "infinitebysplat", "precise", "log", "both", "sum", "second",
        "branch", "growing", "begun", "waits",
    }  # fmt: skip
