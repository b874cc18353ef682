"""Attention forward: masks, windows, biases, caps, sinks and lengths; decoding with pages and latents; sparse."""

import torch
import triton
import triton.language as tl


@triton.jit
def attend(
    Q,
    K,
    V,
    OUT,
    LSE,
    slopes,
    sinks,
    sm_scale,
    N_Q,
    N_K,
    stride_qz,
    stride_qm,
    stride_kz,
    stride_kn,
    stride_oz,
    stride_om,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    ALIBI: tl.constexpr,
    CAP: tl.constexpr,
    SINK: tl.constexpr,
):
    """One loop with all masks; heads lie side by side in a token (stride D)."""
    block, zh = tl.program_id(0), tl.program_id(1)
    z, h = zh // HEADS, zh % HEADS
    m = block * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(Q + z * stride_qz + m[:, None] * stride_qm + h * D + d[None, :], mask=m[:, None] < N_Q, other=0.0)
    base = z * stride_kz + (h // GROUP) * D
    if SINK:
        top = tl.zeros((BM,), tl.float32) + tl.load(sinks + h) * 1.4426950408889634
        total = tl.full((BM,), 1.0, tl.float32)
    else:
        top = tl.full((BM,), float("-inf"), tl.float32)
        total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    if ALIBI:
        slope = tl.load(slopes + h) * 1.4426950408889634
    first = 0
    last = N_K
    if CAUSAL:
        last = min(N_K, (block + 1) * BM)
    if WINDOW > 0:
        first = max(0, block * BM - WINDOW) // BN * BN
    for start in range(first, last, BN):
        n = start + tl.arange(0, BN)
        k = tl.load(K + base + n[None, :] * stride_kn + d[:, None], mask=n[None, :] < N_K, other=0.0)
        s = tl.dot(q, k) * (sm_scale * 1.4426950408889634)
        if CAP > 0:
            s = CAP * 1.4426950408889634 * (2 * tl.sigmoid(2 * s / (CAP * 1.4426950408889634)) - 1)
        if ALIBI:
            s += slope * (n[None, :] - m[:, None]).to(tl.float32)
        keep = n[None, :] < N_K
        if CAUSAL:
            keep = keep & (m[:, None] >= n[None, :])
        if WINDOW > 0:
            keep = keep & (m[:, None] - n[None, :] < WINDOW)
        s = tl.where(keep, s, -1.0e6)
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        alpha = tl.exp2(top - new)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(V + base + n[:, None] * stride_kn + d[None, :], mask=n[:, None] < N_K, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc)
        top = new
    acc = acc / total[:, None]
    tl.store(LSE + zh * N_Q + m, top + tl.log2(total), mask=m < N_Q)
    tl.store(
        OUT + z * stride_oz + m[:, None] * stride_om + h * D + d[None, :],
        acc.to(OUT.dtype.element_ty),
        mask=m[:, None] < N_Q,
    )


@triton.jit
def attend_two_loops(
    q_desc,
    k_desc,
    v_desc,
    o_desc,
    LSE,
    scale,
    N,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    SPECIAL: tl.constexpr,
):
    """Causal by descriptors: first the blocks without a mask, then those on the diagonal."""
    block = tl.program_id(0)
    row = tl.program_id(1) * N
    m = block * BM + tl.arange(0, BM)
    q = q_desc.load([row + block * BM, 0])
    top = tl.zeros([BM], tl.float32) - float("inf")
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for start in tl.range(0, block * BM, BN, warp_specialize=SPECIAL):
        s = tl.dot(q, k_desc.load([row + start, 0]).T)
        new = tl.maximum(top, tl.max(s, 1) * scale)
        p = tl.math.exp2(s * scale - new[:, None])
        alpha = tl.math.exp2(top - new)
        acc = acc * alpha[:, None]
        total = total * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.float16), v_desc.load([row + start, 0]), acc)
        top = new
    for start in tl.range(block * BM, (block + 1) * BM, BN):
        s = tl.dot(q, k_desc.load([row + start, 0]).T)
        n = start + tl.arange(0, BN)
        s = s * scale + tl.where(m[:, None] >= n[None, :], 0, -1.0e6)
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.math.exp2(s - new[:, None])
        alpha = tl.math.exp2(top - new)
        acc = acc * alpha[:, None]
        total = total * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.float16), v_desc.load([row + start, 0]), acc)
        top = new
    tl.store(LSE + tl.program_id(1) * N + m, top + tl.math.log2(total))
    o_desc.store([row + block * BM, 0], (acc / total[:, None]).to(tl.float16))


@triton.jit
def attend_bias(Q, K, V, B, OUT, scale, N, NB, H: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """An additive bias of each pair, as of a pair representation; natural exponents; block pointers."""
    zh = tl.program_id(1)
    q_p = tl.make_block_ptr(Q + zh * N * D, (N, D), (D, 1), (tl.program_id(0) * BM, 0), (BM, D), (1, 0))
    k_p = tl.make_block_ptr(K + zh * N * D, (D, N), (1, D), (0, 0), (D, BN), (0, 1))
    v_p = tl.make_block_ptr(V + zh * N * D, (N, D), (D, 1), (0, 0), (BN, D), (1, 0))
    b_p = tl.make_block_ptr(B + (zh % H) * N * NB, (N, N), (NB, 1), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
    q = tl.load(q_p, boundary_check=(0,), padding_option="zero")
    q = (q * scale).to(q.dtype)
    top = tl.full([BM], -1e30, tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for start in range(0, N, BN):
        k = tl.load(k_p, boundary_check=(1,), padding_option="zero")
        v = tl.load(v_p, boundary_check=(0,), padding_option="zero")
        s = tl.dot(q, k) + tl.load(b_p, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        s = tl.where((start + tl.arange(0, BN) < N)[None, :], s, -1e30)
        new = tl.maximum(top, tl.max(s, 1))
        alpha = tl.exp(top - new)
        p = tl.exp(s - new[:, None])
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        top = new
        k_p = tl.advance(k_p, (0, BN))
        v_p = tl.advance(v_p, (BN, 0))
        b_p = tl.advance(b_p, (0, BN))
    o_p = tl.make_block_ptr(OUT + zh * N * D, (N, D), (D, 1), (tl.program_id(0) * BM, 0), (BM, D), (1, 0))
    tl.store(o_p, (acc / total[:, None]).to(OUT.dtype.element_ty), boundary_check=(0,))


@triton.jit
def attend_lengths(
    Q, K, V, OUT, starts, scale, H: tl.constexpr, KV: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    """Sequences of several lengths, side by side (cu_seqlens), causal."""
    seq, h = tl.program_id(2), tl.program_id(1)
    first, end = tl.load(starts + seq), tl.load(starts + seq + 1)
    size = end - first
    block = tl.program_id(0)
    if block * BM >= size:
        return
    m = block * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(Q + (first + m)[:, None] * (H * D) + h * D + d[None, :], mask=m[:, None] < size, other=0.0)
    kv = h * KV // H
    top = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for start in range(0, min(size, block * BM + BM), BN):
        n = start + tl.arange(0, BN)
        at = (first + n) * (KV * D) + kv * D
        k = tl.load(K + at[None, :] + d[:, None], mask=n[None, :] < size, other=0.0)
        v = tl.load(V + at[:, None] + d[None, :], mask=n[:, None] < size, other=0.0)
        s = tl.dot(q, k) * scale
        s = tl.where(m[:, None] >= n[None, :], s, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        alpha = tl.exp2(top - new)
        total = total * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        top = new
    tl.store(
        OUT + (first + m)[:, None] * (H * D) + h * D + d[None, :],
        (acc / total[:, None]).to(OUT.dtype.element_ty),
        mask=m[:, None] < size,
    )


@triton.jit
def decode_pages(
    Q,
    KC,
    VC,
    OUT,
    L,
    table,
    lengths,
    scale,
    max_pages,
    KV: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BN: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """One new token a sequence; the heads of one key are rows of the dot; parts of the keys to parts of the result."""
    z, kv, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + z)
    g, d = tl.arange(0, 16), tl.arange(0, D)
    head = kv * G + g
    q = tl.load(Q + z * KV * G * D + head[:, None] * D + d[None, :], mask=(g < G)[:, None], other=0.0)
    share = tl.cdiv(tl.cdiv(length, SPLITS), BN) * BN
    first, last = part * share, min(part * share + share, length)
    top = tl.full([16], -float("inf"), tl.float32)
    total = tl.zeros([16], tl.float32)
    acc = tl.zeros([16, D], tl.float32)
    if last > first:
        for start in range(first, last, BN):
            n = start + tl.arange(0, BN)
            page = tl.load(table + z * max_pages + n // PAGE, mask=n < last, other=0)
            at = ((page * PAGE + n % PAGE) * KV + kv) * D
            k = tl.load(KC + at[None, :] + d[:, None], mask=n[None, :] < last, other=0.0)
            s = tl.dot(q, k.to(q.dtype)) * scale
            s = tl.where(n[None, :] < last, s, -float("inf"))
            v = tl.load(VC + at[:, None] + d[None, :], mask=n[:, None] < last, other=0.0)
            new = tl.maximum(top, tl.max(s, 1))
            p = tl.exp(s - new[:, None])
            alpha = tl.exp(top - new)
            acc = acc * alpha[:, None] + tl.dot(p.to(q.dtype), v.to(q.dtype))
            total = total * alpha + tl.sum(p, 1)
            top = new
        row = (z * KV * G + head) * SPLITS + part
        tl.store(OUT + row[:, None] * D + d[None, :], acc / total[:, None], mask=(g < G)[:, None])
        tl.store(L + row, top + tl.log(total), mask=g < G)


@triton.jit
def decode_latent(
    Q,
    QR,
    C,
    OUT,
    L,
    table,
    lengths,
    scale,
    max_pages,
    HEADS,
    R: tl.constexpr,
    P: tl.constexpr,
    PAGE: tl.constexpr,
    BH: tl.constexpr,
    BN: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """MLA: R latent numbers and P of rotary places a token; values are the latents."""
    z, part = tl.program_id(0), tl.program_id(2)
    h = tl.program_id(1) * BH + tl.arange(0, BH)
    r, p_ = tl.arange(0, R), tl.arange(0, P)
    q = tl.load(Q + (z * HEADS + h)[:, None] * R + r[None, :])
    qr = tl.load(QR + (z * HEADS + h)[:, None] * P + p_[None, :])
    length = tl.load(lengths + z)
    share = tl.cdiv(length, SPLITS)
    first, last = part * share, min((part + 1) * share, length)
    top = tl.full([BH], -float("inf"), tl.float32)
    total = tl.zeros([BH], tl.float32)
    acc = tl.zeros([BH, R], tl.float32)
    for start in range(first, last, BN):
        n = start + tl.arange(0, BN)
        page = tl.load(table + z * max_pages + n // PAGE, mask=n < last, other=0).to(tl.int64)
        at = (page * PAGE + n % PAGE) * (R + P)
        c = tl.load(C + at[None, :] + r[:, None], mask=(n < last)[None, :], other=0.0)
        rot = tl.load(C + at[None, :] + R + p_[:, None], mask=(n < last)[None, :], other=0.0)
        s = tl.dot(q, c)
        s += tl.dot(qr, rot)
        s = tl.where((n < last)[None, :], s * scale, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        alpha = tl.exp(top - new)
        p = tl.exp(s - new[:, None])
        acc = acc * alpha[:, None] + tl.dot(p.to(c.dtype), tl.trans(c))
        total = total * alpha + tl.sum(p, 1)
        top = new
    row = (z * HEADS + h) * SPLITS + part
    tl.store(OUT + row[:, None] * R + r[None, :], acc / total[:, None])
    tl.store(L + row, top + tl.log(total))


@triton.jit
def attend_blocks(Q, K, V, OUT, starts, columns, scale, N, D: tl.constexpr, B: tl.constexpr):
    """Block-sparse: the blocks of keys of each block of queries by a list (CSR)."""
    row, zh = tl.program_id(0), tl.program_id(1)
    m, d = row * B + tl.arange(0, B), tl.arange(0, D)
    base = zh * N * D
    q = tl.load(Q + base + m[:, None] * D + d[None, :])
    top = tl.full([B], -float("inf"), tl.float32)
    total = tl.zeros([B], tl.float32)
    acc = tl.zeros([B, D], tl.float32)
    for i in range(tl.load(starts + row), tl.load(starts + row + 1)):
        n = tl.load(columns + i) * B + tl.arange(0, B)
        k = tl.load(K + base + n[:, None] * D + d[None, :])
        v = tl.load(V + base + n[:, None] * D + d[None, :])
        s = tl.dot(q, k.T) * scale
        new = tl.maximum(top, tl.max(s, 1))
        alpha = tl.exp2(top - new)
        p = tl.exp2(s - new[:, None])
        total = total * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        top = new
    tl.store(OUT + base + m[:, None] * D + d[None, :], (acc / total[:, None]).to(OUT.dtype.element_ty))


def main() -> None:
    f16, bf16, f32, i32 = torch.float16, torch.bfloat16, torch.float32, torch.int32
    new = lambda *shape, dtype=f16: torch.empty(*shape, dtype=dtype, device="cuda")  # noqa: E731
    for Z, H, G, N, D, BM, BN, causal, window, alibi, cap, sink, warps, stages, dtype in [
        (4, 16, 1, 2048, 64, 128, 64, True, 0, False, 0, False, 4, 3, f16),
        (2, 16, 4, 2048, 128, 128, 64, True, 512, False, 0, False, 8, 3, bf16),
        (2, 16, 1, 2000, 64, 64, 64, True, 0, True, 0, False, 4, 3, f16),
        (1, 16, 2, 4096, 128, 64, 64, True, 0, False, 50.0, False, 4, 2, bf16),
        (1, 32, 8, 4096, 64, 128, 64, True, 128, False, 0, True, 4, 4, bf16),
        (8, 12, 1, 197, 64, 64, 64, False, 0, False, 0, False, 4, 2, f16),
        (2, 8, 1, 1024, 32, 128, 32, False, 0, False, 0, False, 4, 3, f16),
        (1, 8, 8, 4096, 256, 64, 32, True, 0, False, 0, False, 4, 2, bf16),
    ]:
        q, k, v, o = (
            new(Z, N, H, D, dtype=dtype),
            *(new(Z, N, H // G, D, dtype=dtype) for _ in "kv"),
            new(Z, N, H, D, dtype=dtype),
        )
        attend[(triton.cdiv(N, BM), Z * H)](
            q,
            k,
            v,
            o,
            new(Z, H, N, dtype=f32),
            new(H, dtype=f32),
            new(H, dtype=f32),
            D**-0.5,
            N,
            N,
            q.stride(0),
            q.stride(1),
            k.stride(0),
            k.stride(1),
            o.stride(0),
            o.stride(1),
            HEADS=H,
            GROUP=G,
            D=D,
            BM=BM,
            BN=BN,
            CAUSAL=causal,
            WINDOW=window,
            ALIBI=alibi,
            CAP=cap,
            SINK=sink,
            num_warps=warps,
            num_stages=stages,
        )
    from triton.tools.tensor_descriptor import TensorDescriptor

    for ZH, N, D, BM, BN, special, warps, stages in [
        (32, 4096, 128, 128, 128, False, 8, 2),
        (64, 2048, 64, 128, 64, False, 4, 3),
    ]:
        q, k, v, o = (new(ZH * N, D) for _ in range(4))
        of = TensorDescriptor.from_tensor
        attend_two_loops[(N // BM, ZH)](
            of(q, [BM, D]),
            of(k, [BN, D]),
            of(v, [BN, D]),
            of(o, [BM, D]),
            new(ZH, N, dtype=f32),
            0.18,
            N,
            D=D,
            BM=BM,
            BN=BN,
            SPECIAL=special,
            num_warps=warps,
            num_stages=stages,
        )
    for Z, H, N, D, BM, BN, warps in [(64, 4, 384, 32, 64, 64, 4), (16, 16, 577, 64, 128, 32, 4)]:
        wide = (N + 15) // 16 * 16
        attend_bias[(triton.cdiv(N, BM), Z * H)](
            *(new(Z * H, N, D, dtype=bf16) for _ in "qkv"),
            new(H, N, wide, dtype=bf16),
            new(Z * H, N, D, dtype=bf16),
            D**-0.5,
            N,
            wide,
            H=H,
            D=D,
            BM=BM,
            BN=BN,
            num_warps=warps,
            num_stages=3,
        )
    for lengths, H, KV, D, BM, BN, warps, stages in [
        ((1000, 2048, 333, 77, 1500, 512), 16, 4, 128, 64, 64, 4, 2),
        ((3000, 1024, 2000), 16, 16, 64, 128, 64, 4, 3),
    ]:
        starts = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=i32)
        T = int(starts[-1])
        attend_lengths[(triton.cdiv(max(lengths), BM), H, len(lengths))](
            new(T, H, D, dtype=bf16),
            new(T, KV, D, dtype=bf16),
            new(T, KV, D, dtype=bf16),
            new(T, H, D, dtype=bf16),
            starts,
            0.12,
            H=H,
            KV=KV,
            D=D,
            BM=BM,
            BN=BN,
            num_warps=warps,
            num_stages=stages,
        )
    for Z, KV, G, D, PAGE, length, BN, splits, cache, warps, stages in [
        (32, 8, 4, 128, 16, 2048, 64, 4, bf16, 4, 3),
        (16, 8, 8, 128, 64, 4096, 128, 8, bf16, 4, 2),
        (64, 8, 4, 64, 16, 1500, 32, 2, f16, 2, 3),
        (32, 8, 4, 128, 16, 2048, 64, 4, torch.float8_e4m3fn, 4, 3),
    ]:
        pages = triton.cdiv(length, PAGE)
        table = (torch.arange(Z * pages, dtype=i32) * 5 + 1).remainder(Z * pages).reshape(Z, pages)
        caches = [new(Z * pages, PAGE, KV, D, dtype=cache) for _ in "kv"]
        decode_pages[(Z, KV, splits)](
            new(Z, KV * G, D, dtype=bf16),
            *caches,
            new(Z, KV * G, splits, D, dtype=f32),
            new(Z, KV * G, splits, dtype=f32),
            table,
            torch.full((Z,), length - 5, dtype=i32),
            0.09,
            pages,
            KV=KV,
            G=G,
            D=D,
            PAGE=PAGE,
            BN=BN,
            SPLITS=splits,
            num_warps=warps,
            num_stages=stages,
        )
    for Z, H, length, BH, BN, splits, warps, stages in [
        (32, 16, 4096, 16, 64, 4, 4, 2),
        (32, 32, 4096, 32, 32, 4, 4, 2),
        (32, 64, 2048, 64, 32, 4, 8, 2),
        (16, 128, 2048, 16, 32, 2, 4, 3),
    ]:
        pages = length // 64
        table = (torch.arange(Z * pages, dtype=i32) * 5 + 1).remainder(Z * pages).reshape(Z, pages)
        decode_latent[(Z, H // BH, splits)](
            new(Z, H, 512, dtype=bf16),
            new(Z, H, 64, dtype=bf16),
            new(Z * pages, 64, 576, dtype=bf16),
            new(Z, H, splits, 512, dtype=f32),
            new(Z, H, splits, dtype=f32),
            table,
            torch.full((Z,), length - 7, dtype=i32),
            0.04,
            pages,
            H,
            R=512,
            P=64,
            PAGE=64,
            BH=BH,
            BN=BN,
            SPLITS=splits,
            num_warps=warps,
            num_stages=stages,
        )
    for ZH, N, D, B, warps, stages in [(32, 4096, 64, 64, 4, 3), (16, 4096, 128, 128, 8, 2)]:
        blocks = N // B
        rows = [sorted({0, i, max(0, i - 1), (i * 5) % (i + 1), i // 2}) for i in range(blocks)]
        starts = torch.tensor([0, *torch.tensor([len(row) for row in rows]).cumsum(0).tolist()], dtype=i32)
        columns = torch.tensor([column for row in rows for column in row], dtype=i32)
        attend_blocks[(blocks, ZH)](
            *(new(ZH, N, D) for _ in range(4)), starts, columns, 0.18, N, D=D, B=B, num_warps=warps, num_stages=stages
        )


if __name__ == "__main__":
    main()
