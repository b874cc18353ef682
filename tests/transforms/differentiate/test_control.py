"""Gradients of branches and loops against finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from finite_differences import check_gradient

import ziggurat as zg
from ziggurat.codemodel.dialects import scf, tt
from ziggurat.transforms.differentiate import differentiate

f64, i32 = zg.ptr(zg.f64), zg.i32


def loops(model: Any) -> list[Any]:
    return [op for op in model.walk() if isinstance(op, scf.For)]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@zg.kernel
def branching(x, y, out, n, BLOCK: zg.constexpr):
    pid = zg.program_id(0)
    at = zg.add(pid * BLOCK, zg.arange(0, BLOCK))
    mask = zg.less(at, n)
    a = zg.load(zg.add(x, at), mask, other=0.0)
    scale = zg.load(y + pid)
    b = zg.mul(a, scale)
    if zg.sum(a, axis=0) > 0.0:
        b = zg.mul(b, a)
        c = zg.exp(a)
    else:
        c = zg.load(zg.add(y, zg.arange(0, BLOCK)), zg.less(zg.arange(0, BLOCK), 3), other=1.0)
    if pid == 1:
        zg.store(zg.add(out, at), zg.mul(b, scale), mask)
    else:
        zg.store(zg.add(out, at), zg.add(b, c), mask)


def test_branches(rng):
    model = branching.triton(f64, f64, f64, i32, 8)
    x, y, out = rng.standard_normal(30), rng.standard_normal(4), np.zeros(30)
    x[16:24] -= 2  # Now its sum is negative.
    check_gradient(model, 4, [x, y, out, 30], [2], [0, 1])


@zg.kernel
def polynomial(x, c, out, n, start, stop, STEP: zg.constexpr):
    """Each iteration needs the value that the one before has computed."""
    at = zg.arange(0, 4)
    value = zg.load(zg.add(x, at))
    total = zg.zeros((4,), zg.f64)
    for i in range(start, stop, STEP):
        value = zg.mul(zg.sin(value), zg.load(c + i))
        total = zg.add(total, zg.mul(value, value))
    zg.store(zg.add(out, at), zg.add(total, value))


@pytest.mark.parametrize(
    ("start", "stop", "step"), [(0, 5, 1), (1, 8, 3), (7, -1, -2), (3, 3, 1), (5, 2, 1), (0, 1, 4)]
)
def test_a_loop_that_carries_what_it_needs(rng, start, stop, step):
    model = polynomial.triton(f64, f64, f64, i32, i32, i32, step)
    x, c = rng.standard_normal(4), rng.standard_normal(8)
    check_gradient(model, 1, [x, c, np.zeros(4), 0, start, stop], [2], [0, 1])


def test_the_iterations_before_are_run_again():
    gradient = differentiate(polynomial.triton(f64, f64, f64, i32, i32, i32, 1), [2], [0, 1])
    assert [len(loops(loop)) for loop in loops(gradient)] == [2, 1]


@pytest.mark.parametrize(("start", "stop", "step"), [(0, 5, 1), (1, 8, 3), (7, -1, -2), (3, 3, 1), (2, 5, -1)])
def test_a_loop_whose_step_is_an_argument(rng, start, stop, step):
    @zg.kernel
    def kernel(x, c, out, start, stop, step):
        at = zg.arange(0, 4)
        value = zg.load(zg.add(x, at))
        for i in range(start, stop, step):
            value = zg.mul(zg.cos(value), zg.load(c + i))
        zg.store(zg.add(out, at), value)

    model = kernel.triton(f64, f64, f64, i32, i32, i32)
    x, c = rng.standard_normal(4), rng.standard_normal(8)
    check_gradient(model, 1, [x, c, np.zeros(4), start, stop, step], [2], [0, 1])


def test_a_loop_that_counts_with_unsigned_numbers(rng):
    @zg.kernel
    def kernel(x, c, out, n):
        at = zg.arange(0, 4)
        value = zg.load(zg.add(x, at))
        for i in range(zg.cast(1, zg.u32), n, zg.cast(2, zg.u32)):
            value = zg.mul(zg.cos(value), zg.load(c + i))
        zg.store(zg.add(out, at), value)

    model = kernel.triton(f64, f64, f64, zg.u32)
    for n in (0, 1, 2, 8):
        x, c = rng.standard_normal(4), rng.standard_normal(8)
        check_gradient(model, 1, [x, c, np.zeros(4), n], [2], [0, 1])


@zg.kernel
def summing(x, w, out, n, K: zg.constexpr):
    """A loop that only adds, with pointers that move."""
    at = zg.arange(0, K)
    x_at, w_at = zg.add(x, at), zg.add(w, at)
    scale = zg.load(w)
    total = zg.zeros((K,), zg.f64)
    number = 0
    for start in range(0, n, K):
        mask = zg.less(at, n - start)
        value = zg.mul(zg.load(x_at, mask, other=0.0), scale)
        total = zg.add(total, zg.mul(value, zg.load(w_at, mask)))
        total = zg.add(zg.cast(number, zg.f64), total)
        x_at = zg.add(x_at, K)
        w_at = zg.add(w_at, K)
        number = number + 2
    zg.store(zg.add(out, at), total)


def test_a_loop_that_only_adds(rng):
    model = summing.triton(f64, f64, f64, i32, 8)
    check_gradient(model, 1, [rng.standard_normal(27), rng.standard_normal(27), np.zeros(8), 27], [2], [0, 1])
    gradient = differentiate(model, [2], [0, 1])
    (loop,) = loops(gradient)  # The forward loop is not needed; the other one carries the pointers.
    assert [str(value.type) for value in loop.inits].count("tensor<x8, ptr<f64>>") == 4


@zg.kernel
def moving(x, out, n, K: zg.constexpr):
    """Pointers that move, in a loop whose iterations come in reverse."""
    at = zg.arange(0, K)
    x_at = zg.add(x, at)
    value = zg.full((K,), 1.0, zg.f64)
    rest = n
    for start in range(0, n, K):
        mask = zg.less(at, rest)
        value = zg.mul(value, zg.load(x_at, mask, other=2.0))
        x_at = zg.add(zg.add(x_at, K // 2), K // 2)
        rest = rest - K
    zg.store(zg.add(out, at), value)


def test_moving_pointers_are_computed_from_the_number_of_the_iteration(rng):
    model = moving.triton(f64, f64, i32, 8)
    check_gradient(model, 1, [rng.standard_normal(27), np.zeros(8), 27], [1], [0])


@zg.kernel
def wandering(x, out, n, K: zg.constexpr):
    """A pointer that moves by a step of the iteration's own."""
    at = zg.arange(0, K)
    x_at = zg.add(x, at)
    value = zg.full((K,), 1.0, zg.f64)
    for i in range(0, n):
        value = zg.mul(value, zg.load(x_at))
        x_at = zg.add(x_at, i)
    zg.store(zg.add(out, at), value)


def test_other_pointers_are_computed_by_running_the_iterations_before(rng):
    model = wandering.triton(f64, f64, i32, 4)
    check_gradient(model, 1, [rng.standard_normal(20), np.zeros(4), 6], [1], [0])


@zg.kernel
def nested(x, w, out, rows, columns):
    at = zg.arange(0, 4)
    state = zg.load(zg.add(x, at))
    for row in range(0, rows):
        inner = zg.zeros((4,), zg.f64)
        for column in range(0, columns):
            factor = zg.load(w + row * columns + column)
            inner = zg.add(zg.tanh(zg.mul(inner, factor)), zg.mul(state, factor))
        if row % 2 == 0:
            state = zg.mul(state, zg.sin(inner))
        else:
            state = zg.add(state, inner)
    zg.store(zg.add(out, at), state)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 4), (0, 2), (2, 0)])
def test_nested_loops(rng, rows, columns):
    model = nested.triton(f64, f64, f64, i32, i32)
    x, w = rng.standard_normal(4), rng.standard_normal(12)
    check_gradient(model, 1, [x, w, np.zeros(4), rows, columns], [2], [0, 1])


def test_a_store_in_a_loop(rng):
    @zg.kernel
    def kernel(x, out, n, K: zg.constexpr):
        scale = zg.load(x)
        for start in range(0, n, K):
            at = zg.add(start, zg.arange(0, K))
            mask = zg.less(at, n)
            scale = zg.mul(scale, 0.5)
            zg.store(zg.add(out, at), zg.mul(zg.exp(zg.load(zg.add(x, at), mask)), scale), mask)

    model = kernel.triton(f64, f64, i32, 8)
    check_gradient(model, 1, [rng.standard_normal(29), np.zeros(29), 29], [1], [0])


def test_pointers_chosen_by_a_branch(rng):
    @zg.kernel
    def kernel(x, out, K: zg.constexpr):
        at = zg.arange(0, K)
        pid = zg.program_id(0)
        if pid == 0:
            source = zg.add(x, at)
            offset = 1.0
        else:
            source = zg.add(x, zg.sub(K - 1, at))
            offset = 2.0
        value = zg.load(source)
        zg.store(zg.add(zg.add(out, pid * K), at), zg.mul(zg.mul(value, value), offset))

    model = kernel.triton(f64, f64, 8)
    check_gradient(model, 2, [rng.standard_normal(8), np.zeros(16)], [1], [0])


def test_helper_functions_are_inlined(rng):
    @zg.function
    def scaled(x, by):
        return zg.mul(zg.exp(x), by), zg.add(x, by)

    @zg.kernel
    def kernel(x, out, K: zg.constexpr):
        at = zg.arange(0, K)
        a, b = scaled(zg.load(zg.add(x, at)), 2.0)
        c, d = scaled(b, a)
        zg.static_print("ok")
        zg.store(zg.add(out, at), zg.add(c, d))

    model = kernel.triton(f64, f64, 8)
    check_gradient(model, 1, [rng.standard_normal(8), np.zeros(8)], [1], [0])


def test_the_gradient_prints_nothing_and_asserts_nothing(capsys):
    @zg.kernel
    def kernel(x, out):
        at = zg.arange(0, 4)
        value = zg.load(zg.add(x, at))
        zg.device_print("value", value)
        zg.device_assert(zg.greater(value, -100.0), "positive")
        zg.store(zg.add(out, at), zg.mul(value, value))

    gradient = differentiate(kernel.triton(f64, f64), [1], [0])
    assert not any(isinstance(op, tt.Print | tt.Assert) for op in gradient.walk())
