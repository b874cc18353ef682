"""`ziggurat build` and `ziggurat explain-miss`: libraries of compiled kernels."""

from __future__ import annotations

import argparse

from ziggurat.cli.arguments import AddCommand
from ziggurat.cli.sources import load_module
from ziggurat.codemodel.errors import LaunchError


def add(command: AddCommand) -> None:
    """Add the commands."""
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
