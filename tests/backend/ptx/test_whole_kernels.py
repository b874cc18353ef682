"""Kernels compiled as users compile them, all layouts assigned: simulated thread by thread, and assembled by ptxas."""

import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.assemble import to_llvm
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.transforms.gpu.gpu_passes import place
from ziggurat.transforms.gpu.hazards import hazards

PTXAS = Path(sysconfig.get_paths()["purelib"]) / "nvidia/cu13/bin/ptxas"
F32, I32 = zg.ptr(zg.f32), zg.ptr(zg.i32)


@zg.kernel
def softmax(x, y, n, BLOCK: zg.constexpr):
    columns = zg.arange(0, BLOCK)
    mask = zg.compare(columns, n, zg.CompareKind.LESS_THAN)
    at = zg.add(zg.mul(zg.program_id(0), n), columns)
    row = zg.load(zg.add(x, at), mask, -1e30)
    e = zg.exp2(zg.sub(row, zg.max(row, 0)))
    zg.store(zg.add(y, at), zg.div(e, zg.sum(e, 0)), mask)


@zg.kernel
def rows_and_columns(x, y, M: zg.constexpr, N: zg.constexpr):
    rows = zg.expand(zg.arange(0, M), 1)
    v = zg.load(zg.add(x, zg.add(zg.mul(rows, N), zg.expand(zg.arange(0, N), 0))))
    sums = zg.cumsum(v, 1)
    w = zg.add(zg.trans(sums), zg.expand(zg.sum(sums, 0), 1))
    down = zg.expand(zg.arange(0, N), 1)
    zg.store(zg.add(y, zg.add(zg.mul(down, M), zg.expand(zg.arange(0, M), 0))), w)


@zg.kernel
def sorted_and_largest(x, y, z, N: zg.constexpr):
    at = zg.arange(0, N)
    v = zg.load(zg.add(x, at))
    zg.store(zg.add(y, at), zg.sort(v))
    zg.store(zg.add(z, zg.arange(0, 8)), zg.topk(v, 8))


@zg.kernel
def counted_and_gathered(x, place, counts, transposed, N: zg.constexpr):
    at = zg.arange(0, N)
    v = zg.load(zg.add(x, at))
    zg.store(place, zg.argmax(v, 0))
    zg.store(zg.add(counts, zg.arange(0, 16)), zg.histogram(v, 16))
    zg.store(zg.add(transposed, at), zg.gather(v, zg.sub(N - 1, at), 0))


@zg.function
def larger(a, b):
    if zg.compare(a, b, zg.CompareKind.GREATER_THAN):
        return a
    return b


@zg.kernel
def running_maxima(x, y, rounds, N: zg.constexpr):
    at = zg.arange(0, N)
    v = zg.load(zg.add(x, at))
    for _ in zg.range(0, rounds):
        v = zg.sub(zg.associative_scan(v, 0, larger), zg.reduce(v, 0, larger))
    zg.store(zg.add(y, at), v)


RNG = np.random.default_rng(0)
FLOATS = RNG.standard_normal(4000).astype(np.float32)
NUMBERS = RNG.integers(-2, 20, 512).astype(np.int32)
KERNELS: dict[str, tuple[Any, tuple[Any, ...], list[Any], tuple[int, ...]]] = {
    "softmax": (softmax, (F32, F32, zg.i32, 1024), [FLOATS, np.zeros(4000, np.float32), 1000, 1024], (4,)),
    "rows": (rows_and_columns, (F32, F32, 32, 64), [FLOATS[:2048], np.zeros(2048, np.float32), 32, 64], (1,)),
    "sort": (
        sorted_and_largest,
        (F32, F32, F32, 128),
        [FLOATS[:128], np.zeros(128, np.float32), np.zeros(8, np.float32), 128],
        (1,),
    ),
    "long sort": (
        sorted_and_largest,
        (F32, F32, F32, 2048),
        [FLOATS[:2048], np.zeros(2048, np.float32), np.zeros(8, np.float32), 2048],
        (1,),
    ),
    "count": (
        counted_and_gathered,
        (I32, I32, I32, I32, 512),
        [NUMBERS, np.zeros(1, np.int32), np.zeros(16, np.int32), np.zeros(512, np.int32), 512],
        (1,),
    ),
    "maxima": (running_maxima, (F32, F32, zg.i32, 256), [FLOATS[:256], np.zeros(256, np.float32), 3, 256], (1,)),
}


def copies(arguments: Sequence[Any]) -> list[Any]:
    return [argument.copy() if isinstance(argument, np.ndarray) else argument for argument in arguments]


@pytest.mark.parametrize("num_warps", [1, 4, 8])
@pytest.mark.parametrize("name", KERNELS)
def test_simulated_as_the_reference(name: str, num_warps: int) -> None:
    kernel, types, arguments, grid = KERNELS[name]
    compiled = kernel.compile(*types, num_warps=num_warps)
    assert hazards(compiled.stages["gpu"]) == []
    actual, expected = copies(arguments), copies(arguments)
    inputs = [argument for argument, type_ in zip(actual, types, strict=True) if not isinstance(type_, int)]
    simulate(compiled.stages["llvm"], num_warps=num_warps, shared=compiled.shared, grid=grid, arguments=inputs)
    kernel[grid](*expected, interpret=True)
    for item, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(item, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", KERNELS)
def test_assembled_without_local_memory(name: str, target: str, tmp_path: Path) -> None:
    if not PTXAS.exists():
        pytest.skip("ptxas is not installed (pip install nvidia-cuda-nvcc)")
    kernel, types, _, _ = KERNELS[name]
    text = tmp_path / "kernel.ptx"
    text.write_text(kernel.compile(*types, target=target).ptx)
    command = [str(PTXAS), "-v", f"-arch={target}", str(text), "-o", str(tmp_path / "kernel.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in done.stderr
    assert ".local" not in text.read_text()


def test_the_code_of_a_sort_grows_with_n_log_n() -> None:
    """The stages of the sorting network are a loop; unrolled, they took 39,000 lines of LLVM text for 8192 keys."""
    models = {n: place(sorted_and_largest.triton(F32, F32, F32, n), CompileOptions("sm_90a")) for n in (2048, 8192)}
    lines = {n: len(to_llvm(model).splitlines()) for n, model in models.items()}
    assert lines[8192] < 4 * 13 / 11 * lines[2048] and lines[2048] < 7000
