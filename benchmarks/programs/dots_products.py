"""Products in many styles: stream-k, split-k, while loops, block pointers, descriptors, f32 and f64, fused ends."""

import torch
import triton
import triton.language as tl


@triton.jit
def stream_k_tile(A, B, C, tile, first, last, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles_n = tl.cdiv(N, BN)
    m = (tile // tiles_n) * BM + tl.arange(0, BM)
    n = (tile % tiles_n) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    pa = A + m[:, None] * K + k[None, :] + first * BK
    pb = B + k[:, None] * N + n[None, :] + first * BK * N
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(first, last):
        acc = tl.dot(tl.load(pa), tl.load(pb), acc)
        pa += BK
        pb += BK * N
    tl.atomic_add(C + m[:, None] * N + n[None, :], acc, sem="relaxed")


@triton.jit
def stream_k(A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Each program has an equal share of the iterations of all tiles, across the borders of tiles."""
    steps = tl.cdiv(K, BK)
    total = tl.cdiv(M, BM) * tl.cdiv(N, BN) * steps
    share = tl.cdiv(total, tl.num_programs(0))
    at = tl.program_id(0) * share
    end = min(at + share, total)
    while at < end:
        tile = at // steps
        first = at % steps
        last = min(steps, first + end - at)
        stream_k_tile(A, B, C, tile, first, last, N, K, BM, BN, BK)
        at += last - first


@triton.jit
def split_k(a_ptr, b_ptr, out_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    """Parts of k to planes of f32 (N T form); few rows."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    part = tl.program_id(2)
    size = K // SPLIT
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(part * size, part * size + size, BK):
        ks = k + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + ks[None, :], mask=(m < M)[:, None], other=0.0)
        b = tl.load(b_ptr + n[None, :] * K + ks[:, None])
        acc += tl.dot(a, b)
    tl.store(out_ptr + part * M * N + m[:, None] * N + n[None, :], acc, mask=(m < M)[:, None])


@triton.jit
def block_pointers(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, ACT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Block pointers that the loop advances; a bias and an activation at the end."""
    pm, pn = tl.program_id(0), tl.program_id(1)
    a = tl.make_block_ptr(a_ptr, (M, K), (K, 1), (pm * BM, 0), (BM, BK), (1, 0))
    b = tl.make_block_ptr(b_ptr, (K, N), (N, 1), (0, pn * BN), (BK, BN), (1, 0))
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc += tl.dot(tl.load(a, boundary_check=(0, 1)), tl.load(b, boundary_check=(0, 1)))
        a = tl.advance(a, (0, BK))
        b = tl.advance(b, (BK, 0))
    n = pn * BN + tl.arange(0, BN)
    acc += tl.load(bias_ptr + n, mask=n < N, other=0.0)[None, :]
    if ACT == "gelu":
        acc = 0.5 * acc * (1 + tl.erf(acc * 0.7071067811865476))
    elif ACT == "relu2":
        acc = tl.maximum(acc, 0.0) * tl.maximum(acc, 0.0)
    c = tl.make_block_ptr(c_ptr, (M, N), (N, 1), (pm * BM, pn * BN), (BM, BN), (1, 0))
    tl.store(c, acc.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


@triton.jit
def persistent_descriptors(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PROGRAMS: tl.constexpr,
    SPECIALIZE: tl.constexpr,
):
    """Descriptors that the kernel makes; a loop over tiles, flattened."""
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BN, BK])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN])
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, PROGRAMS, flatten=True, warp_specialize=SPECIALIZE):
        m, n = (tile % tiles_m) * BM, (tile // tiles_m) * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(a.load([m, k]), b.load([n, k]).T, acc)
        c.store([m, n], acc.to(c_ptr.dtype.element_ty))


@triton.jit
def wide_product(
    a, b, c, M, N, K, sam, sak, sbk, sbn, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """f32 by `tf32`, `tf32x3`, `ieee`, or f64."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    pa = a + m[:, None] * sam + k[None, :] * sak
    pb = b + k[:, None] * sbk + n[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=c.dtype.element_ty)
    for _ in range(0, tl.cdiv(K, BK)):
        acc = tl.dot(tl.load(pa), tl.load(pb), acc, input_precision=PRECISION, out_dtype=c.dtype.element_ty)
        pa += BK * sak
        pb += BK * sbk
    tl.store(c + m[:, None] * N + n[None, :], acc)


@triton.jit
def product_rms(x_ptr, w_ptr, g_ptr, y_ptr, M, K, eps, N: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    """A norm of whole rows of x · w, as of queries and keys by head."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * N + tl.arange(0, N)
    acc = tl.zeros((BM, N), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0)
        w = tl.load(w_ptr + k[:, None] * (N * tl.num_programs(1)) + n[None, :])
        acc = tl.dot(x, w, acc)
    scale = tl.rsqrt(tl.sum(acc * acc, axis=1) / N + eps)
    y = acc * scale[:, None] * tl.load(g_ptr + tl.arange(0, N))[None, :]
    tl.store(
        y_ptr + m[:, None] * (N * tl.num_programs(1)) + n[None, :], y.to(y_ptr.dtype.element_ty), mask=m[:, None] < M
    )


@triton.jit
def norm_product(
    x_ptr, g_ptr, w_ptr, r_ptr, y_ptr, N, K: tl.constexpr, eps, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """rms(x) · w + residual: squares of x are added in the loop of the product, and the result scaled."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    squares = tl.zeros((BM,), tl.float32)
    for k0 in tl.range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :]).to(tl.float32)
        squares += tl.sum(x * x, 1)
        g = tl.load(g_ptr + k).to(tl.float32)
        w = tl.load(w_ptr + n[None, :] * K + k[:, None])
        acc += tl.dot((x * g[None, :]).to(w.dtype), w)
    acc *= tl.rsqrt(squares / K + eps)[:, None]
    at = m[:, None] * N + n[None, :]
    tl.store(y_ptr + at, (acc + tl.load(r_ptr + at)).to(y_ptr.dtype.element_ty))


@triton.jit
def gated_layer(x_ptr, w_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GELU: tl.constexpr):
    """act(x · w[:, :N]) · (x · w[:, N:]); b lies along k."""
    pid = tl.program_id(0)
    tiles = tl.cdiv(M, BM)
    m = ((pid % tiles) * BM + tl.arange(0, BM)) % M
    n = (pid // tiles) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    gate = tl.zeros((BM, BN), tl.float32)
    up = tl.zeros((BM, BN), tl.float32)
    px = x_ptr + m[:, None] * K + k[None, :]
    pg = w_ptr + n[None, :] * K + k[:, None]
    pu = pg + N * K
    for _ in range(tl.cdiv(K, BK)):
        x = tl.load(px)
        gate += tl.dot(x, tl.load(pg))
        up += tl.dot(x, tl.load(pu))
        px += BK
        pg += BK
        pu += BK
    if GELU:
        inner = 0.7978845608 * (gate + 0.044715 * gate * gate * gate)
        gate = 0.5 * gate * (2 * tl.sigmoid(2 * inner))
    else:
        gate = gate * tl.sigmoid(gate)
    rows = (pid % tiles) * BM + tl.arange(0, BM)
    tl.store(y_ptr + rows[:, None] * N + n[None, :], (gate * up).to(y_ptr.dtype.element_ty), mask=rows[:, None] < M)


@triton.jit
def gram(x_ptr, out_ptr, N, D, MODE: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    """x · xᵀ, or distances |x - y|², or exp of these; the upper triangle of blocks, stored twice."""
    i, j = tl.program_id(0), tl.program_id(1)
    if i > j:
        return
    m = i * BM + tl.arange(0, BM)
    n = j * BM + tl.arange(0, BM)
    acc = tl.zeros((BM, BM), tl.float32)
    left = tl.zeros((BM,), tl.float32)
    right = tl.zeros((BM,), tl.float32)
    for k0 in range(0, D, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(x_ptr + m[:, None] * D + k[None, :], mask=(m < N)[:, None] & (k < D)[None, :], other=0.0)
        y = tl.load(x_ptr + n[:, None] * D + k[None, :], mask=(n < N)[:, None] & (k < D)[None, :], other=0.0)
        acc = tl.dot(x, tl.trans(y), acc, allow_tf32=True)
        if MODE > 0:
            xf, yf = x.to(tl.float32), y.to(tl.float32)
            left += tl.sum(xf * xf, 1)
            right += tl.sum(yf * yf, 1)
    if MODE > 0:
        acc = tl.maximum(left[:, None] + right[None, :] - 2 * acc, 0.0)
    if MODE == 2:
        acc = tl.exp(-0.5 * acc)
    keep = (m < N)[:, None] & (n < N)[None, :]
    tl.store(out_ptr + m[:, None] * N + n[None, :], acc, mask=keep)
    tl.store(out_ptr + n[None, :] * N + m[:, None], acc, mask=keep)


@triton.jit
def router(
    x_ptr, w_ptr, ids_ptr, weights_ptr, M, K, E: tl.constexpr, TOP: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr
):
    """Scores of experts by a dot, the TOP best by repeated maxima, their softmax."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    e = tl.arange(0, E)
    scores = tl.zeros((BM, E), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None], other=0.0)
        w = tl.load(w_ptr + e[None, :] * K + k[:, None])
        scores = tl.dot(x, w, scores)
    best = tl.max(scores, axis=1)
    total = tl.zeros((BM,), tl.float32)
    for i in tl.static_range(TOP):
        value, place = tl.max(scores, axis=1, return_indices=True)
        power = tl.exp(value - best)
        total += power
        tl.store(ids_ptr + m * TOP + i, place, mask=m < M)
        tl.store(weights_ptr + m * TOP + i, power, mask=m < M)
        scores = tl.where(e[None, :] == place[:, None], -float("inf"), scores)


@triton.jit
def ragged_product(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    lda,
    ldb,
    ldc,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    TA: tl.constexpr,
    TB: tl.constexpr,
):
    """Any sizes and leading dimensions, in four transpositions, with a while loop."""
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    k0 = 0
    while k0 < K:
        k = k0 + tl.arange(0, BK)
        if TA:
            a = tl.load(a_ptr + k[None, :] * lda + m[:, None], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        else:
            a = tl.load(a_ptr + m[:, None] * lda + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        if TB:
            b = tl.load(b_ptr + n[None, :] * ldb + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        else:
            b = tl.load(b_ptr + k[:, None] * ldb + n[None, :], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc)
        k0 += BK
    tl.store(
        c_ptr + m[:, None] * ldc + n[None, :], acc.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N)
    )


@triton.jit
def cross_entropy_parts(
    x_ptr,
    w_ptr,
    target_ptr,
    lse_ptr,
    picked_ptr,
    V,
    D: tl.constexpr,
    BM: tl.constexpr,
    BV: tl.constexpr,
    BD: tl.constexpr,
    PER: tl.constexpr,
):
    """log Σ exp(x · w) over a part of the vocabulary, without the scores in memory."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    target = tl.load(target_ptr + m)
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    picked = tl.zeros((BM,), tl.float32)
    first = tl.program_id(1) * PER
    for v0 in range(first, min(first + PER, V), BV):
        v = v0 + tl.arange(0, BV)
        scores = tl.zeros((BM, BV), tl.float32)
        for d0 in range(0, D, BD):
            d = d0 + tl.arange(0, BD)
            x = tl.load(x_ptr + m[:, None] * D + d[None, :])
            w = tl.load(w_ptr + v[None, :] * D + d[:, None], mask=v[None, :] < V, other=0.0)
            scores = tl.dot(x, w, scores)
        scores = tl.where(v[None, :] < V, scores, -float("inf"))
        new = tl.maximum(top, tl.max(scores, 1))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(scores - new[:, None]), 1)
        picked += tl.sum(tl.where(v[None, :] == target[:, None], scores, 0.0), 1)
        top = new
    at = m * tl.num_programs(1) + tl.program_id(1)
    tl.store(lse_ptr + at, top + tl.log(total))
    tl.store(picked_ptr + at, picked)


def main() -> None:
    bf16, f16, f32, f64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
    new = lambda *shape, dtype=f16: torch.empty(*shape, dtype=dtype, device="cuda")  # noqa: E731
    for M, N, K, BM, BN, BK, warps, stages in [
        (1536, 2048, 4096, 128, 128, 64, 8, 3),
        (512, 512, 8192, 64, 64, 64, 4, 4),
    ]:
        stream_k[(132,)](
            new(M, K), new(K, N), new(M, N, dtype=f32), M, N, K, BM=BM, BN=BN, BK=BK, num_warps=warps, num_stages=stages
        )
    for M, N, K, BM, BN, BK, split, warps, stages in [
        (8, 4096, 4096, 16, 32, 256, 4, 4, 3),
        (64, 4096, 14336, 64, 64, 64, 7, 4, 4),
    ]:
        split_k[(N // BN, triton.cdiv(M, BM), split)](
            new(M, K, dtype=bf16),
            new(N, K, dtype=bf16),
            new(split, M, N, dtype=f32),
            M,
            N,
            K,
            BM=BM,
            BN=BN,
            BK=BK,
            SPLIT=split,
            num_warps=warps,
            num_stages=stages,
        )
    for M, N, K, BM, BN, BK, act, warps, stages in [
        (2048, 4096, 1024, 128, 128, 32, "gelu", 4, 4),
        (1000, 3000, 1000, 64, 128, 64, "relu2", 4, 3),
    ]:
        block_pointers[(triton.cdiv(M, BM), triton.cdiv(N, BN))](
            new(M, K),
            new(K, N),
            new(M, N),
            new(N),
            M,
            N,
            K,
            ACT=act,
            BM=BM,
            BN=BN,
            BK=BK,
            num_warps=warps,
            num_stages=stages,
        )
    for M, N, K, BM, BN, BK, special, warps in [
        (4096, 4096, 2048, 128, 128, 64, False, 8),
        (4096, 2048, 4096, 128, 128, 64, True, 4),
    ]:
        persistent_descriptors[(132,)](
            new(M, K),
            new(N, K),
            new(M, N),
            M,
            N,
            K,
            BM=BM,
            BN=BN,
            BK=BK,
            PROGRAMS=132,
            SPECIALIZE=special,
            num_warps=warps,
            num_stages=3,
        )
    for M, K, dtype, precision, tb, BM, BN, BK, warps, stages in [
        (2048, 2048, f32, "tf32", False, 128, 128, 32, 8, 3),
        (2048, 2048, f32, "tf32", True, 64, 64, 32, 4, 4),
        (1024, 1024, f32, "tf32x3", False, 64, 64, 32, 4, 3),
        (1024, 1024, f32, "ieee", False, 64, 64, 16, 4, 3),
        (1024, 2048, f32, "ieee", True, 128, 64, 16, 8, 2),
        (1024, 1024, f64, "ieee", False, 64, 32, 16, 4, 3),
    ]:
        a, b, c = (new(M, K, dtype=dtype) for _ in range(3))
        strides = (1, K) if tb else (K, 1)
        wide_product[(M // BM, M // BN)](
            a,
            new(M * K, dtype=dtype) if tb else b,
            c,
            M,
            M,
            K,
            K,
            1,
            *strides,
            PRECISION=precision,
            BM=BM,
            BN=BN,
            BK=BK,
            num_warps=warps,
            num_stages=stages,
        )
    for M, N, heads, K, BM, BK, warps in [(2048, 128, 32, 4096, 64, 64, 4), (2048, 64, 16, 2048, 128, 64, 4)]:
        product_rms[(triton.cdiv(M, BM), heads)](
            new(M, K, dtype=bf16),
            new(K, N * heads, dtype=bf16),
            new(N, dtype=bf16),
            new(M, N * heads, dtype=bf16),
            M,
            K,
            1e-6,
            N=N,
            BM=BM,
            BK=BK,
            num_warps=warps,
            num_stages=3,
        )
    for M, N, K, BM, BN, BK, warps in [(2048, 4096, 2048, 64, 128, 64, 4), (128, 4096, 4096, 32, 64, 128, 4)]:
        norm_product[(M // BM, N // BN)](
            new(M, K, dtype=bf16),
            new(K, dtype=bf16),
            new(N, K, dtype=bf16),
            new(M, N, dtype=bf16),
            new(M, N, dtype=bf16),
            N,
            K,
            1e-6,
            BM=BM,
            BN=BN,
            BK=BK,
            num_warps=warps,
            num_stages=3,
        )
    for M, N, K, BM, BN, BK, gelu, warps, stages in [
        (2048, 5632, 2048, 128, 64, 64, False, 4, 3),
        (77, 5632, 2048, 64, 64, 64, True, 4, 4),
        (4096, 2816, 2048, 128, 128, 64, False, 8, 3),
    ]:
        gated_layer[(triton.cdiv(M, BM) * (N // BN),)](
            new(M, K, dtype=bf16),
            new(2 * N, K, dtype=bf16),
            new(M, N, dtype=bf16),
            M,
            N,
            K,
            BM=BM,
            BN=BN,
            BK=BK,
            GELU=gelu,
            num_warps=warps,
            num_stages=stages,
        )
    for N, D, mode, BM, BK, warps, dtype in [
        (4096, 1024, 0, 128, 32, 8, bf16),
        (4000, 96, 1, 64, 32, 4, f32),
        (2048, 64, 2, 64, 64, 4, f16),
    ]:
        gram[(triton.cdiv(N, BM), triton.cdiv(N, BM))](
            new(N, D, dtype=dtype), new(N, N, dtype=f32), N, D, MODE=mode, BM=BM, BK=BK, num_warps=warps, num_stages=3
        )
    for M, K, E, top, BM, BK, warps in [(4096, 2048, 64, 6, 32, 64, 4), (1000, 4096, 128, 8, 16, 128, 4)]:
        router[(triton.cdiv(M, BM),)](
            new(M, K, dtype=bf16),
            new(E, K, dtype=bf16),
            new(M, top, dtype=torch.int32),
            new(M, top, dtype=f32),
            M,
            K,
            E=E,
            TOP=top,
            BM=BM,
            BK=BK,
            num_warps=warps,
            num_stages=3,
        )
    for M, N, K, ta, tb, BM, BN, BK, warps in [
        (1001, 999, 515, False, False, 64, 64, 32, 4),
        (1001, 999, 515, True, True, 64, 64, 32, 4),
        (37, 4096, 1024, False, True, 32, 64, 64, 4),
        (513, 130, 2048, True, False, 32, 32, 64, 2),
    ]:
        ragged_product[(triton.cdiv(N, BN), triton.cdiv(M, BM))](
            new(M, K),
            new(K, N),
            new(M, N),
            M,
            N,
            K,
            M if ta else K,
            K if tb else N,
            N,
            BM=BM,
            BN=BN,
            BK=BK,
            TA=ta,
            TB=tb,
            num_warps=warps,
            num_stages=3,
        )
    for M, V, D, BM, BV, BD, warps in [(2048, 32000, 1024, 128, 128, 64, 8), (512, 50257, 768, 64, 128, 64, 4)]:
        parts = 8
        cross_entropy_parts[(M // BM, parts)](
            new(M, D, dtype=bf16),
            new(V, D, dtype=bf16),
            torch.arange(M) % V,
            new(M, parts, dtype=f32),
            new(M, parts, dtype=f32),
            V,
            D=D,
            BM=BM,
            BV=BV,
            BD=BD,
            PER=triton.cdiv(V, parts * BV) * BV,
            num_warps=warps,
            num_stages=3,
        )


if __name__ == "__main__":
    main()
