"""Kernels with dots: codebooks, contrast, spectra, blocks of images, volumes, buckets of distances."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def nearest_code(X, Codes, Squares, Out, n, K, D: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BN + tl.arange(0, BN)
    d = tl.arange(0, D)
    x = tl.load(X + row[:, None] * D + d[None, :], mask=(row < n)[:, None], other=0.0)
    best = tl.full((BN,), float("inf"), tl.float32)
    place = tl.zeros((BN,), tl.int32)
    for start in range(0, K, BK):
        code = start + tl.arange(0, BK)
        c = tl.load(Codes + code[None, :] * D + d[:, None], mask=(code < K)[None, :], other=0.0)
        square = tl.load(Squares + code, mask=code < K, other=float("inf"))
        distance = square[None, :] - 2.0 * tl.dot(x, c)
        least, where = tl.min(distance, 1, return_indices=True)
        place = tl.where(least < best, start + where, place)
        best = tl.minimum(least, best)
    tl.store(Out + row, place, mask=row < n)


@triton.jit
def info_nce(A, B, Loss, Lse, n, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    a = tl.load(A + row[:, None] * D + d[None, :], mask=(row < n)[:, None], other=0.0)
    most = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    own = tl.zeros((BM,), tl.float32)
    for start in range(0, n, BN):
        column = start + tl.arange(0, BN)
        b = tl.load(B + column[:, None] * D + d[None, :], mask=(column < n)[:, None], other=0.0)
        s = tl.dot(a, tl.trans(b)) * scale
        s = tl.where((column < n)[None, :], s, float("-inf"))
        own += tl.sum(tl.where(row[:, None] == column[None, :], s, 0.0), 1)
        larger = tl.maximum(most, tl.max(s, 1))
        total = total * tl.exp(most - larger) + tl.sum(tl.exp(s - larger[:, None]), 1)
        most = larger
    lse = most + tl.log(total)
    tl.store(Lse + row, lse, mask=row < n)
    tl.store(Loss + row, lse - own, mask=row < n)


@triton.jit
def cross_correlation(A, B, MA, RA, MB, RB, Out, n, D, weight, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    ma, ra = tl.load(MA + i, mask=i < D, other=0.0), tl.load(RA + i, mask=i < D, other=0.0)
    mb, rb = tl.load(MB + j, mask=j < D, other=0.0), tl.load(RB + j, mask=j < D, other=0.0)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, n, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(A + k[:, None] * D + i[None, :], mask=(k < n)[:, None] & (i < D)[None, :], other=0.0)
        b = tl.load(B + k[:, None] * D + j[None, :], mask=(k < n)[:, None] & (j < D)[None, :], other=0.0)
        a = ((a - ma[None, :]) * ra[None, :]).to(tl.bfloat16)
        b = ((b - mb[None, :]) * rb[None, :]).to(tl.bfloat16)
        total += tl.dot(tl.trans(a), b)
    c = total / n
    loss = tl.where(i[:, None] == j[None, :], (c - 1) * (c - 1), weight * c * c)
    tl.atomic_add(Out, tl.sum(tl.sum(loss, 1), 0))


@triton.jit
def mel_frames(
    X, Window, Cos, Sin, Mel, Out, frames, hop,
    SIZE: tl.constexpr, BINS: tl.constexpr, MELS: tl.constexpr, BF: tl.constexpr, BK: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    frame = tl.program_id(0) * BF + tl.arange(0, BF)
    mel = tl.arange(0, MELS)
    out = tl.zeros((BF, MELS), tl.float32)
    for first in range(0, BINS, BB):
        b = first + tl.arange(0, BB)
        real = tl.zeros((BF, BB), tl.float32)
        imaginary = tl.zeros((BF, BB), tl.float32)
        for start in range(0, SIZE, BK):
            k = start + tl.arange(0, BK)
            x = tl.load(X + frame[:, None] * hop + k[None, :], mask=(frame < frames)[:, None], other=0.0)
            x = (x * tl.load(Window + k)[None, :]).to(tl.float16)
            real += tl.dot(x, tl.load(Cos + k[:, None] * BINS + b[None, :]))
            imaginary += tl.dot(x, tl.load(Sin + k[:, None] * BINS + b[None, :]))
        power = (real * real + imaginary * imaginary).to(tl.float16)
        out += tl.dot(power, tl.load(Mel + b[:, None] * MELS + mel[None, :]))
    tl.store(Out + frame[:, None] * MELS + mel[None, :], tl.log(out + 1e-6), mask=(frame < frames)[:, None])


@triton.jit
def cosine_blocks(X, Basis, Table, Y, W, BLOCKS: tl.constexpr):
    by, bx = tl.program_id(1), tl.program_id(0) * BLOCKS
    i = tl.arange(0, 16)
    basis = tl.load(Basis + i[:, None] * 16 + i[None, :])
    table = tl.load(Table + i[:, None] * 16 + i[None, :])
    for block in range(BLOCKS):
        at = (by * 16 + i)[:, None] * W + ((bx + block) * 16 + i)[None, :]
        x = tl.load(X + at).to(tl.float16) - 128.0
        y = tl.dot(tl.dot(basis, x.to(tl.float16)).to(tl.float16), tl.trans(basis))
        y = tl.floor(y / table + 0.5) * table
        z = tl.dot(tl.dot(tl.trans(basis), y.to(tl.float16)).to(tl.float16), basis)
        tl.store(Y + at, tl.minimum(tl.maximum(z + 128.0, 0.0), 255.0).to(tl.uint8))


@triton.jit
def attend_buckets(
    Q,
    K,
    V,
    Bias,
    Out,
    N,
    H,
    BUCKETS: tl.constexpr,
    FAR: tl.constexpr,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    start, head = tl.program_id(0) * BM, tl.program_id(1)
    i, d = start + tl.arange(0, BM), tl.arange(0, D)
    base = head * N * D
    q = tl.load(Q + base + i[:, None] * D + d[None, :])
    most = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    out = tl.zeros((BM, D), tl.float32)
    near: tl.constexpr = BUCKETS // 2
    for first in range(0, start + BM, BN):
        j = first + tl.arange(0, BN)
        k = tl.load(K + base + j[:, None] * D + d[None, :])
        v = tl.load(V + base + j[:, None] * D + d[None, :])
        far = tl.maximum(i[:, None] - j[None, :], 0)
        log = tl.log(tl.maximum(far, 1).to(tl.float32) / near) / tl.log(FAR / near) * near
        bucket = tl.where(far < near, far, tl.minimum(near + log.to(tl.int32), BUCKETS - 1))
        bias = tl.load(Bias + bucket * H + head % H)
        s = tl.dot(q, tl.trans(k)) + bias
        s = tl.where(i[:, None] >= j[None, :], s, float("-inf"))
        larger = tl.maximum(most, tl.max(s, 1))
        p = tl.exp(s - larger[:, None])
        shrink = tl.exp(most - larger)
        total = total * shrink + tl.sum(p, 1)
        out = out * shrink[:, None] + tl.dot(p.to(v.dtype), v)
        most = larger
    tl.store(Out + base + i[:, None] * D + d[None, :], out / total[:, None])


@triton.jit
def up_convolution(
    X, Weights, Y, H, W, CI: tl.constexpr, CO: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr
):
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    x, y, n = p % (2 * W), p // (2 * W) % (2 * H), p // (4 * W * H)
    total = tl.zeros((BP, BC), tl.float32)
    for tap in range(16):
        ky, kx = tap // 4, tap % 4
        sy, sx = y + 1 - ky, x + 1 - kx
        fits = (sy % 2 == 0) & (sx % 2 == 0) & (sy >= 0) & (sx >= 0) & (sy < 2 * H) & (sx < 2 * W)
        source = (n * H + sy // 2) * W + sx // 2
        for start in range(0, CI, BK):
            k = start + tl.arange(0, BK)
            a = tl.load(X + source[:, None] * CI + k[None, :], mask=fits[:, None], other=0.0)
            b = tl.load(Weights + (tap * CI + k)[:, None] * CO + c[None, :])
            total += tl.dot(a, b)
    tl.store(Y + p[:, None] * CO + c[None, :], total)


@triton.jit
def volume_convolution(X, Weights, Y, T, H, W, CI: tl.constexpr, CO: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr):
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    c, k = tl.program_id(1) * BC + tl.arange(0, BC), tl.arange(0, CI)
    x, y, t = p % W, p // W % H, p // (W * H)
    total = tl.zeros((BP, BC), tl.float32)
    for kt in range(3):
        for ky in range(3):
            for kx in range(3):
                tt, yy, xx = t + kt - 2, y + ky - 1, x + kx - 1
                fits = (tt >= 0) & (yy >= 0) & (xx >= 0) & (yy < H) & (xx < W)
                source = (tt * H + yy) * W + xx
                a = tl.load(X + source[:, None] * CI + k[None, :], mask=fits[:, None], other=0.0)
                b = tl.load(Weights + (((kt * 3 + ky) * 3 + kx) * CI + k)[:, None] * CO + c[None, :])
                total = tl.dot(a, b, total)
    tl.store(Y + p[:, None] * CO + c[None, :], total.to(tl.bfloat16), mask=(p < T * H * W)[:, None])


@triton.jit
def small_gauss_jordan(A, Out, batch, N: tl.constexpr):
    matrix = tl.program_id(0)
    i = tl.arange(0, N)
    at = matrix * N * N + i[:, None] * N + i[None, :]
    a = tl.load(A + at)
    inverse = (i[:, None] == i[None, :]).to(tl.float32)
    for k in range(N):
        row = tl.sum(tl.where(i[:, None] == k, a, 0.0), 0)
        column = tl.sum(tl.where(i[None, :] == k, a, 0.0), 1)
        other = tl.sum(tl.where(i[:, None] == k, inverse, 0.0), 0)
        pivot = tl.sum(tl.where(i == k, row, 0.0), 0)
        pivot = tl.where(tl.abs(pivot) < 1e-3, 1.0, pivot)
        factor = tl.where(i == k, pivot - 1.0, column) / pivot
        a -= factor[:, None] * row[None, :]
        inverse -= factor[:, None] * other[None, :]
    tl.store(Out + at, inverse)


@triton.jit
def expert_codes_gradient(X, Place, Sums, Counts, n, K, D: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr):
    code = tl.program_id(0) * BK + tl.arange(0, BK)
    d = tl.arange(0, D)
    sums = tl.zeros((BK, D), tl.float32)
    counts = tl.zeros((BK,), tl.float32)
    for start in range(0, n, BN):
        row = start + tl.arange(0, BN)
        place = tl.load(Place + row, mask=row < n, other=-1)
        x = tl.load(X + row[:, None] * D + d[None, :], mask=(row < n)[:, None], other=0.0)
        same = (code[:, None] == place[None, :]).to(tl.bfloat16)
        sums += tl.dot(same, x)
        counts += tl.sum(same.to(tl.float32), 1)
    tl.store(Sums + code[:, None] * D + d[None, :], sums, mask=(code < K)[:, None])
    tl.store(Counts + code, counts, mask=code < K)


def floats(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="cuda")


def main() -> None:
    f, bf, hf = floats, torch.bfloat16, torch.float16
    for m, n, warps, stages in ((64, 64, 4, 3), (128, 128, 8, 2)):
        for d in (64, 128):
            nearest_code[(16384 // m,)](
                f(16384, d, dtype=bf),
                f(4096, d, dtype=bf),
                f(4096),
                torch.zeros(16384, dtype=torch.int32),
                16384,
                4096,
                D=d,
                BN=m,
                BK=n,
                num_warps=warps,
                num_stages=stages,
            )
        info_nce[(8192 // m,)](
            f(8192, 128, dtype=hf),
            f(8192, 128, dtype=hf),
            f(8192),
            f(8192),
            8192,
            10.0,
            D=128,
            BM=m,
            BN=n,
            num_warps=warps,
            num_stages=stages,
        )
        cross_correlation[(2048 // m, 2048 // n)](
            f(2048, 2048, dtype=bf),
            f(2048, 2048, dtype=bf),
            f(2048),
            f(2048),
            f(2048),
            f(2048),
            f(1),
            2048,
            2048,
            0.005,
            BM=m,
            BN=n,
            BK=32,
            num_warps=warps,
            num_stages=stages,
        )
        attend_buckets[(4096 // m, 16)](
            *(f(16, 4096, 64, dtype=hf) for _ in range(3)),
            f(32, 16),
            f(16, 4096, 64, dtype=hf),
            4096,
            16,
            BUCKETS=32,
            FAR=128,
            D=64,
            BM=m,
            BN=64,
            num_warps=warps,
            num_stages=stages,
        )
        up_convolution[(4 * 4 * 64 * 64 // m, 128 // n if n < 128 else 1)](
            f(4, 64, 64, 256, dtype=bf),
            f(16, 256, 128, dtype=bf),
            f(4, 128, 128, 128, dtype=bf),
            64,
            64,
            CI=256,
            CO=128,
            BP=m,
            BC=n,
            BK=64,
            num_warps=warps,
            num_stages=stages,
        )
        volume_convolution[(8 * 64 * 64 // m, 128 // n)](
            f(8, 64, 64, 64, dtype=bf),
            f(27, 64, 128, dtype=bf),
            f(8, 64, 64, 128, dtype=bf),
            8,
            64,
            64,
            CI=64,
            CO=128,
            BP=m,
            BC=n,
            num_warps=warps,
            num_stages=stages,
        )
        expert_codes_gradient[(4096 // m,)](
            f(8192, 64, dtype=bf),
            torch.randint(0, 4096, (8192,), dtype=torch.int32),
            f(4096, 64),
            f(4096),
            8192,
            4096,
            D=64,
            BK=m,
            BN=n,
            num_warps=warps,
            num_stages=stages,
        )
    for bf_, warps in ((64, 4), (128, 8)):
        mel_frames[(16384 // bf_,)](
            f(16384 * 160 + 512),
            f(512),
            f(512, 256, dtype=hf),
            f(512, 256, dtype=hf),
            f(256, 64, dtype=hf),
            f(16384, 64),
            16384,
            160,
            SIZE=512,
            BINS=256,
            MELS=64,
            BF=bf_,
            BK=64,
            BB=64,
            num_warps=warps,
        )
    for blocks in (4, 16):
        cosine_blocks[(2048 // 16 // blocks, 2048 // 16)](
            torch.randint(0, 255, (2048, 2048), dtype=torch.uint8),
            f(16, 16, dtype=hf),
            f(16, 16),
            torch.randint(0, 255, (2048, 2048), dtype=torch.uint8),
            2048,
            BLOCKS=blocks,
            num_warps=1,
        )
    for n, warps in ((16, 1), (32, 4)):
        small_gauss_jordan[(16384,)](f(16384, n, n), f(16384, n, n), 16384, N=n, num_warps=warps)


if __name__ == "__main__":
    main()
