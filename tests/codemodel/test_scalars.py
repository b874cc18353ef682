"""Exact meanings of numbers, against NumPy, ml_dtypes and fractions."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ziggurat.codemodel import scalars
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.elementwise import INTEGERS
from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.numbers import FLOATS as EXACT_FLOATS
from ziggurat.codemodel.numbers import bits_of_number, on_numbers, quotient, remainder, rounded_number
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.scalars import on_arrays
from ziggurat.codemodel.types import SCALARS, ScalarType, bf16, f8e4m3, f8e5m2, f16, f32, f64, i1, scalar_element

ALL_FLOATS = [type_ for type_ in SCALARS.values() if type_.is_float]
FLOATS = pytest.mark.parametrize("type_", ALL_FLOATS, ids=str)
SMALL = pytest.mark.parametrize("type_", [f16, bf16, f8e4m3, f8e5m2], ids=str)
NARROW_FLOATS = st.one_of(st.floats(width=32), st.floats(-1000, 1000, width=32), st.floats(-(2**-9), 2**-9, width=32))


def truncated(value: float, type_: ScalarType) -> float:
    with np.errstate(all="ignore"):
        return scalars.number_of(scalars.truncated(np.array([value]), type_))


def rounded_integer(value: int, type_: ScalarType) -> float:
    with np.errstate(all="ignore"):
        return scalars.number_of(scalars.int_to_float(np.array([value], np.int64), type_))


def same(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


@functools.cache
def numbers_of(type_: ScalarType) -> list[float]:
    """All numbers of a float type of 8 or 16 bits, sorted, without NaN."""
    bits = np.arange(1 << type_.bits, dtype=f"uint{type_.bits}").view(type_.dtype.type)
    return sorted(value for value in map(float, bits) if not math.isnan(value))


@FLOATS
@given(value=NARROW_FLOATS)
def test_rounding_is_numpys(type_: ScalarType, value: float) -> None:
    with np.errstate(all="ignore"):
        clipped = np.clip(value, -type_.format.largest, type_.format.largest) if type_.is_fp8 else value
        expected = float(np.float32(clipped).astype(type_.dtype.type))
    assert same(rounded_number(value, type_), expected)


@SMALL
def test_numbers_of_a_type_are_themselves(type_: ScalarType) -> None:
    for value in numbers_of(type_):
        if math.isfinite(value) or not type_.is_fp8:
            assert same(rounded_number(value, type_), value)
            assert same(truncated(value, type_), value)


@SMALL
@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_rounding_is_to_the_nearest_in_one_step(type_: ScalarType, value: float) -> None:
    # ml_dtypes rounds f64 to f32 first, so it is no judge here.
    result = rounded_number(value, type_)
    if abs(value) >= type_.format.largest and type_.is_fp8:
        assert result == math.copysign(type_.format.largest, value)
    elif math.isfinite(result):
        place = bisect.bisect(numbers_of(type_), value)
        near = [number for number in numbers_of(type_)[max(0, place - 2) : place + 2] if math.isfinite(number)]
        best = min(abs(Fraction(number) - Fraction(value)) for number in near)
        assert abs(Fraction(result) - Fraction(value)) == best
    else:
        assert abs(value) > type_.format.largest


@SMALL
@given(value=NARROW_FLOATS)
def test_truncation_is_toward_zero(type_: ScalarType, value: float) -> None:
    result = truncated(value, type_)
    if math.isnan(value) or math.isinf(value):
        assert same(result, value) or type_.is_fp8
        return
    assert same(rounded_number(result, type_), result)
    assert math.copysign(1, result) == math.copysign(1, value)
    place = bisect.bisect(numbers_of(type_), abs(value))
    finite = [number for number in numbers_of(type_)[:place] if math.isfinite(number)]
    assert abs(result) == finite[-1]


@FLOATS
@given(value=st.integers(-(1 << 63), (1 << 63) - 1))
def test_integers_round_once(type_: ScalarType, value: int) -> None:
    result = rounded_integer(value, type_)
    if type_ in (f32, f64):
        below, above = (
            float(np.nextafter(type_.dtype.type(result), type_.dtype.type(end))) for end in (-np.inf, np.inf)
        )
        error = abs(Fraction(result) - value)
        assert error <= min(abs(Fraction(below) - value), abs(Fraction(above) - value))
    elif abs(value) < 1 << 53:
        assert same(result, rounded_number(float(value), type_))


@FLOATS
@given(value=st.floats(width=16, allow_nan=False))
def test_bits(type_: ScalarType, value: float) -> None:
    value = rounded_number(value, type_)
    bits = bits_of_number(value, type_)
    assert bits == int(np.array(value).astype(type_.dtype).view(f"uint{type_.bits}"))


@given(st.integers(-(1 << 70), 1 << 70), st.integers(-(1 << 70), 1 << 70).filter(bool))
def test_quotients_and_remainders_are_those_of_c(a: int, b: int) -> None:
    expected = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    assert quotient(a, b) == expected
    assert remainder(a, b) == a - expected * b


def _exact_fma(values: tuple[float, ...], type_: ScalarType) -> float:
    a, b, c = map(Fraction, values)
    exact = a * b + c
    below, above = -type_.format.largest, type_.format.largest
    if not below <= exact <= above:
        return math.nan
    grid = numbers_of(type_)
    place = bisect.bisect(grid, exact)
    near = [number for number in grid[max(0, place - 2) : place + 2] if math.isfinite(number)]
    best = min(abs(Fraction(number) - exact) for number in near)
    return next(number for number in near if abs(Fraction(number) - exact) == best)


@SMALL
@given(
    values=st.lists(st.one_of(NARROW_FLOATS, st.sampled_from([1.0, -1.0, 0.5, 3.0, 2.0**-9])), min_size=3, max_size=3)
)
def test_fma_rounds_once(type_: ScalarType, values: tuple[float, ...]) -> None:
    values = tuple(rounded_number(value, type_) for value in values)
    if not all(map(math.isfinite, values)):
        return
    expected = _exact_fma(values, type_)
    arrays = [scalars.array_of(value, type_) for value in values]
    with np.errstate(all="ignore"):
        result = scalars.number_of(scalars.fma(*arrays, type_))  # pyright: ignore[reportCallIssue]
    if not math.isnan(expected):
        exact = Fraction(values[0]) * Fraction(values[1]) + Fraction(values[2])
        assert abs(Fraction(result) - exact) == abs(Fraction(expected) - exact)


def smallest(type_: ScalarType) -> float:
    """The smallest number above 0."""
    return math.ldexp(type_.format.epsilon, type_.format.smallest_exponent)


@pytest.mark.parametrize("type_", [f16, f32], ids=str)
def test_fma_at_numbers_midway_between_two_of_the_type(type_: ScalarType) -> None:
    # 1 + half an ulp is a tie; any addend, however small, decides it.
    half = type_.format.epsilon / 2
    tiny = smallest(type_)
    for addend, expected in ((0.0, 1.0), (tiny, 1.0 + 2 * half), (-tiny, 1.0)):
        total = Fraction(1) + Fraction(half) + Fraction(addend)
        product = [scalars.array_of(value, type_) for value in (1.0 + 4 * half, 1.0 - 2 * half, addend)]
        with np.errstate(all="ignore"):
            result = scalars.number_of(scalars.fma(*product, type_))  # pyright: ignore[reportCallIssue]
        exact = Fraction(1.0 + 4 * half) * Fraction(1.0 - 2 * half) + Fraction(addend)
        others = (result - 2 * half, result + 2 * half)
        assert all(abs(Fraction(result) - exact) <= abs(Fraction(other) - exact) for other in others)
        assert total > 1 or expected == 1.0


@FLOATS
@given(value=st.one_of(st.floats(), NARROW_FLOATS, st.integers(-(1 << 63), (1 << 64) - 1)))
def test_python_numbers_round_as_arrays_do(type_: ScalarType, value: float) -> None:
    with np.errstate(all="ignore"):
        array = scalars.array_of(value, type_)
    assert same(rounded_number(value, type_), scalars.number_of(array))
    if not math.isnan(value):
        assert bits_of_number(value, type_) == int(scalars.bits_of(array)[0])


DIVISIONS = (arith.DivSI, arith.DivUI, arith.RemSI, arith.RemUI)


def special(type_: ScalarType) -> list[Any]:
    """Numbers of a type at which meanings differ, if they do."""
    if type_ == i1:
        return [False, True]
    if type_.is_int:
        return [*type_.limits, 0, 1, 7, type_.limits[1] // 2 + 1, *((-1, -7) if type_.signed else ())]
    top, small = type_.format.largest, smallest(type_)
    results = [math.nan, 0.0, -0.0, 1.0, -2.5, top, -top, small, type_.format.smallest_normal]
    return results if type_.saturates else [*results, math.inf, -math.inf]


def made(cls: type[Op], *argument: Any, **keywords: Any) -> list[Op]:
    """The op, if it takes operands of this number, of these types and signs."""
    try:
        return [cls(*argument, **keywords)]
    except (BuildError, TypeError):
        return []


def ops_on_numbers() -> Iterator[Op]:
    """Ops that Python numbers can be computed with, on operands of each type."""
    values = [tt.Poison(type_).result for type_ in SCALARS.values()]
    condition = tt.Poison(i1).result
    functions = (maths.AbsI, maths.CtPop, maths.CtLz, maths.BitReverse, arith.Select, tt.MulHiUI)
    casts = (arith.ExtF, arith.TruncF, arith.ExtSI, arith.ExtUI, arith.TruncI, arith.SIToFP, arith.UIToFP)
    for value in values:
        for cls in (*INTEGERS, *functions, *EXACT_FLOATS):
            yield from made(cls, value) + made(cls, value, value) + made(cls, condition, value, value)
        for predicate in arith.IntPredicate:
            yield from made(arith.CmpI, value, value, predicate)
        for predicate in arith.FloatPredicate:
            yield from made(arith.CmpF, value, value, predicate)
        for cls, type_ in itertools.product(casts, SCALARS.values()):
            yield from made(cls, value, type=type_)


def test_ops_on_python_numbers_mean_what_they_do_on_arrays() -> None:
    wrong: list[Any] = []
    for op in ops_on_numbers():
        types = [scalar_element(value.type) for value in op.operands]
        for numbers in itertools.product(*map(special, types)):
            if not isinstance(op, DIVISIONS) or numbers[1]:
                actual, expected = on_numbers(op, numbers), on_arrays(op, numbers)
                if not same(actual, expected) or type(actual) is not type(expected):
                    wrong.append((op.NAME, types, numbers, actual, expected))
    assert not wrong, wrong[:20]
