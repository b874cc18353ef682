"""The page of `zg.explore`: its content as compressed JSON beside the script that shows it, in one file."""

from __future__ import annotations

import base64
import html
import json
import zlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

_PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
{style}</style>
<body>
<script type="application/octet-stream" id="content">{content}</script>
<script>
{script}</script>
</body>
</html>
"""


def page(title: str, content: Mapping[str, Any]) -> str:
    """The text of a page. `content` is what `explorer.js` shows: see docs/design/016-exploring.md."""
    text = json.dumps({"title": title, **content}, ensure_ascii=False, separators=(",", ":"))
    packed = base64.b64encode(zlib.compress(text.encode("utf-8", "backslashreplace"), 9)).decode()
    folder = files("ziggurat.exploring")
    style, script = (folder.joinpath(name).read_text("utf-8") for name in ("explorer.css", "explorer.js"))
    return _PAGE.format(title=html.escape(f"{title} – ziggurat"), style=style, content=packed, script=script)
