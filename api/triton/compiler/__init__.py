"""`triton.compiler`: compilation without a launch."""

from typing import Final

from ziggurat.lazy import lazily

_NAMES: Final = (
    "ASTSource", "CompiledKernel", "IRSource", "LazyDict", "compile", "get_cache_key",
    "make_backend", "max_shared_mem",
)  # fmt: skip
__getattr__, __dir__ = lazily(__name__, ("compiler", "errors"), {"compiler": _NAMES, "errors": ("CompilationError",)})
__all__ = ["CompilationError", *_NAMES]  # pyright: ignore[reportUnsupportedDunderAll]
