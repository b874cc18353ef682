"""Accesses alone and in kernels: their widths reach the PTX, which ptxas accepts."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_layouts import random_layout

import ziggurat as zg
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.layout import Layout, blocked
from ziggurat.codemodel.text.parser import parse
from ziggurat.transforms.analysis.axis_info import analyse
from ziggurat.transforms.gpu.assign import assign
from ziggurat.transforms.gpu.lower import run_of_warps
from ziggurat.transforms.layouts.accesses import Accesses, pointee_bytes
from ziggurat.transforms.tiles.prepare import prepare


@zg.kernel
def add_kernel(x, y, out, n, BLOCK: zg.constexpr):
    index = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    mask = zg.compare(index, n, zg.CompareKind.LESS_THAN)
    total = zg.add(zg.load(zg.add(x, index), mask), zg.load(zg.add(y, index), mask))
    zg.store(zg.add(out, index), total, mask)


@zg.kernel
def scale_rows_kernel(out, x, stride, n, top, BLOCK: zg.constexpr):
    index = zg.arange(0, BLOCK)
    mask = zg.compare(index, n, zg.CompareKind.LESS_THAN)
    row = zg.load(zg.add(x + zg.program_id(0) * stride, index), mask, other=-float("inf"))
    zg.store(zg.add(out + zg.program_id(0) * stride, index), zg.exp2(zg.sub(row, top)), mask)


def ptx_of(kernel: Any, types: list[Any], target: str) -> str:
    from ziggurat.backend.ptx.assemble import assemble

    module = assign(prepare(kernel.triton(*types)), CompileOptions(target))
    assert isinstance(module, gpu.Module)
    return assemble(module).ptx


def ptxas() -> str | None:
    package = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    actual = sorted(package.glob("*/bin/ptxas"))
    return str(actual[0]) if actual else shutil.which("ptxas")


POINTER, NUMBER = zg.ptr(zg.f32), zg.i32
WIDE, EVEN = zg.divisible(POINTER), zg.divisible(NUMBER)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("kernel", "types", "loads"), [
    (add_kernel, [WIDE, WIDE, WIDE, EVEN, 1024], 4),
    (scale_rows_kernel, [WIDE, WIDE, EVEN, EVEN, zg.f32, 1024], 2),
])  # fmt: skip
def test_aligned_accesses_are_of_128_bits(
    tmp_path: Path, target: str, kernel: Any, types: list[Any], loads: int
) -> None:
    ptx = ptx_of(kernel, types, target)
    assert ptx.count("ld.global.v4.b32") == loads
    assert ptx.count("st.global.v4.b32") == 2
    assembler = ptxas()
    if assembler is None:
        pytest.skip("ptxas is not installed (pip install nvidia-cuda-nvcc)")
    file = tmp_path / "kernel.ptx"
    file.write_text(ptx)
    command = [assembler, f"-arch={target}", "-v", str(file), "-o", str(tmp_path / "kernel.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert " 0 bytes spill" in done.stderr


def test_without_divisibility_accesses_are_of_one_element() -> None:
    ptx = ptx_of(add_kernel, [POINTER, POINTER, POINTER, NUMBER, 1024], "sm_80")
    assert ".v4.b32" not in ptx and ptx.count("ld.global.b32") == 16


# Accesses alone.


def model(body: str, divisibility: str = "[16, 16]", num_warps: int = 4) -> tuple[tt.Func, Accesses]:
    func = parse(f'tt.func @"f" @divisibility={divisibility} (%p : ptr<f32>, %n : i32)void -> {{ {body} tt.return; }};')
    assert isinstance(func, tt.Func)
    return func, Accesses(func, analyse(func), num_warps)


def first(func: tt.Func, kind: Any = tt.Load) -> Any:
    return next(op for op in func.walk() if isinstance(op, kind))


def row(size: int) -> str:
    return f"""%0 : tensor<x{size}, i32> = tt.make_range @start=0 @end={size};
        %1 : tensor<x{size}, ptr<f32>> = tt.splat %p; %2 : tensor<x{size}, ptr<f32>> = tt.addptr %1 %0;"""


def grid(stride: bool) -> str:
    """Pointers to 32 × 64 elements: rows in memory, or columns with an unknown stride."""
    kinds = {"a": "tensor<x32, x64, i32>", "p": "tensor<x32, x64, ptr<f32>>"}
    text = f"""%s : {kinds["a"]} = tt.splat %n;
        %i : tensor<x32, i32> = tt.make_range @start=0 @end=32; %j : tensor<x64, i32> = tt.make_range @start=0 @end=64;
        %k : tensor<x32, x1, i32> = tt.expand_dims %i @axis=1; %l : tensor<x1, x64, i32> = tt.expand_dims %j @axis=0;
        %x : {kinds["a"]} = tt.broadcast %k; %y : {kinds["a"]} = tt.broadcast %l;
        %z : {kinds["a"]} = arith.muli {"%y" if stride else "%x"} %s;
        %w : {kinds["a"]} = arith.addi {"%x" if stride else "%y"} %z;
        %b : {kinds["p"]} = tt.splat %p; %q : {kinds["p"]} = tt.addptr %b %w;
        %v : tensor<x32, x64, f32> = tt.load %q;"""
    return text


def test_the_axis_with_the_longest_runs_is_first() -> None:
    for stride, order in ((False, (1, 0)), (True, (0, 1))):
        func, accesses = model(grid(stride))
        load = first(func)
        assert accesses.order(load) == order and accesses.vector(load) == 4
        assert accesses.coalesced(load) == blocked((32, 64), order, 4, 4)
        assert accesses.widest == {((32, 64), order): 4}


@pytest.mark.parametrize(("size", "divisibility", "vector"), [
    (1024, "[16, 16]", 4), (256, "[16, 16]", 2), (128, "[16, 16]", 1), (64, "[16, 16]", 1), (1024, "[8, 16]", 2),
    (1024, "[1, 16]", 1),
])  # fmt: skip
def test_a_thread_holds_as_many_elements_as_one_access_moves(size: int, divisibility: str, vector: int) -> None:
    func, accesses = model(f"{row(size)} %3 : tensor<x{size}, f32> = tt.load %2;", divisibility)
    assert accesses.vector(first(func)) == vector


def test_a_mask_limits_the_width() -> None:
    masked = f"""{row(1024)} %3 : tensor<x1024, i32> = tt.splat %n; %4 : tensor<x1024, i1> = arith.cmpi %0 %3 @slt;
        %5 : tensor<x1024, f32> = tt.load %2 %4;"""
    layout = blocked((1024,), (0,), 4, 4)
    for divisibility, width in (("[16, 16]", 4), ("[16, 2]", 2), ("[16, 1]", 1)):
        func, accesses = model(masked.replace("@slt", "@ne"), divisibility)
        assert accesses.vector(first(func)) == accesses.width(first(func), layout) == min(width, 1)
        func, accesses = model(masked, divisibility)  # The elements before %n come first.
        assert accesses.vector(first(func)) == accesses.width(first(func), layout) == 4
        assert accesses.is_ragged(first(func), layout) == (width < 4)
        loop = f"scf.for %n %n %n (%i : i32)void -> {{ {masked} scf.yield; }};"
        func, accesses = model(loop, divisibility)
        assert accesses.vector(first(func)) == accesses.width(first(func), layout) == width


def test_atomics_have_neighbours_in_neighbouring_lanes_unless_they_add_vectors() -> None:
    body = row(1024) + "%3 : tensor<x1024, f32> = tt.load %2; %4 : tensor<x1024, f32> = tt.atomic_rmw %2 %3 @{};"
    for kind, vector in (("fadd", 4), ("fmax", 1), ("xchg", 1)):
        func, accesses = model(body.format(kind))
        assert accesses.vector(first(func, tt.AtomicRMW)) == vector


def test_the_width_is_the_number_of_neighbouring_registers() -> None:
    func, accesses = model(f"{row(1024)} %3 : tensor<x1024, f32> = tt.load %2;")
    load = first(func)
    for layout, width in (
        (blocked((1024,), (0,), 4, 4), 4), (blocked((1024,), (0,), 8, 4), 4), (blocked((1024,), (0,), 2, 4), 2),
        (blocked((1024,), (0,), 1, 4), 1), (Layout((2, 1, 128), (4, 8, 16, 32, 64), (256, 512)), 1),
        # Lane 1 begins in the middle of four elements of another lane.
        (Layout((1, 2, 128), (4 | 2, 8, 16, 32, 64), (256, 512)), 2),
    ):  # fmt: skip
        assert layout.covers(1024) and accesses.width(load, layout) == width


def test_traffic_counts_sectors() -> None:
    """A sector has 8 elements of f32."""
    func, accesses = model(grid(False))
    load = first(func)
    along, across = (accesses.traffic(load, blocked((32, 64), order, 4, 4)) for order in ((1, 0), (0, 1)))
    assert along == 4 * (4 * 16)  # Four warps, four instructions of 4 elements in a row, 2 lanes to a sector.
    assert across == 4 * (16 * 8)  # 16 instructions of one element, each with four columns of eight rows.
    assert along == accesses.traffic(load, accesses.coalesced(load))


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 4, 8]))
def test_traffic_is_that_of_the_first_warp_element_by_element(seed: int, num_warps: int) -> None:
    func, accesses = model(grid(False), num_warps=num_warps)
    load = first(func)
    layout = random_layout(Random(seed), 32 * 64, num_warps)
    width = accesses.width(load, layout)
    step = width.bit_length() - 1
    registers = [basis for basis in layout.registers[step:] if basis]
    plain = Layout((*layout.registers[:step], *registers), layout.lanes, layout.warps)
    sectors = sum(
        len({plain.element(group * width, lane) // 8 for lane in range(32)}) for group in range(1 << len(registers))
    )
    copies = sum(1 for basis in layout.warps if not basis)
    assert accesses.traffic(load, layout) == sectors * num_warps >> copies


def test_traffic_of_a_large_tensor_takes_no_time() -> None:
    """A tensor of 2^40 elements: an analysis element by element would not end."""
    size = 1 << 40
    func, accesses = model(f"{row(size)} %3 : tensor<x{size}, f32> = tt.load %2;")
    assert accesses.traffic(first(func), blocked((size,), (0,), 4, 4)) == size // 8


def test_the_default_layout_is_that_of_accesses_of_the_same_shape() -> None:
    _, accesses = model(f"{row(1024)} %3 : tensor<x1024, f32> = tt.load %2;", "[8, 16]")
    assert accesses.default((1024,)) == blocked((1024,), (0,), 2, 4)
    assert accesses.default((2048,)) == blocked((2048,), (0,), 4, 4)
    assert accesses.default((8, 16)) == blocked((8, 16), (1, 0), 1, 4)


@pytest.mark.parametrize("axis", [0, 1])
def test_each_warp_has_a_contiguous_part_of_a_scanned_tensor(axis: int) -> None:
    """8 neighbouring rows of 32, which is as good for memory; 4 of a thread, for a scan along columns. Tensors of one
    axis and other shapes are as before."""
    body = "(%c : f32, %d : f32)f32 -> { %e : f32 = arith.addf %c %d; tt.scan.return %e; };"
    func, accesses = model(f"{grid(False)} %g : tensor<x32, x64, f32> = tt.scan %v @axis={axis} {body}")
    before, plain = model(grid(False))
    load, other = first(func), first(before)
    layout, usual = accesses.coalesced(load), plain.coalesced(other)
    assert layout.warps == (512, 1024) and usual.warps == (128, 256)
    if axis == 0:
        assert (layout.registers, layout.lanes) == ((1, 2, 64, 128), (4, 8, 16, 32, 256))
    else:
        assert (layout.registers, layout.lanes) == ((1, 2, 128, 256), usual.lanes)
    assert accesses.default((32, 64)) == layout and accesses.default((64, 32)) == plain.default((64, 32))
    assert accesses.width(load, layout) == plain.width(other, usual) == 4
    assert accesses.traffic(load, layout) == plain.traffic(other, usual)
    assert run_of_warps(layout, (32, 64), 0) == 8 and run_of_warps(usual, (32, 64), 0) == 2
    accesses.scanned[64, 16] = {0}  # Rows that may be less than a sector.
    assert accesses.default((64, 16)) == blocked((64, 16), (1, 0), 4, 4, warps_last=True)
    scan = f"%3 : tensor<x1024, f32> = tt.load %2; %4 : tensor<x1024, f32> = tt.scan %3 @axis=0 {body}"
    func, accesses = model(f"{row(1024)} {scan}")
    assert accesses.coalesced(first(func)) == blocked((1024,), (0,), 4, 4)


def test_the_size_of_an_element_and_unknown_values() -> None:
    func, accesses = model(row(64))
    assert pointee_bytes(func.body.parameters[0]) == pointee_bytes(func.body.entry.ops[-2].result) == 4
    with pytest.raises(AssertionError):
        pointee_bytes(func.body.parameters[1])
    stranger, _ = model(row(64))
    assert accesses.info(stranger.body.parameters[0]).divisibility == (4,)
    assert accesses.info(func.body.parameters[0]).divisibility == (16,)


# Stores far apart, and before branches.


@zg.kernel
def spread(x_ptr, out_ptr, BY: zg.constexpr, BLOCK: zg.constexpr):
    """Each number goes to a place of its own, through a quotient and a remainder as of pages."""
    at = zg.arange(0, BLOCK)
    rows, columns = at // 128, at % 128
    zg.store(out_ptr + zg.add(zg.mul(rows, 128 * BY), zg.mul(columns, BY)), zg.load(x_ptr + at))


@pytest.mark.parametrize(("by", "converts"), [(2, True), (16, True), (64, False), (1024, False)])
def test_numbers_stored_in_few_lines_are_exchanged_for_that(by: int, converts: bool) -> None:
    """Neighbouring lanes then write to neighbouring sectors, where eight of a thread lie in lines of their own."""
    pointer = zg.divisible(zg.ptr(zg.f16))
    compiled = spread.compile(pointer, pointer, by, 1024, num_warps=4, target="sm_90a")
    assert ("gpu.local_alloc" in str(compiled.stages["gpu"])) == converts
    x, out = np.arange(1024, dtype=np.float16), np.zeros(1024 * by, np.float16)
    simulate(compiled.stages["llvm"], num_warps=4, shared=compiled.shared, arguments=[x, out])
    np.testing.assert_array_equal(out[::by], x)


@zg.kernel
def difference(x_ptr, out_ptr, n, BLOCK: zg.constexpr):
    """Rows are loaded one ahead, and written in a branch, without the first element."""
    at = zg.arange(0, BLOCK)
    before = zg.load(x_ptr + at)
    for row in range(1, n):
        here = zg.load(x_ptr + zg.add(row * BLOCK, at))
        if row % 2 == 1:
            zg.store(out_ptr + zg.add(row * BLOCK, at), here - before, mask=zg.compare(at, 0, ">"))
        before = here


def test_loads_before_a_branch_have_the_width_of_the_stores_in_it() -> None:
    pointer = zg.divisible(zg.ptr(zg.f32))
    compiled = difference.compile(pointer, pointer, zg.i32, 256, num_warps=4, target="sm_90a")
    loop = str(compiled.stages["gpu"]).partition("scf.for")[2]
    assert "scf.if" in loop and "gpu.local" not in loop and "gpu.convert_layout" not in loop
    x, out = np.arange(6 * 256, dtype=np.float32) ** 2, np.zeros(6 * 256, np.float32)
    simulate(compiled.stages["llvm"], num_warps=4, shared=compiled.shared, arguments=[x, out, 6])
    expected = np.diff(x.reshape(6, 256), axis=0, prepend=0)
    expected[::2], expected[:, 0] = 0, 0
    np.testing.assert_array_equal(out.reshape(6, 256), expected)


@zg.kernel
def neighbours(x_ptr, out_ptr, n, BLOCK: zg.constexpr):
    """Each number with the one after it, which is not aligned."""
    at = zg.program_id(0) * BLOCK + zg.arange(0, BLOCK)
    inside = zg.compare(at, n, "<")
    after = zg.load(x_ptr + zg.add(at, 1), inside, other=0)
    zg.store(out_ptr + at, zg.load(x_ptr + at, inside, other=0) + after, inside)


def test_narrow_accesses_with_one_mask_compare_once() -> None:
    pointer = zg.divisible(zg.ptr(zg.f32))
    compiled = neighbours.compile(pointer, pointer, zg.divisible(zg.i32), 512, num_warps=4, target="sm_90a")
    x, out = np.arange(129, dtype=np.float32), np.zeros(512, np.float32)
    simulate(compiled.stages["llvm"], num_warps=4, shared=compiled.shared, arguments=[x, out, 128])
    np.testing.assert_array_equal(out, np.pad(x[:-1] + x[1:], (0, 384)))
    if not compiled.ptx:
        pytest.skip("llvmlite is not installed")
    assert compiled.ptx.count("setp.") == 1 and compiled.ptx.count("ld.global.b32") == 4


@zg.kernel
def gated_sum(k, g, v, out, n, copied: zg.constexpr):
    """f16 and f32 of one shape are multiplied for a dot, in a loop or alone."""
    i, j = zg.arange(0, 64), zg.arange(0, 64)
    at = zg.add(zg.mul(zg.expand(i, 1), 64), zg.expand(j, 0)) + zg.program_id(0) * n * 4096
    total = zg.zeros((64, 64), zg.f32)
    for step in zg.range(0, n, num_stages=copied):
        gates = zg.load(g + zg.add(step * 4096, at))
        kept = zg.cast(zg.load(k + zg.add(step * 4096, at)) * gates, zg.f16)
        total = zg.dot(kept, zg.load(v + zg.add(step * 4096, at)), total)
    zg.store(out + at, total)  # By one program.


def test_copies_of_loops_with_dots_are_of_whole_sectors() -> None:
    """With eight f32 a thread, as of f16, two copies would each ask for half of every sector."""
    half, single = (zg.divisible(zg.ptr(element)) for element in (zg.f16, zg.f32))
    compiled = gated_sum.compile(half, single, half, single, zg.i32, 3, num_warps=4, target="sm_90a", verify=True)
    loop = next(op for op in compiled.stages["gpu"].walk() if isinstance(op, scf.For))
    copies = [op for op in loop.walk() if isinstance(op, gpu.AsyncCopy)]
    assert sorted(op.width * pointee_bytes(op.ptr) for op in copies) == [16, 16, 16]
    for copy in copies:  # Two lanes have neighbouring parts of a sector.
        layout = copy.ptr.type.layout  # type: ignore[attr-defined]
        assert layout.lanes[0] == copy.width
    k, v = (np.random.default_rng(seed).integers(-3, 4, (2, 64, 64)).astype(np.float16) for seed in (0, 1))
    g, out = np.random.default_rng(2).integers(0, 3, (2, 64, 64)).astype(np.float32), np.zeros((64, 64), np.float32)
    compiled.simulate[1,](k, g, v, out, 2)
    np.testing.assert_array_equal(out, ((k * g) @ v.astype(np.float32)).sum(0))


@zg.kernel
def product(a, b, out, M: zg.constexpr, K: zg.constexpr):
    m, k = zg.arange(0, M), zg.arange(0, K)
    x = zg.load(a + zg.add(zg.mul(zg.expand(m, 1), K), zg.expand(k, 0)))
    y = zg.load(b + zg.add(zg.mul(zg.expand(k, 1), M), zg.expand(m, 0)))
    zg.store(out + zg.add(zg.mul(zg.expand(m, 1), 4096), zg.expand(m, 0)), zg.dot(x, y))


@pytest.mark.parametrize(("size", "warps", "converts"), [(64, 4, True), (16, 4, False), (256, 8, False)])
def test_results_of_dots_are_exchanged_where_that_costs_less_than_their_lines(
    size: int, warps: int, converts: bool
) -> None:
    """In the layout of an accumulator, an instruction writes to eight lines of memory, a sector in each. An exchange of
    256 KB would take the shared memory of others."""
    half, single = (zg.divisible(zg.ptr(element)) for element in (zg.f16, zg.f32))
    compiled = product.compile(half, half, single, size, 32, num_warps=warps, target="sm_90a", raise_pointers=False)
    (store,) = (op for op in compiled.stages["gpu"].walk() if isinstance(op, tt.Store))
    assert (store.width == 4) == converts


@zg.kernel
def chosen(x_ptr, out_ptr, TAKES_ALL: zg.constexpr, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    x = zg.load(x_ptr + at)
    positive = x > 0
    counted = zg.cast(x, zg.i32) if TAKES_ALL else zg.cast(positive, zg.i32)
    zg.store(out_ptr + (zg.cumsum(counted, axis=0) - 1), at, positive)


@pytest.mark.parametrize(("takes_all", "converts"), [(False, True), (True, False)])
def test_lanes_store_to_neighbours_where_a_scan_counts_the_places(takes_all: bool, converts: bool) -> None:
    """Places that are counted are at most one apart; those that are sums of any numbers may be anywhere."""
    compiled = chosen.compile(
        zg.divisible(zg.ptr(zg.i8)), zg.divisible(zg.ptr(zg.i32)), takes_all, 4096, target="sm_90a"
    )  # fmt: skip
    [store] = (op for op in compiled.stages["gpu"].walk() if isinstance(op, tt.Store))
    layout = store.ptr.type.layout
    assert layout is not None and (layout.lanes == (1, 2, 4, 8, 16)) == converts


@zg.kernel
def blended(ids_ptr, colours_ptr, pixels_ptr, out_ptr, N: zg.constexpr):
    point, pixel, channel = zg.arange(0, N), zg.arange(0, 256), zg.expand(zg.arange(0, 4), 0)
    place = zg.gather(zg.load(ids_ptr + point), N - 1 - point, axis=0)
    colours = zg.load(colours_ptr + (zg.expand(place, 1) * 4 + channel))
    pixels = zg.load(pixels_ptr + (zg.expand(pixel, 1) * 4 + channel))
    product = zg.expand(colours, 1) * zg.expand(pixels, 0)
    zg.store(out_ptr + (zg.expand(point, 1) * 256 + zg.expand(pixel, 0)), zg.sum(product, axis=2))


def test_neighbours_that_are_fewer_than_threads_are_loaded_by_neighbouring_lanes() -> None:
    """In the layout of the rows' numbers, the channels lay in different warps, and their sums took 512 KB."""
    floats = zg.divisible(zg.ptr(zg.f32))
    compiled = blended.compile(
        zg.divisible(zg.ptr(zg.i32)), floats, floats, floats, 128, target="sm_90a", num_warps=16
    )  # fmt: skip
    lanes = {
        op.result.type.layout.lanes[:2]
        for op in compiled.stages["gpu"].walk()
        if isinstance(op, tt.Load) and op.result.type.shape == (128, 4)
    }
    assert lanes == {(1, 2)}
