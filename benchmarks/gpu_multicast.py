"""Products by clusters of CTAs that load together (TMA multicast), by single CTAs, and by cuBLAS, launched in turn.

    python benchmarks/gpu_multicast.py [--only TEXT] [--rounds N] report.json

For each product the fastest setting of each kind is launched in turn with cuBLAS, the L2 flushed before each launch;
each result is checked against float64. A ratio is cuBLAS's time by ours: above 1 ours is faster. The report has the
times of all settings, and what failed. `num_ctas` CTAs share a tile of M × N.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from gpu_ladder import in_turn
from gpu_report import surroundings
from ladder_setup import MULTIPROCESSORS, OURS, Setting, describer, empty, label, laid_out, normal, tiles

TOLERANCE = 2e-3
ALONE, TOGETHER = "CTAs", "clusters"
Launch = Callable[[Setting], Any]


def settings_of(kind: str, *tile: tuple[int, int, int, int, int], **more: Any) -> list[Setting]:
    return tiles(*tile, **({"num_ctas": 2} if kind == TOGETHER else {}), **more)


POINTERS = {
    ALONE: [
        setting | {"GROUP": group}
        for setting in settings_of(ALONE, (128, 256, 64, 8, 4), (128, 256, 64, 8, 3), (128, 128, 64, 4, 3))
        for group in (4, 8, 16)
    ],
    TOGETHER: [
        setting | {"GROUP": group}
        for setting in settings_of(
            TOGETHER, (256, 256, 64, 8, 3), (256, 256, 64, 8, 4), (128, 512, 64, 8, 3), (256, 128, 64, 4, 2)
        )
        for group in (2, 4, 8)
    ],
}
DESCRIBED = {
    kind: [
        setting | {"GROUP": group}
        for setting in [
            *settings_of(kind, (rows, 256, 64, 8, 3), ROLES=True),
            *settings_of(kind, (rows // 2, 256, 64, 4, 3), ROLES=True, BLOCKS=2),
        ]
        for group in groups
    ]
    for kind, rows, groups in ((ALONE, 128, (8, 16)), (TOGETHER, 256, (2, 4, 8)))
}
FEW = {
    ALONE: [
        {"N": 64, "K": 128, "num_warps": 4, "num_stages": 4, "ROLES": roles, "APART": 0} for roles in (False, True)
    ],
    TOGETHER: [
        {"N": width, "K": 128, "num_warps": 4, "num_stages": 4, "ROLES": True, "APART": apart, "num_ctas": ctas}
        for width, ctas in ((128, 2), (256, 4))
        for apart in (0, 3)
    ],
}


def by_pointers(form: str, m: int, n: int, k: int) -> tuple[dict[str, list[Setting]], Launch, Any, Any, Any]:
    """The settings, a launch, the operands as cuBLAS takes them, and the result."""
    a, b = (normal(*shape, dtype=torch.float16) for shape in ((m, k), (k, n)))
    a, b, out = laid_out(a, form[0]), laid_out(b, form[1]), empty(m, n, dtype=torch.float16)

    def launch(setting: Setting) -> None:
        grid = (-(-m // setting["M"]) * -(-n // setting["N"]),)
        OURS.matmul[grid](a, b, out, m, n, k, *a.stride(), *b.stride(), n, 1, **setting)

    return POINTERS, launch, a, b, out


def described(m: int, n: int, k: int) -> tuple[dict[str, list[Setting]], Launch, Any, Any, Any]:
    a, b = (normal(*shape, dtype=torch.float16) for shape in ((m, k), (n, k)))
    out, bias, descriptor = empty(m, n, dtype=torch.float16), normal(n, dtype=torch.float16), describer()

    def launch(setting: Setting) -> None:
        M, N, K = (setting[name] for name in "MNK")
        descriptors, two, three = descriptor(OURS, a, M, K), descriptor(OURS, b, N, K), descriptor(OURS, out, M, N)
        count = -(-m // (M * setting.get("BLOCKS", 1))) * -(-n // N)
        grid = (min(count, MULTIPROCESSORS // setting.get("num_ctas", 1)),)
        if "BLOCKS" in setting:
            OURS.matmul_rows[grid](descriptors, two, three, bias, three, m, n, k, EPILOGUE="", **setting)
        else:
            OURS.matmul_blocks[grid](descriptors, two, three, bias, three, m, n, k, EPILOGUE="", **setting)

    return DESCRIBED, launch, a, b.T, out


def few_rows(m: int, n: int, k: int) -> tuple[dict[str, list[Setting]], Launch, Any, Any, Any]:
    a, b = (normal(*shape, dtype=torch.float16) for shape in ((m, k), (n, k)))
    out, descriptor = empty(m, n, dtype=torch.float16), describer()

    def launch(setting: Setting) -> None:
        arguments = descriptor(OURS, a, m, setting["K"]), descriptor(OURS, b, setting["N"], setting["K"]), out
        OURS.matmul_few_rows[(n // setting["N"],)](*arguments, m, n, k, M=m, **setting)

    return FEW, launch, a, b.T, out


def works() -> Iterator[tuple[str, Callable[[], Any], float]]:
    """The products: a name, a function that makes one, and the operations."""
    squares = [(size, size, size) for size in (2048, 4000, 4096)]
    for form in ("NN", "NT"):
        for shape in (*squares, (8192, 8192, 512)):
            name = f"f16 {form} {'×'.join(map(str, shape))}, pointers"
            yield name, functools.partial(by_pointers, form, *shape), 2.0 * shape[0] * shape[1] * shape[2]
    for shape in (*squares, (8192, 8192, 512)):
        name = f"f16 NT {'×'.join(map(str, shape))}, descriptors"
        yield name, functools.partial(described, *shape), 2.0 * shape[0] * shape[1] * shape[2]
    yield "f16 NT 128×8192×8192, descriptors", functools.partial(few_rows, 128, 8192, 8192), 2.0 * 128 * 8192 * 8192


def measured(make: Callable[[], Any], rounds: int) -> dict[str, Any]:
    """The times in milliseconds of all settings that are right, and of the fastest ones and cuBLAS in turn."""
    settings, launch, a, b, out = make()
    rows = min(256, out.shape[0])
    true = a[:rows].double() @ b.double()
    largest = true.abs().max()
    row: dict[str, Any] = {"settings": {}, "failed": {}, "fastest": {}}
    runs: dict[str, Any] = {}
    for kind, each in settings.items():
        right: dict[str, Any] = {}
        for setting in each:
            out.fill_(float("nan"))
            run = functools.partial(launch, setting)
            try:
                for _ in range(2):
                    run()
                error = ((out[:rows].double() - true).abs().max() / largest).nan_to_num(1e9).item()
                # The last rows are those of the last tiles, which may be ragged.
                last = a[-rows:].double() @ b.double()
                error = max(error, ((out[-rows:].double() - last).abs().max() / largest).nan_to_num(1e9).item())
                assert error <= TOLERANCE, f"error {error:.2e}"
                right[label(setting)] = run
            except Exception as problem:
                row["failed"][f"{kind}, {label(setting)}"] = str(problem)[:300]
        quick = in_turn(right, 9) if right else {}
        row["settings"] |= {f"{kind}, {name}": round(ms, 4) for name, ms in quick.items()}
        if quick:
            fastest = min(quick, key=quick.__getitem__)
            row["fastest"][kind], runs[kind] = fastest, right[fastest]
    spare = torch.empty_like(out)
    runs["cuBLAS"] = lambda: torch.mm(a, b, out=spare)
    row["ms"] = {who: round(ms, 4) for who, ms in in_turn(runs, rounds).items()}
    row["ratios"] = {who: round(row["ms"]["cuBLAS"] / ms, 3) for who, ms in row["ms"].items() if who != "cuBLAS"}
    return row


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("--only", default="", help="products whose name holds this")
    parser.add_argument("--rounds", type=int, default=60, help="launches of each of the fastest settings")
    options = parser.parse_args(arguments)
    report: dict[str, Any] = {"surroundings": surroundings(), "rows": {}}
    for name, make, operations in works():
        if options.only not in name:
            continue
        row = report["rows"][name] = measured(make, options.rounds)
        options.report.write_text(json.dumps(report, indent=1, ensure_ascii=False))
        speeds = ", ".join(f"{who} {operations / ms / 1e9:.0f} TFLOP/s" for who, ms in row["ms"].items())
        print(f"{name}: {speeds}; of cuBLAS {row['ratios']}; {row['fastest']}; failed {len(row['failed'])}", flush=True)
        for setting, why in row["failed"].items():
            print(f"    {setting}: {why}", flush=True)


if __name__ == "__main__":
    main()
