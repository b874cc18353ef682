"""The C++ Triton parses our MLIR and compiles it to PTX for sm_90. No GPU is needed.

Triton is a large install that need not share our interpreter: `ZIGGURAT_TRITON_PYTHON` names a Python that has it.
docs/reference/triton-interchange.md has the results.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ziggurat.backend.mlir import to_mlir
from ziggurat.backend.mlir.releases import OLDEST
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.parser import parse

HERE = Path(__file__).parent
MODELS = {file.stem: file for file in sorted((HERE / "models").glob("*.txt"))}


@pytest.fixture(scope="module")
def triton_python() -> tuple[str, str]:
    """A Python that has Triton, and the release of that Triton."""
    python = os.environ.get("ZIGGURAT_TRITON_PYTHON", sys.executable)
    command = [python, "-c", "import triton; print(triton.__version__)"]
    answer = subprocess.run(command, capture_output=True, text=True, check=python != sys.executable)
    if answer.returncode:
        pytest.skip("Triton is not installed here, and ZIGGURAT_TRITON_PYTHON names no Python that has it")
    version = answer.stdout.strip()
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < OLDEST:
        pytest.skip(f"the texts are those of Triton 3.4 and later; this is Triton {version}")
    return python, ".".join(version.split(".")[:2])


def compiled(
    triton: tuple[str, str], models: Mapping[str, Op], folder: Path, *, locations: bool = False
) -> dict[str, dict[str, Any]]:
    """The result of Triton for each model; after a crash, the crash only."""
    python, release = triton
    files = {name: folder / f"{index}.ttir" for index, name in enumerate(models)}
    for name, file in files.items():
        file.write_text(to_mlir(models[name], release=release, locations=locations), encoding="utf-8")
    rest, actual = list(files), {}
    while rest:
        command = [python, str(HERE / "compile_with_triton.py"), *(str(files[name]) for name in rest)]
        run = subprocess.run(command, capture_output=True, text=True, errors="replace")
        text = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
        actual.update(zip(rest, text, strict=False))
        rest = rest[len(text) :]
        if rest:
            actual[rest.pop(0)] = {"parsed": False, "compiled": False, "error": run.stderr[-2000:]}
    return actual


def failures(actual: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    return {name: text["error"] for name, text in actual.items() if not text["compiled"]}


@pytest.mark.parametrize("locations", [False, True])
def test_kernels_compile(triton_python: tuple[str, str], tmp_path: Path, locations: bool):
    models = {name: parse(file.read_text(encoding="utf-8")) for name, file in MODELS.items()}
    actual = compiled(triton_python, models, tmp_path, locations=locations)
    assert not failures(actual)
    assert all(".target sm_90" in text["ptx"] for text in actual.values())
    assert "wgmma.mma_async" in actual["matmul"]["ptx"]
    assert re.search(r"ld\.global[\w.:]*\.v4\.b32", actual["softmax"]["ptx"])  # Triton uses the divisibility.
    assert "atom.global" in actual["atomics"]["ptx"]


def test_every_op_compiles(triton_python: tuple[str, str], tmp_path: Path, single_op_kernels: dict[str, Op]):
    # Triton maps as many elements together as a thread holds, of these small tensors one; before 3.6 it has no dots in
    # parts of bf16.
    lacking = ("map.", "dot.bf16x") if triton_python[1] < "3.6" else ("map.",)
    kernels = {name: model for name, model in single_op_kernels.items() if not name.startswith(lacking)}
    assert not failures(compiled(triton_python, kernels, tmp_path))
