"""The committed reference is what the table says."""

from pathlib import Path

import pytest

from ziggurat.frontends.language import SIGNATURES
from ziggurat.frontends.language.reference import reference

FILE = Path(__file__).parents[3] / "docs" / "reference" / "language.md"


def test_the_committed_reference_is_up_to_date(request: pytest.FixtureRequest):
    text = reference()
    if request.config.getoption("--bless"):
        FILE.write_text(text, encoding="utf-8")
    assert FILE.read_text(encoding="utf-8") == text, "docs/reference/language.md is out of date; --bless renews it"


def test_the_reference_has_every_call_in_a_group():
    text = reference()
    for signature in SIGNATURES.values():
        assert text.count(f"\n### `zg.{signature}`\n") == 1


def test_constants_are_marked():
    entry = reference().split("### `zg.full(")[1].split("###")[0]
    assert "- `shape` (constant): " in entry and "- `value`: " in entry and "- `dtype` (constant): " in entry
