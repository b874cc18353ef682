"""The hazard that the checks of a GPU model report."""

from __future__ import annotations

import attrs

from ziggurat.codemodel.op import Op


@attrs.frozen
class Hazard:
    """Two ops between which something is missing on some path: a "barrier", "fence", "wait", "commit", "arrival" …"""

    first: Op
    second: Op
    missing: str

    def __str__(self) -> str:
        return f"no {self.missing} between {self.first!r} and {self.second!r}"
