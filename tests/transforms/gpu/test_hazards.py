"""The check of hazards: it reports each op that orders asynchronous ops, if that is removed or changed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from asynchronous_kernels import F16, I32, KERNELS, by_pointers
from pass_cases import CASES

import ziggurat as zg
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.analysis.memory_flow import allocation, interval
from ziggurat.transforms.analysis.queries import constant_of
from ziggurat.transforms.gpu import gpu_passes
from ziggurat.transforms.gpu.gpu_passes import place
from ziggurat.transforms.gpu.hazards import hazards
from ziggurat.transforms.gpu.in_flight import used_too_early

# The ops that order others, without those that `lower_channels` derives from a proof (test_channels.py).
ORDERING = (gpu.TmaStoreWait, gpu.Barrier, gpu.FenceAsync)


@cache
def placed(name: str, stages: int) -> gpu.Module:
    kernel, types, target, num_warps = KERNELS[name]
    return place(kernel.triton(*types), CompileOptions(target, num_warps, stages))


def replaced(module: gpu.Module, op: Op, change: Callable[[Rewriter, tuple[Value, ...]], Outcome]) -> Op:
    return transform(module, lambda builder, old, operands: change(builder, operands) if old is op else None)


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("name", KERNELS)
def test_every_op_that_orders_others_is_needed(name: str, stages: int) -> None:
    module = placed(name, stages)
    assert hazards(module) == []
    ordering = [op for op in module.walk() if isinstance(op, ORDERING)]
    assert ordering
    # In two stages, the loop's barrier for a turned operand also comes after the last wait for an mbarrier. That for
    # operands of mma.sync comes between the initialisation of the mbarriers and the first wait as well.
    superfluous = name == "descriptors, mma" or (name.endswith("turned") and stages == 2)
    missed = [bool(hazards(replaced(module, op, lambda _, operands: DROP))) for op in ordering]
    assert missed.count(False) <= superfluous, [op for op, actual in zip(ordering, missed, strict=True) if not actual]


SYNCHRONISING = (
    gpu.Barrier, gpu.FenceAsync, gpu.AsyncCommit, gpu.AsyncWait, gpu.TmaStoreWait, gpu.WgmmaWait, gpu.MbarrierInit,
    gpu.MbarrierInval, gpu.MbarrierExpect, gpu.MbarrierArrive, gpu.MbarrierWait, gpu.ClusterArrive, gpu.ClusterWait,
)  # fmt: skip


def harmless(op: Op) -> str | None:
    """The reason why a model without this op orders as much as the model with it."""
    assert op.parent is not None
    ops = op.parent.ops
    at = ops.index(op)
    if isinstance(op, gpu.WgmmaWait):
        before = ops[at - 1]
        accumulates = all(isinstance(user, gpu.Wgmma) and user.c is op.result for user in op.result.uses)
        if isinstance(before, gpu.WgmmaWait) and before.pending <= op.pending and accumulates:
            return "the wait before it is for as many groups"
    if isinstance(op, gpu.MbarrierInval):
        start, end = interval(op.buffer)
        others = [other.result for other in op.root().walk() if isinstance(other, gpu.LocalAlloc)]
        others = [interval(other) for other in others if other is not allocation(op.buffer)]
        in_loop = any(isinstance(outer, Loop) for outer in op.path())
        if not in_loop and not any(start < last and first < end for first, last in others):
            return "nothing else uses the memory of the mbarriers"
    return None


# The kernel, and the ops whose removal is harmless.
COMPLETE: dict[str, dict[str, int]] = {
    "grouped matmul, sm_80": {},
    "in flight: pointers, mma": {},
    "in flight: pointers, wgmma": {},
    "attention, roles": {"gpu.mbarrier_inval": 1},
    "softmax by blocks, sm_80": {},
    "gathered products, sm_90a": {},
    "grouped descriptors, roles": {},
    "in flight: attention": {"gpu.wgmma_wait": 1},
    "multicast": {},
    "clusters: centred": {},
}


@pytest.mark.filterwarnings("ignore::ziggurat.ZigguratWarning")
@pytest.mark.parametrize("name", COMPLETE)
def test_each_synchronising_op_is_missed(name: str) -> None:
    case = CASES[name]()
    module = place(case.model, case.options)
    assert hazards(module) == []
    without: dict[str, int] = {}
    for op in (op for op in module.walk() if isinstance(op, SYNCHRONISING)):
        keep = [op.value] if isinstance(op, gpu.WgmmaWait) else []
        changed = replaced(module, op, lambda _, operands, keep=keep: operands[0] if keep else DROP)
        if not hazards(changed):
            assert harmless(op), op
            without[op.NAME] = without.get(op.NAME, 0) + 1
    assert without == COMPLETE[name]


def test_roles_have_memory_of_their_own() -> None:
    """A block on its way out may not lie in a ring, which another role fills for the next tile."""
    case = CASES["multicast of four"]()
    module = place(case.model, case.options)
    (stored,) = (allocation(op.buffer) for op in module.walk() if isinstance(op, gpu.TmaStore))
    moved = transform(
        module,
        lambda builder, op, _: (
            builder.add(gpu.LocalAlloc(op.type, offset=0, alignment=op.alignment)) if op is stored.op else None
        ),
    )
    assert "memory of its own" in {hazard.missing for hazard in hazards(moved)}


def test_memory_that_other_ctas_write_is_no_other_tensors() -> None:
    case = CASES["clusters: largest"]()
    module = place(case.model, case.options)
    written = {allocation(op.buffer) for op in module.walk() if isinstance(op, gpu.ClusterStore)}
    first = next(iter(written))
    moved = transform(
        module,
        lambda builder, op, _: (
            builder.add(gpu.LocalAlloc(op.type, offset=interval(first)[0], alignment=op.alignment))
            if isinstance(op, gpu.LocalAlloc) and op.result not in written
            else None
        ),
    )
    assert "memory of its own" in {hazard.missing for hazard in hazards(moved)}


def test_a_slot_is_one_of_its_ring() -> None:
    """Here the slot after the last one is not the first."""
    module = placed("pointers, mma", 3)
    last = [op for op in module.walk() if isinstance(op, arith.CmpI) and constant_of(op.rhs) == 2]
    assert last
    changed = transform(
        module,
        lambda builder, op, operands: (
            builder.add(arith.CmpI(operands[0], builder.add(arith.ConstantOp(3, operands[1].type)), op.predicate))
            if op in last
            else None
        ),
    )
    assert "slot with the number 3" in {hazard.missing for hazard in hazards(changed)}


# Tensor maps that the kernel makes.


def map_of(op: Op) -> int | None:
    result = op.descriptor.op if isinstance(op, gpu.TmaLoad | gpu.TmaStore) else None
    return result.index if isinstance(result, gpu.MakeTensorMap) else None


@pytest.mark.parametrize(
    ("kinds", "reader"),
    [((gpu.MbarrierWait, gpu.MbarrierInval), gpu.TmaLoad), ((gpu.TmaStoreWait,), gpu.TmaStore)],
)
def test_a_map_is_made_anew_after_the_copies_by_the_one_before(kinds: tuple[type[Op], ...], reader: type[Op]) -> None:
    """Invalidating an mbarrier counts as a wait for its loads."""
    module = placed("made maps", 3)
    problems = hazards(transform(module, lambda _, op, __: DROP if isinstance(op, kinds) else None))
    early = [item for item in problems if isinstance(item.second, gpu.MakeTensorMap) and item.missing == "wait"]
    pairs = {(map_of(item.first), item.second.index) for item in early}
    uses = {map_of(op) for op in module.walk() if isinstance(op, reader)}
    assert pairs == {(number, number) for number in uses} and uses


def before(op: Op) -> Op:
    """The op before this one in its block."""
    assert op.parent is not None
    return op.parent.ops[op.parent.ops.index(op) - 1]


def test_maps_are_acquired_before_their_use() -> None:
    module = placed("made maps", 3)
    problems = hazards(transform(module, lambda _, op, __: DROP if isinstance(op, gpu.AcquireTensorMaps) else None))
    assert {item.missing for item in problems} == {"acquire"}
    assert {map_of(item.second) for item in problems} == {0, 1, 2}


def test_barriers_around_maps_of_several_warps() -> None:
    """Maps 1 and 2 are those of other warps than that of the elected thread."""
    module = placed("made maps", 3)
    (acquire,) = (op for op in module.walk() if isinstance(op, gpu.AcquireTensorMaps))
    first = next(op for op in module.walk() if isinstance(op, gpu.MakeTensorMap))
    for barrier, numbers in ((before(acquire), {1, 2}), (before(first), {1, 2})):
        assert isinstance(barrier, gpu.Barrier)
        problems = hazards(transform(module, lambda _, op, __, barrier=barrier: DROP if op is barrier else None))
        assert {item.missing for item in problems} == {"barrier"}
        results = [item.first if isinstance(item.first, gpu.MakeTensorMap) else item.second for item in problems]
        assert {op.index for op in results if isinstance(op, gpu.MakeTensorMap)} <= numbers and results


def test_each_map_has_memory_of_its_own() -> None:
    module = placed("made maps", 3)
    makes = [op for op in module.walk() if isinstance(op, gpu.MakeTensorMap)]
    assert [op.index for op in makes] == [0, 1, 2] and module.scratch == 3 * 128
    for index in (0, 3):

        def moved(builder: Rewriter, operands: tuple[Value, ...], index: int = index) -> Outcome:
            attributes = {**makes[1].attributes, "index": index}
            return builder.add(gpu.MakeTensorMap.SPEC.make(operands, (), attributes, (), makes[1].result.type))

        assert {item.missing for item in hazards(replaced(module, makes[1], moved))} == {"memory for a tensor map"}


def test_the_option_verify_checks_for_hazards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the pass that inserts barriers, the model is refused with the option, and passes without it."""
    monkeypatch.setattr(gpu_passes, "PHASES", gpu_passes.replaced("barriers"))
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
    results = [hazard.missing for hazard in used_too_early(module)]
    assert results == ["wait"] * len(results) and bool(results) == bool(missing)


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
    module = place(model, CompileOptions(target, 4, 3, raise_pointers=False))
    assert any(last_copies(op) for op in module.walk()) and list(used_too_early(module)) == []

    def without(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        return DROP if last_copies(op) else None

    assert "wait" in {hazard.missing for hazard in used_too_early(transform(module, without))}
