"""The command line: `ziggurat`, or `python -m ziggurat`."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

import ziggurat
from ziggurat.codemodel.errors import LaunchError, ZigguratError
from ziggurat.codemodel.gpu.options import (
    COMPILE_OPTIONS,
    CPU,
    CompileOptions,
    boolean,
    documentation_of,
    options_table,
)
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.html import side_by_side, to_html
from ziggurat.codemodel.text.parser import parse_values
from ziggurat.codemodel.text.writer import to_text
from ziggurat.compiler.compiled import Compiled
from ziggurat.frontends.language import Function
from ziggurat.kernels.arguments import constexpr_names, divisible, require_parameters
from ziggurat.kernels.kernel import Kernel
from ziggurat.tuning.tuned import Tuned

STAGES = ("python", "triton", "gpu", "llvm", "ptx", "sass", "cpu", "asm", "mlir", "all")
_ALL = ("python", "triton", "gpu", "llvm", "ptx")
_ALL_OF_CPU = ("python", "triton", "cpu", "llvm", "asm")
_HTML = ("python", "triton", "gpu", "cpu", "all")
_LOCATIONS = (*_HTML, "mlir")
_TRITON_C = (".tc", ".c", ".h", ".cl", ".cu")  # The ends of the names of files with Triton-C.
_MODELS = ("python", "triton", "mlir")  # Shown without compiling.


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit status. Errors of the user are printed without a traceback."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["triton"]:  # All that follows belongs to the program.
        from ziggurat.triton.__main__ import main as run_program

        run_program(arguments[1:], "ziggurat triton")
        return 0
    if arguments[:2] == ["explore", "--triton"]:
        return _explore_program(arguments[2:])
    if arguments[:2] == ["debug", "--triton"]:
        from ziggurat.debugging.prompt import debug_program

        debug_program(arguments[2:])
        return 0
    if list(arguments) == ["debug", "--dap"]:
        from ziggurat.debugging.adapter import serve

        return serve()
    if arguments[:2] == ["debug", "--vscode"] and len(arguments) <= 3:
        from ziggurat.debugging.extension import write_extension

        return _answer(lambda: f"{write_extension(*arguments[2:])}\n")
    options = _parser().parse_args(arguments)
    return _answer(lambda: options.run(options))


def _answer(command: Callable[[], str]) -> int:
    """Write the text of a command, or its error; the exit status."""
    try:
        return _write(command())
    except ZigguratError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def _write(text: str) -> int:
    """Write to standard output, with escapes for what its encoding lacks; the exit status."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end.
        if isinstance(error, BrokenPipeError):
            return 0
        print(f"the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    return 0


_EXAMPLES = """\
examples:
  ziggurat triton program.py
  ziggurat show kernels.py:softmax "ptr<f32>, ptr<f32>, i32, 1024" --stage ptx
  ziggurat explain kernels.py:softmax "ptr<f32>, ptr<f32>, i32, 1024" --divisible n=16
  ziggurat simulate kernels.py:softmax "f32[4, 100], f32[4, 100], 100, 128" --grid 4
  ziggurat explore kernels.py:softmax "f32[4, 100], f32[4, 100], 100, 128" --grid 4
  ziggurat debug kernels.py:softmax "f32[4, 100], f32[4, 100], 100, 128" --grid 4 --program 1

`ziggurat COMMAND --help` has the options of a command. Types are written as models print them: ptr<f32> is a
pointer, i32 a run-time number, 1024 the value of a constexpr parameter.
"""


def _parser() -> argparse.ArgumentParser:
    as_module = Path(sys.argv[0]).name == "__main__.py"
    parser = argparse.ArgumentParser(
        prog="python -m ziggurat" if as_module else "ziggurat",
        description="Show, explore, explain, debug, simulate and build kernels, and run Triton programs.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ziggurat {ziggurat.__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(name: str, about: str, run: Callable[[argparse.Namespace], str]) -> argparse.ArgumentParser:
        parser = commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
        parser.set_defaults(run=run)
        return parser

    show = command("show", "print a kernel's code model at a tier", _show)
    _add_kernel(show)
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
    _add_options(show)
    _add_divisible(show)
    show.add_argument("--html", action="store_true", help="as HTML with colours")
    explain = command("explain", "say what a kernel asks of the GPU, by source line, and why not less", _explain)
    _add_kernel(explain)
    explain.add_argument(
        "types",
        nargs="?",
        default="",
        help='argument types and values: "ptr<f32>, i32, 64"; with --grid as for simulate',
    )
    explain.add_argument(
        "--grid", nargs="+", help="programs along each axis, for the whole launch; and its time where there is a GPU"
    )
    _add_options(explain)
    _add_divisible(explain)
    simulate = command("simulate", "run a kernel thread by thread on the host, and look for faults", _simulate)
    _add_launch(simulate)
    simulate.add_argument("--seed", type=int, default=0, help="when asynchronous work happens (default: 0, late)")
    simulate.add_argument("--optimized", action="store_true", help="the code after LLVM's passes")
    _add_options(simulate)
    explore = command(
        "explore", "write a page with a kernel at every tier, its values and where lines come from", _explore
    )
    _add_launch(explore)
    explore.add_argument("--program", help="the program whose values are shown: 2 or 1,0,0 (default: first and last)")
    explore.add_argument("--output", "-o", default="explore.html", help="the page (default: explore.html)")
    explore.add_argument(
        "--triton", action="store_true",
        help="as the first word: explore --triton [-o FOLDER] PROGRAM [ARGUMENT …] runs a Triton program and writes a "
        "page for each kernel that it launches",
    )  # fmt: skip
    _add_options(explore)
    debug = command("debug", "step through the programs of a launch, forward and back", _debug)
    _add_launch(debug)
    debug.add_argument("--program", default="0", help="the program in which to begin: 2 or 1,0,0 (default: 0)")
    debug.add_argument(
        "--triton", action="store_true",
        help="as the first word: debug --triton PROGRAM [ARGUMENT …] runs a Triton program, and stops at each kernel "
        "that it launches",
    )  # fmt: skip
    debug.add_argument(
        "--vscode", action="store_true",
        help="as the first word: debug --vscode [FOLDER] writes an extension for VS Code that runs the adapter",
    )  # fmt: skip
    debug.add_argument(
        "--dap", action="store_true", help="alone: an adapter of the Debug Adapter Protocol, for editors"
    )
    _add_options(debug)
    bisect = command("bisect", "find the first step that changes what a launch computes", _bisect)
    _add_launch(bisect)
    bisect.add_argument("--output", "-o", default="bisected.py", help="the report of a fault (default: bisected.py)")
    _add_options(bisect)
    build = command("build", "compile kernels into a folder for C and Python that needs no compiler", _build)
    build.add_argument("sources", nargs="+", metavar="SOURCE", help="recordings (.json), files (.py) and packages")
    build.add_argument("--output", "-o", required=True, help="the folder")
    build.add_argument(
        "--target", action="append", default=[], dest="targets",
        help="what to compile for: sm_90a, cpu, x86-64-v3 …; may be repeated (default: this GPU, or else cpu)",
    )  # fmt: skip
    build.add_argument(
        "--general", action="store_true", help="also a variant of each function for arguments of any divisibility"
    )
    build.add_argument("--name", help="the name of the library (default: the folder's)")
    build.add_argument("--jobs", "-j", type=int, help="processes (default: one for each processor)")
    miss = command("explain-miss", "say which argument made a launch miss a library", _explain_miss)
    miss.add_argument("folder", help="the folder of the library")
    miss.add_argument("kernel", help="the name of the kernel")
    miss.add_argument("arguments", help='arrays and values of the launch: "f32[1024], 1000, 64"')
    # Only for the list of commands: `main` hands the arguments on before they are parsed.
    commands.add_parser("triton", help="run a program that imports triton: program.py or -m module, and its arguments")
    passes = command("opt", "run passes on the models of a text", _opt)
    passes.add_argument("file", help="models or Triton's MLIR; - is standard input; // passes: cse dce names passes")
    passes.add_argument("--passes", default="", metavar="NAMES", help="the passes to run instead: cse,dce")
    passes.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="such as target=sm_80")
    load = "a Python file whose functions are passes by their names, and whose ops and types the text may have"
    passes.add_argument("--load", action="append", default=[], metavar="FILE", help=load)
    passes.add_argument("--verify-each", action="store_true", help="verify after each pass, not the last alone")
    passes.add_argument("--print-after", default="", metavar="NAMES", help="print the models after these too, or 'all'")
    passes.add_argument("--diff", action="store_true", help="print what each pass changes, in place of the model")
    passes.add_argument("--check", action="store_true", help="compare with the models after // becomes")
    passes.add_argument("--bless", action="store_true", help="write the models after // becomes into the file")
    verify = command("verify", "verify the models of a text, with the place of each mistake", _verify)
    verify.add_argument("file", help="models or Triton's MLIR; - is standard input")
    verify.add_argument("--load", action="append", default=[], metavar="FILE", help=load)
    run = command("run", "run the model of a text on arrays and values", _run)
    run.add_argument("file", help="a model or Triton's MLIR; - is standard input")
    run.add_argument("arguments", nargs="?", default="", help='drawn and saved arrays, and values: f32[64], "x.npy", 3')
    run.add_argument("--grid", nargs="+", default=["1"], help="programs along each axis (default: 1)")
    run.add_argument("--load", action="append", default=[], metavar="FILE", help=load)
    prove = command("prove", "prove that two models do the same, or find inputs for which they do not", _prove)
    prove.add_argument("files", nargs=2, metavar="FILE", help="a text file with a Triton or a GPU model")
    prove.add_argument("--bounds", type=int, help="iterations of a loop of unknown length (default: 4)")
    prove.add_argument(
        "--exact-floats", action="store_true", help="compute floats, in place of knowing functions by name"
    )
    cache = command("cache", "list or clear the compiled kernels kept on disk", _cache)
    cache.add_argument("what", nargs="?", choices=("list", "clear"), default="list")
    choices = command("choices", "list, clear, export or import the choices of zg.autotune", _choices)
    choices.add_argument("what", nargs="?", choices=("list", "clear", "export", "import"), default="list")
    choices.add_argument("file", nargs="?", help="the file to export to or import from")
    docs = command("docs", "print the reference of the language, the ops or the options", _docs)
    docs.add_argument("what", nargs="?", choices=("language", "ops", "options"), default="language")
    return parser


def _add_kernel(command: argparse.ArgumentParser) -> None:
    """The kernel as an argument of a command."""
    command.add_argument(
        "kernel", metavar="FILE:NAME", help="where the kernel is: in a file of Python, or of Triton-C (.tc, .c, .h)"
    )


def _add_launch(command: argparse.ArgumentParser) -> None:
    """The kernel, the arguments and the grid of a launch as arguments of a command."""
    _add_kernel(command)
    command.add_argument("arguments", help='arrays and values: "f32[1024], f16[64, 64; 16, 16], 1000, 64"')
    command.add_argument("--grid", nargs="+", default=["1"], help="programs along each axis (default: 1)")


def _add_divisible(command: argparse.ArgumentParser) -> None:
    """The divisibility of parameters as an argument of a command."""
    command.add_argument(
        "--divisible",
        action="append",
        default=[],
        metavar="NAME[,NAME…]=N",
        help="parameters that are known to be divisible by N, as with zg.divisible: x_ptr,n=16",
    )


def _add_options(command: argparse.ArgumentParser) -> None:
    """The options of compilation, and the macros of a Triton-C source, as arguments of a command."""
    for field in attrs.fields(CompileOptions):
        flag, documentation = f"--{field.name.replace('_', '-')}", documentation_of(field.name)
        default: Any = field.default
        if field.metadata["check"] is boolean:
            action = "store_true" if default is False else argparse.BooleanOptionalAction
            command.add_argument(flag, action=action, default=default, help=documentation)
        elif isinstance(default, bool):  # True, or a word.
            command.add_argument(flag, nargs="?", const=True, default=default, help=documentation)
        else:
            about = f"{documentation} (default: {default})"
            kind = str if isinstance(default, str) else int
            command.add_argument(flag, type=kind, default=default, help=about)
    command.add_argument(
        "-D",
        dest="macros",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a macro of a Triton-C source; of a list, -DTM=[32,64], the first value",
    )


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
        return report(kernel, options.types, _grid(options), _compile_options(kernel, options))
    arguments = _divisible(kernel, parse_values(options.types, "argument types"), options.divisible)
    compiled = _compiled(kernel, arguments, options)
    if compiled.target == CPU:
        raise LaunchError("explain must have a GPU as its target; got the target 'cpu'")
    return compiled.explain()


def _grid(options: argparse.Namespace) -> list[int]:
    """The sizes of a grid: `--grid 4 1` or `--grid 4,1`."""
    sizes = ",".join(options.grid).split(",")
    if not all(size.isdecimal() and int(size) for size in sizes):
        raise LaunchError(f"--grid must be sizes of one or more; got {' '.join(options.grid)}", hint="--grid 4 1")
    return list(map(int, sizes))


def _compile_options(kernel: Kernel, options: argparse.Namespace) -> dict[str, Any]:
    """The options of compilation that are no parameters of the kernel."""
    return {name: getattr(options, name) for name in COMPILE_OPTIONS if name not in kernel.signature.parameters}


def _simulate(options: argparse.Namespace) -> str:
    from ziggurat.launches.simulated import report

    kernel = find_kernel(options.kernel, options.macros)
    grid, compile_options = _grid(options), _compile_options(kernel, options)
    return report(kernel, options.arguments, grid, compile_options, seed=options.seed, optimized=options.optimized)


def _bisect(options: argparse.Namespace) -> str:
    """The outcome; an error where a step is wrong."""
    from ziggurat.launches.simulated import drawn

    kernel = find_kernel(options.kernel, options.macros)
    arguments, compile_options = drawn(options.arguments), _compile_options(kernel, options)
    outcome = ziggurat.bisect(kernel, tuple(_grid(options)), *arguments, **compile_options)
    if outcome.fault is None:
        return f"{outcome}\n"
    report = f"\na program that shows it again: {outcome.save(options.output)}" if outcome.fault.before else ""
    raise LaunchError(f"{outcome}{report}")


def _explore(options: argparse.Namespace) -> str:
    from ziggurat.launches.simulated import drawn

    kernel = find_kernel(options.kernel, options.macros)
    program = None if options.program is None else _program(options.program)
    explored = ziggurat.explore(
        kernel, tuple(_grid(options)), *drawn(options.arguments), program=program, **_compile_options(kernel, options)
    )
    return f"{explored.save(options.output)}\n"


def _program(text: str) -> tuple[int, ...]:
    """The indices of a program: `--program 1,0,0`."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise LaunchError(f"--program must be indices; got {text}", hint="--program 1,0,0")
    return tuple(map(int, parts))


def _debug(options: argparse.Namespace) -> str:
    from ziggurat.debugging.prompt import Prompt
    from ziggurat.launches.simulated import drawn

    kernel = find_kernel(options.kernel, options.macros)
    grid, choices = tuple(_grid(options)), _compile_options(kernel, options)
    session = ziggurat.debug(kernel, grid, *drawn(options.arguments), program=_program(options.program), **choices)
    Prompt(session).cmdloop()
    return ""


def _build(options: argparse.Namespace) -> str:
    from ziggurat.shipping.commands import build_command

    jobs = options.jobs
    if jobs is not None and jobs < 1:
        raise LaunchError(f"--jobs must be 1 or more; got {jobs}", hint="leave it out for one for each processor")
    return build_command(
        options.sources, options.output, options.targets, options.name, jobs or 0, options.general, load_module
    )


def _explain_miss(options: argparse.Namespace) -> str:
    from ziggurat.launches.simulated import drawn
    from ziggurat.shipping.commands import explain_miss

    return explain_miss(options.folder, options.kernel, drawn(options.arguments))


def _explore_program(arguments: Sequence[str]) -> int:
    """Run a Triton program and write a page for each of its kernels; all that follows its name belongs to it."""
    from ziggurat.exploring.programs import explore_program

    folder = "explored"
    if arguments[:1] in (["-o"], ["--output"]) and len(arguments) > 1:
        folder, arguments = arguments[1], arguments[2:]
    try:
        explore_program(arguments, Path(folder))
    except LaunchError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def _prove(options: argparse.Namespace) -> str:
    """The proof; an error where the models are not proved equal."""
    models = [ziggurat.parse(_read(Path(file))) for file in options.files]
    proof = ziggurat.prove(*models, bounds=options.bounds, exact_floats=options.exact_floats)
    if not proof:
        raise LaunchError(str(proof))
    return f"{proof}\n"


def _read(file: Path) -> str:
    """The text of a file. Raises `LaunchError` where it cannot be read."""
    if not file.is_file():
        raise LaunchError(f"there is no file {file}")
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LaunchError(f"'{file}' cannot be read: {error}") from None


def _opt(options: argparse.Namespace) -> str:
    """The models of a text after their passes; cases with titles keep them, and their passes."""
    from ziggurat.passes import cases, changes, renewed

    own = {name: function for path in options.load for name, function in _own_passes(load_module(path))}
    if options.check or options.bless:
        text, differences = renewed(_text(options.file), own)
        if options.bless and options.file != "-":
            Path(options.file).write_text(text, encoding="utf-8")
        elif differences:
            raise LaunchError("\n".join(differences), hint="--bless writes the results into the file")
        return f"{options.file}: {'renewed' if differences else 'as expected'}\n"
    more = dict(text.partition("=")[::2] for text in options.option)
    names: tuple[str, ...] = tuple(name for name in str(options.passes).split(",") if name)
    prints = set(options.print_after.split(","))
    texts: list[str] = []
    for case in cases(_text(options.file)):
        case = attrs.evolve(case, passes=(names,) if names else case.passes, options={**case.options, **more})
        steps = case.steps(case.passes[0], own, verify=options.verify_each)
        last = str(steps[-1].model)
        if options.diff:
            texts.append(changes(steps))
            continue
        printed = [step for step in steps[1:] if {step.name, "all"} & prints]
        texts += [f"// after {step.name}\n{str(step.model).strip()}\n" for step in printed]
        texts.append(str(attrs.evolve(case, after=last)) if case.title else f"{last.strip()}\n")
    return "\n".join(texts)


def _own_passes(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The functions that a module defines, by their names."""
    for name, value in vars(module).items():
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_"):
            yield name, value


def _verify(options: argparse.Namespace) -> str:
    """The number of ops of the models, which are right; an error where one is not."""
    from ziggurat.passes import cases

    for path in options.load:
        load_module(path)
    models = [case.model for case in cases(_text(options.file))]
    for model in models:
        ziggurat.verify(model)
    counts = [sum(1 for _ in model.walk()) for model in models]
    return "".join(f"verified: {count} ops\n" for count in counts)


def _run(options: argparse.Namespace) -> str:
    """What the model of a text gives, or changes."""
    from ziggurat.passes import cases, executed

    for path in options.load:
        load_module(path)
    models = [case.model for case in cases(_text(options.file))]
    if len(models) != 1:
        raise LaunchError(f"'{options.file}' must have one model; got {len(models)}")
    return executed(models[0], options.arguments, _grid(options))


def _text(file: str) -> str:
    """The text of a file, or of standard input. Raises `LaunchError` where it cannot be read."""
    if file != "-":
        return _read(Path(file))
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise LaunchError(f"standard input cannot be read: {error}") from None


def _cache(options: argparse.Namespace) -> str:
    """The list of kept kernels, or the number of removed ones."""
    from ziggurat.backend.cuda.cache import Cache
    from ziggurat.backend.jit.objects import Objects

    kernels = Cache()
    directory = kernels.directory
    caches = kernels, Objects(directory)
    if options.what == "clear":
        return f"removed {sum(cache.clear() for cache in caches)} kernel(s) from {directory}\n"
    entries = (entry for cache in caches for entry in cache.entries())
    return _listing("kernel", directory, (f"{e.key[:16]}  {e.size:>9} bytes  {e.target}  {e.name}" for e in entries))


def _choices(options: argparse.Namespace) -> str:
    """The list of kept choices of tuning, or the number of those removed, exported or imported."""
    from ziggurat.backend.cache.records import Records

    records = Records()
    if options.file is not None and options.what in ("list", "clear"):
        raise LaunchError(f"choices {options.what} takes no file; got '{options.file}'")
    if options.what == "clear":
        return f"removed {records.clear()} choice(s) from {records.directory}\n"
    if options.what != "list":
        if options.file is None:
            raise LaunchError(f"choices {options.what}: a file is missing")
        count = records.export(options.file) if options.what == "export" else records.import_(options.file)
        return f"{options.what}ed {count} choice(s)\n"
    lines: list[str] = []
    for record in records.all():
        about = record.about
        key = ", ".join(f"{name}={value}" for name, value in about["key"].items())
        types = ", ".join(about["types"].values())
        best = f"  {record.times[record.config]:.4g} ms" if record.config in record.times else ""
        lines.append(f"{about['kernel']}({key}) of {types} on {about['device']}: {record.config}{best}")
    return _listing("choice", records.directory, lines)


def _listing(noun: str, directory: Path, lines: Iterable[str]) -> str:
    """The entries of a folder, with escapes in place of control characters, which a terminal would obey."""
    plain = ["".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line) for line in lines]
    return "\n".join([f"{len(plain)} {noun}(s) in {directory}", *plain]) + "\n"


def _docs(options: argparse.Namespace) -> str:
    if options.what == "ops":
        from ziggurat.codemodel.catalogue import catalogue

        return catalogue()
    if options.what == "options":
        return options_table()
    from ziggurat.frontends.language.reference import reference

    return reference()


def _raised(error: Exception, file: Path) -> Location | None:
    """The last place in the file that an exception came from."""
    if isinstance(error, SyntaxError):
        return Location(error.filename or str(file.resolve()), error.lineno or 1, max(0, (error.offset or 1) - 1))
    frames = reversed(traceback.extract_tb(error.__traceback__))
    at = next((frame for frame in frames if Path(frame.filename).resolve() == file.resolve()), None)
    if at is None or at.lineno is None:
        return None
    return Location(at.filename, at.lineno, at.colno or 0, at.end_lineno or at.lineno, at.end_colno or 0)


def _macro(text: str) -> tuple[str, Any]:
    """A macro of the command line: `TM=64`, `TYPE=float`, `TM=[32, 64]`; a name alone is defined as 1."""
    name, equals, value = text.partition("=")
    if not equals:
        return name, 1

    def number(part: str) -> Any:
        return int(part) if re.fullmatch(r"-?\d+", part.strip()) else part.strip()

    if value.strip().startswith("[") and value.strip().endswith("]"):
        return name, [number(part) for part in value.strip()[1:-1].split(",")]
    return name, number(value)


def load_module(path: str) -> ModuleType:
    """The module of a file of Python, run now. Raises `LaunchError` for what it raises."""
    file = Path(path)
    if not file.is_file():
        raise LaunchError(f"there is no file '{path}'")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise LaunchError(f"'{path}' is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)
    sys.path.insert(0, str(file.resolve().parent))
    try:
        with contextlib.redirect_stdout(sys.stderr):  # Only the stage goes to standard output.
            spec.loader.exec_module(module)
    except ZigguratError:
        raise
    except SystemExit as error:
        raise LaunchError(
            f"'{path}' ends the program (exit status {error.code}) when it is imported",
            hint="put the main program under: if __name__ == '__main__':",
        ) from None
    except Exception as error:  # The module of a user may raise anything.
        reason = error.msg if isinstance(error, SyntaxError) else error
        summary = f"'{path}' cannot be read: {type(error).__name__}: {reason}"
        as_triton = isinstance(error, ModuleNotFoundError) and error.name == "triton"
        hint = "let ziggurat be its triton: python -m ziggurat.triton -m ziggurat …" if as_triton else None
        raise LaunchError(summary, _raised(error, file), hint=hint) from None
    return module


def find_kernel(place: str, macros: Sequence[str] = (), functions: bool = False) -> Kernel:
    """The kernel at `FILE:NAME`; with `functions`, a function of the language as well."""
    path, colon, name = place.rpartition(":")
    if not colon and place.endswith(_TRITON_C):
        path, name = place, None
    if not path:
        raise LaunchError(f"'{place}' does not name a kernel", hint="write FILE.py:NAME")
    file = Path(path)
    if not file.is_file():
        raise LaunchError(f"there is no file '{path}'")
    if path.endswith(_TRITON_C):
        kernel = ziggurat.triton_c(file, name, **dict(map(_macro, macros)))
        return kernel.base if isinstance(kernel, Tuned) else kernel
    if macros or name is None:
        raise LaunchError(
            f"-D must go with a Triton-C source; got '{path}'", hint="give constexpr parameters as values"
        )
    module = load_module(path)
    kernel: Any = getattr(module, name, None)
    kernel = kernel.base if isinstance(kernel, Tuned) else kernel
    if isinstance(kernel, Function) and not isinstance(kernel, Kernel) and not functions:
        raise LaunchError(f"'{name}' must be a kernel; got a zg.function", hint="show its Python model: --stage python")
    if not isinstance(kernel, Function):
        kernels = [key for key, value in vars(module).items() if isinstance(value, Kernel | Tuned)]
        raise LaunchError(
            f"there is no kernel '{name}' in '{path}'",
            hint=f"it has {', '.join(kernels)}" if kernels else "it has none",
        )
    return kernel  # pyright: ignore[reportReturnType]
