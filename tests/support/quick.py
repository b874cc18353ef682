"""The quick tier of the tests, `--quick`, and the table of times that decides it, `--measure-times`.

`tests/times.json` has the functions of tests that take long, by file: the seconds of the first parameters, the seconds
of all of them, and how many they are; null in place of these where the tests cannot run on the machine that measured.
The quick tier runs the first parameters of each function: as many as take `LIMIT` seconds together, and none where the
first takes longer; all of a function that is not listed, and the first of each function of a file that is not listed.
A file without any quick function is not even imported.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

TESTS = Path(__file__).resolve().parents[1]
TABLE = TESTS / "times.json"
LIMIT = 0.12  # Seconds of one core for each function.
LISTED = 0.05  # Functions that take less are not listed.
ALL = "*"  # All functions of a file.
MEASURED, COUNT = "processor seconds", "parameters"
SAMPLE = 2  # Parameters of a function that are measured.

Times: TypeAlias = "tuple[float, float, int] | None"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="run tests of about a minute that find most faults")
    parser.addoption("--measure-times", action="store_true", help="write the times of this run: times.json")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run the quick tier in two processes, unless `-n` says how many. These come here as well."""
    if config.getoption("quick") and config.getoption("numprocesses", 0) is None:
        if "PYTEST_XDIST_WORKER" not in os.environ:
            config.option.numprocesses = 2


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("quick"):
        config.pluginmanager.register(Quick())
    if config.getoption("measure_times"):
        config.pluginmanager.register(Measurement())


@functools.cache
def table() -> dict[str, dict[str, Times]]:
    return json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}


def quick_count(times: Times) -> int:
    """The number of parameters of a function that the quick tier runs."""
    if times is None:
        return 0
    first, whole, count = times
    return 0 if first > LIMIT else max(1, min(count, int(count * LIMIT / whole))) if whole > LIMIT else count


class Quick:
    """Collects the quick tests."""

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        if collection_path.suffix == ".py" and collection_path.is_relative_to(TESTS):
            times = table().get(collection_path.relative_to(TESTS).as_posix(), {})
            if ALL in times and quick_count(times[ALL]) == 0:
                return True
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_pycollect_makeitem(self, collector: Any, name: str, obj: object) -> Generator[None, Any, Any]:
        items = yield
        if not isinstance(items, list) or not collector.path.is_relative_to(TESTS):
            return items
        times = table().get(collector.path.relative_to(TESTS).as_posix())
        if times is None:
            return items[:1]
        return items[: quick_count(times[name])] if name in times else items


class Measurement:
    """Runs at most `SAMPLE` parameters of each function, and writes the table from their times.

    Of files that the run has no tests of, the rows stay. Times are those of the processor, with those of subprocesses:
    other work on the machine does not count.
    """

    def __init__(self) -> None:
        self.start = 0.0
        self.functions: dict[tuple[str, str], list[float | None]] = {}
        self.counts: dict[tuple[str, str], int] = {}
        self.skipped: set[str] = set()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        by_function: dict[tuple[str, str], list[pytest.Item]] = {}
        for item in items:
            by_function.setdefault(_function(item.nodeid), []).append(item)
        for those in by_function.values():
            for item in those[:SAMPLE]:
                item.user_properties.append((COUNT, len(those)))
        items[:] = [item for those in by_function.values() for item in those[:SAMPLE]]

    def pytest_runtest_logstart(self) -> None:
        self.start = processor_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
        report = yield
        if call.when == "teardown":
            report.user_properties.append((MEASURED, processor_seconds() - self.start))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self.skipped.add(report.nodeid)
        if report.when == "teardown":
            properties, function = dict(report.user_properties), _function(report.nodeid)
            seconds = None if report.nodeid in self.skipped else properties[MEASURED]
            self.functions.setdefault(function, []).append(seconds)
            self.counts[function] = properties[COUNT]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):  # The process that started the workers gets all reports.
            return
        rows = {file: times for file, times in table().items() if (TESTS / file).exists()}
        measured: dict[str, dict[str, Times]] = {file: {} for file, _ in self.functions}
        for (file, name), seconds in sorted(self.functions.items()):
            ran = [s for s in seconds if s is not None]
            count = self.counts[file, name]
            whole = sum(ran) / len(ran) * count if ran else 0.0
            measured[file][name] = (round(ran[0], 2), round(whole, 2), count) if ran else None
        # The rows of other files lack the quick functions: `listed` would take these files for slow ones.
        write(rows | {file: listed(times) for file, times in measured.items()})


def _function(nodeid: str) -> tuple[str, str]:
    """The file below `tests` and the name of a test's function."""
    file, _, rest = nodeid.removeprefix(f"{TESTS.name}/").partition("::")
    return file, rest.partition("[")[0].rpartition("::")[2]


def processor_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def listed(times: dict[str, Times]) -> dict[str, Times]:
    """The rows of a file without those of functions that are quick anyway."""
    if times and not any(map(quick_count, times.values())):
        return {ALL: None}
    return {name: value for name, value in times.items() if value is None or value[1] > LISTED}


def write(rows: dict[str, dict[str, Times]]) -> None:
    """Write the table, a line for each function."""
    files: list[str] = []
    for file, times in sorted(rows.items()):
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in times.items())
        files.append(f"{json.dumps(file)}: {{\n{lines}\n}}" if times else f"{json.dumps(file)}: {{}}")
    TABLE.write_text("{\n" + ",\n".join(files) + "\n}\n", encoding="utf-8")
