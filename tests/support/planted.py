"""Faults planted in functions in memory, which tests must find."""

from __future__ import annotations
import __future__

import ast
import inspect
import textwrap
from types import FunctionType
from typing import Any

import pytest


def plant(monkeypatch: pytest.MonkeyPatch, function: Any, old: str, new: str) -> None:
    """Replace a part of a function's source text, wherever the function is registered or imported."""
    function = inspect.unwrap(function)
    assert isinstance(function, FunctionType)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{old!r} is in {function.__name__} {source.count(old)} times"
    tree = ast.parse(source.replace(old, new))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    names: dict[str, Any] = {}
    code = compile(tree, inspect.getfile(function), "exec", __future__.annotations.compiler_flag, dont_inherit=True)
    exec(code, function.__globals__, names)
    monkeypatch.setattr(function, "__code__", names[function.__name__].__code__)
