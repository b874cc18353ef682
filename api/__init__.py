"""Ziggurat: kernels as code models, from Python functions to Triton models and on to machines.

    import ziggurat as zg

The calls of the language (`zg.load`, `zg.add` …) are listed in docs/language.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ziggurat.codemodel import dialects as dialects
from ziggurat.codemodel import errors as _errors
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.errors import *
from ziggurat.codemodel.op import Block, BlockParameter, Body, Op, OpResult, Value
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.text.writer import to_text
from ziggurat.codemodel.transform import DROP, transform
from ziggurat.codemodel.types import bf16, f8e4m3, f8e5m2, f16, f32, f64, i1, i8, i16, i32, i64, u8, u16, u32, u64
from ziggurat.codemodel.verify import verify
from ziggurat.frontends import language as _language
from ziggurat.frontends.language import *
from ziggurat.frontends.reflection import function
from ziggurat.kernels.arguments import descriptor, divisible, ptr
from ziggurat.kernels.kernel import Kernel, kernel

if TYPE_CHECKING:
    from ziggurat import testing
    from ziggurat.backend.cpu.runtime.native import get_num_threads, set_num_threads
    from ziggurat.backend.cuda.memory import empty, to_device, to_host
    from ziggurat.backend.launch.descriptors import TensorDescriptor
    from ziggurat.backend.mlir import from_mlir, to_mlir
    from ziggurat.building import KernelBuilder, build, trace
    from ziggurat.compiler.compiled import Compiled
    from ziggurat.compiler.native import CompiledCpu
    from ziggurat.compiler.pipeline import compile
    from ziggurat.frameworks.jax_ops import jax_op
    from ziggurat.frameworks.torch_ops import torch_op
    from ziggurat.frontends.tracing import for_, if_, while_
    from ziggurat.frontends.triton_c.printer import to_triton_c
    from ziggurat.gradients import grad
    from ziggurat.kernels.heuristics import heuristics
    from ziggurat.kernels.triton_c import triton_c
    from ziggurat.launches.host import execute, run
    from ziggurat.transforms import kit
    from ziggurat.transforms.simplify import simplify
    from ziggurat.tuning.autotune import Config, TunedKernel, autotune

# Imported at first use, so that `import ziggurat` stays quick: the names by the module that has them.
_LAZY = {
    "ziggurat.backend.cpu.runtime.native": ("get_num_threads", "set_num_threads"),
    "ziggurat.backend.cuda.memory": ("empty", "to_device", "to_host"),
    "ziggurat.backend.launch.descriptors": ("TensorDescriptor",),
    "ziggurat.backend.mlir": ("from_mlir", "to_mlir"),
    "ziggurat.building": ("KernelBuilder", "build", "trace"),
    "ziggurat.compiler.compiled": ("Compiled",),
    "ziggurat.compiler.native": ("CompiledCpu",),
    "ziggurat.compiler.pipeline": ("compile",),
    "ziggurat.frameworks.jax_ops": ("jax_op",),
    "ziggurat.frameworks.torch_ops": ("torch_op",),
    "ziggurat.frontends.tracing": ("for_", "if_", "while_"),
    "ziggurat.frontends.triton_c.printer": ("to_triton_c",),
    "ziggurat.gradients": ("grad",),
    "ziggurat.kernels.heuristics": ("heuristics",),
    "ziggurat.kernels.triton_c": ("triton_c",),
    "ziggurat.launches.host": ("execute", "run"),
    "ziggurat.transforms.simplify": ("simplify",),
    "ziggurat.tuning.autotune": ("Config", "TunedKernel", "autotune"),
}
_MODULES = {name: module for module, names in _LAZY.items() for name in names}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("testing", "kit"):
        return import_module("ziggurat.testing" if name == "testing" else "ziggurat.transforms.kit")
    if name not in _MODULES:
        raise AttributeError(f"module 'ziggurat' has no attribute '{name}'")
    found = getattr(import_module(_MODULES[name]), name)
    globals()[name] = found
    return found


__version__ = "0.1.0"

__all__ = [
    "DROP", "Block", "BlockParameter", "Body", "Builder", "Compiled", "CompiledCpu", "Config", "Kernel",
    "KernelBuilder", "Op", "OpResult", "TensorDescriptor", "TunedKernel", "Value", "autotune", "bf16", "build",
    "compile", "descriptor", "dialects", "divisible", "empty", "execute", "f8e4m3", "f8e5m2", "f16", "f32", "f64",
    "for_", "from_mlir", "function", "get_num_threads", "grad", "heuristics", "i1", "i8", "i16", "i32", "i64", "if_",
    "jax_op", "kernel", "kit", "parse", "ptr", "run", "set_num_threads", "simplify", "testing", "to_device", "to_host",
    "to_mlir", "to_text", "to_triton_c", "torch_op", "trace", "transform", "triton_c", "u8", "u16", "u32", "u64",
    "verify", "while_",
]  # fmt: skip
__all__ += _errors.__all__
__all__ += _language.__all__
