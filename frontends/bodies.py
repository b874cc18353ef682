"""The bodies of ops in the Python code model, as every frontend builds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Body, Value
from ziggurat.codemodel.types import Type, pyobject

T = TypeVar("T")


def symbol_of(table: dict[str, T], name: str, thing: T, separator: str = ".") -> str:
    """The name of a thing in a table, which gets it: `name`, with a number where another thing has that."""
    symbol, count = name, 0
    while table.setdefault(symbol, thing) is not thing:
        count += 1
        symbol = f"{name}{separator}{count}"
    return symbol


class Bodies:
    """Builds a function of the Python code model. `builder` builds the body that ops are added to."""

    builder: Builder

    def filled(
        self, fill: Callable[[Builder], Value | None], parameters: Sequence[Type], place: Location | None = None
    ) -> Body:
        """A body that `fill` adds ops to. It yields the value that `fill` returns, unless it has a terminator already.

        `place` is the location of the yield. During the call `builder` is that of the body, which `fill` gets.
        """
        outer = self.builder
        inner = self.builder = outer.nested(parameters, pyobject)
        try:
            value = fill(inner)
            if not inner.terminated:
                inner.add(core.Yield(() if value is None else (value,)), place)
            return inner.finish()
        except BaseException:
            inner.abandon()
            raise
        finally:
            self.builder = outer
