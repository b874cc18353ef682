"""Loops that the ladder lacks: ziggurat against Triton in one process, launches in turn, results checked.

    benchmarks/on_device.sh python3 benchmarks/gpu_loops.py [name …]        (torch 2.11, Triton 3.6, one GPU)

Prints a line a kernel: microseconds of both (median of medians), the ratio, and for both the largest difference from a
reference in f32 by torch, relative to the largest magnitude.
"""

import functools
import statistics
import sys

import kernels_loops as THEIRS
import torch
import triton
from kernels_by_ziggurat import loaded

OURS = loaded("kernels_loops")

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
