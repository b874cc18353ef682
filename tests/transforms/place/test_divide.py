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
from ziggurat.transforms.place.passes import PLACE, place
from ziggurat.transforms.place.queries import role_split

I32 = zg.divisible(zg.i32)


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


@zg.function
def step(acc, total, top, q, k, v):
    scores = zg.dot(q, zg.trans(k))
    higher = zg.maximum(top, zg.max(scores, axis=1))
    powers = zg.exp2(zg.sub(scores, zg.expand(higher, 1)))
    shrink = zg.exp2(zg.sub(top, higher))
    acc = zg.dot(zg.cast(powers, zg.f16), v, zg.mul(acc, zg.expand(shrink, 1)))
    return acc, zg.add(zg.mul(total, shrink), zg.sum(powers, axis=1)), higher


@zg.kernel
def attention(q_desc, k_desc, v_desc, out_desc, n, N: zg.constexpr, D: zg.constexpr):
    """Three blocks of 64 queries a program, which read the same keys and values."""
    row = zg.program_id(0) * 192
    q0, q1, q2 = q_desc.load((row, 0)), q_desc.load((row + 64, 0)), q_desc.load((row + 128, 0))
    t0, t1, t2 = zg.full((64,), -1e30, zg.f32), zg.full((64,), -1e30, zg.f32), zg.full((64,), -1e30, zg.f32)
    s0, s1, s2 = zg.zeros((64,), zg.f32), zg.zeros((64,), zg.f32), zg.zeros((64,), zg.f32)
    a0, a1, a2 = zg.zeros((64, D), zg.f32), zg.zeros((64, D), zg.f32), zg.zeros((64, D), zg.f32)
    for start in zg.range(0, n, N, warp_specialize=True):
        k, v = k_desc.load((start, 0)), v_desc.load((start, 0))
        a0, s0, t0 = step(a0, s0, t0, q0, k, v)
        a1, s1, t1 = step(a1, s1, t1, q1, k, v)
        a2, s2, t2 = step(a2, s2, t2, q2, k, v)
    out_desc.store((row, 0), zg.cast(zg.div(a0, zg.expand(s0, 1)), zg.f16))
    out_desc.store((row + 64, 0), zg.cast(zg.div(a1, zg.expand(s1, 1)), zg.f16))
    out_desc.store((row + 128, 0), zg.cast(zg.div(a2, zg.expand(s2, 1)), zg.f16))


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


def judged(model: Op, module: gpu.Module, arrays: list[np.ndarray], shapes: list[Any], *more: Any, grid: Any, seed: int,
           close: float = 0) -> None:  # fmt: skip
    """The simulation writes to the last array what the interpreter does."""

    def given() -> list[Any]:
        arrays[-1] = np.full_like(arrays[-1], 7)
        return [*(zg.TensorDescriptor(array, shape) for array, shape in zip(arrays, shapes, strict=True)), *more]

    run(model, None, grid, given())
    wanted = arrays[-1].astype(np.float64)
    parts = in_parts(kernel_of(module), given())
    text = to_llvm(module)
    simulate(text, num_warps=module.num_warps, shared=module.shared, grid=grid, arguments=parts, seed=seed)
    np.testing.assert_allclose(arrays[-1].astype(np.float64), wanted, atol=close, rtol=close)


def small(rows: int, columns: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-2, 3, (rows, columns)).astype(np.float16)


@pytest.mark.parametrize(
    ("what", "warps"),
    [("", (4, 4, 4)), ("more stores", (4, 4, 4)), ("a constant", (4, 4, 4)), ("sum", (4, 4)), ("print", (4, 4))],
)
def test_what_is_divided(what: str, warps: tuple[int, ...]) -> None:
    """Not what one store needs together, nor where other effects have an order."""
    model = products_of(64, 32, 64, what)
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


@pytest.mark.parametrize(("keys", "steps", "seed"), [(64, 3, 0), (32, 4, 1), (64, 1, 2), (64, 2, 3)])
def test_three_blocks_of_queries(keys: int, steps: int, seed: int) -> None:
    """Each consumer waits for keys and values, defers its second dot, and holds its queries."""
    model = attention.triton(*blocks((64, 64), (keys, 64), (keys, 64), (64, 64)), I32, keys, 64)
    module = placed(model, 4, 2)
    assert warps_of(module) == (4, 4, 4, 4)
    assert sorted(op.arrivals for op in module.walk() if isinstance(op, gpu.MbarrierInit)) == [1] * 5 + [3, 3]
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((rows, 64)).astype(np.float16) / 2 for rows in (192, keys * steps, keys * steps))
    shapes = [(64, 64), (keys, 64), (keys, 64), (64, 64)]
    judged(model, module, [q, k, v, np.zeros_like(q)], shapes, keys * steps, grid=(1,), seed=seed, close=4e-3)


def test_too_many_parts_for_a_cta() -> None:
    """Then one consumer has them all."""
    assert warps_of(placed(products_of(256, 16, 32), 16)) == (16, 4)


def test_a_part_is_a_kernel() -> None:
    model: Any = products_of(64, 32, 64, "more stores")
    options = CompileOptions("sm_90a", 4, 3)
    for name, step_ in PLACE:
        if name == "specialize":
            break
        model = step_(model, options)
    parts = parts_of(model)
    assert len(parts) == 2
    for part, stores in zip(parts, (2, 1), strict=True):
        verify(part.module)
        names = [op.NAME for op in part.module.walk()]
        assert names.count("gpu.wgmma") == 1 and names.count("tt.descriptor_store") == stores
        assert all(type(old.op) is type(new.op) for new, old in part.origin.items())  # pyright: ignore
