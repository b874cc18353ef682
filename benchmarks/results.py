"""Facts that every benchmark reports with its figures: date, machine and versions; and the file that keeps them.

docs/results/benchmarks.md has a section for each benchmark, between `<!-- NAME -->` and `<!-- end of NAME -->`,
which `--write` renews.
"""

from __future__ import annotations

import datetime
import importlib.util
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ziggurat

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "results" / "benchmarks.md"


def seconds(function: Callable[[], Any], times: int, before: Callable[[], Any] | None = None) -> list[float]:
    """The wall-clock seconds of each of several calls, each after an untimed call of `before`."""
    samples: list[float] = []
    for _ in range(times):
        if before is not None:
            before()
        start = time.perf_counter()
        function()
        samples.append(time.perf_counter() - start)
    return samples


def median_and_best(times: Sequence[float], unit: float = 1e-3, digits: int = 2) -> tuple[str, str]:
    """Two cells of a table, in milliseconds or another unit."""
    return f"{statistics.median(times) / unit:.{digits}f}", f"{min(times) / unit:.{digits}f}"


def peak_memory() -> float:
    """The most memory that this process has held so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def surroundings(*packages: str) -> str:
    """The date, the machine and the versions, in a sentence."""
    cpu = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else ():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    names = [name for name in ("ziggurat", "numpy", "attrs", *packages) if importlib.util.find_spec(name)]
    versions = ", ".join(f"{name} {_version(name)}" for name in names)
    return (
        f"{datetime.date.today()}; {os.cpu_count()} cores of {cpu}, {platform.system()} {platform.release()}; "
        f"Python {platform.python_version()}, {versions}; load average at the start {os.getloadavg()[0]:.1f}."
    )


def _version(name: str) -> str:
    """The version of a package; of ours, which need not be installed, from its sources."""
    return ziggurat.__version__ if name == "ziggurat" else version(name)


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown; all columns but the first aligned to the right."""
    lines = ["| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines)


def write(name: str, text: str) -> None:
    """Renew a benchmark's section of docs/results/benchmarks.md."""
    document = FILE.read_text(encoding="utf-8")
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, parts, rest = document.partition(start)
    _, closed, after = rest.partition(end)
    if not parts or not closed:
        raise SystemExit(f"{FILE} has no section {start.strip()} … {end}")
    FILE.write_text(f"{before}{start}\n{text.strip()}\n\n{closed}{after}", encoding="utf-8")
