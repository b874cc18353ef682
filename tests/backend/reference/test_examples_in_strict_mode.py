"""The examples use no undefined element, and read nothing that they have written without a barrier."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

import pytest

from ziggurat.backend.reference import run as running

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(path.parent)
    monkeypatch.setattr(running, "run", functools.partial(strictly, running.run))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()


def strictly(run, *arguments, strict, **options):
    run(*arguments, strict=True, **options)
