"""Each file of examples/ runs by itself, checks its results and prints something; examples/README.md lists it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


def test_the_list_has_every_example():
    listed = re.findall(r"\]\(([^)]+)\)", (ROOT / "examples" / "README.md").read_text(encoding="utf-8"))
    files = {file.relative_to(ROOT / "examples") for file in EXAMPLES}
    assert {file.as_posix() for file in files} == set(listed)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: str(file.relative_to(ROOT / "examples")))
def test_the_example_runs_and_prints(file: Path, tmp_path: Path):
    assert re.search(r"^ +(np\.testing\.|assert )", file.read_text(encoding="utf-8"), re.MULTILINE)
    with_triton = ["-m", "ziggurat.triton"] if file.parent.name == "triton_programs" else []
    done = subprocess.run(
        [sys.executable, "-W", "error", *with_triton, str(file)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "the example prints nothing"


@pytest.mark.parametrize("name", ["query_to_sql", "derivatives", "tracer", "loop_nest"])
def test_the_worked_examples_of_python_models_are_short(name):
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) < 120
