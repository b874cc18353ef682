"""Functions of the standard library: models of all of them, and CPython's own tests on functions that were models."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run(script: str, *arguments: str) -> str:
    """The output of a script of the benchmarks."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_functions_come_back_with_the_same_code():
    modules = ("heapq", "json", "textwrap", "ast", "shlex", "contextlib")
    lines = run("python_models.py", "--back", *modules).splitlines()[1:6]
    counts = {name.strip(): int(count) for name, count in (line.rsplit(maxsplit=3)[:2] for line in lines)}
    assert counts["reflect"] == counts["verify"] == counts["parse"] == counts["function"] > 250
    assert counts["same code"] >= 0.98 * counts["reflect"]


@pytest.mark.skipif(importlib.util.find_spec("test.test_heapq") is None, reason="this Python has no tests of its own")
def test_tests_of_cpython_pass():
    tests = ("test_textwrap", "test_bisect", "test_shlex", "test_dataclasses", "test_contextlib")
    lines = run("python_models_tests.py", *tests).splitlines()
    assert lines[0].endswith("functions replaced, 0 not")
    assert sum(" 0 failed," in line for line in lines) == 5, lines
