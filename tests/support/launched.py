"""Dispatchers of kernels that a test's function compiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ziggurat.backend.cuda.binary import Binary
from ziggurat.backend.cuda.launch import Dispatcher, Launched
from ziggurat.backend.cuda.specialize import KernelParameter, Specialization
from ziggurat.backend.launch.grids import MAX_LAUNCHERS
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.recent import Recent


class BuiltKernel(Launched):
    """A kernel that `build` compiles for a specialization. `on_host`, if any, launches on arrays in memory."""

    def __init__(
        self,
        name: str,
        parameters: Sequence[KernelParameter],
        build: Callable[[Specialization], Binary],
        on_host: Callable[..., Any] | None = None,
        place: Location | None = None,
    ) -> None:
        self.name, self.parameters, self.place = name, parameters, place
        self.build, self.host, self.runs_on_host = build, on_host, on_host is not None
        self.launchers, self.compiled = Recent(MAX_LAUNCHERS), Recent(64)

    def built(self, spec: Specialization, /) -> Binary:
        return self.build(spec)

    def on_host(self, grid: Any, arguments: dict[str, Any], options: dict[str, Any], /) -> Any:
        assert self.host is not None
        return self.host(grid, arguments, options)


def dispatcher_of(*kernel: Any) -> Dispatcher:
    """The dispatcher of a `BuiltKernel` with these fields."""
    return Dispatcher(BuiltKernel(*kernel))


def loaded_in(dispatcher: Dispatcher) -> list[Any]:
    """The kernels that a dispatcher has loaded."""
    return [values for code in dispatcher.kernel.compiled.values() for values in code.contexts.values()]
