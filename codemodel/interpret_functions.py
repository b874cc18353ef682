"""The interpreter of Python functions, on real objects; and the meanings of functions and classes inside of one.

Exceptions are Python's own, and pass through as they are raised. `interpret_generators.py` has the functions that stop
in the middle.
"""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import types
import typing
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, NoReturn

import attrs

from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.dialects import py_suites as suites
from ziggurat.codemodel.execute import UNSET, Cell, PythonInterpreter, arguments_of, python
from ziggurat.codemodel.interpret import Exit, Returned
from ziggurat.codemodel.interpret_generators import flow, stopping_function, stops
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.python_parameters import names_of, signature_of

_MISSING: Final = object()


@attrs.define(eq=False)
class Frame:
    """A call that is running: its arguments, the kind of its function, the class of its method, the members of a
    class's suite, and the variables of a comprehension, which all its items share."""

    arguments: Sequence[Any] = ()
    kind: str = "def"
    owner: Callable[[], Any] | None = None
    members: Any = None
    shared: dict[Value, Cell] | None = None


class FunctionInterpreter(PythonInterpreter):
    """Runs one function and those inside of it. `scope` has its globals, `cells` the variables of functions around."""

    def __init__(self, scope: dict[str, Any], cells: Mapping[str, types.CellType]) -> None:
        super().__init__({}, {})
        self.scope = scope
        self.cells = cells
        self.frame = Frame()
        self.stopping: dict[Op, bool] = {}
        self.generics: dict[str, Any] = {}  # Type parameters: their texts, or the objects of those that were asked for.

    def fail(self, op: Op, error: Exception) -> NoReturn:
        """Raise an exception of the program as it is."""
        raise error

    def assertion(self, message: tuple[Any, ...]) -> NoReturn:
        raise AssertionError(*message)

    def release(self, value: Value) -> None:
        """Forget a value that is not used any more, but for variables, which live as long as their function."""
        if type(self.values.get(value)) is not Cell:
            super().release(value)

    def declared(self, op: core.Var, content: Any) -> Cell:
        shared = self.values if self.frame.shared is None else self.frame.shared
        if op.result not in shared or self.frame.shared is None:
            shared[op.result] = Cell(op.name, content)
        shared[op.result].content = content
        return shared[op.result]

    def unset(self, cell: Cell) -> NoReturn:
        raise UnboundLocalError(f"cannot access local variable '{cell.name}' where it is not associated with a value")

    # Names from outside.

    def outer(self, name: str) -> Any:
        """The object that a name from outside means."""
        if name == "__class__" and self.frame.owner is not None:
            return self.frame.owner()
        cell = self.cells.get(name)
        if cell is not None:
            return cell.cell_contents
        if name in self.generics:
            return self.type_parameter(name)
        content = self.scope.get(name, _MISSING)
        if content is _MISSING:
            content = getattr(builtins, name, _MISSING)
        if content is _MISSING:
            raise NameError(f"name '{name}' is not defined")
        return content

    def type_parameter(self, name: str) -> Any:
        """The type parameter of a function, a class or an alias."""
        content = self.generics[name]
        if isinstance(content, str):
            self.type_parameters(content)
        return self.generics[name]

    def type_parameters(self, text: str) -> tuple[Any, ...]:
        """The type parameters that a text has, from now on those of their names."""
        parameters = self.alias("_", text, "None").__type_params__ if text else ()
        self.generics |= {parameter.__name__: parameter for parameter in parameters}
        return parameters

    def alias(self, name: str, parameters: str, text: str) -> Any:
        """`type name[parameters] = text`. Python evaluates the text when the alias is used."""
        brackets = f"[{parameters}]" if parameters else ""
        try:
            tree = ast.parse(f"type {name}{brackets} = {text}")
        except SyntaxError as error:
            raise TypeError(f"the alias '{name}' is none of this version of Python: {error}") from None
        cells = {name: cell.cell_contents for name, cell in self.cells.items() if cell != types.CellType()}
        objects = {name: content for name, content in self.generics.items() if not isinstance(content, str)}
        names = {**self.scope, **cells, **objects, **self.variables()}
        exec(compile(tree, "<model>", "exec"), names)
        return names[name]

    def invoke(self, name: str, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Call a name from outside, or a method of the first operand."""
        if name[0] == ".":
            return getattr(positional[0], name[1:])(*positional[1:], **keywords)
        function: Any = self.outer(name)
        if function in (exec, eval) and isinstance(positional[0], str):
            # Their code would follow the future statements of this module.
            code = compile(positional[0], "<string>", function.__name__, dont_inherit=True)
            names = positional[1:] or (self.scope, self.variables())
            return function(code, *names, **keywords)
        if not positional and not keywords:  # Some builtins look at the frame that calls them.
            if function is super:
                of: Any = super
                return of(self.outer("__class__"), self.frame.arguments[0])
            if function is globals:
                return self.scope
            if function is locals or function is vars:
                return self.variables()
        return function(*positional, **keywords)

    def variables(self) -> Any:
        """The variables that have a value, or the members of the class whose suite this is, by name."""
        if self.frame.members is not None:
            return self.frame.members
        cells = [content for content in self.values.values() if type(content) is Cell]
        return {cell.name: cell.content for cell in cells if cell.content is not UNSET}

    # Suites.

    def matches(self, pattern: Body, subject: Any) -> bool:
        """Whether a subject matches a pattern, whose variables get their values then."""
        assignments: list[tuple[Any, Any]] = []
        if not self.evaluate(pattern)[0](subject, assignments):
            return False
        for place, content in assignments:
            if type(place) is Cell:
                place.content = content
            else:
                self.frame.members[place] = content
        return True

    def forget_caught(self, handler: Body) -> None:
        """Take its value from the variable of an `except … as`, at the end of the handler."""
        first = handler.entry.ops[0]
        if isinstance(first, suites.Caught):
            self.lookup(first.var).content = UNSET

    # Functions and classes.

    def inside(self, values: dict[Value, Any], frame: Frame) -> FunctionInterpreter:
        """The interpreter of a call, which has values of its own: calls of several threads do not meet."""
        inner = copy.copy(self)
        inner.values, inner.frame = values, frame
        return inner

    def function(
        self,
        body: Body,
        signature: inspect.Signature,
        captured: Mapping[Value, Any],
        owner: Callable[[], Any] | None,
        kind: str,
    ) -> Callable[..., Any]:
        """A function of Python, of one of the `KINDS`, that runs a body."""
        if kind == "lambda" and any(stops(op) for block in body.blocks for op in block.ops):
            kind = "generator"

        def begin(arguments: Any, keywords: Any) -> tuple[FunctionInterpreter, Sequence[Any]]:
            bound = signature.bind(*arguments, **keywords)
            bound.apply_defaults()
            # Python 3.13.0 binds a call whose keyword has the name of a parameter by place that is missing.
            for name in signature.parameters:
                if name not in bound.arguments:
                    raise TypeError(f"missing a required positional-only argument: '{name}'")
            contents = [bound.arguments[name] for name in signature.parameters]
            return self.inside(dict(captured), Frame(contents, kind, owner)), contents

        def call(*arguments: Any, **keywords: Any) -> Any:
            inner, contents = begin(arguments, keywords)
            outcome = inner.run_body(body, contents)
            return outcome.values[0] if isinstance(outcome, Returned) and outcome.values else None

        def running(arguments: Any, keywords: Any) -> Generator[Any, Any, Exit]:
            inner, contents = begin(arguments, keywords)
            return flow(inner, body, contents)

        if kind not in ("def", "lambda"):
            call = stopping_function(kind, running)
        call.__module__ = self.scope.get("__name__", "builtins")
        return call


@python.of(suites.Define)
def _define(interpreter: FunctionInterpreter, op: suites.Define, operands: tuple[Any, ...]) -> Any:
    rest = iter(operands)
    defaults = {text.partition(":")[0].rstrip("="): next(rest) for text in op.parameters if text.endswith("=")}
    notes = {
        text.rstrip("=").rstrip(":").lstrip("*"): next(rest) for text in op.parameters if text.rstrip("=")[-1:] == ":"
    }
    captured = {value: interpreter.lookup(value) for value in op.captured_values()}
    frame = interpreter.frame
    signature = signature_of(op.parameters, names_of(op), (), defaults)
    function: Any = interpreter.function(op.suite, signature, captured, frame.owner, op.kind)
    function.__name__ = function.__qualname__ = op.name
    if op.type_parameters:
        function.__type_params__ = interpreter.type_parameters(op.type_parameters)
    function.__annotations__ = notes if op.parameters[-1:] != ("->",) else {**notes, "return": operands[-1]}
    first = next((inner for inner in op.suite.entry.ops if not isinstance(inner, core.Var)), None)
    if isinstance(first, core.ConstantOp) and isinstance(first.value, str) and op.kind != "lambda":
        function.__doc__ = first.value if not first.result.uses else None
    return function


@python.of(suites.TypeAlias)
def _alias(interpreter: FunctionInterpreter, op: suites.TypeAlias, operands: tuple[Any, ...]) -> Any:
    return interpreter.alias(op.name, op.type_parameters, op.text)


@python.of(suites.Class)
def _class(interpreter: FunctionInterpreter, op: suites.Class, operands: tuple[Any, ...]) -> Any:
    positional, keywords = arguments_of(op, operands)
    bases = tuple(positional)
    type_parameters = interpreter.type_parameters(op.type_parameters)
    if type_parameters:
        generic: Any = typing.Generic
        bases = (*bases, generic[type_parameters])
    classes: list[Any] = []

    def fill(members: Any) -> None:
        members["__module__"], members["__qualname__"] = interpreter.scope.get("__name__", "builtins"), op.name
        if type_parameters:
            members["__type_params__"] = type_parameters
        frame = Frame(owner=lambda: classes[0], members=members)
        interpreter.inside(interpreter.values, frame).run_body(op.suite)

    resolved = types.resolve_bases(bases)
    if resolved is not bases:
        members_of = fill

        def fill(members: Any) -> None:
            members_of(members)
            members["__orig_bases__"] = bases

    classes.append(types.new_class(op.name, resolved, keywords, fill))
    return classes[0]
