"""Kernels as operations of NumPy and CuPy, whose arrays change in place and have no gradients."""

from __future__ import annotations

import importlib
from typing import Any

from ziggurat.codemodel.errors import LaunchError
from ziggurat.frameworks.operation import Backward, Empty, Operation, Outputs, Plan, exact, kind_of, scalar_of
from ziggurat.kernels.kernel import Grid, Kernel


class ArrayOperation(Operation):
    """A kernel as an operation of NumPy or CuPy. A call gives the outputs."""

    library = "numpy"

    def __init__(
        self, kernel: Kernel, grid: Grid, outputs: Outputs = (), backward: str | Backward | None = None
    ) -> None:
        super().__init__(kernel, grid, outputs, backward)
        self._checked: set[Any] = set()  # The calls whose outputs are those of the kernel.
        if backward is not None:
            raise LaunchError(f"backward of '{self.name}' must be None: arrays of {self.library} have no gradients")

    def results(self, named: dict[str, Any]) -> tuple[Any, ...]:
        kinds = [(name, kind_of(self, name, value)) for name, value in named.items() if name in self.parameters]
        key = exact((tuple(kinds), tuple(name for name, value in named.items() if isinstance(value, Empty))))
        if key not in self._checked:
            Plan.of(self, named, dict(kinds))
            self._checked.add(key)
        library: Any = importlib.import_module(self.library)
        arrays = dict(named)
        for name, value in named.items():
            if isinstance(value, Empty):
                allocate = library.zeros if value.zeros else library.empty
                arrays[name] = allocate(tuple(value.shape), scalar_of(value.dtype).dtype)
        self.launch(arrays)
        return tuple(arrays[name] for name in self.parameters if name in self.rules)


class CupyOperation(ArrayOperation):
    """A kernel as an operation of CuPy."""

    library = "cupy"
