"""Kernels in explicit calls, of which `kernels_triton.py` has most in Triton's Python."""

import ziggurat as zg

LESS = zg.CompareKind.LESS_THAN


@zg.kernel
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    mask = zg.compare(at, n, LESS)
    x = zg.load(zg.add(x_ptr, at), mask)
    y = zg.load(zg.add(y_ptr, at), mask)
    zg.store(zg.add(out_ptr, at), zg.add(x, y), mask)


@zg.kernel
def softmax(out_ptr, x_ptr, stride, n, BLOCK: zg.constexpr):
    start = zg.program_id(0) * stride
    at = zg.arange(0, BLOCK)
    mask = zg.compare(at, n, LESS)
    x = zg.cast(zg.load(zg.add(x_ptr + start, at), mask, other=-float("inf")), zg.f32)
    powers = zg.exp(zg.sub(x, zg.max(x, axis=0)))
    y = zg.div(powers, zg.sum(powers, axis=0))
    zg.store(zg.add(out_ptr + start, at), zg.cast(y, out_ptr.dtype.element_ty), mask)


@zg.kernel
def layer_norm(x_ptr, y_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, stride, n, eps, BLOCK: zg.constexpr):
    row = zg.program_id(0)
    x_ptr += row * stride
    y_ptr += row * stride
    total = zg.zeros((BLOCK,), zg.f32)
    for start in range(0, n, BLOCK):
        at = zg.add(start, zg.arange(0, BLOCK))
        total = zg.add(total, zg.cast(zg.load(zg.add(x_ptr, at), zg.compare(at, n, LESS), other=0.0), zg.f32))
    mean = zg.sum(total, axis=0) / n
    squares = zg.zeros((BLOCK,), zg.f32)
    for start in range(0, n, BLOCK):
        at = zg.add(start, zg.arange(0, BLOCK))
        mask = zg.compare(at, n, LESS)
        x = zg.cast(zg.load(zg.add(x_ptr, at), mask, other=0.0), zg.f32)
        off = zg.where(mask, zg.sub(x, mean), 0.0)
        squares = zg.add(squares, zg.mul(off, off))
    rstd = 1 / zg.sqrt(zg.sum(squares, axis=0) / n + eps)
    zg.store(mean_ptr + row, mean)
    zg.store(rstd_ptr + row, rstd)
    for start in range(0, n, BLOCK):
        at = zg.add(start, zg.arange(0, BLOCK))
        mask = zg.compare(at, n, LESS)
        w = zg.load(zg.add(w_ptr, at), mask)
        b = zg.load(zg.add(b_ptr, at), mask)
        x = zg.cast(zg.load(zg.add(x_ptr, at), mask, other=0.0), zg.f32)
        y = zg.add(zg.mul(zg.mul(zg.sub(x, mean), rstd), w), b)
        zg.store(zg.add(y_ptr, at), zg.cast(y, y_ptr.dtype.element_ty), mask)


@zg.kernel
def matmul(
    a_ptr, b_ptr, c_ptr, m, n, k, am, ak, bk, bn, cm, cn,
    M: zg.constexpr, N: zg.constexpr, K: zg.constexpr, GROUP: zg.constexpr,
):  # fmt: skip
    pid = zg.program_id(0)
    rows, columns = zg.cdiv(m, M), zg.cdiv(n, N)
    in_group = GROUP * columns
    first = pid // in_group * GROUP
    height = min(rows - first, GROUP)
    row = first + pid % in_group % height
    column = pid % in_group // height
    at_m = zg.mod(zg.add(row * M, zg.arange(0, M)), m)
    at_n = zg.mod(zg.add(column * N, zg.arange(0, N)), n)
    at_k = zg.arange(0, K)
    a_at = zg.add(a_ptr, zg.add(zg.mul(zg.expand(at_m, 1), am), zg.mul(zg.expand(at_k, 0), ak)))
    b_at = zg.add(b_ptr, zg.add(zg.mul(zg.expand(at_k, 1), bk), zg.mul(zg.expand(at_n, 0), bn)))
    acc = zg.zeros((M, N), zg.f32)
    for step in range(0, zg.cdiv(k, K)):
        rest = k - step * K
        a = zg.load(a_at, zg.compare(zg.expand(at_k, 0), rest, LESS), other=0.0)
        b = zg.load(b_at, zg.compare(zg.expand(at_k, 1), rest, LESS), other=0.0)
        acc = zg.dot(a, b, acc)
        a_at = zg.add(a_at, K * ak)
        b_at = zg.add(b_at, K * bk)
    out_m = zg.expand(zg.add(row * M, zg.arange(0, M)), 1)
    out_n = zg.expand(zg.add(column * N, zg.arange(0, N)), 0)
    inside = zg.and_(zg.compare(out_m, m, LESS), zg.compare(out_n, n, LESS))
    c_at = zg.add(c_ptr, zg.add(zg.mul(out_m, cm), zg.mul(out_n, cn)))
    zg.store(c_at, zg.cast(acc, zg.f16), inside)


@zg.kernel
def matmul_blocks(
    a_desc, b_desc, c_desc, m, n, k,
    M: zg.constexpr, N: zg.constexpr, K: zg.constexpr, GROUP: zg.constexpr, ROLES: zg.constexpr,
):  # fmt: skip
    """Compute a · bᵀ through descriptors. Each program takes tiles, grid-stride."""
    rows, columns = zg.cdiv(m, M), zg.cdiv(n, N)
    in_group = GROUP * columns
    for tile in range(zg.program_id(0), rows * columns, zg.num_programs(0)):
        first = tile // in_group * GROUP
        height = min(rows - first, GROUP)
        row = (first + tile % in_group % height) * M
        column = tile % in_group // height * N
        acc = zg.zeros((M, N), zg.f32)
        for start in zg.range(0, k, K, warp_specialize=ROLES):
            a = a_desc.load((row, start))
            b = b_desc.load((column, start))
            acc = zg.dot(a, zg.trans(b), acc)
        c_desc.store((row, column), zg.cast(acc, zg.f16))


@zg.function
def attention_step(
    acc, total, top, q, k_desc, v_desc, at, start, rows, scale, MASKED: zg.constexpr, N: zg.constexpr
):  # fmt: skip
    scores = zg.dot(q, zg.trans(k_desc.load((at + start, 0))))
    if MASKED:
        columns = zg.add(start, zg.arange(0, N))
        visible = zg.compare(zg.expand(rows, 1), zg.expand(columns, 0), zg.CompareKind.GREATER_THAN_OR_EQUAL)
        scores = zg.add(zg.mul(scores, scale), zg.where(visible, 0.0, -1.0e6))
        higher = zg.maximum(top, zg.max(scores, axis=1))
        scores = zg.sub(scores, zg.expand(higher, 1))
    else:
        higher = zg.maximum(top, zg.mul(zg.max(scores, axis=1), scale))
        scores = zg.sub(zg.mul(scores, scale), zg.expand(higher, 1))
    powers = zg.exp2(scores)
    shrink = zg.exp2(zg.sub(top, higher))
    acc = zg.mul(acc, zg.expand(shrink, 1))
    acc = zg.dot(zg.cast(powers, zg.f16), v_desc.load((at + start, 0)), acc)
    return acc, zg.add(zg.mul(total, shrink), zg.sum(powers, axis=1)), higher


@zg.kernel
def attention(
    q_desc, k_desc, v_desc, out_desc, lse_ptr, n, scale,
    CAUSAL: zg.constexpr, M: zg.constexpr, N: zg.constexpr, D: zg.constexpr, ROLES: zg.constexpr,
):  # fmt: skip
    """Attention forward, with all heads stacked in two axes; lse is the binary logarithm of the sums."""
    block = zg.program_id(0)
    at = zg.program_id(1) * n
    rows = zg.add(block * M, zg.arange(0, M))
    q = q_desc.load((at + block * M, 0))
    top = zg.full((M,), -float("inf"), zg.f32)
    total = zg.zeros((M,), zg.f32)
    acc = zg.zeros((M, D), zg.f32)
    scale = scale * 1.4426950408889634
    end = block * M if CAUSAL else n
    for start in zg.range(0, end, N, warp_specialize=ROLES):
        acc, total, top = attention_step(acc, total, top, q, k_desc, v_desc, at, start, rows, scale, False, N)
    if CAUSAL:
        for start in zg.range(block * M, (block + 1) * M, N, warp_specialize=ROLES):
            acc, total, top = attention_step(acc, total, top, q, k_desc, v_desc, at, start, rows, scale, True, N)
    out_desc.store((at + block * M, 0), zg.cast(zg.div(acc, zg.expand(total, 1)), zg.f16))
    zg.store(zg.add(lse_ptr + at, rows), zg.add(top, zg.log2(total)))
