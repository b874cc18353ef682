"""`triton.backends`: the targets that kernels are compiled for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from ziggurat.triton.backends.compiler import BaseBackend, GPUTarget
from ziggurat.triton.backends.driver import DriverBase

if TYPE_CHECKING:
    backends: dict[str, Backend]


@attrs.frozen
class Backend:
    """A kind of machine: the class of its compiler, and that of its driver."""

    compiler: type[BaseBackend]
    driver: type[DriverBase]


def __getattr__(name: str) -> Any:
    if name != "backends":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from ziggurat.triton.compiler.compiler import TargetCompiler
    from ziggurat.triton.runtime.driver import CudaDriver, HostDriver

    table = {"nvidia": Backend(TargetCompiler, CudaDriver), "cpu": Backend(TargetCompiler, HostDriver)}
    globals()["backends"] = table
    return table


__all__ = ["Backend", "BaseBackend", "DriverBase", "GPUTarget", "backends"]
