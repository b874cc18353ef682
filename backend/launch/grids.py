"""Grids: how many programs a launch runs."""

from __future__ import annotations

import operator
from typing import Any

from ziggurat.codemodel.errors import LaunchError, shown

# Along each axis here; a GPU has the two last shorter.
MOST = (1 << 31) - 1
MOST_ON_GPU = (MOST, 65535, 65535)


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
            f"the grid of '{name}' has one to three sizes, integers from 0 to {MOST}; got {shown(grid)}",
            hint=f"{name}[(zg.cdiv(n, BLOCK),)](…)",
        )
    return sizes


def gpu_sizes(grid: Any, name: str) -> tuple[int, int, int]:
    """The three sizes of a grid on a GPU. Raises `LaunchError` for what is none, and for what a GPU does not have."""
    x, y, z = (*sizes_of(grid, name), 1, 1)[:3]
    if y > MOST_ON_GPU[1] or z > MOST_ON_GPU[2]:
        raise LaunchError(
            f"the grid of '{name}' is at most {' × '.join(map(str, MOST_ON_GPU))} on a GPU; got {(x, y, z)}",
            hint="put the largest size first, or let a program do more",
        )
    return x, y, z


def three(given: Any) -> tuple[Any, Any, Any]:
    """The three sizes that a function of the grid gave, for the driver, which refuses what is none.

    Raises `TypeError` for what is not plainly one to three sizes; it may still be a grid, which `gpu_sizes` tells.
    """
    if type(given) is int:
        return given, 1, 1
    if type(given) is tuple and 1 <= len(given) <= 3:  # pyright: ignore[reportUnknownArgumentType]
        return (*given, 1, 1)[:3]  # pyright: ignore[reportUnknownVariableType, reportReturnType]
    raise TypeError("not plainly a grid")


class Meta(dict[str, Any]):
    """What a function of the grid gets: the arguments of a launch by name."""

    def __init__(self, kernel: str, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.kernel = kernel

    def __missing__(self, name: object) -> Any:
        known = ", ".join(f"'{one}'" for one in self) or "none"
        raise LaunchError(
            f"the grid of '{self.kernel}' asks for {name!r}, which is no parameter of it", hint=f"it has {known}"
        )
