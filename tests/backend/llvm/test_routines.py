"""Routines: their operators, run on the host, and their text."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from ziggurat.backend.llvm.routines import Number, Routine, two_over_pi

KINDS = {"float": np.float32, "double": np.float64}
NUMBERS = np.array([0.0, -0.0, 1.5, -2.25, 7, math.inf, -math.inf, math.nan])


def made(kind: str, write, parameters: int = 1):
    """A routine that gives what `write(routine, *arguments)` does."""
    r = Routine("zg.test", kind, [kind] * parameters)
    return r.done(write(r, *(r.argument(at) for at in range(parameters))))


def test_the_text_of_a_routine() -> None:
    r = Routine("zg.sum", "i32", ("i32", "i64"))
    low = r.argument(1).to("trunc", "i32")
    larger = r.argument().call("llvm.smax", low)
    r.argument().call("llvm.smax", 0)
    assert r.done(larger) is r
    assert r.text == "\n".join(
        [
            "define internal i32 @zg.sum(i32 %a0, i64 %a1) nounwind {",
            "entry:",
            "  %v1 = trunc i64 %a1 to i32",
            "  %v2 = call i32 @llvm.smax.i32(i32 %a0, i32 %v1)",
            "  %v3 = call i32 @llvm.smax.i32(i32 %a0, i32 0)",
            "  ret i32 %v2",
            "}",
        ]
    )
    assert list(r.declarations) == ["declare i32 @llvm.smax.i32(i32, i32)"]


def test_operators_are_those_of_the_type() -> None:
    r = Routine("zg.operators", "i32", ("i32", "float"))
    x, y = r.argument(), r.argument(1)
    for value in ((x + 1 >> 2 & 3 | 4) ^ 5, (x * 6 << 7) / 8 % 9, -x, x.ashr(10), -y, 1.0 - y, 2.0 / y):
        assert value.kind in ("i32", "float")
    x.test("ult", 3).select(7, 8, "i64")
    opcodes = [line.split(" = ")[1].split(" %")[0].split(" 0")[0] for line in r.lines]
    assert opcodes == [
        "add i32", "lshr i32", "and i32", "or i32", "xor i32", "mul i32", "shl i32", "udiv i32", "urem i32", "sub i32",
        "ashr i32", "fneg float", "fsub float", "fdiv float", "icmp ult i32", "select i1",
    ]  # fmt: skip
    assert r.lines[-1].endswith(", i64 7, i64 8")


def test_long_routines_are_not_for_inlining() -> None:
    r = Routine("zg.one", "float", ["float"])
    head = r.done(r.argument(), inline=False).text.split("\n")[0]
    assert head == "define internal float @zg.one(float %a0) nounwind noinline {"


def test_fresh_names_differ() -> None:
    r = Routine("zg.names", "i1", ())
    assert len({r.name(), r.name(), r.name("block"), r.name("block")}) == 4


def test_a_table_is_read(on_host) -> None:
    r = Routine("zg.table", "i32", ("i32",))
    actual = on_host(r.done(r.table("zg.squares", "i32", [0, 1, 4, 9], r.argument())(1)))(np.arange(3))
    assert actual.tolist() == [1, 4, 9]
    assert r.variables == {
        "zg.squares": "@zg.squares = internal addrspace(4) constant [4 x i32] [i32 0, i32 1, i32 4, i32 9]"
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name, true", [
    ("__add__", lambda a, b: a + b), ("__sub__", lambda a, b: a - b), ("__mul__", lambda a, b: a * b),
    ("__truediv__", lambda a, b: a / b), ("signed_as", np.copysign),
])  # fmt: skip
def test_two_numbers(name: str, true, kind: str, on_host) -> None:
    x, y = (part.ravel().astype(KINDS[kind]) for part in np.meshgrid(NUMBERS, NUMBERS))
    actual = on_host(made(kind, lambda r, a, b: getattr(a, name)(b), 2))(x, y)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(actual, true(x, y))


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_python_are_rounded_to_the_kind(kind: str, on_host) -> None:
    actual = on_host(made(kind, lambda r, x: x + 0.1))(np.zeros(1))
    assert actual.tolist() == [KINDS[kind](0.1)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_and_a_sum_are_rounded_once(kind: str, on_host) -> None:
    x = np.array([1 + np.finfo(KINDS[kind]).eps], KINDS[kind])
    actual = on_host(made(kind, lambda r, x: r.fma(x, x, -(x * x))))(x)
    assert actual.tolist() == [np.finfo(KINDS[kind]).eps ** 2]


@pytest.mark.parametrize("kind", KINDS)
def test_polynomials_and_magnitudes(kind: str, on_host) -> None:
    x = np.array([0, 1, -2, 3], KINDS[kind])
    polynomial = on_host(made(kind, lambda r, x: r.poly(x, (1.0, -2.0, 3.0))))(x)
    assert polynomial.tolist() == [1, 2, 17, 22]
    assert on_host(made(kind, lambda r, x: r.poly(x, (5.0,))))(x).tolist() == [5] * 4
    assert on_host(made(kind, lambda r, x: abs(-x)))(x).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_clamping_keeps_nan(kind: str, on_host) -> None:
    actual = on_host(made(kind, lambda r, x: x.clamp(-2.0, 5.0)))(NUMBERS)
    np.testing.assert_array_equal(actual, np.clip(NUMBERS, -2, 5))


@pytest.mark.parametrize("kind", KINDS)
def test_choices_and_bits(kind: str, on_host) -> None:
    choice = on_host(made(kind, lambda r, x: x.test("ogt", 1.0).select(x, -1.0)))([0.5, 2, math.nan])
    assert choice.tolist() == [-1, 2, -1]
    there_and_back = on_host(made(kind, lambda r, x: x.bits().to("bitcast", kind)))(NUMBERS)
    np.testing.assert_array_equal(there_and_back, NUMBERS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_nearest_whole_number(kind: str, on_host) -> None:
    """Ties go to even numbers; it comes as a float and as an integer."""
    x = np.array([0, 0.5, 1.5, 2.5, -0.5, -1.5, 1e6 + 0.25, -4194303.0])
    whole = on_host(made(kind, lambda r, x: r.nearest(x)[0]))(x)
    np.testing.assert_array_equal(whole, np.rint(x.astype(KINDS[kind])))
    bits, whole_kind = (np.int32, "i32") if kind == "float" else (np.int64, "i64")
    r = Routine("zg.nearest", whole_kind, [kind])
    integer = on_host(r.done(r.nearest(r.argument(), 2.0)[1]))(x[:6]).view(bits)
    np.testing.assert_array_equal(integer, np.rint(2 * x[:6]))
    assert np.isnan(on_host(made(kind, lambda r, x: r.nearest(x)[0]))([math.nan])).all()


@pytest.mark.parametrize("kind", KINDS)
def test_scaling_rounds_subnormal_numbers_once(kind: str, on_host) -> None:
    """x · 2^n to where it overflows and to where nothing is left."""
    dtype, limits = KINDS[kind], np.finfo(KINDS[kind])
    whole = "i32" if kind == "float" else "i64"
    reach = 1 - limits.minexp + limits.nmant
    exponents = np.arange(-reach - 1, limits.maxexp + 1)
    for number in (1.0, 1.5, -(2 - float(limits.eps))):
        r = Routine("zg.scaled", kind, [whole])
        actual = on_host(r.done(r.scaled(Number(r, kind, "").like(number), r.argument())))(exponents)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(actual, np.ldexp(dtype(number), exponents))
    powers = Routine("zg.power", kind, [whole])
    assert on_host(powers.done(powers.power_of_two(powers.argument())))([0, 10]).tolist() == [1, 1024]


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_branch_that_is_taken_is_computed(kind: str, on_host) -> None:
    """Branches may be nested: the phi has the block in which a branch ends."""

    def write(r: Routine, x: Number) -> Number:
        def outer() -> list[Number]:
            return r.branch(x.test("ogt", 10.0), lambda: [x * 3.0], lambda: [x * 2.0])

        (value,) = r.branch(x.test("ogt", 0.0), outer, lambda: [-x])
        return value

    routine = made(kind, write)
    assert on_host(routine)([-1, 5, 20]).tolist() == [1, 10, 60]
    entry = routine.text.split("br i1")[0]
    assert "fmul" not in entry and "fneg" not in entry


def test_digits_of_two_over_pi() -> None:
    constants = Fraction(math.pi)  # Good to 53 digits.
    assert two_over_pi(40) == int(2 / constants * 2**40)
    assert two_over_pi(1200) >> 1160 == two_over_pi(40)
    assert two_over_pi(24) == 0xA2F983
