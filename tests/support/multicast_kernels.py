"""Products for clusters of CTAs, whose operands they load together, with small integers whose sums are exact."""

from __future__ import annotations

from typing import Any

import numpy as np

import ziggurat as zg


@zg.kernel
def tiles(
    a_desc, b_desc, c_desc, m, n, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr, TURNED_A: zg.constexpr,
    TURNED_B: zg.constexpr, OUT: zg.constexpr, ROLES: zg.constexpr = True,
):  # fmt: skip
    """a · b through descriptors; each program takes tiles in turn."""
    rows, columns = zg.cdiv(m, M), zg.cdiv(n, N)
    for tile in range(zg.program_id(0), rows * columns, zg.num_programs(0)):
        row, column = tile % rows * M, tile // rows * N
        acc = zg.zeros((M, N), zg.f32)
        for start in zg.range(0, k, K, warp_specialize=ROLES):
            if TURNED_A:
                a = zg.trans(a_desc.load((start, row)))
            else:
                a = a_desc.load((row, start))
            if TURNED_B:
                b = zg.trans(b_desc.load((column, start)))
            else:
                b = b_desc.load((start, column))
            acc = zg.dot(a, b, acc)
        c_desc.store((row, column), zg.cast(acc, OUT))


@zg.kernel
def three_blocks(a_desc, b_desc, c_desc, m, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    """Three blocks of rows of a · b a tile, which no store needs together."""
    for tile in range(zg.program_id(0), zg.cdiv(m, 3 * M), zg.num_programs(0)):
        row = tile * 3 * M
        c0, c1, c2 = zg.zeros((M, N), zg.f32), zg.zeros((M, N), zg.f32), zg.zeros((M, N), zg.f32)
        for start in zg.range(0, k, K, warp_specialize=True):
            b = b_desc.load((start, 0))
            c0 = zg.dot(a_desc.load((row, start)), b, c0)
            c1 = zg.dot(a_desc.load((row + M, start)), b, c1)
            c2 = zg.dot(a_desc.load((row + 2 * M, start)), b, c2)
        c_desc.store((row, 0), zg.cast(c0, zg.f16))
        c_desc.store((row + M, 0), zg.cast(c1, zg.f16))
        c_desc.store((row + 2 * M, 0), zg.cast(c2, zg.f16))


@zg.kernel
def attended(q_desc, k_desc, v_desc, out_desc, n, M: zg.constexpr, N: zg.constexpr, D: zg.constexpr):
    """Attention with a weight of 2^score: all CTAs need the same keys and values."""
    row = zg.program_id(0) * M
    q = q_desc.load((row, 0))
    acc, total = zg.zeros((M, D), zg.f32), zg.zeros((M,), zg.f32)
    for start in zg.range(0, n, N, warp_specialize=True):
        scores = zg.dot(q, zg.trans(k_desc.load((start, 0))))
        powers = zg.exp2(zg.mul(scores, 0.125))
        total = zg.add(total, zg.sum(powers, axis=1))
        acc = zg.dot(zg.cast(powers, zg.f16), v_desc.load((start, 0)), acc)
    out_desc.store((row, 0), zg.cast(zg.div(acc, zg.expand(total, 1)), zg.f16))


def integers(rows: int, columns: int, dtype: Any = np.float16, seed: int = 0) -> Any:
    """Small integers, in rows of whole 16 bytes."""
    return np.random.default_rng(seed + rows + columns).integers(-3, 4, (rows, columns)).astype(dtype)


def product_of(
    m: int, n: int, k: int, tile: tuple[int, int, int], form: str = "NN", element: Any = zg.f16, roles: bool = True
) -> tuple[Any, list[Any], np.ndarray]:
    """The model of `tiles`, its run-time arguments, and the product. Operands of the form T lie transposed."""
    dtype, out = element.dtype, zg.bf16 if element is zg.bf16 else zg.f16
    a, b, c = integers(m, k, dtype), integers(k, n, dtype, 1), np.zeros((m, n), out.dtype)
    M, N, K = tile
    expected = a.astype(np.float32) @ b.astype(np.float32)
    arguments: list[Any] = []
    for array, block, transposed in ((a, (M, K), form[0] == "T"), (b, (K, N), form[1] == "T"), (c, (M, N), False)):
        whole = np.ascontiguousarray(array.T) if transposed else array
        arguments.append(zg.TensorDescriptor(whole, block[::-1] if transposed else block))
    types = [zg.divisible(array.type) for array in arguments]
    model = tiles.triton(*types, zg.i32, zg.i32, zg.i32, *tile, form[0] == "T", form[1] == "T", out, roles)
    return model, [*arguments, m, n, k], expected.astype(out.dtype)
