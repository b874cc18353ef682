"""The GPUs that kernels are compiled for, by NVIDIA's names of their architectures.

A kernel for a name that ends in "a" may use architecture-specific instructions and runs on that architecture only.
Other kernels run on later architectures, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

REGISTERS_OF_SM = 65536  # Registers of 32 bits that an SM has for the threads of a CTA, since sm_30.
DRIVER_BYTES = 1024  # Shared memory that the driver takes for each CTA.
PORTABLE_CTAS = 8  # Of a cluster that every GPU with clusters can run.


def _since(capability: int, doc: str) -> Any:
    """A property of targets: whether they have at least this capability."""
    return property(lambda target: target.capability >= capability, doc=doc)


@attrs.frozen
class Target:
    """An architecture: the PTX version that a kernel for it is written in, and the bytes of shared memory that a
    CTA can have.

    An SM holds up to `max_warps` warps and `max_ctas` CTAs. These and the shared memory of a CTA (99 KiB of 12.0)
    are in the tables of the CUDA programming guide, "Compute Capabilities".
    Its matrix units make `flops` operations of f16 a cycle, accumulated in f32: the peak rate ÷ (SMs × boost clock) of
    the largest card. (For sm_80, sm_90 and sm_100: A100, H100 SXM and B200; the others were not compared with a card.)
    Device memory gives an SM about `memory_bytes` a cycle, as well by the peak of such a card.
    """

    name: str
    ptx: str
    max_shared: int
    max_warps: int
    max_ctas: int
    flops: int
    memory_bytes: int

    @property
    def capability(self) -> int:
        """Ten times the compute capability: 90 of sm_90a."""
        return int(self.name.removeprefix("sm_").rstrip("a"))

    @property
    def shared_of_sm(self) -> int:
        """The bytes of shared memory that the CTAs of an SM have together, with `DRIVER_BYTES` for each."""
        return self.max_shared + DRIVER_BYTES

    @property
    def has_wgmma(self) -> bool:
        """Whether there is wgmma, the warp group's matrix instruction: only on Hopper."""
        return self.name == "sm_90a"

    @property
    def makes_tensor_maps(self) -> bool:
        """Whether kernels can make tensor maps for TMA: `tensormap.replace` is an architecture-specific instruction."""
        return self.has_tma and self.is_specific

    @property
    def has_roles(self) -> bool:
        """Whether a warp group fetches blocks by TMA while others compute with them, and gives them its registers: so
        far only for wgmma."""
        return self.has_wgmma

    has_tma = _since(90, "Whether TMA copies blocks of tensors: since Hopper.")
    has_stmatrix = _since(90, "Whether a warp can store matrices to shared memory: since Hopper.")
    has_fp8_mma = _since(89, "Whether the matrix units multiply 8-bit floats: since Ada.")
    converts_fp8 = _since(89, "Whether instructions convert 8-bit floats: since Ada.")
    has_large_f64 = _since(90, "Whether the matrix units multiply f64 in tiles of 16 rows: since Hopper.")
    has_bf16_arithmetic = _since(
        90, "Whether LLVM computes with bf16 by instructions of its own: since Hopper, and in f32 before."
    )
    has_vector_atomics = _since(90, "Whether atomics add bf16, and vectors of up to 16 bytes: since Hopper.")

    @property
    def sum_bytes(self) -> int:
        """The bytes of neighbours that an atomic adds together: two 16-bit floats before Hopper."""
        return 16 if self.has_vector_atomics else 4

    has_dependent_launches = _since(
        90, "Whether a launch may begin before the one ahead of it has ended: since Hopper."
    )

    @property
    def cluster_ctas(self) -> int:
        """The CTAs of the largest cluster, which reach each other's shared memory; 1 before Hopper. With more than
        `PORTABLE_CTAS`, a launch asks leave (CUDA programming guide, "Thread Block Clusters")."""
        return 1 if self.capability < 90 else 16 if self.capability in (90, 100, 103) else PORTABLE_CTAS

    @property
    def is_specific(self) -> bool:
        """Whether kernels for this target run on its architecture only."""
        return self.name.endswith("a")


# By the architecture: PTX version, shared memory in KiB, whether it has architecture-specific instructions, and what an
# SM has: warps, CTAs, operations, bytes of device memory. The version is the lowest from 8.7 on that has the
# architecture: older versions run on older drivers.
_ARCHITECTURES = (
    (80, "8.7", 163, False, 64, 32, 2048, 13),
    (86, "8.7", 99, False, 48, 16, 1024, 7),
    (87, "8.7", 163, False, 48, 16, 2048, 10),
    (89, "8.7", 99, False, 48, 24, 1024, 3),
    (90, "8.7", 227, True, 64, 32, 4096, 14),
    (100, "8.7", 227, True, 64, 32, 8192, 29),
    (103, "8.8", 227, True, 64, 32, 8192, 29),
    (110, "9.0", 227, True, 48, 24, 8192, 9),
    (120, "8.7", 99, True, 48, 24, 1024, 4),
    (121, "8.8", 99, True, 48, 24, 1024, 2),
)

TARGETS: Mapping[str, Target] = {
    name: Target(name, ptx, 1024 * kilobytes, *of_sm)
    for number, ptx, kilobytes, specific, *of_sm in _ARCHITECTURES
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
