"""The family of errors: the parts of a message, and the Python errors that they derive from."""

from __future__ import annotations

import inspect
import pickle

import pytest

from ziggurat.codemodel import errors
from ziggurat.codemodel.errors import InternalError, KernelErrors, KernelTypeError, VerifyError, ZigguratError, shown
from ziggurat.codemodel.location import Location

CLASSES = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, ZigguratError)]


def test_a_message_is_the_summary_the_place_and_the_hint(tmp_path):
    file = tmp_path / "k.py"
    file.write_text("def k():\n    a + b\n")
    error = KernelTypeError("unlike types", Location(str(file), 2, 4, 2, 9), "cast one")
    assert str(error) == f"unlike types\n  at {file}:2:5\n        a + b\n        ^^^^^\n  hint: cast one"
    assert str(KernelTypeError("alone")) == "alone"
    assert (error.summary, error.hint, error.location.line) == ("unlike types", "cast one", 2)


@pytest.mark.parametrize("cls", CLASSES)
def test_all_are_of_one_family_and_documented(cls):
    assert issubclass(cls, ZigguratError) and issubclass(cls, Exception) and inspect.cleandoc(cls.__doc__ or "")


@pytest.mark.parametrize(
    ("name", "base"),
    [("KernelNameError", NameError), ("KernelTypeError", TypeError), ("KernelValueError", ValueError),
     ("MemoryAccessError", errors.KernelRuntimeError)],
)  # fmt: skip
def test_errors_that_python_has_are_pythons_too(name, base):
    assert issubclass(getattr(errors, name), base)


def test_several_errors_are_shown_one_after_the_other():
    both = KernelErrors([KernelTypeError("first", hint="do this"), KernelTypeError("second")])
    assert str(both) == "2 errors\n\nfirst\n  hint: do this\n\nsecond"
    assert both.summary == "2 errors" and KernelErrors([KernelTypeError("x")]).summary == "1 error"
    assert [error.summary for error in both.errors] == ["first", "second"]


def test_what_a_message_shows_of_a_value():
    assert shown("x") == "'x'" and shown("x" * 58) == repr("x" * 58)
    assert shown("x" * 59) == "'" + "x" * 58 + "…" and len(shown(list(range(99)))) == 60


def test_violations_are_kept():
    assert VerifyError("broken", ["a", "b"]).violations == ("a", "b") and VerifyError("broken").violations == ()


def test_a_fault_asks_for_its_model():
    text = str(InternalError("it broke", "module { }"))
    assert text.startswith("internal error: it broke\n") and text.endswith("module { }") and "report it" in text


def test_an_error_survives_another_process():
    error = pickle.loads(pickle.dumps(KernelTypeError("unlike", Location("f.py", 1, 2), "cast")))
    assert (error.summary, error.hint, error.location) == ("unlike", "cast", Location("f.py", 1, 2))
