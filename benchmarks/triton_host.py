"""What Triton's programs cost on the host, by ziggurat and by the installed Triton: launches, and a warm start.

    benchmarks/on_device.sh python3 benchmarks/triton_host.py "$OUT/host.json"

A process of each compiler measures; the processes take turns, and the median of three counts. It takes less than a
minute on a machine that imports PyTorch in three seconds. Launches are in
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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

ROUNDS, COUNT, TIMES = 3, 300, 15
SIDES = ("ziggurat", "triton")
KERNELS = 7


def main() -> None:
    report: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        processes = {side: process(side, "launches", folder) for side in SIDES}
        for side in SIDES:  # Fill the caches, and be ready: nothing else runs while a process measures.
            start(side, folder)
        for worker in processes.values():
            answer(worker)
        rounds = [{side: {**answer(processes[side]), **start(side, folder)} for side in SIDES} for _ in range(ROUNDS)]
        for worker in processes.values():
            worker.communicate()
    for name in rounds[0]["ziggurat"]:
        report[name] = {side: round(statistics.median(r[side][name] for r in rounds), 3) for side in SIDES}
        report[name]["ratio"] = round(report[name]["ziggurat"] / report[name]["triton"], 3)
        print(f"{name:44} {report[name]}")
    Path(sys.argv[1]).write_text(json.dumps(report, indent=1), "utf-8")


def process(side: str, part: str, folder: str) -> subprocess.Popen[str]:
    environment = os.environ | {
        "TRITON_CACHE_DIR": f"{folder}/triton", "ZIGGURAT_CACHE_DIR": f"{folder}/ours",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/{side}", "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }  # fmt: skip
    os.makedirs(f"{folder}/ours", mode=0o700, exist_ok=True)
    command = [sys.executable, __file__, "--part", side, part]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def start(side: str, folder: str) -> dict[str, float]:
    return figures(process(side, "start", folder).communicate()[0].splitlines(), side)


def answer(process: subprocess.Popen[str]) -> dict[str, float]:
    """The next figures of a process, which it is asked for."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return figures(process.stdout, process.args)


def figures(lines: Iterable[str], who: Any) -> dict[str, float]:
    line = next((line for line in lines if line.startswith("{")), None)
    return json.loads(line) if line else sys.exit(f"{who} ended without figures")


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
        print(json.dumps({"warm start, seven kernels, s": time.perf_counter() - begin}), flush=True)
    else:
        launches = calls(device)
        for _ in sys.stdin:
            print(json.dumps({f"{name}, µs": value for name, value in times(launches, device)}), flush=True)


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
