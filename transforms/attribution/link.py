"""Linking: a kernel and the functions it reaches, as one module of Python models."""

from __future__ import annotations

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import KernelSyntaxError
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.transform import transform
from ziggurat.frontends.language import Function


def link(function: Function) -> core.Module:
    """A module of the Python models of `function` and of what it calls, callees first.

    Raises `KernelSyntaxError` for recursion.
    """
    found: dict[str, Op] = {}
    _collect(function, found, [])
    builder = Builder.root()
    for model in found.values():
        builder.add(transform(model))
    builder.add(core.Unreachable())
    return core.Module(builder.finish())


def _collect(function: Function, found: dict[str, Op], path: list[Function]) -> None:
    if function in path:
        chain = " → ".join(f.name for f in [*path[path.index(function) :], function])
        raise KernelSyntaxError(f"recursion: {chain}", function.model.location, "write a loop instead")
    model = function.model
    for callee in function.callees.values():
        _collect(callee, found, [*path, function])
    found.setdefault(model.attributes["sym_name"], model)
