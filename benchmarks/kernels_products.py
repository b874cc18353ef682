"""Products of matrices in Triton's Python, a part of `kernels_triton.py`."""

import triton
import triton.language as tl


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, m, n, k, am, ak, bk, bn, cm, cn,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr, SUM: tl.constexpr = tl.float32,
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
    acc = tl.zeros((M, N), SUM)
    for step in range(0, tl.cdiv(k, K)):
        rest = k - step * K
        a = tl.load(a_at, at_k[None, :] < rest, other=0.0)
        b = tl.load(b_at, at_k[:, None] < rest, other=0.0)
        acc = tl.dot(a, b, acc, out_dtype=SUM)
        a_at += K * ak
        b_at += K * bk
    out_m = row * M + tl.arange(0, M)[:, None]
    out_n = column * N + tl.arange(0, N)[None, :]
    tl.store(c_ptr + out_m * cm + out_n * cn, acc.to(c_ptr.dtype.element_ty), (out_m < m) & (out_n < n))


@triton.jit
def turn(x_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """y = xᵀ, both stored by rows."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row[:, None] * columns + column[None, :])
    tl.store(y_ptr + column[:, None] * rows + row[None, :], x.T)


@triton.jit
def ended(acc, bias_ptr, rest_desc, row, column, N: tl.constexpr, EPILOGUE: tl.constexpr):
    """The epilogue of N columns: "", "gelu", "quick gelu" by the tanh of GPUs (to 11 bits), or "residual"."""
    if EPILOGUE == "gelu" or EPILOGUE == "quick gelu":
        acc += tl.load(bias_ptr + column + tl.arange(0, N)).to(tl.float32)[None, :]
        if EPILOGUE == "gelu":
            acc = acc / (1 + tl.math.exp2(acc * (-2.302208198 - 0.1029432397 * (acc * acc))))
        else:
            bent = acc * (0.7978845608 + 0.0356774081 * (acc * acc))
            bent = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [bent], tl.float32, True, 1)
            acc = 0.5 * acc * bent + 0.5 * acc
    if EPILOGUE == "residual":
        acc += rest_desc.load([row, column]).to(tl.float32)
    return acc


@triton.jit
def matmul_blocks(
    a_desc, b_desc, c_desc, bias_ptr, rest_desc, m, n, k, EPILOGUE: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    K: tl.constexpr, GROUP: tl.constexpr, ROLES: tl.constexpr, HALVES: tl.constexpr = False,
):  # fmt: skip
    """a · bᵀ through descriptors; a program takes tiles, grid-stride. EPILOGUE is one of `ended`. With HALVES a half of
    the columns is ended and stored after the other, and residuals are loaded before the dots."""
    rows, columns = tl.cdiv(m, M), tl.cdiv(n, N)
    in_group = GROUP * columns
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=not ROLES):
        first = tile // in_group * GROUP
        height = min(rows - first, GROUP)
        row = (first + tile % in_group % height) * M
        column = tile % in_group // height * N
        if HALVES and EPILOGUE == "residual":
            left_rest, right_rest = rest_desc.load([row, column]), rest_desc.load([row, column + N // 2])
        acc = tl.zeros((M, N), tl.float32)
        for start in tl.range(0, k, K, warp_specialize=ROLES):
            a = a_desc.load([row, start])
            b = b_desc.load([column, start])
            acc = tl.dot(a, b.T, acc)
        if HALVES:
            left, right = tl.split(tl.permute(tl.reshape(acc, (M, 2, N // 2)), (0, 2, 1)))
            if EPILOGUE == "residual":
                left, right = left + left_rest.to(tl.float32), right + right_rest.to(tl.float32)
            else:
                left = ended(left, bias_ptr, rest_desc, row, column, N // 2, EPILOGUE)
                right = ended(right, bias_ptr, rest_desc, row, column + N // 2, N // 2, EPILOGUE)
            c_desc.store([row, column], left.to(a_desc.dtype))
            c_desc.store([row, column + N // 2], right.to(a_desc.dtype))
        else:
            acc = ended(acc, bias_ptr, rest_desc, row, column, N, EPILOGUE)
            c_desc.store([row, column], acc.to(a_desc.dtype))


@triton.jit
def matmul_rows(
    a_desc, b_desc, c_desc, bias_ptr, rest_desc, m, n, k, EPILOGUE: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    K: tl.constexpr, GROUP: tl.constexpr, BLOCKS: tl.constexpr, ROLES: tl.constexpr,
):  # fmt: skip
    """`matmul_blocks` with two or three blocks of rows a tile: with roles, each is the work of warps of its own."""
    rows, columns = tl.cdiv(m, BLOCKS * M), tl.cdiv(n, N)
    in_group = GROUP * columns
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=not ROLES):
        first = tile // in_group * GROUP
        height = min(rows - first, GROUP)
        row = (first + tile % in_group % height) * (BLOCKS * M)
        column = tile % in_group // height * N
        acc0, acc1 = tl.zeros((M, N), tl.float32), tl.zeros((M, N), tl.float32)
        if BLOCKS == 3:
            acc2 = tl.zeros((M, N), tl.float32)
        for start in tl.range(0, k, K, warp_specialize=ROLES):
            b = b_desc.load([column, start])
            acc0 = tl.dot(a_desc.load([row, start]), b.T, acc0)
            acc1 = tl.dot(a_desc.load([row + M, start]), b.T, acc1)
            if BLOCKS == 3:
                acc2 = tl.dot(a_desc.load([row + 2 * M, start]), b.T, acc2)
        acc0 = ended(acc0, bias_ptr, rest_desc, row, column, N, EPILOGUE)
        c_desc.store([row, column], acc0.to(a_desc.dtype))
        acc1 = ended(acc1, bias_ptr, rest_desc, row + M, column, N, EPILOGUE)
        c_desc.store([row + M, column], acc1.to(a_desc.dtype))
        if BLOCKS == 3:
            acc2 = ended(acc2, bias_ptr, rest_desc, row + 2 * M, column, N, EPILOGUE)
            c_desc.store([row + 2 * M, column], acc2.to(a_desc.dtype))


@triton.jit
def matmul_grouped(
    a_desc, b_desc, c_desc, expert_ptr, tiles, n, k,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr, ROLES: tl.constexpr,
):  # fmt: skip
    """a · bᵀ, where each tile of rows has a matrix b of its own: that of number `expert_ptr[tile]`. A program takes
    tiles, grid-stride."""
    columns = tl.cdiv(n, N)
    for number in tl.range(tl.program_id(0), tiles * columns, tl.num_programs(0), flatten=not ROLES):
        tile = number // (GROUP * columns) * GROUP + number % GROUP
        column = number // GROUP % columns * N
        expert = tl.load(expert_ptr + tile)
        acc = tl.zeros((M, N), tl.float32)
        for start in tl.range(0, k, K, warp_specialize=ROLES):
            a = a_desc.load([tile * M, start])
            b = b_desc.load([expert * n + column, start])
            acc = tl.dot(a, b.T, acc)
        c_desc.store([tile * M, column], acc.to(a_desc.dtype))


@triton.jit
def matmul_few_rows(
    a_desc, b_desc, c_ptr, m, n, k,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, APART: tl.constexpr, ROLES: tl.constexpr,
):  # fmt: skip
    """a · bᵀ of at most M rows. A program starts APART steps of k after its neighbour and wraps around at the end
    of k, so that programs which run at once read different columns of b."""
    column, steps = tl.program_id(0) * N, k // K
    first = tl.program_id(0) * APART % steps
    acc = tl.zeros((N, M), tl.float32)
    for step in tl.range(0, steps, warp_specialize=ROLES):
        at = first + step
        at = tl.where(at < steps, at, at - steps) * K
        acc = tl.dot(b_desc.load([column, at]), a_desc.load([0, at]).T, acc)
    row = tl.arange(0, M)[None, :]
    out = row * n + column + tl.arange(0, N)[:, None]
    tl.store(c_ptr + out, acc.to(c_ptr.dtype.element_ty), row < m)


@triton.jit
def matmul_parts(
    a_desc, b_desc, c_ptr, parts_ptr, count_ptr, m, n, k,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PARTS: tl.constexpr, ROLES: tl.constexpr,
):  # fmt: skip
    """a · bᵀ, a tile of M × N elements by PARTS programs, which have to run at once. A program sums every PARTS-th step
    of k, stores the columns that the others finish, waits until all have stored, and finishes its own N // PARTS
    columns.

    `count_ptr` has a zero for each tile before the first launch, and keeps the number of programs that have stored.
    """
    tile, part = tl.program_id(0) // PARTS, tl.program_id(0) % PARTS
    top, column = tile % (m // M) * M, tile // (m // M) * N
    acc = tl.zeros((M, N), tl.float32)
    # The programs of a tile read neighbouring blocks at the same time: pages of memory that are open already.
    for at in tl.range(part * K, k, PARTS * K, warp_specialize=ROLES):
        acc = tl.dot(a_desc.load([top, at]), b_desc.load([column, at]).T, acc)
    # Shares in the order in which the threads of a dot hold them: of 16 × 8 elements, a thread stores four at once.
    W: tl.constexpr = N // PARTS
    acc = tl.permute(tl.reshape(acc, (M // 16, 2, 8, PARTS, W // 8, 4, 2)), (3, 4, 0, 2, 5, 1, 6))
    acc = tl.reshape(acc, (PARTS, M * W))
    share, at = tl.arange(0, PARTS)[:, None], tl.arange(0, M * W)
    parts_ptr += tile * (M * N * PARTS)
    tl.store(parts_ptr + part * (M * N) + share * (M * W) + at[None, :], acc, share != part)
    total = tl.sum(tl.where(share == part, acc, 0.0), 0)
    tl.debug_barrier()
    count = tl.atomic_add(count_ptr + tile, 1) + 1
    all_stored = (count + PARTS - 1) // PARTS * PARTS
    while count < all_stored:
        count = tl.atomic_add(count_ptr + tile, 0, sem="acquire")
    tl.debug_barrier()
    for step in tl.static_range(1, PARTS):
        other = (part + step) % PARTS
        total += tl.load(parts_ptr + other * (M * N) + part * (M * W) + at, cache_modifier=".cg")
    total = tl.permute(tl.reshape(total, (W // 8, M // 16, 8, 4, 2, 2)), (1, 4, 2, 0, 3, 5))
    total = tl.reshape(total, (M, W)).to(c_ptr.dtype.element_ty)
    rows = top + tl.arange(0, M)[:, None]
    tl.store(c_ptr + rows * n + column + part * W + tl.arange(0, W)[None, :], total)
