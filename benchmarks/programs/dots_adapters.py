"""Products with low-rank adapters (LoRA): down, up, both in one kernel, by segments of a batch, and gradients."""

import torch
import triton
import triton.language as tl


@triton.jit
def lora_fused(
    x_ptr,
    w_ptr,
    a_ptr,
    b_ptr,
    y_ptr,
    M,
    N,
    K,
    stride_xm,
    stride_wk,
    stride_ak,
    stride_br,
    stride_ym,
    scaling,
    R: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """x · w + scaling · (x · a) · b, with x · a in the same loop as x · w."""
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks, rank = tl.arange(0, BLOCK_K), tl.arange(0, R)
    x_ptrs = x_ptr + rows[:, None] * stride_xm + ks[None, :]
    w_ptrs = w_ptr + ks[:, None] * stride_wk + cols[None, :]
    a_ptrs = a_ptr + ks[:, None] * stride_ak + rank[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    low = tl.zeros((BLOCK_M, R), dtype=tl.float32)
    for _ in range(0, tl.cdiv(K, BLOCK_K)):
        x = tl.load(x_ptrs, mask=rows[:, None] < M, other=0.0)
        w = tl.load(w_ptrs)
        a = tl.load(a_ptrs)
        acc = tl.dot(x, w, acc)
        low = tl.dot(x, a, low)
        x_ptrs += BLOCK_K
        w_ptrs += BLOCK_K * stride_wk
        a_ptrs += BLOCK_K * stride_ak
    b = tl.load(b_ptr + rank[:, None] * stride_br + cols[None, :])
    acc += scaling * tl.dot(low.to(b.dtype), b)
    tl.store(y_ptr + rows[:, None] * stride_ym + cols[None, :], acc.to(y_ptr.dtype.element_ty), mask=rows[:, None] < M)


@triton.jit
def lora_shrink(
    X,
    A,
    OUT,
    segments,
    adapters,
    K,
    sx,
    sa,
    sk,
    so,
    BM: tl.constexpr,
    BK: tl.constexpr,
    R: tl.constexpr,
    SPLIT_K: tl.constexpr,
):
    """Rows of segment s times the adapter of s, k divided among programs, with atomic additions."""
    seg, part = tl.program_id(0), tl.program_id(1)
    first, last = tl.load(segments + seg), tl.load(segments + seg + 1)
    which = tl.load(adapters + seg)
    r = tl.arange(0, R)
    for start in range(first, last, BM):
        m = start + tl.arange(0, BM)
        k = part * BK + tl.arange(0, BK)
        acc = tl.zeros((BM, R), tl.float32)
        for k0 in range(0, K, BK * SPLIT_K):
            x = tl.load(
                X + m[:, None] * sx + (k0 + k)[None, :], mask=(m < last)[:, None] & (k0 + k < K)[None, :], other=0
            )
            a = tl.load(A + which * sa + r[None, :] * sk + (k0 + k)[:, None], mask=(k0 + k < K)[:, None], other=0)
            acc += tl.dot(x, a)
        tl.atomic_add(OUT + m[:, None] * so + r[None, :], acc, mask=(m < last)[:, None], sem="relaxed")


@triton.jit
def lora_expand(
    low_ptr,
    b_ptr,
    y_ptr,
    tokens,
    adapters,
    n_cols,
    stride_l,
    stride_b,
    stride_n,
    stride_y,
    R: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """y += low · b of each block's adapter; tokens are sorted by adapter and padded to blocks."""
    block, part = tl.program_id(0), tl.program_id(1)
    adapter = tl.load(adapters + block)
    if adapter < 0:
        return
    token = tl.load(tokens + block * BLOCK_M + tl.arange(0, BLOCK_M))
    cols = part * BLOCK_N + tl.arange(0, BLOCK_N)
    r = tl.arange(0, R)
    low = tl.load(low_ptr + token[:, None] * stride_l + r[None, :], mask=token[:, None] >= 0, other=0.0)
    b = tl.load(
        b_ptr + adapter * stride_b + cols[None, :] * stride_n + r[:, None], mask=cols[None, :] < n_cols, other=0.0
    )
    at = y_ptr + token[:, None] * stride_y + cols[None, :]
    keep = (token[:, None] >= 0) & (cols[None, :] < n_cols)
    y = tl.load(at, mask=keep, other=0.0)
    tl.store(at, y + tl.dot(low.to(b.dtype), b).to(y.dtype), mask=keep)


@triton.jit
def lora_gradient(
    x_ptr,
    dy_ptr,
    b_ptr,
    da_ptr,
    M,
    K,
    N,
    R: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """dA = xᵀ · (dy · bᵀ): an inner loop over the columns of dy for each block of rows."""
    k = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    r = tl.arange(0, R)
    da = tl.zeros((BLOCK_K, R), tl.float32)
    for m0 in range(tl.program_id(1) * BLOCK_M, M, BLOCK_M * tl.num_programs(1)):
        m = m0 + tl.arange(0, BLOCK_M)
        d = tl.zeros((BLOCK_M, R), tl.float32)
        for n0 in range(0, N, BLOCK_N):
            n = n0 + tl.arange(0, BLOCK_N)
            dy = tl.load(dy_ptr + m[:, None] * N + n[None, :])
            b = tl.load(b_ptr + r[:, None] * N + n[None, :])
            d = tl.dot(dy, tl.trans(b), d)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :])
        da = tl.dot(tl.trans(x), d.to(x.dtype), da)
    tl.atomic_add(da_ptr + k[:, None] * R + r[None, :], da)


def main() -> None:
    bf16, dev = torch.bfloat16, "cuda"
    M, N, K = 2048, 4096, 4096
    x, w = torch.empty(M, K, dtype=bf16, device=dev), torch.empty(K, N, dtype=bf16, device=dev)
    y = torch.empty(M, N, dtype=bf16, device=dev)
    forms = [
        (16, 128, 128, 32, 4, 4),
        (16, 64, 128, 64, 4, 3),
        (64, 128, 128, 32, 8, 4),
        (64, 128, 256, 64, 8, 3),
        (64, 64, 64, 128, 4, 3),
        (16, 128, 64, 32, 4, 3),
        (32, 64, 128, 32, 4, 5),
    ]
    for R, BM, BN, BK, warps, stages in forms:
        a, b = torch.empty(K, R, dtype=bf16, device=dev), torch.empty(R, N, dtype=bf16, device=dev)
        lora_fused[(triton.cdiv(M, BM), N // BN)](
            x,
            w,
            a,
            b,
            y,
            M,
            N,
            K,
            x.stride(0),
            w.stride(0),
            a.stride(0),
            b.stride(0),
            y.stride(0),
            2.0,
            R=R,
            BLOCK_M=BM,
            BLOCK_N=BN,
            BLOCK_K=BK,
            num_warps=warps,
            num_stages=stages,
        )
    segments = torch.arange(0, 33 * 64, 64, dtype=torch.int32)
    which = (torch.arange(32, dtype=torch.int32) * 7) % 8
    for R, BM, BK, split, warps, stages in [(16, 16, 128, 8, 4, 3), (64, 32, 64, 4, 4, 4), (16, 64, 256, 4, 8, 2)]:
        a = torch.empty(8, R, K, dtype=bf16, device=dev)
        low = torch.empty(M, R, dtype=torch.float32, device=dev)
        lora_shrink[(32, split)](
            x,
            a,
            low,
            segments,
            which,
            K,
            K,
            R * K,
            K,
            R,
            BM=BM,
            BK=BK,
            R=R,
            SPLIT_K=split,
            num_warps=warps,
            num_stages=stages,
        )
    for R, BM, BN, warps in [(16, 16, 128, 2), (64, 64, 128, 4)]:
        tokens = torch.arange(M, dtype=torch.int32)
        tokens[5::64] = -1
        blocks = (torch.arange(M // BM, dtype=torch.int32) // 4) % 8
        b = torch.empty(8, N, R, dtype=bf16, device=dev)
        low = torch.empty(M, R, dtype=torch.float32, device=dev)
        lora_expand[(M // BM, N // BN)](
            low, b, y, tokens, blocks, N, R, N * R, R, N, R=R, BLOCK_M=BM, BLOCK_N=BN, num_warps=warps
        )
    for R, BK, BM, BN, warps in [(16, 64, 64, 64, 4), (64, 128, 64, 64, 4)]:
        b, da = torch.empty(R, N, dtype=bf16, device=dev), torch.empty(K, R, dtype=torch.float32, device=dev)
        lora_gradient[(K // BK, 8)](
            x, y, b, da, M, K, N, R=R, BLOCK_K=BK, BLOCK_M=BM, BLOCK_N=BN, num_warps=warps, num_stages=3
        )


if __name__ == "__main__":
    main()
