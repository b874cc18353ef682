"""Compiling: which options are taken, what is kept of each stage, and how the runtime gets it."""

from __future__ import annotations

import pytest

import ziggurat as zg
from ziggurat.backend.cuda.binary import Parameter
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.fragments import box_and_swizzle
from ziggurat.codemodel.types import DescriptorType, PtrType, TensorType, f16, f32, i1, i32, i64
from ziggurat.compiler import TARGETS, Compiled, binary_of, compile, kind_of, parameter_of


@zg.kernel
def add_one(x_ptr, n, BLOCK: zg.constexpr):
    at = zg.add(x_ptr, zg.arange(0, BLOCK))
    mask = zg.compare(zg.arange(0, BLOCK), n, zg.CompareKind.LESS_THAN)
    zg.store(at, zg.add(zg.load(at, mask), 1), mask)


MODEL = add_one.triton(zg.ptr(zg.f32), zg.i32, 64)


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile(MODEL, target="sm_80", num_warps=2)


def test_every_stage_is_kept_in_order(compiled):
    assert list(compiled.stages) == ["triton", "gpu", "llvm", "ptx"]
    assert compiled.stages["triton"] is MODEL
    zg.verify(compiled.stages["gpu"])
    assert f".entry {compiled.symbol}" in compiled.ptx and ".target sm_80" in compiled.ptx
    assert compiled.ptx == compiled.stages["ptx"]
    assert (compiled.target, compiled.num_warps) == ("sm_80", 2)
    assert compiled.shared == compiled.stages["gpu"].shared
    assert "stages" not in repr(compiled)


def test_the_python_model_is_a_stage_where_there_is_one():
    made = compile(MODEL, target="sm_80", num_warps=1, python=add_one.model)
    assert list(made.stages) == ["python", "triton", "gpu", "llvm", "ptx"]
    assert made.stages["python"] is add_one.model


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": "sm_70"}, r"the target is one of sm_80, .*; got 'sm_70'"),
        ({"target": None}, "the target is one of"),
        ({"num_warps": 3}, "num_warps is a power of two from 1 to 32, got 3"),
        ({"num_warps": 64}, "num_warps"),
        ({"num_stages": 0}, "num_stages is a positive integer, got 0"),
        ({"num_stages": 1.5}, "num_stages"),
    ],
)
def test_options_that_do_not_fit(options, words):
    with pytest.raises(zg.LaunchError, match=words):
        compile(MODEL, **options)


def test_the_targets():
    assert "sm_90a" in TARGETS and all(target.startswith("sm_") for target in TARGETS)


def test_what_the_runtime_is_given(compiled):
    binary = binary_of(compiled, "add_one")
    assert (binary.symbol, binary.code, binary.name) == (compiled.symbol, compiled.ptx, "add_one")
    assert (binary.num_warps, binary.shared, binary.target) == (2, compiled.shared, "sm_80")
    assert compiled.parts == () and binary.parameters == (Parameter("ptr"), Parameter("i32"))


def test_kinds_of_parameters():
    assert [kind_of(type_) for type_ in (PtrType(f32), i32, i64, f32, i1)] == ["ptr", "i32", "i64", "f32", "i1"]
    with pytest.raises(AssertionError, match="no parameter of type tensor"):
        kind_of(TensorType((4,), i32))


def test_a_fault_within_is_reported_with_the_model(monkeypatch):
    def fails(*_, **__):
        raise KeyError("lost")

    monkeypatch.setattr("ziggurat.transforms.place.pipeline.place", fails)
    with pytest.raises(zg.InternalError, match="compiling 'the model' failed with KeyError") as caught:
        compile(MODEL)
    assert "tt.make_range" in str(caught.value)


# A kernel that loads through the map of its first argument, and stores by the parts of its second.
LOWERED = """tt.func @"k" @parts=["0.map", "1.base", "1.shape0", "1.shape1", "1.stride0", "2"] (
    %m : descriptor<x64, x256, f16>, %p : ptr<f32>, %h : i32, %w : i32, %s : i64, %n : f32)void -> { tt.return; };"""


def compiled_from(text: str) -> Compiled:
    """As if this function had come out of the steps to the GPU."""
    (function,) = [op for op in zg.parse(text).walk() if isinstance(op, tt.Func)]
    types = tuple(parameter.type for parameter in function.body.parameters)
    return Compiled("k", "sm_90a", 4, 1024, types, {"ptx": "// of k"}, function.parts)


def test_parameters_that_are_parts_of_arguments():
    binary = binary_of(compiled_from(LOWERED), "kernel")
    assert binary.parameters == (
        Parameter("tensormap", (64, 64), 128, "map", 0),
        Parameter("ptr", part="base", argument=1),
        Parameter("i32", part="shape0", argument=1),
        Parameter("i32", part="shape1", argument=1),
        Parameter("i64", part="stride0", argument=1),
        Parameter("f32", argument=2),
    )
    assert (binary.code, binary.shared, binary.title) == ("// of k", 1024, "kernel")


def test_parameters_that_are_the_arguments():
    text = 'tt.func @"k" (%m : descriptor<x16, x8, f32, nan>, %p : ptr<f32>, %n : i64)void -> { tt.return; };'
    assert binary_of(compiled_from(text), "kernel").parameters == (
        Parameter("tensormap", (16, 8), 32, "map"),
        Parameter("ptr"),
        Parameter("i64"),
    )


@pytest.mark.parametrize("block", [(8,), (256, 64), (2, 512, 32)])
def test_a_map_is_encoded_as_its_block_lies(block):
    """The compiler lays out the buffer by the same function."""
    box, swizzle = box_and_swizzle(block, f16)
    assert parameter_of(DescriptorType(block, f16), "3.map") == Parameter("tensormap", box, swizzle, "map", 3)
