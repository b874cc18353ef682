"""The table of the functions by their names in CUDA's libdevice, and the decorators that add to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ziggurat.codemodel.types import f64
from ziggurat.frontends import language as zg
from ziggurat.frontends.language.function import Function
from ziggurat.frontends.language.signature import CALLS, Call
from ziggurat.frontends.reflection import reader

FUNCTIONS: Final[dict[str, Function]] = {}


def add_function(name: str, fn: Callable[..., Any]) -> Function:
    """Add a function to the table; its symbol is `libdevice.<name>`."""
    function = FUNCTIONS[name] = Function(fn, reader(fn), f"libdevice.{name}")
    return function


def libdevice(fn: Callable[..., Any]) -> Function:
    """Decorator: a function of the table with the name of its definition, without a `_` at the end."""
    return add_function(fn.__name__.removesuffix("_"), fn)


def helper(fn: Callable[..., Any]) -> Function:
    """Decorator: a function that those of the table are made of."""
    return Function(fn, reader(fn), f"libdevice._{fn.__name__}")


def in_f64(fn: Callable[..., Any]) -> Function:
    """Decorator: a function of one f64, added to the table. One of a narrower float is computed in f64 and rounded."""
    name = fn.__name__.removesuffix("_")
    body = Function(fn, reader(fn), f"libdevice._{name}")

    def unary(x: Any) -> Any:
        return zg.cast(body(zg.cast(x, f64)), x.dtype)

    add_function(name, unary)
    return body


# The functions that are one call of the language of another name, by that name; and those that have its name.
_OTHER_NAMES: Final = {
    "add_rn": "add", "sub_rn": "sub", "mul_rn": "mul", "fma_rn": "fma", "nearbyint": "rint",
    "fmod": "mod", "fast_dividef": "div", "fast_expf": "exp",
}  # fmt: skip
_SAME_NAMES: Final = (
    "abs", "acos", "asin", "atan", "brev", "ceil", "clz", "cos", "cosh", "div_rn", "erf", "expm1", "floor", "fma",
    "log1p", "popc", "rint", "round", "rsqrt", "sin", "sinh", "sqrt", "sqrt_rn", "tan", "tanh", "trunc",
)  # fmt: skip


def _calling(call: Call[..., Any]) -> Callable[..., Any]:
    def unary(x: Any) -> Any:
        return call(x)

    def binary(x: Any, y: Any) -> Any:
        return call(x, y)

    def ternary(x: Any, y: Any, z: Any) -> Any:
        return call(x, y, z)

    return (unary, binary, ternary)[len(call.signature.parameters) - 1]


for _name, _call in {**_OTHER_NAMES, **{name: name for name in _SAME_NAMES}}.items():
    add_function(_name, _calling(CALLS[_call]))
