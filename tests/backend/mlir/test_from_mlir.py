"""Models read from MLIR: back from our own text, from forms that only Triton writes, and errors."""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ziggurat as zg
from ziggurat.backend.mlir import from_mlir, to_mlir
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import ParseError, TargetError, ZigguratError
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.verify import verify

HERE = Path(__file__).parent
STAGES = sorted((HERE.parents[1] / "golden" / "stages").glob("*.triton.txt"))
MODELS = {file.stem: file for file in [*sorted((HERE / "models").glob("*.txt")), *STAGES]}
RELEASES = ("3.4", "3.5", "3.6", "3.7", "3.8", "3.9")
# Models that come back in another form with the same meaning, each with the reason.
OTHER_FORM = {
    "argmax": "a Tuple is returned", "early_return": "a nested Tuple is returned", "loops": "a nested Tuple is carried",
    "hints": "hints about a parameter, and of no power of two", "matmul": "results of a loop are not used",
    "while_loop": "a result of a loop is not used",
}  # fmt: skip


def read_back(model: Op, release: str = "3.9") -> Op:
    """The model of its MLIR text: a lone function for a lone function."""
    result = from_mlir(to_mlir(model, release=release))
    verify(result)
    return result if isinstance(model, core.Module) else result.body.entry.ops[0]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", MODELS)
def test_models_come_back(name: str, release: str):
    model = parse(MODELS[name].read_text(encoding="utf-8"))
    result = read_back(model, release)
    assert zg.same_model(result, model) == (name not in OTHER_FORM)
    if name != "hints":
        assert to_mlir(result, release=release) == to_mlir(model, release=release)


# A constant that no 8-bit float holds; the magnitude of an unsigned integer, which is the integer.
ROUNDED = re.compile(r"constant\.(scalar\.)?f8e\dm\d\.-?inf|math\.absi\.u\d+")


def test_every_op_comes_back(single_op_kernels: dict[str, Op]):
    other = [name for name, model in single_op_kernels.items() if not zg.same_model(read_back(model), model)]
    assert [name for name in other if not ROUNDED.fullmatch(name)] == []


@pytest.mark.parametrize("release", ["3.4", "3.6"])
def test_a_sign_is_changed_where_triton_does_not_compile_negf(release: str):
    lines = "%2 : f16 = arith.negf %0; %3 : f8e5m2 = arith.negf %1; tt.return;"
    model = parse(f'tt.func @"f" (%0 : f16, %1 : f8e5m2)void -> {{ {lines} }};')
    assert "arith.negf" not in to_mlir(model, release=release).replace('zg.op = "arith.negf"', "")
    assert zg.same_model(read_back(model, release), model)


def test_locations_come_back():
    text = 'tt.func @"f" ()void -> { %0 : i32 = tt.get_program_id @loc="3:4:3:9:a\\"b.py" @0; tt.return; };'
    (results,) = [op for op in from_mlir(to_mlir(parse(text), locations=True)).walk() if op.NAME == "tt.get_program_id"]
    assert results.location is not None
    assert (results.location.file, results.location.line, results.location.column) == ('a"b.py', 3, 4)


def test_releases_are_named():
    model = parse(MODELS["vector_add"].read_text(encoding="utf-8"))
    assert to_mlir(model, release="3.6.0") == to_mlir(model, release="3.6")
    for release in ("3.3", "4.0", "three", ""):
        with pytest.raises(TargetError, match="'release' must be a release of Triton"):
            to_mlir(model, release=release)


def body(lines: str, parameters: str = "%p: !tt.ptr<i32>, %n: i32, %x: f32", result: str = "") -> core.Module:
    """A module with one function of these lines."""
    return from_mlir(f"tt.func public @f({parameters}){result} {{\n{lines}\ntt.return\n}}")


def ops(model: Op) -> list[str]:
    return [op.NAME for op in model.walk()][2:-2]


@pytest.mark.parametrize(
    ("generic", "pretty"),
    [
        ('%0 = "arith.addi"(%n, %n) <{overflowFlags = #arith.overflow<none>}> : (i32, i32) -> i32',
         "%0 = arith.addi %n, %n overflow<nsw> : i32"),
        ('%0 = "arith.cmpi"(%n, %n) <{predicate = 2 : i64}> : (i32, i32) -> i1', "%0 = arith.cmpi slt, %n, %n : i32"),
        ('%0 = "arith.constant"() <{value = dense<2> : tensor<8xi32>}> : () -> tensor<8xi32>',
         "%0 = arith.constant dense<2> : tensor<8xi32>"),
        ('%0 = "tt.get_program_id"() <{axis = 1 : i32}> : () -> i32', "%0 = tt.get_program_id y : i32"),
        ('%0 = "tt.load"(%p) <{cache = 2 : i32, evict = 3 : i32, isVolatile = false}> : (!tt.ptr<i32>) -> i32',
         "%0 = tt.load %p cacheModifier = cg evictionPolicy = evict_last : !tt.ptr<i32>"),
        ('%0 = "tt.atomic_rmw"(%p, %n) <{atomic_rmw_op = 4 : i32, scope = 1 : i32, sem = 4 : i32}> : '
         "(!tt.ptr<i32>, i32) -> i32",
         "%0 = tt.atomic_rmw add, acq_rel, gpu, %p, %n : (!tt.ptr<i32>, i32) -> i32"),
        ('"cf.br"(%n)[^bb1] : (i32) -> ()\n^bb1(%1: i32):', "cf.br ^bb1(%n : i32)\n^bb1(%1: i32):"),
        ('%0 = "scf.for"(%n, %n, %n, %x) ({\n^bb0(%i: i32, %s: f32):\n"scf.yield"(%s) : (f32) -> ()\n}) : '
         "(i32, i32, i32, f32) -> f32",
         "%0 = scf.for %i = %n to %n step %n iter_args(%s = %x) -> (f32) : i32 {\nscf.yield %s : f32\n}"),
    ],
)  # fmt: skip
def test_generic_forms(generic: str, pretty: str):
    assert zg.same_model(body(generic), body(pretty))


def test_a_module_in_the_generic_form():
    text = """"builtin.module"() ({
        "tt.func"() <{function_type = (!tt.ptr<i32>) -> (), sym_name = "f",
                      arg_attrs = [{tt.divisibility = 16 : i32}]}> ({
        ^bb0(%p: !tt.ptr<i32>):
          "tt.return"() : () -> ()
        }) {noinline = false} : () -> ()
      }) : () -> ()"""
    assert zg.same_model(from_mlir(text), body("", "%p: !tt.ptr<i32> {tt.divisibility = 16 : i32}"))


def test_an_unsigned_op_casts_its_operands():
    model = body("%0 = arith.divui %n, %n : i32\n%1 = arith.addi %0, %n : i32\ntt.store %p, %1 : !tt.ptr<i32>")
    assert ops(model) == [
        "arith.bitcast", "arith.bitcast", "arith.divui", "arith.bitcast", "arith.addi", "arith.bitcast", "tt.store",
    ]  # fmt: skip
    out = np.zeros(1, np.int32)
    zg.run(model, 1, out, -7, 0.0)
    assert out[0] == -6


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ("oeq", [0, 0, 1, 0]), ("one", [1, 1, 0, 0]), ("ord", [1, 1, 1, 0]), ("uno", [0, 0, 0, 1]),
        ("ueq", [0, 0, 1, 1]), ("ugt", [0, 1, 0, 1]), ("uge", [0, 1, 1, 1]), ("ult", [1, 0, 0, 1]),
        ("ule", [1, 0, 1, 1]), ("une", [1, 1, 0, 1]), ("true", [1, 1, 1, 1]), ("false", [0, 0, 0, 0]),
    ],
)  # fmt: skip
def test_predicates_of_floats(predicate: str, expected: list[int]):
    lines = f"""%r = tt.make_range {{end = 4 : i32, start = 0 : i32}} : tensor<4xi32>
        %a = tt.splat %x : !tt.ptr<f32> -> tensor<4x!tt.ptr<f32>>
        %b = tt.addptr %a, %r : tensor<4x!tt.ptr<f32>>, tensor<4xi32>
        %c = tt.load %b : tensor<4x!tt.ptr<f32>>
        %one = arith.constant dense<1.000000e+00> : tensor<4xf32>
        %d = arith.cmpf {predicate}, %c, %one : tensor<4xf32>
        %e = arith.extui %d : tensor<4xi1> to tensor<4xi32>
        %f = tt.splat %o : !tt.ptr<i32> -> tensor<4x!tt.ptr<i32>>
        %g = tt.addptr %f, %r : tensor<4x!tt.ptr<i32>>, tensor<4xi32>
        tt.store %g, %e : tensor<4x!tt.ptr<i32>>"""
    out = np.zeros(4, np.int32)
    zg.run(body(lines, "%x: !tt.ptr<f32>, %o: !tt.ptr<i32>"), 1, np.array([0, 2, 1, np.nan], np.float32), out)
    assert out.tolist() == expected


@pytest.mark.parametrize(
    ("constant", "values"),
    [
        ("dense<[1, -2, 3, 4]> : tensor<4xi32>", [1, -2, 3, 4]), ("dense<5> : tensor<4xi32>", [5] * 4),
        ('dense<"0x01000000FFFFFFFF0300000004000000"> : tensor<4xi32>', [1, -1, 3, 4]),
        ("dense<[0x7F800000, -1.500000e+00, 0xFF800000, 2.0]> : tensor<4xf32>", [np.inf, -1.5, -np.inf, 2]),
    ],
)  # fmt: skip
def test_dense_constants(constant: str, values: list[float]):
    scalar = constant[-4:-1]
    lines = f"""%c = arith.constant {constant}
        %r = tt.make_range {{end = 4 : i32, start = 0 : i32}} : tensor<4xi32>
        %f = tt.splat %o : !tt.ptr<{scalar}> -> tensor<4x!tt.ptr<{scalar}>>
        %g = tt.addptr %f, %r : tensor<4x!tt.ptr<{scalar}>>, tensor<4xi32>
        tt.store %g, %c : tensor<4x!tt.ptr<{scalar}>>"""
    out = np.zeros(4, np.int32 if scalar == "i32" else np.float32)
    zg.run(body(lines, f"%o: !tt.ptr<{scalar}>"), 1, out)
    assert out.tolist() == values


def test_locations_of_all_kinds():
    text = """#one = loc("a.py":3:4)
        #two = loc("x"(#one))
        tt.func @f(%p: !tt.ptr<i32> loc("p"(#one))) {
          %0 = arith.constant 1 : i32 loc(#two)
          %1 = arith.constant 2 : i32 loc(callsite(#one at #last))
          %2 = arith.constant 3 : i32 loc(unknown)
          %3 = arith.constant 4 : i32 loc(fused[unknown, #last])
          tt.return loc("b.py":1:0 to :9)
        } loc(#one)
        #last = loc("c.py":7:8)"""
    places = [op.location for op in from_mlir(text).walk()][2:-1]
    assert [str(place) if place else None for place in places] == ["a.py:3:5", "a.py:3:5", None, "c.py:7:9", "b.py:1:1"]
    assert str(places[1] and places[1].caller) == "c.py:7:9"


def test_a_while_loop_that_hands_on_other_types():
    model = body(
        """%one = arith.constant 1 : i32
        %0:2 = scf.while (%i = %n) : (i32) -> (i1, i64) {
          %c = arith.cmpi slt, %i, %m : i32
          %w = arith.extsi %i : i32 to i64
          scf.condition(%c) %c, %w : i1, i64
        } do {
        ^bb0(%d: i1, %w: i64):
          %t = arith.trunci %w : i64 to i32
          %u = arith.addi %t, %one : i32
          scf.yield %u : i32
        }
        %e = arith.extui %0#0 : i1 to i64
        %f = arith.addi %0#1, %e : i64
        tt.store %p, %f : !tt.ptr<i64>""",
        "%p: !tt.ptr<i64>, %n: i32, %m: i32",
    )
    verify(model)
    out = np.zeros(1, np.int64)
    zg.run(model, 1, out, 3, 40)
    assert out[0] == 40
    assert to_mlir(from_mlir(to_mlir(model))) == to_mlir(model)


def test_blocks_that_are_not_reached_are_left_out():
    model = from_mlir("""tt.func @f() -> i32 {
        %0 = arith.constant 1 : i32
        tt.return %0 : i32
      ^bb1:
        %1 = ub.poison : i32
        tt.return %1 : i32
      }""")
    assert ops(model) == ["arith.constant"]


@pytest.mark.parametrize(
    ("symbol", "count", "expected"),
    [
        ("asinf", 1, np.arcsin(0.5)), ("copysignf", 2, -0.5), ("fmul_rn", 2, -1.5), ("frcp_rn", 1, 2.0),
        ("j0f", 1, 0.9384698), ("fabsf", 1, 0.5), ("hypotf", 2, np.hypot(0.5, 3)),
    ],
)  # fmt: skip
def test_functions_of_libdevice(symbol: str, count: int, expected: float):
    arguments, types = ("%x, %y", "f32, f32") if count == 2 else ("%x", "f32")
    model = body(
        f'%0 = tt.extern_elementwise {arguments} {{libname = "", libpath = "", symbol = "__nv_{symbol}"}} '
        f": ({types}) -> f32\ntt.store %p, %0 : !tt.ptr<f32>",
        "%p: !tt.ptr<f32>, %x: f32, %y: f32",
    )
    verify(model)
    out = np.zeros(1, np.float32)
    zg.run(model, 1, out, 0.5, -3.0)
    np.testing.assert_allclose(out[0], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("%0 = tt.frob %n : i32", "2:6: the op tt.frob is not supported"),
        ("%0 = arith.addi %n, %q : i32", "the value %q is not defined before this op"),
        ("%0 = arith.addi %n, %x : i32", "arith.addi gets f32 here; the text says i32"),
        ("%0 = arith.addi %n : i32", "arith.addi takes 2 operand(s); got 1"),
        ("%0 = arith.addi %n, %n : i64", "arith.addi gets i32 here; the text says i64"),
        ("%0 = arith.cmpi less, %n, %n : i32", "predicate must be one of eq, ne"),
        ("%0 = arith.addi %n, %n", "expected the types of arith.addi after ':'"),
        ("%0 = arith.constant 300 : i8", "300 does not fit in i8"),
        ("%0 = arith.constant 1 : i9", "type i9 is not supported"),
        ("%0 = arith.constant dense<1> : tensor<4xi32, #b>", "has a layout"),
        ("%0 = arith.constant 1 : !tt.ptr<tensor<4xf32>>", "a block pointer"),
        ("cf.br ^bb7", "the block ^bb7 is not defined"),
        ("tt.call @g() : () -> ()", "tt.call must name a function of the module; got 'g'"),
        ("tt.store %p, %n", "expected the types of tt.store after ':'"),
        ("%0 = arith.truncf %x upward : f32 to f16", "this rounding is not supported"),
        ('%0 = tt.extern_elementwise %x {symbol = "__nv_k0f"} : (f32) -> f32', "the function __nv_k0f of libdevice"),
        ('%0 = tt.extern_elementwise %n, %n {symbol = "__nv_umulhi"} : (i32, i32) -> i32', "the function __nv_umulhi"),
        ('%0 = tt.extern_elementwise %x, %n {symbol = "__nv_fmaxf"} : (f32, i32) -> f32', "the function __nv_fmaxf"),
        ("scf.if %n {\n}", "operand 'condition' of scf.if must be i1; got i32"),
        ("%0 = arith.constant 1 : i32 loc(#none)", "the location #none is not defined"),
        ("%0 = arith.constant {", "this brace is never closed"),
        ("}", "this brace closes nothing"),
        ("%0:3 = tt.call @f(%p, %n, %x) : (!tt.ptr<i32>, i32, f32) -> ()", "tt.call gives 0 value(s); got names for 3"),
        ("%0:2 = arith.addi %n, %n : i32", "arith.addi gives 1 value(s); got names for 2"),
        ("tt.call @f(%p, %n) : (!tt.ptr<i32>, i32) -> ()", "tt.call must have 3 value(s) here; got 2"),
        ("tt.call @f(%p, %x, %x) : (!tt.ptr<i32>, i32, f32) -> ()", "a value must be of type i32; got f32"),
        ("tt.call @f(%q, %n, %x) : (!tt.ptr<i32>, i32, f32) -> ()", "the value %q is not defined"),
        ("%0 = tt.trans %n : i32 -> i32", "tt.trans needs a list of integers as 'order'"),
        ("%0 = tt.make_range {end = 4 : i32} : tensor<4xi32>", "tt.make_range needs an integer as 'start'"),
        ("%0 = tt.make_range {end = 4 : i32, start = 0.5 : f32} : tensor<4xi32>", "needs an integer as 'start'"),
        ("%0 = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<8xi32>", "gives tensor<x4, i32> here; the text"),
        ("%0 = tt.get_program_id : i32", "tt.get_program_id needs 'axis'"),
        ("%0 = tt.get_program_id {axis = 3 : i32} : i32", "axis must be one of x, y, z; got 3"),
        ("%0 = tt.get_program_id {axis = -1 : i32} : i32", "axis must be one of x, y, z; got -1"),
        ("%0 = tt.get_program_id w : i32", "axis must be one of x, y, z; got w"),
        (
            "scf.for %i = %n to %n step %n : i32 {\n^bb0(%j: i32):\nscf.yield\n^bb1:\nscf.yield\n}",
            "must have one block"
        ),
        (
            "scf.for %i = %n to %n step %n : i32 {\n^bb0(%j: i32, %k: i32):\n}",
            "must have 1 parameter(s) of a region; got 2"
        ),
        ('"scf.for"(%n, %n) ({\n^bb0(%j: i32):\n}) : (i32, i32) -> ()', "scf.for needs a start, a stop and a step"),
        ("%c = arith.constant true\n%0 = scf.if %c -> (i32) {\nscf.yield %x : f32\n}", "must be of type i32; got f32"),
        ("%0 = tt.call @f(%p, %n, %x) : (!tt.ptr<i32>, i32, f32) -> ()", "tt.call gives 0 value(s); got names for 1"),
        ("cf.br ^bb1(%n : i32)\n^bb1(%a: f32):", "cf.br: a value must be of type f32; got i32"),
        ("cf.br ^bb1(%n : i32)\n^bb1(%a: i32, %b: i32):", "cf.br must have 2 value(s) here; got 1"),
        ("cf.br %n", "expected a block such as '^bb1', got '%n'"),
        ("cf.cond_br %n, %n", "expected a block such as '^bb1', got '%n'"),
        ("tt.call %n : (i32) -> ()", "tt.call must name a function of the module; got ''"),
        ("%0 = arith.constant #x.y : i32", "expected a number, got '#x.y'"),
        ("%0 = arith.constant 1.5 : i32", "a constant of i32 must be an integer; got 1.5"),
        ("%0 = arith.constant 256 : i8", "256 does not fit in i8"),
        ("%0 = arith.constant -129 : i8", "-129 does not fit in i8"),
        (
            "%0 = arith.constant 1 : !tt.ptr<i32>",
            "a constant must be a number, or 'dense<…>' for a tensor; got ptr<i32>"
        ),
        (
            "%0 = arith.constant dense<1> : tensor<4x!tt.ptr<i32>>",
            "a constant must be of numbers; got tensor<x4, ptr<i32>>",
        ),
        ('%0 = arith.constant dense<"0xZZ"> : tensor<4xi32>', "a constant in quotes must be hexadecimal"),
        ('%0 = arith.constant dense<"0x0102"> : tensor<4xi8>', "one element, or tensor<x4, i8>'s number of them"),
        ("%0 = tt.load %p : !tt.ptr<i32, 3>", "pointers must point to global memory (space 1)"),
        ("%0 = tt.load %p : !tt.ptr<!tt.ptr<i32>>", "a block pointer, !tt.ptr<!tt.ptr<i32>>, is not supported"),
        ("%0 = arith.addi %n, %n : tensor<i32>", "type tensor<i32> is not supported"),
        ("%0 = arith.addi %n, %n : tensor<?xi32>", "type ?xi32 is not supported"),
        ("%0 = tt.load %p {boundaryCheck = array<i32: 0>} : !tt.ptr<i32>", "a block pointer is not supported"),
        ("%0 = tt.load %p cacheModifier = cx : !tt.ptr<i32>", "cacheModifier must be one of none, ca, cg"),
        ("tt.store %p, %x : !tt.ptr<i32>", "tt.store: a value must be of type i32; got f32"),
        ("%0 = tt.unsplat %n : i32", "tt.unsplat takes a tensor; got i32"),
        (
            "%0 = tt.atomic_rmw mul, acq_rel, gpu, %p, %n : (!tt.ptr<i32>, i32) -> i32",
            "atomic_rmw_op must be one of none, and"
        ),
        ("%0 = tt.atomic_rmw add, weak, gpu, %p, %n : (!tt.ptr<i32>, i32) -> i32", "sem must be one of none, relaxed"),
        ("%0 = tt.atomic_rmw add, acq_rel, all, %p, %n : (!tt.ptr<i32>, i32) -> i32", "scope must be one of none, gpu"),
        ("%0 = arith.truncf %x, up : f32 to f16", "roundingmode must be one of to_nearest_even"),
        ("%0 = arith.cmpi %n, %n : i32", "arith.cmpi needs 'predicate'"),
        ("%0 = arith.cmpf 1, %x, %x : f32", "expected the types of arith.cmpf after ':', got '1'"),
        ("scf.if %n", "expected a region of scf.if, in braces, got 'tt.return'"),
        ("scf.for %n = %n to %n, %n", "expected 'step', got ','"),
        ("%0 = arith.addi %n, %n {a = ?} : i32", "expected an attribute, got '?'"),
        ("%0 = arith.addi %n, %n {a = 1 b = 2} : i32", "expected ',' or '}', got 'b'"),
        ("%0 = arith.addi %n, %n {1 = 2} : i32", "expected the name of an attribute, got '1'"),
        ("%0 = arith.addi %n, %n : i32 loc(5)", "expected a location, got '5'"),
        ('%0 = arith.addi %n, %n : i32 loc("a":b:1)', "expected an integer, got 'b'"),
        ('%0 = arith.addi %n, %n : i32 loc("a":-1:1)', "expected an integer, got '-'"),
        ("tt.print %n : i32", "expected a string, got '%n'"),
        ("%0 %1 = arith.addi %n, %n : i32", "expected '=', got '%1'"),
        ("%0 = 5", "expected an op, got '5'"),
    ],
)  # fmt: skip
def test_errors_name_the_place(lines: str, message: str):
    with pytest.raises(ParseError, match=re.escape(message)) as error:
        body(lines)
    assert error.value.line > 0 and error.value.column > 0
    assert "^" in error.value.summary


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the module must have a function"), ("module {\n}", "the module must have a function"),
        ("func.func @f() {\n}", "expected a function, tt.func"), ("module { tt.func @f() }", "must have a body"),
        ("tt.func @f() {\ntt.return\n}\ntt.func @f() {\ntt.return\n}", "the function 'f' is defined twice"),
        ("tt.func f() {\n}", "expected a symbol such as '@kernel', got 'f'"),
        ("tt.func @f(i32) {\n}", "expected a value such as '%0', got 'i32'"),
        ("tt.func @f(%a: i32 %b: i32) {\n}", "expected ',', got '%b'"),
        ('"tt.func"() <{function_type = () -> (), sym_name = "f"}> (^a)', "a function must have a body, in"),
        ("module attributes {a = 1 : i32}", "expected the body of the module, in braces, got the end of the text"),
        ("tt.func @f(%n: i32 {zg.descriptor_size = 0 : i32}) {\n}", "parameter 0 of 'f' must follow a descriptor"),
        ('tt.func @f(%n: i32 {zg.type = "9"}) {\n}', "zg.type must be a type such as 'u32'; got '9'"),
        (
            "tt.func @f(%n: i32, %n2: i32) {\n^bb0(%a: i32):\ntt.return\n}",
            "must have 2 parameter(s) of a region; got 1"
        ),
        ("tt.func @f() -> i32 {\ntt.return\n}", "tt.return must have 1 value(s) here; got 0"),
        ("tt.func @f() {\n%0 = tt.poison : i32\n}", "the op tt.poison is not supported"),
    ],
)  # fmt: skip
def test_errors_of_modules(text: str, message: str):
    with pytest.raises(ParseError, match=re.escape(message)):
        from_mlir(text)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("tt.store %p, %n : (", "type tt.return is not supported"),
        ("tt.store %p, %n : (i32", "expected ',', got 'tt.return'"),
        ("%0 = arith.cmpi sgt, ,%n : i32", "expected an operand or ':', got ','"),
        ("%0 = arith.addi ,%n, %n : i32", "expected an operand or ':', got ','"),
        ("%0 = arith.addi %n %n : i32", "expected ',', got '%n'"),
        ("%0 = arith.addi %n, %n, : i32", "expected an operand or ':', got ':'"),
        ("%0 = arith.addi (%n, %n : i32", "expected an operand or ')', got ':'"),
        ("%0 = arith.addi %n], %n : i32", "expected an operand or ':', got ']'"),
        ("%0 = arith.addi %n, %n : i32 *", "type tt.return is not supported"),
        ("%0 = arith.constant 8xi32 : i32", "expected a number, got '8xi32'"),
        ("%0 = arith.addi %n, %n {a = 2x3xf32} : i32", "expected a number, got '2x3xf32'"),
        ("%0 = arith.constant dense<0> : tensor<0x8xi32>", "type tensor<0x8xi32> has no elements"),
        ("%0 = arith.constant 0x12345 : f16", "0x12345 does not fit in f16"),
        (f"%0 = arith.constant {'1' * 5000} : i32", "a token is longer than 1000 characters"),
        (f"%0 = arith.constant {'1' * 900} : i32", "does not fit in i32"),
        (f"%0 = arith.constant dense<0> : tensor<{'8' * 5000}xi32>", "a token is longer than 1000 characters"),
        (f"%0 = arith.addi %n, %n {{a = {'1' * 5000}}} : i32", "a token is longer than 1000 characters"),
        (f"%0 = arith.addi %n, %n {{a = {'[' * 300}1{']' * 300}}} : i32", "attributes are nested too deeply (200)"),
        (f"%0 = arith.addi %n, %n : i32 loc({'callsite(unknown at ' * 300}", "locations are nested too deeply (200)"),
        ("%c = arith.constant true\n" + "scf.if %c {" * 300 + "}" * 300, "regions are nested too deeply (200)"),
        ("%0 = tt.make_tensor_ptr %p, [], [], [] : <tensor<8x16xf32>>", "block pointers, tt.make_tensor_ptr, are not"),
        ("%0 = tt.advance %p, [%n] : <tensor<8xf32>>", "block pointers, tt.advance, are not supported"),
        ("%0 = tt.load %p : <tensor<8xf32>>", "block pointers, <tensor<…>>, are not supported"),
        ("%0 = tt.load %p : <tensor<8x!tt.ptr<f32>>, 3>", "block pointers, <tensor<…>>, are not supported"),
        ("%0 = tt.load %p : <tensor<8xf32>", "block pointers, <tensor<…>>, are not supported"),
        ("%0 = tt.load %p : <f32, 3>", "a type must have its name here; got '<'"),
        ("tt.store %p, %n : <i32>", "a type must have its name here; got '<'"),
        ('"tt.store"(%p, %n) : (<i32>, i32) -> ()', "a type must have its name here; got '<'"),
        ("%0 = tt.load %p : !tt.ptr<f32", "type !tt.ptr<…> has no arguments or no end"),
        ("%0 = tt.load %p : tensor<8xf32", "type tensor<…> has no arguments or no end"),
        ("%0 = arith.constant dense<[1, 2]> : tensor<4xi32>", "must have its shape; got numbers of shape (2,)"),
        ("%0 = arith.constant dense<[[1]]> : tensor<1xi32>", "must have its shape; got numbers of shape (1, 1)"),
        ("%0 = arith.constant dense<[1, 2, 3, 4]> : tensor<2x2xi32>", "must have its shape; got numbers of shape (4,)"),
        ("%0 = arith.constant dense<[[1, 2], [3]]> : tensor<3xi32>", "the rows of a constant must have one shape"),
        ("%0 = arith.constant dense<[1 2]> : tensor<2xi32>", "expected ',', got '2'"),
        (f"%0 = arith.constant dense<{'[' * 5000}1{']' * 5000}> : tensor<1xi32>", "constants are nested too deeply"),
    ],
)  # fmt: skip
def test_what_is_odd_or_beyond_the_limits(lines: str, message: str):
    with pytest.raises(ParseError, match=re.escape(message)):
        body(lines)


@pytest.mark.parametrize(
    "end", [" " * 100_000, "\n \t" * 30_000, "// no op", "// no op\n" * 20_000, "\n// a\n  // b  "]
)
def test_blanks_and_comments_at_the_end(end: str):
    began = time.process_time()
    model = from_mlir("module { tt.func @k() { tt.return } }" + end)
    assert len(model.functions()) == 1
    with pytest.raises(ParseError, match="this brace is never closed"):
        from_mlir("module { tt.func @k() { tt.return }" + end)
    assert time.process_time() - began < 2


def test_errors_of_long_lines_are_short():
    with pytest.raises(ParseError) as error:
        from_mlir("module { " + "x" * 900 + " " + "y " * 500_000 + "}")
    assert len(str(error.value)) < 2000
    with pytest.raises(ParseError) as error:
        body(f'"{"x" * 100_000}"() : () -> ()')
    assert len(str(error.value)) < 3000


def test_aliases_are_read_once():
    double = "".join(f"#a{n} = [#a{n + 1}, #a{n + 1}]\n" for n in range(60))
    from_mlir(f"{double}#a60 = 1\nmodule attributes {{b = #a0}} {{ tt.func @k() {{ tt.return }} }}")
    with pytest.raises(ParseError, match="nested too deeply"):
        from_mlir("#a = [#a]\nmodule attributes {b = #a} { tt.func @k() { tt.return } }")


def test_150_branches_in_each_other():
    branches = "%c = arith.constant true\n" + "scf.if %c {" * 150 + "tt.store %p, %n : !tt.ptr<i32>" + "}" * 150
    verify(body(branches))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_texts_have_errors_of_their_own(data: st.DataObject):
    text = to_mlir(parse(MODELS[data.draw(st.sampled_from(("matmul", "vector_add", "loops")))].read_text("utf-8")))
    for _ in range(data.draw(st.integers(1, 3))):
        at, size = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 6))
        piece = data.draw(
            st.sampled_from(("", "(", ")", "[", "{", "}", "<", ",", ":", "%0", "8x", "-", '"', "#a", "->"))
        )
        text = text[:at] + piece + text[at + size :]
    with contextlib.suppress(ParseError):
        from_mlir(text)


def test_text_is_asked_for():
    with pytest.raises(ParseError, match="'text' must be the text of an MLIR module"):
        from_mlir(None)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("seed", range(4))
def test_broken_texts_are_errors_of_ours(seed: int):
    """Tokens left out, doubled and exchanged: the text is read, or the error names a place."""
    drawn = random.Random(seed)
    texts = [to_mlir(parse(file.read_text(encoding="utf-8")), release="3.6") for file in MODELS.values()]
    for _ in range(150):
        parts = re.findall(r"\s+|\w+|.", drawn.choice(texts))
        at, other = drawn.randrange(len(parts)), drawn.randrange(len(parts))
        parts[at : at + 1] = drawn.choice([[], [parts[at], parts[at]], [parts[other]]])
        try:
            from_mlir("".join(parts))
        except ZigguratError as error:
            assert isinstance(error, ParseError), error


PRINTED = sorted((HERE / "printed").glob("*.ttir"))


@pytest.mark.parametrize("file", PRINTED, ids=lambda file: file.stem)
def test_texts_that_triton_printed(file: Path, golden: Callable[[str, object], None]):
    """Kernels of ours (`printed/kernels.py`), as Triton 3.6 printed them."""
    model = from_mlir(file.read_text(encoding="utf-8"), file.name)
    verify(model)
    golden(f"printed_{file.stem}.triton", model)


def test_forms_of_ops(golden: Callable[[str, object], None]):
    """An op of each name and form that Triton prints, and an operand of the other sign for each that takes one."""
    text = (HERE / "forms.ttir").read_text(encoding="utf-8")
    model = from_mlir(text, "forms.ttir")
    verify(model)
    own = re.findall(r"tt\.func (?:\w+ )?@(\w+)", text)
    golden("forms.triton", "\n".join(str(model.functions()[name]) for name in own))
    assert zg.same_model(from_mlir(to_mlir(model)), from_mlir(to_mlir(from_mlir(to_mlir(model)))))


def printed(name: str) -> Op:
    return from_mlir((HERE / "printed" / f"{name}.ttir").read_text(encoding="utf-8"))


def test_a_printed_kernel_with_reductions():
    x = np.random.default_rng(0).standard_normal((5, 50)).astype(np.float32)
    out, places = np.zeros((5, 50), np.float32), np.zeros(5, np.int32)
    zg.run(printed("centred"), 2, x, out, places, 5, 50)
    np.testing.assert_allclose(out, x - x.mean(1, keepdims=True), atol=1e-6)
    assert places.tolist() == x.argmax(1).tolist()


def test_a_printed_kernel_with_a_while_loop_and_a_scan():
    n, count, sums = np.array([27, 6], np.int32), np.zeros(1, np.int32), np.arange(32)
    zg.run(printed("steps"), 1, n, count, sums)
    assert count[0] == 111 and sums.tolist() == np.arange(32)[::-1].cumsum()[::-1].tolist()


def test_a_printed_kernel_with_a_dot_and_a_descriptor():
    rng = np.random.default_rng(1)
    a, b = ((rng.standard_normal(shape) / 8).astype(np.float16) for shape in ((32, 96), (96, 32)))
    c = np.zeros((32, 32), np.float16)
    model = printed("scaled_product")
    zg.run(model, 1, zg.TensorDescriptor(a, (32, 32)), *a.shape, a.shape[1], 1, b, c, 96)
    np.testing.assert_allclose(c.T, np.tanh(a.astype(np.float64) @ b.astype(np.float64)), atol=2e-3)


def test_a_printed_kernel_with_unsigned_numbers():
    x = np.random.default_rng(2).integers(-(2**31), 2**31, 64).astype(np.int32)
    out = np.zeros(32, np.float32)
    zg.run(printed("unsigned"), 3, x, out, 1)
    u = x.view(np.uint32).astype(np.uint64)
    even, odd = ((u // 3) ^ (u >> 4)).reshape(32, 2).T
    np.testing.assert_allclose(out, np.where(even < odd, even, even * odd >> 32).astype(np.float32))


@pytest.mark.parametrize("file", PRINTED, ids=lambda file: file.stem)
def test_printed_kernels_compile_and_run_as_interpreted(file: Path):
    """`zg.compile` takes what `from_mlir` gives; the compiled kernel is launched like any other."""
    compiled = zg.compile(from_mlir(file.read_text(encoding="utf-8")), target="sm_90a")
    assert f".visible .entry {file.stem}(" in compiled.ptx
    if file.stem == "centred":
        x = np.random.default_rng(0).standard_normal((2, 50)).astype(np.float32)
        out, places = np.zeros((2, 50), np.float32), np.zeros(2, np.int32)
        compiled.simulate[(2,)](x, out, places, 2, 50)
        np.testing.assert_allclose(out, x - x.mean(1, keepdims=True), atol=1e-6)
