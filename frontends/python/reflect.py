"""The model of any Python function."""

from __future__ import annotations

import ast
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.python_functions import origin_of, plain_function
from ziggurat.codemodel.python_parameters import FunctionNode, parameters_of
from ziggurat.codemodel.recursion import deep_recursion
from ziggurat.codemodel.types import pyobject
from ziggurat.frontends.python.definitions import kind_of, type_parameters_of
from ziggurat.frontends.python.expressions import VARIABLE
from ziggurat.frontends.python.scopes import FUNCTION, Binds, Scope, binds_of
from ziggurat.frontends.python.source import Source, find_definition, read_lines
from ziggurat.frontends.python.statements import Statements

_FUTURE_ANNOTATIONS = 0x1000000  # CO_FUTURE_ANNOTATIONS, which `inspect` does not have.
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


def reflect(function: Callable[..., Any]) -> Op:
    """The code model of a Python function: a `func`, named by the function's `__qualname__`.

    `function` is a function or lambda of any kind, a method, an object with `__call__`, or what a decorator with
    `functools.wraps` made of one. Names from outside stay names. A function that `to_function` or `interpret` made has
    the model that it was made of. Raises `KernelSyntaxError` for what has no source in Python.
    """
    fn = plain_function(function)
    origin = origin_of(fn)
    if origin is not None:
        return origin.model
    with deep_recursion():
        source = find_definition(fn, read_lines(fn))
        return model_of(fn.__code__, source)


def model_of(code: types.CodeType, source: Source) -> Op:
    """The model of the function with this code, whose definition is in `source`."""
    node: FunctionNode = source.node
    owner = _owner(code)
    arguments = [parameter for _, parameter, _ in parameters_of(node) if parameter is not None]
    builder = Builder.root((pyobject,) * len(arguments), pyobject)
    reader = Statements(source, builder, code.co_freevars)
    if code.co_flags & _FUTURE_ANNOTATIONS:
        reader.late_annotations, reader.evaluates_late = True, False
    reader.scope = Scope(FUNCTION, Binds(), builder, None, owner)
    reader.scope.binds = reader.owned(_binds(code, node))
    for parameter, value in zip(arguments, builder.parameters, strict=True):
        name = reader.scope.renamed(parameter.arg)
        reader.scope.variables[name] = reader.add(core.Var(value, name=name, type=VARIABLE), parameter)
    if isinstance(node, ast.Lambda):
        reader.add(core.Return((reader.expression(node.body),)), node.body)
    else:
        reader.suite(node.body)
        if not builder.terminated:
            reader.add(core.Return(()), node)
    kind = kind_of(node, bool(code.co_flags & _GENERATORS))
    texts = () if _is_plain(node) else tuple(_written(node))
    func = core.Func(code.co_qualname, builder.finish(), kind=kind, parameters=texts, free=code.co_freevars)
    func.__dict__["location"] = source.span(node)
    return func


def _binds(code: types.CodeType, node: FunctionNode) -> Binds:
    if sys.version_info < (3, 12):  # Later versions list the names of comprehensions as well.
        return Binds({*code.co_varnames, *code.co_cellvars})
    arguments = [parameter.arg for _, parameter, _ in parameters_of(node) if parameter is not None]
    return binds_of([node.body] if isinstance(node, ast.Lambda) else node.body, arguments)


def _owner(code: types.CodeType) -> str:
    """The class in whose suite a function is defined; "" for none."""
    *_, around, _ = ["", "", *code.co_qualname.split(".")]
    return "" if around == "<locals>" else around.lstrip("_")


def _is_plain(node: FunctionNode) -> bool:
    """Whether a function has parameters without defaults and annotations, by place or name, only."""
    arguments = node.args
    returns = None if isinstance(node, ast.Lambda) else node.returns
    others = (arguments.posonlyargs, arguments.kwonlyargs, arguments.defaults, arguments.vararg, arguments.kwarg)
    return (
        not any(others)
        and not type_parameters_of(node)
        and returns is None
        and all(p.annotation is None for p in arguments.args)
    )


def _written(node: FunctionNode) -> list[str]:
    """The parameters as they are written, and the annotation of the result."""
    brackets = type_parameters_of(node)
    texts = [f"[{brackets}]"] if brackets else []
    for mark, parameter, default in parameters_of(node):
        text = mark if parameter is None else mark + parameter.arg
        if parameter is not None and parameter.annotation is not None:
            text += f": {text_of(parameter.annotation)}"
        texts.append(text if default is None else f"{text} = {text_of(default)}")
    returns = None if isinstance(node, ast.Lambda) else node.returns
    return texts if returns is None else [*texts, f"-> {text_of(returns)}"]


def text_of(node: ast.expr) -> str:
    """The text of an expression; `ast.unparse` takes long for the usual ones."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and node.value in (None, True, False):
        return repr(node.value)
    return ast.unparse(node)
