"""Tracing: a Python function runs once on symbolic values, and the calls it makes become the Python code model.

Tracing gives the same model as reflection for straight-line code. Python's own `if` and `for` run during the trace, so
they choose and unroll; `for_`, `if_` and `while_` build control flow of the kernel.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, cast

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import KernelSyntaxError, KernelTypeError, LaunchError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.types import Type, constexpr_type, pyobject
from ziggurat.frontends.bodies import Bodies, symbol_of
from ziggurat.frontends.language import Function
from ziggurat.frontends.language.constants import as_constant
from ziggurat.frontends.language.function import Default
from ziggurat.frontends.language.signature import Signature, active_recorder
from ziggurat.frontends.tracing.symbols import ConstantFloat, ConstantInt, TracedValue, constant_argument


class Trace(Bodies):
    """A trace in progress: the builder that it appends to, and the functions that its calls refer to."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.callees: dict[str, Function] = {}
        # The builders of the unfinished bodies, outermost first. Only their values can be used.
        self.open: list[Builder] = [builder]

    def record(self, op: Op) -> TracedValue:
        """Append an op of the Python model, with the user's present line as its location."""
        return TracedValue(self, self.builder.add(op, caller_location()))

    def fail(self, message: str, hint: str) -> NoReturn:
        """Raise an error at the user's present line."""
        raise KernelTypeError(message, caller_location(), hint)

    def value(self, thing: Any) -> Value:
        """The value of the model for a symbol or a Python constant."""
        if isinstance(thing, TracedValue):
            if thing.trace is not self:
                self.fail("a value of another trace is used here", "use values in the kernel that made them")
            if not self.open:
                self.fail("a value is used after its kernel was traced", "use values in the kernel that made them")
            if not self.sees(thing.value):
                self.fail(
                    "a value that was made inside a loop or a branch is used outside of it",
                    "return it from the body: zg.for_, zg.if_ and zg.while_ return the results of their bodies",
                )
            return thing.value
        if isinstance(thing, ConstantInt | ConstantFloat) and self.sees(thing.parameter):
            return thing.parameter
        if isinstance(thing, tuple | list):
            thing = cast(tuple[Any, ...], tuple(thing))  # pyright: ignore[reportUnknownArgumentType]
            if any(isinstance(item, TracedValue) for item in thing):
                return self.builder.add(py.Pack([self.value(item) for item in thing]), caller_location())
        if isinstance(thing, Function):
            return self.builder.add(core.FuncRef(self.link(thing), pyobject), caller_location())
        is_constant, constant = as_constant(thing)
        if not is_constant:
            self.fail(
                f"an object of the type {type(thing).__name__} cannot be a value of a kernel",
                "kernels take numbers, strings, None, dtypes, tuples of these, and functions under @zg.function",
            )
        return self.builder.add(core.ConstantOp(constant, pyobject), caller_location())

    def sees(self, value: Value) -> bool:
        """Whether a value can be used at this place."""
        return any(builder.block is value.block for builder in self.open)

    def call(self, signature: Signature, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Record a call of the language; the traced result."""
        bound = signature.bind(arguments, keywords, lambda _: caller_location())
        values = [self.value(argument) for argument in (*arguments, *keywords.values())]
        op = py.Invoke(values, f"zg.{signature.name}", keywords=tuple(keywords))
        symbol = self.record(op)
        return None if signature.results == 0 else self.results(symbol, signature.result_count(bound))

    def call_function(self, function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Record a call of a `@zg.function`; the traced result."""
        bound = function.bind(arguments, keywords, lambda _: caller_location())
        symbol = self.link(function)
        values = [self.value(x.value if isinstance(x, Default) else x) for x in bound.values()]
        result = self.record(core.FuncCall(values, symbol, pyobject))
        return self.results(result, _returned_count(function.model))

    def link(self, function: Function) -> str:
        """The symbol by which the model refers to a function."""
        return symbol_of(self.callees, function.fn.__qualname__, function, "_")

    def results(self, symbol: TracedValue, count: int | None) -> Any:
        """A symbol for the result of a call, or a tuple of `count` symbols for its components."""
        if count is None:
            return symbol
        return tuple(self.record(py.Unpack(symbol.value, index, count)) for index in range(count))

    # Control flow.

    def body(self, fill: Callable[..., Value | None], parameters: Sequence[Type] = ()) -> Body:
        """A body that `fill` records, called with its parameters. It yields the value that `fill` returns, if any."""

        def record(inner: Builder) -> Value | None:
            self.open.append(inner)
            try:
                return fill(*inner.parameters)
            finally:
                self.open.remove(inner)

        return self.filled(record, parameters)


def current_trace(what: str) -> Trace:
    """The trace in progress. Raises `KernelSyntaxError` when there is none."""
    recorder = active_recorder.get()
    if not isinstance(recorder, Trace):
        raise KernelSyntaxError(
            f"{what} was called outside of a traced function", hint="call it in a function that is given to zg.trace"
        )
    return recorder


def begin(arguments: Sequence[Any]) -> tuple[Trace, tuple[Any, ...]]:
    """Begin a trace of a kernel. Returns it with the arguments of the function: a symbol for each type."""
    types = [pyobject if isinstance(argument, Type) else constexpr_type for argument in arguments]
    builder = Builder.root(types, pyobject)
    trace = Trace(builder)
    symbols = [
        TracedValue(trace, parameter) if isinstance(argument, Type) else constant_argument(argument, parameter)
        for argument, parameter in zip(arguments, builder.parameters, strict=True)
    ]
    return trace, tuple(symbols)


def trace_function(fn: Callable[..., Any], arguments: Sequence[Any]) -> Function:
    """Run `fn` on symbols for arguments that are types, and on the values of the other arguments.

    `arguments` are in the order of the parameters. Returns the function with the Python model that the calls made.
    """
    if not callable(fn):
        raise LaunchError(f"zg.trace must get a function; got {fn!r}", hint="zg.trace(fn, zg.ptr(zg.f32), zg.i32)")
    body = fn.fn if isinstance(fn, Function) else fn
    name = getattr(fn, "__name__", "kernel")
    misfit = misfits(body, len(arguments))
    if misfit:
        raise LaunchError(f"'{name}' cannot be traced with {len(arguments)} arguments: {misfit}")
    trace, symbols = begin(arguments)
    with recording(trace):
        result = body(*symbols)
    if result is not None:
        code = getattr(body, "__code__", None)
        raise KernelTypeError(
            f"the traced function '{name}' returns a value, and a kernel returns nothing",
            Location(code.co_filename, code.co_firstlineno) if code is not None else None,
            "write results to memory with zg.store",
        )

    def traced() -> None:
        """The function to call from Python, which has run already."""

    return finished(trace, traced, name)


def misfits(fn: Callable[..., Any], count: int) -> str | None:
    """The reason why a function does not take this number of arguments, or None if it does."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*range(count))
    except TypeError as error:
        return str(error)
    return None


def finished(trace: Trace, fn: Callable[..., Any], name: str) -> Function:
    """End a trace. Returns the function that it made."""
    trace.builder.add(core.Return([]))
    model = core.Func(name, trace.builder.finish())
    function = Function(fn, lambda _: model, name)
    function.callees = trace.callees
    trace.open.clear()
    return function


@contextmanager
def recording(trace: Trace) -> Generator[None]:
    """Record calls of the language inside the `with`."""
    token = active_recorder.set(trace)
    try:
        yield
    finally:
        active_recorder.reset(token)


def caller_location() -> Location | None:
    """The source location of the innermost running code that is not ziggurat's."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] != "ziggurat":
            break
        frame = frame.f_back
    if frame is None:
        return None
    code = frame.f_code
    line, end_line, column, end_column = [*code.co_positions()][frame.f_lasti // 2]
    first = line or frame.f_lineno
    return Location(code.co_filename, first, column or 0, end_line or first, end_column or 0)


def _returned_count(model: Op) -> int | None:
    """The number of values that a function returns as a tuple, by its first `return`; None for a single value."""
    for op in model.walk():
        if isinstance(op, core.Return) and op.values:
            source = getattr(op.values[0], "op", None)
            return len(source.components) if isinstance(source, py.Pack) else None
    return None


def require_callable(thing: Any, what: str, count: int) -> None:
    """Raise unless a part of a control structure is a function of this number of arguments."""
    if not callable(thing):
        raise KernelSyntaxError(f"{what} must be a function; got {thing!r}", caller_location())
    misfit = misfits(thing, count)
    if misfit:
        raise KernelTypeError(
            f"{what} is called with {count} argument{'s' if count != 1 else ''}: {misfit}", caller_location()
        )
