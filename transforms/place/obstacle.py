"""Requests of a kernel that cannot be met: the op in the way, and the warning about it."""

from __future__ import annotations

import os

import attrs

import ziggurat.frontends.library
from ziggurat.codemodel import errors
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
    errors.warn(message, None if place is None else place.outside(LIBRARY))


def warn_of(message: str, asked: Op, obstacle: Obstacle) -> None:
    """Warn that something that `asked` asks for is not done, and why; of several ops, name the one in the way."""
    where = ""
    if obstacle.op is not asked and obstacle.op.location is not None:
        where = f" ({obstacle.op.NAME} at {obstacle.op.location.outside(LIBRARY)})"
    warn(f"{message}: {obstacle.why}{where}", asked.location)
