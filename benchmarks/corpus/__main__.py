"""The code of other people's Triton programs, by our compiler and by Triton's, without a GPU.

    python benchmarks/corpus record VARIANTS PROGRAM …        records the launches of a program
    python benchmarks/corpus compile VARIANTS … [-o RESULTS] [--folder F] [--triton T] [--only TEXT] [--count N]
                                               [--keep F] [--processes N]
    python benchmarks/corpus table RESULTS                    prints the table of a file of results again
    python benchmarks/corpus explain VARIANTS NAME            says why our code of a variant is not better
    python benchmarks/corpus judge VARIANTS … [--folder F] [--only TEXT] [--count N] [--keep FILE]
                                                              interprets variants after each pass
    python benchmarks/corpus time VARIANTS … [-o TIMES] [--folder F] [--seconds S] [--jobs N] [--dry]
                                                              times recorded launches with both, on a GPU
    python benchmarks/corpus library FOLDER PACKAGE [--keep F] [--triton T]
                                                              compiles the kernels of a wheel, with guessed types

README.md in this folder describes each step.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "results" / "corpus.json"
TRITON = "/opt/triton36"


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks/corpus", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("--configurations", type=int, default=2, help="so many of an autotuner's")
    recording.add_argument("variants")
    recording.add_argument("program")
    recording.add_argument("arguments", nargs=argparse.REMAINDER)
    compiling = commands.add_parser("compile")
    compiling.add_argument("variants", nargs="+")
    compiling.add_argument("-o", "--output", default=str(FILE))
    compiling.add_argument("--folder", action="append", default=[], help="a folder that modules are imported from")
    compiling.add_argument("--triton", default=TRITON, help="the folder that has Triton 3.6")
    compiling.add_argument("--only", default="", help="variants whose names have this text")
    compiling.add_argument("--processes", type=int, default=1, help="so many of each compiler at a time")
    compiling.add_argument("--keep", default="", help="a folder that keeps results, for a call that goes on")
    compiling.add_argument("--count", type=int, default=10**9, help="so many variants, spread over all")
    tabling = commands.add_parser("table")
    tabling.add_argument("results", nargs="?", default=str(FILE))
    explaining = commands.add_parser("explain")
    explaining.add_argument("variants")
    explaining.add_argument("name")
    explaining.add_argument("--folder", action="append", default=[])
    judging = commands.add_parser("judge")
    judging.add_argument("variants", nargs="+")
    judging.add_argument("--folder", action="append", default=[])
    judging.add_argument("--only", default="", help="variants whose names have this text")
    judging.add_argument("--count", type=int, default=10**9, help="so many variants, spread over all")
    judging.add_argument("--keep", type=Path, help="a file that keeps outcomes, for a call that goes on")
    timing = commands.add_parser("time")
    timing.add_argument("variants", nargs="+")
    timing.add_argument("-o", "--output", type=Path, help="a file for the times")
    timing.add_argument("--folder", action="append", default=[], help="a folder that modules are imported from")
    timing.add_argument("--triton", default=TRITON, help="the folder that has Triton 3.6, if it is not installed")
    timing.add_argument("--only", default="", help="variants whose names have this text")
    timing.add_argument("--seconds", type=float, default=float("inf"), help="no new variant after so many")
    jobs = max(1, (os.cpu_count() or 2) // 2)
    timing.add_argument("--jobs", type=int, default=jobs, help="so many processes of each compiler compile")
    timing.add_argument("--dry", action="store_true", help="compile and launch nothing, without a GPU")
    guessing = commands.add_parser("library")
    guessing.add_argument("folder", help="the folder that has the package: an unpacked wheel")
    guessing.add_argument("package")
    guessing.add_argument("--keep", default="", help="a folder that keeps results, for a call that goes on")
    guessing.add_argument("--triton", default=TRITON, help="the folder that has Triton 3.6")
    options = parser.parse_args()
    if options.command == "record":
        import record

        record.record(options.variants, options.program, options.arguments, options.configurations)
    elif options.command == "compile":
        import compare

        with tempfile.TemporaryDirectory() as scratch:
            compare.compile(
                options.variants, Path(options.output), options.folder, options.triton, options.only, options.count,
                Path(options.keep or scratch), options.processes,
            )  # fmt: skip
    elif options.command == "table":
        import compare

        print(compare.report(json.loads(Path(options.results).read_text("utf-8"))))
    elif options.command == "explain":
        import one_compiler
        import variants

        one_compiler.set_up("ours", options.folder)
        for name, variant in variants.read([options.variants]):
            if options.name in name:
                options_of_variant = one_compiler.options_of(variant, "ours")
                source, numbers = variants.source_of(variant), variants.numbers_of(variant)
                print(name, one_compiler.explained(source, options_of_variant, numbers), sep="\n")
    elif options.command == "judge":
        import judge
        import one_compiler

        one_compiler.set_up("ours", options.folder)
        judge.judge(options.variants, options.only, options.count, options.keep)
    elif options.command == "library":
        import library

        with tempfile.TemporaryDirectory() as scratch:
            keep = options.keep or scratch
            for side, path in (("ours", ""), ("theirs", options.triton)):
                environment = {**os.environ, "PYTHONPATH": path} if path else None
                command = [sys.executable, library.__file__, side, options.folder, options.package, keep]
                subprocess.run(command, env=environment, check=False)
            print(library.report(Path(keep)))
    else:
        import clock

        clock.time(options)


if __name__ == "__main__":
    sys.exit(main())
