"""The statements of a model that have suites, and those that leave them, in Python's syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from ziggurat.backend.python.writer import Entry, Writer, name, target, writes
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.dialects import py_suites as suites
from ziggurat.codemodel.op import Body, Op


class Item(Entry):
    """The value that a suite takes: the first statement gives it to the target in the head of the suite."""

    def __init__(self, body: Body, op: Op) -> None:
        super().__init__(body.parameters[0], None, len(body.parameters[0].uses), op)
        self.head: ast.expr | None = None

    def expression(self) -> None:
        return None

    def finish(self, writer: Writer) -> None:
        self.head, *others = self.targets
        if others:
            self.head = target(name(writer.names.fresh()))
            assert isinstance(self.head, ast.Name)
            writer.emit(ast.Assign(self.targets, name(self.head.id)), self.op)

    def spill(self, writer: Writer) -> None:
        if self.uses <= 0:
            self.finish(writer)
            return
        self.head = target(writer.temporary(self.value))
        if self.targets:
            writer.emit(ast.Assign(self.targets, writer.read(self.value)), self.op)

    def as_target(self, writer: Writer) -> ast.expr:
        """The target in the head; a variable where the suite does not use the value."""
        return self.head or target(name(writer.names.fresh()))


def suite_of(writer: Writer, op: Op, body: Body) -> tuple[Item, list[ast.stmt]]:
    """The statements of a suite that takes a value, and the value."""
    item = Item(body, op)
    return item, writer.suite(body, *([item] if item.uses else []))


@writes(py.If)
def if_(writer: Writer, op: py.If) -> None:
    then, otherwise = writer.suite(op.then), writer.statements_of(op.otherwise)
    (condition,) = writer.take([op.condition])
    writer.emit(ast.If(condition, then, otherwise), op)


@writes(py.For)
def for_(writer: Writer, op: py.For) -> None:
    iterable = writer.part(op.iterable)
    item, suite = suite_of(writer, op, op.suite)
    if op.flag is not None:  # See `early_exits`.
        suite.append(ast.If(ast.UnaryOp(ast.Not(), name(writer.names.of(op.flag))), [ast.Break()], []))
    otherwise = writer.suite(op.otherwise) if isinstance(op, suites.ForElse) else []
    assert iterable.result is not None
    for statement in iterable.statements:
        writer.emit(statement, op)
    cls = ast.AsyncFor if op.is_async else ast.For
    writer.emit(cls(item.as_target(writer), iterable.result, suite, otherwise), op)


@writes(py.While)
def while_(writer: Writer, op: py.While) -> None:
    condition = writer.part(op.condition)
    suite = writer.suite(op.suite)
    if op.flag is not None:
        suite.append(ast.If(ast.UnaryOp(ast.Not(), name(writer.names.of(op.flag))), [ast.Break()], []))
    otherwise = writer.suite(op.otherwise) if isinstance(op, suites.WhileElse) else []
    assert condition.result is not None
    if condition.statements:
        test = ast.UnaryOp(ast.Not(), condition.result)
        suite = [*condition.statements, ast.If(test, [*otherwise, ast.Break()], []), *suite]
        writer.emit(ast.While(ast.Constant(True), suite, []), op)
    else:
        writer.emit(ast.While(condition.result, suite, otherwise), op)


@writes(py.Plain)
def plain(writer: Writer, op: py.Plain) -> None:
    part = writer.part(op.body)
    for statement in part.statements:
        writer.emit(statement, op)
    if part.result is not None:
        writer.push(op, part.result)


@writes(py.Break)
def break_(writer: Writer, op: py.Break) -> None:
    writer.emit(ast.Break(), op)


@writes(py.Continue)
def continue_(writer: Writer, op: py.Continue) -> None:
    writer.emit(ast.Continue(), op)


@writes(core.Return)
def return_(writer: Writer, op: core.Return) -> None:
    nodes = writer.take(op.values)
    writer.emit(ast.Return(nodes[0] if nodes else None), op)


@writes(suites.Raise)
def raise_(writer: Writer, op: suites.Raise) -> None:
    nodes: list[ast.expr | None] = [*writer.take(op.operands), None, None]
    writer.emit(ast.Raise(nodes[0], nodes[1]), op)


@writes(py.Assert)
def assert_(writer: Writer, op: py.Assert) -> None:
    condition, *message = writer.take(op.operands)
    writer.emit(ast.Assert(condition, message[0] if message else None), op)


@writes(suites.AssertElse)
def assert_else(writer: Writer, op: suites.AssertElse) -> None:
    message = writer.expression(op.message, "the message of an assert")
    (condition,) = writer.take(op.operands)
    writer.emit(ast.Assert(condition, message), op)


@writes(suites.Caught)
def caught(writer: Writer, op: suites.Caught) -> None:
    text = writer.names.stored(op.var)
    writer.assign(op, op.exception, lambda _: name(text))


@writes(suites.Try)
def try_(writer: Writer, op: suites.Try) -> None:
    suite, *parts = op.parts
    handlers: list[ast.ExceptHandler] = []
    for kind, body in zip(parts[: 2 * op.handlers : 2], parts[1 : 2 * op.handlers : 2], strict=True):
        catches = bool(kind.entry.terminator.operands)
        node = writer.expression(kind, "the class of an except") if catches else None
        item, statements = suite_of(writer, op, body)
        handlers.append(writer.located(ast.ExceptHandler(node, _name_of(writer, item), statements), _first(body, op)))
    otherwise, final = map(writer.statements_of, parts[2 * op.handlers :])
    cls: Any = ast.TryStar if op.star else ast.Try
    statement = cls(writer.suite(suite), handlers, otherwise, final)
    if not handlers and not final:
        statement.finalbody = [ast.Pass()]
    writer.emit(statement, op)


def _first(body: Body, op: Op) -> Op:
    return body.entry.terminator if body.entry.terminator.location is not None else op


def _name_of(writer: Writer, item: Item) -> str | None:
    head = item.head
    assert head is None or isinstance(head, ast.Name)
    return None if head is None else head.id


@writes(suites.With)
def with_(writer: Writer, op: suites.With) -> None:
    item, suite = suite_of(writer, op, op.suite)
    (manager,) = writer.take(op.operands)
    cls = ast.AsyncWith if op.is_async else ast.With
    writer.emit(cls([ast.withitem(manager, item.head)], suite), op)


@writes(suites.Match)
def match(writer: Writer, op: suites.Match) -> None:
    cases: list[ast.match_case] = []
    for pattern, guard, suite in op.cases:
        node: Any = writer.expression(pattern, "a pattern")
        has_guard = bool(guard.entry.terminator.operands)
        cases.append(
            ast.match_case(node, writer.expression(guard, "a guard") if has_guard else None, writer.suite(suite))
        )
    (subject,) = writer.take(op.operands)
    writer.emit(ast.Match(subject, cases), op)


@writes(suites.Pattern)
def pattern(writer: Writer, op: suites.Pattern) -> None:
    variables = [value for value in op.parts if isinstance(value.op, core.Var)]
    nodes: list[Any] = writer.take([value for value in op.parts if value not in variables])
    text = writer.names.stored(variables[0]) if variables else op.names[0] if op.names else None
    writer.push(op, _pattern(op.kind, nodes, text, op.names))


def _pattern(kind: str, nodes: list[Any], text: str | None, names: Sequence[str]) -> Any:
    match kind:
        case "value":
            return ast.MatchValue(nodes[0])
        case "constant":
            return ast.MatchSingleton(nodes[0].value)
        case "sequence":
            return ast.MatchSequence(nodes)
        case "or":
            return ast.MatchOr(nodes)
        case "star":
            return ast.MatchStar(text)
        case "rest":
            return ast.MatchStar(text)  # The mapping around it takes the name.
        case "class":
            cls, *patterns = nodes
            count = len(patterns) - len(names)
            return ast.MatchClass(cls, patterns[:count], list(names), patterns[count:])
        case "mapping":
            rest = nodes.pop().name if len(nodes) % 2 else None
            return ast.MatchMapping(nodes[::2], nodes[1::2], rest)
        case "as":
            return ast.MatchAs(nodes[0] if nodes else None, text)
        case _:
            return ast.MatchAs(None, None)
