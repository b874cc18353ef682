"""Buffers in shared memory as parts of allocations: rings, whose slots a loop uses one after the other.

%b : shared<n3, x64, x64, f16, "…"> = gpu.local_alloc;        a ring of three slots
%v : shared<x64, x64, f16, "…"> = gpu.local_view %b %slot;    the slot of this index
"""

from __future__ import annotations

from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import OpResult, Value
from ziggurat.codemodel.types import SharedType

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


def slots_of(buffer: Value) -> int:
    """The number of slots of the allocation that a buffer is part of."""
    type_ = allocation(buffer).type
    return type_.count if isinstance(type_, SharedType) else 1
