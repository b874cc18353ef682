"""What routines are written with, run on this machine, and the text of a routine."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest

from ziggurat.backend.ptx.routines import Real, Routine, f32, f32_bits, f64, two_over_pi

KINDS = {"float": np.float32, "double": np.float64}
NUMBERS = np.array([0.0, -0.0, 1.5, -2.25, 7, math.inf, -math.inf, math.nan])


def made(kind: str, write, parameters: int = 1):
    """A routine that gives what `write(routine)` does."""
    r = Real("zg.test", kind, parameters)
    return r.done(write(r))


def test_constants_are_written_by_the_bits_of_an_f64() -> None:
    assert f64(1.0) == "0x3FF0000000000000" and f64(-0.0) == "0x8000000000000000"
    assert f32(0.1) == f64(struct.unpack("<f", struct.pack("<f", 0.1))[0]) != f64(0.1)
    assert f32_bits(0x3F800000) == f64(1.0) and f32_bits(0xC0490FDB) == f32(-math.pi)
    assert f32_bits(1) == f64(2.0**-149)


def test_the_text_of_a_routine() -> None:
    r = Routine("zg.sum", "i32", ("i32", "i64"))
    low = r.emit("trunc i64 %a1 to i32")
    larger = r.call("i32", "llvm.smax.i32", ("i32", "%a0"), ("i32", low))
    r.call("i32", "llvm.smax.i32", ("i32", "%a0"), ("i32", "0"))
    assert r.done(larger) is r
    assert r.text == "\n".join(
        [
            "define internal i32 @zg.sum(i32 %a0, i64 %a1) nounwind {",
            "entry:",
            "  %t1 = trunc i64 %a1 to i32",
            "  %t2 = call i32 @llvm.smax.i32(i32 %a0, i32 %t1)",
            "  %t3 = call i32 @llvm.smax.i32(i32 %a0, i32 0)",
            "  ret i32 %t2",
            "}",
        ]
    )
    assert list(r.declared) == ["declare i32 @llvm.smax.i32(i32, i32)"]


def test_long_routines_are_not_for_inlining() -> None:
    head = Real("zg.one", "float").done("%a0", inline=False).text.split("\n")[0]
    assert head == "define internal float @zg.one(float %a0) nounwind noinline {"


def test_fresh_names_differ() -> None:
    r = Routine("zg.names", "i1", ())
    assert len({r.fresh(), r.fresh(), r.fresh("block"), r.fresh("block")}) == 4


def test_a_table_is_read(on_host) -> None:
    r = Routine("zg.table", "i32", ("i32",))
    table = r.constant("zg.squares", "i32", [0, 1, 4, 9])
    place = r.emit(f"getelementptr i32, ptr addrspace(4) {table}, i32 %a0")
    found = on_host(r.done(r.emit(f"load i32, ptr addrspace(4) {place}")))(np.arange(4))
    assert found.tolist() == [0, 1, 4, 9]
    assert r.variables == {
        "zg.squares": "@zg.squares = internal addrspace(4) constant [4 x i32] [i32 0, i32 1, i32 4, i32 9]"
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name, true", [
    ("add", lambda a, b: a + b), ("sub", lambda a, b: a - b), ("mul", lambda a, b: a * b), ("div", lambda a, b: a / b),
    ("signed_as", np.copysign),
])  # fmt: skip
def test_two_numbers(name: str, true, kind: str, on_host) -> None:
    x, y = (part.ravel().astype(KINDS[kind]) for part in np.meshgrid(NUMBERS, NUMBERS))
    found = on_host(made(kind, lambda r: getattr(r, name)("%a0", "%a1"), 2))(x, y)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, true(x, y))


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_python_are_rounded_to_the_kind(kind: str, on_host) -> None:
    found = on_host(made(kind, lambda r: r.add("%a0", 0.1)))(np.zeros(1))
    assert found.tolist() == [KINDS[kind](0.1)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_and_a_sum_are_rounded_once(kind: str, on_host) -> None:
    x = np.array([1 + np.finfo(KINDS[kind]).eps], KINDS[kind])
    found = on_host(made(kind, lambda r: r.fma("%a0", "%a0", r.negative(r.mul("%a0", "%a0")))))(x)
    assert found.tolist() == [np.finfo(KINDS[kind]).eps ** 2]


@pytest.mark.parametrize("kind", KINDS)
def test_polynomials_and_magnitudes(kind: str, on_host) -> None:
    x = np.array([0, 1, -2, 3], KINDS[kind])
    polynomial = on_host(made(kind, lambda r: r.poly("%a0", (1.0, -2.0, 3.0))))(x)
    assert polynomial.tolist() == [1, 2, 17, 22]
    assert on_host(made(kind, lambda r: r.poly("%a0", (5.0,))))(x).tolist() == [5] * 4
    assert on_host(made(kind, lambda r: r.magnitude(r.negative("%a0"))))(x).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_clamping_keeps_nan(kind: str, on_host) -> None:
    found = on_host(made(kind, lambda r: r.clamp("%a0", -2.0, 5.0)))(NUMBERS)
    np.testing.assert_array_equal(found, np.clip(NUMBERS, -2, 5))


@pytest.mark.parametrize("kind", KINDS)
def test_choices_and_bits(kind: str, on_host) -> None:
    chosen = on_host(made(kind, lambda r: r.select(r.compare("ogt", "%a0", 1.0), "%a0", -1.0)))([0.5, 2, math.nan])
    assert chosen.tolist() == [-1, 2, -1]
    there_and_back = on_host(made(kind, lambda r: r.from_bits(r.to_bits("%a0"))))(NUMBERS)
    np.testing.assert_array_equal(there_and_back, NUMBERS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_nearest_whole_number(kind: str, on_host) -> None:
    """Ties go to even numbers; it comes as a float and as an integer."""
    x = np.array([0, 0.5, 1.5, 2.5, -0.5, -1.5, 1e6 + 0.25, -4194303.0])
    whole = on_host(made(kind, lambda r: r.nearest("%a0")[0]))(x)
    np.testing.assert_array_equal(whole, np.rint(x.astype(KINDS[kind])))
    r = Real("zg.nearest", kind)
    r.result = r.bits_kind
    bits = np.int32 if kind == "float" else np.int64
    integer = on_host(r.done(r.nearest("%a0", 2.0)[1]))(x[:6]).view(bits)
    np.testing.assert_array_equal(integer, np.rint(2 * x[:6]))
    assert np.isnan(on_host(made(kind, lambda r: r.nearest("%a0")[0]))([math.nan])).all()


@pytest.mark.parametrize("kind", KINDS)
def test_scaling_rounds_subnormal_numbers_once(kind: str, on_host) -> None:
    """x · 2^n to where it overflows and to where nothing is left."""
    dtype, limits = KINDS[kind], np.finfo(KINDS[kind])
    reach = 1 - limits.minexp + limits.nmant
    exponents = np.arange(-reach - 1, limits.maxexp + 1)
    for number in (1.0, 1.5, -(2 - float(limits.eps))):
        r = Real("zg.scaled", kind)
        r.parameters = (r.bits_kind,)
        found = on_host(r.done(r.scaled(r.number(number), "%a0")))(exponents)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(found, np.ldexp(dtype(number), exponents))
    powers = Real("zg.power", kind)
    powers.parameters = (powers.bits_kind,)
    assert on_host(powers.done(powers.power_of_two("%a0")))([0, 10]).tolist() == [1, 1024]


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_branch_that_is_taken_is_computed(kind: str, on_host) -> None:
    """Branches within a branch too: the value comes from the block in which it ends."""

    def write(r: Real) -> str:
        def outer() -> str:
            return r.branch(r.compare("ogt", "%a0", 10.0), lambda: r.mul("%a0", 3.0), lambda: r.mul("%a0", 2.0))

        return r.branch(r.compare("ogt", "%a0", 0.0), outer, lambda: r.negative("%a0"))

    routine = made(kind, write)
    assert on_host(routine)([-1, 5, 20]).tolist() == [1, 10, 60]
    entry = routine.text.split("br i1")[0]
    assert "fmul" not in entry and "fneg" not in entry


def test_digits_of_two_over_pi() -> None:
    known = Fraction(math.pi)  # Good to 53 digits.
    assert two_over_pi(40) == int(2 / known * 2**40)
    assert two_over_pi(1200) >> 1160 == two_over_pi(40)
    assert two_over_pi(24) == 0xA2F983
