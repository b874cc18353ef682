"""Times of a program's launches with both compilers, on a GPU.

    python benchmarks/corpus time [--triton FOLDER] program.py …

The program runs in a process of each compiler in turn, `ROUNDS` times. Each new launch is repeated there `REPEATS`
times, with the L2 flushed before each, and timed by events; the figure of a side is the median of its processes'
medians. An autotuner takes the first of its configurations, so that both run the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

ROUNDS, REPEATS = 3, 25
L2_BYTES = 256 << 20
OWN = Path(__file__).resolve()


def time(program: str, arguments: list[str], triton: str) -> None:
    """Print microseconds of both for each launch, and Triton's time for ours."""
    times: dict[str, dict[str, list[float]]] = defaultdict(lambda: {"ours": [], "theirs": []})
    for _ in range(ROUNDS):
        for side in ("ours", "theirs"):
            with tempfile.TemporaryDirectory() as folder:
                output = Path(folder) / "times.json"
                environment = dict(os.environ)
                if side == "theirs" and Path(triton).is_dir():
                    environment["PYTHONPATH"] = os.pathsep.join(
                        filter(None, (triton, os.environ.get("PYTHONPATH", "")))
                    )
                command = [sys.executable, str(OWN), side, str(output), program, *arguments]
                subprocess.run(command, env=environment, check=True)
                for name, microseconds in json.loads(output.read_text("utf-8")).items():
                    times[name][side].append(microseconds)
    print(f"{'launch':72} {'ours µs':>9} {'Triton µs':>9} {'ratio':>6}")
    for name, sides in times.items():
        if sides["ours"] and sides["theirs"]:
            ours, theirs = (statistics.median(sides[side]) for side in ("ours", "theirs"))
            print(f"{name[-72:]:72} {ours:9.1f} {theirs:9.1f} {theirs / ours:6.2f}")


def run(side: str, output: str, program: str, arguments: list[str]) -> None:
    """Run a program with one compiler, and write the times of its launches."""
    import runpy

    if side == "ours":
        import ziggurat.triton

        ziggurat.triton.install()
    import torch
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    original = JITFunction.run
    flushed = torch.empty(L2_BYTES, dtype=torch.int8, device="cuda")
    times: dict[str, float] = {}

    def described(value: Any) -> str:
        return f"{value.dtype}{tuple(value.shape)}" if isinstance(value, torch.Tensor) else str(value)[:40]

    def launch(kernel: Any, *args: Any, grid: Any, warmup: bool, **keywords: Any) -> Any:
        result = original(kernel, *args, grid=grid, warmup=warmup, **keywords)
        words = [*map(described, args), *(f"{name}={described(value)}" for name, value in sorted(keywords.items()))]
        digest = hashlib.sha256(" ".join(words).encode()).hexdigest()[:8]
        name = f"{kernel.fn.__module__}.{kernel.fn.__qualname__}#{digest}"
        if not warmup and name not in times:
            samples: list[float] = []
            for _ in range(REPEATS):
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                flushed.zero_()
                start.record()
                original(kernel, *args, grid=grid, warmup=False, **keywords)
                end.record()
                end.synchronize()
                samples.append(start.elapsed_time(end) * 1e3)
            times[name] = statistics.median(samples)
        return result

    def tune(tuner: Any, *args: Any, **keywords: Any) -> Any:
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        config = next(iter(tuner.prune_configs(keywords)))
        return tuner.fn.run(*args, **{"warmup": False, **keywords, **config.all_kwargs()})

    JITFunction.run, Autotuner.run = launch, tune  # type: ignore[method-assign]
    sys.argv = [program, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    runpy.run_path(program, run_name="__main__")
    Path(output).write_text(json.dumps(times), "utf-8")


if __name__ == "__main__":
    run(*sys.argv[1:4], sys.argv[4:])  # type: ignore[misc]
