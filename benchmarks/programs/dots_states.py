"""Recurrences by chunks: linear attention forward and backward, delta rules, Mamba 2, triangular inverses."""

import torch
import triton
import triton.language as tl


@triton.jit
def linear_attention(
    q_ptr,
    k_ptr,
    v_ptr,
    g_ptr,
    o_ptr,
    h_ptr,
    T,
    scale,
    D: tl.constexpr,
    BV: tl.constexpr,
    C: tl.constexpr,
    GATED: tl.constexpr,
):
    """State and output in one loop over chunks; gates are logarithms summed in each chunk."""
    bh, part = tl.program_id(0), tl.program_id(1)
    i, d, v_ = tl.arange(0, C), tl.arange(0, D), part * BV + tl.arange(0, BV)
    qk = (bh * T + i[:, None]) * D + d[None, :]
    at = (bh * T + i[:, None]) * D + v_[None, :]
    state = tl.zeros((D, BV), tl.float32)
    causal = i[:, None] >= i[None, :]
    for t in range(0, T, C):
        q = tl.load(q_ptr + qk + t * D)
        k = tl.load(k_ptr + qk + t * D)
        v = tl.load(v_ptr + at + t * D)
        s = tl.dot(q, tl.trans(k))
        o = tl.dot(q, state.to(q.dtype))
        if GATED:
            g = tl.load(g_ptr + bh * T + t + i)
            end = tl.load(g_ptr + bh * T + t + C - 1)
            o *= tl.exp(g)[:, None]
            s = tl.where(causal, s * tl.exp(tl.minimum(g[:, None] - g[None, :], 0.0)), 0.0)
            state *= tl.exp(end)
            k = (k * tl.exp(end - g)[:, None]).to(k.dtype)
        else:
            s = tl.where(causal, s, 0.0)
        o += tl.dot(s.to(v.dtype), v)
        state += tl.dot(tl.trans(k), v)
        tl.store(o_ptr + at + t * D, (o * scale).to(o_ptr.dtype.element_ty))
    tl.store(h_ptr + bh * D * D + d[:, None] * D + v_[None, :], state)


@triton.jit
def chunk_states(
    k_ptr, v_ptr, g_ptr, h_ptr, T, K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, C: tl.constexpr
):
    """The state before each chunk, stored; gates of each column of k."""
    bk, bv, bh = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    k_, v_ = bk * BK + tl.arange(0, BK), bv * BV + tl.arange(0, BV)
    state = tl.zeros([BK, BV], tl.float32)
    for chunk in range(tl.cdiv(T, C)):
        tl.store(
            h_ptr + ((bh * tl.cdiv(T, C) + chunk) * K + k_[:, None]) * V + v_[None, :], state.to(h_ptr.dtype.element_ty)
        )
        t = chunk * C + tl.arange(0, C)
        kt = tl.load(k_ptr + (bh * T + t[None, :]) * K + k_[:, None], mask=t[None, :] < T, other=0.0)
        v = tl.load(v_ptr + (bh * T + t[:, None]) * V + v_[None, :], mask=t[:, None] < T, other=0.0)
        gt = tl.load(g_ptr + (bh * T + t[None, :]) * K + k_[:, None], mask=t[None, :] < T, other=0.0)
        end = tl.load(g_ptr + (bh * T + min(chunk * C + C, T) - 1) * K + k_)
        state *= tl.exp(end)[:, None]
        kt = (kt * tl.exp(end[:, None] - gt)).to(kt.dtype)
        state += tl.dot(kt, v)


@triton.jit
def chunk_outputs(
    q_ptr,
    k_ptr,
    v_ptr,
    h_ptr,
    g_ptr,
    o_ptr,
    T,
    scale,
    K: tl.constexpr,
    V: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
    C: tl.constexpr,
):
    """The output of each chunk of its state and of itself, a loop over parts of k."""
    bv, chunk, bh = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    o = tl.zeros([C, BV], tl.float32)
    a = tl.zeros([C, C], tl.float32)
    row = bh * T + chunk * C
    for i in range(tl.cdiv(K, BK)):
        q_p = tl.make_block_ptr(q_ptr + row * K, (C, K), (K, 1), (0, i * BK), (C, BK), (1, 0))
        k_p = tl.make_block_ptr(k_ptr + row * K, (K, C), (1, K), (i * BK, 0), (BK, C), (0, 1))
        h_p = tl.make_block_ptr(
            h_ptr + (bh * tl.num_programs(1) + chunk) * K * V, (K, V), (V, 1), (i * BK, bv * BV), (BK, BV), (1, 0)
        )
        q = tl.load(q_p, boundary_check=(0, 1))
        k = tl.load(k_p, boundary_check=(0, 1))
        h = tl.load(h_p, boundary_check=(0, 1))
        o += tl.dot(q, h)
        a += tl.dot(q, k)
    t = tl.arange(0, C)
    g = tl.load(g_ptr + row + t)
    o = o * tl.exp(g)[:, None]
    a = tl.where(t[:, None] >= t[None, :], a * tl.exp(tl.minimum(g[:, None] - g[None, :], 0)), 0)
    v_p = tl.make_block_ptr(v_ptr + row * V, (C, V), (V, 1), (0, bv * BV), (C, BV), (1, 0))
    v = tl.load(v_p, boundary_check=(0, 1))
    o = (o + tl.dot(a.to(v.dtype), v)) * scale
    tl.store(
        tl.make_block_ptr(o_ptr + row * V, (C, V), (V, 1), (0, bv * BV), (C, BV), (1, 0)),
        o.to(o_ptr.dtype.element_ty),
        boundary_check=(0, 1),
    )


@triton.jit
def linear_attention_gradient(
    q_ptr, k_ptr, v_ptr, do_ptr, dq_ptr, dk_ptr, dv_ptr, T, scale, D: tl.constexpr, C: tl.constexpr
):
    """Forward over chunks for dq with the state, backward for dk and dv with its gradient."""
    bh = tl.program_id(0)
    i, d = tl.arange(0, C), tl.arange(0, D)
    at = (bh * T + i[:, None]) * D + d[None, :]
    causal = i[:, None] >= i[None, :]
    state = tl.zeros((D, D), tl.float32)  # v by k
    for t in range(0, T, C):
        k = tl.load(k_ptr + at + t * D)
        v = tl.load(v_ptr + at + t * D)
        do = tl.load(do_ptr + at + t * D)
        ds = tl.where(causal, tl.dot(do, tl.trans(v)), 0.0).to(k.dtype)
        dq = tl.dot(ds, k)
        dq = tl.dot(do, state.to(do.dtype), dq)
        state = tl.dot(tl.trans(v), k, state)
        tl.store(dq_ptr + at + t * D, (dq * scale).to(dq_ptr.dtype.element_ty))
    grad = tl.zeros((D, D), tl.float32)  # k by v
    for step in range(1, T // C + 1):
        t = T - step * C
        q = tl.load(q_ptr + at + t * D)
        k = tl.load(k_ptr + at + t * D)
        v = tl.load(v_ptr + at + t * D)
        do = tl.load(do_ptr + at + t * D)
        ds = tl.where(tl.trans(causal), tl.dot(v, tl.trans(do)), 0.0).to(q.dtype)
        s = tl.where(tl.trans(causal), tl.dot(k, tl.trans(q)), 0.0).to(q.dtype)
        dk = tl.dot(ds, q) + tl.dot(v, tl.trans(grad).to(v.dtype))
        dv = tl.dot(s, do) + tl.dot(k, grad.to(k.dtype))
        grad += tl.dot(tl.trans(q), do)
        tl.store(dk_ptr + at + t * D, (dk * scale).to(dk_ptr.dtype.element_ty))
        tl.store(dv_ptr + at + t * D, (dv * scale).to(dv_ptr.dtype.element_ty))


@triton.jit
def triangular_inverse(a_ptr, out_ptr, T, C: tl.constexpr):
    """(I + strictly lower a)⁻¹ of each chunk of 32 or 64: by blocks of 16 in the diagonal, then products."""
    chunk, bh = tl.program_id(0), tl.program_id(1)
    i = tl.arange(0, 16)
    base = (bh * T + chunk * C) * C
    for block in tl.static_range(C // 16):
        at = base + (block * 16 + i[:, None]) * C + block * 16 + i[None, :]
        a = -tl.where(i[:, None] > i[None, :], tl.load(a_ptr + at), 0.0)
        for row in range(1, 16):
            line = -tl.load(a_ptr + base + (block * 16 + row) * C + block * 16 + i)
            line = tl.where(i < row, line, 0.0)
            line += tl.sum(line[:, None] * a, 0)
            a = tl.where((i == row)[:, None], line[None, :], a)
        a += (i[:, None] == i[None, :]).to(tl.float32)
        tl.store(out_ptr + at, a.to(out_ptr.dtype.element_ty))
        if block == 0:
            first = a
        if block == 1:
            below = tl.load(a_ptr + base + (16 + i[:, None]) * C + i[None, :])
            corner = -tl.dot(tl.dot(a, below, input_precision="ieee"), first, input_precision="ieee")
            tl.store(out_ptr + base + (16 + i[:, None]) * C + i[None, :], corner.to(out_ptr.dtype.element_ty))


@triton.jit
def delta_scores(k_ptr, beta_ptr, g_ptr, a_ptr, T, K, BK: tl.constexpr, C: tl.constexpr):
    """beta · k · kᵀ · decay, strictly lower: the matrix that the delta rule inverts."""
    chunk, bh = tl.program_id(0), tl.program_id(1)
    t = tl.arange(0, C)
    row = bh * T + chunk * C
    beta = tl.load(beta_ptr + row + t)
    g = tl.load(g_ptr + row + t)
    a = tl.zeros([C, C], tl.float32)
    for k0 in range(0, K, BK):
        d = k0 + tl.arange(0, BK)
        k = tl.load(k_ptr + (row + t)[:, None] * K + d[None, :])
        kb = (k * beta[:, None]).to(k.dtype)
        a = tl.dot(kb, tl.trans(k), acc=a)
    a = tl.where(t[:, None] > t[None, :], a * tl.exp(tl.minimum(g[:, None] - g[None, :], 0.0)), 0.0)
    tl.store(a_ptr + (row + t)[:, None] * C + t[None, :], a)


@triton.jit
def delta_states(
    k_ptr, w_ptr, u_ptr, g_ptr, new_ptr, h_ptr, T, K: tl.constexpr, V: tl.constexpr, BV: tl.constexpr, C: tl.constexpr
):
    """v' = u - w · h, h = exp(g) h + kᵀ v': gated delta rule, states of all chunks stored."""
    bv, bh = tl.program_id(0), tl.program_id(1)
    v_, d, i = bv * BV + tl.arange(0, BV), tl.arange(0, K), tl.arange(0, C)
    h = tl.zeros([K, BV], tl.float32)
    for chunk in range(T // C):
        row = bh * T + chunk * C
        tl.store(h_ptr + ((bh * (T // C) + chunk) * K + d[:, None]) * V + v_[None, :], h.to(h_ptr.dtype.element_ty))
        w = tl.load(w_ptr + (row + i)[:, None] * K + d[None, :])
        u = tl.load(u_ptr + (row + i)[:, None] * V + v_[None, :])
        fresh = u - tl.dot(w, h.to(w.dtype))
        tl.store(new_ptr + (row + i)[:, None] * V + v_[None, :], fresh.to(new_ptr.dtype.element_ty))
        g = tl.load(g_ptr + row + i)
        end = tl.load(g_ptr + row + C - 1)
        fresh = (fresh * tl.exp(end - g)[:, None]).to(w.dtype)
        h *= tl.exp(end)
        k = tl.load(k_ptr + (row + i)[None, :] * K + d[:, None])
        h = tl.dot(k, fresh, h)


@triton.jit
def mamba_scan(
    cb_ptr,
    x_ptr,
    dt_ptr,
    da_ptr,
    c_ptr,
    state_ptr,
    d_ptr,
    out_ptr,
    T,
    H,
    P: tl.constexpr,
    N: tl.constexpr,
    C: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
):
    """Mamba 2's output of a chunk: of the state before, and of the chunk by (c · bᵀ · decay · dt) · x."""
    block, bc, h = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    m = block * BM + tl.arange(0, BM)
    p, n = tl.arange(0, P), tl.arange(0, N)
    da_m = tl.load(da_ptr + (bc * H + h) * C + m)
    c = tl.load(c_ptr + (bc * C + m)[:, None] * N + n[None, :])
    state = tl.load(state_ptr + (bc * H + h) * P * N + p[None, :] * N + n[:, None])
    acc = tl.dot(c, state.to(c.dtype)) * tl.exp(da_m)[:, None]
    for k0 in range(0, (block + 1) * BM, BK):
        k = k0 + tl.arange(0, BK)
        cb = tl.load(cb_ptr + (bc * C + m)[:, None] * C + k[None, :]).to(tl.float32)
        da_k = tl.load(da_ptr + (bc * H + h) * C + k)
        dt = tl.load(dt_ptr + (bc * H + h) * C + k)
        cb *= tl.exp(tl.minimum(da_m[:, None] - da_k[None, :], 0.0)) * dt[None, :]
        cb = tl.where(m[:, None] >= k[None, :], cb, 0.0)
        x = tl.load(x_ptr + (bc * C + k)[:, None] * (H * P) + h * P + p[None, :])
        acc += tl.dot(cb.to(x.dtype), x)
    x = tl.load(x_ptr + (bc * C + m)[:, None] * (H * P) + h * P + p[None, :]).to(tl.float32)
    acc += x * tl.load(d_ptr + h)
    tl.store(out_ptr + (bc * C + m)[:, None] * (H * P) + h * P + p[None, :], acc.to(out_ptr.dtype.element_ty))


@triton.jit
def mamba_states(
    x_ptr,
    b_ptr,
    dt_ptr,
    da_ptr,
    out_ptr,
    H,
    P: tl.constexpr,
    N: tl.constexpr,
    C: tl.constexpr,
    BP: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """xᵀ · (b · dt · decay) of each chunk and head."""
    pid, bc, h = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    p = (pid // (N // BN)) * BP + tl.arange(0, BP)
    n = (pid % (N // BN)) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x_ptrs = x_ptr + (bc * C + k)[None, :] * (H * P) + h * P + p[:, None]
    b_ptrs = b_ptr + (bc * C + k)[:, None] * N + n[None, :]
    da_end = tl.load(da_ptr + (bc * H + h) * C + C - 1)
    acc = tl.zeros((BP, BN), tl.float32)
    for k0 in range(0, C, BK):
        x = tl.load(x_ptrs)
        b = tl.load(b_ptrs).to(tl.float32)
        factor = tl.exp(tl.minimum(da_end - tl.load(da_ptr + (bc * H + h) * C + k0 + k), 0.0)) * tl.load(
            dt_ptr + (bc * H + h) * C + k0 + k
        )
        acc += tl.dot(x, (b * factor[:, None]).to(x.dtype))
        x_ptrs += BK * H * P
        b_ptrs += BK * N
    tl.store(out_ptr + ((bc * H + h) * P + p[:, None]) * N + n[None, :], acc.to(out_ptr.dtype.element_ty))


def main() -> None:
    bf16, f16, f32 = torch.bfloat16, torch.float16, torch.float32
    new = lambda *shape, dtype=bf16: torch.empty(*shape, dtype=dtype, device="cuda")  # noqa: E731
    for BH, T, D, BV, C, gated, warps, stages in [
        (128, 4096, 64, 64, 64, False, 4, 2),
        (64, 2048, 128, 64, 64, True, 4, 2),
        (128, 2048, 64, 32, 32, True, 4, 3),
        (64, 4096, 128, 32, 64, False, 8, 3),
    ]:
        linear_attention[(BH, D // BV)](
            *(new(BH, T, D) for _ in "qkv"),
            new(BH, T, dtype=f32),
            new(BH, T, D),
            new(BH, D, D, dtype=f32),
            T,
            0.1,
            D=D,
            BV=BV,
            C=C,
            GATED=gated,
            num_warps=warps,
            num_stages=stages,
        )
    for BH, T, K, V, BK, BV, C, warps, stages in [
        (64, 2048, 128, 128, 64, 64, 64, 4, 3),
        (32, 4000, 128, 256, 32, 64, 64, 2, 2),
    ]:
        chunk_states[(K // BK, V // BV, BH)](
            new(BH, T, K),
            new(BH, T, V),
            new(BH, T, K, dtype=f32),
            new(BH, triton.cdiv(T, C), K, V),
            T,
            K=K,
            V=V,
            BK=BK,
            BV=BV,
            C=C,
            num_warps=warps,
            num_stages=stages,
        )
    for BH, T, K, V, BK, BV, C, warps, stages in [
        (64, 2048, 128, 128, 64, 128, 64, 8, 3),
        (32, 4096, 128, 256, 32, 64, 64, 4, 4),
    ]:
        chunk_outputs[(V // BV, T // C, BH)](
            new(BH, T, K),
            new(BH, T, K),
            new(BH, T, V),
            new(BH, T // C, K, V),
            new(BH, T, dtype=f32),
            new(BH, T, V),
            T,
            0.1,
            K=K,
            V=V,
            BK=BK,
            BV=BV,
            C=C,
            num_warps=warps,
            num_stages=stages,
        )
    for BH, T, D, C, warps, stages in [(128, 2048, 64, 64, 4, 2), (256, 1024, 64, 32, 4, 2)]:
        linear_attention_gradient[(BH,)](
            *(new(BH, T, D) for _ in range(7)), T, 0.1, D=D, C=C, num_warps=warps, num_stages=stages
        )
    for BH, T, C, warps in [(64, 4096, 32, 1), (64, 4096, 32, 4)]:
        triangular_inverse[(T // C, BH)](new(BH, T, C, dtype=f32), new(BH, T, C, dtype=f32), T, C=C, num_warps=warps)
    for BH, T, K, BK, C, warps, stages in [(64, 4096, 128, 64, 64, 4, 3), (64, 4096, 128, 32, 64, 2, 3)]:
        delta_scores[(T // C, BH)](
            new(BH, T, K),
            new(BH, T, dtype=f32),
            new(BH, T, dtype=f32),
            new(BH, T, C, dtype=f32),
            T,
            K,
            BK=BK,
            C=C,
            num_warps=warps,
            num_stages=stages,
        )
    for BH, T, K, V, BV, C, warps, stages in [(64, 2048, 128, 128, 32, 64, 4, 2), (64, 2048, 64, 128, 64, 64, 4, 3)]:
        delta_states[(V // BV, BH)](
            new(BH, T, K),
            new(BH, T, K),
            new(BH, T, V),
            new(BH, T, dtype=f32),
            new(BH, T, V),
            new(BH, T // C, K, V),
            T,
            K=K,
            V=V,
            BV=BV,
            C=C,
            num_warps=warps,
            num_stages=stages,
        )
    for BC, H, P, N, C, BM, BK, warps, stages in [
        (64, 24, 64, 128, 256, 128, 64, 4, 3),
        (32, 32, 64, 64, 256, 64, 32, 4, 4),
    ]:
        mamba_scan[(C // BM, BC, H)](
            new(BC, C, C),
            new(BC, C, H, P),
            new(BC, H, C, dtype=f32),
            new(BC, H, C, dtype=f32),
            new(BC, C, N),
            new(BC, H, P, N, dtype=f32),
            new(H, dtype=f32),
            new(BC, C, H, P),
            C,
            H,
            P=P,
            N=N,
            C=C,
            BM=BM,
            BK=BK,
            num_warps=warps,
            num_stages=stages,
        )
    for BC, H, P, N, C, BP, BN, BK, warps, stages in [
        (64, 24, 64, 128, 256, 64, 128, 32, 4, 4),
        (64, 24, 64, 128, 256, 64, 64, 64, 4, 3),
    ]:
        mamba_states[(P // BP * (N // BN), BC, H)](
            new(BC, C, H, P),
            new(BC, C, N),
            new(BC, H, C, dtype=f32),
            new(BC, H, C, dtype=f32),
            new(BC, H, P, N, dtype=f16),
            H,
            P=P,
            N=N,
            C=C,
            BP=BP,
            BN=BN,
            BK=BK,
            num_warps=warps,
            num_stages=stages,
        )


if __name__ == "__main__":
    main()
