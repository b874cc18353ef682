"""The lattice: the type of a variable after two paths. (That `join` is a least upper bound is in test_promotion.py.)"""

from __future__ import annotations

from typing import NamedTuple

import pytest

import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.types import (
    DescriptorType,
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
from ziggurat.frontends.language.languages import EXPLICIT
from ziggurat.transforms.calls.constant_arguments import HostObject
from ziggurat.transforms.calls.lattice import (
    ERROR,
    PARTLY_ASSIGNED,
    UNASSIGNED,
    RangeType,
    Record,
    RecordType,
    Unusable,
    at_run_time,
    components,
    is_aggregate,
    is_host_value,
    items_of,
    join,
    known_value,
    outer_constant,
    record_fields,
)
from ziggurat.transforms.calls.promotion import constant


class Pair(NamedTuple):
    first: int
    second: int


class Other(NamedTuple):
    first: int
    second: int


@triton.aggregate
class Box:
    width: tl.tensor
    height: tl.constexpr


def record(cls, *types):
    return RecordType(types, record=Record(cls, record_fields(cls)))


def block(padding, size=16):
    return DescriptorType((size,), f32, padding)


@pytest.mark.parametrize(
    ("a", "b", "union"),
    [
        (block("zero"), block("nan"), block("either")),
        (block("zero"), block("either"), block("either")),
        (record(Pair, constant(1), f32), record(Pair, constant(2), f32), record(Pair, i32, f32)),
        (constant(-128), i8, i8),
        (constant(127), i8, i8),
        (constant(0), u8, u8),
        (constant(1 << 40), f32, f32),
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
        (block("zero"), block("zero", 32)),
        (block("zero"), PtrType(f32)),
        (record(Pair, i32, f32), record(Other, i32, f32)),
        (record(Pair, i32, f32), TupleType((i32, f32))),
        (record(Pair, i32, f32), record(Pair, f32, i32)),
        (TupleType((constant(1), i32)), TupleType((constant(1), f32))),
        (constant(128), i8),
        (constant(-129), i8),
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


def test_items_are_those_of_tuples_but_not_of_aggregates():
    assert items_of(record(Pair, i32, f32)) == (i32, f32) == items_of(TupleType((i32, f32)))
    assert items_of(record(Box, i32, constant(2))) is None and items_of(i32) is None
    assert is_aggregate(record(Box, i32, constant(2)))
    assert not is_aggregate(record(Pair, i32, f32)) and not is_aggregate(TupleType((i32,)))
    for type_, is_host in ((record(Pair, i32, f32), True), (constant(HostObject({})), True), (constant(3), False)):
        assert is_host_value(type_) is is_host
    assert not is_host_value(TupleType((i32,)))


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (constant(3), i32),
        (constant(2.5), f32),
        (constant("a"), constant("a")),
        (constant((1, 2)), TupleType((i32, i32))),
        (constant(("a", "b")), constant(("a", "b"))),
        (constant((1, "b")), TupleType((i32, constant("b")))),
        (constant((1, (2, "b"))), TupleType((i32, TupleType((i32, constant("b")))))),
        (record(Pair, constant(1), f32), record(Pair, i32, f32)),
        (record(Box, i32, constant(2)), record(Box, i32, constant(2))),
        (PtrType(f32), PtrType(f32)),
    ],
    ids=str,
)
def test_numbers_at_run_time(type_, expected):
    assert at_run_time(type_, EXPLICIT) == expected


def test_values_that_are_known_in_all_their_components():
    assert known_value(constant(3)) == (True, 3)
    assert known_value(i32) == (False, None)
    assert known_value(TupleType((constant(1), TupleType((constant(2),))))) == (True, (1, (2,)))
    assert known_value(TupleType((constant(1), i32))) == (False, (1, None))
    assert known_value(TupleType((i32, constant(1)))) == (False, (None, 1))


def test_objects_from_outside():
    text = {"a": 1}
    assert outer_constant((1, "a")) == constant((1, "a")) == outer_constant([1, "a"])
    assert outer_constant(text) == constant(HostObject(text))
    assert outer_constant(Pair(1, 2)) == record(Pair, constant(1), constant(2))
    assert outer_constant((1, Pair(1, 2))) == TupleType((constant(1), record(Pair, constant(1), constant(2))))
    assert outer_constant(tl.constexpr(3)) == constant(3)


def test_fields_of_records():
    assert record_fields(Pair) == ("first", "second")
    assert record_fields(Box) == ("width", "height")
    assert record_fields(dict) is None and record_fields(tuple) is None


def test_texts():
    assert str(ERROR) == "error" and str(UNASSIGNED) == "unusable"
    assert str(Unusable((i32, f32))) == "unusable<i32, f32>"
    assert str(RangeType(constant(0), i32, constant(1))) == "range<constant<i32, c0>, i32, constant<i32, c1>>"
