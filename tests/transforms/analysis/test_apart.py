"""Stores that never write the same element: what is known of the iterations of loops, against all that they write."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import tt
from ziggurat.transforms.analysis.affine import Forms
from ziggurat.transforms.analysis.apart import are_apart
from ziggurat.transforms.tiles.prepare import prepare_for_gpu

LESS = zg.CompareKind.LESS_THAN
I32, POINTER = zg.i32, zg.ptr(zg.f32)


@zg.kernel
def digits(
    x, tiles, n, P: zg.constexpr, Q: zg.constexpr, A: zg.constexpr, B: zg.constexpr, C: zg.constexpr,
    D: zg.constexpr, STEPS: zg.constexpr, MASKED: zg.constexpr, LAST: zg.constexpr,
):  # fmt: skip
    """Two blocks of four a tile, at a sum of the tile's digits. Masks compare with n what P and Q tell."""
    for tile in range(zg.program_id(0), tiles, zg.num_programs(0)):
        within = LAST + D * (tile % P // Q)
        start = A * (tile // P) + B * n * (tile // P) + C * (tile % Q) + within
        lanes = zg.arange(0, 4)
        one, other = zg.add(within, lanes), zg.add(within + STEPS, lanes)
        ones = zg.full((4,), 1.0, zg.f32)
        at = zg.add(x + start, lanes)
        if MASKED:
            zg.store(at, ones, zg.compare(one, n, LESS))
            zg.store(zg.add(at, STEPS), ones, zg.compare(other, n, LESS))
        else:
            zg.store(at, ones)
            zg.store(zg.add(at, STEPS), ones)


def known(kernel: Any, *types: Any) -> bool:
    (func,) = prepare_for_gpu(kernel.triton(*types)).functions().values()
    assert isinstance(func, tt.Func)
    one, other = (op for op in func.walk() if isinstance(op, tt.Store))
    return are_apart(Forms(func), one, other, ())


def written(n: int, p: int, q: int, a: int, b: int, c: int, d: int, steps: int, masked: bool, last: int) -> bool:
    """Whether the stores of two tiles write an element that is the same."""
    values: dict[tuple[int, int], set[int]] = {}
    for tile, which, lane in product(range(4 * p), range(2), range(4)):
        within = last + d * (tile % p // q) + which * steps + lane
        if not masked or within < n:
            at = a * (tile // p) + b * n * (tile // p) + c * (tile % q) + within
            values.setdefault((at, which), set()).add(tile)
    return any(values[at, 0] != values.get((at, 1), values[at, 0]) for at, which in values if which == 0)


def test_what_is_known_is_so() -> None:
    """Random sums of digits, with and without masks."""
    rng, actual = random.Random(1), 0
    for _ in range(60):
        q = rng.choice([1, 1, 2, 4])
        p = q * rng.choice([1, 2, 3])
        d = rng.choice([4, 8, 8, -8, 12])
        last = rng.choice([0, 0, -d * (p // q - 1), 8])
        n = rng.choice([8, 16, 20, 24])
        c = rng.choice([0, 8, 24, 8 * p // q, 96])
        a, b = rng.choice([(0, 1), (0, q), (8 * p, 0), (96 * q, 0), (8 * p // q, 0), (0, 0)])
        steps, masked = rng.choice([4, 4, 8, 1]), rng.random() < 0.5
        if known(digits, POINTER, I32, I32, p, q, a, b, c, d, steps, masked, last):
            actual += 1
            assert not written(n, p, q, a, b, c, d, steps, masked, last)
    assert actual > 5, actual


@zg.kernel
def tiles(x, rows, columns, pitch, start, M: zg.constexpr, N: zg.constexpr, WHAT: zg.constexpr):
    for i in range(zg.program_id(0), rows):
        for j in range(zg.program_id(0), columns):
            row, column, further = i * M, j * N, M // 2
            if WHAT == "rows overlap":
                row = i * (M // 2)
            if WHAT == "columns overlap":
                column = j * (N // 2)
            if WHAT == "columns repeat":
                column = 0
            if WHAT == "loaded":
                row = zg.load(start + i)
            if WHAT == "further":
                further = M
            if WHAT == "squares":
                row = i * i * M
            at, along = zg.expand(zg.arange(0, M // 2), 1), zg.expand(zg.arange(0, N), 0)
            here = zg.add(x + row * pitch + column, zg.add(zg.mul(at, pitch), along))
            ones = zg.full((M // 2, N), 1.0, zg.f32)
            zg.store(here, ones)
            zg.store(zg.add(here, further * pitch), ones)


@pytest.mark.parametrize(
    ("what", "apart"),
    [
        ("", True), ("rows overlap", False), ("columns overlap", False), ("columns repeat", False), ("loaded", False),
        ("further", False), ("squares", False),
    ],
)  # fmt: skip
def test_tiles_of_two_loops(what: str, apart: bool) -> None:
    assert known(tiles, POINTER, I32, I32, I32, zg.ptr(I32), 16, 8, what) == apart


@zg.kernel
def divided(x, count, pitch, M: zg.constexpr, N: zg.constexpr, VARIES: zg.constexpr):
    """By 1 and by 2 in turn, tiles 2 and 4 would be one."""
    for tile in range(zg.program_id(0), count):
        by = tile // 4 % 2 + 1 if VARIES else pitch
        at, along = zg.expand(zg.arange(0, M), 1), zg.expand(zg.arange(0, N), 0)
        here = zg.add(x + tile // by * 2 * M * pitch + tile % by * N, zg.add(zg.mul(at, pitch), along))
        zg.store(here, zg.full((M, N), 1.0, zg.f32))
        zg.store(zg.add(here, M * pitch), zg.full((M, N), 1.0, zg.f32))


@pytest.mark.parametrize("varies", [False, True])
def test_a_divisor_is_that_of_all_iterations(varies: bool) -> None:
    assert known(divided, POINTER, I32, I32, 16, 8, varies) != varies


@zg.kernel
def of_two_sizes(x, FIRST: zg.constexpr, SECOND: zg.constexpr):
    zg.store(zg.add(x + SECOND, zg.arange(0, FIRST)), zg.full((FIRST,), 1.0, zg.f32))
    zg.store(zg.add(x, zg.arange(0, SECOND)), zg.full((SECOND,), 2.0, zg.f32))


def test_blocks_of_two_sizes_are_not_compared() -> None:
    assert known(of_two_sizes, POINTER, 4, 4)
    assert not known(of_two_sizes, POINTER, 4, 8) and not known(of_two_sizes, POINTER, 8, 4)
