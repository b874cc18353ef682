"""The kernels of `kernels_ours.py` in Triton, to be measured beside them."""

import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask)
    y = tl.load(y_ptr + at, mask)
    tl.store(out_ptr + at, x + y, mask)


@triton.jit
def softmax(out_ptr, x_ptr, stride, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * stride
    at = tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + start + at, mask, other=-float("inf")).to(tl.float32)
    powers = tl.exp(x - tl.max(x, axis=0))
    y = powers / tl.sum(powers, axis=0)
    tl.store(out_ptr + start + at, y.to(out_ptr.dtype.element_ty), mask)


@triton.jit
def softmax_rows(out_ptr, x_ptr, stride, rows, n, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < n
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        start = row * stride
        x = tl.load(x_ptr + start + at, mask, other=-float("inf")).to(tl.float32)
        powers = tl.exp(x - tl.max(x, axis=0))
        y = powers / tl.sum(powers, axis=0)
        tl.store(out_ptr + start + at, y.to(out_ptr.dtype.element_ty), mask)


@triton.jit
def layer_norm(x_ptr, y_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * stride
    y_ptr += row * stride
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + at, at < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < n
        x = tl.load(x_ptr + at, mask, other=0.0).to(tl.float32)
        off = tl.where(mask, x - mean, 0.0)
        squares += off * off
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / n + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < n
        w = tl.load(w_ptr + at, mask)
        b = tl.load(b_ptr + at, mask)
        x = tl.load(x_ptr + at, mask, other=0.0).to(tl.float32)
        y = (x - mean) * rstd * w + b
        tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask)


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, m, n, k, am, ak, bk, bn, cm, cn,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    rows, columns = tl.cdiv(m, M), tl.cdiv(n, N)
    in_group = GROUP * columns
    first = pid // in_group * GROUP
    height = min(rows - first, GROUP)
    row = first + pid % in_group % height
    column = pid % in_group // height
    at_m = (row * M + tl.arange(0, M)) % m
    at_n = (column * N + tl.arange(0, N)) % n
    at_k = tl.arange(0, K)
    a_at = a_ptr + (at_m[:, None] * am + at_k[None, :] * ak)
    b_at = b_ptr + (at_k[:, None] * bk + at_n[None, :] * bn)
    acc = tl.zeros((M, N), tl.float32)
    for step in range(0, tl.cdiv(k, K)):
        left = k - step * K
        a = tl.load(a_at, at_k[None, :] < left, other=0.0)
        b = tl.load(b_at, at_k[:, None] < left, other=0.0)
        acc = tl.dot(a, b, acc)
        a_at += K * ak
        b_at += K * bk
    out_m = row * M + tl.arange(0, M)[:, None]
    out_n = column * N + tl.arange(0, N)[None, :]
    tl.store(c_ptr + out_m * cm + out_n * cn, acc.to(tl.float16), (out_m < m) & (out_n < n))


@triton.jit
def idle(
    x0, x1, x2, x3, x4, x5, n0, n1, n2, n3, n4, n5, n6, n7, n8, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    pass


@triton.jit
def matmul_blocks(
    a_desc, b_desc, c_desc, m, n, k,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr, ROLES: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.cdiv(m, M), tl.cdiv(n, N)
    in_group = GROUP * columns
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=not ROLES):
        first = tile // in_group * GROUP
        height = min(rows - first, GROUP)
        row = (first + tile % in_group % height) * M
        column = tile % in_group // height * N
        acc = tl.zeros((M, N), tl.float32)
        for start in tl.range(0, k, K, warp_specialize=ROLES):
            a = a_desc.load([row, start])
            b = b_desc.load([column, start])
            acc = tl.dot(a, b.T, acc)
        c_desc.store([row, column], acc.to(tl.float16))


@triton.jit
def attention_step(acc, total, top, q, k_desc, v_desc, at, start, rows, scale, MASKED: tl.constexpr, N: tl.constexpr):
    start = tl.multiple_of(start, N)
    scores = tl.dot(q, k_desc.load([at + start, 0]).T)
    if MASKED:
        columns = start + tl.arange(0, N)
        scores = scores * scale + tl.where(rows[:, None] >= columns[None, :], 0.0, -1.0e6)
        higher = tl.maximum(top, tl.max(scores, 1))
        scores = scores - higher[:, None]
    else:
        higher = tl.maximum(top, tl.max(scores, 1) * scale)
        scores = scores * scale - higher[:, None]
    powers = tl.math.exp2(scores)
    shrink = tl.math.exp2(top - higher)
    acc = acc * shrink[:, None]
    acc = tl.dot(powers.to(tl.float16), v_desc.load([at + start, 0]), acc)
    return acc, total * shrink + tl.sum(powers, 1), higher


@triton.jit
def attention(
    q_desc, k_desc, v_desc, out_desc, lse_ptr, n, scale,
    CAUSAL: tl.constexpr, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, ROLES: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    at = tl.program_id(1) * n
    rows = block * M + tl.arange(0, M)
    q = q_desc.load([at + block * M, 0])
    top = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    scale = scale * 1.4426950408889634
    end = block * M if CAUSAL else n
    for start in tl.range(0, end, N, warp_specialize=ROLES):
        acc, total, top = attention_step(acc, total, top, q, k_desc, v_desc, at, start, rows, scale, False, N)
    if CAUSAL:
        for start in tl.range(block * M, (block + 1) * M, N, warp_specialize=ROLES):
            acc, total, top = attention_step(acc, total, top, q, k_desc, v_desc, at, start, rows, scale, True, N)
    out_desc.store([at + block * M, 0], (acc / total[:, None]).to(tl.float16))
    tl.store(lse_ptr + at + rows, top + tl.math.log2(total))
