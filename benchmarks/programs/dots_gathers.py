"""Convolutions with dots, sparse products by gathers, and operands that other indices choose."""

import torch
import triton
import triton.language as tl


@triton.jit
def conv2d_nhwc(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    N,
    H,
    W,
    C,
    OC,
    OH,
    OW,
    STRIDE: tl.constexpr,
    PAD: tl.constexpr,
    R: tl.constexpr,
    S: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """An implicit product: pixels by (r, s, c), one loop over all."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    img, rest = m // (OH * OW), m % (OH * OW)
    oh, ow = rest // OW, rest % OW
    acc = tl.zeros((BM, BN), tl.float32)
    steps = tl.cdiv(C, BK)
    for i in range(R * S * steps):
        rs, c0 = i // steps, (i % steps) * BK
        ih = oh * STRIDE - PAD + rs // S
        iw = ow * STRIDE - PAD + rs % S
        c = c0 + tl.arange(0, BK)
        inside = (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W) & (img < N)
        x = tl.load(
            x_ptr + ((img * H + ih) * W + iw)[:, None] * C + c[None, :],
            mask=inside[:, None] & (c < C)[None, :],
            other=0.0,
        )
        w = tl.load(
            w_ptr + (rs * C + c)[:, None] * OC + n[None, :], mask=(c < C)[:, None] & (n < OC)[None, :], other=0.0
        )
        acc = tl.dot(x, w, acc)
    acc += tl.load(b_ptr + n, mask=n < OC, other=0.0)[None, :]
    tl.store(
        y_ptr + m[:, None] * OC + n[None, :],
        acc.to(y_ptr.dtype.element_ty),
        mask=(m < N * OH * OW)[:, None] & (n < OC)[None, :],
    )


@triton.jit
def conv2d_nchw(
    x_ptr,
    w_ptr,
    y_ptr,
    H,
    W,
    C: tl.constexpr,
    OC,
    OH,
    OW,
    KS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Channels first: neighbours along the pixels; k is (c, r, s) with a division."""
    img = tl.program_id(2)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    oh, ow = m // OW, m % OW
    acc = tl.zeros((BN, BM), tl.float32)
    for k0 in range(0, C * KS * KS, BK):
        k = k0 + tl.arange(0, BK)
        c, rs = k // (KS * KS), k % (KS * KS)
        ih = oh[None, :] + (rs // KS)[:, None] - KS // 2
        iw = ow[None, :] + (rs % KS)[:, None] - KS // 2
        keep = (k < C * KS * KS)[:, None] & (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W)
        x = tl.load(x_ptr + (img * C + c)[:, None] * H * W + ih * W + iw, mask=keep, other=0.0)
        w = tl.load(
            w_ptr + n[:, None] * (C * KS * KS) + k[None, :],
            mask=(n < OC)[:, None] & (k < C * KS * KS)[None, :],
            other=0.0,
        )
        acc += tl.dot(w, x)
    keep = (n < OC)[:, None] & (m < OH * OW)[None, :]
    tl.store(y_ptr + (img * OC + n)[:, None] * OH * OW + m[None, :], acc.to(y_ptr.dtype.element_ty), mask=keep)


@triton.jit
def conv1d(
    x_ptr,
    w_ptr,
    y_ptr,
    T,
    C,
    OC,
    TAPS: tl.constexpr,
    DILATION: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Causal along time, channels last; a static loop over taps inside that over channels."""
    b = tl.program_id(2)
    t = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for c0 in range(0, C, BK):
        c = c0 + tl.arange(0, BK)
        for tap in tl.static_range(TAPS):
            at = t - (TAPS - 1 - tap) * DILATION
            x = tl.load(
                x_ptr + (b * T + at)[:, None] * C + c[None, :], mask=(at >= 0)[:, None] & (at < T)[:, None], other=0.0
            )
            w = tl.load(w_ptr + (tap * C + c)[:, None] * OC + n[None, :])
            acc = tl.dot(x, w, acc)
    tl.store(y_ptr + (b * T + t)[:, None] * OC + n[None, :], acc.to(y_ptr.dtype.element_ty), mask=(t < T)[:, None])


@triton.jit
def depthwise_pointwise(
    x_ptr, dw_ptr, pw_ptr, y_ptr, T, C, OC, TAPS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """A depthwise convolution along time computes the operand of the product of channels."""
    b = tl.program_id(2)
    t = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for c0 in range(0, C, BK):
        c = c0 + tl.arange(0, BK)
        mixed = tl.zeros((BM, BK), tl.float32)
        for tap in tl.static_range(TAPS):
            at = t + tap - TAPS // 2
            x = tl.load(x_ptr + (b * T + at)[:, None] * C + c[None, :], mask=((at >= 0) & (at < T))[:, None], other=0.0)
            mixed += x.to(tl.float32) * tl.load(dw_ptr + tap * C + c).to(tl.float32)[None, :]
        mixed = mixed * tl.sigmoid(mixed)
        w = tl.load(pw_ptr + c[:, None] * OC + n[None, :])
        acc = tl.dot(mixed.to(w.dtype), w, acc)
    tl.store(y_ptr + (b * T + t)[:, None] * OC + n[None, :], acc.to(y_ptr.dtype.element_ty), mask=(t < T)[:, None])


@triton.jit
def sparse_rows(x_ptr, w_ptr, index_ptr, y_ptr, M, N, KEPT, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """2:4-like: each block of columns keeps KEPT of K rows, by a list; x is gathered along k."""
    pn = tl.program_id(1)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = pn * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, KEPT, BK):
        k = k0 + tl.arange(0, BK)
        at = tl.load(index_ptr + pn * KEPT + k)
        x = tl.load(x_ptr + m[:, None] * K + at[None, :])
        w = tl.load(w_ptr + k[:, None] * N + n[None, :])
        acc = tl.dot(x, w, acc)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc.to(y_ptr.dtype.element_ty))


@triton.jit
def sparse_blocks(values_ptr, starts_ptr, columns_ptr, x_ptr, y_ptr, N, B: tl.constexpr, BN: tl.constexpr):
    """A matrix of dense blocks (BSR) times a dense one."""
    row = tl.program_id(0)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    i = tl.arange(0, B)
    acc = tl.zeros((B, BN), tl.float32)
    for at in range(tl.load(starts_ptr + row), tl.load(starts_ptr + row + 1)):
        column = tl.load(columns_ptr + at)
        block = tl.load(values_ptr + at * B * B + i[:, None] * B + i[None, :])
        x = tl.load(x_ptr + (column * B + i)[:, None] * N + n[None, :])
        acc = tl.dot(block, x, acc)
    tl.store(y_ptr + (row * B + i)[:, None] * N + n[None, :], acc.to(y_ptr.dtype.element_ty))


@triton.jit
def gathered_pairs(
    x_ptr, w_ptr, in_ptr, out_ptr, y_ptr, pairs, CI: tl.constexpr, CO: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr
):
    """Sparse convolution: rows of pairs gathered, multiplied by the matrix of their offset, added by atomics."""
    offset = tl.program_id(1)
    p = tl.program_id(0) * BM + tl.arange(0, BM)
    source = tl.load(in_ptr + offset * pairs + p, mask=p < pairs, other=0)
    target = tl.load(out_ptr + offset * pairs + p, mask=p < pairs, other=0)
    n = tl.arange(0, CO)
    acc = tl.zeros((BM, CO), tl.float32)
    for k0 in range(0, CI, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(x_ptr + source[:, None] * CI + k[None, :], mask=(p < pairs)[:, None], other=0.0)
        w = tl.load(w_ptr + offset * CI * CO + k[:, None] * CO + n[None, :])
        acc = tl.dot(x, w, acc)
    tl.atomic_add(y_ptr + target[:, None] * CO + n[None, :], acc, mask=(p < pairs)[:, None], sem="relaxed")


def main() -> None:
    f16, bf16, f32, i32 = torch.float16, torch.bfloat16, torch.float32, torch.int32
    new = lambda *shape, dtype=f16: torch.empty(*shape, dtype=dtype, device="cuda")  # noqa: E731
    for N, H, C, OC, stride, ks, BM, BN, BK, warps, stages in [
        (16, 56, 64, 64, 1, 3, 128, 64, 64, 4, 3),
        (16, 28, 128, 256, 2, 3, 64, 128, 32, 4, 4),
        (8, 14, 256, 256, 1, 3, 64, 64, 64, 4, 4),
    ]:
        OH = (H + 2 * (ks // 2) - ks) // stride + 1
        conv2d_nhwc[(triton.cdiv(N * OH * OH, BM), triton.cdiv(OC, BN))](
            new(N, H, H, C),
            new(ks, ks, C, OC),
            new(OC),
            new(N, OH, OH, OC),
            N,
            H,
            H,
            C,
            OC,
            OH,
            OH,
            STRIDE=stride,
            PAD=ks // 2,
            R=ks,
            S=ks,
            BM=BM,
            BN=BN,
            BK=BK,
            num_warps=warps,
            num_stages=stages,
        )
    for N, H, C, OC, BM, BN, BK, warps in [(16, 32, 64, 64, 128, 64, 32, 4), (32, 64, 3, 32, 128, 32, 32, 4)]:
        conv2d_nchw[(triton.cdiv(H * H, BM), triton.cdiv(OC, BN), N)](
            new(N, C, H, H),
            new(OC, C, 3, 3),
            new(N, OC, H, H),
            H,
            H,
            C,
            OC,
            H,
            H,
            KS=3,
            BM=BM,
            BN=BN,
            BK=BK,
            num_warps=warps,
            num_stages=3,
        )
    for B, T, C, OC, taps, dilation, BM, BN, BK, warps in [
        (8, 3000, 384, 384, 3, 1, 128, 64, 64, 4),
        (4, 4096, 256, 256, 4, 2, 64, 64, 32, 4),
    ]:
        conv1d[(triton.cdiv(T, BM), OC // BN, B)](
            new(B, T, C),
            new(taps, C, OC),
            new(B, T, OC),
            T,
            C,
            OC,
            TAPS=taps,
            DILATION=dilation,
            BM=BM,
            BN=BN,
            BK=BK,
            num_warps=warps,
            num_stages=3,
        )
    for B, T, C, OC, BM, BN, BK, warps in [(8, 2048, 512, 512, 64, 128, 32, 4)]:
        depthwise_pointwise[(triton.cdiv(T, BM), OC // BN, B)](
            new(B, T, C, dtype=bf16),
            new(5, C, dtype=bf16),
            new(C, OC, dtype=bf16),
            new(B, T, OC, dtype=bf16),
            T,
            C,
            OC,
            TAPS=5,
            BM=BM,
            BN=BN,
            BK=BK,
            num_warps=warps,
            num_stages=3,
        )
    for M, N, K, BM, BN, BK, warps in [(1024, 4096, 4096, 64, 128, 64, 4), (64, 4096, 4096, 32, 64, 64, 4)]:
        rows = K // 2
        index = torch.stack([(torch.arange(rows) * 2 + (torch.arange(rows) + i) % 2) for i in range(N // BN)]).to(i32)
        sparse_rows[(M // BM, N // BN)](
            new(M, K, dtype=bf16),
            new(rows, N, dtype=bf16),
            index,
            new(M, N, dtype=bf16),
            M,
            N,
            rows,
            K,
            BM=BM,
            BN=BN,
            BK=BK,
            num_warps=warps,
            num_stages=3,
        )
    for rows, B, N, BN, warps, stages in [(128, 32, 2048, 128, 4, 4), (64, 64, 4096, 128, 4, 3)]:
        each = [[(i * 7 + j * 5) % rows for j in range(4 + i % 9)] for i in range(rows)]
        starts = torch.tensor([0, *torch.tensor([len(row) for row in each]).cumsum(0).tolist()], dtype=i32)
        columns = torch.tensor([column for row in each for column in row], dtype=i32)
        sparse_blocks[(rows, N // BN)](
            new(len(columns), B, B),
            starts,
            columns,
            new(rows * B, N),
            new(rows * B, N),
            N,
            B=B,
            BN=BN,
            num_warps=warps,
            num_stages=stages,
        )
    for voxels, pairs, CI, CO, BM, BK, warps in [(20000, 8000, 64, 64, 64, 32, 4), (20000, 8000, 128, 128, 128, 64, 8)]:
        gathers = [(torch.arange(27 * pairs, dtype=i32) * step) % voxels for step in (7, 11)]
        gathered_pairs[(triton.cdiv(pairs, BM), 27)](
            new(voxels, CI),
            new(27, CI, CO),
            *gathers,
            new(voxels, CO, dtype=f32),
            pairs,
            CI=CI,
            CO=CO,
            BM=BM,
            BK=BK,
            num_warps=warps,
            num_stages=3,
        )


if __name__ == "__main__":
    main()
