"""The tests that need a GPU, run in one go, and their results in one JSON file. `gpu_ladder.py` has the speeds.

    benchmarks/on_device.sh python3 benchmarks/gpu_report.py report.json [--sanitizer] [--commit ID] [-- options]

The report holds the card, the driver, the versions, the date, and what came out. The status is that of the worst part.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("numpy", "attrs", "ml_dtypes", "llvmlite", "cuda-bindings", "torch", "triton", "cupy-cuda13x")
# Longest time of one part, in seconds: the device machine gives a command ten minutes.
LIMIT = 300
# JAX would take most of the card's memory in each process of the tests.
ENVIRONMENT = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def main() -> int:
    """Run the tests and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="where the report goes")
    parser.add_argument("--sanitizer", action="store_true", help="run compute-sanitizer as well")
    parser.add_argument("--commit", help="what is run, where that is a copy whose git says something else")
    parser.add_argument("pytest", nargs="*", help="options for pytest, after --")
    options = parser.parse_args()
    report: dict[str, Any] = {"surroundings": surroundings()}
    if options.commit:
        report["surroundings"]["commit"] = options.commit
    report["tests"] = tests(options.pytest)
    save(options.path, report)
    if options.sanitizer:
        report["sanitizer"] = sanitized()
        save(options.path, report)
    return summarise(report)


def surroundings() -> dict[str, Any]:
    """The date, the machine, the card, the driver and the versions."""
    from ziggurat.backend.devices.driver import current_device, device_count, driver_version

    device = current_device()
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "card": device.name,
        "target": device.target,
        "multiprocessors": device.attribute("MULTIPROCESSOR_COUNT"),
        "devices": device_count(),
        "CUDA of the driver": driver_version(),
        "driver": first_line(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]),
        "commit": first_line(["git", "-C", str(ROOT), "rev-parse", "HEAD"]),
        "versions": {name: release for name in PACKAGES if (release := version(name))},
    }


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def first_line(command: list[str]) -> str | None:
    """The first line that a command prints, or None if it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return None
    return done.stdout.splitlines()[0].strip() if done.returncode == 0 and done.stdout.strip() else None


def tests(options: list[str]) -> dict[str, Any]:
    """Run the tests that are marked `gpu`, those of the language with each launch repeated there with 1, 4 and 8 warps;
    how many passed, and what failed with the end of its message."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        parallel = ["-n", "12", "--dist", "worksteal"] if version("pytest-xdist") else []
        command = [sys.executable, "-m", "pytest", "-m", "gpu", "--on-gpu", "--every-warps", "-q", *parallel]
        command += [f"--junitxml={results}", *options]
        status, output, seconds = run(command)
        counts = {"passed": 0, "failed": 0, "skipped": 0}
        failures: dict[str, str] = {}
        slowest: dict[str, float] = {}
        for case in ElementTree.parse(results).iter("testcase") if results.exists() else ():
            name = f"{case.get('classname')}::{case.get('name')}"
            kinds = {child.tag for child in case}
            outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
            counts[outcome] += 1
            slowest[name] = float(case.get("time", 0))
            if outcome == "failed":
                text = "\n".join((child.text or "") for child in case if child.tag in ("failure", "error"))
                errors = "\n".join(line for line in text.splitlines() if line.startswith("E "))
                failures[name] = f"{errors[:1500]}\n{text[-1500:]}"
    longest = sorted(slowest.items(), key=lambda item: -item[1])[:10]
    report = {"status": status, "seconds": seconds, **counts, "failures": failures, "longest": dict(longest)}
    if status not in (0, 1):  # It did not come to run the tests.
        report["output"] = output[-4000:]
    return report


def sanitized() -> dict[str, Any]:
    """The last line that `sanitize.py` prints, which has its findings; all output where that is missing."""
    status, output, seconds = run([sys.executable, str(ROOT / "benchmarks" / "sanitize.py")])
    report: dict[str, Any] = {"status": status, "seconds": seconds}
    try:
        report["figures"] = json.loads(output.strip().splitlines()[-1])
    except (ValueError, IndexError):
        report["output"] = output[-4000:]
    return report


def run(command: list[str]) -> tuple[int, str, float]:
    """The exit status of a command (124 when it ran too long), what it printed, and how long it took in seconds."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        try:
            status = subprocess.run(
                command,
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=LIMIT,
                check=False,
                env={**os.environ, **ENVIRONMENT},
            ).returncode
        except subprocess.TimeoutExpired:
            status = 124
        output.seek(0)
        return status, output.read(), round(time.perf_counter() - start, 1)


def save(path: Path, report: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def summarise(report: dict[str, Any]) -> int:
    """Print the main results, failures last; the worst status."""
    outcome = report["tests"]
    print(
        f"{outcome['passed']} passed, {outcome['failed']} failed, {outcome['skipped']} skipped "
        f"in {outcome['seconds']} s"
    )
    for name, message in outcome["failures"].items():
        print(f"--- {name}\n{message[:1200]}")
    print(outcome.get("output", ""), report.get("sanitizer", ""))
    return max(outcome["status"], report.get("sanitizer", outcome)["status"])


if __name__ == "__main__":
    sys.exit(main())
