"""The passes on kernels over tensors, judged by the reference interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.backend.reference.run import run
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.numbers import rounded_number as rounded
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import SCALARS, PtrType, ScalarType, TensorType, void
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.simplify import (
    cse,
    dce,
    fold,
    hoist,
    inline,
    lower_structured,
    normalize_blocks,
    remove_unused,
    simplify,
)

STEPS = [cse, dce, fold, hoist, inline, lower_structured, normalize_blocks, remove_unused, simplify]

KERNEL = """
module ()void -> {
    tt.func @"larger" (%0 : f32, %1 : f32)f32 -> {
        %2 : f32 = arith.maximumf %0 %1;
        %3 : f32 = arith.addf %0 %1;
        tt.return %2;
    };
    tt.func @"kernel" (%x : ptr<f32>, %y : ptr<f32>, %n : i32)void -> {
        %c0 : i32 = arith.constant @0;
        %c1 : i32 = arith.constant @1;
        %c4 : i32 = arith.constant @4;
        %c16 : i32 = arith.constant @16;
        %size : i32 = arith.muli %c4 %c4;
        %pid : i32 = tt.get_program_id @0;
        %from : i32 = arith.muli %pid %size;
        %again : i32 = arith.muli %size %pid;
        %steps : i32 = arith.divsi %size %c4;
        %none : tensor<x16, f32> = arith.constant @0.0;
        %least : f32 = arith.constant @-1000.0;
        %low : tensor<x16, f32> = arith.constant @-1000.0;
        %r : Tuple<tensor<x16, f32>, f32, i32> = scf.for %c0 %steps %c1 %none %least %c4
            (%i : i32, %sum : tensor<x16, f32>, %top : f32, %same : i32)Tuple<tensor<x16, f32>, f32, i32> -> {
                %range : tensor<x16, i32> = tt.make_range @start=0 @end=16;
                %start : tensor<x16, i32> = tt.splat %again;
                %offsets : tensor<x16, i32> = arith.addi %start %range;
                %end : tensor<x16, i32> = tt.splat %n;
                %mask : tensor<x16, i1> = arith.cmpi %offsets %end @slt;
                %base : tensor<x16, ptr<f32>> = tt.splat %x;
                %places : tensor<x16, ptr<f32>> = tt.addptr %base %offsets;
                %values : tensor<x16, f32> = tt.load %places %mask %low;
                %peak : f32 = tt.reduce %values @axis=0 (%a : f32, %b : f32)f32 -> {
                    %m : f32 = tt.call %a %b @"larger";
                    tt.reduce.return %m;
                };
                %next : f32 = tt.call %top %peak @"larger";
                %odd : i32 = arith.andi %i %c1;
                %is : i1 = arith.cmpi %odd %c0 @eq;
                %part : tensor<x16, f32> = scf.if %is
                    ()tensor<x16, f32> -> { scf.yield %values; }
                    ()tensor<x16, f32> -> { %d : tensor<x16, f32> = arith.addf %values %values; scf.yield %d; };
                %total : tensor<x16, f32> = arith.addf %sum %part;
                scf.yield %total %next %same;
            };
        %sum : tensor<x16, f32> = tuple.load %r @0;
        %top : f32 = tuple.load %r @1;
        %four : i32 = tuple.load %r @2;
        %wide : tensor<x16, f32> = tt.splat %top;
        %out : tensor<x16, f32> = arith.subf %sum %wide;
        %range : tensor<x16, i32> = tt.make_range @start=0 @end=16;
        %start : tensor<x16, i32> = tt.splat %from;
        %offsets : tensor<x16, i32> = arith.addi %start %range;
        %base : tensor<x16, ptr<f32>> = tt.splat %y;
        %places : tensor<x16, ptr<f32>> = tt.addptr %base %offsets;
        %other : i1 = arith.cmpi %four %c4 @eq;
        scf.if %other
            ()void -> { tt.store %places %out; scf.yield; }
            ()void -> { scf.yield; };
        tt.return;
    };
    unreachable;
};"""


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_a_kernel_gives_the_same(step: Any) -> None:
    model = parse(KERNEL)
    verify(model)
    result = step(model)
    verify(result)
    x = np.random.default_rng(0).standard_normal(60).astype(np.float32)
    expected, actual = np.zeros(64, np.float32), np.zeros(64, np.float32)
    run(model, "kernel", (4,), (x, expected, 60))
    assert np.any(expected != 0)
    run(result, "kernel", (4,), (x, actual, 60))
    np.testing.assert_array_equal(actual, expected)


BINARY = {
    "float": [arith.AddF, arith.SubF, arith.MulF, arith.DivF, arith.RemF, arith.MaximumF, arith.MinimumF,
              arith.MaxNumF, arith.MinNumF],
    "int": [arith.AddI, arith.SubI, arith.MulI, arith.AndI, arith.OrI, arith.XOrI, arith.ShlI],
    "signed": [arith.DivSI, arith.RemSI, arith.MaxSI, arith.MinSI, arith.ShrSI],
    "unsigned": [arith.DivUI, arith.RemUI, arith.MaxUI, arith.MinUI, arith.ShrUI],
}  # fmt: skip
UNARY = [arith.NegF, maths.Sqrt, maths.Rsqrt, maths.AbsF, maths.Floor, maths.Ceil, maths.Exp, maths.Exp2, maths.Log,
         maths.Log2, maths.Cos]  # fmt: skip


def result_of(make: Any, source: ScalarType, target: ScalarType, numbers: list[Any]) -> None:
    """Fold an op on constants, run it folded and as it was, and compare the bits of what it stores."""
    start = Builder.root([PtrType(target)], void)
    shape = TensorType((4,), source)
    result = start.add(make(*(start.add(arith.ConstantOp(number, type=shape)) for number in numbers)))
    zero = start.add(arith.ConstantOp(0, type=TensorType((4,), SCALARS["i32"])))
    pointers = start.add(tt.Splat(start.parameters[0], TensorType((4,), PtrType(target))))
    start.add(tt.Store(start.add(tt.AddPtr(pointers, zero)), result))
    start.add(tt.Return([]))
    model = tt.Func("kernel", body=start.finish())
    folded = fold(model)
    values = next(op for op in folded.walk() if isinstance(op, tt.Store)).value
    assert hasattr(values, "op")
    if not isinstance(values.op, arith.ConstantOp):
        return
    expected, actual = np.zeros(1, target.dtype), np.zeros(1, target.dtype)
    with np.errstate(all="ignore"):
        run(model, "kernel", (1,), (expected,))
        run(folded, "kernel", (1,), (actual,))
    if target.is_float and np.isnan(expected.astype(np.float64))[0]:
        assert np.isnan(actual.astype(np.float64))[0]
    else:
        assert actual.tobytes() == expected.tobytes(), (str(model), expected, actual)


REALS = st.one_of(st.floats(width=32), st.integers(-9, 9).map(float), st.sampled_from([0.0, -0.0, 0.5, -0.5]))


@pytest.mark.parametrize("type_", SCALARS.values(), ids=str)
@given(data=st.data())
@settings(max_examples=25)
def test_folding_is_what_running_gives(type_: ScalarType, data: Any) -> None:
    if type_.is_float:
        number: Any = REALS.map(lambda value: rounded(value, type_))
        one = data.draw(st.sampled_from(UNARY))
        result_of(one, type_, type_, [data.draw(number)])
        kinds = BINARY["float"]
    elif type_.bits == 1:
        number = st.booleans()
        kinds = [arith.AndI, arith.OrI, arith.XOrI]
    else:
        low, high = type_.limits
        number = st.one_of(st.integers(low, high), st.sampled_from([low, high, 0, 1, 2, 3]))
        kinds = BINARY["int"] + BINARY["signed" if type_.signed else "unsigned"]
    result_of(data.draw(st.sampled_from(kinds)), type_, type_, [data.draw(number), data.draw(number)])


def casts(source: ScalarType, target: ScalarType) -> list[Any]:
    if source == target:
        return []
    results: list[Any] = [arith.Bitcast] if source.bits == target.bits else []
    if source.is_float and target.is_float:
        results += [arith.ExtF] * (source.bits < target.bits) + [arith.TruncF] * (source.bits > target.bits)
    elif source.is_float:
        results += [arith.FPToSI if target.signed else arith.FPToUI] * (target.bits > 1)
    elif target.is_float:
        results += [arith.SIToFP if source.signed else arith.UIToFP]
    elif source.bits != target.bits:
        results += [arith.TruncI] if source.bits > target.bits else [arith.ExtSI, arith.ExtUI]
    return results


@pytest.mark.parametrize("source", SCALARS.values(), ids=str)
@given(data=st.data())
@settings(max_examples=40)
def test_folding_casts_is_what_running_gives(source: ScalarType, data: Any) -> None:
    target = data.draw(st.sampled_from([t for t in SCALARS.values() if casts(source, t)]))
    cast = data.draw(st.sampled_from(casts(source, target)))
    if source.is_float:
        number = rounded(data.draw(REALS), source)
    elif source.bits == 1:
        number = data.draw(st.booleans())
    else:
        number = data.draw(st.integers(*source.limits))
    result_of(lambda value: cast(value, type=TensorType((4,), target)), source, target, [number])
