"""A product by pointers whose programs have numbers along three axes, for tests of persistent programs."""

from __future__ import annotations

from typing import Any

import numpy as np

import ziggurat as zg

LESS = zg.CompareKind.LESS_THAN
TILE = 128, 256, 64
F16, N = zg.divisible(zg.ptr(zg.f16)), zg.divisible(zg.i32)


@zg.kernel
def product(
    a_ptr, b_ptr, c_ptr, m, n, k, am, bk, cm, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr, also: zg.constexpr = ""
):  # fmt: skip
    """c = a · b, a tile a program. The axes 0 and 2 of the grid count the tiles along m, axis 1 those along n."""
    row = (zg.program_id(2) * zg.num_programs(0) + zg.program_id(0)) * M
    column = zg.program_id(1) * N
    rows, columns, at = zg.add(row, zg.arange(0, M)), zg.add(column, zg.arange(0, N)), zg.arange(0, K)
    at_m, at_n = zg.expand(zg.mod(rows, m), 1), zg.expand(zg.mod(columns, n), 0)
    a_at = zg.add(a_ptr, zg.add(zg.mul(at_m, am), zg.expand(at, 0)))
    b_at = zg.add(b_ptr, zg.add(zg.mul(zg.expand(at, 1), bk), at_n))
    acc = zg.zeros((M, N), zg.f32)
    if also == "volatile":
        acc = zg.add(acc, zg.cast(zg.load(c_ptr, volatile=True), zg.f32))
    for step in zg.range(0, zg.cdiv(k, K)):
        a_in = zg.broadcast(zg.compare(zg.expand(at, 0), k - step * K, LESS), (M, K))
        b_in = zg.broadcast(zg.compare(zg.expand(at, 1), k - step * K, LESS), (K, N))
        acc = zg.dot(zg.load(a_at, a_in, other=0.0), zg.load(b_at, b_in, other=0.0), acc)
        a_at, b_at = zg.add(a_at, K), zg.add(b_at, K * bk)
    if also == "sum":
        acc = zg.add(acc, zg.expand(zg.sum(acc, 1), 1))
    inside = zg.and_(zg.compare(zg.expand(rows, 1), m, LESS), zg.compare(zg.expand(columns, 0), n, LESS))
    out = zg.add(c_ptr, zg.add(zg.mul(zg.expand(rows, 1), cm), zg.expand(columns, 0)))
    if also == "residual":
        acc = zg.add(acc, zg.cast(zg.load(out, inside, other=0.0), zg.f32))
    zg.store(out, zg.cast(acc, zg.f16), inside)
    if also == "atomic":
        zg.atomic_add(c_ptr, zg.cast(1.0, zg.f16))
    if also == "barrier":
        zg.debug_barrier()
    if also == "two stores":
        zg.store(out, zg.cast(acc, zg.f16), inside)
    if also == "print":
        zg.device_print("row", row)


def types(also: str = "", tile: tuple[int, int, int] = TILE, sizes: Any = N) -> list[Any]:
    return [F16, F16, F16, zg.i32, sizes, zg.i32, N, N, N, *tile, also]


def matrices(m: int, n: int, k: int) -> list[np.ndarray]:
    """Three matrices of small integers, whose sums are exact; rows are multiples of 16 long."""
    rng, actual = np.random.default_rng(m + n + k), list[np.ndarray]()
    for rows, columns in ((m, k), (k, n), (m, n)):
        room = rng.integers(-3, 4, (rows + 1, -(-columns // 16) * 16 + 16)).astype(np.float16)
        actual.append(room[:rows, :columns])
    return actual


def arguments(m: int, n: int, k: int, arrays: list[Any]) -> list[Any]:
    """The run-time arguments for such matrices."""
    return [*arrays, m, n, k, *(-(-columns // 16) * 16 + 16 for columns in (k, n, n))]
