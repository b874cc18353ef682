"""Builder methods of arithmetic, comparisons, casts and functions: the ops, by the types of the operands."""

from __future__ import annotations

import pytest
from call_types import Types

from ziggurat.codemodel.types import (
    PtrType,
    TensorType,
    f8e4m3,
    f16,
    f32,
    f64,
    i1,
    i8,
    i32,
    i64,
    u8,
    u32,
    with_element,
)  # fmt: skip
from ziggurat.frontends.language import CompareKind
from ziggurat.transforms.calls.emit import Operand
from ziggurat.transforms.calls.promotion import constant

R = Types()
P = PtrType(f32)
T = TensorType((16,), i32)

# By call: the ops for f32, i32 and u32; None where there is none.
OPS = {
    "add": ("addf", "addi", "addi"),
    "sub": ("subf", "subi", "subi"),
    "mul": ("mulf", "muli", "muli"),
    "div": ("divf", None, None),
    "floordiv": (None, "divsi", "divui"),
    "mod": ("remf", "remsi", "remui"),
    "and_": (None, "andi", "andi"),
    "or_": (None, "ori", "ori"),
    "xor": (None, "xori", "xori"),
    "shl": (None, "shli", "shli"),
    "shr": (None, "shrsi", "shrui"),
    "minimum": ("minnumf", "minsi", "minui"),
    "maximum": ("maxnumf", "maxsi", "maxui"),
}


def made(emitted, calls, name, *types, **options):
    """A call on run-time values (or constants) of these types: what was built, of the type that attribution says."""
    result = getattr(R, name)(*types, **options)
    given = [type_ for type_ in types if not hasattr(type_, "value")]

    def build(emit, *values):
        rest = list(values)
        operands = [Operand(type_, None if hasattr(type_, "value") else rest.pop(0)) for type_ in types]
        return getattr(calls(emit), name)(result, *operands, **options)

    built = emitted(given, build)
    assert built.result.type == result
    return built


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize(("place", "element"), [(0, f32), (1, i32), (2, u32)])
def test_binary_ops(emitted, calls, name, place, element):
    op = OPS[name][place]
    if op is not None:
        assert made(emitted, calls, name, element, element).names == [f"arith.{op}"]


def test_operands_are_converted_left_first(emitted, calls):
    built = made(emitted, calls, "add", T, TensorType((4, 1), f16))
    assert built.names == ["arith.sitofp", "tt.expand_dims", "tt.broadcast", "tt.broadcast", "arith.addf"]
    assert made(emitted, calls, "sub", constant(1), T).names == ["arith.constant", "tt.splat", "arith.subi"]


def test_8_bit_floats_are_computed_in_f32(emitted, calls):
    names = made(emitted, calls, "mul", f8e4m3, f8e4m3).names
    assert names == ["arith.extf", "arith.extf", "arith.mulf", "arith.truncf"]
    assert made(emitted, calls, "fma", f8e4m3, f8e4m3, f8e4m3).names == ["math.fma"], "rounded once"
    assert made(emitted, calls, "maximum", f8e4m3, f8e4m3).names == ["arith.maxnumf"], "an operand, not rounded"
    assert made(emitted, calls, "fma", f16, f16, f16).names == ["math.fma"], "rounded once, in f16 itself"


def test_pointers_move(emitted, calls):
    assert made(emitted, calls, "add", P, i64).names == ["tt.addptr"]
    assert made(emitted, calls, "add", T, P).names == ["tt.splat", "tt.addptr"]
    assert made(emitted, calls, "add", P, i1).names == ["arith.extui", "tt.addptr"]
    assert made(emitted, calls, "sub", P, i32).names == ["arith.constant", "arith.subi", "tt.addptr"]


def test_an_unsigned_offset_is_widened_before_it_is_negated(emitted, calls):
    built = made(emitted, calls, "sub", P, u32)
    assert built.names == ["arith.extui", "arith.constant", "arith.subi", "tt.addptr"]
    assert built.func.bodies[0].entry.ops[2].result.type == i64


def test_a_literal_is_subtracted_as_its_negative(emitted, calls):
    built = made(emitted, calls, "sub", P, constant(3))
    assert built.names == ["arith.constant", "tt.addptr"]
    assert built.func.bodies[0].entry.ops[0].attributes["value"] == -3


def test_signs(emitted, calls):
    assert made(emitted, calls, "neg", f32).names == ["arith.negf"]
    assert made(emitted, calls, "neg", T).names == ["arith.constant", "arith.subi"]
    for type_, ones in ((i1, True), (i32, -1), (u8, 255)):
        built = made(emitted, calls, "invert", type_)
        assert built.names == ["arith.constant", "arith.xori"]
        assert built.func.bodies[0].entry.ops[0].attributes["value"] == ones
    assert made(emitted, calls, "abs", f64).names == ["math.absf"]
    assert made(emitted, calls, "abs", i8).names == ["math.absi"] and made(emitted, calls, "abs", u8).names == []
    assert made(emitted, calls, "clamp", f32, constant(0), f32).names == [
        "arith.constant",
        "arith.maxnumf",
        "arith.minnumf",
    ]


PREDICATES = {
    "EQUAL": ("oeq", "eq", "eq"),
    "NOT_EQUAL": ("une", "ne", "ne"),
    "LESS_THAN": ("olt", "slt", "ult"),
    "LESS_THAN_OR_EQUAL": ("ole", "sle", "ule"),
    "GREATER_THAN": ("ogt", "sgt", "ugt"),
    "GREATER_THAN_OR_EQUAL": ("oge", "sge", "uge"),
}


@pytest.mark.parametrize("kind", CompareKind)
def test_comparisons(emitted, calls, kind):
    for element, predicate in zip((f32, i32, u32), PREDICATES[kind.name], strict=True):
        built = made(emitted, calls, "compare", element, element, kind=kind)
        assert built.names == ["arith.cmpf" if element.is_float else "arith.cmpi"]
        assert built.func.bodies[0].entry.ops[0].attributes["predicate"].name.lower() == predicate
    assert made(emitted, calls, "compare", P, P, kind=kind).names == ["arith.cmpi"]
    assert made(emitted, calls, "compare", f8e4m3, f8e4m3, kind=kind).names == ["arith.extf"] * 2 + ["arith.cmpf"]


def test_choices(emitted, calls):
    assert made(emitted, calls, "where", i1, f32, f32).names == ["arith.select"]
    mask = TensorType((16,), i1)
    assert made(emitted, calls, "where", mask, T, constant(0)).names == ["arith.constant", "tt.splat", "arith.select"]
    assert made(emitted, calls, "where", constant(True), i32, i64).names == ["arith.extsi"], "nothing is chosen"


def test_casts(emitted, calls):
    assert made(emitted, calls, "cast", P, dtype=i64).names == ["tt.ptr_to_int"]
    assert made(emitted, calls, "cast", i64, dtype=P).names == ["tt.int_to_ptr"]
    assert made(emitted, calls, "cast", P, dtype=P).names == []
    assert made(emitted, calls, "cast", P, dtype=PtrType(i8)).names == ["tt.bitcast"]
    assert made(emitted, calls, "cast", constant(300.7), dtype=i32).names == ["arith.constant"]
    assert made(emitted, calls, "bitcast", f32, dtype=i32).names == ["arith.bitcast"]
    assert made(emitted, calls, "bitcast", f32, dtype=f32).names == []
    assert made(emitted, calls, "bitcast", constant(1.0), dtype=u32).names == ["arith.constant", "arith.bitcast"]
    toward_zero = made(emitted, calls, "cast", f32, dtype=f16, rounding="rtz")
    assert toward_zero.func.bodies[0].entry.ops[0].attributes["rounding"].name == "ZERO"


@pytest.mark.parametrize(
    "name", ["exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "floor", "ceil"]
)
def test_functions_of_narrow_floats_are_computed_in_f32(emitted, calls, name):
    assert made(emitted, calls, name, f64).names == [f"math.{name}"]
    assert made(emitted, calls, name, f16).names == ["arith.extf", f"math.{name}", "arith.truncf"]
    assert made(emitted, calls, name, T).names == ["arith.sitofp", f"math.{name}"]


def test_the_upper_half_of_a_product(emitted, calls):
    assert made(emitted, calls, "umulhi", u32, u32).names == ["tt.mulhiui"]
    built = made(emitted, calls, "umulhi", T, constant(7))
    assert built.result.type == with_element(T, u32) and built.names[0] == "arith.bitcast"
