"""Buffers in the shared memory of a GPU model's CTAs, and the ops that only read and write them.

Layouts are ignored: a buffer holds a tensor, and its elements stand in row-major order. Once a model has offsets, the
memory of a buffer is that of its offset, so an allocation that overlaps another one too early spoils its contents.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from ziggurat.backend.reference.machine import UNWRITTEN, Machine, triton
from ziggurat.backend.reference.tensors import full, gathered
from ziggurat.backend.reference.values import Array, Frame
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Value, expect
from ziggurat.codemodel.types import SharedType

Operands = tuple[Any, ...]


@attrs.define(eq=False)
class Allocation:
    """The buffers of a `gpu.local_alloc`, as an array with the axes (CTA, slot, axes of the tensor).

    `mbarriers` are those that lie in it, from their initialisation on.
    """

    elements: Array
    mbarriers: Any = None


@attrs.frozen(eq=False)
class SharedBuffer:
    """A slot of an allocation, for each CTA: one index for all of them, or one for each row of the machine.

    Axis i of the tensor is axis `order[i]` of the allocation's.
    """

    allocation: Allocation
    slots: Array
    order: tuple[int, ...]

    @property
    def array(self) -> Array:
        """The elements of all slots."""
        return self.allocation.elements

    def place(self, frame: Frame) -> tuple[Any, Any]:
        """The index of the slots of the running CTAs in an array with the axes (CTA, slot)."""
        return frame.keys, self.slots if len(self.slots) == 1 else self.slots[frame.keys]

    def load(self, frame: Frame) -> Array:
        """The tensor that each running CTA has in the buffer."""
        array = self.allocation.elements[self.place(frame)]
        if array.dtype == np.bool_:
            array = array.view(np.uint8) != 0  # Any byte other than 0 is a true i1.
        return array.transpose(0, *(axis + 1 for axis in self.order))

    def store(self, frame: Frame, array: Array) -> None:
        """Write a tensor of each running CTA, with all inner axes at their sizes."""
        self.allocation.elements[self.place(frame)] = array.transpose(0, *(np.argsort(self.order) + 1))


def shared(value: Value) -> SharedType:
    """The type of a buffer."""
    return expect(value.type, SharedType)


def loaded(machine: Machine, value: Value, content: Any) -> Array:
    """A tensor, or what a buffer holds."""
    return content.load(machine.frame) if isinstance(content, SharedBuffer) else full(value, content)


@triton.of(gpu.LocalAlloc)
def _alloc(machine: Machine, op: gpu.LocalAlloc, operands: Operands) -> SharedBuffer:
    """An allocation without an offset has memory of its own."""
    type_, rows = shared(op.result), len(machine.shared)
    own = op.offset < 0
    memory = np.full((rows, type_.bytes), UNWRITTEN, np.uint8) if own else machine.shared
    start = 0 if own else op.offset
    slots = memory[:, start : start + type_.bytes].reshape(rows, type_.count, -1)
    elements = slots.view(type_.element.dtype).reshape(rows, type_.count, *type_.shape)
    return SharedBuffer(Allocation(elements), np.zeros(1, np.int32), tuple(range(len(type_.shape))))


@triton.of(gpu.LocalView)
def _view(machine: Machine, op: gpu.LocalView, operands: Operands) -> SharedBuffer:
    buffer, slots = operands
    if len(slots) > 1:
        slots_of_rows = np.zeros(len(machine.shared), slots.dtype)
        slots_of_rows[machine.frame.keys] = slots
        slots = slots_of_rows
    return attrs.evolve(buffer, slots=slots)


@triton.of(gpu.LocalTrans)
def _transposed(machine: Machine, op: gpu.LocalTrans, operands: Operands) -> SharedBuffer:
    return attrs.evolve(operands[0], order=tuple(operands[0].order[axis] for axis in op.order))


@triton.of(gpu.LocalLoad)
def _load(machine: Machine, op: gpu.LocalLoad, operands: Operands) -> Array:
    return operands[0].load(machine.frame)


@triton.of(gpu.LocalStore)
def _store(machine: Machine, op: gpu.LocalStore, operands: Operands) -> None:
    operands[0].store(machine.frame, full(op.value, operands[1]))


@triton.of(gpu.LocalGather)
def _gather(machine: Machine, op: gpu.LocalGather, operands: Operands) -> Array:
    return gathered(machine, operands[0].load(machine.frame), full(op.index, operands[1]), op.axis)


@triton.of(gpu.LocalAtomicAdd)
def _count(machine: Machine, op: gpu.LocalAtomicAdd, operands: Operands) -> None:
    """Indices outside of the counters count nowhere."""
    buffer, rows = operands[0], len(machine.frame)
    counts = buffer.load(machine.frame)
    index = full(op.index, operands[1]).astype(np.int64)
    index = np.broadcast_to(index, (rows, *index.shape[1:]))
    inside = (index >= 0) & (index < counts.shape[1])
    if op.mask is not None:
        inside = inside & full(op.mask, operands[2])
    row = np.broadcast_to(np.arange(rows).reshape(-1, *(1,) * (index.ndim - 1)), index.shape)
    np.add.at(counts, (row[inside], index[inside]), 1)
    buffer.store(machine.frame, counts)
