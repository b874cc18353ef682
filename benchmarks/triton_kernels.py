"""The kernels of Triton's tutorials and of Liger-Kernel's operations, sources unchanged, by ziggurat and by Triton.

    python benchmarks/triton_kernels.py report.json --tutorials FOLDER --liger FOLDER [--only TEXT] [--rounds N]
        [--first-calls]

FOLDER: `python/tutorials` of a checkout of Triton; `src` of a checkout of Liger-Kernel. Each work runs at a real size
in two processes, one for each compiler, which are measured in turn. The time of a work is the sum over its kernels of
the median time of a kernel, by PyTorch's profiler, with the L2 flushed before each call; kernels of PyTorch and of its
libraries do not count. Both get the same random inputs, and their results are compared. A ratio is Triton's time by
ours. Seconds are those of the first call without the measurements of tuning: nearly all of it is compiling. With
--first-calls nothing else is measured, and tuning takes any of its configurations.

Before all, `triton_program.py` runs under both with empty caches: its start, first results, and launches.
"""

from __future__ import annotations

import argparse
import ast
import fcntl
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

Work = Callable[[], Any]
HERE = Path(__file__).resolve()
# Largest difference of two results by the largest magnitude: tensor cores, another order of sums, 16-bit outputs.
TOLERANCE = 2e-2
# Kernels that are not written in Triton: those of PyTorch, and of the libraries that it calls.
OTHERS = re.compile(r"::|^void |^nvjet|^sm\d+_|^cutlass|^Mem|^cudnn|gemm|elementwise_kernel|^cub|splitK")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("--tutorials", type=Path)
    parser.add_argument("--liger", type=Path)
    parser.add_argument("--only", default="", help="works whose name holds this")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=8, help="processes that compile at once")
    parser.add_argument("--limit", type=int, default=540, help="seconds for all")
    parser.add_argument("--first-calls", action="store_true", help="measure no kernels")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        serve(options)
        return 0
    end = time.monotonic() + options.limit
    report: dict[str, Any] = {"program": [{who: start(who == "ours") for who in ("ours", "Triton")} for _ in range(2)]}
    print(json.dumps(report["program"]), flush=True)
    names = [name for name in works(options) if options.only in name]
    groups = [names[index :: options.jobs] for index in range(options.jobs)]
    pairs = [(group, Worker(True, options), Worker(False, options)) for group in groups if group]

    def prepare(pair: tuple[list[str], Worker, Worker]) -> None:
        for name in pair[0]:
            report[name] = {
                who: worker.ask("prepare", name) for who, worker in zip(("ours", "Triton"), pair[1:], strict=True)
            }
            print(f"{name:32} first call {[side.get('seconds') for side in report[name].values()]} s", flush=True)

    with ThreadPoolExecutor(len(pairs)) as pool:
        list(pool.map(prepare, pairs))
    rows = [report[name] for name in names if all("seconds" in side for side in report[name].values())]
    report["first calls, s"] = {who: round(sum(row[who]["seconds"] for row in rows), 2) for who in ("ours", "Triton")}
    print(f"first calls of {len(rows)} works: {report['first calls, s']}", flush=True)
    options.report.write_text(json.dumps(report, indent=1))
    for group, ours, theirs in () if options.first_calls else pairs:
        for name in group:
            row = report[name]
            if "error" not in row["ours"] and "error" not in row["Triton"] and time.monotonic() < end:
                measure(name, row, ours, theirs, options.rounds)
            print(line(name, row), flush=True)
            options.report.write_text(json.dumps(report, indent=1))
    return 0


def measure(name: str, row: dict[str, Any], ours: Worker, theirs: Worker, rounds: int) -> None:
    """Measure a work in turn, and compare its results."""
    figures: dict[str, list[dict[str, float]]] = {"ours": [], "Triton": []}
    for _ in range(rounds):
        for who, worker in (("ours", ours), ("Triton", theirs)):
            answer = worker.ask("measure", name)
            if "error" in answer:
                row[who] = answer
                return
            figures[who].append(answer["kernels"])
    for who, rows in figures.items():
        kernels = {key: statistics.median(row[key] for row in rows if key in row) for key in rows[0]}
        row[who] |= {"kernels": kernels, "us": round(sum(kernels.values()), 2)}
    if row["ours"]["us"]:
        row["ratio"] = round(row["Triton"]["us"] / row["ours"]["us"], 3)
    row["difference"] = difference(ours.ask("result", name)["path"], theirs.ask("result", name)["path"])
    row["same"] = row["difference"] <= TOLERANCE


def difference(ours: str, theirs: str) -> float:
    """The largest difference of two lists of saved tensors, each by its largest magnitude."""
    import torch

    worst = 0.0
    for a, b in zip(torch.load(ours), torch.load(theirs), strict=True):
        a, b = a.double(), b.double()
        if not torch.equal(torch.isfinite(a), torch.isfinite(b)):
            return float("inf")
        a, b = a.nan_to_num(0, 0, 0), b.nan_to_num(0, 0, 0)
        worst = max(worst, ((a - b).abs().max() / b.abs().max().clamp_min(1e-6)).item() if a.numel() else 0.0)
    return worst


def line(name: str, row: Mapping[str, Any]) -> str:
    for who in ("ours", "Triton"):
        if "error" in row[who]:
            return f"{name:32} {who} failed: {row[who]['error'][:300]}"
    if "us" not in row["ours"]:
        return f"{name:32} not measured"
    seconds = f"{row['ours']['seconds']:.1f} / {row['Triton']['seconds']:.1f} s"
    same = "same" if row["same"] else f"DIFFERENT {row['difference']:.1e}"
    times = f"{row['ours']['us']:10.1f} {row['Triton']['us']:10.1f} us"
    return f"{name:32} {times}  ratio {row.get('ratio', '-'):<6} first call {seconds:14} {same}"


def environment(folder: str) -> dict[str, str]:
    """The environment of a process whose caches are in a folder of its own."""
    return dict(os.environ, TRITON_CACHE_DIR=f"{folder}/cache", ZIGGURAT_CACHE_DIR=f"{folder}/cache", RESULTS=folder)


def command(ours: bool, *arguments: str | Path) -> list[str]:
    """The command line that runs Python with ziggurat as `triton`, or with the installed Triton."""
    return [sys.executable, *(("-m", "ziggurat.triton") if ours else ()), *map(str, arguments)]


def start(ours: bool) -> dict[str, Any]:
    """The measurements that `triton_program.py` prints, and the seconds of its process."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        line = command(ours, HERE.with_name("triton_program.py"))
        done = subprocess.run(line, env=environment(folder), capture_output=True, text=True, check=False)
        if done.returncode:
            return {"error": done.stderr[-500:]}
        return json.loads(done.stdout.splitlines()[-1]) | {"process s": round(time.perf_counter() - begin, 3)}


class Worker:
    """A process of one compiler, which answers questions by a line of JSON each."""

    def __init__(self, ours: bool, options: argparse.Namespace):
        self.folder = tempfile.TemporaryDirectory()
        folders = [(key, getattr(options, key)) for key in ("tutorials", "liger") if getattr(options, key)]
        line = command(ours, HERE, options.report, "--worker", *(x for key, at in folders for x in (f"--{key}", at)))
        line += ["--first-calls"] if options.first_calls else []
        self.log = Path(self.folder.name, "log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                line,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment(self.folder.name),
            )

    def ask(self, what: str, name: str) -> dict[str, Any]:
        """The answer to a question; `error` where the process has died."""
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(f"{what}\t{name}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return {"error": "the process has died"}
        for text in self.process.stdout:
            if text.startswith("{"):
                return json.loads(text)
        return {"error": "the process has died: " + self.log.read_text()[-400:]}


def serve(options: argparse.Namespace) -> None:
    """Answer questions of the parent until it closes the input."""
    import torch

    builders = works(options)
    work_of: dict[str, Work] = {}
    measuring = one_at_a_time(options.first_calls)
    for text in sys.stdin:
        what, name = text.rstrip("\n").split("\t")
        try:
            if what == "prepare":
                torch.manual_seed(0)
                work_of[name] = builders[name]()
                begin, before = time.perf_counter(), measuring[0]
                work_of[name]()
                torch.cuda.synchronize()
                seconds = time.perf_counter() - begin - (measuring[0] - before)
                answer: dict[str, Any] = {"seconds": round(seconds, 3), "tuning": round(measuring[0] - before, 3)}
                torch.cuda.empty_cache()
            elif what == "measure":
                answer = {"kernels": kernel_times(work_of[name])}
            else:
                path = f"{os.environ['RESULTS']}/result"
                torch.save([tensor.detach().cpu() for tensor in tensors(work_of[name]())], path)
                answer = {"path": path}
        except Exception as error:
            place = [text for text in traceback.format_exc().splitlines() if ".py" in text][-2:]
            answer = {"error": f"{type(error).__name__}: {str(error)[:800]} {place}"}
        print(json.dumps(answer), flush=True)


def one_at_a_time(none: bool) -> list[float]:
    """Let one process at a time measure the configurations of a kernel; returns where its seconds are counted.

    With `none`, each configuration runs once, and counts as equally fast.
    """
    from triton.runtime.autotuner import Autotuner

    seconds, times = [0.0], Autotuner.__dict__["do_bench"]
    getter = getattr(times, "fget", None) or times.func

    def alone(tuner: Any) -> Callable[..., Any]:
        bench = getter(tuner)

        def measured(call: Callable[[], Any], **options: Any) -> Any:
            call()
            if none:
                return [1.0, 1.0, 1.0]
            begin = time.perf_counter()
            with Path(tempfile.gettempdir(), "measuring").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                try:
                    return bench(call, **options)
                finally:
                    seconds[0] += time.perf_counter() - begin

        return measured

    Autotuner.do_bench = property(alone)
    return seconds


def tensors(value: Any) -> list[Any]:
    """The tensors in what a work returns."""
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in tensors(item)]
    return [value] if hasattr(value, "detach") else []


def kernel_times(work: Work, calls: int = 15) -> dict[str, float]:
    """Microseconds of the kernels of a call, by name: the median of a launch times the launches of a call."""
    import torch

    flush = torch.empty(64 << 20, dtype=torch.int32, device="cuda")
    for _ in range(2):
        work()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(calls):
            flush.zero_()
            work()
        torch.cuda.synchronize()
    times: dict[str, list[float]] = {}
    for event in profile.events():
        if str(event.device_type).endswith("CUDA") and not OTHERS.search(event.name):
            times.setdefault(event.name, []).append(event.device_time)
    return {name: statistics.median(samples) * len(samples) / calls for name, samples in times.items()}


def works(options: argparse.Namespace) -> dict[str, Callable[[], Work]]:
    """The builders of works by name: each makes the inputs, and returns the function that is measured."""
    work_of = dict(tutorial_works(options.tutorials)) if options.tutorials else {}
    return work_of | (liger_works(options.liger) if options.liger else {})


# Tutorials.


def tutorial(folder: Path, name: str) -> Any:
    """The module of a tutorial's kernels and of the functions that launch them, without its tests and measurements."""
    path = folder / f"{name}.py"
    statements = ast.parse(path.read_text(encoding="utf-8")).body
    first = next((index for index, statement in enumerate(statements) if runs(statement)), len(statements))
    defined = [
        statement
        for statement in statements[first:]
        if isinstance(statement, ast.FunctionDef | ast.ClassDef) and not runs(statement)
    ]
    module = types.ModuleType(f"tutorial_{name[:2]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    exec(compile(ast.Module([*statements[:first], *defined], []), str(path), "exec"), module.__dict__)
    return module


def runs(statement: ast.stmt) -> bool:
    """Whether a statement is no definition: a bare call, a loop, or a function that is a test or a measurement."""
    if isinstance(statement, ast.FunctionDef):
        texts = [ast.unparse(decorator) for decorator in statement.decorator_list]
        return any("perf_report" in text or "pytest" in text for text in texts)
    is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    return is_call or isinstance(statement, ast.For | ast.With)


def tutorial_works(folder: Path) -> dict[str, Callable[[], Work]]:
    def normal(*shape: int, dtype: str = "float16") -> Any:
        import torch

        values = torch.randn(shape, device="cuda", dtype=torch.float32)
        return values.to(getattr(torch, dtype))

    def matmul(
        name: str, call: str, *rest: Any, n: int = 4096, dtype: str = "float16", transposed: bool = False
    ) -> Any:
        def build() -> Work:
            function = getattr(tutorial(folder, name), call)
            a, b = normal(n, n, dtype=dtype), normal(n, n, dtype=dtype)
            b = b.T if transposed else b
            return lambda: function(a, b, *rest)

        return build

    def attention(dim: int, causal: bool, backward: bool) -> Any:
        def build() -> Work:
            function = tutorial(folder, "06-fused-attention").attention
            q, k, v = (normal(4, 32, 4096, dim).requires_grad_() for _ in range(3))
            if not backward:
                return lambda: function(q, k, v, causal, dim**-0.5, False)
            out = function(q, k, v, causal, dim**-0.5, False)
            grad = normal(4, 32, 4096, dim)
            import torch

            return lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)

        return build

    def layer_norm(backward: bool) -> Callable[[], Work]:
        def build() -> Work:
            import torch

            function = tutorial(folder, "05-layer-norm").LayerNorm.apply
            x = normal(4096, 8192).requires_grad_()
            weight, bias = normal(8192).requires_grad_(), normal(8192).requires_grad_()
            if not backward:
                return lambda: function(x, (8192,), weight, bias, 1e-5)
            out = function(x, (8192,), weight, bias, 1e-5)
            grad = normal(4096, 8192)
            return lambda: torch.autograd.grad(out, (x, weight, bias), grad, retain_graph=True)

        return build

    def simple(name: str, call: str, *shapes: tuple[int, ...]) -> Callable[[], Work]:
        def build() -> Work:
            function = getattr(tutorial(folder, name), call)
            tensors = [normal(*shape, dtype="float32") for shape in shapes]
            return lambda: function(*tensors)

        return build

    def dropout() -> Work:
        function, x = tutorial(folder, "04-low-memory-dropout").seeded_dropout, normal(1 << 24, dtype="float32")
        return lambda: function(x, 0.5, 123)

    def asin() -> Work:
        import torch
        import triton

        kernel = tutorial(folder, "07-extern-functions").asin_kernel
        x = torch.rand(1 << 24, device="cuda")
        out = torch.empty_like(x)

        def run() -> Any:
            kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK_SIZE"]),)](x, out, x.numel(), BLOCK_SIZE=1024)
            return out

        return run

    def grouped(tma: bool) -> Callable[[], Work]:
        def build() -> Work:
            module = tutorial(folder, "08-grouped-gemm")
            a, b = [normal(1024, 1024) for _ in range(4)], [normal(1024, 1024) for _ in range(4)]
            return lambda: (module.group_gemm_tma_fn if tma else module.group_gemm_fn)(a, b)

        return build

    persistent = "09-persistent-matmul"
    transposition = {"dtype": "float16", "transposed": True}
    builders: dict[str, Callable[[], Work]] = {
        "01 add": simple("01-vector-add", "add", (1 << 26,), (1 << 26,)),
        "02 softmax": simple("02-fused-softmax", "softmax", (8192, 4096)),
        "03 matmul": matmul("03-matrix-multiplication", "matmul"),
        "03 matmul fp8": matmul("03-matrix-multiplication", "matmul", dtype="float8_e5m2", transposed=True),
        "04 dropout": dropout,
        "05 layer norm": layer_norm(False),
        "05 layer norm backward": layer_norm(True),
        "07 asin": asin,
        "08 grouped": grouped(False),
        "08 grouped TMA": grouped(True),
        "09 matmul": matmul(persistent, "matmul", **transposition),
        "09 TMA": matmul(persistent, "matmul_tma", False),
        "09 persistent": matmul(persistent, "matmul_persistent", **transposition),
        "09 TMA persistent": matmul(persistent, "matmul_tma_persistent", False),
        "09 descriptors persistent": matmul(persistent, "matmul_descriptor_persistent", False),
        "11 add": simple("11-programmatic-dependent-launch", "add", (1 << 26,), (1 << 26,)),
    }
    for dim, causal, backward in itertools.product((64, 128), (False, True), (False, True)):
        words = ("06 attention", str(dim), *(["causal"] * causal), *(["backward"] * backward))
        builders[" ".join(words)] = attention(dim, causal, backward)
    return builders


# Liger-Kernel: rows of a model with 4096 features and 32000 words.

ROWS, WIDTH, WORDS = 8192, 4096, 32000


def liger_works(folder: Path) -> dict[str, Callable[[], Work]]:
    """Forward and backward of each operation in one call, in bf16."""

    def work(module: str, function: str, make: Callable[[Any], Sequence[Any]]) -> Callable[[], Work]:
        def build() -> Work:
            import importlib

            import torch

            if str(folder) not in sys.path:
                sys.path.insert(0, str(folder))
            apply = getattr(importlib.import_module(f"liger_kernel.ops.{module}"), function).apply
            inputs = make(torch)
            leaves = [item for item in inputs if hasattr(item, "requires_grad") and item.requires_grad]
            grads: list[Any] = []

            def run() -> Any:
                # Some operations write their gradients over what they were given.
                copies = [item.clone() if hasattr(item, "clone") and item.requires_grad else item for item in inputs]
                out = apply(*copies)
                outs = [item for item in (out if isinstance(out, tuple) else (out,)) if hasattr(item, "detach")]
                results = [item.detach().clone() for item in outs]
                outs = [item for item in outs if item.requires_grad]
                if not grads:
                    generator = torch.Generator("cuda").manual_seed(1)
                    for item in outs:
                        noise = torch.randn(item.shape, device="cuda", generator=generator)
                        grads.append(noise.to(item.dtype) if item.dim() else torch.ones_like(item))
                return results, torch.autograd.grad(
                    outs, leaves, [gradient.clone() for gradient in grads], allow_unused=True
                )

            return run

        return build

    def given(*shape: int, scale: float = 1.0, dtype: str = "bfloat16") -> Any:
        import torch

        return (torch.randn(shape, device="cuda") * scale).to(getattr(torch, dtype)).requires_grad_()

    def rows() -> Any:
        return given(ROWS, WIDTH)

    def labels(torch: Any) -> Any:
        return torch.randint(0, WORDS, (ROWS,), device="cuda")

    def angles(torch: Any) -> tuple[Any, Any]:
        angle = torch.rand(1, 2048, 128, device="cuda") * 6
        return angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)

    def log_rows(torch: Any) -> Any:
        return torch.randn(ROWS // 2, WORDS, device="cuda").log_softmax(-1).detach().requires_grad_()

    def shares(torch: Any) -> Any:
        return torch.randn(ROWS // 2, WORDS, device="cuda").softmax(-1).detach()

    def heads() -> tuple[Any, Any]:
        return given(4, 32, 2048, 128), given(4, 8, 2048, 128)

    return {
        f"Liger {name}": work(*parts)
        for name, parts in {
            "SwiGLU": ("swiglu", "LigerSiLUMulFunction", lambda _: (given(ROWS, 11008), given(ROWS, 11008))),
            "GEGLU": ("geglu", "LigerGELUMulFunction", lambda _: (given(ROWS, 11008), given(ROWS, 11008))),
            "RMS norm": ("rms_norm", "LigerRMSNormFunction", lambda _: (rows(), given(WIDTH), 1e-6)),
            "fused add RMS norm": (
                "fused_add_rms_norm",
                "LigerFusedAddRMSNormFunction",
                lambda _: (rows(), rows(), given(WIDTH), 1e-6),
            ),
            "layer norm": (
                "layer_norm",
                "LigerLayerNormFunction",
                lambda _: (rows(), given(WIDTH), given(WIDTH), 1e-6),
            ),
            "group norm": (
                "group_norm",
                "LigerGroupNormFunction",
                lambda _: (
                    given(32, 512, 1024, dtype="float32"),
                    *(given(512, dtype="float32") for _ in "wb"),
                    512,
                    32,
                    1e-6,
                ),
            ),
            "poly norm": ("poly_norm", "LigerPolyNormFunction", lambda _: (rows(), given(3), given(), 1e-6)),
            "DyT": ("dyt", "LigerDyTFunction", lambda _: (rows(), given(1), given(WIDTH), given(WIDTH))),
            "RoPE": ("rope", "LigerRopeFunction", lambda torch: (*heads(), *angles(torch))),
            "softmax": ("softmax", "LigerSoftmaxFunction", lambda _: (given(ROWS, 8192),)),
            "sparsemax": ("sparsemax", "LigerSparsemaxFunction", lambda _: (given(ROWS, 4096, dtype="float32"), -1)),
            "ReLU squared": ("relu_squared", "LigerReLUSquaredFunction", lambda _: (given(ROWS, 11008),)),
            "cross entropy": (
                "cross_entropy",
                "LigerCrossEntropyFunction",
                lambda torch: (given(ROWS, WORDS), labels(torch), None),
            ),
            "fused linear cross entropy": (
                "fused_linear_cross_entropy",
                "LigerFusedLinearCrossEntropyFunction",
                lambda torch: (given(ROWS, WIDTH, scale=0.02), given(WORDS, WIDTH, scale=0.02), labels(torch)),
            ),
            "KL": ("kl_div", "LigerKLDivLossFunction", lambda torch: (log_rows(torch), shares(torch))),
            "JSD": ("jsd", "LigerJSDFunction", lambda torch: (log_rows(torch), log_rows(torch).detach())),
            "TVD": ("tvd", "LigerTVDLossFunction", lambda torch: (shares(torch).requires_grad_(), shares(torch))),
        }.items()
    }


if __name__ == "__main__":
    sys.exit(main())
