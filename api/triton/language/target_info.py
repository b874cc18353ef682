"""`triton.language.target_info`: the target, for choices at compile time."""

from __future__ import annotations

from typing import Any

from ziggurat.frontends.triton.compile_time import constexpr_function


def current_target() -> Any:
    """The target of the current device: `backend`, `arch` and `warp_size`."""
    from ziggurat.triton.runtime import driver  # It imports the language.

    return driver.active.get_current_target()


@constexpr_function
def is_cuda() -> bool:
    """Whether kernels run on a GPU of NVIDIA."""
    return current_target().backend == "cuda"


@constexpr_function
def cuda_capability_geq(major: int, minor: int = 0) -> bool:
    """Whether the GPU has this compute capability or a higher one."""
    target = current_target()
    return target.backend == "cuda" and target.arch >= 10 * major + minor


@constexpr_function
def is_hip() -> bool:
    """Whether kernels run on a GPU of AMD: never."""
    return False


is_hip_cdna3 = is_hip_cdna4 = is_hip_gfx1250 = is_hip
