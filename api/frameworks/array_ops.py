"""Kernels as operations of NumPy and CuPy, whose arrays change in place and have no gradients."""

from __future__ import annotations

import importlib
from typing import Any

from ziggurat.frameworks.operation import Empty, Operation, scalar_of


class ArrayOperation(Operation):
    """A kernel as an operation of NumPy or CuPy. A call gives the outputs."""

    library = "numpy"

    def results(self, named: dict[str, Any]) -> tuple[Any, ...]:
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
