"""Which arguments of a call go to which parameters: checked at the call, so that the error is at the call."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import attrs

from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.frontends.language.function import Function
from ziggurat.frontends.language.signature import Signature
from ziggurat.frontends.reflection.names import BUILTINS, suggest
from ziggurat.frontends.reflection.source import Source
from ziggurat.frontends.reflection.unsupported import unsupported


def check_form(node: ast.Call, source: Source) -> None:
    """Raise `KernelSyntaxError` for `*arguments` and `**arguments`."""
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            raise unsupported(argument, source, "star argument")
    for keyword in node.keywords:
        if keyword.arg is None:
            raise unsupported(keyword, source, "keyword arguments")


def check_call(signature: Signature, node: ast.Call, source: Source) -> None:
    """Raise `KernelTypeError` when the arguments do not fit a call of the language."""
    names = {p.name for p in signature.parameters}
    for keyword in node.keywords:
        if keyword.arg not in names:
            hint = suggest(keyword.arg or "", names)
            raise KernelTypeError(
                f"zg.{signature.name} has no parameter '{keyword.arg}'",
                source.span(keyword),
                f"{hint} zg.{signature}" if hint else f"zg.{signature}",
            )
    try:
        signature.bind(node.args, {keyword.arg or "": keyword.value for keyword in node.keywords})
    except KernelTypeError as error:
        raise KernelTypeError(error.summary, source.span(node), error.hint) from None


def check_builtin(name: str, node: ast.Call, source: Source) -> None:
    """Raise `KernelTypeError` when the arguments do not fit a builtin."""
    if node.keywords:
        raise KernelTypeError(
            f"{name}() takes no keyword arguments in a kernel", source.span(node.keywords[0]), "give it by its place"
        )
    least, most = BUILTINS[name]
    if not least <= len(node.args) <= most:
        count = str(least) if least == most else f"{least} to {most}" if most < 1000 else f"at least {least}"
        raise KernelTypeError(
            f"{name}() takes {count} argument{'s' if not count.endswith('1') else ''}, got {len(node.args)}",
            source.span(node),
        )


@attrs.frozen
class Default:
    """The default value of a parameter that the call leaves out."""

    parameter: str
    value: Any


def bind_function(function: Function, node: ast.Call, source: Source) -> list[ast.expr | Default]:
    """What each parameter of a user's function gets, in the order of the parameters.

    Raises `KernelTypeError` when the arguments do not fit.
    """
    shown = function.written

    def misfit(summary: str, at: ast.AST = node, hint: str | None = None) -> KernelTypeError:
        return KernelTypeError(f"{function.name} {summary}", source.span(at), f"{hint} {shown}" if hint else shown)

    parameters = function.signature.parameters.values()
    places = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    if len(node.args) > len(places):
        raise misfit(f"takes {len(places)} positional argument{'s' if len(places) != 1 else ''}, got {len(node.args)}")
    bound = dict(zip(places, node.args, strict=False))
    for keyword in node.keywords:
        name = keyword.arg or ""
        if name not in named:
            raise misfit(f"has no parameter '{name}' to give by name", keyword, suggest(name, named))
        if name in bound:
            raise misfit(f"got '{name}' twice", keyword)
        bound[name] = keyword.value
    result: list[ast.expr | Default] = []
    for p in parameters:
        if p.name in bound:
            result.append(bound[p.name])
        elif p.default is not inspect.Parameter.empty:
            result.append(Default(p.name, p.default))
        elif p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise misfit(f"needs its argument '{p.name}'")
    return result
