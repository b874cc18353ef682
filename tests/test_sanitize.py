"""Reports of compute-sanitizer's logs. A script takes the place of the sanitizer."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).resolve().parent.parent / "benchmarks" / "sanitize.py"

STRAY = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at outside+0x80 in kernel
========= ERROR SUMMARY: 2 errors
"""
RACE = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at 0x110 and Read access at 0x1c0 in total [28 hazards]
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"

# Writes a log for its process, and runs nothing.
SANITIZER = """#!/usr/bin/env python3
import os, sys, time
log = sys.argv[sys.argv.index("--log-file") + 1].replace("%p", str(os.getpid()))
text = {bad!r} if "--bad" in sys.argv else {good!r}
open(log, "w").write(text)
print("done")
time.sleep({wait} if "--bad" not in sys.argv else 0)
sys.exit({status} if "--bad" not in sys.argv else 0)
"""


@pytest.fixture
def sanitize() -> Any:
    spec = importlib.util.spec_from_file_location("sanitize", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_reports_of_sanitizer_logs(sanitize):
    assert [sanitize.found(text) for text in (STRAY, RACE, CLEAN, "", STRAY + RACE)] == [2, 1, 0, 0, 3]
    assert sanitize.found(STRAY.partition("=== ERROR")[0]) == 1, "without a summary, what was told until then counts"


@pytest.mark.parametrize(
    ("bad", "good", "wait", "status", "expected"),
    [
        (STRAY, CLEAN, 0, 0, 0),
        (STRAY, STRAY, 0, 0, 1),
        (CLEAN, CLEAN, 0, 0, 2),  # It would see nothing.
        (STRAY, "", 0, 0, 2),  # It saw no process.
        (STRAY, CLEAN, 0, 1, 2),  # A test failed.
        (STRAY, CLEAN, 60, 0, 2),  # It took too long.
    ],
)
def test_exit_status(sanitize, monkeypatch, tmp_path, bad, good, wait, status, expected):
    script = tmp_path / "compute-sanitizer"
    script.write_text(SANITIZER.format(bad=bad, good=good, wait=wait, status=status))
    script.chmod(0o755)
    monkeypatch.setattr(sanitize.shutil, "which", lambda _: str(script))
    monkeypatch.setattr(sanitize, "TOOLS", ("memcheck",))
    monkeypatch.setattr(sanitize, "PARTS", {"examples": ["nothing"]})
    summary = sanitize.sanitized(2.0)
    assert summary["status"] == expected
    part = summary["memcheck"]["examples"]
    assert part["said"] == "done" or wait
    assert (part["status"] < 0) == bool(wait)
    assert part["first"] == (["Invalid __global__ write of size 4 bytes"] if good == STRAY else [])


def test_without_a_sanitizer(sanitize, monkeypatch):
    monkeypatch.setattr(sanitize.shutil, "which", lambda _: None)
    monkeypatch.setattr(sanitize, "SANITIZER", "/nowhere/compute-sanitizer")
    assert sanitize.sanitized(1.0) == {"status": 2, "missing": "/nowhere/compute-sanitizer"}


def test_the_racing_kernel_has_no_barrier(sanitize, monkeypatch):
    import ziggurat as zg
    from ziggurat.backend.cuda import launch

    codes: list[str] = []

    class Launcher:
        def __init__(self, binary: Any) -> None:
            codes.append(binary.code)

        def __call__(self, *_: object, **__: object) -> None: ...

    monkeypatch.setattr(launch, "Launcher", Launcher)
    monkeypatch.setattr(zg, "to_device", lambda array: array)
    sanitize.bad_race()
    assert "st.shared" in codes[0] and "bar.sync" not in codes[0]
