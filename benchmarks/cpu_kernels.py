"""Native kernels on the CPU against NumPy and torch, one thread against one thread and all against all.

    python benchmarks/cpu_kernels.py [--quick] [--triton PYTHON]

Prints the figures, and renews those of this machine's processor in benchmarks/results/cpu-report.json.

All contenders run in this process, in turn, on the same N(0, 1) data in arrays that begin at multiples of 64, as those
of torch do. Ours is checked against float64. A time of one thread is the best CPU time, a time of all threads the best
wall time. A ratio above 1 says that ours is faster. `BARS` has the least ratio to the fastest of some peers, of ours in
its fastest blocks without fast math; the last table has these, and the status tells whether one is missed. Kernels that
Inductor writes in Triton's language are compiled by us, those that it writes in C++ by the machine's compiler.
`--only` runs the works whose names begin so, and writes no report. `--triton` names a Python with Triton, whose
interpreter (TRITON_INTERPRET=1) then runs the same kernels in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import ctypes
import functools
import inspect
import io
import json
import math
import os
import platform
import runpy
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from kernels_cpu import add, attention, chain, layer_norm, matmul, rms_norm, softmax
from results import table

import ziggurat as zg
from ziggurat.backend.cpu.code import CpuOptions
from ziggurat.backend.cpu.compile import compile_cpu, to_object
from ziggurat.backend.cpu.runtime.kernels import NativeKernel
from ziggurat.backend.jit.loading import LinkedObject, host
from ziggurat.compiler.cpu_code import code_of
from ziggurat.launches.cpu import HostLaunches

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "benchmarks" / "results" / "cpu-report.json"
Run = Callable[[], Any]
# The peers and the bar of works, by the first words of their names.
BARS: dict[str, tuple[tuple[str, ...], float]] = {
    "matmul f32": (("numpy", "torch"), 0.9), "softmax": (("torch",), 1.0), "attention": (("torch",), 1.0),
    "chain": (("numpy",), 1.0), "Inductor": (("C++",), 0.95),
}  # fmt: skip


def blas_threads() -> Callable[[int], None]:
    """The function that sets the number of threads of NumPy's OpenBLAS; it does nothing for another library."""
    for file in (Path(np.__file__).parent.parent / "numpy.libs").glob("*openblas*"):
        library = ctypes.CDLL(str(file))
        for name in ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads"):
            if hasattr(library, name):
                return getattr(library, name)
    return lambda count: None


def measure(contenders: Mapping[str, Run], rounds: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    """The milliseconds of each round of each contender, in turn."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        run()
    for _ in range(rounds):
        for name, run in contenders.items():
            start = clock()
            run()
            times[name].append(1e3 * (clock() - start))
    return times


class Report:
    """The figures, and the number of rounds of each."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.rows: list[dict[str, Any]] = []
        self.set_blas = blas_threads()

    def compare(self, work: str, contenders: Mapping[str, Run], error: Callable[[], float], limit: float) -> None:
        """Measure contenders, ours first, with one thread and with all."""
        row: dict[str, Any] = {"work": work}
        for label, count in (("one", 1), ("all", os.cpu_count() or 1)):
            zg.set_num_threads(count)
            torch.set_num_threads(count)
            self.set_blas(count)
            times = measure(contenders, self.rounds, time.thread_time if count == 1 else time.perf_counter)
            fastest = {name: min(t) for name, t in times.items()}
            ours = fastest["ours"]
            row[label] = {
                "milliseconds": {name: round(value, 4) for name, value in fastest.items()},
                "ratios": {name: round(value / ours, 3) for name, value in fastest.items() if name != "ours"},
            }
            bar = next((bar for words, bar in BARS.items() if work.startswith(words)), None)
            if bar is not None:
                own = min(ms for name, ms in fastest.items() if name.startswith("ours") and " with" not in name)
                row[label]["to the bar"] = round(min(fastest[name] for name in bar[0]) / own, 3), bar[1]
        row["error"] = float(f"{error():.3g}")
        if not row["error"] <= limit:
            raise AssertionError(f"{work}: the error {row['error']} is above {limit}")
        self.rows.append(row)
        print(json.dumps(row), flush=True)

    def bars(self) -> int:
        """Print the ratios that have a bar; whether one is missed."""
        rows = [
            (row["work"], label, *row[label]["to the bar"])
            for row in self.rows
            for label in ("one", "all")
            if "to the bar" in row[label]
        ]
        header = ("work", "threads", "fastest peer's time by ours", "bar", "")
        print(table(header, [(*row, "" if row[2] >= row[3] else "missed") for row in rows]))
        return int(any(row[2] < row[3] for row in rows))


def worst(figures: Any, expected: Any) -> float:
    return float(np.max(np.abs(np.asarray(figures, np.float64) - expected)))


def empty(*shape: int) -> Any:
    """An array of f32 that begins at a multiple of 64."""
    room = np.empty(math.prod(shape) + 16, np.float32)
    start = -room.ctypes.data % 64 // 4
    return room[start : start + math.prod(shape)].reshape(shape)


def normal(*shape: int) -> Any:
    array = empty(*shape)
    np.random.default_rng(0).standard_normal(shape, np.float32, array)
    return array


def measure_add(report: Report) -> None:
    n = 1 << 24
    x, y = (np.random.default_rng(seed).standard_normal(n, np.float32) for seed in range(2))  # In NumPy's own memory.
    out, other = np.empty(n, np.float32), np.empty(n, np.float32)
    tx, ty, tout = map(torch.from_numpy, (x, y, other))
    grid = (zg.cdiv(n, 1024),)
    report.compare(
        "vector add 2^24 f32",
        {
            "ours": lambda: add[grid](x, y, out, n, BLOCK=1024, interpret=False),
            "ours without checks": lambda: add[grid](x, y, out, n, BLOCK=1024, interpret=False, check=False),
            "numpy": lambda: np.add(x, y, out=other),
            "torch": lambda: torch.add(tx, ty, out=tout),
        },
        lambda: worst(out, x + y),
        0,
    )


def numba_loops() -> dict[str, Callable[..., None]]:
    """Softmax and layer norm of rows as loops for Numba, with fast math; none where it is not installed."""
    try:
        import numba
    except ImportError:
        return {}

    @numba.njit(fastmath=True)
    def softmax_loops(x: Any, out: Any) -> None:
        for row in range(x.shape[0]):
            top = x[row, 0]
            for at in range(x.shape[1]):
                top = max(top, x[row, at])
            total = np.float32(0)
            for at in range(x.shape[1]):
                out[row, at] = np.exp(x[row, at] - top)
                total += out[row, at]
            for at in range(x.shape[1]):
                out[row, at] /= total

    @numba.njit(fastmath=True)
    def norm_loops(x: Any, w: Any, b: Any, out: Any) -> None:
        n = np.float32(x.shape[1])
        for row in range(x.shape[0]):
            mean = np.float32(0)
            for at in range(x.shape[1]):
                mean += x[row, at]
            mean /= n
            variance = np.float32(0)
            for at in range(x.shape[1]):
                variance += (x[row, at] - mean) ** 2
            rstd = np.float32(1) / np.sqrt(variance / n + np.float32(1e-5))
            for at in range(x.shape[1]):
                out[row, at] = (x[row, at] - mean) * rstd * w[at] + b[at]

    return {"softmax": softmax_loops, "layer norm": norm_loops}


NUMBA = numba_loops()


def measure_softmax(report: Report, rows: int, n: int) -> None:
    x, out, other = normal(rows, n), empty(rows, n), empty(rows, n)
    block = 1 << (n - 1).bit_length()
    tx, wide = torch.from_numpy(x), x.astype(np.float64)

    def by_numpy() -> Any:
        powers = np.exp(x - x.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    powers = np.exp(wide - wide.max(axis=1, keepdims=True))
    report.compare(
        f"softmax {rows}×{n} f32",
        {
            "ours": lambda: softmax[rows,](out, x, n, n, BLOCK=block, interpret=False),
            "ours with fast math": lambda: softmax[rows,](other, x, n, n, BLOCK=block, interpret=False, fast_math=True),
            "numpy": by_numpy,
            "torch": lambda: torch.softmax(tx, 1),
            **({"numba": lambda: NUMBA["softmax"](x, other)} if NUMBA else {}),
        },
        lambda: worst(out, powers / powers.sum(axis=1, keepdims=True)),
        1e-6,
    )


def measure_norms(report: Report, n: int) -> None:
    x, out, other, w, b = normal(4096, n), empty(4096, n), empty(4096, n), normal(n), normal(n)
    tx, tw, tb = map(torch.from_numpy, (x, w, b))
    wide = x.astype(np.float64)
    mean, variance = wide.mean(axis=1, keepdims=True), wide.var(axis=1, keepdims=True)
    report.compare(
        f"layer norm 4096×{n} f32",
        {
            "ours": lambda: layer_norm[4096,](out, x, w, b, n, n, 1e-5, BLOCK=1024, interpret=False),
            "numpy": lambda: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w + b,
            "torch": lambda: torch.nn.functional.layer_norm(tx, (n,), tw, tb, 1e-5),
            **({"numba": lambda: NUMBA["layer norm"](x, w, b, other)} if NUMBA else {}),
        },
        lambda: worst(out, (wide - mean) / np.sqrt(variance + 1e-5) * w + b),
        1e-5,
    )
    squares = (wide * wide).mean(axis=1, keepdims=True)
    report.compare(
        f"RMS norm 4096×{n} f32",
        {
            "ours": lambda: rms_norm[4096,](out, x, w, n, n, 1e-5, BLOCK=1024, interpret=False),
            "numpy": lambda: x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * w,
            "torch": lambda: torch.nn.functional.rms_norm(tx, (n,), tw, 1e-5),
        },
        lambda: worst(out, wide / np.sqrt(squares + 1e-5) * w),
        1e-5,
    )


def measure_matmul(report: Report, n: int, dtype: torch.dtype) -> None:
    aligned = empty(n, n)
    aligned[:] = normal(n, n).T
    a, b = torch.from_numpy(normal(n, n)).to(dtype), torch.from_numpy(aligned).to(dtype)
    c, other = torch.empty((n, n), dtype=torch.float32), torch.empty((n, n), dtype=dtype)

    def ours(m: int, width: int, k: int, **options: bool) -> Run:
        grid = (zg.cdiv(n, m), zg.cdiv(n, width))
        return lambda: matmul[grid](a, b, c, n, n, n, M=m, N=width, K=k, interpret=False, **options)

    blocks = {"": (128, 256, 64), " 64×64×64": (64, 64, 64), " 256×256×128": (256, 256, 128)}
    contenders = {f"ours{name}": ours(*block) for name, block in blocks.items()}
    if dtype == torch.bfloat16:
        contenders |= {f"ours{name} with fast math": ours(*block, fast_math=True) for name, block in blocks.items()}
    if dtype == torch.float32:
        x, y, z = a.numpy(), b.numpy(), empty(n, n)
        contenders["numpy"] = lambda: np.matmul(x, y, out=z)
        contenders["FMA peak"] = fma_peak(2 * n**3)
    contenders["torch"] = lambda: torch.matmul(a, b, out=other)
    expected = a.double().numpy() @ b.double().numpy()
    kind = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]
    report.compare(f"matmul {kind} {n}³", contenders, lambda: worst(c, expected) / n, 1e-5)


def measure_attention(report: Report, heads: int, n: int, d: int) -> None:
    q, k, v = (torch.from_numpy(normal(3, 1, heads, n, d)[i]) for i in range(3))
    out = torch.empty_like(q)
    scale = 1 / math.sqrt(d)
    wide = torch.softmax(q.double() @ k.double().transpose(-1, -2) * scale, -1) @ v.double()

    def ours(m: int, n_: int, **options: bool) -> Run:
        return lambda: attention[n // m, heads](q, k, v, out, n, scale, M=m, N=n_, D=d, interpret=False, **options)

    report.compare(
        f"attention forward f32, {heads} heads, n {n}, d {d}",
        {
            "ours": ours(64, 64),
            "ours 128×64": ours(128, 64),
            "ours 128×64 with fast math": ours(128, 64, fast_math=True),
            "torch": lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v),
        },
        lambda: worst(out, wide.numpy()),
        1e-5,
    )


def measure_chain(report: Report, name: str, n: int) -> None:
    """A chain of elementwise functions: ours computes in one pass what NumPy does function by function, in place."""
    x, out, other, generator = normal(n), empty(n), empty(n), np.random.default_rng(1)
    grid = (zg.cdiv(n, 1024),)
    steps, last = CHAINS[name]

    def by_numpy(x: Any, out: Any) -> Any:
        for step in steps:
            step(x, out)
            x = out
        return out

    def with_random() -> None:
        by_numpy(x, other)
        np.add(other if steps else x, generator.random(n, np.float32), out=other)

    def error() -> float:
        rest = out - (by_numpy(x.astype(np.float64), np.empty(n)) if steps else x)
        # A random number is from 0 to 1, and differs from NumPy's.
        return max(-rest.min(), rest.max() - 1, abs(rest.mean() - 0.5) - 0.1) if last else float(np.abs(rest).max())

    contenders: dict[str, Run] = {
        "ours": lambda: chain[grid](out, x, n, 7, NAME=name, BLOCK=1024, interpret=False),
        "numpy": with_random if last else lambda: by_numpy(x, other),
    }
    report.compare(f"chain {name}, {n} of f32", contenders, error, 1e-4)


def _add_1(x: Any, out: Any) -> None:
    np.add(x, 1, out=out)


# The steps of a chain by NumPy, and whether a random number is added.
CHAINS: dict[str, tuple[list[Callable[..., Any]], bool]] = {
    "exp": ([np.exp], False),
    "log": ([np.abs, np.log], False),
    "rand": ([], True),
    "log exp": ([np.exp, _add_1, np.log], False),
    "tanh exp": ([np.exp, np.tanh], False),
    "log exp rand": ([np.exp, _add_1, np.log], True),
}


def inductor_programs() -> dict[str, tuple[Callable[..., Any], list[Any]]]:
    """Functions of PyTorch, and their arguments."""
    from torch.nn import functional as F

    x, y = torch.from_numpy(normal(1024, 1024)), torch.from_numpy(normal(1024, 1024)[::-1].copy())
    weight, bias = torch.from_numpy(normal(1024)), torch.from_numpy(normal(1024))
    labels = torch.arange(1024) * 7 % 1024
    return {
        "sigmoid(x) · y + log1p(exp(x))": (lambda x, y: torch.sigmoid(x) * y + torch.log1p(torch.exp(x)), [x, y]),
        "GELU": (lambda x: F.gelu(x), [x]),
        "softmax": (lambda x: torch.softmax(x, 1), [x]),
        "layer norm": (lambda x, w, b: F.layer_norm(x, (1024,), w, b), [x, weight, bias]),
        "GELU of a layer norm": (lambda x, w, b: F.gelu(F.layer_norm(x, (1024,), w, b)), [x, weight, bias]),
        "cross entropy": (lambda x, labels: F.cross_entropy(x, labels), [x, labels]),
        "sums of columns": (lambda x, y: (x * y).sum(0), [x, y]),
        "RMS norm, transposed": (lambda x, w: F.rms_norm(x, (1024,), w).t().contiguous(), [x, weight]),
    }


def measure_inductor(report: Report, name: str, function: Callable[..., Any], arguments: list[Any]) -> None:
    """A program by Inductor, with our kernels and in C++. How many threads it has is fixed when it is compiled."""
    import ziggurat.triton

    ziggurat.triton.install()
    all_threads = os.cpu_count() or 1

    def compiled(backend: str) -> Run:
        programs: dict[int, Callable[..., Any]] = {}
        for count in {1, all_threads}:
            torch.set_num_threads(count)
            # Of one code object, PyTorch would compile one backend.
            own = types.FunctionType(function.__code__.replace(), function.__globals__, closure=function.__closure__)
            programs[count] = torch.compile(own, options={"cpu_backend": backend})
            programs[count](*arguments)
        return lambda: programs[torch.get_num_threads()](*arguments)

    contenders = {"ours": compiled("triton"), "C++": compiled("cpp"), "eager": lambda: function(*arguments)}
    result: Any = function(*(tensor.double() if tensor.is_floating_point() else tensor for tensor in arguments))
    report.compare(
        f"Inductor: {name}, 1024×1024 f32",
        contenders,
        lambda: worst(contenders["ours"](), result.numpy()),
        1e-5 * max(1.0, float(result.abs().max())),
    )


def fma_peak(operations: int) -> Run:
    """So many floating-point operations of one thread: fused multiply-adds in registers alone."""
    # Enough chains to hide the latency of two units, in 32 registers with AVX-512 and in 16 with AVX2.
    lanes, chains = (16, 24) if "+avx512f" in host()[1] else (8, 12)
    vector = f"<{lanes} x float>"
    phis = "\n".join(f"  %a{i} = phi {vector} [ %f{i}, %entry ], [ %b{i}, %loop ]" for i in range(chains))
    firsts = "\n".join(  # Equal chains would become one.
        f"  %f{i} = fadd {vector} %m, splat (float {i}.0)" for i in range(chains)
    )
    steps = "\n".join(
        f"  %b{i} = call {vector} @llvm.fma.v{lanes}f32({vector} %a{i}, {vector} %m, {vector} %m)"
        for i in range(chains)
    )
    sums = "\n".join(f"  %s{i + 1} = fadd {vector} %s{i}, %b{i}" for i in range(chains))
    text = f"""define void @peak(ptr %data, i64 %count) {{
entry:
  %m = load {vector}, ptr %data
  %s0 = fadd {vector} %m, %m
{firsts}
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n1, %loop ]
{phis}
{steps}
  %n1 = add i64 %n, 1
  %more = icmp slt i64 %n1, %count
  br i1 %more, label %loop, label %done
done:
{sums}
  store {vector} %s{chains}, ptr %data
  ret void
}}
declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})
"""
    library = LinkedObject(to_object(text, CpuOptions(*host())), ["peak"])
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library.addresses["peak"])
    room = empty(64)
    room[:] = 0
    return lambda module=library: call(room.ctypes.data, operations // (2 * lanes * chains))


def launch_cost() -> dict[str, float]:
    """Microseconds of a launch of three arrays that was made before, and of `np.add(x, y, out=z)` of as many elements,
    in turn."""
    x, y, z = normal(16), normal(16), np.empty(16, np.float32)

    def many(call: Run) -> Run:
        def run() -> None:
            for _ in range(1000):
                call()

        return run

    contenders = {
        "launch": many(lambda: add[1,](x, y, z, 16, BLOCK=16, interpret=False)),
        "numpy": many(lambda: np.add(x, y, out=z)),
        "empty": many(lambda: None),
    }
    times = {name: min(durations) for name, durations in measure(contenders, 30, time.perf_counter).items()}
    cost = {name: round(times[name] - times["empty"], 3) for name in ("launch", "numpy")}
    return {**cost, "ratio": round(cost["launch"] / cost["numpy"], 2)}


def thread_ratios(report: Report) -> dict[str, float]:
    """The wall time with one thread by that with two, of kernels bound by computation, and of torch's matmul."""
    n, q = 1024, normal(3, 8, 1024, 64)
    a, b, c, out = normal(n, n), normal(n, n), empty(n, n), empty(8, n, 64)
    ta, tb, tc = map(torch.from_numpy, (a, b, empty(n, n)))
    works: dict[str, Run] = {
        "matmul": lambda: matmul[16, 16](a, b, c, n, n, n, M=64, N=64, K=64, interpret=False),
        "attention": lambda: attention[16, 8](*q, out, n, 0.125, M=64, N=64, D=64, interpret=False),
        "torch.matmul": lambda: torch.matmul(ta, tb, out=tc),
    }
    ratios = {}
    for name, work in works.items():

        def run(count: int, work: Run = work) -> Run:
            def once() -> None:
                zg.set_num_threads(count)
                torch.set_num_threads(count)
                work()

            return once

        times = measure({"one": run(1), "two": run(2)}, 10 * report.rounds, time.perf_counter)
        ratios[name] = round(min(times["one"]) / min(times["two"]), 2)
    zg.set_num_threads(1)
    torch.set_num_threads(1)
    return ratios


def example_ratios() -> dict[str, dict[str, float]]:
    """The milliseconds of native code, and the interpreter's time by that, for each kernel that the examples launch
    natively for more than 1 ms in the interpreter."""
    ratios: dict[str, dict[str, float]] = {}
    plain = HostLaunches.launch

    def launch(self: HostLaunches, grid: Any, bound: Any, options: Any, arguments: Any) -> Any:
        if any(isinstance(value, np.ndarray) and not value.flags.c_contiguous for value in bound.values()):
            return plain(self, grid, bound, options, arguments)
        copies = {name: copy.deepcopy(value) for name, value in bound.items()}  # Atomics would add again.
        result = plain(self, grid, bound, options, arguments)
        again: dict[str, Run] = {"native": lambda: self.kernel[grid](**copies, **options)}
        again["interpreter"] = lambda: self.kernel.interpret(grid, copies, options)
        HostLaunches.launch = plain
        times = {name: min(taken_time) for name, taken_time in measure(again, 3, time.thread_time).items()}
        HostLaunches.launch = launch  # pyright: ignore[reportAttributeAccessIssue]
        if times["interpreter"] > 1:
            ratio = times["interpreter"] / times["native"]
            ratios[self.kernel.name] = {"native": round(times["native"], 4), "ratio": round(ratio, 1)}
        return result

    HostLaunches.launch = launch  # pyright: ignore[reportAttributeAccessIssue]
    try:
        for file in sorted((ROOT / "examples").glob("*.py")):
            path = patch.object(sys, "path", [str(file.parent), *sys.path])
            with path, contextlib.redirect_stdout(io.StringIO()):
                runpy.run_path(str(file), run_name="__main__")
    finally:
        HostLaunches.launch = plain
    return ratios


def triton_ratios(python: str) -> dict[str, float]:
    """The time of Triton's own interpreter, in another process, by that of native code, for one launch each."""
    # Triton's interpreter cannot use a number of run time as a bound of a loop with NumPy 2.4.
    constant = {"m, n, k, M:": "m, n, k: tl.constexpr, M:", "n, scale,": "n: tl.constexpr, scale,"}
    source = "\n".join(inspect.getsource(kernel.fn) for kernel in (add, softmax, matmul, attention))
    for before, after in constant.items():
        source = source.replace(before, after)
    names = ("add", "softmax", "matmul", "attention")
    text = "\n".join(["import time, torch, triton, triton.language as tl", source, _TRITON])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernels.py"
        file.write_text(text)
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        run = subprocess.run([python, str(file)], env=environment, capture_output=True, text=True, check=True)
    theirs = dict(zip(names, map(float, run.stdout.split()), strict=True))
    mine = {name: min(measure({name: run}, 5, time.thread_time)[name]) for name, run in small_launches().items()}
    return {name: round(theirs[name] / mine[name], 1) for name in names}


_TRITON = """
torch.set_num_threads(1)
x, y, out, rows, powers = (torch.randn(n) for n in (1 << 20, 1 << 20, 1 << 20, 1 << 18, 1 << 18))
a, c, q, heads = torch.randn(256, 256), torch.empty(256, 256), torch.randn(3, 2, 256, 64), torch.empty(2, 256, 64)
for run in (
    lambda: add[(256,)](x, y, out, 1 << 20, BLOCK=4096),
    lambda: softmax[(256,)](powers, rows, 1024, 1024, BLOCK=1024),
    lambda: matmul[(4, 4)](a, a, c, 256, 256, 256, M=64, N=64, K=64),
    lambda: attention[(4, 2)](*q, heads, 256, 0.125, M=64, N=64, D=64),
):
    times = []
    for _ in range(3):
        start = time.thread_time()
        run()
        times.append(1e3 * (time.thread_time() - start))
    print(min(times))
"""


def small_launches(interpret: bool = False) -> dict[str, Run]:
    """Launches of four kernels on small arrays."""
    x, y, out = normal(1 << 20), normal(1 << 20), empty(1 << 20)
    rows, a, c = normal(256, 1024), normal(256, 256), empty(256, 256)
    q, heads = normal(3, 2, 256, 64), empty(2, 256, 64)
    i = interpret
    return {
        "add": lambda: add[256,](x, y, out, 1 << 20, BLOCK=4096, interpret=i),
        "softmax": lambda: softmax[256,](rows, rows, 1024, 1024, BLOCK=1024, interpret=i),
        "matmul": lambda: matmul[4, 4](a, a, c, 256, 256, 256, M=64, N=64, K=64, interpret=i),
        "attention": lambda: attention[4, 2](*q, heads, 256, 0.125, M=64, N=64, D=64, interpret=i),
    }


def interpreter_ratios() -> dict[str, float]:
    """The interpreter's time by that of native code, for one launch each after a first one."""
    native, interpreter = small_launches(), small_launches(True)
    ratios = {}
    for name in native:
        times = measure({"native": native[name], "interpreter": interpreter[name]}, 3, time.thread_time)
        ratios[name] = round(min(times["interpreter"]) / min(times["native"]), 1)
    return ratios


def compile_times() -> dict[str, float]:
    """Milliseconds of the CPU from the Triton model to object code, the best of 25."""
    f32 = zg.ptr(zg.f32)
    models = {
        "vector add": add.triton(f32, f32, f32, zg.i32, 4096),
        "softmax": softmax.triton(f32, f32, zg.i32, zg.i32, 1024),
        "attention": attention.triton(f32, f32, f32, f32, zg.i32, zg.f32, 64, 64, 64),
    }
    durations = {}
    for name, model in models.items():
        times = measure({name: lambda model=model: compile_cpu(model)}, 25, time.thread_time)[name]
        durations[name] = round(min(times), 1)
    return durations


def load_times() -> dict[str, float]:
    """Milliseconds from the Triton model to a kernel that can be launched, by the cache on disk, the best of 25."""
    f32 = zg.ptr(zg.f32)
    model = softmax.triton(f32, f32, zg.i32, zg.i32, 1024)

    def from_disk() -> None:
        NativeKernel(code_of(model, "softmax", check=True, tolerant=True, fast_math=False), "softmax")

    return {"softmax": round(min(measure({"softmax": from_disk}, 25, time.thread_time)["softmax"]), 2)}


# Rows and columns; heads, tokens and numbers of a head.
SOFTMAX = ((4096, 1024), (4096, 1000), (16384, 250), (512, 8192))
ATTENTION = ((8, 1024, 64), (8, 512, 128), (16, 2048, 64))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="few rounds, and no report")
    parser.add_argument("--triton", help="a Python that has Triton")
    parser.add_argument("--only", help="works whose names begin so, and no report")
    options = parser.parse_args()
    quick, only = options.quick, options.only or ""
    report = Report(3 if quick else 20)
    part = functools.partial
    works: list[tuple[str, Callable[[Report], None]]] = [("vector add", measure_add)]
    works += [("softmax", part(measure_softmax, rows=rows, n=n)) for rows, n in SOFTMAX]
    works += [("norms", part(measure_norms, n=1024))]
    works += [("matmul f32", part(measure_matmul, n=n, dtype=torch.float32)) for n in (1024, 1000, 512, 768, 2000)]
    works += [("matmul", part(measure_matmul, n=1024, dtype=dtype)) for dtype in (torch.float16, torch.bfloat16)]
    works += [("attention", part(measure_attention, heads=h, n=n, d=d)) for h, n, d in ATTENTION]
    works += [("chain", part(measure_chain, name=name, n=n)) for n in (1 << 20, 1000) for name in CHAINS]
    works += [
        ("Inductor", part(measure_inductor, name=name, function=function, arguments=arguments))
        for name, (function, arguments) in inductor_programs().items()
    ]
    for name, work in works:
        if name.startswith(only):
            work(report)
    missed = report.bars()
    if options.only:
        return missed
    zg.set_num_threads(1)
    peak = measure({"peak": fma_peak(2 * 1024**3)}, 50, time.thread_time)["peak"]
    figures = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "load_average": os.getloadavg()[0],
        "cpu": host()[0],
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "rows": report.rows,
        "fma_peak_gflops": round(2 * 1024**3 / min(peak) / 1e6, 1),
        "two_threads_by_one": thread_ratios(report),
        "launch_microseconds": launch_cost(),
        "compile_milliseconds": compile_times(),
        "load_milliseconds": load_times(),
        "interpreter_by_native": interpreter_ratios(),
        "examples": example_ratios(),
    }
    if options.triton:
        figures["triton_interpreter_by_native"] = triton_ratios(options.triton)
    print(json.dumps({name: value for name, value in figures.items() if name != "rows"}))
    if not quick:
        reports = {**json.loads(REPORT.read_text(encoding="utf-8")), figures["cpu"]: figures}
        REPORT.write_text(json.dumps(reports, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return missed


if __name__ == "__main__":
    sys.exit(main())
