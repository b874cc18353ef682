"""A plugin of pytest for `triton_judges`: which tests are run, by which compiler, and the outcome of each of them.

The processes of xdist import it first, so it also makes `ziggurat.triton` the `triton` of each. The environment has the
settings:

- JUDGED_BY: "ziggurat" or "triton".
- JUDGED_OUT: the file for the outcomes, a line each, written as they come. A run that is ended early leaves them.
- JUDGED_ONLY: a file with the tests to run; all, if it is not set.
- JUDGED_SAMPLE: a number N to run every N-th test.
- JUDGED_EACH: a number N to run N parametrisations of each test function; the middle one, if N is 1.
- JUDGED_TUNING: "first" gives each autotuner one configuration, the first that has at most three stages.
- JUDGED_SECONDS: the limit for a test.
- JUDGED_STAND_IN: "1" to import tests with a stand-in for a GPU (`corpus/stand_in.py`), and to run none.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

MAX_STAGES = 3
# What a failure says after an error that leaves the process's CUDA context unusable.
LOST_CONTEXT = ("illegal memory access", "misaligned address", "unspecified launch failure", "device-side assert")


class TestLimit(BaseException):
    """The end of a test that takes too long; no `except Exception` of a library may catch it."""


_is_worker = "PYTEST_XDIST_WORKER" in os.environ
_context_is_lost = False

if os.environ["JUDGED_BY"] == "ziggurat":
    import triton_internal_testing

    from ziggurat.triton import install

    install()
    sys.modules["triton._internal_testing"] = triton_internal_testing

if os.environ.get("JUDGED_STAND_IN") == "1":
    sys.path.append(str(Path(__file__).with_name("corpus")))
    import stand_in

    stand_in.set_up()

if os.environ.get("JUDGED_TUNING") == "first":
    from triton.runtime import autotuner

    set_up = autotuner.Autotuner.__init__

    def set_up_one(self: Any, *args: Any, **keywords: Any) -> None:
        set_up(self, *args, **keywords)
        configs = list(self.configs)
        self.configs = [next((config for config in configs if (config.num_stages or 0) <= MAX_STAGES), configs[0])]

    autotuner.Autotuner.__init__ = set_up_one


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Keep the tests that are asked for, and note how many there are."""
    only = os.environ.get("JUDGED_ONLY")
    if only:
        names = set(json.loads(Path(only).read_text()))
        items[:] = [item for item in items if item.nodeid in names]
    each = int(os.environ.get("JUDGED_EACH", "0"))
    if each:
        functions: dict[str, list[Any]] = {}
        for item in items:
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
        items[:] = [
            tests[place]
            for tests in functions.values()
            for place in sorted({(2 * number + 1) * len(tests) // (2 * each) for number in range(each)})
        ]
    items[:] = items[:: max(1, int(os.environ.get("JUDGED_SAMPLE", "1")))]
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0":
        _note("", "tests", str(len(items)))
    if os.environ.get("JUDGED_STAND_IN") == "1":
        items.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, Any, Any]:
    """End a test after its limit, and a process of xdist whose CUDA context is lost: another one takes its place."""
    seconds = int(os.environ.get("JUDGED_SECONDS", "0"))

    def end_test(*_: Any) -> None:
        raise TestLimit(f"the test took over {seconds} s")

    signal.signal(signal.SIGALRM, end_test)
    signal.alarm(seconds)
    result = yield
    signal.alarm(0)
    if _context_is_lost and _is_worker:
        os._exit(1)
    return result


def pytest_runtest_logreport(report: Any) -> None:
    """Note the outcome of a phase of a test."""
    global _context_is_lost
    _context_is_lost |= report.failed and any(text in str(report.longrepr) for text in LOST_CONTEXT)
    if not _is_worker and (report.when == "call" or report.outcome != "passed"):
        text = "" if report.passed else str(getattr(report.longrepr, "reprcrash", None) or report.longrepr)
        _note(report.nodeid, report.outcome, text[:600])


def pytest_collectreport(report: Any) -> None:
    """A file that cannot be imported is a test that fails."""
    if report.failed and not _is_worker:
        _note(report.nodeid, "failed", str(report.longrepr)[-600:])


def _note(name: str, outcome: str, text: str) -> None:
    with Path(os.environ["JUDGED_OUT"]).open("a") as out:
        out.write(json.dumps([name, outcome, text]) + "\n")
