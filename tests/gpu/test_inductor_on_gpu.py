"""`torch.compile` by ziggurat on a GPU, in PyTorch's further modes: each in a process with empty caches of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from libraries import require

require("torch._inductor")
pytestmark = pytest.mark.gpu

_PROGRAM = r"""
import sys

if sys.argv[3] == "ziggurat":
    import ziggurat.triton

    ziggurat.triton.install()
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import nn
from torch._inductor import config

DEVICE = sys.argv[2]
if DEVICE == "cpu":
    config.cpu_backend = "triton"
torch.manual_seed(0)


@triton.jit
def scaled(x_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * scale, mask=at < n)


@triton.autotune([triton.Config({"BLOCK": block}, num_warps=4) for block in (256, 512)], key=["n"])
@triton.jit
def tuned(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)


class Model(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(width, 2 * width), nn.Linear(2 * width, width), nn.LayerNorm(width)

    def forward(self, x):
        return (x + self.down(F.gelu(self.up(self.norm(x))))).softmax(-1)


class WithKernel(Model):
    def forward(self, x):
        x = super().forward(x)
        out = torch.empty_like(x)
        scaled[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), 0.5, BLOCK=1024)
        return out.sin()


def inputs(*shape, dtype=torch.float32):
    return torch.randn(shape, device=DEVICE).to(dtype)


def close(result, right, tolerance=2e-3):
    difference = (result.detach().float() - right.detach().float()).abs().max() / right.detach().abs().max()
    assert difference <= tolerance, f"{float(difference)}"


def same(function, *arguments, tolerance=2e-3, **options):
    with torch.no_grad():
        close(torch.compile(function, **options)(*arguments), function(*arguments), tolerance)


def trained(model, compiled, x):
    compiled(x).square().sum().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    model(x).square().sum().backward()
    for gradient, parameter in zip(gradients, model.parameters()):
        close(gradient, parameter.grad, 1e-2)
    model.zero_grad()


def by_the_static_launcher():
    from torch._inductor.runtime import triton_heuristics

    names = ("StaticTritonCompileResult", "StaticCudaCompileResult")
    kind = next(getattr(triton_heuristics, name) for name in names if hasattr(triton_heuristics, name))
    made, make = [], kind.make_launcher
    kind.make_launcher = lambda self: made.append(self) or make(self)
    model = Model().to(DEVICE)
    trained(model, torch.compile(model), inputs(64, 256))
    assert made


def a_program_in_c():
    config.cpp_wrapper = True
    same(WithKernel().to(DEVICE), inputs(64, 256))
    same(lambda x: (x.sum(0), x.amax(1))[0] * 2, inputs(3000, 500))
    model = Model().to(DEVICE)
    trained(model, torch.compile(model), inputs(64, 256))


def a_tuned_program_in_c():
    config.cpp_wrapper = True
    options = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "TRITON"}
    same(lambda x, y: F.relu(x @ y), inputs(256, 256), inputs(256, 512), tolerance=1e-2, options=options)


def a_package(folder=None):
    model, x = WithKernel().to(DEVICE).eval(), inputs(64, 256)
    batch = torch.export.Dim("batch", min=2, max=1024)
    with torch.no_grad():
        exported = torch.export.export(model, (x,), dynamic_shapes=({0: batch},), strict=True)
        path = torch._inductor.aoti_compile_and_package(exported)
        loaded = torch._inductor.aoti_load_package(path)
        for rows in (64, 7, 1000):
            x = inputs(rows, 256)
            close(loaded(x), model(x))


def graphs_of_the_driver():
    model, x = Model().to(DEVICE), inputs(64, 256)
    compiled = torch.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(4):
            x.normal_()
            close(compiled(x).clone(), model(x))
    trained(model, torch.compile(model, mode="reduce-overhead"), x)


def any_size():
    model = Model().to(DEVICE)
    compiled = torch.compile(model, dynamic=True)
    for rows in (2, 33, 64, 1000):
        trained(model, compiled, inputs(rows, 256))


def templates():
    torch.backends.cuda.matmul.allow_tf32 = True
    options = {"max_autotune": True, "max_autotune_gemm_backends": "TRITON", "max_autotune_conv_backends": "TRITON"}
    half = torch.bfloat16
    a, b = inputs(512, 256, dtype=half), inputs(256, 384, dtype=half)
    same(lambda a, b: F.gelu(a @ b + 1), a, b, tolerance=2e-2, options=options)
    same(lambda a, b: torch.addmm(b[0], a, b), a, b, tolerance=2e-2, options=options)
    same(torch.bmm, inputs(4, 128, 64, dtype=half), inputs(4, 64, 128, dtype=half), tolerance=2e-2, options=options)
    same(F.conv2d, inputs(2, 32, 16, 16), inputs(64, 32, 3, 3), tolerance=1e-2, options=options)
    same(torch._int_mm, torch.randint(-9, 9, (64, 64), dtype=torch.int8, device=DEVICE),
         torch.randint(-9, 9, (64, 64), dtype=torch.int8, device=DEVICE), options=options)


def templates_with_tensor_maps():
    options = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "TRITON",
               "triton.enable_persistent_tma_matmul": True}
    a, b = inputs(512, 256, dtype=torch.bfloat16), inputs(256, 384, dtype=torch.bfloat16)
    same(lambda a, b: F.relu(a @ b), a, b, tolerance=2e-2, options=options)


def bytes_with_scales():
    options = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "TRITON"}
    a, b = (inputs(256, 256).to(torch.float8_e4m3fn) for _ in range(2))
    scale = torch.tensor(0.5, device=DEVICE)
    same(lambda a, b: torch._scaled_mm(a, b.t(), scale, scale, out_dtype=torch.bfloat16), a, b, tolerance=2e-2,
         options=options)


def attention_with_masks():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 512, 512, device=DEVICE)
    q, k, v = (inputs(2, 4, 512, 64, dtype=torch.bfloat16).requires_grad_() for _ in range(3))
    compiled = torch.compile(flex_attention)
    out = compiled(q, k, v, score_mod=lambda s, b, h, i, j: s + 0.01 * (i - j), block_mask=mask)
    out.float().square().sum().backward()
    gradients = [x.grad.clone() for x in (q, k, v)]
    at = torch.arange(512, device=DEVICE)
    bias = (0.01 * (at[:, None] - at)).masked_fill(at[:, None] < at, float("-inf"))
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    right = (wide[0] @ wide[1].transpose(-1, -2) / 8 + bias).softmax(-1) @ wide[2]
    right.square().sum().backward()
    close(out, right, 2e-2)
    for gradient, x in zip(gradients, wide):
        close(gradient, x.grad, 3e-2)
    token = q[:, :, :1].detach()
    decoded = compiled(token, k.detach(), v.detach())
    close(decoded, (token @ k.detach().transpose(-1, -2) / 8).softmax(-1) @ v.detach(), 2e-2)


def kernels_of_the_program():
    def function(x):
        first, second = torch.empty_like(x), torch.empty_like(x)
        scaled[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x.cos(), first, x.numel(), 2.0, BLOCK=512)
        tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](first, second, x.numel())
        return second * x

    same(function, inputs(1000))
    same(function, inputs(4000), dynamic=True)


def settings_of_inductor():
    def function(x, y):
        return (x.softmax(1) + y).sum(1), (x * y).amax(0), F.layer_norm(x, x.shape[1:]).exp().mean(1)

    x, y = inputs(300, 4000), inputs(300, 4000)
    for name in ("triton.use_block_ptr", "triton.cooperative_reductions", "triton.multi_kernel", "combo_kernels",
                 "triton.use_tensor_descriptor", "triton.prefer_nd_tiling", "triton.mix_order_reduction",
                 "triton.persistent_reductions", "coordinate_descent_tuning", "benchmark_kernel", "shape_padding"):
        if not hasattr(config.triton if "." in name else config, name.removeprefix("triton.")):
            continue
        torch.compiler.reset()
        value = {"triton.multi_kernel": 1, "triton.persistent_reductions": False}.get(name, True)
        with torch.no_grad():
            for result, right in zip(torch.compile(function, options={name: value})(x, y), function(x, y)):
                close(result, right)
        print("    with", name)


def data_parallel():
    import os

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 20000)}
    torch.distributed.init_process_group("nccl" if DEVICE == "cuda" else "gloo", rank=0, world_size=1)
    from torch.distributed.fsdp import fully_shard

    model, x = Model().to(DEVICE), inputs(64, 256)
    model(x).square().sum().backward()
    right = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    compiled = torch.compile(nn.parallel.DistributedDataParallel(model))
    compiled(x).square().sum().backward()
    for gradient, parameter in zip(right, model.parameters()):
        close(parameter.grad, gradient, 1e-2)
    model.zero_grad()
    sharded = torch.compile(fully_shard(model))
    sharded(x).square().sum().backward()
    for gradient, parameter in zip(right, model.parameters()):
        close(parameter.grad.full_tensor(), gradient, 1e-2)
    torch.distributed.destroy_process_group()


def kept():
    from torch._dynamo.utils import counters

    model = Model().to(DEVICE)
    trained(model, torch.compile(model), inputs(64, 256))
    print(dict(counters["inductor"]))
    if sys.argv[4:] == ["again"]:
        assert counters["inductor"]["fxgraph_cache_hit"] and not counters["inductor"]["fxgraph_cache_miss"]


globals()[sys.argv[1]]()
print("as eager")
"""
MODES = (
    "by_the_static_launcher", "a_program_in_c", "a_tuned_program_in_c", "a_package", "graphs_of_the_driver", "any_size",
    "templates", "templates_with_tensor_maps", "bytes_with_scales", "attention_with_masks", "kernels_of_the_program",
    "settings_of_inductor", "data_parallel", "kept",
)  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_results_are_those_of_eager(tmp_path: Path, mode: str):
    for again in [[], ["again"]][: 1 + (mode == "kept")]:
        child = _run(tmp_path, mode, "ziggurat", *again)
        if child.returncode < 0 and _run(tmp_path, mode, "triton").returncode == child.returncode:
            pytest.skip("PyTorch ends the process with Triton as well")
        assert child.returncode == 0 and "as eager" in child.stdout, f"{child.stdout[-2000:]}\n{child.stderr[-4000:]}"


def _run(folder: Path, mode: str, compiler: str, *more: str) -> subprocess.CompletedProcess[str]:
    program = folder / "program.py"
    program.write_text(_PROGRAM, "utf-8")
    names = ("TORCHINDUCTOR_CACHE_DIR", "ZIGGURAT_CACHE_DIR", "TRITON_CACHE_DIR")
    return subprocess.run(
        [sys.executable, str(program), mode, os.environ.get("ZIGGURAT_TEST_DEVICE", "cuda"), compiler, *more],
        env={**os.environ, **{name: str(folder / compiler / name) for name in names}},
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
