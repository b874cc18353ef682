"""The command line: `ziggurat`, or `python -m ziggurat`."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import ziggurat
from ziggurat.cli import build, launch, records, show, text
from ziggurat.codemodel.errors import LaunchError, ZigguratError


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

    for commands_of in (show, launch, build):
        commands_of.add(command)
    # Only for the list of commands: `main` hands the arguments on before they are parsed.
    commands.add_parser("triton", help="run a program that imports triton: program.py or -m module, and its arguments")
    for commands_of in (text, records):
        commands_of.add(command)
    return parser


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
