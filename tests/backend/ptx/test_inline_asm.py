"""Inline assembly: the elements of a thread are packed, passed to the author's PTX, and unpacked."""

from __future__ import annotations

import re

import pytest

from ziggurat.codemodel.errors import InternalError

LAYOUT = '"1 2 | 4 8 16 32 64 | 128 256"'


def tensor(element: str, shape: str = "x512") -> str:
    return f"tensor<{shape}, {element}, {LAYOUT}>"


RANGE = f"%0 : {tensor('i32')} = tt.make_range @start=0 @end=512;"


def test_inline_assembly_packs_small_elements(ptxas, emitted) -> None:
    _, ptx = emitted(f"""{RANGE} %1 : {tensor("f16")} = arith.sitofp %0;
        %2 : {tensor("f16")} = tt.elementwise_inline_asm %1 @asm="neg.f16x2 $0, $1;" @constraints="=r,r" @pack=2;
        %3 : {tensor("f32")} = arith.extf %2; %4 : {tensor("ptr<f32>")} = tt.splat %p;
        %5 : {tensor("ptr<f32>")} = tt.addptr %4 %0; tt.store %5 %3;""")
    assert ptx.count("neg.f16x2") == 2  # Four registers of f16 in each thread.
    ptxas(ptx, "sm_90a")


def test_inline_assembly_gives_several_results_of_unlike_types(ptxas, emitted) -> None:
    result = f"Tuple<{tensor('u8')}, {tensor('f32')}>"
    text = "mov.b32 $0, $5; mov.f32 $1, $6; mov.f32 $2, $7; mov.f32 $3, $8; mov.f32 $4, $9;"
    _, ptx = emitted(f"""{RANGE} %1 : {tensor("u8")} = arith.trunci %0; %2 : {tensor("f32")} = arith.sitofp %0;
        %3 : {result} = tt.elementwise_inline_asm %1 %2 @asm="{text}" @constraints="=r,=f,=f,=f,=f,r,f,f,f,f" @pack=4;
        %4 : {tensor("u8")} = tuple.load %3 @0; %5 : {tensor("f32")} = tuple.load %3 @1;
        %6 : {tensor("f32")} = arith.uitofp %4; %7 : {tensor("f32")} = arith.addf %5 %6;
        %8 : {tensor("ptr<f32>")} = tt.splat %p; %9 : {tensor("ptr<f32>")} = tt.addptr %8 %0; tt.store %9 %7;""")
    assert ptx.count("mov.b32 %r") >= 1
    ptxas(ptx, "sm_90a")


def test_too_few_constraints_are_an_error(emitted) -> None:
    with pytest.raises(InternalError, match="constraints"):
        emitted('%0 : i32 = tt.elementwise_inline_asm %n %n @asm="add.s32 $0, $1, $2;" @constraints="=r,r";')


def test_effects_are_kept_in_place(emitted) -> None:
    llvm, _ = emitted(
        '%0 : i32 = tt.elementwise_inline_asm %n @asm="mov.b32 $0, $1;" @constraints="=r,r" @is_pure=false;'
    )
    assert "asm sideeffect" in llvm


def test_assembly_without_operands_is_a_scalar(ptxas, emitted) -> None:
    llvm, ptx = emitted("""%0 : i32 = tt.elementwise_inline_asm @asm="mov.u32 $0, %smid;" @constraints="=r";
        %1 : i64 = tt.elementwise_inline_asm @asm="mov.u64 $0, %clock64;" @constraints="=l" @is_pure=false;
        %2 : i64 = tt.elementwise_inline_asm @asm="mov.u64 $0, %clock64;" @constraints="=l" @is_pure=false;
        %3 : i64 = arith.subi %2 %1; %4 : f32 = arith.sitofp %3; %5 : f32 = arith.sitofp %0;
        %6 : f32 = arith.addf %4 %5; tt.store %p %6;""")
    assert ptx.count("%clock64") == 2 and ptx.count("%smid") == 1
    ptxas(ptx, "sm_90a")


def test_a_constant_stands_in_the_text(ptxas, emitted) -> None:
    _, ptx = emitted("""%0 : i32 = arith.constant @77;
        %1 : i32 = tt.elementwise_inline_asm %n %0 @asm="add.s32 $0, $1, $2;" @constraints="=r,r,n";
        %2 : f32 = arith.sitofp %1; tt.store %p %2;""")
    assert re.search(r"add\.s32 %r\d+, %r\d+, 77;", ptx)
    ptxas(ptx, "sm_90a")


def test_more_constraints_than_registers_are_an_error(emitted) -> None:
    for constraints in ("=r,r,r", "=r,=r,r"):
        with pytest.raises(InternalError, match="constraints"):
            emitted(f'%0 : i32 = tt.elementwise_inline_asm %n @asm="mov.b32 $0, $1;" @constraints="{constraints}";')


def test_the_timer_is_read_in_its_place_and_the_multiprocessor_once(ptxas, emitted) -> None:
    llvm, ptx = (
        emitted("""%0 : i64 = tt.globaltimer; %1 : f32 = tt.load %p; %2 : i64 = tt.globaltimer; %3 : i32 = tt.smid;
        %4 : i64 = arith.subi %2 %0; %5 : f32 = arith.sitofp %4; %6 : f32 = arith.addf %1 %5; %7 : i32 = tt.smid;
        %8 : i32 = arith.addi %3 %7; %9 : f32 = arith.sitofp %8; %10 : f32 = arith.addf %6 %9; tt.store %p %10;""")
    )
    assert llvm.count("@llvm.nvvm.read.ptx.sreg.smid()") == 2  # Its declaration, and one call.
    first, load = ptx.index("%globaltimer"), ptx.index("ld.global")
    second = ptx.index("%globaltimer", first + 1)
    assert first < load < second
    ptxas(ptx, "sm_90a")


def test_quotes_and_backslashes_arrive_as_they_are(ptxas, emitted) -> None:
    text = r"mov.b32 $0, $1; .pragma \"nounroll\"; // \\41"
    _, ptx = emitted(f"""%0 : i32 = tt.elementwise_inline_asm %n @asm="{text}" @constraints="=r,r";
        %1 : f32 = arith.sitofp %0; tt.store %p %1;""")
    assert '.pragma "nounroll"; // \\41' in ptx
    ptxas(ptx, "sm_90a")
