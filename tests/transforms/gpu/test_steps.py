"""Small kernels through all passes: the GPU models, as golden files, and which passes change each kernel.

`golden/placed/KERNEL.txt` is the model that the last step of `PLACE` leaves. Texts before and after single passes are
in tests/models/gpu.
"""

from __future__ import annotations

from typing import Any

import pytest

import ziggurat as zg
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.passes import Snapshot
from ziggurat.transforms.gpu.gpu_passes import PLACE, place

F16, F32 = zg.divisible(zg.ptr(zg.f16), 16), zg.divisible(zg.ptr(zg.f32), 16)
N = zg.divisible(zg.i32, 16)


@zg.function
def squared(x):
    return zg.mul(x, x)


@zg.kernel
def transposed_sums(x, y, sums, ROWS: zg.constexpr, COLUMNS: zg.constexpr):
    """A call, a conversion, a reduction over warps, and buffers that follow each other."""
    rows, columns = zg.arange(0, ROWS), zg.arange(0, COLUMNS)
    at = zg.add(zg.mul(zg.expand(rows, 1), COLUMNS), zg.expand(columns, 0))
    v = squared(zg.load(zg.add(x, at)))
    transposed = zg.add(zg.mul(zg.expand(columns, 1), ROWS), zg.expand(rows, 0))
    zg.store(zg.add(y, transposed), zg.trans(v))
    zg.store(zg.add(sums, columns), zg.sum(v, axis=0))


@zg.kernel
def products(a, b, c, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    """A loop of dots, through pointers."""
    rows, columns, steps = zg.expand(zg.arange(0, M), 1), zg.expand(zg.arange(0, N), 0), zg.arange(0, K)
    a_at = zg.add(a, zg.add(zg.mul(rows, k), zg.expand(steps, 0)))
    b_at = zg.add(b, zg.add(zg.mul(zg.expand(steps, 1), N), columns))
    total = zg.zeros((M, N), zg.f32)
    for _ in range(0, k, K):
        total = zg.add(total, zg.dot(zg.load(a_at), zg.load(b_at)))
        a_at = zg.add(a_at, K)
        b_at = zg.add(b_at, K * N)
    zg.store(zg.add(c, zg.add(zg.mul(rows, N), columns)), total)


@zg.kernel
def by_descriptors(a, b, c, k, ACROSS: zg.constexpr, DEPTH: zg.constexpr):
    """The same through descriptors: two parameters, and one that the kernel makes."""
    total = zg.zeros((64, ACROSS), zg.f32)
    for at in range(0, k, DEPTH):
        total = zg.dot(a.load((0, at)), b.load((at, 0)), total)
    out = zg.make_tensor_descriptor(c, (64, ACROSS), (ACROSS, 1), (64, ACROSS))
    out.store((0, 0), zg.cast(total, zg.f16))


@zg.kernel
def by_engine(a, b, c):
    """One dot, whose blocks TMA loads and stores."""
    c.store((0, 0), zg.cast(zg.dot(a.load((0, 0)), b.load((0, 0))), zg.f16))


@zg.kernel
def by_made_maps(a, b, c, rows, pitch):
    """Descriptors of the kernel's own, with bases and sizes that only the kernel knows."""
    rows = zg.load(rows)
    left = zg.make_tensor_descriptor(a, (rows, 64), (64, 1), (64, 64))
    right = zg.make_tensor_descriptor(b, (64, 64), (64, 1), (64, 64))
    out = zg.make_tensor_descriptor(c, (rows, rows), (pitch, 1), (64, 64))
    for at in range(0, rows, 64):
        out.store((at, 0), zg.cast(zg.dot(left.load((at, 0)), right.load((0, 0))), zg.f16))


@zg.kernel
def by_roles(a, b, c, k, ACROSS: zg.constexpr, DEPTH: zg.constexpr):
    """Dots in a loop with warp roles."""
    total = zg.zeros((64, ACROSS), zg.f32)
    for at in zg.range(0, k, DEPTH, warp_specialize=True):
        total = zg.dot(a.load((0, at)), b.load((at, 0)), total)
    c.store((0, 0), zg.cast(total, zg.f16))


@zg.kernel
def batches(a, b, c, B: zg.constexpr, SIZE: zg.constexpr):
    """A dot of a batch."""
    at = zg.reshape(zg.arange(0, B * SIZE * SIZE), (B, SIZE, SIZE))
    zg.store(zg.add(c, at), zg.dot(zg.load(zg.add(a, at)), zg.load(zg.add(b, at))))


@zg.kernel
def running_sums(x, y, N: zg.constexpr):
    """A scan over several warps."""
    at = zg.arange(0, N)
    zg.store(zg.add(y, at), zg.cumsum(zg.load(zg.add(x, at)), 0))


# Kernel, types, target, warps; and the passes that change it.
A, B = zg.descriptor((64, 64), zg.f16), zg.descriptor((64, 64), zg.f16)
C = zg.divisible(zg.descriptor((64, 64), zg.f16))
KERNELS: dict[str, tuple[Any, list[Any], str, int, str]] = {
    "transposed_sums": (
        transposed_sums,
        [F32, F32, F32, 16, 32],
        "sm_80",
        2,
        "prepare assign lower allocate barriers",
    ),
    "products_by_wgmma": (
        products,
        [F16, F16, F32, N, 64, 64, 32],
        "sm_90a",
        4,
        "prepare raise_pointers descriptors assign dots latency copies expand "
        "tensor_maps lower_channels lower dce allocate barriers",
    ),
    "products_by_mma": (
        products,
        [F16, F16, F32, N, 16, 16, 16],
        "sm_80",
        1,
        "prepare assign dots latency copies expand lower_channels dce allocate barriers",
    ),
    "products_by_fma": (
        products,
        [F32, F32, F32, N, 4, 4, 4],
        "sm_80",
        1,
        "prepare assign dots latency copies expand lower_channels dce allocate barriers",
    ),
    "batches": (batches, [F16, F16, F32, 4, 32], "sm_80", 8, "assign dots lower allocate barriers"),
    "running_sums": (
        running_sums,
        [F32, F32, 1024],
        "sm_80",
        4,
        "prepare assign lower allocate barriers",
    ),
    "by_descriptors": (
        by_descriptors,
        [A, B, F16, N, 64, 64],
        "sm_90a",
        4,
        "prepare descriptors assign dots cse latency copies expand lower_channels lower dce allocate barriers",
    ),
    "by_descriptors_on_sm_80": (
        by_descriptors,
        [C, zg.divisible(zg.descriptor((64, 16), zg.f16)), F16, N, 16, 64],
        "sm_80",
        4,
        "prepare descriptors assign dots cse latency copies expand lower_channels dce allocate barriers",
    ),
    "by_engine": (
        by_engine,
        [A, B, C],
        "sm_90a",
        4,
        "prepare descriptors assign dots cse tma lower_channels dce allocate barriers",
    ),
    "by_made_maps": (
        by_made_maps,
        [F16, F16, F16, zg.ptr(zg.i32), N],
        "sm_90a",
        4,
        "prepare descriptors assign dots cse latency copies expand "
        "tma tensor_maps lower_channels lower dce allocate barriers",
    ),
    "by_roles": (
        by_roles,
        [A, B, C, N, 64, 64],
        "sm_90a",
        4,
        "prepare descriptors assign dots specialize expand tma lower_channels dce allocate barriers",
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_model_after_all_passes(name: str, golden: Any) -> None:
    kernel, types, target, num_warps, changing = KERNELS[name]
    model = before = kernel.triton(*types)
    snapshots: list[Snapshot] = []
    module = place(model, CompileOptions(target, num_warps, num_stages=2, verify=True), snapshots)
    golden(f"placed/{name}", module)
    assert [snapshot.name for snapshot in snapshots] == [step for step, _ in PLACE]
    changed: list[str] = []
    for snapshot in snapshots:
        if not zg.same_model(snapshot.model, before):
            changed.append(snapshot.name)
        before = snapshot.model
    assert changed == changing.split()
