"""Instructions and intrinsics of the simulation, against plain Python."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ziggurat.backend.simulator.values import (
    BINARY,
    binary,
    broken,
    cast_to,
    chosen,
    compared,
    function_named,
    over,
    signed,
)
from ziggurat.codemodel.errors import TargetError

RNG = np.random.default_rng(0)
EDGES = [0, 1, 2, 3, 7, 0x7F, 0x80, 0x81, 0xFE, 0xFF]


def pairs() -> tuple[list[int], list[int]]:
    return [a for a in EDGES for _ in EDGES], [b for _ in EDGES for b in EDGES]


def as_signed(value: int, bits: int = 8) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INTEGERS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "and": lambda a, b: a & b,
    "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "udiv": lambda a, b: a // b, "urem": lambda a, b: a % b,
    "sdiv": lambda a, b: truncated(as_signed(a), as_signed(b)),
    "srem": lambda a, b: as_signed(a) - as_signed(b) * truncated(as_signed(a), as_signed(b)),
    "shl": lambda a, b: a << b, "lshr": lambda a, b: a >> b, "ashr": lambda a, b: as_signed(a) >> b,
}  # fmt: skip


@pytest.mark.parametrize("opcode", INTEGERS)
def test_arithmetic_of_integers(opcode: str) -> None:
    arguments = [
        (a, b) for a, b in zip(*pairs(), strict=True)
        if (b or opcode[1:] not in ("div", "rem")) and ("sh" not in opcode or b < 8)
    ]  # fmt: skip
    a, b = (np.array(column, np.uint8) for column in zip(*arguments, strict=True))
    with np.errstate(all="ignore"):
        actual = binary(opcode, a, b)
    assert actual.tolist() == [INTEGERS[opcode](*pair) % 256 for pair in arguments] and actual.dtype == np.uint8


@pytest.mark.parametrize("flag, opcode", [
    (flag, opcode) for flag in ("nuw", "nsw") for opcode in ("add", "sub", "mul", "shl")
])  # fmt: skip
def test_promises_of_no_overflow(flag: str, opcode: str) -> None:
    arguments = [(a, b) for a, b in zip(*pairs(), strict=True) if opcode != "shl" or b < 8]
    a, b = (np.array(column, np.uint8) for column in zip(*arguments, strict=True))
    number = (lambda x: x) if flag == "nuw" else as_signed
    exact = [INTEGERS[opcode](number(x), y if opcode == "shl" else number(y)) for x, y in arguments]
    low, high = (0, 255) if flag == "nuw" else (-128, 127)
    with np.errstate(all="ignore"):
        actual = broken(opcode, {flag}, a, b, binary(opcode, a, b))
    assert actual.tolist() == [not low <= number <= high for number in exact]


def test_promises_of_bits() -> None:
    a, b = np.array([4, 5, 6], np.uint8), np.array([2, 1, 1], np.uint8)
    assert broken("or", {"disjoint"}, a, b, a | b).tolist() == [False, True, False]
    assert broken("lshr", {"exact"}, a, b, a >> b).tolist() == [False, True, False]
    assert not broken("or", set(), a, b, a | b).any()


def test_arithmetic_of_one_bit() -> None:
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    for opcode, expected in {"add": a ^ b, "sub": a ^ b, "mul": a & b, "shl": a, "lshr": a, "ashr": a}.items():
        assert binary(opcode, a, b).tolist() == expected.tolist() and binary(opcode, a, b).dtype == bool
    assert compared("icmp", "sgt", a, b).tolist() == [False, True, False, False]  # A true i1 is -1.
    assert {"fadd", "frem"} <= BINARY


def test_vectors_are_taken_element_by_element() -> None:
    a, b = [np.array([1, 2], np.int32)] * 2, [np.array([10, 20], np.int32), np.array([30, 40], np.int32)]
    assert [part.tolist() for part in binary("add", a, b)] == [[11, 22], [31, 42]]
    assert [part.tolist() for part in compared("icmp", "slt", a, b)] == [[True, True]] * 2
    assert [part.tolist() for part in over(np.negative, a)] == [[-1, -2]] * 2
    condition = np.array([True, False])
    assert [part.tolist() for part in chosen(condition, a, b)] == [[1, 20], [1, 40]]
    assert [part.tolist() for part in chosen([condition, ~condition], a, b)] == [[1, 20], [30, 2]]


@pytest.mark.parametrize("predicate, expected", [
    ("ord", [True, False]), ("uno", [False, True]), ("one", [False, False]), ("une", [False, True]),
    ("true", [True, True]), ("false", [False, False]), ("ueq", [True, True]),
])  # fmt: skip
def test_comparisons_of_a_number_and_of_nan(predicate: str, expected: list[bool]) -> None:
    a, b = np.array([1, np.nan], np.float32), np.array([1, 1], np.float32)
    assert compared("fcmp", predicate, a, b).tolist() == expected


@pytest.mark.parametrize("opcode, source, target, value, expected", [
    ("trunc", "i32", "i4", 0xABCD, 0xD), ("zext", "i4", "i32", 0xD, 0xD), ("sext", "i4", "i32", 0xD, 0xFFFFFFFD),
    ("sext", "i1", "i8", 1, 0xFF), ("zext", "i1", "i8", 1, 1), ("trunc", "i8", "i1", 2, 0), ("sext", "i8", "i33", 0x80,
     0x1FFFFFF80), ("ptrtoint", "ptr", "i32", 1 << 40 | 5, 5), ("sitofp", "i8", "float", 0xFE, -2.0),
    ("uitofp", "i8", "float", 0xFE, 254.0), ("fptosi", "float", "i32", -2.5, 0xFFFFFFFE),
    ("fptoui", "float", "i8", 200.9, 200), ("bitcast", "float", "i32", 1.0, 0x3F800000),
    ("addrspacecast", "ptr addrspace(101)", "ptr", 8, 8),
])  # fmt: skip
def test_casts(opcode: str, source: str, target: str, value: Any, expected: Any) -> None:
    dtype = {"i1": np.bool_, "i4": np.uint8, "i8": np.uint8, "i32": np.uint32, "float": np.float32}.get(
        source, np.int64
    )
    assert cast_to(opcode, np.array([value], dtype), source, target).tolist() == [expected]


def test_bits_of_vectors() -> None:
    halves = [np.array([0x1111], np.uint16), np.array([0x2222], np.uint16)]
    assert cast_to("bitcast", halves, "<2 x i16>", "i32").tolist() == [0x22221111]
    octets = cast_to("bitcast", halves, "<2 x i16>", "<4 x i8>")
    assert [part.tolist() for part in octets] == [[0x11], [0x11], [0x22], [0x22]]
    longer = cast_to("zext", halves, "<2 x i16>", "<2 x i32>")
    assert [part.dtype for part in longer] == [np.uint32] * 2


@pytest.mark.parametrize("opcode, source, target", [
    ("addrspacecast", "ptr addrspace(3)", "ptr"), ("bitcast", "<8 x i1>", "i8"), ("sitofp", "i4", "float"),
    ("fancycast", "i8", "i32"),
])  # fmt: skip
def test_casts_that_are_not_known(opcode: str, source: str, target: str) -> None:
    value = [np.array([True])] * 8 if source.startswith("<") else np.array([1], np.uint8)
    with pytest.raises(TargetError):
        cast_to(opcode, value, source, target)


WORDS = RNG.integers(0, 1 << 32, 64, dtype=np.uint64).astype(np.uint32)
OTHERS = RNG.permutation(WORDS)
SHIFTS = np.arange(64, dtype=np.uint32)
ALL = (1 << 32) - 1


def clamped(value: int, low: int, high: int) -> int:
    return min(max(value, low), high) & ALL


FUNCTIONS: dict[str, tuple[tuple[Any, ...], Callable[..., int]]] = {
    "llvm.ctpop.i32": ((WORDS,), lambda a: a.bit_count()),
    "llvm.ctlz.i32": ((WORDS >> SHIFTS % 32, WORDS == 0), lambda a, _: 32 - a.bit_length()),
    "llvm.cttz.i32": ((WORDS << SHIFTS % 32, WORDS == 0), lambda a, _: (a & -a).bit_length() - 1 if a else 32),
    "llvm.bswap.i32": ((WORDS,), lambda a: int.from_bytes(a.to_bytes(4, "little"), "big")),
    "llvm.bitreverse.i32": ((WORDS,), lambda a: int(f"{a:032b}"[::-1], 2)),
    "llvm.bitreverse.i5": (((WORDS % 32).astype(np.uint8),), lambda a: int(f"{a:05b}"[::-1], 2)),
    "llvm.fshl.i32": ((WORDS, OTHERS, SHIFTS), lambda a, b, n: (a << 32 | b) << n % 32 >> 32 & ALL),
    "llvm.fshr.i32": ((WORDS, OTHERS, SHIFTS), lambda a, b, n: (a << 32 | b) >> n % 32 & ALL),
    "llvm.uadd.sat.i32": ((WORDS, OTHERS), lambda a, b: clamped(a + b, 0, ALL)),
    "llvm.usub.sat.i32": ((WORDS, OTHERS), lambda a, b: clamped(a - b, 0, ALL)),
    "llvm.sadd.sat.i32": (
        (WORDS, OTHERS), lambda a, b: clamped(as_signed(a, 32) + as_signed(b, 32), -(1 << 31), (1 << 31) - 1),
    ),
    "llvm.ssub.sat.i32": (
        (WORDS, OTHERS), lambda a, b: clamped(as_signed(a, 32) - as_signed(b, 32), -(1 << 31), (1 << 31) - 1),
    ),
    "llvm.smax.i32": ((WORDS, OTHERS), lambda a, b: max(as_signed(a, 32), as_signed(b, 32)) & ALL),
    "llvm.umin.i32": ((WORDS, OTHERS), min),
    "llvm.abs.i32": ((WORDS, WORDS == 0), lambda a, _: abs(as_signed(a, 32)) & ALL),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_integers(name: str) -> None:
    arguments, expected = FUNCTIONS[name]
    function = function_named(name)
    assert function is not None
    actual = function(*arguments)
    assert actual.tolist() == [expected(*map(int, row)) for row in zip(*arguments, strict=True)]
    assert actual.dtype == arguments[0].dtype


@pytest.mark.parametrize("name, expected", [
    ("llvm.scmp.i32.i32", [ALL, 1, 0]), ("llvm.ucmp.i32.i32", [1, ALL, 0]), ("llvm.scmp.i8.i32", [0xFF, 1, 0]),
])  # fmt: skip
def test_orders_of_integers(name: str, expected: list[int]) -> None:
    order = function_named(name)
    assert order is not None
    assert order(np.array([ALL, 1, 7], np.uint32), np.array([1, ALL, 7], np.uint32)).tolist() == expected


def test_sums_and_whether_they_overflow() -> None:
    a, b = np.array([1, ALL, 0], np.uint32), np.array([1, 1, 1], np.uint32)
    add, sub = function_named("llvm.uadd.with.overflow.i32"), function_named("llvm.usub.with.overflow.i32")
    assert add is not None and sub is not None
    assert [part.tolist() for part in add(a, b)] == [[2, 0, 1], [False, True, False]]
    assert [part.tolist() for part in sub(a, b)] == [[0, ALL - 1, ALL], [False, False, True]]


@pytest.mark.parametrize("name, expected", [
    ("llvm.nvvm.f2i.rz", [3, ALL - 2, (1 << 31) - 1, 1 << 31, 0]), ("llvm.nvvm.f2ui.rz", [3, 0, ALL, 0, 0]),
    ("llvm.fptosi.sat.i8.f32", [3, 253, 127, 128, 0]), ("llvm.fptoui.sat.i64.f32", [3, 0, (1 << 64) - 1, 0, 0]),
    ("llvm.fptosi.sat.i64.f32", [3, (1 << 64) - 3, (1 << 63) - 1, 1 << 63, 0]),
])  # fmt: skip
def test_floats_as_the_nearest_integers_there_are(name: str, expected: list[int]) -> None:
    function = function_named(name)
    assert function is not None
    with np.errstate(all="ignore"):
        assert function(np.array([3.9, -3.9, np.inf, -np.inf, np.nan], np.float32)).tolist() == expected


def test_functions_of_vectors_and_names_that_are_not_known() -> None:
    smallest = function_named("llvm.umin.v2i32")
    assert smallest is not None
    assert [part.tolist() for part in smallest([WORDS, OTHERS], [OTHERS, WORDS])] == [
        np.minimum(WORDS, OTHERS).tolist()
    ] * 2
    fused = function_named("llvm.fma.f32")
    assert fused is not None
    third = np.array([1 / 3], np.float32)
    assert fused(third, np.array([3], np.float32), np.array([-1], np.float32))[0] == np.float32(2**-25)
    for name in ("llvm.frobnicate.i32", "llvm.smax.i5", "llvm.vector.reduce.add.v4i32", "vprintf"):
        assert function_named(name) is None


def test_signed() -> None:
    assert signed(np.array([255, 1], np.uint8)).tolist() == [-1, 1] and signed(np.array([True])).tolist() == [-1]


def test_a_product_and_a_sum_of_f64_are_rounded_once():
    fused = function_named("llvm.fma.f64")
    assert fused is not None
    a = np.array([1 + 2.0**-52, 0.1, 3.0])
    actual = fused(a, a, -np.array([1 + 2.0**-51, 0.01, 9.0]))
    exact = [float(Fraction(x) ** 2 - Fraction(y)) for x, y in zip(a.tolist(), [1 + 2.0**-51, 0.01, 9.0], strict=True)]
    assert actual.tolist() == exact and actual[0] == 2.0**-104
