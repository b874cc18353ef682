"""Grids: the number of programs of a launch along each axis."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, cast

from ziggurat.codemodel.errors import LaunchError, shown
from ziggurat.codemodel.messages import Phrase

# The largest size of each axis: on arrays in memory, and on a GPU.
MAX_SIZE = (1 << 31) - 1
MAX_GPU_SIZES = (MAX_SIZE, 65535, 65535)
# The grids whose launchers a kernel keeps. Making one takes microseconds.
MAX_LAUNCHERS = 1024
# The signatures whose models, native code and plans of launches a kernel keeps, some 0.15 MB each. Those of a sweep
# over the values of a constexpr, such as all lengths of a sequence, would fill the memory.
MAX_SPECIALIZATIONS = 64
_SIZES = Phrase(zg="{name}[(zg.cdiv(n, BLOCK),)](…)", tl="{name}[(triton.cdiv(n, BLOCK),)](…)")
_COMPUTED = Phrase(
    zg='{name}[lambda meta: (zg.cdiv(meta["n"], meta["BLOCK"]),)](…)',
    tl='{name}[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](…)',
)


def sizes_of(grid: Any, name: str) -> tuple[int, ...]:
    """The one to three sizes of the grid in which the kernel `name` is launched, from an integer or a sequence of them.

    Further sizes of 1 are left out, as Triton leaves out all. Raises `LaunchError` for anything else.
    """
    is_tuple = type(grid) is tuple and is_exact(grid)
    sizes = cast("tuple[int, ...]", grid) if is_tuple else _sizes(grid)
    if {*sizes[3:]} == {1}:
        sizes = sizes[:3]
    if not 1 <= len(sizes) <= 3 or not 0 <= min(sizes) <= max(sizes) <= MAX_SIZE:
        raise LaunchError(
            f"the grid of '{name}' must be one to three sizes, integers from 0 to {MAX_SIZE}; got {shown(grid)}",
            hint=_SIZES(name=name),
        )
    return sizes


def program_at(number: Any, grid: Sequence[int]) -> tuple[Any, Any, Any]:
    """The place in a grid of the program with a number, or of an array of them; the first axis counts fastest."""
    x, y, _ = grid
    return number % x, number // x % y, number // (x * y)


def program_name(number: int, grid: Sequence[int]) -> str:
    """The name of a program in messages: `program (3, 0, 0)`."""
    return f"program {program_at(number, grid)}"


def _sizes(grid: Any) -> tuple[int, ...]:
    """The sizes of a grid that is not a tuple of ints; none for anything that is no grid."""
    is_sequence = getattr(grid, "ndim", 0) == 1 or (isinstance(grid, Sequence) and not isinstance(grid, str | bytes))
    try:
        return tuple(map(_size, cast("Sequence[Any]", grid) if is_sequence else [cast(Any, grid)]))
    except TypeError:
        return ()


def _size(size: Any) -> int:
    """An integer of any library as an int. Raises `TypeError` for anything else, booleans included."""
    if isinstance(size, bool):
        raise TypeError
    return operator.index(size)


def gpu_sizes(grid: Any, name: str) -> tuple[int, int, int]:
    """The three sizes of a grid on a GPU. Raises `LaunchError` for anything else, and for a grid that is too large."""
    x, y, z = padded(sizes_of(grid, name))
    if y > MAX_GPU_SIZES[1] or z > MAX_GPU_SIZES[2]:
        raise LaunchError(
            f"the grid of '{name}' must be at most {' × '.join(map(str, MAX_GPU_SIZES))} on a GPU; got {(x, y, z)}",
            hint="put the largest size first, or let a program do more",
        )
    return x, y, z


_EXACT = frozenset((int,))


def is_exact(grid: Any) -> bool:
    """Whether a grid is an int or a tuple of them. A table finds (1.0,) and (True,) as (1,), but they are no grids."""
    sizes = cast("tuple[Any, ...]", grid) if type(grid) is tuple else (grid,)
    return {*map(type, sizes)} <= _EXACT


def padded(sizes: Sequence[int]) -> tuple[int, int, int]:
    """One to three sizes as three."""
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def three(grid: Any) -> tuple[Any, Any, Any]:
    """The three sizes that a function of the grid gave, for the driver, which refuses sizes that are no integers.

    Raises `TypeError` for anything but an int or a tuple of one to three; it may still be a grid for `gpu_sizes`.
    """
    if type(grid) is int:
        return grid, 1, 1
    if type(grid) is tuple and 1 <= len(grid) <= 3:  # pyright: ignore[reportUnknownArgumentType]
        return (*grid, 1, 1)[:3]  # pyright: ignore[reportUnknownVariableType, reportReturnType]
    raise TypeError("neither an int nor a tuple of one to three")


def computed_grid(grid: Callable[[dict[str, Any]], Any], name: str, arguments: dict[str, Any]) -> Any:
    """The grid that a function of it gives for the arguments of a launch."""
    try:
        return grid(Meta(arguments))
    except UnknownArgument as error:
        names = ", ".join(f"'{name}'" for name in arguments) or "none"
        raise LaunchError(
            f"the grid of '{name}' asks for {error.args[0]!r}, which is no parameter of it", hint=f"it has {names}"
        ) from None
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:  # An error inside of the function.
            raise
        raise LaunchError(
            f"the grid of '{name}' must be a function of one parameter, the arguments by name; got: {error}",
            hint=_COMPUTED(name=name),
        ) from None


def again(outcome: Any) -> Callable[[dict[str, Any]], Any]:
    """A function of the grid in the place of one that was called already: it gives, or raises, the same."""

    def grid(meta: dict[str, Any]) -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return grid


class UnknownArgument(KeyError):
    """A function of the grid asks for an argument that no parameter has the name of."""


class Meta(dict[str, Any]):
    """The arguments of a launch by name, for a function of the grid."""

    __slots__ = ()

    def __missing__(self, name: object) -> Any:
        raise UnknownArgument(name)
