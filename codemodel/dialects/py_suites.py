"""Statements and expressions with suites that kernels lack: functions, classes, exceptions, contexts, patterns.

They model Python functions of any kind; a kernel refuses them where it is compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.dialects.py import Expression, For, While
from ziggurat.codemodel.fields import attribute, bodies, body, operand, operands
from ziggurat.codemodel.op import Body, Op, Value, expect, require
from ziggurat.codemodel.traits import MayReturn, PythonTier, Raises, Routine
from ziggurat.codemodel.types import VarType

# The kinds of functions. A function is a generator by its kind, whether its suite has a `yield` or not.
KINDS = ("def", "generator", "async", "async generator", "lambda")


class Define(Expression, Routine, name="function"):
    """A function inside of a function. Its suite takes the arguments and may use the variables around it.

    `parameters` are written as in Python, `a`, `/`, `*args`, `k=`, `**rest`. A name ends in `=` where it has a default,
    and in `:` before that where it has an annotation. The operands are the defaults, those of keywords among them in
    their place, then the annotations; the last is that of the result where `parameters` end in `->`. If `late`, they
    are texts that Python evaluates when it is asked for them.
    """

    values: Sequence[Value] = operands()
    name: str = attribute(str, unnamed=True)
    suite: Body = body(ends=core.Return)
    kind: str = attribute(str, default="def")
    parameters: tuple[str, ...] = attribute([str], default=())
    type_parameters: str = attribute(str, default="")
    late: bool = attribute(bool, default=False)

    def check(self) -> None:
        require(self.kind in KINDS, f"the kind of a function must be one of {', '.join(KINDS)}; got '{self.kind}'")
        count = parameter_count(self.parameters)
        require(len(self.suite.parameters) == count, "the suite of a function takes its parameters")
        notes = sum(name.rstrip("=").endswith(":") or name == "->" for name in self.parameters)
        count = notes + sum(name.endswith("=") for name in self.parameters)
        require(len(self.values) == count, f"the function has {count} defaults and annotations; got {len(self.values)}")


def parameter_count(parameters: Sequence[str]) -> int:
    """The number of the values that a function with parameters written so gets."""
    return sum(not text.startswith(("->", "[")) and text not in ("/", "*") for text in parameters)


class Class(Expression, name="class"):
    """A class inside of a function. Its suite names its members by `name.store`. `keywords` name the last operands."""

    arguments: Sequence[Value] = operands()
    name: str = attribute(str, unnamed=True)
    suite: Body = body(ends=core.Yield)
    keywords: tuple[str, ...] = attribute([str], default=())
    starred: tuple[int, ...] = attribute([int], default=())
    type_parameters: str = attribute(str, default="")


class Collect(Expression, name="collect"):
    """A list, a set or a dict of the elements that the suite gives for each item of an iterable, or their generator.

    The suite takes an item. Further `for` and `if` of the comprehension are ops in it, `element` in the innermost.
    """

    iterable: Value = operand()
    kind: str = attribute(str, unnamed=True)
    suite: Body = body(ends=core.Yield)
    is_async: bool = attribute(bool, default=False)

    def check(self) -> None:
        kinds = ("list", "set", "dict", "generator")
        require(self.kind in kinds, f"the kind must be one of {', '.join(kinds)}; got '{self.kind}'")
        require(len(self.suite.parameters) == 1, "the suite takes the item")


class Element(Op, PythonTier, name="element"):
    """Give the `collect` around this op an element: a value, or a key and a value."""

    values: Sequence[Value] = operands()


class ForElse(For, name="for.else"):
    """`for … else`: the last body runs where no `break` has ended the loop."""

    otherwise: Body = body(ends=core.Yield, kw_only=True)


class WhileElse(While, name="while.else"):
    """`while … else`: the last body runs where no `break` has ended the loop."""

    otherwise: Body = body(ends=core.Yield, kw_only=True)


class AssertElse(Op, PythonTier, name="assert.else"):
    """`assert condition, message`, whose message is computed only where the condition does not hold."""

    condition: Value = operand()
    message: Body = body(ends=core.Yield)


class Raise(Op, PythonTier, Raises, name="raise"):
    """`raise exception from cause`; without operands, the exception that is being handled."""

    exception: Value | None = operand(default=None)
    cause: Value | None = operand(default=None)


class Try(Op, PythonTier, MayReturn, name="try"):
    """`try: … except …: … else: … finally: …`.

    The bodies are the suite; for each of the `handlers` one that gives the class, or nothing for any, and one that
    takes the exception; then the suite of `else` and that of `finally`. With `star`, handlers are `except*`.
    """

    parts: Sequence[Body] = bodies(ends=core.Yield)
    handlers: int = attribute(int, default=0)
    star: bool = attribute(bool, default=False)

    def check(self) -> None:
        require(len(self.parts) == 2 * self.handlers + 3, "a try has a suite, two bodies a handler, else and finally")
        for part in self.parts[2 : 2 * self.handlers + 1 : 2]:
            require(len(part.parameters) == 1, "the suite of a handler takes the exception")


class Caught(Op, PythonTier, name="caught"):
    """`except … as name`: the variable holds the exception, and has no value after the handler that begins so."""

    var: Value = operand()
    exception: Value = operand()

    def check(self) -> None:
        expect(self.var.type, VarType, f"caught takes a Var; got {self.var.type}")


class With(Op, PythonTier, MayReturn, name="with"):
    """`with manager as target: suite`. The suite takes the value that the manager gives on entry."""

    manager: Value = operand()
    suite: Body = body(ends=core.Yield)
    is_async: bool = attribute(bool, default=False)

    def check(self) -> None:
        require(len(self.suite.parameters) == 1, "the suite of a with takes the value of its manager")


class Match(Op, PythonTier, MayReturn, name="match"):
    """`match subject: case …`. Each case has three bodies: its pattern, its guard, which gives nothing where there is
    none, and its suite. The first case whose pattern matches and whose guard holds is run."""

    subject: Value = operand()
    parts: Sequence[Body] = bodies(ends=core.Yield)

    def check(self) -> None:
        require(len(self.parts) % 3 == 0, "a case has a pattern, a guard and a suite")

    @property
    def cases(self) -> Iterator[tuple[Body, Body, Body]]:
        """The pattern, the guard and the suite of each case."""
        return zip(self.parts[::3], self.parts[1::3], self.parts[2::3], strict=True)


class Pattern(Expression, name="pattern"):
    """A pattern of a `case`, in the body that gives it.

    `value` compares with its operand, `constant` by identity. The operands of `sequence`, `or` and `class` are patterns
    (the first of `class` is the class, and `names` are those of its last patterns); `mapping` has a key before each.
    `as` matches its pattern, or anything, and gives the object to its variable, or to the name `names` has in a class.
    `star` takes the rest of a sequence, `rest` that of a mapping; `any` matches anything.
    """

    parts: Sequence[Value] = operands()
    kind: str = attribute(str, unnamed=True)
    names: tuple[str, ...] = attribute([str], default=())

    def check(self) -> None:
        kinds = ("value", "constant", "sequence", "mapping", "class", "star", "rest", "as", "or", "any")
        require(self.kind in kinds, f"the kind of a pattern must be one of {', '.join(kinds)}; got '{self.kind}'")


class YieldValue(Expression, name="yield.value"):
    """`yield value`: hand a value to the caller of a generator; gives what the caller sends."""

    value: Value | None = operand(default=None)


class YieldFrom(Expression, name="yield.from"):
    """`yield from iterable`: hand on the items of an iterable; gives what a generator returns."""

    iterable: Value = operand()


class Await(Expression, name="await"):
    """`await value`."""

    value: Value = operand()


class Import(Expression, name="import"):
    """The module that an import gives. With `names` it is that of `from name import …`; `level` counts leading dots.

    `import a.b` gives the package `a`, unless `whole`, as in `import a.b as c`.
    """

    name: str = attribute(str, unnamed=True)
    level: int = attribute(int, default=0)
    names: tuple[str, ...] = attribute([str], default=())
    whole: bool = attribute(bool, default=False)


class ImportFrom(Expression, name="import.from"):
    """A name of the module of a `from … import`."""

    module: Value = operand()
    name: str = attribute(str, unnamed=True)


class TypeAlias(Expression, name="type.alias"):
    """`type name = text`, which Python evaluates when the alias is used."""

    name: str = attribute(str, unnamed=True)
    text: str = attribute(str)
    type_parameters: str = attribute(str, default="")
