"""The place that an op came from: a span of source text, and the pass that made the op."""

from __future__ import annotations

import linecache
import os
from typing import Any, Final

import attrs

# The folder of the frontends, where an op of the language's own functions has its place, with the author's call outside
# of it; and that of the functions that are written in the language itself.
FRONTENDS: Final = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "frontends", "")
LIBRARY: Final = os.path.join(FRONTENDS, "library", "")
_WINDOW = 160  # The characters that messages show of a source line.


def register(file: str, text: str) -> None:
    """Let messages, tracebacks and `inspect` find the lines of a text that is in no file, under this name."""
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)


def marked(line: str, start: int, width: int = 1) -> list[str]:
    """A source line with carets below `width` characters; of a long line, what is around the first of them."""
    cut = max(0, min(start - _WINDOW // 2, len(line) - _WINDOW))
    text = "…" * (cut > 0) + line[cut : cut + _WINDOW]
    start += (cut > 0) - cut
    pad = "".join("\t" if character == "\t" else " " for character in text[:start])
    carets = "^" * max(1, min(width, len(text) - start))
    return [f"    {text}{'…' * (cut + _WINDOW < len(line))}", f"    {pad}{carets}"]


class _Place:
    __slots__ = ("by", "caller", "column", "end_column", "end_line", "file", "line")


@attrs.frozen(weakref_slot=False)
class Location:
    """A half-open span of a source file. Lines count from 1, columns from 0 and in UTF-8 bytes, as in Python's `ast`.

    An `end_line` of 0 says that the end is not known. `by` names the pass that made the op, when it was not the author
    of the source. `caller` is the place of the call that led here, when the op stands in a helper function.
    """

    file: str
    line: int
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    by: str | None = None
    caller: Location | None = None

    @staticmethod
    def of_node(file: str, node: Any, offset: int = 0) -> Location:
        """The place of a node of Python's syntax tree, whose lines count from `offset`.

        It is set in an object that can change, which takes a third of the time.
        """
        place: Any = _Place()
        place.file = file
        place.line = node.lineno + offset
        place.column = node.col_offset
        place.end_line = node.end_lineno + offset
        place.end_column = node.end_col_offset
        place.by = place.caller = None
        place.__class__ = Location
        return place

    def made_by(self, name: str) -> Location:
        """This place, for an op that the pass `name` made."""
        if self.by == name:
            return self
        return Location(self.file, self.line, self.column, self.end_line, self.end_column, name, self.caller)

    def called_from(self, caller: Location | None) -> Location:
        """This place, reached through a call at `caller`, the outermost one when helpers call each other."""
        return attrs.evolve(self, caller=caller if self.caller is None else self.caller.called_from(caller))

    def outside(self, folder: str) -> Location:
        """The place itself; for one in a file of this folder, the call from outside of the folder that led there."""
        place = self
        while place.caller is not None and place.file.startswith(folder):
            place = place.caller
        return place

    def source_line(self) -> str | None:
        """The text of the first line of the span, or None where the source cannot be read."""
        text = linecache.getline(self.file, self.line)
        return text.rstrip("\n") if text else None

    def excerpt(self, at: str = "  at") -> str:
        """The place after the word `at`, its source line, and carets under the exact columns; then the calls that led
        there."""
        lines = [f"{at} {self}"]
        text = self.source_line()
        if text is not None:
            # Columns count UTF-8 bytes; the caret line counts characters.
            raw = text.encode()
            # A span of several lines is marked to the end of its first.
            end = {0: self.column, self.line: self.end_column}.get(self.end_line, len(raw))
            start = len(raw[: self.column].decode(errors="replace"))
            width = len(raw[self.column : end].decode(errors="replace"))
            lines += marked(text, start, width)
        if self.caller is not None:
            lines.append("  called from")
            lines.append(self.caller.excerpt())
        return "\n".join(lines)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column + 1}"
