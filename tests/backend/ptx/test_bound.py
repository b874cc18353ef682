"""The bound on registers that a kernel is assembled with the second time."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.bound import bounded, with_bound
from ziggurat.backend.ptx.cubin import resources_of
from ziggurat.backend.ptx.sass import assembled, disassembled, tool

FLOATS = zg.divisible(zg.ptr(zg.f16))
TEXT = """.visible .entry k()
.reqntid 128, 1, 1
{
$L__BB0_1:
 ld.global.b32 %r1, [%rd1];
 ld.global.b32 %r2, [%rd2];
 @%p1 bra \t$L__BB0_1;
$L__BB0_2:
}
"""
FORWARD = TEXT.replace("bra \t$L__BB0_1", "bra \t$L__BB0_2")
WGMMA = TEXT.replace(" ld.global.b32 %r2", " wgmma.fence.sync.aligned;\n ld.global.b32 %r2")


@zg.kernel
def log_of_sums(x, out, m, n, ROWS: zg.constexpr, COLUMNS: zg.constexpr):
    """The logarithm of the sum of exponentials of each column."""
    column = zg.program_id(0) * COLUMNS + zg.arange(0, COLUMNS)
    most, total = zg.full((ROWS, COLUMNS), -1e30, zg.f32), zg.zeros((ROWS, COLUMNS), zg.f32)
    for start in range(0, m, ROWS):
        row = zg.expand(start + zg.arange(0, ROWS), 1)
        value = zg.cast(zg.load(x + row * n + zg.expand(column, 0), zg.less(row, m), -1e30), zg.f32)
        larger = zg.maximum(most, value)
        total = total * zg.exp(most - larger) + zg.exp(value - larger)
        most = larger
    top = zg.max(most, 0)
    zg.store(out + column, top + zg.log(zg.sum(total * zg.exp(most - zg.expand(top, 0)), 0)))


@pytest.mark.parametrize(("registers", "shared", "bound"), [
    (60, 0, 64),  # Eight CTAs of four warps.
    (64, 0, 64),
    (65, 0, 72),
    (80, 100 * 1024, 255),  # Two CTAs have shared memory.
    (255, 0, 255),
])  # fmt: skip
def test_the_registers_that_the_occupancy_leaves(registers: int, shared: int, bound: int) -> None:
    text = with_bound(TEXT, registers, shared, "sm_90a")
    assert text == TEXT.replace("1, 1\n", f"1, 1\n.maxnreg {bound}\n")


@pytest.mark.parametrize("text", [
    TEXT.replace("1, 1\n", "1, 1\n.maxnreg 80\n"),
    TEXT.replace("1, 1\n", "1, 1\n.minnctapersm 1\n"),
    TEXT.replace("ld.global.b32 %r2", "ld.shared.b32 %r2"),
    "text",
])  # fmt: skip
def test_no_bound(text: str) -> None:
    assert with_bound(text, 60, 0, "sm_90a") is None


@pytest.mark.parametrize(("text", "registers", "shared", "bound"), [
    (FORWARD, 60, 0, None),  # It has the registers of eight CTAs, 64, already.
    (FORWARD, 84, 0, 96),
    (WGMMA, 60, 0, 64),
    (WGMMA, 84, 0, None),
    (WGMMA, 128, 72 * 1024, 128),  # Shared memory for three CTAs does not count.
    (WGMMA, 255, 0, 255),
])  # fmt: skip
def test_the_bound_of_code_without_a_loop_and_with_wgmma(text: str, registers: int, shared: int, bound: int | None):
    expected = None if bound is None else text.replace("1, 1\n", f"1, 1\n.maxnreg {bound}\n")
    assert with_bound(text, registers, shared, "sm_90a") == expected


@pytest.mark.skipif(tool("ptxas") is None, reason="the assembler is not installed")
@pytest.mark.parametrize("bound", ["", "--maxrregcount=40"])
def test_a_cubin_says_its_resources(bound: str) -> None:
    many = log_of_sums.compile(FLOATS, zg.ptr(zg.f32), zg.i32, zg.divisible(zg.i32), 128, 64, target="sm_90a")
    code, resources = assembled(many.ptx.replace(".reqntid", "// "), "sm_90a", [bound] if bound else [])
    assert resources_of(code) == (resources.registers, resources.stack)
    assert (resources.spills > 0) == bool(bound)


@pytest.mark.skipif(tool("ptxas") is None or tool("nvdisasm") is None, reason="the assembler is not installed")
def test_loads_of_an_iteration_begin_together() -> None:
    compiled = log_of_sums.compile(FLOATS, zg.ptr(zg.f32), zg.i32, zg.divisible(zg.i32), 64, 32, target="sm_90a")
    code, bounded = assembled(compiled.ptx, "sm_90a", shared=compiled.shared)
    _, first = assembled(compiled.ptx, "sm_90a")
    assert first.registers <= bounded.registers <= -(-first.registers // 8) * 8 and bounded.spills == 0
    names = re.findall(r"\b(LDG|MUFU|BRA)\b", disassembled(code))
    assert "LDG MUFU LDG MUFU" not in " ".join(names)


def test_the_columns() -> None:
    x, out = np.random.default_rng(0).normal(size=(100, 64)).astype(np.float16), np.zeros(64, np.float32)
    compiled = log_of_sums.compile(FLOATS, zg.ptr(zg.f32), zg.i32, zg.divisible(zg.i32), 64, 32, target="sm_90a")
    compiled.simulate[(2,)](x, out, 100, 64)
    np.testing.assert_allclose(out, np.log(np.exp(x.astype(np.float64)).sum(0)), rtol=1e-5)


@pytest.mark.parametrize(("again", "code"), [((64, 0), (64, 0)), ((64, 88), (60, 0)), (None, (60, 0))])
def test_the_first_code_stays_where_the_second_one_is_refused_or_spills(again, code) -> None:
    """A code stands for its registers and the bytes of its stack."""
    texts: list[str] = []

    def assemble(text: str) -> tuple[int, int] | None:
        texts.append(text)
        return again

    assert bounded((60, 0), assemble, lambda resources: resources, TEXT, 0, "sm_90a") == code
    assert texts == [with_bound(TEXT, 60, 0, "sm_90a")]
    assert bounded((60, 0), assemble, lambda resources: resources, "text", 0, "sm_90a") == (60, 0) and len(texts) == 1


def test_code_that_is_no_cubin_says_nothing() -> None:
    assert resources_of(b"linked") == (0, 0)
