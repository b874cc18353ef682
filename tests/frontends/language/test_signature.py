"""Binding arguments, and the errors of arguments that do not fit."""

import inspect
from typing import Any

import pytest

import ziggurat as zg
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.frontends.language import SIGNATURES
from ziggurat.frontends.language.signature import REQUIRED, active_recorder, call
from ziggurat.frontends.library import LIBRARY
from ziggurat.triton import language as tl


def message(name: str, *arguments: object, **keywords: object) -> str:
    with pytest.raises(KernelTypeError) as error_info:
        SIGNATURES[name].bind(arguments, keywords)
    near, usage, _ = str(error_info.value.hint).partition(f"zg.{SIGNATURES[name]}")
    assert usage and near == ("did you mean mask? " if "musk" in keywords else "")
    return error_info.value.summary


def test_arguments_by_position_and_keyword_with_defaults():
    assert SIGNATURES["load"].bind(("p",), {"other": 0.0, "mask": "m"}) == {
        "ptr": "p", "mask": "m", "other": 0.0, "cache_modifier": "", "eviction_policy": "", "volatile": False,
        "boundary_check": (), "padding_option": "", "sem": None, "scope": None,
    }  # fmt: skip


def test_the_bound_arguments_stand_in_the_order_of_the_parameters():
    bound = SIGNATURES["where"].bind((), {"y": 3, "condition": 1, "x": 2})
    assert list(bound.items()) == [("condition", 1), ("x", 2), ("y", 3)]


def test_variadic_and_keyword_only_parameters():
    assert SIGNATURES["device_print"].bind(("x =", 1, 2), {"hex": True}) == {
        "prefix": "x =",
        "args": (1, 2),
        "hex": True,
    }
    assert SIGNATURES["permute"].bind(("x",), {}) == {"x": "x", "dims": ()}
    assert str(SIGNATURES["device_print"]) == "device_print(prefix, *args, hex=False)"


def test_messages():
    assert message("add", 1) == "zg.add needs its argument 'b'"
    assert message("add", 1, 2, 3) == "zg.add takes at most 2 positional arguments; got 3"
    assert message("debug_barrier", 1) == "zg.debug_barrier takes at most 0 positional arguments; got 1"
    assert message("load", 1, musk=2) == "zg.load has no parameter 'musk'"
    assert message("load", 1, 2, mask=2) == "zg.load got 'mask' twice"
    assert message("device_print") == "zg.device_print needs its argument 'prefix'"


def test_a_variadic_parameter_is_no_keyword():
    assert message("permute", 1, dims=(0, 1)) == "zg.permute takes 'dims' by position"


def test_which_parameters_are_constant():
    constant = {p.name: p.constexpr for p in SIGNATURES["full"].parameters}
    assert constant == {"shape": True, "value": False, "dtype": True}
    assert all(p.default is REQUIRED for p in SIGNATURES["full"].parameters)


def test_a_call_outside_of_a_kernel():
    with pytest.raises(KernelTypeError) as error_info:
        zg.load(1)
    assert error_info.value.summary == "zg.load was called outside of a kernel"
    with pytest.raises(KernelTypeError, match=r"zg\.load needs its argument 'ptr'"):
        zg.load()  # pyright: ignore[reportCallIssue]
    with pytest.raises(KernelTypeError, match=r"zg\.add: 'a' must be a number outside of a kernel"):
        zg.add("a", 1)


def test_a_recorder_receives_calls():
    class Recorder:
        def call(self, signature: Any, arguments: Any, keywords: Any) -> Any:
            return signature.name, arguments, keywords

        def call_function(self, function: Any, arguments: Any, keywords: Any) -> Any:
            return function.name, arguments

    @zg.function
    def double(x: Any) -> Any:
        return zg.add(x, x)

    token = active_recorder.set(Recorder())
    try:
        assert zg.load(1, mask=2) == ("load", (1,), {"mask": 2})
        assert zg.add(1, 2) == ("add", (1, 2), {})
        assert double(3) == ("double", (3,))
    finally:
        active_recorder.reset(token)
    assert double(3) == 6


def test_a_call_is_declared_once():
    def load(ptr: Any) -> Any:
        """Again."""

    with pytest.raises(ValueError, match="declared twice"):
        call("Memory")(load)


def test_a_call_shows_its_signature_and_documentation():
    assert repr(zg.cdiv) == "<zg.cdiv(x, div)>"
    assert (zg.cdiv.__doc__ or "").startswith("The quotient rounded up")


def test_all_signatures_with_their_defaults(golden):
    golden("signatures", "\n".join(str(signature) for signature in SIGNATURES.values()))
    functions = [(name, getattr(tl, name)) for name in sorted(dir(tl)) if not name.startswith("_")]
    signatures = [f"{name}{inspect.signature(f)}" for name, f in functions if callable(f) and not isinstance(f, type)]
    golden("signatures_of_triton", "\n".join(signatures))


def test_functions_of_the_library_have_the_defaults_of_their_calls():
    for name, function in LIBRARY.items():
        defaults = {parameter.name: parameter.default for parameter in SIGNATURES[name].parameters}
        for parameter in inspect.signature(function.fn).parameters.values():
            if parameter.default is not inspect.Parameter.empty:
                assert defaults[parameter.name] == parameter.default, (name, parameter.name)
