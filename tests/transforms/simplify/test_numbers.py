from __future__ import annotations

import bisect
import functools
import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ziggurat.codemodel.types import SCALARS, ScalarType, bf16, f8e4m3, f8e5m2, f16, f32, f64, i1
from ziggurat.transforms.simplify.numbers import (
    FORMATS,
    bits_of,
    from_bits,
    rounded,
    rounded_integer,
    signed_of,
    truncated,
    unsigned_of,
    wrapped,
)

NUMPY: dict[ScalarType, Any] = {
    f16: np.float16, bf16: ml_dtypes.bfloat16, f32: np.float32, f64: np.float64, f8e4m3: ml_dtypes.float8_e4m3fn,
    f8e5m2: ml_dtypes.float8_e5m2,
}  # fmt: skip
FLOATS = pytest.mark.parametrize("type_", FORMATS, ids=str)
SMALL = pytest.mark.parametrize("type_", [f16, bf16, f8e4m3, f8e5m2], ids=str)
INTEGERS = pytest.mark.parametrize("type_", [t for t in SCALARS.values() if t.kind == "int"], ids=str)
NARROW_FLOATS = st.one_of(st.floats(width=32), st.floats(-1000, 1000, width=32), st.floats(-(2**-9), 2**-9, width=32))


def same(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


@functools.cache
def numbers_of(type_: ScalarType) -> list[float]:
    """All numbers of a float type of 8 or 16 bits, sorted, without NaN."""
    bits = np.arange(1 << type_.bits, dtype=f"uint{type_.bits}").view(NUMPY[type_])
    return sorted(value for value in map(float, bits) if not math.isnan(value))


@FLOATS
@given(value=NARROW_FLOATS)
def test_rounding_is_numpys(type_: ScalarType, value: float) -> None:
    with np.errstate(all="ignore"):
        clipped = np.clip(value, -FORMATS[type_].largest, FORMATS[type_].largest) if type_.is_fp8 else value
        expected = float(np.float32(clipped).astype(NUMPY[type_]))
    assert same(rounded(value, type_), expected)


@SMALL
def test_numbers_of_a_type_are_themselves(type_: ScalarType) -> None:
    for value in numbers_of(type_):
        if math.isfinite(value) or not type_.is_fp8:
            assert same(rounded(value, type_), value)
            assert same(truncated(value, type_), value)


@SMALL
@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_rounding_is_to_the_nearest_in_one_step(type_: ScalarType, value: float) -> None:
    # ml_dtypes rounds f64 to f32 first, so it is no judge here.
    made = rounded(value, type_)
    if abs(value) >= FORMATS[type_].largest and type_.is_fp8:
        assert made == math.copysign(FORMATS[type_].largest, value)
    elif math.isfinite(made):
        place = bisect.bisect(numbers_of(type_), value)
        near = [number for number in numbers_of(type_)[max(0, place - 2) : place + 2] if math.isfinite(number)]
        best = min(abs(Fraction(number) - Fraction(value)) for number in near)
        assert abs(Fraction(made) - Fraction(value)) == best
    else:
        assert abs(value) > FORMATS[type_].largest


@SMALL
@given(value=NARROW_FLOATS)
def test_truncation_is_toward_zero(type_: ScalarType, value: float) -> None:
    made = truncated(value, type_)
    if math.isnan(value) or math.isinf(value):
        assert same(made, value) or type_.is_fp8
        return
    assert same(rounded(made, type_), made)
    assert math.copysign(1, made) == math.copysign(1, value)
    place = bisect.bisect(numbers_of(type_), abs(value))
    finite = [number for number in numbers_of(type_)[:place] if math.isfinite(number)]
    assert abs(made) == finite[-1]


@FLOATS
@given(value=st.integers(-(1 << 64), 1 << 64))
def test_integers_round_once(type_: ScalarType, value: int) -> None:
    made = rounded_integer(value, type_)
    if type_ in (f32, f64):
        below, above = (float(np.nextafter(NUMPY[type_](made), NUMPY[type_](end))) for end in (-np.inf, np.inf))
        error = abs(Fraction(made) - value)
        assert error <= min(abs(Fraction(below) - value), abs(Fraction(above) - value))
    elif abs(value) < 1 << 53:
        assert same(made, rounded(float(value), type_))


@INTEGERS
@given(value=st.integers(-(1 << 65), 1 << 65))
def test_wrapping(type_: ScalarType, value: int) -> None:
    kind = "int" if type_.signed else "uint"
    expected = np.array([value & (1 << 64) - 1], dtype=np.uint64).astype(f"{kind}{type_.bits}")
    made = wrapped(value, type_)
    assert made == int(expected[0])
    assert unsigned_of(made, type_) % (1 << type_.bits) == value % (1 << type_.bits)
    assert (signed_of(made, type_) - value) % (1 << type_.bits) == 0


def test_i1() -> None:
    assert wrapped(2, i1) is False
    assert wrapped(-1, i1) is True
    assert signed_of(True, i1) == -1
    assert unsigned_of(True, i1) == 1


@pytest.mark.parametrize("type_", [f16, bf16, f32, f64], ids=str)
@given(value=st.floats(width=16, allow_nan=False))
def test_bits(type_: ScalarType, value: float) -> None:
    value = rounded(value, type_)
    bits = bits_of(value, type_)
    assert bits == int(np.array(value, dtype=NUMPY[type_]).view(f"uint{type_.bits}"))
    back = from_bits(bits, type_)
    assert back is not None
    assert same(back, value)
    assert bits_of(math.nan, type_) is None
