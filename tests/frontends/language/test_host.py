"""The meaning of calls on Python numbers."""

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ziggurat.frontends.language as zg
from ziggurat.codemodel.errors import KernelRuntimeError, KernelTypeError, KernelValueError
from ziggurat.codemodel.types import bf16, f8e4m3, f8e5m2, f16, f32, f64, i1, i8, i32, u8, u32
from ziggurat.frontends.language import CompareKind


@given(st.integers(0, 10**12), st.integers(1, 10**6))
def test_cdiv_covers_with_the_fewest_pieces(x: int, div: int):
    pieces = zg.cdiv(x, div)
    assert pieces * div >= x > (pieces - 1) * div or x == pieces == 0


@given(st.integers(1, 10**9))
def test_next_power_of_2(n: int):
    power = zg.next_power_of_2(n)
    assert power & (power - 1) == 0 and power // 2 < n <= power


def test_next_power_of_2_is_positive():
    assert [zg.next_power_of_2(n) for n in (-3, 0, 1, 2, 3)] == [1, 1, 1, 2, 4]


def test_arithmetic_is_that_of_run_time():
    assert zg.add(2, 3) == 5 and zg.sub(2, 3) == -1 and zg.mul(2, 3) == 6 and zg.div(3, 2) == 1.5
    assert zg.floordiv(-7, 2) == -3 and zg.mod(-7, 2) == -1 and zg.neg(3) == -3
    assert zg.and_(6, 3) == 2 and zg.or_(6, 3) == 7 and zg.xor(6, 3) == 5
    assert zg.shl(1, 4) == 16 and zg.shr(-16, 2) == -4
    assert zg.invert(5) == -6 and zg.invert(True) is False
    assert zg.fma(2, 3, 4) == 10
    assert type(zg.add(2, 3)) is int


@pytest.mark.parametrize(
    ("name", "arguments", "value"),
    [
        ("add", (True, True), 2), ("add", (True, 1), 2), ("add", (1.5, True), 2.5), ("add", (2, 0.5), 2.5),
        ("sub", (True, True), 0), ("sub", (1, 2.5), -1.5), ("mul", (True, True), 1), ("mul", (-3, 2**40), -3 * 2**40),
        ("div", (1, 2), 0.5), ("div", (True, 2), 0.5), ("div", (-1.0, 0.0), -math.inf), ("div_rn", (1, 3), 1 / 3),
        ("fdiv", (1.0, 4.0), 0.25), ("floordiv", (7, -2), -3), ("floordiv", (-8, -3), 2), ("mod", (7, -3), 1),
        ("floordiv", (2**70, 3), 2**70 // 3), ("mod", (-7, 3), -1), ("mod", (7.5, -2.0), 1.5), ("mod", (-7.5, 2), -1.5),
        ("and_", (True, False), False), ("and_", (True, True), True), ("or_", (False, True), True),
        ("or_", (False, False), False), ("xor", (True, True), False), ("xor", (True, False), True),
        ("and_", (True, 6), 0),
        ("shl", (0, 10**9), 0), ("shl", (1, 13_999), 1 << 13_999), ("shl", (-1, 4), -16), ("shr", (-1, 100), -1),
        ("shr", (5, 1), 2), ("shl", (3, 0), 3), ("neg", (0.0,), -0.0), ("neg", (-2,), 2), ("neg", (2.5,), -2.5),
        ("abs", (-0.0,), 0.0), ("abs", (0,), 0), ("abs", (-7,), 7), ("abs", (7,), 7), ("abs", (-2.5,), 2.5),
        ("invert", (0,), -1), ("invert", (False,), True), ("fma", (0.1, 10.0, -1.0), 2**-54), ("fma", (2, 3, 0.5), 6.5),
        ("fma", (True, 2, 3), 5), ("fma", (2, 3, -4), 2), ("minimum", (True, False), False), ("maximum", (-3, True), 1),
        ("minimum", (2, 1.5), 1.5), ("maximum", (2, 1.5), 2.0), ("minimum", (-1, -2), -2), ("clamp", (1.5, 0, 1), 1.0),
        ("clamp", (math.nan, 0, 1), 0.0), ("clamp", (-1.5, -1, 1), -1.0), ("clamp", (3, 0, 10), 3),
        ("where", (True, 1, 2.5), 1.0), ("where", (False, 1, 2.5), 2.5), ("where", (False, 1, True), 1),
        ("next_power_of_2", (True,), 1), ("next_power_of_2", (5,), 8), ("next_power_of_2", (2**40 + 1,), 2**41),
        ("cast", (300, u8), 44), ("cast", (-1, u8), 255), ("cast", (200, i8), -56), ("cast", (True, i8), 1),
        ("cast", (2, i1), True), ("cast", (-0.5, i1), True), ("cast", (0, i1), False), ("cast", (True, f32), 1.0),
        ("cast", (16777217, f32), 16777216.0), ("cast", (1e300, f64, "rtz"), 1e300), ("cast", (0.1, f64), 0.1),
        ("cast", (-1 - 2**-11 - 2**-12, f16, "rtz"), -1.0), ("cast", (1 + 2**-11 + 2**-12, f16), 1 + 2**-10),
        ("floor", (3,), 3.0), ("ceil", (-2,), -2.0), ("ceil", (1.25,), 2.0), ("sqrt_rn", (2,), math.sqrt(2)),
        ("cdiv", (7, 2), 4), ("cdiv", (8, 2), 4), ("cdiv", (1, 8), 1), ("cdiv", (0, 8), 0),
    ],
)  # fmt: skip
def test_numbers_are_promoted_and_keep_their_kind(name: str, arguments: tuple[Any, ...], value: Any):
    actual = getattr(zg, name)(*arguments)
    assert (type(actual), repr(actual)) == (type(value), repr(value))


def test_nan_is_handed_on_where_that_is_said():
    for a, b in ((math.nan, 1.0), (1.0, math.nan), (math.nan, math.nan)):
        assert math.isnan(zg.minimum(a, b, True)) and math.isnan(zg.maximum(a, b, propagate_nan=True))
    assert zg.minimum(1, 2, True) == 1 and zg.maximum(1.0, 2.0, True) == 2.0
    assert math.isnan(zg.clamp(math.nan, 0, 1, True)) and zg.clamp(2.0, 0, 1, True) == 1.0


def test_the_smaller_and_the_larger_pass_over_nan():
    assert zg.minimum(1, 2) == 1 and zg.maximum(1, 2) == 2
    for number, other in ((1.0, math.nan), (math.nan, 1.0)):
        assert zg.minimum(number, other) == zg.maximum(number, other) == 1.0
    assert math.isnan(zg.maximum(math.nan, math.nan))
    assert [zg.clamp(x, 0, 10) for x in (-5, 5, 15)] == [0, 5, 10]
    assert zg.clamp(5, 10, 0) == 0


def test_comparison_and_choice():
    kinds = [[zg.compare(a, b, kind) for kind in CompareKind] for a, b in ((1, 2), (2, 2.0), (True, 0))]
    assert kinds[0] == [False, True, True, True, False, False]
    assert kinds[1] == [True, False, False, True, False, True] and kinds[2] == [False, True, False, False, True, True]
    assert zg.compare(math.nan, math.nan, CompareKind.NOT_EQUAL) is True
    assert zg.where(True, 1, 2) == 1 and zg.where(np.bool_(False), 1, 2) == 2


def test_functions_of_floats():
    for name in ("exp", "log", "log2", "sqrt", "sin", "cos", "tanh", "erf"):
        assert getattr(zg, name)(0.75) == pytest.approx(getattr(math, name)(0.75), rel=3e-16)
    assert zg.exp2(3) == 8.0 and zg.rsqrt(4) == 0.5 and zg.abs(-3) == 3
    assert zg.floor(-1.5) == -2.0 and zg.ceil(-1.5) == -1.0 and type(zg.floor(2.5)) is float
    assert zg.sigmoid(0) == 0.5 and zg.sigmoid(-1000.0) == 0.0 and zg.sigmoid(1000.0) == 1.0


def test_functions_of_floats_have_a_value_everywhere():
    assert zg.log(0.0) == zg.log2(0.0) == -math.inf
    assert zg.exp(1e6) == zg.exp2(1e6) == zg.rsqrt(0.0) == math.inf
    for nan in (zg.sqrt(-1.0), zg.log(-1.0), zg.sin(math.inf), zg.rsqrt(-1.0)):
        assert math.isnan(nan)
    assert zg.floor(math.inf) == math.inf and math.copysign(1, zg.ceil(-0.5)) == -1


@given(st.integers(-(2**70), 2**70))
def test_casts_to_integers_keep_the_low_bits(x: int):
    for dtype in (i8, u8, i32, u32):
        low, high = dtype.limits
        assert low <= zg.cast(x, dtype) <= high
        assert (zg.cast(x, dtype) - x) % (1 << dtype.bits) == 0


def test_casts_of_floats():
    assert zg.cast(-3.9, i32) == -3 and zg.cast(0.1, i1) is True and zg.cast(0.0, i1) is False
    assert zg.cast(3, f64) == 3.0 and type(zg.cast(3, f64)) is float
    assert zg.cast(65519.9, f16) == 65504.0 and zg.cast(65520.0, f16) == math.inf and zg.cast(-1e9, f16) == -math.inf
    assert zg.cast(1.00390625, bf16) == 1.0 and zg.cast(1.01171875, bf16) == 1.015625  # ties to even
    assert math.isnan(zg.cast(math.nan, f16))
    assert zg.cast(0.3, f8e4m3) == 0.3125 and zg.cast(math.inf, f8e5m2) == zg.cast(1e9, f8e5m2) == 57344.0
    assert zg.cast(1e9, i8) == 127 and zg.cast(math.nan, i32) == 0 and zg.cast(-5.0, u8) == 0
    assert zg.cast(1 + 2**-11 + 2**-12, f16, "rtz") == 1.0


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_casts_to_narrower_floats_round_as_the_machine_does(x: float):
    for dtype, code in ((f32, "f"), (f16, "e")):
        try:
            expected = struct.unpack(code, struct.pack(code, x))[0]
        except OverflowError:
            expected = math.copysign(math.inf, x)
        assert repr(zg.cast(x, dtype)) == repr(expected)


def test_ranges():
    assert list(zg.range(3)) == [0, 1, 2] and list(zg.range(5, 0, -2, num_stages=3)) == [5, 3, 1]
    assert list(zg.static_range(2, 4)) == [2, 3] and list(zg.range(0, 5, 2)) == [0, 2, 4]
    with pytest.raises(KernelValueError, match="the step of a range is zero"):
        zg.static_range(0, 3, 0)


def test_hints_change_nothing():
    assert zg.multiple_of(32, 16) == zg.max_contiguous(32, 8) == zg.max_constancy(32, 8) == 32
    assert zg.assume(True) is None and zg.debug_barrier() is None


def test_assertions_and_printing(capsys: pytest.CaptureFixture[str]):
    zg.static_assert(True)
    zg.device_assert(True, "fine")
    with pytest.raises(KernelValueError, match="static assertion failed: too small"):
        zg.static_assert(1 > 2, "too small")
    with pytest.raises(KernelValueError, match=r"static assertion failed$"):
        zg.static_assert(0)
    with pytest.raises(KernelRuntimeError, match=r"device-side assertion failed$"):
        zg.device_assert(False)
    with pytest.raises(KernelRuntimeError, match="device-side assertion failed: low"):
        zg.device_assert(False, "low", mask=True)
    zg.device_assert(False, "masked", mask=False)
    zg.device_assert(True, "fine", mask=True)
    zg.static_print("n =", 3)
    zg.device_print("x", 255, 0.5, hex=True)
    zg.device_print("y", 255)
    assert capsys.readouterr().out == "n = 3\nx 0xff 0.5\ny 255\n"


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (lambda: zg.floordiv(1, 0), r"cannot compute zg.floordiv\(1, 0\): division by zero"),
        (
            lambda: zg.shl(1, 10**9),
            r"cannot compute zg.shl\(1, 1000000000\): a constant integer must have at most 14000",
        ),
        (lambda: zg.shl(1, 14_000), "a constant integer must have at most 14000 bits"),
        (lambda: zg.shl(1, -1), r"cannot compute zg.shl\(1, -1\): negative shift count"),
        (lambda: zg.and_(1.5, 2), r"zg.and_: the operands must be integers; got 1.5 and 2"),
        (lambda: zg.xor(2, 1.5), r"zg.xor: the operands must be integers; got 2 and 1.5"),
        (lambda: zg.floordiv(2.0, 1), r"zg.floordiv: the operands must be integers; got 2.0 and 1"),
        (lambda: zg.multiple_of("a", 16), "zg.multiple_of: 'x' must be a number outside of a kernel; got 'a'"),
        (lambda: zg.minimum(1, "a"), "zg.minimum: 'b' must be a number outside of a kernel; got 'a'"),
        (lambda: zg.neg(True), "zg.neg: the operands must be integers or floats; got True"),
        (lambda: zg.invert(1.0), "zg.invert: the operands must be integers; got 1.0"),
        (lambda: zg.popc(3), "zg.popc was called outside of a kernel"),
        (lambda: zg.cdiv(3.5, 2), "zg.cdiv: the operands must be integers; got 3.5 and 2"),
        (lambda: zg.cdiv("a", 2), "zg.cdiv: 'x' must be a number outside of a kernel; got 'a'"),
        (lambda: zg.cdiv(3, 0), r"cannot compute zg.cdiv\(3, 0\): division by zero"),
        (lambda: zg.sqrt("a"), "zg.sqrt: 'x' must be a number outside of a kernel; got 'a'"),
        (lambda: zg.add(1, None), "zg.add: 'b' must be a number outside of a kernel; got None"),
        (lambda: zg.cast(1.5, i32, bitcast=True), "zg.cast was called outside of a kernel"),
        (lambda: zg.next_power_of_2(1.5), "zg.next_power_of_2: 'n' must be an integer; got 1.5"),
        (lambda: zg.compare(1, 2, "x"), "zg.compare: 'kind' must be a member of zg.CompareKind, .*; got 'x'"),
        (lambda: zg.where(1, 1, 2), r"zg.where: the condition must be i1 \(true or false\); got 1"),
        (lambda: zg.exp(10**400), "cannot compute zg.exp: int too large to convert to float"),
        (lambda: zg.add(10**400, 1.0), "cannot compute zg.add: int too large to convert to float"),
        (lambda: zg.cast(10**400, f32), "cannot compute zg.cast: math range error"),
    ],
)
def test_what_has_no_result_is_an_error_of_the_language(compute: Callable[[], Any], message: str):
    with pytest.raises((KernelTypeError, KernelValueError), match=message):
        compute()


def test_numbers_of_numpy_are_pythons():
    assert zg.cdiv(np.int64(7), 2) == 4 and type(zg.cdiv(np.int64(7), np.int32(2))) is int
    assert zg.minimum(np.float32(1.5), 2) == 1.5 and type(zg.minimum(np.float32(1.5), 2)) is float
