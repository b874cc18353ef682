"""Identities: each holds for every operand, floats with signs, infinities and NaN among them."""

from __future__ import annotations

import math

import pytest

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.op import BlockParameter, Op, Value, constant_of
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.transform import transform
from ziggurat.codemodel.types import f32, i32
from ziggurat.transforms.simplify.identities import constant, same_number, simpler

PARAMETERS = "%x : i32, %b : i1, %f : f32, %p : ptr<f32>, %t : tensor<x4, i32>, %l : i64, %u : u8"


def simplified(body: str):
    """The result of `simpler` for the last op before the return: a parameter's name, a number, an op, or None."""
    model = parse(f'tt.func @"f" ({PARAMETERS})void -> {{ {body} tt.return; }};')
    last = model.bodies[0].entry.ops[-2]
    results: list[Value | None] = []

    def look(builder: Builder, op: Op, operands: tuple[Value, ...]) -> Value | None:
        if op is last:
            results.append(simpler(builder, op, operands))
        return None

    transform(model, look)
    (value,) = results
    if value is None:
        return None
    if isinstance(value, BlockParameter):
        return "xbfptlu"[value.index]
    constants = constant_of(value)
    return value.op.NAME if constants is None else constants


def binary(op: str, type_: str, left: str, right: str) -> str:
    """`left op right`, where a number stands for a constant."""
    lines, operands = [], []
    for name, side in (("c", left), ("d", right)):
        if side.lstrip("-")[0].isdigit() or side in ("true", "false"):
            lines.append(f"%{name} : {type_} = arith.constant @{side};")
            operands.append(f"%{name}")
        else:
            operands.append(f"%{side}")
    return f"{' '.join(lines)} %y : {type_} = arith.{op} {' '.join(operands)};"


@pytest.mark.parametrize(
    ("op", "type_", "left", "right", "actual"),
    [
        ("addi", "i32", "x", "0", "x"), ("addi", "i32", "0", "x", "x"), ("addi", "i32", "x", "1", None),
        ("subi", "i32", "x", "0", "x"), ("subi", "i32", "x", "x", 0), ("subi", "i32", "0", "x", None),
        ("muli", "i32", "x", "1", "x"), ("muli", "i32", "1", "x", "x"), ("muli", "i32", "0", "x", 0),
        ("muli", "i32", "x", "2", None), ("divsi", "i32", "x", "1", "x"), ("divsi", "i32", "x", "x", None),
        ("remsi", "i32", "x", "1", 0), ("andi", "i32", "x", "x", "x"), ("andi", "i32", "x", "-1", "x"),
        ("andi", "u8", "u", "255", "u"), ("andi", "i32", "0", "x", 0), ("ori", "i32", "x", "-1", -1),
        ("ori", "i32", "x", "0", "x"), ("xori", "i32", "x", "x", 0), ("xori", "i1", "b", "b", False),
        ("xori", "i32", "x", "0", "x"), ("shli", "i32", "x", "0", "x"), ("shli", "i32", "0", "x", None),
        ("shrsi", "i32", "x", "0", "x"), ("maxsi", "i32", "x", "x", "x"), ("minui", "u8", "u", "u", "u"),
        ("andi", "i1", "b", "true", "b"), ("ori", "i1", "b", "true", True),
        ("addf", "f32", "f", "-0.0", "f"), ("addf", "f32", "f", "0.0", None), ("subf", "f32", "f", "0.0", "f"),
        ("subf", "f32", "f", "-0.0", None), ("subf", "f32", "f", "f", None), ("mulf", "f32", "f", "1.0", "f"),
        ("mulf", "f32", "1.0", "f", "f"), ("mulf", "f32", "f", "0.0", None), ("divf", "f32", "f", "1.0", "f"),
        ("divf", "f32", "f", "f", None), ("maxnumf", "f32", "f", "f", "f"),
    ],
)  # fmt: skip
def test_arithmetic(op, type_, left, right, actual):
    result = simplified(binary(op, type_, left, right))
    assert result == actual and type(result) is type(actual)


@pytest.mark.parametrize(
    ("body", "actual"),
    [
        ('%y : i1 = arith.cmpi %x %x @"eq";', True),
        ('%y : i1 = arith.cmpi %x %x @"slt";', False),
        ('%y : i1 = arith.cmpi %x %x @"ule";', True),
        ('%y : i1 = arith.cmpf %f %f @"oeq";', None),
        ("%c : i1 = arith.constant @true; %y : i32 = arith.select %c %x %x;", "x"),
        ("%y : f32 = arith.select %b %f %f;", "f"),
        ("%c : f32 = arith.negf %f; %y : f32 = arith.negf %c;", "f"),
        ("%c : i64 = arith.extsi %x; %y : i32 = arith.trunci %c;", "x"),
        ("%c : i8 = arith.trunci %x; %y : i32 = arith.extsi %c;", None),
        ("%c : f64 = arith.extf %f; %y : f32 = arith.truncf %c;", "f"),
        ("%c : i32 = arith.bitcast %f; %y : f32 = arith.bitcast %c;", "f"),
        ("%c : i32 = arith.fptosi %f; %y : f32 = arith.sitofp %c;", None),
        ("%c : i32 = arith.constant @0; %y : ptr<f32> = tt.addptr %p %c;", "p"),
        ("%c : i64 = tt.ptr_to_int %p; %y : ptr<f32> = tt.int_to_ptr %c;", "p"),
        ("%c : ptr<f32> = tt.int_to_ptr %l; %y : i64 = tt.ptr_to_int %c;", "l"),
        ("%c : i64 = tt.ptr_to_int %p; %y : ptr<i8> = tt.int_to_ptr %c;", None),
        ("%y : tensor<x1, i32> = tt.make_range @start=5 @end=6;", 5),
        ("%y : tensor<x2, i32> = tt.make_range @start=5 @end=7;", None),
        ("%c : i32 = arith.constant @3; %y : tensor<x4, i32> = tt.splat %c;", 3),
        ("%y : tensor<x4, i32> = tt.splat %x;", None),
        ("%c : tensor<x4, i32> = tt.splat %x; %y : tensor<x2, x2, i32> = tt.reshape %c;", "tt.splat"),
        ("%y : tensor<x4, i32> = tt.reshape %t;", "t"),
        ("%y : tensor<x2, x2, i32> = tt.reshape %t;", None),
        ("%c : tensor<x2, x2, i32> = tt.reshape %t; %y : tensor<x4, x1, i32> = tt.reshape %c;", "tt.reshape"),
        ("%c : tensor<x4, i32> = arith.constant @7; %y : tensor<x4, x2, i32> = tt.join %c %c;", 7),
        ("%c : tensor<x4, i32> = arith.constant @7; %y : tensor<x8, i32> = tt.cat %c %t;", None),
        ("%y : tensor<x8, i32> = tt.cat %t %t;", None),
    ],
)
def test_other_ops(body, actual):
    result = simplified(body)
    assert result == actual and type(result) is type(actual)


def test_constants_of_values():
    builder = Builder.root([i32])
    assert constant_of(builder.parameters[0]) is None
    result = constant(builder, 2.5, f32)
    assert isinstance(result.op, arith.ConstantOp) and result.type == f32 and constant_of(result) == 2.5


def test_the_same_number():
    assert same_number(math.nan, math.nan) and same_number(0.0, 0.0) and same_number(None, None)
    assert not same_number(0.0, -0.0) and not same_number(1, True) and not same_number(1, 1.0)
