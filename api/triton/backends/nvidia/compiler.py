"""`triton.backends.nvidia.compiler`: NVIDIA's assembler."""

from __future__ import annotations

from ziggurat.triton import knobs


def get_ptxas(arch: int = 80) -> knobs.NvidiaTool:
    """The assembler for a compute capability: 90. Raises `RuntimeError` where there is none."""
    return knobs.nvidia.ptxas_blackwell if arch >= 100 else knobs.nvidia.ptxas
