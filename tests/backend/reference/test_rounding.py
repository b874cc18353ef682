"""Conversions between number types, against exact arithmetic."""

import fractions
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ziggurat.codemodel.scalars import converted, float_to_int, int_to_float, tf32
from ziggurat.codemodel.types import SCALARS, bf16, f8e4m3, f8e5m2, f16, f32, f64, i32, i64, u64

NARROW = [f16, bf16, f8e4m3, f8e5m2]
LIMIT = {f16: 65504.0, bf16: float(ml_dtypes.finfo(ml_dtypes.bfloat16).max), f8e4m3: 448.0, f8e5m2: 57344.0}


def finite_values(scalar):
    """All finite values of a type of at most 16 bits, ascending."""
    codes = np.arange(1 << scalar.bits, dtype=f"u{scalar.bits // 8}").view(scalar.dtype)
    with np.errstate(invalid="ignore"):
        numbers = codes.astype(np.float64)
    return np.unique(numbers[np.isfinite(numbers)])


def nearest(x: float, scalar, grid) -> float:
    """Round to nearest, ties to even, by comparing exact distances."""
    if math.isnan(x):
        return math.nan
    if scalar in (f8e4m3, f8e5m2):
        x = max(-LIMIT[scalar], min(LIMIT[scalar], x))
    elif abs(x) > LIMIT[scalar]:
        step = LIMIT[scalar] - float(grid[-2])
        return math.copysign(math.inf if abs(x) >= LIMIT[scalar] + step / 2 else LIMIT[scalar], x)
    place = int(np.searchsorted(grid, x))
    around = [float(grid[i]) for i in (place - 1, place) if 0 <= i < len(grid)]
    distances = [abs(fractions.Fraction(x) - fractions.Fraction(v)) for v in around]
    best = [v for v, d in zip(around, distances, strict=True) if d == min(distances)]
    if len(best) == 2:
        code = [int(np.array(v).astype(scalar.dtype).view(f"u{scalar.bits // 8}")) for v in best]
        return best[0] if code[0] % 2 == 0 else best[1]
    return best[0]


@pytest.mark.parametrize("target", NARROW, ids=str)
@given(st.lists(st.floats(width=64), min_size=1, max_size=20), st.data())
def test_rounding_to_nearest_is_exact_from_f64(target, numbers, data):
    grid = finite_values(target)
    place = data.draw(st.integers(0, len(grid) - 2))
    middle = (grid[place] + grid[place + 1]) / 2
    numbers = [*numbers, middle, math.nextafter(middle, math.inf), math.nextafter(middle, -math.inf)]
    with np.errstate(all="ignore"):
        actual = converted(np.array(numbers), f64, target).astype(np.float64)
    np.testing.assert_array_equal(actual, [nearest(x, target, grid) for x in numbers])


@pytest.mark.parametrize("target", NARROW, ids=str)
@pytest.mark.parametrize("source", [f32, f64], ids=str)
def test_rounding_to_zero_never_grows(target, source):
    grid = finite_values(target)
    rng = np.random.default_rng(1)
    numbers = np.concatenate(
        [grid[:: max(1, len(grid) // 500)], rng.normal(size=500) * 10.0 ** rng.integers(-8, 9, 500)]
    )
    numbers = np.concatenate([numbers, [0.0, -0.0, 1e30, -1e30]]).astype(source.dtype)
    with np.errstate(all="ignore"):
        actual = converted(numbers, source, target, toward_zero=True).astype(np.float64)
    exact = numbers.astype(np.float64)
    place = np.searchsorted(grid, np.abs(exact), side="right") - 1
    np.testing.assert_array_equal(actual, np.copysign(grid[place], exact))
    assert np.array_equal(np.signbit(actual), np.signbit(exact))


@pytest.mark.parametrize("target", NARROW, ids=str)
def test_specials(target):
    with np.errstate(all="ignore"):
        for toward_zero in (False, True):
            actual = converted(np.float32([np.inf, -np.inf, np.nan]), f32, target, toward_zero=toward_zero)
            top = LIMIT[target] if target.is_fp8 else math.inf
            np.testing.assert_array_equal(actual.astype(float), [top, -top, np.nan])


@pytest.mark.parametrize("source", NARROW, ids=str)
def test_widening_is_exact(source):
    codes = np.arange(1 << source.bits, dtype=f"u{source.bits // 8}").view(source.dtype)
    for target in (f16, f32, f64):
        if target.bits > source.bits:
            with np.errstate(all="ignore"):
                actual = converted(codes, source, target)
                np.testing.assert_array_equal(actual.astype(float), codes.astype(float))


@given(st.integers(-(2**63), 2**63 - 1))
def test_integers_round_once(number):
    for target in (f16, bf16, f32, f64):
        with np.errstate(all="ignore"):
            actual = float(int_to_float(np.array([number]), target)[0])
        if math.isinf(actual):
            assert target == f16 and abs(number) >= 65520
            continue
        # No neighbour is nearer than what was found.
        near = abs(fractions.Fraction(actual) - number)
        bits = int_to_float(np.array([number]), target)
        for direction in (-np.inf, np.inf):
            if target == bf16:
                other = float(np.nextafter(bits, ml_dtypes.bfloat16(direction))[0])
            else:
                other = float(np.nextafter(bits, bits.dtype.type(direction))[0])
            if math.isfinite(other):
                assert near <= abs(fractions.Fraction(other) - number)


def test_unsigned_integers_round_once():
    numbers = np.array([2**64 - 1, 2**63 + 2**54 + 1, 2**53 + 1], np.uint64)
    assert int_to_float(numbers, bf16).astype(float).tolist() == [2.0**64, 2.0**63, 2.0**53]
    assert int_to_float(np.array([2**63 + 2**55], np.uint64), bf16).astype(float).tolist() == [2.0**63]
    assert int_to_float(np.array([2**63 + 2**55 + 1], np.uint64), bf16).astype(float).tolist() == [2.0**63 + 2.0**56]


@pytest.mark.parametrize("name", ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"])
def test_floats_to_integers_truncate_and_saturate(name):
    target = SCALARS[name]
    low, high = target.limits
    numbers = [0.0, -0.9, 1.9, -1.9, 100.5, 1e30, -1e30, math.inf, -math.inf, math.nan, float(high), float(low)]
    actual = float_to_int(np.array(numbers), target)
    expected = [0 if math.isnan(x) else max(low, min(high, int(max(-1e30, min(1e30, x))))) for x in numbers]
    assert actual.tolist() == expected
    assert float_to_int(np.float16([-3.7, 2.5]), i32).tolist() == [-3, 2]
    assert float_to_int(np.array([2.0**63 - 1024]), i64).tolist() == [2**63 - 1024]
    assert float_to_int(np.array([2.0**64 - 2048]), u64).tolist() == [2**64 - 2048]


def test_tf32_rounds_ties_to_even_or_away():
    ulp = 2.0**-10
    numbers = np.float32([1 + ulp / 2, -1 - ulp / 2, 1 + 1.5 * ulp, 1 + ulp / 2 - 2**-22, np.inf, np.nan, 0.0])
    np.testing.assert_array_equal(tf32(numbers), [1, -1, 1 + 2 * ulp, 1, np.inf, np.nan, 0.0])
    away = [1 + ulp, -1 - ulp, 1 + 2 * ulp, 1, np.inf, np.nan, 0.0]
    np.testing.assert_array_equal(tf32(numbers, ties_away=True), away)


@pytest.mark.parametrize(
    ("op", "source", "target", "argument", "expected"),
    [
        ("arith.extsi", "i8", "i32", [-1, 5], [-1, 5]),
        ("arith.extui", "u8", "u32", [255, 5], [255, 5]),
        ("arith.extui", "i8", "i32", [-1, 5], [255, 5]),
        ("arith.extui", "i1", "i32", [True, False], [1, 0]),
        ("arith.extsi", "i1", "i32", [True, False], [-1, 0]),
        ("arith.trunci", "i32", "i8", [300, -129], [44, 127]),
        ("arith.trunci", "i32", "i1", [3, 2], [True, False]),
        ("arith.sitofp", "i32", "f16", [3, -70000], [3.0, -math.inf]),
        ("arith.uitofp", "u8", "f32", [255, 0], [255.0, 0.0]),
        ("arith.uitofp", "i1", "f32", [True, False], [1.0, 0.0]),
        ("arith.fptosi", "f32", "i32", [-2.7, 2.7], [-2, 2]),
        ("arith.fptoui", "f32", "u8", [300.0, -3.0], [255, 0]),
        ("arith.truncf", "f32", "f8e5m2", [1e9, 1.1], [57344.0, 1.0]),
        ("arith.extf", "f8e4m3", "f32", [448.0, 0.1], [448.0, 0.1015625]),
        ("arith.bitcast", "f32", "i32", [1.0, -0.0], [0x3F800000, -(2**31)]),
    ],
)
def test_conversion_ops(elementwise, op, source, target, argument, expected):
    assert elementwise(op, [source], target, [np.array(argument)]).astype(float).tolist() == expected


def test_rounding_mode_is_an_attribute(elementwise):
    actual = elementwise("arith.truncf", ["f32"], "f16", [np.float32([1 + 2**-11 + 2**-12, 70000.0])], "@rounding=rtz")
    assert actual.tolist() == [1.0, 65504.0]
