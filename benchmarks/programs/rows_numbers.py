"""Quantisation, packing and optimizers: few operations an element, narrow types."""

import torch
import triton
import triton.language as tl


@triton.jit
def int8_rows(X, Q, S, N, BLOCK: tl.constexpr):
    """A scale a row, rounded to nearest even by adding a large number."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    ok = cols < N
    x = tl.load(X + row * N + cols, mask=ok, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), 0), 1e-7) / 127.0
    y = x / scale
    y = (y + 12582912.0) - 12582912.0
    tl.store(Q + row * N + cols, y.to(tl.int8), mask=ok)
    tl.store(S + row, scale)


@triton.jit
def fp8_groups(X, Q, S, groups, rows_padded, GROUP: tl.constexpr, G: tl.constexpr, UE8M0: tl.constexpr):
    """A scale for each GROUP of numbers, with scales stored column by column."""
    row = tl.program_id(0)
    g = tl.program_id(1) * G + tl.arange(0, G)
    i = tl.arange(0, GROUP)
    at = row * groups * GROUP + g[:, None] * GROUP + i[None, :]
    ok = g[:, None] < groups
    x = tl.load(X + at, mask=ok, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), 1), 1e-10) * (1.0 / 448.0)
    if UE8M0:
        scale = tl.exp2(tl.ceil(tl.log2(scale)))
    y = tl.clamp(x / scale[:, None], -448.0, 448.0).to(tl.float8e4nv)
    tl.store(Q + at, y, mask=ok)
    tl.store(S + g * rows_padded + row, scale, mask=g < groups)


@triton.jit
def silu_mul_fp8(X, Q, S, N: tl.constexpr, GROUP: tl.constexpr):
    """silu(gate) * up and its quantisation, a group a program."""
    row = tl.program_id(0).to(tl.int64)
    g = tl.program_id(1)
    cols = g * GROUP + tl.arange(0, GROUP)
    gate = tl.load(X + row * 2 * N + cols).to(tl.float32)
    up = tl.load(X + row * 2 * N + N + cols).to(tl.float32)
    h = gate / (1 + tl.exp(-gate)) * up
    scale = tl.max(tl.abs(h)) / 448.0 + 1e-12
    tl.store(Q + row * N + cols, (h / scale).to(Q.dtype.element_ty))
    tl.store(S + row * (N // GROUP) + g, scale)


@triton.jit
def quantise_transposed(X, Q, QT, S, M, N, B: tl.constexpr):
    """A block of B×B with one scale, stored as it is and transposed."""
    pm, pn = tl.program_id(0), tl.program_id(1)
    r = pm * B + tl.arange(0, B)
    c = pn * B + tl.arange(0, B)
    ok = (r < M)[:, None] & (c < N)[None, :]
    x = tl.load(X + r[:, None] * N + c[None, :], mask=ok, other=0.0).to(tl.float32)
    top = tl.max(tl.max(tl.abs(x), 1), 0)
    scale = tl.where(top == 0, 1.0, top / 448.0)
    y = (x / scale).to(tl.float8e4nv)
    tl.store(Q + r[:, None] * N + c[None, :], y, mask=ok)
    tl.store(QT + c[:, None] * M + r[None, :], tl.trans(y), mask=(c < N)[:, None] & (r < M)[None, :])
    tl.store(S + pm * tl.num_programs(1) + pn, scale)


@triton.jit
def mxfp4(X, Q, S, N: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Blocks of 32 numbers with a shared exponent, two e2m1 numbers a byte."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    x = tl.load(X + rows[:, None] * N + cols[None, :]).to(tl.float32)
    x = tl.reshape(x, (ROWS, COLS // 32, 32))
    top = tl.max(tl.abs(x), 2, keep_dims=True)
    exponent = ((top.to(tl.uint32, bitcast=True) + 0x007FFFFF) >> 23) & 0xFF
    exponent = tl.maximum(exponent.to(tl.int32) - 2, 0)
    inverse = ((254 - exponent) << 23).to(tl.float32, bitcast=True)
    bits = (x * inverse).to(tl.uint32, bitcast=True)
    sign = (bits >> 28) & 8
    a = tl.abs(x * inverse)
    code = (a > 0.25).to(tl.uint32) + (a >= 0.75) + (a > 1.25) + (a >= 1.75) + (a > 2.5) + (a >= 3.5) + (a > 5.0)
    code = tl.reshape((sign | code).to(tl.uint8), (ROWS, COLS // 2, 2))
    low, high = tl.split(code)
    out = tl.program_id(1) * (COLS // 2) + tl.arange(0, COLS // 2)
    tl.store(Q + rows[:, None] * (N // 2) + out[None, :], low | (high << 4))
    s = tl.program_id(1) * (COLS // 32) + tl.arange(0, COLS // 32)
    tl.store(S + rows[:, None] * (N // 32) + s[None, :], tl.reshape(exponent, (ROWS, COLS // 32)).to(tl.uint8))


@triton.jit
def nf4_dequant(Q, Absmax, Code, Out, n, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    """Two numbers a byte by a table of 16, a scale for each GROUP."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = i < n // 2
    q = tl.load(Q + i, mask=ok, other=0)
    s = tl.load(Absmax + i // (GROUP // 2), mask=ok, other=0.0)
    high = tl.load(Code + (q >> 4).to(tl.int32)) * s
    low = tl.load(Code + (q & 15).to(tl.int32)) * s
    o = tl.program_id(0) * BLOCK * 2 + tl.arange(0, BLOCK * 2)
    tl.store(Out + o, tl.interleave(high, low).to(tl.bfloat16), mask=o < n)


@triton.jit
def nf4_quant(X, Q, Absmax, GROUP: tl.constexpr, G: tl.constexpr):
    """The nearest of 16 numbers by a tree of comparisons."""
    g = tl.program_id(0) * G + tl.arange(0, G)
    i = tl.arange(0, GROUP)
    x = tl.load(X + g[:, None] * GROUP + i[None, :]).to(tl.float32)
    top = tl.max(tl.abs(x), 1)
    tl.store(Absmax + g, top)
    x = x / tl.where(top == 0.0, 1.0, top)[:, None]
    code = (x > -0.8480).to(tl.int32) + (x > -0.6106).to(tl.int32) + (x > -0.4600).to(tl.int32)
    code += (x > -0.3396).to(tl.int32) + (x > -0.2346).to(tl.int32) + (x > -0.1378).to(tl.int32)
    code += (x > -0.0455).to(tl.int32) + (x > 0.0398).to(tl.int32) + (x > 0.1202).to(tl.int32)
    code += (x > 0.2035).to(tl.int32) + (x > 0.2921).to(tl.int32) + (x > 0.3892).to(tl.int32)
    code += (x > 0.5016).to(tl.int32) + (x > 0.6427).to(tl.int32) + (x > 0.8615).to(tl.int32)
    pair = tl.reshape(code, (G, GROUP // 2, 2))
    even, odd = tl.split(pair)
    o = g[:, None] * (GROUP // 2) + tl.arange(0, GROUP // 2)[None, :]
    tl.store(Q + o, ((even << 4) | odd).to(tl.uint8))


@triton.jit
def int4_dequant(Q, S, Z, W, K, N, GROUP: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr):
    """Eight rows of weights in a word, with scales and zeros by group (as AutoGPTQ keeps them)."""
    k = tl.program_id(0) * BK + tl.arange(0, BK)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    q = tl.load(Q + (k // 8)[:, None] * N + n[None, :])
    g = k // GROUP
    s = tl.load(S + g[:, None] * N + n[None, :])
    z = tl.load(Z + g[:, None] * (N // 8) + (n // 8)[None, :])
    z = ((z >> ((n % 8) * 4)[None, :]) & 15) + 1
    q = (q >> ((k % 8) * 4)[:, None]) & 15
    tl.store(W + k[:, None] * N + n[None, :], (q - z).to(tl.float16) * s)


@triton.jit
def adamw(P, G, M, V, Master, lr, b1, b2, eps, wd, c1, c2, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = i < n
    g = tl.load(G + i, ok).to(tl.float32)
    p = tl.load(Master + i, ok)
    m = b1 * tl.load(M + i, ok) + (1 - b1) * g
    v = b2 * tl.load(V + i, ok) + (1 - b2) * g * g
    p = p * (1 - lr * wd) - lr * (m / c1) / (tl.sqrt(v / c2) + eps)
    tl.store(M + i, m, ok)
    tl.store(V + i, v, ok)
    tl.store(Master + i, p, ok)
    tl.store(P + i, p.to(tl.bfloat16), ok)


@triton.jit
def lion(P, G, M, lr, b1, b2, wd, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = i < n
    p = tl.load(P + i, mask=ok)
    g = tl.load(G + i, mask=ok)
    m = tl.load(M + i, mask=ok)
    p = p * (1 - lr * wd)
    u = m * b1 + g * (1 - b1)
    tl.store(P + i, tl.where(u > 0, p - lr, tl.where(u < 0, p + lr, p)), mask=ok)
    tl.store(M + i, m * b2 + g * (1 - b2), mask=ok)


@triton.jit
def adam_8bit(P, G, M8, V8, SM, SV, lr, b1, b2, eps, n, GROUP: tl.constexpr, G_N: tl.constexpr):
    """State of 8 bits with a scale for each group: linear for m, square roots for v."""
    g = tl.program_id(0) * G_N + tl.arange(0, G_N)
    i = g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    ok = i < n
    sm = tl.load(SM + g, g * GROUP < n, 0.0)[:, None]
    sv = tl.load(SV + g, g * GROUP < n, 0.0)[:, None]
    m = tl.load(M8 + i, ok, 0).to(tl.float32) * sm
    v = tl.load(V8 + i, ok, 0).to(tl.float32) * sv
    v = v * v
    grad = tl.load(G + i, ok, 0.0).to(tl.float32)
    m = b1 * m + (1 - b1) * grad
    v = b2 * v + (1 - b2) * grad * grad
    r = tl.sqrt(v)
    p = tl.load(P + i, ok, 0.0).to(tl.float32) - lr * m / (r + eps)
    tl.store(P + i, p, ok)
    sm = tl.max(tl.abs(m), 1) / 127.0 + 1e-20
    sv = tl.max(r, 1) / 255.0 + 1e-20
    tl.store(SM + g, sm, g * GROUP < n)
    tl.store(SV + g, sv, g * GROUP < n)
    tl.store(M8 + i, tl.extra.cuda.libdevice.rint(m / sm[:, None]).to(tl.int8), ok)
    tl.store(V8 + i, (r / sv[:, None] + 0.5).to(tl.uint8), ok)


@triton.jit
def grad_norm(G, Out, n, BLOCK: tl.constexpr):
    """The sum of squares by a persistent grid."""
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK, num_stages=2):
        i = start + tl.arange(0, BLOCK)
        g = tl.load(G + i, mask=i < n, other=0.0).to(tl.float32)
        acc += g * g
    tl.atomic_add(Out, tl.sum(acc, 0), sem="relaxed")


@triton.jit
def pack_bits(X, Out, n, BLOCK: tl.constexpr):
    """A bit for each number that is above zero, 32 in a word."""
    w = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    i = w[:, None] * 32 + tl.arange(0, 32)[None, :]
    x = tl.load(X + i, mask=i < n, other=0.0)
    bits = (x > 0).to(tl.int32) << tl.arange(0, 32)[None, :]
    tl.store(Out + w, tl.sum(bits, 1), mask=w * 32 < n)


@triton.jit
def hamming(A, B, Out, words, BM: tl.constexpr, BN: tl.constexpr):
    """Distances of codes of bits by popcount."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.int32)
    for w in range(words):
        a = tl.load(A + m * words + w)
        b = tl.load(B + n * words + w)
        x = a[:, None] ^ b[None, :]
        acc += tl.inline_asm_elementwise("popc.b32 $0, $1;", "=r,r", [x], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(Out + m[:, None] * (tl.num_programs(1) * BN) + n[None, :], acc)


@triton.jit
def stochastic_bf16(X, Y, seed, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n, other=0.0)
    r = tl.randint(seed, i).to(tl.uint32) & 0xFFFF
    y = (x.to(tl.uint32, bitcast=True) + r) & 0xFFFF0000
    tl.store(Y + i, y.to(tl.float32, bitcast=True).to(tl.bfloat16), mask=i < n)


def main() -> None:
    def array(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="cuda")

    def integers(*shape: int, dtype: torch.dtype, below: int) -> torch.Tensor:
        return torch.randint(0, below, shape, dtype=dtype, device="cuda")

    f32, bf16, fp8, u8 = torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.uint8
    for rows, n, block, warps in ((8192, 4096, 4096, 4), (8192, 5000, 8192, 8), (32768, 512, 512, 1)):
        q = torch.zeros((rows, n), dtype=torch.int8, device="cuda")
        int8_rows[(rows,)](array(rows, n), q, array(rows, dtype=f32), n, BLOCK=block, num_warps=warps)
    for rows, groups, size, g, ue, warps in (
        (8192, 56, 128, 8, False, 4),
        (8192, 56, 128, 64, True, 8),
        (4096, 128, 32, 32, True, 2),
    ):
        x = array(rows, groups * size, dtype=bf16)
        s = array(groups, rows, dtype=f32)
        fp8_groups[(rows, triton.cdiv(groups, g))](
            x, array(rows, groups * size, dtype=fp8), s, groups, rows, size, g, ue, num_warps=warps
        )
    for rows, n, group, warps in ((8192, 2048, 128, 1), (4096, 14336, 512, 4)):
        x = array(rows, 2 * n, dtype=bf16)
        silu_mul_fp8[(rows, n // group)](
            x, array(rows, n, dtype=fp8), array(rows, n // group, dtype=f32), n, group, num_warps=warps
        )
    for m, n, b, warps in ((4096, 7168, 128, 8), (4096, 4096, 64, 4), (4000, 3000, 128, 4)):
        x = array(m, n, dtype=bf16)
        s = array(triton.cdiv(m, b), triton.cdiv(n, b), dtype=f32)
        quantise_transposed[s.shape](x, array(m, n, dtype=fp8), array(n, m, dtype=fp8), s, m, n, b, num_warps=warps)
    for rows, cols, warps in ((1, 4096, 4), (16, 128, 4)):
        x = array(4096, 4096, dtype=bf16)
        q, s = torch.zeros((4096, 2048), dtype=u8, device="cuda"), torch.zeros((4096, 128), dtype=u8, device="cuda")
        mxfp4[(4096 // rows, 4096 // cols)](x, q, s, 4096, rows, cols, num_warps=warps)
    n = 4096 * 11008
    for block, group, warps in ((1024, 64, 4), (512, 256, 2)):
        q = integers(n // 2, dtype=u8, below=255)
        nf4_dequant[(triton.cdiv(n // 2, block),)](
            q,
            array(n // group, dtype=f32),
            array(16, dtype=f32),
            array(n, dtype=bf16),
            n,
            block,
            group,
            num_warps=warps,
        )
    for g, warps in ((16, 4), (64, 8)):
        q = torch.zeros(n // 2, dtype=u8, device="cuda")
        nf4_quant[(n // 64 // g,)](array(n, dtype=bf16), q, array(n // 64, dtype=f32), 64, g, num_warps=warps)
    for k, n, bk, bn, warps in ((4096, 12288, 64, 128, 4), (11008, 4096, 128, 64, 8), (4096, 4096, 16, 256, 4)):
        q = integers(k // 8, n, dtype=torch.int32, below=2**31 - 1)
        z = integers(k // 128, n // 8, dtype=torch.int32, below=2**31 - 1)
        int4_dequant[(k // bk, n // bn)](q, array(k // 128, n), z, array(k, n), k, n, 128, bk, bn, num_warps=warps)
    n = 100_000_000
    for block, warps in ((1024, 4), (2048, 8)):
        state = [array(n, dtype=f32) for _ in range(3)]
        adamw[(triton.cdiv(n, block),)](
            array(n, dtype=bf16),
            array(n, dtype=bf16),
            *state,
            1e-4,
            0.9,
            0.95,
            1e-8,
            0.1,
            0.5,
            0.6,
            n,
            block,
            num_warps=warps,
        )
    lion[(triton.cdiv(n, 512),)](*(array(n, dtype=f32) for _ in range(3)), 1e-4, 0.9, 0.99, 0.1, n, 512, num_warps=2)
    for size, groups, warps in ((256, 4, 4), (2048, 1, 8)):
        n = 50_000_000
        m8, v8 = (torch.ones(n, dtype=t, device="cuda") for t in (torch.int8, u8))
        s = array(triton.cdiv(n, size), dtype=f32)
        adam_8bit[(triton.cdiv(n, size * groups),)](
            array(n, dtype=bf16),
            array(n, dtype=bf16),
            m8,
            v8,
            s,
            s,
            1e-4,
            0.9,
            0.95,
            1e-8,
            n,
            size,
            groups,
            num_warps=warps,
        )
    for block, warps in ((4096, 8), (1024, 4)):
        grad_norm[(132 * 4,)](array(n, dtype=bf16), array(1, dtype=f32), n, block, num_warps=warps)
    n = 1 << 26
    for block, warps in ((32, 4), (128, 8)):
        pack_bits[(n // 32 // block,)](
            array(n), torch.zeros(n // 32, dtype=torch.int32, device="cuda"), n, block, num_warps=warps
        )
    codes = integers(4096, 16, dtype=torch.int32, below=2**31 - 1)
    out = torch.zeros((4096, 4096), dtype=torch.int32, device="cuda")
    hamming[(64, 64)](codes, codes, out, 16, 64, 64)
    hamming[(128, 32)](codes, codes, out, 16, 32, 128, num_warps=8)
    stochastic_bf16[(n // 1024,)](array(n, dtype=f32), array(n, dtype=bf16), 1234, n, 1024)


if __name__ == "__main__":
    main()
