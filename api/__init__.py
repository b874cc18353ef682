"""Ziggurat: kernels as code models, from Python functions to Triton models and on to machines.

    import ziggurat as zg

The calls of the language (`zg.load`, `zg.add` …) are listed in docs/reference/language.md.
"""

from __future__ import annotations

import os as _os
from typing import TYPE_CHECKING

from ziggurat.codemodel import dialects as dialects
from ziggurat.codemodel import errors as _errors
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.errors import *
from ziggurat.codemodel.op import Block, BlockParameter, Body, Op, OpResult, Value, same_model
from ziggurat.codemodel.text.writer import to_text
from ziggurat.codemodel.transform import DROP, transform
from ziggurat.codemodel.types import bf16, f8e4m3, f8e5m2, f16, f32, f64, i1, i8, i16, i32, i64, u8, u16, u32, u64
from ziggurat.codemodel.verify import verify
from ziggurat.frontends import language as _language
from ziggurat.frontends.language import *
from ziggurat.frontends.reflection import function
from ziggurat.kernels.arguments import descriptor, divisible, ptr
from ziggurat.kernels.kernel import Kernel, kernel
from ziggurat.lazy import lazily

if TYPE_CHECKING:
    from ziggurat import testing
    from ziggurat.backend.cpu.runtime.native import get_num_threads, set_num_threads
    from ziggurat.backend.cuda.device_memory import empty, to_device, to_host
    from ziggurat.backend.launch.descriptors import TensorDescriptor
    from ziggurat.backend.mlir import from_mlir, to_mlir
    from ziggurat.backend.python.to_function import to_function
    from ziggurat.backend.python.to_python import to_python
    from ziggurat.bisecting.bisection import Bisection, bisect
    from ziggurat.building import KernelBuilder, build, trace
    from ziggurat.c_kernels.kernels import triton_c
    from ziggurat.codemodel.interpreted import interpret
    from ziggurat.codemodel.text.parser import parse
    from ziggurat.compiler.compiled import Compiled
    from ziggurat.compiler.pipeline import compile
    from ziggurat.debugging.session import Session, debug
    from ziggurat.exploring.exploration import Exploration, explore
    from ziggurat.frameworks.jax_ops import jax_op as jax_op
    from ziggurat.frameworks.torch_ops import torch_op as torch_op
    from ziggurat.frontends.python.quote import Quoted, quote
    from ziggurat.frontends.python.reflect import reflect
    from ziggurat.frontends.tracing import for_, if_, while_
    from ziggurat.gradients import grad
    from ziggurat.launches.devices import devices
    from ziggurat.launches.host import execute, run
    from ziggurat.proving import prove
    from ziggurat.sanitizing.sanitized import SanitizedModel, sanitized
    from ziggurat.shipping.variant import Variant, variant
    from ziggurat.transforms import kit
    from ziggurat.transforms.simplify import simplify
    from ziggurat.tuning.autotune import TunedKernel, autotune, heuristics
    from ziggurat.tuning.config import Config

__getattr__, __dir__ = lazily(
    __name__,
    ("testing", "transforms.kit"),
    {
        "backend.cpu.runtime.native": ("get_num_threads", "set_num_threads"),
        "backend.cuda.device_memory": ("empty", "to_device", "to_host"),
        "backend.launch.descriptors": ("TensorDescriptor",),
        "backend.mlir": ("from_mlir", "to_mlir"),
        "backend.python.to_function": ("to_function",),
        "backend.python.to_python": ("to_python",),
        "debugging.session": ("Session", "debug"),
        "exploring.exploration": ("Exploration", "explore"),
        "bisecting.bisection": ("Bisection", "bisect"),
        "building": ("KernelBuilder", "build", "trace"),
        "codemodel.interpreted": ("interpret",),
        "codemodel.text.parser": ("parse",),
        "compiler.compiled": ("Compiled",),
        "compiler.pipeline": ("compile",),
        "frameworks.jax_ops": ("jax_op",),
        "frameworks.torch_ops": ("torch_op",),
        "frontends.python.quote": ("Quoted", "quote"),
        "frontends.python.reflect": ("reflect",),
        "frontends.tracing": ("for_", "if_", "while_"),
        "gradients": ("grad",),
        "c_kernels.kernels": ("triton_c",),
        "launches.devices": ("devices",),
        "launches.host": ("execute", "run"),
        "proving": ("prove",),
        "sanitizing.sanitized": ("SanitizedModel", "sanitized"),
        "shipping.variant": ("Variant", "variant"),
        "transforms.simplify": ("simplify",),
        "tuning.autotune": ("TunedKernel", "autotune", "heuristics"),
        "tuning.config": ("Config",),
    },
    {"CompiledCpu": "Compiled"},
)

__version__ = "0.1.0"

# Without `jax_op` and `torch_op`: `from ziggurat import *` works without their libraries, and imports none.
__all__ = [
    "DROP",
    "Bisection",
    "Block",
    "BlockParameter",
    "Body",
    "Builder",
    "Compiled",
    "Config",
    "Exploration",
    "Kernel",
    "KernelBuilder",
    "Op",
    "OpResult",
    "Quoted",
    "SanitizedModel",
    "Session",
    "TensorDescriptor",
    "TunedKernel",
    "Value",
    "Variant",
    "autotune",
    "bf16",
    "bisect",
    "build",
    "compile",
    "debug",
    "descriptor",
    "devices",
    "dialects",
    "divisible",
    "empty",
    "execute",
    "explore",
    "f8e4m3",
    "f8e5m2",
    "f16",
    "f32",
    "f64",
    "for_",
    "from_mlir",
    "function",
    "get_num_threads",
    "grad",
    "heuristics",
    "i1",
    "i8",
    "i16",
    "i32",
    "i64",
    "if_",
    "interpret",
    "kernel",
    "kit",
    "parse",
    "prove",
    "ptr",
    "quote",
    "reflect",
    "run",
    "same_model",
    "sanitized",
    "set_num_threads",
    "simplify",
    "testing",
    "to_device",
    "to_function",
    "to_host",
    "to_mlir",
    "to_python",
    "to_text",
    "trace",
    "transform",
    "triton_c",
    "u8",
    "u16",
    "u32",
    "u64",
    "variant",
    "verify",
    "while_",
]  # fmt: skip
__all__ += _errors.__all__
__all__ += _language.__all__

if _os.environ.get("ZIGGURAT_RECORD"):
    from ziggurat.shipping.recording import start as _start

    _start(_os.environ["ZIGGURAT_RECORD"])
