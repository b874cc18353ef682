"""Generated gradients beside backward kernels written by hand, and torch's, on a GPU, in one process.

    python benchmarks/gradients.py [--only layer_norm|attention] [--quick]

Times are medians with the L2 flushed before each call, on N(0,1) data. The first result of each setting is checked
against torch, and the fastest setting of each kernel counts. A generated gradient computes the forward values again,
and adds to gradients by atomics; hand-written kernels read values that their forward kernels have kept. Setting
gradients to zero is not timed. A ratio is the time of the hand-written kernel, or of torch, divided by the time of the
generated kernel: below 1 the generated one is slower. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernels_gradients as kernels
import torch
from gpu_kernels import best, checked, normal

import ziggurat as zg
from ziggurat.backend.cuda.testing import do_bench

Figures = dict[str, dict[str, Any]]
ROOT = Path(__file__).resolve().parents[1]


def example(name: str) -> Any:
    """The module of an example."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def report(
    figures: Figures,
    name: str,
    runs: dict[str, tuple[list[tuple[str, dict[str, Any]]], Callable[[dict[str, Any]], None]]],
    clear: Callable[[], None],
    error: Callable[[], float],
    tolerance: float,
    library: Callable[[], Any],
) -> None:
    """Measure a gradient: of "generated" and others in `runs`, by their settings and launches, and of torch.

    `clear` sets the gradients to zero, `error` gives their largest error, and `library` runs torch's backward pass.
    """
    check = checked(error, tolerance)
    row: dict[str, Any] = {"torch": {"ms": do_bench(library, warmup=10, rep=60)}}
    for who, (settings, run) in runs.items():
        # The first run of a setting is checked: it begins with gradients of zero.
        row[who] = best([each for each in settings if gives_right_results(each, run, clear, check)], run, lambda: 0.0)
    mine = row["generated"].get("ms")
    for who in row:
        if mine is not None and "ms" in row[who]:
            row[who]["ratio"] = round(row[who]["ms"] / mine, 3)
    figures[name] = row
    cells = [f"{who} {row[who].get('ms', float('nan')):.3f} ms ({row[who].get('ratio')})" for who in row]
    print(f"{name:40} {', '.join(cells)}", flush=True)


def gives_right_results(
    setting: tuple[str, dict[str, Any]],
    run: Callable[[dict[str, Any]], None],
    clear: Callable[[], None],
    check: Callable[[], float],
) -> bool:
    """Whether a setting gives the right results; if not, the reason is printed."""
    clear()
    try:
        run(setting[1])
        check()
    except Exception as problem:
        print(f"    {setting[0]}: {type(problem).__name__}: {str(problem).splitlines()[0][:200]}", flush=True)
        return False
    return True


def layer_norm(figures: Figures, rows: int, n: int, dtype: Any) -> None:
    looping = zg.grad(example("layer_norm").layer_norm_kernel, wrt=("x_ptr", "weight_ptr", "bias_ptr"), of="y_ptr")
    whole = zg.grad(kernels.layer_norm, wrt=("x_ptr", "weight_ptr", "bias_ptr"), of="y_ptr")
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    eps = 1e-5
    x, dy = normal(rows, n, dtype=dtype), normal(rows, n, dtype=dtype)
    weight, bias = normal(n), normal(n)
    dx, dweight, dbias = torch.zeros_like(x), torch.zeros_like(weight), torch.zeros_like(bias)
    y, mean, rstd = torch.empty_like(x), normal(rows), normal(rows)
    given = [one.double().requires_grad_() for one in (x, weight, bias)]
    true = torch.autograd.grad(
        torch.nn.functional.layer_norm(given[0], (n,), given[1], given[2], eps), given, dy.double()
    )

    def clear() -> None:
        for one in (dx, dweight, dbias):
            one.zero_()

    def error() -> float:
        return max(
            ((one - other).abs().max() / other.abs().max()).item()
            for one, other in zip((dx, dweight, dbias), true, strict=True)
        )

    def generated(setting: dict[str, Any]) -> None:
        whole[(rows,)](x, dx, y, dy, weight, dweight, bias, dbias, n, n, eps, **setting)

    def by_loops(setting: dict[str, Any]) -> None:
        looping[(rows,)](
            x, dx, y, dy, weight, dweight, bias, dbias, mean, rstd, n, n, eps, **setting
        )  # fmt: skip

    def by_hand(setting: dict[str, Any]) -> None:
        setting = dict(setting)
        programs = min(rows, setting.pop("each") * processors)
        kernels.layer_norm_backward[(programs,)](
            x, dx, dy, weight, dweight, dbias, rows, n, n, eps, **setting
        )  # fmt: skip

    block = zg.next_power_of_2(n)
    warps = [(f"{w} warps", {"BLOCK": block, "num_warps": w}) for w in (4, 8, 16)]
    loops = [(f"{b} by {w}", {"BLOCK_SIZE": min(b, block), "num_warps": w}) for b, w in ((1024, 4), (4096, 8))]
    hand = [(f"{s[0]}, {e} each", {**s[1], "each": e}) for s in warps for e in (1, 2, 4)]
    leaves = [one.detach().requires_grad_() for one in (x, weight.to(dtype), bias.to(dtype))]
    out = torch.nn.functional.layer_norm(leaves[0], (n,), leaves[1], leaves[2], eps)
    report(
        figures, f"layer_norm {rows} × {n} {str(dtype)[6:]}",
        {"generated": (warps, generated), "generated, in loops": (loops, by_loops), "by hand": (hand, by_hand)},
        clear, error, 2e-2 if dtype == torch.float16 else 1e-3,
        lambda: torch.autograd.grad(out, leaves, dy, retain_graph=True),
    )  # fmt: skip


def measure_layer_norm(figures: Figures, quick: bool) -> None:
    for rows, n in ((512, 512),) if quick else ((4096, 1024), (4096, 4096), (16384, 4096), (4096, 8192)):
        for dtype in (torch.float32, torch.float16):
            layer_norm(figures, rows, n, dtype)


def attention(figures: Figures, heads: int, n: int, d: int) -> None:
    gradient = zg.grad(example("attention").attention_kernel, wrt=("q_desc", "k_desc", "v_desc"), of="out_desc")
    q, k, v, dout = (normal(heads * n, d, dtype=torch.float16) for _ in range(4))
    dq, dk, dv = (torch.zeros_like(one) for one in (q, k, v))
    scale = d**-0.5
    leaves = [one.view(1, heads, n, d).detach().requires_grad_() for one in (q, k, v)]
    out = torch.nn.functional.scaled_dot_product_attention(*leaves, scale=scale)
    true = torch.autograd.grad(
        torch.softmax(leaves[0].float() @ leaves[1].float().transpose(2, 3) * scale, 3) @ leaves[2].float(),
        leaves, dout.view_as(out).float(),
    )  # fmt: skip
    scores = leaves[0].detach().float() @ leaves[1].detach().float().transpose(2, 3) * (scale * kernels.LOG2_E)
    lse = torch.logsumexp(scores * 0.6931471805599453, 3).flatten() * kernels.LOG2_E
    del scores
    delta, flat = torch.empty_like(lse), out.detach().reshape(heads * n, d)

    def clear() -> None:
        for one in (dq, dk, dv):
            one.zero_()

    def error() -> float:
        return max(
            (one.view_as(other) - other).abs().max().item() for one, other in zip((dq, dk, dv), true, strict=True)
        )

    def blocks(rows: int, *arrays: Any) -> list[Any]:
        return [zg.TensorDescriptor(one, [rows, d]) for one in arrays]

    def generated(setting: dict[str, Any]) -> None:
        m, keys = setting["BLOCK_M"], setting["BLOCK_N"]
        gradient[(n // m, heads)](
            *blocks(m, q, dq), *blocks(keys, k, dk, v, dv), *blocks(m, flat, dout), n, scale,
            CAUSAL=False, D=d, **setting,
        )  # fmt: skip

    def by_hand(setting: dict[str, Any]) -> None:
        m, keys = setting["BLOCK_M"], setting["BLOCK_N"]
        options = {"num_warps": setting["num_warps"]}
        kernels.attention_delta[(heads * n // 64,)](flat, dout, delta, heads * n, BLOCK=64, D=d)
        kernels.attention_keys[(n // m, heads)](
            *blocks(keys, q), *blocks(m, k, v), *blocks(keys, dout), *blocks(m, dk, dv),
            lse, delta, n, scale, BLOCK_M=keys, BLOCK_N=m, D=d, **options,
        )  # fmt: skip
        kernels.attention_queries[(n // m, heads)](
            *blocks(m, q), *blocks(keys, k, v), *blocks(m, dout, dq),
            lse, delta, n, scale, BLOCK_M=m, BLOCK_N=keys, D=d, **options,
        )  # fmt: skip

    settings = [
        (f"{m} × {keys} by {w}", {"BLOCK_M": m, "BLOCK_N": keys, "num_warps": w})
        for m, keys, w in ((64, 64, 4), (64, 32, 4), (128, 64, 8), (128, 32, 8), (64, 64, 8))
    ]
    report(
        figures, f"attention {heads} heads, n {n}, d {d}",
        {"generated": (settings, generated), "by hand": (settings, by_hand)},
        clear, error, 5e-2,
        lambda: torch.autograd.grad(
            out, leaves, dout.view_as(out), retain_graph=True
        ),
    )  # fmt: skip


def measure_attention(figures: Figures, quick: bool) -> None:
    for heads, n, d in ((2, 256, 64),) if quick else ((64, 1024, 64), (32, 2048, 64), (16, 4096, 64), (32, 2048, 128)):
        attention(figures, heads, n, d)


MEASUREMENTS: dict[str, Callable[[Figures, bool], None]] = {
    "layer_norm": measure_layer_norm,
    "attention": measure_attention,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=MEASUREMENTS)
    parser.add_argument("--quick", action="store_true", help="small arrays: to see that everything runs")
    options = parser.parse_args()
    torch.manual_seed(0)
    figures: Figures = {}
    print("device:", torch.cuda.get_device_name(0), "torch", torch.__version__)
    for name in options.only or MEASUREMENTS:
        MEASUREMENTS[name](figures, options.quick)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
