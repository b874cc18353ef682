"""The place at which each variable of a function is declared.

Python's variables belong to the function. In the model a variable belongs to the innermost suite that contains all its
mentions. The first assignment declares it if that is the first mention and stands directly in the suite. Otherwise a
declaration without a value stands before the first statement of the suite that mentions it. A variable that an
iteration of a loop may read before it assigns it has its value from an iteration before, so it is declared before all
loops around it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import attrs

from ziggurat.codemodel.graphs import by_key

# The statements around a mention of a variable, from the function's body inwards, each with a number for its suite.
_Path = tuple[tuple[int, ast.stmt], ...]


@attrs.define
class Declaration:
    """A variable to declare, by an assignment or without a value. `node` is its first mention."""

    name: str
    node: ast.AST
    _path: _Path
    _is_stored: bool  # Whether the first mention is an assignment.
    assigned: bool = attrs.field(init=False)  # Whether any mention is one. An unsupported statement may bind the name.
    is_kept: bool = False  # Whether it may be read before it is assigned: in a loop, from an iteration before.
    _depth: int = attrs.field(init=False)  # The number of suites around all mentions so far.

    def __attrs_post_init__(self) -> None:
        self.assigned, self._depth = self._is_stored, len(self._path)

    def mention(self, is_store: bool, path: _Path) -> None:
        """Record another use of the name: an assignment, if `is_store`."""
        self.assigned |= is_store
        depth = min(self._depth, len(path))
        while path[depth - 1][0] != self._path[depth - 1][0]:
            depth -= 1
        self._depth = depth

    def leave_loops(self) -> None:
        """Declare a variable that iterations keep before all loops around it."""
        if self.is_kept:
            loops = (at for at in range(1, self._depth) if isinstance(self._path[at - 1][1], ast.For | ast.While))
            self._depth = next(loops, self._depth)

    @property
    def by_assignment(self) -> bool:
        """Whether the first mention, an assignment, stands directly in the suite that has all mentions."""
        return self._is_stored and self._depth == len(self._path)

    @property
    def statement(self) -> ast.stmt:
        """The first statement with a mention, in the suite that has all mentions."""
        return self._path[self._depth - 1][1]


def declarations(
    body: Sequence[ast.stmt], parameters: Collection[str], names: Collection[str]
) -> dict[ast.stmt, list[Declaration]]:
    """The variables of a function, by the statement that declares them or that follows the declaration.

    `names` are the local variables that Python knows; assigned names are added. Parameters are left out.
    """
    variables: dict[str, Declaration] = {}

    def mention(name: str, node: ast.AST, is_store: bool, path: _Path, assigned: set[str]) -> None:
        if name in variables:
            variables[name].mention(is_store, path)
        elif name not in parameters and (is_store or name in names):
            variables[name] = Declaration(name, node, path, is_store)
        if is_store:
            assigned.add(name)
        elif name in variables:
            variables[name].is_kept |= name not in assigned

    def mentioned(node: ast.AST, path: _Path, assigned: set[str]) -> None:
        for name, at, binds in mentions(node):
            mention(name, at, binds, path, assigned)

    def scan(statements: Sequence[ast.stmt], outer: _Path, suite: int, before: set[str]) -> set[str] | None:
        """The names that are assigned after some statements, if those of `before` are; None where control leaves."""
        assigned = before.copy()
        for statement in statements:
            path = (*outer, (suite, statement))
            if isinstance(statement, ast.If | ast.While):
                mentioned(statement.test, path, assigned)
                after = [scan(inner, path, id(inner), assigned) for inner in (statement.body, statement.orelse)]
                paths = [names for names in after if names is not None]
                if isinstance(statement, ast.If) and paths:
                    assigned = set[str].intersection(*paths)
            elif isinstance(statement, ast.For):
                mentioned(statement.iter, path, assigned)
                # The item is assigned in the loop's suite.
                inside = assigned.copy()
                mentioned(statement.target, (*path, (id(statement.body), statement)), inside)
                scan(statement.body, path, id(statement.body), inside)
                scan(statement.orelse, outer, suite, assigned)
            else:
                if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                    # `x += e` reads x before it writes it: to the placement it is a use.
                    mention(statement.target.id, statement.target, False, path, assigned)
                mentioned(statement, path, assigned)
                if isinstance(statement, ast.Return | ast.Continue | ast.Break | ast.Raise):
                    return None
        return assigned

    scan(body, (), id(body), set())
    for variable in variables.values():
        variable.leave_loops()
    return by_key((variable.statement, variable) for variable in variables.values() if variable.assigned)


# The fields of nodes whose order of evaluation is not the order of the text.
_ORDER: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Assign: ("value", "targets"),
    ast.AnnAssign: ("value", "target"),
    ast.IfExp: ("test", "body", "orelse"),
}


# Names inside of these are not the function's.
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
# These have variables of their own, and read those of the function.
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
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
    work: list[Any] = [node]
    while work:
        part: Any = work.pop()
        if isinstance(part, ast.Name):
            yield part.id, part, isinstance(part.ctx, ast.Store)
            continue
        if isinstance(part, ast.Constant) or not isinstance(part, ast.AST):
            continue
        if isinstance(part, _COMPREHENSIONS):
            yield from _of_comprehension(part)
            continue
        node = part
        if isinstance(node, ast.NamedExpr):
            # `(x := e)` stands inside of an expression: to the placement it is a use, so that x is declared before it.
            yield node.target.id, node.target, False
        cls = type(node)
        field = _BINDERS.get(cls)
        name: str | None = getattr(node, field) if field is not None else None
        if name is None and isinstance(node, ast.alias):
            name = node.name.partition(".")[0]
        if name is not None and name != "*":
            yield name, node, True
        if cls not in _SCOPES:
            for field in reversed(_ORDER.get(cls, cls._fields)):
                value: Any = getattr(node, field, None)
                if isinstance(value, list):
                    work.extend(reversed(value))  # pyright: ignore[reportUnknownArgumentType]
                elif value is not None and field != "ctx":
                    work.append(value)


def _of_comprehension(
    node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp,
) -> Iterator[tuple[str, ast.AST, bool]]:
    """The mentions in a comprehension of variables of the function around it, which computes the first iterable."""
    first, *others = node.generators
    yield from mentions(first.iter)
    own = {name.id for part in node.generators for name in ast.walk(part.target) if isinstance(name, ast.Name)}
    results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    for part in (first.target, *first.ifs, *others, *results):
        yield from (mention for mention in mentions(part) if mention[0] not in own)


def assigned_names(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The names that a statement or a target binds, with the nodes that do, its inner suites included."""
    return ((name, at) for name, at, binds in mentions(node) if binds)


def returns(node: ast.AST) -> bool:
    """Whether a statement is a `return`, or has one inside."""
    if isinstance(node, ast.Return):
        return True
    return not isinstance(node, _SCOPES) and any(map(returns, ast.iter_child_nodes(node)))


def constant_names(statements: Sequence[ast.stmt]) -> Iterator[str]:
    """The variables that are annotated as constants, `x: tl.constexpr = …`, inner suites included."""
    for statement in statements:
        if isinstance(statement, ast.AnnAssign):
            annotation, target = statement.annotation, statement.target
            if isinstance(annotation, ast.Constant):
                name = str(annotation.value).rpartition(".")[2]
            else:
                name = getattr(annotation, "attr", None) or getattr(annotation, "id", None)
            if name == "constexpr" and isinstance(target, ast.Name):
                yield target.id
        elif isinstance(statement, ast.If | ast.For | ast.While):
            yield from constant_names(statement.body)
            yield from constant_names(statement.orelse)
