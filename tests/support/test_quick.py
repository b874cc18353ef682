"""The tests that the quick tier runs, by their times."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import quick
from quick import LIMIT, LISTED, quick_count


@pytest.mark.parametrize(
    ("times", "count"),
    [
        (None, 0),
        ((LIMIT / 2, LIMIT / 2, 1), 1),
        ((LIMIT / 2, LIMIT, 2), 2),
        ((LIMIT / 2, 10 * LIMIT, 20), 2),
        ((LIMIT, 10 * LIMIT, 10), 1),
        ((2 * LIMIT, 2 * LIMIT, 1), 0),
    ],
)
def test_as_many_parameters_as_fit(times: quick.Times, count: int) -> None:
    assert quick_count(times) == count


def test_files_that_were_not_measured_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file has only its slow functions in the table; the others are quick, however often the table is written."""
    monkeypatch.setattr(quick, "TABLE", tmp_path / "times.json")
    monkeypatch.setattr(quick, "TESTS", tmp_path)
    for name in ("old.py", "new.py"):
        (tmp_path / name).touch()
    old: dict[str, dict[str, quick.Times]] = {
        "new.py": {"test_before": (LIMIT, LIMIT, 1)}, "old.py": {"test_slow": (2.0, 2.0, 1), "test_skipped": None}
    }  # fmt: skip
    quick.write({**old, "removed.py": {}})
    quick.table.cache_clear()
    measurement = quick.Measurement()
    measurement.functions = {("new.py", "test_slow"): [1.0, 3.0], ("new.py", "test_fast"): [LISTED / 2]}
    measurement.counts = {("new.py", "test_slow"): 4, ("new.py", "test_fast"): 1}
    measurement.pytest_sessionfinish(SimpleNamespace(config=SimpleNamespace()))
    quick.table.cache_clear()
    times = json.loads((tmp_path / "times.json").read_text())
    assert times == {
        "new.py": {"test_slow": [1.0, 8.0, 4]},
        "old.py": {"test_slow": [2.0, 2.0, 1], "test_skipped": None},
    }


def test_a_function_without_times_is_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "TABLE", tmp_path / "times.json")
    slow, fast = (2 * LIMIT, 2 * LIMIT, 1), (LISTED / 2, LISTED / 2, 1)
    rows = {
        "a.py": {"test_slow": slow, "test_fast": fast},
        "b.py": {"test_slow": slow, "test_skipped": None},
        "c.py": {},
    }
    quick.write({file: quick.listed(times) for file, times in rows.items()})
    times = json.loads((tmp_path / "times.json").read_text())
    assert times == {"a.py": {"test_slow": [*slow]}, "b.py": {quick.ALL: None}, "c.py": {}}
