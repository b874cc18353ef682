"""The boundary: errors of users show users' code; anything else that is raised inside is a fault with its model."""

from __future__ import annotations

import traceback

import pytest

import ziggurat as zg
from ziggurat.boundary import no_faults, public
from ziggurat.codemodel.errors import BuildError, InternalError, KernelTypeError, ResourceError


def deep(error):
    raise error


@public
def called(error=None, *, value=1):
    """A docstring that the wrapper keeps."""
    if error is not None:
        deep(error)
    return value


def test_it_is_the_function_otherwise():
    assert (
        called(value=5) == 5 and called.__name__ == "called" and called.__doc__ == "A docstring that the wrapper keeps."
    )


def functions_of(error):
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_an_error_of_the_user_does_not_show_the_way_through_the_compiler():
    with pytest.raises(KernelTypeError) as error:
        called(KernelTypeError("wrong"))
    assert "deep" not in functions_of(error.value)


def test_a_cause_is_kept_and_a_fault_shows_its_way():
    cause = ValueError("why")
    error = KernelTypeError("wrong")
    error.__cause__ = cause
    with pytest.raises(KernelTypeError) as excinfo:
        called(error)
    assert excinfo.value.__cause__ is cause
    with pytest.raises(InternalError) as fault:
        called(InternalError("ours", "model"))
    assert "deep" in functions_of(fault.value)
    with pytest.raises(ZeroDivisionError) as other:
        called(ZeroDivisionError())
    assert "deep" in functions_of(other.value)


def test_what_is_not_of_the_family_is_a_fault():
    with pytest.raises(InternalError) as error, no_faults("compiling", lambda: "the text", "k"):
        raise KeyError("missing\nand more")
    assert error.value.summary.startswith("internal error: compiling 'k' failed with KeyError: ")
    assert "the text" in str(error.value) and isinstance(error.value.__cause__, KeyError)


def test_a_build_error_inside_is_a_fault_too():
    with pytest.raises(InternalError, match="running 'k' failed with BuildError: bad op"), \
            no_faults("running", lambda: "text", "k"):  # fmt: skip
        raise BuildError("bad op")


@pytest.mark.parametrize("error", [KernelTypeError("wrong"), InternalError("ours", "m")])
def test_what_goes_through(error):
    with pytest.raises(type(error)) as excinfo, no_faults("compiling", lambda: "text", "k"):
        raise error
    assert excinfo.value is error


@pytest.mark.parametrize(
    ("error", "words"),
    [(MemoryError(), "needs more memory"), (RecursionError(), "is nested too deeply for compiling it")],
)
def test_what_is_too_large_is_a_resource_error(error, words):
    with pytest.raises(ResourceError, match=words), no_faults("compiling", lambda: "text", "k"):
        raise error


def test_nothing_is_asked_of_the_model_while_all_is_well():
    with no_faults("compiling", lambda: 1 / 0, "k"):
        pass


def test_a_model_without_a_text_is_said_to_have_none():
    with pytest.raises(InternalError) as error, no_faults("compiling", lambda: 1 / 0, "k"):
        raise RuntimeError
    assert "(the model has no text: ZeroDivisionError: division by zero)" in str(error.value)
    assert "compiling 'k' failed with RuntimeError\n" in error.value.summary
    assert isinstance(error.value, zg.ZigguratError)


def test_a_warning_that_is_an_error_goes_through():
    with pytest.raises(zg.ZigguratWarning), no_faults("compiling", lambda: None, "k"):
        raise zg.ZigguratWarning("the loop is not pipelined")
