"""Loops as emitted: right where an index could wrap around, and such that an assembler sees that they count."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.simulator.simulate import simulate

LARGEST = 2**31 - 1


@zg.kernel
def visited(out_ptr, start, stop, STEP: zg.constexpr):
    """The number of iterations, and the sum of the indices modulo 2^32."""
    count = 0
    total = start - start
    for index in range(start, stop, STEP):
        count += 1
        total += index
    zg.store(out_ptr, count)
    zg.store(out_ptr + 1, total)


@zg.kernel
def row_sum(x_ptr, out_ptr, n, BLOCK: zg.constexpr):
    total = zg.zeros((BLOCK,), zg.f32)
    for start in range(0, n, BLOCK):
        at = zg.add(start, zg.arange(0, BLOCK))
        total = zg.add(total, zg.load(zg.add(x_ptr, at), zg.compare(at, n, zg.CompareKind.LESS_THAN), other=0.0))
    zg.store(out_ptr, zg.sum(total, axis=0))


BOUNDS = [
    (0, 10), (0, 12), (0, 0), (5, -5), (-5, 5), (-7, -6), (LARGEST - 10, LARGEST), (LARGEST - 1, LARGEST),
    (LARGEST, -LARGEST - 1), (-LARGEST - 1, -LARGEST + 8), (-LARGEST + 8, -LARGEST - 1), (-LARGEST - 1, -LARGEST - 1),
]  # fmt: skip
STEPS = (1, 2, 3, 4, 7, -1, -2, -3, 2**30, LARGEST, -(2**30))
SHORT = [(start, stop, step) for start, stop in BOUNDS for step in STEPS if len(range(start, stop, step)) <= 100]


@pytest.mark.parametrize(("start", "stop", "step"), SHORT)
def test_every_index_is_visited_once(start: int, stop: int, step: int) -> None:
    expected = range(start, stop, step)
    compiled = visited.compile(zg.ptr(zg.i32), zg.i32, zg.i32, step, num_warps=1)
    out = np.zeros(2, np.int32)
    simulate(compiled.stages["llvm"], num_warps=1, shared=compiled.shared, arguments=[out.view(np.uint8), start, stop])
    assert out[0] == len(expected) and int(out[1]) & 0xFFFFFFFF == sum(expected) & 0xFFFFFFFF


def test_a_loop_in_large_steps_counts() -> None:
    """The loop has only the counters and one comparison, and no selection of the next index."""
    pointer = zg.divisible(zg.ptr(zg.f32))
    ptx = row_sum.compile(pointer, pointer, zg.divisible(zg.i32), 1024).ptx
    (label,) = re.findall(r"bra \t?(\$L__BB0_\d+);", ptx[ptx.index("ld.global") :])[:1]
    loop = ptx[ptx.index(f"{label}:") :]
    loop = loop[: loop.index(f"bra \t{label}" if f"bra \t{label}" in loop else f"bra {label}")]
    # Four iterations, each with the comparison of its mask, and the way back.
    assert loop.count("ld.global.v4.b32") == 8
    assert "selp.b32" not in loop and loop.count("setp.") <= 9, loop


@zg.kernel
def picked_rows(x_ptr, rows_ptr, out_ptr, stride, COUNT: zg.constexpr):
    """The sum of a row of each of several matrices: the index is in addresses alone."""
    columns = zg.arange(0, 128)
    total = zg.zeros((128,), zg.f32)
    for i in range(COUNT):
        row = zg.cast(zg.load(zg.add(rows_ptr, i)), zg.i64)
        at = zg.add(zg.mul(zg.cast(i, zg.i64), stride), zg.mul(row, 128))
        total = zg.add(total, zg.load(zg.add(zg.add(x_ptr, at), columns)))
    zg.store(zg.add(out_ptr, columns), total)


def test_a_loop_by_addresses_counts() -> None:
    """LLVM would compare the low half of an address, of which ptxas does not see that it counts."""
    pointer = zg.divisible(zg.ptr(zg.f32))
    ptx = picked_rows.compile(pointer, zg.ptr(zg.i32), pointer, zg.divisible(zg.i32), 256, num_warps=1).ptx
    assert "ld.global.v4.b32" in ptx and "cvt.u32.u64" not in ptx


@zg.kernel
def shifted(x_ptr, out_ptr, n, BLOCK: zg.constexpr):
    """Write the values that were read: the next iteration may read them."""
    for start in range(0, n, BLOCK):
        at = zg.add(start, zg.arange(0, BLOCK))
        zg.store(zg.add(out_ptr, at), zg.load(zg.add(x_ptr, at)))


@zg.kernel
def largest_of_row(x_ptr, out_ptr, n, BLOCK: zg.constexpr):
    """The largest number, of which each iteration knows that of a block."""
    best = -float("inf")
    for start in range(0, n, BLOCK):
        at = zg.add(start, zg.arange(0, BLOCK))
        best = zg.maximum(best, zg.max(zg.load(zg.add(x_ptr, at), zg.compare(at, n, "<"), other=-float("inf"))))
    zg.store(out_ptr, best)


@zg.kernel
def sixteen_blocks(x_ptr, out_ptr, n, BLOCK: zg.constexpr):
    total = 0.0
    for start in range(0, 16 * BLOCK, BLOCK):
        total += zg.sum(zg.load(zg.add(x_ptr, zg.add(start, zg.arange(0, BLOCK)))))
    zg.store(out_ptr, total)


@pytest.mark.parametrize(
    ("kernel", "overlapped"), [(row_sum, True), (largest_of_row, False), (sixteen_blocks, True), (shifted, False)]
)
def test_loops_that_only_load_do_some_iterations_at_once(
    kernel: Any, overlapped: bool, recwarn: pytest.WarningsRecorder, capfd: pytest.CaptureFixture[str]
) -> None:
    """LLVM refuses it where a rest of the iterations would cross lanes, with a warning."""
    pointer = zg.divisible(zg.ptr(zg.f32))
    compiled = kernel.compile(pointer, pointer, zg.divisible(zg.i32), 128, num_warps=1)
    assert ("llvm.loop.unroll.count" in compiled.stages["llvm"]) == overlapped
    loads = compiled.ptx.count("ld.global") if compiled.ptx else 0
    assert not recwarn.list and "not unrolled" not in capfd.readouterr().err and (loads != 1 or not overlapped)


@pytest.mark.parametrize("n", [0, 1, 128, 200, 256, 300, 640])
def test_two_iterations_at_once_are_those_of_one_after_another(n: int) -> None:
    """The unrolled loop of LLVM is not simulated, but the emitted text is, for any number of iterations."""
    x = np.arange(1024, dtype=np.float32)
    out = np.zeros(1, np.float32)
    compiled = row_sum.compile(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, 128, num_warps=1)
    simulate(compiled.stages["llvm"], num_warps=1, shared=compiled.shared, arguments=[x, out, n])
    assert out[0] == x[:n].sum()


@zg.kernel
def products(a_ptr, b_ptr, c_ptr, K: zg.constexpr, STEP: zg.constexpr):
    rows, columns = zg.expand(zg.arange(0, 16), 1), zg.expand(zg.arange(0, 16), 0)
    total = zg.zeros((16, 16), zg.f32)
    for start in range(0, K, STEP):
        at = zg.add(start, zg.arange(0, STEP))
        a = zg.load(a_ptr + zg.add(zg.mul(rows, K), zg.expand(at, 0)))
        b = zg.load(b_ptr + zg.add(zg.mul(zg.expand(at, 1), 16), columns))
        total = zg.dot(a * 2, b, total)
    zg.store(c_ptr + zg.add(zg.mul(rows, 16), columns), total)


@pytest.mark.parametrize(
    ("depth", "step", "count"), [(64, 32, 2), (96, 32, 3), (128, 32, 4), (160, 32, 0), (512, 128, 0)]
)
@pytest.mark.parametrize("num_warps", [1, 2])
def test_a_few_iterations_that_load_ahead_are_put_together(depth: int, step: int, count: int, num_warps: int) -> None:
    """Five are too many, and of 16×128 elements the slots of a ring are a small part."""
    pointer = zg.divisible(zg.ptr(zg.f16))
    compiled = products.compile(
        pointer, pointer, zg.divisible(zg.ptr(zg.f32)), depth, step, num_warps=num_warps, target="sm_80"
    )
    assert re.findall(r'"llvm.loop.unroll.count", i32 (\d+)', compiled.stages["llvm"]) == [str(count)] * (count > 0)
    a, b = (np.random.default_rng(seed).integers(-3, 4, (depth, 16)).astype(np.float16) for seed in (0, 1))
    a, c = np.ascontiguousarray(a.T), np.zeros((16, 16), np.float32)
    simulate(compiled.stages["llvm"], num_warps=num_warps, shared=compiled.shared, arguments=[a, b, c])
    np.testing.assert_array_equal(c, 2 * a.astype(np.float32) @ b.astype(np.float32))
    if not compiled.ptx:
        pytest.skip("llvmlite is not installed")
    assert compiled.ptx.partition(".entry")[2].count("bra") == (not count)


@zg.kernel
def pooled(x_ptr, out_ptr, width, ROWS: zg.constexpr, COLUMNS: zg.constexpr):
    """The sum of the blocks of a window."""
    at = zg.arange(0, 128)
    total = zg.zeros((128,), zg.f32)
    for row in range(ROWS):
        for column in range(COLUMNS):
            total = zg.add(total, zg.load(x_ptr + zg.add(zg.add(zg.mul(row, width), column * 128), at)))
    zg.store(zg.add(out_ptr, at), total)


@pytest.mark.parametrize(("rows", "columns", "loops"), [(2, 2, 0), (4, 3, 0), (2, 5, 2), (5, 2, 1)])
def test_a_few_iterations_that_only_load_are_put_together(rows: int, columns: int, loops: int) -> None:
    """Loops around short loops are unrolled too, so that all of their loads are in flight at once."""
    pointer = zg.divisible(zg.ptr(zg.f32))
    compiled = pooled.compile(pointer, pointer, zg.divisible(zg.i32), rows, columns, num_warps=1)
    x, out = np.arange(4096, dtype=np.float32), np.zeros(128, np.float32)
    simulate(compiled.stages["llvm"], num_warps=1, shared=compiled.shared, arguments=[x, out, 768])
    blocks = [x[768 * row + 128 * column :][:128] for row in range(rows) for column in range(columns)]
    np.testing.assert_array_equal(out, sum(blocks))
    if not compiled.ptx:
        pytest.skip("llvmlite is not installed")
    assert compiled.ptx.count("bra") == loops


@zg.kernel
def windows(x_ptr, out_ptr, n, BLOCK: zg.constexpr):
    """The sum of four blocks of every second row."""
    at = zg.arange(0, BLOCK)
    total = zg.zeros((BLOCK,), zg.f32)
    for row in range(0, n, 2):
        for column in range(4):
            total = zg.add(total, zg.load(zg.add(x_ptr + (row * 4 + column) * BLOCK, at)))
    zg.store(zg.add(out_ptr, at), total)


@pytest.mark.parametrize(("block", "count"), [(32, 4), (128, 2), (1024, 1)])
def test_loads_of_short_loops_count_for_the_loop_around_them(block: int, count: int) -> None:
    """A thread loads 4, 16 and 128 registers in an iteration of the outer loop."""
    pointer = zg.divisible(zg.ptr(zg.f32))
    compiled = windows.compile(pointer, pointer, zg.divisible(zg.i32), block, num_warps=1)
    counts = re.findall(r'"llvm.loop.unroll.count", i32 (\d+)', compiled.stages["llvm"])
    assert counts == ["4", str(count)]
    x, out = np.arange(24 * block, dtype=np.float32) % 97, np.zeros(block, np.float32)
    simulate(compiled.stages["llvm"], num_warps=1, shared=compiled.shared, arguments=[x, out, 6])
    np.testing.assert_array_equal(out, x.reshape(3, 2, 4, block)[:, 0].sum(axis=(0, 1)))


@zg.kernel
def bag(rows_ptr, x_ptr, out_ptr, first, last):
    """The sum of some rows, whose numbers are loaded one by one."""
    columns = zg.arange(0, 128)
    total = zg.zeros((128,), zg.f32)
    for i in range(first, last):
        total = zg.add(total, zg.load(zg.add(x_ptr + zg.load(rows_ptr + i) * 128, columns)))
    zg.store(zg.add(out_ptr, columns), total)


def test_addresses_count_with_the_index_of_a_loop() -> None:
    """An index of 32 bits that may wrap around would be widened in each iteration."""
    pointer = zg.divisible(zg.ptr(zg.f32))
    compiled = bag.compile(zg.ptr(zg.i32), pointer, pointer, zg.i32, zg.i32, num_warps=4)
    x = np.random.default_rng(0).integers(-9, 9, (40, 128)).astype(np.float32)
    rows, out = np.arange(40, dtype=np.int32)[::-1].copy(), np.zeros(128, np.float32)
    simulate(compiled.stages["llvm"], num_warps=4, shared=compiled.shared, arguments=[rows, x, out, 3, 9])
    np.testing.assert_array_equal(out, x[rows[3:9]].sum(axis=0))
    if not compiled.ptx:
        pytest.skip("llvmlite is not installed")
    label = re.findall(r"bra \t?(\S+);", compiled.ptx)[-1]
    loop = compiled.ptx.partition(f"{label}:")[2].partition("bra")[0]
    assert loop.count("ld.global.b32") == 2 and loop.count(".wide.s32") == 1, loop
