"""PTX assembled and disassembled by NVIDIA's tools, which the extra `ptx` installs."""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from ziggurat.backend.ptx.bound import bounded
from ziggurat.backend.ptx.cubin import resources_of
from ziggurat.backend.ptx.lines import refused_at
from ziggurat.codemodel.errors import LaunchError, TargetError, pass_on_signals


@attrs.frozen
class Resources:
    """Resources of a kernel from ptxas: registers a thread, bytes of stack and of spills, and warnings."""

    registers: int
    stack: int
    spills: int
    warnings: tuple[str, ...]


HINT = "pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm"


def tool(name: str) -> Path | None:
    """The path of a tool of the CUDA toolkit: on $PATH, or in NVIDIA's packages from PyPI; None for none."""
    executable = shutil.which(name)
    if executable is not None:
        return Path(executable)
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        for path in sorted(Path(folder).glob(f"*/bin/{name}")):
            return path
    return None


def _run(name: str, *arguments: str) -> str:
    path = tool(name)
    if path is None:
        raise LaunchError(f"'{name}' is not installed here", hint=HINT)
    done = subprocess.run([str(path), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise TargetError(f"{name} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout + done.stderr


def assembled(
    ptx: str, target: str, options: Sequence[str] = (), *, shared: int | None = None
) -> tuple[bytes, Resources]:
    """The machine code of a kernel, and its resources. `options` are those of ptxas: `--maxrregcount=64`. With the
    bytes of `shared` memory of a CTA, and no options, it is the code of a launch, with a bound on registers (`bound`).

    Raises `LaunchError` where ptxas is missing, and `TargetError` where it rejects the code or the options.
    """
    first = _assembled(ptx, target, options)
    if shared is None or options:
        return first

    def again(text: str) -> tuple[bytes, Resources] | None:
        try:
            return _assembled(text, target, ())
        except TargetError:
            return None

    return bounded(first, again, lambda code: (code[1].registers, code[1].stack), ptx, shared, target)


def _assembled(ptx: str, target: str, options: Sequence[str]) -> tuple[bytes, Resources]:
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        try:
            output = _run("ptxas", f"-arch={target}", "-v", *options, str(source), "-o", str(cubin))
        except TargetError as error:
            error.location = refused_at(ptx, error.summary)
            if error.location is not None:
                error.hint = "if inline assembly stands there, look at its instructions; if not, please report this"
            raise
        return cubin.read_bytes(), _resources(output)


def machine_code(ptx: str, target: str, shared: int) -> bytes:
    """The machine code of a launch with so many bytes of shared memory, by nvJitLink, which PyTorch brings along, or
    else by ptxas. Raises the errors of `assembled`."""
    options = [f"-arch={target}", *(["-lineinfo"] if "\t.loc\t" in ptx else [])]
    first = _linked(ptx, options)
    if first is None:
        return assembled(ptx, target, shared=shared)[0]
    return bounded(first, lambda text: _linked(text, options), resources_of, ptx, shared, target)


def _linked(ptx: str, options: list[str]) -> bytes | None:
    """The code by nvJitLink; None where it is missing, or older than the PTX, or refuses it: ptxas then says why."""
    source = ptx.encode()
    try:
        linker: Any = importlib.import_module("cuda.bindings.nvjitlink")
        handle = linker.create(len(options), options)
        try:
            linker.add_data(handle, linker.InputType.PTX, source, len(source), "kernel")
            linker.complete(handle)
            code = bytearray(linker.get_linked_cubin_size(handle))
            linker.get_linked_cubin(handle, code)
            return bytes(code)
        finally:
            linker.destroy(handle)
    except Exception as error:
        pass_on_signals(error)
        return None


def _resources(log: str) -> Resources:
    def number(pattern: str) -> int:
        return sum(int(match) for match in re.findall(pattern, log))

    return Resources(
        number(r"Used (\d+) registers"),
        number(r"(\d+) bytes stack frame"),
        number(r"(\d+) bytes spill"),
        tuple(line for line in log.splitlines() if "warning" in line.lower()),
    )


def sass(ptx: str, target: str, lines: bool = False) -> str:
    """The disassembled machine code of a kernel; with `lines`, each source line before its instructions."""
    text = disassembled(assembled(ptx, target)[0], *(["-g"] if lines else []))
    return _with_source(text) if lines else text


def disassembled(code: bytes, *options: str) -> str:
    """The instructions of a cubin, by nvdisasm. Raises `LaunchError` where it is missing.

    Its analysis of data flow finds targets of branches by way of a stack, which these GPUs do not have; it takes a
    fifth of the time.
    """
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(code)
        return _run("nvdisasm", "-c", "-ndf", *options, str(cubin))


def _with_source(text: str) -> str:
    """The disassembler's line comments, with the source lines."""

    def quoted(match: re.Match[str]) -> str:
        line = linecache.getline(match[2], int(match[3])).strip()
        return f"{match[1]}{os.path.basename(match[2])}:{match[3]}" + (f": {line}" if line else "")

    return re.sub(r'^(\s*//)## File "(.*?)", line (\d+).*$', quoted, text, flags=re.MULTILINE)
