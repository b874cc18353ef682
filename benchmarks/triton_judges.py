"""Triton's programs on ziggurat and on the installed Triton, in one run: test suites, and programs with results.

    python benchmarks/triton_judges.py report.json [--suite NAME=PATH …] [--programs NAME=FOLDER …] [--jobs N] [--cpu]
        [--select EXPRESSION] [--sample N] [--each N] [--tuning first] [--both] [--stand-in]

Nothing is fetched: the paths are those of test files or folders (of Triton, of Liger-Kernel), and of folders of
programs. A suite is run by pytest; a test that fails is run by Triton as well, and listed if Triton passes it. With
`--both` Triton runs all tests. A suite's own configuration of pytest lies in its folder, and the packages that it tests
are on PYTHONPATH. `--each 1` runs one parametrisation of each test function, the middle one, and `--tuning first` gives
each autotuner of both compilers one configuration. `--stand-in` only imports the tests, and needs no GPU. A program is
a Python file that leaves its results in a global `result_gold`; both run it with the same seeds, the results
are compared, and the time of each kernel is taken from PyTorch's profiler. `--cpu` runs ziggurat alone, on tensors in
host memory.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import pickle
import random
import runpy
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve()
# Seconds for one program.
PROGRAM_LIMIT = 60
# How many failures of a suite are printed; the report has all.
SHOWN = 40
# Largest difference of two results, in units of the largest magnitude: of 16-bit floats, and of others (dots are tf32).
ROUGH, FINE = 2e-2, 2e-3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("--suite", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--programs", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--select", help="pytest's -k for every suite")
    parser.add_argument("--sample", type=int, default=0, help="run every N-th test and program")
    parser.add_argument("--each", type=int, default=0, help="run N parametrisations of each test function")
    parser.add_argument("--tuning", choices=("full", "first"), default="full")
    parser.add_argument("--both", action="store_true", help="run all tests by Triton too")
    parser.add_argument("--stand-in", action="store_true", help="import the tests as if there were a GPU, run none")
    parser.add_argument("--seconds", type=int, default=120, help="for a test")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--limit", type=int, default=540, help="seconds for a suite by a compiler, or a folder")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--pytest", default="", help="further options of pytest")
    parser.add_argument("--run-program", nargs=2, type=Path, metavar=("FILE", "OUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_program:
        run_program(*options.run_program)
        return 0
    report: dict[str, Any] = {"suites": {}, "programs": {}}
    for name, path in named(options.suite):
        report["suites"][name] = suite(path, options)
        options.report.write_text(json.dumps(report, indent=1))
        print(name, report["suites"][name]["counts"], flush=True)
        for group in ("only ours fails", "ours fails, not run by Triton"):
            for test, text in list(report["suites"][name][group].items())[:SHOWN]:
                print(f"    {group}: {test}: {' '.join(text.split())[-300:]}", flush=True)
    for name, path in named(options.programs):
        report["programs"][name] = programs(path, options)
        options.report.write_text(json.dumps(report, indent=1))
        print(name, report["programs"][name]["counts"], flush=True)
    return 0


def named(pairs: Sequence[str]) -> Iterator[tuple[str, Path]]:
    for pair in pairs:
        name, _, path = pair.partition("=")
        yield name, Path(path).resolve()


def command(ours: bool, *arguments: str) -> list[str]:
    """The command that runs Python on ziggurat's `triton`, or on the installed one."""
    return [sys.executable, *(("-m", "ziggurat.triton") if ours else ()), *arguments]


# Suites.


def suite(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The outcomes of a suite by both compilers. Triton runs the tests that ours fails, or all of them."""
    ours, reached = outcomes(path, options)
    failed = [name for name, (outcome, _) in ours.items() if outcome == "failed"]
    theirs: dict[str, tuple[str, str]] = {}
    if (failed or options.both) and not (options.cpu or options.stand_in):
        theirs, _ = outcomes(path, options, None if options.both else failed, ours=False)
    groups: dict[str, dict[str, str]] = {
        "only ours fails": {name: ours[name][1] for name in failed if theirs.get(name, ("",))[0] == "passed"},
        "both fail": {
            name: f"{ours[name][1]}\nTriton: {theirs[name][1]}"
            for name in failed
            if theirs.get(name, ("passed",))[0] != "passed"
        },
        "ours fails, not run by Triton": {name: ours[name][1] for name in failed if name not in theirs},
        "only Triton's fails": {
            name: text
            for name, (outcome, text) in theirs.items()
            if outcome == "failed" and ours.get(name, ("",))[0] == "passed"
        },
    }
    of = [outcome for outcome, _ in ours.values()]
    counts = {"tests": reached, "passed": of.count("passed"), "skipped": of.count("skipped")}
    counts |= {name: len(tests) for name, tests in groups.items()} | {"not run": max(0, reached - len(ours))}
    return {"counts": counts, **groups}


def outcomes(
    path: Path, options: argparse.Namespace, only: Sequence[str] | None = None, ours: bool = True
) -> tuple[dict[str, tuple[str, str]], int]:
    """The outcome of each test of a suite, or of those of `only`, and what it says; and the number of tests."""
    with tempfile.TemporaryDirectory() as folder:
        results, selection = Path(folder, "outcomes"), Path(folder, "wanted")
        arguments = ["-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", "-p", "judged_tests", str(path)]
        # The settings of ours would make errors of warnings.
        arguments += ["-o", "filterwarnings=", "--continue-on-collection-errors"]
        arguments += ["-n", str(options.jobs), "--max-worker-restart=200"] if options.jobs > 1 else []
        arguments += ["-k", options.select] if options.select else []
        arguments += options.pytest.split()
        by = "ziggurat" if ours else "triton"
        env = dict(
            os.environ,
            JUDGED_BY=by,
            JUDGED_OUT=str(results),
            JUDGED_TUNING=options.tuning,
            JUDGED_SECONDS=str(options.seconds),
            JUDGED_STAND_IN=str(int(options.stand_in)),
            PYTHONPATH=f"{HERE.parent}:{os.environ.get('PYTHONPATH', '')}",
        )
        if only is None:
            env |= {"JUDGED_SAMPLE": str(options.sample), "JUDGED_EACH": str(options.each)}
        else:
            selection.write_text(json.dumps(only))
            env["JUDGED_ONLY"] = str(selection)
        start = time.monotonic()
        with Path(folder, "output").open("w+") as output:
            child = subprocess.Popen(
                [sys.executable, *arguments], stdout=output, stderr=output, env=env, start_new_session=True
            )
            try:
                child.wait(options.limit)
            except subprocess.TimeoutExpired:
                print(path.name, f"took over {options.limit} s by {by}", flush=True)
                os.killpg(child.pid, signal.SIGKILL)
            output.seek(0)
            text = output.read()
        print(f"{by}:", *text.splitlines()[-1:], f"{time.monotonic() - start:.0f} s")
        lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
        if not lines or child.returncode not in (0, 1, 5, -signal.SIGKILL):
            print(text[-2000:], flush=True)
        by_name: dict[str, tuple[str, str]] = {}
        for name, outcome, message in lines:
            if name and by_name.get(name, ("",))[0] != "failed":  # A process that ends after a failure is one failure.
                by_name[name] = (outcome, message)
        return by_name, sum(int(message) for name, _, message in lines if not name)


# Programs.


class Result(NamedTuple):
    """A tensor of a program's results: its numbers in f64, and the bits of an element as the program has it."""

    array: Any
    bits: int


def programs(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The verdict on each program of a folder, and the ratio of the times of its kernels under both compilers."""
    files = sorted(folder.glob("*.py"))[:: max(1, options.sample)]
    verdicts: dict[str, dict[str, Any]] = {}
    end = time.monotonic() + options.limit

    def one(path: Path) -> None:
        if time.monotonic() > end:
            return
        ours = program(True, path)
        verdicts[path.stem] = verdict = judged(ours, None if options.cpu else program(False, path))
        if verdict["verdict"] == "different":
            # Programs that read what they have not written, or that add in any order, differ from themselves.
            noise = program(False, path)
            verdicts[path.stem] = judged(ours, program(False, path), noise)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, files))
    counts: dict[str, int] = {}
    for verdict in verdicts.values():
        counts[verdict["verdict"]] = counts.get(verdict["verdict"], 0) + 1
    counts["not run"] = len(files) - len(verdicts)
    return {"counts": counts, "programs": dict(sorted(verdicts.items()))}


def program(ours: bool, path: Path) -> dict[str, Any]:
    """The result of a program that is run in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "found")
        line = command(ours, str(HERE), "-", "--run-program", str(path), str(out))
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=PROGRAM_LIMIT, check=False)
        except subprocess.TimeoutExpired:
            return {"error": f"took over {PROGRAM_LIMIT} s"}
        return pickle.loads(out.read_bytes()) if out.exists() else {"error": done.stderr[-600:]}


def judged(ours: dict[str, Any], theirs: dict[str, Any] | None, again: dict[str, Any] | None = None) -> dict[str, Any]:
    """The comparison of a program's result with Triton's; `again` is the result of another run of Triton."""
    if theirs is None:
        return {"verdict": "failed", "error": ours["error"]} if "error" in ours else {"verdict": "ran"}
    if "error" in theirs:
        return {
            "verdict": "fails with Triton",
            "ours": "fails" if "error" in ours else "runs",
            "triton": theirs["error"],
        }
    if "error" in ours:
        return {"verdict": "failed", "error": ours["error"]}
    difference = distance(ours["results"], theirs["results"])
    noise = distance(again["results"], theirs["results"]) if again and "results" in again else 0.0
    same = difference is not None and difference <= max(1.0, 2 * (noise or 0.0))
    shared = ours["kernels"].keys() & theirs["kernels"].keys()
    return {
        "verdict": "same" if same else "different" if noise is not None and noise <= 1 else "noisy with Triton",
        "difference": difference,
        "noise": noise,
        "speed": {name: round(theirs["kernels"][name] / ours["kernels"][name], 3) for name in sorted(shared)},
        "microseconds": {name: round(ours["kernels"][name], 2) for name in sorted(shared)},
        "seconds": [round(run["seconds"], 2) for run in (ours, theirs)],
    }


def distance(ours: Any, theirs: Any) -> float | None:
    """The largest difference in units of what is allowed; None for results of unlike structure."""
    import numpy as np

    if isinstance(theirs, dict):
        if not isinstance(ours, dict) or ours.keys() != theirs.keys():
            return None
        ours, theirs = list(ours.values()), list(theirs.values())
    if isinstance(theirs, list):
        if not isinstance(ours, list) or len(ours) != len(theirs):
            return None
        parts = [distance(a, b) for a, b in zip(ours, theirs, strict=True)]
        return None if None in parts else max([part for part in parts if part is not None], default=0.0)
    if not isinstance(theirs, Result):
        return 0.0 if type(ours) is type(theirs) else None
    if not isinstance(ours, Result) or ours.array.shape != theirs.array.shape:
        return None
    if not theirs.array.size:
        return 0.0
    a, b = ours.array.astype(np.float64), theirs.array.astype(np.float64)
    wrong = np.isfinite(a) != np.isfinite(b)
    good = np.isfinite(a) & np.isfinite(b)
    largest = max(float(np.abs(b[good]).max(initial=0.0)), 1e-6)
    allowed = largest * (ROUGH if theirs.bits <= 16 else FINE)
    return math.inf if wrong.any() else float(np.abs(a[good] - b[good]).max(initial=0.0)) / allowed


def run_program(path: Path, out: Path) -> None:
    """Run a program, and write its results as NumPy arrays, its seconds, and microseconds a launch of its kernels."""
    import numpy as np
    import torch

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            seed(torch, np)
            start = time.monotonic()
            names = runpy.run_path(str(path), run_name="__main__")
            report: dict[str, Any] = {"results": plain(names.get("result_gold")), "seconds": time.monotonic() - start}
            report["kernels"] = kernel_times(names) if torch.cuda.is_available() else {}
        except BaseException as error:
            lines = traceback.format_exc().splitlines()
            place = next((line.strip() for line in reversed(lines) if str(path) in line), "")
            report = {"error": f"{type(error).__name__}: {str(error)[:600]} [{place}]"}
    out.write_bytes(pickle.dumps(report))


def seed(torch: Any, np: Any) -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


def plain(value: Any) -> Any:
    """Results with tensors and numbers as `Result`; what is no tensor, number or container is left out."""
    import numpy as np

    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "detach"):
        import torch

        value = value.detach().cpu()
        return Result(value.to(torch.float64).numpy(), 8 * value.element_size())
    return Result(np.float64(value), 64) if isinstance(value, int | float) else None


def kernel_times(names: Mapping[str, Any]) -> dict[str, float]:
    """Microseconds of each kernel that the program's test launches, the median of its launches."""
    import torch

    tests = [value for name, value in names.items() if name.startswith("test") and callable(value)]
    if not tests:
        return {}
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CUDA, activity.CPU]) as profile:
        for _ in range(3):
            for test in tests:
                with contextlib.suppress(Exception):
                    test()
        torch.cuda.synchronize()
    times: dict[str, list[float]] = {}
    for event in profile.events():
        if str(event.device_type).endswith("CUDA"):
            times.setdefault(event.name, []).append(event.device_time)
    return {name: statistics.median(times) for name, times in times.items() if "::" not in name and "Mem" not in name}


if __name__ == "__main__":
    sys.exit(main())
