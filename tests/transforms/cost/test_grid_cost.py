"""The work of all programs of a grid: iterations of loops from arguments and program numbers."""

from __future__ import annotations

from typing import Any

import pytest

import ziggurat as zg
from ziggurat.transforms.cost.cost import Work, cost_of
from ziggurat.transforms.cost.grid_cost import Launch, work_of_grid

F32 = zg.divisible(zg.ptr(zg.f32), 16)
LESS = zg.CompareKind.LESS_THAN


@zg.kernel
def rows(x, out, n, B: zg.constexpr):
    total = zg.zeros((B,), zg.f32)
    for start in range(0, n, B):
        total = zg.add(total, zg.load(zg.add(x, zg.add(start, zg.arange(0, B)))))
    zg.store(zg.add(out, zg.arange(0, B)), total)


@zg.kernel
def triangle(x, out, B: zg.constexpr):
    total = zg.zeros((B,), zg.f32)
    for row in range(0, zg.program_id(1) + 1):
        for _ in range(6, 2 * zg.num_programs(1) - 3, -2):
            total = zg.add(total, zg.load(zg.add(x, zg.add(row, zg.arange(0, B)))))
    zg.store(zg.add(out, zg.arange(0, B)), total)


@zg.kernel
def branching(x, out, n, B: zg.constexpr):
    at = zg.arange(0, B)
    if zg.program_id(0) < n:
        zg.store(zg.add(out, at), zg.load(zg.add(x, at)))


@zg.kernel
def inner_bounds(x, out, n, B: zg.constexpr):
    total = zg.zeros((B,), zg.f32)
    for row in range(0, n):
        for _ in range(0, row):
            total = zg.add(total, zg.load(zg.add(x, zg.arange(0, B))))
    zg.store(zg.add(out, zg.arange(0, B)), total)


@zg.kernel
def far(x, out, n, B: zg.constexpr):
    at = zg.arange(0, B)
    for _ in range(-2000000000, n, 1000000):
        zg.store(zg.add(out, at), zg.load(zg.add(x, at)))


@zg.kernel
def counted(x, out, n, B: zg.constexpr):
    at, count = zg.arange(0, B), n
    while count > 0:
        zg.store(zg.add(out, at), zg.load(zg.add(x, at)))
        count -= 1


def work(kernel: Any, types: list[Any], grid: tuple[int, int, int], **numbers: int) -> Work | None:
    cost = cost_of(kernel.compile(*types).stages["gpu"])
    parameters = list(kernel.signature.parameters)
    return work_of_grid(cost, Launch(grid, {str(parameters.index(name)): value for name, value in numbers.items()}))


@pytest.mark.parametrize(("n", "iterations"), [(4096, 4), (4097, 5), (1, 1), (0, 0)])
def test_iterations_from_an_argument(n: int, iterations: int):
    actual = work(rows, [F32, F32, zg.i32, 1024], (3, 1, 1), n=n)
    assert actual is not None
    assert actual.read == 3 * iterations * 4096 and actual.written == 3 * 4096


def test_bounds_whose_difference_has_no_32_bits():
    actual = work(far, [F32, F32, zg.i32, 1024], (1, 1, 1), n=2000000000)
    assert actual is not None and actual.read == actual.written == 4000 * 4096


def test_iterations_from_the_number_of_the_program():
    actual = work(triangle, [F32, F32, 256], (2, 3, 1))
    # 2 programs each for 1, 2 and 3 rows; the loop goes from 6 down to, without, 3: two steps.
    assert actual is not None and actual.read == pytest.approx(2 * (1 + 2 + 3) * 2 * 1024)


def test_a_large_grid_is_sampled():
    actual = work(triangle, [F32, F32, 256], (1, 1 << 10, 1))
    assert actual is not None and actual.read == 0  # From 6 up to 2045 by −2.
    actual = work(rows, [F32, F32, zg.i32, 1024], (1 << 20, 1, 1), n=1024)
    assert actual is not None and actual.read == pytest.approx((1 << 20) * 4096)


@pytest.mark.parametrize(("n", "programs"), [(3, 3), (10, 4), (0, 0)])
def test_branches_with_known_conditions(n: int, programs: int):
    actual = work(branching, [F32, F32, zg.i32, 1024], (4, 1, 1), n=n)
    assert actual is not None and actual.written == programs * 4096


def test_iterations_from_the_index_of_a_loop_around():
    actual = work(inner_bounds, [F32, F32, zg.i32, 1024], (2, 1, 1), n=5)
    assert actual is not None and actual.read == 2 * (0 + 1 + 2 + 3 + 4) * 4096


def test_loops_that_are_left_open():
    assert work(rows, [F32, F32, zg.i32, 1024], (1, 1, 1)) is None
    assert work(counted, [F32, F32, zg.i32, 1024], (1, 1, 1), n=5) is None
    # A loop that does not run has no open loop in it.
    assert work(inner_bounds, [F32, F32, zg.i32, 1024], (1, 1, 1), n=0) is not None
