"""Compiling: from a Triton model to PTX, every stage kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from ziggurat.boundary import no_faults, public
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.fragments import box_and_swizzle
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.targets import TARGETS
from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, Type

if TYPE_CHECKING:
    from ziggurat.backend.cuda.binary import Binary, Parameter
    from ziggurat.codemodel.dialects import gpu


@attrs.frozen
class Compiled:
    """A kernel compiled for a target. `stages` holds its models and texts in order, `ptx` is the last.

    `num_warps` warps run each program, those that only fetch included, with `shared` bytes of shared memory.
    `parameters` has the types of the parameters of the machine's kernel, and `parts` says which argument each takes, or
    which part of one, as of `tt.func`; it is empty where they are the arguments.
    """

    symbol: str
    target: str
    num_warps: int
    shared: int
    parameters: tuple[Type, ...]
    stages: Mapping[str, Any] = attrs.field(repr=False)
    parts: tuple[str, ...] = ()

    @property
    def ptx(self) -> str:
        """The text for the driver."""
        return str(self.stages["ptx"])


@public
def compile(
    model: Op,
    *,
    target: str = "sm_90a",
    num_warps: int = 4,
    num_stages: int = 3,
    exact_math: bool = False,
    python: Op | None = None,
    examine: Callable[[gpu.Module], None] | None = None,
) -> Compiled:
    """Compile the kernel of a Triton model. No GPU is needed.

    `num_warps` is a power of two up to 32; `exact_math` chooses IEEE division and square roots over the fast ones.
    `examine` sees the GPU model before code is made of it, and may raise what says that it is not worth that.
    Raises `LaunchError` for options that do not fit, `ResourceError` where the kernel needs more than the target has.
    """
    from ziggurat.backend.ptx.assemble import assemble
    from ziggurat.backend.ptx.emitter import Options
    from ziggurat.backend.ptx.roles import warps_of
    from ziggurat.transforms.place.pipeline import PlaceOptions, place

    if target not in TARGETS:
        raise LaunchError(f"the target is one of {', '.join(TARGETS)}; got {target!r}")
    if num_warps not in (1, 2, 4, 8, 16, 32):
        raise LaunchError(f"num_warps is a power of two from 1 to 32, got {num_warps!r}")
    if not isinstance(num_stages, int) or num_stages < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise LaunchError(f"num_stages is a positive integer, got {num_stages!r}")
    with no_faults("compiling", lambda: model, "the model"):
        placed = place(model, PlaceOptions(target, num_warps, num_stages, exact_math))
        if examine is not None:
            examine(placed)
        texts = assemble(placed, Options(exact_math=exact_math))
    stages: dict[str, Any] = {} if python is None else {"python": python}
    stages |= {"triton": model, "gpu": placed, "llvm": texts.llvm, "ptx": texts.ptx}
    function = placed.body.entry.ops[0]
    parameters = tuple(p.type for p in function.bodies[0].parameters)
    parts: tuple[str, ...] = function.attributes.get("parts", ())
    return Compiled(texts.symbol, target, warps_of(placed), placed.shared, parameters, stages, parts)


def binary_of(compiled: Compiled, name: str) -> Binary:
    """A compiled kernel as the runtime takes it."""
    from ziggurat.backend.cuda.binary import Binary

    parts = compiled.parts or ("",) * len(compiled.parameters)
    parameters = tuple(map(parameter_of, compiled.parameters, parts))
    return Binary(compiled.symbol, compiled.ptx, compiled.num_warps, compiled.shared, parameters, compiled.target, name)


def parameter_of(type_: Type, part: str = "") -> Parameter:
    """A parameter of the machine's kernel as the runtime takes it.

    `part` is what it takes, as `tt.func` has it; where that is empty, the argument of its own place.
    """
    from ziggurat.backend.cuda.binary import Parameter

    number, _, field = part.partition(".")
    argument = int(number) if number else None
    if isinstance(type_, DescriptorType):
        box, swizzle = box_and_swizzle(type_.block, type_.element)
        return Parameter(kind_of(type_), box, swizzle, "map", argument)
    return Parameter(kind_of(type_), part=field, argument=argument)


def kind_of(type_: Type) -> str:
    """What a parameter of the machine's kernel takes, in the words of the runtime."""
    if isinstance(type_, PtrType):
        return "ptr"
    if isinstance(type_, DescriptorType):
        return "tensormap"
    assert isinstance(type_, ScalarType), f"a kernel has no parameter of type {type_}"
    return type_.name
