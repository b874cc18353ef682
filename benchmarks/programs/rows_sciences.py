"""Kernels without dots: simulations, images, graphs, sequences, rankings and losses."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def lattice_boltzmann(F, Out, W, H, omega, BLOCK: tl.constexpr):
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.program_id(1)
    inside = x < W
    west, east = (x + W - 1) % W, (x + 1) % W
    south, north = (y + H - 1) % H, (y + 1) % H
    plane = W * H
    f0 = tl.load(F + y * W + x, mask=inside)
    f1 = tl.load(F + plane + y * W + west, mask=inside)
    f2 = tl.load(F + 2 * plane + south * W + x, mask=inside)
    f3 = tl.load(F + 3 * plane + y * W + east, mask=inside)
    f4 = tl.load(F + 4 * plane + north * W + x, mask=inside)
    f5 = tl.load(F + 5 * plane + south * W + west, mask=inside)
    f6 = tl.load(F + 6 * plane + south * W + east, mask=inside)
    f7 = tl.load(F + 7 * plane + north * W + east, mask=inside)
    f8 = tl.load(F + 8 * plane + north * W + west, mask=inside)
    rho = f0 + f1 + f2 + f3 + f4 + f5 + f6 + f7 + f8
    ux = (f1 + f5 + f8 - f3 - f6 - f7) / rho
    uy = (f2 + f5 + f6 - f4 - f7 - f8) / rho
    square = 1.5 * (ux * ux + uy * uy)
    at = Out + y * W + x
    tl.store(at, f0 + omega * (4.0 / 9.0 * rho * (1 - square) - f0), mask=inside)
    for direction in tl.static_range(8):
        if direction == 0:
            f, u, w = f1, ux, 1.0 / 9.0
        elif direction == 1:
            f, u, w = f2, uy, 1.0 / 9.0
        elif direction == 2:
            f, u, w = f3, -ux, 1.0 / 9.0
        elif direction == 3:
            f, u, w = f4, -uy, 1.0 / 9.0
        elif direction == 4:
            f, u, w = f5, ux + uy, 1.0 / 36.0
        elif direction == 5:
            f, u, w = f6, uy - ux, 1.0 / 36.0
        elif direction == 6:
            f, u, w = f7, -ux - uy, 1.0 / 36.0
        else:
            f, u, w = f8, ux - uy, 1.0 / 36.0
        equilibrium = w * rho * (1 + 3 * u + 4.5 * u * u - square)
        tl.store(at + (direction + 1) * plane, f + omega * (equilibrium - f), mask=inside)


@triton.jit
def ising_sweep(S, N, beta, seed, colour, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ours = (column < N) & ((row + column) % 2 == colour)
    spin = tl.load(S + row * N + column, mask=ours, other=0).to(tl.int32)
    left = tl.load(S + row * N + (column + N - 1) % N, mask=ours, other=0).to(tl.int32)
    right = tl.load(S + row * N + (column + 1) % N, mask=ours, other=0).to(tl.int32)
    up = tl.load(S + (row + N - 1) % N * N + column, mask=ours, other=0).to(tl.int32)
    down = tl.load(S + (row + 1) % N * N + column, mask=ours, other=0).to(tl.int32)
    energy = 2.0 * spin * (left + right + up + down)
    chance = tl.rand(seed, row * N + column)
    flipped = tl.where(chance < tl.exp(-beta * energy), -spin, spin)
    tl.store(S + row * N + column, flipped.to(tl.int8), mask=ours)


@triton.jit
def nearest_points(P, Q, Place, Distance, n, K: tl.constexpr, BLOCK: tl.constexpr, ROUND: tl.constexpr):
    query = tl.program_id(0)
    qx, qy, qz = tl.load(Q + query * 3), tl.load(Q + query * 3 + 1), tl.load(Q + query * 3 + 2)
    slot = tl.arange(0, ROUND)
    best = tl.full((ROUND,), float("inf"), tl.float32)
    place = tl.full((ROUND,), -1, tl.int32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(P + at * 3, mask=at < n, other=float("inf"))
        y = tl.load(P + at * 3 + 1, mask=at < n, other=0.0)
        z = tl.load(P + at * 3 + 2, mask=at < n, other=0.0)
        d = (x - qx) * (x - qx) + (y - qy) * (y - qy) + (z - qz) * (z - qz)
        worst = tl.max(tl.where(slot < K, best, float("-inf")), 0)
        near = tl.min(d, 0)
        while near < worst:
            where = tl.argmin(d, 0)
            out = tl.argmax(tl.where(slot < K, best, float("-inf")), 0)
            best = tl.where(slot == out, near, best)
            place = tl.where(slot == out, start + where, place)
            d = tl.where(tl.arange(0, BLOCK) == where, float("inf"), d)
            worst = tl.max(tl.where(slot < K, best, float("-inf")), 0)
            near = tl.min(d, 0)
    tl.store(Place + query * K + slot, place, mask=slot < K)
    tl.store(Distance + query * K + slot, best, mask=slot < K)


@triton.jit
def bilateral(X, Y, W, H, space, tone, R: tl.constexpr, BLOCK: tl.constexpr):
    y = tl.program_id(1)
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    centre = tl.load(X + y * W + x, mask=x < W, other=0.0).to(tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    weights = tl.zeros((BLOCK,), tl.float32)
    for dy in range(-R, R + 1):
        for dx in range(-R, R + 1):
            yy = tl.minimum(tl.maximum(y + dy, 0), H - 1)
            xx = tl.minimum(tl.maximum(x + dx, 0), W - 1)
            v = tl.load(X + yy * W + xx, mask=x < W, other=0.0).to(tl.float32)
            w = tl.exp(-(dx * dx + dy * dy) * space - (v - centre) * (v - centre) * tone)
            total += w * v
            weights += w
    tl.store(Y + y * W + x, total / weights, mask=x < W)


@triton.jit
def dilate(X, Y, W, H, R: tl.constexpr, BY: tl.constexpr, BX: tl.constexpr):
    y = (tl.program_id(1) * BY + tl.arange(0, BY))[:, None]
    x = (tl.program_id(0) * BX + tl.arange(0, BX))[None, :]
    most = tl.zeros((BY, BX), tl.uint8)
    for dy in tl.static_range(-R, R + 1):
        for dx in tl.static_range(-R, R + 1):
            inside = (y + dy >= 0) & (y + dy < H) & (x + dx >= 0) & (x + dx < W)
            most = tl.maximum(most, tl.load(X + (y + dy) * W + x + dx, mask=inside, other=0))
    tl.store(Y + y * W + x, most, mask=(y < H) & (x < W))


@triton.jit
def box_overlaps(A, B, Out, n, m, BN: tl.constexpr, BM: tl.constexpr):
    i, j = tl.program_id(0) * BN + tl.arange(0, BN), tl.program_id(1) * BM + tl.arange(0, BM)
    ax0 = tl.load(A + i * 4, mask=i < n, other=0.0)[:, None]
    ay0 = tl.load(A + i * 4 + 1, mask=i < n, other=0.0)[:, None]
    ax1 = tl.load(A + i * 4 + 2, mask=i < n, other=0.0)[:, None]
    ay1 = tl.load(A + i * 4 + 3, mask=i < n, other=0.0)[:, None]
    bx0 = tl.load(B + j * 4, mask=j < m, other=0.0)[None, :]
    by0 = tl.load(B + j * 4 + 1, mask=j < m, other=0.0)[None, :]
    bx1 = tl.load(B + j * 4 + 2, mask=j < m, other=0.0)[None, :]
    by1 = tl.load(B + j * 4 + 3, mask=j < m, other=0.0)[None, :]
    wide = tl.maximum(tl.minimum(ax1, bx1) - tl.maximum(ax0, bx0), 0.0)
    high = tl.maximum(tl.minimum(ay1, by1) - tl.maximum(ay0, by0), 0.0)
    both = wide * high
    union = (ax1 - ax0) * (ay1 - ay0) + (bx1 - bx0) * (by1 - by0) - both
    tl.store(Out + i[:, None] * m + j[None, :], both / (union + 1e-9), mask=(i < n)[:, None] & (j < m)[None, :])


@triton.jit
def roi_align(X, Rois, Y, C, H, W, scale, PH: tl.constexpr, PW: tl.constexpr, S: tl.constexpr, BC: tl.constexpr):
    roi, cell = tl.program_id(0), tl.program_id(1)
    ph, pw = cell // PW, cell % PW
    channel = tl.program_id(2) * BC + tl.arange(0, BC)
    x0, y0 = tl.load(Rois + roi * 4) * scale, tl.load(Rois + roi * 4 + 1) * scale
    x1, y1 = tl.load(Rois + roi * 4 + 2) * scale, tl.load(Rois + roi * 4 + 3) * scale
    bh, bw = tl.maximum(y1 - y0, 1.0) / PH, tl.maximum(x1 - x0, 1.0) / PW
    total = tl.zeros((BC,), tl.float32)
    for sy in range(S):
        for sx in range(S):
            y = tl.minimum(tl.maximum(y0 + ph * bh + (sy + 0.5) * bh / S, 0.0), H - 1.0)
            x = tl.minimum(tl.maximum(x0 + pw * bw + (sx + 0.5) * bw / S, 0.0), W - 1.0)
            yl, xl = tl.floor(y).to(tl.int32), tl.floor(x).to(tl.int32)
            yh, xh = tl.minimum(yl + 1, H - 1), tl.minimum(xl + 1, W - 1)
            ly, lx = y - yl, x - xl
            a = tl.load(X + (yl * W + xl) * C + channel, mask=channel < C, other=0.0)
            b = tl.load(X + (yl * W + xh) * C + channel, mask=channel < C, other=0.0)
            c = tl.load(X + (yh * W + xl) * C + channel, mask=channel < C, other=0.0)
            d = tl.load(X + (yh * W + xh) * C + channel, mask=channel < C, other=0.0)
            total += (a * (1 - lx) + b * lx) * (1 - ly) + (c * (1 - lx) + d * lx) * ly
    tl.store(Y + (roi * PH * PW + cell) * C + channel, total / (S * S), mask=channel < C)


@triton.jit
def biquad(X, Y, T, B, b0, b1, b2, a1, a2, BB: tl.constexpr):
    lane = tl.program_id(0) * BB + tl.arange(0, BB)
    z1 = tl.zeros((BB,), tl.float32)
    z2 = tl.zeros((BB,), tl.float32)
    for t in range(T):
        x = tl.load(X + t * B + lane, mask=lane < B, other=0.0)
        y = b0 * x + z1
        z1 = b1 * x - a1 * y + z2
        z2 = b2 * x - a2 * y
        tl.store(Y + t * B + lane, y, mask=lane < B)


@triton.jit
def sparse_vector(Starts, Columns, Values, X, Y, rows, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    start, end = tl.load(Starts + row), tl.load(Starts + row + 1)
    total = tl.zeros((BLOCK,), tl.float32)
    for at in range(start, end, BLOCK):
        place = at + tl.arange(0, BLOCK)
        column = tl.load(Columns + place, mask=place < end, other=0)
        value = tl.load(Values + place, mask=place < end, other=0.0)
        total += value * tl.load(X + column)
    tl.store(Y + row, tl.sum(total, 0))


@triton.jit
def edge_softmax(Starts, Sources, Left, Right, Features, Out, slope, HEADS: tl.constexpr, D: tl.constexpr):
    node = tl.program_id(0)
    head = tl.arange(0, HEADS)
    feature = tl.arange(0, D)
    start, end = tl.load(Starts + node), tl.load(Starts + node + 1)
    right = tl.load(Right + node * HEADS + head)
    most = tl.full((HEADS,), float("-inf"), tl.float32)
    total = tl.zeros((HEADS,), tl.float32)
    out = tl.zeros((HEADS, D), tl.float32)
    for edge in range(start, end):
        source = tl.load(Sources + edge)
        score = tl.load(Left + source * HEADS + head) + right
        score = tl.where(score > 0, score, score * slope)
        larger = tl.maximum(most, score)
        old, new = tl.exp(most - larger), tl.exp(score - larger)
        values = tl.load(Features + source * HEADS * D + head[:, None] * D + feature[None, :]).to(tl.float32)
        out = out * old[:, None] + values * new[:, None]
        total = total * old + new
        most = larger
    out = out / tl.maximum(total, 1e-9)[:, None]
    tl.store(Out + node * HEADS * D + head[:, None] * D + feature[None, :], out)


@triton.jit
def rowwise_adagrad(W, State, Ids, Grad, lr, eps, D: tl.constexpr):
    row = tl.program_id(0)
    place = tl.load(Ids + row)
    g = tl.load(Grad + row * D + tl.arange(0, D)).to(tl.float32)
    state = tl.load(State + place) + tl.sum(g * g, 0) / D
    tl.store(State + place, state)
    at = W + place * D + tl.arange(0, D)
    tl.store(at, tl.load(at).to(tl.float32) - lr * g / (tl.sqrt(state) + eps))


@triton.jit
def adafactor(P, G, Rows, Columns, lr, mean, N, M, BN: tl.constexpr, BM: tl.constexpr):
    i, j = tl.program_id(0) * BN + tl.arange(0, BN), tl.program_id(1) * BM + tl.arange(0, BM)
    r = tl.load(Rows + i, mask=i < N, other=1.0)
    c = tl.load(Columns + j, mask=j < M, other=1.0)
    inside = (i < N)[:, None] & (j < M)[None, :]
    at = i[:, None] * M + j[None, :]
    g = tl.load(G + at, mask=inside, other=0.0).to(tl.float32)
    p = tl.load(P + at, mask=inside, other=0.0).to(tl.float32)
    update = g * tl.rsqrt(r / mean)[:, None] * tl.rsqrt(c)[None, :]
    tl.store(P + at, p - lr * update, mask=inside)


@triton.jit
def thomas(A, B, C, D, Cp, X, N, systems, BLOCK: tl.constexpr):
    s = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = s < systems
    c = tl.zeros((BLOCK,), tl.float32)
    d = tl.zeros((BLOCK,), tl.float32)
    for i in range(N):
        at = i * systems + s
        a = tl.load(A + at, mask=inside, other=0.0)
        pivot = 1.0 / (tl.load(B + at, mask=inside, other=1.0) - a * c)
        d = (tl.load(D + at, mask=inside, other=0.0) - a * d) * pivot
        c = tl.load(C + at, mask=inside, other=0.0) * pivot
        tl.store(Cp + at, c, mask=inside)
        tl.store(X + at, d, mask=inside)
    x = d
    for k in range(1, N):
        at = (N - 1 - k) * systems + s
        x = tl.load(X + at, mask=inside, other=0.0) - tl.load(Cp + at, mask=inside, other=0.0) * x
        tl.store(X + at, x, mask=inside)


@triton.jit
def haar_rows(X, Y, N: tl.constexpr, LEVELS: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(X + row * N + tl.arange(0, N))
    size: tl.constexpr = N // 2
    a, b = tl.split(tl.reshape(x, (size, 2)))
    tl.store(Y + row * N + size + tl.arange(0, size), (a - b) * 0.70710678)
    x = (a + b) * 0.70710678
    half: tl.constexpr = size // 2
    a, b = tl.split(tl.reshape(x, (half, 2)))
    tl.store(Y + row * N + half + tl.arange(0, half), (a - b) * 0.70710678)
    tl.store(Y + row * N + tl.arange(0, half), (a + b) * 0.70710678)


@triton.jit
def count_pairs(Tokens, Table, n, vocabulary, SLOTS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at + 1 < n
    first = tl.load(Tokens + at, mask=inside, other=0).to(tl.uint32)
    second = tl.load(Tokens + at + 1, mask=inside, other=0).to(tl.uint32)
    key = first * 2654435761 ^ (second * 2246822519)
    key = (key ^ (key >> 15)) * 668265263
    tl.atomic_add(Table + (key % SLOTS).to(tl.int32), 1, mask=inside)


@triton.jit
def bloom_query(Keys, Bits, Out, n, words, HASHES: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(Keys + at, mask=at < n, other=0).to(tl.uint32)
    present = tl.full((BLOCK,), 1, tl.int32)
    for i in tl.static_range(HASHES):
        h = (key ^ (0x1E3779B9 * (i + 1))) * 0x85EBCA6B
        h = (h ^ (h >> 13)) * 0xC2B2AE35
        h = (h ^ (h >> 16)) % (words * 32).to(tl.uint32)
        word = tl.load(Bits + (h >> 5).to(tl.int32), mask=at < n, other=0).to(tl.uint32)
        present = present & ((word >> (h & 31)) & 1).to(tl.int32)
    tl.store(Out + at, present.to(tl.int8), mask=at < n)


@triton.jit
def utf8_starts(Bytes, Out, Counts, n, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    byte = tl.load(Bytes + at, mask=at < n, other=0x80)
    starts = ((byte & 0xC0) != 0x80).to(tl.int32)
    place = tl.cumsum(starts, 0) - 1
    tl.store(Out + block * BLOCK + place, at, mask=starts != 0)
    tl.store(Counts + block, tl.sum(starts, 0))


@triton.jit
def ctc_alpha(LogProbs, Labels, Alpha, Loss, T, S, V, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    s = tl.arange(0, BLOCK)
    states = 2 * S + 1
    inside = s < states
    label = tl.load(Labels + row * S + s // 2, mask=inside & (s % 2 == 1), other=0)
    before = tl.load(Labels + row * S + s // 2 - 1, mask=inside & (s % 2 == 1) & (s > 2), other=0)
    skips = (label != 0) & (label != before)
    emission = tl.load(LogProbs + row * T * V + label, mask=inside & (s < 2), other=float("-inf"))
    tl.store(Alpha + row * T * BLOCK + s, tl.where(s < 2, emission, float("-inf")))
    for t in range(1, T):
        tl.debug_barrier()
        last = Alpha + (row * T + t - 1) * BLOCK
        a = tl.load(last + s)
        b = tl.load(last + s - 1, mask=s > 0, other=float("-inf"))
        c = tl.load(last + s - 2, mask=(s > 1) & skips, other=float("-inf"))
        most = tl.maximum(tl.maximum(a, b), tl.maximum(c, -1e30))
        total = most + tl.log(tl.exp(a - most) + tl.exp(b - most) + tl.exp(c - most))
        emission = tl.load(LogProbs + (row * T + t) * V + label, mask=inside, other=float("-inf"))
        tl.store(Alpha + (row * T + t) * BLOCK + s, total + emission)
    tl.debug_barrier()
    end = Alpha + (row * T + T - 1) * BLOCK
    a, b = tl.load(end + states - 1), tl.load(end + states - 2)
    most = tl.maximum(a, b)
    tl.store(Loss + row, -(most + tl.log(tl.exp(a - most) + tl.exp(b - most))))


@triton.jit
def edit_distance(A, B, Row, Out, n, m, BLOCK: tl.constexpr):
    pair = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    a = tl.load(A + pair * n + i, mask=i < n, other=-1)
    first = tl.full((BLOCK,), 0, tl.int32)
    second = tl.full((BLOCK,), 0, tl.int32)
    for diagonal in range(0, n + m - 1):
        j = diagonal - i
        b = tl.load(B + pair * m + j, mask=(j >= 0) & (j < m), other=-2)
        before = tl.maximum(i - 1, 0)
        up_one = tl.where(i == 0, diagonal + 1, tl.gather(first, before, 0))
        up_two = tl.where(i == 0, diagonal, tl.gather(second, before, 0))
        insertion = tl.where(j == 0, i + 1, first)
        corner = tl.where(j == 0, i, up_two)
        now = tl.minimum(tl.minimum(up_one, insertion) + 1, corner + (a != b).to(tl.int32))
        second = first
        first = tl.where((j >= 0) & (j < m), now, first)
    tl.store(Out + pair * BLOCK + i, first, mask=i == n - 1)


@triton.jit
def pair_ranking(Scores, Gains, Loss, Grad, sigma, N: tl.constexpr):
    query = tl.program_id(0)
    i = tl.arange(0, N)
    s = tl.load(Scores + query * N + i)
    g = tl.load(Gains + query * N + i)
    difference = s[:, None] - s[None, :]
    better = g[:, None] > g[None, :]
    loss = tl.where(better, tl.log(1 + tl.exp(-sigma * difference)), 0.0)
    slope = tl.where(better, -sigma / (1 + tl.exp(sigma * difference)), 0.0) * tl.abs(g[:, None] - g[None, :])
    tl.store(Loss + query, tl.sum(tl.sum(loss, 1), 0))
    tl.store(Grad + query * N + i, tl.sum(slope, 1) - tl.sum(slope, 0))


@triton.jit
def kernel_sum(X, Y, V, Out, n, m, gamma, D: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr):
    i = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BN,), tl.float32)
    for start in range(0, m, BM):
        j = start + tl.arange(0, BM)
        square = tl.zeros((BN, BM), tl.float32)
        for d in range(D):
            x = tl.load(X + i * D + d, mask=i < n, other=0.0)
            y = tl.load(Y + j * D + d, mask=j < m, other=0.0)
            e = x[:, None] - y[None, :]
            square += e * e
        v = tl.load(V + j, mask=j < m, other=0.0)
        total += tl.sum(tl.exp(-gamma * square) * v[None, :], 1)
    tl.store(Out + i, total, mask=i < n)


@triton.jit
def pixel_shuffle(X, Y, C, H, W, R: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wide, high = W * R, H * R
    x, y = at % wide, at // wide % high
    c, n = at // (wide * high) % C, at // (wide * high * C)
    source = ((n * C + c) * R + y % R) * R + x % R
    value = tl.load(X + (source * H + y // R) * W + x // R)
    tl.store(Y + at, value)


@triton.jit
def triplet_loss(A, P, N, Loss, DA, DP, DN, margin, D: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = row[:, None] * D + tl.arange(0, D)[None, :]
    a, p, n = tl.load(A + at).to(tl.float32), tl.load(P + at).to(tl.float32), tl.load(N + at).to(tl.float32)
    near = tl.sqrt(tl.sum((a - p) * (a - p), 1) + 1e-12)
    far = tl.sqrt(tl.sum((a - n) * (a - n), 1) + 1e-12)
    loss = tl.maximum(near - far + margin, 0.0)
    on = (loss > 0).to(tl.float32)
    gp, gn = (a - p) * (on / near)[:, None], (a - n) * (on / far)[:, None]
    tl.store(Loss + row, loss)
    tl.store(DA + at, gp - gn)
    tl.store(DP + at, -gp)
    tl.store(DN + at, gn)


@triton.jit
def ssim_columns(X, Y, Out, H, W, BLOCK: tl.constexpr, R: tl.constexpr):
    y = tl.program_id(1)
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    sx = tl.zeros((BLOCK,), tl.float32)
    sy = tl.zeros((BLOCK,), tl.float32)
    sxx = tl.zeros((BLOCK,), tl.float32)
    syy = tl.zeros((BLOCK,), tl.float32)
    sxy = tl.zeros((BLOCK,), tl.float32)
    for dy in range(2 * R + 1):
        for dx in tl.static_range(2 * R + 1):
            inside = (y + dy < H) & (x + dx < W)
            a = tl.load(X + (y + dy) * W + x + dx, mask=inside, other=0.0)
            b = tl.load(Y + (y + dy) * W + x + dx, mask=inside, other=0.0)
            sx += a
            sy += b
            sxx += a * a
            syy += b * b
            sxy += a * b
    k = 1.0 / ((2 * R + 1) * (2 * R + 1))
    mx, my = sx * k, sy * k
    vx, vy, vxy = sxx * k - mx * mx, syy * k - my * my, sxy * k - mx * my
    value = (2 * mx * my + 1e-4) * (2 * vxy + 9e-4) / ((mx * mx + my * my + 1e-4) * (vx + vy + 9e-4))
    tl.store(Out + y * W + x, value, mask=x < W)


@triton.jit
def random_walks(Out, steps, walkers, seed, BLOCK: tl.constexpr):
    walker = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.zeros((BLOCK,), tl.float32)
    y = tl.zeros((BLOCK,), tl.float32)
    far = tl.zeros((BLOCK,), tl.float32)
    for step in range(steps):
        dx, dy, _, _ = tl.randn4x(seed, walker * steps + step)
        x += dx
        y += dy
        far = tl.maximum(far, x * x + y * y)
    tl.store(Out + walker, tl.sqrt(far), mask=walker < walkers)


def floats(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="cuda")


def whole(below: int, *shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.randint(0, below, shape, dtype=dtype, device="cuda")


def main() -> None:
    f, bf = floats, torch.bfloat16
    for block, warps in ((256, 4), (1024, 4)):
        lattice_boltzmann[(2048 // block, 1024)](
            f(9, 1024, 2048), f(9, 1024, 2048), 2048, 1024, 1.2, BLOCK=block, num_warps=warps
        )
        ising_sweep[(4096, 4096 // block)](
            whole(2, 4096, 4096, dtype=torch.int8), 4096, 0.4, 7, 1, BLOCK=block, num_warps=warps
        )
        bilateral[(2048 // block, 1080)](
            f(1080, 2048), f(1080, 2048), 2048, 1080, 0.1, 3.0, R=3, BLOCK=block, num_warps=warps
        )
        ssim_columns[(2048 // block, 1080)](
            f(1080, 2048), f(1080, 2048), f(1080, 2048), 1080, 2048, BLOCK=block, R=3, num_warps=warps
        )
        count_pairs[(1 << 22) // block,](
            whole(50000, 1 << 22), whole(1, 1 << 20), 1 << 22, 50000, SLOTS=1000003, BLOCK=block, num_warps=warps
        )
        bloom_query[((1 << 22) // block,)](
            whole(2**31 - 1, 1 << 22),
            whole(2**31 - 1, 1 << 16),
            whole(2, 1 << 22, dtype=torch.int8),
            1 << 22,
            65003,
            HASHES=4,
            BLOCK=block,
            num_warps=warps,
        )
        utf8_starts[((1 << 25) // (4 * block),)](
            whole(255, 1 << 25, dtype=torch.uint8),
            whole(2, 1 << 25),
            whole(1, 1 << 15),
            1 << 25,
            BLOCK=4 * block,
            num_warps=warps,
        )
        pixel_shuffle[(8 * 64 * 512 * 512 // block,)](
            f(8, 64 * 4, 256, 256, dtype=torch.float16),
            f(8, 64, 512, 512, dtype=torch.float16),
            64,
            256,
            256,
            R=2,
            BLOCK=block,
            num_warps=warps,
        )
        random_walks[(262144 // block,)](f(262144), 100, 262144, 5, BLOCK=block, num_warps=warps)
    for block, warps in ((512, 4), (2048, 8)):
        nearest_points[(2048,)](
            f(8192, 3), f(2048, 3), whole(1, 2048, 8), f(2048, 8), 8192, K=8, BLOCK=block, ROUND=8, num_warps=warps
        )
    for by, bx in ((8, 128), (16, 64)):
        dilate[(4096 // bx, 2160 // by)](
            whole(255, 2160, 4096, dtype=torch.uint8),
            whole(255, 2160, 4096, dtype=torch.uint8),
            4096,
            2160,
            R=2,
            BY=by,
            BX=bx,
        )
        box_overlaps[(8192 // by, 4096 // bx)](f(8192, 4), f(4096, 4), f(8192, 4096), 8192, 4096, BN=by, BM=bx)
        adafactor[(4096 // by, 4096 // bx)](
            f(4096, 4096, dtype=bf), f(4096, 4096, dtype=bf), f(4096), f(4096), 1e-3, 0.5, 4096, 4096, BN=by, BM=bx
        )
    for bc in (128, 256):
        roi_align[(512, 49, 256 // bc)](
            f(200, 200, 256), f(512, 4), f(512, 49, 256), 256, 200, 200, 40.0, PH=7, PW=7, S=2, BC=bc
        )
    for block in (32, 128):
        biquad[(16384 // block,)](
            f(512, 16384), f(512, 16384), 512, 16384, 0.2, 0.3, 0.2, -0.5, 0.2, BB=block, num_warps=block // 32
        )
        thomas[(65536 // block,)](*(f(64, 65536) for _ in range(6)), 64, 65536, BLOCK=block, num_warps=block // 32)
        sparse_vector[(8191,)](
            (torch.arange(8192) * 700).to(torch.int32),
            whole(100000, 8191 * 700),
            f(8191 * 700),
            f(100000),
            f(8191),
            8191,
            BLOCK=8 * block,
            num_warps=block // 32,
        )
    for heads, d in ((8, 32), (4, 64)):
        edge_softmax[(8191,)](
            (torch.arange(8192) * 12).to(torch.int32),
            whole(8191, 8191 * 12),
            f(8191, heads),
            f(8191, heads),
            f(8191, heads, d, dtype=bf),
            f(8191, heads, d, dtype=bf),
            0.2,
            HEADS=heads,
            D=d,
        )
    for d, warps in ((128, 1), (256, 4)):
        rowwise_adagrad[(65536,)](
            f(100000, d),
            f(100000),
            torch.randperm(65536).to(torch.int32),
            f(65536, d),
            0.01,
            1e-8,
            D=d,
            num_warps=warps,
        )
    for n, warps in ((1024, 4), (4096, 8)):
        haar_rows[((1 << 24) // n,)](f((1 << 24) // n, n), f((1 << 24) // n, n), N=n, LEVELS=2, num_warps=warps)
    ctc_alpha[(128,)](
        f(128, 100, 1024), whole(1023, 128, 40) + 1, f(128, 100, 128), f(128), 100, 40, 1024, BLOCK=128, num_warps=4
    )
    ctc_alpha[(64,)](
        f(64, 60, 5000), whole(4999, 64, 100) + 1, f(64, 60, 256), f(64), 60, 100, 5000, BLOCK=256, num_warps=2
    )
    edit_distance[(1024,)](
        whole(26, 1024, 120), whole(26, 1024, 120), whole(1, 8), whole(1, 1024, 128), 120, 120, BLOCK=128, num_warps=1
    )
    edit_distance[(512,)](
        whole(26, 512, 250), whole(26, 512, 250), whole(1, 8), whole(1, 512, 256), 250, 250, BLOCK=256, num_warps=4
    )
    for n, warps in ((64, 4), (128, 8)):
        pair_ranking[(4096,)](f(4096, n), f(4096, n), f(4096), f(4096, n), 1.0, N=n, num_warps=warps)
    for bn, bm in ((64, 64), (128, 32)):
        kernel_sum[(16384 // bn,)](f(16384, 3), f(8192, 3), f(8192), f(16384), 16384, 8192, 0.5, D=3, BN=bn, BM=bm)
    for rows, warps in ((1, 4), (8, 4)):
        triplet_loss[(16384 // rows,)](
            *(f(16384, 256, dtype=bf) for _ in range(3)),
            f(16384),
            *(f(16384, 256, dtype=bf) for _ in range(3)),
            0.2,
            D=256,
            ROWS=rows,
            num_warps=warps,
        )


if __name__ == "__main__":
    main()
