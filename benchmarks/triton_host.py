"""What Triton's programs cost on the host, by ziggurat and by the installed Triton: launches, and a warm start.

    benchmarks/on_device.sh python3 benchmarks/triton_host.py "$OUT/host.json"

A process of each compiler measures; the processes take turns, and the median of three counts. Launches are in
microseconds: of a kernel with 19 arguments by `kernel[grid]`, by `CompiledKernel.run` with a grid, stream and hooks as
PyTorch's code calls it, and by `CompiledKernel[grid]`; of a tuned kernel, through a subclass of `Autotuner` as
libraries have one, and under heuristics; and a call of a small function under `torch.compile`. "warm start" is the
seconds from the import of the compiler to the end of seven kernels' first launches, when the caches on disk have them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROUNDS, COUNT, TIMES = 3, 300, 15
SIDES = ("ziggurat", "triton")
KERNELS = 7


def main() -> None:
    report: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for side in SIDES:
            for part in ("start", "launches"):  # Fill the caches.
                process(side, part, folder)
        rounds = [{side: measure(side, folder) for side in SIDES} for _ in range(ROUNDS)]
    for name in rounds[0]["ziggurat"]:
        report[name] = {side: round(statistics.median(r[side][name] for r in rounds), 3) for side in SIDES}
        report[name]["ratio"] = round(report[name]["ziggurat"] / report[name]["triton"], 3)
        print(f"{name:44} {report[name]}")
    Path(sys.argv[1]).write_text(json.dumps(report, indent=1), "utf-8")


def measure(side: str, folder: str) -> dict[str, float]:
    return {**process(side, "launches", folder), **process(side, "start", folder)}


def process(side: str, part: str, folder: str) -> dict[str, float]:
    """What a process of one side prints last."""
    environment = os.environ | {
        "TRITON_CACHE_DIR": f"{folder}/triton", "ZIGGURAT_CACHE_DIR": f"{folder}/ours",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/{side}",
    }  # fmt: skip
    os.makedirs(f"{folder}/ours", mode=0o700, exist_ok=True)
    command = [sys.executable, __file__, "--part", side, part]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{side}, {part}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def part(side: str, name: str, device: str = "cuda") -> None:
    import torch

    x = torch.zeros(64, device=device)
    begin = time.perf_counter()
    if side == "ziggurat":
        import ziggurat.triton

        ziggurat.triton.install()
    import kernels_host

    if name == "start":
        for number in range(KERNELS):
            kernels_host.scaled[(1,)](x, x, 2.0, 64, NUMBER=number, BLOCK=64)
        synchronize(device)
        print(json.dumps({"warm start, seven kernels, s": time.perf_counter() - begin}))
    else:
        print(json.dumps({f"{name}, µs": value for name, value in times(calls(device), device)}))


def synchronize(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def calls(device: str) -> dict[str, Callable[[], Any]]:
    import kernels_host
    import torch
    from kernels_triton import idle

    a, b, c, d, e, f = (torch.zeros(64, device=device) for _ in range(6))
    numbers = (1024, 4096, 333, 17, 4096, 64, 128, 1000, 77)
    blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    everything = (a, b, c, d, e, f, *numbers, 0.5, *blocks.values())

    def launch() -> None:
        idle[(1,)](a, b, c, d, e, f, *numbers, 0.5, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)

    launches: dict[str, Callable[[], Any]] = {"kernel[grid], 19 arguments": launch}
    if device == "cuda":
        compiled = idle[(1,)](*everything)
        stream, function, packed = torch.cuda.current_stream().cuda_stream, compiled.function, compiled.packed_metadata
        launches["CompiledKernel.run"] = lambda: compiled.run(
            1, 1, 1, stream, function, packed, None, None, None, *everything
        )
        launches["CompiledKernel[grid]"] = lambda: compiled[(1, 1, 1)](*everything)
    for way in ("tuned", "subclass", "heuristic"):
        kernel = getattr(kernels_host, way)
        launches[f"{way} kernel"] = lambda kernel=kernel: kernel[lambda meta: (1,)](a, b, 2.0, 64, NUMBER=0)

    @torch.compile
    def function_of_torch(x: Any, y: Any) -> Any:
        return torch.relu(x) * y + 1

    launches["torch.compile"] = lambda: function_of_torch(a, b)
    return launches


def times(calls: dict[str, Callable[[], Any]], device: str) -> Iterator[tuple[str, float]]:
    """The microseconds of each call on the host, with an empty queue before each sample."""
    for call in calls.values():
        for _ in range(30):
            call()
    for name, call in calls.items():
        samples: list[float] = []
        for _ in range(TIMES):
            synchronize(device)
            start = time.perf_counter()
            for _ in range(COUNT):
                call()
            samples.append((time.perf_counter() - start) / COUNT * 1e6)
        yield name, statistics.median(samples)


if __name__ == "__main__":
    if sys.argv[1] == "--part":
        part(*sys.argv[2:])
    else:
        main()
