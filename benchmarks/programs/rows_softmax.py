"""Softmax, its losses and their gradients over rows from 64 to 256k numbers."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_online(X, Y, N, BLOCK: tl.constexpr):
    """Two passes over a row: a running maximum and sum, then the quotients."""
    row = tl.program_id(0).to(tl.int64)
    X += row * N
    Y += row * N
    cols = tl.arange(0, BLOCK)
    m = tl.full((BLOCK,), float("-inf"), tl.float32)
    s = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        x = tl.load(X + start + cols, mask=start + cols < N, other=float("-inf")).to(tl.float32)
        m_new = tl.maximum(m, x)
        s = s * tl.where(m == m_new, 1.0, tl.exp(m - m_new)) + tl.where(x == float("-inf"), 0.0, tl.exp(x - m_new))
        m = m_new
    top = tl.max(m, 0)
    total = tl.sum(tl.where(m == float("-inf"), 0.0, s * tl.exp(m - top)), 0)
    inv = 1.0 / total
    for start in range(0, N, BLOCK):
        x = tl.load(X + start + cols, mask=start + cols < N, other=float("-inf")).to(tl.float32)
        tl.store(Y + start + cols, tl.exp(x - top) * inv, mask=start + cols < N)


@triton.jit
def masked_softmax(X, Mask, Y, heads, Q, K: tl.constexpr, scale, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Attention weights of rows of K keys, with a mask of bytes that heads share."""
    b, h = tl.program_id(1), tl.program_id(2)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    ok = (rows < Q)[:, None] & (cols < K)[None, :]
    x = tl.load(X + ((b * heads + h) * Q + rows[:, None]) * K + cols[None, :], mask=ok, other=float("-inf"))
    keep = tl.load(Mask + (b * Q + rows[:, None]) * K + cols[None, :], mask=ok, other=0)
    x = tl.where(keep != 0, x.to(tl.float32) * scale, -10000.0)
    x = tl.where(ok, x, float("-inf"))
    e = tl.exp(x - tl.max(x, 1)[:, None])
    y = e / tl.sum(e, 1)[:, None]
    tl.store(Y + ((b * heads + h) * Q + rows[:, None]) * K + cols[None, :], y.to(tl.float16), mask=ok)


@triton.jit
def log_softmax_bwd(DY, Y, DX, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    total = 0.0
    for start in tl.range(0, N, BLOCK):
        ok = start + cols < N
        total += tl.sum(tl.load(DY + row * N + start + cols, ok, 0.0, eviction_policy="evict_last").to(tl.float32))
    for start in tl.range(0, N, BLOCK):
        ok = start + cols < N
        dy = tl.load(DY + row * N + start + cols, ok, 0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(Y + row * N + start + cols, ok, 0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(DX + row * N + start + cols, dy - tl.exp(y) * total, ok)


@triton.jit
def cross_entropy_chunks(X, Target, Lse, Loss, V, chunks, BLOCK: tl.constexpr, CAP: tl.constexpr):
    """The log-sum-exp of a chunk of the vocabulary, and the target's part of the loss."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    cols = chunk * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + row * V + cols, mask=cols < V, other=-float("inf")).to(tl.float32)
    if CAP > 0.0:
        e = tl.exp(-2.0 * x / CAP)
        x = tl.where(cols < V, CAP * (2.0 / (1.0 + e) - 1.0), -float("inf"))
    top = tl.max(x, 0)
    tl.store(Lse + row * chunks + chunk, top + tl.log(tl.sum(tl.exp(x - top), 0)))
    if chunk == 0:
        target = tl.load(Target + row).to(tl.int32)
        if target != -100:
            tl.store(Loss + row, -tl.load(X + row * V + target).to(tl.float32))


@triton.jit
def cross_entropy_in_place(X, Target, Loss, V, smoothing, scale, BLOCK: tl.constexpr):
    """The loss of a row, and the logits replaced by their gradient."""
    row = tl.program_id(0).to(tl.int64)
    X += row * V
    y = tl.load(Target + row)
    if y == -100:
        for i in range(0, V, BLOCK):
            cols = i + tl.arange(0, BLOCK)
            tl.store(X + cols, 0.0, mask=cols < V)
        return
    m = float("-inf")
    d = 0.0
    ori = tl.load(X + y).to(tl.float32)
    xsum = 0.0
    eps = smoothing / V
    for i in range(0, V, BLOCK):
        cols = i + tl.arange(0, BLOCK)
        x = tl.load(X + cols, mask=cols < V, other=float("-inf")).to(tl.float32)
        top = tl.max(x)
        xsum += tl.sum(tl.where(cols < V, -eps * x, 0.0))
        m_new = tl.maximum(m, top)
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new))
        m = m_new
    lse = m + tl.log(d)
    for i in range(0, V, BLOCK):
        cols = i + tl.arange(0, BLOCK)
        x = tl.load(X + cols, mask=cols < V, other=float("-inf")).to(tl.float32)
        g = tl.exp(x - m) / d - eps
        g = tl.where(cols == y, g - (1 - smoothing), g)
        tl.store(X + cols, g * scale, mask=cols < V)
    tl.debug_barrier()
    tl.store(Loss + row, (lse - ori) * (1 - smoothing) + xsum + smoothing * lse)


@triton.jit
def jsd(P, Q, Loss, DP, beta, V, scale, BLOCK: tl.constexpr):
    """Generalised Jensen-Shannon divergence of two rows of log probabilities, with the gradient of the first."""
    row = tl.program_id(0).to(tl.int64)
    for i in range(0, V, BLOCK):
        cols = i + tl.arange(0, BLOCK)
        ok = cols < V
        x = tl.load(P + row * V + cols, mask=ok, other=-float("inf")).to(tl.float32)
        y = tl.load(Q + row * V + cols, mask=ok, other=-float("inf")).to(tl.float32)
        p, q = tl.exp(x), tl.exp(y)
        mix = beta * q + (1 - beta) * p
        logm = tl.log(mix)
        loss = beta * q * y + (1 - beta) * p * x - mix * logm
        tl.store(Loss + row * V + cols, loss * scale, mask=ok)
        tl.store(DP + row * V + cols, (1 - beta) * p * (x - logm) * scale, mask=ok)


@triton.jit
def kl_rows(P, T, Loss, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for i in range(0, N, BLOCK):
        cols = i + tl.arange(0, BLOCK)[None, :]
        y = tl.load(P + rows * N + cols, mask=cols < N, other=0.0)
        t = tl.load(T + rows * N + cols, mask=cols < N, other=0.0)
        total += t * (tl.log(tl.maximum(t, 1e-10)) - y)
    tl.store(Loss + tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.sum(total, 1))


@triton.jit
def token_log_probs(X, Ids, Out, Ent, V, T, temperature, BLOCK: tl.constexpr):
    """Log probabilities of chosen tokens and entropies, for policies (DPO, GRPO)."""
    row = tl.program_id(0).to(tl.int64)
    b, t = row // T, row % T
    X += (b * (T + 1) + t) * V
    m = -float("inf")
    s = 0.0
    sx = 0.0
    for i in range(0, V, BLOCK):
        cols = i + tl.arange(0, BLOCK)
        x = tl.load(X + cols, mask=cols < V, other=-float("inf")).to(tl.float32) / temperature
        m_new = tl.maximum(m, tl.max(x, 0))
        e = tl.exp(x - m_new)
        a = tl.exp(m - m_new)
        s = s * a + tl.sum(e, 0)
        sx = sx * a + tl.sum(tl.where(cols < V, e * x, 0.0), 0)
        m = m_new
    lse = m + tl.log(s)
    target = tl.load(X + tl.load(Ids + row)).to(tl.float32) / temperature
    tl.store(Out + row, target - lse)
    tl.store(Ent + row, lse - sx / s)


@triton.jit
def dpo_loss(PC, PR, RC, RR, Loss, DC, beta, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = i < n
    z = beta * (
        tl.load(PC + i, ok, 0.0) - tl.load(RC + i, ok, 0.0) - tl.load(PR + i, ok, 0.0) + tl.load(RR + i, ok, 0.0)
    )
    loss = tl.where(z > 0, tl.log(1 + tl.exp(-tl.abs(z))), tl.log(1 + tl.exp(-tl.abs(z))) - z)
    tl.store(DC + i, -beta * tl.sigmoid(-z), ok)
    tl.atomic_add(Loss, tl.sum(tl.where(ok, loss, 0.0)) / n)


@triton.jit
def focal_loss(X, Y, Loss, DX, alpha, gamma, n, BLOCK: tl.constexpr):
    """Sigmoid focal loss of detectors, with its gradient."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = i < n
    x = tl.load(X + i, mask=ok, other=0.0).to(tl.float32)
    y = tl.load(Y + i, mask=ok, other=0) != 0
    p = tl.sigmoid(x)
    pt = tl.where(y, p, 1 - p)
    a = tl.where(y, alpha, 1 - alpha)
    log_pt = tl.log(tl.maximum(pt, 1e-8))
    w = tl.exp(gamma * tl.log(tl.maximum(1 - pt, 1e-8)))
    tl.store(Loss + i, -a * w * log_pt, mask=ok)
    g = a * w * (gamma * pt * log_pt + pt - 1)
    tl.store(DX + i, tl.where(y, g, -g), mask=ok)


@triton.jit
def sinkhorn(A, Out, iterations, eps, ROWS: tl.constexpr, N: tl.constexpr):
    """Matrices of N×N become doubly stochastic, in the log domain."""
    b = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    r, c = tl.arange(0, N), tl.arange(0, N)
    at = b[:, None, None] * N * N + r[None, :, None] * N + c[None, None, :]
    x = tl.load(A + at) / eps
    for _ in range(iterations):
        m = tl.max(x, 2, keep_dims=True)
        x = x - (m + tl.log(tl.sum(tl.exp(x - m), 2, keep_dims=True)))
        m = tl.max(x, 1, keep_dims=True)
        x = x - (m + tl.log(tl.sum(tl.exp(x - m), 1, keep_dims=True)))
    tl.store(Out + at, tl.exp(x))


@triton.jit
def logsumexp_pair(m_a, s_a, m_b, s_b):
    m = tl.maximum(m_a, m_b)
    return m, s_a * tl.exp(m_a - m) + s_b * tl.exp(m_b - m)


@triton.jit
def logsumexp_columns(X, Out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Along the first axis, by a reduction of pairs."""
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.full((BM, BN), -1e30, tl.float32)
    s = tl.zeros((BM, BN), tl.float32)
    for i in range(0, M, BM):
        rows = i + tl.arange(0, BM)
        x = tl.load(X + rows[:, None] * N + cols[None, :], (rows < M)[:, None] & (cols < N)[None, :], -1e30)
        m_new = tl.maximum(m, x.to(tl.float32))
        s = s * tl.exp(m - m_new) + tl.exp(x - m_new)
        m = m_new
    m, s = tl.reduce((m, s), 0, logsumexp_pair)
    tl.store(Out + cols, m + tl.log(s), cols < N)


def main() -> None:
    def array(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="cuda")

    def ids(n: int, below: int) -> torch.Tensor:
        return torch.randint(0, below, (n,), device="cuda")

    f32, bf16 = torch.float32, torch.bfloat16
    for rows, n, block, warps in ((2048, 32000, 2048, 4), (512, 128256, 4096, 8), (256, 256000, 8192, 16)):
        x = array(rows, n, dtype=bf16)
        softmax_online[(rows,)](x, x, n, BLOCK=block, num_warps=warps)
    for q, k, rows, block, warps in ((1024, 1024, 2, 1024, 4), (577, 577, 4, 1024, 8), (128, 128, 16, 128, 2)):
        x = array(8, 16, q, k)
        mask = torch.ones((8, q, k), dtype=torch.int8, device="cuda")
        masked_softmax[(triton.cdiv(q, rows), 8, 16)](x, mask, x, 16, q, k, 0.125, rows, block, num_warps=warps)
    for rows, n, block, warps in ((4096, 50257, 4096, 8), (8192, 10000, 1024, 4)):
        x = array(rows, n, dtype=bf16 if n == 10000 else f32)
        log_softmax_bwd[(rows,)](x, x, x, n, BLOCK=block, num_warps=warps)
    for rows, v, block, cap, warps in (
        (1024, 128256, 65536, 0.0, 32),
        (1024, 256000, 32768, 30.0, 32),
        (4096, 32000, 16384, 0.0, 16),
    ):
        chunks = triton.cdiv(v, block)
        cross_entropy_chunks[(rows, chunks)](
            array(rows, v, dtype=bf16), ids(rows, v), array(rows, chunks, dtype=f32), array(rows, dtype=f32), v, chunks,
            BLOCK=block, CAP=cap, num_warps=warps,
        )  # fmt: skip
    for rows, v, block, warps in ((1024, 128256, 32768, 32), (1024, 128256, 8192, 8), (4096, 32000, 4096, 4)):
        cross_entropy_in_place[(rows,)](
            array(rows, v, dtype=bf16),
            ids(rows, v),
            array(rows, dtype=f32),
            v,
            0.1,
            1 / rows,
            BLOCK=block,
            num_warps=warps,
        )
    for rows, v, block, warps in ((1024, 32000, 8192, 16), (512, 128256, 2048, 4)):
        x = array(rows, v)
        jsd[(rows,)](x, x, array(rows, v, dtype=f32), x, 0.3, v, 1 / rows, block, num_warps=warps)
    for n, rows, block, warps in ((32000, 1, 4096, 8), (1000, 4, 1024, 4)):
        p = array(4096, n, dtype=f32)
        kl_rows[(4096 // rows,)](p, p, array(4096, dtype=f32), n, rows, block, num_warps=warps)
    for v, block, warps in ((151936, 8192, 8), (32064, 2048, 4)):
        token_log_probs[(4 * 256,)](
            array(4, 257, v, dtype=bf16), ids(1024, v), array(1024, dtype=f32), array(1024, dtype=f32), v, 256, 0.9,
            block, num_warps=warps,
        )  # fmt: skip
    n = 1 << 20
    d = [array(n, dtype=f32) for _ in range(5)]
    dpo_loss[(n // 1024,)](*d[:4], array(1, dtype=f32), d[4], 0.1, n, 1024)
    for block, warps in ((1024, 4), (256, 1)):
        n = 90 * 100 * 1000 + 7
        y = torch.ones(n, dtype=torch.int8, device="cuda")
        focal_loss[(triton.cdiv(n, block),)](array(n), y, array(n), array(n), 0.25, 2.0, n, block, num_warps=warps)
    for rows, n, warps in ((1, 32, 1), (16, 4, 1), (8, 8, 4)):
        a = array(65536 * 16 // (n * n), n, n, dtype=f32)
        sinkhorn[(a.shape[0] // rows,)](a, a, 10, 0.05, rows, n, num_warps=warps)
    for m, n, bm, bn, warps in ((4096, 4096, 64, 32, 4), (1000, 30000, 16, 128, 4)):
        logsumexp_columns[(triton.cdiv(n, bn),)](array(m, n), array(n, dtype=f32), m, n, bm, bn, num_warps=warps)


if __name__ == "__main__":
    main()
