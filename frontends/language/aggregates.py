"""Aggregates: classes whose objects kernels make, as `ziggurat.triton` declares them."""

from __future__ import annotations

import inspect
from typing import Any


class PartialObject:
    """An object of an aggregate to which some fields have been assigned: `self` in an `__init__`."""

    def __init__(self, cls: type[Any], fields: tuple[str, ...]) -> None:
        self.cls, self.fields = cls, fields


def annotations_of(cls: type[Any]) -> dict[str, Any]:
    """The fields of a record with their annotations: first those of the classes that it derives from."""
    return {name: kind for base in reversed(cls.__mro__) for name, kind in inspect.get_annotations(base).items()}


def is_constant_field(cls: type[Any], name: str) -> bool:
    """Whether a field of an aggregate is a constant, or a tuple, by its annotation. That may be a string."""
    kind = annotations_of(cls)[name]
    return str(getattr(kind, "__name__", kind)).rpartition(".")[2] in ("constexpr", "tuple")


def member(thing: Any, name: str) -> Any:
    """An attribute of an object of Python's. Functions in the class of an aggregate are functions of its language.

    Raises `AttributeError` where there is none.
    """
    functions: dict[str, Any] = getattr(thing, "ziggurat_functions", {})
    return functions[name] if name in functions else getattr(thing, name)
