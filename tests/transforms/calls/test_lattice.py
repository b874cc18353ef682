"""The lattice: the type of a variable after two paths. (That `join` is a least upper bound is in test_promotion.py.)"""

from __future__ import annotations

import pytest

from ziggurat.codemodel.location import Location
from ziggurat.codemodel.types import (
    PtrType,
    TensorType,
    TupleType,
    f16,
    f32,
    f64,
    i1,
    i8,
    i32,
    i64,
    u8,
    u32,
)
from ziggurat.transforms.calls.lattice import ERROR, PARTLY_ASSIGNED, UNASSIGNED, RangeType, Unusable, components, join
from ziggurat.transforms.calls.promotion import constant


@pytest.mark.parametrize(
    ("a", "b", "union"),
    [
        (constant(1), constant(1), constant(1)),
        (constant(1), constant(2), i32),
        (constant(1), constant(2**31), u32),
        (constant(-1), constant(2**40), i64),
        (constant(1), constant(1.5), f32),
        (constant(True), constant(False), i1),
        (constant(True), constant(1), i32),
        (constant(0.5), constant(1e300), f64),
        (constant(1), i8, i8),
        (constant(255), u8, u8),
        (constant(3), f16, f16),
        (constant(True), i32, i32),
        (constant((1, 2)), constant((1, 3)), TupleType((constant(1), i32))),
        (TupleType((f32, constant(1))), TupleType((f32, constant(2))), TupleType((f32, i32))),
        (constant((1, 2)), TupleType((i32, constant(2))), TupleType((i32, constant(2)))),
    ],
    ids=str,
)
def test_what_has_a_type_above_both(a, b, union):
    assert join(a, b) == union == join(b, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (i32, i64),
        (i32, f32),
        (constant(256), u8),
        (constant(-1), u8),
        (constant(0.5), i32),
        (constant(1), i1),
        (constant("a"), constant("b")),
        (constant(None), constant(1)),
        (constant(None), i32),
        (constant(1), PtrType(f32)),
        (constant(1), TensorType((4,), i32)),
        (TensorType((4,), i32), TensorType((8,), i32)),
        (TensorType((4,), i32), i32),
        (PtrType(f32), PtrType(i32)),
        (constant((1, 2)), constant((1, 2, 3))),
        (TupleType((i32, i32)), i32),
        (TupleType((i32, f32)), TupleType((f32, i32))),
    ],
    ids=str,
)
def test_unlike_types_give_what_must_not_be_read(a, b):
    place = Location("f.py", 3, 1)
    union = join(a, b, place, loop=True)
    assert union == Unusable((a, b), loop=True) and union.place is place
    assert not join(a, b).loop


def test_an_error_takes_everything_along():
    for other in (i32, constant(1), UNASSIGNED, Unusable((i32, f32))):
        assert join(ERROR, other) is ERROR and join(other, ERROR) is ERROR


def test_a_variable_without_a_value_on_one_path():
    assert join(UNASSIGNED, UNASSIGNED) == UNASSIGNED
    assert join(UNASSIGNED, i32) == PARTLY_ASSIGNED == join(i32, UNASSIGNED)
    assert PARTLY_ASSIGNED != UNASSIGNED
    unlike = Unusable((i32, f32))
    assert join(unlike, UNASSIGNED) == unlike == join(i32, unlike), "the unlike types are what is reported"


def test_components():
    assert components(constant((1, "a"))) == (constant(1), constant("a"))
    assert components(constant(())) == ()
    assert components(TupleType((i32, constant(2)))) == (i32, constant(2))
    for type_ in (i32, constant("ab"), TensorType((2,), i32), constant(None)):
        assert components(type_) is None


def test_texts():
    assert str(ERROR) == "error" and str(UNASSIGNED) == "unusable"
    assert str(Unusable((i32, f32))) == "unusable<i32, f32>"
    assert str(RangeType(constant(0), i32, constant(1))) == "range<constant<i32, c0>, i32, constant<i32, c1>>"
