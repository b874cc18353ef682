"""The table of the functions by their names in CUDA's libdevice, and the decorators that add to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ziggurat.codemodel.types import f64
from ziggurat.frontends import language as zg
from ziggurat.frontends.language.function import Function
from ziggurat.frontends.reflection import reader

FUNCTIONS: Final[dict[str, Function]] = {}


def added(name: str, fn: Callable[..., Any]) -> Function:
    """Add a function to the table; its symbol is `libdevice.<name>`."""
    made = FUNCTIONS[name] = Function(fn, reader(fn), f"libdevice.{name}")
    return made


def libdevice(fn: Callable[..., Any]) -> Function:
    """Decorator: a function of the table with the name of its definition, without a `_` at the end."""
    return added(fn.__name__.removesuffix("_"), fn)


def helper(fn: Callable[..., Any]) -> Function:
    """Decorator: a function that those of the table are made of."""
    return Function(fn, reader(fn), f"libdevice._{fn.__name__}")


def in_f64(fn: Callable[..., Any]) -> Function:
    """Decorator: a function of one f64, added to the table. One of a narrower float is computed in f64 and rounded."""
    name = fn.__name__.removesuffix("_")
    body = Function(fn, reader(fn), f"libdevice._{name}")

    def unary(x: Any) -> Any:
        return zg.cast(body(zg.cast(x, f64)), x.dtype)

    added(name, unary)
    return body
