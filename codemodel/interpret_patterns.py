"""The meanings of `match` and its patterns in the interpreter of functions.

A pattern gives a test of a subject, which adds to a list of assignments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ziggurat.codemodel.dialects import py_suites as suites
from ziggurat.codemodel.execute import Cell, python
from ziggurat.codemodel.interpret import Exit
from ziggurat.codemodel.interpret_functions import FunctionInterpreter
from ziggurat.codemodel.interpret_generators import left_by

_MISSING: Final = object()

Assignments = list[tuple[Any, Any]]
Test = Callable[[Any, Assignments], bool]


@python.of(suites.Match)
def _match(interpreter: FunctionInterpreter, op: suites.Match, operands: tuple[Any, ...]) -> Exit | None:
    for pattern, guard, suite in op.cases:
        if not interpreter.matches(pattern, operands[0]):
            continue
        if not guard.entry.terminator.operands or interpreter.evaluate(guard)[0]:
            return left_by(interpreter.run_body(suite))
    return None


@python.of(suites.Pattern)
def _pattern(interpreter: FunctionInterpreter, op: suites.Pattern, operands: tuple[Any, ...]) -> Test:
    parts = [part for part in operands if type(part) is not Cell]
    place = next((part for part in operands if type(part) is Cell), op.names[0] if op.names else None)
    match op.kind:
        case "value":
            return lambda subject, assignments: bool(subject == parts[0])
        case "constant":
            return lambda subject, assignments: subject is parts[0]
        case "or":
            return lambda subject, assignments: any(_attempt(part, subject, assignments) for part in parts)
        case "sequence":
            stars = [value.op.kind == "star" for value in op.parts if isinstance(value.op, suites.Pattern)]
            return lambda subject, assignments: _sequence(parts, stars, subject, assignments)
        case "mapping":
            return lambda subject, assignments: _mapping(parts, subject, assignments)
        case "class":
            return lambda subject, assignments: _of_class(parts[0], parts[1:], op.names, subject, assignments)
        case _:  # as, star, rest, any

            def capture(subject: Any, assignments: Assignments) -> bool:
                if parts and not parts[0](subject, assignments):
                    return False
                if place is not None:
                    assignments.append((place, subject))
                return True

            return capture


def _attempt(test: Test, subject: Any, assignments: Assignments) -> bool:
    """Whether a test holds; one that does not leaves no assignments."""
    count = len(assignments)
    holds = test(subject, assignments)
    if not holds:
        del assignments[count:]
    return holds


def _sequence(tests: Sequence[Test], stars: Sequence[bool], subject: Any, assignments: Assignments) -> bool:
    classes: Any = Sequence  # `isinstance` would make the items of a type that is not known.
    if not isinstance(subject, classes) or isinstance(subject, str | bytes | bytearray):
        return False
    count = len(subject)
    if True not in stars:
        return count == len(tests) and all(test(item, assignments) for test, item in zip(tests, subject, strict=True))
    star = stars.index(True)
    after = len(tests) - star - 1
    if count < len(tests) - 1:
        return False
    items: list[Any] = [*(subject[i] for i in range(star)), [subject[i] for i in range(star, count - after)]]
    items += [subject[i] for i in range(count - after, count)]
    return all(test(item, assignments) for test, item in zip(tests, items, strict=True))


def _mapping(parts: Sequence[Any], subject: Any, assignments: Assignments) -> bool:
    classes: Any = Mapping
    if not isinstance(subject, classes):
        return False
    keys, tests = parts[: len(parts) // 2 * 2 : 2], parts[1::2]
    for key, test in zip(keys, tests, strict=True):
        item = subject.get(key, _MISSING)
        if item is _MISSING or not test(item, assignments):
            return False
    if len(parts) % 2:
        return bool(parts[-1]({key: subject[key] for key in subject if key not in keys}, assignments))
    return True


_SELF_MATCHING = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


def _of_class(cls: Any, tests: Sequence[Test], names: Sequence[str], subject: Any, assignments: Assignments) -> bool:
    if not isinstance(subject, cls):
        return False
    count = len(tests) - len(names)
    if count == 1 and not hasattr(cls, "__match_args__") and issubclass(cls, _SELF_MATCHING):
        items: list[Any] = [subject]
    else:
        items = []
        for name in getattr(cls, "__match_args__", ())[:count]:
            items.append(getattr(subject, name, _MISSING))
        if len(items) < count:
            raise TypeError(f"{cls.__name__}() accepts {len(items)} positional sub-patterns ({count} given)")
    items += [getattr(subject, name, _MISSING) for name in names]
    return all(item is not _MISSING and test(item, assignments) for test, item in zip(tests, items, strict=True))
