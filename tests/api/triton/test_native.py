"""Triton's programs as native code: options, tolerance, tuning, `TRITON_INTERPRET`."""

from __future__ import annotations

import pickle
import time
import warnings
import weakref
from typing import Any

import numpy as np
import pytest
from libraries import require

import ziggurat as zg
from ziggurat import triton
from ziggurat.codemodel.errors import LaunchError, ZigguratWarning
from ziggurat.launches import compiled_launches
from ziggurat.triton import language as tl
from ziggurat.triton.backends.compiler import GPUTarget


def add(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < n) + 1, at < n)


def test_launches_give_the_compiled_kernel():
    kernel = triton.jit(add)
    x, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    first = kernel[(4,)](x, out, 100, BLOCK=32, num_warps=8, interpret=False)
    second = kernel[(4,)](x, out, 100, BLOCK=32, num_warps=8, interpret=False)
    assert first is second and (out == x + 1).all()
    assert kernel[(4,)](x, out, 100, BLOCK=32, num_warps=4, interpret=False) is not first


def test_no_launch_keeps_its_arrays():
    kernel, compiled = triton.jit(add), None
    for _ in range(3):
        arrays = np.ones(100, np.float32), np.zeros(100, np.float32)
        alive = [weakref.ref(array) for array in arrays]
        if compiled is None:
            compiled = kernel[(4,)](*arrays, 100, BLOCK=32, interpret=False)
        else:
            compiled.run(4, 1, 1, 0, None, None, None, None, None, *arrays, 100, 32)
        del arrays
        assert [reference() for reference in alive] == [None, None]


def test_a_kernel_for_the_cpu_is_compiled_for_no_gpu_and_run_without_its_function(monkeypatch: pytest.MonkeyPatch):
    """As PyTorch runs kernels of its compile workers, in less than 8 µs: those of pickles."""
    from ziggurat.compiler import pipeline

    def fail(*_: Any, **__: Any):
        raise AssertionError("it was compiled for a GPU")

    monkeypatch.setattr(pipeline, "compile_model", fail)
    kernel = triton.jit(add)
    source = triton.compiler.ASTSource(kernel, {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32"}, {"BLOCK": 128})
    compiled = triton.compile(source, target=GPUTarget("cpu", 0, 32), options={"num_warps": 8})
    assert compiled.metadata.name == compiled.name == "add" and compiled.metadata.target.backend == "cpu"
    assert compiled.packed_metadata == (8, 1, 0) and compiled.n_regs == compiled.n_spills == 0
    kernel.fn, kernel.__globals__ = None, None
    received = type(compiled).__new__(type(compiled))
    vars(received).update(pickle.loads(pickle.dumps(compiled.__getstate__())), run=None, function=None)
    received._init_handles()
    x, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)

    def run(x: Any, out: Any, n: Any) -> None:
        received.run(1, 1, 1, 0, None, None, None, None, None, x, out, n, 128)

    run(x, out, 100)
    assert (out == x + 1).all()
    with monkeypatch.context() as patched:
        patched.setattr(compiled_launches, "checked", fail)
        run(x * 2, out, 99)  # By the table that the first launch has left.
        assert (out[:99] == x[:99] * 2 + 1).all() and out[99] == 100
        with pytest.raises(AssertionError):
            run(x.astype(np.float64), out, 99)
    with pytest.raises(LaunchError, match="is compiled for an array of f32"):
        run(x.astype(np.float64), out, 99)
    times = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(1000):
            run(x, out, 100)
        times.append((time.process_time() - start) / 1000)
    assert min(times) < 8e-6


def test_programs_reach_all_memory_that_an_array_is_a_view_of():
    kernel = triton.jit(add)
    x, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    for _ in range(2):
        kernel[(1,)](x[4:20], out[4:20], 32, BLOCK=32, interpret=False)
    assert (out[4:36] == x[4:36] + 1).all() and not out[36:].any()
    with pytest.warns(ZigguratWarning, match="reads x_ptr"):
        kernel[(4,)](x[4:20], out[4:20], 128, BLOCK=32, interpret=False)


def strays(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    whole = tl.load(x + at)
    masked = tl.load(x + at * 3, mask=at < n, other=5)
    gathered = tl.load(x + (at ^ 1), mask=at < n + 8, other=7)
    tl.store(out + at, whole + masked + gathered + 10 // (at - 3) + at % (at - 5))
    tl.store(out + at * 2 + 1, 1, mask=at > 100)
    tl.atomic_add(out + at - 5, 1)
    tl.store(out + 1000, tl.load(x - 1) + tl.load(x + 10000))


@pytest.mark.parametrize("n", [60, 128])
def test_strays_and_divisions_by_zero_are_left_out_with_the_interpreter_s_warnings(n: int):
    kernel = triton.jit(strays)
    results: list[tuple[list[int], list[tuple[str, int]]]] = []
    for interpret in (True, False, False):  # The second native launch is by a plan.
        x, out = np.arange(100, dtype=np.int32), np.zeros(120, np.int32)
        with warnings.catch_warnings(record=True) as records:
            warnings.simplefilter("always")
            kernel[(4,)](x, out, n, BLOCK=32, interpret=interpret)
        results.append((out.tolist(), sorted((str(record.message), record.lineno) for record in records)))
    assert results[0] == results[1] == results[2]
    assert len(results[0][1]) == (10 if n == 60 else 11)
    compiled = triton.jit(add).compile(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, 32, target="cpu")
    x, out = np.ones(20, np.float32), np.zeros(32, np.float32)
    words = r"program \(0, 0, 0\) reads x_ptr\[20\], but x_ptr has 20 elements: 0, or `other`, is read"
    with pytest.warns(ZigguratWarning, match=words):
        compiled[1,](x, out, 32)
    assert out.tolist() == [2.0] * 20 + [1.0] * 12


def through_an_address(address, out):
    tl.store(out, tl.load(tl.load(address).to(tl.pointer_type(tl.float32))) * 2)


def test_addresses_in_memory_are_followed_by_the_interpreter():
    torch = require("torch")
    x, out = torch.ones(1), torch.zeros(1)
    with pytest.warns(ZigguratWarning, match="is interpreted.*: a pointer is made from an integer"):
        triton.jit(through_an_address)[(1,)](torch.tensor([x.data_ptr()]), out, interpret=False)
    assert out.item() == 2


def test_tensors_of_torch_reach_their_storage():
    torch = require("torch")
    kernel = triton.jit(add)
    x, out = torch.arange(100, dtype=torch.float32), torch.zeros(100)
    for _ in range(2):
        kernel[(1,)](x[4:20], out[4:20], 32, BLOCK=32, interpret=False)
    assert (out[4:36] == x[4:36] + 1).all() and not out[36:].any()


def test_interpreted_programs_make_no_native_code(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    kernel = triton.jit(add)
    assert not kernel.runs_natively({"interpret": False})
    x, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    kernel[(4,)](x, out, 100, BLOCK=32)
    assert (out == x + 1).all() and kernel._native is None


def test_tuning_measures_native_code():
    torch = require("torch")
    configs = [triton.Config({"BLOCK": block}) for block in (16, 64)]
    kernel = triton.autotune(configs, key=["n"], warmup=1, rep=1)(triton.jit(add))
    x, out = torch.arange(100, dtype=torch.float32), torch.zeros(100)
    kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, out, 100, interpret=False)
    assert len(kernel.configs_timings) == 2 and (out == x + 1).all()
