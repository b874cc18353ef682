"""The benchmark of the reference interpreter runs, on small sizes, and its results are right."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_benchmark_prints_its_table():
    command = [sys.executable, str(ROOT / "benchmarks" / "reference_interpreter.py"), "--scale", "16"]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ") and " ms " in line]
    assert len(rows) == 5
    assert all(line.endswith(" MB |") for line in rows)
