"""PyTriton: custom operations for every array library from kernels in Triton-C.

    import ziggurat.pytriton as triton

    class _dot(triton.function):
        kernel = triton.kernel(source, ["C"])

        @staticmethod
        def forward(ctx, a, b): …

        @staticmethod
        def backward(ctx, dy): …

    dot = _dot.apply

The tensors that a call gets decide the library: PyTorch, JAX, TensorFlow, CuPy or NumPy.
"""

from __future__ import annotations

from ziggurat.pytriton.functions import function
from ziggurat.pytriton.tensor_kernels import Options, cdiv, empty, kernel, shape, zeros

__all__ = ["Options", "cdiv", "empty", "function", "kernel", "shape", "zeros"]
