"""Permutations, copies, images and stencils: memory's order decides."""

import torch
import triton
import triton.language as tl


@triton.jit
def transpose_2d(X, Y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    x = tl.load(X + m[:, None] * N + n[None, :], mask=(m < M)[:, None] & (n < N)[None, :])
    tl.store(Y + n[:, None] * M + m[None, :], tl.trans(x), mask=(n < N)[:, None] & (m < M)[None, :])


@triton.jit
def transpose_by_pointers(X, Y, M, N, stride_m, stride_n, BM: tl.constexpr, BN: tl.constexpr):
    """The same without tl.trans: loads along rows, stores along columns."""
    pid = tl.program_id(0)
    blocks = tl.cdiv(N, BN)
    m = (pid // blocks) * BM + tl.arange(0, BM)[:, None]
    n = (pid % blocks) * BN + tl.arange(0, BN)[None, :]
    ok = (m < M) & (n < N)
    x = tl.load(X + m * stride_m + n * stride_n, ok)
    tl.store(Y + n * M + m, x, ok)


@triton.jit
def permute_0213(X, Y, S, H: tl.constexpr, D: tl.constexpr, BS: tl.constexpr):
    """[batch, tokens, heads, D] to [batch, heads, tokens, D], a 3D block."""
    b = tl.program_id(1)
    s = tl.program_id(0) * BS + tl.arange(0, BS)[:, None, None]
    h = tl.arange(0, H)[None, :, None]
    d = tl.arange(0, D)[None, None, :]
    x = tl.load(X + ((b * S + s) * H + h) * D + d, mask=s < S)
    tl.store(Y + ((b * H + h) * S + s) * D + d, x, mask=s < S)


@triton.jit
def permute_any(X, Y, n, d1, d2, d3, s0, s1, s2, s3, BLOCK: tl.constexpr):
    """Any order of four axes, by division of the flat place."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = i < n
    i3 = i % d3
    r = i // d3
    i2 = r % d2
    r = r // d2
    i1 = r % d1
    i0 = r // d1
    tl.store(Y + i, tl.load(X + i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3, ok), ok)


@triton.jit
def nchw_to_nhwc(X, Y, C, HW, BC: tl.constexpr, BP: tl.constexpr):
    b = tl.program_id(2).to(tl.int64)
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    ok = (c < C)[:, None] & (p < HW)[None, :]
    x = tl.load(X + (b * C + c[:, None]) * HW + p[None, :], mask=ok, cache_modifier=".cg")
    tl.store(Y + (b * HW + p[None, :]) * C + c[:, None], x, mask=ok)


@triton.jit
def copy_strided(X, Y, rows, cols, xs, ys, BLOCK: tl.constexpr):
    """Rows of a ragged stride into rows of another."""
    r = tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + r.to(tl.int64) * ys + c, tl.load(X + r.to(tl.int64) * xs + c, mask=c < cols), mask=c < cols)


@triton.jit
def concat_split(A, B, Out, n, DA: tl.constexpr, DB: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, col = i // (DA + DB), i % (DA + DB)
    ok = i < n
    a = tl.load(A + row * DA + col, mask=ok & (col < DA), other=0.0)
    b = tl.load(B + row * DB + (col - DA), mask=ok & (col >= DA), other=0.0)
    tl.store(Out + i, tl.where(col < DA, a, b), mask=ok)


@triton.jit
def max_pool(X, Y, Idx, H, W, OH, OW, K: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr):
    plane = tl.program_id(1)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    oy, ox = i // OW, i % OW
    ok = i < OH * OW
    best = tl.full((BLOCK,), -float("inf"), tl.float32)
    where = tl.zeros((BLOCK,), tl.int32)
    for ky in tl.static_range(K):
        for kx in tl.static_range(K):
            y, x = oy * STRIDE - PAD + ky, ox * STRIDE - PAD + kx
            inside = ok & (y >= 0) & (y < H) & (x >= 0) & (x < W)
            v = tl.load(X + plane * H * W + y * W + x, mask=inside, other=-float("inf")).to(tl.float32)
            where = tl.where(v > best, y * W + x, where)
            best = tl.maximum(best, v)
    tl.store(Y + plane * OH * OW + i, best, mask=ok)
    tl.store(Idx + plane * OH * OW + i, where, mask=ok)


@triton.jit
def avg_pool_nhwc(X, Y, H, W, OH, OW, C: tl.constexpr, K: tl.constexpr, BC: tl.constexpr, BW: tl.constexpr):
    b, oy = tl.program_id(1) // OH, tl.program_id(1) % OH
    ox = tl.program_id(0) * BW + tl.arange(0, BW)
    c = tl.program_id(2) * BC + tl.arange(0, BC)
    acc = tl.zeros((BW, BC), tl.float32)
    for ky in range(K):
        for kx in range(K):
            at = ((b * H + oy * K + ky) * W + ox * K + kx)[:, None] * C + c[None, :]
            acc += tl.load(X + at, mask=(ox < OW)[:, None] & (c < C)[None, :], other=0.0).to(tl.float32)
    out = ((b * OH + oy) * OW + ox)[:, None] * C + c[None, :]
    tl.store(Y + out, acc / (K * K), mask=(ox < OW)[:, None] & (c < C)[None, :])


@triton.jit
def bilinear(X, Y, H, W, OH, OW, sy, sx, BLOCK: tl.constexpr):
    plane = tl.program_id(1)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = i < OH * OW
    oy, ox = i // OW, i % OW
    fy = tl.maximum((oy.to(tl.float32) + 0.5) * sy - 0.5, 0.0)
    fx = tl.maximum((ox.to(tl.float32) + 0.5) * sx - 0.5, 0.0)
    y0, x0 = fy.to(tl.int32), fx.to(tl.int32)
    y1, x1 = tl.minimum(y0 + 1, H - 1), tl.minimum(x0 + 1, W - 1)
    wy, wx = fy - y0, fx - x0
    X += plane * H * W
    a = tl.load(X + y0 * W + x0, ok).to(tl.float32)
    b = tl.load(X + y0 * W + x1, ok).to(tl.float32)
    c = tl.load(X + y1 * W + x0, ok).to(tl.float32)
    d = tl.load(X + y1 * W + x1, ok).to(tl.float32)
    top, low = a + (b - a) * wx, c + (d - c) * wx
    tl.store(Y + plane * OH * OW + i, top + (low - top) * wy, ok)


@triton.jit
def grid_sample_nhwc(X, Grid, Y, H, W, points, C: tl.constexpr, BP: tl.constexpr):
    """Features at points between pixels, channels last, zero outside (deformable attention)."""
    b = tl.program_id(1)
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    c = tl.arange(0, C)
    ok = p < points
    gx = (tl.load(Grid + (b * points + p) * 2, mask=ok, other=0.0) + 1) * 0.5 * W - 0.5
    gy = (tl.load(Grid + (b * points + p) * 2 + 1, mask=ok, other=0.0) + 1) * 0.5 * H - 0.5
    x0, y0 = tl.floor(gx), tl.floor(gy)
    acc = tl.zeros((BP, C), tl.float32)
    for dy in tl.static_range(2):
        for dx in tl.static_range(2):
            x, y = x0 + dx, y0 + dy
            w = (1 - tl.abs(gx - x)) * (1 - tl.abs(gy - y))
            inside = ok & (x >= 0) & (x < W) & (y >= 0) & (y < H)
            at = ((b * H + y.to(tl.int32)) * W + x.to(tl.int32)) * C
            acc += w[:, None] * tl.load(X + at[:, None] + c[None, :], mask=inside[:, None], other=0.0)
    tl.store(Y + (b * points + p)[:, None] * C + c[None, :], acc, mask=ok[:, None])


@triton.jit
def heat_step(X, Y, H, W, k, BH: tl.constexpr, BW: tl.constexpr):
    y = tl.program_id(0) * BH + tl.arange(0, BH)[:, None]
    x = tl.program_id(1) * BW + tl.arange(0, BW)[None, :]
    ok = (y < H) & (x < W)
    at = X + y * W + x
    c = tl.load(at, mask=ok, other=0.0)
    n = tl.load(at - W, mask=ok & (y > 0), other=0.0)
    s = tl.load(at + W, mask=ok & (y < H - 1), other=0.0)
    w = tl.load(at - 1, mask=ok & (x > 0), other=0.0)
    e = tl.load(at + 1, mask=ok & (x < W - 1), other=0.0)
    tl.store(Y + y * W + x, c + k * (n + s + w + e - 4 * c), mask=ok)


@triton.jit
def stencil_3d(X, Y, NX: tl.constexpr, NY: tl.constexpr, NZ, BLOCK: tl.constexpr):
    """Seven points, in a loop along z that keeps two planes in registers."""
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.program_id(1)
    ok = (x > 0) & (x < NX - 1)
    base = y * NX + x
    below = tl.load(X + base, mask=x < NX, other=0.0)
    here = tl.load(X + NX * NY + base, mask=x < NX, other=0.0)
    inner = (y > 0) & (y < NY - 1)
    for z in range(1, NZ - 1):
        at = z * NX * NY + base
        above = tl.load(X + at + NX * NY, mask=x < NX, other=0.0)
        if inner:
            total = below + above - 6.0 * here
            total += tl.load(X + at - 1, mask=ok, other=0.0) + tl.load(X + at + 1, mask=ok, other=0.0)
            total += tl.load(X + at - NX, mask=ok, other=0.0) + tl.load(X + at + NX, mask=ok, other=0.0)
            tl.store(Y + at, here + 0.1 * total, mask=ok)
        below = here
        here = above


@triton.jit
def depthwise_conv(
    X, F, Y, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, K: tl.constexpr, BW: tl.constexpr, BC: tl.constexpr
):
    """K×K filters of each channel, channels last."""
    b, y = tl.program_id(0) // H, tl.program_id(0) % H
    x = tl.program_id(1) * BW + tl.arange(0, BW)
    c = tl.program_id(2) * BC + tl.arange(0, BC)
    acc = tl.zeros((BW, BC), tl.float32)
    for ky in tl.static_range(K):
        for kx in tl.static_range(K):
            yy, xx = y + ky - K // 2, x + kx - K // 2
            ok = ((yy >= 0) & (yy < H) & (xx >= 0) & (xx < W))[:, None] & (c < C)[None, :]
            v = tl.load(X + ((b * H + yy) * W + xx)[:, None] * C + c[None, :], mask=ok, other=0.0)
            f = tl.load(F + (ky * K + kx) * C + c, mask=c < C, other=0.0)
            acc += v.to(tl.float32) * f.to(tl.float32)[None, :]
    at = ((b * H + y) * W + x)[:, None] * C + c[None, :]
    tl.store(Y + at, acc.to(tl.float16), mask=(x < W)[:, None] & (c < C)[None, :])


@triton.jit
def causal_conv1d(X, F, Bias, Y, T, C, K: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr):
    """A filter of K steps for each channel, then silu (Mamba, RWKV)."""
    b = tl.program_id(2)
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    acc = tl.zeros((BT, BC), tl.float32) + tl.load(Bias + c).to(tl.float32)[None, :]
    for k in tl.static_range(K):
        s = t - (K - 1 - k)
        x = tl.load(X + (b * T + s)[:, None] * C + c[None, :], mask=((s >= 0) & (s < T))[:, None], other=0.0)
        acc += x.to(tl.float32) * tl.load(F + c * K + k).to(tl.float32)[None, :]
    y = acc * tl.sigmoid(acc)
    tl.store(Y + (b * T + t)[:, None] * C + c[None, :], y.to(Y.dtype.element_ty), mask=(t < T)[:, None])


@triton.jit
def im2col(
    X, Out, H, W, C: tl.constexpr, OH, OW, K: tl.constexpr, STRIDE: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr
):
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    q = tl.program_id(1) * BK + tl.arange(0, BK)
    b, oy, ox = p // (OH * OW), (p // OW) % OH, p % OW
    c, ky, kx = q % C, q // C // K, q // C % K
    y = oy[:, None] * STRIDE + ky[None, :] - 1
    x = ox[:, None] * STRIDE + kx[None, :] - 1
    ok = (y >= 0) & (y < H) & (x >= 0) & (x < W) & (q < K * K * C)[None, :]
    v = tl.load(X + ((b[:, None] * H + y) * W + x) * C + c[None, :], mask=ok, other=0.0)
    tl.store(Out + p[:, None] * (K * K * C) + q[None, :], v, mask=(q < K * K * C)[None, :])


@triton.jit
def yuv_to_rgb(Yp, UV, Out, W, H, BLOCK: tl.constexpr):
    """NV12 bytes to planes of f16."""
    row = tl.program_id(1)
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = x < W
    luma = tl.load(Yp + row * W + x, mask=ok, other=16).to(tl.float32) - 16.0
    base = (row // 2) * W + x // 2 * 2
    u = tl.load(UV + base, mask=ok, other=128).to(tl.float32) - 128.0
    v = tl.load(UV + base + 1, mask=ok, other=128).to(tl.float32) - 128.0
    r = tl.clamp(1.164 * luma + 1.793 * v, 0.0, 255.0) / 255.0
    g = tl.clamp(1.164 * luma - 0.213 * u - 0.533 * v, 0.0, 255.0) / 255.0
    b = tl.clamp(1.164 * luma + 2.112 * u, 0.0, 255.0) / 255.0
    at = Out + row * W + x
    tl.store(at, r.to(tl.float16), mask=ok)
    tl.store(at + H * W, g.to(tl.float16), mask=ok)
    tl.store(at + 2 * H * W, b.to(tl.float16), mask=ok)


@triton.jit
def histogram_image(X, Out, n, BINS: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    h = tl.zeros((BINS,), tl.int32)
    for p in range(PARTS):
        i = (tl.program_id(0) * PARTS + p) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(X + i, mask=i < n, other=0)
        h += tl.histogram(x.to(tl.int32), BINS, mask=i < n)
    tl.atomic_add(Out + tl.arange(0, BINS), h, sem="relaxed")


def main() -> None:
    def array(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="cuda")

    f32, bf16, u8 = torch.float32, torch.bfloat16, torch.uint8
    for m, n, bm, bn, dtype, warps in (
        (8192, 8192, 64, 64, torch.float16, 4),
        (5000, 3001, 32, 128, f32, 8),
        (8192, 4096, 128, 128, u8, 8),
    ):
        x = torch.zeros((m, n), dtype=dtype, device="cuda")
        transpose_2d[(triton.cdiv(m, bm), triton.cdiv(n, bn))](x, x, m, n, bm, bn, num_warps=warps)
    for m, n, bm, bn, dtype, warps in ((8192, 8192, 32, 32, f32, 4), (4096, 12288, 64, 128, torch.float16, 4)):
        x = array(m, n, dtype=dtype)
        transpose_by_pointers[(m // bm * (n // bn),)](x, x, m, n, n, 1, bm, bn, num_warps=warps)
    for h, d, bs, warps in ((32, 128, 2, 8), (16, 64, 8, 4)):
        x = array(4, 4096, h, d, dtype=bf16)
        permute_0213[(4096 // bs, 4)](x, x, 4096, h, d, bs, num_warps=warps)
    x = array(8, 1024, 16, 128)
    permute_any[(x.numel() // 1024,)](x, x, x.numel(), 16, 1024, 128, 1024 * 2048, 128, 2048, 1, 1024)
    permute_any[(x.numel() // 256,)](x, x, x.numel(), 128, 16, 1024, 1024 * 2048, 1, 128, 2048, 256, num_warps=2)
    for c, hw, bc, bp, warps in ((256, 3136, 64, 64, 4), (3, 224 * 224, 4, 1024, 4)):
        x = array(32, c, hw)
        nchw_to_nhwc[(triton.cdiv(c, bc), triton.cdiv(hw, bp), 32)](x, x, c, hw, bc, bp, num_warps=warps)
    for cols, xs, ys, block, dtype in (
        (4095, 4099, 4097, 1024, torch.float16),
        (1000, 1007, 1000, 1024, f32),
        (12000, 12001, 12003, 2048, u8),
    ):
        x = torch.zeros((8192, xs), dtype=dtype, device="cuda")
        copy_strided[(8192, triton.cdiv(cols, block))](
            x, torch.zeros((8192, ys), dtype=dtype), 8192, cols, xs, ys, block
        )
    for da, db, block, warps in ((128, 64, 1024, 4), (100, 28, 512, 2)):
        n = 262144 * (da + db)
        concat_split[(triton.cdiv(n, block),)](
            array(262144, da, dtype=bf16),
            array(262144, db, dtype=bf16),
            array(n, dtype=bf16),
            n,
            da,
            db,
            block,
            num_warps=warps,
        )
    for k, stride, pad, size, dtype, block, warps in (
        (3, 2, 1, 112, torch.float16, 1024, 4),
        (2, 2, 0, 56, f32, 256, 4),
    ):
        out = (size + 2 * pad - k) // stride + 1
        planes = 64 * 64
        index = torch.zeros((planes, out * out), dtype=torch.int32, device="cuda")
        max_pool[(triton.cdiv(out * out, block), planes)](
            array(planes, size * size, dtype=dtype), array(planes, out * out, dtype=dtype), index, size, size, out, out,
            k, stride, pad, block, num_warps=warps,
        )  # fmt: skip
    avg_pool_nhwc[(4, 32 * 28, 4)](
        array(32, 56, 56, 256), array(32, 28, 28, 256), 56, 56, 28, 28, 256, 2, 64, 8, num_warps=4
    )
    avg_pool_nhwc[(1, 32 * 7, 16)](
        array(32, 56, 56, 1024), array(32, 7, 7, 1024), 56, 56, 7, 7, 1024, 8, 64, 8, num_warps=2
    )
    for size, out, dtype, block in ((64, 128, torch.float16, 1024), (100, 333, f32, 512)):
        bilinear[(triton.cdiv(out * out, block), 512)](
            array(512, size, size, dtype=dtype),
            array(512, out, out, dtype=dtype),
            size,
            size,
            out,
            out,
            size / out,
            size / out,
            block,
        )
    for c, bp, warps in ((32, 32, 4), (128, 8, 4)):
        grid_sample_nhwc[(20000 // bp, 8)](
            array(8, 100, 100, c, dtype=f32),
            array(8, 20000, 2, dtype=f32),
            array(8, 20000, c, dtype=f32),
            100,
            100,
            20000,
            c,
            bp,
            num_warps=warps,
        )
    for h, w, bh, bw, warps in ((8192, 8192, 8, 128, 4), (4000, 5001, 16, 64, 8)):
        x = array(h, w, dtype=f32)
        heat_step[(triton.cdiv(h, bh), triton.cdiv(w, bw))](
            x, array(h, w, dtype=f32), h, w, 0.1, bh, bw, num_warps=warps
        )
    stencil_3d[(2, 512)](
        array(256, 512, 512, dtype=f32), array(256, 512, 512, dtype=f32), 512, 512, 256, 256, num_warps=4
    )
    stencil_3d[(4, 500)](
        array(128, 500, 500, dtype=f32), array(128, 500, 500, dtype=f32), 500, 500, 128, 128, num_warps=1
    )
    for size, c, k, bw, bc, warps in ((56, 128, 3, 16, 64, 4), (28, 256, 7, 32, 32, 4)):
        x = array(32, size, size, c)
        depthwise_conv[(32 * size, triton.cdiv(size, bw), c // bc)](
            x, array(k * k, c), array(32, size, size, c), size, size, c, k, bw, bc, num_warps=warps
        )
    for bt, bc, warps in ((64, 128, 8), (16, 256, 4), (128, 32, 4)):
        x = array(8, 4096, 2048, dtype=bf16)
        causal_conv1d[(4096 // bt, 2048 // bc, 8)](
            x, array(2048, 4, dtype=bf16), array(2048, dtype=bf16), x, 4096, 2048, 4, bt, bc, num_warps=warps
        )
    im2col[(32 * 784 // 32, 9)](array(32, 56, 56, 128), array(32 * 784, 1152), 56, 56, 128, 28, 28, 3, 2, 32, 128)
    im2col[(32 * 784 // 16, 1)](array(32, 56, 56, 3), array(32 * 784, 27), 56, 56, 3, 28, 28, 3, 2, 16, 32, num_warps=2)
    y = torch.randint(0, 255, (2160 * 3, 3840), dtype=u8, device="cuda")
    yuv_to_rgb[(4, 2160 * 2)](y, y, array(3, 2160 * 2, 3840), 3840, 2160 * 2, 1024)
    for bins, block, parts, warps in ((256, 1024, 16, 4), (32, 4096, 4, 8)):
        n = 1 << 25
        x = torch.randint(0, bins, (n,), dtype=u8, device="cuda")
        histogram_image[(n // block // parts,)](
            x, torch.zeros(bins, dtype=torch.int32), n, bins, block, parts, num_warps=warps
        )


if __name__ == "__main__":
    main()
