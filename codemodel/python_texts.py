"""Parts of a model that are texts of Python, such as parameters and annotations, as syntax trees."""

from __future__ import annotations

import ast
from typing import Any

from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.op import Op

_PLACES = ("lineno", "col_offset", "end_lineno", "end_col_offset")


def statement_of(source: str, op: Op, what: str, text: str) -> Any:
    """The tree of the only statement of a source, without places, which would be those of the source.

    `what`, an attribute of `op`, has the `text`, which a user may have written. Raises `TargetError` for one that is
    not Python.
    """
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError):
        statements = []
    if len(statements) != 1:
        raise TargetError(f"{what} must be written as in Python; got {text!r}", op.location)
    for node in ast.walk(statements[0]):
        for field in _PLACES:
            node.__dict__.pop(field, None)
    return statements[0]


def expression_of(text: str, op: Op, what: str) -> ast.expr:
    """The tree of a text that is an expression. Raises `TargetError` for another."""
    statement = statement_of(text, op, what, text)
    if not isinstance(statement, ast.Expr):
        raise TargetError(f"{what} must be an expression of Python; got {text!r}", op.location)
    return statement.value
