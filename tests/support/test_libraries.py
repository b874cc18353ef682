"""The list of tests that are skipped for a missing library, which `.ci/run` runs again where all are installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
LIBRARY = "library_of_this_test"
FILES = {
    "test_whole.py": f"""
from libraries import require
require("{LIBRARY}.part")
def test_any(): pass
""",
    "test_whole_as_well.py": f"""
from libraries import require
require("{LIBRARY}.part")
def test_any(): pass
""",
    "test_some.py": f"""
import pytest
from libraries import require, skip_without
@pytest.fixture
def library(): return require("{LIBRARY}")
def test_by_a_fixture(library): pass
@pytest.mark.parametrize("name", ["json", "{LIBRARY}"])
def test_by_its_parameter(name): require(name)
def test_of_processes(): skip_without(["json", "{LIBRARY}"])
def test_without(): pass
def test_that_waits(): pytest.skip("needs patience")
""",
}
LISTED = [
    "test_some.py::test_by_a_fixture",
    f"test_some.py::test_by_its_parameter[{LIBRARY}]",
    "test_some.py::test_of_processes",
    "test_whole.py",
    "test_whole_as_well.py",
]


def _run(folder: Path, missing: str, *arguments: str) -> tuple[str, list[str]]:
    """The last line of a run of pytest, and the tests that it lists."""
    folders = os.pathsep.join([str(TESTS / "support"), str(folder / "installed")])
    # Other plugins start slowly.
    environment = {**os.environ, "PYTHONPATH": folders, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    plugins = ["-p", "xdist.plugin", "-p", "libraries", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *arguments]
    done = subprocess.run(
        [*command, "--list-missing-libraries", missing], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1], (folder / missing).read_text("utf-8").splitlines()


def test_what_a_library_is_missing_for_is_listed_and_runs_where_it_is_there(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "pytest.ini").touch()
    summary, missing = _run(tmp_path, "first", "-n", "2")
    assert summary.startswith("2 passed, 6 skipped") and missing == LISTED
    package = tmp_path / "installed" / LIBRARY
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "part.py").touch()
    summary, missing = _run(tmp_path, "second", "@first")
    assert summary.startswith("5 passed in") and missing == []


def test_no_test_looks_for_a_library_by_itself() -> None:
    """Such a test would be in no list; ruff refuses `pytest.importorskip`."""
    libraries = r"(torch|jax|tensorflow|matplotlib|pandas|IPython)\b"
    own = re.compile(rf"try:\n\s+(import|from) {libraries}|find_spec\(\"{libraries}")
    texts = {file: file.read_text("utf-8") for file in TESTS.rglob("*.py") if file != Path(__file__).resolve()}
    assert [file.name for file, text in texts.items() if own.search(text)] == []
    assert own.search("try:\n    import torch\n") and own.search('importlib.util.find_spec("jax") is None')
