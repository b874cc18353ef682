"""The choice between gradients that are stored and gradients that are added to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import tt
from ziggurat.transforms.differentiate import accumulates, differentiate

f64, i32 = zg.ptr(zg.f64), zg.i32


def kernel_of(address: Any) -> Any:
    """A kernel that loads from `address(x, n, BLOCK)`, and stores the squares."""

    @zg.kernel
    def kernel(x, out, n, BLOCK: zg.constexpr):
        value = zg.load(address(x, n, BLOCK))
        at = zg.add(zg.program_id(0) * (BLOCK * BLOCK), zg.arange(0, BLOCK * BLOCK))
        zg.store(zg.add(out, at), zg.reshape(zg.mul(value, value), (BLOCK * BLOCK,)))

    return kernel.triton(f64, f64, i32, 4)


@zg.function
def contiguous(x, n, BLOCK: zg.constexpr):
    return zg.add(x, zg.add(zg.program_id(0) * (BLOCK * BLOCK), zg.arange(0, BLOCK * BLOCK)))


@zg.function
def square(x, n, BLOCK: zg.constexpr):
    rows = zg.mul(zg.expand(zg.arange(0, BLOCK), 1), BLOCK)
    at = zg.add(rows, zg.expand(zg.arange(0, BLOCK), 0))
    return zg.add(zg.add(x, n), zg.add(zg.program_id(0) * (BLOCK * BLOCK), at))


@zg.function
def transposed(x, n, BLOCK: zg.constexpr):
    rows = zg.mul(zg.expand(zg.arange(0, BLOCK), 1), BLOCK)
    at = zg.trans(zg.add(rows, zg.expand(zg.arange(0, BLOCK), 0)))
    return zg.sub(zg.add(x, n), zg.add(zg.program_id(0) * (BLOCK * BLOCK), zg.cast(at, zg.i64)))


@zg.function
def overlapping(x, n, BLOCK: zg.constexpr):
    return zg.add(x, zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK * BLOCK)))


@zg.function
def overlapping_rows(x, n, BLOCK: zg.constexpr):
    rows = zg.mul(zg.expand(zg.arange(0, BLOCK), 1), BLOCK - 1)
    at = zg.add(rows, zg.expand(zg.arange(0, BLOCK), 0))
    return zg.add(x, zg.add(zg.program_id(0) * (BLOCK * BLOCK), at))


@zg.function
def strided(x, n, BLOCK: zg.constexpr):
    return zg.add(x, zg.add(zg.program_id(0) * n, zg.arange(0, BLOCK * BLOCK)))


@zg.function
def repeated(x, n, BLOCK: zg.constexpr):
    return zg.add(x, zg.add(zg.program_id(0) * BLOCK * BLOCK, zg.mul(zg.arange(0, BLOCK * BLOCK), 0)))


@zg.function
def wrapped(x, n, BLOCK: zg.constexpr):
    return zg.add(x, zg.mod(zg.add(zg.program_id(0) * (BLOCK * BLOCK), zg.arange(0, BLOCK * BLOCK)), n))


@zg.function
def by_remainder_of_one(x, n, BLOCK: zg.constexpr):
    transposed = zg.mul(zg.mod(zg.add(zg.program_id(0), zg.arange(0, 1)), n), BLOCK * BLOCK)
    return zg.add(zg.add(x, transposed), zg.add(zg.program_id(0) * (BLOCK * BLOCK), zg.arange(0, BLOCK * BLOCK)))


@zg.function
def by_number_of_program(x, n, BLOCK: zg.constexpr):
    transposed = zg.mod(zg.program_id(0), n) * (BLOCK * BLOCK)
    return zg.add(zg.add(x, transposed), zg.add(zg.program_id(0) * (BLOCK * BLOCK), zg.arange(0, BLOCK * BLOCK)))


@zg.function
def without_program(x, n, BLOCK: zg.constexpr):
    return zg.add(x, zg.arange(0, BLOCK * BLOCK))


@zg.function
def of_two_axes(x, n, BLOCK: zg.constexpr):
    pid = zg.program_id(0) + zg.program_id(1) * zg.num_programs(0)
    return zg.add(x, zg.add(pid * (BLOCK * BLOCK), zg.arange(0, BLOCK * BLOCK)))


@zg.function
def column(x, n, BLOCK: zg.constexpr):
    """An axis of size 1 adds nothing to the address."""
    rows = zg.expand(zg.arange(0, BLOCK * BLOCK), 1)
    return zg.add(x, zg.add(zg.program_id(0) * (BLOCK * BLOCK), zg.add(rows, zg.expand(zg.arange(0, 1), 0))))


@zg.function
def adjacent(x, n, BLOCK: zg.constexpr):
    """The last element of a program is the first one of the next."""
    return zg.add(x, zg.add(zg.program_id(0) * (BLOCK * BLOCK - 1), zg.arange(0, BLOCK * BLOCK)))


@zg.function
def downwards(x, n, BLOCK: zg.constexpr):
    return zg.add(x + n, zg.mul(zg.add(zg.program_id(0) * (BLOCK * BLOCK), zg.arange(0, BLOCK * BLOCK)), -1))


@zg.function
def adjacent_rows(x, n, BLOCK: zg.constexpr):
    """The last element of a row is the first one of the next."""
    rows = zg.mul(zg.expand(zg.arange(0, BLOCK), 1), 2 * (BLOCK - 1))
    at = zg.add(rows, zg.mul(zg.expand(zg.arange(0, BLOCK), 0), 2))
    return zg.add(x, zg.add(zg.program_id(0) * (BLOCK * BLOCK * 4), at))


@zg.function
def of_two_programs(x, n, BLOCK: zg.constexpr):
    pid = zg.program_id(0) * zg.program_id(0)
    return zg.add(x, zg.add(pid * (BLOCK * BLOCK), zg.arange(0, BLOCK * BLOCK)))


@pytest.mark.parametrize(
    ("address", "is_stored"),
    [
        (column, True), (adjacent, False), (downwards, True), (adjacent_rows, False), (of_two_programs, False),
        (contiguous, True), (square, True), (transposed, True), (overlapping, False), (overlapping_rows, False),
        (strided, False), (repeated, False), (wrapped, False), (by_remainder_of_one, False),
        (by_number_of_program, False), (without_program, False), (of_two_axes, False),
    ],
    ids=lambda value: getattr(value, "name", None),
)  # fmt: skip
def test_the_proof(address, is_stored):
    model = kernel_of(address)
    assert accumulates(model, [1], [0]) == {0: not is_stored}
    gradient = differentiate(model, [1], [0])
    assert any(isinstance(op, tt.AtomicRMW) for op in gradient.walk()) is not is_stored


def test_one_program_may_store_where_the_kernel_does_not_read_its_number():
    @zg.kernel
    def kernel(x, out):
        at = zg.arange(0, 8)
        zg.store(zg.add(out, at), zg.exp(zg.load(zg.add(x, at))))

    assert accumulates(kernel.triton(f64, f64), [1], [0]) == {0: False}


@pytest.mark.parametrize("place", ["twice", "loop", "branch"])
def test_reads_that_are_added(place):
    @zg.kernel
    def kernel(x, out, n, PLACE: zg.constexpr):
        at = zg.arange(0, 8)
        value = zg.zeros((8,), zg.f64)
        if PLACE == "twice":
            value = zg.add(zg.load(zg.add(x, at)), zg.load(zg.add(zg.add(x, at), 1)))
        if PLACE == "loop":
            for i in range(n):
                value = zg.add(value, zg.load(zg.add(x, at)))
        if PLACE == "branch":
            if n > 2:
                value = zg.load(zg.add(x, at))
        zg.store(zg.add(out, at), value)

    model = kernel.triton(f64, f64, i32, place)
    assert accumulates(model, [1], [0]) == {0: True}


def test_a_store_covers_elements_that_do_not_count():
    @zg.kernel
    def kernel(x, y, out):
        at = zg.arange(0, 8)
        zg.store(zg.add(out, at), zg.add(zg.floor(zg.load(zg.add(x, at))), zg.load(zg.add(y, at))))

    model = kernel.triton(f64, f64, f64)
    assert accumulates(model, [2], [0, 1]) == {0: False, 1: False}
    dx, dy, dout = np.full(8, 7.0), np.full(8, 7.0), np.arange(8.0)
    zg.run(differentiate(model, [2], [0, 1]), 1, np.ones(8), dx, np.ones(8), dy, np.zeros(8), dout)
    np.testing.assert_array_equal(dx, np.zeros(8))
    np.testing.assert_array_equal(dy, dout)


def test_a_long_address_is_looked_at_once():
    @zg.kernel
    def kernel(x, out, n, COUNT: zg.constexpr):
        hashed = n
        for _ in zg.static_range(COUNT):
            hashed = hashed ^ (hashed >> 3)
        zg.store(zg.add(out, zg.arange(0, 8)), zg.load(zg.add(x + hashed, zg.arange(0, 8))))

    assert accumulates(kernel.triton(f64, f64, i32, 64), [1], [0]) == {0: False}
