"""Asynchronous ops are waited for in placed kernels; the check reports each wait that is removed."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import ziggurat as zg
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.place.hazards import hazards
from ziggurat.transforms.place.in_flight import used_too_early
from ziggurat.transforms.place.passes import place

F16, I32 = zg.divisible(zg.ptr(zg.f16)), zg.divisible(zg.i32)
BLOCK = zg.divisible(zg.descriptor((64, 64), zg.f16))
WAITS = (gpu.AsyncWait, gpu.WgmmaWait, gpu.TmaStoreWait, gpu.MbarrierWait, gpu.Barrier)


@zg.kernel
def by_pointers(a, b, c, k, K: zg.constexpr):
    rows, columns, steps = zg.expand(zg.arange(0, 64), 1), zg.expand(zg.arange(0, 64), 0), zg.arange(0, K)
    a_at = zg.add(a, zg.add(zg.mul(rows, k), zg.expand(steps, 0)))
    b_at = zg.add(b, zg.add(zg.mul(zg.expand(steps, 1), 64), columns))
    total = zg.zeros((64, 64), zg.f32)
    for _ in range(0, k, K):
        total = zg.dot(zg.load(a_at), zg.load(b_at), total)
        a_at, b_at = zg.add(a_at, K), zg.add(b_at, K * 64)
    # The store goes through shared memory that the copies have used.
    zg.store(zg.add(c, zg.add(zg.mul(columns, 64), rows)), zg.cast(total, zg.f16))


@zg.kernel
def by_tma(a, b, c, k):
    total = zg.zeros((64, 64), zg.f32)
    for at in range(0, k, 64):
        total = zg.dot(a.load((0, at)), b.load((at, 0)), total)
    c.store((0, 0), zg.cast(total, zg.f16))


@zg.kernel
def two_dots(q, k_desc, v_desc, c, n):
    """A loop like attention's: the second dot reads the result of the first."""
    first = q.load((0, 0))
    total = zg.zeros((64, 64), zg.f32)
    for at in range(0, n, 64):
        scores = zg.dot(first, zg.trans(k_desc.load((at, 0))))
        total = zg.dot(zg.cast(scores, zg.f16), v_desc.load((at, 0)), total)
    c.store((0, 0), zg.cast(total, zg.f16))


KERNELS: dict[str, tuple[Any, list[Any], str]] = {
    "wgmma by pointers": (by_pointers, [F16, F16, F16, I32, 32], "sm_90a"),
    "mma by pointers": (by_pointers, [F16, F16, F16, I32, 32], "sm_80"),
    "TMA": (by_tma, [BLOCK, BLOCK, BLOCK, I32], "sm_90a"),
    "two dots": (two_dots, [BLOCK, BLOCK, BLOCK, BLOCK, I32], "sm_90a"),
}


@cache
def placed(name: str, stages: int) -> gpu.Module:
    kernel, types, target = KERNELS[name]
    module = place(kernel.triton(*types), CompileOptions(target, 4, stages))
    verify(module)
    return module


def without(module: Op, gone: Op) -> Op:
    def changed(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op.result is not gone.result:
            return None
        return operands[0] if isinstance(op, gpu.WgmmaWait) else DROP

    return transform(module, changed)


def laxer(module: Op, which: Op) -> Op:
    """The module with one more group in flight after a wait."""

    def changed(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op.result is not which.result:
            return None
        if isinstance(op, gpu.AsyncWait):
            return builder.add(gpu.AsyncWait(op.pending + 1))
        assert isinstance(op, gpu.WgmmaWait)
        return builder.add(gpu.WgmmaWait(operands[0], op.pending + 1))

    return transform(module, changed)


def said_before(op: Op) -> bool:
    """Whether a wait only names the result of a wgmma, because the wait before it was for all wgmma."""
    assert op.parent is not None
    ops = op.parent.ops
    before = [other for other in ops[: ops.index(op)] if isinstance(other, gpu.Wgmma | gpu.WgmmaWait)]
    last = before[-1] if before else None
    return isinstance(op, gpu.WgmmaWait) and isinstance(last, gpu.WgmmaWait) and not last.pending


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("name", KERNELS)
def test_no_wait_is_missing_and_each_is_needed(name: str, stages: int) -> None:
    module = placed(name, stages)
    assert hazards(module) == []
    waits = [op for op in module.walk() if isinstance(op, WAITS) and not said_before(op)]
    assert any(isinstance(op, gpu.AsyncWait | gpu.WgmmaWait) for op in waits)
    for op in waits:
        assert hazards(without(module, op)), f"{op!r} is not needed:\n{module}"


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("name", KERNELS)
def test_a_wait_for_too_few(name: str, stages: int) -> None:
    module = placed(name, stages)
    for op in module.walk():
        if isinstance(op, gpu.AsyncWait | gpu.WgmmaWait) and not said_before(op):
            assert list(used_too_early(laxer(module, op))), f"{op!r} waits for too many:\n{module}"


ACCUMULATOR = '"1 512 8 16 32 | 2 4 64 128 256 | 1024 2048"'
FACTOR = 'shared<x64, x64, f16, "1 2 4 8 16 32 72 144 288 512 1024 2048">'


@pytest.mark.parametrize(
    ("lines", "missing"),
    [
        ("%e : TT = gpu.wgmma_wait %d @0; %f : TT = arith.addf %e %e;", 0),
        ("%f : TT = arith.addf %d %d;", 1),
        ("%e : TT = gpu.wgmma_wait %d @1; %f : TT = arith.addf %e %e;", 1),
        # Another wgmma may take the accumulator.
        ("%e : TT = gpu.wgmma %a %a %d; %f : TT = gpu.wgmma_wait %e @0;", 0),
        # Through control flow.
        (
            "%e : TT = scf.if %c ()TT -> { scf.yield %d; } ()TT -> { scf.yield %z; }; %f : TT = arith.addf %e %e;",
            1,
        ),
        (
            "%e : TT = scf.if %c ()TT -> { scf.yield %d; } ()TT -> { scf.yield %z; }; %f : TT = gpu.wgmma_wait %e @0;",
            0,
        ),
        (
            "%e : TT = scf.for %n %n %n %d (%i : i32, %s : TT)TT -> { scf.yield %s; }; %f : TT = arith.addf %e %e;",
            1,
        ),
        (
            "%e : TT = scf.for %n %n %n %z (%i : i32, %s : TT)TT -> { %f : TT = arith.addf %s %s; scf.yield %d; };",
            1,
        ),
    ],
)
def test_accumulators_in_flight(lines: str, missing: int) -> None:
    text = f"""gpu.module @target="sm_90a" @num_warps=4 ()void -> {{
        tt.func @"k" (%c : i1, %n : i32)void -> {{
            %a : {FACTOR} = gpu.local_alloc @offset=0 @alignment=1024;
            %z : TT = arith.constant @0.0;
            %d : TT = gpu.wgmma %a %a %z;
            {lines}
            tt.return;
        }}; unreachable; }};"""
    module = parse(text.replace("TT", f"tensor<x64, x64, f32, {ACCUMULATOR}>"))
    verify(module)
    found = [hazard.missing for hazard in used_too_early(module)]
    assert found == ["wait"] * len(found) and bool(found) == bool(missing)


@zg.kernel
def tile_by_tile(a, b, c, k, tiles):
    rows, columns, steps = zg.expand(zg.arange(0, 64), 1), zg.expand(zg.arange(0, 64), 0), zg.arange(0, 32)
    total = zg.zeros((64, 64), zg.f32)
    for _ in range(0, tiles):
        a_at = zg.add(a, zg.add(zg.mul(rows, k), zg.expand(steps, 0)))
        b_at = zg.add(b, zg.add(zg.mul(zg.expand(steps, 1), 64), columns))
        for _ in range(0, k, 32):
            total = zg.dot(zg.load(a_at), zg.load(b_at), total)
            a_at, b_at = zg.add(a_at, 32), zg.add(b_at, 32 * 64)
    zg.store(zg.add(c, zg.add(zg.mul(columns, 64), rows)), zg.cast(total, zg.f16))


def last_copies(op: Op) -> bool:
    return isinstance(op, gpu.AsyncWait) and not op.pending


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_loop_in_a_loop_waits_for_its_own_copies(target: str) -> None:
    """Nothing is in flight after the outer loop, so the store need not wait; without the inner wait, it must."""
    model = tile_by_tile.triton(F16, F16, F16, I32, zg.i32)
    placed = place(model, CompileOptions(target, 4, 3))
    assert any(last_copies(op) for op in placed.walk()) and list(used_too_early(placed)) == []

    def without(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        return DROP if last_copies(op) else None

    assert "wait" in {hazard.missing for hazard in used_too_early(transform(placed, without))}
