"""Notebooks run without Jupyter: each code cell in one namespace, with the outputs that a notebook would show."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import linecache
from pathlib import Path
from typing import Any

MAX_HTML = 30_000  # Characters of an output in HTML that a notebook keeps. A page of zg.explore has more.


def load(file: Path) -> dict[str, Any]:
    """The content of a notebook, in the format 4.5."""
    return json.loads(file.read_text(encoding="utf-8"))


def save(file: Path, notebook: dict[str, Any]) -> None:
    file.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def executed(notebook: dict[str, Any], name: str) -> dict[str, Any]:
    """The notebook with the outputs of its code cells, which run from the first to the last."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells, number = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            outputs = _run("".join(cell["source"]), f"<{name}, cell {number}>", number, namespace)
            cell = {**cell, "execution_count": number, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}


def _run(source: str, file: str, number: int, namespace: dict[str, Any]) -> list[dict[str, Any]]:
    """The outputs of a cell: what it prints, and the value of an expression at its end."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)  # Kernels read their source.
    tree = ast.parse(source, file)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    outputs: list[dict[str, Any]] = []
    with contextlib.redirect_stdout(io.StringIO()) as text:
        exec(compile(tree, file, "exec"), namespace)
        value = eval(compile(ast.Expression(last.value), file, "eval"), namespace) if last is not None else None
    if text.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(text.getvalue())})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        html = value._repr_html_() if hasattr(value, "_repr_html_") else ""
        if 0 < len(html) <= MAX_HTML:
            data = {"text/html": _lines(html), **data}
        outputs.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)
