"""Statements of Python as ops."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.dialects import py_objects as objects
from ziggurat.codemodel.dialects import py_suites as suites
from ziggurat.codemodel.op import Body, Value
from ziggurat.codemodel.python_operators import OPERATORS
from ziggurat.codemodel.types import pyobject
from ziggurat.frontends.python.definitions import Definitions, type_parameters_of
from ziggurat.frontends.python.reader import OPS
from ziggurat.frontends.python.scopes import CLASS, COMPREHENSION, FUNCTION

_ITEM = (pyobject,)


class Statements(Definitions):
    """Reads statements at the place of `builder`. Statements that Python cannot reach are left out."""

    def suite(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self.visit(statement)
            if self.builder.terminated:
                return

    def block(self, node: Any, statements: Sequence[ast.stmt]) -> Body:
        """A body with the statements of a suite of `node`."""
        return self.body(node, lambda: self.suite(statements))

    # Assignments.

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        target, value = node.target, node.value
        if isinstance(target, ast.Name) and (self.scope.kind == FUNCTION or self.late_annotations):
            self.add(objects.Note(self.scope.renamed(target.id), ast.unparse(node.annotation)), target)
        if value is not None:
            self.assign(target, self.expression(value), node)
        elif isinstance(target, ast.Attribute):
            self.expression(target.value)
        elif isinstance(target, ast.Subscript):
            self.expression(target.value)
            self.expression(target.slice)
        if self.scope.kind == CLASS and not self.late_annotations:
            note = self.expression(node.annotation)
            if isinstance(target, ast.Name) and node.simple:
                self.add(objects.Annotate(note, self.scope.renamed(target.id)), target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        target = node.target
        match target:
            case ast.Name(id=name):
                current = self.load(name, target)
                self.store(name, self.augmented(current, node), node)
            case ast.Attribute(value=owner, attr=name):
                place = self.expression(owner)
                name = self.scope.renamed(name)
                value = self.augmented(self.add(py.Attribute(place, name), target), node)
                self.add(objects.StoreAttribute(place, value, name), node)
            case ast.Subscript(value=owner, slice=index):
                place, at = self.expression(owner), self.expression(index)
                value = self.augmented(self.add(py.Subscript(place, at), target), node)
                self.add(objects.StoreItem(place, at, value), node)

    def augmented(self, current: Value, node: ast.AugAssign) -> Value:
        return self.add(objects.InPlace(current, self.expression(node.value), OPERATORS[OPS[type(node.op)]].sign), node)

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            self.delete(target)

    def delete(self, target: ast.expr) -> None:
        match target:
            case ast.Name(id=name):
                name = self.scope.renamed(name)
                home = self.scope.home(name)
                if home is None:
                    self.add(objects.DeleteOuter(name), target)
                elif home.kind == CLASS:
                    self.add(objects.DeleteName(name), target)
                else:
                    self.add(objects.DeleteVar(self.variable(home, name, target)), target)
            case ast.Attribute(value=owner, attr=name):
                self.add(objects.DeleteAttribute(self.expression(owner), self.scope.renamed(name)), target)
            case ast.Subscript(value=owner, slice=index):
                place = self.expression(owner)
                self.add(objects.DeleteItem(place, self.expression(index)), target)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for item in targets:
                    self.delete(item)
            case _:
                self.generic_visit(target)

    # Control flow.

    def visit_If(self, node: ast.If) -> None:
        condition = self.expression(node.test)
        then = self.block(node, node.body)
        self.add(py.If(condition, then, self.block(node, node.orelse)), node)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        iterable = self.part(node.iter)

        def iteration() -> None:
            self.assign(node.target, self.builder.parameters[0], node.target)
            self.suite(node.body)

        suite = self.body(node, iteration, _ITEM)
        is_async = isinstance(node, ast.AsyncFor)
        if node.orelse:
            otherwise = self.block(node.orelse[0], node.orelse)
            self.add(suites.ForElse(iterable, suite, otherwise=otherwise, is_async=is_async), node)
        else:
            self.add(py.For(iterable, suite, is_async=is_async), node)

    visit_AsyncFor = visit_For

    def visit_While(self, node: ast.While) -> None:
        condition = self.part(node.test)
        suite = self.block(node, node.body)
        if node.orelse:
            self.add(suites.WhileElse(condition, suite, otherwise=self.block(node.orelse[0], node.orelse)), node)
        else:
            self.add(py.While(condition, suite), node)

    def visit_Break(self, node: ast.Break) -> None:
        self.add(py.Break(), node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self.add(py.Continue(), node)

    def visit_Return(self, node: ast.Return) -> None:
        self.add(core.Return(() if node.value is None else (self.expression(node.value),)), node)

    def visit_Raise(self, node: ast.Raise) -> None:
        exception = None if node.exc is None else self.expression(node.exc)
        self.add(suites.Raise(exception, None if node.cause is None else self.expression(node.cause)), node)

    def visit_Try(self, node: Any) -> None:
        parts = [self.block(node, node.body)]
        for handler in node.handlers:
            if handler.type is None:
                parts.append(self.body(handler, lambda: None))
            else:
                parts.append(self.part(handler.type))
            parts.append(self.body(handler, self.handler(handler), _ITEM))
        parts += [self.block(node, node.orelse), self.block(node, node.finalbody)]
        star = type(node).__name__ == "TryStar"
        self.add(suites.Try(tuple(parts), handlers=len(node.handlers), star=star), node)

    visit_TryStar = visit_Try

    def handler(self, node: ast.ExceptHandler) -> Callable[[], None]:
        def fill() -> None:
            if node.name is not None:
                name = self.scope.renamed(node.name)
                home = self.scope.home(name)
                exception = self.builder.parameters[0]
                if home is None or home.kind == CLASS:
                    self.store(name, exception, node)
                else:
                    self.add(suites.Caught(self.variable(home, name, node), exception), node)
            self.suite(node.body)

        return fill

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        self.contexts(node, node.items)

    visit_AsyncWith = visit_With

    def contexts(self, node: ast.With | ast.AsyncWith, items: Sequence[ast.withitem]) -> None:
        if not items:
            self.suite(node.body)
            return
        first, *others = items
        manager = self.expression(first.context_expr)

        def fill() -> None:
            if first.optional_vars is not None:
                self.assign(first.optional_vars, self.builder.parameters[0], first.optional_vars)
            self.contexts(node, others)

        suite = self.body(node, fill, _ITEM)
        self.add(suites.With(manager, suite, is_async=isinstance(node, ast.AsyncWith)), node)

    def visit_Assert(self, node: ast.Assert) -> None:
        condition = self.expression(node.test)
        if node.msg is None:
            self.add(py.Assert(condition), node)
        else:
            self.add(suites.AssertElse(condition, self.part(node.msg)), node)

    # Patterns.

    def visit_Match(self, node: ast.Match) -> None:
        subject = self.expression(node.subject)
        parts: list[Body] = []
        for case in node.cases:
            pattern, guard = case.pattern, case.guard
            parts.append(self.body(pattern, lambda pattern=pattern: self.visit(pattern)))
            parts.append(self.body(pattern, lambda: None) if guard is None else self.part(guard))
            parts.append(self.block(pattern, case.body))
        self.add(suites.Match(subject, tuple(parts)), node)

    def pattern(self, kind: str, node: Any, parts: Sequence[Value] = (), names: Sequence[str] = ()) -> Value:
        return self.add(suites.Pattern(tuple(parts), kind, names=tuple(names)), node)

    def captured(self, name: str, node: Any) -> tuple[list[Value], list[str]]:
        """The variable that a pattern gives an object to, or its name where that is no variable of a function."""
        name = self.scope.renamed(name)
        home = self.scope.home(name)
        if home is None or home.kind in (CLASS, COMPREHENSION):
            return [], [name]
        return [self.variable(home, name, node)], []

    def visit_MatchValue(self, node: ast.MatchValue) -> Value:
        return self.pattern("value", node, [self.expression(node.value)])

    def visit_MatchSingleton(self, node: ast.MatchSingleton) -> Value:
        return self.pattern("constant", node, [self.constant(node.value, node)])

    def visit_MatchSequence(self, node: ast.MatchSequence) -> Value:
        return self.pattern("sequence", node, list(map(self.visit, node.patterns)))

    def visit_MatchOr(self, node: ast.MatchOr) -> Value:
        return self.pattern("or", node, list(map(self.visit, node.patterns)))

    def visit_MatchAs(self, node: ast.MatchAs) -> Value:
        if node.name is None:
            return self.pattern("any", node)
        parts = [] if node.pattern is None else [self.visit(node.pattern)]
        variable, names = self.captured(node.name, node)
        return self.pattern("as", node, [*parts, *variable], names)

    def visit_MatchStar(self, node: ast.MatchStar) -> Value:
        variable, names = self.captured(node.name, node) if node.name else ([], [])
        return self.pattern("star", node, variable, names)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> Value:
        parts: list[Value] = []
        for key, pattern in zip(node.keys, node.patterns, strict=True):
            parts += [self.expression(key), self.visit(pattern)]
        if node.rest is not None:
            parts.append(self.pattern("rest", node, *self.captured(node.rest, node)))
        return self.pattern("mapping", node, parts)

    def visit_MatchClass(self, node: ast.MatchClass) -> Value:
        parts = [self.expression(node.cls), *map(self.visit, [*node.patterns, *node.kwd_patterns])]
        return self.pattern("class", node, parts, node.kwd_attrs)

    # The rest.

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            whole = alias.asname is not None and "." in alias.name
            module = self.add(suites.Import(alias.name, whole=whole), alias)
            self.store(alias.asname or alias.name.partition(".")[0], module, alias)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        names = tuple([alias.name for alias in node.names])
        module = self.add(suites.Import(node.module or "", level=node.level, names=names), node)
        for alias in node.names:
            self.store(alias.asname or alias.name, self.add(suites.ImportFrom(module, alias.name), alias), alias)

    def visit_TypeAlias(self, node: Any) -> None:
        texts = {"type_parameters": type_parameters_of(node)}
        value = self.add(suites.TypeAlias(node.name.id, ast.unparse(node.value), **texts), node)
        self.store(node.name.id, value, node)

    def visit_Expr(self, node: ast.Expr) -> None:
        self.expression(node.value)

    visit_Global = visit_Nonlocal = Definitions.visit_Pass
