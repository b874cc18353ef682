"""Requests of a kernel that cannot be met: the op in the way, and the warning about it."""

from __future__ import annotations

import attrs

from ziggurat.codemodel import errors
from ziggurat.codemodel.location import FRONTENDS, Location
from ziggurat.codemodel.op import Op


@attrs.frozen
class Obstacle:
    """The reason why something cannot be done, as a clause, and the op that is in the way."""

    why: str
    op: Op

    def reason(self, owner: Op) -> str:
        """The reason why the request of `owner` is not met. It names the op of the obstacle where that is another."""
        if self.op is owner or self.op.location is None:
            return self.why
        return f"{self.why} ({self.op.NAME} at {self.op.location.outside(FRONTENDS)})"


def warn(message: str, place: Location | None) -> None:
    """Issue a `ZigguratWarning` at a place of the kernel's source, outside of the language's own functions."""
    errors.warn(message, None if place is None else place.outside(FRONTENDS))


def warn_of(message: str, owner: Op, obstacle: Obstacle) -> None:
    """Warn that a request of the op `owner` is not met, with the obstacle as the reason."""
    warn(f"{message}: {obstacle.reason(owner)}", owner.location)
