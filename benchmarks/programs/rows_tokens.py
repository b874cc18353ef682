"""Kernels that move tokens: embeddings, experts, caches of keys, ragged sequences, sampling and order."""

import torch
import triton
import triton.language as tl


@triton.jit
def embedding_fwd(Ids, W, Out, n, D: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ids = tl.load(Ids + r, mask=r < n, other=0)
    ok = (r < n)[:, None] & (c < D)[None, :]
    tl.store(Out + r[:, None] * D + c[None, :], tl.load(W + ids[:, None] * D + c[None, :], mask=ok), mask=ok)


@triton.jit
def embedding_bwd(Ids, DY, DW, n, D: tl.constexpr, BLOCK: tl.constexpr):
    r, c = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    i = tl.load(Ids + r)
    g = tl.load(DY + r * D + c, mask=c < D, other=0.0)
    tl.atomic_add(DW + i * D + c, g.to(tl.float32), mask=c < D, sem="relaxed")


@triton.jit
def embedding_bag(Ids, Offsets, Weights, W, Out, D: tl.constexpr, BLOCK: tl.constexpr):
    bag = tl.program_id(0)
    start, end = tl.load(Offsets + bag), tl.load(Offsets + bag + 1)
    c = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for j in range(start, end):
        row = tl.load(Ids + j)
        w = tl.load(Weights + j)
        acc += w * tl.load(W + row * D + c, mask=c < D, other=0.0).to(tl.float32)
    tl.store(Out + bag * D + c, acc, mask=c < D)


@triton.jit
def jagged_mean(X, Offsets, Out, D, BR: tl.constexpr, BD: tl.constexpr):
    b = tl.program_id(0)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    start, end = tl.load(Offsets + b), tl.load(Offsets + b + 1)
    acc = tl.zeros((BR, BD), tl.float32)
    for r in range(start, end, BR):
        rows = r + tl.arange(0, BR)
        ok = (rows < end)[:, None] & (d < D)[None, :]
        acc += tl.load(X + rows[:, None] * D + d[None, :], mask=ok, other=0.0)
    mean = tl.sum(acc, 0) / tl.maximum(end - start, 1).to(tl.float32)
    tl.store(Out + b * D + d, mean, mask=d < D)


@triton.jit
def jagged_to_padded(X, Offsets, Out, L, D: tl.constexpr, BR: tl.constexpr, BD: tl.constexpr):
    b, first = tl.program_id(0), tl.program_id(1) * BR
    start, end = tl.load(Offsets + b), tl.load(Offsets + b + 1)
    r, d = first + tl.arange(0, BR), tl.arange(0, BD)
    ok = (r < end - start)[:, None] & (d < D)[None, :]
    x = tl.load(X + (start + r)[:, None].to(tl.int64) * D + d[None, :], mask=ok, other=0.0)
    tl.store(Out + (b * L + r)[:, None].to(tl.int64) * D + d[None, :], x, mask=(r < L)[:, None] & (d < D)[None, :])


@triton.jit
def moe_gate(X, W, Idx, tokens, E: tl.constexpr, K: tl.constexpr, BT: tl.constexpr, KP: tl.constexpr):
    """Softmax of experts, K times the largest, and their weights made to sum to one."""
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    e = tl.arange(0, E)
    k = tl.arange(0, KP)
    x = tl.load(X + t[:, None] * E + e[None, :], mask=(t < tokens)[:, None], other=float("-inf")).to(tl.float32)
    x = tl.exp(x - tl.max(x, 1)[:, None])
    p = x / tl.sum(x, 1)[:, None]
    values = tl.zeros((BT, KP), tl.float32)
    places = tl.zeros((BT, KP), tl.int32)
    for j in tl.static_range(K):
        top, at = tl.max(p, 1, return_indices=True)
        values = tl.where(k[None, :] == j, top[:, None], values)
        places = tl.where(k[None, :] == j, at[:, None], places)
        p = tl.where(e[None, :] == at[:, None], -1.0, p)
    values = values / tl.sum(values, 1)[:, None]
    ok = (t < tokens)[:, None] & (k < K)[None, :]
    tl.store(W + t[:, None] * K + k[None, :], values, mask=ok)
    tl.store(Idx + t[:, None] * K + k[None, :], places, mask=ok)


@triton.jit
def grouped_gate(X, Bias, W, Idx, E: tl.constexpr, GROUPS: tl.constexpr, K: tl.constexpr, KEEP: tl.constexpr):
    """Sigmoid scores, the best groups by their two largest, then the largest of those (DeepSeek)."""
    t = tl.program_id(0)
    e = tl.arange(0, E)
    s = tl.sigmoid(tl.load(X + t * E + e).to(tl.float32))
    b = s + tl.load(Bias + e)
    g = tl.reshape(b, (GROUPS, E // GROUPS))
    pair = tl.sum(tl.topk(g, 2), 1)
    ranks = tl.sum((pair[None, :] > pair[:, None]).to(tl.int32), 1)
    g = tl.where((ranks < KEEP)[:, None], g, float("-inf"))
    b = tl.reshape(g, (E,))
    for j in tl.static_range(K):
        at = tl.argmax(b, 0)
        tl.store(Idx + t * K + j, at)
        tl.store(W + t * K + j, tl.sum(tl.where(e == at, s, 0.0), 0))
        b = tl.where(e == at, float("-inf"), b)


@triton.jit
def align_blocks(Counts, Starts, Blocks, E: tl.constexpr, SIZE: tl.constexpr, MAX: tl.constexpr):
    """The first place of each expert's tokens, in whole blocks, and the expert of each block."""
    e = tl.arange(0, E)
    counts = tl.load(Counts + e)
    blocks = (counts + SIZE - 1) // SIZE
    ends = tl.cumsum(blocks, 0)
    tl.store(Starts + e, (ends - blocks) * SIZE)
    b = tl.program_id(0) * MAX + tl.arange(0, MAX)
    tl.store(Blocks + b, tl.sum((ends[None, :] <= b[:, None]).to(tl.int32), 1))


@triton.jit
def count_experts(Idx, Counts, n, E: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(Idx + i, mask=i < n, other=0)
    h = tl.histogram(x, E, mask=i < n)
    tl.atomic_add(Counts + tl.arange(0, E), h)


@triton.jit
def permute_tokens(X, Rows, Out, K: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    """Each token goes to K places."""
    t = tl.program_id(0).to(tl.int64)
    for start in tl.static_range(0, D, BLOCK):
        c = start + tl.max_contiguous(tl.multiple_of(tl.arange(0, BLOCK), 8), 8)
        x = tl.load(X + t * D + c, mask=c < D)
        for k in tl.static_range(K):
            to = tl.load(Rows + t * K + k).to(tl.int64)
            tl.store(Out + to * D + c, x, mask=c < D)


@triton.jit
def unpermute_sum(X, Rows, W, Out, K: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    t = tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for k in range(K):
        row = tl.load(Rows + t * K + k)
        w = tl.load(W + t * K + k)
        acc += w * tl.load(X + row.to(tl.int64) * D + c, mask=c < D, other=0.0).to(tl.float32)
    tl.store(Out + t * D + c, acc.to(Out.dtype.element_ty), mask=c < D)


@triton.jit
def write_paged_kv(
    K, V, KC, VC, Slots, k_stride, D: tl.constexpr, PAGE: tl.constexpr, HEADS: tl.constexpr, X: tl.constexpr
):
    """Keys go to pages as [heads, D / X, PAGE, X], values as [heads, D, PAGE]."""
    t = tl.program_id(0)
    slot = tl.load(Slots + t).to(tl.int64)
    if slot < 0:
        return
    i = tl.arange(0, HEADS * D)
    page, at = slot // PAGE, slot % PAGE
    h, d = i // D, i % D
    key = tl.load(K + t * k_stride + i)
    value = tl.load(V + t * k_stride + i)
    base = page * HEADS * D * PAGE
    tl.store(KC + base + h * D * PAGE + d // X * PAGE * X + at * X + d % X, key)
    tl.store(VC + base + h * D * PAGE + d * PAGE + at, value)


@triton.jit
def rotary_write_kv(Q, K, Cos, Sin, KC, Slots, HQ: tl.constexpr, HK: tl.constexpr, D: tl.constexpr):
    """Rotary embedding of interleaved pairs for queries and keys of a token; keys into flat pages."""
    t = tl.program_id(0)
    p = tl.arange(0, D // 2)
    cos = tl.load(Cos + t * (D // 2) + p)[None, :]
    sin = tl.load(Sin + t * (D // 2) + p)[None, :]
    h = tl.arange(0, HQ)
    at = (t * HQ + h)[:, None] * D + tl.arange(0, D)[None, :]
    q = tl.reshape(tl.load(Q + at).to(tl.float32), (HQ, D // 2, 2))
    a, b = tl.split(q)
    q = tl.reshape(tl.join(a * cos - b * sin, a * sin + b * cos), (HQ, D))
    tl.store(Q + at, q.to(Q.dtype.element_ty))
    h = tl.arange(0, HK)
    at = h[:, None] * D + tl.arange(0, D)[None, :]
    k = tl.reshape(tl.load(K + t * HK * D + at).to(tl.float32), (HK, D // 2, 2))
    a, b = tl.split(k)
    k = tl.reshape(tl.join(a * cos - b * sin, a * sin + b * cos), (HK, D))
    slot = tl.load(Slots + t).to(tl.int64)
    tl.store(KC + slot * HK * D + at, k.to(KC.dtype.element_ty))


@triton.jit
def top_p_sample(P, Out, U, top_p, V, BLOCK: tl.constexpr):
    """The threshold of the smallest set of probabilities that sum to top_p, by halving, then the sample."""
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    p = tl.load(P + row * V + c, mask=c < V, other=0.0)
    p = tl.abs(p)
    p = p / tl.sum(p, 0)
    low, high = 0.0, tl.max(p, 0)
    for _ in range(16):
        mid = (low + high) * 0.5
        share = tl.sum(tl.where(p >= mid, p, 0.0), 0)
        low = tl.where(share >= top_p, mid, low)
        high = tl.where(share >= top_p, high, mid)
    p = tl.where(p >= low, p, 0.0)
    u = tl.load(U + row) * tl.sum(p, 0)
    tl.store(Out + row, tl.sum((tl.cumsum(p, 0) < u).to(tl.int32), 0))


@triton.jit
def gumbel_sample(X, Out, temperature, seed, V, BLOCK: tl.constexpr):
    """The place of the largest of logits with Gumbel noise."""
    row = tl.program_id(0)
    best = tl.full((BLOCK,), -float("inf"), tl.float32)
    where = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, V, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(X + row * V + c, mask=c < V, other=-float("inf")).to(tl.float32)
        u = tl.rand(seed, row * V + c)
        x = x / temperature - tl.log(-tl.log(u + 1e-10) + 1e-10)
        where = tl.where(x > best, c, where)
        best = tl.maximum(best, x)
    _, at = tl.max(best, 0, return_indices=True)
    tl.store(Out + row, tl.sum(tl.where(tl.arange(0, BLOCK) == at, where, 0)))


@triton.jit
def repetition_penalty(X, Ids, Lens, penalty, V, L, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    n = tl.load(Lens + row)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        token = tl.load(Ids + row * L + i, mask=i < n, other=0)
        x = tl.load(X + row * V + token, mask=i < n, other=0.0)
        tl.store(X + row * V + token, tl.where(x > 0, x / penalty, x * penalty), mask=i < n)


@triton.jit
def sort_rows(X, Y, N, BLOCK: tl.constexpr, DOWN: tl.constexpr):
    r, c = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(X + r * N + c, mask=c < N, other=-float("inf") if DOWN else float("inf"))
    tl.store(Y + r * N + c, tl.sort(x, descending=DOWN), mask=c < N)


@triton.jit
def top_k_pairs(X, Values, Places, N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr):
    """The K largest with their places, by keys of 64 bits."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, N)
    x = tl.load(X + r[:, None] * N + c[None, :]).to(tl.float32)
    bits = x.to(tl.int32, bitcast=True)
    key = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    key = (key.to(tl.int64) << 32) | (N - 1 - c).to(tl.int64)[None, :]
    top = tl.topk(key, K)
    places = N - 1 - (top & 0xFFFFFFFF).to(tl.int32)
    key = (top >> 32).to(tl.int32)
    bits = tl.where(key < 0, key ^ 0x7FFFFFFF, key)
    k = tl.arange(0, K)
    tl.store(Values + r[:, None] * K + k[None, :], bits.to(tl.float32, bitcast=True))
    tl.store(Places + r[:, None] * K + k[None, :], places)


@triton.jit
def larger(va, ia, vb, ib):
    first = (va > vb) | ((va == vb) & (ia < ib))
    return tl.where(first, va, vb), tl.where(first, ia, ib)


@triton.jit
def argmax_columns(X, Out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    c = tl.program_id(0) * BN + tl.arange(0, BN)
    best = tl.full((BM, BN), -float("inf"), tl.float32)
    where = tl.zeros((BM, BN), tl.int32)
    for start in range(0, M, BM):
        r = start + tl.arange(0, BM)
        ok = (r < M)[:, None] & (c < N)[None, :]
        x = tl.load(X + r[:, None] * N + c[None, :], mask=ok, other=-float("inf")).to(tl.float32)
        where = tl.where(x > best, r[:, None], where)
        best = tl.maximum(best, x)
    _, at = tl.reduce((best, where), 0, larger)
    tl.store(Out + c, at, mask=c < N)


@triton.jit
def hash_insert(Keys, Table, Slots, n, CAPACITY: tl.constexpr, BLOCK: tl.constexpr):
    """Open addressing with linear probes: a slot for each key by compare and swap; zero is an empty slot."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(Keys + i, mask=i < n, other=0) + 1
    h = (key.to(tl.uint32) * 2654435761) % CAPACITY
    slot = h.to(tl.int32)
    todo = i < n
    remaining = tl.max(todo.to(tl.int32), 0)
    while remaining != 0:
        # A lane that is done looks at its own key's slot again, which changes nothing.
        old = tl.atomic_cas(Table + slot, 0, key, sem="relaxed")
        done = (old == 0) | (old == key)
        todo = todo & ~done
        slot = tl.where(todo, (slot + 1) % CAPACITY, slot)
        remaining = tl.max(todo.to(tl.int32), 0)
    tl.store(Slots + i, slot, mask=i < n)


@triton.jit
def scatter_mean(X, Ids, Sum, Count, n, D: tl.constexpr, ROWS: tl.constexpr):
    """Features of edges added to nodes."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, D)
    ok = r < n
    node = tl.load(Ids + r, mask=ok, other=0)
    x = tl.load(X + r[:, None] * D + d[None, :], mask=ok[:, None], other=0.0)
    tl.atomic_add(Sum + node[:, None] * D + d[None, :], x, mask=ok[:, None], sem="relaxed")
    tl.atomic_add(Count + node, 1.0, mask=ok, sem="relaxed")


@triton.jit
def searchsorted(Edges, X, Out, n, EDGES: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n, other=0.0)
    low = tl.zeros((BLOCK,), tl.int32)
    high = tl.full((BLOCK,), EDGES, tl.int32)
    for _ in range(STEPS):
        mid = (low + high) // 2
        e = tl.load(Edges + mid, mask=mid < EDGES, other=float("inf"))
        right = (low < high) & (e <= x)
        low = tl.where(right, mid + 1, low)
        high = tl.where(right | (low >= high), high, mid)
    tl.store(Out + i, low, mask=i < n)


def main() -> None:
    def array(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="cuda")

    def ids(*shape: int, below: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.randint(0, below, shape, dtype=dtype, device="cuda")

    bf16, f16, i32, i64 = torch.bfloat16, torch.float16, torch.int32, torch.int64
    for dtype, rows, d, block, warps in ((i64, 1, 4096, 1024, 4), (i32, 8, 768, 256, 4), (i64, 16, 128, 128, 2)):
        n = 16384
        embedding_fwd[(n // rows, triton.cdiv(d, block))](
            ids(n, below=32000, dtype=dtype),
            array(32000, d, dtype=bf16),
            array(n, d, dtype=bf16),
            n,
            d,
            rows,
            block,
            num_warps=warps,
        )
    for d, block, warps in ((1024, 1024, 4), (768, 256, 1)):
        embedding_bwd[(16384, triton.cdiv(d, block))](
            ids(16384, below=32000), array(16384, d, dtype=f16), array(32000, d), 16384, d, block, num_warps=warps
        )
    lengths = torch.randint(5, 60, (8000,))
    offsets = torch.cat([torch.zeros(1, dtype=i64), lengths.cumsum(0)]).to(i32)
    total = int(offsets[-1])
    for d, block, warps in ((128, 128, 1), (96, 128, 4)):
        embedding_bag[(8000,)](
            ids(total, below=200000),
            offsets,
            array(total),
            array(200000, d, dtype=f16),
            array(8000, d),
            d,
            block,
            num_warps=warps,
        )
    lengths = torch.randint(0, 900, (512,))
    offsets = torch.cat([torch.zeros(1, dtype=i64), lengths.cumsum(0)]).to(i32)
    total = int(offsets[-1])
    for d, br, bd, warps in ((256, 32, 64, 4), (1000, 8, 128, 4), (64, 64, 64, 2)):
        jagged_mean[(512, triton.cdiv(d, bd))](array(total, d), offsets, array(512, d), d, br, bd, num_warps=warps)
    for d, br, bd, warps in ((256, 32, 256, 4), (80, 64, 128, 8)):
        jagged_to_padded[(512, 1024 // br)](
            array(total, d, dtype=bf16), offsets, array(512, 1024, d, dtype=bf16), 1024, d, br, bd, num_warps=warps
        )
    for e, k, bt, kp, warps in ((256, 8, 4, 8, 4), (64, 6, 16, 8, 4), (128, 4, 1, 4, 1)):
        moe_gate[(32768 // bt,)](
            array(32768, e, dtype=bf16),
            array(32768, k),
            torch.zeros((32768, k), dtype=i32),
            32768,
            e,
            k,
            bt,
            kp,
            num_warps=warps,
        )
    grouped_gate[(16384,)](
        array(16384, 256), array(256), array(16384, 8), torch.zeros((16384, 8), dtype=i32), 256, 8, 8, 4, num_warps=1
    )
    align_blocks[(64,)](ids(256, below=300), torch.zeros(256, dtype=i32), torch.zeros(64 * 64, dtype=i32), 256, 64, 64)
    for block, warps in ((1024, 4), (4096, 8)):
        n = 32768 * 8
        count_experts[(n // block,)](ids(n, below=256), torch.zeros(256, dtype=i32), n, 256, block, num_warps=warps)
    tokens = 2048
    for k, d, block, warps in ((4, 4096, 1024, 4), (2, 7168, 8192, 8)):
        rows = torch.randperm(tokens * k).to(i32)
        permute_tokens[(tokens,)](
            array(tokens, d, dtype=bf16), rows, array(tokens * k, d, dtype=bf16), k, d, block, num_warps=warps
        )
        unpermute_sum[(tokens, triton.cdiv(d, 1024))](
            array(tokens * k, d, dtype=bf16),
            rows,
            array(tokens, k),
            array(tokens, d, dtype=bf16),
            k,
            d,
            1024,
            num_warps=warps,
        )
    slots = torch.randperm(65536)[:8192]
    for heads, d, page, warps in ((8, 128, 16, 4), (4, 64, 64, 2)):
        cache = array(65536, heads, d, dtype=f16)
        k = array(8192, heads, d, dtype=f16)
        write_paged_kv[(8192,)](k, k, cache, cache, slots, heads * d, d, page, heads, 8, num_warps=warps)
    for hq, hk, warps in ((32, 8, 4), (16, 2, 1)):
        table = array(8192, 64)
        rotary_write_kv[(8192,)](
            array(8192, hq, 128, dtype=bf16), array(8192, hk, 128, dtype=bf16), table, table,
            array(65536, hk, 128, dtype=bf16), slots, hq, hk, 128, num_warps=warps,
        )  # fmt: skip
    for v, block, warps in ((32000, 32768, 16), (4000, 4096, 4)):
        top_p_sample[(512,)](array(512, v), torch.zeros(512, dtype=i32), array(512), 0.9, v, block, num_warps=warps)
    for v, block, warps in ((128256, 2048, 8), (32000, 1024, 4)):
        gumbel_sample[(256,)](array(256, v, dtype=bf16), torch.zeros(256, dtype=i32), 0.8, 7, v, block, num_warps=warps)
    repetition_penalty[(64,)](array(64, 128256), ids(64, 100, below=128256), ids(64, below=100), 1.1, 128256, 100, 128)
    for n, block, down, dtype, warps in (
        (1000, 1024, False, torch.float32, 4),
        (256, 256, True, f16, 1),
        (4096, 4096, False, torch.float32, 16),
    ):
        sort_rows[(8192,)](array(8192, n, dtype=dtype), array(8192, n, dtype=dtype), n, block, down, num_warps=warps)
    for n, k, rows, warps in ((512, 8, 2, 4), (2048, 32, 1, 8), (128, 4, 8, 4)):
        top_k_pairs[(8192 // rows,)](
            array(8192, n, dtype=bf16), array(8192, k), torch.zeros((8192, k), dtype=i32), n, k, rows, num_warps=warps
        )
    for m, n, bm, bn, warps in ((2048, 8192, 64, 32, 4), (333, 50000, 8, 128, 4)):
        argmax_columns[(triton.cdiv(n, bn),)](
            array(m, n, dtype=f16), torch.zeros(n, dtype=i32), m, n, bm, bn, num_warps=warps
        )
    for block, warps in ((128, 4), (32, 1)):
        table = torch.zeros(1 << 21, dtype=i32)  # zero: empty
        hash_insert[((1 << 20) // block,)](
            ids(1 << 20, below=1 << 19),
            table,
            torch.zeros(1 << 20, dtype=i32),
            1 << 20,
            1 << 21,
            block,
            num_warps=warps,
        )
    for d, rows, warps in ((64, 16, 4), (128, 4, 2)):
        scatter_mean[((1 << 20) // rows,)](
            array(1 << 20, d),
            ids(1 << 20, below=100000),
            array(100000, d),
            array(100000),
            1 << 20,
            d,
            rows,
            num_warps=warps,
        )
    searchsorted[(1 << 14,)](
        torch.linspace(-1, 1, 4096), array(1 << 24), torch.zeros(1 << 24, dtype=i32), 1 << 24, 4096, 13, 1024
    )


if __name__ == "__main__":
    main()
