"""The file for profilers: its records, and what perf makes of them."""

from __future__ import annotations

import ctypes
import inspect
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.cpu.code import CpuOptions
from ziggurat.backend.cpu.compile import compile_cpu
from ziggurat.backend.cpu.runtime.kernels import NativeKernel
from ziggurat.backend.jit.jitdump import _places as line_places
from ziggurat.codemodel.errors import ZigguratWarning

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the format is Linux's")
HERE = Path(__file__)


@zg.kernel
def waves(x_ptr, out_ptr, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    x = zg.load(zg.add(x_ptr, at))
    for _ in range(3):
        x = zg.sin(x)
    zg.store(zg.add(out_ptr, at), x)


def compiled(*, line_info: bool):
    model = waves.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), 256)
    return compile_cpu(model, CpuOptions(line_info=line_info))


def records(data: bytes):
    """The head of a file, and the kind and the content of each record."""
    head = struct.unpack_from("=IIIIIIQQ", data)
    actual, at = [], head[2]
    while at < len(data):
        kind, size, _ = struct.unpack_from("=IIQ", data, at)
        actual.append((kind, data[at + 16 : at + size]))
        at += size
    return head, actual


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ZIGGURAT_DEBUG_DIR", str(tmp_path / "profile"))
    return tmp_path / "profile"


def test_a_file_has_the_code_and_the_lines_of_the_functions(folder):
    code = compiled(line_info=True)
    kernel = NativeKernel(code, "waves")
    head, actual = records((folder / f"jit-{os.getpid()}.dump").read_bytes())
    assert head[:3] == (0x4A695444, 1, 40) and head[5] == os.getpid()
    assert [kind for kind, _ in actual] == [2, 0] * (len(actual) // 2)
    names = {}
    for (_, lines), (_, load) in zip(actual[::2], actual[1::2], strict=True):
        process, _, address, again, size, _ = struct.unpack_from("=IIQQQQ", load)
        name, _, content = load[40:].partition(b"\0")
        assert (process, address, len(content)) == (os.getpid(), again, size)
        assert content == ctypes.string_at(address, size)
        names[name.decode()] = address, size, lines
    assert {code.symbol, "zg.sin.f64"} <= set(names)
    address, size, lines = names[code.symbol]
    assert address == kernel.entry
    start, count = struct.unpack_from("=QQ", lines)
    at, values = 16, []
    while at < len(lines):
        place, line, _ = struct.unpack_from("=Qii", lines, at)
        file, _, _ = lines[at + 16 :].partition(b"\0")
        at += 17 + len(file)
        values.append((place, line))
        assert Path(os.fsdecode(file)) == HERE and address <= place < address + size
    assert start == address and count == len(values) and values == sorted(values, key=lambda item: item[0])
    source, first = inspect.getsourcelines(waves.fn)
    expected = {
        first + index for index, line in enumerate(source) if "load" in line or "sin" in line or "store" in line
    }
    assert expected <= {line for _, line in values} <= set(range(first, first + len(source)))


def test_code_without_lines_has_names(folder):
    code = compiled(line_info=False)
    NativeKernel(code, "waves")
    _, actual = records((folder / f"jit-{os.getpid()}.dump").read_bytes())
    assert all(struct.unpack_from("=Q", content, 8) == (0,) for kind, content in actual if kind == 2)
    assert any(code.symbol.encode() in content for kind, content in actual if kind == 0)


def lines(program: bytes, *, first: int = 13, version: int = 4) -> bytes:
    """DWARF's table of lines (6.2.4) whose head has addresses in units of 2 bytes, lines from -3 on in a span of 12,
    two folders, and three files; `first` is the first special opcode."""
    folders = b"/a\0/b\0\0"
    files = b"x.py\0\1\0\0" + b"y.py\0\2\x81\1\5" + b"/c/z.py\0\0\0\x80\1" + b"\0"
    rest = struct.pack("=BBBbBB", 2, 1, 1, -3, 12, first) + bytes(first - 1) + folders + files
    body = struct.pack("=HI", version, len(rest)) + rest + program
    return struct.pack("=I", len(body)) + body


def test_a_table_of_lines():
    """Each operation of a table (DWARF 4, 6.2.5), whether LLVM writes it today or not."""
    address = b"\0\x09\2" + bytes(8)
    end = b"\0\1\1"
    program = b"".join([
        address,
        b"\3\x89\1\1",  # Line + 137, and a row.
        b"\2\x82\1\1",  # Address + 130 units.
        b"\4\2\5\x88\1",  # File 2, column 136, which is not needed,
        bytes([13 + 12 * 3 + 11]),  # and a row 3 units and 8 lines on.
        b"\x08\1",  # Address + 20 units, those of opcode 255.
        b"\x09" + struct.pack("=H", 300) + b"\1",  # Address + 300 bytes.
        b"\3\x7b\1",  # Line - 5.
        b"\6\7\x0a\x0b\4\3",  # Statements, blocks, prologues; file 3.
        bytes([13]),  # A row 3 lines back.
        b"\3\xf6\x7e\1",  # Line - 138: line 0 is no row.
        b"\3\4\1",
        end,
        b"\1",  # The rows of another section.
    ])  # fmt: skip
    assert list(line_places(lines(program))) == [
        (0, 138, b"/a/x.py"),
        (260, 138, b"/a/x.py"),
        (266, 146, b"/b/y.py"),
        (306, 146, b"/b/y.py"),
        (606, 146, b"/b/y.py"),
        (606, 141, b"/b/y.py"),
        (606, 138, b"/c/z.py"),
        (606, 4, b"/c/z.py"),
    ]
    assert list(line_places(lines(program, version=5))) == list(line_places(b"")) == []


def test_launches_compile_with_lines_only_if_a_folder_is_named(folder, monkeypatch):
    """The two kinds of code have keys of their own in the cache."""
    x, out = np.ones(256, np.float32), np.zeros(256, np.float32)
    sizes = []
    for argument in (True, False):
        kernel = zg.kernel(waves.fn)
        if not argument:
            monkeypatch.delenv("ZIGGURAT_DEBUG_DIR")
        before = sum(file.stat().st_size for file in folder.glob("*")) if argument else sizes[0]
        kernel[(1,)](x, out, 256)
        sizes.append(sum(file.stat().st_size for file in folder.glob("*")))
        assert (sizes[-1] > before) == argument


def test_a_forked_process_has_a_file_of_its_own(folder):
    script = f"""import sys; sys.path.insert(0, {str(HERE.parent)!r})
import os, test_jitdump
code = test_jitdump.compiled(line_info=True)
test_jitdump.NativeKernel(code, "waves")
child = os.fork()
if not child: test_jitdump.NativeKernel(code, "waves")
else: assert os.waitpid(child, 0)[1] == 0"""
    subprocess.run([sys.executable, "-c", script], check=True)
    heads, numbers = zip(*(records(file.read_bytes()) for file in folder.iterdir()), strict=True)
    assert {f"jit-{head[5]}.dump" for head in heads} == {file.name for file in folder.iterdir()}
    assert len(heads) == 2 and len(numbers[0]) == len(numbers[1]) > 0


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ZIGGURAT_DEBUG_DIR", str(tmp_path / "file"))
    with pytest.warns(ZigguratWarning, match="profilers are not told of 'zg_waves.*ZIGGURAT_DEBUG_DIR"):
        NativeKernel(compiled(line_info=True), "waves")


def test_perf_shows_the_source(folder, tmp_path):
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed")
    script = f"""import sys; sys.path.insert(0, {str(HERE.parent)!r})
import numpy as np, test_jitdump
x, out = np.ones(256, np.float32), np.zeros(256, np.float32)
for _ in range(20000): test_jitdump.waves[(1,)](x, out, 256)"""
    data, merged = str(tmp_path / "perf.data"), str(tmp_path / "perf.jit.data")
    record = ["perf", "record", "-e", "cpu-clock", "-k", "mono", "-o", data, sys.executable, "-c", script]
    recorded = subprocess.run(record, capture_output=True, text=True)
    if recorded.returncode or not Path(data).exists():
        pytest.skip(f"perf cannot record here: {recorded.stderr}")
    subprocess.run(["perf", "inject", "--jit", "-i", data, "-o", merged], check=True, capture_output=True)
    symbol = compiled(line_info=True).symbol
    show = ["perf", "annotate", "--stdio", "--print-line", "-i", merged, "-s", symbol]
    text = subprocess.run(show, check=True, capture_output=True, text=True).stdout
    assert "x = zg.sin(x)" in text and re.search(rf"\d+\.\d\d +{HERE.stem}\.py:\d+", text), text
