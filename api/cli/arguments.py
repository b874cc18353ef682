"""Arguments that several commands have: a kernel, a launch, options of compilation."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import attrs

from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.options import COMPILE_OPTIONS, CompileOptions, boolean, documentation_of
from ziggurat.kernels.kernel import Kernel

# Adds a command: its name, what it does, and the function of its options that gives the text to print.
AddCommand = Callable[[str, str, Callable[[argparse.Namespace], str]], argparse.ArgumentParser]


def add_kernel(command: argparse.ArgumentParser) -> None:
    """The kernel as an argument of a command."""
    command.add_argument(
        "kernel", metavar="FILE:NAME", help="where the kernel is: in a file of Python, or of Triton-C (.tc, .c, .h)"
    )


def add_launch(command: argparse.ArgumentParser) -> None:
    """The kernel, the arguments and the grid of a launch as arguments of a command."""
    add_kernel(command)
    command.add_argument(
        "arguments", help='drawn and saved arrays, and values: f32[1024], f16[64, 64; 16, 16], "x.npy", 1000'
    )
    command.add_argument("--grid", nargs="+", default=["1"], help="programs along each axis (default: 1)")


def add_divisible(command: argparse.ArgumentParser) -> None:
    """The divisibility of parameters as an argument of a command."""
    command.add_argument(
        "--divisible",
        action="append",
        default=[],
        metavar="NAME[,NAME…]=N",
        help="parameters that are known to be divisible by N, as with zg.divisible: x_ptr,n=16",
    )


def add_options(command: argparse.ArgumentParser) -> None:
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


def grid_of(options: argparse.Namespace) -> list[int]:
    """The sizes of a grid: `--grid 4 1` or `--grid 4,1`."""
    sizes = ",".join(options.grid).split(",")
    if not all(size.isdecimal() and int(size) for size in sizes):
        raise LaunchError(f"--grid must be sizes of one or more; got {' '.join(options.grid)}", hint="--grid 4 1")
    return list(map(int, sizes))


def compile_options_of(kernel: Kernel, options: argparse.Namespace) -> dict[str, Any]:
    """The options of compilation that are no parameters of the kernel."""
    return {name: getattr(options, name) for name in COMPILE_OPTIONS if name not in kernel.signature.parameters}
