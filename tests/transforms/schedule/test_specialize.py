"""Warp specialisation as a pass: the roles of a loop, shared channels, and loops that are not specialised.

What is specialised is run in `tests/backend/ptx/test_roles.py`. What is not is pipelined as if it had not asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op, OpResult
from ziggurat.codemodel.passes import Snapshot
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import SharedType
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.gpu.gpu_passes import PLACE, place
from ziggurat.transforms.schedule.specialize import specialize

Golden = Callable[[str, object], None]


def before(model: Op, num_warps: int = 4, target: str = "sm_90a") -> Op:
    """The model before the pass."""
    options = CompileOptions(target, num_warps)
    for name, step in PLACE:
        if name == "specialize":
            return model
        model = step(model, options)
    raise AssertionError("no such step")


def roles_of(module: Op) -> gpu.WarpSpecialize | None:
    return next((op for op in module.walk() if isinstance(op, gpu.WarpSpecialize)), None)


def inside(role: Any, *classes: type[Op]) -> list[Op]:
    return [op for top in role.entry.ops for op in top.walk() if isinstance(op, classes)]


def asked(model: Op, **options: Any) -> Op:
    """The placed model; the model after each pass verifies, and its text parses to the same model."""
    snapshots: list[Snapshot] = []
    module = place(model, CompileOptions("sm_90a", 4, 3, verify=True, **options), snapshots)
    for snapshot in snapshots:
        assert str(parse(str(snapshot.model))) == str(snapshot.model)
    return module


def descriptors(*blocks: tuple[int, int]) -> list[Any]:
    return [zg.divisible(zg.descriptor(block, zg.f16)) for block in blocks]


I32 = zg.divisible(zg.i32)
BLOCKS = descriptors((64, 16), (16, 16), (64, 16))


@zg.kernel
def product(a_desc, b_desc, c_desc, k, also_ptr, ALSO: zg.constexpr, ROLES: zg.constexpr):
    """One tile, with a variation `ALSO`."""
    acc = zg.zeros((64, 16), zg.f32)
    also = zg.zeros((64, 16), zg.f32)
    row = 0
    if ALSO == "loaded address" or ALSO == "changed address":
        row = zg.load(also_ptr)
    if ALSO == "summed address":
        row = zg.sum(zg.arange(0, 64), axis=0)
    if ALSO == "gathered address":
        row = zg.max(zg.load(zg.add(also_ptr, zg.arange(0, 64))), axis=0)
    if ALSO == "condition":
        if k > 0:
            row = 64
    if ALSO == "atomic":
        zg.atomic_xchg(also_ptr, 1)
    if ALSO == "count":
        zg.atomic_add(also_ptr, 1)
    for start in zg.range(0, k, 16, warp_specialize=ROLES):
        at = start
        if ALSO == "loaded inside":
            at = zg.load(also_ptr + start)
        acc = zg.dot(a_desc.load((row, at)), zg.trans(b_desc.load((0, start))), acc)
        if ALSO == "store" or ALSO == "changed address":
            zg.store(also_ptr + start, start)
        if ALSO == "release":
            zg.atomic_add(also_ptr, 1)
        if ALSO == "print":
            zg.device_print("start", start)
        if ALSO == "pointers":
            rows, columns = zg.expand(zg.arange(0, 16), 1), zg.expand(zg.arange(0, 16), 0)
            where = zg.add(also_ptr, zg.add(zg.mul(zg.add(rows, start), 16), columns))
            also = zg.dot(a_desc.load((row, start)), zg.cast(zg.load(where), zg.f16), also)
    c_desc.store((0, 0), zg.cast(zg.add(acc, also), zg.f16))


def product_of(also: str = "", *, roles: bool = True, pointers: Any = zg.i32) -> Op:
    return product.triton(*BLOCKS, I32, zg.divisible(zg.ptr(pointers)), also, roles)


def test_the_roles_of_a_loop(golden: Golden) -> None:
    model = before(product_of())
    result = specialize(model, 2)
    verify(result)
    golden("specialize.before", model)
    golden("specialize.after", result)


def test_each_role_has_its_part() -> None:
    split = roles_of(asked(product_of()))
    assert split is not None and split.warps == (4, 4)
    computing, fetching = split.roles
    assert inside(computing, gpu.Wgmma, gpu.MbarrierArrive) and not inside(computing, gpu.TmaLoad, gpu.MbarrierExpect)
    assert len(inside(fetching, gpu.TmaLoad)) == 2
    assert not inside(fetching, gpu.Wgmma, gpu.MbarrierArrive, gpu.Barrier, gpu.TmaStore, gpu.LocalStore)
    (loop,) = inside(fetching, scf.For)
    assert not any("tensor" in str(value.type) for op in loop.walk() for value in op.operands)


@pytest.mark.parametrize(
    ("also", "expected"),
    [("", [0, 2]), ("print", [0, 2]), ("loaded inside", [0, 1]), ("store", [0, 2]), ("count", [0, 2])],
)
def test_loads_that_the_producer_does_not_do(also: str, expected: list[int]) -> None:
    """The consumer keeps a block whose address is loaded in the loop, a print, a store and an atomic."""
    split = roles_of(asked(product_of(also)))
    assert split is not None
    assert [len(inside(role, gpu.TmaLoad)) for role in split.roles] == expected
    assert not inside(split.roles[1], tt.Print, tt.Load, tt.Store, tt.AtomicRMW)


def test_the_producer_loads_what_the_kernel_does_not_change() -> None:
    split = roles_of(asked(product_of("loaded address")))
    assert split is not None
    assert [len(inside(role, gpu.TmaLoad)) for role in split.roles] == [0, 2]
    assert len(inside(split.roles[1], tt.Load)) == 1


@pytest.mark.parametrize("also", ["changed address", "gathered address", "summed address", "condition", "release"])
def test_loops_that_are_not_specialised(also: str) -> None:
    """The model is the same as without the request, apart from the loop's attribute."""
    result, plain = asked(product_of(also)), asked(product_of(also, roles=False))
    assert roles_of(result) is None
    kinds = [[op.NAME for op in module.walk()] for module in (result, plain)]
    assert kinds[0] == kinds[1]


def test_an_acquire_keeps_a_kernel_that_asks_for_roles_from_them() -> None:
    """A producer would load before it. Without the request, TMA loads after the acquire."""
    result, plain = asked(product_of("atomic")), asked(product_of("atomic", roles=False))
    loads = [any(isinstance(op, gpu.TmaLoad) for op in module.walk()) for module in (result, plain)]
    assert roles_of(result) is None and loads == [False, True]


def test_copies_by_threads_are_pipelined() -> None:
    """The consumer copies a block that has other uses as well, or that comes through pointers that are not raised."""
    model = product_of("pointers", pointers=zg.f16)
    result = asked(model, raise_pointers=False)
    names = [op.NAME for op in result.walk()]
    assert "gpu.async_copy" in names and "gpu.tma_load" in names and roles_of(result) is None
    assert roles_of(asked(model)) is not None


@pytest.mark.parametrize(("warps", "expected"), [(1, False), (2, False), (4, True), (8, True), (16, True), (32, False)])
def test_how_many_warps(warps: int, expected: bool) -> None:
    """Whole warp groups compute, and one more fetches: a CTA has 32 warps at most."""
    blocks = descriptors((512, 16), (16, 16), (512, 16))
    module = place(wide.triton(*blocks, I32), CompileOptions("sm_90a", warps, 3))
    split = roles_of(module)
    assert (split is not None) == expected
    assert split is None or sum(split.warps) == warps + 4


@zg.kernel
def wide(a_desc, b_desc, c_desc, k):
    acc = zg.zeros((512, 16), zg.f32)
    for start in zg.range(0, k, 16, warp_specialize=True):
        acc = zg.dot(a_desc.load((0, start)), zg.trans(b_desc.load((0, start))), acc)
    c_desc.store((0, 0), zg.cast(acc, zg.f16))


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90", "sm_90a"])
def test_which_targets(target: str) -> None:
    result = place(product_of(), CompileOptions(target, 4, 3))
    assert (roles_of(result) is not None) == (target == "sm_90a")


def test_one_stage_is_no_pipeline() -> None:
    assert roles_of(place(product_of(), CompileOptions("sm_90a", 4, 1))) is None


def test_a_module_without_a_request_stays() -> None:
    model = before(product_of(roles=False))
    assert specialize(model, 3) is model
    model = before(product_of("release"))
    assert specialize(model, 3) is model


def test_several_blocks() -> None:
    """A function with several blocks stays as it is."""
    text = str(before(product_of())).replace("tt.return;", "cf.br ^last; ^last: tt.return;")
    model = parse(text)
    verify(model)
    assert any(isinstance(op, tt.Func) and len(op.body.blocks) == 2 for op in model.walk())
    assert specialize(model, 3) is model


# The ops around the loop.


@zg.kernel
def placed_in(a_desc, b_desc, c_desc, k, n, IN: zg.constexpr):
    """The loop in a for, a while, an if, or another specialised loop."""
    if IN == "for":
        for row in range(0, n, 64):
            acc = zg.zeros((64, 16), zg.f32)
            for start in zg.range(0, k, 16, warp_specialize=True):
                acc = zg.dot(a_desc.load((row, start)), zg.trans(b_desc.load((0, start))), acc)
            c_desc.store((row, 0), zg.cast(acc, zg.f16))
    elif IN == "for in for":
        for row in range(0, n, 64):
            for column in range(0, n, 16):
                acc = zg.zeros((64, 16), zg.f32)
                for start in zg.range(0, k, 16, warp_specialize=True):
                    acc = zg.dot(a_desc.load((row, start)), zg.trans(b_desc.load((column, start))), acc)
                c_desc.store((row, column), zg.cast(acc, zg.f16))
    elif IN == "asking for":
        for row in zg.range(0, n, 64, warp_specialize=True):
            acc = zg.zeros((64, 16), zg.f32)
            for start in zg.range(0, k, 16, warp_specialize=True):
                acc = zg.dot(a_desc.load((row, start)), zg.trans(b_desc.load((0, start))), acc)
            c_desc.store((row, 0), zg.cast(acc, zg.f16))
    elif IN == "while":
        row = 0
        while row < n:
            acc = zg.zeros((64, 16), zg.f32)
            for start in zg.range(0, k, 16, warp_specialize=True):
                acc = zg.dot(a_desc.load((row, start)), zg.trans(b_desc.load((0, start))), acc)
            c_desc.store((row, 0), zg.cast(acc, zg.f16))
            row += 64
    elif n > 0:
        acc = zg.zeros((64, 16), zg.f32)
        for start in zg.range(0, k, 16, warp_specialize=True):
            acc = zg.dot(a_desc.load((0, start)), zg.trans(b_desc.load((0, start))), acc)
        c_desc.store((0, 0), zg.cast(acc, zg.f16))


@pytest.mark.parametrize(
    ("where", "expected"), [("for", 2), ("for in for", 3), ("asking for", 0), ("while", 0), ("if", 0)]
)
def test_the_ops_around_a_loop(where: str, expected: int) -> None:
    """Other for loops may be around it; the producer runs them as well."""
    split = roles_of(asked(placed_in.triton(*BLOCKS, I32, I32, where)))
    assert (split is not None) == bool(expected)
    if split is not None:
        assert len(inside(split.roles[0], scf.For)) == len(inside(split.roles[1], scf.For)) == expected


# Channels.


@zg.kernel
def in_sequence(a_desc, b_desc, other_desc, c_desc, k, OTHER: zg.constexpr, SECOND: zg.constexpr, STAGES: zg.constexpr):
    """Two loops. With `OTHER`, the second one has blocks of another shape; with `SECOND`, it asks for roles as well."""
    acc = zg.zeros((64, 64), zg.f32)
    for start in zg.range(0, k, 16, warp_specialize=True):
        acc = zg.dot(a_desc.load((0, start)), zg.trans(b_desc.load((0, start))), acc)
    for start in zg.range(0, k, 64 if OTHER else 16, warp_specialize=SECOND, num_stages=STAGES):
        if OTHER:
            acc = zg.dot(other_desc.load((0, start)), zg.trans(other_desc.load((64, start))), acc)
        else:
            acc = zg.dot(a_desc.load((64, start)), zg.trans(b_desc.load((64, start))), acc)
    c_desc.store((0, 0), zg.cast(acc, zg.f16))


def sequence_of(other: bool, second: bool = True, stages: int | None = None) -> Op:
    blocks = descriptors((64, 16), (64, 16), (64, 64), (64, 64))
    return in_sequence.triton(*blocks, I32, other, second, stages)


def channels_of(module: Op) -> list[int]:
    """The number of slots of each ring of a kernel, mbarriers aside."""
    func = next(op for op in module.walk() if isinstance(op, tt.Func))
    results: list[int] = []
    for op in func.body.entry.ops:
        if isinstance(op, gpu.LocalAlloc) and isinstance(op.type, SharedType) and op.type.offsets:
            results.append(op.type.count)
    return results


@pytest.mark.parametrize(
    ("other", "stages", "expected"), [(False, None, [3, 3]), (False, 2, [3, 3, 2, 2]), (True, None, [3, 3, 3, 3])]
)
def test_channels(other: bool, stages: int | None, expected: list[int]) -> None:
    """Loops that fetch the same shapes in the same number of stages share a channel."""
    assert channels_of(asked(sequence_of(other, stages=stages))) == expected


def test_a_loop_without_a_request_beside_one_with() -> None:
    """The consumer pipelines it."""
    split = roles_of(asked(sequence_of(other=True, second=False)))
    assert split is not None
    computing, fetching = split.roles
    assert len(inside(fetching, gpu.TmaLoad)) == 2 and len(inside(fetching, scf.For)) == 1
    assert len(inside(computing, gpu.TmaLoad)) == 6 and len(inside(computing, scf.For)) == 2


# Shared memory.


@zg.kernel
def large(a_desc, b_desc, c_desc, e_desc, f_desc, k, K: zg.constexpr, N: zg.constexpr, L: zg.constexpr):
    """Two channels, each of which alone would fit with all its stages."""
    acc = zg.zeros((64, N), zg.f32)
    for start in zg.range(0, k, K, warp_specialize=True):
        acc = zg.dot(a_desc.load((0, start)), zg.trans(b_desc.load((0, start))), acc)
    for start in zg.range(0, k, L, warp_specialize=True):
        acc = zg.dot(e_desc.load((0, start)), zg.trans(f_desc.load((0, start))), acc)
    c_desc.store((0, 0), zg.cast(acc, zg.f16))


def large_of(k: int, n: int, depth: int) -> Op:
    blocks = descriptors((64, k), (n, k), (64, n), (64, depth), (n, depth))
    return large.triton(*blocks, I32, k, n, depth)


@pytest.mark.parametrize(
    ("k", "n", "depth", "expected"),
    [
        (64, 64, 32, [4, 4, 4, 4]),
        (128, 128, 64, [2, 2, 2, 2]),  # 48 KB and 24 KB a stage.
        (256, 128, 128, []),  # 96 KB and 48 KB: not two of each.
    ],
)
def test_all_channels_fit_together(k: int, n: int, depth: int, expected: list[int]) -> None:
    """Channels live as long as the kernel, beside each other: there are fewer stages, or no roles."""
    model = large_of(k, n, depth)
    module = place(model, CompileOptions("sm_90a", 4, 4))
    assert isinstance(module, gpu.Module) and module.shared <= 227 * 1024
    split = roles_of(module)
    assert (split is not None) == bool(expected)
    assert split is None or channels_of(module) == expected


@zg.kernel
def beside(a_desc, b_desc, c_desc, e_desc, k, K: zg.constexpr, N: zg.constexpr):
    """The buffers of an earlier loop are in shared memory beside the channel."""
    acc = zg.zeros((64, N), zg.f32)
    for start in zg.range(0, k, 256, num_stages=1):
        acc = zg.dot(e_desc.load((0, start)), zg.trans(e_desc.load((64, start))), acc)
    for start in zg.range(0, k, K, warp_specialize=True):
        acc = zg.dot(a_desc.load((0, start)), zg.trans(b_desc.load((0, start))), acc)
    c_desc.store((0, 0), zg.cast(acc, zg.f16))


def test_channels_fit_beside_other_buffers() -> None:
    """A loop that is not pipelined needs 64 KB: with 32 KB a stage, there are four stages and not six."""
    blocks = descriptors((64, 128), (64, 128), (64, 64), (64, 256))
    module = place(beside.triton(*blocks, I32, 128, 64), CompileOptions("sm_90a", 4, 6))
    assert isinstance(module, gpu.Module) and module.shared <= 227 * 1024
    assert channels_of(module) == [4, 4]


def test_an_address_that_the_loop_does_not_compute() -> None:
    """The next value of a carried one may come from before the loop."""
    module = asked(jumping.triton(*BLOCKS, zg.i32))
    split = roles_of(module)
    assert split is not None
    (loop,) = inside(split.roles[1], scf.For)
    yielded = loop.body.entry.terminator.operands
    assert any(isinstance(value, OpResult) and value.block is not loop.body.entry for value in yielded)


@zg.kernel
def jumping(a_desc, b_desc, c_desc, rounds):
    acc = zg.zeros((64, 16), zg.f32)
    at, behind = 0, rounds * 16
    for _ in zg.range(0, rounds, warp_specialize=True):
        acc = zg.dot(a_desc.load((0, at)), zg.trans(b_desc.load((0, at))), acc)
        at = behind
    c_desc.store((0, 0), zg.cast(acc, zg.f16))
