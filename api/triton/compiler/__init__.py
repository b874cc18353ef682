"""`triton.compiler`: compilation without a launch."""

from typing import TYPE_CHECKING

from ziggurat.lazy import lazily

if TYPE_CHECKING:
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

__getattr__, __dir__ = lazily(
    __name__,
    ("compiler", "errors"),
    {
        "compiler": (
            "ASTSource", "CompiledKernel", "IRSource", "LazyDict", "compile", "get_cache_key", "make_backend",
            "max_shared_mem",
        ),
        "errors": ("CompilationError",),
    },
)  # fmt: skip

__all__ = [
    "ASTSource", "CompilationError", "CompiledKernel", "IRSource", "LazyDict", "compile", "get_cache_key",
    "make_backend", "max_shared_mem",
]  # fmt: skip
