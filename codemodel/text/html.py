"""Models as HTML, for notebooks and the command line: the text form with names, types and numbers in colour."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.writer import to_text

_PARTS = re.compile(
    r"""(?P<comment>//[^\n]*)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<value>%\w+)|(?P<block>\^\w+)|(?P<attribute>@\w*=?)"""
    r"""|(?P<op>(?<=[=\n {] )[a-z_]+(?:\.[a-z_]+)+|(?<==\s)[a-z_]+)"""
)
_COLOURS = {
    "comment": "#6a737d",
    "string": "#22863a",
    "value": "#005cc5",
    "block": "#b08800",
    "attribute": "#6f42c1",
    "op": "#d73a49",
}
_COLUMN = "flex:1 0 20em;max-width:60em;max-height:80vh;overflow:auto;border-left:1px solid #ddd;padding:0 .5em"
# Notebooks have rules of their own for `pre`: some wrap its lines, and set them in the font of the text.
_TEXT = '<pre style="font-family:monospace;white-space:pre;line-height:1.3">{}</pre>'


def to_html(op: Op) -> str:
    """The model as a preformatted, coloured block of HTML."""

    def colour(match: re.Match[str]) -> str:
        kind = match.lastgroup or "op"
        return f'\0<span style="color:{_COLOURS[kind]}">\0{match[0]}\0</span>\0'

    parts = _PARTS.sub(colour, to_text(op)).split("\0")
    # Tags stand at the odd places; the text between them is escaped.
    text = "".join(part if index % 2 else html.escape(part) for index, part in enumerate(parts))
    return _TEXT.format(text)


def side_by_side(stages: Mapping[str, Op | str]) -> str:
    """A row with a column for each stage of a kernel: a model in colours, a text as it is."""
    columns = "".join(
        f'<div style="{_COLUMN}"><b>{html.escape(name)}</b>'
        + (to_html(stage) if isinstance(stage, Op) else _TEXT.format(html.escape(stage)))
        + "</div>"
        for name, stage in stages.items()
    )
    return f'<div style="display:flex;overflow:auto">{columns}</div>'
