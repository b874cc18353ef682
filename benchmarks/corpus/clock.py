"""Times of recorded launches with both compilers, on a GPU.

    python benchmarks/corpus time [--triton FOLDER] [--folder LIBRARY] [--jobs N] variants.jsonl …

First, N processes of each compiler compile and load all variants, so that the compilers' caches and that of the driver
have them. Then one process of each times them, one variant after the other.

These two make the same arguments: the recorded numbers and values of integers, and floats of a normal
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
import queue
import select
import statistics
import subprocess
import sys
import time as clock
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import variants

ROUNDS, REPEATS = 3, 25
L2_BYTES = 256 << 20
HEAD_START = 1_000_000  # Cycles, about half a millisecond: for the launches of a slow host.
LIMIT = 120  # Seconds for an answer: to the first, a process imports the library and compiles.
DIFFERENT = 0.02  # Relative difference of the sums of an argument that is told.
CHUNK = 1 << 26  # Elements of a tensor that are summed at a time.
OWN = Path(__file__).resolve()
SIDES = ("ours", "theirs")


class Side:
    """A process of one compiler, which answers a request, a line of JSON, by a line of JSON.

    `mode` is "time", "load" to compile and load without a launch, or "dry" to compile without a GPU. A request starts
    the process, if it does not run.
    """

    def __init__(self, side: str, mode: str, options: argparse.Namespace) -> None:
        self.environment = dict(os.environ)
        if side == "theirs" and Path(options.triton).is_dir():
            paths = (options.triton, os.environ.get("PYTHONPATH", ""))
            self.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        self.command = [sys.executable, str(OWN), side, mode, *options.folder]
        self.process: subprocess.Popen[str] | None = None

    def send(self, request: dict[str, Any]) -> None:
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                self.command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self.process.stdin, flush=True)

    def answer(self) -> dict[str, Any]:
        assert self.process is not None and self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], LIMIT)[0]:
            self.end()
            return {"error": f"no answer in {LIMIT} s"}
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        self.end()
        return {"error": "the process died"}

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def time(options: argparse.Namespace) -> None:
    """Print microseconds of both for each launch, Triton's time for ours, and the geometric mean of these."""
    start = clock.monotonic()
    end = start + options.seconds
    entries = variants.read(options.variants)
    launches = {name: variant for name, variant in entries if options.only in name and "launch" in variant}
    answers = compilations(launches, end, options)
    print(f"compiled in {clock.monotonic() - start:.0f} s", file=sys.stderr)
    sides = {side: Side(side, "time", options) for side in SIDES}
    rows: list[dict[str, Any]] = []
    for name, results in answers.items():
        row: dict[str, Any] = {"name": name, "launch": launches[name].get("tuned", name)}
        if options.dry or any("error" in result for result in results.values()):
            row.update(outcome(results))
        elif clock.monotonic() > end:
            break
        else:
            row.update(measurement(sides, launches[name]))
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    for side in sides.values():
        side.end()
    if options.output is not None:
        options.output.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", "utf-8")
    print(report(rows))
    if len(rows) < len(launches):
        print(f"no time for {len(launches) - len(rows)} variants")


def compilations(
    launches: dict[str, variants.Variant], end: float, options: argparse.Namespace
) -> dict[str, dict[str, dict[str, Any]]]:
    """The answers of each side for the variants that `options.jobs` processes of each compile before `end`."""
    answers: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in launches}
    names: dict[str, queue.SimpleQueue[str]] = {side: queue.SimpleQueue() for side in SIDES}
    for name in launches:
        for side in SIDES:
            names[side].put(name)

    def compile(side: str) -> None:
        process = Side(side, "dry" if options.dry else "load", options)
        with contextlib.suppress(queue.Empty):
            while clock.monotonic() < end:
                name = names[side].get_nowait()
                process.send({"prepare": launches[name]})
                answers[name][side] = process.answer()
        process.end()

    jobs = max(1, min(options.jobs, len(launches)))
    with ThreadPoolExecutor(jobs * len(SIDES)) as pool:
        [*pool.map(compile, SIDES * jobs)]
    return {name: results for name, results in answers.items() if len(results) == len(SIDES)}


def outcome(answers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The part of a row for a variant without times: the errors of sides, or zeros."""
    errors = {side: answer["error"] for side, answer in answers.items() if "error" in answer}
    return {"errors": errors} if errors else {"different": [], **dict.fromkeys(SIDES, 0.0)}


def measurement(sides: dict[str, Side], variant: variants.Variant) -> dict[str, Any]:
    """The part of a row for a variant: the median of both, or errors."""
    answers = replies(sides, {"prepare": variant})
    row = outcome(answers)
    if "errors" in row:
        return row
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(ROUNDS):
        for name, side in sides.items():
            reply = replies({name: side}, {"measure": REPEATS})
            if "error" in reply[name]:
                return outcome(reply)
            times[name].append(reply[name]["microseconds"])
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {"different": different(*(answer["sums"] for answer in answers.values())), **medians}


def replies(sides: dict[str, Side], request: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The answers of sides to a request. A side with an error ends: after some, a process cannot use the GPU."""
    for side in sides.values():
        side.send(request)
    answers = {name: side.answer() for name, side in sides.items()}
    for name, answer in answers.items():
        if "error" in answer:
            sides[name].end()
    return answers


def different(ours: list[list[float]], theirs: list[list[float]]) -> list[int]:
    """The places of the arguments whose sums, or sums of magnitudes, differ."""

    def close(a: float, b: float, size: float) -> bool:
        return a == b or (math.isnan(a) and math.isnan(b)) or abs(a - b) <= DIFFERENT * size

    def same(a: list[float], b: list[float]) -> bool:
        return all(close(x, y, abs(b[1])) for x, y in zip(a, b, strict=True))

    return [place for place, (a, b) in enumerate(zip(ours, theirs, strict=True)) if not same(a, b)]


def report(rows: list[dict[str, Any]]) -> str:
    """A line for each launch: the fastest of its configurations on each side."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if "errors" not in row:
            groups[row["launch"]].append(row)
    lines, ratios = [f"{'launch':72} {'ours µs':>9} {'Triton µs':>9} {'ratio':>6}"], []
    for group in groups.values():
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
    """An argument of its form in a recording; without a generator, tensors have no values."""
    import torch

    if not isinstance(entry, dict):
        return entry
    if "descriptor" in entry:
        from triton.tools.tensor_descriptor import TensorDescriptor

        base = argument(entry["descriptor"], generator, device)
        return TensorDescriptor(base, entry["shape"], entry["strides"], entry["block_shape"])
    dtype, count = getattr(torch, entry["dtype"]), entry["elements"]
    if generator is None:
        return torch.empty(count, dtype=dtype, device=device)
    if "values" in entry:
        return torch.tensor(entry["values"], dtype=dtype, device=device)
    if dtype.is_floating_point:
        return (torch.randn(count, device=device, generator=generator) / 8).to(dtype)
    return torch.randint(0, max(1, entry["below"]), (count,), device=device, generator=generator).to(dtype)


def tensor_of(value: Any) -> Any:
    return getattr(value, "base", value) if hasattr(value, "block_shape") else value


def sums(values: list[Any]) -> Iterator[list[float]]:
    """The sum of each tensor, and the sum of its magnitudes."""
    import torch

    for tensor in filter(torch.is_tensor, map(tensor_of, values)):
        dtype = torch.float64 if tensor.element_size() > 1 else torch.float32
        total, size = 0.0, 0.0
        for part in tensor.split(CHUNK):
            total += float(part.to(dtype).sum())
            size += float(part.to(dtype).abs().sum())
        yield [total, size]


def serve(side: str, mode: str, *folders: str) -> None:
    """Answer the requests of the other end of stdin and stdout."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Programs print.
    sys.path[:0] = folders
    if side == "ours":
        import ziggurat.triton

        ziggurat.triton.install()
    if mode == "dry":
        import stand_in

        stand_in.set_up()
    import torch

    device = "cpu" if mode == "dry" else "cuda"
    flushed = torch.empty(L2_BYTES if mode == "time" else 1, dtype=torch.int8, device=device)
    launch: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if "measure" in request:
                answer = {"microseconds": measured(launch, flushed, request["measure"])}
            elif mode == "time":
                launch = None  # Free the memory of the arguments before, for the other process as well.
                torch.cuda.empty_cache()
                launch, values = launch_of(request["prepare"], side)
                launch()
                answer = {"sums": [*sums(values)]}
                values = None
            else:
                prepare(request["prepare"], side, is_loaded=mode == "load")
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), file=answers, flush=True)


def prepare(variant: variants.Variant, side: str, is_loaded: bool) -> None:
    """Compile a variant into the compiler's cache; load it on the GPU too, for the driver's cache of assembled PTX."""
    kernel, keywords, _ = call_of(variant, side, None, "cpu")
    compilation = kernel.warmup(**keywords)
    if is_loaded:
        compilation._init_handles()


def launch_of(variant: variants.Variant, side: str) -> tuple[Any, list[Any]]:
    """The launch of a variant, and its arguments."""
    import torch

    generator = torch.Generator("cuda").manual_seed(0)
    kernel, keywords, own = call_of(variant, side, generator, "cuda")
    return lambda: kernel.run(**keywords, warmup=False), own


def call_of(variant: variants.Variant, side: str, generator: Any, device: str) -> tuple[Any, dict[str, Any], list[Any]]:
    """The kernel of a variant, all that a launch is given, and the arguments of run time among that."""
    import one_compiler

    kernel = variants.function_of(variant["module"], variant["kernel"], variant.get("file", ""))
    recorded = variant["launch"]
    constants = {name: variants.constant(value) for name, value in variant["constants"].items()}
    own = {name: argument(entry, generator, device) for name, entry in recorded["arguments"].items()}
    values = {name: own[name] if name in own else constants[name] for name in kernel.arg_names}
    options = one_compiler.options_of(variant, side)
    # A kernel may have a parameter `num_warps`: a launch gives both by one keyword.
    return kernel, {**options, **values, "grid": tuple(recorded["grid"])}, [*own.values()]


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
