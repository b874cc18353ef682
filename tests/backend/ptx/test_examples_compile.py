"""The kernels of the examples, and whole kernels of the tests of the language, down to machine code without a GPU."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import scf
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.transforms.gpu.hazards import hazards

ROOT = Path(__file__).resolve().parents[3]


@cache
def loaded(path: str) -> Any:
    """The module of a file. Its kernels keep their Triton models for all targets."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def aligned(element: Any) -> Any:
    """A pointer as allocations give it."""
    return zg.divisible(zg.ptr(element), 16)


def block_of(*shape: int) -> Any:
    """A descriptor of a matrix whose rows are whole 16 bytes."""
    return zg.divisible(zg.descriptor(shape, zg.f16))


N = zg.divisible(zg.i32, 16)
F16, F32, I32 = aligned(zg.f16), aligned(zg.f32), aligned(zg.i32)
MATMUL = [F16] * 3 + [N, N, N, N, 1, N, 1, N, 1]


def attention(causal: bool, m: int, n: int, d: int, roles: bool = False) -> list[Any]:
    """The types that the example's attention is compiled for."""
    return [*(block_of(rows, d) for rows in (m, n, n, m)), N, zg.f32, causal, m, n, d, roles]


# File, kernel, what it is compiled for, and warps.
KERNELS: dict[str, tuple[str, str, list[Any], int]] = {
    "vector_add": ("vector_add", "add_kernel", [F32, F32, F32, N, 1024], 4),
    "softmax_1024": ("fused_softmax", "softmax_kernel", [F32, F32, N, N, N, 1024], 4),
    "softmax_4096_f16": ("fused_softmax", "softmax_kernel", [F16, F16, N, N, N, 4096], 8),
    "softmax_ragged": ("fused_softmax", "softmax_kernel", [F32, F32, zg.i32, zg.i32, zg.i32, 1024], 4),
    "layer_norm": ("layer_norm", "layer_norm_kernel", [F16, F16, F32, F32, F32, F32, N, N, zg.f32, 2048], 8),
    "layer_norm_one_warp": ("layer_norm", "layer_norm_kernel", [F32] * 6 + [N, N, zg.f32, 128], 1),
    "own_transform": ("own_transform", "polynomial_kernel", [F32, F32, N, 128], 4),
    "matmul": ("grouped_matmul", "matmul_kernel", [*MATMUL, 128, 128, 64, 8, None], 8),
    "descriptor_matmul": (
        "descriptor_matmul",
        "matmul_kernel",
        [*(block_of(*shape) for shape in ((128, 32), (64, 32), (128, 64))), N, N, N, 128, 64, 32, 8],
        8,
    ),
    "descriptor_matmul_small": (
        "descriptor_matmul",
        "matmul_kernel",
        [*[zg.descriptor((64, 32), zg.f16)] * 2, zg.descriptor((64, 64), zg.f16), *[zg.i32] * 3, 64, 64, 32, 4],
        4,
    ),
    "attention": ("attention", "attention_kernel", attention(False, 64, 32, 64), 8),
    "attention_causal": ("attention", "attention_kernel", attention(True, 64, 32, 64), 8),
    "matmul_small": ("grouped_matmul", "matmul_kernel", [*MATMUL, 32, 64, 32, 4, "leaky_relu"], 4),
}
# Kernels whose loads have 128 bits, and those of them that need few registers.
WIDE = ("vector_add", "softmax_1024", "softmax_4096_f16", "layer_norm")
SMALL = ("vector_add", "softmax_1024", "layer_norm")


def compiled(name: str, target: str) -> Any:
    file, kernel, types, warps = KERNELS[name]
    return getattr(loaded(f"examples/{file}.py"), kernel).compile(*types, target=target, num_warps=warps)


def checked(make: Any, ptxas: Any, stack: bool = False) -> str:
    """Verify the model, and assemble the text; the resources from ptxas."""
    zg.verify(make.stages["gpu"])
    assert hazards(make.stages["gpu"]) == []
    return ptxas(make.ptx, make.target, stack)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize("name", KERNELS)
def test_examples_assemble_without_a_stack(name, target, ptxas):
    binary = compiled(name, target)
    registers = [int(actual) for actual in re.findall(r"Used (\d+) registers", checked(binary, ptxas))]
    assert len(registers) == 1 and registers[0] <= (64 if name in SMALL and target == "sm_90a" else 255)
    if name in WIDE:
        assert re.search(r"ld\.global\S*\.v4\.(b32|u32|f32)", binary.ptx), binary.ptx
        assert re.search(r"st\.global\S*\.v4\.(b32|u32|f32)", binary.ptx), binary.ptx


@pytest.mark.parametrize("target", [t for t in TARGETS if t not in ("sm_80", "sm_90a", "sm_100a")])
def test_every_target_assembles(target, ptxas):
    """A kernel with dots, one with reductions, one with atomics; the PTX names that target."""
    for binary in (
        compiled("matmul_small", target),
        compiled("layer_norm", target),
        compiled_test("histogram", target),
    ):
        checked(binary, ptxas)
        assert re.search(rf"^\.target {target}$", binary.ptx, re.MULTILINE)


def test_products_run_on_the_matrix_units():
    """On those of a warp where there is no wgmma, or where the tile is too small for it, and not as multiply-adds."""
    kinds = ("sm_80", "mma.sync"), ("sm_90a", "wgmma"), ("sm_90", "mma.sync"), ("sm_100a", "mma.sync")
    small = [("matmul_small", target, "mma.sync") for target in ("sm_80", "sm_90a")]
    for name, target, instruction in [*(("matmul", *kind) for kind in kinds), *small]:
        ptx = compiled(name, target).ptx
        assert f"{instruction}." in ptx and ("wgmma" in ptx) == (instruction == "wgmma")
        assert "fma." not in ptx.split(f"{instruction}.")[0][-2000:]


@pytest.mark.parametrize("roles", [False, True])
@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_in_registers_and_in_flight(causal, d, roles, ptxas):
    """At the size it is fast at: no spills, no wait after each wgmma (ptxas' warnings C75…), and a dot that is handed
    on to the next iteration; with roles, a dot in flight during the softmax."""
    kernel = loaded("examples/attention.py").attention_kernel
    binary = kernel.compile(*attention(causal, 128, 64, d, roles), target="sm_90a", num_warps=8)
    assert "C75" not in checked(binary, ptxas)
    assert any(isinstance(op, gpu.WarpSpecialize) for op in binary.stages["gpu"].walk()) == roles
    loops = [op for op in binary.stages["gpu"].walk() if isinstance(op, scf.For)]
    fed = [op for loop in loops for op in loop.walk() if isinstance(op, gpu.Wgmma)]
    assert len(fed) == (4 if causal else 2)
    handed_on = [value.op for loop in loops for value in loop.bodies[0].entry.terminator.operands]
    pending = [op.pending for loop in loops for op in loop.walk() if isinstance(op, gpu.WgmmaWait)]
    assert (sum(pending) if roles else sum(isinstance(op, gpu.Wgmma) for op in handed_on)) == (2 if causal else 1)


def test_traced_kernels(ptxas):
    traced = loaded("examples/traced_kernel.py")
    chain = [lambda v: zg.mul(v, 2.0), lambda v: zg.add(v, 1.0), zg.sigmoid, lambda v: zg.mul(v, v)]
    series = zg.trace(traced.power_series, zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, zg.i32)
    for model in (traced.fused(chain), series):
        for target in ("sm_80", "sm_90a", "sm_100a"):
            checked(zg.compile(model, target=target), ptxas)


F8, BF16, I64 = aligned(zg.f8e4m3), aligned(zg.bf16), aligned(zg.i64)
# The same for the kernels that tests of the language run, at usual sizes.
REAL: dict[str, tuple[str, str, list[Any], int]] = {
    "attention": ("kernels", "attention", [F16] * 4 + [F32, N, zg.f32, True, 128, 64, 64], 4),
    "attention_f32": ("kernels", "attention", [F32] * 5 + [N, zg.f32, False, 32, 32, 32], 4),
    "layer_norm_backward": ("kernels", "layer_norm_backward", [F16, F16, F32, F32, F16, F16, F32, F32, I32, N, 512], 4),
    "cross_entropy": ("kernels", "cross_entropy", [BF16, zg.i64, I64, F32, N, -100, 1024], 4),
    "route": ("kernels", "route", [F32, F32, I32, I32, 8, 2, 16], 4),
    "rotate": ("kernels", "rotate", [F32, F32, F32, False, True, 128], 4),
    "dropout": ("kernels", "dropout", [F32, F32, aligned(zg.i1), N, zg.f32, zg.i64, 1024], 4),
    "persistent_matmul": ("kernels", "persistent_matmul", [F16] * 3 + [N, N, N, 8, 128, 128, 64], 8),
    "split_matmul": ("kernels", "split_matmul", [BF16, BF16, F32, N, N, N, 3, 64], 4),
    "split_matmul_f8": ("kernels", "split_matmul", [F8, F8, F32, N, N, N, 1, 64], 4),
    "quantise": ("kernels", "quantise", [F32, aligned(zg.i8), F32, N, 1024], 4),
    "scans": ("algorithms", "scans", [F32, aligned(zg.i1), F32, F32, F32, False, 1024], 4),
    "histogram": ("algorithms", "histogram", [F32, I64, zg.f32, zg.i32, N, 16, 1024], 4),
    "moments": ("algorithms", "moments", [F32, F32, F32, N, 1024], 4),
    "bisect": ("algorithms", "bisect", [I32, I32, I32, N, 1024], 4),
    "conv1d": ("algorithms", "conv1d", [F32, F32, F32, N, 5, 1024], 4),
    "collatz": ("algorithms", "collatz", [I32, I32, I64, 1000], 1),
}


def compiled_test(name: str, target: str) -> Any:
    file, kernel, types, warps = REAL[name]
    module = loaded(f"tests/language/test_real_{file}.py")
    return getattr(module, kernel).compile(*types, target=target, num_warps=warps)


# device_assert hands its message over on the stack.
STACK = ("bisect",)


@pytest.mark.parametrize(
    ("name", "target"),
    [(name, target) for number, name in enumerate(REAL) for target in ("sm_90a", ("sm_80", "sm_100a")[number % 2])],
)
def test_whole_kernels_assemble(name, target, ptxas):
    checked(compiled_test(name, target), ptxas, name in STACK)
