"""Linking: a kernel and the functions it reaches, as one module of Python models."""

from __future__ import annotations

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import KernelErrors, KernelSyntaxError, ZigguratError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.transform import transform
from ziggurat.frontends.language import Function


def link(function: Function) -> core.Module:
    """A module of the Python models of `function` and of what it calls, callees first.

    Raises what is wrong with the source of any of these, `KernelSyntaxError` for recursion and for two functions of
    one name, and `KernelErrors` where there is more than one error.
    """
    functions: dict[str, tuple[Function, Op]] = {}
    errors: list[ZigguratError] = []
    path: list[Function] = []
    done: set[Function] = set()

    def add(function: Function, place: Location | None) -> None:
        """A function that is referred to at `place`, after the functions that it refers to itself."""
        if function in path:
            chain = " → ".join(f.name for f in [*path[path.index(function) :], function])
            errors.append(KernelSyntaxError(f"recursion: {chain}", place, "write a loop instead"))
            return
        if function in done:
            return
        done.add(function)
        try:
            model = function.model
        except ZigguratError as error:
            for part in error.parts:
                part.location = place if part.location is None else part.location.called_from(place)
                errors.append(part)
            return
        places: dict[str, Location | None] = {}
        for op in model.walk():
            if isinstance(op, core.FuncCall | core.FuncRef):
                places.setdefault(op.callee, op.location)
        path.append(function)
        for symbol, callee in function.callees.items():
            at = places.get(symbol)
            add(callee, at if at is None or place is None else at.called_from(place))
        path.pop()
        symbol = model.attributes["sym_name"]
        if functions.setdefault(symbol, (function, model))[0] is not function:
            errors.append(
                KernelSyntaxError(
                    f"two functions that are reached have the same name, '{symbol}'",
                    place,
                    "rename one of them: in a module functions are told apart by their names",
                )
            )

    add(function, None)
    if errors:
        raise KernelErrors.of(errors)
    builder = Builder.root()
    for _, model in functions.values():
        builder.add(transform(model))
    builder.add(core.Unreachable())
    return core.Module(builder.finish())
