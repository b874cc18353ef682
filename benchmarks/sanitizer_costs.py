"""The time of launches with each sanitizer, by that without any, on this CPU or on a GPU.

    python benchmarks/sanitizer_costs.py                                              # this CPU
    benchmarks/on_device.sh python3 benchmarks/sanitizer_costs.py --gpu costs.json    # a GPU

A time is the least of several launches that are waited for, with the memory of the sanitizer made and read each time;
on a GPU the launch without sanitizers is waited for as well. Compilation is reported apart. The kernels are right: a
report ends the script. The last line printed is the summary as JSON, which the path gets too.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from results import surroundings, table

import ziggurat as zg
from ziggurat.codemodel.gpu.options import SANITIZERS

CHOICES: dict[str, tuple[str, ...]] = {"none": (), **{name: (name,) for name in SANITIZERS}, "all": SANITIZERS}


@zg.kernel
def add(out, x, y, n, B: zg.constexpr):
    at = zg.program_id(0) * B + zg.arange(0, B)
    mask = zg.less(at, n)
    zg.store(out + at, zg.load(x + at, mask) + zg.load(y + at, mask), mask)


@zg.kernel
def softmax(out, x, n, B: zg.constexpr):
    at = zg.arange(0, B)
    row = zg.program_id(0) * n
    v = zg.load(x + row + at, zg.less(at, n), -float("inf"))
    e = zg.exp(v - zg.max(v, axis=0))
    zg.store(out + row + at, e / zg.sum(e, axis=0), zg.less(at, n))


@zg.kernel
def matmul(out, a, b, n, B: zg.constexpr):
    rows = zg.program_id(0) * B + zg.arange(0, B)
    columns = zg.program_id(1) * B + zg.arange(0, B)
    acc = zg.zeros((B, B), zg.f32)
    for k in range(0, n, B):
        inner = k + zg.arange(0, B)
        left = zg.load(a + rows[:, None] * n + inner[None, :])
        right = zg.load(b + inner[:, None] * n + columns[None, :])
        acc = zg.dot(left, right, acc)
    zg.store(out + rows[:, None] * n + columns[None, :], acc)


@zg.kernel
def counts(out, x, n, B: zg.constexpr):
    at = zg.program_id(0) * B + zg.arange(0, B)
    v = zg.load(x + at, zg.less(at, n), 0)
    zg.atomic_add(out + v, 1, zg.less(at, n))


@zg.kernel
def in_place(x, n, B: zg.constexpr):
    at = zg.program_id(0) * B + zg.arange(0, B)
    zg.store(x + at, zg.load(x + at, zg.less(at, n)) * 0.5, zg.less(at, n))


def works(size: int) -> dict[str, tuple[Any, tuple[int, ...], list[Any]]]:
    """The launches: the kernel, the grid, and the arguments. `size` is the number of elements of vectors."""
    random = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray[Any, Any]:
        return random.standard_normal(shape, np.float32)

    side = 256 if size <= 1 << 20 else 1024
    integers = random.integers(0, 1024, size).astype(np.int32)
    rows, square = size // 1024, (side, side)
    return {
        f"add of {size}": (add, (size // 1024,), [np.zeros(size, np.float32), normal(size), normal(size), size, 1024]),
        f"softmax {rows} × 1000": (
            softmax, (rows,), [np.zeros((rows, 1000), np.float32), normal(rows, 1000), 1000, 1024]
        ),
        f"matmul {side}³": (
            matmul, (side // 32, side // 32), [np.zeros(square, np.float32), normal(*square), normal(*square), side, 32]
        ),
        f"counts of {size}": (counts, (size // 1024,), [np.zeros(1024, np.int32), integers, size, 1024]),
        f"in place {size}": (in_place, (size // 1024,), [normal(size), size, 1024]),
    }  # fmt: skip


def measured(launch: Callable[[], Any], times: int) -> tuple[float, float]:
    """The seconds of the first launch, which compiles, and the least of the later ones."""
    seconds: list[float] = []
    for _ in range(times + 1):
        start = time.perf_counter()
        launch()
        seconds.append(time.perf_counter() - start)
    return seconds[0], min(seconds[1:])


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, nargs="?", help="where the summary goes")
    parser.add_argument("--gpu", action="store_true", help="on a GPU")
    parser.add_argument("--times", type=int, default=5, help="launches of which the quickest counts")
    options = parser.parse_args()
    header = ["kernel", "none (ms)", *SANITIZERS, "all", "first launch, none", "first launch, all"]
    rows: list[list[str]] = []
    summary: dict[str, Any] = {"surroundings": surroundings()}
    for name, (kernel, grid, arguments) in works(1 << 24 if options.gpu else 1 << 20).items():
        if options.gpu:
            arguments = [zg.to_device(a) if isinstance(a, np.ndarray) else a for a in arguments]
        figures: dict[str, tuple[float, float]] = {}
        for choice, checks in CHOICES.items():
            keywords: dict[str, Any] = {"sanitize": checks} if checks else {"check": True} if options.gpu else {}
            figures[choice] = measured(functools.partial(kernel[grid], *arguments, **keywords), options.times)
        summary[name] = figures
        base = figures["none"][1]
        ratios = [f"{figures[choice][1] / base:.1f} ×" for choice in (*SANITIZERS, "all")]
        first = [f"{figures[choice][0]:.2f} s" for choice in ("none", "all")]
        rows.append([name, f"{base * 1e3:.2f}", *ratios, *first])
    print(summary["surroundings"])
    print(table(header, rows))
    text = json.dumps(summary)
    if options.path is not None:
        options.path.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
