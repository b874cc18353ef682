"""Speed and memory of the NumPy reference interpreter.

    python benchmarks/reference_interpreter.py [--write]

Each case is run three times, the best time counts; a fourth run measures the peak of what NumPy allocates beyond the
arguments. Data are N(0, 1). The bars are the project's own, for a machine with 2 cores.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from results import surroundings, write
from results import table as in_markdown

import ziggurat as zg


@zg.kernel
def add_kernel(x_ptr, y_ptr, output_ptr, n, BLOCK: zg.constexpr):
    offsets = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    mask = zg.compare(offsets, n, zg.CompareKind.LESS_THAN)
    x = zg.load(zg.add(x_ptr, offsets), mask)
    y = zg.load(zg.add(y_ptr, offsets), mask)
    zg.store(zg.add(output_ptr, offsets), zg.add(x, y), mask)


@zg.kernel
def matmul_kernel(a_ptr, b_ptr, c_ptr, N, K, BLOCK: zg.constexpr):
    rows = zg.expand(zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK)), 1)
    columns = zg.expand(zg.add(zg.program_id(1) * BLOCK, zg.arange(0, BLOCK)), 0)
    ks = zg.arange(0, BLOCK)
    a_ptrs = zg.add(a_ptr, zg.add(zg.mul(rows, K), zg.expand(ks, 0)))
    b_ptrs = zg.add(b_ptr, zg.add(zg.mul(zg.expand(ks, 1), N), columns))
    total = zg.zeros((BLOCK, BLOCK), zg.f32)
    for _ in range(0, K, BLOCK):
        total = zg.dot(zg.load(a_ptrs), zg.load(b_ptrs), total)
        a_ptrs = zg.add(a_ptrs, BLOCK)
        b_ptrs = zg.add(b_ptrs, BLOCK * N)
    zg.store(zg.add(c_ptr, zg.add(zg.mul(rows, N), columns)), total)


@zg.kernel
def softmax_kernel(x_ptr, y_ptr, n, BLOCK: zg.constexpr):
    columns = zg.arange(0, BLOCK)
    mask = zg.compare(columns, n, zg.CompareKind.LESS_THAN)
    offsets = zg.add(zg.program_id(0) * n, columns)
    x = zg.load(zg.add(x_ptr, offsets), mask, other=-float("inf"))
    numerator = zg.exp(zg.sub(x, zg.max(x, axis=0)))
    zg.store(zg.add(y_ptr, offsets), zg.div(numerator, zg.sum(numerator, axis=0)), mask)


@zg.kernel
def in_place_kernel(x_ptr, BLOCK: zg.constexpr):
    pointers = zg.add(x_ptr, zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK)))
    zg.store(pointers, zg.add(zg.load(pointers), 1.0))


@zg.kernel
def running_sum_kernel(x_ptr, BLOCK: zg.constexpr):
    offsets = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    following = zg.add(zg.add(x_ptr, offsets), BLOCK)
    zg.store(following, zg.add(zg.load(following), zg.load(zg.add(x_ptr, offsets))))


class Case(NamedTuple):
    """A case: `launch` runs it, `check` tells whether the result is right, `bar` is its limit in seconds."""

    name: str
    launch: Callable[[], object]
    check: Callable[[], bool]
    bar: float | None


def cases(scale: int) -> list[Case]:
    """The cases; `scale` divides the sizes, for a quick look."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        return rng.standard_normal(shape, np.float32)

    n = (1 << 20) // scale
    x, y, z = normal(n), normal(n), np.zeros(n, np.float32)
    size = max(64, 512 // scale)
    a, b, c = normal(size, size), normal(size, size), np.zeros((size, size), np.float32)
    rows, columns = 4096 // scale, 1024
    s, t = normal(rows, columns), np.zeros((rows, columns), np.float32)
    q = normal(n)
    chain = np.ones((257, 1024), np.float32)

    def reset() -> object:
        chain[:] = 1
        return running_sum_kernel[(256,)](chain, BLOCK=1024, interpret=True)

    def softmax_is_right() -> bool:
        wide = np.exp(s.astype(np.float64) - s.max(1, keepdims=True))
        return bool(np.allclose(t, wide / wide.sum(1, keepdims=True), atol=1e-6))

    return [
        Case(
            f"vector add, {n} of f32, 1024 a program",
            lambda: add_kernel[(zg.cdiv(n, 1024),)](x, y, z, n, BLOCK=1024, interpret=True),
            lambda: bool((z == x + y).all()),
            0.5,
        ),
        Case(
            f"matmul, {size}³ of f32 in tiles of 64³",
            lambda: matmul_kernel[(size // 64, size // 64)](a, b, c, size, size, BLOCK=64, interpret=True),
            lambda: bool(np.allclose(c, a @ b, atol=1e-3)),
            5.0,
        ),
        Case(
            f"softmax, {rows} rows of {columns} of f32",
            lambda: softmax_kernel[(rows,)](s, t, columns, BLOCK=1024, interpret=True),
            softmax_is_right,
            2.0,
        ),
        Case(
            f"add 1 in place, {n} of f32 (elements have owners)",
            lambda: in_place_kernel[(zg.cdiv(n, 1024),)](q, BLOCK=1024, interpret=True),
            lambda: bool(np.isfinite(q).all()),
            None,
        ),
        Case(
            "running sum of 256 programs (one by one)",
            reset,
            lambda: bool((chain[256] == 257).all()),
            None,
        ),
    ]


class Result(NamedTuple):
    """Seconds of the best run, and the peak of allocated memory in MB."""

    case: Case
    seconds: float
    peak: float


def measure(case: Case) -> Result:
    """Run a case. Raises AssertionError when its result is wrong."""
    seconds: list[float] = []
    for _ in range(3):
        start = time.perf_counter()
        case.launch()
        seconds.append(time.perf_counter() - start)
    assert case.check(), f"{case.name}: the result is wrong"
    tracemalloc.start()
    case.launch()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Result(case, min(seconds), peak / 1e6)


def table(results: list[Result]) -> str:
    """The results as a table in Markdown."""
    rows: list[list[str]] = []
    for case, seconds, peak in results:
        bar = "–" if case.bar is None else f"{case.bar} s"
        rows.append([case.name, f"{seconds * 1000:.0f} ms", bar, f"{peak:.1f} MB"])
    return in_markdown(["case", "best of 3", "bar", "peak memory"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=1, help="divide the sizes by this, for a quick look")
    parser.add_argument("--write", action="store_true", help="renew docs/results/benchmarks.md")
    options = parser.parse_args()
    scale = options.scale
    where = surroundings("ml_dtypes")
    results = [measure(case) for case in cases(scale)]
    report = f"{where}\n\n{table(results)}"
    print(report)
    if options.write and scale == 1:
        write("reference_interpreter", report)
    for case, seconds, _ in results:
        if scale == 1 and case.bar is not None and seconds > case.bar:
            raise SystemExit(f"{case.name} took {seconds:.2f} s; the bar is {case.bar} s")


if __name__ == "__main__":
    main()
