"""Kernels of CPUs as shared libraries, which PyTorch's AOTInductor loads."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from libraries import require

import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.errors import LaunchError, TargetError
from ziggurat.triton.backends.compiler import GPUTarget
from ziggurat.triton.compiler import shared_libraries

torch = require("torch")
require("torch._inductor.codegen.cpp_wrapper_cpu")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="AOTInductor's Triton kernels for CPUs are for Linux"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler"),
]
CPU = GPUTarget("cpu", 0, 32)


@triton.jit
def scaled(x_ptr, BLOCK: tl.constexpr, out_ptr, n, scale, limit):
    """A constant among the arguments, as kernels of programs have it."""
    row, column = tl.program_id(0), tl.program_id(1)
    at = (row * tl.num_programs(1) + column) * BLOCK + tl.arange(0, BLOCK)
    tl.device_assert(n <= limit, "too many")
    total = tl.sum(tl.load(x_ptr + at, at < n, 0.0))
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < n) * scale + total / BLOCK + n // limit, at < n)


def compiled(kernel=scaled, scale="fp32", **types):
    signature = {"x_ptr": "*fp32", "BLOCK": "constexpr", "out_ptr": "*fp32", "n": "i32", "scale": scale, "limit": "i64"}
    source = triton.compiler.ASTSource(kernel, types or signature, {"BLOCK": 16})
    return triton.compile(source, target=CPU)


def launch(library, name, grid, *arguments):
    """Launch as PyTorch's program does: pointers by their values, numbers by their addresses, constants as null."""
    code = ctypes.CDLL(str(library))
    addresses = [
        argument.ctypes.data if isinstance(argument, np.ndarray) else argument and ctypes.addressof(argument)
        for argument in arguments
    ]
    code.run_from_nativert(*grid, 1, (ctypes.c_void_p * len(addresses))(*addresses), getattr(code, name))


@pytest.mark.parametrize("scale", ["fp32", "fp64"])
def test_a_library_launches_a_kernel(tmp_path: Path, scale: str):
    kernel = compiled(scale=scale)
    assert "so" in kernel.asm and kernel.asm["launcher.so"] is kernel.asm["so"] and next(iter(kernel.asm)) == "source"
    library = tmp_path / "scaled.so"
    library.write_bytes(kernel.asm["so"])
    x, out = np.arange(90, dtype=np.float32), np.zeros(96, np.float32)
    numbers = ctypes.c_int64(90), ctypes.c_float(2.5), ctypes.c_int64(100)
    launch(library, kernel.metadata.name, (2, 3, 1), x, None, out, *numbers)
    sums = np.pad(x, (0, 6)).reshape(6, 16).sum(1).repeat(16)
    np.testing.assert_allclose(out[:90], 2.5 * x + sums[:90] / 16, rtol=1e-6)
    assert not out[90:].any()


def test_other_kernels_have_no_library():
    signature = {
        "x_ptr": "*fp32",
        "BLOCK": "constexpr",
        "out_ptr": "*fp32",
        "n": "i32",
        "scale": "fp32",
        "limit": "i64",
    }
    kernel = triton.compile(
        triton.compiler.ASTSource(scaled, signature, {"BLOCK": 16}), target=GPUTarget("cuda", 90, 32)
    )
    assert "so" not in kernel.asm and kernel.asm.get("launcher.so") is None


@triton.jit
def printing(x_ptr, BLOCK: tl.constexpr):
    tl.device_print("x", tl.load(x_ptr))


@triton.jit
def halved(x_ptr, by, BLOCK: tl.constexpr):
    tl.store(x_ptr, tl.load(x_ptr) * by)


def test_what_a_library_cannot_do_is_refused(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(TargetError, match="'printing' prints, which a shared library cannot do"):
        _ = compiled(printing, x_ptr="*fp32", BLOCK="constexpr").asm["so"]
    with pytest.raises(TargetError, match="argument 1 is a f16, which PyTorch does not pass"):
        _ = compiled(halved, x_ptr="*fp32", by="fp16", BLOCK="constexpr").asm["so"]
    monkeypatch.setattr(shared_libraries, "_SOURCE", "no C++ %(name)s")
    with pytest.raises(LaunchError, match="cannot link 'scaled': "):
        _ = compiled().asm["so"]


@pytest.mark.parametrize(
    ("is_ahead", "backend", "words"), [(False, "cpp", "cpp_wrapper"), (True, "triton", 'cpu_backend = "cpp"')]
)
def test_pytorch_s_programs_that_launch_none_are_named(
    monkeypatch: pytest.MonkeyPatch, is_ahead: bool, backend: str, words: str
):
    from types import SimpleNamespace

    import torch._inductor.config
    from torch._inductor.virtualized import V

    with V.set_graph_handler(SimpleNamespace(aot_mode=is_ahead)), torch._inductor.config.patch(cpu_backend=backend), \
            pytest.raises(TargetError, match=words) as error:  # fmt: skip
        _ = compiled().asm["so"]
    assert error.value.hint


_PROGRAM = """
import sys

import ziggurat.triton

ziggurat.triton.install()
import torch
import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.device_assert(n > 100, "too few")
    total = tl.load(x_ptr + at, at < n) + scale * tl.load(y_ptr + at, at < n)
    tl.store(out_ptr + at, total, at < n)


class Model(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        add[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), 2.5, BLOCK=64, debug=True)
        return out.sin() * 2


rows = torch.export.Dim("rows", min=2, max=1000)
tensors = torch.randn(24, 33), torch.randn(24, 33)
program = torch.export.export(Model(), tensors, dynamic_shapes=({0: rows}, {0: rows}), strict=True)
settings = {"aot_inductor.compile_wrapper_opt_level": "O0"}
torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[1], inductor_configs=settings)
"""
_USE = """
import sys

import torch

model = torch._inductor.aoti_load_package(sys.argv[1])
for rows in (5, 24, 100):
    x, y = torch.randn(rows, 33), torch.randn(rows, 33)
    torch.testing.assert_close(model(x, y), (x + 2.5 * y).sin() * 2)
try:
    model(torch.ones(3, 33), torch.ones(3, 33))
except RuntimeError as error:
    print(error)
assert not [name for name in sys.modules if name.partition(".")[0] in ("triton", "ziggurat")]
"""


def test_a_package_of_aotinductor_runs_without_this_package(tmp_path: Path):
    """A program's own kernel, with a shape that is not known; its error is one of Python."""
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith(("TORCH", "TRITON", "PYTHONPATH"))
    }
    environment = {**plain, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    for text in (_PROGRAM, _USE):
        (tmp_path / "program.py").write_text(text)
        command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "model.pt2")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=environment)
        assert done.returncode == 0, done.stderr[-4000:]
    assert "program (0, 0, 0) of 'add' fails a device-side assertion: too few (" in done.stdout
