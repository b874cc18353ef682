"""Loops that the ladder lacks, in Triton's Python, for `gpu_loops.py` and `gpu_ablation.py`.

`import kernels_loops` has them by Triton, `kernels_by_ziggurat.loaded("kernels_loops")` by ziggurat.
"""

import triton
import triton.language as tl


@triton.jit
def s2(a, b, log, c, K, S: tl.constexpr):
    i = tl.arange(0, 64)
    acc = tl.zeros((64, 64), tl.float32)
    for j in range(0, K, 64):
        x = tl.load(a + i[:, None] * K + (j + i)[None, :])
        y = tl.load(b + (j + i)[:, None] * 64 + i[None, :])
        acc += tl.dot(x, y)
        if S:
            tl.store(log + j + i, tl.sum(acc, 1))
    tl.store(c + i[:, None] * 64 + i[None, :], acc)


@triton.jit
def state(k, v, h, NT, C: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr):
    # GLA-like chunk_fwd_h: store the state of each chunk, then add k^T v.
    pid = tl.program_id(0)
    k += pid * NT * C * DK
    v += pid * NT * C * DV
    h += pid * NT * DK * DV
    oc = tl.arange(0, C)
    ok = tl.arange(0, DK)
    ov = tl.arange(0, DV)
    b_h = tl.zeros((DK, DV), tl.float32)
    for t in range(NT):
        tl.store(h + t * DK * DV + ok[:, None] * DV + ov[None, :], b_h.to(tl.float16))
        b_k = tl.load(k + (t * C + oc)[None, :] * DK + ok[:, None])
        b_v = tl.load(v + (t * C + oc)[:, None] * DV + ov[None, :])
        b_h += tl.dot(b_k, b_v)


@triton.jit
def gated_state(k, v, g, h, NT, C: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr):
    # As `state`, with decay by the last gate of a chunk, and the keys scaled: one operand goes through registers.
    pid = tl.program_id(0)
    k += pid * NT * C * DK
    v += pid * NT * C * DV
    h += pid * NT * DK * DV
    g += pid * NT * C
    oc = tl.arange(0, C)
    ok = tl.arange(0, DK)
    ov = tl.arange(0, DV)
    b_h = tl.zeros((DK, DV), tl.float32)
    for t in range(NT):
        tl.store(h + t * DK * DV + ok[:, None] * DV + ov[None, :], b_h.to(tl.float16))
        b_k = tl.load(k + (t * C + oc)[None, :] * DK + ok[:, None])
        b_v = tl.load(v + (t * C + oc)[:, None] * DV + ov[None, :])
        b_g = tl.load(g + t * C + oc)
        last = tl.load(g + t * C + C - 1)
        b_h *= tl.exp(last)
        b_v = (b_v * tl.exp(last - b_g)[:, None]).to(tl.float16)
        b_h += tl.dot(b_k, b_v)


@triton.jit
def delta(k, w, u, g, h, vn, NT, C: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, GATE: tl.constexpr):
    # Delta rule: h is stored for each chunk; v_new = u - w h is stored; h = decay h + k^T v_new.
    pid = tl.program_id(0)
    k += pid * NT * C * DK
    w += pid * NT * C * DK
    u += pid * NT * C * DV
    vn += pid * NT * C * DV
    h += pid * NT * DK * DV
    g += pid * NT * C
    oc = tl.arange(0, C)
    ok = tl.arange(0, DK)
    ov = tl.arange(0, DV)
    b_h = tl.zeros((DK, DV), tl.float32)
    for t in range(NT):
        tl.store(h + t * DK * DV + ok[:, None] * DV + ov[None, :], b_h.to(tl.float16))
        b_w = tl.load(w + (t * C + oc)[:, None] * DK + ok[None, :])
        b_v = tl.load(u + (t * C + oc)[:, None] * DV + ov[None, :]) - tl.dot(b_w, b_h.to(tl.float16))
        tl.store(vn + (t * C + oc)[:, None] * DV + ov[None, :], b_v.to(tl.float16))
        if GATE:
            last = tl.load(g + t * C + C - 1)
            b_g = tl.load(g + t * C + oc)
            b_v = b_v * tl.exp(last - b_g)[:, None]
            b_h *= tl.exp(last)
        b_k = tl.load(k + (t * C + oc)[None, :] * DK + ok[:, None])
        b_h += tl.dot(b_k, b_v.to(tl.float16))


@triton.jit
def dkdv(q, k, v, do, lse, delta, dk, dv, N, scale, D: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr):
    # Attention's dK, dV of a block of BT keys; loop over blocks of BS queries.
    pid = tl.program_id(0)
    bh = tl.program_id(1)
    q += bh * N * D
    k += bh * N * D
    v += bh * N * D
    do += bh * N * D
    dk += bh * N * D
    dv += bh * N * D
    lse += bh * N
    delta += bh * N
    ot = pid * BT + tl.arange(0, BT)
    od = tl.arange(0, D)
    os = tl.arange(0, BS)
    b_k = tl.load(k + ot[:, None] * D + od[None, :])
    b_v = tl.load(v + ot[:, None] * D + od[None, :])
    b_dk = tl.zeros((BT, D), tl.float32)
    b_dv = tl.zeros((BT, D), tl.float32)
    for i in range(0, N, BS):
        b_q = tl.load(q + (i + os)[:, None] * D + od[None, :])
        b_do = tl.load(do + (i + os)[:, None] * D + od[None, :])
        b_lse = tl.load(lse + i + os)
        b_delta = tl.load(delta + i + os)
        b_s = tl.dot(b_k, tl.trans(b_q)) * scale
        b_p = tl.exp2(b_s - b_lse[None, :])
        b_dv += tl.dot(b_p.to(tl.float16), b_do)
        b_dp = tl.dot(b_v, tl.trans(b_do))
        b_ds = b_p * (b_dp - b_delta[None, :])
        b_dk += tl.dot(b_ds.to(tl.float16), b_q)
    tl.store(dk + ot[:, None] * D + od[None, :], b_dk.to(tl.float16))
    tl.store(dv + ot[:, None] * D + od[None, :], b_dv.to(tl.float16))


@triton.jit
def linear(q, k, v, o, NT, C: tl.constexpr, D: tl.constexpr):
    # Chunked linear attention: state in registers, o stored in the loop.
    pid = tl.program_id(0)
    q += pid * NT * C * D
    k += pid * NT * C * D
    v += pid * NT * C * D
    o += pid * NT * C * D
    oc = tl.arange(0, C)
    od = tl.arange(0, D)
    b_h = tl.zeros((D, D), tl.float32)
    for t in range(NT):
        at = (t * C + oc)[:, None] * D + od[None, :]
        b_q = tl.load(q + at)
        b_k = tl.load(k + at)
        b_v = tl.load(v + at)
        s = tl.dot(b_q, tl.trans(b_k))
        s = tl.where(oc[:, None] >= oc[None, :], s, 0.0)
        b_o = tl.dot(b_q, b_h.to(tl.float16)) + tl.dot(s.to(tl.float16), b_v)
        tl.store(o + at, b_o.to(tl.float16))
        b_h += tl.dot(tl.trans(b_k), b_v)


@triton.jit
def paged(q, kc, vc, table, o, npages, scale, D: tl.constexpr, P: tl.constexpr, R: tl.constexpr):
    pid = tl.program_id(0)
    orr = tl.arange(0, R)
    od = tl.arange(0, D)
    op = tl.arange(0, P)
    b_q = tl.load(q + pid * R * D + orr[:, None] * D + od[None, :])
    acc = tl.zeros((R, D), tl.float32)
    m = tl.full((R,), -1e30, tl.float32)
    total = tl.zeros((R,), tl.float32)
    for i in range(npages):
        page = tl.load(table + pid * npages + i)
        b_k = tl.load(kc + page * P * D + op[None, :] * D + od[:, None])
        b_v = tl.load(vc + page * P * D + op[:, None] * D + od[None, :])
        s = tl.dot(b_q, b_k) * scale
        mn = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - mn[:, None])
        al = tl.exp2(m - mn)
        total = total * al + tl.sum(p, 1)
        acc = acc * al[:, None] + tl.dot(p.to(tl.float16), b_v)
        m = mn
    tl.store(o + pid * R * D + orr[:, None] * D + od[None, :], (acc / total[:, None]).to(tl.float16))


@triton.jit
def w8(a, w, c, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    om = tl.program_id(0) * BM + tl.arange(0, BM)
    on = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for j in range(0, K, BK):
        x = tl.load(a + om[:, None] * K + (j + ok)[None, :])
        y = tl.load(w + (j + ok)[:, None] * N + on[None, :])
        acc += tl.dot(x, y.to(tl.float16))
    tl.store(c + om[:, None] * N + on[None, :], acc.to(tl.float16))


@triton.jit
def silu(a, w, c, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    om = tl.program_id(0) * BM + tl.arange(0, BM)
    on = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for j in range(0, K, BK):
        x = tl.load(a + om[:, None] * K + (j + ok)[None, :]).to(tl.float32)
        y = tl.load(w + (j + ok)[:, None] * N + on[None, :])
        acc += tl.dot((x * tl.sigmoid(x)).to(tl.float16), y)
    tl.store(c + om[:, None] * N + on[None, :], acc.to(tl.float16))


@triton.jit
def attention(q, k, v, o, N, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, FORM: tl.constexpr):
    pid = tl.program_id(0)
    bh = tl.program_id(1)
    q += bh * N * D
    k += bh * N * D
    v += bh * N * D
    o += bh * N * D
    om = pid * BM + tl.arange(0, BM)
    od = tl.arange(0, D)
    on = tl.arange(0, BN)
    b_q = tl.load(q + om[:, None] * D + od[None, :])
    acc = tl.zeros((BM, D), tl.float32)
    m = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    for i in range(0, N, BN):
        b_k = tl.load(k + (i + on)[None, :] * D + od[:, None])
        b_v = tl.load(v + (i + on)[:, None] * D + od[None, :])
        s = tl.dot(b_q, b_k) * scale
        mn = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - mn[:, None])
        al = tl.exp2(m - mn)
        total = total * al + tl.sum(p, 1)
        if FORM == 0:
            acc = acc * al[:, None]
            acc = tl.dot(p.to(tl.float16), b_v, acc)
        else:
            acc = acc * al[:, None] + tl.dot(p.to(tl.float16), b_v)
        m = mn
    tl.store(o + om[:, None] * D + od[None, :], (acc / total[:, None]).to(tl.float16))


@triton.jit
def w4(a, w, s, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, G: tl.constexpr):
    # Two weights of 4 bits a byte, with a scale for each G of them along K.
    rm = tl.program_id(1) * BM + tl.arange(0, BM)
    rn = tl.program_id(0) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    rk2 = tl.arange(0, BK // 2)
    acc = tl.zeros((BM, BN), tl.float32)
    ap = a + rm[:, None] * K + rk[None, :]
    wp = w + rn[:, None] * (K // 2) + rk2[None, :]
    for k in range(0, K, BK):
        x = tl.load(ap, mask=rm[:, None] < M, other=0.0)
        q = tl.load(wp)
        low = (q & 0xF).to(tl.int8) - 8
        high = (q >> 4).to(tl.int8) - 8
        scale = tl.load(s + (k // G) * N + rn)
        b = tl.join(low, high).reshape(BN, BK).to(tl.float16) * scale[:, None]
        acc = tl.dot(x, b.T, acc)
        ap += BK
        wp += BK // 2
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(tl.float16), mask=rm[:, None] < M)


@triton.jit
def group_norm(x, y, weight, bias, HW, G, eps, B: tl.constexpr, GROUPS: tl.constexpr):
    # A group of channels of one image, in two passes.
    pid = tl.program_id(0)
    x += pid * G
    y += pid * G
    channel = (pid % GROUPS) * (G // HW)
    total = tl.zeros((B,), tl.float32)
    squares = tl.zeros((B,), tl.float32)
    for i in range(0, G, B):
        at = i + tl.arange(0, B)
        v = tl.load(x + at, mask=at < G, other=0.0).to(tl.float32)
        total += v
        squares += v * v
    mean = tl.sum(total) / G
    rstd = 1 / tl.sqrt(tl.sum(squares) / G - mean * mean + eps)
    for i in range(0, G, B):
        at = i + tl.arange(0, B)
        v = tl.load(x + at, mask=at < G, other=0.0).to(tl.float32)
        w = tl.load(weight + channel + at // HW, mask=at < G, other=0.0).to(tl.float32)
        b = tl.load(bias + channel + at // HW, mask=at < G, other=0.0).to(tl.float32)
        tl.store(y + at, ((v - mean) * rstd * w + b).to(tl.bfloat16), mask=at < G)


@triton.jit
def gate(x, weights, experts, E: tl.constexpr, K: tl.constexpr, T: tl.constexpr):
    # The softmax of each token's experts, and the first K of them.
    rows = tl.program_id(0) * T + tl.arange(0, T)
    columns = tl.arange(0, E)
    v = tl.load(x + rows[:, None] * E + columns[None, :]).to(tl.float32)
    v = tl.exp(v - tl.max(v, 1)[:, None])
    v = v / tl.sum(v, 1)[:, None]
    for k in tl.static_range(K):
        best = tl.argmax(v, 1)
        top = tl.max(v, 1)
        tl.store(weights + rows * K + k, top)
        tl.store(experts + rows * K + k, best)
        v = tl.where(columns[None, :] == best[:, None], -1.0, v)


@triton.jit
def combine(a1, h1, a2, h2):
    return a1 * a2, a2 * h1 + h2


@triton.jit
def recurrence(a, x, h, T, C, BT: tl.constexpr, BC: tl.constexpr):
    # h = a h + x along T, in blocks of BT steps.
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    b = tl.program_id(1)
    a += b * T * C
    x += b * T * C
    h += b * T * C
    last = tl.zeros((BC,), tl.float32)
    for t in range(0, T, BT):
        at = (t + tl.arange(0, BT))[:, None] * C + c[None, :]
        va = tl.load(a + at).to(tl.float32)
        vx = tl.load(x + at).to(tl.float32)
        pa, ph = tl.associative_scan((va, vx), 0, combine)
        vh = ph + pa * last[None, :]
        tl.store(h + at, vh.to(tl.float16))
        last = tl.sum(tl.where((tl.arange(0, BT) == BT - 1)[:, None], vh, 0.0), 0)


@triton.jit
def conv(x, w, y, H, W, C, FILTERS, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    # 3×3, NHWC, padded by one: an implicit product of pixels and filters.
    pixel = tl.program_id(0) * BM + tl.arange(0, BM)
    out = tl.program_id(1) * BN + tl.arange(0, BN)
    ox = pixel % W
    oy = pixel // W % H
    image = pixel // (W * H)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, 9 * C, BK):
        tap = k // C
        iy = oy + tap // 3 - 1
        ix = ox + tap % 3 - 1
        c = k % C + tl.arange(0, BK)
        inside = (iy >= 0) & (iy < H) & (ix >= 0) & (ix < W)
        at = ((image * H + iy) * W + ix)[:, None] * C + c[None, :]
        a = tl.load(x + at, mask=inside[:, None], other=0.0)
        b = tl.load(w + (k + tl.arange(0, BK))[:, None] * FILTERS + out[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(y + pixel[:, None] * FILTERS + out[None, :], acc.to(tl.float16))


@triton.jit
def two(a, b, c, B: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(a + i)
    y = tl.load(b + i)
    p = x * y
    tl.store(c + i, x - p)
    tl.store(c + B + i, p)
