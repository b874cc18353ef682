"""Errors of native accesses whose offset has overflowed: the program runs once more, by the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.reference import run
from ziggurat.backend.reference.argument_memory import MASK_HINT

WIDER = "compute the offset in 64 bits: zg.cast(…, zg.i64) of an operand"


@zg.kernel
def by_product(x, out, row, stride):
    at = zg.mul(row, stride)
    zg.store(out, zg.load(zg.add(x, at)))


@zg.kernel
def by_sum(x, out, row, stride):
    zg.store(zg.add(x, zg.add(row, stride)), 1.0)


@zg.kernel
def by_rows(x, out, row, stride):
    columns = zg.arange(0, 8)
    at = zg.add(zg.mul(zg.full((8,), row, zg.i32), stride), columns)
    zg.atomic_add(zg.add(x, at), 1.0, mask=zg.less(columns, 4))


@zg.kernel
def in_bytes(x, out, row, stride):
    wide = zg.mul(zg.cast(row, zg.i64), stride)
    zg.store(out, zg.load(zg.add(x, wide)))


@zg.kernel
def in_bytes_of_a_tensor(x, out, row, stride):
    wide = zg.add(zg.mul(zg.cast(row, zg.i64), stride), zg.arange(0, 8))
    zg.store(zg.add(x, wide), 1.0)


@zg.kernel
def in_64_bits(x, out, row, stride):
    wide = zg.cast(row, zg.i64)
    zg.store(out, zg.load(zg.add(x, zg.mul(zg.mul(wide, stride), stride))))


def error_of(kernel: zg.Kernel, row: int, stride: int, **options: Any) -> zg.MemoryAccessError:
    x, out = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    with pytest.raises(zg.MemoryAccessError) as error:
        kernel[3,](x, out, row, stride, **options)
    assert (x == np.arange(16)).all() and not out.any()
    return error.value


LARGEST = (1 << 31) - 1
I32 = "but x has 16 elements: the {} in its offset overflows i32"
BYTES = "but x has 16 elements: its offset, 4611686014132420609, overflows an address"
CASES: list[tuple[zg.Kernel, int, int, str, str]] = [
    (by_product, 1 << 16, 1 << 15, f"reads x[-2147483648], {I32.format('product')}", WIDER),
    (by_sum, LARGEST, 1, f"writes x[-2147483648], {I32.format('sum')}", WIDER),
    (by_rows, 1 << 16, 1 << 15, f"updates x[-2147483648], {I32.format('product')}", WIDER),
    (in_bytes, LARGEST, LARGEST, f"reads x[-4294967295], {BYTES}", MASK_HINT),
    (in_bytes_of_a_tensor, LARGEST, LARGEST, f"writes x[-4294967295], {BYTES}", MASK_HINT),
    (in_64_bits, LARGEST, LARGEST, f"reads x[6442450943], {I32.format('product')[:-3]}i64", MASK_HINT),
]


@pytest.mark.parametrize(("kernel", "row", "stride", "text", "hint"), CASES, ids=[case[0].name for case in CASES])
def test_the_overflow_is_named_as_by_the_interpreter(kernel: zg.Kernel, row: int, stride: int, text: str, hint: str):
    cold, warm, interpreted = (error_of(kernel, row, stride, **argument) for argument in ({}, {}, {"interpret": True}))
    assert str(cold) == str(warm) == str(interpreted)
    assert cold.summary == f"program (0, 0, 0) {text}" and cold.hint == hint
    assert [text for text, _ in cold.related] == ["it overflows here"]
    compiled = kernel.compile(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, zg.i32, target="cpu")
    x, out = np.zeros(16, np.float32), np.zeros(16, np.float32)
    with pytest.raises(zg.MemoryAccessError) as error:
        compiled[3,](x, out, row, stride)
    assert str(error.value) == str(cold)


def test_an_access_without_an_overflow_has_the_words_of_native_code():
    error = error_of(by_product, 5, 5)
    assert error.summary == "program (0, 0, 0) reads x[25], but x has 16 elements"
    assert error.hint == MASK_HINT and error.related == ()


@zg.kernel
def counts(x, views, out, stride):
    """Program 2 fails, after it has written."""
    at = zg.program_id(0)
    zg.store(zg.add(x, at), zg.add(zg.load(zg.add(views, at)), 1))
    zg.atomic_add(out, 1)
    zg.store(out, zg.load(zg.add(x, zg.mul(zg.mul(at, stride), 1 << 14)), zg.equal(at, 2), 0), zg.equal(at, 2))


def test_the_arrays_are_as_the_failing_program_left_them(monkeypatch: pytest.MonkeyPatch):
    def left() -> tuple[bool, list[int], list[int]]:
        base, out = np.arange(10, dtype=np.int32), np.zeros(1, np.int32)
        with pytest.raises(zg.MemoryAccessError, match=r"program \(2, 0, 0\) reads x") as error:
            counts[3,](base[:8], base[2:], out, 1 << 16)
        return "overflows i32" in str(error.value), base.tolist(), out.tolist()

    expected = [3, 4, 5, 3, 4, 5, 6, 7, 8, 9], [3]
    assert left() == (True, *expected)
    monkeypatch.setattr(run, "explained", lambda error, *_: error)
    assert left() == (False, *expected)


def test_views_share_their_copy():
    """Program 2 reads by one view what it has written by another: the offset that overflows."""

    @zg.kernel
    def through(x, same, row):
        zg.store(x, row)
        zg.store(x, zg.load(zg.add(x, zg.mul(zg.load(same), 1 << 15))))

    base = np.zeros(8, np.int32)
    with pytest.raises(zg.MemoryAccessError, match="the product in its offset overflows i32"):
        through[1,](base, base[:4], 1 << 16)
    assert base[0] == 1 << 16


@zg.kernel
def slow(x, out, row, stride):
    total = 0
    for i in range(0, 1 << 30):
        total = zg.xor(total, zg.add(i, row))
    zg.store(out, zg.add(zg.load(zg.add(x, zg.mul(row, stride))), zg.cast(total, zg.f32)))


@pytest.mark.parametrize("what", ["the time", "the copies"])
def test_a_program_that_takes_too_much_keeps_its_error(what: str, monkeypatch: pytest.MonkeyPatch):
    if what == "the copies":
        monkeypatch.setattr(run, "_MAX_COPIED", 127)
    error = error_of(slow if what == "the time" else by_product, 1 << 16, 1 << 15)
    assert error.summary == "program (0, 0, 0) reads x[-2147483648], but x has 16 elements"
    assert error.hint == MASK_HINT
