"""The kernels that are measured, in Triton's Python: one text for both compilers.

`import kernels_triton` has them by Triton, `kernels_by_ziggurat` has the same file by ziggurat.
"""

import triton
import triton.language as tl
from kernels_attention import attention, attention_blocks, attention_delta, attention_keys, attention_queries
from kernels_products import matmul, matmul_blocks, matmul_few_rows, matmul_grouped, matmul_parts, matmul_rows, turn

__all__ = [
    "attention", "attention_blocks", "attention_delta", "attention_keys", "attention_queries", "matmul",
    "matmul_blocks", "matmul_few_rows", "matmul_grouped", "matmul_parts", "matmul_rows", "turn",
]  # fmt: skip


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
def idle(
    x0, x1, x2, x3, x4, x5, n0, n1, n2, n3, n4, n5, n6, n7, n8, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    pass


@triton.jit
def norm(
    x_ptr, y_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, n, eps, RMS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Layer norm or RMS norm of ROWS rows, each read once."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)[None, :]
    inside = columns < n
    at = rows[:, None] * n + columns
    x = tl.load(x_ptr + at, inside, other=0.0).to(tl.float32)
    if not RMS:
        mean = tl.sum(x, 1) / n
        x = tl.where(inside, x - mean[:, None], 0.0)
        tl.store(mean_ptr + rows, mean)
    rstd = tl.math.rsqrt(tl.sum(x * x, 1) / n + eps)
    tl.store(rstd_ptr + rows, rstd)
    y = x * rstd[:, None] * tl.load(w_ptr + columns, inside, other=0.0).to(tl.float32)
    if not RMS:
        y += tl.load(b_ptr + columns, inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), inside)


@triton.jit
def add_pairs(a, b, c, d):
    return a + c, b + d


@triton.jit
def norm_backward(
    x_ptr, dy_ptr, dx_ptr, w_ptr, mean_ptr, rstd_ptr, dw_ptr, db_ptr, rows, n, RMS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """A program takes rows, grid-stride, and stores its sums of the gradients of weight and bias. It loads a row while
    it computes with the one before."""
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    w = tl.load(w_ptr + columns, inside, other=0.0)
    dw = tl.zeros((BLOCK,), tl.float32)
    db = tl.zeros((BLOCK,), tl.float32)
    next_x = tl.load(x_ptr + tl.program_id(0) * n + columns, inside, other=0.0)
    next_dy = tl.load(dy_ptr + tl.program_id(0) * n + columns, inside, other=0.0)
    next_mean = tl.load(mean_ptr + tl.program_id(0))
    next_rstd = tl.load(rstd_ptr + tl.program_id(0))
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = next_x.to(tl.float32)
        dy = next_dy.to(tl.float32)
        mean, rstd = next_mean, next_rstd
        after = row + tl.num_programs(0)
        next_x = tl.load(x_ptr + after * n + columns, inside & (after < rows), other=0.0)
        next_dy = tl.load(dy_ptr + after * n + columns, inside & (after < rows), other=0.0)
        next_mean = tl.load(mean_ptr + after, after < rows)
        next_rstd = tl.load(rstd_ptr + after, after < rows)
        if not RMS:
            x = x - mean
            db += dy
        x = x * rstd
        dw += dy * x
        dy = dy * w.to(tl.float32)
        if RMS:
            dx = dy - x * (tl.sum(x * dy, 0) / n)
        else:
            along, common = tl.reduce((x * dy, dy), 0, add_pairs)
            dx = dy - x * (along / n) - common / n
        tl.store(dx_ptr + row * n + columns, (dx * rstd).to(dx_ptr.dtype.element_ty), inside)
    tl.store(dw_ptr + tl.program_id(0) * n + columns, dw, inside)
    if not RMS:
        tl.store(db_ptr + tl.program_id(0) * n + columns, db, inside)


@triton.jit
def layer_norm_backward(
    x_ptr, dy_ptr, dx_ptr, w_ptr, mean_ptr, rstd_ptr, dw_ptr, db_ptr, lock_ptr, n,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradients of a row, in the manner of Triton's tutorial 05: each program adds to one of PARTS sums of weights
    and biases under a lock. `lock_ptr` has a zero for each lock, and one for each sum that nothing was added to."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    x = tl.load(x_ptr + row * n + columns, inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * n + columns, inside, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + columns, inside, other=0.0).to(tl.float32)
    rstd = tl.load(rstd_ptr + row)
    x = tl.where(inside, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
    slope = w * dy
    along, common = tl.sum(x * slope, 0) / n, tl.sum(slope, 0) / n
    tl.store(dx_ptr + row * n + columns, ((slope - x * along - common) * rstd).to(dx_ptr.dtype.element_ty), inside)
    part = row % PARTS
    dw, db = dy * x, dy
    at = part * n + columns
    while tl.atomic_cas(lock_ptr + part, 0, 1) == 1:
        pass
    if tl.load(lock_ptr + PARTS + part) == 0:
        tl.atomic_xchg(lock_ptr + PARTS + part, 1)
    else:
        dw += tl.load(dw_ptr + at, inside)
        db += tl.load(db_ptr + at, inside)
    tl.store(dw_ptr + at, dw, inside)
    tl.store(db_ptr + at, db, inside)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr + part, 0)


@triton.jit
def sum_rows(parts_ptr, out_ptr, parts, n, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """The sums of columns: those of two matrices of `parts` rows, one below the other."""
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = tl.program_id(1) * parts
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, parts, ROWS):
        rows = start + tl.arange(0, ROWS)[:, None]
        total += tl.load(parts_ptr + (first + rows) * n + columns[None, :], rows < parts, other=0.0)
    out = tl.sum(total, 0).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + tl.program_id(1) * n + columns, out, columns < n)


@triton.jit
def softmax_long(
    x_ptr, y_ptr, label_ptr, loss_ptr, n, scale, LOSS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Softmax of a row that no program can hold, times `scale`; or with LOSS the cross entropy and its gradient.

    Each lane keeps the largest of its numbers and the sum of their powers, over ROWS numbers at once. The row is read
    again from its end, out of the L2. Each read is begun one step ahead.
    """
    STEP: tl.constexpr = ROWS * BLOCK
    LOG2_E: tl.constexpr = 1.4426950408889634
    x_ptr += tl.program_id(0).to(tl.int64) * n
    y_ptr += tl.program_id(0).to(tl.int64) * n
    at = tl.arange(0, ROWS)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    top = tl.full((BLOCK,), -1e30, tl.float32)
    sums = tl.zeros((BLOCK,), tl.float32)
    ahead = tl.load(x_ptr + at, at < n, other=-float("inf"), eviction_policy="evict_last")
    for start in range(STEP, n + STEP, STEP):
        x = ahead.to(tl.float32) * LOG2_E
        ahead = tl.load(x_ptr + start + at, start + at < n, other=-float("inf"), eviction_policy="evict_last")
        higher = tl.maximum(top, tl.max(x, 0))
        sums = sums * tl.math.exp2(top - higher) + tl.sum(tl.math.exp2(x - higher[None, :]), 0)
        top = higher
    highest = tl.max(top, 0)
    total = tl.sum(sums * tl.math.exp2(top - highest), 0)
    label = 0
    if LOSS:
        label = tl.load(label_ptr + tl.program_id(0)).to(tl.int32)
        loss = (highest + tl.math.log2(total)) / LOG2_E - tl.load(x_ptr + label).to(tl.float32)
        tl.store(loss_ptr + tl.program_id(0), loss)
    share = scale / total
    here = (tl.cdiv(n, STEP) - 1) * STEP + at
    ahead = tl.load(x_ptr + here, here < n, other=0.0, eviction_policy="evict_first")
    for _ in range(tl.cdiv(n, STEP)):
        y = tl.math.exp2(ahead.to(tl.float32) * LOG2_E - highest) * share
        ahead = tl.load(x_ptr + here - STEP, here >= STEP, other=0.0, eviction_policy="evict_first")
        if LOSS:
            y -= tl.where(here == label, scale, 0.0)
        tl.store(y_ptr + here, y.to(y_ptr.dtype.element_ty), here < n, eviction_policy="evict_first")
        here -= STEP


@triton.jit
def joined(top, total, other_top, other_total):
    """The largest number of two sets, and the sum of their powers divided by its power."""
    higher = tl.maximum(top, other_top)
    return higher, total * tl.math.exp2(top - higher) + other_total * tl.math.exp2(other_top - higher)


@triton.jit
def softmax_rows(
    x_ptr, y_ptr, label_ptr, loss_ptr, n, scale, LOSS: tl.constexpr, EACH: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """The same as `softmax_long` of a row that a program holds. The CTAs of a cluster can: `num_ctas`.

    A thread has EACH vectors of 16 bytes, if BLOCK numbers are as many. It keeps their powers, relative to its largest
    number. So the threads exchange only once: their largest numbers with their sums.
    """
    LOG2_E: tl.constexpr = 1.4426950408889634
    WIDTH: tl.constexpr = 128 // x_ptr.dtype.element_ty.primitive_bitwidth
    VECTORS: tl.constexpr = BLOCK // EACH // WIDTH
    row = tl.program_id(0)
    x_ptr += row.to(tl.int64) * n
    y_ptr += row.to(tl.int64) * n
    start = (tl.arange(0, EACH)[:, None, None] * VECTORS + tl.arange(0, VECTORS)[None, :, None]) * WIDTH
    within = tl.arange(0, WIDTH)[None, None, :]
    at = start + within
    label = 0
    picked = 0.0
    if LOSS:
        label = tl.load(label_ptr + row).to(tl.int32)
    x = tl.load(x_ptr + at, at < n, other=-float("inf")).to(tl.float32)
    if LOSS:
        picked = tl.load(x_ptr + label).to(tl.float32)
    top = tl.maximum(tl.max(tl.max(x, 0), 1) * LOG2_E, -1e30)  # Of a thread that is beyond the row, too.
    powers = tl.math.exp2(x * LOG2_E - top[None, :, None])
    highest, total = tl.reduce((top, tl.sum(tl.sum(powers, 0), 1)), 0, joined)
    y = powers * (tl.math.exp2(top - highest) * (scale / total))[None, :, None]
    if LOSS:
        y = tl.where(within == label - start, y - scale, y)
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), at < n)
    if LOSS:
        tl.store(loss_ptr + row, (highest + tl.math.log2(total)) / LOG2_E - picked)


@triton.jit
def softmax_by_parts(
    x_ptr, y_ptr, label_ptr, loss_ptr, part_ptr, count_ptr, rows, n, scale,
    LOSS: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The same as `softmax_long` by PARTS programs for a row, which read it once.

    Each stores the largest of its numbers and the sum of their powers, and waits for the others. The programs take the
    parts in the order in which they begin, so those that are waited for have begun or will, if PARTS programs run at
    once. `count_ptr` has a zero for each row and one more, and is left so.
    """
    LOG2_E: tl.constexpr = 1.4426950408889634
    row, part = tl.program_id(0), 0
    if PARTS > 1:
        turn = tl.atomic_add(count_ptr, 1, sem="relaxed")
        row, part = turn // PARTS, turn % PARTS
        if turn == rows * PARTS - 1:
            tl.store(count_ptr, 0)
    here = part * BLOCK + tl.arange(0, BLOCK)
    x_ptr += row.to(tl.int64) * n
    y_ptr += row.to(tl.int64) * n
    values = tl.load(x_ptr + here, here < n, other=-float("inf"), eviction_policy="evict_first")
    x = values.to(tl.float32) * LOG2_E
    highest = tl.maximum(tl.max(x, 0), -1e30)  # Of a part that is beyond the row, too.
    total = tl.sum(tl.math.exp2(x - highest), 0)
    if PARTS > 1:
        tl.store(part_ptr + turn * 2, highest)
        tl.store(part_ptr + turn * 2 + 1, total)
        arrived = count_ptr + 1 + row
        tl.debug_barrier()
        count = tl.atomic_add(arrived, 1, sem="release") + 1
        while count < PARTS:
            count = tl.atomic_add(arrived, 0, sem="acquire")
        tl.debug_barrier()
        others = part_ptr + (row * PARTS + tl.arange(0, PARTS)) * 2
        tops = tl.load(others, cache_modifier=".cg")
        sums = tl.load(others + 1, cache_modifier=".cg")
        highest = tl.max(tops, 0)
        total = tl.sum(sums * tl.math.exp2(tops - highest), 0)
        if values.dtype.primitive_bitwidth == 16:  # Kept as they are, and not as f32: so more programs fit.
            values = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [values], values.dtype, False, 2)
        # The last one to leave puts the counter of the row back.
        if tl.atomic_add(arrived, 1, sem="relaxed") == 2 * PARTS - 1:
            tl.store(arrived, 0)
    label = 0
    if LOSS:
        label = tl.load(label_ptr + row).to(tl.int32)
        if part == 0:
            loss = (highest + tl.math.log2(total)) / LOG2_E - tl.load(x_ptr + label).to(tl.float32)
            tl.store(loss_ptr + row, loss)
    y = tl.math.exp2(values.to(tl.float32) * LOG2_E - highest) * (scale / total)
    if LOSS:
        y -= tl.where(here == label, scale, 0.0)
    tl.store(y_ptr + here, y.to(y_ptr.dtype.element_ty), here < n, eviction_policy="evict_first")


@triton.jit
def store_rotated(y_ptr, left, right, cos, sin, HALF: tl.constexpr):
    left, right = left.to(tl.float32), right.to(tl.float32)
    tl.store(y_ptr, (left * cos - right * sin).to(y_ptr.dtype.element_ty))
    tl.store(y_ptr + HALF, (right * cos + left * sin).to(y_ptr.dtype.element_ty))


@triton.jit
def rotary(
    q_ptr, k_ptr, out_q_ptr, out_k_ptr, cos_ptr, sin_ptr, n, sign,
    HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Rotate the halves of all heads of a token by its angles, or back where sign is -1; n tokens by sequence.

    All loads come before the stores.
    """
    HALF: tl.constexpr = D // 2
    token = tl.program_id(0)
    columns = tl.arange(0, HALF)[None, :]
    cos = tl.load(cos_ptr + token % n * D + columns).to(tl.float32)
    sin = tl.load(sin_ptr + token % n * D + columns).to(tl.float32) * sign
    at = token * HEADS * D + tl.arange(0, HEADS)[:, None] * D + columns
    key_at = token * KEY_HEADS * D + tl.arange(0, KEY_HEADS)[:, None] * D + columns
    left, right = tl.load(q_ptr + at), tl.load(q_ptr + at + HALF)
    key_left, key_right = tl.load(k_ptr + key_at), tl.load(k_ptr + key_at + HALF)
    store_rotated(out_q_ptr + at, left, right, cos, sin, HALF)
    store_rotated(out_k_ptr + key_at, key_left, key_right, cos, sin, HALF)


@triton.jit
def swiglu(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(a_ptr + at, at < n).to(tl.float32)
    b = tl.load(b_ptr + at, at < n).to(tl.float32)
    tl.store(c_ptr + at, (a * tl.sigmoid(a) * b).to(c_ptr.dtype.element_ty), at < n)


@triton.jit
def swiglu_backward(a_ptr, b_ptr, dc_ptr, da_ptr, db_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(a_ptr + at, at < n).to(tl.float32)
    b = tl.load(b_ptr + at, at < n).to(tl.float32)
    dc = tl.load(dc_ptr + at, at < n).to(tl.float32)
    gate = tl.sigmoid(a)
    tl.store(da_ptr + at, (dc * b * (gate + a * gate * (1 - gate))).to(da_ptr.dtype.element_ty), at < n)
    tl.store(db_ptr + at, (dc * a * gate).to(db_ptr.dtype.element_ty), at < n)


@triton.jit
def gather(table_ptr, token_ptr, out_ptr, width, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    tokens = tl.load(token_ptr + rows).to(tl.int64)
    row = tl.load(table_ptr + tokens[:, None] * width + columns, columns < width)
    tl.store(out_ptr + rows[:, None] * width + columns, row, columns < width)


@triton.jit
def chain(token_ptr, first_ptr, next_ptr, base, BLOCK: tl.constexpr):
    """Chain the places of each token: the number of one in `first_ptr`, plus `base`, and of the following ones in
    `next_ptr`. A launch has a base above all numbers that the one before has left, so nothing needs to be cleared."""
    tl.extra.cuda.gdc_launch_dependents()
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tokens = tl.load(token_ptr + at)
    tl.extra.cuda.gdc_wait()
    after = tl.atomic_xchg(first_ptr + tokens, base + at, sem="relaxed")
    tl.store(next_ptr + at, after - base)


@triton.jit
def sum_chains(dout_ptr, first_ptr, next_ptr, dtable_ptr, base, width, BLOCK: tl.constexpr):
    """The sums of the rows of each chain, which ends with a negative number. No row of the table is written twice. The
    launch begins before that of `chain` has ended."""
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    tl.extra.cuda.gdc_wait()
    row = tl.load(first_ptr + tl.program_id(0)) - base
    while row >= 0:
        after = tl.load(next_ptr + row)
        total += tl.load(dout_ptr + row * width + columns, columns < width, other=0.0).to(tl.float32)
        row = after
    at = tl.program_id(0) * width + columns
    tl.store(dtable_ptr + at, total.to(dtable_ptr.dtype.element_ty), columns < width)
