"""Triton's programs as native code: options, tolerance, tuning, `TRITON_INTERPRET`."""

from __future__ import annotations

import numpy as np
import pytest

from ziggurat import triton
from ziggurat.triton import language as tl


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


def test_programs_reach_all_memory_that_an_array_is_a_view_of():
    kernel = triton.jit(add)
    x, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    for _ in range(2):
        kernel[(1,)](x[4:20], out[4:20], 32, BLOCK=32, interpret=False)
    assert (out[4:36] == x[4:36] + 1).all() and not out[36:].any()
    with pytest.raises(Exception, match="reads x_ptr"):
        kernel[(4,)](x[4:20], out[4:20], 128, BLOCK=32, interpret=False)


def test_tensors_of_torch_reach_their_storage():
    torch = pytest.importorskip("torch")
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
    torch = pytest.importorskip("torch")
    configs = [triton.Config({"BLOCK": block}) for block in (16, 64)]
    kernel = triton.autotune(configs, key=["n"], warmup=1, rep=1)(triton.jit(add))
    x, out = torch.arange(100, dtype=torch.float32), torch.zeros(100)
    kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, out, 100, interpret=False)
    assert len(kernel.configs_timings) == 2 and (out == x + 1).all()
