"""Source lines of native code: DWARF's table of lines, as the assembly has it."""

from __future__ import annotations

import inspect
import re

import ziggurat as zg
from ziggurat.backend.cpu.code import CpuOptions
from ziggurat.backend.cpu.compile import compile_cpu, to_assembly


@zg.function
def doubled(x):
    return zg.mul(x, 2.0)


@zg.kernel
def scaled(x_ptr, out_ptr, n, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    x = zg.load(zg.add(x_ptr, at), zg.less(at, n))
    total = zg.sum(x, 0)
    zg.store(zg.add(out_ptr, at), zg.sub(doubled(x), total), zg.less(at, n))


MODEL = scaled.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, 256)


def test_instructions_have_the_lines_of_the_source():
    options = CpuOptions(line_info=True).resolved()
    code = compile_cpu(MODEL, options)
    text = to_assembly(code.llvm, options)
    (number,) = re.findall(r'\.file\t(\d+) .*"test_lines\.py"', text)
    found = {int(line) for line in re.findall(rf"\.loc\t{number} (\d+) ", text)} - {0}
    lines, first = inspect.getsourcelines(scaled.fn)
    kernel = {first + index for index, line in enumerate(lines) if "zg.load" in line or "zg.s" in line}
    helper = {inspect.getsourcelines(doubled.fn)[1] + 2}
    assert kernel | helper <= found <= set(range(first, first + len(lines))) | helper
    assert b".debug_line\0" in code.object


def test_a_launch_has_no_lines():
    code = compile_cpu(MODEL, CpuOptions())
    assert "!dbg" not in code.llvm and b".debug_line\0" not in code.object


def test_lines_change_no_instruction():
    """But for sections and symbols of the table, the assembly is the same."""
    plain, lined = (
        to_assembly(compile_cpu(MODEL, options).llvm, options)
        for options in (CpuOptions(line_info=line_info).resolved() for line_info in (False, True))
    )

    def instructions(text: str) -> list[str]:
        body = text.split("\t.section\t.debug", 1)[0]
        return [line.partition("#")[0].strip() for line in body.splitlines() if re.match(r"\t[a-z]", line)]

    assert instructions(plain) == instructions(lined)


def test_compiled_kernels_have_lines_unless_they_are_not_wanted():
    types = (zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, 256)
    assert ".loc" in scaled.compile(*types, target="cpu").asm
    assert ".loc" not in scaled.compile(*types, target="cpu", line_info=False).asm
