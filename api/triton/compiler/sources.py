"""`ASTSource`: a function with the types and the constants that it is compiled for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.types import ConstantType, Type
from ziggurat.frontends.language.signature import suggest
from ziggurat.kernels.arguments import KernelSignature, constant_of
from ziggurat.transforms.calls.lattice import type_of_tuple
from ziggurat.transforms.parameters import kernel_of
from ziggurat.triton.compiler.accesses import AccessModule
from ziggurat.triton.compiler.signatures import type_of, type_text

if TYPE_CHECKING:
    from ziggurat.triton.runtime.jit import JITFunction

Path = tuple[int, ...]


class AttrsDescriptor:
    """The places of the arguments that 16 divides, and of those that are 1, in Triton 2.1 to 3.2."""

    def __init__(self, divisible_by_16: Iterable[int] = (), equal_to_1: Iterable[int] = ()) -> None:
        self.divisible_by_16, self.equal_to_1 = {*divisible_by_16}, {*equal_to_1}

    @staticmethod
    def from_hints(hints: Mapping[int, int]) -> AttrsDescriptor:
        """The places of divisors, which are 16 or 1."""
        by = {divisor: [place for place, hint in hints.items() if hint == divisor] for divisor in (16, 1)}
        return AttrsDescriptor(by[16], by[1])

    @property
    def attributes(self) -> dict[Path, Any]:
        """The attributes of arguments by place, as later releases have them."""
        return {(place,): [["tt.divisibility", 16]] for place in sorted(self.divisible_by_16)}


class ASTSource:
    """A kernel, the types of its arguments by name, its constants by name or place, and attributes of arguments by
    place: `{(0,): [["tt.divisibility", 16]]}`.

    The forms of Triton 2.1 to 3.2 are taken too: types by place, or in order in a text, `constants=`, and an
    `AttrsDescriptor`.
    """

    ext = "ttir"

    def __init__(
        self,
        fn: JITFunction,
        signature: Mapping[Any, Any] | str,
        constexprs: Mapping[Any, Any] | None = None,
        attrs: Mapping[Any, Any] | AttrsDescriptor | None = None,
        *,
        constants: Mapping[Any, Any] | None = None,
    ) -> None:
        constexprs = {**(constexprs or {}), **(constants or {})}
        if isinstance(signature, str):
            signature = dict(enumerate(text.strip() for text in signature.split(",")))
        if not isinstance(signature, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LaunchError(
                f"the signature of '{fn.name}' must be a dict of types by parameter; got {signature!r}",
                hint='ASTSource(kernel, {"x_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 64})',
            )
        signature = {_named(fn, name): type_ for name, type_ in signature.items()}
        constexprs = {_named(fn, place): value for place, value in constexprs.items()}
        for name in (*signature, *(name for name in constexprs if isinstance(name, str))):
            if not isinstance(name, str):
                raise TypeError("Signature keys must be string")
            if name not in fn.arg_names:
                hint = suggest(name, fn.arg_names) or f"it has {', '.join(map(repr, fn.arg_names))}"
                raise LaunchError(f"'{fn.name}' has no parameter '{name}'", hint=hint)
        self.fn: Any = fn
        self.name: str = fn.name
        self.signature = dict(signature)
        self.constants = {
            (fn.arg_names.index(place),) if isinstance(place, str) else tuple(place): value
            for place, value in constexprs.items()
        }
        if isinstance(attrs, AttrsDescriptor):
            self.constants |= {(place,): 1 for place in attrs.equal_to_1}
            attrs = attrs.attributes
        self.attrs = dict(attrs or {})

    @classmethod
    def of(cls, fn: Any, signature: KernelSignature) -> ASTSource:
        """The source of a function for a signature."""
        typed = dict(enumerate(signature.types))
        constants = {(place,): type_.value for place, type_ in typed.items() if isinstance(type_, ConstantType)}
        run_time = (place for place, type_ in typed.items() if not isinstance(type_, ConstantType))
        divisors = zip(run_time, signature.divisibility, strict=False)
        texts = map(type_text, fn.declared_types(signature.types))
        attrs = {(place,): [["tt.divisibility", by]] for place, by in divisors if by > 1}
        return cls(fn, dict(zip(fn.arg_names, texts, strict=True)), constants, attrs)

    def hash(self) -> str:
        """A text that is equal for equal sources."""
        constants = {place: getattr(value, "cache_key", value) for place, value in self.constants.items()}
        text = f"{self.fn.cache_key}-{self.attrs}-{sorted(self.signature.items())}-{constants}"
        return hashlib.sha256(text.encode()).hexdigest()

    def parse_options(self) -> dict[str, Any]:
        """The options that the source itself decides: none."""
        return {}

    def compiled_signature(self) -> KernelSignature:
        """The types of all parameters, and the divisibility of run-time ones."""
        divisibility: list[int] = []

        def type_at(name: str, path: Path, text: Any) -> Type:
            if path in self.constants or text == "constexpr":
                return constant_of(self.fn, name, self.constants.get(path))
            if isinstance(text, (tuple, list)):
                parts = cast("Sequence[Any]", text)
                types = tuple(type_at(name, (*path, place), part) for place, part in enumerate(parts))
                return type_of_tuple(parts, types)
            attributes = self.attrs.get(path) or ()
            divisibility.append(max((by for key, by in attributes if key == "tt.divisibility"), default=1))
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
            types.append(type_at(name, (place,), self.signature.get(name, "constexpr")))
        return KernelSignature(tuple(types), tuple(divisibility))

    def make_ir(self, target: Any, options: Any, codegen_fns: Any, module_map: Any, context: Any) -> AccessModule:
        """The accesses of the kernel, which PyTorch looks for. The arguments are those of Triton's method."""
        return AccessModule(self.name, kernel_of(self.fn.model_for(self.compiled_signature())))


def _named(fn: JITFunction, parameter: Any) -> Any:
    """The name of a parameter of which the place is given; any other thing as it is. Raises `LaunchError` for a place
    that the function does not have."""
    if not isinstance(parameter, int):
        return parameter
    if not 0 <= parameter < len(fn.arg_names):
        raise LaunchError(
            f"'{fn.name}' has no parameter {parameter}", hint=f"it has {len(fn.arg_names)}, which count from 0"
        )
    return fn.arg_names[parameter]
