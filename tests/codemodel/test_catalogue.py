"""docs/reference/ops.md is what the declarations say."""

from pathlib import Path

import pytest

from ziggurat.codemodel import dialects
from ziggurat.codemodel.catalogue import catalogue
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.gpu import dialect

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "ops.md"


def test_the_document_is_up_to_date(pytestconfig: pytest.Config):
    text = catalogue()
    if pytestconfig.getoption("bless"):
        DOCUMENT.write_text(text, encoding="utf-8")
    assert DOCUMENT.read_text(encoding="utf-8") == text, "run pytest --bless after reading the difference"


def test_every_op_of_the_dialects_is_in_it():
    text = catalogue()
    rooms = {f"{dialects.__name__}.{name}" for name in dialects.__all__} | {dialect.__name__}
    missing = [
        name for name, cls in OPS.items() if cls.__module__.startswith(tuple(rooms)) and f"**`{name}`**" not in text
    ]
    assert missing == []


def test_operands_attributes_bodies_and_traits_are_shown():
    entry = next(line for line in catalogue().splitlines() if line.startswith("- **`scf.for`**"))
    assert "(`scf.For`) `start` `stop` `step` `initial…`" in entry
    assert "@`num_stages: constant = null`" in entry
    assert "{`body`}" in entry
    assert entry.rstrip().endswith("*Loop, MayReturn*")
