"""Execution of a Python code model on plain Python values: the meaning of the core ops and of Python's constructs.

A source and its model are compared by running both: the results must be equal.

    execute(reflect(fn), (6, 3))
    execute(module, (6, 3), symbol="main", host={"zg.cdiv": lambda a, b: -(-a // b)})
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

import attrs

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.errors import KernelNameError, KernelRuntimeError, ZigguratError
from ziggurat.codemodel.interpret import Exit, Interpreter, Jump, Meaning, Returned, Yielded
from ziggurat.codemodel.op import Body, Op
from ziggurat.codemodel.python_operators import OPERATORS

Host = Mapping[str, Callable[..., Any]]

python = OpTable[Meaning]("meaning in Python")

# The builtins that `invoke @"builtins.…"` can name.
BUILTINS: Final = (
    *("range", "min", "max", "abs", "len", "int", "float", "bool", "isinstance", "print", "sum", "tuple", "list"),
    *("str", "repr", "slice", "getattr", "hasattr", "breakpoint"),
)

UNSET: Final = object()


class Cell:
    """A variable: its name and its present value."""

    __slots__ = ("content", "name")

    def __init__(self, name: str, content: Any) -> None:
        self.name = name
        self.content = content


class PythonInterpreter(Interpreter):
    """Executes the Python tier. `functions` has the module's functions by symbol, `host` those that `invoke` names."""

    def __init__(self, functions: Mapping[str, Op], host: Host) -> None:
        super().__init__(python)
        self.functions = functions
        self.host = host

    def fail(self, op: Op, error: Exception) -> NoReturn:
        """Raise an exception of Python as a `KernelRuntimeError` at the op, with the exception as its cause."""
        if not isinstance(error, ZigguratError):
            raise KernelRuntimeError(f"{type(error).__name__}: {error}", op.location) from error
        super().fail(op, error)

    def declared(self, op: core.Var, content: Any) -> Cell:
        """The variable that an op declares, with its first content."""
        return Cell(op.name, content)

    def unset(self, cell: Cell) -> NoReturn:
        """Raise the error of a variable without a value."""
        raise KernelNameError(f"the variable '{cell.name}' has no value here")

    def assertion(self, message: tuple[Any, ...]) -> NoReturn:
        """Raise the error of an assertion that does not hold."""
        raise KernelRuntimeError(f"assertion failed: {message[0]}" if message else "assertion failed")

    def outer(self, name: str) -> Any:
        """The object that a name from outside means."""
        if name not in self.host:
            raise KernelNameError(f"'{name}' has no meaning on the host")
        return self.host[name]

    def call_symbol(self, symbol: str, arguments: Sequence[Any]) -> Any:
        """Call a function of the module; returns its result, or None."""
        function = self.functions.get(symbol)
        if function is None:
            raise KernelNameError(f"the model has no function '{symbol}'")
        body = function.bodies[0]
        if len(arguments) != len(body.parameters):
            raise KernelRuntimeError(f"'{symbol}' takes {len(body.parameters)} argument(s), got {len(arguments)}")
        values = self.call(body, arguments)
        return values[0] if values else None

    def bound(self, symbol: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Sequence[Any]:
        """Arguments in the order of a function's parameters; the variables that hold these have their names."""
        function = self.functions.get(symbol)
        if function is None or not keywords:
            return arguments
        names = py.parameter_names(function)
        missing = names[len(arguments) :]
        if set(missing) != set(keywords):
            takes = ", ".join(name or "?" for name in names)
            got = ", ".join([str(len(arguments)), *keywords])
            raise KernelRuntimeError(f"'{symbol}' takes {takes}; got {got}")
        return [*arguments, *(keywords[name] for name in missing if name is not None)]

    def evaluate(self, body: Body, arguments: Sequence[Any] = ()) -> tuple[Any, Exit | None]:
        """Run a body for its value. The second component is the exit if the body left its function or loop."""
        outcome = self.run_body(body, arguments)
        if isinstance(outcome, Yielded):
            return (outcome.values[0] if outcome.values else None), None
        return None, outcome

    def invoke(self, name: str, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Call a function of the host, a builtin, or a method of the first operand."""
        function = self.host.get(name)
        if function is None:
            owner, _, rest = name.partition(".")
            if owner == "builtins" and rest in BUILTINS:
                function = getattr(builtins, rest)
            elif owner == "" and positional:
                function, positional = getattr(positional[0], rest), positional[1:]
            else:
                raise KernelNameError(f"'{name}' has no meaning on the host")
        assert function is not None
        return function(*positional, **keywords)


def execute(model: Op, arguments: Sequence[Any] = (), *, symbol: str | None = None, host: Host | None = None) -> Any:
    """Run a `func`, or the function `symbol` of a `module`, on Python values; returns its result.

    `host` says by name what `invoke` calls (`zg.cdiv`); Python's builtins are known. A module of one function needs no
    symbol.

    Raises `KernelNameError` for a name without meaning or a variable without value, `KernelRuntimeError` where the
    program fails; both with the location of the op.
    """
    functions: Mapping[str, Op]
    functions = model.functions() if isinstance(model, core.Module) else {model.attributes["sym_name"]: model}
    if symbol is None:
        if len(functions) != 1:
            raise KernelNameError(f"say which function to run: {', '.join(functions)}")
        symbol = next(iter(functions))
    return PythonInterpreter(functions, host or {}).call_symbol(symbol, arguments)


# Functions, values and variables.


@python.of(core.FuncCall)
def _call(interpreter: PythonInterpreter, op: core.FuncCall, operands: tuple[Any, ...]) -> Any:
    if op.keywords:
        raise KernelRuntimeError(f"the keywords of the call of '{op.callee}' are not resolved")
    return interpreter.call_symbol(op.callee, operands)


@python.of(core.FuncRef)
def _reference(interpreter: PythonInterpreter, op: core.FuncRef, operands: tuple[Any, ...]) -> Any:
    def call(*arguments: Any, **keywords: Any) -> Any:
        return interpreter.call_symbol(op.callee, interpreter.bound(op.callee, arguments, keywords))

    return call


@python.of(core.ConstantOp)
def _constant(interpreter: Interpreter, op: core.ConstantOp, operands: tuple[Any, ...]) -> Any:
    return op.value


@python.of(core.Var)
def _var(interpreter: PythonInterpreter, op: core.Var, operands: tuple[Any, ...]) -> Any:
    return interpreter.declared(op, operands[0] if operands else UNSET)


@python.of(core.VarLoad)
def _load(interpreter: PythonInterpreter, op: Op, operands: tuple[Any, ...]) -> Any:
    cell = operands[0]
    if cell.content is UNSET:
        interpreter.unset(cell)
    return cell.content


@python.of(core.VarStore)
def _store(interpreter: Interpreter, op: Op, operands: tuple[Any, ...]) -> None:
    operands[0].content = operands[1]


@python.of(py.Iterate)
def _iterate(interpreter: Interpreter, op: Op, operands: tuple[Any, ...]) -> Any:
    return iter(operands[0])


@python.of(py.Advance)
def _advance(interpreter: Interpreter, op: Op, operands: tuple[Any, ...]) -> Any:
    return next(operands[0], UNSET)


@python.of(py.Exhausted)
def _exhausted(interpreter: Interpreter, op: Op, operands: tuple[Any, ...]) -> bool:
    return operands[0] is UNSET


@python.of(core.MakeTuple, py.Pack)
def make_tuple(interpreter: Interpreter, op: Op, operands: tuple[Any, ...]) -> Any:
    return operands


@python.of(core.TupleLoad)
def component(interpreter: Interpreter, op: core.TupleLoad, operands: tuple[Any, ...]) -> Any:
    return operands[0][op.index]


@python.of(core.TupleWith)
def with_component(interpreter: Interpreter, op: core.TupleWith, operands: tuple[Any, ...]) -> Any:
    return (*operands[0][: op.index], operands[1], *operands[0][op.index + 1 :])


@python.of(py.Unpack)
def _unpack(interpreter: Interpreter, op: py.Unpack, operands: tuple[Any, ...]) -> Any:
    parts = tuple(operands[0])
    if len(parts) != op.count:
        raise KernelRuntimeError(f"{len(parts)} value(s) are unpacked into {op.count} names")
    return parts[op.index]


@python.of(py.Attribute)
def _attribute(interpreter: Interpreter, op: py.Attribute, operands: tuple[Any, ...]) -> Any:
    return getattr(operands[0], op.name)


def arguments_of(op: Any, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call by position, with the items of those that are passed as `*t`, and by keyword."""
    count = len(values) - len(op.keywords)
    positional: list[Any] = []
    for index, value in enumerate(values[:count]):
        positional += value if index in op.starred else (value,)
    keywords: dict[str, Any] = {}
    for name, value in zip(op.keywords, values[count:], strict=True):
        more: Mapping[str, Any] = value if name == "**" else {name: value}
        twice = [key for key in more if key in keywords]
        if twice:
            raise TypeError(f"got multiple values for keyword argument '{twice[0]}'")
        keywords |= {key: more[key] for key in more.keys()}  # noqa: SIM118  (as for any mapping)
    return positional, keywords


@python.of(py.Invoke)
def _invoke(interpreter: PythonInterpreter, op: py.Invoke, operands: tuple[Any, ...]) -> Any:
    return interpreter.invoke(op.callee, *arguments_of(op, operands))


@python.of(py.Call)
def _call_value(interpreter: PythonInterpreter, op: py.Call, operands: tuple[Any, ...]) -> Any:
    function, *values = operands
    arguments, keywords = arguments_of(op, values)
    return function(*arguments, **keywords)


@python.of(py.Outer)
def _outer(interpreter: PythonInterpreter, op: py.Outer, operands: tuple[Any, ...]) -> Any:
    return interpreter.outer(op.name)


@python.of(py.Format)
def _format(interpreter: Interpreter, op: py.Format, operands: tuple[Any, ...]) -> Any:
    return op.template.format(*operands)


@python.of(py.Comprehension)
def _comprehension(interpreter: PythonInterpreter, op: py.Comprehension, operands: tuple[Any, ...]) -> Any:
    iterable, _ = interpreter.evaluate(op.iterable)
    items = [item for item in iterable if interpreter.evaluate(op.condition, (item,))[0]]
    return tuple(interpreter.evaluate(op.element, (item,))[0] for item in items)


@python.of(py.Error)
def _error(interpreter: Interpreter, op: py.Error, operands: tuple[Any, ...]) -> Any:
    raise op.error()


FUNCTIONS: Final[dict[type[Op], Callable[..., Any]]] = {
    **{cls: row.function for cls, row in OPERATORS.items()}, py.Subscript: operator.getitem,
}  # fmt: skip


@python.of(*FUNCTIONS)
def _operator(interpreter: Interpreter, op: Op, operands: tuple[Any, ...]) -> Any:
    return FUNCTIONS[type(op)](*operands)


# Control flow.


@python.of(core.Return)
def _return(interpreter: Interpreter, op: Op, operands: tuple[Any, ...]) -> Exit:
    return Returned(operands)


@python.of(core.Yield)
def _yield(interpreter: Interpreter, op: Op, operands: tuple[Any, ...]) -> Exit:
    return Yielded(operands)


@attrs.frozen
class Left(Exit):
    """The present iteration of the innermost loop is left by `op`, a `break` or a `continue`."""

    op: Op


@python.of(py.Break, py.Continue)
def _leave_iteration(interpreter: Interpreter, op: Op, operands: tuple[Any, ...]) -> Exit:
    return Left(op)


def goes_on(outcome: Exit) -> bool:
    return isinstance(outcome, Yielded) or (isinstance(outcome, Left) and isinstance(outcome.op, py.Continue))


@python.of(core.Unreachable)
def _unreachable(interpreter: Interpreter, op: Op, operands: tuple[Any, ...]) -> Exit:
    raise KernelRuntimeError("control got to a place that is marked unreachable")


@python.of(core.Branch)
def _branch(interpreter: Interpreter, op: core.Branch, operands: tuple[Any, ...]) -> Exit:
    return Jump(op.target)


@python.of(core.CondBranch)
def _cond_branch(interpreter: Interpreter, op: core.CondBranch, operands: tuple[Any, ...]) -> Exit:
    return Jump(op.then if operands[0] else op.otherwise)


@python.of(py.For)
def _for(interpreter: PythonInterpreter, op: py.For, operands: tuple[Any, ...]) -> Exit | None:
    iterable, leaving = interpreter.evaluate(op.iterable)
    if leaving is not None:
        return leaving
    for item in iterable:
        outcome = interpreter.run_body(op.suite, (item,))
        if not goes_on(outcome):
            return None if isinstance(outcome, Left) else outcome
        if operands and not operands[0].content:
            break
    return None


@python.of(py.While)
def _while(interpreter: PythonInterpreter, op: py.While, operands: tuple[Any, ...]) -> Exit | None:
    while True:
        holds, leaving = interpreter.evaluate(op.condition)
        if leaving is not None:
            return leaving
        if not holds:
            return None
        outcome = interpreter.run_body(op.suite)
        if not goes_on(outcome):
            return None if isinstance(outcome, Left) else outcome
        if operands and not operands[0].content:
            return None


@python.of(py.If, py.CondExpression)
def _if(interpreter: PythonInterpreter, op: py.If | py.CondExpression, operands: tuple[Any, ...]) -> Any:
    value, leaving = interpreter.evaluate(op.then if operands[0] else op.otherwise)
    return value if leaving is None else leaving


@python.of(py.CondAnd, py.CondOr)
def _shortcut(interpreter: PythonInterpreter, op: py.CondAnd | py.CondOr, operands: tuple[Any, ...]) -> Any:
    stops_at = isinstance(op, py.CondOr)
    value: Any = None
    for part in op.parts:
        value, leaving = interpreter.evaluate(part)
        if leaving is not None:
            return leaving
        if bool(value) == stops_at:
            break
    return value


@python.of(py.Assert)
def _assert(interpreter: PythonInterpreter, op: py.Assert, operands: tuple[Any, ...]) -> None:
    if not operands[0]:
        interpreter.assertion(operands[1:])
