"""Channels as mbarriers and groups of copies: the slots and phases that loops count, judged by running them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest
from asynchronous_kernels import KERNELS

from ziggurat.codemodel.dialects import arith, core, scf
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.numbers import ELEMENTWISE, on_numbers
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import i32
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.analysis.memory_flow import allocation, slot_index
from ziggurat.transforms.gpu.gpu_passes import place
from ziggurat.transforms.gpu.lower_channels import lower_channels

BITS = '"1 2 4 8 16 32 72 144 288 512 1024 2048"'
ACC = 'tensor<x64, x64, f32, "1 512 8 16 | 2 4 64 128 256 | 1024 2048 32">'
Z = f"%z : {ACC} = arith.constant @0.0;"


def slot(stages: int) -> str:
    return f"shared<n{stages}, x64, x64, f16, {BITS}>" if stages > 1 else f"shared<x64, x64, f16, {BITS}>"


def fetch(number: int) -> str:
    return f"""%s{number} : i32 = gpu.channel_acquire %c %yes; %sv{number} : {slot(1)} = gpu.local_view %a %s{number};
        gpu.tma_load %t %sv{number} %c %yes %zero %zero; gpu.channel_commit %c;"""


def read(number: int) -> str:
    return f"""%r{number} : i32 = gpu.channel_wait %c; %rv{number} : {slot(1)} = gpu.local_view %a %r{number};
        %d{number} : {ACC} = gpu.wgmma %rv{number} %rv{number} %z; %e{number} : {ACC} = gpu.wgmma_wait %d{number} @0;
        gpu.channel_release %c;"""


def loop(lines: str) -> str:
    return f"scf.for %zero %n %one (%i : i32)void -> {{ {lines} scf.yield; }};"


def lowered(stages: int, lines: str, num_warps: int = 8) -> Op:
    text = f"""gpu.module @target="sm_90a" @num_warps={num_warps} ()void -> {{
        tt.func @"k" (%t : descriptor<x64, x64, f16>, %n : i32, %yes : i1)void -> {{
            %zero : i32 = arith.constant @0; %one : i32 = arith.constant @1;
            %a : {slot(stages)} = gpu.local_alloc @alignment=1024; %c : channel = gpu.channel %a;
            {lines}
            tt.return; }}; unreachable; }};"""
    model = parse(text)
    verify(model)
    assert isinstance(model, gpu.Module)
    result = lower_channels(model)
    verify(result)
    return result


class Run:
    """A run of a lowered kernel in which every loop has so many iterations: the slots of ops on mbarriers, in order."""

    def __init__(self, module: Op, iterations: int) -> None:
        self.iterations = iterations
        self.numbers: dict[Value, Any] = {}
        self.log: dict[tuple[type[Op], Value], list[tuple[int, int | None]]] = {}
        self._ops(module.bodies[0].entry.ops[0].bodies[0].entry.ops)

    def of(self, kind: type[Op]) -> list[list[tuple[int, int | None]]]:
        """For each buffer of mbarriers, the slots that ops of a class name; for waits, with the parity."""
        return [slots for (cls, _), slots in self.log.items() if cls is kind]

    def _ops(self, ops: Iterable[Op]) -> None:
        for op in ops:
            self._op(op)

    def _op(self, op: Op) -> None:
        numbers = self.numbers
        if isinstance(op, scf.For):
            parameters = [numbers.get(value) for value in op.initial]
            for index in range(self.iterations):
                numbers.update(zip(op.body.parameters, (index, *parameters), strict=True))
                self._ops(op.body.entry.ops[:-1])
                parameters = [numbers.get(value) for value in op.body.entry.terminator.operands]
            numbers[op.result] = parameters
        elif isinstance(op, scf.If):
            body = op.then if self.iterations else op.otherwise
            self._ops(body.entry.ops[:-1])
            numbers[op.result] = [numbers.get(value) for value in body.entry.terminator.operands]
        elif isinstance(op, core.TupleLoad):
            numbers[op.result] = numbers[op.tuple][op.index]
        elif isinstance(op, gpu.WarpSpecialize):
            for role in op.roles:
                self._ops(role.entry.ops[:-1])
        elif isinstance(op, arith.ConstantOp):
            numbers[op.result] = op.value
        elif isinstance(op, ELEMENTWISE) and all(numbers.get(value) is not None for value in op.operands):
            numbers[op.result] = int(on_numbers(op, [numbers[value] for value in op.operands]))
        elif isinstance(op, gpu.MbarrierWait | gpu.MbarrierExpect | gpu.MbarrierArrive):
            index = slot_index(op.barrier)
            parity = numbers[op.parity] if isinstance(op, gpu.MbarrierWait) else None
            if not isinstance(op, gpu.MbarrierArrive) or numbers[op.predicate]:
                slots = self.log.setdefault((type(op), allocation(op.barrier)), [])
                slots.append((0 if index is None else numbers[index], parity))


def expected(stages: int, count: int, first: int = 0) -> list[tuple[int, int]]:
    """The slots and parities of accesses in order."""
    return [(at % stages, (at // stages + first) % 2) for at in range(count)]


def slots(stages: int, count: int) -> list[tuple[int, None]]:
    """The slots of accesses in order."""
    return [(at % stages, None) for at in range(count)]


@pytest.mark.parametrize("iterations", [0, 1, 11])
@pytest.mark.parametrize("stages", [1, 2, 3, 5])
def test_slots_of_one_role(stages: int, iterations: int) -> None:
    """Loads run ahead by some slots, and an iteration may read several of them."""
    for ahead, count in product(range(1, min(stages, 3) + 1), (1, 2)):
        body = " ".join(f"{read(number)} {fetch(10 + number)}" for number in range(count))
        before = " ".join(map(fetch, range(20, 20 + ahead)))
        run = Run(lowered(stages, f"{Z} {before} {loop(body)} gpu.channel_close %c;"), iterations)
        assert run.of(gpu.MbarrierWait) == [expected(stages, count * iterations)] * (iterations > 0)
        assert run.of(gpu.MbarrierExpect) == [slots(stages, count * iterations + ahead)]
        assert run.of(gpu.MbarrierArrive) == []


KEPT = f"""%r : i32 = gpu.channel_wait %c; %rv : {slot(1)} = gpu.local_view %a %r; %d : {ACC} = gpu.wgmma %rv %rv %z;
    %e : {ACC} = gpu.wgmma_wait %d @1; gpu.channel_release %c @held=1;"""
GUARDED = f"""%g : i1 = arith.cmpi %zero %n @slt; scf.if %g ()void -> {{ {loop(KEPT)} %l : {ACC} = gpu.wgmma_wait %z @0;
    gpu.channel_release %c; scf.yield; }} ()void -> {{ scf.yield; }};"""


@pytest.mark.parametrize("iterations", [0, 1, 4])
@pytest.mark.parametrize(
    ("stages", "consumer"), [(1, read(1)), (2, read(1)), (3, read(1)), (5, read(1)), (2, KEPT), (3, KEPT), (5, KEPT)]
)
def test_slots_of_roles(stages: int, consumer: str, iterations: int) -> None:
    """Each role counts for itself, through loops in loops. A slot may be held into the next iteration."""
    roles = f"""gpu.warp_specialize @warps=[8, 4] @registers=[240, 24] @barriers=[1, 0]
        ()void -> {{ {Z} {loop(GUARDED if consumer is KEPT else loop(consumer))} scf.yield; }}
        ()void -> {{ {loop(loop(fetch(2)))} scf.yield; }};"""
    module = lowered(stages, roles, 12)
    run, count = Run(module, iterations), iterations * iterations
    # The consumer waits for full slots, and the producer for empty ones: the phase before the first counts as over.
    assert run.of(gpu.MbarrierWait) == [expected(stages, count), expected(stages, count, 1)][: 2 * bool(count)]
    assert run.of(gpu.MbarrierExpect) == run.of(gpu.MbarrierArrive) == [slots(stages, count)] * bool(count)
    # One arrival of TMA, and one of each warp group.
    assert [op.arrivals for op in module.walk() if isinstance(op, gpu.MbarrierInit)] == [1, 2]


def test_channels_that_advance_together_have_one_count() -> None:
    """Attention's keys and values: its loop carries one slot index and one phase."""
    kernel, types, target, num_warps = KERNELS["attention"]
    module = place(kernel.triton(*types), CompileOptions(target, num_warps, 3))
    (loop,) = [op for op in module.walk() if isinstance(op, scf.For)]
    assert [value.type for value in loop.initial].count(i32) == 2
    assert len([op for op in loop.walk() if isinstance(op, gpu.MbarrierWait)]) == 2


@pytest.mark.parametrize(("stages", "pending"), [(2, 0), (3, 1), (4, 2)])
def test_copies_of_threads(stages: int, pending: int) -> None:
    """A wait leaves the groups of later iterations in flight, and the last one leaves none."""
    kernel, types, target, num_warps = KERNELS["pointers, mma"]
    module = place(kernel.triton(*types), CompileOptions(target, num_warps, stages))
    assert [op.pending for op in module.walk() if isinstance(op, gpu.AsyncWait)] == [pending, 0]
    assert not any(isinstance(op, gpu.FenceAsync | gpu.MbarrierInit) for op in module.walk())
