"""Quoted code: a function with its model, and the values that it has from outside."""

from __future__ import annotations

import functools
import inspect
import itertools
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, cast

import attrs

from ziggurat.codemodel.dialects import py
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.python_functions import layers_of, plain_function, surroundings_of
from ziggurat.frontends.python.reflect import reflect

P = ParamSpec("P")
R = TypeVar("R")


@attrs.frozen(eq=False)
class Quoted(Generic[P, R]):
    """A function as code to look at: `model` is its code model, `captured` has the values that it has from outside.

    `captured` holds, by name, the variables of functions around and the globals that the model names, as they were when
    the function was quoted; builtins are left out. It also has the parameters that a partial application, a bound
    method or an object with `__call__` gives values to: `self`, say. The model has all parameters. A call runs the
    function, with the values that are bound.
    """

    function: Callable[P, R]
    model: Op
    captured: Mapping[str, Any]

    @property
    def __wrapped__(self) -> Callable[P, R]:
        """The function, where Python looks for it."""
        return self.function

    def __call__(self, *arguments: P.args, **keywords: P.kwargs) -> R:
        return self.function(*arguments, **keywords)

    def __repr__(self) -> str:
        return f"<quoted {getattr(self.function, '__qualname__', self.function)}>"


def quote(function: Callable[P, R]) -> Quoted[P, R]:
    """The function as quoted code: `q.model`, `q.captured`, and `q(…)` as before.

    >>> rate = 3
    >>> q = quote(lambda x: x * rate)  # doctest: +SKIP
    >>> q.captured, q(2)  # doctest: +SKIP
    ({'rate': 3}, 6)

    Raises `KernelSyntaxError` for a function whose source is not known, and `KernelTypeError` for a partial application
    whose arguments do not fit. A quoted function is itself.
    """
    if isinstance(function, Quoted):
        return function  # pyright: ignore[reportUnknownVariableType]
    fn = plain_function(function)
    model = reflect(fn)
    return Quoted(function, model, types.MappingProxyType({**dict(_captured(fn, model)), **_bound(function, fn)}))


def _captured(fn: types.FunctionType, model: Op) -> Iterator[tuple[str, Any]]:
    """The names from outside with their values, in the order of the model."""
    around = surroundings_of(fn)
    for name in dict.fromkeys(outer_names(model)):
        cell = around.cells.get(name)
        if cell is not None:
            if cell != types.CellType():  # One without a value equals a new one.
                yield name, cell.cell_contents
        elif name in around.scope:
            yield name, around.scope[name]


def _bound(function: object, fn: types.FunctionType) -> Mapping[str, Any]:
    """The parameters of the function that are bound to values, with these."""
    positional: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    for layer, inner in itertools.pairwise(layers_of(function)):
        if isinstance(layer, functools.partial):
            partial = cast("functools.partial[Any]", layer)
            positional, keywords = (*partial.args, *positional), {**partial.keywords, **keywords}
        elif isinstance(layer, types.MethodType):
            positional = (layer.__self__, *positional)
        elif inner is type(cast(object, layer)).__call__:
            positional = (layer, *positional)
    try:
        return inspect.signature(fn).bind_partial(*positional, **keywords).arguments
    except TypeError as error:
        message = f"the arguments of a partial application must fit '{fn.__name__}'; got: {error}"
        raise KernelTypeError(message, hint="quote the function itself") from None


def outer_names(model: Op) -> Iterator[str]:
    """The names from outside that a model reads."""
    for op in model.walk():
        if isinstance(op, py.Outer):
            yield op.name
        elif isinstance(op, py.Invoke) and op.callee[0] != ".":
            yield op.callee
