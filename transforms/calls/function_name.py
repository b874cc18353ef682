"""Functions as values: the value of a constant that is a function."""

from __future__ import annotations

from typing import Any, cast

import attrs

from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ConstantType, Type, TypeSyntax
from ziggurat.frontends.language import Function


@attrs.frozen(str=False, repr=False)
class FunctionName(Type):
    """The value of a constant that is a function: its name, its Python model, and where it comes from, if known."""

    symbol: str
    model: Op = attrs.field(eq=False)
    function: Function | None = attrs.field(default=None, eq=False)
    identity: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "identity", id(self.model))

    def syntax(self) -> TypeSyntax:
        return TypeSyntax("function", (TypeSyntax(self.symbol, quoted=True),))

    __str__ = Type.__str__

    def __repr__(self) -> str:
        return self.symbol


def function_name(function: Function) -> FunctionName:
    """A function as a constant. Raises what is wrong with its source."""
    return FunctionName(function.fn.__qualname__, function.model, function)


def functions_in(value: Any) -> list[Function]:
    """The functions that a constant is, or that are items of it."""
    if isinstance(value, tuple):
        return [function for item in value for function in functions_in(item)]  # pyright: ignore[reportUnknownVariableType]
    return [value.function] if isinstance(value, FunctionName) and value.function is not None else []


def symbol_part(type_: Type) -> str:
    """A type as a part of a function's name: a constant by its bare value."""
    if isinstance(type_, ConstantType):
        return _symbol_part(type_.value)
    return str(type_)


def _symbol_part(value: Any) -> str:
    if isinstance(value, FunctionName):
        return value.symbol.rsplit(".", 1)[-1]
    if isinstance(value, tuple):
        parts = cast(tuple[Any, ...], value)
        items = [_symbol_part(item) if isinstance(item, FunctionName | tuple) else repr(item) for item in parts]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    return str(value)
