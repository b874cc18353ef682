"""The MLIR text of Triton models, without Triton: golden texts, names, types, numbers, and errors."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from importlib.metadata import MetadataPathFinder
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ziggurat.codemodel.dialects  # noqa: F401
from ziggurat.backend.mlir import to_mlir
from ziggurat.backend.mlir.emitter import EMITTERS, number, quoted, symbol
from ziggurat.backend.mlir.releases import release_of
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.dialects import core, cpu, debug, py, tt
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.numbers import rounded_number
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import SCALARS, f8e4m3, f16, f32, i1, i8, u8, u32

MODELS = {file.stem: file for file in sorted((Path(__file__).parent / "models").glob("*.txt"))}


@pytest.mark.parametrize("name", MODELS)
def test_golden(name: str, golden: Callable[[str, object], None]):
    model = parse(MODELS[name].read_text(encoding="utf-8"))
    golden(f"{name}.mlir", to_mlir(model, release="3.9"))


def test_only_ops_of_other_models_have_no_emitter():
    """The Python, GPU and CPU models are not written as MLIR; `module` and `tt.func` have functions of their own, and
    waits are written as loops."""
    modules = tuple(dialect.__name__ for dialect in (cpu, debug, gpu, py))  # And those that begin like them.
    other = {name for name, cls in OPS.items() if cls.__module__.startswith(modules)}
    of_python = {"func", "func.call", "func.ref", "constant", "var", "var.load", "var.store"}
    framing = {core.Module.NAME, tt.Func.NAME}
    assert {name for name, cls in OPS.items() if cls not in EMITTERS} == other | of_python | framing | {tt.Wait.NAME}


def single(body: str, *, parameters: str = "%0 : ptr<f32>, %1 : i32", result: str = "void") -> str:
    """The lines of MLIR for the body of one function."""
    text = to_mlir(parse(f'tt.func @"f" ({parameters}){result} -> {{ {body} }};'))
    return "\n".join(line.strip() for line in text.splitlines()[2:-2])


def test_divisibility_is_stated_only_where_it_is_known():
    text = to_mlir(parse(MODELS["hints"].read_text(encoding="utf-8")))
    assert (
        "(%arg0: !tt.ptr<f32> {tt.divisibility = 16 : i32, zg.divisibility = 48 : i32}, "
        "%arg1: i32 {zg.divisibility = 0 : i32}, %arg2: i64 {zg.divisibility = 7 : i32}, "
        "%arg3: f32 {zg.divisibility = 16 : i32})" in text
    )  # 48 as the power of two in it; Triton gets nothing for 0, for an odd number and for a float


def test_names_are_legal_in_mlir_and_ptx():
    model = parse(
        """module ()void -> {
            tt.func @"f<x2, i32>" (%0 : i32)i32 -> { tt.return %0; };
            tt.func @"k<i32>" (%0 : i32)void -> { %1 : i32 = tt.call %0 @"f<x2, i32>"; tt.return; };
            tt.func @"k_i32" (%0 : i32)void -> { tt.return; };
            tt.func @"2·x" (%0 : i32)void -> { tt.return; };
            tt.func @"void.helper" (%0 : i32)void -> { tt.return; };
            tt.func @"user" (%0 : i32)void -> { tt.call %0 @"void.helper"; tt.return; };
            unreachable;
        };"""
    )
    text = to_mlir(model)
    assert 'tt.func private @"f<x2, i32>"(' in text
    assert 'tt.call @"f<x2, i32>"(%arg0) : (i32) -> i32' in text
    assert "tt.func public @k_i32_2(" in text
    assert "tt.func public @k_i32(" in text
    assert "tt.func public @kernel_2_x(" in text
    assert "tt.func private @void.helper(" in text
    assert "tt.call @void.helper(%arg0) : (i32) -> ()" in text


def test_casts_between_signs_keep_the_type():
    body = "%2 : u32 = arith.bitcast %1; %3 : u64 = arith.extui %2; %4 : i64 = arith.bitcast %3; tt.return %4;"
    assert single(body, result="i64").splitlines() == [
        '%0 = tt.bitcast %arg1 {zg.type = "u32"} : i32 -> i32',
        '%1 = arith.extui %0 {zg.type = "u64"} : i32 to i64',
        "%2 = tt.bitcast %1 : i64 -> i64",
        "tt.return %2 : i64",
    ]


def test_nested_tuples_are_several_values():
    body = """%2 : Tuple<i32, i32> = tuple %1 %1;
        %3 : Tuple<ptr<f32>, i32> = tuple %0 %1;
        %4 : Tuple<Tuple<ptr<f32>, i32>, i32> = tuple %3 %1;
        %5 : Tuple<ptr<f32>, i32> = tuple.load %4 @0;
        %6 : i32 = tuple.load %4 @1;
        %7 : i32 = arith.addi %6 %1;
        %8 : Tuple<Tuple<ptr<f32>, i32>, i32> = tuple.with %4 %7 @1;
        tt.return %8;"""
    text = single(body, result="Tuple<Tuple<ptr<f32>, i32>, i32>")
    assert text == "%0 = arith.addi %arg1, %arg1 : i32\ntt.return %arg0, %arg1, %0 : !tt.ptr<f32>, i32, i32"


def test_locations():
    text = 'tt.func @"f" ()void -> { %0 : i32 = tt.get_program_id @loc="3:4:3:9:a\\"b.py" @0; tt.return; };'
    assert '%0 = tt.get_program_id x : i32 loc("a\\22b.py":3:4)' in to_mlir(parse(text), locations=True)
    assert "loc(" not in to_mlir(parse(text))


def test_only_the_last_line_of_an_op_has_its_location():
    place = '@loc="3:4:3:9:a.py"'
    text = f"""tt.func @"f" (%c : i1, %n : i32)void -> {{
        scf.if %c {place}
            ()void -> {{ tt.assert %c @message="a"; scf.yield; }} ()void -> {{ tt.assert %c @message="b"; scf.yield; }};
        %0 : i32 = scf.while %n {place}
            (%1 : i32)i32 -> {{ scf.condition %c %1; }} (%2 : i32)i32 -> {{ scf.yield %2; }};
        tt.return;
    }};"""
    lines = [line.strip() for line in to_mlir(parse(text), locations=True).splitlines()]
    assert "} else {" in lines and "} do {" in lines
    assert lines.count('} loc("a.py":3:4)') == 2


@pytest.mark.parametrize(
    ("release", "type_"),
    [
        ("3.7", "!tt.tensordesc<tensor<8x16xf32>>"),
        ("3.8", "!tt.tensordesc<8x16xf32>"),
        (None, "!tt.tensordesc<8x16xf32>"),
    ],
)
def test_blocks_of_descriptors_in_each_release(release, type_):
    model = parse('tt.func @"f" (%d : descriptor<x8, x16, f32>)void -> { tt.return; };')
    assert f"(%d: {type_}" in to_mlir(model, release=release).replace("%arg0", "%d")


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("3.5.1", (3, 5)),
        ("3.6.0+git1234", (3, 6)),
        ("2.1.0", (3, 4)),
        ("3.10.0", (3, 9)),
        ("unknown", (3, 9)),
        (None, (3, 9)),
    ],
)
def test_the_release_is_that_of_the_installed_triton(version, release, monkeypatch):
    triton = [] if version is None else [SimpleNamespace(version=version)]
    monkeypatch.setattr(MetadataPathFinder, "find_distributions", lambda context: iter(triton))
    assert release_of(None) == release


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('func @"f" ()object -> { return; };', "'func' is no function of one"),
        (
            'tt.func @"f" ()void -> { %0 : Var<i32> = var @"x"; tt.return; };',
            "'var' is an op of another tier",
        ),
        (
            'tt.func @"f" (%0 : f64)void -> { %1 : f32 = arith.truncf %0 @rounding=rtz; tt.return; };',
            "no conversion from f64 to f32 that rounds toward zero",
        ),
        (
            'tt.func @"f" (%0 : ptr<f16>, %1 : f16)void -> { %2 : f16 = tt.atomic_rmw %0 %1 @fmax; tt.return; };',
            "no atomic fmax for f16",
        ),
        ('tt.func @"f" ()void -> { tt.call @"g"; tt.return; };', "tt.call must name a function of the module; got 'g'"),
        ('tt.func @"f" (%0 : object)void -> { tt.return; };', "type object has no form"),
    ],
)
def test_models_without_a_form_in_mlir_are_errors(text: str, message: str):
    with pytest.raises(TargetError, match=message):
        to_mlir(parse(text))


def test_numbers():
    assert number(float("inf"), f16) == "0x7C00"
    assert number(-float("inf"), f32) == "0xFF800000"
    assert number(float("nan"), f8e4m3) == "0x7F"
    assert number(1e300, f32) == "0x7F800000"
    assert number(1e-05, SCALARS["f64"]) == "1.0e-05"
    assert number(-0.0, f32) == "-0.0"
    assert number(255, u8) == "-1"
    assert number(-128, i8) == "-128"
    assert number(2**32 - 1, u32) == "-1"
    assert number(True, i1) == "true"
    assert quoted('a"\\\n∞') == '"a\\22\\5C\\0A\\E2\\88\\9E"'
    assert symbol("a.b$c") == "@a.b$c"
    assert symbol("1a") == '@"1a"'


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["f16", "bf16", "f32", "f64", "f8e5m2"]))
def test_a_finite_float_is_written_so_that_it_is_read_back(value: float, name: str):
    rounded = rounded_number(value, SCALARS[name])
    text = number(value, SCALARS[name])
    if text.startswith("0x"):
        assert not math.isfinite(rounded)
    else:
        inside = abs(value) <= SCALARS[name].format.largest
        assert struct.pack("d", float(text)) == struct.pack("d", value if inside else rounded)
        assert "." in text  # MLIR reads it as an integer else


@given(st.integers(), st.sampled_from([t for t in SCALARS.values() if t.kind == "int"]))
def test_an_integer_is_written_as_its_bits(value: int, scalar):
    low, high = scalar.limits
    value = low + value % (high - low + 1)
    text = int(number(value, scalar))
    assert (text - value) % (1 << scalar.bits) == 0
    assert -(1 << (scalar.bits - 1)) <= text < 1 << (scalar.bits - 1)


def test_every_single_op_kernel_can_be_written(single_op_kernels: dict[str, Op]):
    text = {op for model in single_op_kernels.values() for op in map(type, model.walk())}
    for model in single_op_kernels.values():
        assert "tt.func public @kernel(" in to_mlir(model)
    for file in MODELS.values():
        text |= set(map(type, parse(file.read_text(encoding="utf-8")).walk()))
    # Blocks, branches and their terminators have tests of their own. So have facts about descriptors, which are written
    # as operands or parameters.
    apart = {"cf.br", "cf.cond_br", "cf.assert", "branch", "cbranch", "return", "yield"}
    apart |= {tt.DescriptorSize.NAME, tt.DescriptorStride.NAME}
    assert {name for name, cls in OPS.items() if cls in EMITTERS} - {op.NAME for op in text} == apart


def test_blocks_and_branches():
    body = """%2 : i32 = arith.constant @0; %3 : i1 = arith.cmpi %1 %2 @slt; cf.cond_br %3 ^a(%1, %2) ^b;
        ^a(%4 : i32, %5 : i32): cf.assert %3 @"why"; cf.br ^b;
        ^b: tt.return;"""
    assert single(body).splitlines()[2:] == [
        "cf.cond_br %1, ^bb1(%arg1, %0 : i32, i32), ^bb2",
        "^bb1(%arg2: i32, %arg3: i32):",
        'tt.assert %1, "why" : i1',
        "cf.br ^bb2",
        "^bb2:",
        "tt.return",
    ]
