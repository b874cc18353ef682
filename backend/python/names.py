"""The names that the variables of a model have in its source."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.dialects import py_objects as objects
from ziggurat.codemodel.dialects import py_suites as suites
from ziggurat.codemodel.messages import EXPLICIT_WORDS, Words
from ziggurat.codemodel.op import Body, Op, Value

_OUTER = (py.Outer, objects.StoreOuter, objects.DeleteOuter)
_SCOPES = (suites.Define, suites.Class)


class FunctionNames:
    """The names of one function, class or comprehension, and of those around it.

    A variable keeps its name unless another one of the function has it, or a name from outside that is used there.
    `words` are those of the language of a kernel. In a model that was lifted from a Triton model (`is_lifted`), the
    place of constants and of loads among the other expressions does not matter. `outer` are names from outside that the
    text uses without an op that says so. `from_module` and `from_around` are the
    names that need a declaration, `bound` those that a statement binds.
    """

    def __init__(
        self, body: Body, around: FunctionNames | None = None, free: tuple[str, ...] = (),
        words: Words = EXPLICIT_WORDS, is_lifted: bool = False, outer: Iterable[str] = (),
    ) -> None:  # fmt: skip
        self.around = around
        self.words = around.words if around is not None else words
        self.is_lifted = around.is_lifted if around is not None else is_lifted
        self.free: frozenset[str] = around.free if around is not None else frozenset(free)
        self.names: dict[Value, str] = {}
        self.from_module: set[str] = set()
        self.from_around: set[str] = set()
        self.bound: set[str] = set()
        self.is_class = False
        self.comprehension_of: FunctionNames | None = None
        self.count: list[int] = around.count if around is not None else [0]
        self.reserved: set[str] = around.reserved if around is not None else set(_all_names(body))
        reserved = set(outer)
        for op in own_ops(body, _SCOPES):
            if isinstance(op, _OUTER):
                reserved.add(op.attributes["name"])
            elif isinstance(op, py.Invoke) and op.callee[0] != ".":
                reserved.add(op.callee.partition(".")[0])
            elif around is not None:
                reserved.update(_names_around(op, around))
        for op in own_ops(body, (*_SCOPES, suites.Collect, py.Comprehension)):
            if not isinstance(op, core.Var):
                continue
            name = op.name if op.name.isidentifier() else "value"
            if name in reserved:
                name = self.fresh(name)
            reserved.add(name)
            self.names[op.result] = name
        self.occupied = reserved

    def parameter(self, text: str) -> str:
        """The name of a parameter that no variable holds: the one that is written, if no other has it."""
        name = text if text and text not in self.occupied else self.fresh("argument")
        self.occupied.add(name)
        return name

    def fresh(self, stem: str = "value") -> str:
        """A name that the model does not have."""
        while True:
            self.count[0] += 1
            name = f"{stem}_{self.count[0]}"
            if name not in self.reserved:
                return name

    def of(self, variable: Value) -> str:
        """The name of a variable, of this function or of one around it."""
        scope: FunctionNames | None = self
        while scope is not None:
            name = scope.names.get(variable)
            if name is not None:
                return name
            scope = scope.around
        raise KeyError(variable)

    def function(self) -> FunctionNames:
        """The function or class that a comprehension stands in."""
        return self if self.comprehension_of is None else self.comprehension_of.function()

    def stored(self, variable: Value) -> str:
        """The name of a variable that a statement binds, which is declared where it is one of a function around."""
        name = self.of(variable)
        home = self.function()
        if variable in self.names or variable in home.names:
            home.bound.add(name)
        else:
            home.from_around.add(name)
        return name

    def outer(self, name: str, is_stored: bool = False) -> str:
        """A name from outside of the model, which is declared where a variable of a function around has it as well."""
        home = self.function()
        if is_stored:
            (home.from_around if name in self.free else home.from_module).add(name)
            return name
        scope = home.around
        while scope is not None:
            if name in scope.names.values() and not scope.is_class:
                home.from_module.add(name)
                break
            scope = scope.around
        return name


def own_ops(body: Body, scopes: tuple[type[Op], ...]) -> Iterator[Op]:
    """The ops of a function without those inside of `scopes`."""
    for block in body.blocks:
        for op in block.ops:
            yield op
            if op.bodies and not isinstance(op, scopes):
                for inner in op.bodies:
                    yield from own_ops(inner, scopes)


def _names_around(op: Op, around: FunctionNames) -> Iterator[str]:
    """The names of variables of functions around that an op uses."""
    for value in op.operands:
        if isinstance(value.op, core.Var):
            with contextlib.suppress(KeyError):  # A variable of the function itself.
                yield around.of(value)


def _all_names(body: Body) -> Iterator[str]:
    for op in body.walk():
        fields = op.__dict__
        for field in ("name", "callee"):
            text = fields.get(field)
            if isinstance(text, str):
                yield text
