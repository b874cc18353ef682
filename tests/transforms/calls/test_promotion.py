"""The promotion rules of docs/reference/language.md for every pair of dtypes, and the laws of the lattice."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ziggurat.codemodel.types import (
    SCALARS,
    PtrType,
    ScalarType,
    TensorType,
    TupleType,
    bf16,
    f8e4m3,
    f8e5m2,
    f16,
    f32,
    f64,
    i1,
    i16,
    i32,
    i64,
    u8,
    u32,
    u64,
)
from ziggurat.transforms.calls.lattice import ERROR, PARTLY_ASSIGNED, UNASSIGNED, Unusable, join
from ziggurat.transforms.calls.promotion import constant, promote, promote_types

DTYPES = [type_ for type_ in SCALARS.values() if isinstance(type_, ScalarType)]
KINDS = ["bool", "int", "float"]


@pytest.mark.parametrize(("a", "b"), list(itertools.product(DTYPES, repeat=2)), ids=str)
def test_every_pair_of_dtypes(a: ScalarType, b: ScalarType):
    promoted = promote_types(a, b)
    assert promoted == promote_types(b, a)
    kinds = KINDS.index(a.kind), KINDS.index(b.kind)
    if a == b:
        assert promoted == a
    elif kinds[0] != kinds[1]:
        assert promoted == (a if kinds[0] > kinds[1] else b)
    elif a.bits != b.bits:
        assert promoted == (a if a.bits > b.bits else b)
    elif a.kind == "float":
        assert promoted == f16
    else:
        assert not promoted.signed and promoted.bits == a.bits


@pytest.mark.parametrize(
    ("typed", "literal", "expected"),
    [
        (u8, 1, u8), (u8, True, u8), (i1, 1, i32), (i1, True, i1), (i16, 4.0, f32), (i64, 0.5, f32), (f16, 3, f16),
        (f8e4m3, 0.5, f8e4m3), (f16, 1e300, f16), (i32, 1e300, f64), (i1, 2**31, u32), (i1, 2**63, u64),
        (i1, 2**40, i64), (bf16, 2**40, bf16), (f64, 0.1, f64),
    ],
)  # fmt: skip
def test_literals_take_part_only_where_their_kind_is_higher(typed, literal, expected):
    assert promote(typed, constant(literal)) == expected == promote(constant(literal), typed)


def test_unlike_small_floats_meet_in_f16():
    assert promote_types(f8e4m3, f8e5m2) == f16


types = st.sampled_from(
    [
        f32, i32, i64, u8, f16, PtrType(f32), PtrType(i32), TensorType((4,), f32), TensorType((4,), i32), ERROR,
        UNASSIGNED, PARTLY_ASSIGNED, constant(1), constant(2), constant(-1), constant(True), constant(2**40),
        constant(1.5), constant(None), constant("a"), constant((1, 2)), constant((1, 2.5)), TupleType((i32, f32)),
        TupleType((i32, i32)), TupleType((i64, constant(2))),
    ]
)  # fmt: skip


def usable(type_):
    return not isinstance(type_, Unusable)


@given(types, types, types)
def test_a_join_is_a_least_upper_bound(a, b, c):
    assert join(a, a) == a
    ab, ba = join(a, b), join(b, a)
    assert usable(ab) == usable(ba)
    if usable(ab):
        assert ab == ba
        assert join(ab, a) == ab == join(ab, b)
    left, right = join(join(a, b), c), join(a, join(b, c))
    if usable(left) and usable(right):
        assert left == right
