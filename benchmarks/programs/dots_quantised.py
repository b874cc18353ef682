"""Products of narrow numbers: weights of 4 and 8 bits, both operands of 8 bits with scales, f8 by blocks."""

import torch
import triton
import triton.language as tl


@triton.jit
def gptq_product(
    a_ptr,
    q_ptr,
    c_ptr,
    scales_ptr,
    zeros_ptr,
    M,
    N,
    K,
    stride_am,
    stride_qk,
    stride_cm,
    stride_s,
    stride_z,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Eight weights along k in a word; the zero points, eight along n in a word, are smaller by 1."""
    pid = tl.program_id(0)
    blocks_m, blocks_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    width = GROUP_M * blocks_n
    first = pid // width * GROUP_M
    size = min(blocks_m - first, GROUP_M)
    pid_m, pid_n = first + (pid % size), (pid % width) // size
    m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + m[:, None] * stride_am + k[None, :]
    q_ptrs = q_ptr + (k[:, None] // 8) * stride_qk + n[None, :]
    shift = (k % 8) * 4
    zero_shift = (n % 8) * 4
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        group = step * BLOCK_K // GROUP
        scale = tl.load(scales_ptr + group * stride_s + n)
        zero = tl.load(zeros_ptr + group * stride_z + n // 8)
        zero = ((zero >> zero_shift) & 15) + 1
        a = tl.load(a_ptrs, mask=m[:, None] < M, other=0.0)
        q = tl.load(q_ptrs)
        w = (q >> shift[:, None]) & 15
        w = ((w - zero[None, :]) * scale[None, :]).to(a.dtype)
        acc = tl.dot(a, w, acc)
        a_ptrs += BLOCK_K
        q_ptrs += (BLOCK_K // 8) * stride_qk
    tl.store(c_ptr + m[:, None] * stride_cm + n[None, :], acc.to(c_ptr.dtype.element_ty), mask=m[:, None] < M)


@triton.jit
def awq_product(
    A,
    QW,
    C,
    S,
    Z,
    M,
    N,
    K,
    GROUP: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """Eight weights along n in a word, in AWQ's order 0 2 4 6 1 3 5 7; parts of k to parts of the result."""
    pid, part = tl.program_id(0), tl.program_id(1)
    pid_m, pid_n = pid // tl.cdiv(N, BN), pid % tl.cdiv(N, BN)
    offs_m = pid_m * BM + tl.arange(0, BM)
    offs_n = pid_n * BN + tl.arange(0, BN)
    offs_w = pid_n * (BN // 8) + tl.arange(0, BN // 8)
    order = ((tl.arange(0, 2) * 4)[None, :] + tl.arange(0, 4)[:, None]).reshape(8)
    shifts = tl.broadcast_to((order * 4)[None, :], (BK * (BN // 8), 8)).reshape(BK, BN)
    zero_shifts = tl.broadcast_to((order * 4)[None, :], (BN // 8, 8)).reshape(1, BN)
    offs_k = part * BK + tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(0, tl.cdiv(K, BK * SPLIT)):
        words = tl.load(QW + offs_k[:, None] * (N // 8) + offs_w[None, :])
        words = tl.interleave(words, words)
        words = tl.interleave(words, words)
        words = tl.interleave(words, words)
        group = (step * BK * SPLIT + part * BK) // GROUP + tl.arange(0, 1)
        zeros = tl.load(Z + group[:, None] * (N // 8) + offs_w[None, :])
        zeros = tl.interleave(zeros, zeros)
        zeros = tl.interleave(zeros, zeros)
        zeros = tl.interleave(zeros, zeros)
        scales = tl.load(S + group[:, None] * N + offs_n[None, :])
        w = (((words >> shifts) & 0xF) - ((zeros >> zero_shifts) & 0xF)) * scales
        a = tl.load(A + offs_m[:, None] * K + offs_k[None, :], mask=(offs_m < M)[:, None], other=0.0)
        acc = tl.dot(a, w.to(a.dtype), acc)
        offs_k += BK * SPLIT
    tl.store(
        C + part * M * N + offs_m[:, None] * N + offs_n[None, :], acc.to(C.dtype.element_ty), mask=(offs_m < M)[:, None]
    )


@triton.jit
def nibbles_product(x, w, s, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, G: tl.constexpr):
    """Two weights along k in a byte: the low halves times the even columns of x, the high ones times the odd."""
    m = (tl.program_id(1) * BM + tl.arange(0, BM)) % M
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    half = tl.arange(0, BK // 2)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        packed = tl.load(w + (k0 // 2 + half)[:, None] * N + n[None, :])
        scale = tl.load(s + (k0 // G) * N + n)[None, :]
        low = (((packed & 0xF).to(tl.int8) - 8).to(tl.float16) * scale).to(tl.float16)
        high = (((packed >> 4).to(tl.int8) - 8).to(tl.float16) * scale).to(tl.float16)
        even = tl.load(x + m[:, None] * K + (k0 + 2 * half)[None, :])
        odd = tl.load(x + m[:, None] * K + (k0 + 2 * half + 1)[None, :])
        acc = tl.dot(even, low, acc)
        acc = tl.dot(odd, high, acc)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    tl.store(y + rows[:, None] * N + n[None, :], acc.to(tl.float16), mask=rows[:, None] < M)


@triton.jit
def bytes_product(
    a_ptr,
    b_ptr,
    c_ptr,
    scale_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    """Weights of 8 bits with a scale a column (W8A16)."""
    pid_n, pid_m = tl.program_id(0), tl.program_id(1)
    rm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    rk = tl.arange(0, BLOCK_K)
    A = a_ptr + (rm[:, None] * stride_am + rk[None, :] * stride_ak)
    B = b_ptr + (rk[:, None] * stride_bk + rn[None, :] * stride_bn)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(K, 0, -BLOCK_K):
        if EVEN_K:
            a = tl.load(A, mask=rm[:, None] < M, other=0.0)
            b = tl.load(B)
        else:
            a = tl.load(A, mask=(rm[:, None] < M) & (rk[None, :] < k), other=0.0)
            b = tl.load(B, mask=rk[:, None] < k, other=0)
        acc += tl.dot(a, b.to(a.dtype))
        A += BLOCK_K * stride_ak
        B += BLOCK_K * stride_bk
    acc *= tl.load(scale_ptr + rn)[None, :]
    tl.store(c_ptr + rm[:, None] * stride_cm + rn[None, :], acc.to(c_ptr.dtype.element_ty), mask=rm[:, None] < M)


@triton.jit
def scaled_int8(
    a_ptr,
    b_ptr,
    c_ptr,
    sa_ptr,
    sb_ptr,
    bias_ptr,
    M,
    N,
    K,
    sam,
    sbn,
    scm,
    HAS_BIAS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """W8A8: int8 by int8 with a scale a row and a column (b lies along k)."""
    pid = tl.program_id(0)
    grid_n = tl.cdiv(N, BN)
    pm, pn = pid // grid_n, pid % grid_n
    om = (pm * BM + tl.arange(0, BM)) % M
    on = (pn * BN + tl.arange(0, BN)) % N
    ok = tl.arange(0, BK)
    pa = a_ptr + om[:, None] * sam + ok[None, :]
    pb = b_ptr + on[None, :] * sbn + ok[:, None]
    acc = tl.zeros((BM, BN), dtype=tl.int32)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(pa, mask=ok[None, :] < K - k * BK, other=0)
        b = tl.load(pb, mask=ok[:, None] < K - k * BK, other=0)
        acc += tl.dot(a, b, out_dtype=tl.int32)
        pa += BK
        pb += BK
    om = pm * BM + tl.arange(0, BM)
    on = pn * BN + tl.arange(0, BN)
    sa = tl.load(sa_ptr + om, mask=om < M, other=0.0)
    sb = tl.load(sb_ptr + on, mask=on < N, other=0.0)
    c = acc.to(tl.float32) * sa[:, None] * sb[None, :]
    if HAS_BIAS:
        c += tl.load(bias_ptr + on, mask=on < N, other=0.0)[None, :]
    tl.store(
        c_ptr + om[:, None] * scm + on[None, :],
        c.to(c_ptr.dtype.element_ty),
        mask=(om < M)[:, None] & (on < N)[None, :],
    )


@triton.jit
def f8_by_blocks(
    A,
    B,
    C,
    As,
    Bs,
    M,
    N,
    K,
    group_n,
    group_k,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    stride_As_m,
    stride_As_k,
    stride_Bs_k,
    stride_Bs_n,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
):
    """f8 with a scale for 1×128 of a and 128×128 of b."""
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_SIZE_M)
    num_pid_n = tl.cdiv(N, BLOCK_SIZE_N)
    in_group = GROUP_SIZE_M * num_pid_n
    first_m = (pid // in_group) * GROUP_SIZE_M
    group_size = min(num_pid_m - first_m, GROUP_SIZE_M)
    pid_m = first_m + (pid % group_size)
    pid_n = (pid % in_group) // group_size
    offs_am = (pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)) % M
    offs_bn = (pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)) % N
    offs_k = tl.arange(0, BLOCK_SIZE_K)
    a_ptrs = A + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = B + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    as_ptrs = As + offs_am * stride_As_m
    bs_ptrs = Bs + (offs_bn // group_n) * stride_Bs_n
    acc = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_SIZE_K)):
        rest = K - k * BLOCK_SIZE_K
        a = tl.load(a_ptrs, mask=offs_k[None, :] < rest, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < rest, other=0.0)
        at = k * BLOCK_SIZE_K // group_k
        a_s = tl.load(as_ptrs + at * stride_As_k)
        b_s = tl.load(bs_ptrs + at * stride_Bs_k)
        acc += tl.dot(a, b) * a_s[:, None] * b_s[None, :]
        a_ptrs += BLOCK_SIZE_K * stride_ak
        b_ptrs += BLOCK_SIZE_K * stride_bk
    offs_cm = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    offs_cn = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    c_ptrs = C + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    tl.store(c_ptrs, acc.to(C.dtype.element_ty), mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


@triton.jit
def f8_descriptors(
    a_desc, b_desc, c_desc, sa_ptr, sb_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """The same by descriptors of the host; scales along m lie side by side."""
    pm, pn = tl.program_id(0) * BM, tl.program_id(1) * BN
    rows = pm + tl.arange(0, BM)
    acc = tl.zeros([BM, BN], tl.float32)
    for k in tl.range(0, K // BK):
        a = a_desc.load([pm, k * BK])
        b = b_desc.load([pn, k * BK])
        sa = tl.load(sa_ptr + k * M + rows)
        sb = tl.load(sb_ptr + (pn // 128) * (K // 128) + k)
        acc += tl.dot(a, b.T) * (sa * sb)[:, None]
    c_desc.store([pm, pn], acc.to(tl.bfloat16))


def main() -> None:
    f16, bf16, f8, i8, i32 = torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.int32
    new = lambda *shape, dtype=f16: torch.empty(*shape, dtype=dtype, device="cuda")  # noqa: E731
    N = K = 4096
    for M, BM, BN, BK, warps, stages in [
        (16, 16, 64, 128, 4, 4),
        (64, 64, 128, 64, 4, 3),
        (2048, 128, 128, 64, 8, 3),
        (2048, 64, 128, 32, 4, 4),
        (1, 16, 32, 128, 2, 5),
    ]:
        q = torch.zeros(K // 8, N, dtype=i32) + 0x12345678
        zeros = torch.zeros(K // 128, N // 8, dtype=i32) + 0x77777777
        gptq_product[(triton.cdiv(M, BM) * (N // BN),)](
            new(M, K),
            q,
            new(M, N),
            new(K // 128, N),
            zeros,
            M,
            N,
            K,
            K,
            N,
            N,
            N,
            N // 8,
            GROUP=128,
            BLOCK_M=BM,
            BLOCK_N=BN,
            BLOCK_K=BK,
            GROUP_M=8,
            num_warps=warps,
            num_stages=stages,
        )
    for M, BM, BN, BK, split, warps, stages in [(16, 16, 64, 64, 8, 4, 3), (1024, 64, 128, 32, 1, 4, 3)]:
        words, zeros = torch.zeros(K, N // 8, dtype=i32) + 0x12345678, torch.zeros(K // 128, N // 8, dtype=i32) + 0x111
        awq_product[(triton.cdiv(M, BM) * (N // BN), split)](
            new(M, K),
            words,
            new(split, M, N),
            new(K // 128, N),
            zeros,
            M,
            N,
            K,
            GROUP=128,
            BM=BM,
            BN=BN,
            BK=BK,
            SPLIT=split,
            num_warps=warps,
            num_stages=stages,
        )
    for M, BM, BN, BK, warps, stages in [(32, 32, 64, 128, 4, 4), (1024, 128, 128, 64, 8, 3)]:
        nibbles_product[(N // BN, triton.cdiv(M, BM))](
            new(M, K),
            torch.zeros(K // 2, N, dtype=torch.uint8) + 0x5A,
            new(K // 64, N),
            new(M, N),
            M,
            N,
            K,
            BM=BM,
            BN=BN,
            BK=BK,
            G=128,
            num_warps=warps,
            num_stages=stages,
        )
    for M, k, BM, BN, BK, warps, stages, dtype in [
        (16, 4096, 16, 64, 128, 4, 4, i8),
        (128, 4096, 64, 128, 64, 4, 4, i8),
        (2048, 4096, 128, 256, 64, 8, 3, i8),
        (2048, 4000, 128, 128, 64, 4, 3, i8),
        (32, 4096, 32, 128, 128, 4, 3, f8),
    ]:
        b = torch.zeros(k, N, dtype=i8) if dtype == i8 else new(k, N, dtype=f8)
        bytes_product[(N // BN, triton.cdiv(M, BM))](
            new(M, k, dtype=bf16),
            b,
            new(M, N, dtype=bf16),
            new(N, dtype=torch.float32),
            M,
            N,
            k,
            k,
            1,
            N,
            1,
            N,
            BLOCK_M=BM,
            BLOCK_N=BN,
            BLOCK_K=BK,
            EVEN_K=k % BK == 0,
            num_warps=warps,
            num_stages=stages,
        )
    for M, BM, BN, BK, warps, stages, bias in [
        (16, 16, 128, 128, 4, 4, False),
        (256, 64, 128, 128, 4, 4, True),
        (4096, 128, 256, 128, 8, 3, True),
        (4096, 128, 128, 64, 4, 4, False),
    ]:
        scaled_int8[(triton.cdiv(M, BM) * (N // BN),)](
            torch.ones(M, K, dtype=i8),
            torch.ones(N, K, dtype=i8),
            new(M, N, dtype=bf16),
            new(M, dtype=torch.float32),
            new(N, dtype=torch.float32),
            new(N, dtype=bf16),
            M,
            N,
            K,
            K,
            K,
            N,
            HAS_BIAS=bias,
            BM=BM,
            BN=BN,
            BK=BK,
            num_warps=warps,
            num_stages=stages,
        )
    f32 = torch.float32
    for M, n, k, BM, BN, BK, warps, stages in [
        (16, 4096, 7168, 16, 64, 128, 4, 4),
        (64, 7168, 2048, 64, 64, 128, 4, 4),
        (128, 4096, 7168, 64, 128, 128, 4, 3),
        (4096, 4096, 7168, 128, 128, 128, 8, 3),
        (4096, 2112, 7168, 64, 128, 128, 4, 4),
        (33, 2112, 7168, 32, 64, 128, 4, 3),
    ]:
        f8_by_blocks[(triton.cdiv(M, BM) * triton.cdiv(n, BN),)](
            new(M, k, dtype=f8),
            new(n, k, dtype=f8),
            new(M, n, dtype=bf16),
            new(M, k // 128, dtype=f32),
            new(triton.cdiv(n, 128), k // 128, dtype=f32),
            M,
            n,
            k,
            128,
            128,
            k,
            1,
            1,
            k,
            n,
            1,
            k // 128,
            1,
            1,
            k // 128,
            BLOCK_SIZE_M=BM,
            BLOCK_SIZE_N=BN,
            BLOCK_SIZE_K=BK,
            GROUP_SIZE_M=32,
            num_warps=warps,
            num_stages=stages,
        )
    from triton.tools.tensor_descriptor import TensorDescriptor

    for M, BM, BN, warps, stages in [(4096, 128, 128, 8, 4), (256, 64, 128, 4, 4)]:
        a, b, c = new(M, 4096, dtype=f8), new(N, 4096, dtype=f8), new(M, N, dtype=bf16)
        of = TensorDescriptor.from_tensor
        f8_descriptors[(M // BM, N // BN)](
            of(a, [BM, 128]),
            of(b, [BN, 128]),
            of(c, [BM, BN]),
            new(32, M, dtype=f32),
            new(32, 32, dtype=f32),
            M,
            N,
            4096,
            BM=BM,
            BN=BN,
            BK=128,
            num_warps=warps,
            num_stages=stages,
        )


if __name__ == "__main__":
    main()
