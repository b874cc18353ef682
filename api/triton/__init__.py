"""Triton's programs on ziggurat: `import ziggurat.triton as triton`, `import ziggurat.triton.language as tl`.

`ziggurat.triton.install()` makes it the module `triton` of the process, for programs that say `import triton`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ziggurat.frontends.triton.compile_time import aggregate, constexpr_function, must_use_result
from ziggurat.lazy import lazily
from ziggurat.triton import knobs, language, runtime
from ziggurat.triton.arithmetic import cdiv, next_power_of_2
from ziggurat.triton.runtime._allocation import set_allocator
from ziggurat.triton.runtime.autotuner import Config, autotune, heuristics
from ziggurat.triton.runtime.interface import KernelInterface
from ziggurat.triton.runtime.jit import JITFunction, jit
from ziggurat.triton.runtime.tensors import MockTensor, TensorWrapper, reinterpret

if TYPE_CHECKING:
    from ziggurat.triton import backends, compiler, errors, ops, testing, tools
    from ziggurat.triton.compiler import CompilationError, compile
    from ziggurat.triton.errors import TritonError
    from ziggurat.triton.installation import install, uninstall
    from ziggurat.triton.runtime._async_compile import AsyncCompileMode, FutureKernel
    from ziggurat.triton.runtime.errors import InterpreterError, OutOfResources

__getattr__, __dir__ = lazily(
    __name__,
    ("_C", "backends", "compiler", "errors", "ops", "testing", "tools"),
    {
        "compiler": ("CompilationError", "compile"),
        "errors": ("TritonError",),
        "installation": ("install", "uninstall"),
        "runtime._async_compile": ("AsyncCompileMode", "FutureKernel"),
        "runtime.errors": ("InterpreterError", "OutOfResources"),
    },
)

# The release that programs see unless `install` is told another. Flash-linear-attention refuses earlier ones on
# Hopper, for a fault of their compiler.
RELEASE: Final = "3.7.1"
__version__: str = RELEASE

__all__ = [
    "AsyncCompileMode", "CompilationError", "Config", "FutureKernel", "InterpreterError", "JITFunction",
    "KernelInterface", "MockTensor", "OutOfResources", "TensorWrapper", "TritonError", "aggregate", "autotune",
    "backends", "cdiv", "compile", "compiler", "constexpr_function", "errors", "heuristics", "install", "jit",
    "knobs", "language", "must_use_result", "next_power_of_2", "ops", "reinterpret", "runtime", "set_allocator",
    "testing", "tools", "uninstall",
]  # fmt: skip
