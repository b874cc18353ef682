"""The planted faults of tests/support under our sanitizers on a GPU, and under those of an installed Triton.

    benchmarks/on_device.sh python3 benchmarks/sanitizer_comparison.py "$OUT" [--seconds 400] [--only NAME]

For each kernel of the suite, a process launches it by Triton with one of its sanitizers: with `debug` (assertions of
integer overflow, `sanitize_overflow`), and with each mode of `TRITON_INSTRUMENTATION_MODE` that this Triton has
(`consan` in 3.6; newer ones have `gsan`, `fpsan` and `iisan` as well). A kernel counts as reported if a device
assertion fails, or the driver finds a stray access; another failure is a failure of the tool. Another process launches
all by ours, with `sanitize=` the sanitizer of the fault, and with all for right kernels. Several kernels share a
process as long as none fails: after a fault the context is gone.

The folder gets `comparison.json`, with each outcome, and `comparison.md`, a table: the faults of each kind that each
tool reports, and the right kernels that it reports. Triton needs PyTorch. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from results import table  # noqa: E402
from sanitizer_kernels import right_cases, special_cases  # noqa: E402
from sanitizer_suite import Case, cases, lines_of, program  # noqa: E402

ALL = [*cases(), *special_cases(), *right_cases()]
KINDS = ("races", "bounds", "overflow", "undefined", "nan", "")
_MODES = ("consan", "gsan", "fpsan", "iisan")
_SECONDS_A_KERNEL = 60
# What an assertion of a sanitizer prints, and what the driver says of one or of a stray access.
_REPORTS = re.compile(
    r"device-side assert|Assertion `|overflow detected|illegal memory access|\brace\b|out of bounds", re.I
)


def module_of(language: str, folder: Path) -> Any:
    """The module of all kernels for Triton or for ziggurat."""
    file = folder / f"suite_{language}.py"
    file.write_text(program(ALL, language))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def modes_of_triton() -> list[str]:
    """The instrumentation modes that the compiler of the installed Triton names."""
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        return []
    text = (Path(spec.origin).parent / "backends" / "nvidia" / "compiler.py").read_text()
    return [mode for mode in _MODES if mode in text]


def run_triton(names: Sequence[str], folder: Path, debug: bool) -> None:
    """Launch kernels by Triton, and print a line for each that ends without an error."""
    import torch
    import triton

    module = module_of("triton", folder)
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    options = {"debug": True} if debug else {}
    for case in ALL:
        if case.name in names:
            arrays = [torch.from_numpy(a).cuda() if hasattr(a, "shape") else a for a in case.arguments()]
            if case.shared:
                arrays[0] = arrays[1][1:]
            print("begin", case.name, flush=True)
            getattr(module, case.name)[case.grid](*arrays, **options)
            torch.cuda.synchronize()
            print("end", case.name, flush=True)


def outcomes_of_triton(mode: str, names: Sequence[str], folder: Path, deadline: float) -> dict[str, str]:
    """Whether each kernel is "reported" or "silent" with a mode of Triton; a line of what was printed follows."""
    outcomes: dict[str, str] = {}
    rest = list(names)
    while rest and time.monotonic() < deadline:
        environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / f"cache-{mode}")}
        if mode not in ("none", "overflow"):
            environment["TRITON_INSTRUMENTATION_MODE"] = mode
        command = [sys.executable, __file__, str(folder), "--child", mode, "--names", ",".join(rest)]
        seconds = max(1.0, min(deadline - time.monotonic(), _SECONDS_A_KERNEL + 2.0 * len(rest)))
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=seconds)
            lines, errors = done.stdout.splitlines(), done.stderr
        except subprocess.TimeoutExpired as expired:
            lines, errors = (expired.stdout or b"").decode().splitlines(), "took too long"
        ended = [line.split()[1] for line in lines if line.startswith("end ")]
        outcomes |= dict.fromkeys(ended, "silent")
        rest = [name for name in rest if name not in outcomes]
        if not rest:
            break
        text = "\n".join([*lines, errors])
        what = next((line for line in reversed(errors.splitlines()) if line.strip()), "nothing printed").strip()[:160]
        if f"begin {rest[0]}" not in lines:
            return outcomes | dict.fromkeys(rest, f"not run: {what}")
        outcomes[rest.pop(0)] = f"reported: {what}" if _REPORTS.search(text) else f"failed: {what}"
    return outcomes | dict.fromkeys(rest, "not run: no time")


def outcome_of_ours(module: Any, case: Case, text: str) -> str:
    """Whether our sanitizers report the fault of a case at its lines, on the GPU."""
    import ziggurat as zg
    from ziggurat.codemodel.gpu.options import SANITIZERS

    host = case.arguments()
    arrays = [zg.to_device(value) if hasattr(value, "shape") else value for value in host]
    if case.shared:
        import torch

        whole = torch.from_numpy(host[1]).cuda()
        arrays[:2] = [whole[1:], whole]
        arrays[2] = torch.from_numpy(host[2]).cuda()
    try:
        module.__dict__[case.name][case.grid](*arrays, sanitize=case.check or SANITIZERS)
    except zg.SanitizerError as error:
        here, there = lines_of(case, text)
        for report in error.errors:
            lines = {report.location.line, *(place.line for _, place in report.related)}
            element = case.elements is None or report.element in case.elements
            if report.check == case.check and report.argument == case.argument and element and lines <= {*here, *there}:
                return "reported"
        return f"reported elsewhere: {error.errors[0].summary}"
    except Exception as error:
        return f"failed: {type(error).__name__}: {str(error)[:300]}"
    return "silent"


def outcomes_of_ours(names: Sequence[str], folder: Path, deadline: float) -> dict[str, str]:
    """The outcomes of our sanitizers."""
    module, text = module_of("ziggurat", folder), program(ALL, "ziggurat")
    outcomes: dict[str, str] = {}
    for case in ALL:
        if case.name in names:
            late = time.monotonic() > deadline
            outcomes[case.name] = "not run: no time" if late else outcome_of_ours(module, case, text)
    return outcomes


def rows_of(outcomes: dict[str, dict[str, str]], names: Sequence[str]) -> list[list[str]]:
    """A row for each tool: how many kernels of each kind it reports, of how many that ran."""
    rows: list[list[str]] = []
    for tool, by_name in outcomes.items():
        row = [tool]
        for kind in KINDS:
            ran = [by_name[c.name] for c in ALL if c.check == kind and c.name in names and c.name in by_name]
            ran = [outcome for outcome in ran if not outcome.startswith("not run")]
            row.append(f"{sum(outcome.startswith('reported') for outcome in ran)} of {len(ran)}")
        rows.append(row)
    return rows


def main() -> None:
    """Run the suite and write the outcomes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the outcomes go")
    parser.add_argument("--seconds", type=float, default=400, help="the longest time, for all tools")
    parser.add_argument("--only", default="", help="a part of the names of the kernels")
    parser.add_argument("--every", type=int, default=1, help="each how manyth kernel runs")
    parser.add_argument("--child", help="for the script itself: launch by Triton in this mode")
    parser.add_argument("--names", default="", help="for the script itself: the kernels")
    options = parser.parse_args()
    if options.child:
        run_triton(options.names.split(","), options.folder, options.child == "overflow")
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    names = [case.name for case in ALL if options.only in case.name][:: options.every]
    modes = ["overflow", *modes_of_triton()] if importlib.util.find_spec("torch") and modes_of_triton() else []
    end = time.monotonic() + options.seconds
    share = options.seconds / (len(modes) + 1)
    outcomes: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        outcomes["ours"] = outcomes_of_ours(names, folder, time.monotonic() + share)
        for number, mode in enumerate(modes):
            remaining = (end - time.monotonic()) / (len(modes) - number)
            outcomes[f"Triton: {mode}"] = outcomes_of_triton(mode, names, folder, time.monotonic() + remaining)
    header = ["tool", *(kind or "right kernels reported" for kind in KINDS)]
    text = table(header, rows_of(outcomes, names))
    (options.folder / "comparison.json").write_text(json.dumps(outcomes, indent=1))
    (options.folder / "comparison.md").write_text(text)
    print(text)
    for name in names:
        if outcomes["ours"][name] != ("reported" if next(c for c in ALL if c.name == name).check else "silent"):
            print("ours:", name, outcomes["ours"][name])


if __name__ == "__main__":
    main()
