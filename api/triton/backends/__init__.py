"""`triton.backends`: the targets that kernels are compiled for."""

from ziggurat.triton.backends.compiler import BaseBackend, GPUTarget

__all__ = ["BaseBackend", "GPUTarget"]
