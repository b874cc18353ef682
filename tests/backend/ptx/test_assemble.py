"""The texts of a kernel as a whole: its signature, its attributes, the modules that fill the table, LLVM's target."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

import pytest

import ziggurat.backend.ptx as package
from ziggurat.backend.ptx.assemble import PARTS, Assembly, optimized, to_llvm, to_ptx
from ziggurat.backend.ptx.assemble import assemble as texts_of
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.text.parser import parse


def kernel(
    parameters: str = "%p : ptr<f32>, %x : f32", body: str = "tt.store %p %x;", name: str = "k", more: str = "",
    target: str = "sm_90a", num_warps: int = 4,
) -> gpu.Module:  # fmt: skip
    module = parse(f"""gpu.module @target="{target}" @num_warps={num_warps} ()void -> {{
        tt.func @"{name}" {more} ({parameters})void -> {{ {body} tt.return; }}; unreachable; }};""")
    assert isinstance(module, gpu.Module)
    return module


def test_all_modules_with_emitters_are_parts() -> None:
    """A module that is not listed would register its emitters only when something else imports it."""
    parts = {part.__name__ for part in PARTS}
    names = [info.name for info in pkgutil.iter_modules(package.__path__)]
    results = {name for name in names if "@emits(" in _source(name)}
    assert {name.rsplit(".", 1)[1] for name in parts} == results and len(results) > 10


def _source(name: str) -> str:
    module = importlib.import_module(f"{package.__name__}.{name}")
    assert module.__file__ is not None
    with open(module.__file__, encoding="utf-8") as file:
        return file.read()


def test_the_signature_says_what_pointers_are_divisible_by() -> None:
    parameters = "%a : ptr<f32>, %b : ptr<i8>, %c : i64, %d : f16, %e : i1, %f : u8"
    llvm = to_llvm(kernel(parameters, "", more="@divisibility=[16, 1, 16, 1, 1, 1]"))
    arguments = "ptr addrspace(1) align 16 %p0, ptr addrspace(1) %p1, i64 %p2, half %p3, i1 %p4, i8 %p5"
    assert f"define ptx_kernel void @k({arguments}) #0" in llvm
    assert "align 16 %p" not in to_llvm(kernel(parameters, ""))


@pytest.mark.parametrize(("num_warps", "threads"), [(1, 32), (4, 128), (8, 256)])
def test_the_number_of_threads_is_required(num_warps: int, threads: int) -> None:
    assembly = texts_of(kernel(num_warps=num_warps))
    assert f'"nvvm.reqntid"="{threads}" }}' in assembly.llvm and "maxnreg" not in assembly.llvm
    assert f".reqntid {threads}" in assembly.ptx


def test_a_name_is_made_one_of_ptx() -> None:
    assembly = texts_of(kernel(name="größe.of-all[3]"))
    assert assembly.symbol == "gr__e_of_all_3_"
    assert f".visible .entry {assembly.symbol}(" in assembly.ptx
    assert isinstance(assembly, Assembly) and assembly.ptx == to_ptx(assembly.llvm, "sm_90a")


@pytest.mark.parametrize("target", TARGETS)
def test_each_target_has_its_version_of_ptx(target: str) -> None:
    ptx = texts_of(kernel(target=target)).ptx
    assert f".version {TARGETS[target].ptx}\n" in ptx and f".target {target}" in ptx


def test_options_reach_the_emission() -> None:
    module = kernel(body="%0 : f32 = arith.divf %x %x; tt.store %p %0;")
    fast, exact = texts_of(module), texts_of(module, CompileOptions(exact_math=True))
    assert "div.full.f32" in fast.ptx and "div.rn.f32" in exact.ptx and "div.full.f32" not in exact.ptx
    assert "!dbg" in fast.llvm and "!dbg" not in to_llvm(module, CompileOptions(line_info=False))


def test_an_op_without_an_emitter_is_an_internal_error() -> None:
    index = 'tensor<x32, i32, "| 1 2 4 8 16 |">'
    body = f"%0 : {index} = tt.make_range @start=0 @end=32; %1 : {index} = tt.histogram %0 @bins=32;"
    with pytest.raises(InternalError, match=r"'tt\.histogram' has no PTX emitter"):
        to_llvm(kernel(body=body, num_warps=1))


def test_the_text_after_llvms_passes() -> None:
    """The passes of the target run as well: neighbours are loaded by one instruction."""
    loads = [f"%a{at} = getelementptr i8, ptr addrspace(1) %p, i64 {4 * at}\n" for at in range(4)]
    loads += [f"%v{at} = load i32, ptr addrspace(1) %a{at}, align {16 - 12 * (at > 0)}\n" for at in range(4)]
    sums = "%x = add i32 %v0, %v1\n%y = add i32 %v2, %v3\n%z = add i32 %x, %y\n"
    body = f"{''.join(loads)}{sums}store i32 %z, ptr addrspace(1) %q, align 4"
    text = f"""target triple = "nvptx64-nvidia-cuda"
        define ptx_kernel void @f(ptr addrspace(1) %p, ptr addrspace(1) %q) {{
        {body}
        ret void
        }}"""
    result = optimized(text, "sm_80")
    assert result.count("load <4 x i32>") == 1 and "load i32" not in result
    assert to_ptx(text, "sm_80").count("ld.global.v4") == 1


@pytest.mark.parametrize("text", ["define void @f() { ret i32 0 }", "no LLVM at all"])
@pytest.mark.parametrize("made", [to_ptx, optimized])
def test_text_that_llvm_rejects_is_shown(made: Callable[[str, str], str], text: str) -> None:
    with pytest.raises(InternalError, match="LLVM rejects the emitted text") as error:
        made(text, "sm_80")
    assert text in str(error.value)


def test_text_that_llvm_cannot_verify_is_rejected() -> None:
    text = """define i32 @f(i1 %c) {
          br i1 %c, label %a, label %b
        a:
          %x = add i32 1, 1
          br label %b
        b:
          ret i32 %x
        }"""
    with pytest.raises(InternalError, match=r"LLVM rejects the emitted text: .*dominate"):
        to_ptx(text, "sm_80")
