"""Kernels that are compiled from files of Triton's IR, `.ttir` and `.ttgir`, in place of functions."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ziggurat.boundary import no_faults
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import LaunchError, ZigguratError
from ziggurat.codemodel.gpu.options import COMPILE_OPTIONS
from ziggurat.codemodel.types import Type
from ziggurat.compiler.compiled import Compiled
from ziggurat.compiler.cpu_code import code_of, warn_interpreted
from ziggurat.compiler.pipeline import of_native_code
from ziggurat.kernels.arguments import KernelSignature
from ziggurat.transforms.simplify.demand import first_kernel
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
        self.fn = FileFunction(read)
        self.name = f"@{self.fn.name}"
        self.signature = {place: type_text(type_) for place, type_ in enumerate(self.fn.types)}

    def hash(self) -> str:
        """A text that is equal for equal files."""
        return self.fn.cache_key

    def parse_options(self) -> dict[str, Any]:
        """The options that the file decides: its numbers of warps and CTAs."""
        return {f"num_{what}": int(number) for what, number in _OPTION.findall(self.src)}

    def compiled_signature(self) -> KernelSignature:
        """The types of the parameters, and their divisibility."""
        return KernelSignature(self.fn.types, self.fn.divisibility)


class FileFunction:
    """The function of a file, where `CompiledKernel` asks one in Triton's Python."""

    fn = launch_metadata = place = model = None

    def __init__(self, file: Override) -> None:
        self.module = file.imported()
        function = first_kernel(self.module)
        self.name = function.sym_name
        self.types: tuple[Type, ...] = tuple(parameter.type for parameter in function.body.parameters)
        self.divisibility = function.divisibility or (1,) * len(self.types)
        self.arg_names = [f"arg{place}" for place in range(len(self.types))]
        self.cache_key = hashlib.sha256(file.text.encode()).hexdigest()

    def model_for(self, signature: KernelSignature) -> core.Module:
        return self.module

    def declared_types(self, types: Sequence[Type]) -> Sequence[Type]:
        return types


def native_code(model: core.Module, name: str, fast_math: bool) -> Compiled | None:
    """The code of a model for this machine, from disk or compiled now; None if it must be interpreted: a warning has
    given the reason."""
    try:
        with no_faults("compiling", lambda: model, name):
            code = code_of(model, name, check=True, tolerant=True, fast_math=fast_math)
    except ZigguratError as error:
        warn_interpreted(name, error)
        return None
    return of_native_code(model, code, name, {"triton": model})


def require_options(name: str, options: Mapping[str, Any]) -> None:
    """Raise `LaunchError` for an option that a launch of a model on arrays in memory does not take. Options of
    compilation have no effect there."""
    if unknown := options.keys() - COMPILE_OPTIONS:
        hint = "give its arguments by position, and stream or interpret by name"
        raise LaunchError(f"'{name}' has no option '{min(unknown)}'", hint=hint)
