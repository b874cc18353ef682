"""Functions from texts, for tests of their models."""

import itertools
import linecache
import textwrap
from typing import Any

import pytest

_numbers = itertools.count()


@pytest.fixture
def define():
    """Run a text whose lines `linecache` has; gives the function `f` of it."""

    def make(text: str, **names: Any) -> Any:
        text = textwrap.dedent(text)
        file = f"<python {next(_numbers)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        exec(compile(text, file, "exec", dont_inherit=True), names)
        return names["f"]

    return make
