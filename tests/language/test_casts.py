"""Casts and bitcasts between all pairs of dtypes."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg

INTS = ("i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64")
LIMITS = {"f8e4m3": 448.0, "f8e5m2": 57344.0}


def numbers(array):
    """The elements as Python's, exactly."""
    return [
        x if isinstance(x, int) else float(x)
        for x in array.astype(np.float64 if array.dtype.kind not in "iub" else array.dtype).tolist()
    ]


class Grid:
    """The finite numbers of a float dtype from 0 on, by their bits; rounding compares with the neighbours."""

    def __init__(self, name, dtype):
        self.name, self.dtype = name, dtype
        self.unsigned = np.dtype(f"u{dtype.itemsize}")
        self.top = int(ml_dtypes.finfo(dtype).max.view(self.unsigned))

    def number(self, code):
        return float(np.array(code, self.unsigned).view(self.dtype))

    def below(self, magnitude):
        """The code of the largest number that is not above."""
        low, high = 0, self.top
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.number(middle) <= magnitude else (low, middle - 1)
        return low

    def rounded(self, value, toward_zero=False):
        """The code of a number rounded; ties to even. Beyond the range: infinity, or the largest number."""
        magnitude = abs(value)
        sign = 1 << (self.dtype.itemsize * 8 - 1) if math.copysign(1, value) < 0 else 0
        saturates = self.name in LIMITS
        if magnitude == math.inf:
            return sign | (self.top if saturates else self.top + 1)
        code = self.below(magnitude)
        if toward_zero or self.number(code) == magnitude:
            return sign | code
        if code == self.top:
            step = self.number(code) - self.number(code - 1)
            over = magnitude - self.number(code) >= step / 2
            return sign | (code + 1 if over and not saturates else code)
        # As integers or fractions: a difference of two large numbers may not be a float.
        exact = Fraction(magnitude)
        low, high = exact - Fraction(self.number(code)), Fraction(self.number(code + 1)) - exact
        return sign | (code if low < high or (low == high and code % 2 == 0) else code + 1)


@pytest.fixture(scope="module")
def expected(dtypes):
    def cast(array, target, toward_zero=False):
        dtype = dtypes[target]
        if array.dtype == dtype:
            return array
        if target == "i1":
            return np.array([x != 0 for x in numbers(array)])
        results = []
        if target in FLOATS:
            if target in ("f32", "f64") and not toward_zero:
                return array.astype(dtype)
            grid = Grid(target, dtype)
            for x in numbers(array):
                if x != x:
                    results.append(int(np.array(np.nan, dtype).view(grid.unsigned)))
                else:
                    # An integer of 64 bits rounds once, from its own value.
                    results.append(grid.rounded(x, toward_zero))
            return np.array(results, grid.unsigned).view(dtype)
        bits = dtype.itemsize * 8
        low, high = (0, 2**bits - 1) if target[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        for x in numbers(array):
            if isinstance(x, float):
                x = 0 if x != x else low if x < low else high if x > high else int(x)
            results.append(x % (1 << bits))
        return np.array(results, f"u{dtype.itemsize}").view(dtype)

    return cast


@pytest.fixture
def sample(values, dtypes):
    def of(name):
        """Test values, and the midpoints between neighbours of the narrower floats."""
        array = values(name)
        if name in ("f16", "bf16", "f32", "f64"):
            middles = []
            for narrow in ("f8e4m3", "f8e5m2", "f16", "bf16", "f32"):
                dtype = dtypes[narrow]
                codes = np.array([0, 1, 2, 7, 8, 57, 58, 100, 101], f"u{dtype.itemsize}") << (8 * (dtype.itemsize - 1))
                finite = codes.view(dtype).astype(np.float64)
                after = (codes + 1).astype(codes.dtype).view(dtype).astype(np.float64)
                middle = (finite + after) / 2
                middles += [middle, np.nextafter(middle, 9), np.nextafter(middle, -9), middle * 1.01]
            middles = np.concatenate(
                [
                    array.astype(np.float64),
                    *middles,
                    [449.0, 464.0, 465.0, 61440.0, 65520.0, 57345.0, 1e9, 3.5e9, 1e19, 2.0**63],
                ]
            )
            array = np.concatenate([middles, -middles]).astype(dtypes[name])
        if name in ("i32", "i64", "u32", "u64"):
            top = int(np.iinfo(dtypes[name]).max)
            # The first numbers would round to a number midway between two of bf16 if they rounded to f32 or f64 before.
            more = [
                2**24 + 2**16 + 1,
                2**24 + 1,
                2**24 + 3,
                2049,
                2051,
                257,
                259,
                2**12 + 1,
                65519,
                65520,
                65535,
                top - 2**8,
                465,
                464,
            ]
            if name[1:] == "64":
                more += [
                    2**53 + 2**45 + 1,
                    2**53 + 1,
                    2**53 + 3,
                    2**60 + 1,
                    (1 << 60) + (1 << 49),
                    (1 << 60) + (1 << 49) + 1,
                    (1 << 60) + (1 << 52) + 1,
                    2**62 + 2**54,
                ]
                more += [2**62 + 2**54 + 1, 2**62 + 3 * 2**54 - 1]
            if name == "u64":
                more += [2**63 + 2**55 + 1, 2**63 + 3 * 2**55 - 1]
            array = np.concatenate([array, np.array(more, array.dtype)])
        return array

    return of


@pytest.mark.parametrize("source", (*INTS, *FLOATS))
def test_casts(source, compute, sample, expected, rows, dtypes):
    array = sample(source)
    lines, results = [], {}
    (x,) = rows(array)
    for target in (*INTS, *FLOATS):
        lines.append(f"to_{target} = zg.cast(x, zg.{target})")
        results[f"to_{target}"] = expected(x.ravel(), target).reshape(x.shape)
    compute("\n".join(lines), {"x": x}, results)


@pytest.mark.parametrize("source", ("f16", "bf16", "f32", "f64"))
def test_roundings(source, compute, sample, expected, rows, dtypes):
    (x,) = rows(sample(source))
    lines, results = [], {}
    for target in FLOATS:
        if dtypes[target].itemsize < dtypes[source].itemsize:
            for mode in ("rtne", "rtz"):
                lines.append(f"{mode}_{target} = zg.cast(x, zg.{target}, '{mode}')")
                results[f"{mode}_{target}"] = expected(x.ravel(), target, mode == "rtz").reshape(x.shape)
    compute("\n".join(lines), {"x": x}, results)


def test_pointers_go_through_integers(kernel, launch):
    move = kernel(
        """
        def move(x_ptr, out_ptr):
            at = zg.arange(0, 8)
            number = zg.cast(x_ptr, zg.i64)
            first = zg.cast(zg.add(number, 8), F32)
            whole = zg.cast(zg.add(x_ptr, at), zg.i64)
            other = zg.cast(zg.cast(zg.sub(whole, zg.mul(at, 4)), F32), I32)
            zg.store(zg.add(out_ptr, at), zg.load(zg.add(other, at)))
            zg.store(zg.add(out_ptr, 8), zg.bitcast(zg.load(first), zg.i32))
        """,
        F32=zg.ptr(zg.f32), I32=zg.ptr(zg.i32),
    )  # fmt: skip
    x, out = np.arange(8, dtype=np.float32) * 1.5, np.zeros(9, np.int32)
    launch(move, 1, [x, out])
    assert (out[:8] == x.view(np.int32)).all() and out[8] == x.view(np.int32)[2]
