"""Kernels without a gradient: each error is at the line of the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from finite_differences import check_gradient

import ziggurat as zg
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.transforms.differentiate import differentiate

f32, i32 = zg.ptr(zg.f32), zg.i32
POINTER = f32


@zg.function
def larger_magnitude(a, b):
    return zg.where(zg.greater(zg.abs(a), zg.abs(b)), a, b)


@zg.kernel
def with_while(x, out):
    value = zg.load(x)
    while value > 1.0:
        value = value * 0.5
    zg.store(out, value)


@zg.kernel
def with_assembly(x, out):
    value = zg.load(x)
    root = zg.inline_asm_elementwise("sqrt.approx.f32 $0, $1;", "=f,f", [value], zg.f32, True, 1)
    zg.store(out, root)


@zg.kernel
def with_bits(x, out):
    bits = zg.bitcast(zg.load(x), zg.i32)
    zg.store(out, zg.bitcast(zg.and_(bits, 0x7FFFFFFF), zg.f32))


@zg.kernel
def with_reduction(x, out):
    zg.store(out, zg.reduce(zg.load(zg.add(x, zg.arange(0, 8))), 0, larger_magnitude))


@zg.kernel
def with_scan(x, out):
    at = zg.arange(0, 8)
    zg.store(zg.add(out, at), zg.cumprod(zg.load(zg.add(x, at)), 0))


@zg.kernel
def with_maximum_in_memory(x, out):
    zg.atomic_max(out, zg.load(x))


@zg.kernel
def with_result_of_an_atomic(x, out):
    before = zg.atomic_add(out, zg.load(x))
    zg.store(out + 1, before)


@zg.kernel
def with_exchange(x, out):
    zg.atomic_xchg(out, zg.load(x))


@zg.kernel
def with_overwriting(x, out, n):
    total = 0.0
    for i in range(n):
        total += zg.load(x + i)
        zg.store(out, total)


@zg.kernel
def with_two_arrays(x, out, n):
    if n > 2:
        source = x
    else:
        source = out + 8
    zg.store(out, zg.load(source))


@zg.kernel
def with_an_address(x, out):
    where = zg.cast(x, zg.i64)
    zg.store(out, zg.load(zg.cast(where + 4, POINTER)))


@zg.kernel
def with_swap(x, out, lock):
    value = zg.load(x)
    zg.atomic_cas(out, value, value)


@zg.kernel
def with_a_break(x, out, n):
    value = zg.load(x)
    for i in range(n):
        if i > 3:
            break
        value = zg.mul(value, value)
    zg.store(out, value)


CASES: list[tuple[Any, str, str]] = [
    (with_a_break, "hint: use a for loop over a range, without break", "for i in range(n)"),
    (with_while, "scf.while has no gradient: the number of its iterations is not known", "while value > 1.0"),
    (with_assembly, "tt.elementwise_inline_asm has no gradient: the compiler does not know", "inline_asm_elementwise"),
    (with_bits, "arith.bitcast has no gradient: it reads the bits of a number", "zg.bitcast(zg.and_"),
    (with_reduction, "tt.reduce has no gradient: it combines elements by a function", "larger_magnitude)"),
    (with_scan, "tt.scan has no gradient: only cumulative sums have one", "zg.cumprod"),
    (with_maximum_in_memory, "has no gradient", "zg.atomic_max"),
    (with_result_of_an_atomic, "tt.atomic_rmw has no gradient: its result depends on the order", "zg.atomic_add"),
    (with_exchange, "tt.atomic_rmw has no gradient: 'xchg' keeps one of the values", "zg.atomic_xchg"),
    (with_overwriting, "tt.store has no gradient: each iteration of the loop overwrites", "zg.store(out, total)"),
    (with_swap, "tt.atomic_cas has no gradient: its result depends on the order", "zg.atomic_cas"),
]


@pytest.mark.parametrize(("kernel", "message", "line"), CASES, ids=lambda case: getattr(case, "name", ""))
def test_no_gradient(kernel, message, line):
    gradient = zg.grad(kernel, wrt="x", of="out")
    with pytest.raises(KernelTypeError) as error:
        gradient.triton(*(i32 if name == "n" else f32 for name in gradient.signature.parameters))
    assert message in str(error.value) and line in str(error.value) and "^" in str(error.value)


@pytest.mark.parametrize("kernel", [with_two_arrays, with_an_address])
def test_pointers_that_are_not_followed(kernel):
    gradient = zg.grad(kernel, wrt="x", of="out")
    with pytest.raises(KernelTypeError, match=r"'out' in 'of' must not be|pointer that is not followed"):
        gradient.triton(*(i32 if name == "n" else f32 for name in gradient.signature.parameters))


@zg.kernel
def choosing(x, y, out, n):
    if n > 2:
        source = x
    else:
        source = y
    zg.store(out, zg.load(source))


@zg.kernel
def choosing_lanes(x, y, out, n):
    at = zg.arange(0, 8)
    source = zg.where(zg.less(at, n), zg.add(x, at), zg.add(y, at))
    zg.store(zg.add(out, at), zg.load(source))


@zg.kernel
def changing(x, y, out, n):
    source = x
    total = 0.0
    for i in range(n):
        total += zg.load(source)
        source = y
    zg.store(out, total)


@pytest.mark.parametrize("kernel", [choosing, choosing_lanes, changing])
@pytest.mark.parametrize("wrt", ["x", "y"])
def test_pointers_to_arrays_with_and_without_a_gradient(kernel, wrt):
    gradient = zg.grad(kernel, wrt=wrt, of="out")
    with pytest.raises(KernelTypeError, match="chooses between arrays with and without a gradient") as error:
        gradient.triton(*(i32 if name == "n" else f32 for name in gradient.signature.parameters))
    assert "hint: " in str(error.value) and "^" in str(error.value)


@pytest.mark.parametrize("kernel", [choosing, choosing_lanes, changing])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_pointers_to_one_of_several_arrays_with_a_gradient(kernel, n):
    f64 = zg.ptr(zg.f64)
    rng = np.random.default_rng(0)
    arguments = [rng.standard_normal(8), rng.standard_normal(8), np.zeros(8), n]
    check_gradient(kernel.triton(f64, f64, f64, i32), 1, arguments, [2], [0, 1])


def test_a_pointer_that_a_path_does_not_have():
    @zg.kernel
    def kernel(x, out, n):
        at = x
        if n > 0:
            if n > 5:
                return
            at = x + 2
        elif n < -5:
            return
        zg.store(out, zg.exp(zg.load(at)))

    f64 = zg.ptr(zg.f64)
    for n in (-7, -2, 3, 9):
        check_gradient(kernel.triton(f64, f64, i32), 1, [np.ones(4), np.zeros(1), n], [1], [0])


def test_a_pointer_that_only_other_arrays_have_may_be_chosen():
    @zg.kernel
    def kernel(x, y, w, out, n):
        if n > 2:
            source = x
        else:
            source = y
        zg.store(out, zg.load(source) * zg.load(w))

    zg.verify(differentiate(kernel.triton(f32, f32, f32, f32, i32), [3], [2]))


def test_what_is_not_reached_needs_no_gradient():
    """Only the adjoints that reach an array of `wrt` are computed."""

    @zg.kernel
    def kernel(x, y, out):
        value = zg.load(y)
        while value > 1.0:
            value = value * 0.5
        zg.store(out, zg.load(x) * value)

    gradient = differentiate(kernel.triton(f32, f32, f32), [2], [0])
    assert sum(isinstance(op, tt.AtomicRMW | tt.Store) for op in gradient.walk()) == 1
