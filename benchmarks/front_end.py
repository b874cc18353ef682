"""Times of the front half: from a Python function to its Triton model, and models as text.

    python benchmarks/front_end.py [--write]

Every model is made cold, by kernels and functions that were never read before; only the language's own library is read
once a process. Where the C++ Triton is installed, here or in the environment whose Python is named by
ZIGGURAT_TRITON_PYTHON, its front half makes the same kernels in the same run. `--write` renews
docs/results/benchmarks.md. The exit status tells whether a bar of the project's was missed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from results import ROOT, median_and_best, peak_memory, seconds, surroundings, table, write

REPEAT = 50
ROUNDS = 5  # REPEAT / ROUNDS runs each, ours and Triton's alternately: the load of a machine varies.
WARM_UP = 3
PROCESSES = 7
BARS = {"vector add": 3.0, "matmul": 15.0, "import": 200.0}  # Milliseconds.
BAR_TO_TRITON = 0.5  # Of the time of a program in Triton's Python to its first PTX, and of compiling kernels.
KERNELS = {"vector add": ("vector_add", "add_kernel"), "matmul": ("grouped_matmul", "matmul_kernel")}


def arguments(name: str) -> list[Any]:
    """The arguments of a compilation: pointers and run-time integers, and blocks that are compiled in."""
    import ziggurat as zg

    if name == "vector add":
        return [zg.ptr(zg.f32)] * 3 + [zg.i32, 64]
    return [zg.ptr(zg.f16)] * 3 + [zg.i32] * 9 + [32, 64, 32, 4, "leaky_relu"]


def fresh(name: str) -> Any:
    """A kernel of examples/, with the functions it calls, as they are just after the import of their file."""
    file, kernel = KERNELS[name]
    spec = importlib.util.spec_from_file_location(file, ROOT / "examples" / f"{file}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, kernel)


def compile_cold(name: str, times: int) -> list[float]:
    """Seconds from a function to its Triton model; the first of them is the first of the process."""
    types = arguments(name)
    durations: list[float] = []
    for _ in range(times):
        kernel = fresh(name)
        durations += seconds(lambda kernel=kernel: kernel.triton(*types), 1)
    return durations


def in_processes(arguments: list[str]) -> list[dict[str, float]]:
    """The output of this script in several processes, which find the modules' bytecode as after an install."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, __file__, *arguments]
        outputs = [
            json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
            for _ in range(1 + PROCESSES)
        ]
    return outputs[1:]  # The first one wrote the bytecode.


def one_process(name: str) -> None:
    """In a process of its own: the import, and the first kernel."""
    start = time.perf_counter()
    import ziggurat

    imported = time.perf_counter()
    memory = peak_memory()
    assert ziggurat
    (first,) = compile_cold(name, 1)
    print(json.dumps({"import": imported - start, "memory": memory, "first": first, "memory after": peak_memory()}))


def triton_python() -> str | None:
    """A Python that has the C++ Triton, or None."""
    path = os.environ.get("ZIGGURAT_TRITON_PYTHON")
    if path:
        return path
    return sys.executable if importlib.util.find_spec("triton") is not None else None


def triton_figures() -> dict[str, Any] | None:
    """Triton's figures of a round: its version, and lists of seconds by kernel, those of the warm-up first."""
    python = triton_python()
    if python is None:
        return None
    script = str(Path(__file__).with_name("triton_front_end.py"))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [python, script, str(REPEAT // ROUNDS + WARM_UP)], check=True, env=environment, capture_output=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def compile_section(missed: list[str]) -> str:
    """Function to model, in a process that has compiled before, and as the first of a process."""
    ours: dict[str, list[float]] = {name: [] for name in KERNELS}
    theirs: dict[str, list[float]] = {name: [] for name in KERNELS}
    context: list[float] = []
    very_first: list[float] = []
    figures: dict[str, Any] | None = None
    for _ in range(ROUNDS):
        for name in KERNELS:
            compile_cold(name, WARM_UP)
            ours[name] += compile_cold(name, REPEAT // ROUNDS)
        figures = triton_figures()
        if figures is not None:
            context += figures["context"]
            very_first.append(figures["vector add"][0])
            for name in KERNELS:
                theirs[name] += figures[name][WARM_UP:]
    rows: list[list[object]] = []
    for name in KERNELS:
        first = [report["first"] for report in in_processes(["--one-process", name])]
        median, best = median_and_best(ours[name])
        row: list[object] = [name, median, best, median_and_best(first)[0], f"{BARS[name]:.0f}"]
        if figures is not None:
            ratio = statistics.median(ours[name]) / statistics.median(theirs[name])
            row += [*median_and_best(theirs[name]), f"{ratio:.2f}"]
        rows.append(row)
        if statistics.median(ours[name]) * 1e3 > BARS[name]:
            missed.append(f"{name}: {median} ms")
    header = ["ms", "median", "best", "first of a process", "bar"]
    text = "From a Python function to its Triton model (examples/vector_add.py and examples/grouped_matmul.py).\n"
    if figures is not None:
        header += ["Triton: median", "best", "ours ÷ Triton's"]
        start = median_and_best(very_first, digits=0)[0]
        text += (
            f"Triton is {figures['version']}, the same kernels in its spelling, from the decorated function to its "
            f"MLIR\n(`make_ir`), in turn with ours in {ROUNDS} rounds. Not counted are Triton's first {WARM_UP} calls "
            f"of a\n"
            f"process (the very first takes {start} ms) and the MLIR context of each compilation "
            f"({median_and_best(context)[0]} ms).\n"
        )
    return f"{text}\n{table(header, rows)}"


def cold_section(missed: list[str]) -> str:
    """A program in Triton's Python, from the start of its process: CPU seconds of ours, and of Triton's."""
    python = triton_python()
    script = str(Path(__file__).with_name("triton_front_end.py"))
    with tempfile.TemporaryDirectory() as cache:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        environment["PYTHONPYCACHEPREFIX"] = cache
        commands = [[sys.executable, "-m", "ziggurat.triton", script, "--cold"]]
        commands += [] if python is None else [[python, script, "--cold"]]
        runs: list[list[dict[str, float]]] = [[] for _ in commands]
        for _ in range(1 + PROCESSES):
            for reports, command in zip(runs, commands, strict=True):
                done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
                reports.append(json.loads(done.stdout.splitlines()[-1]))
    columns = [
        {name: statistics.median(report[name] for report in samples[1:]) for name in samples[0]} for samples in runs
    ]
    rows: list[list[object]] = []
    for name in columns[0]:
        label = {"import": "until the import is done", "start": "until the first PTX, of vector add"}.get(name, name)
        row: list[object] = [label, *(f"{column[name] * 1e3:.0f}" for column in columns)]
        rows.append([*row, f"{columns[0][name] / columns[1][name]:.2f}"] if python is not None else row)
    kernels = [name for name in columns[0] if name not in ("import", "start")]
    if python is not None:
        for label, names in (("cold start", ["start"]), ("compiling", kernels)):
            ratio = sum(columns[0][name] for name in names) / sum(columns[1][name] for name in names)
            if ratio > BAR_TO_TRITON:
                missed.append(f"{label}: {ratio:.2f} of Triton's")
    text = (
        "A program in Triton's Python: ms of CPU time of its process, medians of "
        f"{PROCESSES}. Kernels are compiled to PTX for\nan H100 after another one, without a cache on disk; assemblers "
        "run in other processes and are not counted.\n"
    )
    header = ["CPU ms", "ours"] + (["Triton", "ours ÷ Triton's"] if python is not None else [])
    return f"{text}\n{table(header, rows)}"


def import_section(missed: list[str]) -> str:
    """The import statement, and memory."""
    first = in_processes(["--one-process", "matmul"])
    times = [name["import"] for name in first]
    median, best = median_and_best(times, digits=0)
    if statistics.median(times) * 1e3 > BARS["import"]:
        missed.append(f"import: {median} ms")
    memory = [max(name[key] for name in first) for key in ("memory", "memory after")]
    rows = [
        ["`import ziggurat`, ms (median of 7 processes; best; bar)", f"{median}; {best}; {BARS['import']:.0f}"],
        ["peak memory of the process after it, MiB", f"{memory[0]:.0f}"],
        ["… and after the first matmul, MiB", f"{memory[1]:.0f}"],
    ]
    return table(["", ""], rows)


def text_section() -> str:
    """Printing, parsing, verifying, and writing as MLIR."""
    import ziggurat as zg

    rows: list[list[object]] = []
    for name in KERNELS:
        kernel = fresh(name)
        for tier, model in (("Python", kernel.model), ("Triton", kernel.triton(*arguments(name)))):
            text = str(model)
            assert zg.same_model(zg.parse(text), model)
            ops = sum(1 for _ in model.walk())
            row: list[object] = [f"{name}, {tier} model", ops, f"{len(text.encode()) / 1e3:.1f}"]
            for work in (lambda model=model: str(model), lambda text=text: zg.parse(text)):
                median = statistics.median(seconds(work, REPEAT))
                row += [f"{median * 1e3:.2f}", f"{ops / median / 1e3:.0f}k", f"{len(text.encode()) / median / 1e6:.1f}"]
            row.append(median_and_best(seconds(lambda model=model: zg.verify(model), REPEAT))[0])
            mlir = seconds(lambda model=model: zg.to_mlir(model), REPEAT) if tier == "Triton" else None
            row.append("–" if mlir is None else median_and_best(mlir)[0])
            rows.append(row)
    header = [
        "median",
        "ops",
        "kB",
        "print, ms",
        "ops/s",
        "MB/s",
        "parse, ms",
        "ops/s",
        "MB/s",
        "verify, ms",
        "MLIR, ms",
    ]
    return table(header, rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="renew docs/results/benchmarks.md")
    parser.add_argument("--one-process", metavar="KERNEL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one_process is not None:
        one_process(options.one_process)
        return 0
    missed: list[str] = []
    parts = [surroundings(), import_section(missed), cold_section(missed), compile_section(missed), text_section()]
    report = "\n\n".join(parts)
    print(report)
    if options.write:
        write("front_end", report)
    for miss in missed:
        print(f"missed a bar: {miss}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
