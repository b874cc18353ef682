"""Triton's own MLIR text of a Triton model: interchange with the C++ Triton, and an outside check of ours.

What the C++ Triton says to these texts is recorded in docs/triton-interchange.md.
"""

from ziggurat.backend.mlir.module import to_mlir

__all__ = ["to_mlir"]
