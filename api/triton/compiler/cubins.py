"""Cubins on disk for PyTorch's static launcher, which loads and launches them in C++, without this package."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from ziggurat.codemodel.errors import ZigguratError, pass_on_signals
from ziggurat.codemodel.types import SCALARS
from ziggurat.triton.compiler.compiled_kernel import CompiledKernel
from ziggurat.triton.runtime.cache import get_cache_manager

if TYPE_CHECKING:
    from ziggurat.backend.cuda.binary import Binary

# The launcher passes arguments as C does: a float of 16 bits would be one of 32.
_C_KINDS: Final = {"ptr", *(name for name, scalar in SCALARS.items() if not scalar.is_float or scalar.bytes >= 4)}
_MAX_NAME: Final = 255  # bytes of a file's name


def keep(compiled: CompiledKernel) -> None:
    """Write the cubin where PyTorch looks for it, if this process compiles for torch.compile. Without the file,
    PyTorch launches by `CompiledKernel.run`."""
    name = f"{compiled.src.name}.cubin"
    is_wanted = "torch._inductor.runtime.triton_heuristics" in sys.modules and len(name.encode()) <= _MAX_NAME
    if not is_wanted or not _is_plain(compiled):
        return
    try:
        files = get_cache_manager(compiled.hash)
        if files.get_file(name) is None:
            files.put(compiled.kernel, name)
    except (OSError, ZigguratError) as error:  # No folder to write to, or no assembler.
        pass_on_signals(error)


def _is_plain(compiled: CompiledKernel) -> bool:
    """Whether a launch needs a grid, the warps of the options, and the run-time arguments alone."""
    binary = compiled.binary
    return (
        obstacle(binary) is None
        and not binary.scratch
        and binary.symbol == compiled.src.name
        and binary.num_warps == compiled.metadata.num_warps
    )


def obstacle(binary: Binary) -> str | None:
    """The reason why a launch needs more than a grid, warps, the run-time arguments as C passes them, and scratch
    memory after these; None if it does not."""
    numbers = [parameter.kind for parameter in binary.parameters if parameter.kind not in _C_KINDS]
    if binary.maps or "tensormap" in numbers or binary.arguments != tuple(range(len(binary.parameters))):
        return "takes tensor maps or parts of its arguments"
    if binary.persistent:
        return "takes the sizes of its grid"
    if numbers:
        return f"takes a number of type {numbers[0]}"
    if binary.launched:
        return f"needs the launch attribute {binary.launched[0]}"
    return "needs clusters of CTAs" if binary.num_ctas > 1 else None
