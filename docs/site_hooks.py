"""Differences between Markdown as GitHub reads it and as the site's builder does; mkdocs.yml names this file."""

import re
from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Leave the second word of a fence out, as in ```python no-run, and let a list begin right after a paragraph."""
    markdown = re.sub(r"^(\s*(?:```|~~~)\w+) [\w-]+$", r"\1", markdown, flags=re.MULTILINE)
    return markdown
