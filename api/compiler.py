"""Compiling: from a Triton model to PTX, every stage kept."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from ziggurat.arguments import bind, constexpr_names, signature_of
from ziggurat.boundary import no_faults, public
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.errors import KernelTypeError, LaunchError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.fragments import box_and_swizzle
from ziggurat.codemodel.gpu.options import DEFAULTS, SHARED_OPTIONS, compile_options
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.op import Op, require_model
from ziggurat.codemodel.transform import Rewriter
from ziggurat.codemodel.types import ConstantType, DescriptorType, PtrType, ScalarType, Type
from ziggurat.codemodel.verify import verify

if TYPE_CHECKING:
    from ziggurat.backend.cuda.binary import Binary, Parameter
    from ziggurat.executable import Executable
    from ziggurat.kernels import Kernel

__all__ = ["TARGETS", "Compiled", "binary_of", "compile", "compile_kernel", "kind_of", "parameter_of"]


@attrs.frozen
class Argument:
    """A run-time argument of a compiled kernel: its type, and what its value (of pointers: the address in bytes, of
    descriptors: the bytes of a row) is compiled to be divisible by. `type` is None of a descriptor of which only the
    parts are left in the model that was compiled."""

    type: Type | None
    divisibility: int = 1
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name}{': ' if self.name else ''}{'descriptor' if self.type is None else self.type}"


@attrs.frozen
class Compiled:
    """A kernel compiled for a target. `stages` holds its models and texts in order, `ptx` is the last.

    `num_warps` warps run each program, those that only fetch included, with `shared` bytes of shared memory.
    `parameters` has the types of the parameters of the machine's kernel, and `parts` says which argument each takes, or
    which part of one, as of `tt.func`; it is empty where they are the arguments. `arguments` are what a launch takes.

        compiled[grid](x, y, n)

    runs it on a GPU of its target: see `__getitem__`.
    """

    symbol: str
    target: str
    num_warps: int
    shared: int
    parameters: tuple[Type, ...]
    stages: Mapping[str, Any] = attrs.field(repr=False)
    parts: tuple[str, ...] = ()
    arguments: tuple[Argument, ...] = attrs.field(default=(), repr=False)
    name: str = ""

    @property
    def ptx(self) -> str:
        """The text for the driver."""
        return str(self.stages["ptx"])

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """`compiled[grid](arguments…, stream=None, check=False)` runs it once for each program of the grid, on a GPU.

        The arguments are the run-time ones, in their order: what was compiled in is not given again. Arrays are on a
        GPU, of any library. Raises `LaunchError` for arguments that are not what it was compiled for: their number,
        types, and what their values are divisible by.
        """
        return functools.partial(self._launch, grid)

    @public
    def _launch(self, grid: Any, /, *arguments: Any, stream: Any = None, check: bool = False) -> None:
        self._executable.launch(grid, arguments, stream, check)

    @functools.cached_property
    def _executable(self) -> Executable:
        from ziggurat.executable import Executable

        return Executable(self)

    @property
    def registers(self) -> int:
        """Registers of a thread, as the driver's assembler has it, or ptxas where no GPU can load the code.

        Raises `LaunchError` where there is neither. So do `local_bytes` and `max_threads`.
        """
        return self._executable.registers

    @property
    def local_bytes(self) -> int:
        """Local memory of a thread in bytes: registers that are spilled, and the stack."""
        return self._executable.local_bytes

    @property
    def max_threads(self) -> int:
        """The most threads that a program can have with so many registers."""
        return self._executable.max_threads


@public
def compile(
    model: Op,
    *,
    target: str | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
    exact_math: bool | None = None,
    python: Op | None = None,
    examine: Callable[[gpu.Module], None] | None = None,
) -> Compiled:
    """Compile the kernel of a Triton model, or of a GPU model (`compiled.stages["gpu"]`). No GPU is needed.

    `target` is "sm_90a" where it is not given, `num_warps`, a power of two up to 32, is 4, and `num_stages` 3; a GPU
    model has a target, warps and stages of its own. `exact_math` chooses IEEE division and square roots over the fast
    ones. `examine` sees the GPU model before code is made of it, and may raise what says that it is not worth that.
    Raises `LaunchError` for options that do not fit, `ResourceError` where the kernel needs more than the target has,
    `KernelTypeError` for what is no such model, and `VerifyError` for one that breaks invariants.
    """
    given = {"target": target, "num_warps": num_warps, "num_stages": num_stages, "exact_math": exact_math}
    options = compile_options(given)
    model = _compilable(model)
    verify(model)
    return _compiled(model, options, python, examine)


def compile_kernel(kernel: Kernel, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Compiled:
    """What `kernel.compile` gives. A keyword that is a parameter's name is that parameter's argument; a constexpr
    parameter that is named as an option is that option as well, as of `ziggurat.codemodel.gpu.options`."""
    names = kernel.signature.parameters
    _demand_known(kernel, keywords)
    options = compile_options({n: v for n, v in keywords.items() if n in DEFAULTS and n not in names})
    bound = bind(kernel, arguments, {n: v for n, v in keywords.items() if n in names})
    constexprs = constexpr_names(kernel)
    options |= {name: bound[name] for name in SHARED_OPTIONS if name in constexprs}
    signature = signature_of(kernel, (), bound)
    compiled = _compiled(kernel.model_for(signature), options, kernel.model)
    passed = [name for name, type_ in zip(names, signature.types, strict=True) if not isinstance(type_, ConstantType)]
    named = tuple(attrs.evolve(a, name=n) for a, n in zip(compiled.arguments, passed, strict=True))
    return attrs.evolve(compiled, name=kernel.name, arguments=named)


def _demand_known(kernel: Kernel, keywords: Mapping[str, Any]) -> None:
    """Raise `LaunchError` for a keyword that is neither a parameter nor an option."""
    known = [*kernel.signature.parameters, *DEFAULTS]
    unknown = next((name for name in keywords if name not in known), None)
    if unknown is not None:
        from difflib import get_close_matches

        near = get_close_matches(unknown, known, 1)
        raise LaunchError(
            f"'{kernel.name}' has no parameter '{unknown}', nor is there such an option of compile",
            hint=f"did you mean '{near[0]}'?" if near else f"{kernel.written}; options: {', '.join(DEFAULTS)}",
        )


def _compilable(model: Any) -> Op:
    """The model, if it is one that can be compiled, a lone function in a module. Raises `KernelTypeError`."""
    if isinstance(model, str):
        raise KernelTypeError(
            "zg.compile takes a model, an Op; got a string", hint="zg.compile(zg.parse(text)) for a model's text"
        )
    require_model(model, "zg.compile")
    if isinstance(model, core.Func) or (
        isinstance(model, core.Module) and any(isinstance(op, core.Func) for op in model.functions().values())
    ):
        raise KernelTypeError(
            "zg.compile takes a Triton model or a GPU model; this is a Python model, which has no types yet",
            hint="kernel.triton(types…) gives the Triton model, kernel.compile(types…) compiles it",
        )
    if isinstance(model, tt.Func):
        outside = Rewriter.over(Builder.root())
        outside.rewrite(model)
        outside.add(core.Unreachable())
        return core.Module(outside.finish())
    if not isinstance(model, core.Module | gpu.Module) or not any(
        isinstance(op, tt.Func) for op in model.functions().values()
    ):
        raise KernelTypeError(
            f"zg.compile takes a Triton model or a GPU model: a module with a tt.func; got {model.NAME}"
        )
    return model


def _compiled(
    model: Op,
    options: Mapping[str, Any],
    python: Op | None = None,
    examine: Callable[[gpu.Module], None] | None = None,
) -> Compiled:
    from ziggurat.backend.ptx.assemble import assemble
    from ziggurat.backend.ptx.emitter import Options
    from ziggurat.backend.ptx.roles import warps_of
    from ziggurat.transforms.place.passes import PlaceOptions, place
    from ziggurat.transforms.place.pressure import warn_of_registers

    exact_math = bool(options.get("exact_math", False))
    stages: dict[str, Any] = {} if python is None else {"python": python}
    with no_faults("compiling", lambda: model, "the model"):
        if isinstance(model, gpu.Module):
            placed = model
            _demand_same(placed, options)
        else:
            stages["triton"] = model
            placed = place(model, PlaceOptions(**options))
        (examine or warn_of_registers)(placed)
        texts = assemble(placed, Options(exact_math=exact_math))
    stages |= {"gpu": placed, "llvm": texts.llvm, "ptx": texts.ptx}
    function = next(op for op in placed.body.entry.ops if isinstance(op, tt.Func))
    types = tuple(parameter.type for parameter in function.body.parameters)
    arguments = _arguments(model, function)
    return Compiled(
        texts.symbol, placed.target, warps_of(placed), placed.shared, types, stages, function.parts, arguments
    )


def _demand_same(placed: gpu.Module, options: Mapping[str, Any]) -> None:
    """Raise `LaunchError` where an option says otherwise than a model that is placed already."""
    for name, own in (("target", placed.target), ("num_warps", placed.num_warps)):
        if options.get(name, own) != own:
            raise LaunchError(
                f"this GPU model is made for {name}={own!r}, and cannot be compiled for {name}={options[name]!r}",
                hint="compile the Triton model for that",
            )
    if "num_stages" in options:
        raise LaunchError("num_stages is decided in a GPU model", hint="compile the Triton model with it")
    if placed.target not in TARGETS:
        compile_options({"target": placed.target})


def _arguments(model: Op, placed: tt.Func) -> tuple[Argument, ...]:
    """The run-time arguments of a kernel, by its function in the Triton model, or in the GPU model where it is all
    there is."""
    function = placed
    if isinstance(model, core.Module):
        found = model.functions()[placed.sym_name]
        assert isinstance(found, tt.Func)
        function = found
    known = function.divisibility or (1,) * len(function.body.parameters)
    by_number: dict[int, Argument] = {}
    for index, (parameter, by) in enumerate(zip(function.body.parameters, known, strict=True)):
        number, _, field = (function.parts[index] if function.parts else "").partition(".")
        argument = Argument(parameter.type if field in ("", "map") else None, by if not field else 1)
        at = int(number) if number else index
        if at not in by_number or argument.type is not None:
            by_number[at] = argument
    return tuple(by_number[at] for at in sorted(by_number))


def binary_of(compiled: Compiled, name: str) -> Binary:
    """A compiled kernel as the runtime takes it."""
    from ziggurat.backend.cuda.binary import Binary
    from ziggurat.backend.cuda.places import source_map

    parts = compiled.parts or ("",) * len(compiled.parameters)
    parameters = tuple(map(parameter_of, compiled.parameters, parts))
    places = source_map(compiled.stages["triton"], compiled.ptx) if "triton" in compiled.stages else []
    return Binary(
        compiled.symbol, compiled.ptx, compiled.num_warps, compiled.shared, parameters, compiled.target, name,
        {"places": places} if places else {},
    )  # fmt: skip


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
