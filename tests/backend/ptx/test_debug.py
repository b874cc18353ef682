"""Prints and assertions as PTX."""

from __future__ import annotations

import re

import ziggurat as zg
from ziggurat.backend.ptx.assemble import assemble

LAYOUT = '"1 2 | 4 8 16 32 64 | 128 256"'


def tensor(element: str, shape: str = "x512") -> str:
    return f"tensor<{shape}, {element}, {LAYOUT}>"


RANGE = f"%0 : {tensor('i32')} = tt.make_range @start=0 @end=512;"


def test_prints_name_the_program_the_index_and_the_value(ptxas, emitted) -> None:
    llvm, ptx = emitted(f"""{RANGE} %1 : {tensor("i32", "x16, x32")} = tt.reshape %0;
        %2 : {tensor("f16", "x16, x32")} = arith.sitofp %1; tt.print %2 %n @"100%" @hex=false; tt.print @"here";""")
    assert 'c"pid (%u, %u, %u) idx (%2u, %2u) 100%%: (operand 0) %.5g\\0A\\00"' in llvm
    assert 'c"pid (%u, %u, %u) idx () 100%%: (operand 1) %d\\0A\\00"' in llvm
    assert 'c"pid (%u, %u, %u) here\\0A\\00"' in llvm
    assert ptx.count("vprintf, ") + len(re.findall(r"call\.uni[^;]*vprintf|vprintf,\s*\(", ptx)) >= 1
    assert llvm.count("@vprintf(ptr") == 4 + 1 + 1 + 1  # Each register, the scalar, the bare one; the declaration.
    ptxas(ptx, "sm_90a", stack=True)


def test_scalars_are_printed_by_one_thread(emitted) -> None:
    llvm, _ = emitted('tt.print %n @"n" @hex=true;')
    assert "0x%08x" in llvm and re.search(r"and i32 %v\d+, 127\n\s+%v\d+ = icmp eq i32 %v\d+, 0", llvm)


def test_a_whole_text_is_one_print(ptxas, emitted) -> None:
    llvm, ptx = emitted('tt.print %n %n @"{{n}} {}, 100% {}" @whole=true;')
    assert 'c"{n} %d, 100%% %d\\00"' in llvm and llvm.count("@vprintf(ptr") == 1 + 1
    ptxas(ptx, "sm_90a", stack=True)


def test_an_assertion_calls_cudas_handler_with_message_and_place(ptxas, emitted) -> None:
    llvm, ptx = emitted(f"""{RANGE} %1 : {tensor("i32")} = tt.splat %n; %2 : {tensor("i1")} = arith.cmpi %0 %1 @slt;
        tt.assert %2 @"too \\"small\\"";""")
    assert 'c"too \\22small\\22' in llvm and "__assertfail" in ptx
    assert llvm.count("call void @__assertfail") == 1  # One call for all registers.
    ptxas(ptx, "sm_90a")


@zg.kernel
def asserting(n):
    zg.device_assert(zg.compare(n, 3, zg.CompareKind.LESS_THAN), "n is small")


def test_an_assertion_shows_the_source_line() -> None:
    from ziggurat.transforms.gpu.assign import assign
    from ziggurat.transforms.tiles.prepare import prepare

    llvm = assemble(assign(prepare(asserting.triton(zg.i32)))).llvm
    assert 'c"n is small; zg.device_assert(zg.compare(n, 3, zg.CompareKind.LESS_THAN), \\22n is small\\22)' in llvm
    assert "test_debug.py" in llvm
