"""Cost of a first launch: cold, each in a process and with caches of its own, ours and Triton's.

    python benchmarks/gpu_compile.py          # tables, and one JSON object at the end; times are in seconds

These are rows of `gpu_ladder.py`, which has their bars.

A process makes its arrays first, with torch for Triton and without it for ours, so that the driver's start and torch's
import are not counted. What counts is the import of the compiler, compiling, loading (with the driver's assembly) and
the launch, to its end. The parts of our time are taken in a process of their own. Medians of several processes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

KERNELS = ("add", "matmul")
ROUNDS = 3
SIZE = 512
TILE = {"M": 128, "N": 256, "K": 64, "GROUP": 8}


def launch(kernel: str, kernels: Any, arrays: list[Any]) -> None:
    """The launch that is measured, for ours and for Triton's."""
    if kernel == "add":
        kernels.add[(SIZE * SIZE // 1024,)](*arrays, SIZE * SIZE, BLOCK=1024, num_warps=4)
    else:
        grid = (SIZE // TILE["M"] * (SIZE // TILE["N"]),)
        strides = (SIZE, 1) * 3
        kernels.matmul[grid](*arrays, SIZE, SIZE, SIZE, *strides, **TILE, num_warps=8, num_stages=3)


def our_arrays(kernel: str) -> list[Any]:
    """Three arrays, made by the driver alone: nothing of the compiler is imported."""
    from cuda.bindings import driver

    driver.cuInit(0)
    context = driver.cuDevicePrimaryCtxRetain(driver.cuDeviceGet(0)[1])[1]
    driver.cuCtxSetCurrent(context)
    kind = "<f4" if kernel == "add" else "<f2"
    size = SIZE * SIZE * int(kind[2])
    pointers = [int(driver.cuMemAlloc(size)[1]) for _ in range(3)]
    for pointer in pointers:
        driver.cuMemsetD8(pointer, 0, size)

    class Array:
        def __init__(self, pointer: int) -> None:
            self.__cuda_array_interface__ = {
                "shape": (SIZE, SIZE), "typestr": kind, "data": (pointer, False), "version": 3, "strides": None,
            }  # fmt: skip

    return [Array(pointer) for pointer in pointers]


def child_ours(kernel: str) -> dict[str, float]:
    arrays = our_arrays(kernel)
    start = time.perf_counter()
    import kernels_ours

    imported = time.perf_counter()
    launch(kernel, kernels_ours, arrays)
    from ziggurat.backend.devices.driver import synchronize

    synchronize()
    end = time.perf_counter()
    return {"total": end - start, "import": imported - start}


def child_theirs(kernel: str) -> dict[str, float]:
    import torch

    kind = torch.float32 if kernel == "add" else torch.float16
    arrays = [torch.zeros(SIZE, SIZE, device="cuda", dtype=kind) for _ in range(3)]
    torch.cuda.synchronize()
    start = time.perf_counter()
    import kernels_triton

    imported = time.perf_counter()
    launch(kernel, kernels_triton, arrays)
    torch.cuda.synchronize()
    end = time.perf_counter()
    return {"total": end - start, "import": imported - start}


def child_parts(kernel: str) -> dict[str, float]:
    """The parts of our time, one by one."""
    arrays = our_arrays(kernel)
    times: dict[str, float] = {}
    last = time.perf_counter()

    def part(name: str) -> None:
        nonlocal last
        now = time.perf_counter()
        times[name] = now - last
        last = now

    import kernels_ours

    import ziggurat as zg

    part("import ziggurat")
    function = getattr(kernels_ours, kernel)
    assert function.model is not None
    part("read the source: Python model")
    pointer = zg.divisible(zg.ptr(zg.f32 if kernel == "add" else zg.f16), 16)
    n = zg.divisible(zg.i32, 16)
    strides: list[Any] = [n, 1] * 3
    arguments = [pointer] * 3 + ([n, 1024] if kernel == "add" else [n, n, n, *strides, *TILE.values()])
    model = function.triton(*arguments)
    part("types and simplification: Triton model")
    from ziggurat.backend.ptx import assemble as assembly
    from ziggurat.codemodel.gpu.options import CompileOptions
    from ziggurat.compiler.pipeline import compile_model
    from ziggurat.transforms.gpu.gpu_passes import place

    part("import the lower half")
    warps = 4 if kernel == "add" else 8
    placed_model = place(model, CompileOptions("sm_90a", warps, 3))
    part("placing: GPU model")
    from ziggurat.backend.llvm.binding import llvm

    llvm()
    part("import llvmlite")
    to_ptx = assembly.to_ptx

    def timed(text: str, target: str) -> str:
        part("emission: LLVM text")
        ptx = to_ptx(text, target)
        part("LLVM: PTX")
        return ptx

    assembly.to_ptx = timed
    compiled = compile_model(placed_model, CompileOptions("sm_90a", warps))
    from ziggurat.backend.cuda.launch import Launcher
    from ziggurat.backend.devices.driver import synchronize

    part("import the runtime")
    binary = compiled.binary
    launcher = Launcher(binary)
    launcher.in_context()
    part("the driver's assembler")
    numbers = [SIZE * SIZE] if kernel == "add" else [SIZE] * 6
    launcher((1,), *arrays, *numbers)
    synchronize()
    part("launch")
    return times


def measured(child: str, kernel: str, bytecode: str) -> list[dict[str, float]]:
    """The times of a child, in several processes with empty caches; but the modules' bytecode is there, as it is where
    packages are installed: the first process makes it, and does not count."""
    samples: list[dict[str, float]] = []
    for _ in range(ROUNDS + 1):
        with tempfile.TemporaryDirectory() as folder:
            home = {"HOME": folder, "TRITON_CACHE_DIR": f"{folder}/triton", "CUDA_CACHE_DISABLE": "1"}
            python = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": bytecode}
            done = subprocess.run(
                [sys.executable, __file__, child, kernel],
                env={**os.environ, **home, **python},
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        if done.returncode:
            raise SystemExit(f"{child} {kernel} failed:\n{done.stderr[-3000:]}")
        samples.append(json.loads(done.stdout.splitlines()[-1]))
    return samples[1:]


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(times[name] for times in rounds), 4) for name in rounds[0]}


CHILDREN: dict[str, Callable[[str], dict[str, float]]] = {
    "ours": child_ours,
    "Triton": child_theirs,
    "parts": child_parts,
}


def main() -> None:
    if len(sys.argv) == 3:
        print(json.dumps(CHILDREN[sys.argv[1]](sys.argv[2])))
        return
    children = [name for name in CHILDREN if name != "Triton" or importlib.util.find_spec("triton") is not None]
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as bytecode:
        for kernel in KERNELS:
            row: dict[str, Any] = {who: medians(measured(who, kernel, bytecode)) for who in children}
            totals = {who: row[who]["total"] for who in ("ours", "Triton") if who in row}
            if len(totals) == 2:
                row["ratio"] = round(totals["Triton"] / totals["ours"], 2)
            report[kernel] = row
            print(f"{kernel}: {', '.join(f'{who} {time_:.3f} s' for who, time_ in totals.items())}", flush=True)
            for name, seconds in row["parts"].items():
                print(f"    {name:42} {seconds * 1e3:8.1f} ms")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
