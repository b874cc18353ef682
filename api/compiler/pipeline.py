"""The way down the tiers: Python model → Triton model → GPU model → LLVM → PTX, every stage kept."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ziggurat.boundary import no_faults, public
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, cpu, tt
from ziggurat.codemodel.dispatch import demand
from ziggurat.codemodel.errors import KernelTypeError, LaunchError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.fragments import MAP, is_of_launch
from ziggurat.codemodel.gpu.options import CPU, DEFAULT_OPTIONS, PROVE, CompileOptions
from ziggurat.codemodel.op import Op, expect, require_model
from ziggurat.codemodel.passes import Snapshot
from ziggurat.codemodel.transform import Rewriter
from ziggurat.codemodel.types import Type
from ziggurat.codemodel.verify import verify
from ziggurat.compiler import compiling
from ziggurat.compiler.compiled import Argument, Compiled, Stages
from ziggurat.frontends.language import Function
from ziggurat.frontends.language.languages import EXPLICIT, Language
from ziggurat.transforms.attribution import attribute, default_warps
from ziggurat.transforms.mirror import mirror
from ziggurat.transforms.simplify.dce import remove_unused
from ziggurat.transforms.simplify.demand import first_kernel

if TYPE_CHECKING:
    from ziggurat.backend.cpu.code import CpuCode

# Applied to a Triton model before a user sees it. The model stays as the kernel's author wrote it: nothing is folded,
# shared or hoisted; only constants that became attributes are removed.
TIDY: tuple[Callable[[Op], Op], ...] = (remove_unused,)


def triton_model(
    kernel: Function | Op,
    types: Sequence[Type],
    divisibility: Sequence[int] = (),
    small: Sequence[int] = (),
    functions: Mapping[str, Op] | None = None,
    symbol: str | None = None,
    num_warps: Callable[[], int] = default_warps,
    dot_precision: Callable[[], str | None] = lambda: None,
    checks_overflow: bool = False,
    language: Language = EXPLICIT,
    stops: bool = False,
) -> core.Module:
    """The Triton code model of a kernel's Python model at these argument types. Raises the errors of the kernel.

    `functions` are those that a kernel calls which is given by its model alone. `symbol` is the kernel's name in the
    model; without it, the name is made of the kernel's own and the types. `num_warps`,
    `dot_precision`, `language` and `stops` are those of `Attributor`, and `checks_overflow` is that of `mirror`.
    """
    name = kernel.name if isinstance(kernel, Function) else str(kernel.attributes["sym_name"])
    with compiling, no_faults("compiling", lambda: kernel.model if isinstance(kernel, Function) else kernel, name):
        attributed = attribute(kernel, types, functions, num_warps, dot_precision, language, stops)
        attributed.symbol = symbol or attributed.symbol
        model: Op = mirror(attributed, divisibility, small, checks_overflow)
        for step in TIDY:
            model = step(model)
        return expect(model, core.Module)


@public
def compile(
    model: Op,
    *,
    python: Op | None = None,
    examine: Callable[[gpu.Module], None] | None = None,
    phase: str | None = None,
    **options: Any,
) -> Compiled:
    """Compile the kernel of a Triton model, of a GPU model (`compiled.stages["gpu"]`), or of a CPU model. No GPU is
    needed.

    `options` are those of docs/guides/compiling.md: `target`, `num_warps`, `num_stages`, `exact_math` and so on. A
    GPU model has a target, warps and stages of its own, a CPU model the target "cpu". `phase` names the phase of the
    lowering for GPUs that comes first, for a model of `compiled.passes`. `python` is the Python model, kept as a stage.
    `examine` gets the GPU model before code is made of it, and may raise an error that says why the model is rejected.

    Raises `LaunchError` for unknown options, phases and their values, `ResourceError` where the kernel needs more than
    the target has, `KernelTypeError` for other models, and `VerifyError` for a model that breaks invariants.
    """
    model = _compilable(model)
    settings = _options_for(model, options, phase)
    verify(model)
    if settings.target == CPU:
        if phase is not None:
            raise LaunchError(f"the target 'cpu' has no phases; got phase={phase!r}", hint="leave out phase")
        return compile_for_cpu(model, settings, python)
    return compile_model(model, settings, python, examine, phase=phase)


def _options_for(model: Op, options: Mapping[str, Any], phase: str | None) -> CompileOptions:
    """The options of a compilation, with those that a GPU model has decided. Raises `LaunchError` where they differ."""
    if not isinstance(model, gpu.Module | cpu.Module):
        return CompileOptions.of(options)
    on_gpu = isinstance(model, gpu.Module)
    own: dict[str, Any] = {"target": CPU}
    if isinstance(model, gpu.Module):
        own = {"target": model.target, "num_warps": model.num_warps, "num_ctas": first_kernel(model).num_ctas}
    for name, value in own.items():
        if options.get(name, value) != value:
            raise LaunchError(
                f"this {'GPU' if on_gpu else 'CPU'} model is made for {name}={value!r}, and cannot be compiled for "
                f"{name}={options[name]!r}",
                hint="compile the Triton model for that",
            )
    if on_gpu and phase is None and options.get("num_stages") is not None:
        raise LaunchError("num_stages is decided in a GPU model", hint="compile the Triton model with it")
    if model.holds(gpu.WarpSpecialize):
        del own["num_warps"]  # The option is that of a kernel without roles: a power of two.
    return CompileOptions.of({**options, **own})


def _compilable(model: Any) -> Op:
    """The model, a lone function wrapped in a module. Raises `KernelTypeError` for a model that is not compilable."""
    require_model(model, "zg.compile")
    if isinstance(model, core.Func) or (
        isinstance(model, core.Module) and any(isinstance(op, core.Func) for op in model.functions().values())
    ):
        raise KernelTypeError(
            "zg.compile takes a Triton, a GPU or a CPU model; this is a Python model, which has no types yet",
            hint="make the Triton model by kernel.triton(types…), or use kernel.compile(types…)",
        )
    if isinstance(model, tt.Func):
        outside = Rewriter.over(Builder.root())
        outside.rewrite(model)
        outside.add(core.Unreachable())
        return core.Module(outside.finish())
    if not isinstance(model, core.Module | gpu.Module | cpu.Module) or not any(
        isinstance(op, tt.Func) for op in model.functions().values()
    ):
        raise KernelTypeError(
            f"zg.compile: the model must be a Triton, a GPU or a CPU model, with a tt.func; got {model.NAME}"
        )
    return model


def compile_model(
    model: Op,
    options: CompileOptions,
    python: Op | None = None,
    examine: Callable[[gpu.Module], None] | None = None,
    name: str = "",
    phase: str | None = None,
) -> Compiled:
    """Compile a Triton or GPU model that is known to be valid for a GPU; see `compile`. `name` is the kernel's, for
    messages."""
    stages: dict[str, Any] = {} if python is None else {"python": python}
    with compiling, no_faults("compiling", lambda: model, name or "the model"):
        # These imports are under the lock, too: see `compiling`.
        from ziggurat.backend.llvm.elementwise import RULES
        from ziggurat.backend.ptx.assemble import assemble
        from ziggurat.backend.ptx.emitter import EMITTERS
        from ziggurat.transforms.analysis.queries import is_persistent
        from ziggurat.transforms.cost.pressure import warn_of_registers
        from ziggurat.transforms.gpu.gpu_passes import place

        demand(model, {"backend.llvm.elementwise.RULES": RULES, "backend.ptx.emitter.EMITTERS": EMITTERS})
        stages |= {} if isinstance(model, gpu.Module) else {"triton": model}
        snapshots: list[Snapshot] = []
        gpu_model = place(model, options, snapshots, first=phase)
        if options.verify == PROVE:
            from ziggurat.proving import require_proofs

            require_proofs(model, snapshots, name or "the model", contracts=options.contract)
        (examine or warn_of_registers)(gpu_model)
        if options.isolate:
            from ziggurat.compiler.workers import assemble_apart

            texts = assemble_apart(gpu_model, options.plain, name or str(model.attributes.get("sym_name", "the model")))
        else:
            texts = assemble(gpu_model, options)
    stages |= {"gpu": gpu_model, "llvm": texts.llvm} | ({"ptx": texts.ptx} if texts.ptx else {})
    function = next(op for op in gpu_model.body.entry.ops if isinstance(op, tt.Func))
    types = [parameter.type for parameter in function.body.parameters]
    # A launch makes tensor maps, or provides the memory for those that the kernel makes.
    count = sum(not is_of_launch(part) for part in function.parts) if function.parts else len(types)
    maps = [(type_, part) for type_, part in zip(types, function.parts, strict=False) if part.startswith(MAP)]
    return Compiled(
        texts.symbol,
        gpu_model.target,
        Stages(stages),
        arguments_of(model, function),
        name,
        options,
        num_warps=gpu_model.num_warps,
        shared=gpu_model.shared,
        parameters=tuple(types[:count]),
        parts=function.parts[:count],
        disjoint=function.disjoint,
        scratch=gpu_model.scratch,
        maps=tuple(maps),
        persistent=is_persistent(function),
        num_ctas=function.num_ctas,
    )


def compile_for_cpu(
    model: Op, options: CompileOptions, python: Op | None = None, name: str = "", *, tolerant: bool = False
) -> Compiled:
    """Compile a valid Triton model, or CPU model, for this machine's CPU; see `compile` and `CpuOptions`."""
    if isinstance(model, gpu.Module):
        raise LaunchError("a GPU model cannot be compiled for a CPU", hint="compile the Triton model")
    assert isinstance(model, core.Module | cpu.Module)
    with compiling, no_faults("compiling", lambda: model, name or "the model"):
        from ziggurat.backend.cpu.code import CpuOptions
        from ziggurat.backend.cpu.compile import compile_cpu, to_assembly, vector_bytes
        from ziggurat.codemodel.text.parser import parse
        from ziggurat.transforms.cpu.cpu_passes import lower

        settings = CpuOptions(tolerant=tolerant, fast_math=options.fast_math, line_info=options.line_info)
        if options.verify and isinstance(model, core.Module):
            snapshots: list[Snapshot] = []
            lower(model, vector_bytes(settings.resolved().features), verify=True, snapshots=snapshots)
            if options.verify == PROVE:
                from ziggurat.proving import require_proofs

                require_proofs(model, snapshots, name or "the model", contracts=False, wraps=True)
        code = compile_cpu(model, settings)
    above = {"python": python, "triton": model if isinstance(model, core.Module) else None}
    stages = {stage: value for stage, value in above.items() if value is not None} | {
        "cpu": functools.partial(parse, code.model),
        "llvm": code.llvm,
        "asm": functools.partial(to_assembly, code.llvm, CpuOptions(code.cpu, code.features)),
    }
    return of_native_code(model, code, name, stages, options)


def of_native_code(
    model: core.Module | cpu.Module,
    code: CpuCode,
    name: str,
    stages: Mapping[str, Any],
    options: CompileOptions = DEFAULT_OPTIONS,
) -> Compiled:
    """The kernel of a model whose code for a CPU is there, with the stages that are."""
    return Compiled(
        code.symbol, CPU, Stages(dict(stages)), arguments_of(model, first_kernel(model)), name, options, code=code
    )


def arguments_of(model: Op, lowered: tt.Func) -> tuple[Argument, ...]:
    """The run-time arguments of a kernel, by its function in the Triton model, or in the GPU model if that is all."""
    function = expect(model.functions()[lowered.sym_name], tt.Func) if isinstance(model, core.Module) else lowered
    divisors = function.divisibility or (1,) * len(function.body.parameters)
    by_number: dict[int, Argument] = {}
    for index, (parameter, by) in enumerate(zip(function.body.parameters, divisors, strict=True)):
        number, _, field = (function.parts[index] if function.parts else "").partition(".")
        if is_of_launch(number):
            continue
        type_ = parameter.type if field in ("", "map") else None
        argument = Argument(type_, by if not field else 1, small=index in function.small)
        at = int(number) if number else index
        if at not in by_number or argument.type is not None:
            by_number[at] = argument
    return tuple(by_number[at] for at in sorted(by_number))
