"""Kernels that are compiled from files of Triton's IR, `.ttir` and `.ttgir`, in place of functions."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import LaunchError, ZigguratError
from ziggurat.codemodel.gpu.options import COMPILE_OPTIONS, CompileOptions, boolean
from ziggurat.codemodel.types import Type
from ziggurat.compiler.native import CompiledCpu, warn_interpreted
from ziggurat.compiler.pipeline import compile_for_cpu
from ziggurat.frontends.language.languages import TRITON
from ziggurat.kernels.arguments import Signature
from ziggurat.launches.host import run
from ziggurat.transforms.simplify.demand import first_kernel
from ziggurat.triton import knobs
from ziggurat.triton.compiler.overrides import Override
from ziggurat.triton.compiler.signatures import type_text

_OPTION = re.compile(r'"?ttg\.num-(warps|ctas)"?\s*=\s*(\d+)')


class IRSource:
    """A file that a kernel is compiled from: `.ttir`, or `.ttgir` without ops of Triton's GPU dialect.

    `name` is "@" and the kernel's name, `signature` the types of its parameters by place. Raises `LaunchError` for
    other files.
    """

    def __init__(self, path: str | os.PathLike[str], context: Any = None, backend: Any = None) -> None:
        read = Override.read(path)
        if read.path.suffix not in (".ttir", ".ttgir"):
            raise LaunchError(f"triton.compile takes an ASTSource, or a file .ttir or .ttgir; got {str(path)!r}")
        self.path = path
        self.ext = read.path.suffix[1:]
        self.src = read.text
        self.fn = FileKernel(read)
        self.name = f"@{self.fn.name}"
        self.signature = {place: type_text(type_) for place, type_ in enumerate(self.fn.types)}

    def hash(self) -> str:
        """A text that is equal for equal files."""
        return self.fn.cache_key

    def parse_options(self) -> dict[str, Any]:
        """The options that the file decides: its numbers of warps and CTAs."""
        return {f"num_{what}": int(number) for what, number in _OPTION.findall(self.src)}

    def compiled_signature(self) -> Signature:
        """The types of the parameters, and their divisibility."""
        return Signature(self.fn.types, self.fn.divisibility)


class ModelKernel:
    """A kernel that has no function in Triton's Python, but a Triton model, which runs on arrays in memory."""

    def __init__(self, module: core.Module) -> None:
        self.module = module
        self.name = first_kernel(module).sym_name

    @functools.cached_property
    def _native(self) -> CompiledCpu | None:
        """The code for this machine; None if it must be interpreted: a warning has given the reason."""
        try:
            tolerant = TRITON.tolerant_memory
            return compile_for_cpu(self.module, CompileOptions(), None, self.name, tolerant=tolerant)
        except ZigguratError as error:
            warn_interpreted(self.name, error)
            return None

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """Launches over a grid on arrays in memory: by native code, or with `interpret`, by the reference interpreter.
        Options of compilation have no effect."""

        def launch(*args: Any, interpret: bool = False, **options: Any) -> Any:
            if unknown := options.keys() - COMPILE_OPTIONS:
                hint = "give its arguments by position, and stream or interpret by name"
                raise LaunchError(f"'{self.name}' has no option '{min(unknown)}'", hint=hint)
            if boolean("interpret", interpret) or knobs.runtime.interpret or self._native is None:
                return run(self.module, grid, *args)
            return self._native[grid](*args)

        return launch


class FileKernel(ModelKernel):
    """The kernel of a file, where `CompiledKernel` asks a function in Triton's Python."""

    fn = launch_metadata = place = model = None

    def __init__(self, file: Override) -> None:
        super().__init__(file.imported())
        function = first_kernel(self.module)
        self.types: tuple[Type, ...] = tuple(parameter.type for parameter in function.body.parameters)
        self.divisibility = function.divisibility or (1,) * len(self.types)
        self.arg_names = [f"arg{place}" for place in range(len(self.types))]
        self.cache_key = hashlib.sha256(file.text.encode()).hexdigest()

    def declared_types(self, types: Sequence[Type]) -> Sequence[Type]:
        return types

    def own_model(self, signature: Signature, options: Mapping[str, Any]) -> core.Module:
        return self.module
