"""The proof of channels: it reports each op that is missing or changed, and nothing of what the passes make."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
from asynchronous_kernels import KERNELS

import ziggurat as zg
from ziggurat.codemodel.dialects import arith, scf
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.gpu.channels import ChannelProof, proofs_of
from ziggurat.transforms.gpu.gpu_passes import PLACE
from ziggurat.transforms.gpu.hazards import hazards
from ziggurat.transforms.gpu.lower_channels import lower_channels

Change = Callable[[Rewriter, tuple[Value, ...]], Outcome]
NAMES = [step for step, _ in PLACE]
BY_TMA = ["descriptors", "attention", "tiles", "scaled"]


@cache
def with_channels(name: str, stages: int) -> gpu.Module:
    """The model of a kernel before `lower_channels`."""
    kernel, types, target, num_warps = KERNELS[name]
    model: Any = kernel.triton(*types)
    for _, step in PLACE[: NAMES.index("lower_channels")]:
        model = step(model, CompileOptions(target, num_warps, stages))
    return model


def faults(module: Op) -> list[str]:
    """The faults that the proofs report, or else those that the check of the finished model does."""
    results = [hazard.missing for proof in proofs_of(module).values() for hazard in proof.hazards]
    if results:
        return results
    model: Any = module
    for _, step in PLACE[NAMES.index("lower_channels") :]:
        model = step(model, CompileOptions(model.target, model.num_warps))
    return [hazard.missing for hazard in hazards(model)]


def replaced(module: gpu.Module, op: Op, change: Change) -> Op:
    return transform(module, lambda builder, old, operands: change(builder, operands) if old is op else None)


def made(op_of: Callable[[Value], Op], builder: Rewriter, operands: tuple[Value, ...]) -> Outcome:
    """Another op on the first operand."""
    return builder.add(op_of(operands[0]))


def without(op: Op, builder: Rewriter, operands: tuple[Value, ...]) -> Outcome:
    """The op is gone. Slot 0 takes the place of the slot that it gave."""
    if isinstance(op, gpu.WgmmaWait):
        return operands[0]
    if isinstance(op, gpu.ChannelAcquire | gpu.ChannelWait):
        return builder.add(arith.ConstantOp(0, zg.i32))
    return DROP


def said_before(op: Op) -> bool:
    """Whether a wait only names the result of a wgmma, because the wait before it was for that one, too."""
    assert op.parent is not None
    ops = op.parent.ops
    before = [other for other in ops[: ops.index(op)] if isinstance(other, gpu.Wgmma | gpu.WgmmaWait)]
    last = before[-1] if before else None
    return isinstance(op, gpu.WgmmaWait) and isinstance(last, gpu.WgmmaWait) and last.pending <= op.pending


ORDERING = (
    gpu.ChannelAcquire, gpu.ChannelCommit, gpu.ChannelWait, gpu.ChannelRelease, gpu.ChannelClose,
    gpu.TmaLoad, gpu.AsyncCopy, gpu.WgmmaWait,
)  # fmt: skip


def is_last(op: Op) -> bool:
    """Whether an op is the release after a loop that no role waits for, whose slots nothing fills again."""
    return isinstance(op, gpu.ChannelRelease) and isinstance(op.parent_op, scf.If)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("name", KERNELS)
def test_every_op_that_orders_others_is_needed(name: str, stages: int) -> None:
    module = with_channels(name, stages)
    verify(module)
    assert str(parse(str(module))) == str(module)
    assert faults(module) == []
    ordering = [op for op in module.walk() if isinstance(op, ORDERING) and not said_before(op)]
    assert len(ordering) > 5
    for op in ordering:
        less = replaced(module, op, lambda builder, operands, op=op: without(op, builder, operands))
        assert faults(less) or (name not in ("tiles", "scaled") and is_last(op)), f"{op!r} is not missed"


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("name", KERNELS)
def test_a_wait_for_too_few_groups(name: str, stages: int) -> None:
    module = with_channels(name, stages)
    for op in module.walk():
        if isinstance(op, gpu.WgmmaWait) and not said_before(op):
            laxer = partial(made, lambda value, pending=op.pending + 1: gpu.WgmmaWait(value, pending))
            assert faults(replaced(module, op, laxer)), f"{op!r} waits for too many"


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("name", KERNELS)
def test_a_slot_is_released_in_its_iteration(name: str, stages: int) -> None:
    """One slot more is held, or one less: too few slots are left, or a wgmma still reads what is released."""
    module = with_channels(name, stages)
    for op in module.walk():
        if isinstance(op, gpu.ChannelRelease) and isinstance(op.parent_op, scf.For):
            for values in {op.held + 1, max(op.held - 1, 0)} - {op.held}:
                other = partial(made, lambda channel, contents=values: gpu.ChannelRelease(channel, held=contents))
                actual = faults(replaced(module, op, other))
                # A ring with one slot more than its copies need has room for one that is held longer.
                spare = values > op.held and name.startswith("pointers") and stages > 2
                assert actual or spare, f"{op!r} may leave {values}"


@pytest.mark.parametrize("name", KERNELS)
def test_ops_use_the_slot_of_their_iteration(name: str) -> None:
    module = with_channels(name, 3)
    views = [op for op in module.walk() if isinstance(op, gpu.LocalView)]
    assert views
    for op in views:

        def first(builder: Rewriter, operands: tuple[Value, ...]) -> Outcome:
            return builder.add(gpu.LocalView(operands[0], builder.add(arith.ConstantOp(0, zg.i32))))

        assert faults(replaced(module, op, first)), f"{op!r} may be of slot 0"


@pytest.mark.parametrize("name", BY_TMA)
def test_the_loads_of_a_slot_have_its_predicate(name: str) -> None:
    """Otherwise other bytes would come than the mbarrier expects."""
    module = with_channels(name, 3)
    for op in module.walk():
        if isinstance(op, gpu.TmaLoad):

            def never(builder: Rewriter, operands: tuple[Value, ...]) -> Outcome:
                descriptor, buffer, channel, _, *offsets = operands
                no = builder.add(arith.ConstantOp(False, zg.i1))
                return builder.add(gpu.TmaLoad(descriptor, buffer, channel, no, offsets))

            assert "acquire" in faults(replaced(module, op, never))


def test_a_fault_is_an_internal_error() -> None:
    module = with_channels("tiles", 3)
    release = next(op for op in module.walk() if isinstance(op, gpu.ChannelRelease))
    with pytest.raises(InternalError, match=r"no same number of slots on all paths at <scf\.for"):
        lower_channels(replaced(module, release, lambda _, __: DROP))  # pyright: ignore[reportArgumentType]


# Programs of one channel of two slots.

RING = 'shared<n2, x64, x64, f16, "1 2 4 8 16 32 72 144 288 512 1024 2048">'
SLOT = RING.replace("n2, ", "")
ACC = 'tensor<x64, x64, f32, "1 512 8 16 32 | 2 4 64 128 256 | 1024 2048">'
TENSOR = 'tensor<x64, x64, f16, "1 2 4 8 16 | 32 64 128 256 512 | 1024 2048">'
FETCH = f"""%s : i32 = gpu.channel_acquire %c %yes; %sv : {SLOT} = gpu.local_view %a %s;
    gpu.tma_load %t %sv %c %yes %zero %zero; gpu.channel_commit %c;"""
AGAIN, ONCE_MORE = FETCH.replace("%s", "%u"), FETCH.replace("%s", "%w")
WAIT = f"%r : i32 = gpu.channel_wait %c; %rv : {SLOT} = gpu.local_view %a %r;"
READ = f"%v : {TENSOR} = gpu.local_load %rv;"
DOT = f"%d : {ACC} = gpu.wgmma %rv %rv %z;"
DONE = f"%e : {ACC} = gpu.wgmma_wait %d @0;"
FREE = "gpu.channel_release %c;"


def program(lines: str) -> gpu.Module:
    text = f"""gpu.module @target="sm_90a" @num_warps=4 ()void -> {{
        tt.func @"k" (%t : descriptor<x64, x64, f16>, %n : i32, %yes : i1)void -> {{
            %zero : i32 = arith.constant @0; %one : i32 = arith.constant @1; %z : {ACC} = arith.constant @0.0;
            %a : {RING} = gpu.local_alloc @alignment=1024; %c : channel = gpu.channel %a;
            {lines}
            gpu.channel_close %c; tt.return; }}; unreachable; }};"""
    model = parse(text)
    verify(model)
    assert isinstance(model, gpu.Module)
    return model


def proof_of(lines: str) -> ChannelProof:
    (proof,) = proofs_of(program(lines)).values()
    return proof


def loop(lines: str) -> str:
    return f"scf.for %zero %n %one (%i : i32)void -> {{ {lines} scf.yield; }};"


def branch(then: str, otherwise: str = "") -> str:
    return f"scf.if %yes ()void -> {{ {then} scf.yield; }} ()void -> {{ {otherwise} scf.yield; }};"


@pytest.mark.parametrize(
    ("lines", "missing"),
    [
        (f"{FETCH} {WAIT} {READ} {FREE}", set[str]()),
        (f"{FETCH} {WAIT} {READ}", set[str]()),  # Nothing is acquired any more.
        (f"{WAIT} {READ}", {"commit"}),
        (f"{FETCH} {WAIT} {FREE} {READ}", {"wait"}),
        (f"{FETCH} {WAIT} {DOT} {DONE} {FREE}", set[str]()),
        (f"{FETCH} {WAIT} {DOT} {FREE} {DONE}", {"wait"}),
        (f"{FETCH} {AGAIN} {ONCE_MORE}", {"release"}),
        (f"{FETCH} {WAIT} {AGAIN} {ONCE_MORE}", {"release"}),
        (f"{FETCH} {WAIT} {AGAIN} {FREE} {ONCE_MORE}", set[str]()),
        (FETCH.replace("gpu.channel_commit %c;", "") + AGAIN, {"commit"}),
        (FETCH.replace("%yes;", "%no;", 1).replace("%s :", "%no : i1 = arith.constant @false; %s :", 1), {"acquire"}),
        ("%s : i32 = gpu.channel_acquire %c %yes; gpu.channel_commit %c;", {"load into each ring"}),
        (f"{FETCH} {loop(f'{FETCH} {WAIT} {READ} {FREE}')}", set[str]()),
        (f"{FETCH} {loop(f'{WAIT} {READ} {FREE} {FETCH}')}", set[str]()),
        (f"{FETCH} {loop(f'{WAIT} {DOT} {DONE} {FREE} {FETCH}')}", set[str]()),
        (f"{FETCH} {loop(f'{WAIT} {DOT} {FREE} {DONE} {FETCH}')}", {"wait"}),
        (loop(f"{FETCH} {WAIT} {READ}"), {"same number of slots on all paths"}),
        (loop(FETCH), {"same number of slots on all paths"}),
        (f"{FETCH} {branch(f'{WAIT} {READ} {FREE}')}", {"same number of slots on all paths"}),
        (f"{FETCH} {branch(f'{WAIT} {READ} {FREE}', f'{WAIT} {FREE}')}", set[str]()),
    ],
)
def test_programs_of_one_channel(lines: str, missing: set[str]) -> None:
    assert {hazard.missing for hazard in proof_of(lines).hazards} == missing


def test_a_wgmma_that_reads_the_slot_of_the_iteration_before() -> None:
    """It may be in flight at a release that leaves its slot, and at no other."""
    body = f"{WAIT} {DOT} %e : {ACC} = gpu.wgmma_wait %d @1; gpu.channel_release %c @held=HELD; {FETCH}"
    guarded = (
        "%g : i1 = arith.cmpi %zero %n @slt; scf.if %g ()void -> { LOOP FREE scf.yield; } ()void -> { scf.yield; };"
    )
    for values, free, missing in ((1, FREE, {"wait"}), (0, FREE, {"wait"})):
        lines = guarded.replace("LOOP", loop(body.replace("HELD", str(values)))).replace("FREE", free)
        results = {hazard.missing for hazard in proof_of(f"{FETCH} {lines}").hazards}
        # After the loop, the last wgmma has not been waited for.
        assert results == missing
    complete = f"%f : {ACC} = gpu.wgmma_wait %z @0; {FREE}"
    lines = guarded.replace("LOOP", loop(body.replace("HELD", "1"))).replace("FREE", complete)
    proof = proof_of(f"{FETCH} {lines}")
    assert proof.hazards == []
    releases = [op for op in proof.op.root().walk() if isinstance(op, gpu.ChannelRelease)]
    assert [proof.frees(op) for op in releases] == [(False, True), (True, True)]
    # Without the test for an iteration, there may be nothing to release after the loop.
    open_loop = f"{FETCH} {loop(body.replace('HELD', '1'))} {complete}"
    assert {hazard.missing for hazard in proof_of(open_loop).hazards} == {"same number of slots on all paths"}
