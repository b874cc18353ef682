"""Kernels of each kind with arguments, to be interpreted after every pass (`every_pass`).

Arguments are small integers, whose sums are exact, unless a kernel computes exponentials.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import asynchronous_kernels
import cluster_kernels
import divided_kernels
import multicast_kernels
import numpy as np
import persistent_products
from every_pass import Case, case

import ziggurat as zg
from ziggurat.codemodel.gpu.options import CompileOptions

ROOT = Path(__file__).resolve().parents[2]
LESS = zg.CompareKind.LESS_THAN


def example(name: str) -> Any:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def integers(*shape: int, dtype: Any = np.float16, seed: int = 0) -> Any:
    return np.random.default_rng(seed + sum(shape)).integers(-3, 4, shape).astype(dtype)


def normal(*shape: int, dtype: Any = np.float16, seed: int = 0) -> Any:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def described(array: Any, *block: int) -> Any:
    return zg.TensorDescriptor(array, block)


@zg.kernel
def softmax_by_blocks(x, y, n, BLOCK: zg.constexpr):
    """A row's softmax in two loops, the loads of which run ahead."""
    row = zg.program_id(0) * n
    top, total = zg.full((BLOCK,), -1e30, zg.f32), zg.zeros((BLOCK,), zg.f32)
    for start in zg.range(0, n, BLOCK, num_stages=3):
        at = zg.add(start, zg.arange(0, BLOCK))
        v = zg.load(zg.add(x + row, at), zg.compare(at, n, LESS), other=-1e30)
        higher = zg.maximum(top, v)
        total = zg.add(zg.mul(total, zg.exp2(zg.sub(top, higher))), zg.exp2(zg.sub(v, higher)))
        top = higher
    highest = zg.max(top, axis=0)
    whole = zg.sum(zg.mul(total, zg.exp2(zg.sub(top, highest))), axis=0)
    for start in zg.range(0, n, BLOCK, num_stages=3):
        at = zg.add(start, zg.arange(0, BLOCK))
        inside = zg.compare(at, n, LESS)
        v = zg.load(zg.add(x + row, at), inside, other=-1e30)
        zg.store(zg.add(y + row, at), zg.div(zg.exp2(zg.sub(v, highest)), whole), inside)


@zg.kernel
def gathered_products(a, b, index, c, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    """A dot whose rows of b are found through an index that the loop loads."""
    rows, columns, steps = zg.expand(zg.arange(0, M), 1), zg.expand(zg.arange(0, N), 0), zg.arange(0, K)
    total = zg.zeros((M, N), zg.f32)
    for start in range(0, k, K):
        at = zg.add(start, steps)
        lines = zg.load(zg.add(index, at))
        left = zg.load(zg.add(a, zg.add(zg.mul(rows, k), zg.expand(at, 0))))
        right = zg.load(zg.add(b, zg.add(zg.mul(zg.expand(lines, 1), N), columns)))
        total = zg.dot(left, right, total)
    zg.store(zg.add(c, zg.add(zg.mul(rows, N), columns)), total)


@zg.kernel
def lower_blocks(x, y, n, M: zg.constexpr, K: zg.constexpr):
    """The blocks on and below the diagonal of x · xᵀ: the dots of a branch read what the block around has stored."""
    rows, columns, steps = zg.expand(zg.arange(0, M), 1), zg.expand(zg.arange(0, M), 0), zg.arange(0, K)
    first = below = second = zg.zeros((M, M), zg.f32)
    for start in range(0, 2 * K, K):
        at = zg.expand(zg.add(start, steps), 0)
        upper = zg.load(x + zg.add(zg.mul(rows, 2 * K), at))
        first = zg.dot(upper, zg.trans(upper), first)
        if n > M:
            lower = zg.load(x + zg.add(zg.mul(zg.add(rows, M), 2 * K), at))
            below = zg.dot(lower, zg.trans(upper), below)
            second = zg.dot(lower, zg.trans(lower), second)
    places = y + zg.add(zg.mul(rows, M), columns)
    zg.store(places, first)
    zg.store(places + M * M, below)
    zg.store(places + 2 * M * M, second)


@zg.kernel
def running_means(x, y, n, BLOCK: zg.constexpr):
    """The mean of each column of blocks: 16 neighbours have been counted equally often."""
    mean, count = zg.zeros((BLOCK,), zg.f32), zg.zeros((BLOCK,), zg.f32)
    for start in range(0, n, BLOCK):
        at = zg.add(start, zg.arange(0, BLOCK))
        inside = zg.compare(at, n, LESS)
        v = zg.load(zg.add(x, at), inside, other=0.0)
        more = zg.add(count, zg.cast(inside, zg.f32))
        mean = zg.div(zg.add(zg.mul(mean, count), v), zg.maximum(more, 1.0))
        count = more
    zg.store(zg.add(y, zg.arange(0, BLOCK)), mean)
    zg.store(zg.add(y + BLOCK, zg.arange(0, BLOCK)), count)


@zg.kernel
def rearranged(x, y, sums, counts, N: zg.constexpr):
    """A gather, a histogram, a scan, a sort, a transposition, and reductions of several axes."""
    at = zg.arange(0, N)
    v = zg.load(zg.add(x, at))
    turned = zg.gather(v, zg.sub(N - 1, at), 0)
    table = zg.reshape(zg.add(v, zg.mul(turned, 2)), (N // 16, 16))
    zg.store(zg.add(y, at), zg.reshape(zg.trans(table), (N,)))
    zg.store(zg.add(y + N, at), zg.cumsum(v, 0))
    zg.store(zg.add(y + 2 * N, at), zg.cumsum(turned, 0, reverse=True))
    zg.store(zg.add(y + 3 * N, at), zg.sort(v))
    zg.store(zg.add(sums, zg.arange(0, 16)), zg.sum(table, 0))
    zg.store(zg.add(sums + 16, zg.arange(0, N // 16)), zg.max(table, 1))
    zg.store(zg.add(counts, zg.arange(0, 8)), zg.histogram(zg.add(v, 3), 8))


@zg.kernel
def counted(x, sums, old, n, BLOCK: zg.constexpr):
    """Atomics with results and without, in a branch and in a while loop."""
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    v = zg.load(zg.add(x, at), zg.compare(at, n, LESS), other=0)
    zg.atomic_add(zg.add(sums, zg.and_(v, 7)), 1)
    if zg.program_id(0) == 1:
        zg.store(old, zg.atomic_add(sums + 8, zg.sum(v, 0)))
    left, number = zg.sum(v, 0), 0
    while left > 0:
        left = left // 2
        number += 1
    zg.store(old + 1 + zg.program_id(0), number)


@zg.kernel
def added(a_desc, b_desc, sums_desc, k):
    """The product, added to what is there by TMA."""
    total = zg.zeros((64, 64), zg.f32)
    for at in range(0, k, 64):
        total = zg.dot(a_desc.load((0, at)), b_desc.load((at, 0)), total)
    sums_desc.atomic_add((0, 0), total)


def _asynchronous(name: str, **options: Any) -> Case:
    kernel, types, target, num_warps = asynchronous_kernels.KERNELS[name]
    count = len([type_ for type_ in types if not isinstance(type_, bool)])
    f8 = zg.f8e4m3.dtype

    def arguments() -> Sequence[Any]:
        if kernel is asynchronous_kernels.by_pointers:
            return [integers(64, 128), integers(128, 64), np.zeros((64, 64), np.float16), 128]
        if kernel is asynchronous_kernels.by_bytes:
            return [integers(64, 192, dtype=f8), integers(192, 64, dtype=f8), np.zeros((64, 64), np.float16), 192]
        if kernel in (asynchronous_kernels.tiles, asynchronous_kernels.scaled):
            many = kernel is asynchronous_kernels.tiles
            a, b, c = integers(256, 192), integers(16, 192), np.zeros((256, 16), np.float16)
            return [described(a, 128, 64), described(b, 16, 64), described(c, 128, 16), *[2] * many, 192]
        if kernel is asynchronous_kernels.by_made_maps:
            return [integers(128, 128), integers(256, 128), np.zeros((128, 128), np.float16), 2, 128, 128]
        dtype = f8 if kernel is asynchronous_kernels.by_blocks_of_bytes else np.float16
        if kernel in (asynchronous_kernels.by_descriptors, asynchronous_kernels.by_blocks_of_bytes):
            shapes = [(64, 192) if dtype is np.float16 else (192, 64), (192, 64)]
            blocks = [described(integers(*shape, dtype=dtype), 64, 64) for shape in shapes]
            return [*blocks, described(np.zeros((64, 64), np.float16), 64, 64), 192]
        powers = kernel is asynchronous_kernels.gradients
        arrays = [np.sign(integers(192, 64, seed=at)) / (32 if powers else 1) for at in range(count - 1)]
        return [*(described(array.astype(np.float16), 64, 64) for array in arrays), 192]

    constants = [type_ for type_ in types if isinstance(type_, bool)]
    tolerance = 2e-3 if kernel is asynchronous_kernels.gradients else 0
    return Case(
        kernel.triton(*types[:count], *constants), arguments, CompileOptions(target, num_warps, **options),
        tolerance=tolerance,
    )  # fmt: skip


def _clusters(name: str, **options: Any) -> Case:
    kernel, _, constants = cluster_kernels.arguments(name, 2, 1000, 1024)

    def arguments() -> Sequence[Any]:
        return cluster_kernels.arguments(name, 2, 1000, 1024)[1]

    tolerance = 1e-6 if name == "normalised" else 0
    types = cluster_kernels.types_of(arguments())
    return Case(kernel.triton(*types, *constants), arguments, CompileOptions("sm_90a", **options), (2,), tolerance)


def _products(form: str, tile: tuple[int, int, int], grid: int, **options: Any) -> Case:
    def made() -> tuple[Any, list[Any], Any]:
        return multicast_kernels.product_of(136, 72, 72, tile, form)

    return Case(made()[0], lambda: made()[1], CompileOptions("sm_90a", **options), (grid,))


def _divided_attention() -> Case:
    def arguments() -> Sequence[Any]:
        q, k, v = (normal(192, 64, seed=at) for at in range(3))
        out, lse = np.zeros((192, 64), np.float16), np.zeros(192, np.float32)
        return [described(q, 64, 64), described(k, 32, 64), described(v, 32, 64), described(out, 64, 64), lse, 192, 1]

    return case(divided_kernels.attention, arguments, [32, 64, True], tolerance=2e-3, num_warps=12)


def _persistent() -> Case:
    def arguments() -> Sequence[Any]:
        return persistent_products.arguments(130, 528, 72, persistent_products.matrices(130, 528, 72))

    model = persistent_products.product.triton(*persistent_products.types())
    return Case(model, arguments, CompileOptions("sm_90a", 8), (1, 3, 2))


def _attention(**options: Any) -> Callable[[], Case]:
    def arguments() -> Sequence[Any]:
        q, k, v, out = (normal(256, 64, seed=at) for at in range(4))
        return [described(q, 64, 64), *(described(x, 32, 64) for x in (k, v)), described(out, 64, 64), 128, 0.125]

    roles = options.pop("roles", False)
    kernel = example("attention").attention_kernel
    return lambda: case(kernel, arguments, [True, 64, 32, 64, roles], (2, 2), 2e-3, **options)


def _grouped(activation: str | None, **options: Any) -> Callable[[], Case]:
    def arguments() -> Sequence[Any]:
        a, b, c = integers(100, 104), integers(104, 72), np.zeros((100, 72), np.float16)
        return [a, b, c, 100, 72, 104, 104, 1, 72, 1, 72, 1]

    kernel = example("grouped_matmul").matmul_kernel
    return lambda: case(kernel, arguments, [64, 32, 32, 8, activation], (6,), 1e-3 if activation else 0, **options)


def _grouped_descriptors(**options: Any) -> Callable[[], Case]:
    def arguments() -> Sequence[Any]:
        a, b, c = integers(192, 136), integers(136, 136, seed=1), np.zeros((192, 136), np.float16)
        return [*(described(x, 64, 64) for x in (a, b, c)), 192, 136, 136]

    return lambda: case(example("descriptor_matmul").matmul_kernel, arguments, [64, 64, 64, 4], (9,), **options)


def _gather(**options: Any) -> Callable[[], Case]:
    def arguments() -> Sequence[Any]:
        index = np.random.default_rng(0).permutation(128).astype(np.int32)
        return [integers(64, 128), integers(128, 64), index, np.zeros((64, 64), np.float32), 128]

    return lambda: case(gathered_products, arguments, [64, 64, 32], **options)


def _lower_blocks(n: int, **options: Any) -> Callable[[], Case]:
    def arguments() -> Sequence[Any]:
        return [integers(32, 64), np.zeros((3, 16, 16), np.float32), n]

    return lambda: case(lower_blocks, arguments, [16, 32], **options)


def _running_means(n: int, **options: Any) -> Callable[[], Case]:
    def arguments() -> Sequence[Any]:
        return [normal(n, dtype=np.float32), np.zeros((2, 256), np.float32), n]

    return lambda: case(running_means, arguments, [256], tolerance=1e-6, **options)


def _softmax(**options: Any) -> Callable[[], Case]:
    def arguments() -> Sequence[Any]:
        return [normal(3, 1000, dtype=np.float32), np.zeros((3, 1000), np.float32), 1000]

    return lambda: case(softmax_by_blocks, arguments, [256], (3,), 1e-5, **options)


def _rearranged(count: int, **options: Any) -> Callable[[], Case]:
    def arguments() -> Sequence[Any]:
        y, sums = np.zeros((4, count), np.int32), np.zeros(16 + count // 16, np.int32)
        return [integers(count, dtype=np.int32), y, sums, np.zeros(8, np.int32)]

    return lambda: case(rearranged, arguments, [count], **options)


def _counted(**options: Any) -> Callable[[], Case]:
    def arguments() -> Sequence[Any]:
        return [np.abs(integers(300, dtype=np.int32)), np.zeros(9, np.int32), np.zeros(4, np.int32), 300]

    return lambda: case(counted, arguments, [128], (3,), **options)


def _added() -> Case:
    def arguments() -> Sequence[Any]:
        a, b, c = integers(64, 128), integers(128, 64), integers(64, 64, dtype=np.float32)
        return [*(described(x, 64, 64) for x in (a, b, c)), 128]

    return case(added, arguments)


def _fused_softmax(**options: Any) -> Callable[[], Case]:
    def arguments() -> Sequence[Any]:
        return [np.zeros((3, 500), np.float32), normal(3, 500, dtype=np.float32), 500, 500, 500]

    return lambda: case(example("fused_softmax").softmax_kernel, arguments, [512], (3,), 1e-5, **options)


def _layer_norm() -> Case:
    def arguments() -> Sequence[Any]:
        x, y = normal(4, 480), np.zeros((4, 480), np.float16)
        return [
            x, y, *(normal(480, dtype=np.float32, seed=at) for at in (1, 2)), np.zeros(4, np.float32),
            np.zeros(4, np.float32), 480, 480, 1e-5,
        ]  # fmt: skip

    return case(example("layer_norm").layer_norm_kernel, arguments, [512], (4,), 1e-3)


CASES: dict[str, Callable[[], Case]] = {
    "grouped matmul, sm_80": _grouped("leaky_relu", target="sm_80"),
    "grouped matmul, sm_90a": _grouped(None),
    "grouped descriptors": _grouped_descriptors(),
    "grouped descriptors, sm_80": _grouped_descriptors(target="sm_80"),
    "grouped descriptors, roles": _grouped_descriptors(num_warps=4, warp_specialize=True),
    "attention, sm_80": _attention(target="sm_80"),
    "attention, sm_120a": _attention(target="sm_120a"),
    "attention, roles": _attention(roles=True, num_warps=4),
    "softmax by blocks, sm_80": _softmax(target="sm_80"),
    "softmax by blocks, sm_90a": _softmax(),
    "fused softmax": _fused_softmax(),
    "layer norm": _layer_norm,
    "gathered products, sm_80": _gather(target="sm_80"),
    "gathered products, sm_90a": _gather(),
    "lower blocks": _lower_blocks(32, num_warps=4),
    "lower blocks, one warp": _lower_blocks(32, num_warps=1, target="sm_80"),
    "lower blocks, without the branch": _lower_blocks(16, num_warps=1),
    "running means": _running_means(2000, num_warps=1),
    "running means, of any number": _running_means(1999, num_warps=1, target="sm_80"),
    "rearranged": _rearranged(256, num_warps=4),
    "rearranged, one warp": _rearranged(64, num_warps=1, target="sm_80"),
    "counted": _counted(num_warps=4),
    "added": _added,
    "divided attention": _divided_attention,
    "persistent": _persistent,
    "multicast": lambda: _products("NT", (128, 64, 32), 2, num_warps=4, num_ctas=2),
    "multicast of four": lambda: _products("TN", (256, 64, 32), 1, num_warps=4, num_ctas=4),
    **{f"clusters: {n}": (lambda n=n: _clusters(n, num_warps=2, num_ctas=4)) for n in cluster_kernels.NAMES},
    **{f"in flight: {n}": (lambda n=n: _asynchronous(n)) for n in asynchronous_kernels.KERNELS},
}
