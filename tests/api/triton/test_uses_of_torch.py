"""Uses of kernels with PyTorch by libraries, each in a few lines: layers, gradients, operators, views and dtypes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from libraries import require

import ziggurat.triton as triton
import ziggurat.triton.language as tl

torch = require("torch")
F = torch.nn.functional
TL = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


def on(device):
    """The context in which libraries launch: that of the device, which a CPU does not have."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def contiguous(fn):
    """Make tensors contiguous before a call, as libraries decorate their functions."""

    def call(*args, **kwargs):
        args = [a.contiguous() if isinstance(a, torch.Tensor) else a for a in args]
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        with on(tensors[0].device):
            return fn(*args, **kwargs)

    return call


@triton.jit
def swiglu_forward(gate_ptr, up_ptr, out_ptr, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = row * stride + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < columns
    gate = tl.load(gate_ptr + at, mask, 0).to(tl.float32)
    up = tl.load(up_ptr + at, mask, 0).to(tl.float32)
    tl.store(out_ptr + at, (gate * tl.sigmoid(gate) * up).to(out_ptr.dtype.element_ty), mask)


@triton.jit
def swiglu_backward(grad_ptr, gate_ptr, up_ptr, stride, columns, BLOCK: tl.constexpr):
    """The gradients take the places of the values."""
    row = tl.program_id(0).to(tl.int64)
    at = row * stride + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < columns
    grad = tl.load(grad_ptr + at, mask, 0).to(tl.float32)
    gate = tl.load(gate_ptr + at, mask, 0).to(tl.float32)
    up = tl.load(up_ptr + at, mask, 0).to(tl.float32)
    sigmoid = tl.sigmoid(gate)
    tl.store(up_ptr + at, (grad * gate * sigmoid).to(up_ptr.dtype.element_ty), mask)
    slope = sigmoid * (1 + gate * (1 - sigmoid))
    tl.store(gate_ptr + at, (grad * up * slope).to(gate_ptr.dtype.element_ty), mask)


class SwiGLU(torch.autograd.Function):
    @staticmethod
    @contiguous
    def forward_of(gate, up):
        out = torch.empty_like(gate)
        gate2, out2 = gate.view(-1, gate.shape[-1]), out.view(-1, gate.shape[-1])
        block = triton.next_power_of_2(gate2.shape[1])
        swiglu_forward[(gate2.shape[0],)](gate2, up, out2, gate2.stride(0), gate2.shape[1], BLOCK=block, num_warps=4)
        return out

    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return SwiGLU.forward_of(gate, up)

    @staticmethod
    def backward(ctx, grad):
        gate, up = (value.clone().contiguous() for value in ctx.saved_tensors)
        rows, columns = gate.numel() // gate.shape[-1], gate.shape[-1]
        block = triton.next_power_of_2(columns)
        swiglu_backward[(rows,)](grad.contiguous(), gate, up, columns, columns, BLOCK=block)
        return gate, up


@pytest.mark.parametrize("dtype", [*TL])
def test_a_function_with_a_gradient(dtype):
    torch.manual_seed(0)
    gate, up = (torch.randn(2, 3, 33, dtype=dtype, requires_grad=True) for _ in range(2))
    SwiGLU.apply(gate, up).float().square().sum().backward()
    gradients = gate.grad, up.grad
    gate.grad = up.grad = None
    (F.silu(gate.float()) * up.float()).to(dtype).float().square().sum().backward()
    tolerance = 1e-5 if dtype is torch.float32 else 4e-2
    for value, expected in zip(gradients, (gate.grad, up.grad), strict=True):
        torch.testing.assert_close(value, expected, atol=tolerance, rtol=tolerance)


class Layer(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate, self.up = (torch.nn.Linear(width, width, bias=False) for _ in range(2))

    def forward(self, x):
        return SwiGLU.apply(self.gate(x), self.up(x))


def test_a_layer_is_trained_and_used_without_gradients():
    torch.manual_seed(0)
    layer = Layer(16)
    x, losses = torch.randn(8, 16), []
    optimizer = torch.optim.AdamW(layer.parameters(), 0.05)
    for _ in range(5):
        optimizer.zero_grad()
        loss = (layer(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            out = layer(x)
        torch.testing.assert_close(out, F.silu(x @ layer.gate.weight.T) * (x @ layer.up.weight.T))
    assert torch.allclose(torch.func.functional_call(layer, dict(layer.named_parameters()), (x,)), layer(x))


@triton.jit
def row_sums(x_ptr, out_ptr, rows, columns, stride_row, stride_column, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], DTYPE)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * stride_row + at * stride_column, at < columns, 0).to(DTYPE)
    tl.store(out_ptr + row, tl.sum(total, 0))


def sums(x):
    out = torch.empty(x.shape[0], dtype=torch.float32)
    row_sums[(x.shape[0],)](x, out, *x.shape, *x.stride(), DTYPE=tl.float32, BLOCK=16)
    return out


def test_views_slices_and_transposed_tensors():
    x = torch.randn(12, 40)
    for view in (
        x, x.t(), x[2:7], x[:, 3:29], x[::2, ::3], x.t()[5:, 1:], x.expand(12, 40), x[0].expand(5, 40),
        torch.nn.Parameter(x), x.clone().requires_grad_()[1:],
    ):  # fmt: skip
        torch.testing.assert_close(sums(view), view.sum(1), atol=1e-5, rtol=1e-5)
    assert sums(torch.empty(0, 4)).numel() == 0


class Tagged(torch.Tensor):
    """A tensor of a class of its own."""


def test_a_class_of_tensors_is_launched_on():
    x = torch.randn(4, 8).as_subclass(Tagged)
    torch.testing.assert_close(sums(x), x.as_subclass(torch.Tensor).sum(1))
    buffer = torch.nn.Buffer(torch.ones(2, 8)) if hasattr(torch.nn, "Buffer") else torch.ones(2, 8)
    assert sums(buffer).tolist() == [8, 8]


class Box:
    """A holder of a tensor with another dtype, as libraries have for dtypes that PyTorch lacks."""

    def __init__(self, tensor, dtype):
        self.tensor, self.dtype = tensor, dtype

    def __getattr__(self, name):
        return getattr(self.tensor, name)


@triton.jit
def converted(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at).to(y_ptr.dtype.element_ty))


def test_tensors_are_taken_for_those_of_another_dtype():
    y = torch.zeros(8)
    bits = torch.tensor([0x3F80, 0x4000, 0x4040, 0, 0, 0, 0, 0], dtype=torch.int16)
    converted[(1,)](triton.reinterpret(bits, tl.bfloat16), y, 8)
    assert y.tolist() == [1, 2, 3, 0, 0, 0, 0, 0]
    converted[(1,)](Box(bits, torch.bfloat16), y.zero_(), 8)
    assert y.tolist()[:3] == [1, 2, 3]
    converted[(1,)](bits.view(torch.bfloat16), y.zero_(), 8)
    assert y.tolist()[:3] == [1, 2, 3]
    converted[(1,)](triton.reinterpret(torch.full((8,), 0x38, dtype=torch.uint8), tl.float8e4nv), y, 8)
    assert y.tolist() == [1] * 8


@pytest.mark.parametrize("name", "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split())
def test_dtypes_by_their_names(name):
    dtype, y = getattr(torch, name), torch.zeros(8, dtype=torch.float64)
    x = torch.tensor([0, 1, 1, 0, 1, 1, 1, 0]).to(dtype)
    converted[(1,)](x, y, 8)
    assert y.tolist() == x.double().tolist()
    scalar = getattr(tl, "int1" if name == "bool" else name)
    assert scalar == tl.str_to_ty(triton.runtime.jit.mangle_type(x), None).element_ty or name == "bool"


def test_scalars_of_tensors_and_of_python():
    x, y = torch.randn(8), torch.zeros(8)
    scaled[(1,)](x, y, torch.tensor(2.5).item(), x.numel(), torch.tensor(3, dtype=torch.int64).item(), 8)
    torch.testing.assert_close(y, x * 2.5 + 3)


@triton.jit
def scaled(x_ptr, y_ptr, scale, n, shift, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, at < n) * scale + shift, at < n)


def test_the_machine_is_asked_for():
    active = triton.runtime.driver.active
    target = active.get_current_target()
    assert target.backend in ("cpu", "cuda") and active.get_active_torch_device().type == target.backend
    properties = active.utils.get_device_properties(active.get_current_device())
    assert properties["multiprocessor_count"] > 0 and properties["max_shared_mem"] > 0
    interface = active.get_device_interface()
    interface.synchronize()
    start, end = (interface.Event(enable_timing=True) for _ in range(2))
    start.record()
    end.record()
    assert start.elapsed_time(end) >= 0


_PROGRAM = """
import ziggurat.triton

ziggurat.triton.install()
import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton


@triton.autotune([triton.Config({"BLOCK": size}) for size in (16, 32)], key=["n"])
@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < n) + tl.load(y_ptr + at, at < n), at < n)


@triton_op("uses::add", mutates_args={})
def add_op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(add)[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel())
    return out


add_op.register_autograd(lambda ctx, grad: (grad, grad))


@triton.jit
def scale_in_place(x_ptr, n, by: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, at < n) * by, at < n)


@torch.library.custom_op("uses::scale_", mutates_args={"x"})
def scale_(x: torch.Tensor, by: float) -> None:
    scale_in_place[(triton.cdiv(x.numel(), 16),)](x, x.numel(), by, BLOCK=16)


@torch.library.custom_op("uses::scaled", mutates_args=())
def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    out = x.clone()
    scale_in_place[(triton.cdiv(x.numel(), 16),)](out, x.numel(), by, BLOCK=16)
    return out


@scaled.register_fake
def _(x, by):
    return torch.empty_like(x)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = x.clone()
        scale_in_place[(triton.cdiv(x.numel(), 16),)](out, x.numel(), 2.0, BLOCK=16)
        return out

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


def all_of_them(x, y):
    return (scaled(add_op(x, y), 3.0) + Doubled.apply(x)).sin()


def expected(x, y):
    return (3 * (x + y) + 2 * x).sin()


x, y = torch.randn(7, 9, requires_grad=True), torch.randn(7, 9)
torch.testing.assert_close(add_op(x, y), x + y)
(gradient,) = torch.autograd.grad(add_op(x, y).square().sum(), x)
torch.testing.assert_close(gradient, 2 * (x + y))
torch.library.opcheck(scaled, (y, 2.0))
torch.library.opcheck(scale_, (y.clone(), 2.0))
torch.library.opcheck(add_op, (y, y), test_utils=("test_schema", "test_faketensor"))
z = y.clone()
scale_(z, 4.0)
torch.testing.assert_close(z, 4 * y)
torch.testing.assert_close(all_of_them(x.detach(), y), expected(x.detach(), y))
compiled = torch.compile(all_of_them, backend="ziggurat", fullgraph=True)
torch.testing.assert_close(compiled(x.detach(), y), expected(x.detach(), y), atol=1e-5, rtol=1e-5)
fake = torch._subclasses.fake_tensor.FakeTensorMode()
with fake:
    assert scaled(torch.empty(3, 4), 2.0).shape == (3, 4)
print("done")
"""


def test_operators_of_torch_s_library(tmp_path: Path):
    """`triton_op` with a tuned kernel, `custom_op`, their fakes and gradients, in eager mode and compiled."""
    (tmp_path / "program.py").write_text(_PROGRAM)
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("TORCH", "TRITON", "PYTHONPATH"))}
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"], capture_output=True, text=True, timeout=600, check=False,
        env={**plain, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "TORCHINDUCTOR_COMPILE_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0 and "done" in done.stdout, done.stderr[-4000:]
