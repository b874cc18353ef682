"""`triton.backends`: the targets that kernels are compiled for."""

from ziggurat.triton.backends.compiler import BaseBackend, GPUTarget
from ziggurat.triton.backends.driver import DriverBase

__all__ = ["BaseBackend", "DriverBase", "GPUTarget"]
