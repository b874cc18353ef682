"""The functions of libdevice: each against NumPy, or against numbers that were computed with 60 digits."""

from __future__ import annotations

import itertools
import linecache
import math
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.frontends.library.libdevice import FUNCTIONS

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

I32, U32, I64, U64, F32, F64 = map(np.dtype, ("i4", "u4", "i8", "u8", "f4", "f8"))
INTEGERS, FLOATS = (I32, I64), (F32, F64)
N = 256
_numbers = itertools.count()


def applied(function: Any, *arguments: Array, out: Any) -> Array:
    """The function on the elements of arrays of N numbers each."""
    names = [f"x{index}" for index in range(len(arguments))]
    loads = ", ".join(f"zg.load(zg.add({name}, at))" for name in names)
    text = f"def kernel({', '.join(names)}, out):\n    at = zg.arange(0, {N})\n"
    text += f"    zg.store(zg.add(out, at), function({loads}))\n"
    file = f"<libdevice {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    space: dict[str, Any] = {"zg": zg, "function": function}
    exec(compile(text, file, "exec"), space)
    result = np.zeros(N, out)
    zg.kernel(space["kernel"])[(1,)](*arguments, result)
    return result


def sample(dtype: Any, seed: int) -> Array:
    """Limits of a dtype, and random numbers of all sizes."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        some = np.array([0, 1, 2, 3, 255, info.max, info.max - 1, info.min, info.min + 1, info.max // 2], dtype)
        numbers = np.concatenate([some, rng.integers(info.min, info.max, N - len(some), dtype, endpoint=True)])
    else:
        info = np.finfo(dtype)
        some = [0, 1, 0.5, 1.5, 2.5, np.inf, np.nan, info.max, info.tiny, info.smallest_subnormal, 2.0**31, 2.0**63]
        some = np.array([*some, *(-x for x in some)])
        count = (N - len(some)) // 2
        sizes = 10.0 ** np.concatenate([rng.uniform(-3, 12, count), rng.uniform(-30, 30, count)])
        numbers = np.concatenate([some, rng.standard_normal(2 * count) * sizes]).astype(dtype)
    return np.random.default_rng(seed + 1).permutation(numbers)


def assert_equal(actual: Array, expected: Any):
    expected = np.asarray(expected).astype(actual.dtype)
    np.testing.assert_array_equal(actual, expected)
    if actual.dtype.kind == "f":
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(actual[numbers]), np.signbit(expected[numbers]))


def last_places(actual: Array, true: Any) -> float:
    """The largest error, where the true value is an ordinary number."""
    expected = true.astype(actual.dtype)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite])
    unit = np.spacing(np.maximum(np.abs(expected[finite]), np.finfo(actual.dtype).tiny)).astype(np.longdouble)
    return float((np.abs(actual[finite] - true[finite]) / unit).max())


# Integers, by Python's.


def wrapped(value: int, dtype: Any) -> int:
    bits = 8 * np.dtype(dtype).itemsize
    value &= (1 << bits) - 1
    return value - (1 << bits) if np.dtype(dtype).kind == "i" and value >> bits - 1 else value


def permuted(x: int, y: int, s: int) -> int:
    both, result = (y & 0xFFFFFFFF) << 32 | x & 0xFFFFFFFF, 0
    for place in range(4):
        digit = s >> 4 * place & 15
        byte = both >> 8 * (digit & 7) & 255
        result |= (255 * (byte >> 7) if digit & 8 else byte) << 8 * place
    return result


def low_24(x: int, dtype: Any) -> int:
    return wrapped(x << 8, dtype) >> 8


# The dtypes of the operands, that of the result, and the function of Python's integers and the bits.
Meaning = Callable[..., int]
OF_INTEGERS: list[tuple[str, tuple[Any, ...], Any, Meaning]] = [
    *(("clz", (t,), I32, lambda x, t=t: 8 * t.itemsize - (x % (1 << 8 * t.itemsize)).bit_length()) for t in INTEGERS),
    *(("popc", (t,), I32, lambda x, t=t: (x % (1 << 8 * t.itemsize)).bit_count()) for t in INTEGERS),
    *(("ffs", (t,), I32, lambda x: (x & -x).bit_length()) for t in INTEGERS),
    *(
        ("brev", (t,), t, lambda x, t=t: int(f"{x % (1 << 8 * t.itemsize):0{8 * t.itemsize}b}"[::-1], 2))
        for t in INTEGERS
    ),
    *(("abs", (t,), t, abs) for t in INTEGERS),
    *(("mulhi", (t, t), t, lambda x, y, t=t: x * y >> 8 * t.itemsize) for t in (I32, U32, I64, U64)),
    *(("mul24", (t, t), t, lambda x, y, t=t: low_24(x, t) * low_24(y, t)) for t in (I32, U32)),
    *(("sad", (t, t, U32), t, lambda x, y, z: abs(x - y) + z) for t in (I32, U32)),
    *(("hadd", (t, t), t, lambda x, y: x + y >> 1) for t in (I32, U32)),
    *(("rhadd", (t, t), t, lambda x, y: x + y + 1 >> 1) for t in (I32, U32)),
    ("byte_perm", (I32, I32, I32), I32, permuted),
]


@pytest.mark.parametrize(("name", "types", "out", "meaning"), OF_INTEGERS, ids=lambda x: str(x)[:20])
def test_integers(name: str, types: Sequence[Any], out: Any, meaning: Meaning):
    arguments = [sample(dtype, seed) for seed, dtype in enumerate(types)]
    expected = [wrapped(meaning(*map(int, row)), out) for row in zip(*arguments, strict=True)]
    assert_equal(applied(FUNCTIONS[name], *arguments, out=out), np.array(expected, object))


# Bits, classes and whole numbers, exactly as NumPy's.


def exponents(x: Array) -> Array:
    return np.frexp(x)[1] - 1


EXACT: dict[str, tuple[tuple[Any, ...], Any, Callable[..., Any]]] = {
    "int_as_float": ((I32,), F32, lambda x: x.view(F32)),
    "uint_as_float": ((U32,), F32, lambda x: x.view(F32)),
    "float_as_int": ((F32,), I32, lambda x: x.view(I32)),
    "float_as_uint": ((F32,), I32, lambda x: x.view(I32)),
    "longlong_as_double": ((I64,), F64, lambda x: x.view(F64)),
    "double_as_longlong": ((F64,), I64, lambda x: x.view(I64)),
    "double2loint": ((F64,), I32, lambda x: x.view(I64).astype(I32)),
    "double2hiint": ((F64,), I32, lambda x: (x.view(I64) >> 32).astype(I32)),
    "hiloint2double": ((I32, I32), F64, lambda h, low: (h.astype(I64) << 32 | low.view(U32).astype(I64)).view(F64)),
    "finitef": ((F32,), I32, np.isfinite),
    "isfinited": ((F64,), I32, np.isfinite),
    "saturatef": ((F32,), F32, lambda x: np.clip(np.nan_to_num(x, nan=0, posinf=2, neginf=-1), 0, 1) + 0.0),
    "rcp64h": ((F64,), F64, lambda x: ((1 / x).view(I64) & -(1 << 32)).view(F64)),
}
EXACT_OF_FLOATS: dict[str, tuple[int, Any, Callable[..., Any]]] = {
    "isnan": (1, I32, np.isnan), "isinf": (1, I32, np.isinf), "signbit": (1, I32, np.signbit),
    "floor": (1, None, np.floor), "ceil": (1, None, np.ceil), "trunc": (1, None, np.trunc), "rint": (1, None, np.rint),
    "nearbyint": (1, None, np.rint), "round": (1, None, lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)),
    "abs": (1, None, np.abs), "copysign": (2, None, np.copysign), "nextafter": (2, None, np.nextafter),
    "fmod": (2, None, np.fmod),
    "fdim": (2, None, lambda x, y: np.where(np.isnan(x + y) & (x != y), x + y, np.where(x > y, x - y, 0))),
    "logb": (1, None, lambda x: np.where(x == 0, -np.inf, np.where(np.isfinite(x), exponents(x), np.abs(x)))),
    "sqrt": (1, None, np.sqrt), "sqrt_rn": (1, None, np.sqrt), "rcp_rn": (1, None, lambda x: 1 / x),
    "add_rn": (2, None, np.add), "sub_rn": (2, None, np.subtract), "mul_rn": (2, None, np.multiply),
    "div_rn": (2, None, np.divide),
}  # fmt: skip
EXACT_CASES = [
    *((name, types, out, meaning) for name, (types, out, meaning) in EXACT.items()),
    *(
        (name, (dtype,) * count, out or dtype, meaning)
        for name, (count, out, meaning) in EXACT_OF_FLOATS.items()
        for dtype in FLOATS
    ),
]


@pytest.mark.parametrize(("name", "types", "out", "meaning"), EXACT_CASES, ids=lambda x: str(x)[:20])
def test_exact_functions(name: str, types: Sequence[Any], out: Any, meaning: Callable[..., Any]):
    arguments = [sample(dtype, seed) for seed, dtype in enumerate(types)]
    if name == "fdim":
        arguments = [np.where(np.isinf(x), 1, x) for x in arguments]
    if name == "round":  # NumPy has no such function, and a half cannot be added to every number.
        arguments = [np.where((np.abs(x) < 0.5) | (np.abs(x) > 2.0**22), np.copysign(2.5, x), x) for x in arguments]
    assert_equal(applied(FUNCTIONS[name], *arguments, out=out), meaning(*arguments))


@pytest.mark.parametrize("dtype", FLOATS)
def test_exponents_and_remainders(dtype: Any):
    x, y = sample(dtype, 0), sample(dtype, 5)
    special = np.where(np.isinf(x), 2**31 - 1, -(2**31))
    expected = np.where((x == 0) | ~np.isfinite(x), special, exponents(x))
    assert_equal(applied(FUNCTIONS["ilogb"], x, out=I32), expected)
    n = np.random.default_rng(0).integers(-2300, 2300, N).astype(I32)
    n[::2] //= 16
    n[:2] = 2**31 - 1, -(2**31)
    for name in ("ldexp", "scalbn"):
        assert_equal(applied(FUNCTIONS[name], x, n, out=dtype), np.ldexp(x, np.clip(n, -5000, 5000)))
    valid = np.isfinite(x) & (y != 0) & ~np.isnan(y)
    exact = [
        math.remainder(a, b) if fine else math.nan for a, b, fine in zip(x.tolist(), y.tolist(), valid, strict=True)
    ]
    assert_equal(applied(FUNCTIONS["remainder"], x, y, out=dtype), exact)
    small = np.where(np.abs(x) < 2.0**40, x, 3.5)
    assert_equal(applied(FUNCTIONS["llrint"], small, out=I64), np.rint(small))
    away = np.trunc(small + np.copysign(0.5, small).astype(np.longdouble))
    assert_equal(applied(FUNCTIONS["llround"], small, out=I64), away)


# Roundings in a direction.


@pytest.mark.parametrize("rounding", ["rz", "rd", "ru"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_directed_arithmetic(dtype: Any, rounding: str):
    """The exact result lies between the number and its neighbour."""
    rng = np.random.default_rng(0)
    x, y, z = (rng.standard_normal(N).astype(dtype) for _ in range(3))
    x[:3], y[:3] = (1, 2, 1), (-1, 0.25, 3)
    exact: dict[str, Callable[..., Fraction]] = {
        "add": lambda a, b, c: a + b, "sub": lambda a, b, c: a - b, "mul": lambda a, b, c: a * b,
        "div": lambda a, b, c: a / b, "rcp": lambda a, b, c: 1 / b, "fma": lambda a, b, c: a * b + c,
    }  # fmt: skip
    operands = {"rcp": (y,), "fma": (x, y, z)}
    for name, meaning in exact.items():
        actual = applied(FUNCTIONS[f"{name}_{rounding}"], *operands.get(name, (x, y)), out=dtype)
        for row in zip(actual, x, y, z, strict=True):
            value = meaning(*(Fraction(float(v)) for v in row[1:]))
            down = rounding == "rd" or (rounding == "rz" and value > 0)
            neighbour = Fraction(float(np.nextafter(row[0], dtype.type(np.inf if down else -np.inf))))
            number = Fraction(float(row[0]))
            assert number <= value < neighbour if down else neighbour < value <= number, (name, row)
    root = applied(FUNCTIONS[f"sqrt_{rounding}"], np.abs(x), out=dtype)
    for number, size in zip(root, np.abs(x), strict=True):
        low, high = (number, np.nextafter(number, dtype.type(9))) if rounding != "ru" else (
            np.nextafter(number, dtype.type(-9)), number)  # fmt: skip
        assert Fraction(float(low)) ** 2 <= Fraction(float(size)) <= Fraction(float(high)) ** 2


@pytest.mark.parametrize("dtype", FLOATS)
def test_directed_arithmetic_at_its_limits(dtype: Any):
    ones, largest = np.ones(N, dtype), np.full(N, np.finfo(dtype).max, dtype)
    for rounding in ("rz", "rd", "ru"):
        assert np.signbit(applied(FUNCTIONS[f"add_{rounding}"], ones, -ones, out=dtype)).all() == (rounding == "rd")
        assert np.isinf(applied(FUNCTIONS[f"add_{rounding}"], largest, largest, out=dtype)).all() == (rounding == "ru")
        assert np.isinf(applied(FUNCTIONS[f"div_{rounding}"], ones, 0 * ones, out=dtype)).all()
        assert np.isnan(applied(FUNCTIONS[f"sqrt_{rounding}"], -ones, out=dtype)).all()


ROUNDINGS = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}


@pytest.mark.parametrize("source", ["float", "double"])
@pytest.mark.parametrize("target", ["int", "uint", "ll", "ull"])
def test_floats_to_integers(source: str, target: str):
    out = {"int": I32, "uint": U32, "ll": I64, "ull": U64}[target]
    x = sample({"float": F32, "double": F64}[source], 0)
    x = np.where(np.isnan(x), 0, x)
    info = np.iinfo(out)
    for rounding, whole in ROUNDINGS.items():
        numbers = [v if math.isinf(v) else int(v) for v in whole(x).tolist()]
        expected = np.array([min(max(v, int(info.min)), int(info.max)) for v in numbers], object).astype(out)
        signed = np.dtype(f"i{out.itemsize}")
        assert_equal(applied(FUNCTIONS[f"{source}2{target}_{rounding}"], x, out=signed), expected.view(signed))


@pytest.mark.parametrize("source", ["int", "uint", "ll", "ull", "double"])
@pytest.mark.parametrize("target", ["float", "double"])
def test_numbers_to_floats(source: str, target: str):
    x = sample({"int": I32, "uint": U32, "ll": I64, "ull": U64, "double": F64}[source], 0)
    out = {"float": F32, "double": F64}[target]
    exact: list[Any] = x.tolist()
    for rounding in ROUNDINGS:
        if (name := f"{source}2{target}_{rounding}") not in FUNCTIONS:
            continue
        actual = applied(FUNCTIONS[name], x, out=out)
        near = x.astype(out)
        neighbours = [np.nextafter(near, out.type(end)) for end in (-np.inf, np.inf)]
        for index, value in enumerate(exact):
            if value != value:
                assert np.isnan(actual[index])
                continue
            nearest: float = near[index].item()
            below, above = (neighbour[index].item() for neighbour in neighbours)
            down, up = below if nearest > value else nearest, above if nearest < value else nearest
            expected = {"rn": nearest, "rd": down, "ru": up, "rz": down if value > 0 else up}[rounding]
            assert actual[index].item() == expected, (name, value)


# At the limits: 0, -0, ∞, -∞ and NaN.
INF, NAN = math.inf, math.nan
LIMITS: dict[str, tuple[float, ...]] = {
    "exp10": (1, 1, INF, 0, NAN), "log10": (-INF, -INF, INF, NAN, NAN), "cbrt": (0, -0.0, INF, -INF, NAN),
    "rcbrt": (INF, -INF, 0, -0.0, NAN), "asinh": (0, -0.0, INF, -INF, NAN), "acosh": (NAN, NAN, INF, NAN, NAN),
    "atanh": (0, -0.0, NAN, NAN, NAN), "erfc": (1, 1, 0, 2, NAN), "erfcx": (1, 1, 0, INF, NAN),
    "erfinv": (0, -0.0, NAN, NAN, NAN), "erfcinv": (INF, INF, NAN, NAN, NAN), "normcdf": (0.5, 0.5, 1, 0, NAN),
    "normcdfinv": (-INF, -INF, NAN, NAN, NAN), "lgamma": (INF, INF, INF, INF, NAN), "j0": (1, 1, 0, 0, NAN),
    "tgamma": (INF, -INF, INF, NAN, NAN), "j1": (0, -0.0, 0, -0.0, NAN), "y0": (-INF, -INF, 0, NAN, NAN),
    "y1": (-INF, -INF, 0, NAN, NAN), "cyl_bessel_i0": (1, 1, INF, INF, NAN), "cyl_bessel_i1": (0, -0.0, INF, -INF, NAN),
    "sinpi": (0, -0.0, NAN, NAN, NAN), "cospi": (1, 1, NAN, NAN, NAN), "erf": (0, -0.0, 1, -1, NAN),
}  # fmt: skip


# Numbers where a function has no value.
OUTSIDE: dict[str, tuple[float, ...]] = {
    "y0": (-1.5, -1e-30), "y1": (-1.5, -1e-30), "log10": (-1.5,), "acosh": (0.5, -3), "atanh": (1.5, -2),
    "erfinv": (1.5, -1.25), "erfcinv": (-0.5, 2.5), "normcdfinv": (-0.5, 1.5), "tgamma": (-2, -3),
}  # fmt: skip


def with_limits(name: str, dtype: Any, x: Array) -> tuple[Array, Array]:
    """The function of numbers, after its values at the limits, if they are known, and where it has none are compared in
    the same launch."""
    limits, outside = LIMITS.get(name, ()), OUTSIDE.get(name, ())
    at = np.array([*[0, -0.0, INF, -INF, NAN][: len(limits)], *outside], dtype)
    limits = (*limits, *(NAN for _ in outside))
    actual = applied(FUNCTIONS[name], np.concatenate([at, x[len(at) :]]), out=dtype)
    assert_equal(actual[: len(at)], np.array(limits, dtype))
    return x[len(at) :], actual[len(at) :]


# Functions of real numbers.


# The number of last places that each may be off, of f32 and f64: `docs/reference/accuracy.md` has these numbers.
REAL: dict[str, tuple[Callable[..., Any], str, float, float]] = {
    "exp": (np.exp, "wide", 1.2, 1.0), "exp2": (np.exp2, "wide", 0.8, 1.0),
    "exp10": (lambda x: np.longdouble(10) ** x, "ten", 1.2, 1.0),
    "expm1": (np.expm1, "wide", 1.5, 1.8), "log": (np.log, "positive", 1.0, 0.51),
    "log2": (np.log2, "positive", 1.1, 0.51), "log10": (np.log10, "positive", 1.7, 0.51),
    "log1p": (np.log1p, "positive", 1.5, 0.8),
    "sin": (np.sin, "one", 1.6, 1.0), "cos": (np.cos, "one", 1.6, 1.0), "tan": (np.tan, "one", 5.0, 3.5),
    "asin": (np.arcsin, "one", 2.3, 2.1), "acos": (np.arccos, "one", 1.1, 1.1), "atan": (np.arctan, "wide", 2.0, 1.9),
    "sinh": (np.sinh, "some", 3.0, 3.2), "cosh": (np.cosh, "some", 3.2, 3.4), "tanh": (np.tanh, "some", 1.8, 1.3),
    "asinh": (np.arcsinh, "wide", 1.8, 1.8), "acosh": (np.arccosh, "above 1", 1.8, 1.9),
    "atanh": (np.arctanh, "one", 1.8, 1.8), "cbrt": (np.cbrt, "wide", 1.0, 1.0),
    "rcbrt": (lambda x: 1 / np.cbrt(x), "wide", 1.0, 1.0), "rsqrt": (lambda x: 1 / np.sqrt(x), "positive", 1.1, 1.5),
    "rsqrt_rn": (lambda x: 1 / np.sqrt(x), "positive", 0.51, 1.5),
}  # fmt: skip


def arguments_of(kind: str, dtype: Any) -> Array:
    rng = np.random.default_rng(0)
    sizes = 10.0 ** rng.uniform(-30, 30, N)
    signed = np.where(rng.random(N) < 0.5, -sizes, sizes)
    samples = {
        "wide": np.where(rng.random(N) < 0.3, signed, rng.uniform(-80, 80, N)), "positive": sizes,
        "one": rng.uniform(-1, 1, N), "some": rng.uniform(-20, 20, N), "above 1": 1 + np.abs(signed),
        "ten": rng.uniform(-37, 38, N),
    }  # fmt: skip
    return samples[kind].astype(dtype)


# The short functions of f32 on many numbers: the ends of the interval, or of its binary logarithm for logarithms.
SHORT = {
    "exp": (-104.5, 89.5),
    "exp2": (-150.5, 128.5),
    "exp10": (-45.5, 39.0),
    **dict.fromkeys(("log", "log2", "log10")),
}


@pytest.mark.parametrize("name", SHORT)
def test_short_functions_of_f32_at_many_numbers(name: str):
    """The operands include subnormal numbers, which are not flushed, and numbers past the largest and the smallest."""
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("NumPy has no float that is longer than f64 here")
    true, _, bound, _ = REAL[name]
    if SHORT[name] is None:
        ends = np.linspace(-149, 128, 1 << 15, endpoint=False), np.linspace(-1, 1, 1 << 15)
        x = 2 ** np.concatenate(ends).astype(F64)
    else:
        x = np.linspace(*SHORT[name], 1 << 16)
    x = np.random.default_rng(0).permutation(x).astype(F32)
    actual, function = np.zeros_like(x), FUNCTIONS[name]

    @zg.kernel
    def kernel(x_ptr: Any, out_ptr: Any, BLOCK: zg.constexpr):
        at = zg.add(zg.mul(zg.program_id(0), BLOCK), zg.arange(0, BLOCK))
        zg.store(zg.add(out_ptr, at), function(zg.load(zg.add(x_ptr, at))))

    kernel[(len(x) // 4096,)](x, actual, 4096)
    assert last_places(actual, true(x.astype(np.longdouble))) <= bound


def test_short_powers_at_limits():
    """At infinities, NaN, zeros, numbers whose product with the factor is infinite, and subnormal numbers."""
    x = np.array([INF, -INF, NAN, 0, -0.0, 3e38, -3e38, 1e-45, -1e-45], F32)
    argument = np.concatenate([x, np.zeros(N - len(x), F32)])
    for name in ("exp", "exp2", "exp10"):
        actual = applied(FUNCTIONS[name], argument, out=F32)[: len(x)]
        assert_equal(actual, [INF, 0, NAN, 1, 1, INF, 0, 1, 1])
    whole = np.concatenate([np.arange(-149, 128), [0] * 235]).astype(F32).reshape(2, N)
    for part in whole:  # Exact, so that the machine's power is that of 0.
        assert_equal(applied(FUNCTIONS["exp2"], part, out=F32), np.ldexp(np.ones(N, F32), part.astype(I32)))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", REAL)
def test_errors_in_last_places(name: str, dtype: Any):
    true, kind, *bounds = REAL[name]
    x, actual = with_limits(name, dtype, arguments_of(kind, dtype))
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("NumPy has no float that is longer than f64 here")
    assert last_places(actual, true(x.astype(np.longdouble))) <= bounds[dtype == F64]


@pytest.mark.parametrize("dtype", FLOATS)
def test_angles_and_norms(dtype: Any):
    x, y, z, w = (np.where(np.isnan(a), 1, a) for a in (sample(dtype, seed) for seed in (0, 7, 14, 21)))
    wide = [a.astype(np.longdouble) for a in (x, y, z, w)]
    squares = [a * a for a in wide]
    for name, count in (("hypot", 2), ("norm3d", 3), ("norm4d", 4)):
        size = np.sqrt(sum(squares[:count]))
        reciprocal = {"hypot": "rhypot", "norm3d": "rnorm3d", "norm4d": "rnorm4d"}[name]
        assert last_places(applied(FUNCTIONS[name], *(x, y, z, w)[:count], out=dtype), size) <= 1.5
        assert last_places(applied(FUNCTIONS[reciprocal], *(x, y, z, w)[:count], out=dtype), 1 / size) <= 2.5
    small = np.random.default_rng(0).uniform(-4, 4, (2, N)).astype(dtype)
    angle = np.arctan2(*small.astype(np.longdouble))
    assert last_places(applied(FUNCTIONS["atan2"], *small, out=dtype), angle) <= 2.4
    turns = np.arange(N).astype(dtype) / 8 - 16
    half_turn = np.longdouble("3.141592653589793238462643383279")
    eighths = np.sin(half_turn * (np.arange(N) % 16) / 8)
    exact = np.where(np.arange(N) % 8 == 0, np.copysign(0.0, turns), eighths)
    actual = applied(FUNCTIONS["sinpi"], turns, out=dtype)
    np.testing.assert_allclose(actual, exact, rtol=2 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(exact))
    cosine = np.where(np.arange(N) % 8 == 4, 0.0, np.cos(half_turn * (np.arange(N) % 16) / 8))
    np.testing.assert_allclose(applied(FUNCTIONS["cospi"], turns, out=dtype), cosine, rtol=2 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", FLOATS)
def test_powers(dtype: Any):
    x, y = sample(dtype, 0), np.random.default_rng(0).uniform(-3, 3, N).astype(dtype)
    n = np.random.default_rng(1).integers(-5, 6, N).astype(I32)
    wide = x.astype(np.longdouble)
    fine = ~np.isnan(x)
    assert last_places(applied(FUNCTIONS["pow"], x, y, out=dtype)[fine], np.power(wide, y)[fine]) <= 1.0
    assert last_places(applied(FUNCTIONS["pow"], x, n, out=dtype)[fine], np.power(wide, n)[fine]) <= 1.0
    # A float exponent of this size would lose its last bit.
    odd = np.full(N, 2**24 + 1, I32)
    assert_equal(applied(FUNCTIONS["pow"], np.full(N, -1, dtype), odd, out=dtype), np.full(N, -1, dtype))
    for name in ("fma", "fma_rn"):
        a, b, c = (np.random.default_rng(seed).integers(-99, 99, N).astype(dtype) for seed in range(3))
        assert_equal(applied(FUNCTIONS[name], a, b, c, out=dtype), a * b + c)


FAST: dict[str, Callable[..., Any]] = {
    "fast_sinf": np.sin, "fast_cosf": np.cos, "fast_tanf": np.tan, "fast_expf": np.exp,
    "fast_exp10f": lambda x: 10.0**x, "fast_logf": np.log, "fast_log2f": np.log2, "fast_log10f": np.log10,
    "fast_tanhf": np.tanh, "fast_powf": np.power, "fast_dividef": np.divide,
}  # fmt: skip


@pytest.mark.parametrize("name", FAST)
def test_fast_functions(name: str):
    x, y = (np.random.default_rng(seed).uniform(0.1, 1.5, N).astype(F32) for seed in range(2))
    arguments = (x, y) if name in ("fast_powf", "fast_dividef") else (x,)
    np.testing.assert_allclose(
        applied(FUNCTIONS[name], *arguments, out=F32), FAST[name](*arguments), rtol=1e-5, atol=1e-6
    )


# Special functions: values by the argument, computed with 60 digits.
GOLDEN: dict[str, dict[float, str]] = {
    "erfc": {
        -3.0: "1.999977909503001414559", -0.25: "1.276326390168236932985",
        9.999999747378752e-06: "0.9999887162086144735544", 0.25: "0.7236736098317630670149",
        0.75: "0.2888443663464848684011", 2.0: "0.004677734981047265837931", 6.5: "3.842148327120647469876e-20",
        20.0: "5.395865611607900928935e-176",
    },
    "erfcx": {
        -5.0: "144009798674.6610404106", -0.5: "1.952360489182557093276",
        0.0010000000474974513: "0.9988726200276511618943", 0.5: "0.6156903441929258748708",
        2.0: "0.2553956763105057438651", 9.0: "0.06230772403777468414654", 300.0: "0.001880621497378064489471",
        80000.0: "0.000007052369793795987196797",
    },
    "erfinv": {
        -0.96875: "-1.523019401996956110968", -0.25: "-0.225312055012178104725",
        9.999999974752427e-07: "8.862269232154821348025e-7", 0.125: "0.1112354518409499591472",
        0.5: "0.4769362762044698733814", 0.75: "0.8134198475976185416903", 0.984375: "1.709472374299511478546",
        0.9999998807907104: "3.743921162776799624889",
    },
    "erfcinv": {
        1.0000000031710769e-30: "8.148616222976720258065", 1.0000000116860974e-07: "3.766562580069261406689",
        0.015625: "1.709472374299511478546", 0.25: "0.8134198475976185416903", 0.75: "0.225312055012178104725",
        1.25: "-0.225312055012178104725", 1.9375: "-1.317150334986130748884",
        1.9998779296875: "-2.716655240567082223531",
    },
    "normcdf": {
        -9.0: "1.128588405953840647736e-19", -5.25: "7.604960516488714251146e-8", -1.5: "0.06680720126885806600449",
        -0.25: "0.4012936743170762757591", 0.25: "0.5987063256829237242409", 1.5: "0.9331927987311419339955",
        4.0: "0.9999683287581668800787", 6.0: "0.9999999990134123549623",
    },
    "normcdfinv": {
        1.0000000031710769e-30: "-11.46402468816906301263", 9.999999717180685e-10: "-5.997807019601637426423",
        0.0078125: "-2.417559016236505061849", 0.125: "-1.150349380376008178297", 0.375: "-0.3186393639643751630219",
        0.625: "0.3186393639643751630219", 0.96875: "1.862731867421651455488",
        0.99993896484375: "3.841930685501910870843",
    },
    "lgamma": {
        -4.5: "-2.813084081769316119734", -0.25: "1.589575312551185990316",
        9.999999747378752e-06: "11.51291971815809667574", 0.75: "0.2032809514312953714814",
        1.25: "-0.09827183642181316146385", 2.5: "0.2846828704729191596325", 7.75: "8.0254583963159838712",
        12.5: "18.73434751193644570163", 1000.25: "5906.947268271117176996", 10000000000.0: "220258509288.81058147",
    },
    "tgamma": {
        -4.5: "-0.06001960130050424642703", -0.25: "-4.901666809860710580516", 0.0625: "15.48128108159239815616",
        0.75: "1.225416702465177645129", 1.25: "0.9064024770554770779827", 2.5: "1.329340388179137020474",
        7.75: "3057.82267119260721044", 12.5: "136843365.4655658572556", 30.25: "2.062805313775346887037e+31",
        33.0: "2.631308369336935301672e+35",
    },
    "j0": {
        -3.0: "-0.2600519549019334376242", 0.0010000000474974513: "0.9999997499999918762763",
        0.5: "0.9384698072408129042284", 2.0: "0.2238907791412356680518", 5.0: "-0.1775967713143383043474",
        7.75: "0.2252340691201066972855", 9.0: "-0.09033361118287613433595", 30.5: "-0.01938975451776215206624",
        1000.0: "0.02478668615242017456133",
    },
    "j1": {
        -3.0: "-0.3390589585259364589255", 0.0010000000474974513: "0.0004999999612487193510894",
        0.5: "0.242268457674873886384", 2.0: "0.5767248077568733872024", 5.0: "-0.3275791375914652220377",
        7.75: "0.191602592189117805568", 9.0: "0.2453117865733252723226", 30.5: "-0.143494300150970941115",
        1000.0: "0.004728311907089523917576",
    },
    "y0": {
        0.0010000000474974513: "-4.471416581137993599095", 0.5: "-0.4445187335067065571484",
        2.0: "0.5103756726497451195966", 5.0: "-0.3085176252490337800736", 7.75: "0.1767698775136471635386",
        9.0: "0.2499366982850246760178", 30.5: "-0.1431573161741076509705", 1000.0: "0.004715917977622813399773",
    },
    "y1": {
        0.0010000000474974513: "-636.6221369934228571934", 0.5: "-1.471472392670243069189",
        2.0: "-0.1070324315409375468884", 5.0: "0.1478631433912268448011", 7.75: "-0.2143322286594080522285",
        9.0: "0.1043145751967158876501", 30.5: "0.01704614288387645417163", 1000.0: "-0.02478433129235177891486",
    },
    "cyl_bessel_i0": {
        -3.0: "4.880792585865024085611", 0.0010000000474974513: "1.00000025000003937373",
        0.5: "1.063483370741323519263", 2.0: "2.279585302336067267437", 9.0: "1093.588354511374695846",
        15.5: "550722.1203144138138902", 17.0: "2354970.223168293373199", 80.0: "2.47517840433417048867e+33",
    },
    "cyl_bessel_i1": {
        -3.0: "-3.953370217402609396479", 0.0010000000474974513: "0.0005000000862487371626346",
        0.5: "0.2578943053908963163625", 2.0: "1.590636854637329063382", 9.0: "1030.914722516956444429",
        15.5: "532649.7023984404288237", 17.0: "2284621.583808079802639", 80.0: "2.45965957956754086304e+33",
    },
}  # fmt: skip
# Last places of f64, or an error relative to 1 near the zeros of a function. f32 is computed in f64 and rounded.
BOUNDS = {"erfc": 3.0, "erfcx": 4.5, "erfinv": 1.5, "erfcinv": 2.5, "normcdf": 3.5, "normcdfinv": 3.0, "lgamma": 4.0,
          "tgamma": 6.0, "cyl_bessel_i0": 6.0, "cyl_bessel_i1": 6.0}  # fmt: skip
NEAR_ZEROS = 4e-15


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", GOLDEN)
def test_special_functions(name: str, dtype: Any):
    _, actual = with_limits(name, dtype, np.resize(np.array(list(GOLDEN[name]), dtype), N))
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("NumPy has no float that is longer than f64 here")
    true = np.resize(np.array([np.longdouble(text) for text in GOLDEN[name].values()]), N)[-len(actual) :]
    if dtype == F32:
        assert last_places(actual, true) <= 0.51
    elif name in BOUNDS:
        assert last_places(actual, true) <= BOUNDS[name]
    else:
        assert (np.abs(actual - true) <= NEAR_ZEROS * np.maximum(np.abs(true), 1)).all()


# (order, argument, J, Y).
ORDERS = (
    (2, 1.5, "0.2320876721442147272378", "-0.9321937597629739052255"),
    (2, 20.0, "-0.1603413519229981501694", "-0.07919175824563596074813"),
    (5, 3.0, "0.04302843487704758392491", "-1.905945953828673732218"),
    (5, 12.5, "0.03473769976223972768192", "-0.2329039378311507850948"),
    (12, 4.0, "0.000006264461794312207478885", "-4493.779939702275490068"),
    (30, 25.0, "0.01180902612426901619969", "-1.657580909409400335847"),
)


@pytest.mark.parametrize("dtype", FLOATS)
def test_bessel_functions_of_an_order(dtype: Any):
    orders, x, first, second = (np.resize(np.array(column, F64), N) for column in zip(*ORDERS, strict=True))
    n, arguments = orders.astype(I32), x.astype(dtype)
    tolerance = {"rtol": 1e-7 if dtype == F32 else 1e-13, "atol": 1e-15}
    np.testing.assert_allclose(applied(FUNCTIONS["yn"], n, arguments, out=dtype), second, **tolerance)
    assert np.isnan(applied(FUNCTIONS["yn"], n, -arguments, out=dtype)).all()
    limits = np.resize(np.array([0, -0.0, INF, -INF, NAN], dtype), N)
    expected = np.where(np.isnan(limits), limits, np.zeros(N, dtype))
    np.testing.assert_array_equal(applied(FUNCTIONS["jn"], n, limits, out=dtype), expected)
    expected = np.resize(np.array([-INF, -INF, 0, NAN, NAN], dtype), N)
    np.testing.assert_array_equal(applied(FUNCTIONS["yn"], n, limits, out=dtype), expected)
    n[::5] *= -1
    first[::5] = NAN
    np.testing.assert_allclose(applied(FUNCTIONS["jn"], n, arguments, out=dtype), first, **tolerance)
    signs = np.where(n % 2, -1, 1)  # Functions of odd orders are odd.
    np.testing.assert_allclose(applied(FUNCTIONS["jn"], n, -arguments, out=dtype), signs * first, **tolerance)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", [name for name in LIMITS if name not in REAL and name not in GOLDEN])
def test_limits(name: str, dtype: Any):
    with_limits(name, dtype, np.zeros(N, dtype))


def test_every_function_is_tried():
    names_of_cases = (
        {name for name, *_ in OF_INTEGERS} | {name for name, *_ in EXACT_CASES} | {*REAL, *FAST, *GOLDEN, *LIMITS}
    )
    names_of_cases |= {
        "ilogb",
        "ldexp",
        "scalbn",
        "remainder",
        "llrint",
        "llround",
        "atan2",
        "hypot",
        "norm3d",
        "norm4d",
    }
    names_of_cases |= {"rhypot", "rnorm3d", "rnorm4d", "pow", "fma", "fma_rn", "jn", "yn"}
    directed = ("add", "sub", "mul", "div", "rcp", "sqrt", "fma")
    names_of_cases |= {f"{name}_{rounding}" for name in directed for rounding in ("rz", "rd", "ru")}
    conversions = {name for name in FUNCTIONS if "2" in name and name.rpartition("_")[2] in ROUNDINGS}
    assert names_of_cases | conversions == set(FUNCTIONS) and len(FUNCTIONS) == 198
    # A double holds every integer of 32 bits, so that its conversion has one rounding.
    directed_of_32_bits = {name for name in conversions if re.fullmatch(r"u?int2\w+_r[zdu]", name)}
    assert directed_of_32_bits == {f"{kind}2float_{way}" for kind in ("int", "uint") for way in ("rz", "rd", "ru")}


def test_compiled_functions_give_the_same_bits():
    """Functions of exact operations, compiled and run thread by thread."""
    names = ["rcbrt", "log10", "cbrt", "asinh", "remainder", "ldexp", "add_rd", "div_ru", "sqrt_rz", "fma_rd"]
    names += ["byte_perm", "mulhi", "double2float_ru", "ll2float_rd", "nextafter"]

    @zg.kernel
    def kernel(x, n, out, function: zg.constexpr, count: zg.constexpr):
        at = zg.arange(0, 32)
        a, i = zg.load(zg.add(x, at)), zg.load(zg.add(n, at))
        b = zg.add(zg.cast(i, a.dtype), 0.5)
        if count == 1:
            zg.store(zg.add(out, at), zg.cast(function(a), zg.f64))
        elif count == 2:
            zg.store(zg.add(out, at), zg.cast(function(a, b), zg.f64))
        elif count == 3:
            zg.store(zg.add(out, at), zg.cast(function(a, b, a), zg.f64))
        elif count == 4:
            zg.store(zg.add(out, at), zg.cast(function(a, i), zg.f64))
        elif count == 5:
            zg.store(zg.add(out, at), zg.cast(function(i, i, i), zg.f64))
        elif count == 6:
            zg.store(zg.add(out, at), zg.cast(function(i, i), zg.f64))
        else:
            zg.store(zg.add(out, at), zg.cast(function(zg.cast(i, zg.i64)), zg.f64))

    forms = {"remainder": 2, "nextafter": 2, "add_rd": 2, "div_ru": 2, "fma_rd": 3, "ldexp": 4, "byte_perm": 5}
    forms |= {"mulhi": 6, "ll2float_rd": 7}
    rng = np.random.default_rng(0)
    x, n = rng.uniform(0.1, 30, 32), rng.integers(-(2**31), 2**31 - 1, 32).astype(I32)
    n[::2] >>= 25
    for name in names:
        argument = x.astype(F32) if name == "rcbrt" else x
        types = (zg.ptr(zg.f32 if name == "rcbrt" else zg.f64), zg.ptr(zg.i32), zg.ptr(zg.f64))
        constants = (FUNCTIONS[name], forms.get(name, 1))
        expected, actual = np.zeros(32), np.zeros(32)
        kernel[(1,)](argument, n, expected, *constants)
        kernel.compile(*types, *constants, target="sm_90a", num_warps=1).simulate[(1,)](argument, n, actual)
        np.testing.assert_array_equal(actual, expected, name)


def test_nothing_imports_the_package_unasked():
    code = "import sys, ziggurat; sys.exit('ziggurat.frontends.library.libdevice' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
