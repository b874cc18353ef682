"""`triton.compiler`: compilation without a launch."""

from ziggurat.triton.compiler.compiler import (
    ASTSource,
    CompiledKernel,
    IRSource,
    LazyDict,
    compile,
    get_cache_key,
    make_backend,
    max_shared_mem,
)
from ziggurat.triton.compiler.errors import CompilationError

__all__ = [
    "ASTSource", "CompilationError", "CompiledKernel", "IRSource", "LazyDict", "compile", "get_cache_key",
    "make_backend", "max_shared_mem",
]  # fmt: skip
