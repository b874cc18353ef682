"""The functions by which reductions and scans combine two elements, written in the language.

Their symbols are the names without the underscore, which distinguishes them from Python's builtins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ziggurat.frontends import language as zg
from ziggurat.frontends.language.function import Function
from ziggurat.frontends.reflection import reader


def _combiner(fn: Callable[..., Any]) -> Function:
    return Function(fn, reader(fn), fn.__name__.removeprefix("_"))


@_combiner
def _sum(a: Any, b: Any) -> Any:
    return a + b


@_combiner
def _mul(a: Any, b: Any) -> Any:
    return a * b


def _of_call(name: str, call: Callable[..., Any]) -> Function:
    def combined(a: Any, b: Any) -> Any:
        return call(a, b)

    return Function(combined, reader(combined), name)


_max, _min, _or = _of_call("max", zg.maximum), _of_call("min", zg.minimum), _of_call("or", zg.or_)
_xor, _and = _of_call("xor", zg.xor), _of_call("and", zg.and_)

# A number wins against NaN (which differs from itself), as in `maximum`. Among equal numbers and among NaNs the smaller
# index wins: otherwise the result would depend on the order of combination, which is not defined.


@_combiner
def _argmax(a: Any, i: Any, b: Any, j: Any) -> Any:
    better = (a > b) | ((a == a) & (b != b))
    equal = (a == b) | ((a != a) & (b != b))
    first = better | (equal & (i < j))
    return zg.where(first, a, b), zg.where(first, i, j)


@_combiner
def _argmin(a: Any, i: Any, b: Any, j: Any) -> Any:
    better = (a < b) | ((a == a) & (b != b))
    equal = (a == b) | ((a != a) & (b != b))
    first = better | (equal & (i < j))
    return zg.where(first, a, b), zg.where(first, i, j)


# The functions by the call that uses them.
COMBINE: Final[dict[str, Function]] = {
    "sum": _sum,
    "max": _max,
    "min": _min,
    "xor_sum": _xor,
    "argmax": _argmax,
    "argmin": _argmin,
    "cumsum": _sum,
    "cumprod": _mul,
    "prod": _mul,
    "cummax": _max,
    "cummin": _min,
    "reduce_or": _or,
    "any": _or,
    "all": _and,
}
