"""Functions of the language called from kernels, and names used again."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg


def summing(number):
    @zg.function
    def combine(a, b):
        return a + b + number

    @zg.function
    def summed(x):
        return zg.reduce(x, 0, combine), zg.associative_scan(x, 0, combine)

    return summed


def test_functions_of_one_name_get_different_symbols(compute):
    """Two closures share their name and their argument types, and others are called as functions of the library."""

    @zg.function
    def sum(a, b):
        return zg.maximum(a, b)

    @zg.function
    def reduce_sum(x, axis: zg.constexpr):
        return zg.max(x)

    by_one, ten = summing(1), summing(10)

    @zg.function
    def first(x):
        return by_one(x)

    @zg.function
    def second(x):
        return ten(x)

    x = np.arange(16, dtype=np.int32).reshape(2, 8)
    running = np.cumsum(x, 1, np.int32)
    compute(
        """
        a, e = first(x)
        b, f = second(x)
        c = zg.sum(x)
        d = zg.reduce(x, 0, mine)
        g = zg.associative_scan(x, 0, mine)
        h = zg.cumsum(x)
        i = reduce_sum(x, 0)
        """,
        {"x": x},
        {
            "a": running[:, -1] + 7, "b": running[:, -1] + 70, "c": running[:, -1], "d": x.max(1),
            "e": running + np.arange(8, dtype=np.int32), "f": running + 10 * np.arange(8, dtype=np.int32), "g": x,
            "h": running, "i": x.max(1),
        },
        first=first, second=second, mine=sum, reduce_sum=reduce_sum,
    )  # fmt: skip


def test_a_variable_of_different_types_is_an_error_only_where_it_is_read(kernel, launch):
    reuse = kernel("""
    def reuse(out_ptr, n):
        total = 0
        for i in range(n):
            if i % 2 == 0:
                t = i * 1.5
                total += zg.cast(t, zg.i32)
            else:
                t = zg.arange(0, 4)
                total += zg.sum(t)
        t = 5
        zg.store(out_ptr, total + t)
    """)
    out = np.zeros(1, np.int32)
    launch(reuse, 1, [out, 5])
    assert out[0] == 0 + 6 + 3 + 6 + 6 + 5


def test_assertions(kernel, launch, capsys):
    check = kernel("""
    def check(x_ptr, n, N: zg.constexpr):
        assert N == 4, "four"
        zg.static_assert(N > 3, "more than three")
        at = zg.arange(0, N)
        x = zg.load(zg.add(x_ptr, at))
        zg.device_assert(zg.compare(x, n, K.LESS_THAN), "too large")
        assert n < 10, "n is small"
    """)
    x = np.array([1, 2, 3, 4], np.int32)
    launch(check, (2,), [x, 5], N=4)
    with pytest.raises(zg.KernelRuntimeError, match=r"program \(0, 0, 0\).*too large at element \(3\)"):
        check[(2,)](x, 4, N=4)
    with pytest.raises(zg.KernelRuntimeError, match="n is small"):
        check[(2,)](x, 11, N=4)
    with pytest.raises(zg.ZigguratError, match="four"):
        check.triton(zg.ptr(zg.i32), zg.i32, 8)


@zg.function
def misspelt(x):
    return zg.no_such_call(x), x


def test_a_function_in_error_that_is_called_in_two_loops_is_reported(kernel):
    both = kernel(
        """
        def both(out_ptr, n):
            for i in range(n):
                a, b = misspelt(n)
            for i in range(n):
                a, b = misspelt(n)
                zg.store(out_ptr, b)
        """,
        misspelt=misspelt,
    )
    with pytest.raises(zg.KernelNameError, match="has no 'no_such_call'"):
        both.triton(zg.ptr(zg.i32), zg.i32)
