"""The common part of both readers of Python's syntax trees, that of any function and that of kernels."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import KernelSyntaxError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.python_operators import OPERATORS
from ziggurat.codemodel.types import Type, pyobject
from ziggurat.frontends.bodies import Bodies
from ziggurat.frontends.python.source import Source

# The values in an f-string, and in a template string of Python 3.14.
_VALUES: Any = (ast.FormattedValue, getattr(ast, "Interpolation", ast.FormattedValue))
# The ops of operators, by their classes in a syntax tree.
OPS: dict[type[ast.AST], type[Any]] = {row.syntax: cls for cls, row in OPERATORS.items()}


class _Visitors(dict[type, Callable[[Any, Any], Any]]):
    """The methods of a class of readers that read nodes, by the classes of these."""

    def __init__(self, reader: type[Reader]) -> None:
        super().__init__()
        self.reader = reader

    def __missing__(self, cls: type) -> Callable[[Any, Any], Any]:
        visitor = self[cls] = getattr(self.reader, f"visit_{cls.__name__}", self.reader.generic_visit)
        return visitor


class Reader(Bodies):
    """Reads a syntax tree into `builder`. Each op has the location of its text."""

    _visitors: ClassVar[_Visitors]

    def __init_subclass__(cls) -> None:
        cls._visitors = _Visitors(cls)

    def __init__(self, source: Source, builder: Builder) -> None:
        self.source = source
        self.builder = builder
        self._file, self._offset = source.file, source.offset

    def visit(self, node: Any) -> Any:
        """Read a node by the method of its class."""
        return self._visitors[node.__class__](self, node)

    def generic_visit(self, node: ast.AST) -> Any:
        """Raise the error of a construct that has no op."""
        raise NotImplementedError

    def assign(self, target: ast.expr, value: Value, node: ast.AST) -> None:
        """Give `value` to a target. The store models `node`."""
        raise NotImplementedError

    def expression(self, node: ast.expr) -> Value:
        """The value of an expression."""
        return self.visit(node)

    def add(self, op: Op, node: Any) -> Value:
        """Add an op that models `node`."""
        return self.builder.add(op, Location.of_node(self._file, node, self._offset))

    def constant(self, value: Any, node: Any) -> Value:
        return self.add(core.ConstantOp(value, pyobject), node)

    def body(self, node: Any, fill: Callable[[], Value | None], parameters: Sequence[Type] = ()) -> Body:
        """A body that `fill` adds ops to. It yields the value that `fill` returns, unless a statement has left it."""
        return self.filled(lambda _: fill(), parameters, self.source.span(node))

    def part(self, node: ast.expr) -> Body:
        """A body that yields the value of an expression."""
        return self.body(node, lambda: self.expression(node))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Value:
        """An f-string. A specification may have values in it as well."""
        values: list[Value] = []
        text = self.template(node.values, values)
        return self.add(py.Format(tuple(values), text), node)

    def template(self, parts: Sequence[Any], values: list[Value], is_specification: bool = False) -> str:
        """The text of an f-string or a template string, with `{n}` in the place of values, which `values` gets."""
        text = ""
        for part in parts:
            if isinstance(part, _VALUES):
                values.append(self.expression(part.value))
                text += f"{{{len(values) - 1}"
                text += f"!{chr(part.conversion)}" if part.conversion >= 0 else ""
                if isinstance(part.format_spec, ast.JoinedStr):
                    text += f":{self.template(part.format_spec.values, values, True)}"
                text += "}"
            elif isinstance(part, ast.Constant):
                literal = str(part.value)
                if is_specification and ("{" in literal or "}" in literal):
                    raise KernelSyntaxError("a model has no braces in the format of a value", self.source.span(part))
                text += literal.replace("{", "{{").replace("}", "}}")
        return text

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Value:
        operand = node.operand
        value: Any = operand.value if isinstance(operand, ast.Constant) else None
        if isinstance(node.op, ast.USub) and type(value) in (int, float):
            return self.constant(-value, node)
        return self.add(OPS[type(node.op)](self.visit(operand)), node)

    def visit_BinOp(self, node: ast.BinOp) -> Value:
        first = self.visit(node.left)
        return self.add(OPS[type(node.op)](first, self.visit(node.right)), node)

    def visit_Assign(self, node: ast.Assign) -> None:
        value = self.expression(node.value)
        for target in node.targets:
            self.assign(target, value, node)

    def visit_Pass(self, node: ast.Pass) -> None:
        """`pass` has no op."""
