"""Functions that stop in the middle, in the interpreter: generators, coroutines, and generators that await.

Their bodies run as generators of Python's: the meaning of an op that may stop, or has an op inside that may, is a
generator that yields what the function hands to its caller, or to the loop of events. Other ops have the meanings that
they have in any function.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from typing import Any, Final

import attrs

from ziggurat.codemodel.dialects import py
from ziggurat.codemodel.dialects import py_objects as objects
from ziggurat.codemodel.dialects import py_suites as suites
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.execute import Left, goes_on
from ziggurat.codemodel.interpret import Exit, Jump, Returned, Yielded
from ziggurat.codemodel.op import Body, Op
from ziggurat.codemodel.python_operators import BY_SIGN

# What a function yields and is sent; the value that it gives at the end.
Flow = Generator[Any, Any, Any]

RESUMED = OpTable[Callable[[Any, Any, tuple[Any, ...]], Flow]]("meaning in a function that stops in the middle")
resumed = RESUMED.of

_STOPS: Final = (suites.YieldValue, suites.YieldFrom, suites.Await)
_END: Final = object()
_GROUP: Any = BaseExceptionGroup  # The type of its exceptions is not known.


class Stopped(Exception):
    """A StopIteration of the program: Python would make a RuntimeError of it where it leaves a generator."""

    def __init__(self, error: StopIteration) -> None:
        super().__init__(error)
        self.error = error


def original(error: BaseException) -> BaseException:
    """The exception of the program."""
    return error.error if isinstance(error, Stopped) else error


@attrs.frozen
class Item:
    """A value that a generator that awaits gives to its caller, and not to the loop of events."""

    value: Any


def stops(op: Op) -> bool:
    """Whether a function may stop at an op: at the op itself, or inside of its suites."""
    if isinstance(op, _STOPS) or op.attributes.get("is_async"):
        return not (isinstance(op, suites.Collect) and op.kind == "generator")
    if isinstance(op, suites.Define | suites.Class) or (isinstance(op, suites.Collect) and op.kind == "generator"):
        return False
    return any(stops(inner) for body in op.bodies for block in body.blocks for inner in block.ops)


# Bodies.


def flow(interpreter: Any, body: Body, arguments: Sequence[Any] = ()) -> Generator[Any, Any, Exit]:
    """Run a body until it is left. A StopIteration of its ops comes as `Stopped`."""
    block = body.entry
    while True:
        for parameter, argument in zip(block.parameters, arguments, strict=True):
            interpreter.bind(parameter, argument)
        outcome: Any = None
        for step in interpreter.plan(body)[block]:
            op = step.op
            may_stop = interpreter.stopping.get(op)
            if may_stop is None:
                may_stop = interpreter.stopping[op] = stops(op)
            try:
                if may_stop:
                    operands = tuple([interpreter.lookup(value) for value in step.operands])
                    outcome = yield from RESUMED[op](interpreter, op, operands)
                else:
                    outcome = interpreter.perform(step)
            except StopIteration as error:
                raise Stopped(error) from None
            except BaseException as error:
                if isinstance(error.__context__, Stopped):
                    error.__context__ = error.__context__.error
                raise
            if type(outcome) is Jump:
                break
            if issubclass(type(outcome), Exit):
                for value in step.dead:  # An iterator that a loop has left ends now, as it does in Python.
                    interpreter.release(value)
                return outcome
            if step.result is not None:
                interpreter.bind(step.result, outcome)
            for value in step.dead:
                interpreter.release(value)
        block = outcome.successor.block
        arguments = [interpreter.lookup(value) for value in outcome.successor.arguments]


def evaluated(interpreter: Any, body: Body) -> Generator[Any, Any, tuple[Any, Exit | None]]:
    """Run a body for its value. The second component is the exit if the body left its function or loop."""
    outcome = yield from flow(interpreter, body)
    if isinstance(outcome, Yielded):
        return (outcome.values[0] if outcome.values else None), None
    return None, outcome


def finish(running: Flow) -> Any:
    """Run what does not stop to its end."""
    try:
        running.send(None)
    except StopIteration as end:
        return end.value
    except Stopped as stopped:
        raise stopped.error from None
    raise RuntimeError("a function that is no generator yields")


def left_by(outcome: Exit) -> Exit | None:
    """The exit by which a suite leaves what is around its statement."""
    return None if isinstance(outcome, Yielded) else outcome


# Functions.


def stopping_function(kind: str, begin: Callable[[Any, Any], Generator[Any, Any, Exit]]) -> Callable[..., Any]:
    """A generator, a coroutine or a generator that awaits. `begin` binds the arguments and starts the body."""

    def generator(*arguments: Any, **keywords: Any) -> Flow:
        try:
            return _value((yield from begin(arguments, keywords)))
        except Stopped as stopped:
            raise stopped.error  # noqa: B904  (Python makes a RuntimeError of it)

    async def coroutine(*arguments: Any, **keywords: Any) -> Any:
        try:
            return _value(await _Awaited(begin(arguments, keywords)))
        except Stopped as stopped:
            raise stopped.error  # noqa: B904

    async def async_generator(*arguments: Any, **keywords: Any) -> AsyncGenerator[Any, Any]:
        running = begin(arguments, keywords)
        resume, content = running.send, None
        while True:
            try:
                item = await _Awaited(_until_item(running, resume, content))
            except Stopped as stopped:
                raise stopped.error  # noqa: B904
            if item is _END:
                return
            try:
                content = yield item.value
                resume = running.send
            except BaseException as error:
                resume, content = running.throw, error

    return {"generator": generator, "async": coroutine, "async generator": async_generator}[kind]


def _value(outcome: Exit) -> Any:
    return outcome.values[0] if isinstance(outcome, Returned) and outcome.values else None


class _Awaited:
    """A generator that can be awaited."""

    def __init__(self, running: Flow) -> None:
        self.running = running

    def __await__(self) -> Flow:
        return self.running


def _until_item(running: Flow, resume: Callable[[Any], Any], content: Any) -> Flow:
    """Resume a generator that awaits until it has an item: what it awaits goes to the loop of events."""
    while True:
        try:
            outcome = resume(content)
        except StopIteration:
            return _END
        if type(outcome) is Item:
            return outcome
        try:
            content = yield outcome
            resume = running.send
        except BaseException as error:
            resume, content = running.throw, error


# Where a function stops.


@resumed(suites.YieldValue)
def _yield(interpreter: Any, op: suites.YieldValue, operands: tuple[Any, ...]) -> Flow:
    content = operands[0] if operands else None
    return (yield Item(content) if interpreter.frame.kind == "async generator" else content)


@resumed(suites.YieldFrom)
def _yield_from(interpreter: Any, op: suites.YieldFrom, operands: tuple[Any, ...]) -> Flow:
    inner: Flow = operands[0]
    return (yield from inner)


@resumed(suites.Await)
def _await(interpreter: Any, op: suites.Await, operands: tuple[Any, ...]) -> Flow:
    return awaited(operands[0])


def awaited(content: Any) -> Flow:
    """Wait for an object, as `await` does."""
    cls: Any = content.__class__
    method: Any = getattr(cls, "__await__", None)
    if cls is types.GeneratorType and content.gi_code.co_flags & inspect.CO_ITERABLE_COROUTINE:
        method = iter
    if method is None:
        raise TypeError(f"object {cls.__name__} can't be used in 'await' expression")
    waiting: Flow = method(content)
    return (yield from waiting)


def _items(content: Any, is_async: bool) -> Callable[[], Flow]:
    """A function that gives the next item of an iterable, and `_END` at its end."""
    if not is_async:
        items = iter(content)

        def following() -> Flow:
            return next(items, _END)
            yield

        return following
    cls: Any = content.__class__
    if not hasattr(cls, "__aiter__"):
        raise TypeError(f"'async for' requires an object with __aiter__ method, got {cls.__name__}")
    async_items: Any = cls.__aiter__(content)

    def following_async() -> Flow:
        try:
            return (yield from awaited(async_items.__class__.__anext__(async_items)))
        except StopAsyncIteration:
            return _END

    return following_async


# Suites.


@resumed(py.If, py.CondExpression)
def _if(interpreter: Any, op: py.If | py.CondExpression, operands: tuple[Any, ...]) -> Flow:
    value, leaving = yield from evaluated(interpreter, op.then if operands[0] else op.otherwise)
    return value if leaving is None else leaving


@resumed(py.CondAnd, py.CondOr)
def _shortcut(interpreter: Any, op: py.CondAnd | py.CondOr, operands: tuple[Any, ...]) -> Flow:
    value: Any = None
    for part in op.parts:
        value, _ = yield from evaluated(interpreter, part)
        if bool(value) == isinstance(op, py.CondOr):
            break
    return value


@resumed(objects.Chain)
def _chain(interpreter: Any, op: objects.Chain, operands: tuple[Any, ...]) -> Flow:
    left, right = operands
    result = BY_SIGN[op.operators[0]].function(left, right)
    for name, body in zip(op.operators[1:], op.others, strict=True):
        if not result:
            break
        left, (right, _) = right, (yield from evaluated(interpreter, body))
        result = BY_SIGN[name].function(left, right)
    return result


@resumed(suites.AssertElse)
def _assert_else(interpreter: Any, op: suites.AssertElse, operands: tuple[Any, ...]) -> Flow:
    if not operands[0]:
        raise AssertionError((yield from evaluated(interpreter, op.message))[0])


@resumed(py.For, py.While)
def _loop(interpreter: Any, op: py.For | py.While, operands: tuple[Any, ...]) -> Flow:
    following = None
    if isinstance(op, py.For):
        following = _items((yield from evaluated(interpreter, op.iterable))[0], op.is_async)
    while True:
        if following is not None:
            item = yield from following()
            if item is _END:
                break
            outcome = yield from flow(interpreter, op.suite, (item,))
        elif (yield from evaluated(interpreter, op.bodies[0]))[0]:
            outcome = yield from flow(interpreter, op.suite)
        else:
            break
        if not goes_on(outcome):
            return None if isinstance(outcome, Left) else outcome
    if isinstance(op, suites.ForElse | suites.WhileElse):
        return left_by((yield from flow(interpreter, op.otherwise)))
    return None


@resumed(suites.Match)
def _match(interpreter: Any, op: suites.Match, operands: tuple[Any, ...]) -> Flow:
    for pattern, guard, suite in op.cases:
        if not interpreter.matches(pattern, operands[0]):
            continue
        if not guard.entry.terminator.operands or (yield from evaluated(interpreter, guard))[0]:
            return left_by((yield from flow(interpreter, suite)))
    return None


@resumed(suites.With)
def _with(interpreter: Any, op: suites.With, operands: tuple[Any, ...]) -> Flow:
    manager = operands[0]
    cls: Any = manager.__class__
    prefix = "__a" if op.is_async else "__"
    enter, leave = (getattr(cls, f"{prefix}{name}__") for name in ("enter", "exit"))

    def answer(method: Callable[..., Any], *details: Any) -> Flow:
        try:
            result = method(manager, *details)
        except StopIteration as error:
            raise Stopped(error) from None
        return (yield from awaited(result)) if op.is_async else result

    item = yield from answer(enter)
    try:
        outcome = yield from flow(interpreter, op.suite, (item,))
    except BaseException as exception:
        error = original(exception)
        if (yield from answer(leave, type(error), error, error.__traceback__)):
            return None
        raise
    yield from answer(leave, None, None, None)
    return left_by(outcome)


@resumed(suites.Try)
def _try(interpreter: Any, op: suites.Try, operands: tuple[Any, ...]) -> Flow:
    try:
        outcome = yield from _handled(interpreter, op)
    except BaseException:
        leaving = left_by((yield from flow(interpreter, op.parts[-1])))
        if leaving is not None:
            return leaving
        raise
    return left_by((yield from flow(interpreter, op.parts[-1]))) or outcome


def _handled(interpreter: Any, op: suites.Try) -> Generator[Any, Any, Exit | None]:
    """Run the suite of a `try`, and the handlers of its exception, or what follows `else`."""
    handlers = list(zip(op.parts[1:-2:2], op.parts[2:-2:2], strict=True))
    try:
        leaving = left_by((yield from flow(interpreter, op.parts[0])))
    except BaseException as exception:
        error = original(exception)
        if op.star:
            result = yield from _shared_out(interpreter, handlers, error)
            if result is None:
                return None
            if result is not error:
                raise result from result.__cause__
            raise
        for kind, handler in handlers:
            classes = (yield from evaluated(interpreter, kind))[0] if kind.entry.terminator.operands else None
            if classes is None or catches(classes, error):
                return (yield from _run_handler(interpreter, handler, error))
        raise
    return leaving if leaving is not None else left_by((yield from flow(interpreter, op.parts[-2])))


def _run_handler(interpreter: Any, handler: Body, error: BaseException) -> Generator[Any, Any, Exit | None]:
    try:
        return left_by((yield from flow(interpreter, handler, (error,))))
    finally:
        interpreter.forget_caught(handler)


def _shared_out(
    interpreter: Any, handlers: Sequence[tuple[Body, Body]], error: Any
) -> Generator[Any, Any, BaseException | None]:
    """Run the handlers `except*` of an exception; gives the exception that is left or comes of them."""
    rest: Any = error
    results: list[Any] = []
    raised_again: list[Any] = []
    for kind, handler in handlers:
        classes, _ = yield from evaluated(interpreter, kind)
        if any(issubclass(cls, _GROUP) for cls in several(classes) if isinstance(cls, type)):
            raise TypeError("catching ExceptionGroup with except* is not allowed. Use except instead.")
        part: Any = None
        if catches(classes, rest):
            part, rest = (rest if isinstance(rest, _GROUP) else _GROUP("", [rest])), None
        elif isinstance(rest, _GROUP):
            part, rest = rest.split(classes)
        if part is not None:
            try:
                raise part
            except BaseException:
                try:
                    yield from _run_handler(interpreter, handler, part)
                except BaseException as exception:
                    new = original(exception)
                    (raised_again if new is part else results).append(new)
        if rest is None:
            break
    if not isinstance(error, _GROUP):
        return rest if rest is not None else next(iter((*results, *raised_again)), None)
    again = [*raised_again, *([] if rest is None else [rest])]
    leaves = {id(leaf) for group in again for leaf in _leaves(group)}

    def is_left(leaf: Any) -> bool:
        return id(leaf) in leaves

    same = error.subgroup(is_left) if leaves else None
    if not results:
        return same
    results += [] if same is None else [same]
    return results[0] if len(results) == 1 else _GROUP("", results)


def _leaves(error: Any) -> list[Any]:
    if not isinstance(error, _GROUP):
        return [error]
    return [leaf for inner in error.exceptions for leaf in _leaves(inner)]


def several(classes: Any) -> Any:
    """The classes of an `except`: a tuple of them, or one."""
    return classes if issubclass(type(classes), tuple) else (classes,)


def catches(classes: Any, error: BaseException | None) -> bool:
    """Whether an `except` of these classes catches an exception."""
    for cls in several(classes):
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            raise TypeError("catching classes that do not inherit from BaseException is not allowed")
    return isinstance(error, classes)


# Comprehensions.


@resumed(suites.Collect)
def _collect(interpreter: Any, op: suites.Collect, operands: tuple[Any, ...]) -> Flow:
    elements: list[Any] = []
    following, values, frame = _begin(interpreter, op, operands[0])
    while (item := (yield from following())) is not _END:
        inner = interpreter.inside({**values, op.result: elements}, frame)
        yield from flow(inner, op.suite, (item,))
    return {"list": list, "set": set, "dict": dict}[op.kind](elements)  # type: ignore[operator]


def generated(interpreter: Any, op: suites.Collect, iterable: Any) -> Any:
    """The generator expression that awaits."""
    following, values, frame = _begin(interpreter, op, iterable)

    def body() -> Generator[Any, Any, Exit]:
        while (item := (yield from following())) is not _END:
            elements: list[Any] = []
            inner = interpreter.inside({**values, op.result: elements}, frame)
            yield from flow(inner, op.suite, (item,))
            for element in elements:
                yield Item(element)
        return Yielded()

    return stopping_function("async generator", lambda arguments, keywords: body())()


def _begin(interpreter: Any, op: suites.Collect, iterable: Any) -> tuple[Callable[[], Flow], dict[Any, Any], Any]:
    """The items of a comprehension, and the values and the frame that its elements share."""
    captured = {value: interpreter.lookup(value) for value in op.captured_values()}
    frame = attrs.evolve(interpreter.frame, members=None, shared={})
    return _items(iterable, op.is_async), captured, frame
