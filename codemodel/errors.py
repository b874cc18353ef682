"""The errors of the project: one family, each with its place in the source.

Everything that a user can cause derives from `ZigguratError`. `InternalError` is a fault of the compiler; it
shows the model and asks for a report.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from inspect import CO_VARARGS
from itertools import pairwise
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from ziggurat.codemodel.location import Location, marked

if TYPE_CHECKING:
    from ziggurat.codemodel.messages import Words

_MAX_MESSAGE = 2000  # The characters that messages show of what may repeat a part of a text.

# The public names, which are those of `ziggurat` too.
__all__ = [
    "BuildError",
    "InternalError",
    "KernelErrors",
    "KernelNameError",
    "KernelRuntimeError",
    "KernelSyntaxError",
    "KernelTypeError",
    "KernelValueError",
    "LaunchError",
    "MemoryAccessError",
    "ParseError",
    "ResourceError",
    "SanitizerError",
    "SanitizerReport",
    "SimulationError",
    "StaticAssertionError",
    "TargetError",
    "VerifyError",
    "ZigguratError",
    "ZigguratWarning",
]


def shown(value: Any) -> str:
    """A value in a message: its `repr`, cut off after 60 characters."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write integers of more than 4300 digits.
        many = f"an integer of {value.bit_length()} bits" if isinstance(value, int) else None
        text = many or f"a {type(value).__name__} with a very large integer"
    return text if len(text) <= 60 else f"{text[:59]}…"


def reason_of(error: Exception) -> str:
    """The message of an error of Python's arithmetic, the same in every version of Python."""
    return "division by zero" if isinstance(error, ZeroDivisionError) else str(error)


class ZigguratError(Exception):
    """Base of all errors. `summary` is the message alone; `str(error)` adds the source line and the hint.

    `location` is the place in the user's source (or None), `hint` says what to try. `related` has further places, each
    with a line of its own that says what is there.
    """

    related: tuple[tuple[str, Location], ...] = ()
    # The parts in plain Python of a kernel that reflection refuses for another reason.
    plain: tuple[Any, ...] = ()

    def __init__(self, summary: str, location: Location | None = None, hint: str | None = None) -> None:
        super().__init__(summary, location, hint)
        self.summary = summary
        self.location = location
        self.hint = hint

    @property
    def parts(self) -> tuple[ZigguratError, ...]:
        """The errors that this one reports: itself, or each error of a `KernelErrors`."""
        return (self,)

    def say_in(self, words: Words) -> None:
        """Write the message and the hint in the words of a language, unless another one has its words in them."""
        from ziggurat.codemodel.messages import in_words  # Types raise errors.

        for error in self.parts:
            error.summary = in_words(error.summary, words)
            error.hint = None if error.hint is None else in_words(error.hint, words)
            error.related = tuple((in_words(text, words), place) for text, place in error.related)
            error.args = (error.summary, *error.args[1:2], error.hint)

    def add(self, text: str, location: Location | None) -> None:
        """Show a further place below the first one, if it is known."""
        if location is not None:
            self.related = (*self.related, (text, location))

    def shown_places(self, at: str = "  at") -> list[str]:
        """The source at the location and at the related ones, as the text of the error has them. `at` is the word
        before the location."""
        lines = [] if self.location is None else [self.location.excerpt(at)]
        for text, location in self.related:
            lines += [f"  {text}", location.excerpt()]
        return lines

    def shown_hint(self) -> list[str]:
        """The hint, as the text of the error has it."""
        return [] if self.hint is None else [f"  hint: {self.hint}"]

    def __str__(self) -> str:
        return "\n".join([self.summary, *self.shown_places(), *self.shown_hint()])


class KernelSyntaxError(ZigguratError):
    """The source of a kernel uses a construct that the language does not have, or cannot be read."""


class KernelNameError(ZigguratError, NameError):
    """A name is unknown, or a variable is used that is not assigned on every path to its use."""


class KernelTypeError(ZigguratError, TypeError):
    """A call or a statement of a kernel does not fit the types of its operands."""


class KernelValueError(ZigguratError, ValueError):
    """A constant of a kernel has a value that its use does not allow."""


class StaticAssertionError(KernelValueError):
    """A static assertion of a kernel does not hold."""


class BuildError(ZigguratError):
    """An op was put together wrongly by the code that builds a model.

    `rewriting` is the name of the op that a transform was rewriting at that time, or None.
    """

    rewriting: str | None = None

    def while_rewriting(self, name: str, location: Location | None) -> None:
        """Note the op of the old model that was being rewritten; the innermost one counts."""
        if self.rewriting is None:
            self.rewriting = name
            self.summary = f"{self.summary} (while rewriting {name})"
            self.location = self.location or location


class ParseError(ZigguratError):
    """The text of a model is malformed. `line` and `column` of the place both count from 1."""

    line: int = 0
    column: int = 0

    @classmethod
    def at(cls, offset: int, text: str, file: str, message: str, hint: str | None = None) -> Self:
        """The error at an offset in a text, with the line there and a caret under the column."""
        line = text.count("\n", 0, offset) + 1
        column = offset - (text.rfind("\n", 0, offset) + 1)
        source = text.split("\n")[line - 1].rstrip("\r")
        message = message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}…"
        error = cls("\n".join([f"{file}:{line}:{column + 1}: {message}", *marked(source, column)]), hint=hint)
        error.line, error.column = line, column + 1
        return error


class VerifyError(ZigguratError):
    """A model breaks invariants. `violations` lists them all, in the order of the model."""

    def __init__(self, summary: str, violations: Sequence[object] = ()) -> None:
        super().__init__(summary)
        self.violations = tuple(violations)


class TargetError(ZigguratError):
    """A model holds something that the target it is to be written for cannot express."""


class ResourceError(ZigguratError):
    """A kernel needs more of a resource than the machine has, such as shared memory."""


class LaunchError(ZigguratError):
    """The arguments or the grid of a launch do not fit the kernel."""


class KernelRuntimeError(ZigguratError, RuntimeError):
    """A running kernel failed: a device assertion, a division by zero, a loop step of zero."""


class MemoryAccessError(KernelRuntimeError):
    """A running kernel touched memory outside the arrays it was given."""


class SimulationError(KernelRuntimeError):
    """A simulated kernel did what no kernel may do: a race, a stray or misaligned access, a deadlock, a lost wait."""


class KernelErrors(ZigguratError):
    """Several errors of one kernel, reported together. `errors` holds them in source order."""

    def __init__(self, errors: Sequence[ZigguratError]) -> None:
        super().__init__("1 error" if len(errors) == 1 else f"{len(errors)} errors")
        self.errors = tuple(errors)

    @staticmethod
    def of(errors: Sequence[ZigguratError]) -> ZigguratError:
        """The only error, or a `KernelErrors` of several."""
        return errors[0] if len(errors) == 1 else KernelErrors(errors)

    @property
    def parts(self) -> tuple[ZigguratError, ...]:
        return self.errors

    def __str__(self) -> str:
        return f"{self.summary}\n\n" + "\n\n".join(str(error) for error in self.errors)


class SanitizerReport(KernelRuntimeError):
    """A fault that a sanitised launch reports.

    `check` is the name of the sanitizer. `argument` and `element` are the array, by the name of its parameter, and the
    number of its element in order of memory from the first one; None where there is none. `program` is the one that
    reports, and `other_program` that of the access it races with, at the second place of `related`. `count` is the
    number of elements of programs that reported this.
    """

    def __init__(
        self, check: str, summary: str, location: Location | None, hint: str | None, argument: str | None = None,
        element: int | None = None, program: tuple[int, int, int] = (0, 0, 0),
        other_program: tuple[int, int, int] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(summary, location, hint)
        self.check, self.argument, self.element = check, argument, element
        self.program, self.other_program, self.count = program, other_program, 1


class SanitizerError(KernelErrors, KernelRuntimeError):
    """The faults that a sanitised launch of a kernel has reported: `errors`, each a `SanitizerReport`."""

    errors: tuple[SanitizerReport, ...]

    def __init__(self, reports: Sequence[SanitizerReport], kernel: str) -> None:
        super().__init__(reports)
        count = "a fault" if len(reports) == 1 else f"{len(reports)} faults"
        self.summary = f"the sanitizers found {count} in '{kernel}'"


def source_order(error: ZigguratError) -> tuple[int, int]:
    """The line and the column of an error, by which the errors of one file are sorted."""
    return (error.location.line, error.location.column) if error.location is not None else (0, 0)


class ZigguratWarning(UserWarning):
    """A property of a kernel that is allowed but probably unwanted. It is no error: nothing is raised unless Python's
    `warnings` are configured to."""


def warn(message: str, place: Location | None) -> None:
    """Issue a `ZigguratWarning` at a place of the kernel's source."""
    file, line = ("<model>", 0) if place is None else (place.file, place.line)
    warnings.warn_explicit(message, ZigguratWarning, file, line)


class ForeignError(BaseException):
    """Code that is not the compiler's has raised `error` while a kernel ran: Python's output, or a handler of a signal.
    The boundary to users raises the error itself."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def is_of_signal(error: BaseException) -> bool:
    """Whether a handler of a signal has raised an error: a function in its traceback has the frame of the function
    before it as an argument, after a number."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        interrupted, traceback = traceback.tb_frame, traceback.tb_next
        arguments = _arguments(traceback.tb_frame)
        if any(value is interrupted and isinstance(number, int) for number, value in pairwise(arguments)):
            return True
    return False


def _arguments(frame: FrameType) -> list[object]:
    """The positional arguments of a function's frame, those of `*arguments` too."""
    code, variables = frame.f_code, frame.f_locals
    names = code.co_varnames[: code.co_argcount]
    arguments: list[object] = [variables.get(name) for name in names]
    if code.co_flags & CO_VARARGS:
        arguments += variables.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ())
    return arguments


def pass_on_signals(error: BaseException) -> None:
    """Raise an error that a handler of a signal has raised. Handlers of errors that go on otherwise call this."""
    if is_of_signal(error):
        raise error


class InternalError(ZigguratError):
    """A fault of the compiler, not of its user. The message carries the model text; please send it to us."""

    def __init__(self, summary: str, model: str = "") -> None:
        text = f"internal error: {summary}\nThis is a fault of ziggurat. Please report it with the model below."
        super().__init__(f"{text}\n{model}" if model else text)
