"""The examples and some tests of the language under NVIDIA's compute-sanitizer: stray accesses, and races.

    benchmarks/on_device.sh python3 benchmarks/sanitize.py sanitize.json [--seconds 60]

Each tool runs on each part, for so many seconds at most; before that, on a kernel that does what the tool is to find,
so that finding nothing means something. The last line printed is the summary as JSON, which the path gets too. The
status is 0 where every part is clean and passed, 1 where something was found, 2 where a tool found nothing in the bad
kernel, or a part did not pass or did not end.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SANITIZER = "/usr/local/cuda/bin/compute-sanitizer"
TOOLS = ("memcheck", "racecheck")
_LANGUAGE = ("reduction", "shape", "memory", "ordering")
# The checked launches: kernels of the examples on arrays of their exact sizes, and launches of the language's tests.
PARTS: dict[str, list[str]] = {
    "examples": ["tests/gpu/test_examples_on_gpu.py"],
    "language": [*(f"tests/language/test_{name}_calls.py" for name in _LANGUAGE), "--on-gpu"],
}
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
# A line of the sanitizer that tells what it found, and its summaries, one a process.
_FOUND = re.compile(r"^=+ (?:Invalid|Misaligned|Error|Warning|Program hit|Race reported|Barrier error).*", re.MULTILINE)
_MEMORY = re.compile(r"ERROR SUMMARY: (\d+) errors?")
_RACES = re.compile(r"RACECHECK SUMMARY: (\d+) hazards? displayed \((\d+) errors?, (\d+) warnings?\)")


def main() -> int:
    """Run what is asked for and write the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, nargs="?", help="where the summary goes")
    parser.add_argument("--seconds", type=float, default=60, help="the longest time of one tool on one part")
    parser.add_argument("--bad", choices=TOOLS, help="run the kernel in which this tool finds something, and stop")
    options = parser.parse_args()
    if options.bad:
        BAD[options.bad]()
        return 0
    summary = sanitized(options.seconds)
    text = json.dumps(summary)
    if options.path:
        options.path.parent.mkdir(parents=True, exist_ok=True)
        options.path.write_text(text + "\n", encoding="utf-8")
    print(text)
    return summary["status"]


def sanitized(seconds: float) -> dict[str, Any]:
    """The summary: for each tool, what it finds in the bad kernel and in each part."""
    program = shutil.which("compute-sanitizer") or SANITIZER
    if not Path(program).exists():
        return {"status": 2, "missing": program}
    summary: dict[str, Any] = {"status": 0}
    for tool in TOOLS:
        bad = watched(program, tool, [sys.executable, __file__, "--bad", tool], seconds)
        parts = {name: watched(program, tool, [*PYTEST, *tests], seconds) for name, tests in PARTS.items()}
        summary[tool] = {"sees a bad kernel": bad["found"] > 0, **parts}
        ended = all(part["status"] == 0 and part["processes"] for part in parts.values())
        worst = 2 if not ended or not bad["found"] else int(any(part["found"] for part in parts.values()))
        summary["status"] = max(summary["status"], worst)
    return summary


def watched(program: str, tool: str, command: list[str], seconds: float) -> dict[str, Any]:
    """A command under a tool: its status (negative where it was ended), how many processes the tool has summed up, how
    much was found, and the first of it."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log-%p"
        # Loading the driver asks it for functions that it may not have, which is no error of a kernel.
        watching = [program, "--tool", tool, "--report-api-errors", "no"]
        watching += ["--target-processes", "all", "--log-file", str(log)]
        with open(Path(folder) / "output", "w+", encoding="utf-8") as output:
            process = subprocess.Popen(
                [*watching, *command], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                status = process.wait()
            output.seek(0)
            text = output.read()
        logs = "\n".join(file.read_text(errors="replace") for file in sorted(Path(folder).glob("log-*")))
    return {
        "status": status,
        "processes": len(_MEMORY.findall(logs)) + len(_RACES.findall(logs)),
        "seconds": round(time.perf_counter() - start, 1),
        "found": found(logs),
        "first": [line.strip("= ") for line in _FOUND.findall(logs)[:5]],
        "said": text.strip().splitlines()[-1][:300] if text.strip() else "",
    }


def found(logs: str) -> int:
    """The number of errors and hazards in a sanitizer's logs: from the summaries of the processes that ended, or from
    the lines of those that did not."""
    by_summaries = sum(map(int, _MEMORY.findall(logs)))
    by_summaries += sum(int(hazards) for hazards, _, _ in _RACES.findall(logs))
    return max(by_summaries, len(_FOUND.findall(logs)))


# Kernels in which there is something to find.


def bad_access() -> None:
    """A store after the end of an array."""
    import numpy as np

    import ziggurat as zg

    @zg.kernel
    def outside(x_ptr, SIZE: zg.constexpr):
        zg.store(zg.add(x_ptr, zg.arange(0, SIZE)), 1.0)

    x = zg.to_device(np.zeros(100, np.float32))
    outside[(1,)](x, SIZE=1024, check=True)


def bad_race() -> None:
    """A sum over warps without its barriers."""
    import attrs
    import numpy as np

    import ziggurat as zg
    from ziggurat.backend.cuda.launch import Launcher
    from ziggurat.backend.ptx.assemble import assemble
    from ziggurat.codemodel.gpu import dialect as gpu
    from ziggurat.codemodel.transform import DROP

    @zg.kernel
    def total(x_ptr, out_ptr, SIZE: zg.constexpr):
        zg.store(out_ptr, zg.sum(zg.load(zg.add(x_ptr, zg.arange(0, SIZE))), axis=0))

    kernel = total.compile(zg.ptr(zg.f32), zg.ptr(zg.f32), 1024, num_warps=8)
    racy = zg.transform(kernel.stages["gpu"], lambda _, op, __: DROP if isinstance(op, gpu.Barrier) else None)
    assert racy != kernel.stages["gpu"] and isinstance(racy, gpu.Module)
    racing = attrs.evolve(kernel, stages={**kernel.stages, "ptx": assemble(racy).ptx})
    arguments = zg.to_device(np.ones(1024, np.float32)), zg.to_device(np.zeros(1, np.float32))
    Launcher(racing.binary)((1,), *arguments, check=True)


BAD = {"memcheck": bad_access, "racecheck": bad_race}

if __name__ == "__main__":
    sys.exit(main())
