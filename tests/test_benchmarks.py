"""The benchmarks, most of which need a GPU to run: what they import is there."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parents[1].joinpath("benchmarks").glob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_benchmarks_import_is_there(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ziggurat"):
            module = importlib.import_module(str(node.module))
            for name in node.names:
                if not hasattr(module, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")
