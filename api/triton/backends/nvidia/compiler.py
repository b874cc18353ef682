"""`triton.backends.nvidia.compiler`: NVIDIA's assembler."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

from ziggurat.triton import knobs
from ziggurat.triton.backends.compiler import GPUTarget
from ziggurat.triton.compiler.compiler import TargetCompiler as CUDABackend

__all__ = ["CUDABackend", "get_ptxas", "get_ptxas_version", "min_dot_size", "sm_arch_from_capability"]


def min_dot_size(target: GPUTarget) -> Callable[[Any, Any], tuple[int, int, int]]:
    """A function that gives the least M, N and K of a dot of two types."""
    return lambda lhs, rhs: (1, 1, 32 if lhs.scalar.primitive_bitwidth == 8 else 16)


def sm_arch_from_capability(capability: int) -> str:
    """The name of a target: `sm_90a` of 90."""
    return f"sm_{capability}{'a' if capability >= 90 else ''}"


def get_ptxas_version(arch: int = 80) -> str:
    """The output of `ptxas --version`. Raises `RuntimeError` where there is none."""
    command = [get_ptxas(arch).path, "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def get_ptxas(arch: int = 80) -> knobs.NvidiaTool:
    """The assembler for a compute capability: 90. Raises `RuntimeError` where there is none."""
    return knobs.nvidia.ptxas_blackwell if arch >= 100 else knobs.nvidia.ptxas
