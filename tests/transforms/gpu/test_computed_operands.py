"""Operands of mma.sync that threads compute: in the fragments of the instruction, read from the slots of copies."""

from __future__ import annotations

import re
from typing import Any

import attrs
import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.tiles import Tiles, places_a, places_b
from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.fragments import UNITS, WarpGrid, operand_a, panels_of
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.transforms.gpu.gpu_passes import place

DTYPES: dict[Any, Any] = {
    zg.f16: np.float16, zg.bf16: ml_dtypes.bfloat16, zg.f32: np.float32, zg.i8: np.int8, zg.u8: np.uint8,
    zg.f8e5m2: ml_dtypes.float8_e5m2,
}  # fmt: skip


@zg.function
def plain(x: Any, to: Any, s: Any) -> Any:
    return x


@zg.function
def widened(x: Any, to: Any, s: Any) -> Any:
    return zg.cast(x, to)


@zg.function
def scaled(x: Any, to: Any, s: Any) -> Any:
    return zg.cast(zg.mul(zg.cast(x, zg.f32), s), to)


@zg.function
def positive(x: Any, to: Any, s: Any) -> Any:
    return zg.where(zg.greater(x, 0), zg.cast(x, to), zg.cast(s, to))


@zg.kernel
def product(
    a, b, s, out, m, n, k, F: zg.constexpr, G: zg.constexpr, TO: zg.constexpr, M: zg.constexpr, N: zg.constexpr,
    K: zg.constexpr, DOWN: zg.constexpr, ALONG: zg.constexpr,
):  # fmt: skip
    """F(a) · G(b), m×k by k×n, in steps of K. a has its neighbours along m if DOWN, b along k if ALONG."""
    rows, columns, along = zg.arange(0, M), zg.arange(0, N), zg.arange(0, K)
    total = zg.zeros((M, N), zg.f32)
    for start in zg.range(0, k, K):
        of_k = zg.add(along, start)
        a_at = zg.add(zg.mul(zg.expand(rows, 1), 1 if DOWN else k), zg.mul(zg.expand(of_k, 0), m if DOWN else 1))
        b_at = zg.add(zg.mul(zg.expand(of_k, 1), 1 if ALONG else n), zg.mul(zg.expand(columns, 0), k if ALONG else 1))
        inside_a = zg.and_(zg.less(zg.expand(rows, 1), m), zg.less(zg.expand(of_k, 0), k))
        inside_b = zg.and_(zg.less(zg.expand(of_k, 1), k), zg.less(zg.expand(columns, 0), n))
        own = zg.add(s, zg.add(of_k, zg.mul(zg.program_id(0), 64)))
        scale = zg.load(own, zg.less(of_k, k), other=0.0)
        x = F(zg.load(zg.add(a, a_at), inside_a, other=0), TO, zg.expand(scale, 0))
        y = G(zg.load(zg.add(b, b_at), inside_b, other=0), TO, zg.expand(scale, 1))
        total = zg.dot(x, y, total, "tf32")
    inside = zg.and_(zg.less(zg.expand(rows, 1), m), zg.less(zg.expand(columns, 0), n))
    zg.store(zg.add(out, zg.add(zg.mul(zg.expand(rows, 1), n), zg.expand(columns, 0))), total, inside)


def types_of(elements: tuple[Any, Any]) -> list[Any]:
    return [zg.divisible(zg.ptr(element), 16) for element in (*elements, zg.f32, zg.f32)] + [zg.divisible(zg.i32)] * 3


def checked(kernel: Any, elements: tuple[Any, Any], functions: tuple[Any, Any], sizes: tuple[int, int, int], *,
            down: bool = False, along: bool = False) -> None:  # fmt: skip
    m, n, k = sizes
    random = np.random.default_rng(m + n + k)
    a, b = (random.integers(-3 if element is not zg.u8 else 0, 4, shape).astype(DTYPES[element])
            for element, shape in zip(elements, ((m, k), (k, n)), strict=True))  # fmt: skip
    s = random.integers(1, 4, k).astype(np.float32)
    numbers = [x.astype(np.float64) for x in (a, b)]
    for at, (function, scales) in enumerate(zip(functions, (s[None, :], s[:, None]), strict=True)):
        if function is scaled:
            numbers[at] = numbers[at] * scales
        elif function is positive:
            numbers[at] = np.where(numbers[at] > 0, numbers[at], scales)
    out = np.full((m, n), np.nan, np.float32)
    a, b = a.T.copy() if down else a, b.T.copy() if along else b
    kernel.simulate[(1,)](a, b, s, out, m, n, k)
    assert np.array_equal(out, numbers[0] @ numbers[1])


FORMS = [
    ((zg.f16, zg.f16), (plain, scaled), zg.f16),
    ((zg.bf16, zg.bf16), (plain, scaled), zg.bf16),
    ((zg.f16, zg.f16), (scaled, plain), zg.f16),
    ((zg.f16, zg.f16), (scaled, scaled), zg.f16),
    ((zg.f16, zg.i8), (plain, widened), zg.f16),
    ((zg.bf16, zg.i8), (plain, widened), zg.bf16),
    ((zg.u8, zg.f16), (widened, plain), zg.f16),
    ((zg.i8, zg.i8), (scaled, widened), zg.bf16),
    ((zg.f16, zg.f8e5m2), (plain, widened), zg.f16),
    ((zg.f32, zg.f16), (plain, widened), zg.f32),
    ((zg.f16, zg.f32), (widened, plain), zg.f32),
    ((zg.f32, zg.f32), (plain, scaled), zg.f32),
    ((zg.bf16, zg.i8), (widened, widened), zg.f32),
    ((zg.f16, zg.f16), (plain, positive), zg.f16),
]


SHAPES = [((16, 64, 64), 4, "sm_90a"), ((32, 32, 32), 2, "sm_80"), ((32, 16, 16), 1, "sm_90a")]


@pytest.mark.parametrize(("down", "along"), [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("number", range(len(FORMS)))
def test_results(number: int, down: bool, along: bool) -> None:
    elements, functions, to = FORMS[number]
    shape, warps, target = SHAPES[(number + down) % len(SHAPES)]
    form = *types_of(elements), *functions, to, *shape, down, along
    kernel = product.compile(*form, num_warps=warps, target=target, verify=True)
    checked(kernel, elements, functions, (shape[0], shape[1], 2 * shape[2]), down=down, along=along)


@pytest.mark.parametrize(("warps", "num_stages"), [(1, 3), (2, 2), (8, 3), (4, 1), (4, 4)])
def test_ragged_sizes_and_warps(warps: int, num_stages: int) -> None:
    elements, functions = (zg.bf16, zg.i8), (plain, scaled)
    form = *types_of(elements), *functions, zg.bf16, 16, 64, 64, False, True
    kernel = product.compile(*form, num_warps=warps, num_stages=num_stages, target="sm_90a")
    checked(kernel, elements, functions, (16, 48, 144), along=True)


def loop_of(model: Op) -> scf.For:
    return next(op for op in model.walk() if isinstance(op, scf.For))


@pytest.mark.parametrize(("elements", "functions", "to"), FORMS[:2] + FORMS[4:6])
def test_computed_operands_stay_in_registers(elements: Any, functions: Any, to: Any) -> None:
    model = product.triton(*types_of(elements), *functions, to, 16, 64, 64, False, True)
    ops = [*loop_of(place(model, CompileOptions(num_warps=4, target="sm_90a"))).walk()]
    assert not any(isinstance(op, gpu.LocalStore) for op in ops), "the operand goes through shared memory again"
    assert sum(isinstance(op, gpu.Barrier) for op in ops) == 1 and any(isinstance(op, tt.Dot) for op in ops)
    assert not any(isinstance(op, tt.Load) for op in ops), "scales come with the operands"


@pytest.mark.parametrize("element", [zg.i8, zg.u8, zg.f8e5m2], ids=str)
def test_bytes_along_n_come_two_by_two(element: Any) -> None:
    """A thread gets two bytes of two rows by ldmatrix: the rows of its accumulator are neighbours."""
    elements, functions = (zg.f16, element), (plain, widened)
    kernel = product.compile(
        *types_of(elements), *functions, zg.f16, 32, 64, 32, False, False, num_warps=4, target="sm_90a"
    )
    assert "ldmatrix.sync.aligned.m8n8.x4.trans" in kernel.ptx and not re.search(r"ld\.shared\.[a-z]8", kernel.ptx)
    checked(kernel, elements, functions, (32, 64, 96))


@pytest.mark.parametrize("run", [2, 4, 8])
def test_parts_of_runs(run: int) -> None:
    """Each instruction takes the next elements of the runs, so that all together have every element once."""
    unit = attrs.evolve(UNITS["m16n8k16"], run=run)
    tiles = Tiles(unit, WarpGrid(1, 1, 1), 16, 8, 64)
    layout = operand_a(unit, (16, 64), WarpGrid(1, 1, 1))
    places = [(row, at + k) for at in tiles.depths for row, k in places_a(unit)]
    assert sorted(row * 64 + k for row, k in places) == sorted(map(layout.element, range(layout.num_registers)))
    assert [(at + k, column) for at in tiles.depths for k, column in places_b(unit)] == [
        (k, 0) for row, k in places if row == 0
    ]


@zg.kernel
def packed(a, b, out, N: zg.constexpr, K: zg.constexpr):
    """a · b, 64 rows, with two numbers of 4 bits in a byte of b: neighbours along k."""
    rows, columns, along = zg.expand(zg.arange(0, 64), 1), zg.expand(zg.arange(0, N), 0), zg.arange(0, K)
    halves = zg.load(b + zg.expand(zg.arange(0, K // 2), 1) * N + columns)
    pairs = zg.join(halves & 15, zg.shr(halves, 4))
    weights = zg.cast(zg.reshape(zg.trans(pairs, (0, 2, 1)), (K, N)), zg.f16) - 8.0
    total = zg.dot(zg.load(a + rows * K + zg.expand(along, 0)), zg.cast(weights, zg.f16))
    zg.store(out + rows * N + columns, total)


def test_threads_store_operands_along_the_axis_that_costs_less() -> None:
    """A thread has two numbers along k and 16 along n: words along k would go to 8 lines of each bank."""
    random = np.random.default_rng(0)
    a, b = random.standard_normal((64, 64)).astype(np.float16), random.integers(0, 256, (32, 64), dtype=np.uint8)
    P, B = zg.divisible(zg.ptr(zg.f16)), zg.divisible(zg.ptr(zg.u8))
    compiled = packed.compile(P, B, zg.divisible(zg.ptr(zg.f32)), 64, 64, target="sm_90a", num_warps=4)
    (product,) = [op for op in compiled.stages["gpu"].walk() if isinstance(op, gpu.Wgmma)]
    panels = panels_of(product.b.type, 0)
    assert panels is not None and not panels.k_major and "8-way" not in compiled.explain()
    out = np.zeros((64, 64), np.float32)
    compiled.simulate[(1,)](a, b, out)
    numbers = np.stack([b & 15, b >> 4], 1).reshape(64, 64).astype(np.float32) - 8
    np.testing.assert_allclose(out, a.astype(np.float32) @ numbers, rtol=1e-4, atol=1e-3)
