"""Loops that the ladder lacks: ziggurat against Triton in one process, launches in turn, results checked.

    benchmarks/on_device.sh python3 benchmarks/gpu_loops.py [name …]        (torch 2.11, Triton 3.6, one GPU)

Prints a line a kernel: microseconds of both (median of medians), the ratio, and for both the largest difference from a
reference in f32 by torch, relative to the largest magnitude.
"""

import functools
import importlib.util
import statistics
import sys
import tempfile
from pathlib import Path

import torch
import triton
import triton.language

import ziggurat.triton as ours
import ziggurat.triton.language as ours_language

SRC = """
@triton.jit
def s2(a, b, log, c, K, S: tl.constexpr):
    i = tl.arange(0, 64); acc = tl.zeros((64, 64), tl.float32)
    for j in range(0, K, 64):
        x = tl.load(a + i[:, None] * K + (j + i)[None, :]); y = tl.load(b + (j + i)[:, None] * 64 + i[None, :])
        acc += tl.dot(x, y)
        if S: tl.store(log + j + i, tl.sum(acc, 1))
    tl.store(c + i[:, None] * 64 + i[None, :], acc)

@triton.jit
def state(k, v, h, NT, C: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr):
    # GLA-like chunk_fwd_h: store the state of each chunk, then add k^T v.
    pid = tl.program_id(0)
    k += pid * NT * C * DK; v += pid * NT * C * DV; h += pid * NT * DK * DV
    oc = tl.arange(0, C); ok = tl.arange(0, DK); ov = tl.arange(0, DV)
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
    k += pid * NT * C * DK; v += pid * NT * C * DV; h += pid * NT * DK * DV; g += pid * NT * C
    oc = tl.arange(0, C); ok = tl.arange(0, DK); ov = tl.arange(0, DV)
    b_h = tl.zeros((DK, DV), tl.float32)
    for t in range(NT):
        tl.store(h + t * DK * DV + ok[:, None] * DV + ov[None, :], b_h.to(tl.float16))
        b_k = tl.load(k + (t * C + oc)[None, :] * DK + ok[:, None])
        b_v = tl.load(v + (t * C + oc)[:, None] * DV + ov[None, :])
        b_g = tl.load(g + t * C + oc); last = tl.load(g + t * C + C - 1)
        b_h *= tl.exp(last)
        b_v = (b_v * tl.exp(last - b_g)[:, None]).to(tl.float16)
        b_h += tl.dot(b_k, b_v)

@triton.jit
def delta(k, w, u, g, h, vn, NT, C: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, GATE: tl.constexpr):
    # Delta rule: h is stored for each chunk; v_new = u - w h is stored; h = decay h + k^T v_new.
    pid = tl.program_id(0)
    k += pid * NT * C * DK; w += pid * NT * C * DK; u += pid * NT * C * DV; vn += pid * NT * C * DV
    h += pid * NT * DK * DV; g += pid * NT * C
    oc = tl.arange(0, C); ok = tl.arange(0, DK); ov = tl.arange(0, DV)
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
    pid = tl.program_id(0); bh = tl.program_id(1)
    q += bh * N * D; k += bh * N * D; v += bh * N * D; do += bh * N * D; dk += bh * N * D; dv += bh * N * D
    lse += bh * N; delta += bh * N
    ot = pid * BT + tl.arange(0, BT); od = tl.arange(0, D); os = tl.arange(0, BS)
    b_k = tl.load(k + ot[:, None] * D + od[None, :]); b_v = tl.load(v + ot[:, None] * D + od[None, :])
    b_dk = tl.zeros((BT, D), tl.float32); b_dv = tl.zeros((BT, D), tl.float32)
    for i in range(0, N, BS):
        b_q = tl.load(q + (i + os)[:, None] * D + od[None, :])
        b_do = tl.load(do + (i + os)[:, None] * D + od[None, :])
        b_lse = tl.load(lse + i + os); b_delta = tl.load(delta + i + os)
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
    q += pid * NT * C * D; k += pid * NT * C * D; v += pid * NT * C * D; o += pid * NT * C * D
    oc = tl.arange(0, C); od = tl.arange(0, D)
    b_h = tl.zeros((D, D), tl.float32)
    for t in range(NT):
        at = (t * C + oc)[:, None] * D + od[None, :]
        b_q = tl.load(q + at); b_k = tl.load(k + at); b_v = tl.load(v + at)
        s = tl.dot(b_q, tl.trans(b_k))
        s = tl.where(oc[:, None] >= oc[None, :], s, 0.0)
        b_o = tl.dot(b_q, b_h.to(tl.float16)) + tl.dot(s.to(tl.float16), b_v)
        tl.store(o + at, b_o.to(tl.float16))
        b_h += tl.dot(tl.trans(b_k), b_v)

@triton.jit
def paged(q, kc, vc, table, o, npages, scale, D: tl.constexpr, P: tl.constexpr, R: tl.constexpr):
    pid = tl.program_id(0)
    orr = tl.arange(0, R); od = tl.arange(0, D); op = tl.arange(0, P)
    b_q = tl.load(q + pid * R * D + orr[:, None] * D + od[None, :])
    acc = tl.zeros((R, D), tl.float32); m = tl.full((R,), -1e30, tl.float32); l = tl.zeros((R,), tl.float32)
    for i in range(npages):
        page = tl.load(table + pid * npages + i)
        b_k = tl.load(kc + page * P * D + op[None, :] * D + od[:, None])
        b_v = tl.load(vc + page * P * D + op[:, None] * D + od[None, :])
        s = tl.dot(b_q, b_k) * scale
        mn = tl.maximum(m, tl.max(s, 1)); p = tl.exp2(s - mn[:, None]); al = tl.exp2(m - mn)
        l = l * al + tl.sum(p, 1); acc = acc * al[:, None] + tl.dot(p.to(tl.float16), b_v); m = mn
    tl.store(o + pid * R * D + orr[:, None] * D + od[None, :], (acc / l[:, None]).to(tl.float16))

@triton.jit
def w8(a, w, c, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    om = tl.program_id(0) * BM + tl.arange(0, BM); on = tl.program_id(1) * BN + tl.arange(0, BN); ok = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for j in range(0, K, BK):
        x = tl.load(a + om[:, None] * K + (j + ok)[None, :]); y = tl.load(w + (j + ok)[:, None] * N + on[None, :])
        acc += tl.dot(x, y.to(tl.float16))
    tl.store(c + om[:, None] * N + on[None, :], acc.to(tl.float16))

@triton.jit
def silu(a, w, c, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    om = tl.program_id(0) * BM + tl.arange(0, BM); on = tl.program_id(1) * BN + tl.arange(0, BN); ok = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for j in range(0, K, BK):
        x = tl.load(a + om[:, None] * K + (j + ok)[None, :]).to(tl.float32)
        y = tl.load(w + (j + ok)[:, None] * N + on[None, :])
        acc += tl.dot((x * tl.sigmoid(x)).to(tl.float16), y)
    tl.store(c + om[:, None] * N + on[None, :], acc.to(tl.float16))

@triton.jit
def attention(q, k, v, o, N, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, FORM: tl.constexpr):
    pid = tl.program_id(0); bh = tl.program_id(1)
    q += bh * N * D; k += bh * N * D; v += bh * N * D; o += bh * N * D
    om = pid * BM + tl.arange(0, BM); od = tl.arange(0, D); on = tl.arange(0, BN)
    b_q = tl.load(q + om[:, None] * D + od[None, :])
    acc = tl.zeros((BM, D), tl.float32); m = tl.full((BM,), -1e30, tl.float32); l = tl.zeros((BM,), tl.float32)
    for i in range(0, N, BN):
        b_k = tl.load(k + (i + on)[None, :] * D + od[:, None])
        b_v = tl.load(v + (i + on)[:, None] * D + od[None, :])
        s = tl.dot(b_q, b_k) * scale
        mn = tl.maximum(m, tl.max(s, 1)); p = tl.exp2(s - mn[:, None]); al = tl.exp2(m - mn)
        l = l * al + tl.sum(p, 1)
        if FORM == 0:
            acc = acc * al[:, None]
            acc = tl.dot(p.to(tl.float16), b_v, acc)
        else:
            acc = acc * al[:, None] + tl.dot(p.to(tl.float16), b_v)
        m = mn
    tl.store(o + om[:, None] * D + od[None, :], (acc / l[:, None]).to(tl.float16))

@triton.jit
def w4(a, w, s, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, G: tl.constexpr):
    # Two weights of 4 bits a byte, with a scale for each G of them along K.
    rm = tl.program_id(1) * BM + tl.arange(0, BM); rn = tl.program_id(0) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK); rk2 = tl.arange(0, BK // 2)
    acc = tl.zeros((BM, BN), tl.float32)
    ap = a + rm[:, None] * K + rk[None, :]; wp = w + rn[:, None] * (K // 2) + rk2[None, :]
    for k in range(0, K, BK):
        x = tl.load(ap, mask=rm[:, None] < M, other=0.0)
        q = tl.load(wp)
        low = (q & 0xF).to(tl.int8) - 8; high = (q >> 4).to(tl.int8) - 8
        scale = tl.load(s + (k // G) * N + rn)
        b = tl.join(low, high).reshape(BN, BK).to(tl.float16) * scale[:, None]
        acc = tl.dot(x, b.T, acc)
        ap += BK; wp += BK // 2
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(tl.float16), mask=rm[:, None] < M)

@triton.jit
def group_norm(x, y, weight, bias, HW, G, eps, B: tl.constexpr, GROUPS: tl.constexpr):
    # A group of channels of one image, in two passes.
    pid = tl.program_id(0)
    x += pid * G; y += pid * G
    channel = (pid % GROUPS) * (G // HW)
    total = tl.zeros((B,), tl.float32); squares = tl.zeros((B,), tl.float32)
    for i in range(0, G, B):
        at = i + tl.arange(0, B)
        v = tl.load(x + at, mask=at < G, other=0.0).to(tl.float32)
        total += v; squares += v * v
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
    rows = tl.program_id(0) * T + tl.arange(0, T); columns = tl.arange(0, E)
    v = tl.load(x + rows[:, None] * E + columns[None, :]).to(tl.float32)
    v = tl.exp(v - tl.max(v, 1)[:, None]); v = v / tl.sum(v, 1)[:, None]
    for k in tl.static_range(K):
        best = tl.argmax(v, 1); top = tl.max(v, 1)
        tl.store(weights + rows * K + k, top); tl.store(experts + rows * K + k, best)
        v = tl.where(columns[None, :] == best[:, None], -1.0, v)

@triton.jit
def combine(a1, h1, a2, h2):
    return a1 * a2, a2 * h1 + h2

@triton.jit
def recurrence(a, x, h, T, C, BT: tl.constexpr, BC: tl.constexpr):
    # h = a h + x along T, in blocks of BT steps.
    c = tl.program_id(0) * BC + tl.arange(0, BC); b = tl.program_id(1)
    a += b * T * C; x += b * T * C; h += b * T * C
    last = tl.zeros((BC,), tl.float32)
    for t in range(0, T, BT):
        at = (t + tl.arange(0, BT))[:, None] * C + c[None, :]
        va = tl.load(a + at).to(tl.float32); vx = tl.load(x + at).to(tl.float32)
        pa, ph = tl.associative_scan((va, vx), 0, combine)
        vh = ph + pa * last[None, :]
        tl.store(h + at, vh.to(tl.float16))
        last = tl.sum(tl.where((tl.arange(0, BT) == BT - 1)[:, None], vh, 0.0), 0)

@triton.jit
def conv(x, w, y, H, W, C, O, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    # 3×3, NHWC, padded by one: an implicit product of pixels and filters.
    pixel = tl.program_id(0) * BM + tl.arange(0, BM); out = tl.program_id(1) * BN + tl.arange(0, BN)
    ox = pixel % W; oy = pixel // W % H; image = pixel // (W * H)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, 9 * C, BK):
        tap = k // C; iy = oy + tap // 3 - 1; ix = ox + tap % 3 - 1
        c = k % C + tl.arange(0, BK)
        inside = (iy >= 0) & (iy < H) & (ix >= 0) & (ix < W)
        at = ((image * H + iy) * W + ix)[:, None] * C + c[None, :]
        a = tl.load(x + at, mask=inside[:, None], other=0.0)
        b = tl.load(w + (k + tl.arange(0, BK))[:, None] * O + out[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(y + pixel[:, None] * O + out[None, :], acc.to(tl.float16))

@triton.jit
def two(a, b, c, B: tl.constexpr):
    i = tl.arange(0, B); x = tl.load(a + i); y = tl.load(b + i); p = x * y
    tl.store(c + i, x - p); tl.store(c + B + i, p)
"""


def module(name, jit, language):
    """The kernels by one of the two: each needs a file with their source."""
    path = Path(tempfile.mkdtemp()) / f"dots_{name}.py"
    path.write_text(f"import {jit.__name__} as triton, {language.__name__} as tl\n" + SRC)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    program = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = program
    spec.loader.exec_module(program)
    return program


OURS, THEIRS = module("ours", ours, ours_language), module("theirs", triton, triton.language)
torch.manual_seed(0)


def H(*shape, scale=1.0):
    return torch.randn(*shape, device="cuda", dtype=torch.float16) * scale


def E(*shape, dtype=torch.float16):
    return torch.full(shape, float("nan"), device="cuda", dtype=dtype)


def f(x):
    return x.float()


def s2(stores, k=8192):
    a, b = H(64, k), H(k, 64)

    def ref():
        parts = (f(a).view(64, -1, 64).transpose(0, 1) @ f(b).view(-1, 64, 64)).cumsum(0)
        return [parts[-1], parts.sum(2).reshape(-1)] if stores else [parts[-1]]

    def outs():
        return [E(64, 64, dtype=torch.float32), *([E(k, dtype=torch.float32)] if stores else [])]

    return "s2", (1,), lambda o: (a, b, o[-1], o[0], k), {"S": stores}, 4, outs, ref


def state(c=64, dk=64, dv=64, bh=128, nt=64):
    k, v = H(bh, nt, c, dk, scale=0.2), H(bh, nt, c, dv, scale=0.2)

    def ref():
        parts = f(k).transpose(2, 3) @ f(v)
        return [parts.cumsum(1) - parts]

    return "state", (bh,), lambda o: (k, v, o[0], nt), {"C": c, "DK": dk, "DV": dv}, 4, lambda: [E(bh, nt, dk, dv)], ref


def gated(c=64, dk=64, dv=64, bh=128, nt=64):
    k, v = H(bh, nt, c, dk, scale=0.2), H(bh, nt, c, dv, scale=0.2)
    g = -torch.rand(bh, nt, c, device="cuda").cumsum(2) * 0.01

    def ref():
        h, out = torch.zeros(bh, dk, dv, device="cuda"), []
        for t in range(nt):
            out.append(h)
            last = g[:, t, -1:]
            h = h * last.exp()[..., None] + f(k[:, t]).transpose(1, 2) @ (
                f(v[:, t]) * (last - g[:, t]).exp()[..., None]
            )
        return [torch.stack(out, 1)]

    return (
        "gated_state",
        (bh,),
        lambda o: (k, v, g, o[0], nt),
        {"C": c, "DK": dk, "DV": dv},
        4,
        lambda: [E(bh, nt, dk, dv)],
        ref,
    )


def delta(gate, c=64, dk=64, dv=64, bh=128, nt=64):
    k, w, u = H(bh, nt, c, dk, scale=0.1), H(bh, nt, c, dk, scale=0.01), H(bh, nt, c, dv, scale=0.5)
    g = -torch.rand(bh, nt, c, device="cuda").cumsum(2) * 0.01

    def ref():
        h, hs, vs = torch.zeros(bh, dk, dv, device="cuda"), [], []
        for t in range(nt):
            hs.append(h)
            v = f(u[:, t]) - f(w[:, t]) @ h
            vs.append(v)
            if gate:
                last = g[:, t, -1:]
                v, h = v * (last - g[:, t]).exp()[..., None], h * last.exp()[..., None]
            h = h + f(k[:, t]).transpose(1, 2) @ v
        return [torch.stack(hs, 1), torch.stack(vs, 1)]

    def outs():
        return [E(bh, nt, dk, dv), E(bh, nt, c, dv)]

    return "delta", (bh,), lambda o: (k, w, u, g, *o, nt), {"C": c, "DK": dk, "DV": dv, "GATE": gate}, 4, outs, ref


def dkdv(d, bt=128, bs=64, bh=32, n=4096):
    q, k, v, do = (H(bh, n, d) for _ in range(4))
    scale = d**-0.5 * 1.44269504
    s = torch.einsum("bnd,bmd->bnm", f(q[:1]), f(k[:1])) * scale
    lse = torch.empty(bh, n, device="cuda")
    dl = torch.empty(bh, n, device="cuda")
    for i in range(bh):
        s = f(q[i]) @ f(k[i]).T * scale
        lse[i] = torch.logsumexp(s * 0.693147181, 1) * 1.44269504
        p = torch.exp2(s - lse[i][:, None])
        dl[i] = (f(do[i]) * (p @ f(v[i]))).sum(1)

    def ref():
        dks, dvs = [], []
        for i in range(bh):
            p = torch.exp2(f(q[i]) @ f(k[i]).T * scale - lse[i][:, None])
            ds = p * (f(do[i]) @ f(v[i]).T - dl[i][:, None])
            dks.append(ds.T @ f(q[i]))
            dvs.append(p.T @ f(do[i]))
        return [torch.stack(dks), torch.stack(dvs)]

    def outs():
        return [E(bh, n, d), E(bh, n, d)]

    return (
        "dkdv",
        (n // bt, bh),
        lambda o: (q, k, v, do, lse, dl, *o, n, scale),
        {"D": d, "BT": bt, "BS": bs},
        8,
        outs,
        ref,
    )


def linear(c=64, d=64, bh=128, nt=64):
    q, k, v = (H(bh, nt, c, d, scale=0.2) for _ in range(3))

    def ref():
        parts = f(k).transpose(2, 3) @ f(v)
        before = parts.cumsum(1) - parts
        return [f(q) @ before + (f(q) @ f(k).transpose(2, 3)).tril() @ f(v)]

    return "linear", (bh,), lambda o: (q, k, v, o[0], nt), {"C": c, "D": d}, 4, lambda: [E(bh, nt, c, d)], ref


def paged(d=128, p=32, r=64, batch=128, pages=64):
    q, kc, vc = H(batch, r, d), H(batch * pages, p, d), H(batch * pages, p, d)
    table = torch.randperm(batch * pages, device="cuda").int().view(batch, pages)
    scale = d**-0.5 * 1.44269504

    def ref():
        k, v = (f(x[table.long()]).view(batch, pages * p, d) for x in (kc, vc))
        return [torch.softmax(f(q) @ k.transpose(1, 2) * scale * 0.693147181, 2) @ v]

    return (
        "paged",
        (batch,),
        lambda o: (q, kc, vc, table, o[0], pages, scale),
        {"D": d, "P": p, "R": r},
        4,
        lambda: [E(batch, r, d)],
        ref,
    )


def w8(m=4096, n=4096, k=4096):
    a, w = H(m, k, scale=0.05), torch.randint(-5, 6, (k, n), device="cuda", dtype=torch.int8)
    return (
        "w8",
        (m // 128, n // 128),
        lambda o: (a, w, o[0], k, n),
        {"BM": 128, "BN": 128, "BK": 64},
        8,
        lambda: [E(m, n)],
        lambda: [f(a) @ f(w)],
    )


def silu(m=4096, n=4096, k=4096):
    a, w = H(m, k), H(k, n, scale=0.05)

    def ref():
        return [torch.nn.functional.silu(f(a)).half().float() @ f(w)]

    return (
        "silu",
        (m // 128, n // 128),
        lambda o: (a, w, o[0], k, n),
        {"BM": 128, "BN": 128, "BK": 64},
        8,
        lambda: [E(m, n)],
        ref,
    )


def attention(d=128, bh=32, n=4096):
    q, k, v = (H(bh, n, d) for _ in range(3))
    scale = d**-0.5 * 1.44269504

    def ref():
        return [torch.stack([torch.softmax(f(q[i]) @ f(k[i]).T * d**-0.5, 1) @ f(v[i]) for i in range(bh)])]

    return (
        "attention",
        (n // 128, bh),
        lambda o: (q, k, v, o[0], n, scale),
        {"D": d, "BM": 128, "BN": 64, "FORM": 0},
        8,
        lambda: [E(bh, n, d)],
        ref,
    )


def w4(m, bm, bn, bk, warps, n=4096, k=4096, group=128):
    a, scales = H(m, k), torch.rand(k // group, n, device="cuda", dtype=torch.float16) * 0.02
    packed = torch.randint(0, 256, (n, k // 2), device="cuda", dtype=torch.uint8)

    def ref():
        both = torch.stack([(packed & 15).float() - 8, (packed >> 4).float() - 8], 2).view(n, k)
        return [f(a) @ (both * f(scales).T.repeat_interleave(group, 1)).T]

    blocks = {"BM": bm, "BN": bn, "BK": bk, "G": group}
    grid = n // bn, -(-m // bm)
    return "w4", grid, lambda o: (a, packed, scales, o[0], m, n, k), blocks, warps, lambda: [E(m, n)], ref


def group_norm(hw=64 * 64, images=32, channels=512, groups=32):
    x = torch.randn(images, channels, hw, device="cuda").bfloat16()
    weight, bias = (torch.randn(channels, device="cuda").bfloat16() for _ in range(2))
    size = channels // groups * hw

    def ref():
        return [torch.nn.functional.group_norm(f(x), groups, f(weight), f(bias))]

    return (
        "group_norm",
        (images * groups,),
        lambda o: (x, o[0], weight, bias, hw, size, 1e-5),
        {"B": 4096, "GROUPS": groups},
        16,
        lambda: [E(images, channels, hw, dtype=torch.bfloat16)],
        ref,
    )


def gate(tokens=65536, experts=256, k=8):
    x = torch.randn(tokens, experts, device="cuda")

    def ref():
        top = torch.topk(torch.softmax(x, 1), k)
        return [top.values, f(top.indices)]

    def outs():
        return [E(tokens, k, dtype=torch.float32), torch.zeros(tokens, k, device="cuda", dtype=torch.int32)]

    return "gate", (tokens // 8,), lambda o: (x, *o), {"E": experts, "K": k, "T": 8}, 4, outs, ref


def recurrence(batch=8, steps=4096, channels=2048):
    a = torch.rand(batch, steps, channels, device="cuda", dtype=torch.float16) * 0.5
    x = H(batch, steps, channels)

    def ref():
        state, states = torch.zeros(batch, channels, device="cuda"), []
        for step in range(steps):
            state = f(a[:, step]) * state + f(x[:, step])
            states.append(state)
        return [torch.stack(states, 1)]

    blocks, grid = {"BT": 64, "BC": 32}, (channels // 32, batch)
    return "recurrence", grid, lambda o: (a, x, o[0], steps, channels), blocks, 2, lambda: [E(*x.shape)], ref


def conv(images=32, size=56, c=256, o=256):
    x, w = H(images, size, size, c), H(3, 3, c, o, scale=0.05)

    def ref():
        y = torch.nn.functional.conv2d(f(x).permute(0, 3, 1, 2), f(w).permute(3, 2, 0, 1), padding=1)
        return [y.permute(0, 2, 3, 1).contiguous()]

    blocks, grid = {"BM": 128, "BN": 256, "BK": 64}, (images * size * size // 128, o // 256)
    return "conv", grid, lambda q: (x, w, q[0], size, size, c, o), blocks, 8, lambda: [E(images, size, size, o)], ref


CASES = {
    "s2, no store": lambda: s2(False),
    "s2, store": lambda: s2(True),
    "state 64": state,
    "state 128": lambda: state(dk=128),
    "gated state": gated,
    "delta 64": lambda: delta(False),
    "delta gated 128x32": lambda: delta(True, dk=128, dv=32),
    "dK dV 64": lambda: dkdv(64),
    "dK dV 128": lambda: dkdv(128),
    "chunked linear attention": linear,
    "paged decode": paged,
    "W8A16": w8,
    "silu(a) @ b": silu,
    "attention by pointers": attention,
    "W4A16, 16 rows": lambda: w4(16, 16, 64, 128, 4),
    "W4A16, 2048 rows": lambda: w4(2048, 128, 128, 64, 8),
    "group norm": group_norm,
    "group norm 63x63": lambda: group_norm(63 * 63),
    "gate, 8 of 256": gate,
    "recurrence": recurrence,
    "conv 3x3": conv,
}


def timed(launch, count=20):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(count):
        launch()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / count * 1e3


def main():
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "triton", triton.__version__)
    torch.backends.cuda.matmul.allow_tf32 = False
    for name, case in CASES.items():
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        try:
            kernel, grid, arguments, constants, warps, outputs, reference = case()
            launches, results = [], []
            for side in (OURS, THEIRS):
                outs = outputs()
                jitted = getattr(side, kernel)
                tensors = arguments(outs)
                launches.append(functools.partial(jitted[grid], *tensors, **constants, num_warps=warps, num_stages=3))
                launches[-1]()
                results.append(outs)
            torch.cuda.synchronize()
            expected = reference()
            off = [
                max(
                    float((f(x) - e.reshape(x.shape)).abs().max() / e.abs().max())
                    for x, e in zip(outs, expected, strict=True)
                )
                for outs in results
            ]
            times = [[], []]
            for _ in range(5):
                for at in (0, 1):
                    launches[at]()
                    times[at].append(statistics.median(timed(launches[at]) for _ in range(5)))
            median, other = map(statistics.median, times)
            wrong = "  WRONG" if not off[0] <= max(2 * off[1], 2e-3) else ""
            print(
                f"{name:26} ours {median:9.1f} us  Triton {other:9.1f} us  ratio {median / other:5.2f}  "
                f"off {off[0]:.1e} / {off[1]:.1e}{wrong}",
                flush=True,
            )
        except Exception as error:
            print(f"{name:26} FAILED {type(error).__name__}: {str(error)[:300]}", flush=True)


if __name__ == "__main__":
    main()
