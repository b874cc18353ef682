"""The MLIR text of a Triton model, for the C++ Triton.

docs/reference/triton-interchange.md has the results of compiling these texts with Triton.
"""

from ziggurat.backend.mlir.importer import from_mlir
from ziggurat.backend.mlir.module import to_mlir

__all__ = ["from_mlir", "to_mlir"]
