"""Buffers in shared memory as parts of allocations: rings, whose slots a loop uses one after the other.

    %b : shared<n3, x64, x64, f16, "…"> = gpu.local_alloc;        a ring of three slots
    %v : shared<x64, x64, f16, "…"> = gpu.local_view %b %slot;    the slot of this index

A loop carries the slot index, and the phase of the slots' mbarriers: a parity that changes each time that the index
comes back to 0. The checks of such buffers report a `Hazard`.
"""

from __future__ import annotations

import attrs

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.transforms.place.queries import constant

# Ops that read buffers in shared memory.
READERS = (gpu.Wgmma, gpu.Mma, gpu.DotFma, gpu.LocalLoad, gpu.LocalGather, gpu.TmaStore)


def allocation(buffer: Value) -> Value:
    """The allocation that a buffer is part of."""
    while isinstance(buffer, OpResult) and isinstance(buffer.op, gpu.LocalView | gpu.LocalTrans):
        buffer = buffer.op.buffer
    return buffer


def slot_index(buffer: Value) -> Value | None:
    """The index of the slot that a buffer is; None of a buffer that is no slot of a ring."""
    while isinstance(buffer, OpResult) and isinstance(buffer.op, gpu.LocalTrans):
        buffer = buffer.op.buffer
    return buffer.op.index if isinstance(buffer, OpResult) and isinstance(buffer.op, gpu.LocalView) else None


@attrs.frozen
class Hazard:
    """Two ops between which something is missing on some path: a "barrier", "fence", "wait", "commit", "arrival" …"""

    first: Op
    second: Op
    missing: str

    def __str__(self) -> str:
        return f"no {self.missing} between {self.first!r} and {self.second!r}"


class Counter:
    """The arithmetic on the slot index of a ring of `stages` slots, in one body."""

    def __init__(self, builder: Builder, slot: Value, stages: int) -> None:
        self.builder = builder
        self.slot = slot
        self.stages = stages
        self.zero, self.last, self.one = (constant(builder, value) for value in (0, stages - 1, 1))

    def before(self, count: int = 1) -> Value:
        """The index of the slot `count` iterations before."""
        add = self.builder.add
        if count == 1:
            wraps, around = add(arith.CmpI(self.slot, self.zero, arith.IntPredicate.EQ)), self.last
            back = self.one
        else:
            wraps = add(arith.CmpI(self.slot, constant(self.builder, count), arith.IntPredicate.SLT))
            around = add(arith.AddI(self.slot, constant(self.builder, self.stages - count)))
            back = constant(self.builder, count)
        return add(arith.Select(wraps, around, add(arith.SubI(self.slot, back))))

    def after(self, phase: Value | None) -> list[Value]:
        """The index of the next slot; and its phase, if there is one."""
        add = self.builder.add
        wraps = add(arith.CmpI(self.slot, self.last, arith.IntPredicate.EQ))
        following: list[Value] = [add(arith.Select(wraps, self.zero, add(arith.AddI(self.slot, self.one))))]
        if phase is not None:
            following.append(add(arith.XOrI(phase, add(arith.Select(wraps, self.one, self.zero)))))
        return following
