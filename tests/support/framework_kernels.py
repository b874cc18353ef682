"""Kernels for the tests of operations of array libraries, with their gradients as NumPy computes them."""

from typing import Any

import ziggurat as zg


@zg.kernel
def softmax(x, out, columns, stride, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    mask = zg.less(at, columns)
    row = zg.mul(zg.program_id(0), stride)
    value = zg.load(zg.add(x, zg.add(row, at)), mask, -1e30)
    value = zg.exp(zg.sub(value, zg.max(value, 0)))
    zg.store(zg.add(out, zg.add(row, at)), zg.div(value, zg.sum(value, 0)), mask)


@zg.kernel
def squared_rows(x, out, stride, BLOCK: zg.constexpr):
    at, row = zg.arange(0, BLOCK), zg.program_id(0)
    value = zg.load(zg.add(x, zg.add(zg.mul(row, stride), at)))
    zg.store(zg.add(out, zg.add(zg.mul(row, BLOCK), at)), zg.mul(value, value))


@zg.kernel
def increment(x, n, by, BLOCK: zg.constexpr):
    at = zg.add(zg.mul(zg.program_id(0), BLOCK), zg.arange(0, BLOCK))
    mask = zg.less(at, n)
    zg.store(zg.add(x, at), zg.add(zg.load(zg.add(x, at), mask, 0.0), by), mask)


@zg.kernel
def sum_and_difference(x, y, total, difference, n, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    mask = zg.less(at, n)
    a, b = zg.load(zg.add(x, at), mask, 0.0), zg.load(zg.add(y, at), mask, 0.0)
    zg.store(zg.add(total, at), zg.add(a, b), mask)
    zg.store(zg.add(difference, at), zg.sub(a, b), mask)


@zg.kernel
def count(x, counts, n, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    mask = zg.less(at, n)
    zg.atomic_add(zg.add(counts, zg.load(zg.add(x, at), mask, 0)), 1, mask)


@zg.kernel
def one_more(x, out, more: zg.constexpr):
    """(x + more) * 16777217 of one number: only integers hold that exactly, f32 does not."""
    zg.store(out, zg.cast(zg.mul(zg.add(zg.load(x), more), 16777217), zg.f64))


# Equal constants of one_more, for which it is compiled differently, each with its result for x = 1.
EQUAL_CONSTANTS = [(1, 33554434.0), (1.0, 33554432.0), (True, 33554434.0), (1, 33554434.0)]


def one_a_row(meta: Any) -> tuple[int]:
    """A grid with one program for each row of x."""
    return (meta["x"].shape[0],)


# The squares of n numbers, in blocks of SIZE.
SQUARE = """
__global__ void square(float *x, float *y, int n) {
  int i[SIZE] = get_program_id(0) * SIZE + 0 ... SIZE;
  float v[SIZE] = i < n ? *(x + i) : 0;
  *?(i < n)(y + i) = v * v;
}"""


def blocks(meta: Any) -> tuple[int]:
    """A grid with one program for each block of SIZE."""
    return (zg.cdiv(meta["n"], meta["SIZE"]),)
