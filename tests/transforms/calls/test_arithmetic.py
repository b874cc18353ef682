"""Type rules of calls that work element by element, and what Python computes of constants."""

from __future__ import annotations

import math

import pytest
from call_types import Types

from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.types import (
    PtrType,
    TensorType,
    bf16,
    f8e4m3,
    f16,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
    u8,
    u32,
    u64,
)  # fmt: skip
from ziggurat.frontends.language import CompareKind
from ziggurat.frontends.language.comparison import NAMED
from ziggurat.transforms.calls.arithmetic import PREDICATES
from ziggurat.transforms.calls.promotion import constant

R = Types()
T = TensorType((16,), i32)
FT = TensorType((4, 16), f32)
P = PtrType(f32)
PT = TensorType((16,), P)
BINARY = ["add", "sub", "mul", "div", "floordiv", "mod", "and_", "or_", "xor", "shl", "shr", "minimum", "maximum"]
FUNCTIONS = ["exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "floor", "ceil"]


@pytest.mark.parametrize("name", BINARY)
def test_operands_are_broadcast_and_promoted(name):
    rule = getattr(R, name)
    expected = f32 if name == "div" else i64
    assert rule(T, TensorType((4, 1), i64)) == TensorType((4, 16), expected)
    assert rule(i64, constant(3)) == expected
    with pytest.raises(KernelTypeError, match=r"the shapes \[16\] and \[8\] do not match"):
        rule(T, TensorType((8,), i32))
    with pytest.raises(KernelTypeError, match="the operands must be numbers; got"):
        rule(T, constant((1, 2)))


@pytest.mark.parametrize("name", ["floordiv", "and_", "or_", "xor", "shl", "shr"])
def test_integers_alone(name):
    for a, b in ((f32, i32), (i32, f16), (T, FT)):
        with pytest.raises(KernelTypeError, match=f"zg.{name}: the operands must be integers; got"):
            getattr(R, name)(a, b)


def test_i1_is_counted_in_i32():
    for name in ("add", "sub", "mul"):
        assert getattr(R, name)(i1, i1) == i32
    assert R.and_(i1, i1) == R.minimum(i1, i1) == i1


def test_quotients_are_floats():
    assert R.div(i32, i64) == R.div(u8, constant(2)) == f32
    assert R.div(f16, i64) == f16 and R.div(f64, f32) == f64


@pytest.mark.parametrize("name", ["add", "sub"])
def test_pointers_move_by_integers(name):
    rule = getattr(R, name)
    assert rule(P, constant(4)) == P and rule(P, i64) == P
    assert rule(P, T) == rule(PT, T) == rule(PT, i32) == PT
    for offset in (f32, constant(0.5), constant(None)):
        with pytest.raises(KernelTypeError, match=r"the offset of the pointer .* must be an integer"):
            rule(P, offset)
    with pytest.raises(KernelTypeError, match="one operand must be an integer; got two pointers"):
        rule(P, P)


def test_a_pointer_on_the_right_is_added_and_not_subtracted():
    assert R.add(T, P) == PT
    with pytest.raises(KernelTypeError, match=r"zg.sub: the operands must be numbers; got a pointer"):
        R.sub(T, P)


def test_three_operands():
    assert R.clamp(T, constant(0), i64) == TensorType((16,), i64)
    assert R.clamp(constant(7), constant(0), constant(5)) == constant(5)
    assert R.fma(f16, constant(2), f32) == f32 and R.fma(constant(2), constant(3), constant(4)) == constant(10)
    assert R.fma(i32, constant(0.5), i32) == f32
    with pytest.raises(KernelTypeError, match=r"zg.fma: the operands must be floats; got i32"):
        R.fma(i32, i32, i32)
    with pytest.raises(KernelTypeError, match=r"zg.clamp: the operands must be numbers"):
        R.clamp(T, P, i32)


def test_neg_and_invert():
    assert R.neg(FT) == FT and R.neg(constant(3)) == constant(-3) and R.invert(T) == T
    assert R.invert(constant(True)) == constant(False) and R.invert(constant(5)) == constant(-6)
    with pytest.raises(KernelTypeError, match=r"zg.neg: the operands must be integers or floats; got i1"):
        R.neg(i1)
    with pytest.raises(KernelTypeError, match=r"zg.invert: the operands must be integers; got f32"):
        R.invert(f32)


def test_comparisons():
    assert PREDICATES.keys() == set(CompareKind) == set(NAMED.values())
    for kind in CompareKind:
        assert R.compare(T, constant(3), kind) == TensorType((16,), i1)
        assert R.compare(PT, PT, kind) == TensorType((16,), i1)
    assert R.compare(constant(2), constant(3), CompareKind.LESS_THAN) == constant(True)
    for other in (PtrType(i32), i64, constant(0)):
        with pytest.raises(KernelTypeError, match=r"zg.compare: the operands must be numbers; got a pointer"):
            R.compare(P, other, CompareKind.EQUAL)
    with pytest.raises(KernelValueError, match="does not fit in u8"):
        R.compare(u8, constant(256), CompareKind.EQUAL)


def test_where():
    mask = TensorType((16,), i1)
    assert R.where(mask, constant(1), constant(2.5)) == TensorType((16,), f32)
    assert R.where(i1, TensorType((4, 1), i8), T) == TensorType((4, 16), i32)
    assert R.where(mask, P, P) == PT
    assert R.where(constant(True), constant(1), constant("a")) == constant(1)
    assert R.where(i32, f32, f32) == R.where(constant(1), f32, f32) == f32
    for condition in (P, constant(None)):
        with pytest.raises(KernelTypeError, match="the condition must be i1"):
            R.where(condition, i32, i32)
    with pytest.raises(KernelTypeError, match="unlike pointers"):
        R.where(mask, P, PtrType(i32))
    with pytest.raises(KernelTypeError, match=r"zg.where: the operands must be numbers; got a pointer"):
        R.where(mask, P, i64)


def test_casts():
    assert R.cast(T, f16) == TensorType((16,), f16) and R.cast(constant(3.7), i8) == i8
    assert R.cast(f32, f16, "rtz") == f16 and R.cast(P, i64) == i64 and R.cast(PT, i64).element == i64
    assert R.cast(i64, P) == P and R.cast(PT, PtrType(i8)) == TensorType((16,), PtrType(i8))
    assert R.cast(f32, i32, None, True) == i32
    assert R.cast(constant(2), i1) == i1


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((P, i32), KernelTypeError, "casts to zg.i64, zg.u64, zg.i1 or another pointer, not to i32"),
        ((P, f32), KernelTypeError, "casts to zg.i64"),
        ((i32, P), KernelTypeError, "only pointers, i64 and u64 cast to ptr<f32>, not i32"),
        ((constant(0), P), KernelTypeError, "only pointers, i64 and u64 cast"),
        ((f32, f16, "up"), KernelValueError, "'rtne' or 'rtz'; got 'up'"),
        ((f16, f32, "rtz"), KernelValueError, "to a narrower float"),
        ((i32, f16, "rtz"), KernelValueError, "to a narrower float"),
        ((constant(300), i8), KernelValueError, "does not fit in i8"),
        ((constant("a"), i8), KernelTypeError, "zg.cast: the operands must be numbers"),
        ((f32, i64, None, True), KernelTypeError, "zg.bitcast keeps the width: f32 has 32 bits, i64 has 64"),
    ],
)
def test_casts_that_are_none(arguments, error, words):
    with pytest.raises(error, match=words):
        R.cast(*arguments)


def test_bitcasts():
    assert R.bitcast(TensorType((8,), bf16), i16) == TensorType((8,), i16)
    assert R.bitcast(constant(1.0), u32) == u32 and R.bitcast(f8e4m3, u8) == u8
    assert R.bitcast(P, PtrType(i8)) == PtrType(i8)
    with pytest.raises(KernelTypeError, match=r"zg.bitcast: the operands must be numbers; got a pointer"):
        R.bitcast(P, i64)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_floats(name):
    rule = getattr(R, name)
    assert rule(FT) == FT and rule(f16) == f16 and rule(T) == TensorType((16,), f32) and rule(i64) == f32
    made = rule(constant(1)).value
    assert type(made) is float and math.isfinite(made)
    for bad in (P, constant("a"), constant(None)):
        with pytest.raises(KernelTypeError, match=f"zg.{name}: the operands must be numbers"):
            rule(bad)


def test_abs_and_umulhi():
    assert R.abs(T) == T and R.abs(constant(-3)) == constant(3)
    assert R.umulhi(i32, u32) == R.umulhi(u32, constant(7)) == u32 and R.umulhi(T, i64) == TensorType((16,), u64)
    for a, b in ((i16, i16), (f32, f32), (constant(1), constant(2)), (P, i32)):
        with pytest.raises(KernelTypeError, match=r"zg.umulhi: the operands must be "):
            R.umulhi(a, b)


def test_what_is_computed_of_constants_alone():
    assert R.cdiv(constant(10), constant(4)) == constant(3)
    assert [R.next_power_of_2(n).value for n in (-1, 0, 1, 3, 64, 65)] == [1, 1, 1, 4, 64, 128]
    with pytest.raises(KernelValueError, match=r"division by zero|modulo by zero"):
        R.cdiv(constant(10), constant(0))
