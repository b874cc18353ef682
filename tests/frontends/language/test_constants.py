"""Python objects that are constants of a kernel."""

from __future__ import annotations

import numpy as np
import pytest

from ziggurat.codemodel.types import PtrType, f32
from ziggurat.frontends.language import CompareKind
from ziggurat.frontends.language.constants import as_constant, is_enum


@pytest.mark.parametrize(
    "value", [None, True, 3, -2.5, "text", f32, PtrType(f32), CompareKind.EQUAL, (), (1, ("a", None), f32)], ids=repr
)
def test_what_is_a_constant(value):
    is_constant, constant = as_constant(value)
    assert is_constant and constant == value and type(constant) is type(value)


@pytest.mark.parametrize("value", [object(), [1, 2], {1: 2}, print, (1, object()), 1j, b"bytes", np.ndarray, int])
def test_what_is_none(value):
    assert as_constant(value)[0] is False


def test_dtypes_of_numpy_become_ours():
    for dtype in (np.float32, np.dtype("float32")):
        assert as_constant(dtype) == (True, f32)


def test_numbers_of_numpy_become_pythons():
    for number, expected in ((np.int64(3), 3), (np.float32(0.5), 0.5), (np.bool_(True), True)):
        is_constant, constant = as_constant(number)
        assert is_constant and constant == expected and type(constant) is type(expected)
    assert as_constant(np.zeros(3))[0] is False


def test_the_enums_of_the_language():
    assert is_enum(CompareKind) and not is_enum(CompareKind.EQUAL) and not is_enum(int)
