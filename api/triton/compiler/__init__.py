"""`triton.compiler`: compilation without a launch."""

from ziggurat.triton.compiler.errors import CompilationError

__all__ = ["CompilationError"]
