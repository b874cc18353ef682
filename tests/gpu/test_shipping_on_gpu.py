"""Libraries on a GPU: launched by their loader, and by a program in C."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from libraries import require
from shipped import GCC, needs_gcc, needs_linux

import ziggurat as zg
from ziggurat.backend.devices.driver import current_device
from ziggurat.cli import main

pytestmark = [pytest.mark.gpu, needs_linux]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shipping") / "kernels"
    targets = ["--target", current_device().target, "--target", "cpu"]
    assert main(["build", str(ROOT / "examples" / "shipping.py"), "-o", str(folder), *targets]) == 0
    return folder


@pytest.fixture(scope="module")
def library(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("shipped_kernels", folder / "__init__.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("rows", "columns"), [(4, 1024), (300, 777), (1, 1)])
def test_softmax(library: Any, rng: np.random.Generator, rows: int, columns: int) -> None:
    x = rng.standard_normal((rows, columns), np.float32)
    there, out = zg.to_device(x), zg.to_device(np.zeros_like(x))
    library.softmax_kernel[(rows,)](out, there, columns, columns, columns, BLOCK_SIZE=1024)
    expected = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(zg.to_host(out), expected / expected.sum(1, keepdims=True), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 64), (1000, 528, 320), (4096, 4096, 512), (100, 16, 16)])
def test_matmul(library: Any, rng: np.random.Generator, m: int, n: int, k: int) -> None:
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    there = [zg.to_device(array) for array in (a, b, np.zeros((m, n), np.float16))]
    numbers = m, n, k, k, 1, n, 1, n, 1
    for _ in range(2):
        library.matmul_kernel[(-(-m // 128) * -(-n // 128),)](
            *there, *numbers, BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, GROUP_SIZE=8
        )
    np.testing.assert_array_equal(
        zg.to_host(there[2]), (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    )


def test_attention(library: Any, rng: np.random.Generator) -> None:
    heads, length, d = 3, 1024, 64
    arrays = [rng.standard_normal((heads * length, d)).astype(np.float16) for _ in range(3)]
    there = [zg.to_device(array) for array in (*arrays, np.zeros_like(arrays[0]))]
    descriptors = [library.TensorDescriptor(array) for array in there]
    library.attention_kernel[(length // 128, heads)](
        *descriptors, length, d**-0.5, CAUSAL=False, BLOCK_M=128, BLOCK_N=64, D=d
    )
    q, k, v = (array.astype(np.float64).reshape(heads, length, d) for array in arrays)
    scores = np.exp(q @ k.transpose(0, 2, 1) / 8)
    expected = (scores / scores.sum(2, keepdims=True) @ v).reshape(-1, d)
    np.testing.assert_allclose(zg.to_host(there[3]), expected, rtol=4e-3, atol=4e-3)


def test_other_streams_and_captures(library: Any, rng: np.random.Generator) -> None:
    """With PyTorch, whose current stream is taken; a captured graph is launched again."""
    torch = require("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    x = torch.randn(64, 777, device="cuda")
    y, graph = torch.empty_like(x), torch.cuda.CUDAGraph()
    arguments = y, x, 777, 777, 777
    library.softmax_kernel[(64,)](*arguments, BLOCK_SIZE=1024)
    y.zero_()
    with torch.cuda.graph(graph):
        library.softmax_kernel[(64,)](*arguments, BLOCK_SIZE=1024)
    assert not y.any()
    graph.replay()
    torch.testing.assert_close(y, torch.softmax(x, 1))


def test_a_miss_on_a_gpu(library: Any) -> None:
    x = zg.to_device(np.zeros((4, 100), np.float32))
    with pytest.raises(library.Miss, match="'BLOCK_SIZE' must be 1024; got 128"):
        library.softmax_kernel[(4,)](x, x, 100, 100, 100, BLOCK_SIZE=128)


@needs_gcc
def test_a_program_in_c(folder: Path) -> None:
    """It says how far softmax, matmul and attention are off, and ends with 0 where that is little."""
    command = [str(GCC), "-O2", "-pthread", "-o", "main", str(ROOT / "examples" / "shipping.c"), f"-I{folder}"]
    subprocess.run([*command, str(folder / "kernels.a"), "-ldl", "-lm"], cwd=folder.parent, check=True, timeout=120)
    for where in ("cpu", "gpu"):
        done = subprocess.run(["./main", where], cwd=folder.parent, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout
        print(where, done.stdout)


def test_a_process_without_this_package(folder: Path) -> None:
    """The loader allocates by the driver itself here: `ziggurat` and `cuda.bindings` are not imported."""
    program = f"""
import ctypes, sys
sys.path.insert(0, {str(folder.parent)!r})
import kernels
cuda = ctypes.CDLL("libcuda.so.1")
context, x, y = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
assert not (cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or cuda.cuCtxSetCurrent(context))
rows = (ctypes.c_float * 400)(*(i % 7 for i in range(400)))
for place in (x, y):
    assert not cuda.cuMemAlloc_v2(ctypes.byref(place), 1600)
assert not cuda.cuMemcpyHtoD_v2(x, rows, ctypes.c_size_t(1600))
class Array:
    def __init__(self, address):
        self.__cuda_array_interface__ = dict(data=(address, False), shape=(400,), typestr="<f4", version=3)
kernels.softmax_kernel[(4,)](Array(y.value), Array(x.value), 100, 100, 100, BLOCK_SIZE=1024)
assert not cuda.cuMemcpyDtoH_v2(rows, y, ctypes.c_size_t(1600))
assert all(abs(sum(rows[100 * row:100 * row + 100]) - 1) < 1e-5 for row in range(4))
assert not {{"ziggurat", "cuda", "numpy", "llvmlite"}} & {{*sys.modules}}
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
