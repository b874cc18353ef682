"""Parts of a kernel that only plain Python has: they are read as those of any function, into one op."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import ZigguratError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Body
from ziggurat.codemodel.types import pyobject

if TYPE_CHECKING:
    from ziggurat.frontends.reflection.expressions import Expressions


class PlainPython(ZigguratError):
    """The statement or the expression around this place is plain Python, because of a construct."""

    def __init__(self, construct: str, location: Location) -> None:
        super().__init__(f"{construct} is plain Python", location)
        self.construct = construct


def plain_body(node: Any, kernel: Expressions) -> Body:
    """The ops of a statement or an expression of a kernel, as of any function. It uses the kernel's variables."""
    from ziggurat.frontends.python.scopes import FUNCTION, Binds, Scope
    from ziggurat.frontends.python.statements import Statements

    for is_read in (True, False):
        inner = kernel.builder.nested((), pyobject)
        reader = Statements(kernel.source, inner, tuple(kernel.names.cells))
        reader.scope = Scope(FUNCTION, Binds(set(kernel.names.locals)), inner, variables=dict(kernel.variables))
        values: tuple[Any, ...] = ()
        try:
            if isinstance(node, ast.expr) and is_read:
                values = (reader.expression(node),)
            elif is_read:
                reader.visit(node)
            if not inner.terminated:
                reader.builder.add(core.Yield(values), kernel.source.span(node))
            return inner.finish()
        except ZigguratError:  # A model has no such construct: the op is without its ops.
            inner.abandon()
    raise AssertionError("an empty body can be made")
