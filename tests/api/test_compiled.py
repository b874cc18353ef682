"""Compiling: its options, the stages that are kept, and the binary for the runtime."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.cuda.binary import PtxParameter
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.gpu.fragments import box_and_swizzle
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.types import DescriptorType, PtrType, TensorType, f16, f32, i1, i32, i64
from ziggurat.compiler import compiling
from ziggurat.compiler.compiled import Compiled, parameter_of
from ziggurat.compiler.pipeline import compile


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


def test_the_collector_pauses_and_the_first_objects_count_as_old(monkeypatch):
    assert gc.isenabled()
    generations: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations.append(info["generation"])

    monkeypatch.setattr(compiling, "_aged", 0)
    gc.unfreeze()  # The objects of the tests themselves (`pytest_collection`).
    gc.callbacks.append(note)
    try:
        with compiling:
            objects = [[] for _ in range(10_000)]
            assert not gc.isenabled() and not generations
        assert gc.isenabled() and gc.get_count()[0] < 1000  # Not the ten thousand, which are old.
        assert compiling._aged >= len(objects)
    finally:
        gc.callbacks.remove(note)
        gc.collect()
        gc.freeze()


def test_the_python_model_is_a_stage_where_there_is_one():
    compiled = compile(MODEL, target="sm_80", num_warps=1, python=add_one.model)
    assert list(compiled.stages) == ["python", "triton", "gpu", "llvm", "ptx"]
    assert compiled.stages["python"] is add_one.model


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": "sm_70"}, r"target must be one of sm_80, .*; got 'sm_70'"),
        ({"target": ["sm_90a"]}, r"target must be one of .*; got \['sm_90a'\]"),
        ({"num_warps": 3}, "num_warps must be an integer, a power of two from 1 to 32; got 3"),
        ({"num_warps": 64}, "num_warps"),
        ({"num_warps": 4.0}, "num_warps must be an integer, a power of two from 1 to 32; got 4.0"),
        ({"num_stages": -1}, "num_stages must be an integer from 0 to 65536; got -1"),
        ({"num_stages": 1.5}, "num_stages"),
        ({"exact_math": "no"}, "exact_math must be True or False; got 'no'"),
    ],
)
def test_options_that_do_not_fit(options, words):
    with pytest.raises(zg.LaunchError, match=words):
        compile(MODEL, **options)
    with pytest.raises(zg.LaunchError, match=words):
        add_one.compile(zg.ptr(zg.f32), zg.i32, 64, **options)


def test_the_targets():
    assert "sm_90a" in TARGETS and all(target.startswith("sm_") for target in TARGETS)


def test_what_the_runtime_is_given(compiled):
    binary = compiled.binary
    assert (binary.symbol, binary.code, binary.name) == (compiled.symbol, compiled.ptx, compiled.title)
    assert (binary.num_warps, binary.shared, binary.target) == (2, compiled.shared, "sm_80")
    assert compiled.parts == () and binary.parameters == (PtxParameter("ptr"), PtxParameter("i32"))


def test_kinds_of_parameters():
    assert [parameter_of(type_).kind for type_ in (PtrType(f32), i32, i64, f32, i1)] == [
        "ptr",
        "i32",
        "i64",
        "f32",
        "i1",
    ]
    with pytest.raises(AssertionError, match="no parameter of type tensor"):
        parameter_of(TensorType((4,), i32))


def test_a_fault_within_is_reported_with_the_model(monkeypatch):
    def fails(*_, **__):
        raise KeyError("lost")

    monkeypatch.setattr("ziggurat.transforms.gpu.gpu_passes.place", fails)
    with pytest.raises(zg.InternalError, match="compiling 'the model' failed with KeyError") as error:
        compile(MODEL)
    assert "tt.make_range" in str(error.value)


# A kernel that loads through the map of its first argument, and stores by the parts of its second.
LOWERED = """tt.func @"k" @parts=["0.map", "1.base", "1.shape0", "1.shape1", "1.stride0", "2"] (
    %m : descriptor<x64, x256, f16>, %p : ptr<f32>, %h : i32, %w : i32, %s : i64, %n : f32)void -> { tt.return; };"""


def compiled_from(text: str) -> Compiled:
    """A compiled kernel whose GPU model has this function."""
    (function,) = [op for op in zg.parse(text).walk() if isinstance(op, tt.Func)]
    types = tuple(parameter.type for parameter in function.body.parameters)
    stages = {"ptx": "// of k"}
    return Compiled("k", "sm_90a", stages, num_warps=4, shared=1024, parameters=types, parts=function.parts)


def test_parameters_that_are_parts_of_arguments():
    binary = compiled_from(LOWERED).binary
    assert binary.parameters == (
        PtxParameter("tensormap", (64, 64), 128, "map", 0),
        PtxParameter("ptr", part="base", argument=1),
        PtxParameter("i32", part="shape0", argument=1),
        PtxParameter("i32", part="shape1", argument=1),
        PtxParameter("i64", part="stride0", argument=1),
        PtxParameter("f32", argument=2),
    )
    assert (binary.code, binary.shared, binary.title) == ("// of k", 1024, "k")


def test_parameters_that_are_the_arguments():
    text = 'tt.func @"k" (%m : descriptor<x16, x8, f32, nan>, %p : ptr<f32>, %n : i64)void -> { tt.return; };'
    assert compiled_from(text).binary.parameters == (
        PtxParameter("tensormap", (16, 8), 32, "map"),
        PtxParameter("ptr"),
        PtxParameter("i64"),
    )


@pytest.mark.parametrize("block", [(8,), (256, 64), (2, 512, 32)])
def test_a_map_is_encoded_as_its_block_lies(block):
    """The compiler lays out the buffer by the same function."""
    box, swizzle = box_and_swizzle(DescriptorType(block, f16))
    assert parameter_of(DescriptorType(block, f16), "3.map") == PtxParameter("tensormap", box, swizzle, "map", 3)


# Models that can be compiled.


@pytest.mark.parametrize(
    ("model", "words", "hint"),
    [
        (add_one, "zg.compile: the model must be an Op; got <kernel add_one", "kernel.triton(types…)"),
        (str(MODEL), "the model must be an Op; got a string", "zg.parse(text)"),
        (add_one.model, "this is a Python model, which has no types yet", "kernel.triton(types…)"),
        (add_one.module, "this is a Python model", "kernel.compile(types…)"),
        (zg.parse("module ()void -> { unreachable; };"), "a CPU model, with a tt.func; got module", None),
        (3, "the model must be an Op; got 3", None),
    ],
)
def test_what_is_no_model_to_compile_is_said(model, words, hint):
    with pytest.raises(zg.KernelTypeError) as error:
        zg.compile(model)
    assert words in error.value.summary
    assert error.value.hint is None if hint is None else hint in (error.value.hint or "")


def test_a_broken_model_is_no_fault_of_the_compiler():
    with pytest.raises(zg.VerifyError, match="the result is of type"):
        zg.compile(zg.parse(str(MODEL).replace("arith.cmpi", "arith.addi").replace(" @slt", "")))


def test_a_lone_function_is_compiled():
    (function,) = MODEL.functions().values()
    assert compile(function, target="sm_80", num_warps=2).ptx == compile(MODEL, target="sm_80", num_warps=2).ptx


def test_a_gpu_model_is_compiled_from_there_on(compiled):
    gpu_model = compiled.stages["gpu"]
    again = compile(gpu_model)
    assert list(again.stages) == ["gpu", "llvm", "ptx"] and again.stages["gpu"] is gpu_model
    assert (again.ptx, again.target, again.num_warps) == (compiled.ptx, "sm_80", 2)
    assert again.arguments == compiled.arguments
    changed = zg.transform(gpu_model, subtracted)
    assert "sub.rn.f32" in compile(changed).ptx or "0fBF800000" in compile(changed).ptx
    for options, words in (
        ({"target": "sm_90a"}, "made for target='sm_80', and cannot be compiled for target='sm_90a'"),
        ({"num_warps": 4}, "made for num_warps=2"),
        ({"num_stages": 2}, "num_stages is decided"),
    ):
        with pytest.raises(zg.LaunchError, match=words):
            compile(gpu_model, **options)
    assert compile(gpu_model, target="sm_80", num_warps=2).ptx == compiled.ptx


@zg.kernel
def blocks_product(a_ptr, b_ptr, c_ptr, n, B: zg.constexpr):
    i = zg.arange(0, B)
    at = zg.add(zg.mul(zg.expand(i, 1), n), zg.expand(i, 0))
    total = zg.zeros((B, B), zg.f32)
    for k in range(0, n, B):
        total = zg.dot(zg.load(zg.add(a_ptr, zg.add(at, k))), zg.load(zg.add(b_ptr, zg.add(at, k * n))), total)
    zg.store(zg.add(c_ptr, at), total)


@pytest.fixture(scope="module")
def whole() -> Compiled:
    f16, f32 = zg.divisible(zg.ptr(zg.f16)), zg.divisible(zg.ptr(zg.f32))
    return blocks_product.compile(f16, f16, f32, zg.divisible(zg.i32), 64, target="sm_90a")


def test_a_model_after_a_pass_is_compiled_further(whole):
    names = dict.fromkeys(snapshot.phase for snapshot in whole.passes)
    assert list(names) == ["tiles", "layouts", "products", "schedule", "descriptors", "channels", "memory", None]
    for snapshot in whole.passes:
        options = {} if snapshot.model.NAME == "gpu.module" else {"target": "sm_90a"}
        assert compile(snapshot.model, phase=snapshot.phase, **options).ptx == whole.ptx


@pytest.mark.parametrize(
    ("last", "phase", "message"),
    [
        ("copies", None, "it has the op 'gpu.stage', which the phase 'schedule' removes"),
        ("rescale", None, "it has the op 'tt.make_tensor_descriptor', which the phase 'descriptors' removes"),
        ("hold_operands", None, "it has the op 'gpu.channel', which the phase 'channels' removes"),
        ("hold_operands", "memory", "it has the op 'gpu.channel', which the phase 'channels' removes"),
        ("lower", None, "it has the op 'gpu.local_alloc', which the phase 'memory' removes"),
        ("descriptors", "products", "it has the op 'module', which the phase 'layouts' removes"),
        ("lower", "last", "no phase is named 'last'\n  hint: phases: tiles, layouts, products, schedule"),
    ],
)
def test_a_model_that_lacks_a_phase_is_refused(whole, last, phase, message):
    model = next(snapshot.model for snapshot in whole.passes if snapshot.name == last)
    with pytest.raises(zg.LaunchError, match=re.escape(message)):
        compile(model, phase=phase, **({} if model.NAME == "gpu.module" else {"target": "sm_90a"}))


def test_code_for_a_cpu_has_no_phases(whole):
    with pytest.raises(zg.LaunchError, match=r"the target 'cpu' has no phases; got phase='tiles'"):
        compile(whole.passes[0].model, phase="tiles", target="cpu")


def subtracted(builder, op, operands):
    if isinstance(op, zg.dialects.arith.AddF):
        return builder.add(zg.dialects.arith.SubF(*operands))
    return None


def test_arguments_are_those_that_are_left():
    compiled = add_one.compile(zg.divisible(zg.ptr(zg.f32), 16), 1000, BLOCK=64)
    assert [str(argument) for argument in compiled.arguments] == ["x_ptr: ptr<f32>"]
    assert compiled.arguments[0].divisibility == 16 and compiled.name == "add_one"
    assert [str(argument) for argument in compile(MODEL).arguments] == ["ptr<f32>", "i32"]


# Parameters that are named as options.


@zg.kernel
def sees_warps(x_ptr, num_warps: zg.constexpr, num_stages: zg.constexpr = 2):
    zg.store(x_ptr, zg.cast(10 * num_warps + num_stages, zg.f32))


@pytest.mark.parametrize(
    ("arguments", "keywords", "warps", "expected"),
    [
        ((), {"num_warps": 8}, 8, 82),
        ((8, 5), {}, 8, 85),
        ((), {}, 4, 42),
        ((), {"num_warps": np.int64(16), "num_stages": 1}, 16, 161),
    ],
)
def test_a_constexpr_parameter_named_as_an_option_is_that_option(arguments, keywords, warps, expected):
    compiled = sees_warps.compile(zg.ptr(zg.f32), *arguments, **keywords)
    assert compiled.num_warps == warps
    assert f"@{expected}" in str(zg.simplify(compiled.stages["triton"]))
    out = np.zeros(1, np.float32)
    sees_warps[(1,)](out, *arguments, **keywords)
    assert out[0] == expected


def test_it_takes_what_the_option_takes():
    with pytest.raises(zg.LaunchError, match="num_warps must be an integer, a power of two"):
        sees_warps.compile(zg.ptr(zg.f32), num_warps=3)
    with pytest.raises(zg.LaunchError, match="num_warps must be an integer, a power of two"):
        sees_warps[(1,)](np.zeros(1, np.float32), num_warps=3)


def test_a_run_time_parameter_named_as_an_option_is_not_the_option():
    @zg.kernel
    def other(self, target, num_warps, exact_math):
        zg.store(self, zg.add(zg.add(num_warps, target), exact_math))

    compiled = other.compile(self=zg.ptr(zg.i32), target=zg.i32, num_warps=zg.i32, exact_math=5)
    assert [a.name for a in compiled.arguments] == ["self", "target", "num_warps"]
    assert (compiled.num_warps, compiled.target) == (4, "sm_90a")


def test_a_keyword_that_is_neither_parameter_nor_option():
    for name, hint in (("num_warp", "did you mean num_warps?"), ("num_cta", "did you mean num_ctas?")):
        with pytest.raises(zg.LaunchError, match=f"no parameter '{name}', nor is there such an option") as error:
            add_one.compile(zg.ptr(zg.f32), zg.i32, 64, **{name: 2})
        assert error.value.hint == hint


# Registers.


@zg.kernel
def product(a, b, c, M: zg.constexpr, N: zg.constexpr):
    m, n, k = zg.arange(0, M), zg.arange(0, N), zg.arange(0, 16)
    left = zg.add(a, zg.add(zg.expand(zg.mul(m, 16), 1), zg.expand(k, 0)))
    right = zg.add(b, zg.add(zg.expand(zg.mul(k, N), 1), zg.expand(n, 0)))
    total = zg.zeros((M, N), zg.f32)
    for _ in range(0, 64):
        total = zg.dot(zg.load(left), zg.load(right), total)
    zg.store(zg.add(c, zg.add(zg.expand(zg.mul(m, N), 1), zg.expand(n, 0))), total)


PRODUCT = (zg.ptr(zg.f16), zg.ptr(zg.f16), zg.ptr(zg.f32))


def test_a_sum_that_does_not_fit_the_registers_is_warned_of():
    with pytest.warns(
        zg.ZigguratWarning, match="carries 512 registers in each of 32 threads, which have 255"
    ) as record:
        product.compile(*PRODUCT, 128, 128, num_warps=1)
    assert len(record) == 1 and "more warps" in str(record[0].message)
    assert (
        record[0].filename == __file__
        and "for _ in range" in Path(__file__).read_text().splitlines()[record[0].lineno - 1]
    )


def test_one_that_no_compiler_can_help_is_refused_at_once():
    with pytest.raises(zg.ResourceError, match="a value of 1024×1024 f32 takes 4096") as error:
        product.compile(*(zg.divisible(pointer, 16) for pointer in PRODUCT), 1024, 1024)
    assert "for _ in range(0, 64)" in str(error.value)


def test_what_fits_is_not_warned_of(recwarn):
    product.compile(*PRODUCT, 64, 64)
    assert not [warning for warning in recwarn if issubclass(warning.category, zg.ZigguratWarning)]


# Passes and notebooks.


def test_passes_are_the_models_after_each_pass():
    compiled = add_one.compile(zg.ptr(zg.f32), zg.i32, 64)
    names = [snapshot.name for snapshot in compiled.passes]
    assert names[0] == "prepare" and names[-1] == "barriers"
    assert zg.same_model(compiled.passes[-1].model, compiled.stages["gpu"])
    assert zg.compile(compiled.stages["gpu"]).passes == ()


def test_how_a_notebook_shows_it():
    compiled = add_one.compile(zg.ptr(zg.f32), zg.i32, 64, num_warps=2)
    assert repr(compiled).startswith("<add_one(x_ptr: ptr<f32>, n: i32) compiled for sm_90a: 2 warps")
    page = compiled._repr_html_()
    assert all(f"<b>{stage}</b>" in page for stage in ("python", "triton", "gpu", "llvm", "ptx"))
    assert "zg.store" in add_one._repr_html_() and "Python model" in add_one._repr_html_()


KERNEL_WITHOUT_NUMPY = """
import sys
import ziggurat as zg

@zg.kernel
def attend(q_ptr, o_ptr, n, scale, BLOCK: zg.constexpr):
    at = zg.add(zg.mul(zg.program_id(0), BLOCK), zg.arange(0, BLOCK))
    inside = zg.less(at, zg.mul(n, 2 + 3 * zg.cdiv(BLOCK, 7)))
    best = zg.full((BLOCK,), float("-inf"), zg.f32)
    for k in range(0, n, 1 << 5):
        row = zg.mul(zg.load(zg.add(q_ptr, zg.add(at, k)), inside, other=-float("inf")), zg.mul(scale, 1.44269504))
        best = zg.maximum(best, zg.cast(row, zg.f32))
    zg.store(zg.add(o_ptr, at), zg.cast(zg.exp2(zg.sub(best, zg.max(best))), zg.bf16), inside)

compiled = attend.compile(zg.ptr(zg.f16), zg.ptr(zg.bf16), zg.i32, zg.f32, BLOCK=256)
print(len(compiled.ptx) > 1000, "numpy" in sys.modules)
"""


def test_compiling_does_not_import_numpy(tmp_path):
    # Importing NumPy takes longer than compiling a small kernel.
    file = tmp_path / "program.py"
    file.write_text(KERNEL_WITHOUT_NUMPY)
    output = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=True)
    assert output.stdout.split() == ["True", "False"]


def test_when_the_collector_takes_objects_for_old(monkeypatch):
    """Only the first ones, some 20 kernels' worth, and none where the program has frozen objects itself."""
    calls: list[str] = []
    for name in ("freeze", "unfreeze", "enable", "disable"):
        monkeypatch.setattr(gc, name, lambda name=name: calls.append(name))
    count = {"aged": 1000, "frozen": 0}
    monkeypatch.setattr(gc, "get_count", lambda: (count["aged"], 5, 7))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: count["frozen"])
    monkeypatch.setattr(gc, "isenabled", lambda: not calls or calls[-1] != "disable")
    monkeypatch.setattr(compiling, "_aged", 0)

    def compiles() -> list[str]:
        calls.clear()
        with compiling, compiling:
            assert calls == ["disable"]
        return calls[1:]

    assert compiles() == ["freeze", "unfreeze", "enable"] and compiling._aged == 1000
    count["aged"] = (1 << 18) - 1001
    assert compiles() == ["freeze", "unfreeze", "enable"] and compiling._aged == (1 << 18) - 1
    assert compiles() == ["freeze", "unfreeze", "enable"]
    monkeypatch.setattr(compiling, "_aged", 1 << 18)
    assert compiles() == ["enable"] and compiling._aged == 1 << 18
    monkeypatch.setattr(compiling, "_aged", 1000)
    count["frozen"] = 1
    assert compiles() == ["enable"]
    monkeypatch.setattr(gc, "get_freeze_count", lambda: pytest.fail("takes as long as there are frozen objects"))
    assert compiles() == ["enable"]
    calls.clear()
    calls.append("disable")  # The program itself has paused it.
    with compiling:
        pass
    assert calls == ["disable", "disable"]
