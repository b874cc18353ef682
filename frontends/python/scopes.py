"""Scopes: which variable, or which name from outside, a name in a function means."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any, Final

import attrs

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.op import Value

FUNCTION: Final = "function"
CLASS: Final = "class"
COMPREHENSION: Final = "comprehension"

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@attrs.define(eq=False)
class Binds:
    """The names that a scope binds itself, and those that it takes from the scopes around it or from the module."""

    names: set[str] = attrs.field(factory=set[str])
    from_module: set[str] = attrs.field(factory=set[str])
    from_around: set[str] = attrs.field(factory=set[str])
    has_yield: bool = False


@attrs.define(eq=False)
class Scope:
    """A function, a class or a comprehension. `builder` adds to its body; `variables` are those it has declared."""

    kind: str
    binds: Binds
    builder: Builder
    around: Scope | None = None
    # The class by whose name Python renames private names.
    owner: str = ""
    variables: dict[str, Value] = attrs.field(factory=dict[str, Value])
    _homes: dict[str, Scope | None] = attrs.field(factory=dict[str, "Scope | None"])

    def home(self, name: str) -> Scope | None:
        """The scope whose name it is; None for one of the module, or of a function around the outermost one."""
        if name not in self._homes:
            self._homes[name] = self._home_of(name)
        return self._homes[name]

    def _home_of(self, name: str) -> Scope | None:
        scope: Scope | None = self
        while scope is not None:
            if scope is self or scope.kind != CLASS:
                binds = scope.binds
                if name in binds.from_module:
                    return None
                if name in binds.names and name not in binds.from_around:
                    return scope
            scope = scope.around
        return None

    def function(self) -> Scope:
        """The scope that `:=` binds names in: the innermost one that is no comprehension."""
        scope = self
        while scope.kind == COMPREHENSION and scope.around is not None:
            scope = scope.around
        return scope

    def renamed(self, name: str) -> str:
        """The name as Python renames it in a class: `__x` is `_Class__x` there."""
        if not self.owner or name[:2] != "__" or name[-2:] == "__" or "." in name:
            return name
        return f"_{self.owner}{name}"


def binds_of(parts: Iterable[ast.AST], parameters: Iterable[str] = ()) -> Binds:
    """The names that the statements or the expression of a scope bind, without those of the scopes inside of it."""
    binds = Binds(set(parameters))
    names = binds.names
    work: list[Any] = list(parts)
    while work:
        node: Any = work.pop()
        cls: Any = node.__class__
        if cls is ast.Name:
            if type(node.ctx) is not ast.Load:
                names.add(node.id)
            continue
        if cls is ast.Constant or not hasattr(node, "_fields"):
            continue
        if cls in _FUNCTIONS or cls is ast.ClassDef:
            names.add(node.name)
            work += node.decorator_list
            work += [node.args, node.returns] if cls in _FUNCTIONS else [*node.bases, *node.keywords]
            continue
        if cls is ast.Lambda:
            work.append(node.args)
            continue
        if cls in _COMPREHENSIONS:
            work.append(node.generators[0].iter)
            names.update(_walrus_names(node))
            continue
        if cls is ast.Global:
            binds.from_module.update(node.names)
        elif cls is ast.Nonlocal:
            binds.from_around.update(node.names)
        elif cls is ast.alias:
            names.add(node.asname or node.name.partition(".")[0])
        elif cls is ast.Yield or cls is ast.YieldFrom:
            binds.has_yield = True
        elif cls is ast.MatchMapping:
            if node.rest is not None:
                names.add(node.rest)
        elif cls in (ast.ExceptHandler, ast.MatchAs, ast.MatchStar) and node.name is not None:
            names.add(node.name)
        for field in cls._fields:
            value = getattr(node, field, None)
            if type(value) is list:
                work += value
            else:
                work.append(value)
    return binds


def _walrus_names(comprehension: ast.AST) -> set[str]:
    """The names that `:=` binds in a comprehension and the comprehensions inside of it."""
    names: set[str] = set()
    work: list[ast.AST] = [comprehension]
    while work:
        node = work.pop()
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.NamedExpr):
            names.add(node.target.id)
        work.extend(ast.iter_child_nodes(node))
    return names


def target_names(generators: Iterable[ast.comprehension]) -> set[str]:
    """The names that the `for`s of a comprehension bind."""
    return binds_of(generator.target for generator in generators).names
