"""Evaluation of ops on constants, against NumPy."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.numbers import rounded_number as rounded
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import ScalarType, bf16, f16, f32, f64, i8, i32, i64, u8, u32
from ziggurat.transforms.simplify.fold import evaluate

NUMPY: dict[ScalarType, Any] = {
    f16: np.float16, bf16: ml_dtypes.bfloat16, f32: np.float32, f64: np.float64, i8: np.int8, i32: np.int32,
    u8: np.uint8, u32: np.uint32, i64: np.int64,
}  # fmt: skip
FLOATS = pytest.mark.parametrize("type_", [f16, bf16, f32, f64], ids=str)
INTEGERS = pytest.mark.parametrize("type_", [i8, i32, u8, u32, i64], ids=str)
REALS = st.one_of(st.floats(width=32), st.integers(-10, 10).map(float))


def at(type_: ScalarType) -> Value:
    """A value of this type; which one does not matter."""
    return tt.Poison(type_).result


def same(a: Any, b: Any) -> bool:
    return (a != a and b != b) or (a == b and math.copysign(1, a) == math.copysign(1, b))


FLOAT_OPS = {
    arith.AddF: np.add, arith.SubF: np.subtract, arith.MulF: np.multiply, arith.DivF: np.divide,
    arith.MaximumF: np.maximum, arith.MinimumF: np.minimum, arith.MaxNumF: np.fmax, arith.MinNumF: np.fmin,
}  # fmt: skip


@FLOATS
@given(a=REALS, b=REALS)
def test_floats(type_: ScalarType, a: float, b: float) -> None:
    x, y = rounded(a, type_), rounded(b, type_)
    for cls, function in FLOAT_OPS.items():
        result = evaluate(cls(at(type_), at(type_)), (a, b))
        if x == y == 0.0 and issubclass(cls, arith.MaximumF | arith.MinimumF | arith.MaxNumF | arith.MinNumF):
            continue  # NumPy takes either zero.
        with np.errstate(all="ignore"):
            expected = float(function(NUMPY[type_](x), NUMPY[type_](y)))
        assert result is not None
        assert same(result, expected), (cls.NAME, x, y, result, expected)


def test_the_sign_of_zeros() -> None:
    for a, b in ((0.0, -0.0), (-0.0, 0.0)):
        assert same(evaluate(arith.MaximumF(at(f32), at(f32)), (a, b)), 0.0)
        assert same(evaluate(arith.MinimumF(at(f32), at(f32)), (a, b)), -0.0)
        assert same(evaluate(arith.MaxNumF(at(f32), at(f32)), (a, b)), 0.0)
        assert same(evaluate(arith.MinNumF(at(f32), at(f32)), (a, b)), -0.0)
    assert same(evaluate(arith.NegF(at(f32)), (0.0,)), -0.0)
    assert same(evaluate(maths.Ceil(at(f32)), (-0.5,)), -0.0)


@FLOATS
@given(a=REALS, b=REALS)
def test_comparing_floats(type_: ScalarType, a: float, b: float) -> None:
    x, y = NUMPY[type_](rounded(a, type_)), NUMPY[type_](rounded(b, type_))
    functions = {"oeq": np.equal, "une": np.not_equal, "olt": np.less, "ole": np.less_equal, "ogt": np.greater}
    for name, function in functions.items():
        result = evaluate(arith.CmpF(at(type_), at(type_), arith.FloatPredicate(name)), (a, b))
        with np.errstate(all="ignore"):
            assert result is bool(function(x, y))


INT_OPS: dict[Any, Any] = {
    arith.AddI: np.add, arith.SubI: np.subtract, arith.MulI: np.multiply, arith.AndI: np.bitwise_and,
    arith.OrI: np.bitwise_or, arith.XOrI: np.bitwise_xor,
}  # fmt: skip


@INTEGERS
@given(data=st.data())
def test_integers(type_: ScalarType, data: Any) -> None:
    low, high = type_.limits
    number = st.one_of(st.integers(low, high), st.sampled_from([low, high, 0, 1, high - 1]))
    a, b = data.draw(number), data.draw(number)
    x, y = (np.array([n], dtype=NUMPY[type_]) for n in (a, b))
    for cls, function in INT_OPS.items():
        assert evaluate(cls(at(type_), at(type_)), (a, b)) == int(function(x, y)[0]), cls.NAME
    quotient = evaluate((arith.DivSI if type_.signed else arith.DivUI)(at(type_), at(type_)), (a, b))
    remainder = evaluate((arith.RemSI if type_.signed else arith.RemUI)(at(type_), at(type_)), (a, b))
    if b == 0:
        assert quotient is None
        assert remainder is None
    elif quotient is None:
        assert (a, b) == (low, -1)
        assert remainder == 0
    else:
        assert quotient == int(math.copysign(1, a) * math.copysign(1, b)) * (abs(a) // abs(b))
        assert remainder is not None
        assert quotient * b + remainder == a
        assert remainder == 0 or (remainder < 0) == (a < 0)


def test_shifts() -> None:
    assert evaluate(arith.ShlI(at(i8), at(i8)), (65, 1)) == -126
    assert evaluate(arith.ShrSI(at(i8), at(i8)), (-128, 7)) == -1
    assert evaluate(arith.ShrUI(at(u8), at(u8)), (128, 7)) == 1
    assert evaluate(arith.ShlI(at(i8), at(i8)), (1, 8)) is None
    assert evaluate(arith.ShlI(at(i8), at(i8)), (1, -1)) is None
    assert evaluate(tt.MulHiUI(at(u32), at(u32)), (1 << 31, 6)) == 3


def test_casts() -> None:
    assert evaluate(arith.TruncI(at(i32), type=i8), (200,)) == -56
    assert evaluate(arith.ExtSI(at(i8), type=i32), (-1,)) == -1
    assert evaluate(arith.ExtUI(at(i8), type=i32), (-1,)) == 255
    assert evaluate(arith.UIToFP(at(i8), type=f32), (-1,)) == 255.0
    assert evaluate(arith.SIToFP(at(i64), type=f32), ((1 << 53) + (1 << 29) + 1,)) == 2.0**53 + 2.0**30
    assert evaluate(arith.FPToSI(at(f32), type=i8), (-3.7,)) == -3
    assert evaluate(arith.FPToSI(at(f32), type=i8), (128.0,)) is None
    assert evaluate(arith.FPToSI(at(f32), type=i8), (math.nan,)) is None
    assert evaluate(arith.FPToUI(at(f32), type=u8), (255.9,)) == 255
    assert evaluate(arith.TruncF(at(f32), type=f16), (65519.0,)) == 65504.0
    assert evaluate(arith.TruncF(at(f32), type=f16), (65520.0,)) == math.inf
    assert evaluate(arith.TruncF(at(f32), type=f16, rounding=arith.Rounding.ZERO), (1e9,)) == 65504.0
    assert evaluate(arith.TruncF(at(f32), type=f16, rounding=arith.Rounding.ZERO), (0.1,)) == 0.0999755859375
    assert evaluate(arith.Bitcast(at(f32), type=i32), (-1.5,)) == -1077936128
    assert evaluate(arith.Bitcast(at(i32), type=f32), (-1077936128,)) == -1.5
    assert evaluate(arith.Bitcast(at(i32), type=u32), (-1,)) == 4294967295


def test_a_constant_is_first_a_number_of_its_type() -> None:
    assert evaluate(arith.ExtF(at(f16), type=f64), (0.1,)) == 0.0999755859375


@FLOATS
@given(a=REALS)
def test_functions_are_exact_or_left(type_: ScalarType, a: float) -> None:
    x = rounded(a, type_)
    with np.errstate(all="ignore"):
        wide = np.float64(x)
        cases = {
            maths.Sqrt: rounded(float(np.sqrt(wide)), type_), maths.Floor: np.floor(wide), maths.AbsF: abs(x),
            maths.Exp2: rounded(float(np.exp2(wide)), type_), maths.Rsqrt: rounded(float(1 / np.sqrt(wide)), type_),
            maths.Log2: rounded(float(np.log2(wide)), type_), maths.Exp: 1.0, maths.Cos: 1.0, maths.Log: 0.0,
        }  # fmt: skip
    for cls, expected in cases.items():
        result = evaluate(cls(at(type_)), (a,))
        assert result is None or same(result, expected), cls.NAME
    assert evaluate(maths.Sqrt(at(type_)), (a,)) is not None


def test_multiply_add_rounds_once() -> None:
    # In f32, 1 + 2^-12 squared is 1 + 2^-11 + 2^-24: rounding the product first would lose the last bit.
    a = 1 + 2.0**-12
    assert evaluate(maths.Fma(at(f32), at(f32), at(f32)), (a, a, -1.0)) == 2.0**-11 + 2.0**-24
    assert same(evaluate(maths.Fma(at(f32), at(f32), at(f32)), (1.0, 1.0, -1.0)), 0.0)
    assert evaluate(maths.Fma(at(f64), at(f64), at(f64)), (0.1, 0.1, -0.01)) == 9.020562075079397e-19
