"""Functions of the language called from kernels, and names used again."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg


@zg.function
def affine(x, a=2, *, b=1):
    return zg.add(zg.mul(x, a), b)


@zg.function
def swap(pair, flag):
    """Tuples in and out."""
    first, second = pair
    return (second, first) if flag else (first, second)


@zg.function
def combined(x, f: zg.constexpr, axis=0):
    """A function of its own as an argument."""
    return zg.reduce(x, axis, f)


@zg.function
def larger(a, b):
    return zg.maximum(a, b)


@zg.function
def maximum_of(x):
    """An argument of any shape, a scalar included."""
    if x.shape == ():
        return x
    else:
        return zg.max(x)


def test_functions(compute):
    x = np.arange(16, dtype=np.float32).reshape(2, 8) - 3
    s = np.array([3, -4], np.int32)
    compute(
        """
        a = affine(x)
        b = affine(x, b=x, a=3)
        c = affine(s, s, b=0.5)
        d, e = swap((x, s), s > 0) if False else swap((s, 7), s > 0)
        f = combined(x, larger)
        g = maximum_of(x) + maximum_of(s) + maximum_of(zg.reshape(x, (2, 4)))
        h = affine(zg.reshape(x, (4, 2)), b=zg.arange(0, 2))
        i = combined(f=larger, axis=1, x=zg.reshape(x, (4, 2)))
        """,
        {"x": x, "s": s},
        {
            "a": x * 2 + 1, "b": x * 3 + x, "c": (s * s).astype(np.float32) + np.float32(0.5),
            "d": np.where(s > 0, 7, s).astype(np.int32),
            "e": np.where(s > 0, s, 7).astype(np.int32), "f": x.max(1), "g": (2 * x.max(1) + s).astype(np.float32),
            "h": x.reshape(2, 4, 2) * 2 + np.arange(2, dtype=np.float32), "i": x.reshape(2, 4, 2).max(2),
        },
        affine=affine, swap=swap, combined=combined, larger=larger, maximum_of=maximum_of,
    )  # fmt: skip


def test_variables_of_other_dtypes_in_straight_lines(compute):
    """A variable keeps its shape, not its dtype, where control flow does not meet."""
    x = np.array([[3, -5, 7, 100]], np.int8)
    compute(
        """
        y = x
        y = zg.cast(y, zg.i32)
        y = zg.mul(y, 100)
        y = zg.mul(y, 0.5)
        n = 3
        n = n * 2.5
        n = zg.cast(n, zg.i32)
        z = zg.add(y, n)
        """,
        {"x": x},
        {"y": x.astype(np.float32) * 50, "z": x.astype(np.float32) * 50 + 7},
    )


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
