"""Control flow of a kernel that is being traced: loops and branches whose bodies are Python functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import VarType, pyobject
from ziggurat.frontends.tracing.symbols import TracedValue
from ziggurat.frontends.tracing.trace import Trace, caller_location, current_trace, require_callable


def for_(start: Any, stop: Any, step: Any, initial: Any, body: Callable[..., Any], **options: Any) -> Any:
    """Build a `for` loop over `zg.range(start, stop, step)`: `body(index, *carried)` returns the next carried values.

    `initial` is a value, a tuple of values, or None to carry nothing. `body` returns the carried values in the same
    form, and so does `for_`. `body` is called once, during the trace. `options` are those of `zg.range`. Returns the
    carried values after the last iteration.
    """
    trace = current_trace("zg.for_")
    require_callable(body, "the body of zg.for_", 1 + len(_items(initial)))
    variables = _declare(trace, initial)

    def bounds() -> Value:
        numbers = [trace.value(bound) for bound in (start, stop, step)]
        values = [*numbers, *map(trace.value, options.values())]
        return trace.record(py.Invoke(values, "zg.range", keywords=tuple(options))).value

    def iteration(index: Value) -> None:
        result = body(TracedValue(trace, index), *_load(trace, variables))
        _store(trace, variables, initial, result, "the body of zg.for_ gives")

    iterable, suite = trace.body(bounds), trace.body(iteration, [pyobject])
    trace.builder.add(py.For(iterable, suite), caller_location())
    return _packed(initial, _load(trace, variables))


def while_(condition: Callable[..., Any], body: Callable[..., Any], initial: Any) -> Any:
    """Build a `while` loop: as long as `condition(*carried)` holds, `body(*carried)` returns the next carried values.

    `condition` and `body` are called once each, during the trace. `initial` is as in `for_`. Returns the carried values
    after the last iteration.
    """
    trace = current_trace("zg.while_")
    require_callable(condition, "the condition of zg.while_", len(_items(initial)))
    require_callable(body, "the body of zg.while_", len(_items(initial)))
    variables = _declare(trace, initial)

    def iteration() -> None:
        _store(trace, variables, initial, body(*_load(trace, variables)), "the body of zg.while_ gives")

    first, second = trace.body(lambda: trace.value(condition(*_load(trace, variables)))), trace.body(iteration)
    trace.builder.add(py.While(first, second), caller_location())
    return _packed(initial, _load(trace, variables))


def if_(condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any] | None = None) -> Any:
    """Build a branch: `then()` when the condition holds, `otherwise()` when not.

    Both functions return the same form: a value, a tuple of the same length, or None. `if_` returns that form too.
    A condition that is no symbol, such as a Python bool, builds no branch: only the chosen function is called, and
    `if_` returns its result. If a branch is built without `otherwise`, `then` must return None.
    """
    trace = current_trace("zg.if_")
    require_callable(then, "the first part of zg.if_", 0)
    if otherwise is not None:
        require_callable(otherwise, "the second part of zg.if_", 0)
    if not isinstance(condition, TracedValue):
        branch = then if condition else otherwise
        return branch() if branch is not None else None
    test = trace.value(condition)
    outer = trace.builder
    variables: list[Value] = []
    outline: Any = None

    def first() -> None:
        # The variables are declared before the branch; their number is known only here.
        nonlocal variables, outline
        outline = then()
        variables = [_variable(outer, f"result_{place}", None) for place, _ in enumerate(_items(outline))]
        _store(trace, variables, outline, outline, "the first part of zg.if_ gives")

    def second() -> None:
        result = otherwise() if otherwise is not None else None
        _store(trace, variables, outline, result, "the second part of zg.if_ gives")

    bodies = trace.body(first), trace.body(second)
    trace.builder.add(py.If(test, *bodies), caller_location())
    return _packed(outline, _load(trace, variables))


def _items(values: Any) -> tuple[Any, ...]:
    if values is None:
        return ()
    return tuple(values) if isinstance(values, tuple | list) else (values,)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _packed(like: Any, values: Sequence[TracedValue]) -> Any:
    """Values in the form of `like`: one value, a tuple, or None."""
    if like is None:
        return None
    return tuple(values) if isinstance(like, tuple | list) else values[0]


def _declare(trace: Trace, initial: Any) -> list[Value]:
    values = [trace.value(value) for value in _items(initial)]
    return [_variable(trace.builder, f"carried_{index}", value) for index, value in enumerate(values)]


def _variable(builder: Builder, name: str, initial: Value | None) -> Value:
    return builder.add(core.Var(initial, name=name, type=VarType(pyobject)), caller_location())


def _load(trace: Trace, variables: Sequence[Value]) -> list[TracedValue]:
    return [trace.record(core.VarLoad(var)) for var in variables]


def _store(trace: Trace, variables: Sequence[Value], like: Any, result: Any, what: str) -> None:
    items = _items(result)
    if len(items) != len(variables) or isinstance(result, tuple | list) != isinstance(like, tuple | list):
        branch = "zg.if_" in what
        raise KernelTypeError(
            f"{what} {_count(result)}, {'the first' if branch else 'expected'} {_count(like)}",
            caller_location(),
            "return the same number of values from both parts"
            if branch
            else "return the values in the form of the initial ones",
        )
    for var, value in zip(variables, [trace.value(item) for item in items], strict=True):
        trace.builder.add(core.VarStore(var, value), caller_location())


def _count(values: Any) -> str:
    if values is None:
        return "nothing"
    return f"a tuple of {len(values)}" if isinstance(values, tuple | list) else "one value"  # pyright: ignore[reportUnknownArgumentType]
