"""Stages of a kernel side by side, as HTML for notebooks and for `python -m ziggurat show --stage all --html`."""

from __future__ import annotations

import html
from collections.abc import Mapping

from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.html import to_html

_COLUMN = "flex:1 0 20em;max-width:60em;max-height:40em;overflow:auto;border-left:1px solid #ddd;padding:0 .5em"


def side_by_side(stages: Mapping[str, Op | str]) -> str:
    """A row with a column for each stage: a model in colours, a text as it is."""
    columns = "".join(
        f'<div style="{_COLUMN}"><b>{html.escape(name)}</b>'
        + (to_html(stage) if isinstance(stage, Op) else f'<pre style="line-height:1.3">{html.escape(stage)}</pre>')
        + "</div>"
        for name, stage in stages.items()
    )
    return f'<div style="display:flex;overflow:auto">{columns}</div>'
