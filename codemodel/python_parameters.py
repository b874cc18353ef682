"""Parameters of Python functions: those of a definition, and those that a model has as they are written."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.dialects.py_suites import parameter_count
from ziggurat.codemodel.errors import KernelTypeError, TargetError
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.python_texts import statement_of

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_MISSING: Final = object()
_PARAMETER: Final = inspect.Parameter


def parameters_of(node: FunctionNode) -> list[tuple[str, ast.arg | None, ast.expr | None]]:
    """The parameters in the order of a signature, each with its mark (`*`, `**` or nothing), node and default. The
    marks `/` and `*` on their own have no node. Python's own order has keyword parameters before `*args`."""
    arguments = node.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    parameters: list[tuple[str, ast.arg | None, ast.expr | None]] = []
    for index, (parameter, default) in enumerate(zip(plain, defaults, strict=True)):
        parameters.append(("", parameter, default))
        if index == len(arguments.posonlyargs) - 1:
            parameters.append(("/", None, None))
    if arguments.vararg is not None:
        parameters.append(("*", arguments.vararg, None))
    elif arguments.kwonlyargs:
        parameters.append(("*", None, None))
    parameters += [("", p, default) for p, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg is not None:
        parameters.append(("**", arguments.kwarg, None))
    return parameters


def definition_of(func: core.Func) -> Any:
    """The definition of a function with the parameters of this one; None where all are plain.

    Raises `TargetError` where they are not written as in Python, or are not as many as those of the body.
    """
    if not func.parameters:
        return None
    brackets = f"[{type_parameters_of(func)}]" if func.parameters[0].startswith("[") else ""
    *others, last = func.parameters[bool(brackets) :] or ("",)
    returns = last if last.startswith("->") else ""
    text = ", ".join(others if returns else (*others, last))
    statement = statement_of(f"def _{brackets}({text}) {returns}: pass", func, "the parameters of a func", text)
    count = len(func.body.parameters)
    is_definition = isinstance(statement, ast.FunctionDef)
    nodes = [node for _, node, _ in parameters_of(statement) if node is not None] if is_definition else []
    if not len(nodes) == parameter_count(func.parameters) == count:
        raise TargetError(f"the parameters of a func must be those of its body, {count}; got {text!r}", func.location)
    return statement


def type_parameters_of(func: core.Func) -> str:
    """The type parameters of a function, as they are written between the brackets."""
    first = func.parameters[0] if func.parameters else ""
    return first[1:-1] if first.startswith("[") else ""


def defaults_of(
    func: core.Func, names: Sequence[str], call: str, scope: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The defaults of a model, as `__defaults__` and `__kwdefaults__` have them, of parameters with these names.

    A default is a literal or a name in `scope` or of a builtin. Raises `KernelTypeError` for another, which only the
    original function has.
    """
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    following = iter(names)
    is_keyword = False
    definition = definition_of(func)
    for mark, parameter, default in parameters_of(definition) if definition is not None else ():
        name = "" if parameter is None else next(following)
        is_keyword |= mark.startswith("*")
        if default is not None and is_keyword:
            keywords[name] = _default(func, name, default, call, scope)
        elif default is not None:
            positional.append(_default(func, name, default, call, scope))
    return tuple(positional), keywords


def _default(func: core.Func, name: str, node: ast.expr, call: str, scope: Mapping[str, Any]) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        pass
    if isinstance(node, ast.Name):
        value = scope.get(node.id, getattr(builtins, node.id, _MISSING))
        if value is not _MISSING:
            return value
    summary = f"{call}: the default of '{name}' must be a literal or a name with a value; got {ast.unparse(node)}"
    hint = "pass the function that the model comes from as `like`; it has the defaults"
    raise KernelTypeError(summary, func.location, hint)


def names_of(function: Op) -> list[str]:
    """The names of a function's parameters; of one that no variable holds, that which is written, or one by its
    number."""
    names = py.parameter_names(function)
    texts = written_names(function.attributes["parameters"]) or [f"argument_{index}" for index in range(len(names))]
    return [name or text for name, text in zip(names, texts, strict=True)]


def written_names(texts: Sequence[str]) -> list[str]:
    """The names of parameters as they are written."""
    parameters = [text for text in texts if not text.startswith(("->", "[")) and text not in ("/", "*")]
    return [re.split(r"[:= ]", text.lstrip("*"), maxsplit=1)[0] for text in parameters]


def signature_of(
    texts: Sequence[str], names: Sequence[str], defaults: Sequence[Any], keywords: Mapping[str, Any]
) -> inspect.Signature:
    """The signature of parameters as they are written, with these names. `defaults` are those of the last ones by
    position, `keywords` those of any by name."""
    kind = _PARAMETER.POSITIONAL_OR_KEYWORD
    following = iter(names)
    parameters: list[inspect.Parameter] = []
    for text in texts or names:
        if text == "/":
            parameters = [p.replace(kind=_PARAMETER.POSITIONAL_ONLY) for p in parameters]
        elif text == "*":
            kind = _PARAMETER.KEYWORD_ONLY
        elif not text.startswith(("->", "[")):
            own = _PARAMETER.VAR_KEYWORD if text[:2] == "**" else _PARAMETER.VAR_POSITIONAL if text[0] == "*" else kind
            kind = _PARAMETER.KEYWORD_ONLY if own is _PARAMETER.VAR_POSITIONAL else kind
            parameters.append(_PARAMETER(next(following), own))
    by_position = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    by_name = {**dict(zip(reversed(by_position), reversed(defaults), strict=False)), **keywords}
    return inspect.Signature([p.replace(default=by_name.get(p.name, p.empty)) for p in parameters])
