"""Source text of a Python code model."""

from __future__ import annotations

import ast
from typing import Any

from ziggurat.backend.python import assignments as assignments
from ziggurat.backend.python import expressions as expressions
from ziggurat.backend.python.definitions import arguments_of, definition, function_parts
from ziggurat.backend.python.names import FunctionNames
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.op import Op, require_model
from ziggurat.codemodel.python_parameters import definition_of
from ziggurat.codemodel.recursion import deep_recursion


def to_python(model: Op) -> str:
    """The source text of the function that a Python code model is, such as `reflect` gives.

    Names are kept; comments are lost. A value that the model uses where Python's text cannot is kept in a variable.
    Raises `TargetError` for an op that Python has no words for.
    """
    with deep_recursion():
        return ast.unparse(tree_of(model))


def tree_of(model: Op) -> Any:
    """The syntax tree of the function: a definition, or a lambda."""
    require_model(model, "to_python")
    if not isinstance(model, core.Func):
        raise TargetError(f"to_python: the model must be a func; got {model.NAME}", model.location)
    text = model.sym_name.rpartition(".")[2]
    names = FunctionNames(model.body, free=model.free)
    parts = function_parts(model.body, names, None, model.kind)
    definition_ = definition_of(model)
    if definition_ is None:
        arguments, returns = arguments_of((), parts.parameters, iter(()), iter(()))
    else:
        arguments, returns = definition_.args, definition_.returns
        inner: list[Any] = [
            *arguments.posonlyargs,
            *arguments.args,
            arguments.vararg,
            *arguments.kwonlyargs,
            arguments.kwarg,
        ]
        for parameter, name in zip([item for item in inner if item], parts.parameters, strict=True):
            parameter.arg = name
    place = model.location
    if model.kind == "lambda" and parts.value is not None:
        node: Any = ast.Lambda(arguments, parts.value)
    else:
        valid = text if text.isidentifier() else "function"
        node = definition(valid, arguments, parts.statements, returns, model.kind)
    if place is not None:
        node.lineno, node.col_offset = place.line, place.column
        node.end_lineno, node.end_col_offset = place.end_line or place.line, place.end_column
    return ast.fix_missing_locations(node)
