"""Figures of docs/guides/shipping.md, without a GPU.

    python benchmarks/shipping.py start           # Python's start to the first result of a library's loader
    python benchmarks/shipping.py liger FOLDER    # Liger's kernels, recorded from a run on a CPU, and built for GPUs

FOLDER has the unpacked wheel of liger-kernel (pip download --no-deps liger-kernel); PyTorch's CPU build is enough.
"""

from __future__ import annotations

import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

TARGETS = ("sm_80", "sm_90a", "sm_100a")
FIRST = """
import array, sys
sys.path.insert(0, {folder!r})
import kernels
x, y = array.array("f", [i % 7 for i in range(400)]), array.array("f", bytes(1600))
kernels.softmax_kernel[(4,)](y, x, 100, 100, 100, BLOCK_SIZE=1024)
assert abs(sum(y[:100]) - 1) < 1e-4
"""


def ziggurat(*arguments: str, **environment: str) -> str:
    """What a command of ziggurat says."""
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ).stdout


def milliseconds(command: Sequence[str], count: int = 40) -> str:
    """The least and the median time of processes."""
    times: list[float] = []
    for _ in range(count):
        begin = time.perf_counter()
        subprocess.run(command, check=True)
        times.append(1e3 * (time.perf_counter() - begin))
    return f"least {min(times):.0f} ms, median {statistics.median(times):.0f} ms"


def start(folder: Path) -> None:
    example = Path(__file__).parents[1] / "examples" / "shipping.py"
    ziggurat("ziggurat", "build", str(example), "-o", str(folder / "kernels"), "--target", "cpu")
    python = [getattr(sys, "_base_executable", sys.executable), "-S", "-c"]
    print("Python alone:", milliseconds([*python, "pass"]))
    print("to the first result:", milliseconds([*python, FIRST.format(folder=str(folder))]))


def liger(folder: Path, library: str) -> None:
    recording, cache = str(folder / "launches.json"), str(folder / "cache")
    own = str(Path(__file__).resolve())
    print(ziggurat("ziggurat.triton", own, "operations", library, ZIGGURAT_RECORD=recording), end="")
    targets = [word for target in TARGETS for word in ("--target", target)]
    for _ in range(2):
        report = ziggurat(
            "ziggurat", "build", recording, "-o", str(folder / "liger"), *targets, ZIGGURAT_CACHE_DIR=cache
        )
        print(report.splitlines()[0])


def operations(library: str) -> None:
    """Run Liger's operations forward and backward, on small tensors of the CPU."""
    import torch

    sys.path.insert(0, library)
    rows, width, classes = 32, 256, 1024
    targets, count = torch.randint(0, classes, (rows,)), 0

    def attempt(module: str, name: str, arguments: Callable[[], tuple[Any, ...]]) -> None:
        nonlocal count
        try:
            result = getattr(importlib.import_module(f"liger_kernel.ops.{module}"), name).apply(*arguments())
            results = result if isinstance(result, tuple) else (result,)
            sum(part.float().sum() for part in results if getattr(part, "requires_grad", False)).backward()
            count += 1
        except Exception as error:  # Some need a GPU.
            print(f"left out: {name}: {type(error).__name__}: {error}"[:100])

    for dtype in (torch.bfloat16, torch.float32):

        def x(*shape: int, dtype: Any = dtype) -> Any:
            return torch.randn(*shape).to(dtype).requires_grad_()

        def p(dtype: Any = dtype) -> Any:
            return torch.randn(rows, classes).softmax(-1).to(dtype).requires_grad_()

        attempt("rms_norm", "LigerRMSNormFunction", lambda: (x(rows, width), x(width), 1e-6, 0.0, "llama", False))
        attempt("layer_norm", "LigerLayerNormFunction", lambda: (x(rows, width), x(width), x(width), 1e-6))
        attempt("group_norm", "LigerGroupNormFunction", lambda: (x(2, 8, 64), x(8), x(8), 8, 4, 1e-6))
        attempt("swiglu", "LigerSiLUMulFunction", lambda: (x(rows, width), x(rows, width)))
        attempt("geglu", "LigerGELUMulFunction", lambda: (x(rows, width), x(rows, width)))
        attempt("softmax", "LigerSoftmaxFunction", lambda: (x(rows, width),))
        attempt("sparsemax", "LigerSparsemaxFunction", lambda: (x(rows, width), -1))
        attempt("relu_squared", "LigerReLUSquaredFunction", lambda: (x(rows, width),))
        attempt("rope", "LigerRopeFunction", lambda: (x(2, 4, 16, 64), x(2, 2, 16, 64), x(1, 16, 64), x(1, 16, 64)))
        attempt(
            "fused_add_rms_norm", "LigerFusedAddRMSNormFunction",
            lambda: (x(rows, width), x(rows, width), x(width), 1e-6, 0.0, "llama", False),
        )  # fmt: skip
        attempt(
            "cross_entropy", "LigerCrossEntropyFunction",
            lambda: (x(rows, classes), targets, None, -100, 0.0, 0.0, "mean", None, False),
        )  # fmt: skip
        attempt(
            "fused_linear_cross_entropy", "LigerFusedLinearCrossEntropyFunction",
            lambda: (x(rows, width), x(classes, width), targets),
        )  # fmt: skip
        attempt("kl_div", "LigerKLDivLossFunction", lambda: (p().log(), p(), "batchmean", False, 1e-10))
        attempt("jsd", "LigerJSDFunction", lambda: (p().log(), p().log(), None, 0.5, -100))
        attempt("tvd", "LigerTVDLossFunction", lambda: (p(), p(), None, "batchmean", -100))
        attempt(
            "multi_token_attention", "LigerMultiTokenAttentionFunction",
            lambda: (x(2, 4, 32, 32), x(4, 1, 3, 3), None, 1, 1, 1, 4, False),
        )  # fmt: skip
    print(f"{count} operations, forward and backward")


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["operations"]:
        operations(arguments[1])
        return
    with tempfile.TemporaryDirectory() as folder:
        if arguments[:1] == ["liger"]:
            liger(Path(folder), os.path.abspath(arguments[1]))
        else:
            start(Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
