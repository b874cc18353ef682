"""Tables of functions by op class, such as the emitters of PTX or the rules of the interpreter.

    emitters = OpTable("PTX emitter")

    @emitters.of(arith.AddI)
    def add(emitter, op):
        ...

    emitters[op](emitter, op)

A function may also be registered for a base class of ops or for a trait. It then serves each op whose class derives
from it, unless a class earlier in the op's method resolution order has an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from ziggurat.codemodel.errors import InternalError, TargetError
from ziggurat.codemodel.op import Op, is_foreign

_GUIDE = "docs/guides/your-own-dialect.md"
F_ = TypeVar("F_", bound=Callable[..., Any])
G_ = TypeVar("G_", bound=Callable[..., Any])


class OpTable(Generic[F_]):
    """Functions by op class. `noun` names one of them in messages: "PTX emitter"."""

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self._registered: dict[type, F_] = {}
        self._cache: dict[type, F_ | None] = {}

    def of(self, *classes: type) -> Callable[[G_], G_]:
        """Decorator: register the function for these classes. Raises `ValueError` when one of them has an entry."""

        def register(function: G_) -> G_:
            for cls in classes:
                if cls in self._registered:
                    raise ValueError(f"'{_name(cls)}' has a {self.noun} already")
                self._registered[cls] = function  # pyright: ignore[reportArgumentType]
            self._cache.clear()
            return function

        return register

    def get(self, cls: type) -> F_ | None:
        """The function for an op class: that of the first class in its method resolution order that has an entry; None
        if no class has one."""
        try:
            return self._cache[cls]
        except KeyError:
            function = next((self._registered[base] for base in cls.__mro__ if base in self._registered), None)
            self._cache[cls] = function
            return function

    def __getitem__(self, op: Op) -> F_:
        """The function for an op. Raises `TargetError` when there is none for an op that the package does not declare,
        and `InternalError` for one of its own."""
        function = self.get(type(op))
        if function is None:
            if is_foreign(type(op)):
                hint = f"replace the op by a transform before: {_GUIDE}"
                raise TargetError(f"no {self.noun} is registered for '{op.NAME}'", op.location, hint=hint)
            raise InternalError(f"'{op.NAME}' has no {self.noun}", str(op))
        return function

    def __contains__(self, cls: type) -> bool:
        return self.get(cls) is not None

    def missing(self, classes: Iterable[type[Op]]) -> list[str]:
        """The names of those of `classes` that have no function, sorted."""
        return sorted(cls.NAME for cls in classes if cls not in self)

    def serves(self, cls: type) -> bool:
        """Whether a class that the package does not declare has a function. That of an abstract class of the package
        does not count: it knows the ops of the package."""
        return any(base in self._registered for base in cls.__mro__ if _name(base) != base.__name__ or is_foreign(base))


def demand(model: Op, tables: Mapping[str, OpTable[Any]]) -> None:
    """Raise `TargetError` for an op that the package does not declare and that has no function in any of these tables,
    which are given by their names in Python."""
    for op in model.walk():
        cls = type(op)
        if is_foreign(cls) and not any(table.serves(cls) for table in tables.values()):
            places = " or ".join(f"@ziggurat.{name}.of({cls.__name__})" for name in tables)
            raise TargetError(
                f"no {next(iter(tables.values())).noun} is registered for '{op.NAME}'",
                op.location,
                hint=f"register one with {places}, or replace the op by a transform before: {_GUIDE}",
            )


def _name(cls: type) -> str:
    return getattr(cls, "NAME", "") or cls.__name__
