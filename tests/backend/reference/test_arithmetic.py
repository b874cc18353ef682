"""The arith dialect against NumPy and against plain Python, with all pairs of test values of each type."""

import math
import operator

import ml_dtypes
import numpy as np
import pytest

from ziggurat.codemodel.errors import KernelRuntimeError

SIGNED = ["i8", "i16", "i32", "i64"]
UNSIGNED = ["u8", "u16", "u32", "u64"]
SMALL = ["f16", "bf16", "f8e4m3", "f8e5m2"]
FLOATS = [*SMALL, "f32", "f64"]
BITS = {name: int(name[1:]) for name in [*SIGNED, *UNSIGNED, "i1"]}


def wrap(number: int, type_: str) -> int:
    bits = BITS[type_]
    number &= (1 << bits) - 1
    return number - (1 << bits) if type_[0] == "i" and bits > 1 and number >> (bits - 1) else number


def c_quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def shifted_left(a: int, b: int, bits: int) -> int:
    return a << b if 0 <= b < bits else 0


def shifted_right(a: int, b: int, bits: int) -> int:
    return a >> b if 0 <= b < bits else (-1 if a < 0 else 0)


ANY = {
    "addi": lambda a, b, n: a + b,
    "subi": lambda a, b, n: a - b,
    "muli": lambda a, b, n: a * b,
    "andi": lambda a, b, n: a & b,
    "ori": lambda a, b, n: a | b,
    "xori": lambda a, b, n: a ^ b,
    "shli": shifted_left,
}
BY_SIGN = {
    "div": lambda a, b, n: c_quotient(a, b),
    "rem": lambda a, b, n: a - c_quotient(a, b) * b,
    "shr": shifted_right,
    "max": lambda a, b, n: max(a, b),
    "min": lambda a, b, n: min(a, b),
}


@pytest.mark.parametrize("type_", [*SIGNED, *UNSIGNED, "i1"])
def test_integers_against_python(elementwise, pairs, type_):
    a, b = pairs(type_)
    sign = "si" if type_ in SIGNED else "ui"
    for name, meaning in (ANY | {f"{k}{sign}": f for k, f in BY_SIGN.items()}).items():
        x, y = a, b
        if name[:3] in ("div", "rem"):
            x, y = a[b != 0], b[b != 0]
        expected = [wrap(meaning(int(p), int(q), BITS[type_]), type_) for p, q in zip(x, y, strict=True)]
        actual = elementwise(f"arith.{name}", [type_, type_], type_, [x, y])
        assert actual.tolist() == expected, name


@pytest.mark.parametrize("op", ["divsi", "remsi"])
def test_division_by_zero_names_the_program(apply, op):
    body = f"    %y0 : tensor<x4, i32> = arith.{op} %a %b;"
    with pytest.raises(KernelRuntimeError, match=r"program \(0, 0, 0\) divides by zero"):
        apply(body, [("i32", [1, 2, 3, 4]), ("i32", [1, 1, 0, 1])], [("i32", (4,))])


PREDICATES = ("eq", "ne", "lt", "le", "gt", "ge")


@pytest.mark.parametrize("type_", [*SIGNED, *UNSIGNED, "i1"])
def test_integer_comparisons(elementwise, pairs, type_):
    a, b = pairs(type_)
    for name in PREDICATES:
        predicate = name if name in ("eq", "ne") else ("s" if type_ in SIGNED else "u") + name
        actual = elementwise("arith.cmpi", [type_, type_], "i1", [a, b], f"@{predicate}")
        assert actual.tolist() == list(map(getattr(operator, name), a.tolist(), b.tolist()))


@pytest.mark.parametrize("type_", FLOATS)
def test_float_comparisons(elementwise, pairs, type_):
    a, b = pairs(type_)
    for name in PREDICATES:
        predicate = "une" if name == "ne" else f"o{name}"
        actual = elementwise("arith.cmpf", [type_, type_], "i1", [a, b], f"@{predicate}")
        expected = map(getattr(operator, name), a.astype(float).tolist(), b.astype(float).tolist())
        assert actual.tolist() == list(expected)


def saturated(exact, dtype):
    """Rounding to an 8-bit float as `cvt.rn.satfinite`, or plainly to another type."""
    if dtype.itemsize == 1:
        limit = float(ml_dtypes.finfo(dtype).max)
        exact = np.clip(exact, -limit, limit)
    return exact.astype(dtype)


def assert_same(actual, expected):
    """Equal, NaN with NaN, and the zeros' signs."""
    wide, want = actual.astype(np.float64), np.asarray(expected).astype(np.float64)
    np.testing.assert_array_equal(wide, want)
    zeros = want == 0
    np.testing.assert_array_equal(np.signbit(wide[zeros]), np.signbit(want[zeros]))


@pytest.mark.parametrize("type_", FLOATS)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "rem"])
def test_floats_round_after_each_op(elementwise, pairs, type_, op):
    a, b = pairs(type_)
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "rem": np.fmod}[op]
    with np.errstate(all="ignore"):
        wide = np.float64 if type_ == "f64" else np.float32
        expected = saturated(function(a.astype(wide), b.astype(wide)), a.dtype)
    assert_same(elementwise(f"arith.{op}f", [type_, type_], type_, [a, b]), expected)


def larger(a, b, number):
    if math.isnan(a) or math.isnan(b):
        return (b if math.isnan(a) else a) if number else math.nan
    if a == b == 0:
        return a if math.copysign(1, a) > 0 else b
    return max(a, b)


@pytest.mark.parametrize("type_", FLOATS)
@pytest.mark.parametrize("name", ["maximumf", "minimumf", "maxnumf", "minnumf"])
def test_extremes_of_floats(elementwise, pairs, type_, name):
    a, b = pairs(type_)
    number = "num" in name
    flip = -1.0 if name.startswith("min") else 1.0
    floats = zip(a.astype(float).tolist(), b.astype(float).tolist(), strict=True)
    expected = [flip * larger(flip * p, flip * q, number) for p, q in floats]
    assert_same(elementwise(f"arith.{name}", [type_, type_], type_, [a, b]), np.array(expected))


@pytest.mark.parametrize("type_", FLOATS)
def test_sign_ops_change_one_bit(elementwise, values, type_):
    a = values(type_)
    bits = a.view(f"u{a.itemsize}")
    sign = np.array(1 << (a.itemsize * 8 - 1), bits.dtype)
    assert (elementwise("arith.negf", [type_], type_, [a]).view(bits.dtype) == bits ^ sign).all()
    assert (elementwise("math.absf", [type_], type_, [a]).view(bits.dtype) == bits & ~sign).all()


def test_select_by_elements_and_by_scalar(apply):
    body = "    %y0 : tensor<x2, i32> = arith.select %a %b %c;"
    both = [("i32", [1, 2]), ("i32", [3, 4])]
    assert apply(body, [("i1", [True, False]), *both], [("i32", (2,))]).tolist() == [1, 4]
    assert apply(body, [("i1", False), *both], [("i32", (2,))]).tolist() == [3, 4]


def test_constants_have_their_type(apply):
    body = """
    %y0 : tensor<x2, f8e4m3> = arith.constant @1000.0;
    %y1 : tensor<x2, i1> = arith.constant @true;
    %y2 : u8 = arith.constant @255;
    %y3 : bf16 = arith.constant @0.1;"""
    actual = apply(body, [], [("f8e4m3", (2,)), ("i1", (2,)), ("u8", ()), ("bf16", ())])
    assert [x.astype(float).tolist() for x in actual] == [[448.0, 448.0], [1, 1], 255, float(ml_dtypes.bfloat16(0.1))]
