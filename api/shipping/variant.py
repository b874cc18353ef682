"""Variants: kernels for the types, the constants and the options of a launch, as plain data.

A variant has the text of a Triton model. So a library is built without the program that a kernel is from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from ziggurat.boundary import public
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import LaunchError, shown
from ziggurat.codemodel.gpu.options import COMPILE_OPTIONS, DEFAULT_OPTIONS, CompileOptions
from ziggurat.codemodel.op import Op, Value, expect, require_argument
from ziggurat.codemodel.text.limits import read_regular
from ziggurat.codemodel.text.writer import to_text
from ziggurat.codemodel.types import ConstantType, TupleType, Type, i1, i32
from ziggurat.kernels.arguments import (
    KernelSignature,
    bind_types,
    check_options,
    constexpr_names,
    defaults_of,
    divided,
    parts_of,
    shared_options,
    signature_of,
)
from ziggurat.kernels.kernel import Kernel
from ziggurat.shipping.grids import Grid, attempted
from ziggurat.shipping.loader import constant_form
from ziggurat.tuning.tuned import Tuned

if TYPE_CHECKING:
    from ziggurat.codemodel.transform import Outcome, Rewriter
    from ziggurat.kernels.kernel import Grid as LaunchGrid

FORMAT: Final = "ziggurat launches 1"
# Any target: options are checked with one, and apply to all.
_ANY_TARGET: Final = "sm_80"
_MAX_BYTES: Final = 1 << 30  # Of a file of variants.


@attrs.frozen
class Parameter:
    """A parameter of a kernel, or a component of a tuple. One that is passed has the text of its `type`, and a number
    that is known to divide it; `is_one` tells that its value is known to be 1. One that is compiled in has the form of
    its `constant` in JSON: see `constant_form`."""

    name: str
    type: str = ""
    divisor: int = 1
    is_one: bool = False
    constant: Any = attrs.field(default=None, hash=False)

    @property
    def is_passed(self) -> bool:
        """Whether a launch passes it."""
        return bool(self.type)

    @property
    def facts(self) -> dict[str, Any]:
        """The parameter for JSON, without what is as usual."""
        if not self.is_passed:
            return {"name": self.name, "constant": self.constant}
        facts: dict[str, Any] = {"name": self.name, "type": self.type}
        return (
            facts | ({"divisor": self.divisor} if self.divisor > 1 else {}) | ({"is_one": True} if self.is_one else {})
        )


@attrs.frozen
class Variant:
    """A kernel for types, constants and options: the text of its Triton model, options of compilation other than the
    target, its parameters, and the function of its grid in C, if there is one. `place` is that of its source;
    `defaults` are those of its parameters, as constants in JSON."""

    kernel: str
    model: str = attrs.field(repr=False)
    options: Mapping[str, Any] = attrs.field(hash=False)
    parameters: tuple[Parameter, ...]
    grid: Grid | None = attrs.field(default=None, hash=False)
    place: str = ""
    defaults: Mapping[str, Any] = attrs.field(factory=dict[str, Any], hash=False)

    @property
    def passed(self) -> list[Parameter]:
        """The parameters that a launch passes, in order."""
        return [parameter for parameter in self.parameters if parameter.is_passed]

    @property
    def key(self) -> str:
        """A text that is equal for equal variants; the grid and the place do not count."""
        return json.dumps([self.kernel, self.model, self.options, [p.facts for p in self.parameters]], sort_keys=True)

    def to_json(self) -> dict[str, Any]:
        """The variant for JSON."""
        facts = [parameter.facts for parameter in self.parameters]
        grid = None if self.grid is None else attrs.asdict(self.grid)
        own = {name: getattr(self, name) for name in ("kernel", "place", "options", "defaults", "model")}
        return {**own, "parameters": facts, "grid": grid}

    @classmethod
    def from_json(cls, data: Any) -> Variant:
        """The variant that `to_json` gave. Raises `ValueError` for anything else."""
        try:
            facts = dict(data)
            facts["parameters"] = tuple(Parameter(**parameter) for parameter in facts["parameters"])
            facts["grid"] = None if facts["grid"] is None else Grid(**facts["grid"])
            return cls(**facts)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"this is no variant: {error}") from None


@public
def variant(kernel: Any, /, *types: Any, grid: Any = None, **keywords: Any) -> Variant:
    """A kernel for a library, for the arguments that `kernel.compile` takes, without a target.

        zg.variant(softmax, zg.divisible(zg.ptr(zg.f32)), zg.ptr(zg.f32), zg.i32, 1024, num_warps=8)

    `grid` is the function of the grid of its launches, from which C programs and the header get theirs. Raises the
    errors of `kernel.compile`.
    """
    kernel = kernel.base if isinstance(kernel, Tuned) else kernel
    require_argument(kernel, isinstance(kernel, Kernel), "zg.variant: 'kernel' must be a kernel", "use @zg.kernel")
    own, options = divided(kernel, keywords)
    check_options(kernel, options, [name for name in COMPILE_OPTIONS if name != "target"])
    bound = bind_types(kernel, types, own)
    signature = signature_of(kernel, (), bound)
    result = variant_of(kernel, signature, bound, options, frozenset(), grid)
    if grid is not None and result.grid is None:
        raise LaunchError(f"zg.variant: {attempted(grid, bound, lambda _: True)[1]}")
    return result


def variant_of(
    kernel: Kernel, signature: KernelSignature, bound: Mapping[str, Any], options: Mapping[str, Any],
    ones: Iterable[int], grid: LaunchGrid | None,
) -> Variant:  # fmt: skip
    """The variant for a signature. `ones` are the numbers of the run-time arguments whose value is 1."""
    settings = kernel.rules.compile_options(
        {"target": _ANY_TARGET, **options, **{name: bound[name] for name in shared_options(kernel)}}
    )
    if kernel.settings(settings).plain is not kernel.settings(settings):
        raise LaunchError(
            f"'{kernel.name}' has passes on the way to a GPU, which a library is built without",
            kernel.place,
            "build it with passes at='triton' alone",
        )
    model: Op = kernel.rules.model(kernel, signature, {**options, "num_warps": settings.num_warps})
    ones = frozenset(ones)
    if ones:
        from ziggurat.transforms.parameters import specialize

        model = specialize(model, dict.fromkeys(ones, 1))
    parameters = parameters_of(kernel, signature, ones)
    place = kernel.place
    names = {parameter.name for parameter in parameters if parameter.is_passed}
    function, _ = attempted(grid, bound, names.__contains__) if callable(grid) else (None, "")
    return Variant(
        kernel.name, to_text(model, locations=True), options_of(settings), parameters, function,
        "" if place is None else f"{Path(place.file).name}:{place.line}",
        {name: constant_form(value) for name, value in defaults_of(kernel).items()},
    )  # fmt: skip


def general(variant: Variant) -> Variant:
    """The variant for arguments of any divisibility. Values of 1 that are compiled in stay so."""
    from ziggurat.codemodel.text.parser import parse
    from ziggurat.codemodel.transform import transform
    from ziggurat.transforms.simplify.demand import first_kernel

    model = parse(variant.model)
    kernel = first_kernel(expect(model, core.Module))

    def forget(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op is not kernel:
            return None
        body = builder.rewrite_body(kernel.body, isolated=True)
        return builder.add(kernel.evolve(divisibility=(), body=body), kernel.location)

    parameters = tuple(attrs.evolve(parameter, divisor=1) for parameter in variant.parameters)
    return attrs.evolve(variant, model=to_text(transform(model, forget), locations=True), parameters=parameters)


def options_of(settings: CompileOptions) -> dict[str, Any]:
    """The options that differ from their defaults, without the target."""
    names = [name for name in COMPILE_OPTIONS if name != "target"]
    return {
        name: getattr(settings, name) for name in names if getattr(settings, name) != getattr(DEFAULT_OPTIONS, name)
    }


def parameters_of(kernel: Kernel, signature: KernelSignature, ones: frozenset[int]) -> tuple[Parameter, ...]:
    """The parameters of a kernel for a signature, with the components of tuples."""
    constexprs, divisors = constexpr_names(kernel), iter(enumerate(signature.divisibility))
    parameters: list[Parameter] = []

    def add(name: str, type_: Type, is_constant: bool) -> None:
        if isinstance(type_, TupleType):
            for part, component in parts_of(name, type_.components):
                add(part, component, is_constant)
        elif isinstance(type_, ConstantType):
            # An argument of 1 that is compiled in is passed all the same: a launch need not know.
            if type(type_.value) is int and type_.value == 1 and not is_constant:
                parameters.append(Parameter(name, str(type_.type if type_.type == i32 else i32), is_one=True))
            else:
                parameters.append(Parameter(name, constant=constant_form(type_.value)))
        else:
            number, divisor = next(divisors)
            is_one = number in ones and type_ != i1
            parameters.append(Parameter(name, str(type_), 1 if is_one else divisor, is_one))

    for name, type_ in zip(kernel.signature.parameters, signature.types, strict=True):
        add(name, type_, name in constexprs)
    return tuple(parameters)


def read_variants(path: str | Path) -> list[Variant]:
    """The variants of a file of `write_variants`. Raises `LaunchError` for other files."""
    try:
        data: Any = json.loads(read_regular(Path(path), _MAX_BYTES))
        if data["format"] != FORMAT:
            raise ValueError(f"its format must be {FORMAT!r}; got {shown(data['format'])}")
        return list(map(Variant.from_json, data["variants"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        if isinstance(error, KeyError | TypeError):
            reason = "it is no recording of launches"
        raise LaunchError(f"'{path}' has no variants that can be read: {reason}") from None


def write_variants(path: str | Path, variants: Iterable[Variant]) -> None:
    """Write variants into a file, each once. Raises `LaunchError` where that is not possible."""
    from ziggurat.backend.cache.folder import write_whole

    text = json.dumps({"format": FORMAT, "variants": [variant.to_json() for variant in variants]}, indent=1)
    if not write_whole(Path(path), text.encode()):
        raise LaunchError(f"'{path}' cannot be written")
