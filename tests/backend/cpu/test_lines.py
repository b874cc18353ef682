"""Source lines of native code: DWARF's table of lines, as the assembly has it."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
    results = {int(line) for line in re.findall(rf"\.loc\t{number} (\d+) ", text)} - {0}
    lines, first = inspect.getsourcelines(scaled.fn)
    kernel = {first + index for index, line in enumerate(lines) if "zg.load" in line or "zg.s" in line}
    helper = {inspect.getsourcelines(doubled.fn)[1] + 2}
    assert kernel | helper <= results <= set(range(first, first + len(lines))) | helper
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


GDB = """
set pagination off
set debuginfod enabled off
set breakpoint pending on
break {path}:{line}
run
backtrace 1
delete
continue
maint info jit
continue
maint info jit
"""
LAUNCH = f"""
import gc, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy as np
import ziggurat as zg
import test_lines
x, out = np.ones(256, np.float32), np.zeros(256, np.float32)
test_lines.scaled[(1,)](x, out, 256, 256)
kernel = test_lines.scaled.compile(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, 256, target="cpu")
kernel[1](x, out, 256)
signal.raise_signal(signal.SIGTRAP)
del kernel
gc.collect()
signal.raise_signal(signal.SIGTRAP)
"""


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("gdb") is None, reason="gdb is not installed")
def test_gdb_stops_at_a_line_of_a_launch(tmp_path, monkeypatch):
    """gdb also forgets code that is unloaded."""
    monkeypatch.setenv("ZIGGURAT_DEBUG_DIR", str(tmp_path))
    lines, first = inspect.getsourcelines(scaled.fn)
    line = next(first + index for index, text in enumerate(lines) if "zg.sum" in text)
    path = Path(__file__)
    (tmp_path / "script").write_text(GDB.format(path=path, line=line))
    (tmp_path / "launch.py").write_text(LAUNCH)
    command = ["gdb", "--batch", "-nx", "-x", "script", "--args", sys.executable, "launch.py"]
    text = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    message = text.stdout
    assert re.search(rf"hit Breakpoint 1, .*scaled.* at {path}:{line}\n{line}\t    total = zg.sum", message), (
        message + text.stderr
    )
    assert re.search(rf"#0 .*scaled.* at {path}:{line}", message), message
    before, after = (len(re.findall("^0x.* 0x", part, re.M)) for part in message.split("jit_code_entry address")[1:])
    assert after == before - 1, message
