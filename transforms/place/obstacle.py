"""Requests of a kernel that cannot be met: the op in the way, and the warning about it."""

from __future__ import annotations

import os
import warnings

import attrs

import ziggurat.frontends.library
from ziggurat.codemodel.errors import ZigguratWarning
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op

LIBRARY = os.path.join(os.path.dirname(os.path.abspath(ziggurat.frontends.library.__file__)), "")


@attrs.frozen
class Obstacle:
    """The reason why something cannot be done, as a clause, and the op that is in the way."""

    why: str
    op: Op


def warn(message: str, place: Location | None) -> None:
    """Issue a `ZigguratWarning` at a place of the kernel's source, outside of the library."""
    place = place.outside(LIBRARY) if place is not None else None
    file, line = ("<model>", 0) if place is None else (place.file, place.line)
    warnings.warn_explicit(message, ZigguratWarning, file, line)


def warn_of(message: str, asked: Op, obstacle: Obstacle) -> None:
    """Warn that something that `asked` asks for is not done, and why; of several ops, name the one in the way."""
    where = ""
    if obstacle.op is not asked and obstacle.op.location is not None:
        where = f" ({obstacle.op.NAME} at {obstacle.op.location.outside(LIBRARY)})"
    warn(f"{message}: {obstacle.why}{where}", asked.location)
