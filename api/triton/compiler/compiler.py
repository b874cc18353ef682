"""`triton.compile`: kernels compiled without a launch, from functions and from files."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from ziggurat.boundary import public
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.options import DEFAULT_OPTIONS
from ziggurat.codemodel.gpu.targets import target_for
from ziggurat.codemodel.types import TupleType, Type
from ziggurat.frontends.language.signature import suggest
from ziggurat.kernels.arguments import Signature, constant_of
from ziggurat.transforms.parameters import kernel_of
from ziggurat.triton.backends.compiler import BaseBackend, GPUTarget
from ziggurat.triton.compiler.accesses import AccessModule
from ziggurat.triton.compiler.compiled import CompiledKernel, LazyDict
from ziggurat.triton.compiler.cubins import keep
from ziggurat.triton.compiler.files import IRSource
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
        if not isinstance(signature, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LaunchError(
                f"the signature of '{fn.name}' must be a dict of types by parameter; got {signature!r}",
                hint='ASTSource(kernel, {"x_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 64})',
            )
        names: list[Any] = [*signature]
        for name in names:
            if not isinstance(name, str):
                raise TypeError("Signature keys must be string")
        for name in (*names, *(name for name in constexprs or () if isinstance(name, str))):
            if name not in fn.arg_names:
                hint = suggest(name, fn.arg_names) or f"it has {', '.join(map(repr, fn.arg_names))}"
                raise LaunchError(f"'{fn.name}' has no parameter '{name}'", hint=hint)
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
                raise LaunchError(
                    f"the signature of '{self.name}' must have a type for '{name}'",
                    hint=f'give all parameters a type, constants "constexpr": {self.fn.written}',
                )
            if self.signature.get(name) == "constexpr" and (place,) not in self.constants:
                raise LaunchError(
                    f"'{self.name}' needs a value of its constexpr '{name}'", hint=f"ASTSource(…, {{'{name}': …}})"
                )
            types.append(made(name, (place,), self.signature.get(name, "constexpr")))
        return Signature(tuple(types), tuple(divisibility))

    def make_ir(self, target: Any, options: Any, codegen_fns: Any, module_map: Any, context: Any) -> AccessModule:
        """The accesses of the kernel, which PyTorch looks for. The arguments are those of Triton's method."""
        return AccessModule(self.name, kernel_of(self.fn.model_for(self.compiled_signature())))


@public
def compile(
    src: ASTSource | IRSource | str | os.PathLike[str],
    target: GPUTarget | None = None,
    options: Mapping[str, Any] | None = None,
    **_: Any,
) -> CompiledKernel:
    """The kernel of a source, or of a file `.ttir` or `.ttgir`, for a target: by default the current GPU, or an H100
    on a machine without one."""
    if not isinstance(src, ASTSource | IRSource):
        assert isinstance(src, str | os.PathLike), "source must be either AST or a filepath"
    source = src if isinstance(src, ASTSource | IRSource) else IRSource(src)
    given = {**source.parse_options(), **(options or {})}
    launch_options.check(given, source.fn if isinstance(source, ASTSource) else None)
    # Programs may launch the code by themselves, and know of no tensor maps that a launch makes.
    name = _name_of(target)
    defaults = {"target": name or DEFAULT_OPTIONS.target, "raise_pointers": False}
    ours = launch_options.compile_options({**defaults, **given})
    made = CompiledKernel(source.fn, source.compiled_signature(), ours, given)
    made.demand()
    if name is not None:
        keep(made)
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

    def load_dialects(self, context: Any) -> None:
        """Do nothing: there is no context of MLIR."""

    def get_codegen_implementation(self, options: Any) -> dict[str, Any]:
        return {}

    def get_module_map(self) -> dict[str, Any]:
        return {}

    def parse_attr(self, text: str) -> list[list[Any]]:
        """The attributes of an argument for its text: "D" is divisible by 16."""
        return [["tt.divisibility", 16]] if "D" in text else []


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
