"""The errors that Triton's programs catch. Errors of a Triton function are of one of these classes besides our own."""

from __future__ import annotations

import functools
from typing import Any

from ziggurat.codemodel.errors import KernelSyntaxError, LaunchError, StaticAssertionError, ZigguratError


class TritonError(Exception):
    """Base of Triton's errors."""


class CompilationError(TritonError):
    """A function cannot be compiled."""


class CompileTimeAssertionFailure(CompilationError):
    """A static assertion does not hold."""


class UnsupportedLanguageConstruct(CompilationError):
    """A function uses a construct that the language does not have."""


class ChangedGlobalError(LaunchError, RuntimeError):
    """A global that a kernel was compiled with has changed."""


_CLASSES: tuple[tuple[type[ZigguratError], type[CompilationError]], ...] = (
    (KernelSyntaxError, UnsupportedLanguageConstruct),
    (StaticAssertionError, CompileTimeAssertionFailure),
    (ZigguratError, CompilationError),
)


@functools.cache
def _combined(cls: type[ZigguratError]) -> type[Any]:
    base = next(base for ours, base in _CLASSES if issubclass(cls, ours))
    return type(cls.__name__, (cls, base), {"__module__": cls.__module__, "__doc__": cls.__doc__})


def as_triton(error: ZigguratError) -> ZigguratError:
    """Make an error of a Triton function one that Triton's programs catch."""
    if not isinstance(error, TritonError):
        error.__class__ = _combined(type(error))
    return error
