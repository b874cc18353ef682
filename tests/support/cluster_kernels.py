"""Kernels whose programs can be clusters of CTAs, for tests, with arguments that make all sums exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import ziggurat as zg
from ziggurat.backend.launch.arrays import elements

LESS = zg.CompareKind.LESS_THAN
EQUAL = zg.CompareKind.EQUAL


@zg.kernel
def normalised(x, y, label, loss, n, BLOCK: zg.constexpr):
    """The powers of two of a row by their sum, its largest one first; and of a label's number, whose value all CTAs
    load and one stores."""
    row = zg.program_id(0) + zg.program_id(1) * zg.num_programs(0)
    at = zg.arange(0, BLOCK)
    mask = zg.compare(at, n, LESS)
    arguments = zg.load(zg.add(x + row * n, at), mask, other=-float("inf"))
    numbers = zg.cast(arguments, zg.f32)
    highest = zg.max(numbers, axis=0)
    powers = zg.exp2(zg.sub(numbers, highest))
    total = zg.sum(powers, axis=0)
    here = zg.load(label + row)
    zg.store(loss + row, total + zg.cast(zg.load(x + row * n + here), zg.f32))
    result = zg.where(zg.compare(at, here, EQUAL), -1.0, zg.div(powers, total))
    zg.store(zg.add(y + row * n, at), zg.cast(result, arguments.dtype), mask)


@zg.kernel
def largest(x, value, index, n, BLOCK: zg.constexpr):
    """The largest number of a row and the first place where it is: a reduction of two tensors."""
    row = zg.program_id(0)
    at = zg.arange(0, BLOCK)
    numbers = zg.load(zg.add(x + row * n, at), zg.compare(at, n, LESS), other=-100)
    actual, place = zg.max(numbers, axis=0, return_indices=True)
    zg.store(value + row, actual)
    zg.store(index + row, place)


@zg.kernel
def shares(x, y, sums, n, ROWS: zg.constexpr, BLOCK: zg.constexpr, ACROSS: zg.constexpr):
    """Rows less their sums, where the rows are those of a matrix, or its columns; and the sums, a tensor."""
    rows, at = zg.add(zg.program_id(0) * ROWS, zg.arange(0, ROWS)), zg.arange(0, BLOCK)
    if ACROSS:
        places, mask = zg.add(zg.mul(zg.expand(rows, 0), n), zg.expand(at, 1)), zg.compare(zg.expand(at, 1), n, LESS)
        numbers = zg.load(zg.add(x, places), zg.broadcast(mask, (BLOCK, ROWS)), other=0.0)
        total = zg.sum(numbers, 0)
        zg.store(zg.add(y, places), zg.sub(numbers, zg.expand(total, 0)), zg.broadcast(mask, (BLOCK, ROWS)))
    else:
        places, mask = zg.add(zg.mul(zg.expand(rows, 1), n), zg.expand(at, 0)), zg.compare(zg.expand(at, 0), n, LESS)
        numbers = zg.load(zg.add(x, places), zg.broadcast(mask, (ROWS, BLOCK)), other=0.0)
        total = zg.sum(numbers, 1)
        zg.store(zg.add(y, places), zg.sub(numbers, zg.expand(total, 1)), zg.broadcast(mask, (ROWS, BLOCK)))
    zg.store(zg.add(sums, rows), total)


@zg.kernel
def centred(x, y, mean, n, BLOCK: zg.constexpr):
    """Rows less their means, in loops that carry a block; a branch that reduces; a barrier."""
    row = zg.program_id(0)
    total = zg.zeros((BLOCK,), zg.f32)
    for start in range(0, n, BLOCK):
        at = zg.add(start, zg.arange(0, BLOCK))
        total = zg.add(total, zg.load(zg.add(x + row * n, at), zg.compare(at, n, LESS), other=0.0))
    actual = zg.sum(total, axis=0)
    if row > 0:
        actual = actual - zg.max(total, axis=0)
    zg.store(mean + row, actual)
    zg.debug_barrier()
    for start in range(0, n, BLOCK):
        at = zg.add(start, zg.arange(0, BLOCK))
        mask = zg.compare(at, n, LESS)
        zg.store(zg.add(y + row * n, at), zg.sub(zg.load(zg.add(x + row * n, at), mask), actual), mask)


@zg.kernel
def extreme(x, out, BLOCK: zg.constexpr):
    zg.store(out + zg.program_id(0), zg.max(zg.load(zg.add(x + zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))), 0))


def small_integers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-7, 8, shape).astype(dtype)


def arguments(name: str, rows: int, n: int, block: int, dtype: Any = np.float32) -> tuple[Any, list[Any], list[Any]]:
    """A kernel by name, its run-time arguments for `rows` programs, and its constants."""
    x = small_integers(rows, n, dtype=dtype)
    y, column = np.zeros_like(x), np.zeros(rows, np.float32)
    if name == "normalised":
        x = np.clip(x, -3, 3)
        labels = np.random.default_rng(1).integers(0, n, rows).astype(np.int32)
        return normalised, [x, y, labels, column, n], [block]
    if name == "largest":
        return largest, [x, np.zeros(rows, dtype), np.zeros(rows, np.int32), n], [block]
    if name == "centred":
        return centred, [x, y, column, n], [block]
    kernel: Any = shares
    x = small_integers(4 * rows, n)
    return kernel, [x, np.zeros_like(x), np.zeros(4 * rows, np.float32), n], [4, block, name == "columns"]


NAMES: Sequence[str] = ("normalised", "largest", "rows", "columns", "centred")


def types_of(argument: Sequence[Any]) -> list[Any]:
    """The types of arguments: arrays of an address that 16 divides, and integers."""
    return [
        zg.divisible(zg.ptr(elements()[array.dtype])) if isinstance(array, np.ndarray) else zg.i32 for array in argument
    ]
