"""Cost of a launch on the host: ours with 19 arguments, a bare one of cuda.bindings, and Triton's if it is installed.

    python benchmarks/gpu_launch.py          # prints one JSON object; times are in microseconds

The kernel takes 6 arrays, 9 integers and a float, has 3 constexprs beside them, and does nothing. Each figure is the
median over rounds, between which the device's queue is emptied. The bare launch has its arguments already packed.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ziggurat.backend.cuda.binary import Binary, PtxParameter
from ziggurat.backend.cuda.device_memory import empty
from ziggurat.backend.cuda.launch import Dispatcher, Launched
from ziggurat.backend.cuda.packing import Packing, new_slot
from ziggurat.backend.cuda.specialize import KernelParameter, Specialization
from ziggurat.backend.devices.driver import cuda, synchronize
from ziggurat.backend.launch.grids import MAX_LAUNCHERS
from ziggurat.codemodel.recent import Recent

ARRAYS, INTEGERS = 6, (1024, 4096, 333, 17, 4096, 64, 128, 1000, 77)
BLOCKS = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
PTX_TYPES = {"ptr": "u64", "i32": "u32", "f32": "f32"}


class Idle(Launched):
    """A kernel of these parameters that does nothing."""

    name = "idle"

    def __init__(self, names: Sequence[str]) -> None:
        self.parameters = [KernelParameter(name, constexpr=name.isupper()) for name in names]
        self.launchers, self.compiled = Recent(MAX_LAUNCHERS), Recent(64)

    def built(self, spec: Specialization, /) -> Binary:
        return idle(spec)


def idle(spec: Specialization) -> Binary:
    """The code of the kernel for arguments."""
    kinds = [argument.field for argument in spec.run_time]
    parameters = ", ".join(f".param .{PTX_TYPES[kind]} p{number}" for number, kind in enumerate(kinds))
    code = f".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry idle({parameters})\n{{\n    ret;\n}}\n"
    return Binary("idle", code, 4, 0, tuple(map(PtxParameter, kinds)), "sm_80")


def host_times(calls: dict[str, Callable[[], Any]], count: int = 200, rounds: int = 25) -> dict[str, float]:
    """Microseconds of host time of each call, measured in turn, as the processor's speed changes."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            synchronize()
            start = time.perf_counter()
            for _ in range(count):
                call()
            times[name].append((time.perf_counter() - start) / count * 1e6)
    synchronize()
    return {name: round(sorted(samples)[rounds // 2], 2) for name, samples in times.items()}


def arrays(library: str) -> list[Any]:
    if library == "own":
        return [empty(64, np.float32) for _ in range(ARRAYS)]
    module: Any = importlib.import_module(library)
    if library == "torch":
        return [module.empty(64, device="cuda") for _ in range(ARRAYS)]
    return [module.empty(64, dtype=np.float32) for _ in range(ARRAYS)]


def launch_cost(library: str = "own") -> dict[str, float]:
    """Microseconds of a bare launch and of ours: with the same arguments as before, with other arrays than before, with
    another integer than before (out of two), and with one that is new each time."""
    a, b, c, d, e, f = arrays(library)
    names = [f"x{i}" for i in range(ARRAYS)] + [f"n{i}" for i in range(len(INTEGERS))] + ["scale", *BLOCKS]
    kernel = Dispatcher(Idle(names))
    m, n, k, r, s, t, u, v, w = INTEGERS
    grid = (1,)

    # Written out, as in a program: a call with `*arguments` costs 0.4 µs by itself.
    def launch() -> None:
        kernel.at(grid)(a, b, c, d, e, f, m, n, k, r, s, t, u, v, w, 0.5, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)

    numbers = iter(range(2, 10**9))

    def renew() -> None:
        new = next(numbers)
        kernel.at(grid)(a, b, c, d, e, f, new, n, k, r, s, t, u, v, w, 0.5, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)

    pairs = itertools.cycle([(a, b), (b, a)])

    def move() -> None:
        p, q = next(pairs)
        kernel.at(grid)(p, q, c, d, e, f, m, n, k, r, s, t, u, v, w, 0.5, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)

    two = itertools.cycle([1000, 2000])

    def alternate() -> None:
        run = next(two)
        kernel.at(grid)(a, b, c, d, e, f, run, n, k, r, s, t, u, v, w, 0.5, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)

    driver = cuda()
    for _ in range(20):
        launch()
        move()
        alternate()
        renew()
    code, *_ = kernel.kernel.compiled.values()
    binary, *_ = code.contexts.values()
    packing = Packing.of(["ptr"] * ARRAYS + ["i32"] * len(INTEGERS) + ["f32"])
    buffer, pointers = new_slot(packing.size, packing.offsets)
    packing.write(buffer, [0] * ARRAYS + [*INTEGERS, 0.5])
    stream, function, bare_launch = driver.CUstream(0), binary.function, driver.cuLaunchKernel

    def bare() -> None:
        bare_launch(function, 1, 1, 1, 128, 1, 1, 0, stream, pointers, 0)

    calls = {
        "bare": bare,
        "launch": launch,
        "launch with other arrays": move,
        "launch with another integer": alternate,
        "launch with a new integer": renew,
    }
    host_times(calls)  # The first rounds are slower, whatever they launch.
    figures = host_times(calls)
    figures["ratio"] = round(figures["launch"] / figures["bare"], 3)
    return figures


def triton_cost() -> float:
    """Microseconds of Triton's launch with arguments of the same kinds."""
    # `triton.jit` finds `tl` among the globals of a module only, so the kernel is in one.
    from kernels_triton import idle as idle_triton

    a, b, c, d, e, f = arrays("torch")
    m, n, k, r, s, t, u, v, w = INTEGERS

    def launch() -> None:
        idle_triton[(1,)](a, b, c, d, e, f, m, n, k, r, s, t, u, v, w, 0.5, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)

    for _ in range(20):
        launch()
    return host_times({"launch": launch})["launch"]


def main() -> None:
    """Print the figures."""
    report: dict[str, Any] = {"own arrays": launch_cost()}
    for library in ("torch", "cupy"):
        if importlib.util.find_spec(library) is not None:
            report[library] = launch_cost(library)
    if importlib.util.find_spec("triton") is not None and "torch" in report:
        report["Triton"] = {"launch": triton_cost()}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
