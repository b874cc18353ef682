"""Products of several matrices in a launch: experts of sorted tokens, groups of problems, batches of small ones."""

import torch
import triton
import triton.language as tl


@triton.jit
def expert_product(
    a_ptr,
    b_ptr,
    c_ptr,
    weights_ptr,
    sorted_ids_ptr,
    expert_ids_ptr,
    padded_ptr,
    N,
    K,
    valid,
    stride_am,
    stride_be,
    stride_bn,
    stride_cm,
    TOP_K: tl.constexpr,
    MUL_WEIGHT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Tokens sorted by expert, padded to blocks of one expert each; the ids of padding are `valid`."""
    pid = tl.program_id(0)
    padded = tl.load(padded_ptr)
    blocks_m = tl.cdiv(padded, BLOCK_M)
    blocks_n = tl.cdiv(N, BLOCK_N)
    width = GROUP_M * blocks_n
    first = (pid // width) * GROUP_M
    size = min(blocks_m - first, GROUP_M)
    pid_m = first + ((pid % width) % size)
    pid_n = (pid % width) // size
    if pid_m * BLOCK_M >= padded:
        return
    ids = tl.load(sorted_ids_ptr + pid_m * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64))
    is_token = ids < valid
    expert = tl.load(expert_ids_ptr + pid_m).to(tl.int64)
    offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (ids[:, None] // TOP_K * stride_am + offs_k[None, :])
    b_ptrs = b_ptr + expert * stride_be + (offs_k[:, None] + offs_n[None, :] * stride_bn)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=is_token[:, None] & (offs_k[None, :] < K - k * BLOCK_K), other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        acc += tl.dot(a, b)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K
    if MUL_WEIGHT:
        acc *= tl.load(weights_ptr + ids, mask=is_token, other=0.0)[:, None]
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    tl.store(
        c_ptr + stride_cm * ids[:, None] + offs_n[None, :],
        acc.to(c_ptr.dtype.element_ty),
        mask=is_token[:, None] & (offs_n[None, :] < N),
    )


@triton.jit
def gated_experts(
    X,
    W1,
    W3,
    Y,
    order,
    starts,
    counts,
    H,
    F,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """silu(x · w1) · (x · w3) for the rows of each expert, gathered by `order`."""
    e = tl.program_id(2)
    count = tl.load(counts + e)
    m0 = tl.program_id(1) * BM
    if m0 < count:
        start = tl.load(starts + e)
        m = m0 + tl.arange(0, BM)
        rows = tl.load(order + start + m, mask=m < count, other=0)
        n = tl.program_id(0) * BN + tl.arange(0, BN)
        k = tl.arange(0, BK)
        gate = tl.zeros((BM, BN), tl.float32)
        up = tl.zeros((BM, BN), tl.float32)
        base = e.to(tl.int64) * H * F
        for k0 in tl.range(0, H, BK, num_stages=STAGES):
            x = tl.load(X + rows[:, None] * H + (k0 + k)[None, :])
            w1 = tl.load(W1 + base + (k0 + k)[:, None] * F + n[None, :])
            w3 = tl.load(W3 + base + (k0 + k)[:, None] * F + n[None, :])
            gate = tl.dot(x, w1, gate)
            up = tl.dot(x, w3, up)
        y = gate * tl.sigmoid(gate) * up
        tl.store(Y + (start + m)[:, None] * F + n[None, :], y.to(Y.dtype.element_ty), mask=(m < count)[:, None])


@triton.jit
def grouped_product(
    a_ptr,
    b_ptr,
    c_ptr,
    ends,
    groups: tl.constexpr,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """Groups of rows with a matrix each; programs take tiles of all groups in turn."""
    tile = tl.program_id(0)
    before = 0
    start = 0
    n_tiles = tl.cdiv(N, BN)
    for g in range(groups):
        end = tl.load(ends + g)
        tiles = tl.cdiv(end - start, BM) * n_tiles
        while tile >= before and tile < before + tiles:
            at = tile - before
            m = start + (at // n_tiles) * BM + tl.arange(0, BM)
            n = (at % n_tiles) * BN + tl.arange(0, BN)
            k = tl.arange(0, BK)
            a_ptrs = a_ptr + m[:, None] * K + k[None, :]
            b_ptrs = b_ptr + g * N * K + k[:, None] * N + n[None, :]
            acc = tl.zeros((BM, BN), dtype=tl.float32)
            for _ in range(0, tl.cdiv(K, BK)):
                a = tl.load(a_ptrs, mask=m[:, None] < end, other=0.0)
                acc = tl.dot(a, tl.load(b_ptrs), acc)
                a_ptrs += BK
                b_ptrs += BK * N
            tl.store(c_ptr + m[:, None] * N + n[None, :], acc.to(c_ptr.dtype.element_ty), mask=m[:, None] < end)
            tile += PROGRAMS
        before += tiles
        start = end


@triton.jit
def expert_weights_gradient(x_ptr, dy_ptr, dw_ptr, ends, H, F, BH: tl.constexpr, BF: tl.constexpr, BT: tl.constexpr):
    """xᵀ · dy of each expert's rows: k is the number of tokens, which differs by expert."""
    e = tl.program_id(2)
    start = tl.load(ends + e - 1, mask=e > 0, other=0)
    end = tl.load(ends + e)
    h = tl.program_id(0) * BH + tl.arange(0, BH)
    f = tl.program_id(1) * BF + tl.arange(0, BF)
    acc = tl.zeros((BH, BF), tl.float32)
    for t0 in range(start, end, BT):
        t = t0 + tl.arange(0, BT)
        x = tl.load(x_ptr + t[None, :] * H + h[:, None], mask=t[None, :] < end, other=0.0)
        dy = tl.load(dy_ptr + t[:, None] * F + f[None, :], mask=t[:, None] < end, other=0.0)
        acc += tl.dot(x, dy)
    tl.store(dw_ptr + e * H * F + h[:, None] * F + f[None, :], acc.to(dw_ptr.dtype.element_ty))


@triton.jit
def batched_small(a_ptr, b_ptr, c_ptr, batch, S: tl.constexpr, P: tl.constexpr, TRANS: tl.constexpr):
    """P products of S×S at once, as one dot of three axes."""
    which = tl.program_id(0) * P + tl.arange(0, P)
    i, j = tl.arange(0, S), tl.arange(0, S)
    at = which[:, None, None] * S * S + i[None, :, None] * S + j[None, None, :]
    keep = which[:, None, None] < batch
    a = tl.load(a_ptr + at, mask=keep, other=0.0)
    b = tl.load(b_ptr + at, mask=keep, other=0.0)
    if TRANS:
        b = tl.permute(b, (0, 2, 1))
    c = tl.dot(a, b)
    tl.store(c_ptr + at, c.to(c_ptr.dtype.element_ty), mask=keep)


@triton.jit
def batched_product(
    A, B, C, M, N, K, sab, sam, sak, sbb, sbk, sbn, scb, scm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """A product for each of a batch, ragged sizes, any strides."""
    z = tl.program_id(2)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        a = tl.load(
            A + z * sab + m[:, None] * sam + k[None, :] * sak, mask=(m < M)[:, None] & (k < K)[None, :], other=0
        )
        b = tl.load(
            B + z * sbb + k[:, None] * sbk + n[None, :] * sbn, mask=(k < K)[:, None] & (n < N)[None, :], other=0
        )
        acc = tl.dot(a, b, acc)
    tl.store(
        C + z * scb + m[:, None] * scm + n[None, :],
        acc.to(C.dtype.element_ty),
        mask=(m < M)[:, None] & (n < N)[None, :],
    )


def sorted_tokens(tokens: int, top_k: int, experts: int, block: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids of rows by expert, padded to blocks, the expert of each block, and the number of ids."""
    experts_of_rows = (torch.arange(tokens * top_k) * 7919 // 3) % experts
    ids, owners = [], []
    for expert in range(experts):
        rows = torch.nonzero(experts_of_rows == expert).flatten()
        pad = -len(rows) % block
        ids.append(torch.cat([rows, torch.full((pad,), tokens * top_k)]))
        owners += [expert] * ((len(rows) + pad) // block)
    every = torch.cat(ids).to(torch.int32)
    return every, torch.tensor(owners, dtype=torch.int32), torch.tensor([len(every)], dtype=torch.int32)


def main() -> None:
    bf16, f16, f32 = torch.bfloat16, torch.float16, torch.float32
    new = lambda *shape, dtype=bf16: torch.empty(*shape, dtype=dtype, device="cuda")  # noqa: E731
    for tokens, top_k, E, N, K, BM, BN, BK, warps, stages, weight in [
        (64, 2, 8, 7168, 2048, 16, 64, 128, 4, 4, False),
        (64, 8, 64, 1408, 2048, 16, 128, 64, 4, 3, False),
        (512, 2, 8, 4096, 3584, 64, 128, 64, 4, 4, True),
        (512, 8, 32, 1536, 2048, 64, 64, 64, 4, 3, True),
        (1024, 2, 8, 4096, 3584, 128, 128, 64, 8, 3, False),
        (32, 6, 64, 2048, 1408, 16, 32, 64, 2, 4, True),
    ]:
        ids, owners, padded = sorted_tokens(tokens, top_k, E, BM)
        expert_product[(len(owners) * triton.cdiv(N, BN),)](
            new(tokens, K),
            new(E, N, K),
            new(tokens * top_k, N),
            new(tokens * top_k, dtype=f32),
            ids,
            owners,
            padded,
            N,
            K,
            tokens * top_k,
            K,
            N * K,
            K,
            N,
            TOP_K=top_k,
            MUL_WEIGHT=weight,
            BLOCK_M=BM,
            BLOCK_N=BN,
            BLOCK_K=BK,
            GROUP_M=1 if BM == 16 else 16,
            num_warps=warps,
            num_stages=stages,
        )
    for E, H, F, rows, BM, BN, BK, warps, stages in [
        (8, 2048, 1408, 96, 32, 64, 64, 4, 3),
        (8, 2048, 2816, 384, 64, 64, 64, 4, 3),
        (4, 2048, 2816, 16, 16, 64, 128, 4, 4),
    ]:
        order = (torch.arange(E * rows, dtype=torch.int32) * 13) % (E * rows)
        starts = torch.arange(E, dtype=torch.int32) * rows
        gated_experts[(F // BN, triton.cdiv(rows, BM), E)](
            new(E * rows, H),
            new(E, H, F),
            new(E, H, F),
            new(E * rows, F),
            order,
            starts,
            torch.full((E,), rows - 3, dtype=torch.int32),
            H,
            F,
            BM=BM,
            BN=BN,
            BK=BK,
            STAGES=stages,
            num_warps=warps,
        )
    for M, groups, N, K, BM, BN, BK, warps, stages in [
        (4096, 8, 2048, 2048, 128, 128, 64, 8, 3),
        (1024, 16, 2048, 1024, 64, 128, 64, 4, 4),
    ]:
        step = M // groups
        ends = torch.tensor([(g + 1) * step - (g % 3) * 5 for g in range(groups - 1)] + [M], dtype=torch.int32)
        grouped_product[(132,)](
            new(M, K),
            new(groups, K, N),
            new(M, N),
            ends,
            groups,
            N,
            K,
            BM=BM,
            BN=BN,
            BK=BK,
            PROGRAMS=132,
            num_warps=warps,
            num_stages=stages,
        )
    for E, rows, H, F, BH, BF, BT, warps, stages in [
        (8, 512, 2048, 1408, 128, 128, 64, 8, 3),
        (32, 64, 1024, 1024, 64, 128, 32, 4, 4),
    ]:
        ends = (torch.arange(E, dtype=torch.int32) + 1) * rows
        expert_weights_gradient[(H // BH, F // BF, E)](
            new(E * rows, H),
            new(E * rows, F),
            new(E, H, F),
            ends,
            H,
            F,
            BH=BH,
            BF=BF,
            BT=BT,
            num_warps=warps,
            num_stages=stages,
        )
    for S, P, trans, warps, dtype in [
        (32, 4, False, 4, f16),
        (32, 8, True, 4, bf16),
        (16, 8, False, 2, f16),
        (64, 2, False, 4, f32),
    ]:
        batched_small[(8192 // P,)](
            new(8192, S, S, dtype=dtype),
            new(8192, S, S, dtype=dtype),
            new(8192, S, S, dtype=dtype),
            8192,
            S=S,
            P=P,
            TRANS=trans,
            num_warps=warps,
        )
    for Z, M, N, K, BM, BN, BK, warps, dtype in [
        (256, 100, 100, 64, 32, 32, 32, 2, f16),
        (96, 197, 197, 64, 64, 64, 64, 4, f16),
        (512, 49, 32, 49, 64, 32, 64, 4, f16),
        (64, 128, 128, 333, 64, 64, 32, 4, bf16),
    ]:
        a, b, c = new(Z, M, K, dtype=dtype), new(Z, N, K, dtype=dtype), new(Z, M, N, dtype=dtype)
        batched_product[(triton.cdiv(M, BM), triton.cdiv(N, BN), Z)](
            a, b, c, M, N, K, M * K, K, 1, N * K, 1, K, M * N, N, BM=BM, BN=BN, BK=BK, num_warps=warps, num_stages=3
        )


if __name__ == "__main__":
    main()
