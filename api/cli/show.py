"""`ziggurat show` and `ziggurat explain`: a kernel at a tier, and its cost."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ziggurat.cli.arguments import AddCommand, add_divisible, add_kernel, add_options, compile_options_of, grid_of
from ziggurat.cli.sources import find_kernel
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.options import COMPILE_OPTIONS, CPU, CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.html import side_by_side, to_html
from ziggurat.codemodel.text.parser import parse_values
from ziggurat.codemodel.text.writer import to_text
from ziggurat.compiler.compiled import Compiled
from ziggurat.kernels.arguments import constexpr_names, divisible, require_parameters
from ziggurat.kernels.kernel import Kernel

STAGES = ("python", "triton", "gpu", "llvm", "ptx", "sass", "cpu", "asm", "mlir", "all")
_ALL = ("python", "triton", "gpu", "llvm", "ptx")
_ALL_OF_CPU = ("python", "triton", "cpu", "llvm", "asm")
_HTML = ("python", "triton", "gpu", "cpu", "all")
_LOCATIONS = (*_HTML, "mlir")
_MODELS = ("python", "triton", "mlir")  # Shown without compiling.


def add(command: AddCommand) -> None:
    """Add the commands."""
    show = command("show", "print a kernel's code model at a tier", _show)
    add_kernel(show)
    show.add_argument("types", nargs="?", default="", help='argument types and values: "ptr<f32>, i32, 64"')
    show.add_argument("--stage", choices=STAGES, help="which tier, or all (default: triton)")
    show.add_argument(
        "--after",
        metavar="PASS",
        help="the model after early_exits or a pass on the way to the GPU model; NAME:2 is the second of its name",
    )
    show.add_argument("--diff", action="store_true", help="the changes of each pass, or of the one of --after")
    show.add_argument("--locations", action="store_true", help="with the source location of each op")
    show.add_argument("--types", dest="attributed", action="store_true", help="the Python model with attributed types")
    add_options(show)
    add_divisible(show)
    show.add_argument("--html", action="store_true", help="as HTML with colours")
    explain = command("explain", "say what a kernel asks of the GPU, by source line, and why not less", _explain)
    add_kernel(explain)
    explain.add_argument(
        "types",
        nargs="?",
        default="",
        help='argument types and values: "ptr<f32>, i32, 64"; with --grid as for simulate',
    )
    explain.add_argument(
        "--grid", nargs="+", help="programs along each axis, for the whole launch; and its time where there is a GPU"
    )
    add_options(explain)
    add_divisible(explain)


def _show(options: argparse.Namespace) -> str:
    if options.stage is not None and (options.after is not None or options.diff):
        raise LaunchError("--stage must be left out with --after and --diff, which show models between two stages")
    options.stage = options.stage or "triton"
    if options.stage in ("cpu", "asm"):
        options.target = CPU
    elif options.target == CPU and (
        options.stage in ("gpu", "ptx", "sass") or options.after is not None or options.diff
    ):
        raise LaunchError(f"--target cpu has the stages {', '.join(_ALL_OF_CPU)}")
    _check_forms(options)
    CompileOptions.of({name: getattr(options, name) for name in COMPILE_OPTIONS})  # Checks them at every stage.
    kernel = find_kernel(options.kernel, options.macros, functions=options.stage == "python" and not options.attributed)
    arguments = _divisible(kernel, parse_values(options.types, "argument types"), options.divisible)
    if options.attributed:
        return str(kernel.attribution(*arguments))
    if options.after is not None or options.diff:
        compiled = _compiled(kernel, arguments, options)
        return _passes(kernel, compiled, options)
    every = _ALL_OF_CPU if options.target == CPU else _ALL
    names = every if options.stage == "all" else (options.stage,)
    compiled = None if set(names) <= set(_MODELS) else _compiled(kernel, arguments, options)
    stages = {name: _stage(name, kernel, arguments, compiled, options) for name in names}
    if options.html:
        page = side_by_side(stages) if len(stages) > 1 else to_html(stages[options.stage])
        return f'<!DOCTYPE html>\n<meta charset="utf-8">\n{page}\n'
    texts = {name: to_text(s, locations=options.locations) if isinstance(s, Op) else s for name, s in stages.items()}
    if len(texts) == 1:
        return texts[options.stage]
    return "\n".join(f"// Stage {name}\n{text.rstrip()}\n" for name, text in texts.items())


def _stage(
    name: str,
    kernel: Kernel,
    arguments: Sequence[Any],
    compiled: Compiled | None,
    options: argparse.Namespace,
) -> Any:
    """A stage of a kernel, a model or a text."""
    if name == "python":
        return kernel.model
    if compiled is None:
        model = kernel.triton(*arguments)
        if name == "triton":
            return model
        from ziggurat.backend.mlir import to_mlir

        return to_mlir(model, locations=options.locations) + "\n"
    if name == "sass":
        from ziggurat.backend.ptx.sass import sass

        return sass(compiled.ptx, compiled.target, lines=True)
    return compiled.stages[name]


def _passes(kernel: Kernel, compiled: Compiled, options: argparse.Namespace) -> str:
    """The model after the pass of `--after`, or with `--diff` the changes of passes."""
    from ziggurat.transforms.early_exits import early_exits

    models: dict[str, tuple[Op, Op]] = {"early_exits": (kernel.model, early_exits(kernel.model))}
    before = compiled.stages["triton"]
    for snapshot in compiled.passes:
        count = sum(name.partition(":")[0] == snapshot.name for name in models)
        models[f"{snapshot.name}:{count + 1}" if count else snapshot.name] = before, snapshot.model
        before = snapshot.model
    if options.after is not None and options.after not in models:
        raise LaunchError(f"there is no pass '{options.after}'", hint=f"the passes are {', '.join(models)}")
    if not options.diff:
        return to_text(models[str(options.after)][1], locations=options.locations)
    from ziggurat.transforms.kit import difference

    lines: list[str] = []
    for name, (old, new) in models.items():
        if options.after in (None, name):
            changed = difference(old, new)
            lines += [f"// Pass {name}", changed.rstrip()] if changed else [f"// Pass {name} changes nothing"]
    return "\n".join(lines) + "\n"


def _divisible(kernel: Kernel, arguments: Sequence[Any], texts: Sequence[str]) -> list[Any]:
    """The arguments, with the divisibility that `--divisible` gives to some. Raises `LaunchError` for other texts."""
    names = list(kernel.signature.parameters)
    types = list(arguments)
    for text in texts:
        parameters, equals, number = text.partition("=")
        if equals and not number.strip().isdecimal():
            raise LaunchError(f"--divisible {text}: '{number}' is not a number", hint="--divisible x_ptr,n=16")
        for name in map(str.strip, parameters.split(",")):
            require_parameters(kernel, [name], "--divisible")
            at = names.index(name)
            if at < len(types):  # Otherwise its type is missing, which is an error later.
                types[at] = divisible(types[at], int(number) if equals else 16)
    return types


def _check_forms(options: argparse.Namespace) -> None:
    """Raise `LaunchError` for a form that the stage does not have."""
    if options.attributed and (options.stage != "python" or options.html or options.locations):
        raise LaunchError("--types must go with --stage python, as text", hint="write --stage python --types")
    for form, stages in (("html", _HTML), ("locations", _LOCATIONS)):
        if getattr(options, form) and options.stage not in stages and options.after is None and not options.diff:
            raise LaunchError(f"--{form} must go with one of the stages {', '.join(stages)}; got {options.stage}")
    if options.html and (options.locations or options.after is not None or options.diff):
        raise LaunchError("--html must be given without --locations, --after and --diff", hint="leave out --html")


def _compiled(kernel: Kernel, arguments: Sequence[Any], options: argparse.Namespace) -> Compiled:
    """The kernel compiled with the options of the command line."""
    # A constexpr parameter that has the name of an option is that option, unless it is among the arguments.
    names = list(kernel.signature.parameters)
    arguments_by_name = {*names[: len(arguments)], *(set(names) - constexpr_names(kernel)), *({"target"} & set(names))}
    choices = {name: getattr(options, name) for name in COMPILE_OPTIONS if name not in arguments_by_name}
    return kernel.compile(*arguments, **choices)


def _explain(options: argparse.Namespace) -> str:
    kernel = find_kernel(options.kernel, options.macros)
    if options.grid is not None:
        from ziggurat.launches.explained import report

        if options.divisible:
            raise LaunchError("--divisible must be left out with --grid", hint="the arrays and values decide it")
        return report(kernel, options.types, grid_of(options), compile_options_of(kernel, options))
    arguments = _divisible(kernel, parse_values(options.types, "argument types"), options.divisible)
    compiled = _compiled(kernel, arguments, options)
    if compiled.target == CPU:
        raise LaunchError("explain must have a GPU as its target; got the target 'cpu'")
    return compiled.explain()
