"""The files that commands read: modules of Python, kernels, text."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import ziggurat
from ziggurat.codemodel.errors import LaunchError, ZigguratError
from ziggurat.codemodel.location import Location
from ziggurat.frontends.language import Function
from ziggurat.kernels.kernel import Kernel
from ziggurat.tuning.tuned import Tuned

_TRITON_C = (".tc", ".c", ".h", ".cl", ".cu")  # The ends of the names of files with Triton-C.
# The ends of the names of files with Triton-C.


def find_kernel(place: str, macros: Sequence[str] = (), functions: bool = False) -> Kernel:
    """The kernel at `FILE:NAME`; with `functions`, a function of the language as well."""
    path, colon, name = place.rpartition(":")
    if not colon and place.endswith(_TRITON_C):
        path, name = place, None
    if not path:
        raise LaunchError(f"'{place}' does not name a kernel", hint="write FILE.py:NAME")
    file = Path(path)
    if not file.is_file():
        raise LaunchError(f"there is no file '{path}'")
    if path.endswith(_TRITON_C):
        kernel = ziggurat.triton_c(file, name, **dict(map(_macro, macros)))
        return kernel.base if isinstance(kernel, Tuned) else kernel
    if macros or name is None:
        raise LaunchError(
            f"-D must go with a Triton-C source; got '{path}'", hint="give constexpr parameters as values"
        )
    module = load_module(path)
    kernel: Any = getattr(module, name, None)
    kernel = kernel.base if isinstance(kernel, Tuned) else kernel
    if isinstance(kernel, Function) and not isinstance(kernel, Kernel) and not functions:
        raise LaunchError(f"'{name}' must be a kernel; got a zg.function", hint="show its Python model: --stage python")
    if not isinstance(kernel, Function):
        kernels = [key for key, value in vars(module).items() if isinstance(value, Kernel | Tuned)]
        raise LaunchError(
            f"there is no kernel '{name}' in '{path}'",
            hint=f"it has {', '.join(kernels)}" if kernels else "it has none",
        )
    return kernel  # pyright: ignore[reportReturnType]


def load_module(path: str) -> ModuleType:
    """The module of a file of Python, run now. Raises `LaunchError` for what it raises."""
    file = Path(path)
    if not file.is_file():
        raise LaunchError(f"there is no file '{path}'")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise LaunchError(f"'{path}' is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)
    sys.path.insert(0, str(file.resolve().parent))
    try:
        with contextlib.redirect_stdout(sys.stderr):  # Only the stage goes to standard output.
            spec.loader.exec_module(module)
    except ZigguratError:
        raise
    except SystemExit as error:
        raise LaunchError(
            f"'{path}' ends the program (exit status {error.code}) when it is imported",
            hint="put the main program under: if __name__ == '__main__':",
        ) from None
    except Exception as error:  # The module of a user may raise anything.
        reason = error.msg if isinstance(error, SyntaxError) else error
        summary = f"'{path}' cannot be read: {type(error).__name__}: {reason}"
        as_triton = isinstance(error, ModuleNotFoundError) and error.name == "triton"
        hint = "let ziggurat be its triton: python -m ziggurat.triton -m ziggurat …" if as_triton else None
        raise LaunchError(summary, _raised(error, file), hint=hint) from None
    return module


def _raised(error: Exception, file: Path) -> Location | None:
    """The last place in the file that an exception came from."""
    if isinstance(error, SyntaxError):
        return Location(error.filename or str(file.resolve()), error.lineno or 1, max(0, (error.offset or 1) - 1))
    frames = reversed(traceback.extract_tb(error.__traceback__))
    at = next((frame for frame in frames if Path(frame.filename).resolve() == file.resolve()), None)
    if at is None or at.lineno is None:
        return None
    return Location(at.filename, at.lineno, at.colno or 0, at.end_lineno or at.lineno, at.end_colno or 0)


def _macro(text: str) -> tuple[str, Any]:
    """A macro of the command line: `TM=64`, `TYPE=float`, `TM=[32, 64]`; a name alone is defined as 1."""
    name, equals, value = text.partition("=")
    if not equals:
        return name, 1

    def number(part: str) -> Any:
        return int(part) if re.fullmatch(r"-?\d+", part.strip()) else part.strip()

    if value.strip().startswith("[") and value.strip().endswith("]"):
        return name, [number(part) for part in value.strip()[1:-1].split(",")]
    return name, number(value)


def read(file: Path) -> str:
    """The text of a file. Raises `LaunchError` where it cannot be read."""
    if not file.is_file():
        raise LaunchError(f"there is no file {file}")
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LaunchError(f"'{file}' cannot be read: {error}") from None
