"""Cubins on disk for PyTorch's static launcher, which loads and launches them in C++, without this package."""

from __future__ import annotations

import contextlib
import sys
from typing import Final

from ziggurat.codemodel.errors import ZigguratError
from ziggurat.codemodel.types import SCALARS
from ziggurat.triton.compiler.compiled_kernel import CompiledKernel
from ziggurat.triton.runtime.cache import get_cache_manager

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
    with contextlib.suppress(OSError, ZigguratError):  # No folder to write to, or no assembler.
        files = get_cache_manager(compiled.hash)
        if files.get_file(name) is None:
            files.put(compiled.kernel, name)


def _is_plain(compiled: CompiledKernel) -> bool:
    """Whether a launch needs a grid, the warps of the options, and the run-time arguments alone."""
    binary = compiled.binary
    is_extended = binary.maps or binary.persistent or binary.scratch or binary.launched or binary.num_ctas > 1
    return (
        not is_extended
        and binary.symbol == compiled.src.name
        and binary.num_warps == compiled.metadata.num_warps
        and binary.arguments == tuple(range(len(binary.parameters)))
        and all(parameter.kind in _C_KINDS for parameter in binary.parameters)
    )
