"""The ops of the GPU dialect on buffers in shared memory.

Programs take them from the module of the dialect, `gpu.LocalAlloc`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.fields import attribute, operand, result_type
from ziggurat.codemodel.gpu.asynchronous import BufferOp
from ziggurat.codemodel.layout import transposition
from ziggurat.codemodel.op import Op, Value, require
from ziggurat.codemodel.traits import Pure
from ziggurat.codemodel.types import SharedType, TensorType, Type, i32, i64

__all__ = [
    "LocalAlloc", "LocalAtomicAdd", "LocalGather", "LocalLoad", "LocalStore", "LocalTrans", "LocalView", "transposed"
]  # fmt: skip


def laid_out(op: Op, type_: Type) -> TensorType:
    """A tensor type with a layout."""
    if not isinstance(type_, TensorType) or type_.layout is None:
        raise BuildError(f"{op.NAME}: the operand must be a tensor with a layout; got {type_}")
    return type_


def buffer_of(op: Op, value: Value) -> SharedType:
    """The type of a buffer in shared memory."""
    if not isinstance(value.type, SharedType):
        raise BuildError(f"{op.NAME}: the operand must be a buffer in shared memory; got {value.type}")
    return value.type


def require_mbarriers(op: Op, value: Value) -> None:
    require(buffer_of(op, value).element == i64, f"the mbarriers of {op.NAME} must be i64; got {value.type}")


class LocalAlloc(Op, name="gpu.local_alloc"):
    """A buffer in shared memory, alive until its last use; `offset` is its place in bytes, -1 until allocation.

    With `slots`, its loop is scheduled to have a ring of so many of it (`latency`).
    """

    type: Type = result_type()
    offset: int = attribute(int, default=-1)
    alignment: int = attribute(int, default=16)
    slots: int = attribute(int, default=0)

    def check(self) -> None:
        require(isinstance(self.type, SharedType), f"gpu.local_alloc gives a buffer; got {self.type}")


class LocalView(Op, Pure, name="gpu.local_view"):
    """One of the buffers of an allocation."""

    buffer: Value = operand()
    index: Value = operand(type=i32)

    def infer_type(self) -> Type:
        type_ = buffer_of(self, self.buffer)
        return SharedType(type_.shape, type_.element, type_.offsets)


class LocalTrans(Op, Pure, name="gpu.local_trans"):
    """A buffer with its axes in another order: axis i is axis `order[i]` of `buffer`. No element moves."""

    buffer: Value = operand()
    order: Sequence[int] = attribute([int])

    def infer_type(self) -> Type:
        type_ = buffer_of(self, self.buffer)
        require(sorted(self.order) == list(range(len(type_.shape))), f"{self.order} is not an order of the axes")
        return transposed(type_, self.order)


def transposed(type_: SharedType, order: Sequence[int]) -> SharedType:
    """The type of a buffer whose axis i is axis `order[i]` of a buffer of `type_`, with the same memory."""
    renumbered = transposition(type_.shape, order)
    shape = tuple(type_.shape[axis] for axis in order)
    return SharedType(shape, type_.element, tuple(map(renumbered, type_.offsets)), type_.count)


class LocalLoad(BufferOp, name="gpu.local_load"):
    """The tensor in a buffer, in the given layout."""

    READS = ("buffer",)

    buffer: Value = operand()
    type: Type = result_type(follows="buffer")

    def check(self) -> None:
        source, target = buffer_of(self, self.buffer), laid_out(self, self.type)
        require(source.shape == target.shape, f"gpu.local_load of {source} as {target}")


class LocalStore(BufferOp, name="gpu.local_store"):
    """Write a tensor to a buffer, so many iterations `ahead` of the one that reads it (`latency`)."""

    WRITES = ("buffer",)

    buffer: Value = operand()
    value: Value = operand()
    ahead: int = attribute(int, default=0)

    def check(self) -> None:
        target, source = buffer_of(self, self.buffer), laid_out(self, self.value.type)
        require(source.shape == target.shape, f"gpu.local_store of {source} to {target}")


class LocalAtomicAdd(BufferOp, name="gpu.local_atomic_add"):
    """Increment the counters of a buffer at the indices, where the mask holds: a histogram."""

    WRITES = ("buffer",)

    buffer: Value = operand()
    index: Value = operand()
    mask: Value | None = operand(default=None)

    def check(self) -> None:
        buffer_of(self, self.buffer)
        laid_out(self, self.index.type)


class LocalGather(BufferOp, name="gpu.local_gather"):
    """For each element of `index`, the element at that index along `axis` of the tensor in a buffer."""

    READS = ("buffer",)

    buffer: Value = operand()
    index: Value = operand()
    axis: int = attribute(int)

    def infer_type(self) -> Type:
        index = laid_out(self, self.index.type)
        return TensorType(index.shape, buffer_of(self, self.buffer).element, index.layout)

    def check(self) -> None:
        source, index = buffer_of(self, self.buffer).shape, laid_out(self, self.index.type).shape
        others = all(a == b for i, (a, b) in enumerate(zip(source, index, strict=False)) if i != self.axis)
        good = len(source) == len(index) and 0 <= self.axis < len(index) and others
        require(good, f"gpu.local_gather from {self.buffer.type} by {self.index.type} along axis {self.axis}")
