"""The interpreter of Python functions, on real objects; and the meanings of functions and classes inside of one.

Exceptions are Python's own, and pass through as they are raised. Generators and coroutines have no meaning here: their
frames stop in the middle, and the interpreter's do not.
"""

from __future__ import annotations

import builtins
import copy
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

import attrs

from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.dialects import py_suites as suites
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.execute import UNSET, Cell, PythonInterpreter, arguments_of, python
from ziggurat.codemodel.interpret import Exit, Returned, Yielded
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.python_parameters import names_of, signature_of

_MISSING: Final = object()


@attrs.define(eq=False)
class Frame:
    """A call that is running: its arguments, the class of its method, the members of a class's suite, and the variables
    of a comprehension, which all its items share."""

    arguments: Sequence[Any] = ()
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
        content = self.scope.get(name, _MISSING)
        if content is _MISSING:
            content = getattr(builtins, name, _MISSING)
        if content is _MISSING:
            raise NameError(f"name '{name}' is not defined")
        return content

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

    # Functions and classes.

    def inside(self, values: dict[Value, Any], frame: Frame) -> FunctionInterpreter:
        """The interpreter of a call, which has values of its own: calls of several threads do not meet."""
        inner = copy.copy(self)
        inner.values, inner.frame = values, frame
        return inner

    def function(
        self, body: Body, signature: inspect.Signature, captured: Mapping[Value, Any], owner: Callable[[], Any] | None
    ) -> Callable[..., Any]:
        """A function of Python that runs a body."""

        def call(*arguments: Any, **keywords: Any) -> Any:
            bound = signature.bind(*arguments, **keywords)
            bound.apply_defaults()
            contents = [bound.arguments[name] for name in signature.parameters]
            outcome = self.inside(dict(captured), Frame(contents, owner)).run_body(body, contents)
            return outcome.values[0] if isinstance(outcome, Returned) and outcome.values else None

        call.__module__ = self.scope.get("__name__", "builtins")
        return call


def require_plain(kind: str, op: Op) -> None:
    """Raise `TargetError` for a function that stops in the middle."""
    if kind not in ("def", "lambda"):
        hint = "make a function of the model: zg.to_function"
        raise TargetError(f"a function of the kind '{kind}' has no meaning in the interpreter", op.location, hint)


@python.of(suites.Define)
def _define(interpreter: FunctionInterpreter, op: suites.Define, operands: tuple[Any, ...]) -> Any:
    require_plain(op.kind, op)
    rest = iter(operands)
    defaults = {text.partition(":")[0].rstrip("="): next(rest) for text in op.parameters if text.endswith("=")}
    notes = {
        text.rstrip("=").rstrip(":").lstrip("*"): next(rest) for text in op.parameters if text.rstrip("=")[-1:] == ":"
    }
    captured = {value: interpreter.lookup(value) for value in op.captured_values()}
    frame = interpreter.frame
    signature = signature_of(op.parameters, names_of(op), (), defaults)
    function = interpreter.function(op.suite, signature, captured, frame.owner)
    function.__name__ = function.__qualname__ = op.name
    function.__annotations__ = notes if op.parameters[-1:] != ("->",) else {**notes, "return": operands[-1]}
    first = next((inner for inner in op.suite.entry.ops if not isinstance(inner, core.Var)), None)
    if isinstance(first, core.ConstantOp) and isinstance(first.value, str) and op.kind != "lambda":
        function.__doc__ = first.value if not first.result.uses else None
    return function


@python.of(suites.Class)
def _class(interpreter: FunctionInterpreter, op: suites.Class, operands: tuple[Any, ...]) -> Any:
    positional, keywords = arguments_of(op, operands)
    bases = tuple(positional)
    classes: list[Any] = []

    def fill(members: Any) -> None:
        members["__module__"], members["__qualname__"] = interpreter.scope.get("__name__", "builtins"), op.name
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


def left_by(outcome: Exit) -> Exit | None:
    """The exit by which a suite leaves what is around its statement."""
    return None if isinstance(outcome, Yielded) else outcome
