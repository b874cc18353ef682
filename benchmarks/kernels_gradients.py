"""Hand-written backward kernels, to which generated gradients are compared, and a forward kernel."""

import ziggurat as zg

LESS = zg.CompareKind.LESS_THAN
LOG2_E = 1.4426950408889634


@zg.kernel
def layer_norm(x_ptr, y_ptr, weight_ptr, bias_ptr, stride, n_cols, eps, BLOCK: zg.constexpr):
    """Layer normalisation of a row that fits in a block."""
    row = zg.program_id(0) * stride
    columns = zg.arange(0, BLOCK)
    mask = zg.compare(columns, n_cols, LESS)
    x = zg.cast(zg.load(zg.add(x_ptr + row, columns), mask, other=0.0), zg.f32)
    mean = zg.sum(x, axis=0) / n_cols
    centred = zg.where(mask, zg.sub(x, mean), 0.0)
    rstd = zg.rsqrt(zg.sum(zg.mul(centred, centred), axis=0) / n_cols + eps)
    weight = zg.load(zg.add(weight_ptr, columns), mask)
    bias = zg.load(zg.add(bias_ptr, columns), mask)
    y = zg.add(zg.mul(zg.mul(centred, rstd), weight), bias)
    zg.store(zg.add(y_ptr + row, columns), zg.cast(y, y_ptr.dtype.element_ty), mask)


@zg.kernel
def layer_norm_backward(
    x_ptr, dx_ptr, dy_ptr, weight_ptr, dweight_ptr, dbias_ptr, rows, stride, n_cols, eps, BLOCK: zg.constexpr
):  # fmt: skip
    """The gradients of `layer_norm`: a program sums over every num_programs-th row, then adds to dweight and dbias."""
    columns = zg.arange(0, BLOCK)
    mask = zg.compare(columns, n_cols, LESS)
    weight = zg.load(zg.add(weight_ptr, columns), mask, other=0.0)
    dweight = zg.zeros((BLOCK,), zg.f32)
    dbias = zg.zeros((BLOCK,), zg.f32)
    for row in range(zg.program_id(0), rows, zg.num_programs(0)):
        x = zg.cast(zg.load(zg.add(x_ptr + row * stride, columns), mask, other=0.0), zg.f32)
        dy = zg.cast(zg.load(zg.add(dy_ptr + row * stride, columns), mask, other=0.0), zg.f32)
        mean = zg.sum(x, axis=0) / n_cols
        centred = zg.where(mask, zg.sub(x, mean), 0.0)
        rstd = zg.rsqrt(zg.sum(zg.mul(centred, centred), axis=0) / n_cols + eps)
        normal = zg.mul(centred, rstd)
        part = zg.mul(dy, weight)
        along = zg.sum(zg.mul(part, normal), axis=0) / n_cols
        common = zg.sum(part, axis=0) / n_cols
        dx = zg.mul(zg.sub(part, zg.add(zg.mul(normal, along), common)), rstd)
        zg.store(zg.add(dx_ptr + row * stride, columns), zg.cast(dx, dx_ptr.dtype.element_ty), mask)
        dweight = zg.add(dweight, zg.mul(dy, normal))
        dbias = zg.add(dbias, dy)
    zg.atomic_add(zg.add(dweight_ptr, columns), dweight, mask, sem="relaxed")
    zg.atomic_add(zg.add(dbias_ptr, columns), dbias, mask, sem="relaxed")


@zg.kernel
def attention_delta(out_ptr, dout_ptr, delta_ptr, rows, BLOCK: zg.constexpr, D: zg.constexpr):
    """The sums of out · dout along the rows."""
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    elements = zg.add(zg.expand(zg.mul(at, D), 1), zg.expand(zg.arange(0, D), 0))
    out = zg.cast(zg.load(zg.add(out_ptr, elements)), zg.f32)
    dout = zg.cast(zg.load(zg.add(dout_ptr, elements)), zg.f32)
    zg.store(zg.add(delta_ptr, at), zg.sum(zg.mul(out, dout), axis=1))


@zg.kernel
def attention_keys(
    q_desc, k_desc, v_desc, dout_desc, dk_desc, dv_desc, lse_ptr, delta_ptr, n, scale,
    BLOCK_M: zg.constexpr, BLOCK_N: zg.constexpr, D: zg.constexpr,
):  # fmt: skip
    """The gradients of a block of BLOCK_N keys and values, over all queries in blocks of BLOCK_M. `lse_ptr` has the
    logarithms to the base 2 of the sums of the powers of 2, by query."""
    head = zg.program_id(1) * n
    first = zg.program_id(0) * BLOCK_N
    k = k_desc.load([head + first, 0])
    v = v_desc.load([head + first, 0])
    dk = zg.zeros([BLOCK_N, D], zg.f32)
    dv = zg.zeros([BLOCK_N, D], zg.f32)
    for at in range(0, n, BLOCK_M):
        rows = zg.add(head + at, zg.arange(0, BLOCK_M))
        q = q_desc.load([head + at, 0])
        dout = dout_desc.load([head + at, 0])
        lse = zg.load(zg.add(lse_ptr, rows))
        delta = zg.load(zg.add(delta_ptr, rows))
        scores = zg.dot(k, zg.trans(q))
        powers = zg.exp2(zg.sub(zg.mul(scores, scale * LOG2_E), zg.expand(lse, 0)))
        dv = zg.dot(zg.cast(powers, zg.f16), dout, dv)
        dpowers = zg.dot(v, zg.trans(dout))
        dscores = zg.mul(powers, zg.sub(dpowers, zg.expand(delta, 0)))
        dk = zg.dot(zg.cast(dscores, zg.f16), q, dk)
    dk_desc.store([head + first, 0], zg.cast(zg.mul(dk, scale), zg.f16))
    dv_desc.store([head + first, 0], zg.cast(dv, zg.f16))


@zg.kernel
def attention_queries(
    q_desc, k_desc, v_desc, dout_desc, dq_desc, lse_ptr, delta_ptr, n, scale,
    BLOCK_M: zg.constexpr, BLOCK_N: zg.constexpr, D: zg.constexpr,
):  # fmt: skip
    """The gradient of a block of BLOCK_M queries, over all keys in blocks of BLOCK_N."""
    head = zg.program_id(1) * n
    first = zg.program_id(0) * BLOCK_M
    rows = zg.add(head + first, zg.arange(0, BLOCK_M))
    q = q_desc.load([head + first, 0])
    dout = dout_desc.load([head + first, 0])
    lse = zg.load(zg.add(lse_ptr, rows))
    delta = zg.load(zg.add(delta_ptr, rows))
    dq = zg.zeros([BLOCK_M, D], zg.f32)
    for at in range(0, n, BLOCK_N):
        k = k_desc.load([head + at, 0])
        v = v_desc.load([head + at, 0])
        scores = zg.dot(q, zg.trans(k))
        powers = zg.exp2(zg.sub(zg.mul(scores, scale * LOG2_E), zg.expand(lse, 1)))
        dpowers = zg.dot(dout, zg.trans(v))
        dscores = zg.mul(powers, zg.sub(dpowers, zg.expand(delta, 1)))
        dq = zg.dot(zg.cast(dscores, zg.f16), k, dq)
    dq_desc.store([head + first, 0], zg.cast(zg.mul(dq, scale), zg.f16))
