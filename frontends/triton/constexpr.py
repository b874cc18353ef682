"""`tl.constexpr` on the host: a value that a kernel knows at compile time, with Python's operators."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any


class constexpr:
    """A value known at compile time; also the annotation of a parameter or a variable that holds one.

    Operators give another one. Where its truth, its index or its text is asked, it is the value.
    """

    # Read by `ziggurat.frontends.language.constants`, which knows no Triton.
    ziggurat_constant = True

    def __init__(self, value: Any) -> None:
        self.value: Any = value.value if isinstance(value, constexpr) else value

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return self.value

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.value(*arguments, **keywords)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, constexpr) else value  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _binary(apply: Callable[[Any, Any], Any]) -> Callable[[constexpr, Any], constexpr]:
    return lambda self, other: constexpr(apply(self.value, _plain(other)))


def _reflected(apply: Callable[[Any, Any], Any]) -> Callable[[constexpr, Any], constexpr]:
    return lambda self, other: constexpr(apply(_plain(other), self.value))


def _unary(apply: Callable[[Any], Any]) -> Callable[[constexpr], constexpr]:
    return lambda self: constexpr(apply(self.value))


_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift", "rshift")
for _name in _OPERATORS:
    _stem = _name.rstrip("_")
    setattr(constexpr, f"__{_stem}__", _binary(getattr(operator, _name)))
    setattr(constexpr, f"__r{_stem}__", _reflected(getattr(operator, _name)))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(constexpr, f"__{_name}__", _binary(getattr(operator, _name)))
for _name in ("neg", "pos", "invert"):
    setattr(constexpr, f"__{_name}__", _unary(getattr(operator, _name)))
