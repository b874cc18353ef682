"""Functions from strings: `define` makes one, `fail` gives the errors of reflecting one."""

import itertools
import linecache
import textwrap
from typing import Any, NamedTuple

import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import py
from ziggurat.codemodel.errors import ZigguratError, source_order
from ziggurat.frontends.reflection import reflect
from ziggurat.transforms.unsupported import checked, unsupported

_numbers = itertools.count()


class Failure(NamedTuple):
    """An error, and the part of its source line that the carets mark."""

    error: ZigguratError
    marked: str

    @property
    def summary(self) -> str:
        return self.error.summary

    @property
    def hint(self) -> str:
        return self.error.hint or ""


def _failure(error: ZigguratError) -> Failure:
    assert error.location is not None
    _, line, carets = error.location.excerpt().splitlines()
    assert carets.strip("\t ^") == ""
    return Failure(error, line[carets.index("^") : len(carets)])


@pytest.fixture
def define():
    """Run source text that is registered in linecache; gives the function named `kernel`, or the last def."""

    def make(text: str, filename: str | None = None, **names: Any) -> Any:
        text = textwrap.dedent(text)
        filename = filename or f"<kernel {next(_numbers)}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
        scope = {"zg": zg, **names}
        exec(compile(text, filename, "exec"), scope)
        return scope["kernel"]

    return make


@pytest.fixture
def fail(define):
    """The errors of a kernel whose suite is the given text, in order: raised by reflection, or ops of the model."""

    def run(suite: str, parameters: str = "x, y, n", **names: Any) -> list[Failure]:
        text = f"def kernel({parameters}):\n" + textwrap.indent(textwrap.dedent(suite).strip("\n"), "    ") + "\n"
        kernel = define(text, **names)
        try:
            errors = [op.error() for op in checked(reflect(kernel)).walk() if isinstance(op, py.Error)]
        except ZigguratError as error:
            errors = sorted([*error.parts, *map(unsupported, error.plain)], key=source_order)
        assert errors
        return [_failure(error) for error in errors]

    return run


@pytest.fixture
def lines(define):
    """The text of the model of a kernel whose suite is the given text: lines without the frame and the parameters."""

    def run(suite: str, parameters: str = "x, y, n", **names: Any) -> list[str]:
        text = f"def kernel({parameters}):\n" + textwrap.indent(textwrap.dedent(suite).strip("\n"), "    ") + "\n"
        model = str(reflect(define(text, **names))).splitlines()
        count = len(parameters.split(",")) if parameters else 0
        return [line.removeprefix("    ") for line in model[1 + count : -1]]

    return run
