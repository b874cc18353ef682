"""The math dialect against Python's math."""

import fractions
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ziggurat.codemodel.scalars import fma_f64

FUNCTIONS = {
    "exp": math.exp, "exp2": lambda x: 2.0**x, "log": math.log, "log2": math.log2, "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x), "sin": math.sin, "cos": math.cos, "tanh": math.tanh, "erf": math.erf,
    "floor": math.floor, "ceil": math.ceil,
}  # fmt: skip


@pytest.mark.parametrize("type_", ["f16", "bf16", "f8e4m3", "f32", "f64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(elementwise, name, type_):
    numbers = np.float64([0.1, 0.5, 1.0, 1.7, 2.5, 3.0, 6.9]).astype(
        elementwise("math.absf", [type_], type_, [[1.0]]).dtype
    )
    actual = elementwise(f"math.{name}", [type_], type_, [numbers])
    exact = np.array([FUNCTIONS[name](x) for x in numbers.astype(float).tolist()], np.float64)
    if type_ == "f64":
        np.testing.assert_allclose(actual, exact, rtol=1e-15)
    else:
        limit = 448.0 if type_ == "f8e4m3" else np.inf
        expected = np.clip(exact, -limit, limit).astype(np.float32).astype(actual.dtype)
        np.testing.assert_array_equal(actual, expected)


def test_edges(elementwise):
    f = np.float32
    assert elementwise("math.rsqrt", ["f32"], "f32", [f([0.0, np.inf])]).tolist() == [np.inf, 0.0]
    assert elementwise("math.log", ["f32"], "f32", [f([0.0])]).tolist() == [-np.inf]
    assert np.isnan(elementwise("math.sqrt", ["f32"], "f32", [f([-1.0])])).all()
    assert elementwise("math.erf", ["f64"], "f64", [[np.inf, -np.inf]]).tolist() == [1.0, -1.0]
    assert elementwise("math.absi", ["i8"], "i8", [[-128, -5, 5]]).tolist() == [-128, 5, 5]
    assert elementwise("math.ctpop", ["i16"], "i16", [[-1, 0, 5]]).tolist() == [16, 0, 2]
    assert elementwise("math.ctlz", ["i64"], "i64", [[-1, 0, 5]]).tolist() == [0, 64, 61]
    assert elementwise("math.bitreverse", ["u32"], "u32", [[1, 0, 6]]).tolist() == [1 << 31, 0, 3 << 29]


def exact_fma(a, b, c):
    exact = fractions.Fraction(a) * fractions.Fraction(b) + fractions.Fraction(c)
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


floats = st.floats(allow_nan=False, allow_infinity=False)
near = st.floats(-2, 2).map(lambda x: x + 1.0)


@given(
    st.one_of(
        st.tuples(floats, floats, floats), st.tuples(near, near, st.floats(-1e-12, 1e-12)), st.tuples(near, near, near)
    )
)
def test_fma_of_f64_rounds_once(numbers):
    a, b, c = (np.array([x]) for x in numbers)
    with np.errstate(all="ignore"):
        assert fma_f64(a, b, c)[0] == exact_fma(*numbers)


@given(st.tuples(*[st.floats(-4, 4, width=32)] * 3))
def test_fma_of_f32_rounds_once(numbers):
    from ziggurat.codemodel.scalars import sum_to_odd

    a, b, c = (np.array([x]) for x in numbers)
    actual = sum_to_odd(a * b, c).astype(np.float32)[0]
    exact = fractions.Fraction(numbers[0]) * fractions.Fraction(numbers[1]) + fractions.Fraction(numbers[2])
    distance = abs(fractions.Fraction(float(actual)) - exact)
    for direction in (-np.inf, np.inf):
        other = float(np.nextafter(actual, np.float32(direction)))
        assert distance <= abs(fractions.Fraction(other) - exact)


def test_fma_of_special_values(elementwise):
    a, b, c = [np.inf, np.inf, 1e300, 2.0], [1.0, 0.0, 1e300, 0.0], [1.0, 1.0, -np.inf, -0.0]
    actual = elementwise("math.fma", ["f64"] * 3, "f64", [a, b, c])
    np.testing.assert_array_equal(actual, [np.inf, np.nan, -np.inf, 0.0])
    small = elementwise("math.fma", ["bf16"] * 3, "bf16", [[3.0], [5.0], [0.25]])
    assert small.astype(float).tolist() == [15.25]
