"""Small kernels in Triton's Python, one for each kind of loop: `KERNELS`, by name."""

from __future__ import annotations

from typing import Any

import attrs

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl


@attrs.frozen
class CountedKernel:
    """A kernel with the types and constants of its parameters, and the options of its launch."""

    kernel: Any
    types: tuple[Any, ...]
    options: dict[str, int]
    target: str


KERNELS: dict[str, CountedKernel] = {}
N = zg.divisible(zg.i32, 16)
F16, BF16, F32, F64, FP8, I8, I32, I64 = (
    zg.divisible(zg.ptr(element), 16) for element in (zg.f16, zg.bf16, zg.f32, zg.f64, zg.f8e4m3, zg.i8, zg.i32, zg.i64)
)


def add(name: str, kernel: Any, *types: Any, warps: int = 4, stages: int = 3, target: str = "sm_90a") -> None:
    KERNELS[name] = CountedKernel(kernel, types, {"num_warps": warps, "num_stages": stages}, target)


@triton.jit
def matmul(
    a, b, c, m, n, k, sa, sb, sc, index,
    M: tl.constexpr, BN: tl.constexpr, K: tl.constexpr, FORM: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    steps = tl.arange(0, K)
    source = tl.load(index + rows) if FORM == "gathered" else rows
    total = tl.zeros((M, BN), tl.float64 if FORM == "doubles" else tl.float32)
    for step in range(0, k, K):
        at = step + steps
        if FORM == "masked":
            x = tl.load(a + source[:, None] * sa + at[None, :], mask=at[None, :] < k, other=0.0)
            y = tl.load(b + at[:, None] * sb + columns[None, :], mask=at[:, None] < k, other=0.0)
        elif FORM == "transposed":
            x = tl.load(a + source[:, None] * sa + at[None, :])
            y = tl.load(b + columns[None, :] * sb + at[:, None])
        else:
            x = tl.load(a + source[:, None] * sa + at[None, :])
            y = tl.load(b + at[:, None] * sb + columns[None, :])
        if FORM == "activated":
            x = (x * tl.sigmoid(x.to(tl.float32))).to(tl.float16)
        if FORM == "weights":
            y = y.to(tl.float16)
        if FORM == "stored":
            tl.store(index + step + tl.arange(0, M), tl.sum(total, 1).to(tl.int32))
        total += tl.dot(x, y, out_dtype=total.dtype)
    where = c + rows[:, None] * sc + columns[None, :]
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    if FORM == "split":
        tl.atomic_add(where, total, mask=mask, sem="relaxed")
    else:
        tl.store(where, total.to(c.dtype.element_ty), mask=mask)


for name, a, b, c, m, n, k, warps, *target in (
    ("plain", F16, F16, F16, 128, 128, 64, 8),
    ("plain sm_100a", F16, F16, F16, 128, 128, 64, 8, "sm_100a"),
    ("plain sm_120a", F16, F16, F16, 128, 128, 32, 8, "sm_120a"),
    ("plain small", BF16, BF16, BF16, 16, 64, 128, 4),
    ("plain f32", F32, F32, F32, 64, 64, 32, 4),
    ("doubles", F64, F64, F64, 64, 64, 16, 4),
    ("plain fp8", FP8, FP8, F16, 128, 128, 128, 8),
    ("masked", F16, F16, F16, 128, 128, 64, 8),
    ("transposed", F16, F16, F16, 128, 128, 64, 8),
    ("transposed fp8 sm_120a", FP8, FP8, F16, 128, 128, 64, 8, "sm_120a"),
    ("gathered", F16, F16, F16, 64, 128, 64, 4),
    ("activated", F16, F16, F16, 128, 128, 64, 8),
    ("weights", F16, I8, F16, 64, 128, 64, 4),
    ("stored", F16, F16, F16, 64, 64, 64, 4),
    ("split", F16, F16, F32, 128, 128, 64, 8),
):
    types = (a, b, c, N, N, N, N, N, N, I32, m, n, k, name.split()[0])
    add(f"matmul, {name}", matmul, *types, warps=warps, target="".join(target) or "sm_90a")


@triton.jit
def described_matmul(a, b, c, m, n, k, M: tl.constexpr, BN: tl.constexpr, K: tl.constexpr):
    x = tl.make_tensor_descriptor(a, [m, k], [k, 1], [M, K])
    y = tl.make_tensor_descriptor(b, [k, n], [n, 1], [K, BN])
    row, column = tl.program_id(0) * M, tl.program_id(1) * BN
    total = tl.zeros((M, BN), tl.float32)
    for step in range(0, k, K):
        total += tl.dot(x.load([row, step]), y.load([step, column]))
    rows, columns = row + tl.arange(0, M), column + tl.arange(0, BN)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.float16))


add("matmul by descriptors", described_matmul, F16, F16, F16, N, N, N, 128, 128, 64, warps=8)


@triton.jit
def persistent_matmul(a, b, c, m, n, k, M: tl.constexpr, BN: tl.constexpr, K: tl.constexpr):
    tiles = tl.cdiv(m, M) * tl.cdiv(n, BN)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        rows = tile // tl.cdiv(n, BN) * M + tl.arange(0, M)
        columns = tile % tl.cdiv(n, BN) * BN + tl.arange(0, BN)
        total = tl.zeros((M, BN), tl.float32)
        for step in range(0, k, K):
            at = step + tl.arange(0, K)
            total += tl.dot(
                tl.load(a + rows[:, None] * k + at[None, :]), tl.load(b + at[:, None] * n + columns[None, :])
            )
        tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.float16))


add("matmul, persistent", persistent_matmul, F16, F16, F16, N, N, N, 128, 128, 64, warps=8)


@triton.jit
def four_bits(a, w, scales, c, k, n, M: tl.constexpr, BN: tl.constexpr, K: tl.constexpr):
    rows = tl.arange(0, M)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    steps = tl.arange(0, K)
    total = tl.zeros((M, BN), tl.float32)
    for step in range(0, k, K):
        at = step + steps
        x = tl.load(a + rows[:, None] * k + at[None, :])
        words = tl.load(w + (at[:, None] // 8) * n + columns[None, :])
        scale = tl.load(scales + (step // 128) * n + columns)
        y = (((words >> ((at % 8) * 4)[:, None]) & 15) - 8).to(tl.float16) * scale[None, :]
        total += tl.dot(x, y)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.float16))


add("matmul, weights of four bits", four_bits, F16, I32, F16, F16, N, N, 16, 64, 64, stages=4)


@triton.jit
def scaled_matmul(a, b, sa, sb, c, k, n, M: tl.constexpr, BN: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((M, BN), tl.float32)
    for step in range(0, k, K):
        at = step + tl.arange(0, K)
        x = tl.load(a + rows[:, None] * k + at[None, :])
        y = tl.load(b + columns[None, :] * k + at[:, None])
        left = tl.load(sa + rows * (k // K) + step // K)
        right = tl.load(sb + tl.program_id(1) * (k // K) + step // K)
        total += tl.dot(x, y) * left[:, None] * right
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.bfloat16))


add("matmul, fp8 scaled by blocks", scaled_matmul, FP8, FP8, F32, F32, BF16, N, N, 128, 128, 128, warps=8)


@triton.jit
def attention(q, k, v, o, n, scale, M: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, FORM: tl.constexpr):
    q += tl.program_id(1) * n * D
    k += tl.program_id(1) * n * D
    v += tl.program_id(1) * n * D
    o += tl.program_id(1) * n * D
    rows = tl.program_id(0) * M + tl.arange(0, M)
    at_d = tl.arange(0, D)
    query = tl.load(q + rows[:, None] * D + at_d[None, :])
    best = tl.full((M,), float("-inf"), tl.float32)
    weight = tl.zeros((M,), tl.float32)
    total = tl.zeros((M, D), tl.float32)
    end = n if FORM == "full" else (tl.program_id(0) + 1) * M
    start = tl.maximum(0, (tl.program_id(0) * M - 1024) // BN * BN) if FORM == "window" else 0
    for step in range(start, end, BN):
        at = step + tl.arange(0, BN)
        keys = tl.load(k + at[None, :] * D + at_d[:, None])
        values = tl.load(v + at[:, None] * D + at_d[None, :])
        scores = tl.dot(query, keys) * scale
        if FORM == "window":
            distance = rows[:, None] - at[None, :]
            scores = tl.where((distance >= 0) & (distance < 1024), scores - distance * 0.01, float("-inf"))
        elif FORM == "causal":
            scores = tl.where(rows[:, None] >= at[None, :], scores, float("-inf"))
        largest = tl.maximum(best, tl.max(scores, 1))
        p = tl.exp2(scores - largest[:, None])
        shrink = tl.exp2(best - largest)
        weight = weight * shrink + tl.sum(p, 1)
        total = tl.dot(p.to(tl.float16), values, total * shrink[:, None])
        best = largest
    tl.store(o + rows[:, None] * D + at_d[None, :], (total / weight[:, None]).to(tl.float16))


for form in ("full", "causal", "window"):
    add(f"attention, {form}", attention, F16, F16, F16, F16, N, zg.f32, 128, 64, 64, form)
add("attention of 128", attention, F16, F16, F16, F16, N, zg.f32, 128, 64, 128, "full", warps=8)


@triton.jit
def attention_backward(q, k, v, do, lse, delta, dk, dv, n, D: tl.constexpr, M: tl.constexpr, BN: tl.constexpr):
    keys_at = tl.program_id(0) * M + tl.arange(0, M)
    at_d = tl.arange(0, D)
    keys = tl.load(k + keys_at[:, None] * D + at_d[None, :])
    values = tl.load(v + keys_at[:, None] * D + at_d[None, :])
    d_keys = tl.zeros((M, D), tl.float32)
    d_values = tl.zeros((M, D), tl.float32)
    for step in range(0, n, BN):
        at = step + tl.arange(0, BN)
        queries = tl.load(q + at[:, None] * D + at_d[None, :])
        d_outputs = tl.load(do + at[:, None] * D + at_d[None, :])
        p = tl.exp2(tl.dot(keys, tl.trans(queries)) - tl.load(lse + at)[None, :])
        d_values += tl.dot(p.to(tl.float16), d_outputs)
        d_scores = p * (tl.dot(values, tl.trans(d_outputs)) - tl.load(delta + at)[None, :])
        d_keys += tl.dot(d_scores.to(tl.float16), queries)
    tl.store(dk + keys_at[:, None] * D + at_d[None, :], d_keys.to(tl.float16))
    tl.store(dv + keys_at[:, None] * D + at_d[None, :], d_values.to(tl.float16))


add("attention backward", attention_backward, F16, F16, F16, F16, F32, F32, F16, F16, N, 64, 128, 64, warps=8)


@triton.jit
def paged_decode(q, k, v, table, o, pages, P: tl.constexpr, D: tl.constexpr, R: tl.constexpr):
    at_r, at_d, at_p = tl.arange(0, R), tl.arange(0, D), tl.arange(0, P)
    query = tl.load(q + tl.program_id(0) * R * D + at_r[:, None] * D + at_d[None, :])
    best = tl.full((R,), float("-inf"), tl.float32)
    weight = tl.zeros((R,), tl.float32)
    total = tl.zeros((R, D), tl.float32)
    for step in range(pages):
        page = tl.load(table + tl.program_id(0) * pages + step)
        keys = tl.load(k + page * P * D + at_p[None, :] * D + at_d[:, None])
        values = tl.load(v + page * P * D + at_p[:, None] * D + at_d[None, :])
        scores = tl.dot(query, keys)
        largest = tl.maximum(best, tl.max(scores, 1))
        p = tl.exp2(scores - largest[:, None])
        shrink = tl.exp2(best - largest)
        weight = weight * shrink + tl.sum(p, 1)
        total = total * shrink[:, None] + tl.dot(p.to(tl.float16), values)
        best = largest
    tl.store(o + tl.program_id(0) * R * D + at_r[:, None] * D + at_d[None, :], (total / weight[:, None]).to(tl.float16))


add("attention, paged decode", paged_decode, F16, F16, F16, I32, F16, N, 32, 128, 16)


@triton.jit
def linear_attention(q, k, v, g, h, o, chunks, C: tl.constexpr, D: tl.constexpr, FORM: tl.constexpr):
    at_c, at_d = tl.arange(0, C), tl.arange(0, D)
    state = tl.zeros((D, D), tl.float32)
    for chunk in range(chunks):
        at = (chunk * C + at_c)[:, None] * D + at_d[None, :]
        tl.store(h + chunk * D * D + at_d[:, None] * D + at_d[None, :], state.to(tl.float16))
        keys = tl.load(k + at)
        values = tl.load(v + at)
        if FORM == "outputs":
            queries = tl.load(q + at)
            scores = tl.where(at_c[:, None] >= at_c[None, :], tl.dot(queries, tl.trans(keys)), 0.0)
            out = tl.dot(queries, state.to(tl.float16)) + tl.dot(scores.to(tl.float16), values)
            tl.store(o + at, out.to(tl.float16))
        elif FORM == "delta":
            rest = values - tl.dot(tl.load(q + at), state.to(tl.float16))
            tl.store(o + at, rest.to(tl.float16))
            values = rest.to(tl.float16)
        elif FORM == "gated":
            last = tl.load(g + chunk * C + C - 1)
            gates = tl.load(g + chunk * C + at_c)
            state *= tl.exp(last)
            values = (values * tl.exp(last - gates)[:, None]).to(tl.float16)
        state += tl.dot(tl.trans(keys), values)


for form in ("states", "outputs", "delta", "gated"):
    add(f"linear attention, {form}", linear_attention, F16, F16, F16, F32, F16, F16, N, 64, 64, form)


@triton.jit
def gated_scores(q, k, g, a, n, D: tl.constexpr, K: tl.constexpr):
    rows, columns = tl.program_id(0) * 16 + tl.arange(0, 16), tl.program_id(1) * 16 + tl.arange(0, 16)
    total = tl.zeros((16, 16), tl.float32)
    for step in range(0, D, K):
        at = step + tl.arange(0, K)
        of_row, of_column = rows[:, None] * D + at[None, :], columns[None, :] * D + at[:, None]
        x, gx = tl.load(q + of_row, mask=rows[:, None] < n, other=0), tl.load(g + of_row, mask=rows[:, None] < n)
        y = tl.load(k + of_column, mask=columns[None, :] < n, other=0)
        gy = tl.load(g + of_column, mask=columns[None, :] < n, other=0)
        total = tl.dot(x * tl.exp2(gx), y * tl.exp2(-gy), total)
    tl.store(a + rows[:, None] * n + columns[None, :], total)


for name, warps, width in (("in registers", 8, 64), ("by copies", 1, 32)):
    add(f"gated scores of few steps, {name}", gated_scores, BF16, BF16, F32, F32, N, 128, width, warps=warps)


@triton.jit
def lower_blocks(x, a, n, k, M: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * 2 * M + tl.arange(0, M)
    first, below, second = tl.zeros((M, M), tl.float32), tl.zeros((M, M), tl.float32), tl.zeros((M, M), tl.float32)
    for step in range(0, k, K):
        at = step + tl.arange(0, K)
        upper = tl.load(x + rows[:, None] * k + at[None, :])
        first = tl.dot(upper, tl.trans(upper), first)
        if (tl.program_id(0) + 1) * 2 * M <= n:
            lower = tl.load(x + (rows + M)[:, None] * k + at[None, :])
            below = tl.dot(lower, tl.trans(upper), below)
            second = tl.dot(lower, tl.trans(lower), second)
    where = a + tl.program_id(0) * 3 * M * M + tl.arange(0, M)[:, None] * M + tl.arange(0, M)[None, :]
    tl.store(where, first)
    tl.store(where + M * M, below)
    tl.store(where + 2 * M * M, second)


for warps in (1, 4):
    add(f"dots in a branch, {warps} warps", lower_blocks, BF16, F32, N, N, 16, 64, warps=warps)


@triton.jit
def recurrence(q, k, v, o, n, D: tl.constexpr, V: tl.constexpr):
    at_d, at_v = tl.arange(0, D), tl.arange(0, V)
    state = tl.zeros((V, D), tl.float32)
    for step in range(n):
        key = tl.load(k + step * D + at_d).to(tl.float32)
        value = tl.load(v + step * V + at_v).to(tl.float32)
        state = state * 0.9 + key[None, :] * value[:, None]
        query = tl.load(q + step * D + at_d).to(tl.float32)
        tl.store(o + step * V + at_v, tl.sum(state * query[None, :], 1).to(tl.float16))


add("recurrence, step by step", recurrence, F16, F16, F16, F16, N, 64, 16, warps=1)


@triton.jit
def convolution(x, w, y, h, width, channels, filters, M: tl.constexpr, BN: tl.constexpr, K: tl.constexpr):
    pixels = tl.program_id(0) * M + tl.arange(0, M)
    column, row = pixels % width, pixels // width % h
    image = pixels // (width * h)
    to = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((M, BN), tl.float32)
    for tap in range(9):
        i, j = row + tap // 3 - 1, column + tap % 3 - 1
        inside = (i >= 0) & (i < h) & (j >= 0) & (j < width)
        for step in range(0, channels, K):
            at = step + tl.arange(0, K)
            base = ((image * h + i) * width + j) * channels
            left = tl.load(x + base[:, None] + at[None, :], mask=inside[:, None], other=0.0)
            right = tl.load(w + (tap * channels + at)[:, None] * filters + to[None, :])
            total += tl.dot(left, right)
    tl.store(y + pixels[:, None] * filters + to[None, :], total.to(tl.float16))


add("convolution, implicit product", convolution, F16, F16, F16, N, N, N, N, 128, 128, 64, warps=8)


@triton.jit
def short_convolution(x, w, y, n, channels, B: tl.constexpr, C: tl.constexpr):
    at = tl.program_id(1) * C + tl.arange(0, C)
    for step in range(0, n, B):
        rows = step + tl.arange(0, B)
        total = tl.zeros((B, C), tl.float32)
        for tap in tl.static_range(4):
            source = rows + tap - 3
            value = tl.load(x + source[:, None] * channels + at[None, :], mask=source[:, None] >= 0, other=0.0)
            total += value * tl.load(w + tap * channels + at)[None, :]
        tl.store(y + rows[:, None] * channels + at[None, :], (total * tl.sigmoid(total)).to(tl.float16))


add("convolution along rows", short_convolution, F16, F16, F16, N, N, 32, 64)


@triton.jit
def pooling(x, y, h, w, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    row, column = at // w, at % w
    best = tl.full((B,), float("-inf"), tl.float32)
    for i in range(3):
        for j in range(3):
            inside = (row + i < h) & (column + j < w)
            best = tl.maximum(best, tl.load(x + (row + i) * w + column + j, mask=inside, other=float("-inf")))
    tl.store(y + at, best)


add("pooling", pooling, F32, F32, N, N, 1024)


@triton.jit
def softmax(x, y, n, B: tl.constexpr):
    x += tl.program_id(0) * n
    y += tl.program_id(0) * n
    best = tl.full((B,), float("-inf"), tl.float32)
    weight = tl.zeros((B,), tl.float32)
    for step in range(0, n, B):
        at = step + tl.arange(0, B)
        value = tl.load(x + at, mask=at < n, other=float("-inf")).to(tl.float32)
        largest = tl.maximum(best, value)
        weight = weight * tl.exp(best - largest) + tl.exp(value - largest)
        best = largest
    top = tl.max(best, 0)
    whole = tl.sum(weight * tl.exp(best - top), 0)
    for step in range(0, n, B):
        at = step + tl.arange(0, B)
        value = tl.load(x + at, mask=at < n, other=float("-inf")).to(tl.float32)
        tl.store(y + at, (tl.exp(value - top) / whole).to(tl.float16), mask=at < n)


add("softmax in two passes", softmax, F16, F16, N, 1024)


@triton.jit
def norm(x, w, y, n, B: tl.constexpr, FORM: tl.constexpr):
    x += tl.program_id(0) * n
    y += tl.program_id(0) * n
    total = tl.zeros((B,), tl.float32)
    squares = tl.zeros((B,), tl.float32)
    for step in range(0, n, B):
        at = step + tl.arange(0, B)
        value = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
        if FORM == "layer":
            total += value
        squares += value * value
    mean = tl.sum(total, 0) / n
    scale = tl.rsqrt(tl.sum(squares, 0) / n - mean * mean + 1e-5)
    for step in range(0, n, B):
        at = step + tl.arange(0, B)
        value = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
        tl.store(y + at, ((value - mean) * scale * tl.load(w + at, mask=at < n)).to(tl.float16), mask=at < n)


add("norm of rows, layer", norm, F16, F16, F16, N, 1024, "layer")
add("norm of rows, root mean square", norm, F16, F16, F16, N, 1024, "rms")


@triton.jit
def group_norm(x, w, y, area, size, B: tl.constexpr):
    x += tl.program_id(0) * size
    y += tl.program_id(0) * size
    total = tl.zeros((B,), tl.float32)
    for step in range(0, size, B):
        at = step + tl.arange(0, B)
        total += tl.load(x + at, mask=at < size, other=0.0)
    mean = tl.sum(total, 0) / size
    for step in range(0, size, B):
        at = step + tl.arange(0, B)
        value = tl.load(x + at, mask=at < size, other=0.0) - mean
        tl.store(y + at, (value * tl.load(w + at // area, mask=at < size)).to(tl.bfloat16), mask=at < size)


add("norm of groups", group_norm, BF16, BF16, BF16, N, N, 2048, warps=8)


@triton.jit
def norm_backward(x, dy, dw, rows, n, B: tl.constexpr, R: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros((R, B), tl.float32)
    for step in range(0, rows, R):
        row = step + tl.arange(0, R)
        where = row[:, None] * n + at[None, :]
        mask = (row[:, None] < rows) & (at[None, :] < n)
        total += tl.load(x + where, mask=mask, other=0.0).to(tl.float32) * tl.load(dy + where, mask=mask, other=0.0)
    tl.store(dw + at, tl.sum(total, 0), mask=at < n)


add("sum of columns", norm_backward, F16, F16, F32, N, N, 128, 32)


@triton.jit
def reduction(x, y, n, B: tl.constexpr, FORM: tl.constexpr):
    x += tl.program_id(0) * n
    best = tl.full((), float("-inf"), tl.float32)
    place = tl.full((), 0, tl.int32)
    total = tl.zeros((), tl.float32)
    for step in range(0, n, B):
        at = step + tl.arange(0, B)
        value = tl.load(x + at, mask=at < n, other=float("-inf"))
        if FORM == "argmax":
            largest, where = tl.max(value, 0, return_indices=True)
            place = tl.where(largest > best, step + where, place)
            best = tl.maximum(best, largest)
        else:
            largest = tl.maximum(best, tl.max(value, 0))
            total = total * tl.exp(best - largest) + tl.sum(tl.exp(value - largest), 0)
            best = largest
    tl.store(y + tl.program_id(0), place if FORM == "argmax" else best + tl.log(total))


add("argmax of rows", reduction, F32, I32, N, 1024, "argmax")
add("logsumexp, reduced each step", reduction, F32, F32, N, 1024, "logsumexp")


@triton.jit
def experts(x, y, n, B: tl.constexpr, T: tl.constexpr):
    rows = tl.program_id(0) * T + tl.arange(0, T)
    at = tl.arange(0, B)
    value = tl.load(x + rows[:, None] * B + at[None, :])
    for choice in range(n):
        best = tl.argmax(value, 1)
        tl.store(y + rows * n + choice, best)
        value = tl.where(at[None, :] == best[:, None], float("-inf"), value)


add("repeated argmax", experts, F32, I32, zg.i32, 64, 16)


@triton.jit
def welford_step(mean_a, m2_a, weight_a, mean_b, m2_b, weight_b):
    delta = mean_b - mean_a
    weight = weight_a + weight_b
    share = tl.where(weight == 0, 0.0, weight_b / weight)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * weight_a * share, weight


@triton.jit
def welford(x, y, n, B: tl.constexpr):
    x += tl.program_id(0) * n
    mean = tl.zeros((B,), tl.float32)
    m2 = tl.zeros((B,), tl.float32)
    weight = tl.zeros((B,), tl.float32)
    for step in range(0, n, B):
        at = step + tl.arange(0, B)
        value = tl.load(x + at, mask=at < n, other=0.0)
        more = tl.where(at < n, 1.0, 0.0)
        mean, m2, weight = welford_step(mean, m2, weight, value, tl.zeros((B,), tl.float32), more)
    mean, m2, weight = tl.reduce((mean, m2, weight), 0, welford_step)
    tl.store(y + tl.program_id(0), m2 / weight)


add("variance by a reduction of three", welford, F32, F32, N, 1024)


@triton.jit
def multiply_add(a, x, b, y):
    return a * b, x * b + y


@triton.jit
def scan(x, g, y, n, B: tl.constexpr, C: tl.constexpr, FORM: tl.constexpr):
    at_c = tl.program_id(0) * C + tl.arange(0, C)
    before = tl.zeros((C,), tl.float32)
    for step in range(0, n, B):
        at = (step + tl.arange(0, B))[:, None] * C + at_c[None, :]
        value = tl.load(x + at)
        if FORM == "sums":
            tl.store(y + at, tl.cumsum(value, 0) + before[None, :])
            before += tl.sum(value, 0)
        else:
            decay, value = tl.associative_scan((tl.load(g + at), value), 0, multiply_add)
            value += decay * before[None, :]
            tl.store(y + at, value)
            before = tl.sum(tl.where(tl.arange(0, B)[:, None] == B - 1, value, 0.0), 0)


add("scan, sums", scan, F32, F32, F32, N, 64, 32, "sums")
add("scan, recurrence", scan, F32, F32, F32, N, 64, 32, "recurrence")


@triton.jit
def row_scan(x, y, n, B: tl.constexpr):
    before = tl.zeros((), tl.float32)
    for step in range(0, n, B):
        at = step + tl.arange(0, B)
        value = tl.load(x + at, mask=at < n, other=0.0)
        tl.store(y + at, tl.cumsum(value, 0) + before, mask=at < n)
        before += tl.sum(value, 0)


add("scan along a row", row_scan, F32, F32, N, 1024)


@triton.jit
def gather(table, index, y, n, width, B: tl.constexpr, FORM: tl.constexpr):
    at = tl.arange(0, B)
    for step in range(n):
        row = tl.load(index + tl.program_id(0) * n + step)
        for start in range(0, width, B):
            value = tl.load(table + row * width + start + at, mask=start + at < width)
            if FORM == "gather":
                tl.store(y + step * width + start + at, value, mask=start + at < width)
            else:
                tl.atomic_add(y + row * width + start + at, value, mask=start + at < width, sem="relaxed")


add("gather of rows", gather, F16, I64, F16, N, N, 512, "gather")
add("scatter by atomics", gather, F32, I64, F32, N, N, 512, "scatter")


@triton.jit
def histogram(x, y, n, B: tl.constexpr, BINS: tl.constexpr):
    total = tl.zeros((BINS,), tl.int32)
    for step in range(0, n, B):
        at = step + tl.arange(0, B)
        total += tl.histogram(tl.load(x + at, mask=at < n, other=0), BINS)
    tl.atomic_add(y + tl.arange(0, BINS), total, sem="relaxed")


add("histogram", histogram, I32, I32, N, 512, 64)


@triton.jit
def search(edges, x, y, n, B: tl.constexpr):
    value = tl.load(x + tl.program_id(0) * B + tl.arange(0, B))
    low = tl.zeros((B,), tl.int32)
    size = n
    while size > 1:
        half = size // 2
        low = tl.where(tl.load(edges + low + half) <= value, low + half, low)
        size -= half
    tl.store(y + tl.program_id(0) * B + tl.arange(0, B), low)


add("binary search", search, F32, F32, I32, N, 512)


@triton.jit
def sort_rows(x, y, rows, B: tl.constexpr):
    for row in range(rows):
        tl.store(y + row * B + tl.arange(0, B), tl.sort(tl.load(x + row * B + tl.arange(0, B))))


add("sort of rows", sort_rows, F32, F32, N, 128, warps=1)


@triton.jit
def quantise(x, y, scales, n, B: tl.constexpr):
    x += tl.program_id(0) * n
    y += tl.program_id(0) * n
    for step in range(0, n, B):
        at = step + tl.arange(0, B)
        value = tl.load(x + at).to(tl.float32)
        scale = tl.maximum(tl.max(tl.abs(value), 0), 1e-10) / 448.0
        tl.store(y + at, (value / scale).to(tl.float8e4nv))
        tl.store(scales + tl.program_id(0) * (n // B) + step // B, scale)


add("quantisation by groups", quantise, BF16, FP8, F32, N, 128, warps=1)


@triton.jit
def rotate(q, cosines, sines, heads, D: tl.constexpr):
    at = tl.arange(0, D // 2)
    cosine = tl.load(cosines + tl.program_id(0) * D + at)
    sine = tl.load(sines + tl.program_id(0) * D + at)
    for head in range(heads):
        where = q + (tl.program_id(0) * heads + head) * D + at
        left, right = tl.load(where), tl.load(where + D // 2)
        tl.store(where, left * cosine - right * sine)
        tl.store(where + D // 2, right * cosine + left * sine)


add("rotary embedding", rotate, BF16, BF16, BF16, N, 128, warps=1)


@triton.jit
def elementwise(x, y, z, n, B: tl.constexpr, FORM: tl.constexpr):
    for step in range(tl.program_id(0) * B, n, tl.num_programs(0) * B):
        at = step + tl.arange(0, B)
        value = tl.load(x + at, mask=at < n)
        if FORM == "dropout":
            value = tl.where(tl.rand(n, at) > 0.5, value * 2.0, 0.0)
        elif FORM == "gelu":
            value = 0.5 * value * (1 + tl.erf(value * 0.7071067811865476))
        else:
            value = value / (1 + tl.exp(-value)) * tl.load(y + at, mask=at < n)
        tl.store(z + at, value, mask=at < n)


for form in ("dropout", "gelu", "swiglu"):
    add(f"elementwise, {form}", elementwise, F32, F32, F32, N, 1024, form)


@triton.jit
def transpose(x, y, m, n, B: tl.constexpr):
    rows = tl.program_id(0) * B + tl.arange(0, B)
    for step in range(0, n, B):
        columns = step + tl.arange(0, B)
        tl.store(y + columns[:, None] * m + rows[None, :], tl.trans(tl.load(x + rows[:, None] * n + columns[None, :])))


add("transposition", transpose, F16, F16, N, N, 64)


@triton.jit
def stencil(x, y, m, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    inside = (at > 0) & (at < n - 1)
    for row in range(1, m - 1):
        where = x + row * n + at
        around = tl.load(where - 1, mask=inside) + tl.load(where + 1, mask=inside)
        around += tl.load(where - n, mask=inside) + tl.load(where + n, mask=inside)
        tl.store(y + row * n + at, 0.25 * around, mask=inside)


add("stencil", stencil, F32, F32, N, N, 512)


@triton.jit
def matrix_vector(a, x, y, k, M: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    total = tl.zeros((M, K), tl.float32)
    for step in range(0, k, K):
        at = step + tl.arange(0, K)
        total += tl.load(a + rows[:, None] * k + at[None, :]) * tl.load(x + at).to(tl.float32)[None, :]
    tl.store(y + rows, tl.sum(total, 1))


add("matrix times vector", matrix_vector, F16, F16, F32, N, 16, 256)


@triton.jit
def correlate(x, y, z, channels, height, width, by_row, by_channel, B: tl.constexpr, C: tl.constexpr):
    """Channels come first in memory, and are added up for each of B rows and columns of a picture and a shifted one."""
    rows, columns = tl.arange(0, B)[:, None, None], tl.program_id(0) * B + tl.arange(0, B)[None, :, None]
    at = rows * by_row + columns
    inside = (columns < width) & (rows < height)
    for shift in range(-3, 4):
        total = tl.zeros((B, B), tl.float32)
        for step in range(0, channels, C):
            channel = (step + tl.arange(0, C))[None, None, :]
            left = tl.load(x + at + channel * by_channel, mask=inside, other=0.0)
            beside = (columns + shift >= 0) & (columns + shift < width) & (rows < height)
            right = tl.load(y + at + shift + channel * by_channel, mask=beside, other=0.0)
            total += tl.sum(left * right, axis=2)
        where = (tl.arange(0, B)[:, None] * 7 + shift + 3) * width + tl.program_id(0) * B + tl.arange(0, B)[None, :]
        tl.store(z + where, total)


add("correlation of channels", correlate, F16, F16, F32, *[N] * 5, 16, 32)


@triton.jit
def dots_of_groups(x, w, y, groups, n, k, B: tl.constexpr, K: tl.constexpr):
    """Each row belongs to a group, and is multiplied by the weights of that group."""
    rows, columns, steps = tl.arange(0, B), tl.arange(0, B), tl.arange(0, K)
    group = tl.load(groups + tl.program_id(0) * B + rows)
    at = (tl.program_id(0) * B + rows)[:, None]
    total = tl.zeros((B, B), tl.float32)
    for number in range(tl.min(group), tl.max(group) + 1):
        inside = (group == number)[:, None]
        for step in range(0, k, K):
            block = tl.load(x + at * k + step + steps[None, :], mask=inside, other=0.0)
            total += tl.dot(block, tl.load(w + (number * k + step + steps[:, None]) * n + columns[None, :]))
    tl.store(y + at * n + columns[None, :], total)


add("dots of each group that a block has", dots_of_groups, F16, F16, F32, I32, N, N, 64, 32)
