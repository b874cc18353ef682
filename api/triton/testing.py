"""`triton.testing`: measurements, benchmarks with tables and plots, and comparisons of tensors."""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from ziggurat.testing import reports
from ziggurat.triton.runtime.driver import HostDriver, driver


class Benchmark(reports.Benchmark):
    """The lines of a plot; see `zg.testing.Benchmark`. `color`, of Triton before 3.2, has no effect."""

    def __init__(self, *arguments: Any, color: Any = None, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    *,
    fast_flush: bool = True,
    device_type: str | None = None,
) -> Any:
    """The time that `fn()` takes in milliseconds, after `warmup` milliseconds of calls, over `rep` milliseconds.

    The result is the "mean", "min", "max" or "median" of the calls, the list of "all", or the `quantiles`: one number
    for one quantile, a list for more. The gradients of the tensors `grad_to_none` are dropped before each call. On a
    machine without a GPU the time is that of this machine. `fast_flush` and `device_type`, of Triton before 3.2, have
    no effect.
    """
    return _measured(fn, warmup, rep, False, grad_to_none, quantiles, return_mode)


def do_bench_cudagraph(
    fn: Callable[[], Any],
    rep: float = 20,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """The time that `fn()` takes in a CUDA graph of many calls, in milliseconds; see `do_bench`."""
    return _measured(fn, rep, rep, True, grad_to_none, quantiles, return_mode)


def _measured(
    fn: Callable[[], Any],
    warmup: float,
    rep: float,
    graph: bool,
    grad_to_none: Iterable[Any] | None,
    quantiles: Sequence[float] | None,
    return_mode: str,
) -> Any:
    from ziggurat.backend.cuda.gpu_timing import do_bench as bench

    tensors = list(grad_to_none or ())

    def call() -> None:
        for tensor in tensors:
            tensor.grad = None
        fn()

    host = isinstance(driver.active, HostDriver)
    result = bench(call, warmup, rep, graph=graph, quantiles=quantiles, return_mode=return_mode, host=host)
    return result[0] if quantiles is not None and len(result) == 1 else result


def assert_close(x: Any, y: Any, atol: Any = None, rtol: Any = None, err_msg: str = "") -> None:
    """Raise `AssertionError` unless two tensors, arrays or numbers agree: |x - y| <= atol + rtol * |y|.

    `atol` is 0.01 by default, `rtol` 0. Either may be a function of the dtype of `x`.
    """
    torch: Any = importlib.import_module("torch")
    actual, expected = (value if isinstance(value, torch.Tensor) else torch.tensor(value) for value in (x, y))
    tolerances = ((atol, 1e-2), (rtol, 0.0))
    tolerance_pair: list[Any] = [default if tolerance is None else tolerance for tolerance, default in tolerances]
    absolute: Any
    relative: Any
    absolute, relative = (tolerance(actual.dtype) if callable(tolerance) else tolerance for tolerance in tolerance_pair)
    a, b = ((x.float() if x.dtype == torch.bfloat16 else x).detach().cpu().numpy() for x in (actual, expected))
    np.testing.assert_allclose(a, b, atol=absolute, rtol=relative, equal_nan=True, err_msg=err_msg)


class Mark:
    """A function with its benchmarks. Called, it is the function."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Benchmark | Sequence[Benchmark]) -> None:
        self.fn = fn
        self.benchmarks = benchmarks

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.fn(*arguments, **keywords)

    def run(
        self,
        show_plots: bool = False,
        print_data: bool = False,
        save_path: str = "",
        return_df: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Measure everything: see `zg.testing.perf_report`. Further keywords are given to the function.

        With `return_df`, the result is a table of pandas, or a list of them for several benchmarks.
        """
        single = isinstance(self.benchmarks, Benchmark)
        benchmarks = [self.benchmarks] if isinstance(self.benchmarks, Benchmark) else self.benchmarks
        marks = [attrs.evolve(benchmark, args={**benchmark.args, **kwargs}) for benchmark in benchmarks]
        report = reports.Report(self.fn, marks)
        tables = report.run(print_data=print_data, show_plots=show_plots, save_path=save_path or None)
        if not return_df:
            return None
        pandas: Any = importlib.import_module("pandas")
        frames = [pandas.DataFrame(table.records()) for table in tables]
        return frames[0] if single else frames


def perf_report(benchmarks: Benchmark | Sequence[Benchmark]) -> Callable[[Callable[..., Any]], Mark]:
    """Decorator of a function that gives a time or a rate, or a median with a low and a high one."""
    return lambda fn: Mark(fn, benchmarks)


def nvsmi(attrs: Iterable[str]) -> list[int]:
    """Numbers that nvidia-smi tells of the first GPU: `nvsmi(["clocks.max.sm"])`. Raises `FileNotFoundError` without
    it."""
    command = ["nvidia-smi", "-i", "0", f"--query-gpu={','.join(attrs)}", "--format=csv,noheader,nounits"]
    return [int(number) for number in subprocess.check_output(command, text=True).split(",")]


def get_dram_gbps(device: int | None = None) -> float:
    """The bandwidth of the memory of a GPU in GB/s, from its clock and the width of its bus."""
    properties = _properties(device)
    return properties["mem_clock_rate"] * properties["mem_bus_width"] * 2 / 1e6 / 8


def _properties(device: int | None) -> dict[str, int]:
    active = driver.active
    return active.utils.get_device_properties(active.get_current_device() if device is None else device)


def get_max_tensorcore_tflops(dtype: Any, clock_rate: float, device: int | None = None) -> float:
    """The rate of dots on tensor cores in TFLOPS for a dtype of PyTorch, at a clock rate in kHz.

    As Triton has it: the rate of an A100's tensor cores in each multiprocessor of the GPU.
    """
    return _rate({4: 256, 2: 512, 1: 1024}, dtype, clock_rate, device)


def get_max_simd_tflops(dtype: Any, clock_rate: float, device: int | None = None) -> float:
    """The rate of operations without tensor cores in TFLOPS for a dtype of PyTorch, at a clock rate in kHz."""
    return _rate({4: 32, 2: 64}, dtype, clock_rate, device)


def _rate(operations: Mapping[int, int], dtype: Any, clock_rate: float, device: int | None) -> float:
    """The rate for the operations of a subcore in a cycle, by the bytes of an element."""
    if dtype.itemsize not in operations:
        raise RuntimeError("dtype not supported")
    return _properties(device)["multiprocessor_count"] * 4 * clock_rate * operations[dtype.itemsize] * 1e-9
