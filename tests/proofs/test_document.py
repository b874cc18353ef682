"""The list of what is proved, docs/reference/proofs.md, names each test here, and none that there is not."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DOCUMENT = (ROOT / "docs/reference/proofs.md").read_text(encoding="utf-8")
NAMES = set(re.findall(r"`([\w/]*test_\w+\.py)`", DOCUMENT))


def test_each_test_is_in_the_document() -> None:
    files = {path.name for path in HERE.glob("test_*.py")} - {Path(__file__).name}
    assert files == {name for name in NAMES if "/" not in name}


def test_other_tests_in_the_document_exist() -> None:
    assert all((ROOT / name).is_file() for name in NAMES if "/" in name)
