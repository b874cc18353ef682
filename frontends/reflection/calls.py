"""Checks that the arguments of a call fit its parameters, with the call as the location of errors."""

from __future__ import annotations

import ast

from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.frontends.language.function import Default, Function, suggest
from ziggurat.frontends.language.signature import Signature
from ziggurat.frontends.reflection.names import BUILTINS
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
            f"{name}() takes no keyword arguments in a kernel", source.span(node.keywords[0]), "pass it by position"
        )
    least, most = BUILTINS[name]
    if not least <= len(node.args) <= most:
        count = str(least) if least == most else f"{least} to {most}" if most < 1000 else f"at least {least}"
        raise KernelTypeError(
            f"{name}() takes {count} argument{'s' if not count.endswith('1') else ''}; got {len(node.args)}",
            source.span(node),
        )


def bind_function(function: Function, node: ast.Call, source: Source) -> list[ast.expr | Default]:
    """The argument or the default of each parameter of a user's function, in order.

    Raises `KernelTypeError` when the arguments do not fit.
    """

    def misfit(summary: str, hint: str | None, keyword: int | None) -> KernelTypeError:
        return KernelTypeError(summary, source.span(node if keyword is None else node.keywords[keyword]), hint)

    keywords = [(keyword.arg or "", keyword.value) for keyword in node.keywords]
    return list(function.bind(node.args, keywords, misfit).values())
