"""The boundary between the compiler's faults and its users' errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ziggurat.codemodel.errors import BuildError, InternalError, ZigguratError


@contextmanager
def no_faults(doing: str, model: Callable[[], object], name: str) -> Iterator[None]:
    """What is raised inside and is not of the family of errors is our fault: it becomes an `InternalError`.

    So does a `BuildError`, as nobody but the compiler builds here. `doing` says what was going on with the kernel
    `name`, and `model` gives the model whose text goes with the report. The exception itself stays as the cause.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, MemoryError) or (isinstance(error, ZigguratError) and not isinstance(error, BuildError)):
            raise
        said = str(error).strip().partition("\n")[0]
        summary = f"{doing} '{name}' failed with {type(error).__name__}{f': {said}' if said else ''}"
        raise InternalError(summary, _text(model)) from error


def _text(model: Callable[[], object]) -> str:
    try:
        return str(model())
    except Exception as error:
        return f"(the model has no text: {type(error).__name__}: {error})"
