"""Launches that tools look at in place of running them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ziggurat.backend.launch.grids import padded
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.options import COMPILE_OPTIONS
from ziggurat.kernels.arguments import constexpr_names
from ziggurat.kernels.kernel import Kernel

if TYPE_CHECKING:
    from ziggurat.compiler.compiled import Compiled


def compiled_for_launch(
    kernel: Kernel, bound: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[Compiled, list[str], list[Any]]:
    """A kernel as a launch on these arguments, in memory, compiles it; and the names and values of its arguments."""
    signature, names, values = kernel.specialized(bound)
    ones = ones_of(kernel, names, values)
    compiled = kernel.compiled_for(signature, bound, options, dict.fromkeys(ones, 1))
    rest = [number for number in range(len(values)) if number not in ones]
    return compiled, [names[number] for number in rest], [values[number] for number in rest]


def ones_of(kernel: Kernel, names: Sequence[str], values: Sequence[Any]) -> list[int]:
    """The numbers of the run-time arguments that a launch on a GPU compiles in, as they are 1."""
    return [
        number
        for number, (name, value) in enumerate(zip(names, values, strict=True))
        if type(value) is int and value == 1 and kernel.rules.parameter(kernel, name.partition("[")[0]).specialize
    ]


def grid_of(tool: str, sizes: Sequence[int]) -> tuple[int, int, int]:
    """The three sizes of a grid that a tool looks at. Raises `LaunchError` in its name for one without a program."""
    if 0 in sizes:
        raise LaunchError(f"the grid of {tool} must have a program; got {tuple(sizes)}")
    return padded(sizes)


def programs_of(tool: str, program: Any, grid: Sequence[int]) -> list[tuple[int, int, int]]:
    """The programs of a grid that a user names: an index, an index for each axis, or a list of such.

    Raises `LaunchError` in the name of the tool for one that is not in the grid.
    """
    programs: list[tuple[int, int, int]] = []
    for item in program if isinstance(program, list) else [program]:  # pyright: ignore[reportUnknownVariableType]
        index: Any = item if isinstance(item, tuple) else (item,)  # pyright: ignore[reportUnknownVariableType]
        is_inside = 1 <= len(index) <= 3 and all(
            isinstance(at, int) and 0 <= at < size for at, size in zip(index, grid, strict=False)
        )
        if not is_inside:
            last = tuple(size - 1 for size in grid)
            hint = f"the grid has the programs (0, 0, 0) to {last}"
            raise LaunchError(f"{tool}: 'program' must be one of the grid; got {item!r}", hint=hint)
        x, y, z = (*index, 0, 0)[:3]
        programs.append((x, y, z))
    return programs


Observe = Callable[[Kernel, Any, list[Any], dict[str, Any]], None]


@contextmanager
def first_launches(observe: Observe) -> Generator[None]:
    """Within this context, `observe` gets the first launch of each kernel for each choice of types, constants and
    options, before it happens: the kernel, the grid, and the arguments in memory. Launches take their slow way."""
    keys: set[Any] = set()
    is_busy = False

    def watch(kernel: Kernel, grid: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        nonlocal is_busy
        if is_busy:
            return
        names = kernel.signature.parameters
        usable = {name: value for name, value in keywords.items() if name in names or name in COMPILE_OPTIONS}
        constants = constexpr_names(kernel)
        values = {**dict(zip(names, arguments, strict=False)), **usable}
        kinds = {name: repr(value) if name in constants else _kind(value) for name, value in values.items()}
        key = kernel, frozenset(kinds.items())
        if key in keys:
            return
        keys.add(key)
        is_busy = True
        try:
            in_memory = [_in_memory(value) for value in arguments]
            observe(kernel, grid, in_memory, {name: _in_memory(value) for name, value in usable.items()})
        finally:
            is_busy = False

    before, Kernel.observer = Kernel.observer, watch
    try:
        yield
    finally:
        Kernel.observer = before


def _in_memory(value: Any) -> Any:
    """An argument with its arrays in memory."""
    from ziggurat.backend.launch.arrays import is_array, on_gpu
    from ziggurat.backend.launch.descriptors import TensorDescriptor

    if isinstance(value, tuple):
        return tuple(map(_in_memory, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if isinstance(value, TensorDescriptor):
        return TensorDescriptor(_in_memory(value.array), value.block) if on_gpu(value.array) else value
    if is_array(value) and on_gpu(value):
        from ziggurat.backend.cuda.device_memory import to_host

        return value.cpu() if hasattr(value, "cpu") else to_host(value)
    return value


def _kind(value: Any) -> Any:
    """An argument as it tells launches of one kernel apart: its type if it is an array, its value if compiled in."""
    if hasattr(value, "dtype"):
        return str(value.dtype)
    if isinstance(value, tuple):
        return tuple(map(_kind, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return value if isinstance(value, bool | str | None) else type(value).__name__
