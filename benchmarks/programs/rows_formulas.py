"""Elementwise formulas, random numbers, transforms in registers, products of vectors, and reductions as Inductor writes
them."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def dropout_residual(X, R, Y, Keep, p, seed, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = i < n
    keep = tl.rand(seed, i) > p
    x = tl.load(X + i, mask=ok, other=0.0).to(tl.float32)
    y = tl.where(keep, x / (1 - p), 0.0) + tl.load(R + i, mask=ok, other=0.0).to(tl.float32)
    tl.store(Y + i, y.to(tl.bfloat16), mask=ok)
    tl.store(Keep + i, keep.to(tl.int8), mask=ok)


@triton.jit
def dropout_by_four(X, Y, p, seed, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b, c, d = tl.rand4x(seed, i)
    ab, cd = tl.join(a, b), tl.join(c, d)
    r = tl.reshape(tl.join(ab, cd), (BLOCK * 4,))
    j = tl.program_id(0) * BLOCK * 4 + tl.arange(0, BLOCK * 4)
    x = tl.load(X + j, mask=j < n, other=0.0)
    tl.store(Y + j, tl.where(r > p, x / (1 - p), 0.0), mask=j < n)


@triton.jit
def fill_normal(Y, seed, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + i, tl.randn(seed, i).to(Y.dtype.element_ty), mask=i < n)


@triton.jit
def geglu(X, Y, N, EXACT: tl.constexpr, BLOCK: tl.constexpr):
    row, c = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = c < N
    a = tl.load(X + row * 2 * N + c, mask=ok, other=0.0).to(tl.float32)
    b = tl.load(X + row * 2 * N + N + c, mask=ok, other=0.0).to(tl.float32)
    if EXACT:
        g = 0.5 * a * (1 + tl.erf(a * 0.7071067811865476))
    else:
        g = 0.5 * a * (1 + libdevice.tanh(0.7978845608028654 * (a + 0.044715 * a * a * a)))
    tl.store(Y + row * N + c, (g * b).to(Y.dtype.element_ty), mask=ok)


@triton.jit
def swiglu_bwd(DY, A, B, DA, DB, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    ok = c < N
    dy = tl.load(DY + row * N + c, mask=ok, other=0).to(tl.float32)
    a = tl.load(A + row * N + c, mask=ok, other=0).to(tl.float32)
    b = tl.load(B + row * N + c, mask=ok, other=0).to(tl.float32)
    s = tl.sigmoid(a)
    silu = a * s
    tl.store(DB + row * N + c, dy * silu, mask=ok)
    tl.store(DA + row * N + c, dy * (silu * (1 - s) + s) * b, mask=ok)


@triton.jit
def rotary_halves(Q, K, Cos, Sin, T, HQ: tl.constexpr, HK: tl.constexpr, D: tl.constexpr):
    """In place, all heads of a token, as Liger and unsloth do it."""
    t = tl.program_id(0)
    i = tl.arange(0, D // 2)
    cos = tl.load(Cos + (t % T) * D + i)[None, :]
    sin = tl.load(Sin + (t % T) * D + i)[None, :]
    hq = tl.arange(0, HQ)[:, None]
    hk = tl.arange(0, HK)[:, None]
    q = Q + t * HQ * D + hq * D + i[None, :]
    k = K + t * HK * D + hk * D + i[None, :]
    q1, q2 = tl.load(q), tl.load(q + D // 2)
    k1, k2 = tl.load(k), tl.load(k + D // 2)
    tl.store(q, q1 * cos - q2 * sin)
    tl.store(q + D // 2, q2 * cos + q1 * sin)
    tl.store(k, k1 * cos - k2 * sin)
    tl.store(k + D // 2, k2 * cos + k1 * sin)


@triton.jit
def normal_cdf(x):
    return 0.5 * (1.0 + libdevice.erf(x * 0.7071067811865476))


@triton.jit
def black_scholes(S, K, T, Call, Put, r, v, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = i < n
    s = tl.abs(tl.load(S + i, ok, 1.0)) + 1
    k = tl.abs(tl.load(K + i, ok, 1.0)) + 1
    t = tl.abs(tl.load(T + i, ok, 1.0)) + 0.1
    root = tl.sqrt(t)
    d1 = (tl.log(s / k) + (r + 0.5 * v * v) * t) / (v * root)
    d2 = d1 - v * root
    e = k * tl.exp(-r * t)
    call = s * normal_cdf(d1) - e * normal_cdf(d2)
    tl.store(Call + i, call, ok)
    tl.store(Put + i, call - s + e, ok)


@triton.jit
def monte_carlo_asian(Out, s0, strike, drift, vol, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.full((BLOCK,), 0.0, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(STEPS):
        x += drift + vol * tl.randn(step, i)
        total += tl.exp(x)
    pay = tl.maximum(s0 * total / STEPS - strike, 0.0)
    tl.store(Out + tl.program_id(0), tl.sum(pay, 0) / BLOCK)


@triton.jit
def n_body(P, A, n, BI: tl.constexpr, BJ: tl.constexpr):
    i = tl.program_id(0) * BI + tl.arange(0, BI)
    xi, yi, zi = tl.load(P + i), tl.load(P + n + i), tl.load(P + 2 * n + i)
    ax, ay, az = tl.zeros((BI,), tl.float32), tl.zeros((BI,), tl.float32), tl.zeros((BI,), tl.float32)
    for start in range(0, n, BJ):
        j = start + tl.arange(0, BJ)
        dx = tl.load(P + j)[None, :] - xi[:, None]
        dy = tl.load(P + n + j)[None, :] - yi[:, None]
        dz = tl.load(P + 2 * n + j)[None, :] - zi[:, None]
        m = tl.load(P + 3 * n + j)[None, :]
        r = tl.rsqrt(dx * dx + dy * dy + dz * dz + 1e-4)
        w = m * r * r * r
        ax += tl.sum(w * dx, 1)
        ay += tl.sum(w * dy, 1)
        az += tl.sum(w * dz, 1)
    tl.store(A + i, ax)
    tl.store(A + n + i, ay)
    tl.store(A + 2 * n + i, az)


@triton.jit
def distances(X, Y, Out, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Distances of points of few axes, without a product of matrices."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    d = tl.arange(0, D)
    x = tl.load(X + m[:, None] * D + d[None, :])
    y = tl.load(Y + n[:, None] * D + d[None, :])
    t = x[:, None, :] - y[None, :, :]
    tl.store(Out + m[:, None] * N + n[None, :], tl.sqrt(tl.sum(t * t, 2)))


@triton.jit
def mandelbrot(Out, W, H, LIMIT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cx = (i % W).to(tl.float32) / W * 3.0 - 2.0
    cy = (i // W).to(tl.float32) / H * 2.0 - 1.0
    x = tl.zeros((BLOCK,), tl.float32)
    y = tl.zeros((BLOCK,), tl.float32)
    count = tl.zeros((BLOCK,), tl.int32)
    k = 0
    alive = BLOCK
    while (alive > 0) & (k < LIMIT):
        inside = x * x + y * y < 4.0
        t = x * x - y * y + cx
        y = tl.where(inside, 2 * x * y + cy, y)
        x = tl.where(inside, t, x)
        count += inside.to(tl.int32)
        alive = tl.sum(inside.to(tl.int32), 0)
        k += 1
    tl.store(Out + i, count)


@triton.jit
def complex_product(A, B, Out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK * 2 + tl.arange(0, BLOCK * 2)
    a = tl.reshape(tl.load(A + i, mask=i < 2 * n, other=0.0), (BLOCK, 2))
    b = tl.reshape(tl.load(B + i, mask=i < 2 * n, other=0.0), (BLOCK, 2))
    ar, ai = tl.split(a)
    br, bi = tl.split(b)
    tl.store(Out + i, tl.interleave(ar * br - ai * bi, ar * bi + ai * br), mask=i < 2 * n)


@triton.jit
def hadamard(X, Y, N: tl.constexpr, LOG: tl.constexpr, scale, ROWS: tl.constexpr):
    """A Walsh-Hadamard transform of rows, a butterfly an axis."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, N)
    x = tl.load(X + r[:, None] * N + c[None, :]).to(tl.float32)
    for level in tl.static_range(LOG):
        x = tl.reshape(x, (ROWS, N >> (level + 1), 2, 1 << level))
        a, b = tl.split(tl.permute(x, (0, 1, 3, 2)))
        x = tl.reshape(tl.permute(tl.join(a + b, a - b), (0, 1, 3, 2)), (ROWS, N))
    tl.store(Y + r[:, None] * N + c[None, :], (x * scale).to(Y.dtype.element_ty))


@triton.jit
def fft_rows(RE, IM, OutRE, OutIM, N: tl.constexpr, LOG: tl.constexpr):
    """Radix 2, decimation in frequency, order of bits reversed, by gathers of the partner."""
    row = tl.program_id(0)
    c = tl.arange(0, N)
    re = tl.load(RE + row * N + c)
    im = tl.load(IM + row * N + c)
    for level in tl.static_range(LOG):
        half = N >> (level + 1)
        re_p = tl.gather(re, c ^ half, 0)
        im_p = tl.gather(im, c ^ half, 0)
        upper = (c & half) != 0
        angle = -6.283185307179586 * ((c & (half - 1)) << level).to(tl.float32) / N
        wr, wi = tl.cos(angle), tl.sin(angle)
        sr, si = re_p - re, im_p - im
        re = tl.where(upper, sr * wr - si * wi, re + re_p)
        im = tl.where(upper, sr * wi + si * wr, im + im_p)
    tl.store(OutRE + row * N + c, re)
    tl.store(OutIM + row * N + c, im)


@triton.jit
def lennard_jones_f64(R2, F, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    r2 = tl.abs(tl.load(R2 + i, mask=i < n, other=1.0)) + 0.5
    s = 1.0 / r2
    s6 = s * s * s
    tl.store(F + i, 24.0 * s * s6 * (2.0 * s6 - 1.0) + tl.exp(-r2) * tl.sqrt(r2), mask=i < n)


@triton.jit
def mix_words(X, Y, n, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n, other=0).to(tl.uint32)
    for _ in tl.static_range(ROUNDS):
        x ^= x >> 16
        x *= 0x7FEB352D
        x ^= x >> 15
        x = (x << 13) | (x >> 19)
        x ^= tl.umulhi(x, 0x9E3779B9)
    tl.store(Y + i, x.to(tl.int32, bitcast=True), mask=i < n)


@triton.jit
def bucket_hash_i64(Keys, Out, buckets, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.load(Keys + i, mask=i < n, other=0)
    k = k * 0x5851F42D4C957F2D + 0x14057B7EF767814F
    k ^= k >> 33
    k = k & 0x7FFFFFFFFFFFFFFF
    tl.store(Out + i, k % buckets, mask=i < n)


@triton.jit
def gemv_rows(A, X, Y, M, K, BM: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM, BK), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(A + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        x = tl.load(X + k, mask=k < K, other=0.0)
        acc += a.to(tl.float32) * x.to(tl.float32)[None, :]
    tl.store(Y + m, tl.sum(acc, 1).to(Y.dtype.element_ty), mask=m < M)


@triton.jit
def gemv_columns(A, X, Y, M, N, BM: tl.constexpr, BN: tl.constexpr, PARTS: tl.constexpr):
    """x · A with parts of the rows added by atomics."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BN,), tl.float32)
    for start in range(tl.program_id(1) * BM, M, BM * PARTS):
        m = start + tl.arange(0, BM)
        a = tl.load(A + m[:, None] * N + n[None, :], eviction_policy="evict_first")
        x = tl.load(X + m, eviction_policy="evict_last")
        acc += tl.sum(a.to(tl.float32) * x.to(tl.float32)[:, None], 0)
    tl.atomic_add(Y + n, acc)


@triton.jit
def gemv_int8(A, S, X, Y, M, K: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(A + m[:, None] * K + k[None, :]).to(tl.float32)
        acc += tl.sum(a * tl.load(X + k).to(tl.float32)[None, :], 1)
    tl.store(Y + m, (acc * tl.load(S + m)).to(tl.float16))


@triton.jit
def gemv_int4(A, S, X, Y, K: tl.constexpr, GROUP: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    """Two numbers a byte along k, a scale for each group."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), tl.float32)
    for start in range(0, K // 2, BK):
        k = start + tl.arange(0, BK)
        q = tl.load(A + m[:, None] * (K // 2) + k[None, :])
        s = tl.load(S + m[:, None] * (K // GROUP) + (k * 2 // GROUP)[None, :]).to(tl.float32)
        low = ((q & 15).to(tl.int32) - 8).to(tl.float32)
        high = ((q >> 4).to(tl.int32) - 8).to(tl.float32)
        xl = tl.load(X + 2 * k).to(tl.float32)[None, :]
        xh = tl.load(X + 2 * k + 1).to(tl.float32)[None, :]
        acc += tl.sum((low * xl + high * xh) * s, 1)
    tl.store(Y + m, acc.to(tl.float16))


@triton.jit
def persistent_reduction(
    in_ptr0, in_ptr1, in_ptr2, out_ptr0, out_ptr1, xnumel, r0_numel, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr
):
    """A residual and a layer norm as Inductor writes them."""
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    r0_mask = r0_index < r0_numel
    tmp0 = tl.load(in_ptr0 + (r0_index + 768 * xindex), r0_mask & xmask, other=0.0).to(tl.float32)
    tmp1 = tl.load(in_ptr1 + (r0_index + 768 * xindex), r0_mask & xmask, other=0.0).to(tl.float32)
    tmp2 = tl.load(in_ptr2 + r0_index, r0_mask, eviction_policy="evict_last", other=0.0).to(tl.float32)
    tmp3 = tmp0 + tmp1
    tmp4 = tl.where(r0_mask & xmask, tmp3, 0)
    tmp5 = tl.sum(tmp4, 1)[:, None]
    tmp6 = tmp5 / 768.0
    tmp7 = tmp3 - tmp6
    tmp8 = tl.where(r0_mask & xmask, tmp7 * tmp7, 0)
    tmp9 = tl.sum(tmp8, 1)[:, None]
    tmp10 = libdevice.rsqrt(tmp9 / 768.0 + 1e-05)
    tl.store(out_ptr0 + (r0_index + 768 * xindex), tmp7 * tmp10 * tmp2, r0_mask & xmask)
    tl.store(out_ptr1 + xindex, tmp10, xmask)


@triton.jit
def looped_reduction(in_ptr0, in_ptr1, out_ptr0, xnumel, rnumel, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    """Sums over rows and a product of two, columns outside, as Inductor writes gradients of weights."""
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    rbase = tl.arange(0, RBLOCK)[None, :]
    x0 = xindex % 1024
    x1 = xindex // 1024
    _tmp4 = tl.full([XBLOCK, RBLOCK], 0, tl.float32)
    for roffset in range(0, rnumel, RBLOCK):
        rindex = roffset + rbase
        rmask = rindex < rnumel
        tmp0 = tl.load(
            in_ptr0 + (x0 + 1024 * rindex + 1024 * rnumel * x1), rmask & xmask, eviction_policy="evict_first", other=0.0
        ).to(tl.float32)
        tmp1 = tl.load(
            in_ptr1 + (x0 + 1024 * rindex + 1024 * rnumel * x1), rmask & xmask, eviction_policy="evict_first", other=0.0
        ).to(tl.float32)
        tmp3 = tmp0 * tmp1
        _tmp4 = tl.where(rmask & xmask, _tmp4 + tmp3, _tmp4)
    tl.store(out_ptr0 + xindex, tl.sum(_tmp4, 1)[:, None], xmask)


@triton.jit
def pointwise_tanh_chain(in_out_ptr0, in_ptr0, in_ptr1, xnumel, XBLOCK: tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex % 3072
    tmp0 = tl.load(in_out_ptr0 + xindex, xmask).to(tl.float32)
    tmp1 = tl.load(in_ptr0 + x0, xmask, eviction_policy="evict_last").to(tl.float32)
    tmp2 = tl.load(in_ptr1 + xindex, xmask).to(tl.float32)
    tmp3 = tmp0 + tmp1
    tmp4 = libdevice.tanh(tmp3)
    tmp5 = libdevice.expm1(tmp2)
    tmp6 = tl.where(tmp2 > 0, tmp2, tmp5)
    tmp7 = libdevice.log1p(tl.exp(-tl.abs(tmp3))) + tmp4 * tmp6
    tl.store(in_out_ptr0 + xindex, tmp7, xmask)


def main() -> None:
    def array(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="cuda")

    def integers(*shape: int, dtype: torch.dtype = torch.int32, below: int = 2**31 - 1) -> torch.Tensor:
        return torch.randint(0, below, shape, dtype=dtype, device="cuda")

    bf16, f16, f64, i64 = torch.bfloat16, torch.float16, torch.float64, torch.int64
    n = 1 << 25
    for block, warps in ((1024, 4), (512, 8)):
        x = array(n, dtype=bf16)
        dropout_residual[(n // block,)](x, x, x, torch.zeros(n, dtype=torch.int8), 0.1, 99, n, block, num_warps=warps)
    dropout_by_four[(n // 1024,)](array(n, dtype=f16), array(n, dtype=f16), 0.1, 5, n, 256)
    dropout_by_four[(n // 4096,)](array(n), array(n), 0.1, 5, n, 1024, num_warps=8)
    fill_normal[(n // 1024,)](array(n, dtype=bf16), 3, n, 1024)
    for exact, width, block, warps in ((False, 14336, 1024, 4), (True, 5000, 512, 8)):
        geglu[(2048, triton.cdiv(width, block))](
            array(2048, 2 * width, dtype=bf16), array(2048, width, dtype=bf16), width, exact, block, num_warps=warps
        )
    for width, block, warps in ((14336, 16384, 16), (2816, 4096, 4)):
        x = array(2048, width, dtype=bf16)
        swiglu_bwd[(2048,)](x, x, x, x, x, width, block, num_warps=warps)
    for hq, hk, warps in ((32, 8, 4), (64, 8, 8)):
        table = array(4096, 128, dtype=bf16)
        rotary_halves[(8192,)](
            array(8192, hq, 128, dtype=bf16),
            array(8192, hk, 128, dtype=bf16),
            table,
            table,
            4096,
            hq,
            hk,
            128,
            num_warps=warps,
        )
    m = 1 << 23
    black_scholes[(m // 512,)](*(array(m) for _ in range(5)), 0.05, 0.2, m, 512)
    monte_carlo_asian[(2048,)](array(2048), 100.0, 100.0, 0.0001, 0.01, 64, 256)
    monte_carlo_asian[(1024,)](array(1024), 100.0, 100.0, 0.0001, 0.01, 64, 1024, num_warps=8)
    for bi, bj, warps in ((32, 128, 4), (128, 16, 4), (64, 64, 2)):
        n_body[(16384 // bi,)](array(4, 16384), array(3, 16384), 16384, bi, bj, num_warps=warps)
    for d, bm, bn, warps in ((16, 32, 32, 4), (4, 64, 64, 4), (8, 16, 128, 8)):
        distances[(4096 // bm, 4096 // bn)](
            array(4096, d), array(4096, d), array(4096, 4096), 4096, d, bm, bn, num_warps=warps
        )
    for block, warps in ((256, 4), (1024, 4)):
        mandelbrot[(2048 * 1024 // block,)](
            torch.zeros(2048 * 1024, dtype=torch.int32), 2048, 1024, 200, block, num_warps=warps
        )
    complex_product[(n // 1024,)](array(2 * n), array(2 * n), array(2 * n), n, 1024)
    complex_product[(n // 512,)](
        array(2 * n, dtype=f16), array(2 * n, dtype=f16), array(2 * n, dtype=f16), n, 512, num_warps=2
    )
    for width, log, rows, dtype, warps in ((128, 7, 8, bf16, 4), (1024, 10, 1, f16, 4), (4096, 12, 1, bf16, 8)):
        x = array(n // width, width, dtype=dtype)
        hadamard[(n // width // rows,)](x, x, width, log, width**-0.5, rows, num_warps=warps)
    for width, log, warps in ((256, 8, 2), (1024, 10, 4)):
        x = array(8192, width)
        fft_rows[(8192,)](x, x, x, x, width, log, num_warps=warps)
    lennard_jones_f64[(m // 512,)](array(m, dtype=f64), array(m, dtype=f64), m, 512)
    mix_words[(n // 1024,)](integers(n), integers(n), n, 4, 1024)
    bucket_hash_i64[(m // 512,)](integers(m, dtype=i64, below=2**62), integers(m, dtype=i64), 1000003, m, 512)
    for bm, bk, warps in ((8, 512, 4), (1, 2048, 4), (32, 64, 4)):
        gemv_rows[(triton.cdiv(14336, bm),)](
            array(14336, 4096, dtype=f16),
            array(4096, dtype=f16),
            array(14336, dtype=f16),
            14336,
            4096,
            bm,
            bk,
            num_warps=warps,
        )
    for bm, bn, parts, warps in ((32, 128, 16, 4), (8, 512, 32, 4)):
        gemv_columns[(8192 // bn, parts)](
            array(8192, 8192, dtype=bf16),
            array(8192, dtype=bf16),
            array(8192),
            8192,
            8192,
            bm,
            bn,
            parts,
            num_warps=warps,
        )
    for bm, bk, warps in ((4, 1024, 4), (16, 256, 4)):
        gemv_int8[(14336 // bm,)](
            integers(14336, 4096, dtype=torch.int8, below=127),
            array(14336),
            array(4096, dtype=f16),
            array(14336, dtype=f16),
            14336,
            4096,
            bm,
            bk,
            num_warps=warps,
        )
    for bm, bk, warps in ((4, 512, 4), (16, 128, 4)):
        gemv_int4[(14336 // bm,)](
            integers(14336, 2048, dtype=torch.uint8, below=255),
            array(14336, 32, dtype=f16),
            array(4096, dtype=f16),
            array(14336, dtype=f16),
            4096,
            128,
            bm,
            bk,
            num_warps=warps,
        )
    for xblock, warps in ((1, 4), (4, 8)):
        x = array(32768, 768, dtype=bf16)
        persistent_reduction[(32768 // xblock,)](
            x, x, array(768, dtype=bf16), array(32768, 768), array(32768), 32768, 768, xblock, 1024, num_warps=warps
        )
    for xblock, rblock, warps in ((64, 16, 8), (8, 256, 8), (32, 64, 16)):
        x = array(32, 512, 1024, dtype=bf16)
        looped_reduction[(32768 // xblock,)](x, x, array(32768), 32768, 512, xblock, rblock, num_warps=warps)
    width = 3072 * 8192
    for xblock, warps in ((1024, 4), (512, 8)):
        x = array(width, dtype=bf16)
        pointwise_tanh_chain[(width // xblock,)](x, array(3072, dtype=bf16), x, width, xblock, num_warps=warps)


if __name__ == "__main__":
    main()
