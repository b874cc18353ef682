"""Attention and its gradients in Triton's Python, a part of `kernels_triton.py`."""

import triton
import triton.language as tl


@triton.jit
def attention_step(
    acc, total, top, q, k, v, start, unmasked, rows, scale, MASKED: tl.constexpr, ONCE: tl.constexpr, N: tl.constexpr,
    LANES: tl.constexpr,
):  # fmt: skip
    scores = tl.dot(q, k.T)
    columns = start + tl.arange(0, N)
    if ONCE and start >= unmasked:
        scores = tl.where(rows[:, None] >= columns[None, :], scores, -1.0e6)
    if MASKED:
        scores = scores * scale + tl.where(rows[:, None] >= columns[None, :], 0.0, -1.0e6)
        higher = tl.maximum(top, tl.max(scores, 1))
        scores = scores - higher[:, None]
    else:
        higher = tl.maximum(top, tl.max(scores, 1) * scale)
        scores = scores * scale - higher[:, None]
    powers = tl.math.exp2(scores)
    shrink = tl.math.exp2(top - higher)
    acc = acc * shrink[:, None]
    acc = tl.dot(powers.to(q.dtype), v, acc)
    if LANES:
        powers = tl.sum(tl.reshape(powers, (powers.shape[0], N // 8, 4, 2)), 3)
        return acc, total * shrink[:, None] + tl.sum(powers, 1), higher
    return acc, total * shrink + tl.sum(powers, 1), higher


@triton.jit
def store_parts(desc, block, row, column, M: tl.constexpr, D: tl.constexpr, PARTS: tl.constexpr):
    """Store a block of M × D elements in PARTS parts of its columns, a power of 2."""
    if PARTS == 1:
        desc.store([row, column], block.to(desc.dtype))
    else:
        left, right = tl.split(tl.permute(tl.reshape(block, (M, 2, D // 2)), (0, 2, 1)))
        store_parts(desc, left, row, column, M, D // 2, PARTS // 2)
        store_parts(desc, right, row, column + D // 2, M, D // 2, PARTS // 2)


@triton.jit
def attention_tile(
    q_desc, k_desc, v_desc, out_desc, lse_ptr, n, scale, block, row, at, CAUSAL: tl.constexpr, ONCE: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, ROLES: tl.constexpr, LANES: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    rows = block * M + tl.arange(0, M)
    q = q_desc.load([row + block * M, 0])
    top = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M, 4) if LANES else (M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    scale = scale * 1.4426950408889634
    end = (block * M if M >= N else block * M // N * N) if CAUSAL else n
    # ONCE: the last steps are in the same loop, and mask in a branch.
    for start in tl.range(0, (block + 1) * M if ONCE else end, N, warp_specialize=ROLES):
        start = tl.multiple_of(start, N)
        k, v = k_desc.load([at + start, 0]), v_desc.load([at + start, 0])
        acc, total, top = attention_step(acc, total, top, q, k, v, start, end, rows, scale, False, ONCE, N, LANES)
    if CAUSAL and not ONCE:
        for start in tl.range(end, (block + 1) * M, N, warp_specialize=ROLES):
            start = tl.multiple_of(start, N)
            k, v = k_desc.load([at + start, 0]), v_desc.load([at + start, 0])
            acc, total, top = attention_step(acc, total, top, q, k, v, start, end, rows, scale, True, False, N, LANES)
    if LANES:
        total = tl.sum(total, 1)
    store_parts(out_desc, acc * (1 / total)[:, None], row + block * M, 0, M, D, PARTS)
    tl.store(lse_ptr + row + rows, top + tl.math.log2(total))


@triton.jit
def attention(
    q_desc, k_desc, v_desc, out_desc, lse_ptr, n, heads, scale, CAUSAL: tl.constexpr, ONCE: tl.constexpr,
    SHARED: tl.constexpr, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, ROLES: tl.constexpr, TILES: tl.constexpr,
    GROUP: tl.constexpr, PAIRS: tl.constexpr, LANES: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Attention forward, all heads stacked in two axes; SHARED heads of queries have one of keys. lse is the binary
    logarithm of the sums. The output is stored in PARTS parts. The tiles of GROUP heads that see the most keys come
    first. With TILES, a program takes several, grid-stride; with PAIRS, tiles in pairs that see n + M keys together,
    the neighbours of a head by neighbouring programs. Then n // M is even."""
    program, programs, blocks = tl.program_id(0), tl.num_programs(0), n // M
    end = blocks * heads if TILES else program + 1
    if PAIRS:
        end = tl.cdiv(end // 2 - program, programs) * 2 * programs
    for tile in tl.range(program, end, programs):
        if PAIRS:
            pair = tile // (2 * programs) * programs + program
            head, block = pair // (blocks // 2), pair % (blocks // 2)
            block = tl.where(tile // programs % 2 == 0, blocks - 1 - block, block)
        else:
            block = blocks - 1 - tile % (blocks * GROUP) // GROUP
            head = tile // (blocks * GROUP) * GROUP + tile % GROUP
        row, at = head * n, head // SHARED * n
        attention_tile(
            q_desc, k_desc, v_desc, out_desc, lse_ptr, n, scale, block, row, at, CAUSAL, ONCE, M, N, D, ROLES, LANES,
            PARTS,
        )  # fmt: skip


@triton.jit
def attention_start(M: tl.constexpr, D: tl.constexpr, LANES: tl.constexpr):
    total = tl.zeros((M, 4) if LANES else (M,), tl.float32)
    return tl.zeros((M, D), tl.float32), total, tl.full((M,), -float("inf"), tl.float32)


@triton.jit
def attention_end(out_desc, lse_ptr, acc, total, top, row, first, n, M: tl.constexpr, LANES: tl.constexpr):
    if LANES:
        total = tl.sum(total, 1)
    if first < n:
        out_desc.store([row + first, 0], (acc / total[:, None]).to(out_desc.dtype))
    rows = first + tl.arange(0, M)
    tl.store(lse_ptr + row + rows, top + tl.math.log2(total), rows < n)


@triton.jit
def attention_blocks(
    q_desc, k_desc, v_desc, out_desc, lse_ptr, n, heads, scale, CAUSAL: tl.constexpr, SHARED: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, ROLES: tl.constexpr, TILES: tl.constexpr, GROUP: tl.constexpr,
    LANES: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """`attention` with two or three blocks of queries a tile, which read the same keys and values: with roles, each is
    the work of warps of its own. The last tile of a head may have fewer."""
    scale = scale * 1.4426950408889634
    tiles = tl.cdiv(n, BLOCKS * M)
    group = tiles * GROUP
    for tile in tl.range(tl.program_id(0), tiles * heads if TILES else tl.program_id(0) + 1, tl.num_programs(0)):
        head = tile // group * GROUP + tile % GROUP
        row, at = head * n, head // SHARED * n
        first = (tiles - 1 - tile % group // GROUP) * (BLOCKS * M)
        second, third = first + M, first + 2 * M
        q0, q1 = q_desc.load([row + first, 0]), q_desc.load([row + second, 0])
        acc0, total0, top0 = attention_start(M, D, LANES)
        acc1, total1, top1 = attention_start(M, D, LANES)
        if BLOCKS == 3:
            q2 = q_desc.load([row + third, 0])
            acc2, total2, top2 = attention_start(M, D, LANES)
        lanes = tl.arange(0, M)
        for start in tl.range(0, tl.minimum(n, first + BLOCKS * M) if CAUSAL else n, N, warp_specialize=ROLES):
            start = tl.multiple_of(start, N)
            k, v = k_desc.load([at + start, 0]), v_desc.load([at + start, 0])
            acc0, total0, top0 = attention_step(
                acc0, total0, top0, q0, k, v, start, first // N * N, first + lanes, scale, False, CAUSAL, N, LANES
            )
            acc1, total1, top1 = attention_step(
                acc1, total1, top1, q1, k, v, start, second // N * N, second + lanes, scale, False, CAUSAL, N, LANES
            )
            if BLOCKS == 3:
                acc2, total2, top2 = attention_step(
                    acc2, total2, top2, q2, k, v, start, third // N * N, third + lanes, scale, False, CAUSAL, N, LANES
                )
        attention_end(out_desc, lse_ptr, acc0, total0, top0, row, first, n, M, LANES)
        attention_end(out_desc, lse_ptr, acc1, total1, top1, row, second, n, M, LANES)
        if BLOCKS == 3:
            attention_end(out_desc, lse_ptr, acc2, total2, top2, row, third, n, M, LANES)


@triton.jit
def attention_delta(out_ptr, dout_ptr, delta_ptr, BLOCK: tl.constexpr, D: tl.constexpr):
    """The sums of out · dout along the rows."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    elements = at[:, None] * D + tl.arange(0, D)[None, :]
    out = tl.load(out_ptr + elements).to(tl.float32)
    tl.store(delta_ptr + at, tl.sum(out * tl.load(dout_ptr + elements).to(tl.float32), 1))


@triton.jit
def attention_keys(
    q_desc, k_desc, v_desc, dout_desc, dk_desc, dv_desc, dq_desc, lse_ptr, delta_ptr, n, scale,
    CAUSAL: tl.constexpr, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, ROLES: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """The gradients of N keys and values over all queries, M at once. WHOLE: dq in f32 as well, added in memory."""
    head = tl.program_id(1) * n
    first = tl.program_id(0) * N
    k = k_desc.load([head + first, 0])
    v = v_desc.load([head + first, 0])
    dk = tl.zeros((N, D), tl.float32)
    dv = tl.zeros((N, D), tl.float32)
    keys = first + tl.arange(0, N)
    for at in tl.range(first // M * M if CAUSAL else 0, n, M, warp_specialize=ROLES):
        rows = at + tl.arange(0, M)
        lse = tl.load(lse_ptr + head + rows)[None, :]
        q = q_desc.load([head + at, 0])
        dout = dout_desc.load([head + at, 0])
        powers = tl.dot(k, q.T)
        scores = tl.dot(v, dout.T)
        powers = tl.math.exp2(powers * (scale * 1.4426950408889634) - lse)
        if CAUSAL and (D == 64 or at < first + N):  # With D = 64, a branch takes as long as the mask.
            powers = tl.where(rows[None, :] >= keys[:, None], powers, 0.0)
        dv = tl.dot(powers.to(q.dtype), dout, dv)
        # Loaded here, delta does not need registers beside those of lse.
        scores = (powers * (scores - tl.load(delta_ptr + head + rows)[None, :])).to(q.dtype)
        dk = tl.dot(scores, q, dk)
        if WHOLE:
            dq_desc.atomic_add([head + at, 0], tl.dot(scores.T, k) * scale)
    dk_desc.store([head + first, 0], (dk * scale).to(k.dtype))
    dv_desc.store([head + first, 0], dv.to(k.dtype))


@triton.jit
def attention_queries(
    q_desc, k_desc, v_desc, dout_desc, dq_desc, lse_ptr, delta_ptr, n, scale,
    CAUSAL: tl.constexpr, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, ROLES: tl.constexpr,
):  # fmt: skip
    """The gradient of M queries over all keys, N at once."""
    head = tl.program_id(1) * n
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * M  # Those that see the most keys come first.
    rows = first + tl.arange(0, M)
    q = q_desc.load([head + first, 0])
    dout = dout_desc.load([head + first, 0])
    lse = tl.load(lse_ptr + head + rows)[:, None]
    delta = tl.load(delta_ptr + head + rows)[:, None]
    dq = tl.zeros((M, D), tl.float32)
    for at in tl.range(0, first + M if CAUSAL else n, N, warp_specialize=ROLES):
        k = k_desc.load([head + at, 0])
        powers = tl.dot(q, k.T)
        scores = tl.dot(dout, v_desc.load([head + at, 0]).T)
        powers = tl.math.exp2(powers * (scale * 1.4426950408889634) - lse)
        if CAUSAL and at + N > first:
            powers = tl.where(rows[:, None] >= (at + tl.arange(0, N))[None, :], powers, 0.0)
        scores = powers * (scores - delta)
        dq = tl.dot(scores.to(q.dtype), k, dq)
    dq_desc.store([head + first, 0], (dq * scale).to(q.dtype))
