"""Functions as values: what a constant that is a function holds."""

from __future__ import annotations

import attrs

from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import Type, TypeSyntax


@attrs.frozen(str=False)
class FunctionName(Type):
    """The value of a constant that is a function: its name, and its Python model."""

    symbol: str
    model: Op = attrs.field(eq=False)
    identity: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "identity", id(self.model))

    def syntax(self) -> TypeSyntax:
        return TypeSyntax("function", (TypeSyntax(self.symbol, quoted=True),))

    __str__ = Type.__str__
