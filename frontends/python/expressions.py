"""Expressions of Python as ops: each gives one value and has the location of its text."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.dialects import py_objects as objects
from ziggurat.codemodel.dialects import py_suites as suites
from ziggurat.codemodel.errors import KernelSyntaxError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.types import Type, VarType, pyobject
from ziggurat.frontends.bodies import Bodies
from ziggurat.frontends.python.scopes import CLASS, Scope
from ziggurat.frontends.python.source import Source

# Kernels have these operators; of Python's own tier alone is the matrix product.
BINARY_OF_KERNELS: dict[type[ast.operator], type[py.BinaryExpression]] = {
    ast.Add: py.Add, ast.Sub: py.Sub, ast.Mult: py.Mul, ast.Div: py.Div, ast.FloorDiv: py.FloorDiv, ast.Mod: py.Mod,
    ast.Pow: py.Pow, ast.BitAnd: py.And, ast.BitOr: py.Or, ast.BitXor: py.Xor, ast.LShift: py.Shl,
    ast.RShift: py.Shr,
}  # fmt: skip
BINARY = {**BINARY_OF_KERNELS, ast.MatMult: objects.MatMul}
COMPARE: dict[type[ast.cmpop], type[py.BinaryExpression]] = {
    ast.Eq: py.Eq, ast.NotEq: py.Ne, ast.Lt: py.Lt, ast.LtE: py.Le, ast.Gt: py.Gt, ast.GtE: py.Ge, ast.Is: py.Is,
    ast.IsNot: py.IsNot, ast.In: py.In, ast.NotIn: py.NotIn,
}  # fmt: skip
UNARY: dict[type[ast.unaryop], type[py.UnaryExpression]] = {
    ast.USub: py.Neg, ast.UAdd: py.Pos, ast.Invert: py.Invert, ast.Not: py.Not,
}  # fmt: skip
# The operators as they are written, in the order of their classes.
SYMBOLS: dict[type[ast.AST], str] = {
    **dict(zip(COMPARE, objects.COMPARISONS, strict=True)),
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.MatMult: "@",
}  # fmt: skip
VARIABLE = VarType(pyobject)
# The classes of constants that a model holds as they are; strings may have lone surrogates.
_PLAIN = frozenset((type(None), bool, int, float))
_OBJECT = (pyobject,)


class _Methods(dict[type, str]):
    """The names of the methods that read nodes, by the classes of these."""

    def __missing__(self, cls: type) -> str:
        name = self[cls] = f"visit_{cls.__name__}"
        return name


_methods = _Methods()


class Expressions(Bodies):
    """Reads expressions into `builder`, in the scope `scope`. `free` are the names of the functions around."""

    scope: Scope

    def __init__(self, source: Source, builder: Builder, free: Sequence[str] = ()) -> None:
        self.source = source
        self.builder = builder
        self.free = frozenset(free)
        self._file, self._offset = source.file, source.offset

    def visit(self, node: Any) -> Any:
        """Read a node by the method of its class."""
        return getattr(self, _methods[node.__class__], self.generic_visit)(node)

    def generic_visit(self, node: ast.AST) -> Any:
        """Raise the error of a construct that this version of Python has and models lack."""
        raise KernelSyntaxError(f"a model has no '{type(node).__name__}'", self.source.span(node))

    def expression(self, node: ast.expr) -> Value:
        """The value of an expression."""
        return self.visit(node)

    def add(self, op: Op, node: Any) -> Value:
        """Add an op that models `node`."""
        offset = self._offset
        place = Location(
            self._file, node.lineno + offset, node.col_offset, node.end_lineno + offset, node.end_col_offset
        )
        return self.builder.add(op, place)

    def constant(self, value: Any, node: Any) -> Value:
        return self.add(core.ConstantOp(value, pyobject), node)

    def body(self, node: Any, fill: Callable[[], Value | None], parameters: Sequence[Type] = ()) -> Body:
        """A body that `fill` adds ops to. It yields the value that `fill` returns, unless a statement has left it."""
        return self.filled(lambda _: fill(), parameters, self.source.span(node))

    def part(self, node: ast.expr) -> Body:
        """A body that yields the value of an expression."""
        return self.body(node, lambda: self.expression(node))

    # Names.

    def load(self, name: str, node: ast.AST) -> Value:
        """The value of a name."""
        name = self.scope.renamed(name)
        home = self.scope.home(name)
        if home is None:
            return self.add(py.Outer(name), node)
        if home.kind == CLASS:
            return self.add(objects.LoadName(name), node)
        return self.add(core.VarLoad(self.variable(home, name, node)), node)

    def variable(self, home: Scope, name: str, node: ast.AST) -> Value:
        """The variable of a scope. One that is mentioned before it is assigned is declared without a value."""
        variable = home.variables.get(name)
        if variable is None:
            op = core.Var(None, name=name, type=VARIABLE)
            variable = home.variables[name] = home.builder.add(op, self.source.span(node))
        return variable

    def store(self, name: str, value: Value, node: ast.AST, scope: Scope | None = None) -> None:
        """Give a name a value, as `node` does."""
        scope = scope or self.scope
        name = scope.renamed(name)
        home = scope.home(name)
        if home is None:
            self.add(objects.StoreOuter(value, name), node)
        elif home.kind == CLASS:
            self.add(objects.StoreName(value, name), node)
        elif self.builder is home.builder and name not in home.variables:
            home.variables[name] = self.add(core.Var(value, name=name, type=VARIABLE), node)
        else:
            self.add(core.VarStore(self.variable(home, name, node), value), node)

    def visit_Name(self, node: ast.Name) -> Value:
        return self.load(node.id, node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Value:
        value = self.expression(node.value)
        self.store(node.target.id, value, node.target, self.scope.function())
        return value

    # Literals and displays.

    def visit_Constant(self, node: ast.Constant) -> Value:
        value: Any = node.value
        if value.__class__ in _PLAIN:
            return self.add(core.ConstantOp(value, pyobject), node)
        if isinstance(value, str) and (value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)):
            return self.constant(value, node)
        return self.add(objects.Literal("..." if value is ... else repr(value)), node)

    def items(self, nodes: Sequence[ast.expr]) -> tuple[tuple[Value, ...], tuple[int, ...]]:
        """The values of items, and the indices of those that are starred."""
        starred: tuple[int, ...] = ()
        values: list[Value] = []
        for item in nodes:
            if item.__class__ is ast.Starred:
                starred = (*starred, len(values))
                item = item.value  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]
            values.append(self.visit(item))
        return tuple(values), starred

    def visit_Tuple(self, node: ast.Tuple) -> Value:
        values, starred = self.items(node.elts)
        return self.add(objects.Tuple(values, starred=starred) if starred else py.Pack(values), node)

    def visit_List(self, node: ast.List) -> Value:
        values, starred = self.items(node.elts)
        return self.add(objects.List(values, starred=starred), node)

    def visit_Set(self, node: ast.Set) -> Value:
        values, starred = self.items(node.elts)
        return self.add(objects.Set(values, starred=starred), node)

    def visit_Dict(self, node: ast.Dict) -> Value:
        entries: list[Value] = []
        merged: list[int] = []
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                merged.append(len(entries))
            else:
                entries.append(self.visit(key))
            entries.append(self.visit(value))
        return self.add(objects.Dict(tuple(entries), merged=tuple(merged)), node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Value:
        """An f-string. A specification may have values in it as well."""
        values: list[Value] = []
        text = self.template(node.values, values)
        return self.add(py.Format(tuple(values), text), node)

    def template(self, parts: Sequence[ast.expr], values: list[Value], is_specification: bool = False) -> str:
        """The text of an f-string with `{n}` in the place of values, which are added to `values`."""
        text = ""
        for part in parts:
            if isinstance(part, ast.FormattedValue):
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

    # Attributes, items and operators.

    def visit_Attribute(self, node: ast.Attribute) -> Value:
        return self.add(py.Attribute(self.visit(node.value), self.scope.renamed(node.attr)), node)

    def visit_Subscript(self, node: ast.Subscript) -> Value:
        value = self.visit(node.value)
        return self.add(py.Subscript(value, self.visit(node.slice)), node)

    def visit_Slice(self, node: ast.Slice) -> Value:
        ends = [node.lower, node.upper] if node.step is None else [node.lower, node.upper, node.step]
        values = [self.constant(None, node) if end is None else self.visit(end) for end in ends]
        return self.add(objects.Slice(tuple(values)), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Value:
        operand = node.operand
        value: Any = operand.value if isinstance(operand, ast.Constant) else None
        if isinstance(node.op, ast.USub) and type(value) in (int, float):
            return self.constant(-value, node)
        return self.add(UNARY[type(node.op)](self.visit(operand)), node)

    def visit_BinOp(self, node: ast.BinOp) -> Value:
        first = self.visit(node.left)
        return self.add(BINARY[type(node.op)](first, self.visit(node.right)), node)

    def visit_Compare(self, node: ast.Compare) -> Value:
        first, second = self.visit(node.left), self.visit(node.comparators[0])
        if len(node.ops) == 1:
            return self.add(COMPARE[type(node.ops[0])](first, second), node)
        others = tuple(map(self.part, node.comparators[1:]))
        names = tuple([SYMBOLS[type(operator)] for operator in node.ops])
        return self.add(objects.Chain(first, second, names, others), node)

    def visit_BoolOp(self, node: ast.BoolOp) -> Value:
        op = py.CondAnd if isinstance(node.op, ast.And) else py.CondOr
        return self.add(op(tuple(map(self.part, node.values))), node)

    def visit_IfExp(self, node: ast.IfExp) -> Value:
        condition = self.visit(node.test)
        return self.add(py.CondExpression(condition, self.part(node.body), self.part(node.orelse)), node)

    # Calls.

    def visit_Call(self, node: ast.Call) -> Value:
        callee = node.func
        if type(callee) is ast.Attribute:
            receiver = self.visit(callee.value)
            arguments, keywords, starred = self.arguments(node.args, node.keywords, 1)
            name = "." + self.scope.renamed(callee.attr)
            return self.add(py.Invoke((receiver, *arguments), name, keywords=keywords, starred=starred), node)
        if type(callee) is ast.Name:
            name = self.scope.renamed(callee.id)
            if name not in self.free and self.scope.home(name) is None:
                arguments, keywords, starred = self.arguments(node.args, node.keywords)
                return self.add(py.Invoke(arguments, name, keywords=keywords, starred=starred), node)
        value = self.visit(callee)
        arguments, keywords, starred = self.arguments(node.args, node.keywords)
        return self.add(py.Call(value, arguments, keywords=keywords, starred=starred), node)

    def arguments(
        self, positional: Sequence[ast.expr], keywords: Sequence[ast.keyword], first: int = 0
    ) -> tuple[tuple[Value, ...], tuple[str, ...], tuple[int, ...]]:
        """The arguments of a call, the names of the keyword arguments, which come last (`**` for a mapping), and the
        indices of starred ones, counted from `first`."""
        values, starred = self.items(positional)
        if first:
            starred = tuple([index + first for index in starred])
        if not keywords:
            return values, (), starred
        others = [self.visit(keyword.value) for keyword in keywords]
        return (*values, *others), tuple([keyword.arg or "**" for keyword in keywords]), starred

    # Generators and coroutines.

    def visit_Yield(self, node: ast.Yield) -> Value:
        return self.add(suites.YieldValue(None if node.value is None else self.visit(node.value)), node)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> Value:
        return self.add(suites.YieldFrom(self.visit(node.value)), node)

    def visit_Await(self, node: ast.Await) -> Value:
        return self.add(suites.Await(self.visit(node.value)), node)
