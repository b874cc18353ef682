"""The place at which each variable of a function is declared.

Python's variables belong to the function. In the model a variable belongs to the innermost suite that contains all its
mentions. The first assignment declares it if that is the first mention and stands directly in the suite. Otherwise a
declaration without a value stands before the first statement of the suite that mentions it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import attrs


@attrs.frozen
class Declaration:
    """A variable to declare, by an assignment or without a value. `node` is its first mention."""

    name: str
    by_assignment: bool
    node: ast.AST


class _Suite:
    """A list of statements under a statement of the parent. `depth` is 0 for the function's body."""

    __slots__ = ("depth", "parent", "statement")

    def __init__(self, parent: _Suite | None, statement: ast.stmt | None) -> None:
        self.parent = parent
        self.statement = statement
        self.depth: int = 0 if parent is None else parent.depth + 1


class _Variable:
    """A variable: the innermost suite with all mentions so far, and the first statement of it that has one."""

    __slots__ = ("assigned", "direct", "first", "statement", "suite")

    def __init__(self, first: ast.AST, stored: bool, suite: _Suite, statement: ast.stmt) -> None:
        self.first = first
        self.assigned = stored  # Whether a mention is an assignment. An unsupported statement may bind the name.
        self.direct = stored  # Whether the first mention is an assignment that stands directly in the suite.
        self.suite = suite
        self.statement = statement

    def mention(self, suite: _Suite) -> None:
        while suite is not self.suite:
            if suite.depth > self.suite.depth:
                assert suite.parent is not None
                suite = suite.parent
            else:
                assert self.suite.parent is not None and self.suite.statement is not None
                self.statement = self.suite.statement
                self.suite = self.suite.parent
                self.direct = False


def declarations(
    body: Sequence[ast.stmt], parameters: Collection[str], names: Collection[str]
) -> dict[ast.stmt, list[Declaration]]:
    """The variables of a function, by the statement that declares them or that follows the declaration.

    `names` are the local variables that Python knows; assigned names are added. Parameters are left out.
    """
    scan = _Scan(parameters, names)
    scan.statements(body, _Suite(None, None))
    found: dict[ast.stmt, list[Declaration]] = {}
    for name, variable in scan.variables.items():
        if not variable.assigned:
            continue
        found.setdefault(variable.statement, []).append(Declaration(name, variable.direct, variable.first))
    return found


# The fields of nodes whose order of evaluation is not the order of the text.
_ORDER: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Assign: ("value", "targets"),
    ast.AnnAssign: ("value", "target"),
    ast.IfExp: ("test", "body", "orelse"),
}


# Names inside of these are not the function's.
_SCOPES = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)
# The field with the name, of nodes that bind a name without an `ast.Name`.
_BINDERS: dict[type[ast.AST], str] = {
    ast.FunctionDef: "name",
    ast.AsyncFunctionDef: "name",
    ast.ClassDef: "name",
    ast.alias: "asname",
    ast.ExceptHandler: "name",
    ast.MatchAs: "name",
    ast.MatchStar: "name",
    ast.MatchMapping: "rest",
}


def mentions(node: ast.AST) -> Iterator[tuple[str, ast.AST, bool]]:
    """The names that a node mentions, in the order of evaluation: with the nodes, and whether these bind the names."""
    work = [node]
    while work:
        node = work.pop()
        if isinstance(node, ast.Name):
            yield node.id, node, isinstance(node.ctx, ast.Store)
            continue
        field = _BINDERS.get(type(node))
        name: str | None = getattr(node, field) if field is not None else None
        if name is None and isinstance(node, ast.alias):
            name = node.name.partition(".")[0]
        if name is not None and name != "*":
            yield name, node, True
        if not isinstance(node, _SCOPES):
            work.extend(reversed(_children(node)))


def _children(node: ast.AST) -> list[ast.AST]:
    fields = _ORDER.get(type(node))
    if fields is None:
        return list(ast.iter_child_nodes(node))
    values: list[Any] = [getattr(node, name) for name in fields]
    return [inner for value in values if value for inner in (value if isinstance(value, list) else [value])]  # pyright: ignore[reportUnknownVariableType]


def assigned_names(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The names that a statement or a target binds, with the nodes that do, its inner suites included."""
    return ((name, at) for name, at, binds in mentions(node) if binds)


def returns(node: ast.AST) -> bool:
    """Whether a statement is a `return`, or has one inside."""
    if isinstance(node, ast.Return):
        return True
    return not isinstance(node, _SCOPES) and any(map(returns, ast.iter_child_nodes(node)))


class _Scan:
    def __init__(self, parameters: Collection[str], names: Collection[str]) -> None:
        self.parameters = parameters
        self.names = names
        self.variables: dict[str, _Variable] = {}

    def statements(self, body: Sequence[ast.stmt], suite: _Suite) -> None:
        for statement in body:
            if isinstance(statement, ast.If | ast.While):
                self.mentioned(statement.test, suite, statement)
                for inner in filter(None, (statement.body, statement.orelse)):
                    self.statements(inner, _Suite(suite, statement))
            elif isinstance(statement, ast.For):
                self.mentioned(statement.iter, suite, statement)
                inner = _Suite(suite, statement)  # The item is assigned in the loop's suite.
                self.mentioned(statement.target, inner, statement)
                self.statements(statement.body, inner)
                self.statements(statement.orelse, suite)
            elif isinstance(statement, ast.AugAssign):
                # `x += e` reads x before it writes it: to the placement it is a use.
                if isinstance(statement.target, ast.Name):
                    self.mention(statement.target.id, statement.target, False, suite, statement)
                self.mentioned(statement, suite, statement)
            else:
                self.mentioned(statement, suite, statement)

    def mentioned(self, node: ast.AST, suite: _Suite, statement: ast.stmt) -> None:
        for name, at, binds in mentions(node):
            self.mention(name, at, binds, suite, statement)

    def mention(self, name: str, node: ast.AST, stored: bool, suite: _Suite, statement: ast.stmt) -> None:
        variable = self.variables.get(name)
        if variable is not None:
            variable.assigned |= stored
            if variable.suite is not suite:
                variable.mention(suite)
        elif name not in self.parameters and (stored or name in self.names):
            self.variables[name] = _Variable(node, stored, suite, statement)
