"""Markdown as GitHub reads it, for the site's builder, which mkdocs.yml tells of this file."""

import re
from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The text of a page with fences and lists as the builder needs them.

    A fence has no second word, as in ```python no-run, and what belongs to an item of a list is indented by four.
    """
    lines: list[str] = []
    width, start, fenced = 0, 0, False  # The width of the mark of the item around the line, or 0, and its first line.
    for line in markdown.splitlines():
        item = None if fenced else re.match(r"([*-]|\d+\.) ", line)
        if item is not None:
            if width and "" in lines[start:] and lines[-1]:
                lines.append("")  # Otherwise the item would go on with the last paragraph of the one before.
            width, start = len(item[0]), len(lines)
        elif line and not line.startswith(" ") and not fenced:
            width = 0
        elif line and width:
            line = " " * (4 - width) + line
        if re.match(r"\s*(```|~~~)", line):
            fenced = not fenced
            line = re.sub(r"^(\s*\S+) [\w-]+$", r"\1", line)
        lines.append(line)
    return "\n".join(lines) + "\n"
