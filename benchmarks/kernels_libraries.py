"""The kernels that `libraries.py` measures against libraries, in Triton's Python."""

import triton
import triton.language as tl


@triton.jit
def product(
    a_ptr, b_ptr, c_ptr, m, n, k, am, ak, bk, bn,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """c = a · b, or with ADD c + a · b; k is divisible by K."""
    rows, columns = tl.cdiv(m, M), tl.cdiv(n, N)
    in_group = GROUP * columns
    first = tl.program_id(0) // in_group * GROUP
    height = min(rows - first, GROUP)
    row = (first + tl.program_id(0) % in_group % height) * M
    column = tl.program_id(0) % in_group // height * N
    at_m, at_n, at_k = (row + tl.arange(0, M)) % m, (column + tl.arange(0, N)) % n, tl.arange(0, K)
    a_at = a_ptr + at_m[:, None] * am + at_k[None, :] * ak
    b_at = b_ptr + at_k[:, None] * bk + at_n[None, :] * bn
    acc = tl.zeros((M, N), tl.float32)
    for _ in range(0, k, K):
        acc = tl.dot(tl.load(a_at), tl.load(b_at), acc)
        a_at += K * ak
        b_at += K * bk
    out_m, out_n = row + tl.arange(0, M)[:, None], column + tl.arange(0, N)[None, :]
    out = c_ptr + out_m * n + out_n
    inside = (out_m < m) & (out_n < n)
    if ADD:
        acc += tl.load(out, inside, other=0.0).to(tl.float32)
    tl.store(out, acc.to(c_ptr.dtype.element_ty), inside)


@triton.jit
def fp8_blocks(
    a_desc, b_desc, c_desc, a_scale_ptr, b_scale_ptr, m, n, k,
    M: tl.constexpr, N: tl.constexpr, GROUP: tl.constexpr, BLOCKS: tl.constexpr, ROLES: tl.constexpr,
):  # fmt: skip
    """a · bᵀ of f8, where 128 neighbours along k have a scale in each row of `a`, and in each 128 rows of `b`.

    `a_scale_ptr` has m scales for each step of k, `b_scale_ptr` has k // 128 of them for 128 rows of `b`. A program
    takes tiles of one or two blocks of rows, grid-stride.
    """
    rows, columns, steps = tl.cdiv(m, BLOCKS * M), tl.cdiv(n, N), k // 128
    in_group = GROUP * columns
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=not ROLES):
        first = tile // in_group * GROUP
        height = min(rows - first, GROUP)
        row = (first + tile % in_group % height) * (BLOCKS * M)
        column = tile % in_group // height * N
        at = a_scale_ptr + row + tl.arange(0, M)
        b_at = b_scale_ptr + column // 128 * steps
        acc0, acc1 = tl.zeros((M, N), tl.float32), tl.zeros((M, N), tl.float32)
        # The scales of a step are loaded one step ahead; those after the last step are not used.
        scale = tl.load(b_at)
        factor0, factor1 = tl.load(at) * scale, tl.load(at + (BLOCKS - 1) * M) * scale
        for step in tl.range(0, steps, warp_specialize=ROLES):
            after = tl.minimum(step + 1, steps - 1)
            scale, scale0 = tl.load(b_at + after), tl.load(at + after * m)
            scale1 = tl.load(at + after * m + (BLOCKS - 1) * M)
            b = b_desc.load([column, step * 128]).T
            acc0 += tl.dot(a_desc.load([row, step * 128]), b) * factor0[:, None]
            if BLOCKS == 2:
                acc1 += tl.dot(a_desc.load([row + M, step * 128]), b) * factor1[:, None]
            factor0, factor1 = scale0 * scale, scale1 * scale
        c_desc.store([row, column], acc0.to(c_desc.dtype))
        if BLOCKS == 2:
            c_desc.store([row + M, column], acc1.to(c_desc.dtype))


@triton.jit
def few_rows_of_4_bits(
    x_ptr, w_ptr, scale_ptr, y_ptr, part_ptr, count_ptr, m, n, K: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """x · wᵀ of at most M rows, where 128 neighbours along K have a scale in each row of `w`.

    `w_ptr` has K // 128 matrices of n × 64 bytes: a byte has the weight of its number, and 64 further that of the high
    bits. PARTS programs share N columns; the last one to end adds the sums of all. `count_ptr` has a zero for each N
    columns, and is left so.
    """
    STEPS: tl.constexpr = K // 128 // PARTS
    column, part = tl.program_id(0) * N, tl.program_id(1)
    columns, rows, at = column + tl.arange(0, N), tl.arange(0, M), tl.arange(0, 64)
    x_at = x_ptr + rows[None, :] * K + at[:, None]
    inside = rows[None, :] < m
    acc = tl.zeros((N, M), tl.float32)
    for step in range(part * STEPS, (part + 1) * STEPS):
        w = tl.load(w_ptr + (step * n + columns[:, None]) * 64 + at[None, :])
        low = (w & 15).to(tl.float16) - 8
        high = (w >> 4).to(tl.float16) - 8
        product = tl.dot(low, tl.load(x_at + step * 128, inside, other=0.0))
        product = tl.dot(high, tl.load(x_at + step * 128 + 64, inside, other=0.0), product)
        acc += product * tl.load(scale_ptr + step * n + columns).to(tl.float32)[:, None]
    y_at = y_ptr + rows[None, :] * n + columns[:, None]
    if PARTS == 1:
        tl.store(y_at, acc.to(y_ptr.dtype.element_ty), inside)
    else:
        sums = part_ptr + (tl.program_id(0) * PARTS + tl.arange(0, PARTS)[:, None, None]) * (N * M)
        within = tl.arange(0, N)[:, None] * M + rows[None, :]
        tl.store(part_ptr + (tl.program_id(0) * PARTS + part) * (N * M) + within, acc)
        tl.debug_barrier()
        if tl.atomic_add(count_ptr + tl.program_id(0), 1) == PARTS - 1:
            total = tl.sum(tl.load(sums + within[None, :, :], cache_modifier=".cg"), 0)
            tl.store(y_at, total.to(y_ptr.dtype.element_ty), inside)
            tl.store(count_ptr + tl.program_id(0), 0)


@triton.jit
def decode_end(acc, top, total, out_ptr, lse_ptr, at, D: tl.constexpr, ROWS: tl.constexpr):
    """Store a part of the output as it is, and the binary logarithm of its sum."""
    rows = tl.arange(0, ROWS)
    tl.store(out_ptr + (at + rows)[:, None] * D + tl.arange(0, D)[None, :], acc / total[:, None])
    tl.store(lse_ptr + at + rows, top + tl.math.log2(total))


@triton.jit
def decode_pages(
    q_ptr, k_desc, v_desc, table_ptr, out_ptr, lse_ptr, pages, scale,
    HEADS: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, N: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Attention of one token for each sequence: ROWS heads of queries have one of HEADS heads of keys. A cache has the
    heads of a token side by side. PARTS programs share the pages of a sequence, and take N tokens at once."""
    sequence, head, part = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS, tl.program_id(1)
    first = (sequence * HEADS + head) * ROWS
    q = tl.load(q_ptr + (first + tl.arange(0, ROWS))[:, None] * D + tl.arange(0, D)[None, :])
    top = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, D), tl.float32)
    share = tl.cdiv(pages, PARTS) * PAGE
    for at in range(part * share, min((part + 1) * share, pages * PAGE), N):
        row = tl.load(table_ptr + sequence * pages + at // PAGE) * PAGE + at % PAGE
        k, v = k_desc.load([row, head * D]), v_desc.load([row, head * D])
        scores = tl.dot(q, k.T) * scale
        higher = tl.maximum(top, tl.max(scores, 1))
        powers = tl.math.exp2(scores - higher[:, None])
        shrink = tl.math.exp2(top - higher)
        total = total * shrink + tl.sum(powers, 1)
        acc = tl.dot(powers.to(v.dtype), v, acc * shrink[:, None])
        top = higher
    at = (part * tl.num_programs(0) + tl.program_id(0)) * ROWS
    decode_end(acc, top, total, out_ptr, lse_ptr, at, D, ROWS)


@triton.jit
def decode_latent(
    q_ptr, latent_desc, rope_desc, table_ptr, out_ptr, lse_ptr, pages, scale,
    ROWS: tl.constexpr, D: tl.constexpr, ROPE: tl.constexpr, PAGE: tl.constexpr, N: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Attention of one token for each sequence in latent space: keys have D + ROPE numbers, values are the first D.
    PARTS programs share the pages of a sequence, and take N tokens at once."""
    sequence, part = tl.program_id(0), tl.program_id(1)
    q_at = q_ptr + (sequence * ROWS + tl.arange(0, ROWS))[:, None] * (D + ROPE)
    q = tl.load(q_at + tl.arange(0, D)[None, :])
    q_rope = tl.load(q_at + D + tl.arange(0, ROPE)[None, :])
    top = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, D), tl.float32)
    share = tl.cdiv(pages, PARTS) * PAGE
    for at in range(part * share, min((part + 1) * share, pages * PAGE), N):
        row = tl.load(table_ptr + sequence * pages + at // PAGE) * PAGE + at % PAGE
        latent, rope = latent_desc.load([row, 0]), rope_desc.load([row, D])
        scores = tl.dot(q_rope, rope.T, tl.dot(q, latent.T)) * scale
        higher = tl.maximum(top, tl.max(scores, 1))
        powers = tl.math.exp2(scores - higher[:, None])
        shrink = tl.math.exp2(top - higher)
        total = total * shrink + tl.sum(powers, 1)
        acc = tl.dot(powers.to(latent.dtype), latent, acc * shrink[:, None])
        top = higher
    at = (part * tl.num_programs(0) + sequence) * ROWS
    decode_end(acc, top, total, out_ptr, lse_ptr, at, D, ROWS)


@triton.jit
def decode_sum(out_ptr, lse_ptr, y_ptr, heads, D: tl.constexpr, PARTS: tl.constexpr):
    """The output of a head from those of its parts."""
    parts = tl.arange(0, PARTS) * heads + tl.program_id(0)
    lse = tl.load(lse_ptr + parts)
    weights = tl.math.exp2(lse - tl.max(lse, 0))
    outs = tl.load(out_ptr + parts[:, None] * D + tl.arange(0, D)[None, :])
    y = tl.sum(outs * (weights / tl.sum(weights, 0))[:, None], 0)
    tl.store(y_ptr + tl.program_id(0) * D + tl.arange(0, D), y.to(y_ptr.dtype.element_ty))


@triton.jit
def linear_attention(
    q_desc, k_desc, v_desc, o_desc, n, heads, scale, C: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    REVERSE: tl.constexpr,
):  # fmt: skip
    """o = scale · tril(q · kᵀ) · v along n tokens, which have their heads side by side; triu with REVERSE.

    A program has the sum of kᵀ · v of the chunks before, for WIDTH columns of `v`. The gradients are of the same form:
    that of q by (do, v, k), that of k by (v, do, q), and that of v by (k, q, do), the last two with REVERSE.
    """
    head = tl.program_id(0)
    first, column = head // heads * n, head % heads * D
    own = column + tl.program_id(1) * WIDTH
    at = tl.arange(0, C)
    mask = at[:, None] <= at[None, :] if REVERSE else at[:, None] >= at[None, :]
    state = tl.zeros((D, WIDTH), tl.float32)
    for start in range(0, n, C):
        row = first + (n - C - start if REVERSE else start)
        q, k, v = q_desc.load([row, column]), k_desc.load([row, column]), v_desc.load([row, own])
        scores = tl.where(mask, tl.dot(q, k.T), 0.0)
        o = tl.dot(q, state.to(q.dtype))
        o = tl.dot(scores.to(q.dtype), v, o)
        o_desc.store([row, own], (o * scale).to(q.dtype))
        state = tl.dot(k.T, v, state)


@triton.jit
def conv3x3(
    x_desc, w_desc, y_desc, height, width, C: tl.constexpr, IMAGES: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ROLES: tl.constexpr,
):  # fmt: skip
    """A convolution by 3×3, padded by one, of C channels that are neighbours: for each of nine taps the product of a
    block of pixels, zero beyond the image, with the weights of N filters, which are neighbours along taps and channels.
    """
    M: tl.constexpr = IMAGES * ROWS * COLUMNS
    across, down = tl.cdiv(width, COLUMNS), tl.cdiv(height, ROWS)
    x = tl.program_id(1) % across * COLUMNS
    y = tl.program_id(1) // across % down * ROWS
    image = tl.program_id(1) // across // down * IMAGES
    filters = tl.program_id(0) * N
    acc = tl.zeros((M, N), tl.float32)
    for k in tl.range(0, 9 * C, K, warp_specialize=ROLES):
        tap = k // C
        pixels = x_desc.load([image, y + tap // 3 - 1, x + tap % 3 - 1, k % C])
        acc = tl.dot(tl.reshape(pixels, (M, K)), w_desc.load([filters, k]).T, acc)
    y_desc.store([image, y, x, filters], tl.reshape(acc.to(y_desc.dtype), (IMAGES, ROWS, COLUMNS, N)))
