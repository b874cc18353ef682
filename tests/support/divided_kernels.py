"""Kernels whose stores do not need all dots together: each group of dots is the work of a consumer of its own."""

from __future__ import annotations

import ziggurat as zg

LESS = zg.CompareKind.LESS_THAN


@zg.kernel
def products(a_desc, b_desc, c_desc, count, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr, WHAT: zg.constexpr):
    """Two blocks of rows of a · b a tile. `WHAT` varies what comes after."""
    for tile in range(zg.program_id(0), count, zg.num_programs(0)):
        row = tile * 2 * M
        c0, c1 = zg.zeros((M, N), zg.f32), zg.zeros((M, N), zg.f32)
        for start in zg.range(0, k, K, warp_specialize=True):
            b = b_desc.load((start, 0))
            c0 = zg.dot(a_desc.load((row, start)), b, c0)
            c1 = zg.dot(a_desc.load((row + M, start)), b, c1)
        if WHAT == "sum":
            c0 = zg.add(c0, c1)
        if WHAT == "more stores":
            c_desc.store((row, N), zg.cast(zg.mul(c0, 2.0), zg.f16))
        if WHAT == "a constant":
            c_desc.store((row, N), zg.full((M, N), 3.0, zg.f16))
        if WHAT == "print":
            zg.device_print("row", row)
        c_desc.store((row, 0), zg.cast(c0, zg.f16))
        c_desc.store((row + M, 0), zg.cast(c1, zg.f16))


@zg.kernel
def pointers(a_desc, b_desc, c_ptr, d_ptr, k, pitch, also, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr,
             WHERE: zg.constexpr):  # fmt: skip
    """Two blocks of rows of a · b, stored through pointers. `WHERE` says which second ones."""
    c0, c1 = zg.zeros((M, N), zg.f32), zg.zeros((M, N), zg.f32)
    for start in zg.range(0, k, K, warp_specialize=True):
        b = b_desc.load((start, 0))
        c0 = zg.dot(a_desc.load((0, start)), b, c0)
        c1 = zg.dot(a_desc.load((M, start)), b, c1)
    rows, columns = zg.expand(zg.arange(0, M), 1), zg.expand(zg.arange(0, N), 0)
    at = zg.add(c_ptr, zg.add(zg.mul(rows, pitch), columns))
    zg.store(at, zg.cast(c0, zg.f16))
    if WHERE == "rows":
        at = zg.add(at, M * pitch)
    if WHERE == "columns":
        at = zg.add(at, N)
    if WHERE == "overlapping":
        at = zg.add(at, (M - 1) * pitch)
    if WHERE == "unknown":
        at = zg.add(at, also)
    if WHERE == "argument":
        at = zg.add(d_ptr, zg.add(zg.mul(rows, pitch), columns))
    zg.store(at, zg.cast(c1, zg.f16))


@zg.kernel
def tiles(a_desc, b_desc, c_ptr, count, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr, STEP: zg.constexpr):
    """Two blocks of rows of a · b and the tile's number, STEP blocks after those of the tile before."""
    for tile in range(zg.program_id(0), count, zg.num_programs(0)):
        c0 = zg.full((M, N), zg.cast(tile, zg.f32), zg.f32)
        c1 = c0
        for start in zg.range(0, k, K, warp_specialize=True):
            b = b_desc.load((start, 0))
            c0 = zg.dot(a_desc.load((tile * 2 * M, start)), b, c0)
            c1 = zg.dot(a_desc.load((tile * 2 * M + M, start)), b, c1)
        rows, columns = zg.expand(zg.arange(0, M), 1), zg.expand(zg.arange(0, N), 0)
        at = zg.add(c_ptr + tile * STEP * M * N, zg.add(zg.mul(rows, N), columns))
        zg.store(at, c0)
        zg.store(zg.add(at, M * N), c1)


@zg.function
def step(acc, total, top, q, k, v, start, row, n, CAUSAL: zg.constexpr, N: zg.constexpr):
    scores = zg.dot(q, zg.trans(k))
    columns = zg.expand(zg.add(start, zg.arange(0, N)), 0)
    if CAUSAL:
        if start + N > row:
            rows = zg.expand(zg.add(row, zg.arange(0, 64)), 1)
            scores = zg.where(zg.compare(rows, columns, zg.CompareKind.GREATER_THAN_OR_EQUAL), scores, -1e30)
    if start + N > n:
        scores = zg.where(zg.compare(columns, n, LESS), scores, -1e30)
    higher = zg.maximum(top, zg.max(scores, axis=1))
    powers = zg.exp2(zg.sub(scores, zg.expand(higher, 1)))
    shrink = zg.exp2(zg.sub(top, higher))
    acc = zg.dot(zg.cast(powers, zg.f16), v, zg.mul(acc, zg.expand(shrink, 1)))
    return acc, zg.add(zg.mul(total, shrink), zg.sum(powers, axis=1)), higher


@zg.kernel
def attention(
    q_desc, k_desc, v_desc, out_desc, lse_ptr, n, tiles, N: zg.constexpr, D: zg.constexpr, CAUSAL: zg.constexpr
):  # fmt: skip
    """Three blocks of 64 queries a tile, which read the same keys and values. Masks are in branches."""
    for tile in range(zg.program_id(0), tiles, zg.num_programs(0)):
        row = tile * 192
        q0, q1, q2 = q_desc.load((row, 0)), q_desc.load((row + 64, 0)), q_desc.load((row + 128, 0))
        t0, t1, t2 = zg.full((64,), -1e30, zg.f32), zg.full((64,), -1e30, zg.f32), zg.full((64,), -1e30, zg.f32)
        s0, s1, s2 = zg.zeros((64,), zg.f32), zg.zeros((64,), zg.f32), zg.zeros((64,), zg.f32)
        a0, a1, a2 = zg.zeros((64, D), zg.f32), zg.zeros((64, D), zg.f32), zg.zeros((64, D), zg.f32)
        for start in zg.range(0, row + 192 if CAUSAL else n, N, warp_specialize=True):
            k, v = k_desc.load((start, 0)), v_desc.load((start, 0))
            a0, s0, t0 = step(a0, s0, t0, q0, k, v, start, row, n, CAUSAL, N)
            a1, s1, t1 = step(a1, s1, t1, q1, k, v, start, row + 64, n, CAUSAL, N)
            a2, s2, t2 = step(a2, s2, t2, q2, k, v, start, row + 128, n, CAUSAL, N)
        rows = zg.add(row, zg.arange(0, 64))
        for at, acc, total, top in ((0, a0, s0, t0), (64, a1, s1, t1), (128, a2, s2, t2)):
            out_desc.store((row + at, 0), zg.cast(zg.div(acc, zg.expand(total, 1)), zg.f16))
            zg.store(zg.add(lse_ptr + at, rows), zg.add(top, zg.log2(total)), zg.compare(zg.add(rows, at), n, LESS))


@zg.kernel
def of_two(q_desc, k_desc, v_desc, out_desc, n, tiles, D: zg.constexpr):
    """(q · kᵀ) · v for two sets of keys and values, which lie after each other: the queries are those of both."""
    for tile in range(zg.program_id(0), tiles, zg.num_programs(0)):
        q = q_desc.load((tile * 64, 0))
        a0, a1 = zg.zeros((64, D), zg.f32), zg.zeros((64, D), zg.f32)
        for start in zg.range(0, n, 32, warp_specialize=True):
            s0 = zg.cast(zg.dot(q, zg.trans(k_desc.load((start, 0)))), zg.f16)
            a0 = zg.dot(s0, v_desc.load((start, 0)), zg.mul(a0, 0.5))
            s1 = zg.cast(zg.dot(q, zg.trans(k_desc.load((n + start, 0)))), zg.f16)
            a1 = zg.dot(s1, v_desc.load((n + start, 0)), zg.mul(a1, 0.5))
        out_desc.store((tile * 64, 0), zg.cast(a0, zg.f16))
        out_desc.store((tile * 64, D), zg.cast(a1, zg.f16))


@zg.kernel
def gated(
    a_ptr, b_ptr, c_ptr, d_ptr, e_ptr, m, n, k, am, bk, cm, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr,
    SAME: zg.constexpr = False,
):  # fmt: skip
    """a · b and a · c to matrices of their own, or as neighbours, through pointers, a tile a program."""
    rows, columns = zg.add(zg.program_id(0) * M, zg.arange(0, M)), zg.add(zg.program_id(1) * N, zg.arange(0, N))
    at, at_m = zg.arange(0, K), zg.expand(zg.mod(rows, m), 1)
    at_n = zg.expand(zg.mod(columns, n), 0)
    a_at = zg.add(a_ptr, zg.add(zg.mul(at_m, am), zg.expand(at, 0)))
    offsets = zg.add(zg.mul(zg.expand(at, 1), bk), at_n)
    b_at, c_at = zg.add(b_ptr, offsets), zg.add(c_ptr, offsets)
    first, other = zg.zeros((M, N), zg.f32), zg.zeros((M, N), zg.f32)
    for done in zg.range(0, zg.cdiv(k, K)):
        a_in = zg.broadcast(zg.compare(zg.expand(at, 0), k - done * K, LESS), (M, K))
        b_in = zg.broadcast(zg.compare(zg.expand(at, 1), k - done * K, LESS), (K, N))
        a = zg.load(a_at, a_in, other=0.0)
        first = zg.dot(a, zg.load(b_at, b_in, other=0.0), first)
        other = zg.dot(a, zg.load(c_at, b_in, other=0.0), other)
        a_at, b_at, c_at = zg.add(a_at, K), zg.add(b_at, K * bk), zg.add(c_at, K * bk)
    inside = zg.and_(zg.compare(zg.expand(rows, 1), m, LESS), zg.compare(zg.expand(columns, 0), n, LESS))
    out = zg.add(zg.mul(zg.expand(rows, 1), cm), zg.expand(columns, 0))
    zg.store(zg.add(d_ptr, out), zg.cast(first, zg.f16), inside)
    zg.store(zg.add(d_ptr + N if SAME else e_ptr, out), zg.cast(other, zg.f16), inside)
