"""NVIDIA's assembler and disassembler: their arguments, their output, and the errors where they are missing."""

from __future__ import annotations

import linecache
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ziggurat.backend.ptx import sass as module
from ziggurat.backend.ptx.sass import Resources, assembled, sass, tool
from ziggurat.codemodel.errors import LaunchError, TargetError

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p) {
    .reg .b64 %rd<3>; .reg .b32 %r<2>;
    ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, 42; st.global.u32 [%rd2], %r1; ret;
}
"""

SAID = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas warning : Registers are spilled to local memory in function 'k'
ptxas info    : Function properties for k
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 8 bytes cumulative stack size
"""


class Tools:
    """A stand-in for the tools: records the calls, and returns given output."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, out: str = "", err: str = "", code: int = 0) -> None:
        self.calls: list[list[str]] = []
        self.out, self.err, self.code = out, err, code
        monkeypatch.setattr(module, "tool", lambda name: Path("/tools") / name)
        monkeypatch.setattr(module.subprocess, "run", self.run)

    def run(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.calls.append(command)
        if "-o" in command:
            source = Path(command[command.index("-v") + 1])
            Path(command[command.index("-o") + 1]).write_bytes(b"code of " + source.read_bytes())
        return subprocess.CompletedProcess(command, self.code, self.out, self.err)


def test_resources_from_the_assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = Tools(monkeypatch, err=SAID)
    code, resources = assembled("text", "sm_90a")
    assert code == b"code of text"
    warning = "ptxas warning : Registers are spilled to local memory in function 'k'"
    assert resources == Resources(168, 8, 28, (warning,))  # Stores and loads of spills together.
    (command,) = tools.calls
    assert command[0] == "/tools/ptxas" and "-arch=sm_90a" in command
    assert not Path(command[-1]).exists()  # No temporary file is left.


def test_ptx_that_the_assembler_rejects(monkeypatch: pytest.MonkeyPatch) -> None:
    Tools(monkeypatch, err="ptxas kernel.ptx, line 3; fatal\n", code=255)
    with pytest.raises(TargetError, match=r"ptxas failed: ptxas kernel\.ptx, line 3; fatal"):
        assembled("text", "sm_90a")


def test_a_tool_that_speaks_on_the_other_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    Tools(monkeypatch, out="no memory", code=1)
    with pytest.raises(TargetError, match="ptxas failed: no memory"):
        assembled("text", "sm_90a")


def test_without_the_tools_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "tool", lambda name: None)
    with pytest.raises(LaunchError, match="'ptxas' is not installed here") as error:
        sass("text", "sm_90a")
    assert "pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm" in str(error.value)


def test_lines_of_the_source_are_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = tmp_path / "kernel.py"
    source.write_text("first\n    second = 2\n")
    linecache.checkcache()
    text = f"""\t//## File "{source}", line 2
        /*0000*/ IADD ;
\t//## File "{source}", line 2 inlined at "{source}", line 1
\t//## File "/nowhere/gone.py", line 7
        /*0010*/ EXIT ;"""
    tools = Tools(monkeypatch, out=text)
    expected = """\t//kernel.py:2: second = 2
        /*0000*/ IADD ;
\t//kernel.py:2: second = 2
\t//gone.py:7
        /*0010*/ EXIT ;"""
    assert sass("text", "sm_90a", lines=True) == expected
    assert sass("text", "sm_90a") == text
    disassembled = [command for command in tools.calls if command[0].endswith("nvdisasm")]
    assert [("-g" in command) for command in disassembled] == [True, False]


def test_tools_are_those_on_the_path_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "ptxas"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tool("ptxas") == program
    assert tool("no-such-tool-of-anybody") is None


def test_tools_of_packages_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    program = tmp_path / "nvidia/cu13/bin/nvdisasm"
    program.parent.mkdir(parents=True)
    program.write_text("")

    class Spec:
        submodule_search_locations = (str(tmp_path / "nowhere"), str(tmp_path / "nvidia"))

    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: Spec() if name == "nvidia" else None)
    assert tool("nvdisasm") == program
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    assert tool("nvdisasm") is None


@pytest.mark.skipif(tool("ptxas") is None, reason="ptxas is not installed")
def test_the_assembler_itself() -> None:
    code, resources = assembled(PTX, "sm_80")
    assert code.startswith(b"\x7fELF")
    assert 0 < resources.registers <= 32 and (resources.stack, resources.spills) == (0, 0) and not resources.warnings
    with pytest.raises(TargetError, match="ptxas failed"):
        assembled(PTX.replace("mov.u32", "mov.nothing"), "sm_80")


@pytest.mark.skipif(tool("ptxas") is None or tool("nvdisasm") is None, reason="ptxas or nvdisasm is not installed")
def test_the_disassembler_itself() -> None:
    text = sass(PTX, "sm_80")
    assert "STG.E" in text and "EXIT" in text and "0x2a" in text
