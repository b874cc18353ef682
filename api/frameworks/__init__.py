"""Kernels as operations of array libraries: PyTorch, JAX, TensorFlow, CuPy and NumPy. Each is imported at first use."""

from ziggurat.frameworks.operation import Empty, Operation

__all__ = ["Empty", "Operation"]
