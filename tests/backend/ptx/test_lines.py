"""Line information: the PTX says which lines of the source its instructions come from."""

from __future__ import annotations

import inspect
import re

import pytest

import ziggurat as zg
from ziggurat.backend.ptx.assemble import assemble, to_ptx
from ziggurat.backend.ptx.lines import LineInfo, files_of, refused_at
from ziggurat.backend.ptx.sass import assembled, sass, tool
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.gpu.options import DEFAULT_OPTIONS, CompileOptions
from ziggurat.codemodel.location import Location
from ziggurat.transforms.gpu.assign import assign
from ziggurat.transforms.tiles.prepare import prepare


@zg.function
def twice(x):
    return zg.add(x, x)


@zg.kernel
def scale(x_ptr, n, BLOCK: zg.constexpr):
    offsets = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    x = zg.load(zg.add(x_ptr, offsets))
    x = twice(x)
    for i in range(0, n):
        x = zg.exp(x)
    zg.store(zg.add(x_ptr, offsets), x)


def emitted(options: CompileOptions = DEFAULT_OPTIONS):
    return assemble(assign(prepare(scale.triton(zg.ptr(zg.f32), zg.i32, 256))), options)


def line_of(text: str) -> int:
    """The line of this file that the text stands on."""
    lines = inspect.getsource(inspect.getmodule(line_of)).splitlines()  # type: ignore[arg-type]
    return next(at for at, line in enumerate(lines, 1) if line.strip() == text)


def test_instructions_carry_the_line_they_come_from(ptxas) -> None:
    ptx = emitted().ptx
    assert re.search(r'\.file\s+1 ".*test_lines\.py"', ptx)
    here = 0
    results: dict[str, set[int]] = {}
    for line in ptx.splitlines():
        if match := re.match(r"\s+\.loc\s+1 (\d+) ", line):
            here = int(match[1])
        for name in ("ld.global", "ex2.approx", "st.global", "add.rn.f32"):
            if name in line:
                results.setdefault(name, set()).add(here)
    assert results == {
        "ld.global": {line_of("x = zg.load(zg.add(x_ptr, offsets))")}, "ex2.approx": {line_of("x = zg.exp(x)")},
        "add.rn.f32": {line_of("return zg.add(x, x)")}, "st.global": {line_of("zg.store(zg.add(x_ptr, offsets), x)")},
    }  # fmt: skip
    ptxas(ptx, "sm_90a")


def test_a_helper_is_inlined_at_its_call() -> None:
    llvm = emitted().llvm
    call = re.search(rf"!(\d+) = !DILocation\(line: {line_of('x = twice(x)')}, ", llvm)
    assert call is not None
    assert re.search(rf"distinct !DILocation\(line: {line_of('return zg.add(x, x)')}, .*inlinedAt: !{call[1]}\)", llvm)


def test_without_line_information_there_is_none() -> None:
    result = emitted(CompileOptions(line_info=False))
    assert "!dbg" not in result.llvm and ".loc" not in result.ptx and ".file" not in result.ptx
    with_lines = [line for line in emitted().ptx.splitlines() if not re.match(r"\s*(\.loc|\.file|\.section|\$L)", line)]
    without = [line for line in result.ptx.splitlines() if not re.match(r"\s*\$L", line)]
    assert [line for line in without if line.strip()] == [line for line in with_lines if line.strip()]


def test_our_own_library_is_not_what_an_author_looks_for() -> None:
    import ziggurat.frontends.language as language

    call = Location("kernel.py", 7, 4)
    inside = Location(inspect.getfile(language), 55, 8, caller=call)
    info = LineInfo("k", "k", Location("kernel.py", 1))
    assert info.suffix(inside) == info.suffix(call)
    assert "frontends" not in "\n".join(info.metadata())


def test_names_are_quoted() -> None:
    text = "\n".join(LineInfo('a"b\\c', "a_b_c", Location("Ordner/ä.py", 1)).metadata())
    assert 'name: "a\\22b\\5Cc"' in text and 'filename: "Ordner/\\C3\\A4.py", directory: ""' in text


@pytest.mark.skipif(tool("ptxas") is None or tool("nvdisasm") is None, reason="ptxas or nvdisasm is not installed")
def test_the_machine_s_code_stands_under_the_lines_of_the_source() -> None:
    ptx = emitted().ptx
    here = ""
    results: dict[str, set[str]] = {}
    for line in sass(ptx, "sm_90a", lines=True).splitlines():
        if match := re.match(r"\s*//test_lines\.py:(\d+): (.*)", line):
            assert int(match[1]) == line_of(match[2])
            here = match[2]
        for name in ("LDG", "MUFU.EX2", "STG"):
            if name in line:
                results.setdefault(name, set()).add(here)
    assert results["LDG"] == {"x = zg.load(zg.add(x_ptr, offsets))"} and results["MUFU.EX2"] == {"x = zg.exp(x)"}
    assert results["STG"] == {"zg.store(zg.add(x_ptr, offsets), x)"}
    assert "test_lines.py" not in sass(ptx, "sm_90a")


def test_a_line_that_the_assembler_refuses_is_found_in_the_source():
    ptx = emitted().ptx
    lines = ptx.splitlines()
    number = next(number for number, line in enumerate(lines, 1) if "ex2.approx" in line)
    place = refused_at(ptx, f"ptxas kernel.ptx, line {number}; error : no\nptxas x, line 1; error : no")
    assert place is not None and (place.file, place.line) == (__file__, line_of("x = zg.exp(x)"))
    assert place.column == 12 and "zg.exp(x)" in place.excerpt()
    for text in ("ptxas fatal : out of memory", "line 1; error", f"line {len(lines) + 9}; error", "line 0; error"):
        assert refused_at(ptx, text) is None, text
    assert refused_at("", "line 1; error") is None


def test_files_of_any_name_are_found_again():
    keywords = emitted().ptx.replace(__file__, "/home/J\\303\\266rg/a\\\\b.py")
    assert list(files_of(keywords).values()) == ["/home/Jörg/a\\b.py"]
    number = next(number for number, line in enumerate(keywords.splitlines(), 1) if "ex2.approx" in line)
    place = refused_at(keywords, f"ptxas kernel.ptx, line {number}; error : no")
    assert place is not None and place.file == "/home/Jörg/a\\b.py"


@zg.kernel
def misspelled(x_ptr):
    x = zg.load(x_ptr)
    x = zg.inline_asm_elementwise("nosuch.b32 $0, $1;", "=r,r", (x,), zg.i32, True, 1)
    zg.store(x_ptr, x)


@pytest.mark.skipif(tool("ptxas") is None, reason="ptxas is not installed")
def test_an_unknown_instruction_is_an_error_at_the_line_of_the_kernel():
    compiled = misspelled.compile(zg.ptr(zg.i32))
    with pytest.raises(TargetError, match="nosuch") as error:
        assembled(compiled.ptx, compiled.target)
    place = error.value.location
    callees = 'x = zg.inline_asm_elementwise("nosuch.b32 $0, $1;", "=r,r", (x,), zg.i32, True, 1)'
    assert place is not None and place.line == line_of(callees) and "inline assembly" in str(error.value.hint)


@pytest.mark.parametrize("folder", ['a"b', "a\nb", "a\\b", "aéb", "a\udc80b"])
def test_a_folder_of_any_name_is_one_that_the_assembler_reads(folder: str, ptxas) -> None:
    info = LineInfo("k", "k", Location(f"/tmp/{folder}/k.py", 1, 0))
    text = "\n".join([
        'target triple = "nvptx64-nvidia-cuda"', f"define ptx_kernel void @k() !dbg !{info.subprogram} {{",
        f"  ret void{info.suffix(Location(f'/tmp/{folder}/k.py', 1, 0))}", "}", *info.metadata(),
    ])  # fmt: skip
    ptx = to_ptx(text, "sm_90a")
    assert ".file" in ptx
    ptxas(ptx, "sm_90a")
