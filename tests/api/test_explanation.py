"""`compiled.explain()`: tables by source line, limits, and the reasons why something is not better."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import ziggurat as zg
from ziggurat.backend.ptx.sass import tool
from ziggurat.compiler import explanation

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import kernels_ours as kernels

F16, F32 = (zg.divisible(zg.ptr(element), 16) for element in (zg.f16, zg.f32))
N = zg.divisible(zg.i32, 16)


@zg.kernel
def add(x_ptr, out_ptr, n, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    mask = zg.compare(at, n, zg.CompareKind.LESS_THAN)
    zg.store(zg.add(out_ptr, at), zg.add(zg.load(zg.add(x_ptr, at), mask), zg.cdiv(n, 2)), mask)


@zg.kernel
def summed(x_ptr, out_ptr, n, B: zg.constexpr):
    at = zg.arange(0, B)
    square = zg.add(zg.mul(zg.expand(at, 1), B), zg.expand(at, 0))
    total = zg.zeros((B, B), zg.f32)
    for _ in zg.range(0, n, 1, num_stages=2):
        x = zg.load(zg.add(x_ptr, square))
        total = zg.dot(x, x, total)
        zg.store(zg.add(x_ptr, square), zg.cast(total, zg.f16))
        zg.store(zg.add(out_ptr, square), total)


def block(*shape: int) -> Any:
    return zg.divisible(zg.descriptor(shape, zg.f16), 16)


def row(text: str, word: str) -> list[str]:
    """The cells of the line of a table whose source has a word, up to the source."""
    (line,) = (line for line in text.splitlines() if word in line and "^" not in line)
    return line.split()


def test_lines_of_the_kernel_and_their_reasons():
    integers = zg.divisible(zg.ptr(zg.i32), 16)
    text = add.compile(zg.ptr(zg.i32), integers, N, 1024).explain()
    resources, table = text.split("\n\n")
    assert resources.startswith("add for sm_90a: 4 warps, 0 bytes of shared memory, ")
    assert "CTAs per SM: 16, limited by " in resources
    assert "cluster" not in text
    head = "line    read  written   used    bits  shared      flop  issued  MUFU"
    assert table.startswith(f"A CTA, without its loops:\n{head}\n")
    # The division of `cdiv`, a function of the language, counts for the line that calls it: 8 + 1 operations.
    # The load asks four times for each sector, as threads hold four neighbours for the store: 8192 bytes of 20480.
    assert row(table, "zg.store")[1:6] == ["4096", "4096", "40", "%", "32/128"]
    reason = "the addresses are known to be multiples of 4 bytes only; `x_ptr` is not known to be a multiple of 16"
    assert f"     ^ 32 bits a thread, not 128: {reason} bytes\n" in table
    assert "     ^ each sector is asked for 4 times: a thread moves neighbours one after the other\n" in table
    assert table.endswith("limit: L2 cache; device memory, with 585 cycles, if no cache holds the data\n")
    assert all(line == line.rstrip() for line in text.splitlines())


def test_loops_have_tables_of_their_own_for_all_roles():
    types = [block(128, 64), block(256, 64), block(128, 256), N, N, N, 128, 256, 64, 8, True]
    text = kernels.matmul_blocks.compile(*types, num_warps=8).explain()
    assert "warp_specialize=True) would" not in text
    outside, tiles, inner = text.split("\n\n")[1:]
    assert outside.startswith("A CTA, without") and tiles.startswith("An iteration of the loop in line ")
    # The producer's copies, and the consumer's products.
    assert row(inner, "a_desc.load")[1:4] == ["16384", "100", "%"]
    assert row(inner, "zg.dot")[1:3] == ["640", "4194304"]
    assert inner.endswith(
        "cycles of an SM: matrix units 1024, shared memory 1024, L2 cache 768, issue slots 80\nlimit: matrix units\n"
    )


def by_pointers(m: int, n: int, **options: int) -> str:
    """The explanation of a product of row-major matrices by tiles of m × n."""
    strides = [N, 1, N, 1, N, 1]
    return kernels.matmul.compile(F16, F16, F16, N, N, N, *strides, m, n, 64, 8, **options).explain()


def test_programs_that_a_cta_runs_in_turn_have_a_table():
    resources, outside, programs, inner = by_pointers(128, 256).split("\n\n")
    assert "\nchosen: as many CTAs as fit run the programs in turn" in resources
    assert outside.startswith("A CTA, without its loops:\n")
    assert programs.startswith("A program, of those that a CTA runs in turn, without its loops:\n")
    assert row(programs, "zg.store")[1:3] == ["65536", "100"]
    assert inner.startswith("An iteration of the loop in line ") and row(inner, "zg.dot")[1:3] == ["640", "4194304"]


def test_why_a_cta_runs_one_program_is_said():
    why = "\na CTA runs one program: the accumulators take 64 registers of a thread, not 128 to 192"
    assert why in by_pointers(128, 128, num_warps=8)
    assert "\na CTA runs one program: its loops have 2 stages, not 3" in by_pointers(128, 256, num_stages=2)


def test_a_cluster_is_named_with_what_its_ctas_load_together():
    text = by_pointers(256, 256, num_warps=8, num_ctas=2)
    assert "\na program is a cluster of 2 CTAs; the figures are of one of them\n" in text
    assert "\nchosen: as many clusters as fit run the programs in turn" in text
    assert text.count("^ each of 2 CTAs loads a part of a block, for all of them\n") == 1
    longest = kernels.softmax.compile(F32, F32, N, N, 131072).explain()
    assert "\nchosen: a program is a cluster of 16 CTAs; the figures are of one of them\n" in longest


def test_chunks_of_blocks_have_a_table():
    text = kernels.add.compile(F32, F32, F32, N, 1 << 16, num_warps=4).explain()
    assert "runs one program" not in text
    chunk = text.split("\n\n")[2]
    assert chunk.startswith("A chunk of the blocks, of which the compiler has made a loop:\n")
    assert row(chunk, "zg.store")[1:3] == ["32768", "100"]


def test_what_is_not_done_is_said_without_a_warning():
    compiled = summed.compile(F16, F32, zg.i32, 64)
    rough = zg.descriptor((128, 256), zg.f16)
    types = [block(128, 64), block(256, 64), rough, N, N, N, 128, 256, 64, 8, False]
    by_pointers = kernels.matmul_blocks.compile(*types, num_warps=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = compiled.explain()
        other = by_pointers.explain()
    assert (
        "^ no copies ahead of the dots: an op in its loop writes to the same memory or orders accesses (tt.st" in text
    )
    assert "^ all warps fetch and compute: zg.range(…, warp_specialize=True) would split them" in other
    assert "^ the block is moved through pointers, not by TMA: the rows of the tensor are not known to be" in other
    assert re.search(r"\^ 16 bits a thread.*a size or stride of `c_desc` is not known to be a multiple of 8", other)


@pytest.mark.skipif(not tool("ptxas") or not tool("nvdisasm"), reason="needs NVIDIA's tools")
def test_spills_are_shown_by_line():
    text = kernels.softmax.compile(F32, F32, N, N, 8192, num_warps=4, maxnreg=32).explain()
    assert re.search(r" 32 registers a thread, [1-9]\d* bytes spilled\n", text)
    assert re.search(r"\^ spilled registers are moved by [1-9]\d* instruction\(s\)", text)
    assert re.search(r"limit: .*, with [1-9]\d* instructions for spilled registers", text)


def test_without_ptxas(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(explanation, "tool", lambda name: None)
    text = kernels.layer_norm.compile(*[F16] * 4, F32, F32, N, N, zg.f32, 2048, num_warps=8).explain()
    assert "registers and CTAs per SM are not known without ptxas" in text.splitlines()[1]
    assert text.count("An iteration of the loop in line") == 3


def test_loads_that_are_too_narrow_for_copies_are_named():
    pointer = zg.ptr(zg.f16)
    text = products.compile(pointer, zg.ptr(zg.f32), zg.i32, 64).explain()
    assert "no copies ahead of the dots: a thread loads 16 bits at once, and copies ahead take 32 or more" in text


@zg.kernel
def products(x_ptr, out_ptr, n, B: zg.constexpr):
    at = zg.arange(0, B)
    square = zg.add(zg.mul(zg.expand(at, 1), B), zg.expand(at, 0))
    total = zg.zeros((B, B), zg.f32)
    for step in range(0, n):
        x, y = (zg.load(zg.add(x_ptr + step, square)), zg.load(zg.add(x_ptr + 5 * step, square)))
        total = zg.dot(x, y, total)
    zg.store(zg.add(out_ptr, square), total)


def test_a_compiled_gpu_model_has_no_reasons():
    model = add.compile(F32, F32, N, 1024).stages["gpu"]
    with pytest.raises(
        zg.LaunchError, match="a GPU model has no reasons for its placement\n  hint: compile the Triton"
    ):
        zg.compile(model).explain()


def test_lines_without_a_place():
    compiled = add.compile(F32, F32, N, 1024)
    model = zg.parse(str(compiled.stages["triton"]))  # Text without locations.
    assert "   ?    4096" in zg.compile(model).explain()


@pytest.fixture
def assembler_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explanation, "tool", lambda name: None)


SPLIT = "^ all warps fetch and compute: zg.range(…, warp_specialize=True) would split them\n"


def by_blocks(roles: bool, **options: Any) -> str:
    types = [block(128, 64), block(256, 64), block(128, 256), N, N, N, 128, 256, 64, 8, roles]
    return kernels.matmul_blocks.compile(*types, **options).explain()


def test_roles_that_the_compiler_chooses_are_said(assembler_is_missing: None):
    chosen = "\nchosen: 8 warps, as the accumulators take 128 registers of a thread"
    for roles, options, has_words in (
        (False, {}, True), (True, {"warp_specialize": False}, False), (False, {"warp_specialize": False}, False),
    ):  # fmt: skip
        text = by_blocks(roles, **options)
        assert (f"{chosen}; and roles, as TMA loads all operands\n" in text) is has_words
        assert chosen in text and SPLIT not in text
        assert ("\n     ^ chosen: 3 stages; 3 hide the latency of loads, and" in text) is (roles is has_words is False)


@zg.kernel
def rolled(x_ptr, y_ptr, out_ptr, n, B: zg.constexpr):
    at = zg.arange(0, B)
    square = zg.add(zg.mul(zg.expand(at, 1), B), zg.expand(at, 0))
    total = zg.zeros((B, B), zg.f32)
    for _ in range(0, n):
        total = zg.dot(zg.load(zg.add(x_ptr, square)), zg.load(zg.add(y_ptr, square)), total)
        x_ptr = zg.add(x_ptr, B * B)
    zg.store(zg.add(out_ptr, square), total)


def test_why_there_are_no_roles(assembler_is_missing: None):
    unaligned = [F16, zg.ptr(zg.f16), F32, zg.i32, 64]
    text = rolled.compile(*unaligned, num_warps=4).explain()
    for note in (
        "the threads load it, not TMA: its base and the distance of its rows are not known to be multiples of 16 bytes",
        "the threads load it, not TMA: another load for the dots of its loop is not done by TMA (tt.load at ",
        "no roles for the dots' loops: the load is not done by TMA for wgmma alone\n",
        "no copies ahead of the dots: all programs load it, so that it is in the L1, which copies do not read\n",
    ):
        assert f"     ^ {note}" in text
    assert SPLIT not in text and "a CTA runs one program: its loads are not through descriptors" in text
    assert SPLIT in rolled.compile(F16, F16, F32, N, 64, num_warps=4).explain()
    assert SPLIT not in rolled.compile(F16, F16, F32, N, 64).explain()


def test_a_gpu_without_tma_has_no_word_of_it(assembler_is_missing: None):
    text = rolled.compile(F16, zg.ptr(zg.f16), F32, zg.i32, 64, target="sm_80", num_warps=4).explain()
    assert "TMA" not in text and "roles" not in text and SPLIT not in text
    assert "runs one program" not in text and "stages; " in text
