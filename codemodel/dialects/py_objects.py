"""Ops on Python's objects that kernels lack: displays, items and attributes that are stored to, names from outside.

They model Python functions of any kind; a kernel refuses them where it is compiled.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.dialects.py import BinaryExpression, Expression
from ziggurat.codemodel.fields import attribute, bodies, operand, operands
from ziggurat.codemodel.op import Body, Op, Value, expect, require
from ziggurat.codemodel.traits import PythonTier
from ziggurat.codemodel.types import VarType

# The operators of augmented assignments, and of ops with two operands.
OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>", "@")
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=", "is", "is not", "in", "not in")


class MatMul(BinaryExpression, name="matmul"):
    """Python's `a @ b`."""


class InPlace(Expression, name="inplace"):
    """The object that `a += b` gives `a`: `a` itself where its class changes it in place."""

    lhs: Value = operand()
    rhs: Value = operand()
    operator: str = attribute(str, unnamed=True)

    def check(self) -> None:
        require(self.operator in OPERATORS, f"the operator must be one of {', '.join(OPERATORS)}; got {self.operator}")


class Chain(Expression, name="chain"):
    """`a < b < c`: a comparison whose further operands are computed only while it holds, each by a body."""

    lhs: Value = operand()
    rhs: Value = operand()
    operators: tuple[str, ...] = attribute([str])
    others: Sequence[Body] = bodies(ends=core.Yield)

    def check(self) -> None:
        require(len(self.operators) == len(self.others) + 1, "a chain has an operator more than bodies")
        require(all(name in COMPARISONS for name in self.operators), "the operators must be comparisons")


class Template(Expression, name="template"):
    """A template string, `t"…"`: its `template` is as that of `format`, and `expressions` has the texts of its values
    but for those in specifications of others."""

    values: Sequence[Value] = operands()
    template: str = attribute(str, unnamed=True)
    expressions: tuple[str, ...] = attribute([str], default=())


class Literal(Expression, name="literal"):
    """A literal that no other constant of a model is: bytes, a complex number, `...`, a string with lone surrogates."""

    text: str = attribute(str, unnamed=True)

    @property
    def value(self) -> Any:
        """The object, which Python reads from the text as it reads a literal."""
        return ast.literal_eval(self.text)

    def check(self) -> None:
        try:
            _ = self.value
        except (ValueError, SyntaxError):
            require(False, f"a literal must be one of Python; got {self.text}")


class _Display(Expression):
    """Items in a new container. `starred` are the indices of iterables whose items are put in."""

    items: Sequence[Value] = operands()
    starred: tuple[int, ...] = attribute([int], default=())


class List(_Display, name="list"):
    """`[a, b, *c]`."""


class Set(_Display, name="set"):
    """`{a, b, *c}`."""


class Tuple(_Display, name="tuple.of"):
    """`(a, *b)`: a tuple with the items of iterables; one without them is a `pack`."""


class Dict(Expression, name="dict"):
    """`{k: v, **d}`: the operands are keys, each with its value; `merged` are the indices of mappings among them."""

    entries: Sequence[Value] = operands()
    merged: tuple[int, ...] = attribute([int], default=())

    def check(self) -> None:
        require((len(self.entries) - len(self.merged)) % 2 == 0, "a dict has a value for each key")


class Slice(Expression, name="slice"):
    """`start:stop` or `start:stop:step` as an index; an absent end is None."""

    ends: Sequence[Value] = operands()

    def check(self) -> None:
        require(len(self.ends) in (2, 3), "a slice has two or three parts")


class Spread(Expression, name="spread"):
    """The items of an iterable as a tuple of `count`, of which that at index `star` is a list of all that are left.

    `a, *b = value` is a spread of the value, whose components `unpack` gives.
    """

    value: Value = operand()
    count: int = attribute(int)
    star: int = attribute(int, default=-1)

    def check(self) -> None:
        require(self.count >= 0, f"a spread has no {self.count} components")
        require(-1 <= self.star < self.count, f"component {self.star} is not one of {self.count}")


class StoreAttribute(Op, PythonTier, name="attribute.store"):
    """`object.name = value`."""

    object: Value = operand()
    value: Value = operand()
    name: str = attribute(str, unnamed=True)


class DeleteAttribute(Op, PythonTier, name="attribute.delete"):
    """`del object.name`."""

    object: Value = operand()
    name: str = attribute(str, unnamed=True)


class StoreItem(Op, PythonTier, name="item.store"):
    """`object[index] = value`."""

    object: Value = operand()
    index: Value = operand()
    value: Value = operand()


class DeleteItem(Op, PythonTier, name="item.delete"):
    """`del object[index]`."""

    object: Value = operand()
    index: Value = operand()


class DeleteVar(Op, PythonTier, name="var.delete"):
    """`del x`: the variable has no value from here on."""

    var: Value = operand()

    def check(self) -> None:
        expect(self.var.type, VarType, f"var.delete takes a Var; got {self.var.type}")


class StoreOuter(Op, PythonTier, name="outer.store"):
    """Give a name from outside of the function, a global or one of an enclosing function, another value."""

    value: Value = operand()
    name: str = attribute(str, unnamed=True)


class DeleteOuter(Op, PythonTier, name="outer.delete"):
    """`del` of a name from outside of the function."""

    name: str = attribute(str, unnamed=True)


class LoadName(Expression, name="name.load"):
    """A name in a class's suite: that of the class, else a global one or a builtin."""

    name: str = attribute(str, unnamed=True)


class StoreName(Op, PythonTier, name="name.store"):
    """Give a name of the class whose suite this is a value."""

    value: Value = operand()
    name: str = attribute(str, unnamed=True)


class DeleteName(Op, PythonTier, name="name.delete"):
    """`del` of a name of the class whose suite this is."""

    name: str = attribute(str, unnamed=True)


class Note(Op, PythonTier, name="annotation"):
    """The annotation of a variable in a function, `name: text`, which Python does not evaluate."""

    name: str = attribute(str, unnamed=True)
    text: str = attribute(str)


class Annotate(Op, PythonTier, name="annotation.store"):
    """The annotation of a name in a class's suite, which is kept in `__annotations__`."""

    annotation: Value = operand()
    name: str = attribute(str, unnamed=True)
