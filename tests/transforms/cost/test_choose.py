"""The warps, stages and roles that the compiler chooses where a launch gives none."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.transforms.cost.choose import choose_warps
from ziggurat.transforms.gpu.gpu_passes import place
from ziggurat.transforms.tiles.prepare import prepare_for_gpu

F32, F16 = zg.divisible(zg.ptr(zg.f32)), zg.divisible(zg.ptr(zg.f16))
I32 = zg.divisible(zg.i32)


@zg.kernel
def copied(x, y, N: zg.constexpr):
    at = zg.arange(0, N)
    zg.store(zg.add(y, at), zg.load(zg.add(x, at)))


@zg.kernel
def product(a_desc, b_desc, out, n, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    total = zg.zeros((M, N), zg.f32)
    for start in range(0, k, K):
        total = zg.dot(a_desc.load((0, start)), zg.trans(b_desc.load((0, start))), total)
    rows, columns = zg.expand(zg.arange(0, M), 1), zg.expand(zg.arange(0, N), 0)
    zg.store(zg.add(out, zg.add(zg.mul(rows, n), columns)), total)


@zg.kernel
def gathered(a, b, rows, out, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    """A product whose rows are anywhere: threads load them."""
    total = zg.zeros((M, N), zg.f32)
    row, column, depth = zg.load(zg.add(rows, zg.arange(0, M))), zg.arange(0, N), zg.arange(0, K)
    for start in range(0, k, K):
        at = zg.expand(zg.add(start, depth), 0)
        left = zg.load(zg.add(a, zg.add(zg.mul(zg.expand(row, 1), k), at)))
        right = zg.load(zg.add(b, zg.add(zg.mul(zg.expand(column, 1), k), at)))
        total = zg.dot(left, zg.trans(right), total)
    zg.store(zg.add(out, zg.add(zg.mul(zg.expand(zg.arange(0, M), 1), N), zg.expand(column, 0))), total)


def blocks(*shape: int) -> Any:
    return zg.divisible(zg.descriptor(shape, zg.f16))


def placed(kernel: Any, *types: Any, **options: Any) -> gpu.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # What nobody has asked for is not warned of.
        return place(kernel.triton(*types), CompileOptions(**{"verify": True, **options}))


def roles(module: gpu.Module) -> bool:
    return any(isinstance(op, gpu.WarpSpecialize) for op in module.walk())


def slots(module: gpu.Module) -> int:
    return max(op.result.type.count for op in module.walk() if isinstance(op, gpu.LocalAlloc))


@pytest.mark.parametrize(
    ("size", "warps"), [(64, 4), (2048, 4), (4096, 4), (8192, 8), (16384, 16), (32768, 16), (65536, 32)]
)
def test_warps_of_kernels_without_dots(size: int, warps: int):
    actual = choose_warps(prepare_for_gpu(copied.triton(F32, F32, size)), "sm_90a")
    assert actual.count == warps and f"the largest tensor has {size} elements" in actual.why


@pytest.mark.parametrize(
    ("tile", "warps", "split", "count"),
    [
        ((64, 64, 64), 4, False, 6),  # few accumulators
        ((128, 128, 64), 4, False, 3),
        ((128, 128, 128), 4, False, 3),  # no second CTA either way
        ((128, 256, 64), 8, True, 3),
    ],
)
def test_warps_roles_and_stages_of_a_product_by_tma(tile: Any, warps: int, split: bool, count: int):
    m, n, k = tile
    module = placed(product, blocks(m, k), blocks(n, k), F32, I32, I32, m, n, k)
    producer = 4 if split else 0
    assert (module.num_warps, roles(module), slots(module)) == (warps + producer, split, count)


def test_registers_of_loads_by_threads_count():
    arguments = (F16, F16, zg.divisible(zg.ptr(zg.i32)), F32, I32)
    assert placed(gathered, *arguments, 128, 128, 64).num_warps == 8
    assert placed(gathered, *arguments, 64, 128, 64).num_warps == 4


def test_what_is_given_stays():
    arguments = blocks(128, 64), blocks(256, 64), F32, I32, I32, 128, 256, 64
    module = placed(product, *arguments, num_warps=8)
    assert not roles(module)  # The CTA has 8 warps, as was asked for.
    assert roles(placed(product, *arguments, num_warps=8, warp_specialize=True))
    module = placed(product, *arguments, warp_specialize=False, num_stages=2)
    assert module.num_warps == 8 and not roles(module) and slots(module) == 2
    # A loop that asks is warned of, one that does not is not.
    assert not roles(placed(product, *arguments, target="sm_80"))


def test_triton_programs_have_tritons_numbers():
    from ziggurat.triton.runtime.triton_options import compile_options

    actual = compile_options({})
    assert (actual.num_warps, actual.num_stages, actual.warp_specialize) == (4, 3, None)


@pytest.mark.parametrize("tile", [(64, 64, 64), (128, 256, 64)])
def test_what_is_chosen_computes_the_same(tile: Any):
    m, n, k = tile
    random = np.random.default_rng(1)
    a, b = (random.integers(-2, 3, (rows, 4 * k)).astype(np.float16) for rows in (m, n))
    out = np.zeros((m, n), np.float32)
    compiled = product.compile(blocks(m, k), blocks(n, k), F32, I32, I32, m, n, k)
    compiled.simulate[(1,)](zg.TensorDescriptor(a, [m, k]), zg.TensorDescriptor(b, [n, k]), out, n, 4 * k)
    np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32).T)
