"""Run a Triton model on arrays as native code, with the result of `backend/reference/run.py`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ziggurat.backend.cpu.code import CpuCode, CpuOptions
from ziggurat.backend.cpu.compile import HOST, compile_cpu
from ziggurat.backend.cpu.runtime.kernels import NativeKernel
from ziggurat.backend.launch.grids import padded
from ziggurat.codemodel.dialects import core


def run_cpu(
    model: core.Module,
    grid: tuple[int, ...],
    arguments: Sequence[Any],
    *,
    names: Sequence[str] | None = None,
    options: CpuOptions = HOST,
) -> CpuCode:
    """Compile the kernel of a Triton model, and run it once for each program of a grid.

    There is one argument for each parameter: a NumPy array, a `TensorDescriptor` of one, or a number. Raises the errors
    of `backend/reference/run.run`, whose result is the same.
    """
    kernel = loaded(model, options)
    names = names or [f"arg{number}" for number in range(len(arguments))]
    kernel.launch(padded(grid), names, arguments)
    return kernel.code


@functools.lru_cache(maxsize=8)
def loaded(model: core.Module, options: CpuOptions) -> NativeKernel:
    """The compiled kernel. Those of the last models are kept: a test may launch one several times."""
    code = compile_cpu(model, options)
    return NativeKernel(code, code.symbol)
