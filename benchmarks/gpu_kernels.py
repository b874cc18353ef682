"""Speeds of kernels on a GPU: ours, the same in Triton, and torch's, in one process.

    python benchmarks/gpu_kernels.py [--only NAME]   # tables, and one JSON object at the end

Times are medians with the L2 flushed before each call, on N(0,1) data; each result is checked against torch first. Of
several settings (warps, rows by program, tile shapes), the same for both compilers, each one's best counts. A ratio is
Triton's time by ours: above 1 ours is faster. For Triton-C with tuned macros it is the time of explicit calls by that
of Triton-C. The status tells whether a bar is missed.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import sys
from collections.abc import Callable
from typing import Any

import kernels_ours as ours
import kernels_triton_c as triton_c
import torch

import ziggurat as zg
from ziggurat.backend.cuda.testing import do_bench

theirs: Any = None
if importlib.util.find_spec("triton") is not None:
    import kernels_triton as theirs
    from triton.tools.tensor_descriptor import TensorDescriptor as TheirDescriptor

Figures = dict[str, dict[str, Any]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=WORKS)
    parser.add_argument("--quick", action="store_true", help="small arrays: to see that everything runs")
    options = parser.parse_args()
    torch.manual_seed(0)
    figures: Figures = {}
    for name in options.only or WORKS:
        WORKS[name](figures, options.quick)
    missed = [name for name, row in figures.items() if "bar" in row and row.get("ratio", 1.0) < row["bar"]]
    missed += [name for name, row in figures.items() if row.get("of torch", 1.0) < row.get("bar of torch", 0.0)]
    print("missed:", ", ".join(missed) or "none")
    print(json.dumps({"figures": figures, "missed": missed}))
    return bool(missed)


def best(
    settings: list[tuple[str, dict[str, Any]]], run: Callable[[dict[str, Any]], None], good: Callable[[], float]
) -> dict[str, Any]:
    """The best time in ms over the settings, with its setting's name; what failed, with its message."""
    found: dict[str, Any] = {}
    for name, setting in settings:
        try:
            run(setting)
            error = good()
            time = do_bench(lambda setting=setting: run(setting), warmup=10, rep=60)
        except Exception as problem:  # Too much shared memory, say: other settings may do.
            found.setdefault("failed", {})[name] = f"{type(problem).__name__}: {str(problem).splitlines()[0][:200]}"
            continue
        if time < found.get("ms", float("inf")):
            found.update(ms=time, setting=name, error=error)
    return found


def checked(error: Callable[[], float], tolerance: float) -> Callable[[], float]:
    """A function that waits for the GPU and gives the error. It raises `AssertionError` for one that is too large."""

    def good() -> float:
        torch.cuda.synchronize()
        found = error()
        if not found <= tolerance:
            raise AssertionError(f"off by {found:.2e}, more than {tolerance:.0e}")
        return found

    return good


def compare(
    figures: Figures,
    name: str,
    amount: float,
    unit: str,
    settings: list[tuple[str, dict[str, Any]]],
    launch: Callable[[Any, dict[str, Any]], None],
    clear: Callable[[], None],
    error: Callable[[], float],
    tolerance: float,
    library: Callable[[], Any],
    bar: float | None,
) -> None:
    """Measure one work: `launch(kernels, setting)` for both, `library()` for torch; `amount` is in `unit` · s."""
    good = checked(error, tolerance)
    row: dict[str, Any] = {"unit": unit}
    for who, kernels in (("ours", ours), ("Triton", theirs)):
        if kernels is not None:
            clear()
            # Triton 3.6 ends the process for some kernels with roles of their own on Hopper.
            mine = [each for each in settings if kernels is ours or not each[1].get("ROLES")]
            row[who] = best(mine, lambda setting, kernels=kernels: launch(kernels, setting), good)
            if "ms" in row[who]:
                row[who]["speed"] = round(amount / (row[who]["ms"] * 1e-3), 1)
    row["torch"] = {"speed": round(amount / (do_bench(library, warmup=10, rep=60) * 1e-3), 1)}
    if "ms" not in row["ours"]:
        row["ratio"] = 0.0
    elif "ms" in row.get("Triton", {}):
        row["ratio"] = round(row["Triton"]["ms"] / row["ours"]["ms"], 3)
    if bar is not None:
        row["bar"] = bar
    figures[name] = row
    cells = [f"{who} {row[who].get('speed', 'failed')}" for who in ("ours", "Triton", "torch") if who in row]
    chosen = " / ".join(str(row[who].get("setting")) for who in ("ours", "Triton") if who in row)
    print(f"{name:32} {unit:8} {', '.join(cells):48} ratio {row.get('ratio')}  [{chosen}]", flush=True)
    for who in ("ours", "Triton"):
        for setting, message in row.get(who, {}).get("failed", {}).items():
            print(f"    {who} with {setting}: {message}", flush=True)


def normal(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def measure_add(figures: Figures, quick: bool) -> None:
    n = 1 << (20 if quick else 28)
    x, y = normal(n), normal(n)
    out = torch.empty_like(x)
    settings = [(f"{b} by {w} warps", {"BLOCK": b, "num_warps": w}) for b, w in ((1024, 4), (2048, 4), (4096, 8))]

    def launch(kernels: Any, setting: dict[str, Any]) -> None:
        kernels.add[(-(-n // setting["BLOCK"]),)](x, y, out, n, **setting)

    compare(
        figures, f"add {n} f32", 3 * x.nbytes / 1e9, "GB/s", settings, launch, out.zero_,
        lambda: (out - (x + y)).abs().max().item(), 0.0, lambda: torch.add(x, y, out=out), 0.95,
    )  # fmt: skip


def measure_softmax(figures: Figures, quick: bool) -> None:
    rows = 512 if quick else 16384
    programs = 4 * torch.cuda.get_device_properties(0).multi_processor_count
    for dtype in (torch.float32, torch.float16):
        for n in (1024, 4096, 8192, 16384):
            x = normal(rows, n, dtype=dtype)
            out = torch.empty_like(x)
            true = torch.softmax(x[:256].double(), 1)
            settings = [(f"a row, {w} warps", {"num_warps": w}) for w in (4, 8, 16, 32) if 64 <= n // w <= 2048]
            settings += [(f"rows, {w} warps", {"num_warps": w, "STAGES": 2}) for w in (4, 8) if n // w <= 2048]

            def launch(kernels: Any, setting: dict[str, Any], x: Any = x, out: Any = out, n: int = n) -> None:
                if "STAGES" in setting:
                    kernels.softmax_rows[(programs,)](out, x, n, rows, n, BLOCK=n, **setting)
                else:
                    kernels.softmax[(rows,)](out, x, n, n, BLOCK=n, **setting)

            compare(
                figures, f"softmax {rows} × {n} {str(dtype)[6:]}", 2 * x.nbytes / 1e9, "GB/s", settings, launch,
                out.zero_, lambda out=out, true=true: (out[:256] - true).abs().max().item(),
                1e-6 if dtype == torch.float32 else 1e-3, lambda x=x: torch.softmax(x, 1), 0.95,
            )  # fmt: skip


def measure_layer_norm(figures: Figures, quick: bool) -> None:
    rows, dtype = 512 if quick else 16384, torch.float16
    for n in (2048, 8192):
        x, w, b = normal(rows, n, dtype=dtype), normal(n, dtype=dtype), normal(n, dtype=dtype)
        y = torch.empty_like(x)
        mean, rstd = (torch.empty(rows, device="cuda") for _ in range(2))
        true = torch.nn.functional.layer_norm(x[:256].double(), (n,), w.double(), b.double(), 1e-5)
        settings = [
            (f"{block} by {warps} warps", {"BLOCK": block, "num_warps": warps})
            for block in (1024, 2048, 8192)
            for warps in (4, 8, 16)
            if block <= n and 64 <= block // warps <= 1024
        ]

        def launch(kernels: Any, setting: dict[str, Any], given: Any = (x, y, w, b), n: int = n) -> None:
            kernels.layer_norm[(rows,)](*given, mean, rstd, n, n, 1e-5, **setting)  # noqa: B023

        compare(
            figures, f"layer norm {rows} × {n} float16", 2 * x.nbytes / 1e9, "GB/s", settings, launch, y.zero_,
            lambda y=y, true=true: (y[:256] - true).abs().max().item(), 2e-2,
            lambda x=x, w=w, b=b, n=n: torch.nn.functional.layer_norm(x, (n,), w, b, 1e-5), 0.95,
        )  # fmt: skip


TILES = [  # M, N, K, warps, stages
    (64, 64, 64, 4, 4), (64, 128, 64, 4, 4), (128, 128, 64, 4, 3), (128, 128, 64, 8, 4), (128, 256, 64, 8, 3),
    (128, 256, 64, 8, 4),
]  # fmt: skip


def measure_matmul(figures: Figures, quick: bool) -> None:
    for size in (512, 1024) if quick else (512, 1024, 2048, 4096, 8192):
        a, b = normal(size, size, dtype=torch.float16), normal(size, size, dtype=torch.float16)
        c = torch.empty_like(a)
        true = a[:256].double() @ b.double()
        settings = [
            (f"{m}×{n}×{k}, {w} warps, {s} stages", {"M": m, "N": n, "K": k, "num_warps": w, "num_stages": s})
            for m, n, k, w, s in (TILES if size > 1024 else TILES[:4])
        ]

        def launch(kernels: Any, setting: dict[str, Any], a: Any = a, b: Any = b, c: Any = c, s: int = size) -> None:
            grid = (-(-s // setting["M"]) * -(-s // setting["N"]),)
            kernels.matmul[grid](a, b, c, s, s, s, s, 1, s, 1, s, 1, GROUP=8, **setting)

        compare(
            figures, f"matmul {size} float16", 2e-12 * size**3, "TFLOP/s", settings, launch, c.zero_,
            lambda c=c, true=true: ((c[:256] - true).abs().max() / true.abs().max()).item(), 2e-3,
            lambda a=a, b=b, c=c: torch.mm(a, b, out=c), 0.9 if size >= 2048 else None,
        )  # fmt: skip


def measure_triton_c(figures: Figures, quick: bool) -> None:
    """Triton-C with lists of macros beside explicit calls, each tuned over the same configurations."""
    lists = {"TM": (64, 128), "TN": (128, 256), "TK": (64,), "num_warps": (4, 8), "num_stages": (3, 4)}
    chosen = [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]
    configurations = [
        zg.Config(
            {name: one[name] for name in ("TM", "TN", "TK")}, num_warps=one["num_warps"], num_stages=one["num_stages"]
        )
        for one in chosen
    ]
    kernels: dict[str, Any] = {
        "Triton-C": zg.triton_c(triton_c.SOURCE, TYPE="half", AT=False, BT=False, **lists),
        "explicit calls": zg.autotune(configurations, key=["m", "n", "k"])(triton_c.matmul),
    }
    for size in (1024,) if quick else (2048, 4096, 8192):
        a, b = normal(size, size, dtype=torch.float16), normal(size, size, dtype=torch.float16)
        c = torch.empty_like(a)
        true = a[:256].double() @ b.double()
        good = checked(lambda c=c, true=true: ((c[:256] - true).abs().max() / true.abs().max()).item(), 2e-3)
        row: dict[str, Any] = {"unit": "TFLOP/s", "bar": 0.95}
        for who, kernel in kernels.items():

            def run(kernel: Any = kernel, given: Any = (a, b, c), s: int = size) -> None:
                kernel[lambda meta: (s // meta["TM"], s // meta["TN"])](*given, *[s] * 6)

            c.zero_()
            run()
            row[who] = {"error": good(), "setting": str([*kernel.choices.values()][-1])}
            row[who]["ms"] = min(do_bench(run, warmup=10, rep=60) for _ in range(3))
            row[who]["speed"] = round(2e-12 * size**3 / (row[who]["ms"] * 1e-3), 1)
        row["ratio"] = round(row["explicit calls"]["ms"] / row["Triton-C"]["ms"], 3)
        figures[f"tuned matmul {size} float16, Triton-C"] = row
        cells = ", ".join(f"{who} {row[who]['speed']} [{row[who]['setting']}]" for who in kernels)
        print(f"{f'tuned matmul {size} float16':32} TFLOP/s  {cells} ratio {row['ratio']}", flush=True)


def described(kernels: Any, array: Any, *block: int) -> Any:
    """The descriptor of an array, as the kernels' library has it."""
    return zg.TensorDescriptor(array, block) if kernels is ours else TheirDescriptor.from_tensor(array, list(block))


def measure_matmul_blocks(figures: Figures, quick: bool) -> None:
    """Through descriptors, a · bᵀ; the bar is a share of cuBLAS's speed."""
    programs = torch.cuda.get_device_properties(0).multi_processor_count
    tiles = [
        (128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (256, 128, 64, 8, 3), (256, 128, 64, 8, 4), (128, 128, 64, 4, 3),
        (128, 128, 64, 8, 4),
    ]  # fmt: skip
    for size in (1024,) if quick else (2048, 4096, 8192):
        a, b = normal(size, size, dtype=torch.float16), normal(size, size, dtype=torch.float16)
        c = torch.empty_like(a)
        true = a[:256].double() @ b.double().t()
        settings = [
            (
                f"{m}×{n}×{k}, {w} warps, {s} stages{', roles' if roles else ''}{', tiles in turn' if turn else ''}",
                {"M": m, "N": n, "K": k, "num_warps": w, "num_stages": s, "ROLES": roles, "turn": turn},
            )
            for m, n, k, w, s in tiles
            for roles in (False, True)
            for turn in (False, True)
        ]
        known: dict[Any, Any] = {}

        def launch(
            kernels: Any, setting: dict[str, Any], given: Any = (a, b, c), s: int = size, known: Any = known
        ) -> None:
            m, n, k = setting["M"], setting["N"], setting["K"]
            key = (kernels, m, n, k)
            if key not in known:
                blocks = ((m, k), (n, k), (m, n))
                known[key] = [described(kernels, x, *block) for x, block in zip(given, blocks, strict=True)]
            options = {name: value for name, value in setting.items() if name != "turn"}
            count = -(-s // m) * -(-s // n)
            grid = (min(count, programs) if setting["turn"] else count,)
            kernels.matmul_blocks[grid](*known[key], s, s, s, GROUP=8, **options)

        name = f"matmul {size} float16, descriptors"
        compare(
            figures, name, 2e-12 * size**3, "TFLOP/s", settings, launch, c.zero_,
            lambda c=c, true=true: ((c[:256] - true).abs().max() / true.abs().max()).item(), 2e-3,
            lambda a=a, b=b, c=c: torch.mm(a, b.t(), out=c), None,
        )  # fmt: skip
        row = figures[name]
        row["of torch"] = round(row["ours"].get("speed", 0.0) / row["torch"]["speed"], 3)
        if size >= 4096:
            row["bar of torch"] = 0.85
        print(f"    of cuBLAS: {row['of torch']}", flush=True)


def measure_attention(figures: Figures, quick: bool) -> None:
    batch, heads, n = 4, 32, 512 if quick else 4096
    attend = torch.nn.functional.scaled_dot_product_attention
    shapes = [(128, 128, 8, 2), (128, 128, 8, 3), (128, 64, 8, 3), (128, 64, 4, 3), (64, 64, 4, 3), (64, 128, 4, 2)]
    for d in (64, 128):
        q, k, v = (normal(batch, heads, n, d, dtype=torch.float16) for _ in range(3))
        out, lse = torch.empty_like(q), torch.empty(batch * heads, n, device="cuda")
        for causal in (False, True):
            true = attend(*(x[:1, :2].double() for x in (q, k, v)), is_causal=causal)
            settings = [
                (
                    f"{m}×{m_n}, {w} warps, {s} stages{', roles' if roles else ''}",
                    {"M": m, "N": m_n, "num_warps": w, "num_stages": s, "ROLES": roles},
                )
                for m, m_n, w, s in shapes
                for roles in (False, True)
                if m >= m_n or not causal
            ]
            known: dict[Any, Any] = {}

            def launch(
                kernels: Any, setting: dict[str, Any], given: Any = (q, k, v, out), causal: bool = causal,
                d: int = d, lse: Any = lse, known: Any = known,
            ) -> None:  # fmt: skip
                m, m_n = setting["M"], setting["N"]
                key = (kernels, m, m_n)
                if key not in known:
                    heights = (m, m_n, m_n, m)
                    flat = [x.view(-1, d) for x in given]
                    known[key] = [described(kernels, x, rows, d) for x, rows in zip(flat, heights, strict=True)]
                grid = (n // m, batch * heads)
                kernels.attention[grid](*known[key], lse, n, d**-0.5, CAUSAL=causal, D=d, **setting)

            operations = 4e-12 * batch * heads * n * n * d * (0.5 if causal else 1)
            name = f"attention D{d}{' causal' if causal else ''} float16"
            compare(
                figures, name, operations, "TFLOP/s", settings, launch,
                out.zero_, lambda out=out, true=true: (out[:1, :2] - true).abs().max().item(), 5e-3,
                lambda q=q, k=k, v=v, causal=causal: attend(q, k, v, is_causal=causal), 0.7,
            )  # fmt: skip


WORKS: dict[str, Callable[[Figures, bool], None]] = {
    "add": measure_add,
    "softmax": measure_softmax,
    "layer_norm": measure_layer_norm,
    "matmul": measure_matmul,
    "triton_c": measure_triton_c,
    "matmul_blocks": measure_matmul_blocks,
    "attention": measure_attention,
}

if __name__ == "__main__":
    sys.exit(main())
