"""Commands that launch a kernel on the host: to find faults, to look at values, to step."""

from __future__ import annotations

import argparse

import ziggurat
from ziggurat.cli.arguments import AddCommand, add_launch, add_options, compile_options_of, grid_of
from ziggurat.cli.sources import find_kernel
from ziggurat.codemodel.errors import LaunchError


def add(command: AddCommand) -> None:
    """Add the commands."""
    simulate = command("simulate", "run a kernel thread by thread on the host, and look for faults", _simulate)
    add_launch(simulate)
    simulate.add_argument("--seed", type=int, default=0, help="when asynchronous work happens (default: 0, late)")
    simulate.add_argument("--optimized", action="store_true", help="the code after LLVM's passes")
    add_options(simulate)
    explore = command(
        "explore", "write a page with a kernel at every tier, its values and where lines come from", _explore
    )
    add_launch(explore)
    explore.add_argument("--program", help="the program whose values are shown: 2 or 1,0,0 (default: first and last)")
    explore.add_argument("--output", "-o", default="explore.html", help="the page (default: explore.html)")
    explore.add_argument(
        "--triton", action="store_true",
        help="as the first word: explore --triton [-o FOLDER] PROGRAM [ARGUMENT …] runs a Triton program and writes a "
        "page for each kernel that it launches",
    )  # fmt: skip
    add_options(explore)
    debug = command("debug", "step through the programs of a launch, forward and back", _debug)
    add_launch(debug)
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
    add_options(debug)
    bisect = command("bisect", "find the first step that changes what a launch computes", _bisect)
    add_launch(bisect)
    bisect.add_argument("--output", "-o", default="bisected.py", help="the report of a fault (default: bisected.py)")
    add_options(bisect)


def _simulate(options: argparse.Namespace) -> str:
    from ziggurat.launches.simulated import report

    kernel = find_kernel(options.kernel, options.macros)
    grid, compile_options = grid_of(options), compile_options_of(kernel, options)
    return report(kernel, options.arguments, grid, compile_options, seed=options.seed, optimized=options.optimized)


def _bisect(options: argparse.Namespace) -> str:
    """The outcome; an error where a step is wrong."""
    from ziggurat.launches.simulated import drawn

    kernel = find_kernel(options.kernel, options.macros)
    arguments, compile_options = drawn(options.arguments), compile_options_of(kernel, options)
    outcome = ziggurat.bisect(kernel, tuple(grid_of(options)), *arguments, **compile_options)
    if outcome.fault is None:
        return f"{outcome}\n"
    report = f"\na program that shows it again: {outcome.save(options.output)}" if outcome.fault.before else ""
    raise LaunchError(f"{outcome}{report}")


def _explore(options: argparse.Namespace) -> str:
    from ziggurat.launches.simulated import drawn

    kernel = find_kernel(options.kernel, options.macros)
    program = None if options.program is None else _program(options.program)
    explored = ziggurat.explore(
        kernel,
        tuple(grid_of(options)),
        *drawn(options.arguments),
        program=program,
        **compile_options_of(kernel, options),
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
    grid, choices = tuple(grid_of(options)), compile_options_of(kernel, options)
    session = ziggurat.debug(kernel, grid, *drawn(options.arguments), program=_program(options.program), **choices)
    Prompt(session).cmdloop()
    return ""
