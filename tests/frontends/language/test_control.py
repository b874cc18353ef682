"""Ranges of loops: numbers outside of kernels, and a range in the head of a `for`."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.frontends.language import SIGNATURES


@zg.kernel
def ranges(out, n, STEP: zg.constexpr):
    total = 0
    for i in zg.range(n):
        total += 1
    for i in zg.range(1, n, STEP, num_stages=2, flatten=True):
        total += 100 * i
    for i in zg.static_range(n if False else 1, 8, 3):
        total += 10000 * i
    zg.store(out, total)


def run(n, step):
    out = np.zeros(1, np.int32)
    ranges[1](out, n, STEP=step)
    return int(out[0])


@pytest.mark.parametrize(("n", "step"), [(5, 1), (6, 2), (0, 1), (1, 3)])
def test_loops_count_as_pythons_do(n, step):
    assert run(n, step) == len(range(n)) + 100 * sum(range(1, n, step)) + 10000 * sum(range(1, 8, 3))


def test_a_step_of_zero_is_an_error():
    with pytest.raises(zg.KernelValueError, match="the step is zero"):
        run(5, 0)


def test_options_reach_the_loop():
    model = ranges.triton(zg.ptr(zg.i32), zg.i32, 1)
    first, second = (op for op in model.walk() if op.NAME == "scf.for")
    assert (second.attributes["num_stages"], second.attributes["flatten"]) == (2, True)
    assert not first.attributes.get("flatten")


@zg.kernel
def unknown_bound(out, n):
    for i in zg.static_range(n):
        zg.store(out, i)


@zg.kernel
def unknown_option(out, n):
    for i in zg.range(n, num_stages=n):
        zg.store(out, i)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (unknown_bound, "'arg1' must be known at compile time"),
        (unknown_option, "'num_stages' must be known at compile time"),
    ],
)
def test_what_must_be_known(kernel, words):
    with pytest.raises(zg.KernelTypeError, match=words):
        kernel.triton(zg.ptr(zg.i32), zg.i32)


def test_outside_of_kernels_they_are_pythons():
    assert zg.range(3) == range(3) and zg.static_range(7, 1, -2) == range(7, 1, -2)
    with pytest.raises(zg.KernelTypeError, match="needs its argument 'arg1'"):
        zg.range()
    assert [SIGNATURES[name].group for name in ("range", "static_range")] == ["Loops"] * 2
