"""Linking: a kernel and the functions it reaches, as one module of Python models."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import KernelErrors, KernelSyntaxError, ZigguratError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform, with_attributes
from ziggurat.frontends.language import Function
from ziggurat.transforms.unsupported import kernel_model


def link(function: Function) -> core.Module:
    """A module of the Python models of `function` and of what it calls, callees first.

    Of functions of one name, such as those that a function of Python makes, the later ones have a number after it.
    Raises what is wrong with the source of any of these, `KernelSyntaxError` for recursion, and `KernelErrors` where
    there is more than one error.
    """
    functions: dict[str, Function] = {}
    models: list[tuple[Function, Op]] = []
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
            model = kernel_model(function)
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
        name = model.attributes["sym_name"]
        symbols = itertools.chain([name], (f"{name}.{number}" for number in itertools.count(1)))
        functions[next(symbol for symbol in symbols if symbol not in functions)] = function
        models.append((function, model))

    add(function, None)
    if errors:
        raise KernelErrors.of(errors)
    builder = Builder.root()
    symbols = {function: symbol for symbol, function in functions.items()}
    for function, model in models:
        callees = {symbol: symbols[callee] for symbol, callee in function.callees.items()}
        builder.add(with_attributes(_calling(model, callees), {"sym_name": symbols[function]}))
    builder.add(core.Unreachable())
    return core.Module(builder.finish())


def reached(function: Function) -> list[Function]:
    """A function and those that it may call, each once, without those whose source has errors."""
    functions = [function]
    _ = function.model  # Its making finds what it calls.
    for caller in functions:
        for callee in caller.callees.values():
            if callee not in functions:
                with contextlib.suppress(ZigguratError):
                    _ = callee.model
                    functions.append(callee)
    return functions


def _calling(model: Op, callees: Mapping[str, str]) -> Op:
    """A copy of a model that refers to functions by other symbols."""

    def with_symbol(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(op, core.FuncCall | core.FuncRef) or callees.get(op.callee, op.callee) == op.callee:
            return None
        symbol = callees[op.callee]
        if isinstance(op, core.FuncRef):
            return builder.add(core.FuncRef(symbol, op.type))
        return builder.add(core.FuncCall(operands, symbol, type=op.type, keywords=op.keywords))

    return transform(model, with_symbol)
