"""The compiler's choice, against the best of all warps, stages and roles: works of the ladder on a GPU.

    python benchmarks/gpu_defaults.py [--only TEXT] [--limit SECONDS] report.json

Each kernel of a work, with blocks of one size, is launched with every number of warps and of stages, with and without
roles, and with nothing given. Settings that give right results are launched in turn, the L2 flushed before each launch.
A line has the best setting, and its median time by that of the default. The report has all times.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gpu_ladder
import ladder_rows
import ladder_setup
import ladder_works as works

from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.triton.runtime import triton_options as triton_options

ROUNDS = 9
CHOSEN = ("num_warps", "num_stages", "ROLES")
PEERS = ("torch", "cuBLAS", "cuDNN", "Liger", "copy", "generated", "ours NT")
Setting = Mapping[str, Any]
Runs = dict[str, dict[str, Any]]

WORKS = (
    "matmul f16 NN 4096", "rows", "attention f16 D64 4096", "attention f16 D128 4096", "layer norm 16384×2048",
    "layer norm 16384×8192", "RMS norm 16384×8192", "softmax f16 256×131072", "SwiGLU 8192×11008",
    "rotary 4×2048, 32 and 8 heads of 128", "embedding 16384 of 32000×4096", "matmul fp8 e4m3 NT 4096",
    "matmul tf32 NT 4096", "matmul f16 NN 3001×3001×3001", "matmul f16 NT 4096, descriptors",
    "matmul f16 NT 64×8192×8192, descriptors", "matmul f16 NT 16×8192×8192, descriptors",
    "matmul f16 NN 8192×8192×512", "attention f16 D128 causal 4096", "attention f16 D256 4096",
    "RMS norm backward 16384×8192",
)  # fmt: skip
# Blocks of products, by the bytes of an element, and of attention, by the size of a head.
PRODUCTS = {
    2: ((128, 256, 64), (128, 128, 64), (64, 128, 64), (256, 128, 64), (64, 64, 64), (128, 64, 64)),
    1: ((128, 256, 128), (128, 128, 128), (64, 128, 128)),
    4: ((128, 256, 32), (128, 128, 32), (64, 128, 32)),
}  # fmt: skip
ATTENTION = {
    64: ((128, 64), (64, 128), (128, 128), (64, 64)), 128: ((128, 128), (128, 64), (64, 64)), 256: ((128, 64), (64, 64))
}  # fmt: skip


def choices(blocks: Setting, has_roles: bool) -> Iterator[Setting]:
    """The warps, stages and roles of a kernel with these blocks. The first leaves them to the compiler."""
    without = {"ROLES": False} if has_roles else {}
    yield without
    if not {"K", "TILES"} & set(blocks):
        yield from ({"num_warps": warps} for warps in (1, 2, 4, 8, 16, 32))
        return
    stages = (2, 3) if "K" not in blocks else (3, 4, 6, 8) if "APART" in blocks else (2, 3, 4)
    stages = (*stages, 6) if blocks.get("M", 128) * blocks["N"] == 64 * 64 else stages
    for warps, count, roles in itertools.product((4, 8), stages, (False, True)):
        yield {"num_warps": warps, "num_stages": count, "ROLES" if has_roles else "warp_specialize": roles}


def put(**values: Any) -> None:
    """Replace values in all modules of works that have them."""
    for module in (ladder_setup, ladder_rows, works):
        for name in values.keys() & vars(module).keys():
            setattr(module, name, values[name])


def by(launch: Any, ours: Sequence[Setting], theirs: Any = None) -> Runs:
    """The launches of ours by blocks, in place of `ladder_setup.by`."""
    runs: Runs = {}
    for setting in ours:
        blocks = {name: value for name, value in setting.items() if name not in CHOSEN}
        if blocks.get("PARTS", 1) > 1 or blocks.get("TILES") or "maxnreg" in setting:
            continue
        for choice in choices(blocks, "ROLES" in setting) if works.label(blocks) not in runs else ():
            name = works.label(choice) if "num_warps" in choice else "default"
            run = functools.partial(launch, works.OURS, {**blocks, **choice})
            runs.setdefault(works.label(blocks), {})[name] = run
    return runs


def simple() -> works.Work:
    """The simplest kernels: a sum of vectors, softmax and layer norm of rows."""
    runs: Runs = {}
    x, half = works.normal(1 << 24), works.normal(2048, 8192, dtype=works.torch.float16)
    out, y, w, mean = works.torch.empty_like(x), works.torch.empty_like(half), half[0], works.empty(2048)
    kernels, options = works.OURS, [{}, *({"num_warps": warps} for warps in (1, 2, 4, 8, 16, 32))]
    launches: dict[str, Any] = {}
    for n in (256, 1024, 4096):
        launches[f"add {n}"] = functools.partial(kernels.add[((1 << 24) // n,)], x, x, out, 1 << 24, BLOCK=n)
    for n in (1024, 4096, 16384):
        launches[f"softmax {n}"] = functools.partial(kernels.softmax[((1 << 24) // n,)], out, x, n, n, BLOCK=n)
    for n in (1024, 2048, 4096):
        arguments = half, y, w, w, mean, mean, 8192, 8192, 1e-5
        launches[f"layer norm in steps {n}"] = functools.partial(kernels.layer_norm[(2048,)], *arguments, BLOCK=n)
    for name, launch in launches.items():
        runs[name] = {
            works.label(option) if option else "default": functools.partial(launch, **option) for option in options
        }
    return works.Work(1.0, "", runs, [], list, 1.0)


def chosen(options: argparse.Namespace) -> tuple[list[str], dict[str, Any]]:
    """The works whose name holds one of the texts, with all settings."""
    put(by=by, THEIRS=None)
    works.BYTES, works.WORDS = (tuple((*setting, 4, 3) for setting in PRODUCTS[size]) for size in (1, 4))
    works.FORWARD = {d: tuple((*setting, 4, 3, False, False) for setting in each) for d, each in ATTENTION.items()}
    works.PRODUCTS = {
        kind: (product, off, tuple((*setting, 4, 3) for setting in PRODUCTS[kind.itemsize]))
        for kind, (product, off, _) in works.PRODUCTS.items()
    }
    # Programs of Triton's language, with nothing given, leave the choice to the compiler here.
    triton_options._BASE = CompileOptions()
    choices_of = {**dict(works.works()), "rows": simple}
    names = [name for name in WORKS if not options.only or any(text in name for text in options.only)]
    return names, {name: functools.partial(built, choices_of[name]) for name in names}


def built(build: Any) -> works.Work:
    work = build()
    work.runs = {blocks: runs for blocks, runs in work.runs.items() if blocks not in PEERS}
    return work


def blocks_of(build: Any) -> list[str]:
    """The blocks of a work, found without its tensors' memory."""
    device = works.DEVICE, works.GPU
    put(DEVICE="meta", GPU=False)
    try:
        return list(build().runs)
    finally:
        put(DEVICE=device[0], GPU=device[1])


def prepare(options: argparse.Namespace) -> int:
    """Compile some of the kernels, launch each once, and print which give right results."""
    names, builds = chosen(options)
    count = itertools.count()
    for name in names:
        mine = [blocks for blocks in blocks_of(builds[name]) if next(count) % gpu_ladder.JOBS == int(options.prepare)]
        work = builds[name]() if mine else None
        for blocks in mine:
            runs: dict[str, Any] = {}
            for setting, run in work.runs[blocks].items():
                try:
                    runs[setting] = gpu_ladder.checked(work, run)
                except Exception as problem:
                    runs[setting] = gpu_ladder.message(problem)
            print(json.dumps({f"{name} | {blocks}": runs}), flush=True)
        del work
        works.torch.cuda.empty_cache()
    return 0


def measure(options: argparse.Namespace) -> int:
    end, report = time.monotonic() + options.limit, dict[str, Any]()
    ready = gpu_ladder.compiled(options, time.monotonic() + options.limit * 0.7)
    names, builds = chosen(options)
    for name in names:
        labels = [label for label in ready if label.partition(" | ")[0] == name]
        work = builds[name]() if labels and time.monotonic() < end - 2 else None
        for label in labels if work else ():
            failed = {setting: why for setting, why in ready[label].items() if isinstance(why, str)}
            runs = work.runs[label.partition(" | ")[2]]
            times = gpu_ladder.in_turn({setting: run for setting, run in runs.items() if setting not in failed}, ROUNDS)
            times = {setting: round(milliseconds, 5) for setting, milliseconds in times.items()}
            report[label] = {"times": times, "failed": failed}
            best = min((setting for setting in times if setting != "default"), key=times.__getitem__, default="default")
            share = times[best] / times["default"] if "default" in times else 0
            print(f"{label:72} {share:.2f} of {times.get(best)} ms by {best}; {len(failed)} failed", flush=True)
    options.report.write_text(json.dumps(report, ensure_ascii=False, indent=1))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("--only", action="append", default=[], help="works whose name holds this")
    parser.add_argument("--limit", type=float, default=90, help="seconds for all")
    parser.add_argument("--prepare", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare:
        return prepare(options)
    gpu_ladder.HERE, gpu_ladder.chosen = Path(__file__).resolve(), chosen
    options.liger, options.fastest = None, False
    with tempfile.TemporaryDirectory() as caches:
        os.environ["ZIGGURAT_CACHE_DIR"] = f"{caches}/ours"
        os.makedirs(f"{caches}/ours", mode=0o700)
        return measure(options)


if __name__ == "__main__":
    sys.exit(main())
