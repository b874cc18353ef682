"""Grids: how many programs a launch runs."""

from __future__ import annotations

import operator
from typing import Any

from ziggurat.codemodel.errors import LaunchError

# Along each axis, as on the GPU's first; the others are shorter there.
MOST = (1 << 31) - 1


def sizes_of(grid: Any, name: str) -> tuple[int, ...]:
    """The one to three sizes of the grid in which the kernel `name` is launched, from an integer or a sequence of them.

    Raises `LaunchError` for anything else.
    """
    listed = hasattr(grid, "__iter__") and type(grid) not in (str, dict)
    try:
        given: tuple[Any, ...] = tuple(grid) if listed else (grid,)
        sizes = tuple(operator.index(size) for size in given)
    except TypeError:
        sizes = ()
    if not 1 <= len(sizes) <= 3 or any(not 0 <= size <= MOST for size in sizes):
        raise LaunchError(
            f"the grid of '{name}' has one to three sizes, integers from 0 to {MOST}; got {_shown(grid)}",
            hint=f"{name}[(zg.cdiv(n, BLOCK),)](…)",
        )
    return sizes


class Constants(dict[str, Any]):
    """What a function of the grid gets: the constexpr arguments of a launch by name."""

    def __init__(self, kernel: str, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.kernel = kernel

    def __missing__(self, name: object) -> Any:
        known = ", ".join(f"'{one}'" for one in self) or "none"
        raise LaunchError(
            f"the grid of '{self.kernel}' asks for {name!r}, which is no constexpr parameter of it",
            hint=f"it has {known}",
        )


def _shown(grid: Any) -> str:
    text = repr(grid)
    return text if len(text) <= 60 else f"{text[:59]}…"
