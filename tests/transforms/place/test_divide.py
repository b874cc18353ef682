"""Dots that no op needs together become consumers of their own, judged by the interpreter of Triton models."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.assemble import to_llvm
from ziggurat.backend.ptx.emitter import kernel_of
from ziggurat.backend.reference.run import run
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.backend.simulator.tma import in_parts
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.place.divide import parts_of
from ziggurat.transforms.place.hazards import hazards
from ziggurat.transforms.place.obstacle import Obstacle
from ziggurat.transforms.place.passes import PLACE, place
from ziggurat.transforms.place.queries import role_split

I32, LESS = zg.divisible(zg.i32), zg.CompareKind.LESS_THAN


def blocks(*shapes: tuple[int, int]) -> list[Any]:
    return [zg.divisible(zg.descriptor(shape, zg.f16)) for shape in shapes]


@zg.kernel
def products(a_desc, b_desc, c_desc, count, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr, WHAT: zg.constexpr):
    """Two blocks of rows of a · b a tile. `WHAT` varies what comes after."""
    for tile in range(zg.program_id(0), count, zg.num_programs(0)):
        row = tile * 2 * M
        c0, c1 = zg.zeros((M, N), zg.f32), zg.zeros((M, N), zg.f32)
        for start in zg.range(0, k, K, warp_specialize=True):
            b = b_desc.load((start, 0))
            c0 = zg.dot(a_desc.load((row, start)), b, c0)
            c1 = zg.dot(a_desc.load((row + M, start)), b, c1)
        if WHAT == "sum":
            c0 = zg.add(c0, c1)
        if WHAT == "more stores":
            c_desc.store((row, N), zg.cast(zg.mul(c0, 2.0), zg.f16))
        if WHAT == "a constant":
            c_desc.store((row, N), zg.full((M, N), 3.0, zg.f16))
        if WHAT == "print":
            zg.device_print("row", row)
        c_desc.store((row, 0), zg.cast(c0, zg.f16))
        c_desc.store((row + M, 0), zg.cast(c1, zg.f16))


@zg.kernel
def pointers(a_desc, b_desc, c_ptr, d_ptr, k, pitch, also, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr,
             WHERE: zg.constexpr):  # fmt: skip
    """Two blocks of rows of a · b, stored through pointers. `WHERE` says which second ones."""
    c0, c1 = zg.zeros((M, N), zg.f32), zg.zeros((M, N), zg.f32)
    for start in zg.range(0, k, K, warp_specialize=True):
        b = b_desc.load((start, 0))
        c0 = zg.dot(a_desc.load((0, start)), b, c0)
        c1 = zg.dot(a_desc.load((M, start)), b, c1)
    rows, columns = zg.expand(zg.arange(0, M), 1), zg.expand(zg.arange(0, N), 0)
    at = zg.add(c_ptr, zg.add(zg.mul(rows, pitch), columns))
    zg.store(at, zg.cast(c0, zg.f16))
    if WHERE == "rows":
        at = zg.add(at, M * pitch)
    if WHERE == "columns":
        at = zg.add(at, N)
    if WHERE == "overlapping":
        at = zg.add(at, (M - 1) * pitch)
    if WHERE == "unknown":
        at = zg.add(at, also)
    if WHERE == "argument":
        at = zg.add(d_ptr, zg.add(zg.mul(rows, pitch), columns))
    zg.store(at, zg.cast(c1, zg.f16))


@zg.function
def step(acc, total, top, q, k, v, start, row, n, CAUSAL: zg.constexpr, N: zg.constexpr):
    scores = zg.dot(q, zg.trans(k))
    columns = zg.expand(zg.add(start, zg.arange(0, N)), 0)
    if CAUSAL:
        if start + N > row:
            rows = zg.expand(zg.add(row, zg.arange(0, 64)), 1)
            scores = zg.where(zg.compare(rows, columns, zg.CompareKind.GREATER_THAN_OR_EQUAL), scores, -1e30)
    if start + N > n:
        scores = zg.where(zg.compare(columns, n, LESS), scores, -1e30)
    higher = zg.maximum(top, zg.max(scores, axis=1))
    powers = zg.exp2(zg.sub(scores, zg.expand(higher, 1)))
    shrink = zg.exp2(zg.sub(top, higher))
    acc = zg.dot(zg.cast(powers, zg.f16), v, zg.mul(acc, zg.expand(shrink, 1)))
    return acc, zg.add(zg.mul(total, shrink), zg.sum(powers, axis=1)), higher


@zg.kernel
def attention(
    q_desc, k_desc, v_desc, out_desc, lse_ptr, n, tiles, N: zg.constexpr, D: zg.constexpr, CAUSAL: zg.constexpr
):  # fmt: skip
    """Three blocks of 64 queries a tile, which read the same keys and values. Masks are in branches."""
    for tile in range(zg.program_id(0), tiles, zg.num_programs(0)):
        row = tile * 192
        q0, q1, q2 = q_desc.load((row, 0)), q_desc.load((row + 64, 0)), q_desc.load((row + 128, 0))
        t0, t1, t2 = zg.full((64,), -1e30, zg.f32), zg.full((64,), -1e30, zg.f32), zg.full((64,), -1e30, zg.f32)
        s0, s1, s2 = zg.zeros((64,), zg.f32), zg.zeros((64,), zg.f32), zg.zeros((64,), zg.f32)
        a0, a1, a2 = zg.zeros((64, D), zg.f32), zg.zeros((64, D), zg.f32), zg.zeros((64, D), zg.f32)
        for start in zg.range(0, row + 192 if CAUSAL else n, N, warp_specialize=True):
            k, v = k_desc.load((start, 0)), v_desc.load((start, 0))
            a0, s0, t0 = step(a0, s0, t0, q0, k, v, start, row, n, CAUSAL, N)
            a1, s1, t1 = step(a1, s1, t1, q1, k, v, start, row + 64, n, CAUSAL, N)
            a2, s2, t2 = step(a2, s2, t2, q2, k, v, start, row + 128, n, CAUSAL, N)
        rows = zg.add(row, zg.arange(0, 64))
        for at, acc, total, top in ((0, a0, s0, t0), (64, a1, s1, t1), (128, a2, s2, t2)):
            out_desc.store((row + at, 0), zg.cast(zg.div(acc, zg.expand(total, 1)), zg.f16))
            zg.store(zg.add(lse_ptr + at, rows), zg.add(top, zg.log2(total)), zg.compare(zg.add(rows, at), n, LESS))


@zg.kernel
def of_two(q_desc, k_desc, v_desc, out_desc, n, tiles, D: zg.constexpr):
    """(q · kᵀ) · v for two sets of keys and values, which lie after each other: the queries are those of both."""
    for tile in range(zg.program_id(0), tiles, zg.num_programs(0)):
        q = q_desc.load((tile * 64, 0))
        a0, a1 = zg.zeros((64, D), zg.f32), zg.zeros((64, D), zg.f32)
        for start in zg.range(0, n, 32, warp_specialize=True):
            s0 = zg.cast(zg.dot(q, zg.trans(k_desc.load((start, 0)))), zg.f16)
            a0 = zg.dot(s0, v_desc.load((start, 0)), zg.mul(a0, 0.5))
            s1 = zg.cast(zg.dot(q, zg.trans(k_desc.load((n + start, 0)))), zg.f16)
            a1 = zg.dot(s1, v_desc.load((n + start, 0)), zg.mul(a1, 0.5))
        out_desc.store((tile * 64, 0), zg.cast(a0, zg.f16))
        out_desc.store((tile * 64, D), zg.cast(a1, zg.f16))


@zg.kernel
def gated(
    a_ptr, b_ptr, c_ptr, d_ptr, e_ptr, m, n, k, am, bk, cm, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr
):  # fmt: skip
    """a · b and a · c to matrices of their own, through pointers, a tile a program."""
    rows, columns = zg.add(zg.program_id(0) * M, zg.arange(0, M)), zg.add(zg.program_id(1) * N, zg.arange(0, N))
    at, at_m = zg.arange(0, K), zg.expand(zg.mod(rows, m), 1)
    at_n = zg.expand(zg.mod(columns, n), 0)
    a_at = zg.add(a_ptr, zg.add(zg.mul(at_m, am), zg.expand(at, 0)))
    offsets = zg.add(zg.mul(zg.expand(at, 1), bk), at_n)
    b_at, c_at = zg.add(b_ptr, offsets), zg.add(c_ptr, offsets)
    one, other = zg.zeros((M, N), zg.f32), zg.zeros((M, N), zg.f32)
    for done in zg.range(0, zg.cdiv(k, K)):
        a_in = zg.broadcast(zg.compare(zg.expand(at, 0), k - done * K, LESS), (M, K))
        b_in = zg.broadcast(zg.compare(zg.expand(at, 1), k - done * K, LESS), (K, N))
        a = zg.load(a_at, a_in, other=0.0)
        one = zg.dot(a, zg.load(b_at, b_in, other=0.0), one)
        other = zg.dot(a, zg.load(c_at, b_in, other=0.0), other)
        a_at, b_at, c_at = zg.add(a_at, K), zg.add(b_at, K * bk), zg.add(c_at, K * bk)
    inside = zg.and_(zg.compare(zg.expand(rows, 1), m, LESS), zg.compare(zg.expand(columns, 0), n, LESS))
    out = zg.add(zg.mul(zg.expand(rows, 1), cm), zg.expand(columns, 0))
    zg.store(zg.add(d_ptr, out), zg.cast(one, zg.f16), inside)
    zg.store(zg.add(e_ptr, out), zg.cast(other, zg.f16), inside)


def placed(model: Op, warps: int = 4, stages: int = 3) -> gpu.Module:
    module = place(model, CompileOptions("sm_90a", warps, stages))
    verify(module)
    assert hazards(module) == []
    return module


def warps_of(module: gpu.Module) -> tuple[int, ...]:
    split = role_split(module)
    return () if split is None else tuple(split.warps)


def products_of(m: int, n: int, k: int, what: str = "") -> Op:
    return products.triton(*blocks((m, k), (k, n), (m, n)), zg.i32, I32, m, n, k, what)


def simulated(module: gpu.Module, grid: Any, given: list[Any], seed: int, ctas: Any = None) -> None:
    parts = in_parts(kernel_of(module), given, grid=(*grid, 1, 1)[:3])
    sizes = {"num_warps": module.num_warps, "shared": module.shared, "grid": ctas or grid}
    simulate(to_llvm(module), **sizes, arguments=parts, seed=seed)


def judged(
    model: Op, module: gpu.Module, arrays: list[np.ndarray], shapes: list[Any], *more: Any, grid: Any, seed: int,
    outs: int = 1, close: float = 0, ctas: Any = None,
) -> None:  # fmt: skip
    """The simulation writes to the last arrays what the interpreter does. Arrays with a shape are descriptors."""
    found: list[list[np.ndarray]] = []
    for judge in (True, False):
        mine = [*arrays[:-outs], *(np.full_like(one, 7) for one in arrays[-outs:])]
        pairs = zip(mine, shapes, strict=True)
        given = [one if shape is None else zg.TensorDescriptor(one, shape) for one, shape in pairs]
        if judge:
            run(model, None, grid, [*given, *more])
        else:
            simulated(module, grid, [*given, *more], seed, ctas)
        found.append(mine[-outs:])
    for wanted, got in zip(*found, strict=True):
        np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), atol=close, rtol=close)


def small(rows: int, columns: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-2, 3, (rows, columns)).astype(np.float16)


@pytest.mark.parametrize(
    ("what", "warps"),
    [("", (4, 4, 4)), ("more stores", (4, 4, 4)), ("a constant", (4, 4, 4)), ("sum", (4, 4)), ("print", (4, 4))],
)
def test_what_is_divided(what: str, warps: tuple[int, ...]) -> None:
    """Not what one store needs together, nor where other effects have an order."""
    model = products_of(64, 32, 64, what)
    if what == "print":
        with pytest.warns(zg.ZigguratWarning, match="not divided among consumers: an op must keep its order"):
            module = placed(model)
    else:
        module = placed(model)
    assert warps_of(module) == warps
    arrays = [small(256, 192, 1), small(192, 32, 2), np.zeros((256, 64), np.float16)]
    judged(model, module, arrays, [(64, 64), (64, 32), (64, 32)], 2, 192, grid=(2,), seed=2)


@pytest.mark.parametrize("seed", range(6))
def test_random_shapes(seed: int) -> None:
    rng = random.Random(seed)
    warps, n, k = rng.choice([4, 4, 8]), rng.choice([16, 32, 64]), rng.choice([32, 64])
    m, tiles, steps = 16 * warps * rng.choice([1, 2]), rng.randrange(1, 4), rng.randrange(5)
    model = products_of(m, n, k)
    module = placed(model, warps, rng.randrange(2, 5))
    assert warps_of(module) == (warps, warps, 4)
    arrays = [small(2 * m * tiles, max(k * steps, k), 1), small(max(k * steps, k), n, 2)]
    arrays.append(np.zeros((2 * m * tiles, n), np.float16))
    judged(model, module, arrays, [(m, k), (k, n), (m, n)], tiles, k * steps, grid=(rng.randrange(1, 3),), seed=seed)


def arrivals_of(module: gpu.Module) -> list[int]:
    return sorted(op.arrivals for op in module.walk() if isinstance(op, gpu.MbarrierInit))


@pytest.mark.parametrize(
    ("causal", "keys", "n", "programs"),
    [(False, 64, 384, 2), (False, 32, 300, 1), (True, 64, 300, 1), (True, 32, 192, 1)],
)
def test_three_blocks_of_queries(causal: bool, keys: int, n: int, programs: int) -> None:
    """Each consumer waits for keys, values and its queries, which it holds; it defers its second dot and its store."""
    model = attention.triton(
        *blocks((64, 64), (keys, 64), (keys, 64), (64, 64)), zg.ptr(zg.f32), zg.i32, zg.i32, keys, 64, causal
    )
    module = placed(model, 4, 2)
    assert warps_of(module) == (4, 4, 4, 4)
    # Full slots; empty ones of keys and values; and those of queries, which the warps of one consumer read.
    assert arrivals_of(module) == [*[1] * 5, 3, 3, 4, 4, 4]
    names = [op.NAME for op in module.walk()]
    assert [names.count(f"gpu.{name}") for name in ("keep", "tma_store", "tma_store_wait")] == [3, 3, 6]
    rng = np.random.default_rng(n)
    q, k, v = (rng.standard_normal((n, 64)).astype(np.float16) / 2 for _ in range(3))
    arrays, shapes = [q, k, v, q, np.zeros(n, np.float32)], [(64, 64), (keys, 64), (keys, 64), (64, 64), None]
    judged(model, module, arrays, shapes, n, -(-n // 192), grid=(programs,), seed=n, outs=2, close=4e-3)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_block_that_two_consumers_read(seed: int) -> None:
    """The producer loads it once a tile, and it is free when both have read it to registers."""
    model = of_two.triton(*blocks((64, 64), (32, 64), (32, 64), (64, 64)), I32, zg.i32, 64)
    module = placed(model, 4, 2)
    assert warps_of(module) == (4, 4, 4) and arrivals_of(module).count(8) == 1
    loads = [op for op in module.walk() if isinstance(op, gpu.TmaLoad)]
    assert len(loads) == 5
    arrays = [small(128, 64, 1), small(192, 64, 2), small(192, 64, 3), np.zeros((128, 128), np.float16)]
    shapes = [(64, 64), (32, 64), (32, 64), (64, 64)]
    judged(model, module, arrays, shapes, 96, 2, grid=(1,), seed=seed, close=2e-3)


def test_persistent_programs_of_two_consumers() -> None:
    """The compiler makes the roles: each consumer stores a matrix of its own, while the producer loads for the next
    program."""
    pointer = zg.divisible(zg.ptr(zg.f16))
    model = gated.triton(*[pointer] * 5, zg.i32, I32, zg.i32, I32, I32, I32, 128, 128, 64)
    module = placed(model, 8)
    assert warps_of(module) == (8, 8, 4)
    m, n, k = 200, 136, 72
    arrays = [small(m + 56, 80, 1), small(k + 56, 144, 2), small(k + 56, 144, 3), *[np.zeros((m, 144), np.float16)] * 2]
    judged(model, module, arrays, [None] * 5, m, n, k, 80, 144, 144, grid=(2, 2), seed=1, outs=2, ctas=(1,))


@pytest.mark.parametrize(
    ("where", "count"), [("rows", 2), ("columns", 2), ("argument", 2), ("overlapping", 1), ("unknown", 1)]
)
def test_stores_through_pointers(where: str, count: int) -> None:
    """They may be in different parts, if they are known to write other elements of a matrix."""
    pointer = zg.ptr(zg.f16)
    types = [*blocks((64, 64), (64, 32)), pointer, pointer, I32, zg.i32, zg.i32]
    model = pointers.triton(*types, 64, 32, 64, where)
    if count == 1:
        with pytest.warns(zg.ZigguratWarning, match="not divided among consumers: it may store where"):
            module = placed(model)
    else:
        module = placed(model)
    assert warps_of(module) == (*[4] * count, 4)
    arrays = [small(128, 128, 1), small(128, 32, 2), *[np.zeros((130, 64), np.float16)] * 2]
    judged(model, module, arrays, [(64, 64), (64, 32), None, None], 128, 64, 16, grid=(1,), seed=3, outs=2)


def test_too_many_parts_for_a_cta() -> None:
    """Then one consumer has them all."""
    with pytest.warns(zg.ZigguratWarning, match="2 times 16 warps are more than a CTA can have"):
        assert warps_of(placed(products_of(256, 16, 32), 16)) == (16, 4)


def test_a_part_is_a_kernel() -> None:
    model: Any = products_of(64, 32, 64, "more stores")
    options = CompileOptions("sm_90a", 4, 3)
    for name, step_ in PLACE:
        if name == "specialize":
            break
        model = step_(model, options)
    parts = parts_of(model)
    assert not isinstance(parts, Obstacle) and len(parts) == 2
    for part, stores in zip(parts, (2, 1), strict=True):
        verify(part.module)
        names = [op.NAME for op in part.module.walk()]
        assert names.count("gpu.wgmma") == 1 and names.count("tt.descriptor_store") == stores
        assert all(type(old.op) is type(new.op) for new, old in part.origin.items())  # pyright: ignore
