"""The facts that the analysis states about indices and pointers hold for the numbers that programs compute."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, tt
from ziggurat.codemodel.dialects.arith import IntPredicate
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import OpResult, Value
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import PtrType, ScalarType, TensorType, Type, element_of, f32, i8, i16, i32, i64
from ziggurat.passes import Case, cases
from ziggurat.transforms.analysis.axis_info import AxisInfo, analyse

SIGNED = ("slt", "sle", "sgt", "sge", "eq", "ne")


def true_of(info: AxisInfo, values: Any, narrowest: int) -> None:
    """Assert each fact on the numbers; runs may wrap around in the narrowest type of the program."""
    values = np.atleast_1d(np.asarray(values))
    if values.dtype == bool:
        values = values.astype(int)
    if info.constant is not None:
        assert np.all(values == info.constant)
    if info.nonnegative:
        assert np.all(values >= 0)
    for axis in range(values.ndim):
        lines = np.moveaxis(values, axis, -1).reshape(-1, values.shape[axis])
        run, divisor, same = info.contiguity[axis], info.divisibility[axis], info.constancy[axis]
        runs = lines.reshape(-1, run)
        assert np.all(runs[:, 0] % divisor == 0), "divisibility"
        steps = np.diff(runs, axis=1) - info.unit
        assert np.all(steps % (info.unit << narrowest) == 0), "contiguity"
        exact = min(run, max(1, divisor // info.unit))
        assert np.all(np.diff(lines.reshape(-1, exact), axis=1) == info.unit), "contiguity without wrapping"
        assert np.all(np.diff(lines.reshape(-1, same), axis=1) == 0), "constancy"


@st.composite
def programs(draw: Any) -> tuple[tt.Func, list[int], int]:
    """A function of indices without control flow, arguments for it, and the width of its narrowest integers."""
    narrow: ScalarType = draw(st.sampled_from([i8, i16, i32]))
    high = narrow.limits[1]
    divisors = draw(st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=3, max_size=3))
    near, far = st.integers(1, 4), st.integers(1, 1 << 20)
    arguments = [d * min(draw(st.one_of(near, far)), high // d) for d in divisors]
    pointer = PtrType(draw(st.sampled_from([i8, i16, f32])))
    base = 16 * draw(st.integers(1 << 20, 1 << 21))
    f = Builder.root([narrow, narrow, narrow, pointer])
    pool: list[Value] = []

    def add(op: Any) -> Value:
        result = f.add(op)
        pool.append(result)
        return result

    rows, columns = draw(st.sampled_from([(4, 8), (8, 4), (16, 2)]))
    start = draw(st.sampled_from([0, 1, 4, 8, 16]))
    for count in (rows, columns):
        ramp = f.add(tt.MakeRange(start, start + count))
        type_ = TensorType((count,), narrow)
        index = ramp if narrow == i32 else f.add(arith.TruncI(ramp, type=type_))
        result = [f.add(tt.Splat(argument, type=type_)) for argument in f.parameters[:2]]
        pool += [index, *result]
        add(arith.AddI(index, result[0]))
        add(arith.SubI(index, result[1]))
    for _ in range(draw(st.integers(2, 12))):
        x = draw(st.sampled_from(pool))
        kind = draw(st.integers(0, 8))
        type_ = x.type
        assert isinstance(type_, TensorType)
        if type_.element != narrow:
            continue
        mates = [v for v in pool if v.type == type_]
        y = draw(st.sampled_from(mates))
        constant = draw(st.sampled_from([1, 2, 3, 4, 7, 8, 16, -1, -4]))
        constants = f.add(arith.ConstantOp(constant, type=type_))
        if kind == 0:
            add(draw(st.sampled_from([arith.AddI, arith.SubI, arith.MulI, arith.MinSI, arith.MaxSI]))(x, y))
        elif kind == 1:
            add(draw(st.sampled_from([arith.AndI, arith.OrI, arith.XOrI]))(x, draw(st.sampled_from([y, constants]))))
        elif kind == 2:
            positive = f.add(arith.ConstantOp(abs(constant), type=type_))
            divisor = draw(st.sampled_from([positive, f.add(tt.Splat(f.parameters[2], type=type_))]))
            add(draw(st.sampled_from([arith.DivSI, arith.RemSI]))(x, divisor))
        elif kind == 3:
            by = f.add(arith.ConstantOp(draw(st.integers(0, 3)), type=type_))
            add(draw(st.sampled_from([arith.ShlI, arith.ShrSI]))(x, by))
        elif kind == 4:
            compared = draw(st.sampled_from([y, constants, f.add(tt.Splat(f.parameters[2], type=type_))]))
            choice = f.add(arith.CmpI(x, compared, IntPredicate(draw(st.sampled_from(SIGNED)))))
            pool.append(choice)
            add(arith.Select(choice, x, y))
        elif kind == 5 and type_.rank == 1:
            axis = draw(st.integers(0, 1))
            shape = (1, type_.shape[0]) if axis == 0 else (type_.shape[0], 1)
            add(tt.ExpandDims(x, axis))
            wide = (rows, columns)
            if all(a in (1, b) for a, b in zip(shape, wide, strict=True)):
                add(tt.Broadcast(pool[-1], type=TensorType(wide, narrow)))
        elif kind == 6 and type_.rank == 2:
            add(tt.Trans(x, (1, 0)))
        elif kind == 7:
            add(arith.AddI(x, constants))
        elif kind == 8:
            shape = draw(st.sampled_from([(type_.numel,), (type_.numel // 2, 2), (2, type_.numel // 2)]))
            add(tt.Reshape(x, type=TensorType(shape, narrow)))
    for x in list(pool):
        type_ = x.type
        assert isinstance(type_, TensorType)
        if type_.element == narrow:
            wide = f.add(arith.ExtSI(x, type=TensorType(type_.shape, i64)))
            pointers = f.add(tt.Splat(f.parameters[3], type=TensorType(type_.shape, pointer)))
            f.add(tt.AddPtr(pointers, draw(st.sampled_from([x, wide]))))
    f.add(tt.Return([]))
    func = tt.Func("indices", f.finish(), divisibility=(*divisors, 16))
    return func, [*arguments, base], narrow.bits


@settings(max_examples=120)
@given(programs())
def test_facts_hold_for_the_numbers(numbers: Any, program: tuple[tt.Func, list[int], int]) -> None:
    func, arguments, narrowest = program
    try:
        values = numbers.evaluate(func, arguments)
    except numbers.Overflowed:
        assume(False)
        raise
    infos = analyse(func)
    for value, actual in values.items():
        true_of(infos[(value, 0)], actual, narrowest)


@pytest.mark.parametrize("op", [*SIGNED, "divsi", "remsi", "andi", "ori", "shrsi"])
def test_facts_about_ranges_and_scalars_hold_for_all_small_ones(numbers: Any, op: str) -> None:
    """Every range that begins at 0 to 8, with every scalar up to 32 of every divisibility."""
    for start in (0, 1, 2, 4, 8):
        for divisor in (1, 2, 4, 8, 16):
            for swapped in (False, True) if op in (*SIGNED, "andi", "ori") else (False,):
                order = "%1 %0" if swapped else "%0 %1"
                what = f"i1> = arith.cmpi {order} @{op}" if op in SIGNED else f"i32> = arith.{op} {order}"
                text = f"""tt.func @"f" @divisibility=[{divisor}] (%n : i32)void -> {{
                    %0 : tensor<x16, i32> = tt.make_range @start={start} @end={start + 16};
                    %1 : tensor<x16, i32> = tt.splat %n; %2 : tensor<x16, {what}; tt.return; }};"""
                func = parse(text)
                assert isinstance(func, tt.Func)
                infos = analyse(func)
                for scalar in range(divisor, 33 if op != "shrsi" else 5, divisor):
                    for value, actual in numbers.evaluate(func, [scalar]).items():
                        true_of(infos[(value, 0)], actual, 32)


def one(text: str, divisibility: str = "") -> AxisInfo:
    """The facts about the last value of a function given as text."""
    func = parse(f'tt.func @"f" {divisibility} (%n : i32, %p : ptr<f32>, %q : i32)void -> {{ {text} tt.return; }};')
    assert isinstance(func, tt.Func)
    return analyse(func)[(func.body.entry.ops[-2].result, 0)]


RANGE = "%0 : tensor<x64, i32> = tt.make_range @start=0 @end=64; %1 : tensor<x64, i32> = tt.splat %n;"


def test_the_example_of_the_module() -> None:
    divisible = "@divisibility=[16, 16, 1]"
    sums = RANGE + "%2 : tensor<x64, i32> = arith.addi %0 %1;"
    splat, total = one(RANGE, divisible), one(sums, divisible)
    assert (splat.constancy, splat.divisibility) == ((64,), (16,))
    assert (total.contiguity, total.divisibility) == ((64,), (16,))
    assert one(sums + "%3 : tensor<x64, i1> = arith.cmpi %2 %1 @slt;", divisible).constancy == (16,)
    pointers = "%3 : tensor<x64, ptr<f32>> = tt.splat %p; %4 : tensor<x64, ptr<f32>> = tt.addptr %3 %2;"
    assert (one(sums + pointers, divisible).contiguity, one(sums + pointers, divisible).divisibility) == ((64,), (16,))


def test_a_signed_argument_may_be_negative() -> None:
    """-32 % 16 is 0, and -31 % 16 is -15: the remainders of a range that begins at -32 are not consecutive."""
    text = (
        RANGE
        + """%2 : tensor<x64, i32> = arith.addi %0 %1; %8 : i32 = arith.constant @16;
        %3 : tensor<x64, i32> = tt.splat %8; %4 : tensor<x64, i32> = arith.remsi %2 %3;"""
    )
    assert one(text, "@divisibility=[16, 16, 1]").contiguity == (1,)
    below = """%9 : i32 = arith.constant @0; %10 : i1 = arith.cmpi %n %9 @sge; tt.assume %10; """
    assert one(below + text, "@divisibility=[16, 16, 1]").contiguity == (16,)


def test_a_tail_mask_is_constant_in_runs_that_divide_the_bound() -> None:
    text = RANGE + "%2 : tensor<x64, i1> = arith.cmpi %0 %1 @slt;"
    assert one(text, "@divisibility=[16, 16, 1]").constancy == (16,)
    assert one(text).constancy == (1,)
    assert one(text.replace("slt", "sle"), "@divisibility=[16, 16, 1]").constancy == (1,)
    assert one(text.replace("%0 %1 @slt", "%1 %0 @sgt"), "@divisibility=[16, 16, 1]").constancy == (16,)


def test_divisors_of_pointers_are_bytes() -> None:
    text = RANGE + "%2 : tensor<x64, ptr<f32>> = tt.splat %p; %3 : tensor<x64, ptr<f32>> = tt.addptr %2 %0;"
    info = one(text, "@divisibility=[1, 16, 1]")
    assert (info.contiguity, info.divisibility, info.unit) == ((64,), (16,), 4)
    assert one(text).divisibility == (4,)  # as its elements are


def test_a_remainder_keeps_runs_that_do_not_wrap_around() -> None:
    text = RANGE + "%2 : tensor<x64, i32> = arith.remsi %0 %1;"
    assert one(text, "@divisibility=[16, 16, 1]").contiguity == (16,)
    # Numbers that may be negative have none: -4 % 4 is 0, and -3 % 4 is -3.
    text = RANGE + "%2 : tensor<x64, i32> = arith.subi %0 %1; %3 : tensor<x64, i32> = arith.remsi %2 %1;"
    assert one(text, "@divisibility=[16, 16, 1]").contiguity == (1,)


def test_hints_and_assumptions_count() -> None:
    hinted = "%2 : tensor<x64, i32> = tt.multiple_of %1 @[32]; %3 : tensor<x64, i32> = tt.max_contiguous %2 @[8];"
    info = one(RANGE + hinted)
    assert (info.contiguity, info.divisibility) == ((8,), (32,))
    text = (
        """%8 : i32 = arith.constant @8; %9 : i32 = arith.constant @0; %10 : i32 = arith.remsi %n %8;
        %11 : i1 = arith.cmpi %10 %9 @eq; tt.assume %11;"""
        + RANGE
    )
    assert one(text).divisibility == (8,)


def test_a_loop_keeps_facts_that_each_iteration_keeps() -> None:
    text = (
        RANGE
        + """
        %2 : tensor<x64, ptr<f32>> = tt.splat %p; %3 : tensor<x64, ptr<f32>> = tt.addptr %2 %0;
        %4 : i32 = arith.constant @0; %5 : i32 = arith.constant @1; %6 : tensor<x64, i32> = tt.splat %q;
        %7 : tensor<x64, ptr<f32>> = scf.for %4 %n %5 %3
            (%8 : i32, %9 : tensor<x64, ptr<f32>>)tensor<x64, ptr<f32>> -> {
            %10 : tensor<x64, ptr<f32>> = tt.addptr %9 %6; scf.yield %10; };"""
    )
    info = one(text, "@divisibility=[1, 16, 2]")
    assert (info.contiguity, info.divisibility) == ((64,), (8,))
    assert one(text, "@divisibility=[1, 16, 16]").divisibility == (16,)


@pytest.mark.parametrize(("shape", "expected"), [((8, 8), (1, 8)), ((64, 1), (64, 1)), ((2, 32), (1, 32))])
def test_a_reshape_keeps_the_runs_of_the_last_axis(shape: tuple[int, int], expected: tuple[int, int]) -> None:
    type_: Type = TensorType(shape, i32)
    info = one(RANGE + f"%2 : {type_} = tt.reshape %0;")
    assert info.contiguity == expected
    assert math.prod(shape) == 64 and element_of(type_) == i32


MODELS = Path(__file__).parents[2] / "models" / "gpu"
CASES = [
    case
    for file in ("lower", "persist", "latency", "raise_pointers", "spread")
    for case in cases((MODELS / f"{file}.txt").read_text("utf-8"))
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "_".join(case.title.split()))
def test_the_facts_of_a_model(case: Case, golden: Any) -> None:
    """Facts may only be less than what holds; these are not."""
    module = parse(case.before)
    assert isinstance(module, core.Module | gpu.Module)
    (func,) = (op for op in module.walk() if isinstance(op, tt.Func))
    lines: dict[str, None] = {}
    for (value, _), info in analyse(func).items():
        axes = f"{list(info.contiguity)} {list(info.divisibility)} {list(info.constancy)}"
        rest = f"{'' if info.constant is None else f' = {info.constant}'}{' not negative' * info.nonnegative}"
        name = value.op.NAME if isinstance(value, OpResult) else "a parameter"
        lines[f"{name} {value.type}: {axes}{rest}, up to {info.magnitude}"] = None
    name = "_".join(re.findall(r"\w+", case.title))
    golden(f"facts/{name}", "\n".join(lines))
