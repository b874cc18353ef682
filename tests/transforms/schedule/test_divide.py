"""Dots that no op needs together become consumers of their own, judged by the interpreter of Triton models."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from divided_kernels import attention, gated, of_two, pointers, products, tiles

import ziggurat as zg
from ziggurat.backend.ptx.assemble import to_llvm
from ziggurat.backend.reference.run import run
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.backend.simulator.tma import in_parts
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.analysis.obstacle import Obstacle
from ziggurat.transforms.analysis.queries import function_of, is_persistent, role_split
from ziggurat.transforms.gpu.gpu_passes import PLACE, place
from ziggurat.transforms.gpu.hazards import hazards
from ziggurat.transforms.schedule.divide import parts_of
from ziggurat.transforms.schedule.specialize import specialize

I32 = zg.divisible(zg.i32)
Golden = Callable[[str, object], None]


def blocks(*shapes: tuple[int, int]) -> list[Any]:
    return [zg.divisible(zg.descriptor(shape, zg.f16)) for shape in shapes]


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


def simulated(module: gpu.Module, grid: Any, argument: list[Any], seed: int, ctas: Any = None) -> None:
    parts = in_parts(function_of(module), argument, grid=(*grid, 1, 1)[:3])
    sizes = {"num_warps": module.num_warps, "shared": module.shared, "grid": ctas or grid}
    simulate(to_llvm(module), **sizes, arguments=parts, seed=seed)


def judged(
    model: Op, module: gpu.Module, arrays: list[np.ndarray], shapes: list[Any], *more: Any, grid: Any, seed: int,
    outs: int = 1, close: float = 0, ctas: Any = None,
) -> None:  # fmt: skip
    """The simulation writes to the last arrays what the interpreter does. Arrays with a shape are descriptors."""
    results: list[list[np.ndarray]] = []
    for judge in (True, False):
        mine = [*arrays[:-outs], *(np.full_like(array, 7) for array in arrays[-outs:])]
        pairs = zip(mine, shapes, strict=True)
        arguments = [item if shape is None else zg.TensorDescriptor(item, shape) for item, shape in pairs]
        if judge:
            run(model, None, grid, [*arguments, *more])
        else:
            simulated(module, grid, [*arguments, *more], seed, ctas)
        results.append(mine[-outs:])
    for expected, got in zip(*results, strict=True):
        np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), atol=close, rtol=close)


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
    [(False, 64, 300, 2), (True, 32, 300, 1)],
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


@pytest.mark.parametrize(("step_", "count"), [(2, 2), (1, 1)])
def test_stores_in_different_iterations(step_: int, count: int) -> None:
    """The first block of a tile may be the second one of the tile before, which one consumer stores before it."""
    model = tiles.triton(*blocks((64, 64), (64, 32)), zg.divisible(zg.ptr(zg.f32)), zg.i32, I32, 64, 32, 64, step_)
    if count == 1:
        with pytest.warns(zg.ZigguratWarning, match="not divided among consumers: it may store where"):
            module = placed(model)
    else:
        module = placed(model)
    assert warps_of(module) == (*[4] * count, 4)
    arrays = [small(384, 64, 1), small(64, 32, 2), np.zeros((384, 32), np.float32)]
    judged(model, module, arrays, [(64, 64), (64, 32), None], 3, 64, grid=(1,), seed=1)


def test_too_many_parts_for_a_cta() -> None:
    """Then one consumer has them all, if its threads have the registers."""
    with pytest.warns(zg.ZigguratWarning, match="2 times 16 warps are more than a CTA can have"):
        assert warps_of(placed(products_of(256, 16, 32), 16)) == (16, 4)
    assert warps_of(placed(products_of(128, 128, 32), 8)) == (8, 8, 4)
    with pytest.warns(zg.ZigguratWarning, match="a thread of a consumer has 240 registers, and the loop carries 256"):
        assert warps_of(placed(products_of(128, 256, 32), 8)) == ()


def before_roles(model: Any, warps: int = 4) -> Any:
    """The model before `specialize`."""
    for name, step_ in PLACE:
        if name == "specialize":
            break
        model = step_(model, CompileOptions("sm_90a", warps, 3))
    return model


def test_programs_in_turn_have_no_order() -> None:
    """Stores of two of them are not compared."""
    pointer = zg.divisible(zg.ptr(zg.f16))
    model = gated.triton(*[pointer] * 5, zg.i32, I32, zg.i32, I32, I32, I32, 128, 128, 64, True)
    result = before_roles(model, 8)
    (func,) = result.functions().values()
    parts = parts_of(result)
    assert is_persistent(func) and not isinstance(parts, Obstacle) and len(parts) == 2


def test_a_part_is_a_kernel() -> None:
    parts = parts_of(before_roles(products_of(64, 32, 64, "more stores")))
    assert not isinstance(parts, Obstacle) and len(parts) == 2
    for part, stores in zip(parts, (2, 1), strict=True):
        verify(part.module)
        names = [op.NAME for op in part.module.walk()]
        assert names.count("gpu.wgmma") == 1 and names.count("tt.descriptor_store") == stores
        assert all(type(old.op) is type(new.op) for new, old in part.origin.items())  # pyright: ignore


def test_the_roles_of_two_parts(golden: Golden) -> None:
    result = specialize(before_roles(products_of(64, 32, 64)), 2)
    verify(result)
    golden("specialize.parts", result)


@pytest.mark.parametrize("what", ["queries", "keys and values"])
def test_the_releases_of_each_consumer_count(what: str) -> None:
    """Without one, or with that of a warp group in place of its warps, the finished model has a hazard."""
    types = [*blocks((64, 64), (64, 64), (64, 64), (64, 64)), zg.ptr(zg.f32), zg.i32, zg.i32, 64, 64, False]
    module = placed(attention.triton(*types), 4, 2)
    results = [op for op in module.walk() if isinstance(op, gpu.MbarrierArrive) and op.each_warp == (what == "queries")]
    assert len(results) >= 3
    for op in results[:3]:
        other = gpu.MbarrierArrive(*op.operands, each_warp=not op.each_warp)

        def changed(
            builder: Rewriter, item: Op, operands: tuple[Value, ...], op: Op = op, other: Op = other
        ) -> Outcome:
            return builder.add(other.evolve(barrier=operands[0], predicate=operands[1])) if item is op else None

        broken = transform(module, changed)
        assert any("arrivals" in hazard.missing for hazard in hazards(broken))
