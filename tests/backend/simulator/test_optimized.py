"""Kernels simulated after LLVM's passes: they compute the same, unless a promise in the emitted text does not hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.assemble import optimized
from ziggurat.backend.simulator.shared import SimulationError
from ziggurat.backend.simulator.simulate import simulate

F16, F32, I8, I32 = zg.ptr(zg.f16), zg.ptr(zg.f32), zg.ptr(zg.i8), zg.ptr(zg.i32)
RNG = np.random.default_rng(3)


@zg.kernel
def two_products(a, b, out):
    """Two dots whose operands lie at the same addresses, one after the other: small ones would not."""
    k = zg.arange(0, 512)
    m = zg.arange(0, 16)
    x = zg.load(zg.add(a, zg.add(zg.mul(zg.expand(m, 1), 512), zg.expand(k, 0))))
    y = zg.load(zg.add(b, zg.add(zg.mul(zg.expand(k, 1), 16), zg.expand(m, 0))))
    first = zg.dot(x, y)
    again = zg.cast(zg.sum(first, 1), zg.i8)
    second = zg.dot(zg.add(x, zg.expand(again, 1)), zg.add(y, zg.expand(again, 0)))
    zg.store(zg.add(out, zg.add(zg.mul(zg.expand(m, 1), 16), zg.expand(m, 0))), second)


@zg.kernel
def product(a, b, out, n):
    m = zg.arange(0, 32)
    total = zg.zeros((32, 32), zg.f32)
    for start in range(0, n, 32):
        k = zg.add(start, m)
        x = zg.load(zg.add(a, zg.add(zg.mul(zg.expand(m, 1), n), zg.expand(k, 0))))
        y = zg.load(zg.add(b, zg.add(zg.mul(zg.expand(k, 1), 32), zg.expand(m, 0))))
        total = zg.dot(x, y, total)
    zg.store(zg.add(out, zg.add(zg.mul(zg.expand(m, 1), 32), zg.expand(m, 0))), total)


@zg.kernel
def sums(x, out, n, N: zg.constexpr):
    at = zg.arange(0, N)
    v = zg.load(zg.add(x, at), zg.compare(at, n, zg.CompareKind.LESS_THAN), 0)
    zg.store(zg.add(out, at), zg.add(zg.cumsum(v, 0), zg.sum(v, 0)))


@zg.kernel
def halved(x, out, N: zg.constexpr):
    """The number of times that the largest number of the program can be halved."""
    at = zg.arange(0, N)
    largest = zg.max(zg.load(zg.add(x, zg.add(zg.mul(zg.program_id(0), N), at))), 0)
    rounds = 0
    while zg.compare(largest, 0, zg.CompareKind.GREATER_THAN):
        largest = zg.shr(largest, 1)
        rounds = zg.add(rounds, 1)
    zg.store(zg.add(out, zg.program_id(0)), rounds)


@zg.kernel
def polynomial(x, out, N: zg.constexpr):
    at = zg.arange(0, N)
    v = zg.load(zg.add(x, at))
    zg.store(zg.add(out, at), zg.maximum(zg.add(zg.mul(zg.add(v, 1.5), v), 0.25), zg.mul(v, -2.0)))


@zg.kernel
def not_negative(out, N: zg.constexpr):
    at = zg.arange(-N, N)
    where = zg.compare(at, 0, zg.CompareKind.GREATER_THAN_OR_EQUAL)
    zg.store(zg.add(out, zg.add(at, N)), zg.where(where, 1, 2))


def compiled(kernel: Any, types: Sequence[Any], num_warps: int, target: str = "sm_80") -> Any:
    return zg.compile(kernel.triton(*types), target=target, num_warps=num_warps, contract=False)


def ran(make: Any, text: str, arguments: Sequence[Any], grid: tuple[int, ...] = (1,)) -> None:
    emission = text == make.stages["llvm"]
    simulate(text, num_warps=make.num_warps, shared=make.shared, grid=grid, arguments=arguments, promises=emission)


def both(make: Any, arguments: Sequence[Any], expected: np.ndarray[Any, Any], grid: tuple[int, ...] = (1,)) -> None:
    """Run the emitted text and the optimized one; the last array is what they give."""
    (out,) = [argument for argument in arguments if isinstance(argument, np.ndarray)][-1:]
    for text in (make.stages["llvm"], optimized(make.stages["llvm"], make.target)):
        out[...] = 0
        ran(make, text, arguments, grid)
        np.testing.assert_array_equal(out, expected)


def operands_and_result() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    a, b = RNG.integers(-3, 4, (16, 512)).astype(np.int8), RNG.integers(-3, 4, (512, 16)).astype(np.int8)
    again = (a.astype(np.int32) @ b.astype(np.int32)).sum(1).astype(np.int8)
    x, y = a + again[:, None], b + again[None, :]
    return a, b, x.astype(np.int32) @ y.astype(np.int32)


def test_assembly_that_hides_its_access_of_memory() -> None:
    """Two reads of one place by ldmatrix, with a barrier and stores between them, are one where they do not say that
    they read memory: the emitted text is right, and LLVM may make a wrong program of it."""
    binary = compiled(two_products, (I8, I8, I32), 1)
    a, b, expected = operands_and_result()
    out = np.zeros((16, 16), np.int32)
    both(binary, [a, b, out], expected)
    text = re.sub(r'(ldmatrix.*?"=r[^"]*),~\{memory\}"', r'\1"', binary.stages["llvm"])
    assert text != binary.stages["llvm"]
    ran(binary, text, [a, b, out])
    np.testing.assert_array_equal(out, expected)
    ran(binary, optimized(text, binary.target), [a, b, out])
    assert (out != expected).any()


@pytest.mark.parametrize("num_warps", [1, 4])
def test_products_by_mma_sync(num_warps: int) -> None:
    binary = compiled(product, (F16, F16, F32, zg.i32), num_warps)
    assert "mma.sync" in binary.ptx
    a, b = RNG.integers(-3, 4, (32, 96)).astype(np.float16), RNG.integers(-3, 4, (96, 32)).astype(np.float16)
    both(binary, [a, b, np.zeros((32, 32), np.float32), 96], a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize("num_warps", [1, 4])
def test_sums_and_running_sums(num_warps: int) -> None:
    x = RNG.integers(-99, 100, 256).astype(np.int32)
    x[200:] = 0
    binary = compiled(sums, (I32, I32, zg.i32, 256), num_warps)
    both(binary, [x, np.zeros(256, np.int32), 200], np.cumsum(x) + x.sum())


def test_loops_of_as_many_rounds_as_a_value_says() -> None:
    x = RNG.integers(1, 1 << 30, (4, 64)).astype(np.int32)
    expected = np.array([int(row.max()).bit_length() for row in x])
    both(compiled(halved, (I32, I32, 64), 2), [x, np.zeros(4, np.int32)], expected, (4,))


def test_halves() -> None:
    x = RNG.standard_normal(128).astype(np.float16)
    half = np.float16
    expected = np.maximum((x + half(1.5)) * x + half(0.25), x * half(-2))
    both(compiled(polynomial, (F16, F16, 128), 4), [x, np.zeros(128, np.float16)], expected)


@pytest.mark.parametrize("num_warps", [1, 4])
def test_numbers_from_below_zero(num_warps: int) -> None:
    """The emitted sum of such a range once had the flag nuw, so LLVM took every number for 0 or more."""
    expected = np.repeat(np.array([2, 1], np.int32), 64)
    both(compiled(not_negative, (I32, 64), num_warps), [np.zeros(128, np.int32)], expected)


def of_threads(lines: str) -> str:
    """A kernel of 32 threads that stores what each has as `%v`."""
    return f"""target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"
define ptx_kernel void @k(ptr addrspace(1) %out) #0 {{
entry:
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %q = getelementptr i32, ptr addrspace(1) %out, i32 %tid
{lines}
  store i32 %v, ptr addrspace(1) %q, align 4
  ret void
}}
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
attributes #0 = {{ nounwind "nvvm.reqntid"="32" }}
"""


@pytest.mark.parametrize("promise, lines", [
    ("nuw", "%a = add FLAG i32 %tid, -1\n%c = icmp uge i32 %a, %tid\n%v = zext i1 %c to i32"),
    ("nsw", "%a = shl FLAG i32 %tid, 28\n%v = ashr i32 %a, 28"),
    ("disjoint", "%a = or FLAG i32 %tid, 1\n%v = add i32 %a, 2"),
    ("exact", "%a = lshr FLAG i32 %tid, 1\n%v = shl i32 %a, 1"),
])  # fmt: skip
def test_promises_that_do_not_hold(promise: str, lines: str) -> None:
    """With the false flag, the optimized text computes something else; without it, the same."""
    results: list[list[int]] = []
    for flag in ("", promise):
        text = of_threads(lines.replace("FLAG", flag))
        for form in (text, optimized(text, "sm_80")):
            out = np.zeros(32, np.int32)
            simulate(form, num_warps=1, shared=0, arguments=[out], promises=False)
            results.append(out.tolist())
    assert results[0] == results[1] == results[2] != results[3]
    with pytest.raises(SimulationError, match=f"promises what must hold, and does not: .* {promise} "):
        simulate(of_threads(lines.replace("FLAG", promise)), num_warps=1, shared=0, arguments=[np.zeros(32, np.int32)])


def test_an_alignment_that_does_not_hold() -> None:
    """The alignment that an access promises is higher than that of its address."""
    lines = "%a = load i32, ptr addrspace(1) %q, align ALIGN\n%v = add i32 %a, 1"
    out = np.arange(32, dtype=np.int32)
    for form in (str, lambda text: optimized(text, "sm_80")):
        simulate(form(of_threads(lines.replace("ALIGN", "4"))), num_warps=1, shared=0, arguments=[out])
        with pytest.raises(SimulationError, match="must be aligned"):
            simulate(form(of_threads(lines.replace("ALIGN", "8"))), num_warps=1, shared=0, arguments=[out])


@zg.kernel
def evens(x, out):
    at = zg.arange(0, 128)
    zg.store(out + at, zg.load(x + 2 * at))


def test_gaps_between_loads() -> None:
    """LLVM makes one load of neighbours with gaps, by a mask: the gaps are not read, so the last one may be outside."""
    compiled = evens.compile(zg.divisible(I32), zg.divisible(I32), num_warps=1)
    assert "@llvm.masked.load" in optimized(compiled.stages["llvm"], compiled.target)
    x, out = RNG.integers(0, 1 << 30, 255).astype(np.int32), np.zeros(128, np.int32)
    compiled.simulate[1,](x, out, optimized=True)
    assert (out == x[::2]).all()
