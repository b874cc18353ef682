"""`ziggurat explore --triton program.py`: a page for each kernel that a Triton program launches."""

from __future__ import annotations

import html
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ziggurat.codemodel.errors import LaunchError, ZigguratError
from ziggurat.codemodel.gpu.options import COMPILE_OPTIONS
from ziggurat.exploring.exploration import explore
from ziggurat.kernels.kernel import Kernel

MAX_PAGES = 50

_INDEX = """<!DOCTYPE html>
<meta charset="utf-8">
<title>{title}</title>
<style>:root {{ color-scheme: light dark; font: 14px system-ui, sans-serif; }} td {{ padding: 2px 12px 2px 0; }}</style>
<h1>{title}</h1>
<table>
{rows}
</table>
"""


class Pages:
    """The pages of a program's launches in a folder: the first launch of each kernel for each choice of types,
    constants and options."""

    def __init__(self, folder: Path, program: str) -> None:
        self.folder, self.program = folder, program
        self.rows: list[str] = []
        self._keys: set[Any] = set()
        self._is_busy = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LaunchError(f"the folder of the pages cannot be made: {error}") from None

    def add(self, kernel: Kernel, grid: Any, arguments: Sequence[Any], keywords: dict[str, Any]) -> None:
        """Explore a launch before it happens. One that cannot be explored is listed with the reason."""
        if self._is_busy or len(self.rows) >= MAX_PAGES:
            return
        self._is_busy = True
        try:
            names = kernel.signature.parameters
            usable = {name: value for name, value in keywords.items() if name in names or name in COMPILE_OPTIONS}
            in_memory = [_in_memory(value) for value in arguments]
            usable = {name: _in_memory(value) for name, value in usable.items()}
            key = kernel, tuple(map(_kind, in_memory)), tuple((name, _kind(value)) for name, value in usable.items())
            if key in self._keys:
                return
            self._keys.add(key)
            try:
                page = explore(kernel, grid, *in_memory, **usable)
            except ZigguratError as error:
                self._row(html.escape(kernel.name), f"{type(error).__name__}: {error.summary}")
                return
            name = f"{len(self.rows):02}-{kernel.name}.html"
            page.save(self.folder / name)
            self._row(f'<a href="{html.escape(name)}">{html.escape(kernel.name)}</a>', repr(page.compiled)[1:-1])
        finally:
            self._is_busy = False

    def _row(self, link: str, about: str) -> None:
        self.rows.append(f"<tr><td>{link}</td><td>{html.escape(about)}</td></tr>")

    def finish(self) -> Path:
        """Write the list of the pages; its path."""
        file = self.folder / "index.html"
        title = html.escape(f"The kernels of {self.program}")
        file.write_text(_INDEX.format(title=title, rows="\n".join(self.rows)), encoding="utf-8")
        return file


@contextmanager
def watching(pages: Pages) -> Generator[None]:
    """Within this context, each launch of a kernel goes to `pages` first. Launches take their slow way."""
    Kernel.observer = pages.add
    try:
        yield
    finally:
        Kernel.observer = None


def explore_program(arguments: Sequence[str], folder: Path) -> None:
    """Run a Triton program, and write a page for each kernel that it launches, and their list, into a folder.

    `arguments` are the program and its own arguments, or `-m`, a module and its arguments.
    """
    from ziggurat.triton.__main__ import main as run_program

    program = next((argument for argument in arguments if argument != "-m"), "")
    pages = Pages(folder, os.path.basename(program))
    try:
        with watching(pages):
            run_program(arguments, "ziggurat explore --triton")
    finally:
        if pages.rows:
            with suppress(BrokenPipeError):
                print(f"{len(pages.rows)} launch(es) explored: {pages.finish()}", file=sys.stderr)


def _in_memory(value: Any) -> Any:
    """An argument with its arrays in memory."""
    from ziggurat.backend.launch.arrays import is_array, on_gpu
    from ziggurat.backend.launch.descriptors import TensorDescriptor

    if isinstance(value, tuple):
        return tuple(map(_in_memory, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if isinstance(value, TensorDescriptor):
        return TensorDescriptor(_in_memory(value.array), value.block) if on_gpu(value.array) else value
    if is_array(value) and on_gpu(value):
        from ziggurat.backend.cuda.device_memory import to_host

        return value.cpu() if hasattr(value, "cpu") else to_host(value)
    return value


def _kind(value: Any) -> Any:
    """What tells launches of one kernel apart: types of arrays, values that may be compiled in."""
    if hasattr(value, "dtype"):
        return str(value.dtype)
    if isinstance(value, tuple):
        return tuple(map(_kind, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return value if isinstance(value, bool | str | None) else type(value).__name__
