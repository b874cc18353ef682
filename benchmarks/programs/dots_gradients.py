"""Attention backward: keys and values by a loop over queries, queries by one over keys, all at once by atomics."""

import torch
import triton
import triton.language as tl


@triton.jit
def gradient_rows(OUT, DO, DELTA, N, D: tl.constexpr, BM: tl.constexpr):
    """The sum of o · do of each row."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    at = (tl.program_id(1) * N + m)[:, None] * D + d[None, :]
    o = tl.load(OUT + at, mask=(m < N)[:, None], other=0.0).to(tl.float32)
    do = tl.load(DO + at, mask=(m < N)[:, None], other=0.0).to(tl.float32)
    tl.store(DELTA + tl.program_id(1) * N + m, tl.sum(o * do, 1), mask=m < N)


@triton.jit
def gradient_keys(
    Q, K, V, DO, DK, DV, LSE, DELTA, scale, N, CAUSAL: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    """dK and dV of a block of keys; scores are transposed."""
    zh = tl.program_id(1).to(tl.int64)
    base = zh * N * D
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    d = tl.arange(0, D)
    k = tl.load(K + base + n[:, None] * D + d[None, :])
    v = tl.load(V + base + n[:, None] * D + d[None, :])
    dk = tl.zeros([BN, D], tl.float32)
    dv = tl.zeros([BN, D], tl.float32)
    begin = tl.program_id(0) * BN // BM * BM if CAUSAL else 0
    for start in range(begin, N, BM):
        m = start + tl.arange(0, BM)
        qt = tl.load(Q + base + m[None, :] * D + d[:, None])
        lse = tl.load(LSE + zh * N + m)
        st = tl.dot(k, qt)
        pt = tl.math.exp2(st * scale - lse[None, :])
        if CAUSAL:
            pt = tl.where(m[None, :] >= n[:, None], pt, 0.0)
        do = tl.load(DO + base + m[:, None] * D + d[None, :])
        dv += tl.dot(pt.to(do.dtype), do)
        delta = tl.load(DELTA + zh * N + m)
        dpt = tl.dot(v, tl.trans(do)).to(tl.float32)
        dst = pt * (dpt - delta[None, :])
        dk += tl.dot(dst.to(qt.dtype), tl.trans(qt))
    tl.store(DV + base + n[:, None] * D + d[None, :], dv.to(DV.dtype.element_ty))
    tl.store(DK + base + n[:, None] * D + d[None, :], (dk * (scale * 0.6931471805599453)).to(DK.dtype.element_ty))


@triton.jit
def gradient_queries(
    Q,
    K,
    V,
    DO,
    DQ,
    LSE,
    DELTA,
    scale,
    N,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    """dQ of a block of queries."""
    block, zh = tl.program_id(0), tl.program_id(1)
    base = zh * N * D
    m = block * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(Q + base + m[:, None] * D + d[None, :], mask=m[:, None] < N, other=0.0)
    do = tl.load(DO + base + m[:, None] * D + d[None, :], mask=m[:, None] < N, other=0.0)
    lse = tl.load(LSE + zh * N + m, mask=m < N, other=0.0)[:, None]
    delta = tl.load(DELTA + zh * N + m, mask=m < N, other=0.0)[:, None]
    dq = tl.zeros([BM, D], tl.float32)
    first = max(0, block * BM - WINDOW) // BN * BN if WINDOW > 0 else 0
    last = min(N, block * BM + BM) if CAUSAL else N
    for start in range(first, last, BN):
        n = start + tl.arange(0, BN)
        at = base + n[None, :] * D + d[:, None]
        kt = tl.load(K + at, mask=n[None, :] < N, other=0.0)
        vt = tl.load(V + at, mask=n[None, :] < N, other=0.0)
        p = tl.exp2(tl.dot(q, kt) * scale - lse)
        keep = n[None, :] < N
        if CAUSAL:
            keep = keep & (m[:, None] >= n[None, :])
        if WINDOW > 0:
            keep = keep & (m[:, None] - n[None, :] < WINDOW)
        p = tl.where(keep, p, 0.0)
        ds = p * (tl.dot(do, vt) - delta)
        dq = tl.dot(ds.to(kt.dtype), tl.trans(kt), dq)
    tl.store(
        DQ + base + m[:, None] * D + d[None, :],
        (dq * (scale * 0.6931471805599453)).to(DQ.dtype.element_ty),
        mask=m[:, None] < N,
    )


@triton.jit
def gradient_all(Q, K, V, DO, DQ, DK, DV, LSE, DELTA, scale, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """dK and dV in registers, dQ by atomics: five dots an iteration."""
    base = tl.program_id(1) * N * D
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    d = tl.arange(0, D)
    k = tl.load(K + base + n[:, None] * D + d[None, :])
    v = tl.load(V + base + n[:, None] * D + d[None, :])
    dk = tl.zeros([BN, D], tl.float32)
    dv = tl.zeros([BN, D], tl.float32)
    for start in range(0, N, BM):
        m = start + tl.arange(0, BM)
        q = tl.load(Q + base + m[:, None] * D + d[None, :])
        do = tl.load(DO + base + m[:, None] * D + d[None, :])
        p = tl.exp2(tl.dot(q, tl.trans(k)) * scale - tl.load(LSE + tl.program_id(1) * N + m)[:, None])
        dv = tl.dot(tl.trans(p.to(do.dtype)), do, dv)
        ds = (p * (tl.dot(do, tl.trans(v)) - tl.load(DELTA + tl.program_id(1) * N + m)[:, None])).to(q.dtype)
        dk = tl.dot(tl.trans(ds), q, dk)
        tl.atomic_add(DQ + base + m[:, None] * D + d[None, :], tl.dot(ds, k), sem="relaxed")
    tl.store(DV + base + n[:, None] * D + d[None, :], dv.to(DV.dtype.element_ty))
    tl.store(DK + base + n[:, None] * D + d[None, :], dk.to(DK.dtype.element_ty))


def main() -> None:
    f16, bf16, f32 = torch.float16, torch.bfloat16, torch.float32
    new = lambda *shape, dtype=f16: torch.empty(*shape, dtype=dtype, device="cuda")  # noqa: E731
    gradient_rows[(16, 32)](new(32, 2048, 64), new(32, 2048, 64), new(32, 2048, dtype=f32), 2048, D=64, BM=128)
    for ZH, N, D, causal, BM, BN, warps, stages, dtype in [
        (32, 2048, 64, True, 64, 128, 4, 3, f16),
        (32, 2048, 128, True, 32, 128, 8, 3, bf16),
        (16, 2048, 128, False, 64, 64, 4, 2, f16),
    ]:
        tensors = [new(ZH, N, D, dtype=dtype) for _ in range(6)]
        gradient_keys[(N // BN, ZH)](
            *tensors,
            new(ZH, N, dtype=f32),
            new(ZH, N, dtype=f32),
            0.18,
            N,
            CAUSAL=causal,
            D=D,
            BM=BM,
            BN=BN,
            num_warps=warps,
            num_stages=stages,
        )
    for ZH, N, D, causal, window, BM, BN, warps, stages in [
        (32, 2048, 64, True, 0, 128, 64, 4, 3),
        (32, 2000, 128, True, 256, 64, 64, 4, 2),
        (64, 512, 64, False, 0, 64, 64, 4, 4),
    ]:
        tensors = [new(ZH, N, D, dtype=bf16) for _ in range(5)]
        gradient_queries[(triton.cdiv(N, BM), ZH)](
            *tensors,
            new(ZH, N, dtype=f32),
            new(ZH, N, dtype=f32),
            0.18,
            N,
            CAUSAL=causal,
            WINDOW=window,
            D=D,
            BM=BM,
            BN=BN,
            num_warps=warps,
            num_stages=stages,
        )
    for ZH, N, D, BM, BN, warps, stages in [(32, 1024, 64, 64, 64, 4, 2), (32, 1024, 32, 64, 128, 8, 2)]:
        tensors = [new(ZH, N, D, dtype=bf16) for _ in range(4)]
        gradient_all[(N // BN, ZH)](
            *tensors,
            new(ZH, N, D, dtype=f32),
            new(ZH, N, D, dtype=bf16),
            new(ZH, N, D, dtype=bf16),
            new(ZH, N, dtype=f32),
            new(ZH, N, dtype=f32),
            0.18,
            N,
            D=D,
            BM=BM,
            BN=BN,
            num_warps=warps,
            num_stages=stages,
        )


if __name__ == "__main__":
    main()
