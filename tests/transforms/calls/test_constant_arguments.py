"""Arguments that must be known at compile time are of the kind that the signature says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.types import PtrType, f32, i32
from ziggurat.frontends.language import SIGNATURES, CompareKind
from ziggurat.frontends.library import COMBINE
from ziggurat.transforms.calls.constant_arguments import FunctionName, as_argument

FUNCTION = FunctionName("sum", COMBINE["sum"].model)

MEMBER = "a member of zg.CompareKind, or a sign such as '<'"

# By call and parameter: values that fit, values that do not, and the words for what fits.
KINDS = {
    ("program_id", "axis"): ([0, 5], [True, 1.0, "0", None, (0,)], "an integer"),
    ("expand", "axis"): ([0, (), (0, 1)], [1.0, (0, "1"), (True,), None], "an integer or a tuple of integers"),
    ("sum", "keep_dims"): ([True, False], [0, 1, None, "yes"], "True or False"),
    ("device_print", "prefix"): (["", "x"], [1, None, f32], "a string"),
    ("zeros", "shape"): ([(), (4, 8), 16], [(4.0,), "4", None, f32], "a shape, a tuple of integers such as (16, 16)"),
    ("zeros", "dtype"): ([f32, PtrType(i32)], ["f99", 32, None, (f32,)], "a dtype such as zg.f32"),
    ("inline_asm_elementwise", "dtype"): (
        [f32, (f32, i32)],
        [(), (f32, 1), 3, None],
        "a dtype such as zg.f32, or a tuple of dtypes",
    ),
    ("reduce", "combine_fn"): ([FUNCTION], ["sum", 1, None, f32], "a function of the language"),
    ("compare", "kind"): (
        [CompareKind.EQUAL],
        ["EQUAL", "eq", 0, None],
        "a member of zg.CompareKind, or a sign such as '<'",
    ),
}


def _argument(call: str) -> Callable[[str], str]:
    return lambda name: f"{call}: '{name}'"


@pytest.mark.parametrize(("call", "name"), KINDS)
def test_what_fits_and_what_does_not(call: str, name: str):
    parameter = next(p for p in SIGNATURES[call].parameters if p.name == name)
    good, bad, words = KINDS[call, name]
    for value in good:
        as_argument(_argument(f"zg.{call}"), parameter, value)
    for value in bad:
        with pytest.raises(KernelTypeError) as error_info:
            as_argument(_argument(f"zg.{call}"), parameter, value)
        assert error_info.value.summary.startswith(f"zg.{call}: '{name}' must be {words}; got "), value


def test_none_stands_for_an_optional_argument_alone():
    axis = next(p for p in SIGNATURES["sum"].parameters if p.name == "axis")
    as_argument(_argument("zg.sum"), axis, None)
    with pytest.raises(KernelTypeError, match=r"'axis' must be an integer, or None; got 1.5"):
        as_argument(_argument("zg.sum"), axis, 1.5)


def test_what_is_not_a_constant_parameter_is_not_checked():
    value = SIGNATURES["load"].parameters[0]
    assert not value.constexpr
    as_argument(_argument("zg.load"), value, object())


def test_every_kind_of_constant_in_the_language_is_checked():
    kinds = {p.takes for signature in SIGNATURES.values() for p in signature.parameters if p.constexpr}
    from ziggurat.transforms.calls.constant_arguments import _KINDS

    assert kinds - set(_KINDS) == {"ConstAny"}


def test_dtypes_of_numpy_and_their_names_are_taken():
    dtype = next(p for p in SIGNATURES["zeros"].parameters if p.name == "dtype")
    for value in (np.float32, np.dtype("float32"), "float32", "f32", f32):
        assert as_argument(_argument("zg.zeros"), dtype, value) is f32
    several = next(p for p in SIGNATURES["inline_asm_elementwise"].parameters if p.name == "dtype")
    assert as_argument(_argument("zg.inline_asm_elementwise"), several, ("int32", np.float32)) == (i32, f32)


def test_signs_of_comparisons_are_taken():
    kind = next(p for p in SIGNATURES["compare"].parameters if p.name == "kind")
    kinds = [as_argument(_argument("zg.compare"), kind, sign) for sign in ("==", "!=", "<", "<=", ">", ">=")]
    assert kinds == list(CompareKind)
