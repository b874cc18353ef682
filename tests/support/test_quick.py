"""The tests that the quick tier runs, by their times."""

from __future__ import annotations

import json
from pathlib import Path

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
