"""The errors that Triton's programs catch. Errors of a Triton function are of one of these classes besides our own."""

from __future__ import annotations

import functools
import linecache
import re
from typing import Any

from ziggurat.codemodel.errors import KernelErrors, KernelSyntaxError, StaticAssertionError, ZigguratError
from ziggurat.codemodel.location import Location
from ziggurat.frontends.language.wording import TRITON


class TritonError(Exception):
    """Base of Triton's errors."""


class CompilationError(TritonError):
    """A function cannot be compiled."""


class CompileTimeAssertionFailure(CompilationError):
    """A static assertion does not hold."""


class UnsupportedLanguageConstruct(CompilationError):
    """A function uses a construct that the language does not have."""


_CLASSES: tuple[tuple[type[ZigguratError], type[CompilationError]], ...] = (
    (KernelSyntaxError, UnsupportedLanguageConstruct),
    (StaticAssertionError, CompileTimeAssertionFailure),
    (ZigguratError, CompilationError),
)


_DEF = re.compile(r"\s*(async\s+)?def\b")


@functools.cache
def _error_class(cls: type[ZigguratError]) -> type[Any]:
    base = next(base for ours, base in _CLASSES if issubclass(cls, ours))
    members = {
        "__module__": cls.__module__,
        "__doc__": cls.__doc__,
        "__str__": _text,
        "__reduce__": _reduce,
        "error_message": property(_message),
        "message": property(str),
    }
    return type(cls.__name__, (cls, base), members)


def _text(error: Any) -> str:
    """Our text of the error in Triton's order: the line in the function and the column, the source, the message."""
    place: Location | None = error.location
    while place is not None and place.caller is not None:
        place = place.caller
    position = [] if place is None else [_position(place)]
    if isinstance(error, KernelErrors):
        return "\n".join([*position, KernelErrors.__str__(error)])
    if place is not None and place is error.location:  # One line for the place.
        return "\n".join([*error.shown_places(*position), error.summary, *error.shown_hint()])
    return "\n".join([*position, *error.shown_places(), error.summary, *error.shown_hint()])


def _message(error: Any) -> str:
    """The message of an error alone."""
    return "\n".join(part.summary for part in error.parts)


def _reduce(error: Any) -> tuple[Any, ...]:
    return _restore, (type(error).__mro__[1], error.args, error.__dict__)


def _restore(cls: type[ZigguratError], arguments: tuple[Any, ...], state: dict[str, Any]) -> ZigguratError:
    error = as_triton(cls(*arguments))
    error.__dict__.update(state)
    return error


def _position(place: Location) -> str:
    """A place in the form of Triton, counted from the `def` of the function around it."""
    lines = linecache.getlines(place.file)[: place.line]
    for number in range(len(lines), 0, -1):
        line = lines[number - 1]
        indentation = len(line) - len(line.lstrip())
        if _DEF.match(line) and (indentation < place.column or number == place.line):
            return f"at {place.line - number + 1}:{place.column - indentation}:"
    return f"at {place.line}:{place.column}:"


def as_triton(error: ZigguratError) -> ZigguratError:
    """Make an error of a Triton function one that Triton's programs catch.

    The error of a call has the error in the called function as its cause, as in Triton.
    """
    error.say_in(TRITON)
    place = error.location
    for inner in error.errors if isinstance(error, KernelErrors) else ():
        as_triton(inner)
        error.__cause__ = error.__cause__ or inner.__cause__
    if place is not None and place.caller is not None and error.__cause__ is None:
        error.__cause__ = CompilationError(f"{_position(place)}\n{error.summary}")
    if not isinstance(error, TritonError):
        error.__class__ = _error_class(type(error))
    return error
