"""`triton.compile`: kernels compiled without a launch, from functions and from files."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from ziggurat.boundary import public
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.options import DEFAULT_OPTIONS
from ziggurat.codemodel.gpu.targets import target_for
from ziggurat.codemodel.types import TupleType, Type
from ziggurat.kernels.arguments import Signature, constant_of
from ziggurat.triton.backends.compiler import BaseBackend, GPUTarget
from ziggurat.triton.compiler.compiled import CompiledKernel, LazyDict
from ziggurat.triton.compiler.signatures import type_of
from ziggurat.triton.runtime import options as launch_options
from ziggurat.triton.runtime.cache import get_cache_key, triton_key
from ziggurat.triton.runtime.driver import driver
from ziggurat.triton.runtime.jit import JITFunction

Path_ = tuple[int, ...]


class ASTSource:
    """A kernel, the types of its arguments by name, its constants by name or place, and attributes of arguments by
    place: `{(0,): [["tt.divisibility", 16]]}`."""

    ext = "ttir"

    def __init__(
        self,
        fn: JITFunction,
        signature: Mapping[str, Any],
        constexprs: Mapping[Any, Any] | None = None,
        attrs: Mapping[Any, Any] | None = None,
    ) -> None:
        names: list[Any] = [*signature]
        for name in names:
            if not isinstance(name, str):
                raise TypeError("Signature keys must be string")
        self.fn = fn
        self.name: str = fn.name
        self.signature = dict(signature)
        self.constants = {
            (fn.arg_names.index(place),) if isinstance(place, str) else tuple(place): value
            for place, value in (constexprs or {}).items()
        }
        self.attrs = dict(attrs or {})

    def hash(self) -> str:
        """A text that is equal for equal sources."""
        constants = {place: getattr(value, "cache_key", value) for place, value in self.constants.items()}
        text = f"{self.fn.cache_key}-{self.attrs}-{sorted(self.signature.items())}-{constants}"
        return hashlib.sha256(text.encode()).hexdigest()

    def parse_options(self) -> dict[str, Any]:
        """The options that the source itself decides: none."""
        return {}

    def compiled_signature(self) -> Signature:
        """The types of all parameters, and the divisibility of run-time ones."""
        divisibility: list[int] = []

        def made(name: str, path: Path_, text: Any) -> Type:
            if path in self.constants or text == "constexpr":
                return constant_of(self.fn, name, self.constants.get(path))
            if isinstance(text, (tuple, list)):
                parts = cast("Sequence[Any]", text)
                return TupleType(tuple(made(name, (*path, place), one) for place, one in enumerate(parts)))
            found = self.attrs.get(path) or ()
            divisibility.append(max((by for key, by in found if key == "tt.divisibility"), default=1))
            return type_of(text)

        types: list[Type] = []
        for place, name in enumerate(self.fn.arg_names):
            if name not in self.signature and (place,) not in self.constants:
                raise LaunchError(f"the signature of '{self.name}' must have a type for '{name}'")
            types.append(made(name, (place,), self.signature.get(name, "constexpr")))
        return Signature(tuple(types), tuple(divisibility))


class IRSource:
    """A file that a kernel is compiled from."""

    def __init__(self, path: str, context: Any = None, backend: Any = None) -> None:
        self.path = path
        self.ext = Path(path).suffix[1:]
        self.src = Path(path).read_text()
        self.name = Path(path).stem

    def hash(self) -> str:
        """A text that is equal for equal files."""
        return hashlib.sha256(self.src.encode()).hexdigest()


@public
def compile(
    src: ASTSource | str, target: GPUTarget | None = None, options: Mapping[str, Any] | None = None, **_: Any
) -> CompiledKernel:
    """The kernel of a source for a target: by default the current GPU, or an H100 on a machine without one."""
    if not isinstance(src, ASTSource):
        raise LaunchError(
            f"triton.compile must be given an ASTSource; got {src!r}",
            hint="import a file of Triton's MLIR by zg.from_mlir, and compile the model by zg.compile",
        )
    given: dict[str, Any] = dict(options or {})
    launch_options.check(given)
    named = {"target": _name_of(target) or DEFAULT_OPTIONS.target}
    made = CompiledKernel(src.fn, src.compiled_signature(), src.fn.compile_options({**named, **given}), given)
    made.demand()
    return made


def _name_of(target: GPUTarget | None) -> str | None:
    """The name of a target, `sm_90a`. Raises `LaunchError` for targets that are no GPU of NVIDIA's."""
    target = driver.active.get_current_target() if target is None else target
    if target.backend == "cpu":
        return None
    if target.backend != "cuda":
        raise LaunchError(f"the target must be a GPU of NVIDIA's, GPUTarget('cuda', 90, 32); got {target}")
    arch = int(target.arch)
    return target_for(arch // 10, arch % 10)


class Backend(BaseBackend):
    """The compiler for a target, for programs that ask for its options."""

    binary_ext = "cubin"

    def hash(self) -> str:
        """A text that is equal for equal targets and compilers."""
        return f"{triton_key()}-{self.target}"

    def parse_options(self, options: Mapping[str, Any]) -> Any:
        """An object with all options of a launch: those that are given, and defaults."""
        known = {name: value for name, value in options.items() if name in launch_options.DEFAULTS}
        return SimpleNamespace(**{**launch_options.DEFAULTS, **known})


def make_backend(target: GPUTarget) -> Backend:
    """The compiler for a target. Raises `RuntimeError` for one that ziggurat has none for."""
    if target.backend not in ("cuda", "cpu"):
        raise RuntimeError(f"0 compatible backends for target ({target.backend}). There should only be one.")
    return Backend(target)


@functools.cache
def max_shared_mem(device: int) -> int:
    """The bytes of shared memory that a CTA can have on a device."""
    return driver.active.utils.get_device_properties(device)["max_shared_mem"]


__all__ = [
    "ASTSource", "CompiledKernel", "GPUTarget", "IRSource", "LazyDict", "compile", "get_cache_key",
    "make_backend", "max_shared_mem", "triton_key",
]  # fmt: skip
