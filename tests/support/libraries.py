"""Libraries that tests need and the package does not: a test that needs one is skipped where it is not installed.

`--list-missing-libraries FILE` writes the tests that a run skipped for that reason, as arguments of pytest. `.ci/run`
runs these again, `pytest @FILE`, where all libraries are installed, and demands that the list of that run is empty: so
each test runs in one of the two, but for those that need a library of `ELSEWHERE`, which are not listed.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

# Libraries that no environment of CI has: CuPy needs a GPU, and Ray's wheel is large.
ELSEWHERE = ("cupy", "ray")
_REASON = "needs {library}, which is not installed"
_ELSEWHERE = "needs {library}, which CI goes without"
_SKIPPED = re.compile(_REASON.format(library=r"[\w.]+"))


def require(library: str) -> Any:
    """A module of a library. The test, or the file of tests, is skipped where it is not installed."""
    __tracebackhide__ = True  # The skip is in the test's file then: xdist drops reports that have the same place.
    return pytest.importorskip(library, reason=_reason(library))  # noqa: TID251


def skip_without(libraries: Iterable[str]) -> None:
    """Skip a test of other processes that import the libraries."""
    for library in libraries:
        if importlib.util.find_spec(library) is None:
            pytest.skip(_reason(library))


def _reason(library: str) -> str:
    return (_ELSEWHERE if library.partition(".")[0] in ELSEWHERE else _REASON).format(library=library)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--list-missing-libraries",
        type=Path,
        metavar="FILE",
        help="write the tests that need a library that is missing",
    )


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("list_missing_libraries")
    if file is not None and not hasattr(config, "workerinput"):  # The process that starts workers gets all reports.
        config.pluginmanager.register(SkippedTests(file))


class SkippedTests:
    """Lists the tests and the files of tests that are skipped for a missing library, a line for each."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.names: set[str] = set()

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple) and _SKIPPED.search(report.longrepr[2]):
            self.names.add(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_sessionfinish(self) -> None:
        self.file.write_text("".join(f"{name}\n" for name in sorted(self.names)), encoding="utf-8")
