"""The boundary between the compiler and its users: errors of the user and faults of the compiler are told apart."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from ziggurat.codemodel.errors import (
    BuildError,
    ForeignError,
    InternalError,
    KernelTypeError,
    ResourceError,
    ZigguratError,
    is_of_signal,
)
from ziggurat.codemodel.recursion import deep_recursion
from ziggurat.codemodel.subnormals import keep_subnormals

P = ParamSpec("P")
R = TypeVar("R")


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of public functions: tracebacks of user errors end at the user's code."""

    @functools.wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*arguments, **keywords)
        except InternalError:
            raise  # A fault needs the whole traceback.
        except ZigguratError as error:
            raise error.with_traceback(None) from error.__cause__
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:  # The call itself has failed.
                raise KernelTypeError(str(error)) from None
            raise

    return call


@contextmanager
def no_faults(doing: str, model: Callable[[], object], name: str) -> Generator[None]:
    """Turn an exception that is no `ZigguratError`, or is a `BuildError`, into an `InternalError`: a fault of ziggurat.

    The error of a `ForeignError` is raised. A `TimeoutError`, and the error of a handler of a signal, stay as they are.
    `doing` is the verb for the kernel `name`, and `model` gives the model whose text goes with the report. The
    exception itself stays as the cause. Code that is nested too deeply, or too
    large for the memory, gives a `ResourceError`.
    """
    try:
        with deep_recursion(), keep_subnormals():
            yield
    except RecursionError:
        raise ResourceError(
            f"the code of '{name}' is nested too deeply for {doing} it",
            hint="nest fewer branches and loops, and call helper functions one after the other, not from each other",
        ) from None
    except MemoryError:
        raise ResourceError(f"{doing} '{name}' needs more memory than this machine has") from None
    except ForeignError as foreign:
        raise foreign.error from None
    except (Warning, TimeoutError):  # A user may turn warnings into errors, and limit the time: no faults of ziggurat.
        raise
    except Exception as error:
        if is_of_signal(error) or (isinstance(error, ZigguratError) and not isinstance(error, BuildError)):
            raise
        reason = str(error).strip().partition("\n")[0]
        summary = f"{doing} '{name}' failed with {type(error).__name__}{f': {reason}' if reason else ''}"
        raise InternalError(summary, _text(model)) from error


def _text(model: Callable[[], object]) -> str:
    try:
        return str(model())
    except Exception as error:  # A model of a faulty compiler may break any writer.
        return f"(the model has no text: {type(error).__name__}: {error})"
