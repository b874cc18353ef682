"""The GPUs that kernels are compiled for, by NVIDIA's names of their architectures.

A kernel for a name that ends in "a" may use architecture-specific instructions and runs on that architecture only.
Other kernels run on later architectures, too.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.frozen
class Target:
    """An architecture: the PTX version that a kernel for it is written in, and the bytes of shared memory that a
    CTA can have (CUDA programming guide, table of technical specifications)."""

    name: str
    ptx: str
    max_shared: int

    @property
    def capability(self) -> int:
        """Ten times the compute capability: 90 of sm_90a."""
        return int(self.name.removeprefix("sm_").rstrip("a"))

    @property
    def has_wgmma(self) -> bool:
        """Whether there is wgmma, the warp group's matrix instruction: only on Hopper."""
        return self.name == "sm_90a"

    @property
    def has_tma(self) -> bool:
        """Whether blocks of tensors are copied by TMA: so far only on Hopper."""
        return self.capability == 90

    @property
    def makes_tensor_maps(self) -> bool:
        """Whether kernels can make tensor maps for TMA: by an architecture-specific instruction."""
        return self.has_tma and self.is_specific

    @property
    def has_stmatrix(self) -> bool:
        """Whether a warp can store matrices to shared memory: since Hopper."""
        return self.capability >= 90

    @property
    def has_fp8_mma(self) -> bool:
        """Whether the matrix units multiply 8-bit floats: since Ada."""
        return self.capability >= 89

    @property
    def is_specific(self) -> bool:
        """Whether kernels for this target run on its architecture only."""
        return self.name.endswith("a")


# By the architecture: PTX version, shared memory in KiB, and whether it has architecture-specific instructions. The
# version is the lowest from 8.7 on that has the architecture: older versions run on older drivers.
_ARCHITECTURES = (
    (80, "8.7", 163, False),
    (86, "8.7", 99, False),
    (87, "8.7", 163, False),
    (89, "8.7", 99, False),
    (90, "8.7", 227, True),
    (100, "8.7", 227, True),
    (103, "8.8", 227, True),
    (110, "9.0", 227, True),
    (120, "8.7", 99, True),
    (121, "8.8", 99, True),
)

TARGETS: Mapping[str, Target] = {
    name: Target(name, ptx, 1024 * kilobytes)
    for number, ptx, kilobytes, specific in _ARCHITECTURES
    for name in (f"sm_{number}", *([f"sm_{number}a"] if specific else []))
}


def target_for(major: int, minor: int) -> str:
    """The target to compile for on a device of this compute capability.

    The target with the architecture-specific instructions of the device, if there is one. For an unknown architecture
    it is the latest known one before it, whose PTX the driver translates. An older device gets a name that `compile`
    refuses.
    """
    exact = f"sm_{major}{minor}"
    for name in (exact + "a", exact):
        if name in TARGETS:
            return name
    before = [t for t in TARGETS.values() if not t.is_specific and t.capability < 10 * major + minor]
    return max(before, key=lambda target: target.capability).name if before else exact
