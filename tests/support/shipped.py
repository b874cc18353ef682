"""Libraries for tests of shipping: programs in C, and launches by a driver that writes them down."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GCC = shutil.which("gcc")
needs_gcc = pytest.mark.skipif(GCC is None, reason="there is no gcc")
needs_linux = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine not in ("x86_64", "aarch64"),
    reason="shared objects are linked for Linux on x86-64 and Arm",
)


def compiled_c(folder: Path, source: str, *options: str) -> Path:
    """The program of a source in C, which warns of nothing."""
    assert GCC is not None
    file, program = folder / "main.c", folder / "main"
    file.write_text(source)
    command = [GCC, "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", f"-I{folder}", "-o", str(program), str(file)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return program


def fake_libcuda(folder: Path) -> Path:
    """A driver's library that writes launches down."""
    assert GCC is not None
    source, library = Path(__file__).with_name("fake_libcuda.c"), folder / "libcuda.so.1"
    command = [GCC, "-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1", "-o", str(library), str(source)]
    subprocess.run(command, check=True, timeout=120)
    return library


def calls_of(library: Path, program: str, driver: Path, sizes: list[int], capability: int = 90) -> list[dict[str, Any]]:
    """What a program of Python that launches kernels of a library, `lib`, asks of the driver."""
    log = driver.with_name("calls.json")
    log.write_text("")
    head = (
        f"import ctypes, sys; ctypes.CDLL({str(driver)!r}); sys.path.insert(0, {str(library.parent)!r}); import lib\n"
    )
    environment = {
        "FAKE_LOG": str(log), "FAKE_SIZES": ",".join(map(str, sizes)), "FAKE_CAPABILITY": str(capability),
        "PATH": os.environ["PATH"],
    }  # fmt: skip
    command = [sys.executable, "-S", "-c", head + program]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in log.read_text().splitlines()]
