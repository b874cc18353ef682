"""Expressions of constants, and of constants with run-time scalars: values of Python, or of Triton in its language."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl

CONSTANTS: dict[str, Any] = {"ZERO": 0, "FIVE": 5, "NOTHING": None, "YES": True, "HALF": 0.5}
MODES = [{}, {"interpret": True}, {"strict": True}]
CARD = tl.constexpr(2**64 + 2**40)


@pytest.fixture
def run(kernel):
    """`run(prefix, lines, n)`: what the lines store to `out`, and `n` is a run-time number."""

    def run(prefix: str, lines: str, n: int = 0, dtype: str = "int64", **mode: Any) -> Any:
        names = ", ".join(f"{name}: {prefix}.constexpr" for name in CONSTANTS)
        test_kernel = kernel(f"def f(out, n, {names}):\n{lines}", tl=tl, CARD=CARD, helper=helper, shifted=shifted)
        if prefix == "tl":
            test_kernel = triton.jit(test_kernel.fn)
        out = np.full(2, 77, dtype)
        test_kernel[(1,)](out, n, *CONSTANTS.values(), **mode)
        return out.tolist()

    return run


@zg.function
def helper(x, flag: zg.constexpr):
    return flag and x


@triton.jit
def shifted(x, wide: tl.constexpr):
    return x + (wide >> 40)


def chosen(prefix: str, expression: str) -> str:
    """Lines that store the value of an expression, and as a condition."""
    return f"""
    x = {expression}
    if x is None:
        {prefix}.store(out, -1)
    else:
        {prefix}.store(out, x.to(tl.int64) if {prefix == "tl"} else zg.cast(x, zg.i64))
    if {expression}:
        {prefix}.store(out + 1, 1)
    else:
        {prefix}.store(out + 1, 0)
"""


MIXED = [
    f"{a} {word} {b}"
    for word in ("and", "or")
    for a, b in itertools.product(("n", "n * 2", *CONSTANTS), ("n", "n - 1", *CONSTANTS))
    if (a[0] == "n") != (b[0] == "n")
]
MIXED += [
    "ZERO or NOTHING or n",
    "YES and FIVE and n",
    "ZERO or (YES and n)",
    "n and ZERO and n",
    "ZERO or n or NOTHING",
]


@pytest.mark.parametrize("expression", MIXED)
@pytest.mark.parametrize("n", [0, 5])
def test_one_run_time_operand_in_explicit_calls(run, expression, n):
    """Python's value, and with it that of `zg.execute`; no number is None at run time."""
    value = eval(expression, {**CONSTANTS, "n": n})
    numbers = [value and int(value), *([0, -1] if not value and "NOTHING" in expression else [])]
    result, truth = run("zg", chosen("zg", expression), n, interpret=True)
    assert result in numbers and truth == bool(value)


# Triton 3.6 leaves out a constant that does not decide, also one that is last, and is one that decides.
@pytest.mark.parametrize(
    ("expression", "n", "value"),
    [
        ("ZERO or n", 5, 5),
        ("NOTHING or n", 5, 5),
        ("FIVE or n", 2, 5),
        ("YES and n * 2", 5, 10),
        ("ZERO and n", 5, 0),
        ("n or ZERO", 5, 5),
        ("n or FIVE", 3, 5),
        ("n and FIVE", 3, 3),
        ("n and ZERO", 3, 0),
        ("n and NOTHING", 3, -1),
        ("ZERO or n or NOTHING", 4, 4),
        ("YES and n and FIVE", 4, 4),
        ("(ZERO or n) and FIVE", 4, 4),
        ("n and 7 and n", 4, 1),
        ("n or n or ZERO", 4, 1),
        ("'' or n", 4, 4),
        ("() or n", 4, 4),
        ("(1, n) and n", 4, 4),
    ],
)
def test_constants_decide_or_are_left_out_in_triton(run, expression, n, value):
    for mode in MODES:
        result, truth = run("tl", chosen("tl", expression), n, **mode)
        assert (result, truth) == (value, value not in (0, -1))


def test_the_operand_that_is_left_keeps_its_type(run):
    assert (
        run("tl", "    x = ZERO or n.to(tl.int8)\n    tl.static_assert(x.dtype == tl.int8)\n    tl.store(out, x)", 7)[0]
        == 7
    )
    assert (
        run("zg", "    x = YES and zg.cast(n, zg.i8)\n    zg.static_assert(x.dtype == zg.i8)\n    zg.store(out, 3)")[0]
        == 3
    )
    assert run("tl", "    p = NOTHING or out\n    tl.store(p + 1, 4)") == [77, 4]
    assert run("zg", "    p = NOTHING or out\n    zg.store(YES and p, 4)") == [4, 77]
    assert run("zg", "    for i in range(ZERO or n):\n        zg.store(out, zg.cast(i, zg.i64))", 3)[0] == 2
    assert run("zg", "    zg.store(out, zg.cast(helper(n, True), zg.i64))", 3)[0] == 3
    assert run("tl", "    if FIVE and n > 2:\n        tl.store(out, 1)", 3)[0] == 1


def test_operands_before_the_one_that_decides_are_run(run):
    assert run("tl", "    x = tl.atomic_add(out, 1) or FIVE\n    tl.store(out + 1, x)") == [78, 5]
    assert run("zg", "    x = zg.atomic_add(out, 1) and ZERO\n    zg.store(out + 1, x)") == [78, 0]
    assert run("zg", "    x = FIVE or zg.atomic_add(out, 1)\n    zg.store(out + 1, x)") == [77, 5]


@pytest.mark.parametrize("prefix", ["zg", "tl"])
def test_signs_before_constant_bools_are_pythons(run, prefix):
    lines = "    {}.store(out, {})\n    if {}:\n        {}.store(out + 1, 1)\n    else:\n        {}.store(out + 1, 0)"
    for expression, value in (("~YES", -2), ("~True", -2), ("~(not YES)", -1), ("-YES", -1), ("+YES", 1), ("~~YES", 1)):
        assert run(prefix, lines.format(prefix, expression, expression, prefix, prefix)) == [value, 1]
    assert run(prefix, f"    {prefix}.static_assert(~YES == -2)\n    {prefix}.store(out, not YES)")[0] == 0
    assert run(prefix, f"    {prefix}.store(out, ~(n > 3))", 5, "bool")[0] is False


@pytest.mark.parametrize("prefix", ["zg", "tl"])
@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("(1 << 64) - 1", 2**64 - 1),
        ("2**64 - 1", 2**64 - 1),
        ("10**20 // 10**15", 10**5),
        ("CARD >> 40", 2**24 + 1),
        ("(0x9E3779B97F4A7C15 * 31) & (2**64 - 1)", 0x9E3779B97F4A7C15 * 31 % 2**64),
        ("(CARD << 9000) >> 9020", (1 << 44) + (1 << 20)),
        ("-(2**63) - 1 + 2**63 + 4", 3),
        ("max(2**70, 3) >> 66", 16),
        ("2**64 > 2**63", 1),
        ("~(2**64) + 2**64 + 3", 2),
        ("(2**70, 5)[0] // 2**68", 4),
        ("3 if 2**70 else 4", 3),
        ("FIVE if 2**64 == 1 << 64 else ZERO", 5),
    ],
)
def test_constant_integers_have_no_width(run, prefix, expression, value):
    for mode in MODES:
        assert run(prefix, f"    {prefix}.store(out, {expression})", dtype="uint64", **mode)[0] == value


def test_wide_constants_reach_functions_and_variables(run):
    assert run("tl", "    tl.store(out, shifted(n, CARD) + shifted(n, 2**80 - 2**80))", 3)[0] == 2**24 + 7
    assert run("tl", "    mask: tl.constexpr = (1 << 64) - 1\n    tl.store(out, mask)", dtype="uint64")[0] == 2**64 - 1
    assert run("zg", "    x = 1 << 70\n    zg.store(out, x >> 60)")[0] == 1024
    assert run("zg", "    zg.store(out, zg.shr(zg.sub(zg.shl(1, 80), 1), 70))")[0] == 1023
    assert run("zg", "    zg.store(out, zg.cast(-(2**63), zg.u64))", dtype="uint64")[0] == 2**63
    assert run("tl", "    tl.store(out, tl.cast(300, tl.uint8))")[0] == 44


@pytest.mark.parametrize("prefix", ["zg", "tl"])
@pytest.mark.parametrize(
    "lines",
    [
        "{0}.store(out, 2**64)",
        "{0}.store(out, n + 2**70)",
        "{0}.store(out, -(2**63) - 1)",
        "x = {0}.where(n > 1, 2**64, 1)",
        "for i in range(2**70):\n        pass",
        "{0}.device_print('x', 2**64)",
        "{0}.store(out, {0}.cast(2**64, {0}.{1}))",
        "{0}.store(out, n if n > 1 else 2**65)",
        "{0}.multiple_of(out, 2**64)",
        "x = {0}.full((2**64,), 0, {0}.{1})",
    ],
)
def test_a_wide_constant_has_no_value_at_run_time(run, prefix, lines):
    dtype = "i64" if prefix == "zg" else "int64"
    with pytest.raises(
        zg.ZigguratError, match=r"an integer must fit in 64 bits at run time; got -?\d+\n|65536|1048576"
    ):
        run(prefix, f"    {lines.format(prefix, dtype)}")


@pytest.mark.parametrize("prefix", ["zg", "tl"])
@pytest.mark.parametrize("expression", ["10**(10**7)", "1 << 10**9", "(1,) * 10**9", "2**9000 * 2**9000", "10**5000"])
def test_sizes_of_constants_are_limited(run, prefix, expression):
    with pytest.raises(zg.KernelValueError, match=r"must have at most 14000 bits|more than 65536 characters or items"):
        run(prefix, f"    {prefix}.static_assert({expression})")
