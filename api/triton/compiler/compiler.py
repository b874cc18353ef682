"""`triton.compile`: kernels compiled without a launch, from functions and from files."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from ziggurat.boundary import public
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.options import DEFAULT_OPTIONS
from ziggurat.codemodel.gpu.targets import target_for
from ziggurat.triton.backends.compiler import BaseBackend, GPUTarget
from ziggurat.triton.compiler.compiled_kernel import CompiledKernel, LazyDict
from ziggurat.triton.compiler.cubins import keep
from ziggurat.triton.compiler.files import IRSource
from ziggurat.triton.compiler.sources import ASTSource
from ziggurat.triton.runtime import triton_options
from ziggurat.triton.runtime.cache import get_cache_key, triton_key
from ziggurat.triton.runtime.driver import driver
from ziggurat.triton.runtime.jit import JITFunction

Path_ = tuple[int, ...]


@public
def compile(
    src: ASTSource | IRSource | JITFunction | str | os.PathLike[str],
    target: GPUTarget | None = None,
    options: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> CompiledKernel:
    """The kernel of a source, or of a file `.ttir` or `.ttgir`, for a target: by default the current GPU, or an H100
    on a machine without one. `GPUTarget("cpu", 0, 32)` is this machine's CPU.

    With a function, as in Triton 2, `signature`, `constants`, `configs` and options of launches are keywords.
    """
    if isinstance(src, JITFunction):
        signature, constants, configs = map(keywords.get, ("signature", "constants", "configs"))
        options = {**(options or {}), **{name: v for name, v in keywords.items() if name in triton_options.DEFAULTS}}
        src = ASTSource(src, signature or {}, constants, (configs or [None])[0])
    if not isinstance(src, ASTSource | IRSource):
        assert isinstance(src, str | os.PathLike), "source must be either AST or a filepath"
    source = src if isinstance(src, ASTSource | IRSource) else IRSource(src)
    settings = triton_options.without_unknown({**source.parse_options(), **(options or {})})
    triton_options.check(settings, source.fn if isinstance(source, ASTSource) else None)
    # Programs may launch the code by themselves, and know of no tensor maps that a launch makes.
    name = _name_of(target)
    on_host = target is not None and name is None
    defaults = {"target": name or DEFAULT_OPTIONS.target, "raise_pointers": False}
    ours = triton_options.compile_options({**defaults, "fast_math": on_host and _is_of_inductor(source), **settings})
    kernel = CompiledKernel(source.fn, source.compiled_signature(), ours, settings)
    kernel.on_host = on_host
    kernel.demand()
    if name is not None:
        keep(kernel)
    return kernel


def _is_of_inductor(source: ASTSource | IRSource) -> bool:
    """Whether Inductor has written a kernel. Its C++ adds in any order as well, and has functions of 1 ulp."""
    function = source.fn.fn if isinstance(source, ASTSource) else None
    return "triton_helpers" in getattr(function, "__globals__", ())


def _name_of(target: GPUTarget | None) -> str | None:
    """The name of a target, `sm_90a`. Raises `LaunchError` for targets that are no GPU of NVIDIA's."""
    target = driver.active.get_current_target() if target is None else target
    if target.backend == "cpu":
        return None
    if target.backend != "cuda":
        raise LaunchError(f"the target must be a GPU of NVIDIA's, GPUTarget('cuda', 90, 32); got {target}")
    arch = int(target.arch)
    return target_for(arch // 10, arch % 10)


class TargetCompiler(BaseBackend):
    """The compiler for a target, for programs that ask for its options."""

    binary_ext = "cubin"

    def hash(self) -> str:
        """A text that is equal for equal targets and compilers."""
        return f"{triton_key()}-{self.target}"

    def parse_options(self, options: Mapping[str, Any]) -> Any:
        """An object with all options of a launch: those that are given, and defaults."""
        settings = {name: value for name, value in options.items() if name in triton_options.DEFAULTS}
        arch = {"arch": f"sm{self.target.arch}"} if self.target.backend == "cuda" else {}
        return SimpleNamespace(**{**triton_options.DEFAULTS, **arch, **settings})

    def load_dialects(self, context: Any) -> None:
        """Do nothing: there is no context of MLIR."""

    def get_codegen_implementation(self, options: Any) -> dict[str, Any]:
        return {}

    def get_module_map(self) -> dict[str, Any]:
        return {}

    def parse_attr(self, text: str) -> list[list[Any]]:
        """The attributes of an argument for its text: "D" is divisible by 16."""
        return [["tt.divisibility", 16]] if "D" in text else []


def make_backend(target: GPUTarget) -> TargetCompiler:
    """The compiler for a target. Raises `RuntimeError` for a target that ziggurat has no compiler for."""
    if target.backend not in ("cuda", "cpu"):
        raise RuntimeError(f"0 compatible backends for target ({target.backend}). There should only be one.")
    return TargetCompiler(target)


@functools.cache
def max_shared_mem(device: int) -> int:
    """The bytes of shared memory that a CTA can have on a device."""
    return driver.active.utils.get_device_properties(device)["max_shared_mem"]


__all__ = [
    "ASTSource", "CompiledKernel", "GPUTarget", "IRSource", "LazyDict", "compile", "get_cache_key",
    "make_backend", "max_shared_mem", "triton_key",
]  # fmt: skip
