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
    collected = _Collected()
    collected.add(function, None)
    if collected.errors:
        raise collected.errors[0] if len(collected.errors) == 1 else KernelErrors(collected.errors)
    builder = Builder.root()
    for _, model in collected.found.values():
        builder.add(transform(model))
    builder.add(core.Unreachable())
    return core.Module(builder.finish())


class _Collected:
    """The functions met so far: `found` by symbol; `path` led to the present one; `done` are not looked at again."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[Function, Op]] = {}
        self.errors: list[ZigguratError] = []
        self.path: list[Function] = []
        self.done: set[Function] = set()

    def add(self, function: Function, place: Location | None) -> None:
        """A function that is referred to at `place`, after what it refers to itself."""
        if function in self.path:
            chain = " → ".join(f.name for f in [*self.path[self.path.index(function) :], function])
            self.errors.append(KernelSyntaxError(f"recursion: {chain}", place, "write a loop instead"))
            return
        if function in self.done:
            return
        self.done.add(function)
        try:
            model = function.model
        except ZigguratError as error:
            for one in error.errors if isinstance(error, KernelErrors) else (error,):
                one.location = place if one.location is None else one.location.called_from(place)
                self.errors.append(one)
            return
        places: dict[str, Location | None] = {}
        for op in model.walk():
            if isinstance(op, core.FuncCall | core.FuncRef):
                places.setdefault(op.callee, op.location)
        self.path.append(function)
        for symbol, callee in function.callees.items():
            at = places.get(symbol)
            self.add(callee, at if at is None or place is None else at.called_from(place))
        self.path.pop()
        symbol = model.attributes["sym_name"]
        other, _ = self.found.setdefault(symbol, (function, model))
        if other is not function:
            self.errors.append(
                KernelSyntaxError(
                    f"two functions that are reached have the same name, '{symbol}'",
                    place,
                    "rename one of them: in a module functions are told apart by their names",
                )
            )
