"""Functions of Python: the one behind a method or a wrapper, what it has from outside, and the model it was made of."""

from __future__ import annotations

import builtins
import functools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import attrs

from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.op import Op, expect

_AROUND_A_FUNCTION = (functools.partial, functools.partialmethod, functools.cached_property)


def layers_of(function: object) -> Iterator[Any]:
    """The function itself and, as far as there are any, the callables inside of it: in a method, a property, a partial
    application, an object with `__call__`, or what a decorator made. The last one is a Python function, if it has one.
    """
    target: Any = function
    for _ in range(100):
        if target is None:
            return
        yield target
        if isinstance(target, types.FunctionType) and not hasattr(target, "__wrapped__"):
            return
        if isinstance(target, _AROUND_A_FUNCTION):
            target = cast("functools.partial[Any]", target).func
        elif isinstance(target, property):
            target = target.fget
        elif isinstance(target, type):
            target = getattr(target, "__wrapped__", None)
        else:
            inner = getattr(target, "__wrapped__", None) or getattr(target, "__func__", None)
            target = inner or getattr(target, "fn", None) or _call_of(target)


def _call_of(target: object) -> types.FunctionType | None:
    """The method `__call__` of an object's class, if it is one of Python."""
    cls: Any = type(target)
    call = cls.__call__ if callable(target) and cls is not types.FunctionType else None
    return call if isinstance(call, types.FunctionType) else None


def plain_function(function: object) -> Any:
    """The Python function in a method, a property, a partial application, a callable object, or the wrapper that a
    decorator made; the innermost callable where there is none."""
    return [function, *layers_of(function)][-1]


@attrs.frozen
class Surroundings:
    """What a function has from outside: its globals, and the cells of the variables of functions around it."""

    scope: dict[str, Any]
    cells: Mapping[str, types.CellType]


def surroundings_of(function: types.FunctionType) -> Surroundings:
    """What a function has from outside; for one that `interpret` made, what its model has."""
    origin = origin_of(function)
    if origin is not None:
        return origin.surroundings
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return Surroundings(function.__globals__, cells)


def new_surroundings(
    call: str, free: Sequence[str], like: Callable[..., Any] | None, names: Mapping[str, Any]
) -> tuple[Surroundings, types.FunctionType | None]:
    """What a function made from a model by `call` has from outside, and the Python function in `like`.

    The function has the globals and the closure of `like`, and those of `names` before them. Raises `KernelTypeError`
    for a variable of a function around, in `free`, that neither has.
    """
    scope: dict[str, Any] = {"__builtins__": builtins, **names}
    cells: dict[str, types.CellType] = {}
    function: types.FunctionType | None = None
    if like is not None:
        message = f"{call}: `like` must be a Python function"
        function = expect(plain_function(like), types.FunctionType, message)
        around = surroundings_of(function)
        scope = {**around.scope, **names} if names else around.scope
        cells |= around.cells
    cells |= {name: types.CellType(names[name]) for name in free if name in names}
    missing = [name for name in free if name not in cells]
    if missing:
        hint = "pass the function that the model comes from as `like`, or the values by name"
        raise KernelTypeError(f"{call}: the model needs {', '.join(missing)} of a function around it", hint=hint)
    return Surroundings(scope, cells), function


@attrs.frozen(eq=False)
class Origin:
    """The model that a function was made of. `code` is the code that the function got: a program may change it, and a
    wrapper may take over the attributes of the function."""

    code: types.CodeType
    model: Op
    surroundings: Surroundings


def keep_origin(function: Any, model: Op, surroundings: Surroundings) -> None:
    """Keep on a function the model that it was made of."""
    function.__dict__["__ziggurat_origin__"] = Origin(function.__code__, model, surroundings)


def origin_of(function: object) -> Origin | None:
    """The model that a function was made of; None for a function of a source."""
    if not isinstance(function, types.FunctionType):
        return None
    origin = function.__dict__.get("__ziggurat_origin__")
    return origin if origin is not None and origin.code is function.__code__ else None
