"""Normalisations and their gradients, as authors of models write them in Triton's Python."""

import torch
import triton
import triton.language as tl


@triton.jit
def layer_norm_fwd(X, Y, W, B, Mean, Rstd, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    X += row * stride
    Y += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / N
    spread = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.0)
        spread += x * x
    rstd = 1 / tl.sqrt(tl.sum(spread, axis=0) / N + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < N
        w = tl.load(W + cols, mask=mask)
        b = tl.load(B + cols, mask=mask)
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(Y + cols, (x - mean) * rstd * w + b, mask=mask)


@triton.jit
def layer_norm_bwd_lock(DX, DY, DW, DB, X, W, Mean, Rstd, Lock, stride, N, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    X += row * stride
    DY += row * stride
    DX += row * stride
    lock_id = row % GROUPS
    Lock += lock_id
    Count = Lock + GROUPS
    DW = DW + lock_id * N + cols
    DB = DB + lock_id * N + cols
    x = tl.load(X + cols, mask=mask, other=0).to(tl.float32)
    dy = tl.load(DY + cols, mask=mask, other=0).to(tl.float32)
    w = tl.load(W + cols, mask=mask).to(tl.float32)
    mean = tl.load(Mean + row)
    rstd = tl.load(Rstd + row)
    xhat = tl.where(mask, (x - mean) * rstd, 0.0)
    wdy = tl.where(mask, w * dy, 0.0)
    c1 = tl.sum(xhat * wdy, axis=0) / N
    c2 = tl.sum(wdy, axis=0) / N
    tl.store(DX + cols, (wdy - (xhat * c1 + c2)) * rstd, mask=mask)
    partial_dw = dy * xhat
    partial_db = dy
    while tl.atomic_cas(Lock, 0, 1) == 1:
        pass
    count = tl.load(Count)
    if count == 0:
        tl.atomic_xchg(Count, 1)
    else:
        partial_dw += tl.load(DW, mask=mask)
        partial_db += tl.load(DB, mask=mask)
    tl.store(DW, partial_dw, mask=mask)
    tl.store(DB, partial_db, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(Lock, 0)


@triton.jit
def sum_columns(Partial, Out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, M, BM):
        rows = start + tl.arange(0, BM)
        mask = (rows[:, None] < M) & (cols[None, :] < N)
        acc += tl.load(Partial + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
    tl.store(Out + cols, tl.sum(acc, axis=0), mask=cols < N)


@triton.jit
def rms_norm_residual(X, R, W, Y, S, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(X + row * N + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
    r = tl.load(R + row * N + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
    s = x + r
    tl.store(S + row * N + cols, s, mask=mask)
    scale = tl.rsqrt(tl.sum(s * s, 0) / N + eps)
    w = tl.load(W + cols, mask=mask, eviction_policy="evict_last").to(tl.float32)
    tl.store(Y + row * N + cols, s * scale * w, mask=mask)


@triton.jit
def rms_norm_bwd_persistent(DY, X, W, Rstd, DX, DW, M, N, rows_per_program, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    w = tl.load(W + cols, mask=mask, other=0.0).to(tl.float32)
    dw = tl.zeros((BLOCK,), tl.float32)
    first = pid * rows_per_program
    last = min(first + rows_per_program, M)
    for row in range(first, last):
        dy = tl.load(DY + row * N + cols, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(X + row * N + cols, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(Rstd + row)
        m = dy * w
        dx = rstd * m
        dx += rstd * (-(1 / N) * rstd * rstd * tl.sum(m * x, axis=0) * x)
        tl.store(DX + row * N + cols, dx, mask=mask)
        dw += dy * (x * rstd)
    tl.store(DW + pid * N + cols, dw, mask=mask)


@triton.jit
def rms_norm_bwd_rows(DY, X, W, Rstd, DX, DW, M, N: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Small rows, several a program, the gradient of the weights by atomics."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.arange(0, BN)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    at = rows[:, None] * N + cols[None, :]
    dy = tl.load(DY + at, mask, 0.0).to(tl.float32)
    x = tl.load(X + at, mask, 0.0).to(tl.float32)
    w = tl.load(W + cols, cols < N, 0.0).to(tl.float32)
    r = tl.load(Rstd + rows, rows < M, 0.0)[:, None]
    xh = x * r
    wdy = dy * w[None, :]
    c = tl.sum(xh * wdy, 1)[:, None] / N
    tl.store(DX + at, (wdy - xh * c) * r, mask)
    tl.atomic_add(DW + cols, tl.sum(dy * xh, 0), cols < N, sem="relaxed")


@triton.jit
def welford(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    delta = mean_b - mean_a
    n = n_a + n_b
    part = tl.where(n == 0.0, 0.0, n_b / n)
    return mean_a + delta * part, m2_a + m2_b + delta * delta * n_a * part, n


@triton.jit
def group_norm_nhwc(X, Y, W, B, HW, C, eps, CG: tl.constexpr, BLOCK_HW: tl.constexpr, BLOCK_C: tl.constexpr):
    n, g = tl.program_id(0), tl.program_id(1)
    c = tl.arange(0, BLOCK_C)
    ok = c < CG
    base = n.to(tl.int64) * HW * C + g * CG
    s = tl.zeros((BLOCK_HW, BLOCK_C), tl.float32)
    ss = tl.zeros((BLOCK_HW, BLOCK_C), tl.float32)
    for start in range(0, HW, BLOCK_HW):
        p = start + tl.arange(0, BLOCK_HW)
        m = (p < HW)[:, None] & ok[None, :]
        x = tl.load(X + base + p[:, None] * C + c[None, :], mask=m, other=0.0).to(tl.float32)
        s += x
        ss += x * x
    count = HW * CG
    mean = tl.sum(s) / count
    rstd = tl.rsqrt(tl.sum(ss) / count - mean * mean + eps)
    w = tl.load(W + g * CG + c, mask=ok).to(tl.float32) * rstd
    b = tl.load(B + g * CG + c, mask=ok).to(tl.float32) - mean * w
    for start in range(0, HW, BLOCK_HW):
        p = start + tl.arange(0, BLOCK_HW)
        m = (p < HW)[:, None] & ok[None, :]
        x = tl.load(X + base + p[:, None] * C + c[None, :], mask=m, other=0.0).to(tl.float32)
        y = x * w[None, :] + b[None, :]
        tl.store(Y + base + p[:, None] * C + c[None, :], y * tl.sigmoid(y), mask=m)


@triton.jit
def batch_norm_stats(X, Mean, Var, N, HW, C, BLOCK: tl.constexpr):
    """Mean and variance of a channel of NCHW by Welford's formula, one program a channel."""
    c = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mean = tl.zeros([BLOCK], tl.float32)
    m2 = tl.zeros([BLOCK], tl.float32)
    count = tl.zeros([BLOCK], tl.float32)
    for n in range(N):
        for start in range(0, HW, BLOCK):
            ok = start + i < HW
            x = tl.load(X + (n * C + c) * HW + start + i, mask=ok, other=0.0).to(tl.float32)
            count = tl.where(ok, count + 1, count)
            d = x - mean
            mean = tl.where(ok, mean + d / count, mean)
            m2 = tl.where(ok, m2 + d * (x - mean), m2)
    mean, m2, count = tl.reduce((mean, m2, count), 0, welford)
    tl.store(Mean + c, mean)
    tl.store(Var + c, m2 / count)


@triton.jit
def instance_norm(X, Y, HW: tl.constexpr, eps, PLANES: tl.constexpr, BLOCK: tl.constexpr):
    planes = tl.program_id(0) * PLANES + tl.arange(0, PLANES)[:, None]
    at = planes * HW + tl.arange(0, BLOCK)[None, :]
    ok = tl.arange(0, BLOCK)[None, :] < HW
    x = tl.load(X + at, mask=ok, other=0).to(tl.float32)
    mean = tl.sum(x, 1, keep_dims=True) / HW
    d = tl.where(ok, x - mean, 0.0)
    var = tl.sum(d * d, 1, keep_dims=True) / HW
    tl.store(Y + at, d / tl.sqrt(var + eps), mask=ok)


@triton.jit
def dyt_bwd(DY, DX, DA, DG, DB, X, Alpha, Gamma, N: tl.constexpr, M, rows_per_program, BLOCK: tl.constexpr):
    """Gradients of gamma * tanh(alpha * x) + beta, a run of rows a program."""
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < N
    start = tl.program_id(1)
    da = 0.0
    dg = tl.zeros((BLOCK,), tl.float32)
    db = tl.zeros((BLOCK,), tl.float32)
    alpha = tl.load(Alpha).to(tl.float32)
    gamma = tl.load(Gamma + cols, mask=mask, other=0).to(tl.float32)
    for row in range(start, M, tl.num_programs(1)):
        x = tl.load(X + row * N + cols, mask=mask, other=0).to(tl.float32)
        dy = tl.load(DY + row * N + cols, mask=mask, other=0).to(tl.float32)
        t = 2 * tl.sigmoid(2 * alpha * x) - 1
        db += dy
        dg += dy * t
        tmp = (1 - t * t) * dy * gamma
        da += tl.sum(x * tmp, 0)
        tl.store(DX + row * N + cols, alpha * tmp, mask=mask)
    tl.store(DG + start * N + cols, dg, mask=mask)
    tl.store(DB + start * N + cols, db, mask=mask)
    tl.store(DA + start * tl.num_programs(0) + tl.program_id(0), da)


@triton.jit
def qk_norm_rotary(Q, Cos, Sin, W, Out, tokens, HEADS: tl.constexpr, D: tl.constexpr, eps, BT: tl.constexpr):
    """RMS norm of each head and a rotary embedding of halves."""
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    h = tl.program_id(1)
    i = tl.arange(0, D // 2)
    ok = (t < tokens)[:, None]
    at = (t[:, None] * HEADS + h) * D + i[None, :]
    a = tl.load(Q + at, mask=ok, other=0.0).to(tl.float32)
    b = tl.load(Q + at + D // 2, mask=ok, other=0.0).to(tl.float32)
    r = tl.rsqrt((tl.sum(a * a, 1) + tl.sum(b * b, 1)) / D + eps)[:, None]
    a = a * r * tl.load(W + i)[None, :]
    b = b * r * tl.load(W + D // 2 + i)[None, :]
    cos = tl.load(Cos + t[:, None] * (D // 2) + i[None, :], mask=ok, other=0.0).to(tl.float32)
    sin = tl.load(Sin + t[:, None] * (D // 2) + i[None, :], mask=ok, other=0.0).to(tl.float32)
    tl.store(Out + at, (a * cos - b * sin).to(Out.dtype.element_ty), mask=ok)
    tl.store(Out + at + D // 2, (b * cos + a * sin).to(Out.dtype.element_ty), mask=ok)


def main() -> None:
    def array(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="cuda")

    f32 = torch.float32
    for rows, n, block, warps in ((8192, 5120, 1024, 4), (4096, 12000, 4096, 8), (16384, 1000, 512, 2)):
        x, w = array(rows, n), array(n)
        layer_norm_fwd[(rows,)](
            x, x, w, w, array(rows, dtype=f32), array(rows, dtype=f32), n, n, 1e-5, BLOCK=block, num_warps=warps
        )
    for rows, n, block, warps in ((4096, 4096, 4096, 8), (8192, 1536, 2048, 4)):
        x, lock = array(rows, n), torch.zeros(2 * 64, dtype=torch.int32, device="cuda")
        stats = array(rows, dtype=f32)
        part = array(64, n, dtype=f32)
        layer_norm_bwd_lock[(rows,)](
            x, x, part, part, x, array(n), stats, stats, lock, n, n, GROUPS=64, BLOCK=block, num_warps=warps
        )
    for m, n, bm, bn, warps in ((64, 4096, 32, 128, 4), (1056, 8192, 64, 32, 8), (132, 3000, 32, 64, 2)):
        sum_columns[(triton.cdiv(n, bn),)](array(m, n, dtype=f32), array(n, dtype=f32), m, n, bm, bn, num_warps=warps)
    for rows, n, block, warps, dtype in (
        (8192, 4096, 4096, 4, torch.bfloat16),
        (8192, 4096, 4096, 16, torch.bfloat16),
        (4096, 7168, 8192, 8, torch.float16),
        (65536, 128, 128, 1, torch.float16),
    ):
        x = array(rows, n, dtype=dtype)
        rms_norm_residual[(rows,)](x, x, array(n, dtype=dtype), x, x, n, 1e-6, BLOCK=block, num_warps=warps)
    for rows, n, block, warps in ((8192, 4096, 4096, 8), (16384, 2048, 2048, 4), (8192, 5120, 8192, 16)):
        x = array(rows, n, dtype=torch.bfloat16)
        programs = 132
        rms_norm_bwd_persistent[(programs,)](
            x, x, array(n, dtype=torch.bfloat16), array(rows, dtype=f32), x, array(programs, n, dtype=f32), rows, n,
            triton.cdiv(rows, programs), BLOCK=block, num_warps=warps,
        )  # fmt: skip
    for rows, n, bm, warps in ((131072, 128, 32, 4), (131072, 96, 16, 4)):
        x = array(rows, n)
        rms_norm_bwd_rows[(triton.cdiv(rows, bm),)](
            x, x, array(n), array(rows, dtype=f32), x, array(n, dtype=f32), rows, n, bm, 128, num_warps=warps
        )
    for c, groups, hw, block_hw, block_c, warps in ((320, 32, 4096, 256, 16, 4), (1280, 32, 1024, 64, 64, 8)):
        x = array(16, hw, c)
        group_norm_nhwc[(16, groups)](
            x, x, array(c), array(c), hw, c, 1e-5, c // groups, block_hw, block_c, num_warps=warps
        )
    batch_norm_stats[(256,)](
        array(32, 256, 56 * 56), array(256, dtype=f32), array(256, dtype=f32), 32, 56 * 56, 256, BLOCK=1024
    )
    batch_norm_stats[(512,)](
        array(64, 512, 196, dtype=f32), array(512, dtype=f32), array(512, dtype=f32), 64, 196, 512, 256, num_warps=2
    )
    for planes, hw, block, warps in ((4, 784, 1024, 4), (1, 4096, 4096, 8)):
        x = array(16384, hw)
        instance_norm[(16384 // planes,)](x, x, hw, 1e-5, planes, block, num_warps=warps)
    for rows, n, block, warps in ((8192, 4096, 2048, 4), (16384, 2048, 1024, 8), (8192, 4096, 4096, 8)):
        x = array(rows, n, dtype=torch.bfloat16)
        blocks, parts = triton.cdiv(n, block), 132
        dyt_bwd[(blocks, parts)](
            x, x, array(parts, blocks, dtype=f32), array(parts, n, dtype=f32), array(parts, n, dtype=f32), x,
            array(1, dtype=f32), array(n, dtype=f32), n, rows, 0, BLOCK=block, num_warps=warps,
        )  # fmt: skip
    for heads, d, bt, warps in ((32, 128, 16, 4), (8, 64, 32, 2)):
        q = array(8192, heads, d, dtype=torch.bfloat16)
        table = array(8192, d // 2, dtype=f32)
        qk_norm_rotary[(8192 // bt, heads)](
            q, table, table, array(d, dtype=f32), q, 8192, heads, d, 1e-6, bt, num_warps=warps
        )


if __name__ == "__main__":
    main()
