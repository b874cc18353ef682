"""The meanings of the ops with suites in the interpreter of functions: loops, exceptions, contexts, comprehensions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NoReturn

import attrs

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.dialects import py_suites as suites
from ziggurat.codemodel.execute import Left, goes_on, python
from ziggurat.codemodel.interpret import Exit
from ziggurat.codemodel.interpret_functions import FunctionInterpreter
from ziggurat.codemodel.interpret_generators import RESUMED, catches, finish, generated, left_by, stops
from ziggurat.codemodel.op import Body


@python.of(suites.ForElse)
def _for_else(interpreter: FunctionInterpreter, op: suites.ForElse, operands: tuple[Any, ...]) -> Exit | None:
    iterable, _ = interpreter.evaluate(op.iterable)
    for item in iterable:
        outcome = interpreter.run_body(op.suite, (item,))
        if not goes_on(outcome):
            return None if isinstance(outcome, Left) else outcome
    return left_by(interpreter.run_body(op.otherwise))


@python.of(suites.WhileElse)
def _while_else(interpreter: FunctionInterpreter, op: suites.WhileElse, operands: tuple[Any, ...]) -> Exit | None:
    while interpreter.evaluate(op.condition)[0]:
        outcome = interpreter.run_body(op.suite)
        if not goes_on(outcome):
            return None if isinstance(outcome, Left) else outcome
    return left_by(interpreter.run_body(op.otherwise))


@python.of(suites.AssertElse)
def _assert_else(interpreter: FunctionInterpreter, op: suites.AssertElse, operands: tuple[Any, ...]) -> None:
    if not operands[0]:
        raise AssertionError(interpreter.evaluate(op.message)[0])


@python.of(suites.Raise)
def _raise(interpreter: FunctionInterpreter, op: suites.Raise, operands: tuple[Any, ...]) -> NoReturn:
    if not operands:
        error = sys.exc_info()[1]
        if error is None:
            raise RuntimeError("No active exception to reraise")
        raise error
    if len(operands) == 1:
        raise operands[0]
    raise operands[0] from operands[1]


@python.of(suites.Try)
def _try(interpreter: FunctionInterpreter, op: suites.Try, operands: tuple[Any, ...]) -> Exit | None:
    if op.star:
        return finish(RESUMED[op](interpreter, op, operands))
    final = op.parts[-1]
    if len(final.entry.ops) == 1 and isinstance(final.entry.terminator, core.Yield):
        return _handled(interpreter, op)
    try:
        outcome = _handled(interpreter, op)
    except BaseException:
        leaving = left_by(interpreter.run_body(final))
        if leaving is not None:
            return leaving
        raise
    return left_by(interpreter.run_body(final)) or outcome


def _handled(interpreter: FunctionInterpreter, op: suites.Try) -> Exit | None:
    """Run the suite of a `try`, and the handler of its exception, or what follows `else`."""
    try:
        leaving = left_by(interpreter.run_body(op.parts[0]))
    except BaseException as error:
        for kind, handler in zip(op.parts[1:-2:2], op.parts[2:-2:2], strict=True):
            if not kind.entry.terminator.operands or catches(interpreter.evaluate(kind)[0], error):
                return _run_handler(interpreter, handler, error)
        raise
    return leaving if leaving is not None else left_by(interpreter.run_body(op.parts[-2]))


def _run_handler(interpreter: FunctionInterpreter, handler: Body, error: BaseException) -> Exit | None:
    try:
        return left_by(interpreter.run_body(handler, (error,)))
    finally:
        interpreter.forget_caught(handler)


@python.of(suites.With)
def _with(interpreter: FunctionInterpreter, op: suites.With, operands: tuple[Any, ...]) -> Exit | None:
    manager = operands[0]
    enter, leave = manager.__class__.__enter__, manager.__class__.__exit__
    item = enter(manager)
    try:
        outcome = interpreter.run_body(op.suite, (item,))
    except BaseException as error:
        if leave(manager, type(error), error, error.__traceback__):
            return None
        raise
    leave(manager, None, None, None)
    return left_by(outcome)


@python.of(suites.YieldValue, suites.YieldFrom, suites.Await)
def _stop(interpreter: FunctionInterpreter, op: Any, operands: tuple[Any, ...]) -> NoReturn:
    raise RuntimeError(f"{op.NAME} stands in a function that does not stop")


@python.of(suites.Collect)
def _collect(interpreter: FunctionInterpreter, op: suites.Collect, operands: tuple[Any, ...]) -> Any:
    if op.is_async or any(stops(inner) for block in op.suite.blocks for inner in block.ops):
        return generated(interpreter, op, operands[0])
    iterator = iter(operands[0])
    captured = {value: interpreter.lookup(value) for value in op.captured_values()}
    frame = attrs.evolve(interpreter.frame, members=None, shared={})

    def elements() -> Iterator[Any]:
        for item in iterator:
            elements_of_item: list[Any] = []
            values = {**captured, op.result: elements_of_item}
            interpreter.inside(values, frame).run_body(op.suite, (item,))
            yield from (element for element in elements_of_item)  # A list cannot be sent values.

    if op.kind == "generator":
        return elements()
    return {"list": list, "set": set, "dict": dict}[op.kind](elements())


@python.of(suites.Element)
def _element(interpreter: FunctionInterpreter, op: suites.Element, operands: tuple[Any, ...]) -> None:
    around = next(inner for inner in op.path() if isinstance(inner, suites.Collect))
    interpreter.lookup(around.result).append(operands if len(operands) == 2 else operands[0])


@python.of(py.Plain)
def _plain(interpreter: FunctionInterpreter, op: py.Plain, operands: tuple[Any, ...]) -> Any:
    content, leaving = interpreter.evaluate(op.body)
    return content if leaving is None else leaving
