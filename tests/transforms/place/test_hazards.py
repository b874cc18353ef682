"""The check of hazards: it reports each op that orders asynchronous ops, if that is removed or changed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.place import passes
from ziggurat.transforms.place.hazards import Hazard, hazards, used_too_early
from ziggurat.transforms.place.passes import place

BLOCKS = [zg.divisible(zg.descriptor(block, zg.f16)) for block in ((128, 64), (16, 64), (128, 16))]
SQUARE = zg.divisible(zg.descriptor((64, 64), zg.f16))
F16, I32 = zg.divisible(zg.ptr(zg.f16)), zg.divisible(zg.i32)


@zg.kernel
def by_pointers(a, b, c, k):
    rows, columns, steps = zg.expand(zg.arange(0, 64), 1), zg.expand(zg.arange(0, 64), 0), zg.arange(0, 32)
    a_at = zg.add(a, zg.add(zg.mul(rows, k), zg.expand(steps, 0)))
    b_at = zg.add(b, zg.add(zg.mul(zg.expand(steps, 1), 64), columns))
    total = zg.zeros((64, 64), zg.f32)
    for _ in range(0, k, 32):
        total = zg.dot(zg.load(a_at), zg.load(b_at), total)
        a_at, b_at = zg.add(a_at, 32), zg.add(b_at, 32 * 64)
    zg.store(zg.add(c, zg.add(zg.mul(columns, 64), rows)), zg.cast(total, zg.f16))


@zg.kernel
def by_descriptors(a, b, c, k):
    total = zg.zeros((64, 64), zg.f32)
    for at in range(0, k, 64):
        total = zg.dot(a.load((0, at)), b.load((at, 0)), total)
    c.store((0, 0), zg.cast(total, zg.f16))


@zg.kernel
def attention(q, k_desc, v_desc, c, n):
    """The second dot reads the result of the first."""
    first = q.load((0, 0))
    total = zg.zeros((64, 64), zg.f32)
    for at in range(0, n, 64):
        scores = zg.dot(first, zg.trans(k_desc.load((at, 0))))
        total = zg.dot(zg.cast(scores, zg.f16), v_desc.load((at, 0)), total)
    c.store((0, 0), zg.cast(total, zg.f16))


@zg.kernel
def tiles(a_desc, b_desc, c_desc, count, k):
    """Roles, and a wgmma that is in flight across iterations."""
    for tile in range(0, count):
        acc = zg.zeros((128, 16), zg.f32)
        for start in zg.range(0, k, 64, warp_specialize=True):
            acc = zg.dot(a_desc.load((tile * 128, start)), zg.trans(b_desc.load((0, start))), acc)
        c_desc.store((tile * 128, 0), zg.cast(acc, zg.f16))


@zg.kernel
def scaled(a_desc, b_desc, c_desc, k):
    """Roles, and a wgmma that is complete in its own iteration."""
    acc = zg.zeros((128, 16), zg.f32)
    for start in zg.range(0, k, 64, warp_specialize=True):
        made = zg.dot(a_desc.load((0, start)), zg.trans(b_desc.load((0, start))))
        acc = zg.add(zg.mul(acc, 0.5), made)
    c_desc.store((0, 0), zg.cast(acc, zg.f16))


@zg.kernel
def by_made_maps(a_ptr, b_ptr, c_ptr, count, n, k):
    """Tensor maps that are made anew in each iteration of a loop."""
    for tile in range(0, count):
        a = zg.make_tensor_descriptor(a_ptr + tile * 64 * k, (64, k), (k, 1), (64, 64))
        b = zg.make_tensor_descriptor(b_ptr + tile * n * k, (n, k), (k, 1), (64, 64))
        c = zg.make_tensor_descriptor(c_ptr + tile * 64 * n, (64, n), (n, 1), (64, 64))
        for column in range(0, n, 64):
            total = zg.zeros((64, 64), zg.f32)
            for at in range(0, k, 64):
                total = zg.dot(a.load((0, at)), zg.trans(b.load((column, at))), total)
            c.store((0, column), zg.cast(total, zg.f16))


# Kernel, types, target, warps.
KERNELS: dict[str, tuple[Any, list[Any], str, int]] = {
    "pointers, wgmma": (by_pointers, [F16, F16, F16, I32], "sm_90a", 4),
    "pointers, mma": (by_pointers, [F16, F16, F16, I32], "sm_80", 4),
    "descriptors": (by_descriptors, [SQUARE, SQUARE, SQUARE, I32], "sm_90a", 4),
    "attention": (attention, [SQUARE, SQUARE, SQUARE, SQUARE, I32], "sm_90a", 4),
    "tiles": (tiles, [*BLOCKS, zg.i32, I32], "sm_90a", 8),
    "scaled": (scaled, [*BLOCKS, I32], "sm_90a", 8),
    "made maps": (by_made_maps, [F16, F16, F16, zg.i32, I32, I32], "sm_90a", 4),
}
ORDERING = (
    gpu.AsyncCommit, gpu.AsyncWait, gpu.MbarrierInit, gpu.MbarrierExpect, gpu.MbarrierWait, gpu.MbarrierArrive,
    gpu.TmaLoad, gpu.TmaStoreWait, gpu.WgmmaWait, gpu.Barrier, gpu.FenceAsync,
)  # fmt: skip


@cache
def placed(name: str, stages: int) -> gpu.Module:
    kernel, types, target, num_warps = KERNELS[name]
    return place(kernel.triton(*types), CompileOptions(target, num_warps, stages))


def said_before(op: Op) -> bool:
    """Whether a wait only names the result of a wgmma, because the wait before it was for all wgmma."""
    assert op.parent is not None
    ops = op.parent.ops
    before = [other for other in ops[: ops.index(op)] if isinstance(other, gpu.Wgmma | gpu.WgmmaWait)]
    last = before[-1] if before else None
    return isinstance(op, gpu.WgmmaWait) and isinstance(last, gpu.WgmmaWait) and not last.pending


def replaced(module: gpu.Module, op: Op, change: Callable[[Rewriter, tuple[Value, ...]], Outcome]) -> Op:
    return transform(module, lambda builder, old, operands: change(builder, operands) if old is op else None)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("name", KERNELS)
def test_every_op_that_orders_others_is_needed(name: str, stages: int) -> None:
    module = placed(name, stages)
    assert hazards(module) == []
    ordering = [op for op in module.walk() if isinstance(op, ORDERING) and not said_before(op)]
    assert len(ordering) > 5
    for op in ordering:
        without = replaced(module, op, lambda _, operands, op=op: without_op(op, operands))
        assert hazards(without), f"{op!r} is not missed"


def without_op(op: Op, operands: tuple[Value, ...]) -> Outcome:
    return operands[0] if isinstance(op, gpu.WgmmaWait) else DROP


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("name", KERNELS)
def test_a_wait_for_too_few_groups(name: str, stages: int) -> None:
    module = placed(name, stages)
    for op in module.walk():
        if isinstance(op, gpu.AsyncWait | gpu.WgmmaWait) and not said_before(op):

            def laxer(builder: Rewriter, operands: tuple[Value, ...], op: Any = op) -> Outcome:
                return builder.add(type(op)(*operands, pending=op.pending + 1))

            assert list(used_too_early(replaced(module, op, laxer))), f"{op!r} waits for too many"


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("name", ["descriptors", "attention", "tiles", "scaled"])
def test_mbarriers_expect_the_bytes_that_come(name: str, stages: int) -> None:
    module = placed(name, stages)
    expects = [op for op in module.walk() if isinstance(op, gpu.MbarrierExpect)]
    assert expects
    for op in expects:
        for count in (0, op.bytes - 16, op.bytes + 16, 2 * op.bytes):

            def other(builder: Rewriter, operands: tuple[Value, ...], op: Any = op, count: int = count) -> Outcome:
                return builder.add(gpu.MbarrierExpect(*operands, bytes=count))

            found = hazards(replaced(module, op, other))
            assert {hazard.missing for hazard in found} == {"match of bytes"}


@pytest.mark.parametrize("name", ["descriptors", "attention", "tiles", "scaled"])
def test_mbarriers_count_the_arrivals_that_come(name: str) -> None:
    module = placed(name, 3)
    for op in module.walk():
        if isinstance(op, gpu.MbarrierInit):
            more = replaced(
                module, op, lambda builder, v, op=op: builder.add(gpu.MbarrierInit(*v, arrivals=op.arrivals + 1))
            )
            assert {hazard.missing for hazard in hazards(more)} == {"initialisation"}


@pytest.mark.parametrize("name", KERNELS)
def test_ops_use_the_slot_of_their_iteration(name: str) -> None:
    """Each view of a slot in a loop becomes one of slot 0."""
    module = placed(name, 3)
    views = [op for op in module.walk() if isinstance(op, gpu.LocalView)]
    loops = [op for op in views if op.parent_op is not None and op.parent_op.NAME == "scf.for"]
    for op in loops:

        def first(builder: Rewriter, operands: tuple[Value, ...]) -> Outcome:
            return builder.add(gpu.LocalView(operands[0], builder.add(arith.ConstantOp(0, zg.i32))))

        assert hazards(replaced(module, op, first)), f"{op!r} may be of slot 0"


@pytest.mark.parametrize("name", ["descriptors", "attention", "tiles", "scaled"])
def test_waits_are_for_the_phase_of_their_iteration(name: str) -> None:
    module = placed(name, 3)
    for op in module.walk():
        if isinstance(op, gpu.MbarrierWait):

            def other(builder: Rewriter, operands: tuple[Value, ...]) -> Outcome:
                one = builder.add(arith.ConstantOp(1, zg.i32))
                return builder.add(gpu.MbarrierWait(operands[0], builder.add(arith.XOrI(operands[1], one))))

            assert "phase" in {hazard.missing for hazard in hazards(replaced(module, op, other))}


# Roles: the hazards in words.


def changed(module: gpu.Module, op: Op, change: Callable[[Rewriter, tuple[Value, ...]], Outcome]) -> list[Hazard]:
    def rewrite(builder: Rewriter, old: Op, operands: tuple[Value, ...]) -> Outcome:
        return change(builder, operands) if old is op else None

    return hazards(transform(module, rewrite))


def without(module: gpu.Module, kind: type[Op], number: int) -> list[Hazard]:
    op = [op for op in module.walk() if isinstance(op, kind)][number]
    return changed(module, op, lambda _, operands: without_op(op, operands))


def said(found: list[Hazard]) -> set[tuple[str, str, str]]:
    return {(hazard.first.NAME, hazard.second.NAME, hazard.missing) for hazard in found}


READ_EARLY = {("gpu.tma_load", "gpu.wgmma", "wait")}
FETCH_EARLY = {("gpu.wgmma", "gpu.tma_load", "wait")}
NOT_TOLD = {("gpu.wgmma", "gpu.tma_load", "arrival")}


@pytest.mark.parametrize(
    ("name", "kind", "number", "wanted"),
    [
        ("tiles", gpu.MbarrierWait, 0, READ_EARLY),
        ("tiles", gpu.MbarrierWait, 1, FETCH_EARLY),
        ("tiles", gpu.WgmmaWait, 0, FETCH_EARLY),  # In the loop: the wgmma of the iteration before may be in flight.
        ("tiles", gpu.WgmmaWait, 1, FETCH_EARLY),  # After the loop.
        ("tiles", gpu.MbarrierArrive, 0, NOT_TOLD),
        ("tiles", gpu.MbarrierArrive, 1, NOT_TOLD),
        ("scaled", gpu.MbarrierWait, 0, READ_EARLY),
        ("scaled", gpu.MbarrierWait, 1, FETCH_EARLY),
        ("scaled", gpu.WgmmaWait, 0, FETCH_EARLY),
        ("scaled", gpu.MbarrierArrive, 0, NOT_TOLD),
    ],
)
def test_which_hazards_are_reported(name: str, kind: type[Op], number: int, wanted: set[tuple[str, str, str]]) -> None:
    assert said(without(placed(name, 3), kind, number)) >= wanted


@pytest.mark.parametrize(("number", "wanted"), [(0, READ_EARLY), (1, FETCH_EARLY)])
def test_a_wait_for_another_slot(number: int, wanted: Any) -> None:
    """A wait for another slot does not cover the slot that is used."""
    module = placed("tiles", 3)
    wait = [op for op in module.walk() if isinstance(op, gpu.MbarrierWait)][number]

    def other(builder: Rewriter, operands: tuple[Value, ...]) -> Outcome:
        allocation = [op.result for op in module.walk() if isinstance(op, gpu.LocalAlloc)][2 + number]
        zero = builder.add(arith.ConstantOp(0, zg.i32))
        return builder.add(gpu.MbarrierWait(builder.add(gpu.LocalView(builder[allocation], zero)), operands[1]))

    assert said(changed(module, wait, other)) >= wanted


def test_a_wgmma_that_stays_in_flight_too_long() -> None:
    """A wait that leaves the last wgmma in flight does not cover the slot that this wgmma reads."""
    module = placed("scaled", 3)
    (wait,) = [op for op in module.walk() if isinstance(op, gpu.WgmmaWait)]
    found = changed(module, wait, lambda builder, operands: builder.add(gpu.WgmmaWait(operands[0], 1)))
    assert said(found) >= FETCH_EARLY


def test_how_a_hazard_reads() -> None:
    (first, *_) = without(placed("scaled", 3), gpu.MbarrierArrive, 0)
    assert str(first).startswith("no arrival between <gpu.wgmma") and "and <gpu.tma_load" in str(first)


# Tensor maps that the kernel makes.


def map_of(op: Op) -> int | None:
    made = op.descriptor.op if isinstance(op, gpu.TmaLoad | gpu.TmaStore) else None
    return made.index if isinstance(made, gpu.MakeTensorMap) else None


@pytest.mark.parametrize(
    ("kinds", "reader"),
    [((gpu.MbarrierWait, gpu.MbarrierInval), gpu.TmaLoad), ((gpu.TmaStoreWait,), gpu.TmaStore)],
)
def test_a_map_is_made_anew_after_the_copies_by_the_one_before(kinds: tuple[type[Op], ...], reader: type[Op]) -> None:
    """Invalidating an mbarrier counts as a wait for its loads."""
    module = placed("made maps", 3)
    found = hazards(transform(module, lambda _, op, __: DROP if isinstance(op, kinds) else None))
    early = [one for one in found if isinstance(one.second, gpu.MakeTensorMap) and one.missing == "wait"]
    pairs = {(map_of(one.first), one.second.index) for one in early}
    used = {map_of(op) for op in module.walk() if isinstance(op, reader)}
    assert pairs == {(number, number) for number in used} and used


def before(op: Op) -> Op:
    """The op before this one in its block."""
    assert op.parent is not None
    return op.parent.ops[op.parent.ops.index(op) - 1]


def test_maps_are_acquired_before_their_use() -> None:
    module = placed("made maps", 3)
    found = hazards(transform(module, lambda _, op, __: DROP if isinstance(op, gpu.AcquireTensorMaps) else None))
    assert {one.missing for one in found} == {"acquire"}
    assert {map_of(one.second) for one in found} == {0, 1, 2}


def test_barriers_around_maps_of_several_warps() -> None:
    """Maps 1 and 2 are those of other warps than that of the elected thread."""
    module = placed("made maps", 3)
    (acquire,) = (op for op in module.walk() if isinstance(op, gpu.AcquireTensorMaps))
    first = next(op for op in module.walk() if isinstance(op, gpu.MakeTensorMap))
    for barrier, numbers in ((before(acquire), {1, 2}), (before(first), {1, 2})):
        assert isinstance(barrier, gpu.Barrier)
        found = hazards(transform(module, lambda _, op, __, barrier=barrier: DROP if op is barrier else None))
        assert {one.missing for one in found} == {"barrier"}
        made = [one.first if isinstance(one.first, gpu.MakeTensorMap) else one.second for one in found]
        assert {op.index for op in made if isinstance(op, gpu.MakeTensorMap)} <= numbers and made


def test_each_map_has_memory_of_its_own() -> None:
    module = placed("made maps", 3)
    makes = [op for op in module.walk() if isinstance(op, gpu.MakeTensorMap)]
    assert [op.index for op in makes] == [0, 1, 2] and module.scratch == 3 * 128
    for index in (0, 3):

        def moved(builder: Rewriter, operands: tuple[Value, ...], index: int = index) -> Outcome:
            attributes = {**makes[1].attributes, "index": index}
            return builder.add(gpu.MakeTensorMap.SPEC.make(operands, (), attributes, (), makes[1].result.type))

        assert {one.missing for one in hazards(replaced(module, makes[1], moved))} == {"memory for a tensor map"}


# Rings of copies.

RING = """gpu.module @target="sm_80" @num_warps=4 ()void -> {
tt.func @"k" (%p : tensor<x64, x64, ptr<f16>, "1 2 4 8 16 | 32 64 128 256 512 | 1024 2048">, %n : i32)void -> {
    %0 : i32 = arith.constant @0;
    %1 : i32 = arith.constant @1;
    %2 : i32 = arith.constant @2;
    %3 : i32 = arith.constant @3;
    %b : shared<n4, x64, x64, f16, "1 2 4 8 16 32 64 128 256 512 1024 2048"> = gpu.local_alloc @offset=0;
    %5 : i32 = scf.for %0 %n %1 %0 (%i : i32, %slot : i32)i32 -> {
        gpu.async_wait @PENDING;
        gpu.barrier;
        %7 : shared<x64, x64, f16, "1 2 4 8 16 32 64 128 256 512 1024 2048"> = gpu.local_view %b %slot;
        %8 : tensor<x64, x64, f16, "1 2 4 8 16 | 32 64 128 256 512 | 1024 2048"> = gpu.local_load %7;
        gpu.barrier;
        LINES
        %20 : shared<x64, x64, f16, "1 2 4 8 16 32 64 128 256 512 1024 2048"> = gpu.local_view %b %to;
        gpu.async_copy %p %20 @width=8;
        gpu.async_commit;
        %21 : i1 = arith.cmpi %slot %3 @eq;
        %22 : i32 = arith.addi %slot %1;
        %23 : i32 = arith.select %21 %0 %22;
        scf.yield %23;
    };
    tt.return;
};
unreachable; };
"""


@pytest.mark.parametrize(
    ("lines", "most"),
    [
        ("%9 : i1 = arith.cmpi %slot %0 @eq; %10 : i32 = arith.subi %slot %1; %to : i32 = arith.select %9 %3 %10;", 2),
        (
            "%9 : i1 = arith.cmpi %slot %2 @slt; %10 : i32 = arith.subi %slot %2; %11 : i32 = arith.addi %slot %2;"
            "%to : i32 = arith.select %9 %11 %10;",
            1,
        ),
        # The slot that was read, and an unknown one.
        ("%to : i32 = arith.addi %slot %0;", 3),
        ("%to : i32 = arith.remsi %slot %n;", 0),
    ],
)
def test_a_wait_leaves_as_many_groups_as_the_slot_allows(lines: str, most: int) -> None:
    for pending in range(5):
        module = parse(RING.replace("LINES", lines).replace("PENDING", str(pending)))
        assert bool(hazards(module)) == (pending > most)


def test_the_option_verify_checks_for_hazards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the pass that inserts barriers, the model is refused with the option, and passes without it."""
    monkeypatch.setattr(passes, "PLACE", tuple(step for step in passes.PLACE if step[0] != "barriers"))
    model = by_pointers.triton(F16, F16, F16, I32)
    with pytest.raises(InternalError, match="no barrier between <gpu"):
        place(model, CompileOptions("sm_90a", verify=True))
    assert hazards(place(model, CompileOptions("sm_90a")))


# Accumulators, and loops in loops.

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
