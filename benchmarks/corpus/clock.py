"""Times of recorded launches with both compilers, on a GPU.

    python benchmarks/corpus time [--triton FOLDER] [--folder LIBRARY] variants.jsonl …

A process of each compiler makes the same arguments: the recorded numbers and values of integers, and floats of a normal
distribution. After the first launch the arguments of both are compared. Then the processes launch in turn, `ROUNDS`
times; each repeats the launch `REPEATS` times, with the L2 flushed before each, and times it by events. The GPU waits
for a while before the first event, so that the host has made the launch by then. The figure of a side is the median of
its rounds' medians. Of an autotuner's configurations each side has its fastest.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time as clock
from collections import defaultdict
from pathlib import Path
from typing import Any

import variants

ROUNDS, REPEATS = 3, 25
L2_BYTES = 256 << 20
HEAD_START = 1_000_000  # Cycles, about half a millisecond: for the launches of a slow host.
LIMIT = 60  # Seconds for compiling and the first launch of a variant.
DIFFERENT = 0.02  # Relative difference of the sums of an argument that is told.
OWN = Path(__file__).resolve()


class Side:
    """A process of one compiler, which answers a request, a line of JSON, by a line of JSON."""

    def __init__(self, side: str, folders: list[str], triton: str, dry: bool) -> None:
        environment = dict(os.environ)
        if side == "theirs" and Path(triton).is_dir():
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (triton, os.environ.get("PYTHONPATH", ""))))
        command = [sys.executable, str(OWN), side, "dry" if dry else "", *folders]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send(self, request: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self.process.stdin, flush=True)

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": "the process died"}


def time(options: argparse.Namespace) -> None:
    """Print microseconds of both for each launch, Triton's time for ours, and the geometric mean of these."""
    start = clock.monotonic()
    named = {name: variant for name, variant in variants.read(options.variants) if options.only in name}
    sides: dict[str, Side] = {}
    rows: list[dict[str, Any]] = []
    for name, variant in named.items():
        if "launch" not in variant:
            continue
        if clock.monotonic() - start > options.seconds:
            print(f"no time for the {len(named) - len(rows)} variants from {name} on")
            break
        for side in ("ours", "theirs"):
            if side not in sides or sides[side].process.poll() is not None:
                sides[side] = Side(side, options.folder, options.triton, options.dry)
        row: dict[str, Any] = {"name": name, "launch": variant.get("tuned", name)}
        for process in sides.values():
            process.send({"prepare": variant})
        answers = {side: process.answer() for side, process in sides.items()}
        if errors := {side: answer["error"] for side, answer in answers.items() if "error" in answer}:
            row["errors"] = errors
        else:
            row["different"] = different(*(answer["sums"] for answer in answers.values()))
            times: dict[str, list[float]] = defaultdict(list)
            for _ in range(ROUNDS):
                for side, process in sides.items():
                    process.send({"measure": REPEATS})
                    times[side].append(process.answer().get("microseconds", math.nan))
            row.update({side: statistics.median(values) for side, values in times.items()})
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    for process in sides.values():
        process.process.terminate()
    if options.output is not None:
        options.output.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", "utf-8")
    print(report(rows))


def different(ours: list[list[float]], theirs: list[list[float]]) -> list[int]:
    """The places of the arguments whose sums, or sums of magnitudes, differ."""

    def close(a: float, b: float, size: float) -> bool:
        return a == b or (math.isnan(a) and math.isnan(b)) or abs(a - b) <= DIFFERENT * size

    def same(a: list[float], b: list[float]) -> bool:
        return all(close(x, y, abs(b[1])) for x, y in zip(a, b, strict=True))

    return [place for place, (a, b) in enumerate(zip(ours, theirs, strict=True)) if not same(a, b)]


def report(rows: list[dict[str, Any]]) -> str:
    """A line for each launch: the fastest of its configurations on each side."""
    launches: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if "errors" not in row:
            launches[row["launch"]].append(row)
    lines, ratios = [f"{'launch':72} {'ours µs':>9} {'Triton µs':>9} {'ratio':>6}"], []
    for group in launches.values():
        ours, theirs = (min(row[side] for row in group) for side in ("ours", "theirs"))
        mark = " results differ" if any(row["different"] for row in group) else ""
        ratios.append(theirs / ours if ours else 1.0)
        lines.append(f"{group[0]['name'][-72:]:72} {ours:9.1f} {theirs:9.1f} {ratios[-1]:6.2f}{mark}")
    lines += [f"{row['name']}: {row['errors']}" for row in rows if "errors" in row]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        low = [sum(ratio < limit for ratio in ratios) for limit in (0.95, 0.85)]
        lines.append(f"{len(ratios)} launches: geometric mean {mean:.3f}; below 0.95: {low[0]}; below 0.85: {low[1]}")
    return "\n".join(lines)


def argument(entry: Any, generator: Any, device: str) -> Any:
    """An argument of its form in a recording."""
    import torch

    if not isinstance(entry, dict):
        return entry
    if "descriptor" in entry:
        from triton.tools.tensor_descriptor import TensorDescriptor

        base = argument(entry["descriptor"], generator, device)
        return TensorDescriptor(base, entry["shape"], entry["strides"], entry["block_shape"])
    dtype, count = getattr(torch, entry["dtype"]), entry["elements"]
    if "values" in entry:
        return torch.tensor(entry["values"], dtype=dtype, device=device)
    if dtype.is_floating_point:
        return (torch.randn(count, device=device, generator=generator) / 8).to(dtype)
    return torch.randint(0, entry["below"], (count,), device=device, generator=generator).to(dtype)


def tensor_of(value: Any) -> Any:
    return getattr(value, "base", value) if hasattr(value, "block_shape") else value


def sums(values: list[Any]) -> list[list[float]]:
    """The sum of each tensor, and the sum of its magnitudes."""
    import torch

    tensors = [tensor_of(value) for value in values if isinstance(tensor_of(value), torch.Tensor)]
    doubles = [tensor.to(torch.float64 if tensor.element_size() > 1 else torch.float32) for tensor in tensors]
    return [[float(double.sum()), float(double.abs().sum())] for double in doubles]


def serve(side: str, dry: str, *folders: str) -> None:
    """Answer the requests of the other end of stdin and stdout."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Programs print.
    sys.path[:0] = folders
    if side == "ours":
        import ziggurat.triton

        ziggurat.triton.install()
    if dry:
        import stand_in

        stand_in.set_up()
    import torch

    device = "cpu" if dry else "cuda"
    flushed = torch.empty(1 if dry else L2_BYTES, dtype=torch.int8, device=device)
    signal.signal(signal.SIGALRM, out_of_time)
    launch: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if "prepare" in request:
                launch, values = launch_of(request["prepare"], side, device, bool(dry))
                signal.alarm(0 if dry else LIMIT)
                launch()
                answer = {"sums": sums(values)}
            else:
                answer = {"microseconds": 0.0 if dry else measured(launch, flushed, request["measure"])}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        finally:
            signal.alarm(0)
        print(json.dumps(answer), file=answers, flush=True)


def launch_of(variant: variants.Variant, side: str, device: str, dry: bool) -> tuple[Any, list[Any]]:
    """The launch of a variant, and its arguments."""
    import one_compiler
    import torch

    kernel = variants.function_of(variant["module"], variant["kernel"], variant.get("file", ""))
    recorded = variant["launch"]
    generator = torch.Generator(device).manual_seed(0)
    constants = {name: variants.constant(value) for name, value in variant["constants"].items()}
    own = {name: argument(entry, generator, device) for name, entry in recorded["arguments"].items()}
    values = {name: own[name] if name in own else constants[name] for name in kernel.arg_names}
    keywords = {**one_compiler.options_of(variant, side), "grid": tuple(recorded["grid"])}
    call = kernel.warmup if dry else kernel.run
    return lambda: call(*values.values(), **keywords, **({} if dry else {"warmup": False})), [*own.values()]


def out_of_time(*_: Any) -> None:
    raise TimeoutError(f"not compiled and launched in {LIMIT} s")


def measured(launch: Any, flushed: Any, repeats: int) -> float:
    """The median of the microseconds of launches."""
    import torch

    samples: list[float] = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        flushed.zero_()
        torch.cuda._sleep(HEAD_START)
        start.record()
        launch()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) * 1e3)
    return statistics.median(samples)


if __name__ == "__main__":
    serve(*sys.argv[1:])
