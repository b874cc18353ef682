"""LLVM text as the simulation reads it: what LLVM's passes write beside what our emitters do."""

from __future__ import annotations

import numpy as np
import pytest

from ziggurat.backend.simulator.text import (
    arranged,
    called,
    dtype_of,
    elements_of,
    incoming,
    instruction,
    module_of,
    odd_width,
    size_of,
    split,
    targets,
    typed,
)
from ziggurat.codemodel.errors import TargetError


@pytest.mark.parametrize("text, kind, value", [
    ("i32 %x", "i32", "%x"), ("i32 -4", "i32", "-4"), ("<2 x half> %x", "<2 x half>", "%x"),
    ("ptr addrspace(3) @smem", "ptr addrspace(3)", "@smem"),
    ("ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @smem, i64 512)", "ptr addrspace(3)",
     "getelementptr (i8, ptr addrspace(3) @smem, i64 512)"),
    ("{ i32, float } poison", "{ i32, float }", "poison"), ("<2 x i32> splat (i32 7)", "<2 x i32>", "splat (i32 7)"),
    ("<2 x i32> <i32 1, i32 2>", "<2 x i32>", "<i32 1, i32 2>"), ("i32 noundef range(i32 0, 4) %x", "i32", "%x"),
    ("noundef range(i32 0, 32) i32", "i32", ""), ("ptr addrspace(1) nonnull readnone align 16 captures(none) %p", "ptr"
     " addrspace(1)", "%p"),
    ('ptr byval([128 x i8]) align 64 "nvvm.grid_constant" %p2', "ptr", "%p2"),
])  # fmt: skip
def test_operands_are_types_and_values(text: str, kind: str, value: str) -> None:
    assert typed(text) == (kind, value)


def test_parts_between_commas() -> None:
    assert split('i32 1, asm "a, b", { i32, i32 } %x, <2 x i8> <i8 1, i8 2>') == [
        "i32 1", 'asm "a, b"', "{ i32, i32 } %x", "<2 x i8> <i8 1, i8 2>",
    ]  # fmt: skip


def test_types_and_their_elements() -> None:
    assert elements_of("<2 x half>") == ("half", "half") and elements_of("{ i32, { i8, i8 } }") == ("i32", "{ i8, i8 }")
    assert elements_of("i32") is None and elements_of("ptr addrspace(3)") is None
    kinds = ("i1", "i64", "[3 x i16]", "<4 x float>", "ptr", "[2 x [3 x i8]]", "[0 x i8]")
    assert [size_of(kind) for kind in kinds] == [1, 8, 6, 16, 8, 6, 0]
    assert (odd_width("i4"), odd_width("i33"), odd_width("i32"), odd_width("i128"), odd_width("float")) == (
        4,
        33,
        0,
        0,
        0,
    )
    assert (dtype_of("i4"), dtype_of("i33"), dtype_of("ptr addrspace(1)")) == (np.uint8, np.uint64, np.int64)
    for kind in ("fp128", "x86_amx"):
        with pytest.raises(TargetError, match=kind):
            dtype_of(kind)
    with pytest.raises(TargetError):
        size_of("{ i8, i32 }")


def test_instructions_without_what_is_said_of_them() -> None:
    assert instruction("%a = add nuw nsw i32 %b, 1") == ("%a", "add", "i32 %b, 1", {"nuw", "nsw"})
    assert instruction("%a = icmp samesign ult i32 %b, 1")[:3] == ("%a", "icmp", "ult i32 %b, 1")
    assert instruction("store i8 0, ptr %i7, align 1") == ("", "store", "i8 0, ptr %i7, align 1", set())
    assert instruction("%i3 = sdiv i32 %i33, %i5")[1] == "sdiv"
    assert instruction("%a = zext i4 %b to i32")[:3] == ("%a", "zext", "i4 %b to i32")
    for line in ("%a = sdiv i4 %b, %c", "%a = icmp slt i33 %b, 0", "%a = load i24, ptr %p, align 4"):
        with pytest.raises(TargetError):
            instruction(line)


def test_calls_without_their_bundles() -> None:
    assert called("range(i32 0, 4) i32 @llvm.umin.i32(i32 %a, i32 xor (i32 1, i32 2)) #3") == (
        "llvm.umin.i32", ("i32 %a", "i32 xor (i32 1, i32 2)"),
    )  # fmt: skip
    assert called('fastcc float @"zg_$_fmod_$_f32"(float %a)') == ("zg_$_fmod_$_f32", ("float %a",))
    assert called('void @llvm.assume(i1 true) [ "align"(ptr %p, i64 16) ]') == ("llvm.assume", ("i1 true",))


def test_incoming_values_of_a_phi() -> None:
    line = "%p = phi ptr addrspace(3) [ @smem, %entry ], [ getelementptr (i8, ptr addrspace(3) @smem, i64 4), %12 ]"
    assert incoming(line) == (
        "%p", "ptr addrspace(3)", {"entry": "@smem", "12": "getelementptr (i8, ptr addrspace(3) @smem, i64 4)"},
    )  # fmt: skip
    assert incoming("%x = phi nnan float [ 1.0, %a ]") == ("%x", "float", {"a": "1.0"})


def test_targets() -> None:
    assert targets("br i1 %c, label %a.b, label %12") == ["a.b", "12"] and targets("ret void") == []


OPTIMIZED = """; ModuleID = '<string>'
@smem = external addrspace(3) global [0 x i8], align 1024

; Function Attrs: convergent nounwind
define ptx_kernel void @k(ptr addrspace(1) align 16 captures(none) %p0, i32 %p1) local_unnamed_addr #0 !dbg !3 {
entry:
  %0 = tail call noundef i32 @llvm.f(i32 %p1), !dbg !4
  switch i32 %0, label %3 [
    i32 0, label %1
    i32 7, label %after
  ], !prof !9

1:                                                ; preds = %entry
    #dbg_value(i32 0, !6, !DIExpression(), !7)
  store i32 1, ptr addrspace(1) %p0, align 4, !tbaa !8
  br label %after, !llvm.loop !5

after:                                            ; preds = %1, %entry
  ret void

3:
  unreachable
}

; Function Attrs: nounwind
declare i32 @llvm.f(i32) #1

attributes #0 = { convergent nounwind "nvvm.reqntid"="64" "nvvm.maxnreg"="128" }
"""


def test_the_kernel_of_a_text() -> None:
    module = module_of(OPTIMIZED)
    model = module.kernel
    assert model.parameters == (("ptr addrspace(1)", "%p0"), ("i32", "%p1"))
    assert module.numbers == {"nvvm.reqntid": 64, "nvvm.maxnreg": 128}
    assert model.blocks == {
        "entry": [
            "%0 = call noundef i32 @llvm.f(i32 %p1)",
            "switch i32 %0, label %3 [ i32 0, label %1 i32 7, label %after ]",
        ],
        "1": ["store i32 1, ptr addrspace(1) %p0, align 4", "br label %after"],
        "after": ["ret void"],
        "3": ["unreachable"],
    }
    assert model.places["entry"] == [4, None] and model.places["1"] == [None, None]
    assert module.variables == {"smem": (3, "[0 x i8]", "")}


def test_blocks_come_after_their_predecessors() -> None:
    """Whatever the order in the text; and a loop's blocks stand together, before what comes after it."""
    edges = {
        "entry": ["head"], "end": [], "inner": ["inner", "latch"], "after": ["end"], "latch": ["head"],
        "head": ["after", "then", "inner"], "then": ["latch"], "lost": ["end"],
    }  # fmt: skip
    order = arranged(list(edges), edges)
    assert order[:2] == ["entry", "head"] and order[-2:] == ["after", "end"] and "lost" not in order
    assert set(order[2:5]) == {"then", "inner", "latch"} and order[4] == "latch"


def test_a_loop_in_a_loop_that_leaves_both() -> None:
    edges = {"a": ["b"], "b": ["c"], "c": ["d", "x"], "d": ["c", "e"], "e": ["b", "x"], "x": []}
    assert arranged(list(edges), edges) == ["a", "b", "c", "d", "e", "x"]
