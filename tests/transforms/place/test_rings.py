"""What is missed by the analysis of buffers that are used in turn: waits and arrivals, taken away one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import arith, scf
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.transforms.place.passes import place
from ziggurat.transforms.place.rings import Hazard, behind, in_turn

BLOCKS = [zg.divisible(zg.descriptor(block, zg.f16)) for block in ((128, 64), (16, 64), (128, 16))]


@zg.kernel
def tiles(a_desc, b_desc, c_desc, count, k):
    for tile in range(0, count):
        acc = zg.zeros((128, 16), zg.f32)
        for start in zg.range(0, k, 64, warp_specialize=True):
            acc = zg.dot(a_desc.load((tile * 128, start)), zg.trans(b_desc.load((0, start))), acc)
        c_desc.store((tile * 128, 0), zg.cast(acc, zg.f16))


@zg.kernel
def scaled(a_desc, b_desc, c_desc, k):
    """A product that is complete in its own iteration."""
    acc = zg.zeros((128, 16), zg.f32)
    for start in zg.range(0, k, 64, warp_specialize=True):
        made = zg.dot(a_desc.load((0, start)), zg.trans(b_desc.load((0, start))))
        acc = zg.add(zg.mul(acc, 0.5), made)
    c_desc.store((0, 0), zg.cast(acc, zg.f16))


def late() -> gpu.Module:
    return place(tiles.triton(*BLOCKS, zg.i32, zg.divisible(zg.i32)), CompileOptions("sm_90a", 8, 3))


def prompt() -> gpu.Module:
    return place(scaled.triton(*BLOCKS, zg.divisible(zg.i32)), CompileOptions("sm_90a", 8, 3))


def changed(module: gpu.Module, op: Op, change: Callable[[Rewriter, tuple[Value, ...]], Outcome]) -> list[Hazard]:
    def rewrite(builder: Rewriter, old: Op, operands: tuple[Value, ...]) -> Outcome:
        return change(builder, operands) if old is op else None

    return list(in_turn(transform(module, rewrite)))


def without(module: gpu.Module, kind: type[Op], number: int) -> list[Hazard]:
    op = [op for op in module.walk() if isinstance(op, kind)][number]
    return changed(module, op, lambda _, operands: operands[0] if isinstance(op, gpu.WgmmaWait) else DROP)


def said(found: list[Hazard]) -> set[tuple[str, str, str]]:
    return {(hazard.first.NAME, hazard.second.NAME, hazard.missing) for hazard in found}


READ_EARLY = {("gpu.tma_load", "gpu.wgmma", "wait")}
FETCH_EARLY = {("gpu.wgmma", "gpu.tma_load", "wait")}
NOT_TOLD = {("gpu.wgmma", "gpu.tma_load", "arrival")}


@pytest.mark.parametrize("make", [late, prompt])
def test_nothing_is_missing(make: Callable[[], gpu.Module]) -> None:
    module = make()
    assert any(isinstance(op, gpu.WarpSpecialize) for op in module.walk())
    assert list(in_turn(module)) == []


@pytest.mark.parametrize(
    ("make", "kind", "number", "wanted"),
    [
        (late, gpu.MbarrierWait, 0, READ_EARLY),
        (late, gpu.MbarrierWait, 1, FETCH_EARLY),
        (late, gpu.WgmmaWait, 0, FETCH_EARLY),  # In the loop: the product of the iteration before may go on.
        (late, gpu.WgmmaWait, 1, FETCH_EARLY),  # Behind it.
        (late, gpu.MbarrierArrive, 0, NOT_TOLD),
        (late, gpu.MbarrierArrive, 1, NOT_TOLD),
        (prompt, gpu.MbarrierWait, 0, READ_EARLY),
        (prompt, gpu.MbarrierWait, 1, FETCH_EARLY),
        (prompt, gpu.WgmmaWait, 0, FETCH_EARLY),
        (prompt, gpu.MbarrierArrive, 0, NOT_TOLD),
    ],
)
def test_what_is_missed(
    make: Callable[[], gpu.Module], kind: type[Op], number: int, wanted: set[tuple[str, str, str]]
) -> None:
    assert said(without(make(), kind, number)) == wanted


@pytest.mark.parametrize(("number", "wanted"), [(0, READ_EARLY), (1, FETCH_EARLY)])
def test_a_wait_for_another_turn(number: int, wanted: Any) -> None:
    """It says nothing of this one's buffers."""
    module = late()
    wait = [op for op in module.walk() if isinstance(op, gpu.MbarrierWait)][number]

    def other(builder: Rewriter, operands: tuple[Value, ...]) -> Outcome:
        allocation = [op.result for op in module.walk() if isinstance(op, gpu.LocalAlloc)][2 + number]
        zero = builder.add(arith.ConstantOp(0, zg.i32))
        return builder.add(gpu.MbarrierWait(builder.add(gpu.LocalView(builder[allocation], zero)), operands[1]))

    assert said(changed(module, wait, other)) == wanted


def test_a_product_that_is_kept_under_way_longer() -> None:
    """A wait that leaves the last product under way does for the arrival of its turn, but not of this one's."""
    module = prompt()
    (wait,) = [op for op in module.walk() if isinstance(op, gpu.WgmmaWait)]
    found = changed(module, wait, lambda builder, operands: builder.add(gpu.WgmmaWait(operands[0], 1)))
    assert said(found) == FETCH_EARLY


def test_how_a_hazard_reads() -> None:
    (first, *_) = without(prompt(), gpu.MbarrierArrive, 0)
    assert str(first).startswith("no arrival between <gpu.wgmma") and "and <gpu.tma_load" in str(first)


# Which buffer a copy fills.

RING = """
tt.func @"k" (%p : tensor<x64, x64, ptr<f16>, "1 2 4 8 16 | 32 64 128 256 512 | 1024 2048">, %n : i32)void -> {
    %0 : i32 = arith.constant @0;
    %1 : i32 = arith.constant @1;
    %2 : i32 = arith.constant @2;
    %3 : i32 = arith.constant @3;
    %b : shared<n4, x64, x64, f16, "1 2 4 8 16 32 64 128 256 512 1024 2048"> = gpu.local_alloc @alignment=128;
    %5 : i32 = scf.for %0 %n %1 %0 (%i : i32, %turn : i32)i32 -> {
        %7 : shared<x64, x64, f16, "1 2 4 8 16 32 64 128 256 512 1024 2048"> = gpu.local_view %b %turn;
        %8 : tensor<x64, x64, f16, "1 2 4 8 16 | 32 64 128 256 512 | 1024 2048"> = gpu.local_load %7;
        LINES
        %20 : shared<x64, x64, f16, "1 2 4 8 16 32 64 128 256 512 1024 2048"> = gpu.local_view %b %to;
        gpu.async_copy %p %20 @width=8;
        %21 : i1 = arith.cmpi %turn %3 @eq;
        %22 : i32 = arith.addi %turn %1;
        %23 : i32 = arith.select %21 %0 %22;
        scf.yield %23;
    };
    tt.return;
};
"""


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("%9 : i1 = arith.cmpi %turn %0 @eq; %10 : i32 = arith.subi %turn %1; %to : i32 = arith.select %9 %3 %10;", 1),
        (
            "%9 : i1 = arith.cmpi %turn %2 @slt; %10 : i32 = arith.subi %turn %2; %11 : i32 = arith.addi %turn %2;"
            "%to : i32 = arith.select %9 %11 %10;",
            2,
        ),
        # Not the same for each turn, not to be followed, and the one that is read.
        ("%to : i32 = arith.subi %3 %turn;", None),
        ("%to : i32 = arith.muli %turn %3;", None),
        ("%to : i32 = arith.addi %turn %0;", None),
    ],
)
def test_how_far_behind_the_buffer_was_read_that_is_filled(lines: str, wanted: int | None) -> None:
    module = parse(RING.replace("LINES", lines))
    (loop,) = [op for op in module.walk() if isinstance(op, scf.For)]
    (copy,) = [op for op in module.walk() if isinstance(op, gpu.AsyncCopy)]
    assert behind(copy, loop) == wanted
