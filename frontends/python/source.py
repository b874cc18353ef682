"""The source of a function, and its syntax tree with positions in the file.

Only the lines of the function are parsed. They start at the line number in the code object and end by indentation. The
end is a guess, which is wrong for a string or a bracket that reaches further left; then more lines are parsed.
"""

from __future__ import annotations

import ast
import functools
import linecache
import re
import sys
import textwrap
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from ziggurat.codemodel.errors import KernelSyntaxError
from ziggurat.codemodel.graphs import by_key
from ziggurat.codemodel.location import Location, register

_DEF = re.compile(r"\s*(async\s+)?def\b")
_NOT_A_FUNCTION = "give a function that is written in Python, by def or lambda; of a class, one of its methods"
_IN_A_TEXT = "define the function in a file or a notebook cell, or give its lines to Python's linecache"
_WITHOUT_SOURCE = {"<stdin>": "write the program to a file: Python does not keep what it reads from standard input"}
_GUESSES = 4  # The number of ends of the block to try before the whole file is parsed.


@attrs.frozen
class Source:
    """The definition of a function. Line `n` of the tree is line `n + offset` of the file."""

    file: str
    node: Any  # An `ast.FunctionDef`, of a kernel always; or an `ast.AsyncFunctionDef`, or an `ast.Lambda`.
    offset: int = 0

    def span(self, node: Any) -> Location:
        """The location in the file of a node of the tree."""
        return Location.of_node(self.file, node, self.offset)


def read_lines(fn: Callable[..., Any], hint: str = _NOT_A_FUNCTION) -> Sequence[str]:
    """The lines of the file, notebook cell or registered string that defines `fn`, as they are now; none if unknown.

    Raises `KernelSyntaxError` with the hint when `fn` is not a function of Python. Reading is cheap: a file is read
    once for all its functions, and nothing is parsed.
    """
    if not isinstance(fn, types.FunctionType):
        name = getattr(fn, "__name__", repr(fn))
        raise KernelSyntaxError(
            f"'{name}' is {_kind(fn)}, not a function defined by def",
            hint=hint,
        )
    code = fn.__code__
    linecache.checkcache(code.co_filename)
    if code.co_filename == "<string>" and sys.argv[:1] == ["-c"]:
        return _command_lines(code)
    return linecache.getlines(code.co_filename, fn.__globals__)


def _command_lines(code: types.CodeType) -> Sequence[str]:
    """The lines of the program of `python -c`, which messages and tracebacks find from now on; none if the function is
    not from there.

    Functions of other texts, as of `exec`, have the same name of a file. So the program must give this very code.
    """
    # The program stands before its arguments, and may be in one word with the option: -cpass.
    text = textwrap.dedent(re.sub(r"^-\w*?c", "", sys.orig_argv[-len(sys.argv)]))
    try:
        codes = [compile(text, code.co_filename, "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):
        return ()
    for inner in codes:
        codes += (constant for constant in inner.co_consts if isinstance(constant, types.CodeType))
    if code not in codes:
        return ()
    register(code.co_filename, text)
    return text.splitlines(keepends=True)


def find_definition(
    fn: types.FunctionType, lines: Sequence[str], code: types.CodeType | None = None, hint: str = _IN_A_TEXT
) -> Source:
    """The definition of `fn`, a function of any kind, in these lines. `code` is the code of the function when they were
    read, by default its present code: programs assign to `fn.__code__` code from another place.

    Raises `KernelSyntaxError` when it is not there: its source is missing, with the hint, or has changed.
    """
    code = code or fn.__code__
    start = code.co_firstlineno - 1
    if not lines:
        raise KernelSyntaxError(
            f"the source of '{fn.__name__}' cannot be found: there is no text for {code.co_filename!r}",
            hint=_WITHOUT_SOURCE.get(code.co_filename, hint),
        )
    if code.co_name == "<lambda>":
        definition = _lambda(lines, code)
    else:
        definition = _definition(lines, start, code.co_name, code.co_filename)
    if definition is None or not _matches(definition[0], code):
        raise KernelSyntaxError(
            f"the source of '{fn.__name__}' is not what it was when the function was made",
            Location(code.co_filename, start + 1),
            "load the module again (or restart the notebook's kernel)",
        )
    node, offset = definition
    return Source(code.co_filename, node, offset)


@functools.lru_cache(maxsize=4)
def _lambdas(text: str, file: str) -> dict[int, list[ast.Lambda]]:
    """The lambdas of a file by the lines that they start at."""
    tree = _parsed(text, file) or _parsed(f"if 1:\n{text}", file)
    nodes = ast.walk(tree) if tree is not None else ()
    return by_key((node.lineno, node) for node in nodes if isinstance(node, ast.Lambda))


def _lambda(lines: Sequence[str], code: types.CodeType) -> tuple[ast.Lambda, int] | None:
    """The lambda with this code. Those of a line differ in the columns of what they compute."""
    nodes = _lambdas("".join(lines), code.co_filename).get(code.co_firstlineno, [])
    nodes = [node for node in nodes if _matches(node, code)]
    if len(nodes) > 1:
        marked = set(code.co_positions())
        spans = [(n.body.lineno, n.body.end_lineno, n.body.col_offset, n.body.end_col_offset) for n in nodes]
        nodes = [node for node, span in zip(nodes, spans, strict=True) if span in marked]
    return (nodes[0], 0) if nodes else None


def _kind(value: object) -> str:
    if isinstance(value, types.MethodType):
        return "a bound method"
    if isinstance(value, type):
        return "a class"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _matches(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, code: types.CodeType) -> bool:
    arguments = node.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    count = code.co_argcount + code.co_kwonlyargcount
    # Inside of a class Python renames `__x` to `_Class__x`, so names are compared by their ends.
    return len(names) == count and all(
        actual.endswith(name) for actual, name in zip(code.co_varnames[:count], names, strict=True)
    )


def _definition(
    lines: Sequence[str], start: int, name: str, file: str
) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, int] | None:
    """The definition that starts (with its decorators) at this line, and the offset of its line numbers."""
    if start >= len(lines):
        return None
    indented = _indentation(lines[start]) > 0
    for guess, end in enumerate(_ends(lines, start)):
        if guess == _GUESSES:
            break
        text = "".join(lines[start:end])
        tree = _parsed(f"if 1:\n{text}" if indented else text, file)
        if tree is None:
            continue
        body = tree.body[0].body if indented and isinstance(tree.body[0], ast.If) else tree.body
        node = body[0] if body else None
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return node, start - 1 if indented else start
        return None
    tree = _parsed("".join(lines), file)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
            if first == start + 1:
                return node, 0
    return None


def _parsed(text: str, file: str) -> ast.Module | None:
    """The tree of a text, or None if it is not Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python gave these when it compiled the text.
        try:
            return ast.parse(text, file)
        except (SyntaxError, ValueError):
            return None


def _ends(lines: Sequence[str], start: int) -> Iterator[int]:
    """The line numbers at which the block that starts at `start` may end, by indentation."""
    count = len(lines)
    header = start
    while header < count and not _DEF.match(lines[header]):
        header += 1
    indentation = _indentation(lines[start])
    for index in range(header + 1, count):
        line = lines[index]
        if line[: indentation + 1].isspace():  # Most lines, which this tells soonest.
            continue
        text = line.lstrip()
        if text and text[0] not in "#)]}" and _indentation(line) <= indentation:
            yield index
    yield count


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" \t\f"))
