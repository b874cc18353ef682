"""A plugin of pytest for `triton_judges`: which tests are run, and what became of each of them.

The processes of xdist import it first, so it also makes `ziggurat.triton` the `triton` of each. The environment says
it: JUDGED_BY is "ziggurat" or "triton", JUDGED_OUT is the file for the outcomes, JUDGED_ONLY a file with
the tests to run (all, if it is not set), JUDGED_SAMPLE a number N to run every N-th test.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

if os.environ["JUDGED_BY"] == "ziggurat":
    import triton_internal_testing

    from ziggurat.triton import install

    install()
    sys.modules["triton._internal_testing"] = triton_internal_testing

_outcomes: dict[str, tuple[str, str]] = {}


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Keep the tests that are asked for."""
    only = os.environ.get("JUDGED_ONLY")
    if only:
        names = set(json.loads(Path(only).read_text()))
        items[:] = [item for item in items if item.nodeid in names]
    items[:] = items[:: max(1, int(os.environ.get("JUDGED_SAMPLE", "1")))]


def pytest_runtest_logreport(report: Any) -> None:
    """Note the outcome of a test: the worst of its phases."""
    if report.when == "call" or report.outcome != "passed":
        text = "" if report.passed else str(getattr(report.longrepr, "reprcrash", None) or report.longrepr)
        _outcomes[report.nodeid] = (report.outcome, text[:600])


def pytest_collectreport(report: Any) -> None:
    """A file that cannot be imported is a test that fails."""
    if report.failed:
        _outcomes[report.nodeid] = ("failed", str(report.longrepr)[-600:])


def pytest_sessionfinish() -> None:
    """Write the outcomes; with xdist, the process that has all of them."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        Path(os.environ["JUDGED_OUT"]).write_text(json.dumps(_outcomes))
