"""Triton's own tutorials beside the same kernels of ours, in one process.

    python benchmarks/gpu_tutorials.py FOLDER [--only NAME]   # FOLDER: python/tutorials of a checkout of Triton

Triton's wheel does not hold its tutorials, and nor does this project. Of each file, what stands before its tests is
run as it is: the kernels, their configurations, and the functions that launch them. Our kernels (`kernels_ours.py`)
get the settings that the tutorial has: those of its heuristics, or the list that it tunes over. Both sides make their
own outputs. There are more rows than in the tutorials, so that Triton's host time is hidden behind the GPU's.

Times are medians with the L2 flushed before each call; each result is checked against torch's first. A ratio is
Triton's time by ours. The last line is one JSON object; the status tells whether a bar of issue 3 is missed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import kernels_ours as ours
import torch
from gpu_kernels import best, normal
from triton_kernels import tutorial

import ziggurat as zg

Row = dict[str, Any]
Setting = tuple[str, dict[str, Any]]


def settings_of(tuned: Any, names: dict[str, str]) -> list[Setting]:
    """The configurations over which a kernel of Triton's is tuned, in the names of ours."""
    found: dict[str, dict[str, Any]] = {}
    for config in tuned.configs:
        setting = {names[name]: value for name, value in config.kwargs.items() if name in names}
        setting |= {"num_warps": config.num_warps, "num_stages": config.num_stages}
        found[", ".join(f"{name} {value}" for name, value in setting.items())] = setting
    return list(found.items())


def compare(
    name: str,
    amount: float,
    unit: str,
    settings: Sequence[Setting],
    mine: Callable[[dict[str, Any]], Any],
    theirs: Callable[[], Any],
    true: Any,
    tolerance: float,
    bar: float | None,
) -> Row:
    """One work: `mine(setting)` and `theirs()` give what is compared with `true`, the first rows of the result."""

    def measured(settings: Sequence[Setting], run: Callable[[dict[str, Any]], Any]) -> Row:
        given: list[Any] = [None]

        def call(setting: dict[str, Any]) -> None:
            given[0] = run(setting)

        def good() -> float:
            torch.cuda.synchronize()
            error = (given[0].view(-1, true.shape[-1])[: len(true)] - true).abs().max().item()
            if not error <= tolerance:
                raise AssertionError(f"off by {error:.2e}, more than {tolerance:.0e}")
            return error

        row = best(list(settings), call, good)
        if "ms" in row:
            row["speed"] = round(amount / (row["ms"] * 1e-3), 1)
        return row

    row: Row = {
        "unit": unit,
        "ours": measured(settings, mine),
        "Triton": measured([("as it is", {})], lambda _: theirs()),
    }
    if "ms" in row["ours"] and "ms" in row["Triton"]:
        row["ratio"] = round(row["Triton"]["ms"] / row["ours"]["ms"], 3)
    if bar is not None:
        row["bar"] = bar
    cells = [f"{who} {row[who].get('speed', row[who].get('failed'))}" for who in ("ours", "Triton")]
    print(
        f"{name:36} {unit:8} {', '.join(cells):40} ratio {row.get('ratio')} [{row['ours'].get('setting')}]", flush=True
    )
    return row


def add(folder: Path, figures: dict[str, Row]) -> None:
    module = tutorial(folder, "01-vector-add")
    for n in (1 << 24, 1 << 27):
        x, y = normal(n), normal(n)

        def mine(setting: dict[str, Any], x: Any = x, y: Any = y, n: int = n) -> Any:
            out = torch.empty_like(x)
            ours.add[lambda meta: (zg.cdiv(n, meta["BLOCK"]),)](x, y, out, n, **setting)
            return out

        name = f"01 vector add, {n} f32"
        figures[name] = compare(
            name, 3 * x.nbytes / 1e9, "GB/s", [("1024", {"BLOCK": 1024})], mine,
            lambda x=x, y=y: module.add(x, y), (x + y).view(-1, 1024)[:4096], 0.0, 0.95,
        )  # fmt: skip


def softmax(folder: Path, figures: dict[str, Row]) -> None:
    module = tutorial(folder, "02-fused-softmax")
    rows, cores = 16384, torch.cuda.get_device_properties(0).multi_processor_count
    for n in (1024, 4096, 8192, 12672):
        x = normal(rows, n)
        block = 1 << (n - 1).bit_length()
        # The tutorial asks its compiler for the registers to know how many programs a multiprocessor holds.
        settings = [
            (f"{count} programs a multiprocessor", {"programs": min(count * cores, rows), "BLOCK": block})
            for count in (1, 2, 4, 8)
        ]

        def mine(setting: dict[str, Any], x: Any = x, n: int = n) -> Any:
            y = torch.empty_like(x)
            ours.softmax_rows[(setting["programs"],)](y, x, n, len(x), n, BLOCK=setting["BLOCK"], STAGES=4, num_warps=8)
            return y

        name = f"02 softmax, {rows} × {n} f32"
        figures[name] = compare(
            name, 2 * x.nbytes / 1e9, "GB/s", settings, mine, lambda x=x: module.softmax(x),
            torch.softmax(x[:256].double(), 1), 1e-6, 0.95,
        )  # fmt: skip


def matmul(folder: Path, figures: dict[str, Row]) -> None:
    module = tutorial(folder, "03-matrix-multiplication")
    names = {"BLOCK_SIZE_M": "M", "BLOCK_SIZE_N": "N", "BLOCK_SIZE_K": "K", "GROUP_SIZE_M": "GROUP"}
    for size in (2048, 4096, 8192):
        a, b = (normal(size, size, dtype=torch.float16) for _ in range(2))

        def mine(setting: dict[str, Any], a: Any = a, b: Any = b, s: int = size) -> Any:
            c = torch.empty_like(a)
            ours.matmul[lambda meta: (zg.cdiv(s, meta["M"]) * zg.cdiv(s, meta["N"]),)](
                a, b, c, s, s, s, *a.stride(), *b.stride(), *c.stride(), **setting
            )
            return c

        name = f"03 matmul, {size} f16"
        figures[name] = compare(
            name, 2e-12 * size**3, "TFLOP/s", settings_of(module.matmul_kernel, names), mine,
            lambda a=a, b=b: module.matmul(a, b), a[:256].double() @ b.double(), 5e-3 * size**0.5, 0.9,
        )  # fmt: skip


def layer_norm(folder: Path, figures: dict[str, Row]) -> None:
    module = tutorial(folder, "05-layer-norm")
    rows = 16384
    for n in (1024, 4096, 8192, 15872):
        x, w, b = (normal(*shape, dtype=torch.float16) for shape in ((rows, n), (n,), (n,)))
        block = 1 << (n - 1).bit_length()
        setting = {"BLOCK": block, "num_warps": min(max(block // 256, 1), 8)}

        def mine(setting: dict[str, Any], x: Any = x, w: Any = w, b: Any = b, n: int = n) -> Any:
            y = torch.empty_like(x)
            mean, rstd = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
            ours.layer_norm[(rows,)](x, y, w, b, mean, rstd, n, n, 1e-5, **setting)
            return y

        name = f"05 layer norm, {rows} × {n} f16"
        figures[name] = compare(
            name, 2 * x.nbytes / 1e9, "GB/s", [("as it is", setting)], mine,
            lambda x=x, w=w, b=b, n=n: module.layer_norm(x, (n,), w, b, 1e-5),
            torch.nn.functional.layer_norm(x[:256].double(), (n,), w.double(), b.double(), 1e-5), 4e-2, 0.95,
        )  # fmt: skip


def attention(folder: Path, figures: dict[str, Row]) -> None:
    module = tutorial(folder, "06-fused-attention")
    batch, heads, n = 4, 32, 4096
    attend = torch.nn.functional.scaled_dot_product_attention
    for d, causal in itertools.product((64, 128), (False, True)):
        q, k, v = (normal(batch, heads, n, d, dtype=torch.float16) for _ in range(3))
        settings = [
            (name, setting)
            for name, setting in settings_of(module._attn_fwd, {"BLOCK_M": "M", "BLOCK_N": "N"})
            if setting["N"] <= d and (setting["M"] >= setting["N"] or not causal)
        ]

        def mine(setting: dict[str, Any], q: Any = q, k: Any = k, v: Any = v, d: int = d, causal: bool = causal) -> Any:
            out, lse = torch.empty_like(q), torch.empty(batch * heads, n, device="cuda")
            heights = (setting["M"], setting["N"], setting["N"], setting["M"])
            flat = [
                zg.TensorDescriptor(x.view(-1, d), (rows, d)) for x, rows in zip((q, k, v, out), heights, strict=True)
            ]
            grid = (n // setting["M"], batch * heads)
            ours.attention[grid](*flat, lse, n, d**-0.5, CAUSAL=causal, D=d, ROLES=False, **setting)
            return out

        name = f"06 attention forward, D{d}{', causal' if causal else ''} f16"
        true = attend(*(x[:1, :1].double() for x in (q, k, v)), is_causal=causal).view(-1, d)
        operations = 4e-12 * batch * heads * n * n * d * (0.5 if causal else 1)
        figures[name] = compare(
            name, operations, "TFLOP/s", settings, mine,
            lambda q=q, k=k, v=v, causal=causal, d=d: module.attention(q, k, v, causal, d**-0.5, False),
            true, 5e-3, 0.7,
        )  # fmt: skip


def descriptors(folder: Path, figures: dict[str, Row]) -> None:
    """The fastest of the tutorial's two kernels with descriptors of the host; no bar is set for it."""
    module = tutorial(folder, "09-persistent-matmul")
    cores = torch.cuda.get_device_properties(0).multi_processor_count
    names = {"BLOCK_SIZE_M": "M", "BLOCK_SIZE_N": "N", "BLOCK_SIZE_K": "K", "GROUP_SIZE_M": "GROUP"}
    for size in (4096, 8192):
        a, b = (normal(size, size, dtype=torch.float16) for _ in range(2))
        for launch, tuned, turn in (
            (module.matmul_tma, module.matmul_kernel_tma, False),
            (module.matmul_tma_persistent, module.matmul_kernel_tma_persistent, True),
        ):

            def mine(setting: dict[str, Any], a: Any = a, b: Any = b, s: int = size, turn: bool = turn) -> Any:
                c = torch.empty_like(a)
                m, n, k = setting["M"], setting["N"], setting["K"]
                arrays = [
                    zg.TensorDescriptor(x, block) for x, block in zip((a, b, c), ((m, k), (n, k), (m, n)), strict=True)
                ]
                count = zg.cdiv(s, m) * zg.cdiv(s, n)
                grid = (min(cores, count) if turn else count,)
                ours.matmul_blocks[grid](*arrays, s, s, s, ROLES=False, **{"GROUP": 8, **setting})
                return c

            name = f"09 {launch.__name__}, {size} f16"
            figures[name] = compare(
                name, 2e-12 * size**3, "TFLOP/s", settings_of(tuned, names), mine,
                lambda launch=launch, a=a, b=b: launch(a, b, False), a[:256].double() @ b.double().t(),
                5e-3 * size**0.5, None,
            )  # fmt: skip


WORKS: dict[str, Callable[[Path, dict[str, Row]], None]] = {
    "add": add,
    "softmax": softmax,
    "matmul": matmul,
    "layer_norm": layer_norm,
    "attention": attention,
    "descriptors": descriptors,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="python/tutorials of a checkout of Triton")
    parser.add_argument("--only", action="append", choices=WORKS)
    options = parser.parse_args()
    torch.manual_seed(0)
    figures: dict[str, Row] = {}
    for name in options.only or WORKS:
        try:
            WORKS[name](options.folder, figures)
        except Exception as problem:  # A tutorial of another version of Triton, say: the others may run.
            print(f"{name}: {type(problem).__name__}: {problem}", flush=True)
            figures[name] = {"failed": f"{type(problem).__name__}: {str(problem)[:300]}"}
    missed = [name for name, row in figures.items() if row.get("ratio", 0.0) < row.get("bar", 0.0) or "failed" in row]
    print("missed:", ", ".join(missed) or "none")
    print(json.dumps({"figures": figures, "missed": missed}))
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
