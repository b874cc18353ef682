"""Tests of codemodel/location.py and errors.py: the place, its source line, carets, and the calls that led there."""

from __future__ import annotations

import linecache

import pytest

from ziggurat.codemodel.errors import (
    BuildError,
    InternalError,
    KernelErrors,
    KernelNameError,
    KernelTypeError,
    ParseError,
)
from ziggurat.codemodel.location import Location


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> str:
    name = "<test_location>"
    text = "x = load(ptr)\n\ty = größe + x\nz = call(\n    x)\n"
    monkeypatch.setitem(linecache.cache, name, (len(text), None, text.splitlines(keepends=True), name))
    return name


def test_excerpt_marks_the_columns(source: str):
    assert Location(source, 1, 4, 1, 13).excerpt() == ("  at <test_location>:1:5\n    x = load(ptr)\n        ^^^^^^^^^")


def test_columns_are_bytes_and_tabs_stay(source: str):
    # \ty = größe + x: 'größe' is bytes 5 to 12, of which ö and ß take two each.
    assert Location(source, 2, 5, 2, 12).excerpt().splitlines()[1:] == ["    \ty = größe + x", "    \t    ^^^^^"]
    assert Location(source, 2, 15, 2, 16).excerpt().splitlines()[2] == "    \t            ^"


def test_a_span_of_several_lines_is_marked_to_the_end_of_its_first(source: str):
    assert Location(source, 3, 4, 4, 6).excerpt().splitlines()[1:] == ["    z = call(", "        ^^^^^"]


def test_an_unknown_end_is_one_caret(source: str):
    assert Location(source, 1, 4).excerpt().splitlines()[2] == "        ^"
    assert Location(source, 1, 4, 1, 4).excerpt().splitlines()[2] == "        ^"


def test_without_source_there_is_only_the_place():
    place = Location("/no/such/file.py", 7, 2)
    assert place.source_line() is None
    assert place.excerpt() == "  at /no/such/file.py:7:3"


def test_the_chain_of_calls(source: str):
    place = Location(source, 1, 4, 1, 13).called_from(Location(source, 3, 4, 3, 9, caller=Location("k.py", 9)))
    assert [line for line in place.excerpt().splitlines() if line.startswith("  ") and not line.startswith("    ")] == [
        "  at <test_location>:1:5",
        "  called from",
        "  at <test_location>:3:5",
        "  called from",
        "  at k.py:9:1",
    ]


def test_the_place_outside_of_a_folder_is_the_call_that_led_there():
    call = Location("/home/k.py", 9, caller=Location("/home/main.py", 3))
    inner = Location("/ours/sum.py", 1, caller=Location("/ours/max.py", 2, caller=call))
    assert inner.outside("/ours/") is call
    assert call.outside("/ours/") is call and inner.outside("/other/") is inner
    assert Location("/ours/sum.py", 1).outside("/ours/") == Location("/ours/sum.py", 1), "there is no call"


def test_locations_are_values():
    place = Location("k.py", 1, 2, 3, 4)
    assert place == Location("k.py", 1, 2, 3, 4) and hash(place) == hash(Location("k.py", 1, 2, 3, 4))
    result = place.made_by("fold")
    assert result.by == "fold" and place.by is None and result.made_by("fold") is result
    assert str(result) == "k.py:1:3"
    with pytest.raises(AttributeError):
        place.line = 2  # type: ignore[misc]


def test_errors_show_place_and_hint(source: str):
    error = KernelTypeError("cannot add", Location(source, 1, 0, 1, 1), "cast one")
    assert str(error) == "cannot add\n  at <test_location>:1:1\n    x = load(ptr)\n    ^\n  hint: cast one"
    assert (error.summary, error.hint) == ("cannot add", "cast one")
    assert str(BuildError("plain")) == "plain"
    assert isinstance(error, TypeError) and isinstance(KernelNameError("n"), NameError)


@pytest.mark.parametrize(
    ("column", "width", "output", "caret"),
    [(0, 1, "0…", 0), (500, 3, "…7…", 81), (500, 900, "…7…", 81), (999, 1, "…x", 160), (1000, 1, "…x", 161)],
)
def test_a_long_line_is_clipped_around_the_caret(monkeypatch, column: int, width: int, output: str, caret: int):
    line = "0" * 400 + "7" * 300 + "x" * 300
    monkeypatch.setitem(linecache.cache, "<long>", (len(line), None, [line], "<long>"))
    text, carets = Location("<long>", 1, column, 1, column + width).excerpt().splitlines()[1:]
    assert len(text) <= 4 + 162 and (text.endswith("…"), text[4] == "…") == (output[-1] == "…", output[0] == "…")
    assert carets.index("^") == 4 + caret and len(carets) <= len(text) + 1
    if caret < 160:
        assert text[carets.index("^")] == line[column]
    error = ParseError.at(column, f"first\n{line}".removeprefix("first\n"), "f", "wrong")
    assert str(error).splitlines()[1:] == [text, carets[: carets.index("^") + 1]]


def test_several_errors_are_one():
    one, two = BuildError("first"), KernelTypeError("second")
    assert str(KernelErrors([one, two])) == "2 errors\n\nfirst\n\nsecond"
    assert str(KernelErrors([one])).startswith("1 error\n")
    assert KernelErrors([one, two]).errors == (one, two)
    assert KernelErrors.of([one]) is one and one.parts == (one,)
    assert KernelErrors.of([one, two]).parts == (one, two)


def test_an_internal_error_asks_for_the_model():
    text = str(InternalError("broken", "func;"))
    assert text.startswith("internal error: broken\n") and "report it" in text and text.endswith("\nfunc;")
