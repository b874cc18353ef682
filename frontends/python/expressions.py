"""Expressions of Python as ops: each gives one value and has the location of its text."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.dialects import py_objects as objects
from ziggurat.codemodel.dialects import py_suites as suites
from ziggurat.codemodel.errors import KernelSyntaxError
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.python_operators import OPERATORS
from ziggurat.codemodel.types import VarType, pyobject
from ziggurat.frontends.python.reader import OPS, Reader
from ziggurat.frontends.python.scopes import CLASS, Scope
from ziggurat.frontends.python.source import Source

VARIABLE = VarType(pyobject)
# The classes of constants that a model holds as they are; strings may have lone surrogates.
_PLAIN = frozenset((type(None), bool, int, float))
_OBJECT = (pyobject,)


class Expressions(Reader):
    """Reads expressions into `builder`, in the scope `scope`. `free` are the names of the functions around."""

    scope: Scope

    def __init__(self, source: Source, builder: Builder, free: Sequence[str] = ()) -> None:
        super().__init__(source, builder)
        self.free = frozenset(free)

    def generic_visit(self, node: ast.AST) -> Any:
        """Raise the error of a construct that this version of Python has and models lack."""
        raise KernelSyntaxError(f"a model has no '{type(node).__name__}'", self.source.span(node))

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

    def visit_TemplateStr(self, node: Any) -> Value:
        values: list[Value] = []
        text = self.template(node.values, values)
        expressions = tuple([part.str for part in node.values if not isinstance(part, ast.Constant)])
        return self.add(objects.Template(tuple(values), text, expressions=expressions), node)

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

    def visit_Compare(self, node: ast.Compare) -> Value:
        first, second = self.visit(node.left), self.visit(node.comparators[0])
        if len(node.ops) == 1:
            return self.add(OPS[type(node.ops[0])](first, second), node)
        others = tuple(map(self.part, node.comparators[1:]))
        names = tuple([OPERATORS[OPS[type(operator)]].sign for operator in node.ops])
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
