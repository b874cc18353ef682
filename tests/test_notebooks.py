"""The notebooks of docs/notebooks run, and show what they say they show; --bless renews their outputs."""

from pathlib import Path

import pytest
from notebooks import executed, load, save

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_notebook(file, request, monkeypatch):
    monkeypatch.chdir(ROOT)
    notebook = load(file)
    outcome = executed(notebook, file.stem)
    if request.config.getoption("--bless") and outcome != notebook:
        save(file, outcome)
    for number, (cell, expected) in enumerate(zip(outcome["cells"], load(file)["cells"], strict=True)):
        assert cell == expected, f"cell {number}: its output is another one; --bless renews it"


def test_there_are_three():
    assert [file.stem for file in FILES] == ["1-first-kernel", "2-reading-a-layout", "3-writing-a-transform"]


def test_notebooks_have_the_form_of_jupyter():
    """The keys that the format 4.5 demands; ids of cells are unique."""
    for file in FILES:
        notebook = load(file)
        assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
        assert notebook["metadata"]["kernelspec"]["name"] == "python3"
        ids = [cell["id"] for cell in notebook["cells"]]
        assert len(set(ids)) == len(ids)
        for cell in notebook["cells"]:
            keys = {"cell_type", "id", "metadata", "source"}
            assert set(cell) == (keys if cell["cell_type"] == "markdown" else keys | {"execution_count", "outputs"})
