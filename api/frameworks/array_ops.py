"""Kernels as operations of NumPy and CuPy, whose arrays change in place and have no gradients."""

from __future__ import annotations

import importlib
from typing import Any

from ziggurat.frameworks.operation import CallPlan, Empty, Operation, kind_of, must_be_copied, scalar_of


class ArrayOperation(Operation):
    """A kernel as an operation of NumPy or CuPy. A call gives the outputs."""

    library = "numpy"

    def results(self, arguments: dict[str, Any]) -> tuple[Any, ...]:
        kinds = {name: kind_of(self, name, value) for name, value in arguments.items() if name in self.parameters}
        plan = CallPlan.of(self, arguments, kinds)
        library: Any = importlib.import_module(self.library)
        arrays = dict(arguments)
        for name, value in arguments.items():
            if isinstance(value, Empty):
                allocate = library.zeros if value.zeros else library.empty
                arrays[name] = allocate(tuple(value.shape), scalar_of(value.dtype).dtype)
            elif name in plan.addressing and not _fits(value, name in plan.mutated):
                numbers = [arguments[number] for number in plan.addressing[name] if number in arguments]
                if must_be_copied(name, value.shape, _strides(value), numbers):
                    arrays[name] = library.ascontiguousarray(value).reshape(value.shape)
        self.launch(arrays)
        for name in plan.mutated:
            if arrays[name] is not arguments[name]:
                arguments[name][...] = arrays[name]
        return tuple([arrays[n] if n in plan.outputs else arguments[n] for n in self.parameters if n in self.rules])


def _fits(value: Any, is_written: bool) -> bool:
    """Whether a value is contiguous, has no strides that are known, or is an array that the launch refuses to write."""
    flags = getattr(value, "flags", None)
    return flags is None or flags.c_contiguous or (is_written and not getattr(flags, "writeable", True))


def _strides(array: Any) -> list[float]:
    """The strides in elements. Those of a field of records are no whole elements: no kernel can be given them."""
    size = array.itemsize
    return [stride / size if stride % size else stride // size for stride in array.strides]


class CupyOperation(ArrayOperation):
    """A kernel as an operation of CuPy."""

    library = "cupy"
