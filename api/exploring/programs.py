"""`ziggurat explore --triton program.py`: a page for each kernel that a Triton program launches."""

from __future__ import annotations

import html
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ziggurat.codemodel.errors import LaunchError, ZigguratError
from ziggurat.exploring.exploration import explore
from ziggurat.kernels.kernel import Kernel
from ziggurat.launches.inspected import first_launches

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
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LaunchError(f"the folder of the pages cannot be made: {error}") from None

    def add(self, kernel: Kernel, grid: Any, arguments: list[Any], keywords: dict[str, Any]) -> None:
        """Explore a launch before it happens. One that cannot be explored is listed with the reason."""
        if len(self.rows) >= MAX_PAGES:
            return
        try:
            page = explore(kernel, grid, *arguments, **keywords)
        except ZigguratError as error:
            self._row(html.escape(kernel.name), f"{type(error).__name__}: {error.summary}")
            return
        name = f"{len(self.rows):02}-{kernel.name}.html"
        page.save(self.folder / name)
        self._row(f'<a href="{html.escape(name)}">{html.escape(kernel.name)}</a>', repr(page.compiled)[1:-1])

    def _row(self, link: str, about: str) -> None:
        self.rows.append(f"<tr><td>{link}</td><td>{html.escape(about)}</td></tr>")

    def finish(self) -> Path:
        """Write the list of the pages; its path."""
        file = self.folder / "index.html"
        title = html.escape(f"The kernels of {self.program}")
        file.write_text(_INDEX.format(title=title, rows="\n".join(self.rows)), encoding="utf-8")
        return file


def explore_program(arguments: Sequence[str], folder: Path) -> None:
    """Run a Triton program, and write a page for each kernel that it launches, and their list, into a folder.

    `arguments` are the program and its own arguments, or `-m`, a module and its arguments.
    """
    from ziggurat.triton.__main__ import main as run_program

    program = next((argument for argument in arguments if argument != "-m"), "")
    pages = Pages(folder, os.path.basename(program))
    try:
        with first_launches(pages.add):
            run_program(arguments, "ziggurat explore --triton")
    finally:
        if pages.rows:
            with suppress(BrokenPipeError):
                print(f"{len(pages.rows)} launch(es) explored: {pages.finish()}", file=sys.stderr)
