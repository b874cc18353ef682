"""Assertions that integer results fit, in models of a language that checks for overflow."""

from __future__ import annotations

import attrs
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.types import PtrType, ScalarType, f32, i1, i8, i16, i32, i64, u8, u32, u64
from ziggurat.frontends.language.languages import EXPLICIT
from ziggurat.frontends.triton.language import TRITON
from ziggurat.transforms.attribution import attribute
from ziggurat.transforms.mirror import mirror

CHECKED = attrs.evolve(EXPLICIT, checks_overflow=True)


@zg.function
def added(p, a, b):
    zg.store(p, a + b)


@zg.function
def others(p, a, b):
    zg.store(p, (a & b) | (a // b))


def assertions(function, element: ScalarType, language=CHECKED, checks_overflow=True, result: ScalarType | None = None):
    types = (PtrType(result or element), element, element)
    module = mirror(attribute(function.model, types, language=language), checks_overflow=checks_overflow)
    zg.verify(module)
    return [op for op in module.walk() if isinstance(op, tt.Assert)]


@pytest.mark.parametrize("element", [i8, i16, i32, u8, u32])
def test_narrow_results_are_compared_with_the_limits_of_their_type(element):
    (check,) = assertions(added, element)
    assert check.message == f"int{element.bits} overflow detected for operation add"
    both = check.condition.op
    assert isinstance(both, arith.AndI)
    limits = [(part.op.predicate.value, part.op.rhs.op.value, part.op.lhs.type) for part in both.operands]
    low, high = element.limits
    assert limits == [("sge", low, i64), ("sle", high, i64)]


@pytest.mark.parametrize("element", [i64, u64, f32])
def test_wide_results_and_floats_are_not_checked(element):
    assert not assertions(added, element)


def test_other_operators_and_languages_are_not_checked():
    assert not assertions(others, i32)
    assert not assertions(added, i32, EXPLICIT)
    assert not assertions(added, i32, CHECKED, checks_overflow=False)


def test_the_sum_of_two_bools_is_an_i32():
    (check,) = assertions(added, i1, result=i32)
    assert check.message == "int32 overflow detected for operation add"


def test_a_bool_of_tritons_python_does_not_overflow():
    assert not assertions(added, i1, TRITON) and len(assertions(added, i8, TRITON)) == 1
