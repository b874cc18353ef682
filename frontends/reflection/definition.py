"""The definition of a kernel, or of a function that kernels call: a plain `def`."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Sequence
from typing import Any

from ziggurat.codemodel.errors import KernelSyntaxError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.python_functions import origin_of
from ziggurat.frontends.python.source import Source, find_definition, read_lines

_IN_A_TEXT = "define the function in a file or a notebook cell, or make the kernel of its text: zg.kernel(source=text)"


def kernel_lines(fn: Callable[..., Any]) -> Sequence[str]:
    """The lines that `read_lines` gives for a function defined by `def`. Raises `KernelSyntaxError` for another, and
    for one that was made of a model: the place of its code has another text."""
    if origin_of(fn) is not None:
        summary = f"'{fn.__name__}' is a function made of a model, which has no source of its own"
        raise KernelSyntaxError(summary, hint="make the kernel of its text: zg.kernel(source=zg.to_python(model))")
    lines = read_lines(fn, "decorate a function that is defined by def, outside of a class or static")
    code = getattr(fn, "__code__", None)
    if code is not None and "<lambda>" in (code.co_name, fn.__name__):
        place = Location(code.co_filename, code.co_firstlineno)
        raise KernelSyntaxError("a lambda has no statements to read", place, "write it as a function with def")
    return lines


def find_source(fn: types.FunctionType, lines: Sequence[str], code: types.CodeType | None = None) -> Source:
    """The definition that `find_definition` finds. Raises `KernelSyntaxError` for an async function."""
    source = find_definition(fn, lines, code, _IN_A_TEXT)
    if not isinstance(source.node, ast.FunctionDef):
        raise KernelSyntaxError(
            f"'{fn.__name__}' is an async function", source.span(source.node), "a kernel is a plain def; remove async"
        )
    return source
