"""`triton.backends.compiler`: targets."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)  # As Triton's: programs write it as JSON by `vars` and `dataclasses.asdict`.
class GPUTarget:
    """A target: "cuda" with the compute capability as a number, 90, or "cpu"; and the threads of a warp."""

    backend: str
    arch: int | str
    warp_size: int


class BaseBackend:
    """The class of backends, for programs that ask whether they have one."""

    def __init__(self, target: GPUTarget) -> None:
        self.target = target

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        return target.backend in ("cuda", "cpu")
