"""Scans, recurrences step by step, and dynamic programming along rows."""

import torch
import triton
import triton.language as tl


@triton.jit
def cumsum_rows(X, Y, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Rows in blocks with a carry."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    carry = tl.zeros((ROWS,), tl.float32)
    for start in range(0, N, BLOCK):
        c = start + tl.arange(0, BLOCK)
        ok = (c < N)[None, :]
        x = tl.load(X + r[:, None] * N + c[None, :], mask=ok, other=0.0).to(tl.float32)
        y = tl.cumsum(x, 1) + carry[:, None]
        tl.store(Y + r[:, None] * N + c[None, :], y, mask=ok)
        carry += tl.sum(x, 1)


@triton.jit
def cumsum_columns(X, Y, T, N, BT: tl.constexpr, BN: tl.constexpr, REVERSE: tl.constexpr):
    """Gates summed along time in chunks (linear attention), forward or backward."""
    t = tl.program_id(1) * BT + tl.arange(0, BT)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    at = t[:, None] * N + n[None, :]
    ok = (t < T)[:, None] & (n < N)[None, :]
    x = tl.load(X + at, mask=ok, other=0.0).to(tl.float32)
    tl.store(Y + at, tl.cumsum(x, 0, reverse=REVERSE), mask=ok)


@triton.jit
def chunk_decay(DT, A, Bias, Out, Sums, T, H, CHUNK: tl.constexpr, BH: tl.constexpr):
    """Mamba's steps: softplus(dt + bias) * A summed along a chunk, for each head."""
    b, c = tl.program_id(0), tl.program_id(1)
    h = tl.program_id(2) * BH + tl.arange(0, BH)
    t = tl.arange(0, CHUNK)
    ok = (h < H)[:, None] & (c * CHUNK + t < T)[None, :]
    dt = tl.load(DT + (b * T + c * CHUNK + t)[None, :] * H + h[:, None], mask=ok, other=0.0).to(tl.float32)
    dt += tl.load(Bias + h, mask=h < H, other=0.0)[:, None]
    dt = tl.where(dt <= 20.0, tl.log(1 + tl.exp(dt)), dt)
    dt = tl.where(ok, dt, 0.0)
    a = tl.load(A + h, mask=h < H, other=0.0)
    at = ((b * H + h)[:, None] * tl.num_programs(1) + c) * CHUNK + t[None, :]
    tl.store(Out + at, dt, mask=(h < H)[:, None])
    tl.store(Sums + at, tl.cumsum(dt * a[:, None], axis=1), mask=(h < H)[:, None])


@triton.jit
def combine(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def recurrence_scan(A, B, H, T, N, BT: tl.constexpr, BN: tl.constexpr, AXIS: tl.constexpr):
    """h = a * h + b by blocks of time, with the scan along either axis of the block."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    base = tl.program_id(1) * T * N
    h = tl.zeros((BN,), tl.float32)
    for start in range(0, T, BT):
        t = start + tl.arange(0, BT)
        if AXIS == 0:
            at = base + t[:, None] * N + n[None, :]
            a = tl.load(A + at).to(tl.float32)
            b = tl.load(B + at).to(tl.float32)
            a, b = tl.associative_scan((a, b), 0, combine)
            y = b + a * h[None, :]
            tl.store(H + at, y.to(H.dtype.element_ty))
            h = tl.sum(tl.where((t == start + BT - 1)[:, None], y, 0.0), 0)
        else:
            at = base + n[:, None] * T + t[None, :]
            a = tl.load(A + at).to(tl.float32)
            b = tl.load(B + at).to(tl.float32)
            a, b = tl.associative_scan((a, b), 1, combine)
            y = b + a * h[:, None]
            tl.store(H + at, y.to(H.dtype.element_ty))
            h = tl.sum(tl.where((t == start + BT - 1)[None, :], y, 0.0), 1)


@triton.jit
def recurrence_steps(A, B, H, T, N, BN: tl.constexpr):
    """The same, a step an iteration."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    at = tl.program_id(1) * T * N + n
    h = tl.zeros((BN,), tl.float32)
    for _ in range(T):
        a = tl.load(A + at).to(tl.float32)
        b = tl.load(B + at).to(tl.float32)
        h = a * h + b
        tl.store(H + at, h.to(tl.bfloat16))
        at += N


@triton.jit
def cumprod_exclusive(X, Y, N: tl.constexpr, ROWS: tl.constexpr):
    """Transmittance along rays: products of 1 - alpha of the samples before."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, N)
    at = r[:, None] * N + c[None, :]
    keep = 1.0 - tl.load(X + at)
    shifted = tl.load(X + at - 1, mask=(c > 0)[None, :], other=0.0)
    t = tl.cumprod(1.0 - shifted, 1)
    tl.store(Y + at, t * (1.0 - keep))


@triton.jit
def segment_combine(f1, x1, f2, x2):
    return f1 | f2, tl.where(f2 != 0, x2, x1 + x2)


@triton.jit
def segmented_cumsum(X, Flags, Y, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    f = tl.load(Flags + i)
    x = tl.load(X + i)
    _, y = tl.associative_scan((f, x), 0, segment_combine)
    tl.store(Y + i, y)


@triton.jit
def compact(X, Counter, Out, n, threshold, BLOCK: tl.constexpr):
    """Numbers above a threshold, packed: places in the block by a prefix sum, the block's by an atomic."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n, other=0.0)
    keep = (x > threshold) & (i < n)
    place = tl.cumsum(keep.to(tl.int32), 0) - 1
    count = tl.sum(keep.to(tl.int32), 0)
    base = tl.atomic_add(Counter, count)
    tl.store(Out + ((base + place) & (n - 1)), i, mask=keep)


@triton.jit
def selective_scan(X, DT, A, B, C, D, Y, T, CH, N: tl.constexpr, BC: tl.constexpr):
    """Mamba 1 step by step: a state of N numbers for each channel."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    n = tl.arange(0, N)
    b = tl.program_id(1)
    a = tl.load(A + c[:, None] * N + n[None, :])
    d = tl.load(D + c)
    h = tl.zeros((BC, N), tl.float32)
    for t in range(T):
        x = tl.load(X + (b * T + t) * CH + c).to(tl.float32)
        dt = tl.load(DT + (b * T + t) * CH + c).to(tl.float32)
        bt = tl.load(B + (b * T + t) * N + n).to(tl.float32)
        ct = tl.load(C + (b * T + t) * N + n).to(tl.float32)
        h = tl.exp(dt[:, None] * a) * h + (dt * x)[:, None] * bt[None, :]
        y = tl.sum(h * ct[None, :], 1) + d * x
        tl.store(Y + (b * T + t) * CH + c, y.to(Y.dtype.element_ty))


@triton.jit
def gru_cell(GX, GH, H, Out, n, HID: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = i < n
    b, j = i // HID, i % HID
    at = b * 3 * HID + j
    xr = tl.load(GX + at, ok, 0.0).to(tl.float32)
    xz = tl.load(GX + at + HID, ok, 0.0).to(tl.float32)
    xn = tl.load(GX + at + 2 * HID, ok, 0.0).to(tl.float32)
    hr = tl.load(GH + at, ok, 0.0).to(tl.float32)
    hz = tl.load(GH + at + HID, ok, 0.0).to(tl.float32)
    hn = tl.load(GH + at + 2 * HID, ok, 0.0).to(tl.float32)
    r = tl.sigmoid(xr + hr)
    z = tl.sigmoid(xz + hz)
    s = xn + r * hn
    new = 2 * tl.sigmoid(2 * s) - 1
    h = tl.load(H + i, ok, 0.0).to(tl.float32)
    tl.store(Out + i, ((1 - z) * new + z * h).to(Out.dtype.element_ty), ok)


@triton.jit
def lstm_steps(G, R, H, T, HID: tl.constexpr, BB: tl.constexpr):
    """A small LSTM whose recurrent weights are a diagonal: all steps in one kernel."""
    b = tl.program_id(0) * BB + tl.arange(0, BB)
    j = tl.arange(0, HID)
    r = tl.load(R + j)
    h = tl.zeros((BB, HID), tl.float32)
    c = tl.zeros((BB, HID), tl.float32)
    for t in range(T):
        at = (b[:, None] * T + t) * 4 * HID + j[None, :]
        i = tl.sigmoid(tl.load(G + at) + h * r[None, :])
        f = tl.sigmoid(tl.load(G + at + HID) + h * r[None, :])
        o = tl.sigmoid(tl.load(G + at + 2 * HID) + h * r[None, :])
        g = 2 * tl.sigmoid(2 * tl.load(G + at + 3 * HID)) - 1
        c = f * c + i * g
        h = o * (2 * tl.sigmoid(2 * c) - 1)
        tl.store(H + (b[:, None] * T + t) * HID + j[None, :], h)


@triton.jit
def viterbi(Emit, Trans, Score, Back, T, S: tl.constexpr):
    """The best path's scores of one sequence, with back pointers."""
    b = tl.program_id(0)
    s = tl.arange(0, S)
    trans = tl.load(Trans + s[:, None] * S + s[None, :])
    score = tl.load(Emit + b * T * S + s)
    for t in range(1, T):
        total = score[:, None] + trans
        best, back = tl.max(total, 0, return_indices=True)
        score = best + tl.load(Emit + (b * T + t) * S + s)
        tl.store(Back + (b * T + t) * S + s, back.to(tl.int16))
    tl.store(Score + b * S + s, score)


@triton.jit
def time_warp(D, Out, N: tl.constexpr, M: tl.constexpr, BLOCK: tl.constexpr):
    """Dynamic time warping by anti-diagonals of a matrix of distances."""
    b = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inf = 1e30
    last = tl.full((BLOCK,), inf, tl.float32)
    before = tl.full((BLOCK,), inf, tl.float32)
    neighbours = tl.maximum(i - 1, 0)
    for k in range(N + M - 1):
        j = k - i
        ok = (i < N) & (j >= 0) & (j < M)
        d = tl.load(D + (b * N + i) * M + j, mask=ok, other=0.0)
        up = tl.where(i > 0, tl.gather(last, neighbours, 0), inf)
        diagonal = tl.where(i > 0, tl.gather(before, neighbours, 0), inf)
        best = tl.minimum(tl.minimum(up, last), diagonal)
        best = tl.where((i == 0) & (k == 0), 0.0, best)
        before = last
        last = tl.where(ok, d + best, inf)
    tl.store(Out + b, tl.sum(tl.where(i == N - 1, last, 0.0), 0))


@triton.jit
def discounted_returns(R, Done, Out, gamma, T, B, BLOCK: tl.constexpr):
    """Generalised advantages backward in time, one lane a run of the environment."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = i < B
    acc = tl.zeros((BLOCK,), tl.float32)
    t = T - 1
    while t >= 0:
        r = tl.load(R + t * B + i, ok, 0.0)
        done = tl.load(Done + t * B + i, ok, 0)
        acc = r + tl.where(done != 0, 0.0, gamma * acc)
        tl.store(Out + t * B + i, acc, ok)
        t -= 1


def main() -> None:
    def array(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="cuda")

    bf16, i32 = torch.bfloat16, torch.int32
    for n, rows, block, warps in ((4096, 1, 1024, 4), (50000, 1, 4096, 8), (1000, 8, 128, 4)):
        x = array(4096, n)
        cumsum_rows[(4096 // rows,)](x, x, n, rows, block, num_warps=warps)
    for t, n, bt, bn, reverse, warps in (
        (16384, 4096, 64, 64, False, 4),
        (16384, 2048, 64, 32, True, 2),
        (16384, 64, 128, 64, False, 8),
    ):
        x = array(t, n, dtype=bf16 if n == 4096 else torch.float32)
        cumsum_columns[(n // bn, t // bt)](x, array(t, n), t, n, bt, bn, reverse, num_warps=warps)
    for h, chunk, bh, warps in ((80, 256, 8, 4), (24, 256, 16, 8), (64, 128, 1, 1)):
        dt, out = array(8, 4096, h, dtype=bf16), array(8, h, 4096)
        chunk_decay[(8, 4096 // chunk, triton.cdiv(h, bh))](
            dt, array(h), array(h), out, out, 4096, h, chunk, bh, num_warps=warps
        )
    for axis, bt, bn, warps in ((0, 64, 32, 2), (1, 128, 8, 4), (0, 32, 64, 4), (1, 512, 1, 4)):
        a = array(8, 4096, 2048, dtype=bf16)
        recurrence_scan[(2048 // bn, 8)](a, a, a, 4096, 2048, bt, bn, axis, num_warps=warps)
    for bn, warps in ((32, 1), (128, 4)):
        a = array(8, 2048, 4096, dtype=bf16)
        recurrence_steps[(4096 // bn, 8)](a, a, a, 2048, 4096, bn, num_warps=warps)
    for n, rows, warps in ((64, 16, 4), (256, 4, 4)):
        x = array(65536, n)
        cumprod_exclusive[(65536 // rows,)](x, x, n, rows, num_warps=warps)
    for block, warps in ((1024, 4), (4096, 8)):
        n = 1 << 24
        flags = torch.randint(0, 2, (n,), dtype=i32, device="cuda")
        segmented_cumsum[(n // block,)](array(n), flags, array(n), block, num_warps=warps)
        out, count = torch.zeros(n + 8, dtype=i32, device="cuda"), torch.zeros(1, dtype=i32, device="cuda")
        compact[(n // block,)](array(n), count, out, n, 0.1, block, num_warps=warps)
    for bc, warps in ((32, 1), (64, 4), (8, 1)):
        x, small = array(4, 1024, 2048, dtype=bf16), array(4, 1024, 16, dtype=bf16)
        selective_scan[(2048 // bc, 4)](
            x, x, array(2048, 16), small, small, array(2048), x, 1024, 2048, 16, bc, num_warps=warps
        )
    g, h = array(4096, 3 * 1024, dtype=bf16), array(4096, 1024, dtype=bf16)
    gru_cell[(4096,)](g, g, h, h, 4096 * 1024, 1024, 1024)
    gru_cell[(16384,)](g, g, h, h, 4096 * 1024, 1024, 256, num_warps=2)
    for bb, warps in ((1, 1), (4, 4)):
        lstm_steps[(1024 // bb,)](
            array(1024, 128, 4 * 64), array(64), array(1024, 128, 64), 128, 64, bb, num_warps=warps
        )
    for s, warps in ((32, 1), (64, 4)):
        back = torch.zeros((512, 256, s), dtype=torch.int16, device="cuda")
        viterbi[(512,)](array(512, 256, s), array(s, s), array(512, s), back, 256, s, num_warps=warps)
    for n, m, block, warps in ((100, 128, 128, 4), (32, 200, 32, 1)):
        time_warp[(1024,)](array(1024, n, m), array(1024), n, m, block, num_warps=warps)
    done = torch.zeros((1024, 8192), dtype=torch.int8, device="cuda")
    discounted_returns[(64,)](array(1024, 8192), done, array(1024, 8192), 0.99, 1024, 8192, 128)
    discounted_returns[(256,)](array(1024, 8192), done, array(1024, 8192), 0.99, 1024, 8192, 32, num_warps=1)


if __name__ == "__main__":
    main()
